//! Extended attributes.

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, Result, Status};
use weft_wire::ops::{GetXattrReply, ListXattrReply, RemoveXattrRequest, SetXattrRequest};

use crate::access::owns;
use crate::xattrs::xattr_bytes;
use crate::{Change, Inode, MODE_STICKY, READ, Record, RequestContext, State, WRITE, may_access};

/// Longest name in bytes, with its name space.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value in bytes.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// What the attributes of one object may take together, in bytes: one value of the greatest length,
/// or some hundreds of small ones.
pub const XATTR_TOTAL_BYTES_MAX: usize = (64 << 10) + 4096;
/// Names that are kept for what file systems tell each other through attributes. Weft understands
/// none of them: a hint without an effect is refused, so that nobody relies on it.
const RESERVED: [&[u8]; 2] = [b"user.pvfs2.", b"user.weft."];

impl State {
    /// The value of an attribute.
    ///
    /// # Errors
    /// [`Status::NoAttribute`], [`Status::AccessDenied`], [`Status::NotPermitted`],
    /// [`Status::NotSupported`] (name space), [`Status::Range`] (name too long), [`Status::Busy`],
    /// and as [`State::inode`].
    pub fn get_xattr(&self, handle: Handle, name: &Bytes, who: &Credentials) -> Result<GetXattrReply> {
        let inode = self.inode(handle)?;
        check_xattr(who, inode, name, READ)?;
        self.check_readable(handle, inode)?;
        let value = self.xattrs.get(handle, name).ok_or(Status::NoAttribute)?;
        Ok(GetXattrReply { value: value.clone() })
    }

    /// The names of all attributes that this user may see, sorted.
    ///
    /// # Errors
    /// [`Status::Busy`], and as [`State::inode`].
    pub fn list_xattr(&self, handle: Handle, who: &Credentials) -> Result<ListXattrReply> {
        let inode = self.inode(handle)?;
        self.check_readable(handle, inode)?;
        let names = self.xattrs.of(handle).map(|(name, _)| name);
        let visible = |name: &&Bytes| who.uid == 0 || !name.starts_with(b"trusted.");
        Ok(ListXattrReply { names: names.filter(visible).cloned().collect() })
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// As [`State::get_xattr`], and [`Status::NotSupported`] for reserved names,
    /// [`Status::Exists`], [`Status::TooBig`] (value), [`Status::NoSpace`] (those of the object, or
    /// of all objects of this server, are too large together).
    pub fn prepare_set_xattr(&self, cx: &RequestContext<'_>, request: &SetXattrRequest, record: &mut Record) -> Result<()> {
        let (handle, name) = (request.handle, &request.name);
        let inode = self.inode(handle)?;
        check_xattr(&request.who, inode, name, WRITE)?;
        if RESERVED.iter().any(|reserved| name.starts_with(reserved)) {
            return Err(Status::NotSupported);
        }
        if request.value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Status::TooBig);
        }
        self.check_writable(handle, inode)?;
        let present = self.xattrs.get(handle, name);
        match present {
            Some(_) if request.create_only => return Err(Status::Exists),
            None if request.replace_only => return Err(Status::NoAttribute),
            _ => {}
        }
        let of_object: usize = self.xattrs.of(handle).map(|(name, value)| xattr_bytes(name, value)).sum();
        let freed = present.map_or(0, |value| xattr_bytes(name, value));
        let added = xattr_bytes(name, &request.value);
        let of_server = self.xattrs.bytes() - freed as u64 + added as u64;
        // What makes them smaller is never refused.
        if added > freed && (of_object - freed + added > XATTR_TOTAL_BYTES_MAX || of_server > self.settings.xattr_bytes_max) {
            return Err(Status::NoSpace);
        }
        record.changes.push(Change::PutXattr { handle, name: name.clone(), value: request.value.clone() });
        record.changes.push(Change::PutInode { handle, inode: inode.changed(cx.now) });
        Ok(())
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// As [`State::get_xattr`].
    pub fn prepare_remove_xattr(&self, cx: &RequestContext<'_>, request: &RemoveXattrRequest, record: &mut Record) -> Result<()> {
        let (handle, name) = (request.handle, &request.name);
        let inode = self.inode(handle)?;
        check_xattr(&request.who, inode, name, WRITE)?;
        self.check_writable(handle, inode)?;
        if self.xattrs.get(handle, name).is_none() {
            return Err(Status::NoAttribute);
        }
        record.changes.push(Change::DeleteXattr { handle, name: name.clone() });
        record.changes.push(Change::PutInode { handle, inode: inode.changed(cx.now) });
        Ok(())
    }
}

/// The rules of the name spaces, as in `xattr(7)`.
fn check_xattr(who: &Credentials, inode: &Inode, name: &[u8], wanted: u32) -> Result<()> {
    if name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Status::Range);
    }
    let refusal = if wanted == WRITE { Status::NotPermitted } else { Status::NoAttribute };
    let named = |space: &[u8]| name.starts_with(space) && name.len() > space.len();
    if named(b"user.") {
        if !matches!(inode.kind, FileKind::File | FileKind::Directory) {
            return Err(refusal);
        }
        if wanted == WRITE && inode.is_directory() && inode.mode & MODE_STICKY != 0 && !owns(who, inode) {
            return Err(Status::NotPermitted);
        }
        may_access(who, inode, wanted)
    } else if named(b"trusted.") {
        if who.uid == 0 { Ok(()) } else { Err(refusal) }
    } else if named(b"security.") {
        if who.uid == 0 || wanted == READ { Ok(()) } else { Err(Status::NotPermitted) }
    } else {
        Err(Status::NotSupported)
    }
}
