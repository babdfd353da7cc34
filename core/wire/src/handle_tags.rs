//! Tags of handles: how a server knows that it has told a client of an object. A client with a
//! limited key may name only such objects, and the directory that it takes for the root. Nobody
//! keeps a list: a tag follows from the key of the servers, the client's key and the handle, so
//! every server makes and checks it, and it ends with the generation of the key
//! (`docs/decisions/0012-keys-and-encryption.md`).

use weft_base::{Handle, Result, Status};

use crate::capability::equal_in_constant_time;
use crate::codec::wire_for_newtypes;
use crate::ops::{AllowedBy, ReadDirReply};
use crate::{ClusterKey, KeyId, Op, Reader, Request, Rights, Wire};

/// Bytes of a tag.
const TAG_BYTES: usize = 16;

/// Extension of requests and replies in which tags travel. It stands behind the extensions of the
/// message itself. Even: a client whose key is not limited any more may still show tags.
const TAGS_EXTENSION: u16 = 0xfffe;

/// Shows that a server has told of a handle: the first half of an HMAC-SHA256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HandleTag(pub [u8; TAG_BYTES]);

wire_for_newtypes! { HandleTag; }

/// A message with tags: in a request those of the handles that it names, in a reply those of the
/// handles that it tells, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tagged<M> {
    /// The message.
    pub message: M,
    /// The tags; none if the message comes without.
    pub tags: Vec<HandleTag>,
}

impl<M: Wire> Wire for Tagged<M> {
    fn put(&self, out: &mut Vec<u8>) {
        self.message.put(out);
    }
    #[inline]
    fn get(from: &mut Reader) -> Result<Self> {
        Ok(Tagged { message: M::get(from)?, tags: Vec::new() })
    }
    fn put_optional(&self, out: &mut Vec<u8>) {
        self.message.put_optional(out);
        put_tags(&self.tags, out);
    }
    fn get_optional(&mut self, tag: u16, mut value: Reader) -> Result<bool> {
        if tag != TAGS_EXTENSION {
            return self.message.get_optional(tag, value);
        }
        self.tags = Wire::get(&mut value)?;
        value.finish()?;
        Ok(true)
    }
}

/// Appends tags to an encoded message.
pub fn put_tags(tags: &[HandleTag], out: &mut Vec<u8>) {
    if !tags.is_empty() {
        crate::codec::put_optional(TAGS_EXTENSION, &Some(tags.to_vec()), out);
    }
}

impl Op {
    /// True if a client with a limited key must show a tag for each handle in its requests. Others
    /// name no object, or need a capability, which comes from an open.
    pub const fn needs_tags(self) -> bool {
        matches!(self.allowed_by(), AllowedBy::User | AllowedBy::Handle | AllowedBy::Open)
    }
}

/// Makes and checks the tags of one key.
#[derive(Clone, Debug)]
pub struct HandleTags {
    key: ClusterKey,
    /// What the client takes for the root: it needs no tag.
    root: Handle,
}

impl HandleTags {
    /// Of the clients with this key and this root.
    pub fn new(server: &ClusterKey, id: KeyId, generation: u32, root: Handle) -> HandleTags {
        let parts: [&[u8]; 3] = [&id.0.to_le_bytes(), &generation.to_le_bytes(), &root.0.to_le_bytes()];
        HandleTags { key: ClusterKey(server.mac(b"weft handle", &parts)), root }
    }

    /// The tag of a handle.
    pub fn tag(&self, handle: Handle) -> HandleTag {
        let mac = self.key.mac(b"weft handle", &[&handle.0.to_le_bytes()]);
        HandleTag(mac[..TAG_BYTES].try_into().expect("an HMAC-SHA256 has 32 bytes"))
    }

    /// Refuses a request for an object of which the client was not told. What it has open, as
    /// `opened` says, needs no tag; but in a report of what was open before a restart everything
    /// does.
    ///
    /// # Errors
    /// [`Status::Stale`], as for an object that does not exist: nobody learns which do.
    pub fn check(&self, request: &Request, shown: &[HandleTag], opened: impl Fn(Handle) -> Rights) -> Result<()> {
        let op = request.op();
        if !op.needs_tags() {
            return Ok(());
        }
        let (mut shown, mut is_told) = (shown.iter(), true);
        request.each_handle(&mut |handle| {
            let fits = shown.next().is_some_and(|tag| equal_in_constant_time(&tag.0, &self.tag(handle).0));
            let is_open = op != Op::Reclaim && opened(handle) != Rights::default();
            is_told &= fits || handle == self.root || is_open;
        });
        if is_told { Ok(()) } else { Err(Status::Stale) }
    }

    /// The body of a reply with the tags of the handles that it tells. The parent of a directory is
    /// left out: it may be above the client's root.
    ///
    /// # Errors
    /// [`Status::BadMessage`] if it is no reply to such a request.
    pub fn told(&self, op: Op, body: bytes::Bytes) -> Result<bytes::Bytes> {
        let body = match op {
            Op::ReadDir => ReadDirReply { parent: Handle(0), ..ReadDirReply::from_bytes(body)? }.to_bytes(),
            _ => body,
        };
        let mut tags = Vec::new();
        op.each_told(body.clone(), &mut |handle| tags.push(self.tag(handle)))?;
        if tags.is_empty() {
            return Ok(body);
        }
        let mut out = body.to_vec();
        put_tags(&tags, &mut out);
        Ok(out.into())
    }
}

#[cfg(test)]
mod tests;
