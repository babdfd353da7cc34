//! LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK, READLINK.

use bytes::Bytes;
use weft_base::{Attr, FileKind, Handle, Status};
use weft_client::{Error, Seen, SetAttr};
use weft_posix::{InodeNumber, OpenHow};
use weft_rt::Runtime;
use weft_wire::Rights;
use weft_wire::ops::SetTime;

use super::{LINK, RENAME};
use crate::gateway::{Caller, Nfs, Object, exact};
use crate::opens::judged;
use crate::types::{Failure, NfsStatus, device, made_kind, put_attr_after, put_change, read_change, times_of};
use crate::xdr::{Garbage, Reader, Result as XdrResult, Writer};

/// Longest name that is read at all, in bytes; servers say which are too long.
const NAME_BYTES_MAX: usize = 4096;
/// Longest target of a symlink that is read, in bytes.
const TARGET_BYTES_MAX: usize = 8192;
/// Permission bits of what is made without any.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// How often a name is tried that others make and remove in turns.
const TRIES: usize = 16;
/// How a made file is opened.
const BOTH: Rights = Rights(Rights::READ.0 | Rights::WRITE.0);

/// How CREATE makes a file.
enum How {
    /// A file that is there is as good.
    Unchecked(SetAttr),
    /// It must be new.
    Guarded(SetAttr),
    /// It must be new, or made by an earlier call with this verifier.
    Exclusive([u8; 8]),
}

impl How {
    fn read(arguments: &mut Reader) -> XdrResult<How> {
        Ok(match arguments.u32()? {
            0 => How::Unchecked(read_change(arguments)?),
            1 => How::Guarded(read_change(arguments)?),
            2 => How::Exclusive(arguments.array()?),
            _ => return Err(Garbage),
        })
    }
}

/// A directory as it was before a change, if that is known without asking.
struct Before(Handle, Option<Attr>);

