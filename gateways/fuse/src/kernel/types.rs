//! The nouns of the kernel's FUSE interface.

/// Nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// The number of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct INodeNo(pub u64);

/// What the kernel repeats in every request on an open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle(pub u64);

/// Whose lock it is: the same for all threads of a process, or for all who share an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockOwner(pub u64);

/// The flags of an `open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFlags(pub i32);

/// The number of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(i32);

#[allow(missing_docs, dead_code)]
impl Errno {
    pub const EAGAIN: Errno = Errno(libc::EAGAIN);
    pub const EDEADLK: Errno = Errno(libc::EDEADLK);
    pub const ENOLCK: Errno = Errno(libc::ENOLCK);
    pub const EINTR: Errno = Errno(libc::EINTR);
    pub const EINVAL: Errno = Errno(libc::EINVAL);
    pub const EIO: Errno = Errno(libc::EIO);
    pub const ENOSYS: Errno = Errno(libc::ENOSYS);
    pub const ENOTCONN: Errno = Errno(libc::ENOTCONN);
    pub const ENXIO: Errno = Errno(libc::ENXIO);
    pub const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
    pub const EROFS: Errno = Errno(libc::EROFS);
    pub const ERANGE: Errno = Errno(libc::ERANGE);
}

impl Errno {
    /// The error with this number; one that is no number of an error is `EIO`.
    pub fn from_i32(code: i32) -> Errno {
        // The kernel takes no others.
        if (1..512).contains(&code) { Errno(code) } else { Errno::EIO }
    }

    /// Its number, positive.
    pub fn code(self) -> i32 {
        self.0
    }
}

/// The kind of an object: its bits of `st_mode` (`S_IFMT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileType(pub u32);

impl FileType {
    /// A file.
    pub const REGULAR: FileType = FileType(libc::S_IFREG);
}

/// A moment, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelTime(pub i64);

impl KernelTime {
    /// Seconds, rounded down, and nanoseconds.
    pub fn parts(self) -> (i64, u32) {
        (self.0.div_euclid(SECOND), self.0.rem_euclid(SECOND) as u32)
    }

    /// The time that these parts mean, or the nearest one that there is.
    pub fn of_parts(seconds: i64, nanos: u32) -> KernelTime {
        let all = i128::from(seconds) * i128::from(SECOND) + i128::from(nanos);
        KernelTime(all.clamp((-i64::MAX).into(), i64::MAX.into()) as i64)
    }
}

/// How long the kernel may answer from what it is told of an object and its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ttls {
    /// That the name leads to it.
    pub name: std::time::Duration,
    /// Its attributes.
    pub attr: std::time::Duration,
}

/// Attributes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttr {
    /// Number.
    pub ino: INodeNo,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: KernelTime,
    /// Last change of the contents.
    pub mtime: KernelTime,
    /// Last change of the attributes.
    pub ctime: KernelTime,
    /// When it was made, if that is known.
    pub born: Option<KernelTime>,
    /// Kind.
    pub kind: FileType,
    /// Permissions.
    pub perm: u16,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of the device that it stands for.
    pub rdev: u32,
    /// Unit in which programs like to read and write.
    pub blksize: u32,
}

/// A time stamp to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOrNow {
    /// This one.
    SpecificTime(KernelTime),
    /// That of the change.
    Now,
}

/// A lock on a range of a file, or on the file as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// First byte.
    pub start: u64,
    /// Last byte; the largest number that there is means the end of the file, wherever it is.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// The process that holds it.
    pub pid: u32,
}

/// Defines a set of bits.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$flag_doc:meta])* $flag:ident = $bit:expr),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name($int);

        #[allow(dead_code)]
        impl $name {
            $($(#[$flag_doc])* pub const $flag: $name = $name(1 << $bit);)*

            /// None of them.
            pub const fn empty() -> $name {
                $name(0)
            }
            /// Those in `bits`.
            pub const fn from_bits(bits: $int) -> $name {
                $name(bits)
            }
            /// As the kernel writes them.
            pub const fn bits(self) -> $int {
                self.0
            }
            /// Without those of `other`.
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }
            /// True if all of `other` are set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }
    };
}

flags! {
    /// How the kernel shall treat an open file.
    FopenFlags: u32 {
        /// Past the page cache.
        FOPEN_DIRECT_IO = 0,
        /// Pages of earlier opens are still good.
        FOPEN_KEEP_CACHE = 1,
        /// Listings are kept.
        FOPEN_CACHE_DIR = 3,
        /// No FLUSH at every close.
        FOPEN_NOFLUSH = 5,
        /// Several direct writes at once.
        FOPEN_PARALLEL_DIRECT_WRITES = 6,
    }
}

flags! {
    /// The flags of `renameat2`.
    RenameFlags: u32 {
        /// Not over an existing name.
        RENAME_NOREPLACE = 0,
        /// The two names change places.
        RENAME_EXCHANGE = 1,
    }
}

flags! {
    /// What kernel and file system can do, agreed upon once.
    InitFlags: u64 {
        /// Reads of one file at once.
        FUSE_ASYNC_READ = 0,
        /// POSIX locks are asked for.
        FUSE_POSIX_LOCKS = 1,
        /// `O_TRUNC` comes with the open.
        FUSE_ATOMIC_O_TRUNC = 3,
        /// Writes of more than a page.
        FUSE_BIG_WRITES = 5,
        /// The umask comes with the mode of new objects.
        FUSE_DONT_MASK = 6,
        /// BSD locks are asked for.
        FUSE_FLOCK_LOCKS = 10,
        /// Pages go when size or time have changed.
        FUSE_AUTO_INVAL_DATA = 12,
        /// Listings with attributes.
        FUSE_DO_READDIRPLUS = 13,
        /// ... when they seem to be wanted.
        FUSE_READDIRPLUS_AUTO = 14,
        /// Asynchronous direct I/O.
        FUSE_ASYNC_DIO = 15,
        /// Look-ups and listings of one directory at once.
        FUSE_PARALLEL_DIROPS = 18,
        /// Set-id bits are cleared by the file system: the kernel need not ask for the mode before
        /// it changes an owner.
        FUSE_HANDLE_KILLPRIV = 19,
        /// The kernel checks access control lists.
        FUSE_POSIX_ACL = 20,
        /// The number of pages in a request is agreed upon.
        FUSE_MAX_PAGES = 22,
        /// Targets of symbolic links are kept.
        FUSE_CACHE_SYMLINKS = 23,
        /// The record of SETXATTR is longer.
        FUSE_SETXATTR_EXT = 29,
        /// There are more than 32 flags.
        FUSE_INIT_EXT = 30,
        /// `mmap` of files past the page cache.
        FUSE_DIRECT_IO_ALLOW_MMAP = 36,
        /// Requests over io_uring.
        FUSE_OVER_IO_URING = 41,
    }
}
