//! GETATTR, SETATTR, ACCESS.

use weft_base::{Attr, EXECUTE, FileKind, READ, Status, WRITE};
use weft_client::SetAttr;
use weft_posix::InodeNumber;
use weft_rt::Runtime;

use crate::gateway::{Caller, Nfs, Object};
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
        let before = self.seen_exactly(object.handle).await?;
        if guard.is_some_and(|guard| nfs_time(guard) != nfs_time(before.ctime)) {
            return Err(NfsStatus::NOT_SYNC.into());
        }
        let after = self.change_attributes(&object, &before, &change).await?;
        let before = (after.version == before.version + 1).then_some(&before);
        put_change(out, before, Some(&after), self.fs_id);
        Ok(())
    }

    /// Changes attributes of an object that has these. Its owner may cut a file whatever its mode:
    /// he may have opened it before.
    pub(super) async fn change_attributes(&self, object: &Object<'_>, attr: &Attr, change: &SetAttr) -> Result<Attr, Failure> {
        if *change == SetAttr::default() {
            return Ok(*attr);
        }
        let node = InodeNumber::of(object.handle);
        let opened_for_write = change.size.is_some() && object.who.uid == attr.uid;
        let change = SetAttr { opened_for_write, ..change.clone() };
        match self.posix.setattr(&object.who, node, &change).await {
            Err(error) if error.status == Status::IsDirectory => Err(NfsStatus::INVALID.into()),
            changed => Ok(changed?.attr),
        }
    }

    pub(super) async fn access(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        let asked = arguments.u32()?;
        let attr = self.seen(object.handle).await?;
        let exact = if attr.kind == FileKind::File { self.seen_after(object.handle).await } else { Some(attr) };
        put_attr_after(out, exact.as_ref(), self.fs_id);
        out.u32(asked & self.allowed(&object, &attr).await?);
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
