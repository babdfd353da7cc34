//! The way of a request to the method that serves it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::abi::{Fields, Malformed, opcode};
use super::answer::{
    Answer, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr, ServingThread,
};
use super::filesystem::Filesystem;
use super::request::{Pieces, Request};
use super::types::{Errno, FileHandle, FileLock, INodeNo, KernelTime, LockOwner, OpenFlags, RenameFlags, TimeOrNow};

/// Which attributes a SETATTR sets.
mod set {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FILE: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
}

/// An fsync of the data only.
const FSYNC_DATA: u32 = 1;
/// With an access control list the set-group-id bit goes.
const SETXATTR_KILLS_SETGID: u32 = 1;
/// A BSD lock, not a POSIX one.
const LOCK_BSD: u32 = 1;

/// Gives a request to its method. The answer goes to the kernel by `service`, which has begun it.
pub fn dispatch<F: Filesystem>(filesystem: &F, service: &Arc<ServingThread>, pieces: Pieces<'_>) {
    let answer = Answer::new(service, pieces.header.unique);
    if filesystem.is_over() {
        return answer.fail(Errno::ENOTCONN);
    }
    if matches!(pieces.header.opcode, opcode::OPEN | opcode::READ | opcode::WRITE | opcode::FSYNC) {
        service.note_regular(INodeNo(pieces.header.node));
    }
    match serve(filesystem, answer, pieces) {
        Ok(()) => {}
        // The answer was dropped on the way: EIO.
        Err(Malformed) => filesystem.warn(&format!("the kernel sent a request {} that is not understood", pieces.header.opcode)),
    }
}

fn name<'a>(rest: &mut Fields<'a>) -> Result<&'a OsStr, Malformed> {
    rest.name().map(OsStr::from_bytes)
}

#[allow(clippy::too_many_lines)] // one arm for each operation
fn serve<F: Filesystem>(fs: &F, answer: Answer, pieces: Pieces<'_>) -> Result<(), Malformed> {
    let request = &Request::of(&pieces);
    let node = INodeNo(pieces.header.node);
    let (mut fixed, mut rest) = (Fields(pieces.fixed), Fields(pieces.rest));
    match pieces.header.opcode {
        opcode::LOOKUP => fs.lookup(request, node, name(&mut rest)?, ReplyEntry(answer)),
        opcode::GETATTR => fs.getattr(request, node, ReplyAttr(answer)),
        opcode::STATX => fs.statx(request, node, ReplyStatx(answer)),
        opcode::SETATTR => setattr(fs, request, node, fixed, ReplyAttr(answer))?,
        opcode::READLINK => fs.readlink(request, node, ReplyData(answer)),
        opcode::SYMLINK => {
            let (link, target) = (name(&mut rest)?, name(&mut rest)?);
            fs.symlink(request, node, link, target.as_ref(), ReplyEntry(answer));
        }
        opcode::MKNOD => {
            let (mode, rdev, umask) = (fixed.u32()?, fixed.u32()?, fixed.u32()?);
            fs.mknod(request, node, name(&mut rest)?, mode, umask, rdev, ReplyEntry(answer));
        }
        opcode::MKDIR => {
            let (mode, umask) = (fixed.u32()?, fixed.u32()?);
            fs.mkdir(request, node, name(&mut rest)?, mode, umask, ReplyEntry(answer));
        }
        opcode::UNLINK => fs.unlink(request, node, name(&mut rest)?, ReplyEmpty(answer)),
        opcode::RMDIR => fs.rmdir(request, node, name(&mut rest)?, ReplyEmpty(answer)),
        code @ (opcode::RENAME | opcode::RENAME2) => {
            let new_parent = INodeNo(fixed.u64()?);
            let flags = if code == opcode::RENAME2 { fixed.u32()? } else { 0 };
            let (from, to) = (name(&mut rest)?, name(&mut rest)?);
            fs.rename(request, node, from, new_parent, to, RenameFlags::from_bits(flags), ReplyEmpty(answer));
        }
        opcode::LINK => {
            let object = INodeNo(fixed.u64()?);
            fs.link(request, object, node, name(&mut rest)?, ReplyEntry(answer));
        }
        opcode::OPEN => fs.open(request, node, OpenFlags(fixed.u32()? as i32), ReplyOpen(answer)),
        opcode::CREATE => {
            let (flags, mode, umask) = (fixed.u32()?, fixed.u32()?, fixed.u32()?);
            fs.create(request, node, name(&mut rest)?, mode, umask, flags as i32, ReplyCreate(answer));
        }
        opcode::TMPFILE => {
            let (flags, mode, umask) = (fixed.u32()?, fixed.u32()?, fixed.u32()?);
            fs.tmpfile(request, node, mode, umask, flags as i32, ReplyCreate(answer));
        }
        opcode::READ => {
            let at = ReadIn::parse(&mut fixed)?;
            fs.read(request, node, at.file, at.offset, at.size, ReplyData(answer));
        }
        opcode::WRITE => {
            let at = ReadIn::parse(&mut fixed)?;
            fs.write(request, node, at.file, at.offset, rest.bytes(at.size as usize)?, at.flags, ReplyWrite(answer));
        }
        opcode::FLUSH => {
            let (file, _, owner) = (FileHandle(fixed.u64()?), fixed.u64()?, LockOwner(fixed.u64()?));
            fs.flush(request, node, file, owner, ReplyEmpty(answer));
        }
        opcode::RELEASE => fs.release(request, node, FileHandle(fixed.u64()?), ReplyEmpty(answer)),
        opcode::RELEASEDIR => fs.releasedir(request, node, FileHandle(fixed.u64()?), ReplyEmpty(answer)),
        opcode::FSYNC => {
            let (file, data_only) = (FileHandle(fixed.u64()?), fixed.u32()? & FSYNC_DATA != 0);
            fs.fsync(request, node, file, data_only, ReplyEmpty(answer));
        }
        opcode::FSYNCDIR => fs.fsyncdir(request, node, ReplyEmpty(answer)),
        opcode::OPENDIR => fs.opendir(request, node, ReplyOpen(answer)),
        code @ (opcode::READDIR | opcode::READDIRPLUS) => {
            let at = ReadIn::parse(&mut fixed)?;
            let reply = ReplyDirectory::new(answer, at.size as usize);
            if code == opcode::READDIR {
                fs.readdir(request, node, at.file, at.offset, reply);
            } else {
                fs.readdirplus(request, node, at.file, at.offset, ReplyDirectoryPlus(reply));
            }
        }
        opcode::STATFS => fs.statfs(request, node, ReplyStatfs(answer)),
        opcode::SETXATTR => {
            let (size, flags, more, key) = (fixed.u32()?, fixed.u32()?, fixed.u32().unwrap_or(0), name(&mut rest)?);
            let kills_setgid = more & SETXATTR_KILLS_SETGID != 0;
            fs.setxattr(request, node, key, rest.bytes(size as usize)?, flags as i32, kills_setgid, ReplyEmpty(answer));
        }
        opcode::GETXATTR => {
            let size = fixed.u32()?;
            fs.getxattr(request, node, name(&mut rest)?, size, ReplyXattr(answer));
        }
        opcode::LISTXATTR => fs.listxattr(request, node, fixed.u32()?, ReplyXattr(answer)),
        opcode::REMOVEXATTR => fs.removexattr(request, node, name(&mut rest)?, ReplyEmpty(answer)),
        code @ (opcode::GETLK | opcode::SETLK | opcode::SETLKW) => {
            let (file, owner) = (FileHandle(fixed.u64()?), LockOwner(fixed.u64()?));
            let lock = FileLock { start: fixed.u64()?, end: fixed.u64()?, kind: fixed.u32()? as i32, pid: fixed.u32()? };
            let bsd = fixed.u32()? & LOCK_BSD != 0;
            match code {
                opcode::GETLK => fs.getlk(request, node, file, owner, &lock, ReplyLock(answer)),
                _ => fs.setlk(request, node, file, owner, &lock, bsd, code == opcode::SETLKW, ReplyEmpty(answer)),
            }
        }
        opcode::FALLOCATE => {
            let (file, offset, length, mode) = (FileHandle(fixed.u64()?), fixed.u64()?, fixed.u64()?, fixed.u32()?);
            fs.fallocate(request, node, file, offset, length, mode as i32, ReplyEmpty(answer));
        }
        opcode::LSEEK => {
            let (file, offset, whence) = (FileHandle(fixed.u64()?), fixed.u64()?, fixed.u32()?);
            fs.lseek(request, node, file, offset, whence as i32, ReplyLseek(answer));
        }
        opcode::COPY_FILE_RANGE => {
            let from = (FileHandle(fixed.u64()?), fixed.u64()?);
            // The object of the second file: its handle says which that is.
            let (_, to, length) = (fixed.u64()?, (FileHandle(fixed.u64()?), fixed.u64()?), fixed.u64()?);
            fs.copy_file_range(request, node, from, to, length, ReplyWrite(answer));
        }
        opcode::DESTROY | opcode::NOTIFY_REPLY => ReplyEmpty(answer).ok(),
        // The kernel asks no second time.
        _ => ReplyEmpty(answer).error(Errno::ENOSYS),
    }
    Ok(())
}

