//! Attributes as structs of C, and what they permit.

use std::ffi::c_int;

use weft_base::{Attr, Credentials, FileKind, Handle, WallTime};
use weft_host::door::ProgramFs;

use crate::border::{Outcome, fail};

/// Unit in which programs see the preferred size of requests, as in a mount.
const BLOCK_BYTES: u32 = 128 * 1024;
/// Unit of the sizes of the file system.
const SPACE_BYTES: u64 = 4096;
/// Objects of which there is always room for more.
const INODES_FREE: u64 = 1 << 32;
/// What `statfs` says of the kind of a file system: that of FUSE, as a mount of it.
const MAGIC: i64 = 0x6573_5546;
/// Major number of the device that files seem to lie on; the kernel gives none so high.
const MAJOR: u32 = 0xf57;

fn minor(fs: &ProgramFs) -> u32 {
    let id = fs.id().0;
    (id ^ id >> 32) as u32 & 0xf_ffff
}

fn mode(attr: &Attr) -> u32 {
    attr.kind.mode_bits() | attr.permissions()
}

fn size(attr: &Attr) -> u64 {
    if attr.kind == FileKind::Directory { 4096 } else { attr.size }
}

/// Seconds, and the nanoseconds behind them.
fn split(at: WallTime) -> (i64, i64) {
    (at.0.div_euclid(1_000_000_000), at.0.rem_euclid(1_000_000_000))
}

pub(crate) unsafe fn fill_stat(to: *mut libc::stat, fs: &ProgramFs, attr: &Attr) -> Outcome<c_int> {
    let Some(to) = to.as_mut() else { return fail(libc::EFAULT) };
    *to = std::mem::zeroed();
    to.st_dev = libc::makedev(MAJOR, minor(fs));
    to.st_ino = attr.handle.0;
    to.st_mode = mode(attr);
    to.st_nlink = attr.nlink.into();
    to.st_uid = attr.uid;
    to.st_gid = attr.gid;
    to.st_rdev = attr.rdev.into();
    to.st_size = size(attr) as i64;
    to.st_blksize = BLOCK_BYTES.into();
    to.st_blocks = (attr.allocated_bytes() / 512) as i64;
    (to.st_atime, to.st_atime_nsec) = split(attr.atime);
    (to.st_mtime, to.st_mtime_nsec) = split(attr.mtime);
    (to.st_ctime, to.st_ctime_nsec) = split(attr.ctime);
    Ok(0)
}

pub(crate) unsafe fn fill_statx(to: *mut libc::statx, fs: &ProgramFs, attr: &Attr) -> Outcome<c_int> {
    let Some(to) = to.as_mut() else { return fail(libc::EFAULT) };
    *to = std::mem::zeroed();
    let time = |at| {
        let (seconds, nanos) = split(at);
        // SAFETY: plain numbers, which may be 0.
        let mut time: libc::statx_timestamp = std::mem::zeroed();
        (time.tv_sec, time.tv_nsec) = (seconds, nanos as u32);
        time
    };
    to.stx_mask = libc::STATX_BASIC_STATS;
    if attr.born != WallTime(0) {
        to.stx_mask |= libc::STATX_BTIME;
        to.stx_btime = time(attr.born);
    }
    to.stx_blksize = BLOCK_BYTES;
    to.stx_nlink = attr.nlink;
    to.stx_uid = attr.uid;
    to.stx_gid = attr.gid;
    to.stx_mode = mode(attr) as u16;
    to.stx_ino = attr.handle.0;
    to.stx_size = size(attr);
    to.stx_blocks = attr.allocated_bytes() / 512;
    (to.stx_atime, to.stx_mtime, to.stx_ctime) = (time(attr.atime), time(attr.mtime), time(attr.ctime));
    to.stx_rdev_major = libc::major(attr.rdev.into());
    to.stx_rdev_minor = libc::minor(attr.rdev.into());
    (to.stx_dev_major, to.stx_dev_minor) = (MAJOR, minor(fs));
    Ok(0)
}

pub(crate) unsafe fn fill_statfs(to: *mut libc::statfs, fs: &ProgramFs, at: Handle) -> Outcome<c_int> {
    let stats = fs.statfs(at)?;
    let Some(to) = to.as_mut() else { return fail(libc::EFAULT) };
    *to = std::mem::zeroed();
    to.f_type = MAGIC;
    to.f_bsize = SPACE_BYTES as i64;
    to.f_frsize = SPACE_BYTES as i64;
    to.f_blocks = stats.capacity_bytes / SPACE_BYTES;
    (to.f_bfree, to.f_bavail) = (stats.free_bytes / SPACE_BYTES, stats.free_bytes / SPACE_BYTES);
    let free = stats.inodes_free.unwrap_or(INODES_FREE);
    (to.f_files, to.f_ffree) = (stats.inodes + free, free);
    to.f_namelen = 255;
    Ok(0)
}

pub(crate) unsafe fn fill_statvfs(to: *mut libc::statvfs, fs: &ProgramFs, at: Handle) -> Outcome<c_int> {
    let stats = fs.statfs(at)?;
    let Some(to) = to.as_mut() else { return fail(libc::EFAULT) };
    *to = std::mem::zeroed();
    (to.f_bsize, to.f_frsize) = (SPACE_BYTES, SPACE_BYTES);
    to.f_blocks = stats.capacity_bytes / SPACE_BYTES;
    (to.f_bfree, to.f_bavail) = (stats.free_bytes / SPACE_BYTES, stats.free_bytes / SPACE_BYTES);
    let free = stats.inodes_free.unwrap_or(INODES_FREE);
    (to.f_files, to.f_ffree, to.f_favail) = (stats.inodes + free, free, free);
    to.f_fsid = minor(fs).into();
    to.f_namemax = 255;
    Ok(0)
}

/// True if these credentials may do all of `wanted` (`R_OK`, `W_OK`, `X_OK`). Servers decide when
/// it is done; this is for programs that ask before.
pub(crate) fn permits(fs: &ProgramFs, attr: &Attr, who: &Credentials, wanted: u32) -> Outcome<bool> {
    Ok(fs.run("access", b"", async |posix| posix.may(who, attr, wanted).await)?)
}
