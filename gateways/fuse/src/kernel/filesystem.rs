//! What a file system does for the kernel: one method for each operation. What is not written is
//! not supported (`ENOSYS`: the kernel asks no second time and does without).

use std::ffi::OsStr;
use std::path::Path;

use super::answer::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr,
};
use super::init::KernelConfig;
use super::notify::Notifier;
use super::request::Request;
use super::types::{Errno, FileHandle, FileLock, INodeNo, LockOwner, OpenFlags, RenameFlags, TimeOrNow};

macro_rules! operations {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?; $reply:ty);)*) => {$(
        $(#[$doc])*
        fn $name(&self, request: &Request, $($argument: $kind,)* reply: $reply) {
            let _ = (request, $($argument),*);
            reply.error(Errno::ENOSYS);
        }
    )*};
}

/// A file system. Its methods run on many threads at once; a method may take as long as it needs,
/// and others are served meanwhile.
#[allow(clippy::too_many_arguments)]
pub trait Filesystem: Send + Sync + 'static {
    /// Agrees with the kernel upon what both can do; before everything else. The notifier is good
    /// for as long as the mount.
    fn init(&self, config: &mut KernelConfig, notifier: &Notifier);

    /// Something went wrong between the kernel and the file system: a line for people.
    fn warn(&self, line: &str);

    /// Nothing is served any more, although the kernel still asks (`ENOTCONN`).
    fn is_over(&self) -> bool {
        false
    }

    operations! {
        /// Looks a name up.
        fn lookup(parent: INodeNo, name: &OsStr; ReplyEntry);
        /// Attributes.
        fn getattr(ino: INodeNo; ReplyAttr);
        /// Attributes, and when the object was made.
        fn statx(ino: INodeNo; ReplyStatx);
        /// Changes attributes.
        fn setattr(
            ino: INodeNo,
            mode: Option<u32>,
            uid: Option<u32>,
            gid: Option<u32>,
            size: Option<u64>,
            atime: Option<TimeOrNow>,
            mtime: Option<TimeOrNow>,
            file: Option<FileHandle>;
            ReplyAttr
        );
        /// The target of a symbolic link.
        fn readlink(ino: INodeNo; ReplyData);
        /// Makes a file that is not opened, a pipe, a socket or a device.
        fn mknod(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32; ReplyEntry);
        /// Makes a directory.
        fn mkdir(parent: INodeNo, name: &OsStr, mode: u32, umask: u32; ReplyEntry);
        /// Removes a name.
        fn unlink(parent: INodeNo, name: &OsStr; ReplyEmpty);
        /// Removes a directory.
        fn rmdir(parent: INodeNo, name: &OsStr; ReplyEmpty);
        /// Makes a symbolic link.
        fn symlink(parent: INodeNo, name: &OsStr, target: &Path; ReplyEntry);
        /// Renames.
        fn rename(parent: INodeNo, name: &OsStr, newparent: INodeNo, newname: &OsStr, flags: RenameFlags; ReplyEmpty);
        /// Gives an object one more name.
        fn link(ino: INodeNo, newparent: INodeNo, newname: &OsStr; ReplyEntry);
        /// Opens a file.
        fn open(ino: INodeNo, flags: OpenFlags; ReplyOpen);
        /// Opens a file, makes it if need be.
        fn create(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32; ReplyCreate);
        /// Makes a file without a name and opens it.
        fn tmpfile(parent: INodeNo, mode: u32, umask: u32, flags: i32; ReplyCreate);
        /// Reads.
        fn read(ino: INodeNo, file: FileHandle, offset: u64, size: u32; ReplyData);
        /// Writes.
        fn write(ino: INodeNo, file: FileHandle, offset: u64, data: &[u8], flags: OpenFlags; ReplyWrite);
        /// A descriptor of the file was closed.
        fn flush(ino: INodeNo, file: FileHandle, owner: LockOwner; ReplyEmpty);
        /// All were. Nobody waits for the answer.
        fn release(ino: INodeNo, file: FileHandle; ReplyEmpty);
        /// Makes changes of a file last.
        fn fsync(ino: INodeNo, file: FileHandle, datasync: bool; ReplyEmpty);
        /// Opens a directory.
        fn opendir(ino: INodeNo; ReplyOpen);
        /// Lists a directory.
        fn readdir(ino: INodeNo, file: FileHandle, offset: u64; ReplyDirectory);
        /// As above, with attributes.
        fn readdirplus(ino: INodeNo, file: FileHandle, offset: u64; ReplyDirectoryPlus);
        /// All descriptors of a directory were closed.
        fn releasedir(ino: INodeNo, file: FileHandle; ReplyEmpty);
        /// Makes changes of a directory last.
        fn fsyncdir(ino: INodeNo; ReplyEmpty);
        /// How full the file system is.
        fn statfs(ino: INodeNo; ReplyStatfs);
        /// Sets an extended attribute.
        fn setxattr(ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, kills_setgid: bool; ReplyEmpty);
        /// An extended attribute.
        fn getxattr(ino: INodeNo, name: &OsStr, size: u32; ReplyXattr);
        /// The names of all.
        fn listxattr(ino: INodeNo, size: u32; ReplyXattr);
        /// Removes one.
        fn removexattr(ino: INodeNo, name: &OsStr; ReplyEmpty);
        /// Looks for a lock that would be in the way of `lock`. Asked only if the locks were agreed
        /// upon (`FUSE_POSIX_LOCKS`).
        fn getlk(ino: INodeNo, file: FileHandle, owner: LockOwner, lock: &FileLock; ReplyLock);
        /// Locks or unlocks; `bsd`: as `flock` does (`FUSE_FLOCK_LOCKS`). With `sleep` it waits for
        /// others, as long as [`ReplyEmpty::is_awaited`]; a lock that nobody hears of
        /// ([`ReplyEmpty::ok_if_awaited`]) must be given back.
        fn setlk(ino: INodeNo, file: FileHandle, owner: LockOwner, lock: &FileLock, bsd: bool, sleep: bool; ReplyEmpty);
        /// Reserves or frees a range.
        fn fallocate(ino: INodeNo, file: FileHandle, offset: u64, length: u64, mode: i32; ReplyEmpty);
        /// Looks for data (`SEEK_DATA`) or a hole (`SEEK_HOLE`).
        fn lseek(ino: INodeNo, file: FileHandle, offset: u64, whence: i32; ReplyLseek);
        /// Copies bytes of one open file, from this offset on, into another one: as many as it
        /// likes.
        fn copy_file_range(ino: INodeNo, from: (FileHandle, u64), to: (FileHandle, u64), length: u64; ReplyWrite);
    }
}
