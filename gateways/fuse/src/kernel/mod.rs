//! The connection to the kernel: the FUSE protocol, the threads that serve it, and how requests
//! come.
//!
//! Nothing here knows Weft; [`Filesystem`] is the seam.

mod abi;
mod answer;
mod dispatch;
mod filesystem;
mod init;
mod interrupts;
mod notify;
mod request;
mod ring;
mod rings;
mod session;
#[cfg(test)]
mod tests;
mod types;
mod uring;

pub use answer::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr, ServingThread,
};
pub use filesystem::Filesystem;
pub use init::KernelConfig;
pub use notify::{Notifier, forgets_names};
pub use request::Request;
pub use rings::Transport;
pub use session::{KernelSession, SessionOptions};
pub use types::{
    Errno, FileAttr, FileHandle, FileLock, FileType, FopenFlags, INodeNo, InitFlags, KernelTime, LockOwner, OpenFlags, RenameFlags,
    TimeOrNow, Ttls,
};

/// What a thread of a test serves.
#[cfg(test)]
pub fn test_service() -> ServingThread {
    ServingThread::new(answer::Way::Memory(std::sync::Mutex::default()))
}
