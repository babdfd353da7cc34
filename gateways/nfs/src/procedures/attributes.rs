//! GETATTR, SETATTR, ACCESS.

use weft_base::{Attr, EXECUTE, FileKind, READ, Status, WRITE};
use weft_client::{Seen, SetAttr};
use weft_rt::Runtime;

use crate::gateway::{Caller, Nfs, Object, exact};
use crate::types::{Failure, NfsStatus, nfs_time, put_attr, put_attr_after, put_change, read_change, read_time};
use crate::xdr::{Reader, Writer};

impl<R: Runtime> Nfs<R> {
    pub(super) async fn getattr(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        put_attr(out, &self.seen_exactly(object.handle).await?, self.fs_id);
        Ok(())
    }

    pub(super) async fn setattr(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        let change = read_change(&mut arguments)?;
        let guard = arguments.option(read_time)?;
        object.may_change()?;
        // A write of somebody else changes the time of the guard, too.
        let before = match guard {
            Some(_) => Seen { attr: self.seen_exactly(object.handle).await?, is_exact: true },
            None => self.look(object.handle).await?,
        };
        if guard.is_some_and(|guard| nfs_time(guard) != nfs_time(before.attr.ctime)) {
            return Err(NfsStatus::NOT_SYNC.into());
        }
        let after = self.change_attributes(&object, before, &change).await?;
        let before = exact(before).filter(|before| after.attr.version == before.version + 1);
        put_change(out, before.as_ref(), exact(after).as_ref(), self.fs_id);
        Ok(())
    }

    /// Changes attributes of an object that has these. Its owner may cut a file whatever its mode:
    /// he may have opened it before.
    pub(super) async fn change_attributes(&self, object: &Object<'_>, seen: Seen, change: &SetAttr) -> Result<Seen, Failure> {
        if *change == SetAttr::default() {
            return Ok(seen);
        }
        let opened_for_write = change.size.is_some() && object.who.uid == seen.attr.uid;
        let change = SetAttr { opened_for_write, ..change.clone() };
        match self.posix.setattr_handle(&object.who, object.handle, &change).await {
            Err(error) if error.status == Status::IsDirectory => Err(NfsStatus::INVALID.into()),
            changed => Ok(changed?),
        }
    }

    pub(super) async fn access(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        let asked = arguments.u32()?;
        let seen = self.look(object.handle).await?;
        put_attr_after(out, exact(seen).as_ref(), self.fs_id);
        out.u32(asked & self.allowed(&object, &seen.attr).await?);
        Ok(())
    }

    /// What a caller may do with an object: bits of ACCESS.
    async fn allowed(&self, object: &Object<'_>, attr: &Attr) -> Result<u32, Failure> {
        let is_directory = attr.kind == FileKind::Directory;
        let mut allowed = 0;
        if self.posix.may(&object.who, attr, READ).await? {
            allowed |= 1;
        }
        if self.posix.may(&object.who, attr, EXECUTE).await? {
            allowed |= if is_directory { 2 } else { 32 };
        }
        if !object.export.is_read_only && self.posix.may(&object.who, attr, WRITE).await? {
            // Change and extend; in a directory also remove.
            allowed |= if is_directory { 4 | 8 | 16 } else { 4 | 8 };
        }
        Ok(allowed)
    }
}
