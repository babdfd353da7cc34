//! What the mount asks of the kernel.

use crate::kernel::InitFlags;

/// Each is an improvement that older kernels lack; without it the mount is slower or, for the mmap
/// one, refuses `MAP_SHARED`, and without that for access control lists knows none.
pub(super) const WANTED: [InitFlags; 12] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_AUTO_INVAL_DATA,
    // Servers clear set-id bits when an owner changes or a file is cut, we when it is written.
    InitFlags::FUSE_HANDLE_KILLPRIV,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_SETXATTR_EXT,
];
