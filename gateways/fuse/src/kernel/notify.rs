//! What a file system tells the kernel without being asked.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::abi::OutRecord;
use super::answer::write_reply;
use super::types::INodeNo;

/// Numbers of notifications.
mod code {
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const RETRIEVE: i32 = 5;
    pub const INC_EPOCH: i32 = 8;
}

/// True if the kernel can be told to forget names without taking a lock
/// ([`Notifier::increment_epoch`]): Linux 6.16 and later.
pub fn forgets_names() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|byte: char| !byte.is_ascii_digit()).map(|digits| digits.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(16))
}

/// Tells the kernel what it knows no longer holds. Usable from any thread, also while the kernel
/// waits for an answer about another object; one that serves a request must not tell about the
/// object of the request, whose lock the kernel may hold.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<OwnedFd>,
}

impl Notifier {
    pub(super) fn new(device: Arc<OwnedFd>) -> Notifier {
        Notifier { device }
    }

    /// Attributes of an object have changed, and with them, unless `offset` is negative, `length`
    /// bytes of its data from there (0: all).
    ///
    /// # Errors
    /// If the connection has ended. An object that the kernel does not know is no error.
    pub fn inval_inode(&self, ino: INodeNo, offset: i64, length: i64) -> io::Result<()> {
        self.send(code::INVAL_INODE, &[OutRecord::<24>::new().u64(ino.0).u64(offset as u64).u64(length as u64).bytes()])
    }

    /// What this name in a directory leads to is not there any more, for all that the kernel knows.
    /// Takes the lock of the directory: nobody who holds it may be waiting for the calling thread.
    ///
    /// # Errors
    /// As [`Notifier::inval_inode`].
    pub fn inval_entry(&self, parent: INodeNo, name: &[u8]) -> io::Result<()> {
        let record = OutRecord::<16>::new().u64(parent.0).u32(name.len() as u32).u32(0);
        self.send(code::INVAL_ENTRY, &[record.bytes(), name, &[0]])
    }

    /// All names that the kernel keeps must be looked up again (Linux 6.16).
    ///
    /// # Errors
    /// `EINVAL` if the kernel does not know this; else as above.
    pub fn increment_epoch(&self) -> io::Result<()> {
        self.send(code::INC_EPOCH, &[])
    }

    /// Makes the kernel send a request that asks for nothing (`NOTIFY_REPLY`, about a regular
    /// file), on the processor of the calling thread.
    ///
    /// # Errors
    /// `ENOENT` if the kernel does not know the file, `EINVAL` if it is none; else as above.
    pub fn poke(&self, file: INodeNo, number: u32) -> io::Result<()> {
        // Even, and beyond what requests of programs are called.
        let unique = 1 << 62 | u64::from(number) << 1;
        let record = OutRecord::<32>::new().u64(unique).u64(file.0).u64(0).u32(0).u32(0);
        write_reply(&self.device, 0, -code::RETRIEVE, &[record.bytes()])
    }

    fn send(&self, code: i32, pieces: &[&[u8]]) -> io::Result<()> {
        // The code takes the place of the error, which replies write with the opposite sign.
        match write_reply(&self.device, 0, -code, pieces) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }
}
