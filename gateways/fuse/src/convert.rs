//! Between the nouns of Weft and those of the kernel; the one place where a [`Status`] becomes an
//! errno.

use weft_base::{Attr, Credentials, FileKind, Status, WallTime};
use weft_client::{Fallocate, SeekFor};
use weft_posix::{Caching, CallingThread, InodeNumber, OpenHow, Opened, Stable, WriteHow};
use weft_wire::Rights;
use weft_wire::ops::SetTime;

use crate::kernel::{Errno, FileAttr, FileType, FopenFlags, INodeNo, KernelTime, Request, TimeOrNow};

/// Unit in which programs see the preferred size of requests: 1 MiB would make some of them
/// allocate too much, 128 KiB is what `cp` and `cat` use anyway.
const BLOCK_BYTES: u32 = 128 * 1024;

/// A status as the errno that the calling program sees.
pub fn errno(status: Status) -> Errno {
    Errno::from_i32(status.errno())
}

/// The number that the kernel has for an object.
pub fn inode(node: InodeNumber) -> INodeNo {
    INodeNo(node.0)
}

/// Who asks. The kernel has checked permissions with all groups of the caller
/// (`default_permissions`), so none are sent.
pub fn credentials(request: &Request) -> Credentials {
    Credentials { uid: request.uid(), gid: request.gid(), groups: Vec::new(), checked_by_kernel: true }
}

/// Who asks, in an operation that others may follow.
pub fn caller(request: &Request) -> CallingThread {
    CallingThread { who: credentials(request), thread: request.pid() }
}

/// How a file shall be opened, from the flags of an `open`.
pub fn open_how(flags: i32) -> OpenHow {
    let write = if flags & libc::O_APPEND != 0 { Rights::WRITE.with(Rights::APPEND) } else { Rights::WRITE };
    let rights = match flags & libc::O_ACCMODE {
        libc::O_WRONLY => write,
        libc::O_RDWR => Rights::READ.with(write),
        _ => Rights::READ,
    };
    let is_set = |flag| flags & flag != 0;
    OpenHow {
        rights,
        truncate: is_set(libc::O_TRUNC),
        exclusive: is_set(libc::O_EXCL),
        direct: is_set(libc::O_DIRECT),
        stable: Stable::of_flags(flags, libc::O_SYNC, libc::O_DSYNC),
    }
}

/// How the kernel shall treat an open file.
pub fn fopen_flags(opened: &Opened) -> FopenFlags {
    let flags = match opened.caching {
        Caching::Direct => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        Caching::Anew => FopenFlags::empty(),
        Caching::Keep => FopenFlags::FOPEN_KEEP_CACHE,
    };
    if opened.hears_closes { flags } else { flags | FopenFlags::FOPEN_NOFLUSH }
}

/// How the kernel shall treat a directory that is listed; `for_ever`: it does not change.
pub fn listing_flags(for_ever: bool) -> FopenFlags {
    if for_ever { FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() }
}

/// What LSEEK asks for; `None` for what the kernel does itself.
pub fn seek_for(whence: i32) -> Option<SeekFor> {
    match whence {
        libc::SEEK_DATA => Some(SeekFor::Data),
        libc::SEEK_HOLE => Some(SeekFor::Hole),
        _ => None,
    }
}

/// What FALLOCATE asks for; `None` for a mode that there is not.
pub fn fallocate_how(mode: i32) -> Option<Fallocate> {
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => Some(Fallocate::Reserve { keep_size }),
        libc::FALLOC_FL_ZERO_RANGE => Some(Fallocate::Zero { keep_size }),
        libc::FALLOC_FL_PUNCH_HOLE if keep_size => Some(Fallocate::Punch),
        _ => None,
    }
}

/// How data is written, from the flags of the open file as they are now.
pub fn write_how(flags: i32) -> WriteHow {
    WriteHow { append: flags & libc::O_APPEND != 0, stable: Stable::of_flags(flags, libc::O_SYNC, libc::O_DSYNC) }
}

/// The kind of an object as the kernel names it.
pub fn file_type(kind: FileKind) -> FileType {
    FileType(kind.mode_bits())
}

/// The kind in the `S_IFMT` bits of a mode, if `mknod` may make it.
pub fn kind_of_mode(mode: u32) -> Option<FileKind> {
    FileKind::from_code((mode >> 12 & 0o17) as u8).filter(|kind| !matches!(kind, FileKind::Directory | FileKind::Symlink))
}

/// Attributes as the kernel wants them.
pub fn attributes(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.handle.0),
        size: if attr.kind == FileKind::Directory { 4096 } else { attr.size },
        blocks: attr.allocated_bytes() / 512,
        atime: KernelTime(attr.atime.0),
        mtime: KernelTime(attr.mtime.0),
        ctime: KernelTime(attr.ctime.0),
        born: Some(attr.born).filter(|born| *born != WallTime(0)).map(|born| KernelTime(born.0)),
        kind: file_type(attr.kind),
        perm: attr.permissions() as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
    }
}

/// Attributes that say nothing but the kind; the kernel does not keep them.
pub fn name_only(node: InodeNumber, kind: FileKind) -> FileAttr {
    FileAttr {
        ino: inode(node),
        size: 0,
        blocks: 0,
        atime: KernelTime(0),
        mtime: KernelTime(0),
        ctime: KernelTime(0),
        born: None,
        kind: file_type(kind),
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
    }
}

/// A time stamp to set.
pub fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime { at: None },
        TimeOrNow::SpecificTime(time) => SetTime { at: Some(WallTime(time.0)) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mknod_makes_no_directories() {
        assert_eq!(kind_of_mode(0o010644), Some(FileKind::Fifo));
        assert_eq!(kind_of_mode(0o100600), Some(FileKind::File));
        assert_eq!(kind_of_mode(0o040755), None);
        assert_eq!(kind_of_mode(0o120777), None);
    }
}