impl<R: Runtime> Nfs<R> {
    fn dir_name<'a>(&'a self, caller: &Caller, arguments: &mut Reader) -> Result<(Object<'a>, Bytes), Failure> {
        let dir = self.object(caller, arguments)?;
        Ok((dir, arguments.opaque(NAME_BYTES_MAX)?))
    }

    /// The same for a change.
    fn dir_name_to_change<'a>(&'a self, caller: &Caller, arguments: &mut Reader) -> Result<(Object<'a>, Bytes, Before), Failure> {
        let (dir, name) = self.dir_name(caller, arguments)?;
        let before = Before(dir.handle, self.posix.known_attr(InodeNumber::of(dir.handle)).map(|shown| shown.attr));
        Ok((dir, name, before))
    }

    /// True if a directory or file that these arguments of a procedure about names begin with is
    /// gone: for one that has failed, so that no other pays for the question.
    pub(super) async fn has_gone_object(&self, caller: &Caller, procedure: u32, mut arguments: Reader) -> bool {
        let mut objects = vec![self.object(caller, &mut arguments)];
        match procedure {
            RENAME => objects.extend(arguments.opaque(NAME_BYTES_MAX).is_ok().then(|| self.object(caller, &mut arguments))),
            LINK => objects.push(self.object(caller, &mut arguments)),
            _ => {}
        }
        for object in objects.into_iter().flatten() {
            if self.seen(object.handle).await == Err(NfsStatus::STALE.into()) {
                return true;
            }
        }
        false
    }

    /// `wcc_data` of a directory of which one name was changed.
    async fn put_dir_change(&self, out: &mut Writer, Before(dir, before): Before) {
        let after = self.seen_after(dir).await;
        // Only if nobody else changed it: a client takes what it knows of it for true then.
        let is_only = |before: &Attr| after.as_ref().is_some_and(|after| after.version == before.version + 1);
        put_change(out, before.filter(is_only).as_ref(), after.as_ref(), self.fs_id);
    }

    /// What procedures that make an object answer.
    async fn put_made(&self, out: &mut Writer, dir: &Object<'_>, made: Seen, before: Before) {
        out.bool(true);
        self.put_handle(out, dir.root, made.attr.handle);
        put_attr_after(out, exact(made).as_ref(), self.fs_id);
        self.put_dir_change(out, before).await;
    }

    pub(super) async fn lookup(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let (dir, name) = self.dir_name(caller, &mut arguments)?;
        let (handle, attr) = match &name[..] {
            b"." | b".." => {
                let attr = self.seen(dir.handle).await?;
                if attr.kind != FileKind::Directory {
                    return Err(NfsStatus::NOT_DIRECTORY.into());
                }
                if !self.posix.may(&dir.who, &attr, 1).await? {
                    return Err(Status::AccessDenied.into());
                }
                let handle = if name == "." { dir.handle } else { self.above(&dir).await? };
                (handle, self.seen_after(handle).await)
            }
            name => {
                let seen = self.posix.see_name(&dir.who, dir.handle, name).await?;
                (seen.attr.handle, exact(seen))
            }
        };
        self.put_handle(out, dir.root, handle);
        put_attr_after(out, attr.as_ref(), self.fs_id);
        let of_dir = self.posix.known_attr(InodeNumber::of(dir.handle)).map(|shown| shown.attr);
        put_attr_after(out, of_dir.as_ref(), self.fs_id);
        Ok(())
    }

    pub(super) async fn create(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let (dir, name, before) = self.dir_name_to_change(caller, &mut arguments)?;
        let how = How::read(&mut arguments)?;
        dir.may_change()?;
        let made = Box::pin(self.make_file(&dir, &name, &how)).await?;
        self.put_made(out, &dir, made, before).await;
        Ok(())
    }

    async fn make_file(&self, dir: &Object<'_>, name: &[u8], how: &How) -> Result<Seen, Failure> {
        let mode = match how {
            How::Unchecked(change) | How::Guarded(change) => change.mode.unwrap_or(FILE_MODE),
            How::Exclusive(_) => FILE_MODE,
        };
        let times = match how {
            How::Unchecked(_) | How::Guarded(_) => None,
            How::Exclusive(verifier) => Some(times_of(*verifier)),
        };
        let open = OpenHow { exclusive: true, ..OpenHow::direct(BOTH) };
        for _ in 0..TRIES {
            match self.posix.create_new(&dir.who, (dir.handle, name), (mode, times), open).await {
                Ok((attr, number)) => {
                    let file = Object { handle: attr.handle, ..dir.clone() };
                    self.add_open(&file, BOTH, judged(&attr), number).await;
                    self.give_back(attr.handle, number, true);
                    return self.complete(&file, attr, how).await;
                }
                Err(error) if error.status == Status::Exists => {}
                Err(error) => return Err(error.into()),
            }
            let seen = match self.posix.see_name(&dir.who, dir.handle, name).await {
                Ok(seen) => seen,
                // Gone again.
                Err(error) if error.is_gone() => continue,
                Err(error) => return Err(error.into()),
            };
            let attr = &seen.attr;
            let file = Object { handle: attr.handle, ..dir.clone() };
            match how {
                How::Unchecked(change) if attr.kind == FileKind::File => {
                    // What is there keeps all but its size.
                    let change = SetAttr { size: change.size, ..SetAttr::default() };
                    return self.change_attributes(&file, seen, &change).await;
                }
                How::Exclusive(verifier) if attr.kind == FileKind::File && (attr.atime, attr.mtime) == times_of(*verifier) => {
                    return Ok(seen);
                }
                _ => return Err(NfsStatus::EXISTS.into()),
            }
        }
        Err(NfsStatus::LATER.into())
    }

    /// Gives a new file what its create does not. Its verifier is kept in its times, which the
    /// client sets when it has the answer; servers of older versions have not taken it.
    async fn complete(&self, file: &Object<'_>, attr: Attr, how: &How) -> Result<Seen, Failure> {
        let change = match how {
            How::Unchecked(change) | How::Guarded(change) => rest_of(change, &attr),
            How::Exclusive(verifier) => {
                let (access, change) = times_of(*verifier);
                if (attr.atime, attr.mtime) == (access, change) {
                    return Ok(Seen { attr, is_exact: true });
                }
                let time = |at| Some(SetTime { at: Some(at) });
                SetAttr { atime: time(access), mtime: time(change), ..SetAttr::default() }
            }
        };
        let made = Seen { attr, is_exact: true };
        match self.change_attributes(file, made, &change).await {
            // Where no times are kept, there is no verifier either.
            Err(Failure::Failed(_)) if matches!(how, How::Exclusive(_)) && attr.has_no_metafile() => Ok(made),
            changed => changed,
        }
    }

    pub(super) async fn mkdir(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let (dir, name, before) = self.dir_name_to_change(caller, &mut arguments)?;
        let change = read_change(&mut arguments)?;
        dir.may_change()?;
        let mode = change.mode.unwrap_or(DIRECTORY_MODE);
        let made = self.posix.mkdir(&dir.who, InodeNumber::of(dir.handle), &name, mode).await?.attr;
        let made = self.with_rest(&dir, made, &change).await?;
        self.put_made(out, &dir, made, before).await;
        Ok(())
    }

    pub(super) async fn symlink(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let (dir, name, before) = self.dir_name_to_change(caller, &mut arguments)?;
        // Symlinks have no attributes of their own to choose.
        read_change(&mut arguments)?;
        let target = arguments.opaque(TARGET_BYTES_MAX)?;
        dir.may_change()?;
        let attr = self.posix.symlink(&dir.who, InodeNumber::of(dir.handle), &name, &target).await?.attr;
        self.put_made(out, &dir, Seen { attr, is_exact: true }, before).await;
        Ok(())
    }

    pub(super) async fn mknod(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let (dir, name, before) = self.dir_name_to_change(caller, &mut arguments)?;
        let Some(kind) = made_kind(arguments.u32()?) else { return Err(NfsStatus::BAD_TYPE.into()) };
        let change = read_change(&mut arguments)?;
        let rdev = match kind {
            FileKind::BlockDevice | FileKind::CharDevice => device(arguments.u32()?, arguments.u32()?),
            _ => 0,
        };
        dir.may_change()?;
        let mode = change.mode.unwrap_or(FILE_MODE);
        let made = self.posix.mknod(&dir.who, InodeNumber::of(dir.handle), &name, kind, mode, rdev).await?.attr;
        let made = self.with_rest(&dir, made, &SetAttr { size: None, ..change }).await?;
        self.put_made(out, &dir, made, before).await;
        Ok(())
    }

    async fn with_rest(&self, dir: &Object<'_>, attr: Attr, change: &SetAttr) -> Result<Seen, Failure> {
        let object = Object { handle: attr.handle, ..dir.clone() };
        self.change_attributes(&object, Seen { attr, is_exact: true }, &rest_of(change, &attr)).await
    }

    pub(super) async fn remove(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let (dir, name, before) = self.dir_name_to_change(caller, &mut arguments)?;
        dir.may_change()?;
        self.posix.unlink(&dir.who, InodeNumber::of(dir.handle), &name).await?;
        self.put_dir_change(out, before).await;
        Ok(())
    }

    pub(super) async fn rmdir(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let (dir, name, before) = self.dir_name_to_change(caller, &mut arguments)?;
        dir.may_change()?;
        if name == ".." {
            return Err(NfsStatus::EXISTS.into());
        }
        self.posix.rmdir_handle(&dir.who, dir.handle, &name).await?;
        self.put_dir_change(out, before).await;
        Ok(())
    }

    pub(super) async fn rename(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let (from, from_name, from_before) = self.dir_name_to_change(caller, &mut arguments)?;
        let (to, to_name, to_before) = self.dir_name_to_change(caller, &mut arguments)?;
        from.may_change()?;
        to.may_change()?;
        if from.root != to.root {
            return Err(NfsStatus::CROSS_DEVICE.into());
        }
        self.posix.rename_handles(&from.who, (from.handle, &from_name), (to.handle, &to_name)).await?;
        self.put_dir_change(out, from_before).await;
        self.put_dir_change(out, to_before).await;
        Ok(())
    }

    pub(super) async fn link(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        let (dir, name, before) = self.dir_name_to_change(caller, &mut arguments)?;
        dir.may_change()?;
        if object.root != dir.root {
            return Err(NfsStatus::CROSS_DEVICE.into());
        }
        let linked = self.posix.link_handle(&dir.who, object.handle, dir.handle, &name).await?;
        put_attr_after(out, exact(linked).as_ref(), self.fs_id);
        self.put_dir_change(out, before).await;
        Ok(())
    }

    pub(super) async fn readlink(&self, caller: &Caller, mut arguments: Reader, out: &mut Writer) -> Result<(), Failure> {
        let object = self.object(caller, &mut arguments)?;
        let attr = self.seen(object.handle).await?;
        if attr.kind != FileKind::Symlink {
            return Err(Error::local(Status::Invalid, "readlink", object.handle).into());
        }
        let target = self.posix.readlink(InodeNumber::of(object.handle)).await?;
        put_attr_after(out, Some(&attr), self.fs_id);
        out.opaque(&target);
        Ok(())
    }
}

/// What is left to change of an object that was just made with these attributes.
fn rest_of(change: &SetAttr, made: &Attr) -> SetAttr {
    SetAttr {
        uid: change.uid.filter(|uid| *uid != made.uid),
        gid: change.gid.filter(|gid| *gid != made.gid),
        size: change.size.filter(|size| *size != made.size && made.kind == FileKind::File),
        atime: change.atime.clone().filter(|time| time.at.is_some()),
        mtime: change.mtime.clone().filter(|time| time.at.is_some()),
        ..SetAttr::default()
    }
}
