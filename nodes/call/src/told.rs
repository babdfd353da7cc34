//! What servers have told a client with a limited key: for each object the tag that its requests
//! must show ([`weft_wire::HandleTags`]). A client with another key never gets a tag, and pays one
//! load for each request.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use weft_base::{FastMap, Handle, Result};
use weft_wire::{HandleTag, Operation, Tagged, Wire};

/// Objects whose tags are kept. A request for one that was forgotten is answered "stale": then
/// whoever walks the path again is told of it again.
const HANDLES_MAX: usize = 1 << 20;

/// The tags of a client. Each of its requests is encoded here, and each reply decoded.
#[derive(Debug, Default)]
pub struct ToldHandles {
    has_any: AtomicBool,
    tags: Mutex<Tags>,
}

#[derive(Debug, Default)]
struct Tags {
    by_handle: FastMap<Handle, HandleTag>,
    /// In the order in which they came.
    order: VecDeque<Handle>,
}

impl ToldHandles {
    /// The body of a request, with the tags of the objects that it names.
    pub fn encode<O: Operation>(&self, operation: &O) -> Bytes {
        match self.has_any.load(Ordering::Relaxed) && O::OP.needs_tags() {
            true => {
                let mut named = Vec::new();
                operation.each_handle(&mut |handle| named.push(handle));
                self.show(operation.to_bytes(), &named)
            }
            false => operation.to_bytes(),
        }
    }

    #[cold]
    fn show(&self, body: Bytes, named: &[Handle]) -> Bytes {
        let tags = self.lock();
        // Of what it was not told of the client shows zeros: the root needs no tag, and all else is
        // refused.
        let shown: Vec<HandleTag> = named.iter().map(|handle| tags.by_handle.get(handle).copied().unwrap_or_default()).collect();
        drop(tags);
        let mut out = body.to_vec();
        weft_wire::put_tags(&shown, &mut out);
        out.into()
    }

    /// The reply in a body; keeps the tags that came with it.
    ///
    /// # Errors
    /// [`weft_base::Status::BadMessage`], [`weft_base::Status::NewerExtension`].
    pub fn decode<O: Operation>(&self, body: Bytes) -> Result<O::Reply> {
        let Tagged { message, tags } = Tagged::<O::Reply>::from_bytes(body)?;
        if !tags.is_empty() {
            let mut told = Vec::new();
            O::each_told(&message, &mut |handle| told.push(handle));
            self.keep(&told, &tags);
        }
        Ok(message)
    }

    #[cold]
    fn keep(&self, told: &[Handle], came: &[HandleTag]) {
        let mut tags = self.lock();
        told.iter().zip(came).for_each(|(handle, tag)| tags.keep(*handle, *tag, HANDLES_MAX));
        drop(tags);
        self.has_any.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Tags> {
        self.tags.lock().expect("no code panics while it holds this lock")
    }
}

impl Tags {
    fn keep(&mut self, handle: Handle, tag: HandleTag, handles_max: usize) {
        if self.by_handle.insert(handle, tag).is_some() {
            return;
        }
        self.order.push_back(handle);
        if self.order.len() > handles_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_handle.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::FileKind;
    use weft_wire::ops::{DirTarget, LinkReply};
    use weft_wire::ops::{GetAttrRequest, LinkRequest, LookupReply, LookupRequest, PingRequest};

    fn told(handle: u64, tag: u8) -> Bytes {
        let reply = LookupReply { handle: Handle(handle), kind: FileKind::File, state: None };
        Tagged { message: reply, tags: vec![HandleTag([tag; 16])] }.to_bytes()
    }

    fn shown<O: Operation>(told: &ToldHandles, operation: &O) -> Vec<HandleTag> {
        Tagged::<O>::from_bytes(told.encode(operation)).unwrap().tags
    }

    #[test]
    fn what_was_told_is_shown() {
        let client = ToldHandles::default();
        let getattr = |handle| GetAttrRequest { handle: Handle(handle) };
        assert_eq!(client.encode(&getattr(7)), getattr(7).to_bytes(), "without a limited key nothing is shown");
        let reply = client.decode::<LookupRequest>(told(7, 1)).unwrap();
        assert_eq!(reply.handle, Handle(7));
        client.decode::<LookupRequest>(told(8, 2)).unwrap();
        assert_eq!(shown(&client, &getattr(7)), [HandleTag([1; 16])]);
        assert_eq!(shown(&client, &getattr(9)), [HandleTag::default()]);
        let to = DirTarget { dir: Handle(8), map_epoch: 0 };
        let who = weft_base::Credentials::ROOT;
        let link = LinkRequest { handle: Handle(7), kind: FileKind::File, to, to_name: b"x"[..].into(), who };
        assert_eq!(shown(&client, &link), [HandleTag([2; 16]), HandleTag([1; 16])]);
        assert_eq!(client.encode(&PingRequest {}), PingRequest {}.to_bytes());
        let reply = LinkReply { state: None, dir: weft_wire::ops::DirChange::NONE };
        assert_eq!(client.decode::<LinkRequest>(reply.to_bytes()), Ok(reply));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut tags = Tags::default();
        for handle in [1, 2, 1, 3] {
            tags.keep(Handle(handle), HandleTag([handle as u8; 16]), 2);
        }
        assert_eq!((tags.by_handle.len(), tags.order.len()), (2, 2));
        assert!(!tags.by_handle.contains_key(&Handle(1)) && tags.by_handle.contains_key(&Handle(3)));
    }
}