/// Where to read or write.
struct ReadIn {
    file: FileHandle,
    offset: u64,
    size: u32,
    flags: OpenFlags,
}

impl ReadIn {
    fn parse(fixed: &mut Fields<'_>) -> Result<ReadIn, Malformed> {
        let (file, offset, size) = (FileHandle(fixed.u64()?), fixed.u64()?, fixed.u32()?);
        let (_marks, _lock_owner) = (fixed.u32()?, fixed.u64()?);
        Ok(ReadIn { file, offset, size, flags: OpenFlags(fixed.u32()? as i32) })
    }
}

fn setattr<F: Filesystem>(fs: &F, request: &Request, node: INodeNo, mut fixed: Fields<'_>, reply: ReplyAttr) -> Result<(), Malformed> {
    let (valid, _, file, size, _) = (fixed.u32()?, fixed.u32()?, fixed.u64()?, fixed.u64()?, fixed.u64()?);
    let (seconds, _) = ([fixed.u64()?, fixed.u64()?], fixed.u64()?);
    let (nanos, _) = ([fixed.u32()?, fixed.u32()?], fixed.u32()?);
    let (mode, _, uid, gid) = (fixed.u32()?, fixed.u32()?, fixed.u32()?, fixed.u32()?);
    let has = |bit: u32| valid & bit != 0;
    let time = |which: usize, bit: u32, now: u32| match (has(bit), has(now)) {
        (false, _) => None,
        (true, true) => Some(TimeOrNow::Now),
        (true, false) => Some(TimeOrNow::SpecificTime(KernelTime::of_parts(seconds[which] as i64, nanos[which]))),
    };
    fs.setattr(
        request,
        node,
        has(set::MODE).then_some(mode),
        has(set::UID).then_some(uid),
        has(set::GID).then_some(gid),
        has(set::SIZE).then_some(size),
        time(0, set::ATIME, set::ATIME_NOW),
        time(1, set::MTIME, set::MTIME_NOW),
        has(set::FILE).then_some(FileHandle(file)),
        reply,
    );
    Ok(())
}
