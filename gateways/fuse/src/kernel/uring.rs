//! An io_uring for one thread that has one command under way at a time: to fetch a request of the
//! kernel, and to answer it and fetch the next.
//!
//! The layout of rings and entries is that of `linux/io_uring.h`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Flags of the set-up: entries with room for a command, one thread, whose own waits run what the
/// kernel left to do for it.
const SETUP_SQE128: u32 = 1 << 10;
const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
/// Both rings are in one mapping.
const FEATURE_SINGLE_MMAP: u32 = 1 << 0;
/// Places of the mappings.
const OFFSET_RINGS: libc::off_t = 0;
const OFFSET_ENTRIES: libc::off_t = 0x1000_0000;
/// Wait for completions.
const ENTER_GETEVENTS: u32 = 1;
/// A command for the file.
const OPCODE_COMMAND: u8 = 46;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 128;
/// Bytes of a completion.
const COMPLETION_BYTES: usize = 16;
/// Entries of the ring; one is used.
const ENTRIES: u32 = 2;

/// What the system fills in when a ring is made.
#[repr(C)]
#[derive(Default)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    sq: SubmissionOffsets,
    cq: CompletionOffsets,
}

#[repr(C)]
#[derive(Default)]
struct SubmissionOffsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    reserved: u32,
    user: u64,
}

#[repr(C)]
#[derive(Default)]
struct CompletionOffsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    overflow: u32,
    completions: u32,
    flags: u32,
    reserved: u32,
    user: u64,
}

/// A mapping of memory, undone when it is dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: memory is the same for all threads; who may touch it when is for the owner to say.
unsafe impl Send for Mapping {}
// SAFETY: as above; the type itself gives out nothing but the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file, readable and writable; at `over`, which must be a mapping of at least this
    /// size, or anywhere.
    ///
    /// # Errors
    /// If there is no memory, like everything here.
    pub fn of_file(fd: &OwnedFd, offset: libc::off_t, bytes: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping at a place that the system chooses touches nothing that exists.
        let start = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED | libc::MAP_NORESERVE, fd.as_raw_fd(), offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { start: NonNull::new(start.cast()).expect("nothing is mapped at address 0"), bytes })
    }

    /// Puts another file in the place of this one.
    pub fn replace(&self, fd: &OwnedFd) -> io::Result<()> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the place is ours. Nobody has references into it: only the kernel uses it, by its
        // address.
        let start = unsafe { libc::mmap(self.start.as_ptr().cast(), self.bytes, protection, flags, fd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Where it begins.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has references into it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A command for the connection to the kernel, in the words of `fuse_uring_cmd_req`.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Which.
    pub code: u32,
    /// The queue.
    pub queue: u16,
    /// The request that is answered.
    pub commit: u64,
    /// Two pieces of memory for requests and answers; 0: none.
    pub pieces: u64,
}

/// The ring of the calling thread.
#[derive(Debug)]
pub struct Uring {
    fd: OwnedFd,
    rings: Mapping,
    entries: Mapping,
    offsets: Offsets,
}

#[derive(Clone, Copy, Debug)]
struct Offsets {
    sq_head: usize,
    sq_tail: usize,
    sq_mask: u32,
    cq_head: usize,
    cq_tail: usize,
    cq_mask: u32,
    completions: usize,
}

impl Uring {
    /// A ring that only the calling thread may use.
    ///
    /// # Errors
    /// If the system has or allows none of this kind.
    pub fn new() -> io::Result<Uring> {
        let mut params = Params { flags: SETUP_SQE128 | SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN, ..Params::default() };
        // SAFETY: the system fills `params`, which has the layout that it expects.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, ENTRIES, &raw mut params) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        if params.features & FEATURE_SINGLE_MMAP == 0 {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        let array = params.sq.array as usize;
        let completions = params.cq.completions as usize;
        let bytes = (array + params.sq_entries as usize * 4).max(completions + params.cq_entries as usize * COMPLETION_BYTES);
        let rings = Mapping::of_file(&fd, OFFSET_RINGS, bytes)?;
        let entries = Mapping::of_file(&fd, OFFSET_ENTRIES, params.sq_entries as usize * ENTRY_BYTES)?;
        let offsets = Offsets {
            sq_head: params.sq.head as usize,
            sq_tail: params.sq.tail as usize,
            sq_mask: params.sq_entries - 1,
            cq_head: params.cq.head as usize,
            cq_tail: params.cq.tail as usize,
            cq_mask: params.cq_entries - 1,
            completions,
        };
        let uring = Uring { fd, rings, entries, offsets };
        for index in 0..params.sq_entries {
            uring.word(array + index as usize * 4).store(index, Ordering::Relaxed);
        }
        Ok(uring)
    }

    /// Gives the system a command; there must be none under way. It leaves with the next
    /// [`Uring::enter`].
    pub fn push(&mut self, device: &OwnedFd, command: &Command) {
        let tail = self.word(self.offsets.sq_tail).load(Ordering::Relaxed);
        let mut entry = [0u8; ENTRY_BYTES];
        entry[0] = OPCODE_COMMAND;
        entry[4..8].copy_from_slice(&device.as_raw_fd().to_ne_bytes());
        entry[8..12].copy_from_slice(&command.code.to_ne_bytes());
        entry[16..24].copy_from_slice(&command.pieces.to_ne_bytes());
        entry[24..28].copy_from_slice(&(if command.pieces == 0 { 0u32 } else { 2 }).to_ne_bytes());
        entry[56..64].copy_from_slice(&command.commit.to_ne_bytes());
        entry[64..66].copy_from_slice(&command.queue.to_ne_bytes());
        let at = (tail & self.offsets.sq_mask) as usize * ENTRY_BYTES;
        // SAFETY: `at` is within the mapping of entries, and the system does not look at this one
        // before the tail moves past it.
        unsafe { std::ptr::copy_nonoverlapping(entry.as_ptr(), self.entries.start().as_ptr().add(at), ENTRY_BYTES) };
        self.word(self.offsets.sq_tail).store(tail.wrapping_add(1), Ordering::Release);
    }

    /// Submits what was pushed; with `wait`, until a command is complete.
    ///
    /// # Errors
    /// If the system refuses; a signal is no error.
    pub fn enter(&mut self, wait: bool) -> io::Result<()> {
        let (tail, head) = (self.word(self.offsets.sq_tail), self.word(self.offsets.sq_head));
        let submit = tail.load(Ordering::Relaxed).wrapping_sub(head.load(Ordering::Acquire));
        let fd = self.fd.as_raw_fd();
        // SAFETY: the call reads the rings of this descriptor, and what the pushed command names,
        // which is live (`Command::pieces`).
        let done = unsafe {
            let (signals, size) = (std::ptr::null::<libc::c_void>(), 0usize);
            libc::syscall(libc::SYS_io_uring_enter, fd, submit, u32::from(wait), ENTER_GETEVENTS, signals, size)
        };
        if done >= 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EINTR) => Ok(()),
            error => Err(error),
        }
    }

    /// The result of a command that is complete.
    pub fn completion(&mut self) -> Option<i32> {
        let head = self.word(self.offsets.cq_head).load(Ordering::Relaxed);
        if head == self.word(self.offsets.cq_tail).load(Ordering::Acquire) {
            return None;
        }
        let at = self.offsets.completions + (head & self.offsets.cq_mask) as usize * COMPLETION_BYTES;
        // Behind the number of the command, of which there is one only.
        let result = self.word(at + 8).load(Ordering::Relaxed) as i32;
        self.word(self.offsets.cq_head).store(head.wrapping_add(1), Ordering::Release);
        Some(result)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: all offsets are those of aligned words within the mapping, given by the system,
        // which changes them atomically.
        unsafe { self.rings.start().byte_add(offset).cast().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_complete_and_refusals_arrive() {
        let mut uring = match Uring::new() {
            Ok(uring) => uring,
            // Containers may forbid it; then the mount uses the device.
            Err(error) => return eprintln!("SKIPPED: no io_uring here: {error}"),
        };
        let file: OwnedFd = std::fs::File::open("/dev/zero").expect("a file that knows no command of ours").into();
        for round in 0..10 {
            assert_eq!(uring.completion(), None);
            uring.push(&file, &Command { code: 1, queue: 0, commit: round, pieces: 0 });
            uring.enter(true).expect("a command is submitted");
            assert!(uring.completion().expect("the command is complete") < 0, "refused");
        }
    }
}
