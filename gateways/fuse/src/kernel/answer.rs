//! Answers to requests. A request is answered once: by the thread that serves it, or, if its
//! program was interrupted, by whoever honours that. The exchange of [`ServingThread::unique`]
//! decides who.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::abi::{OUT_HEADER_BYTES, OutRecord, add_dirent, out_header};
use super::ring::RingAnswer;
use super::types::{Errno, FileAttr, FileHandle, FileLock, FileType, FopenFlags, INodeNo, Ttls};

/// Pieces of a reply: its record and data.
const PIECES_MAX: usize = 3;

/// What one thread serves. There is one of these for each thread.
pub struct ServingThread {
    /// The request that has no answer yet; 0: none.
    unique: AtomicU64,
    /// The thread of a program that waits for it.
    program: AtomicU32,
    /// The moment at which it was taken, in samples of [`Threads`](crate::threads::Threads); 0:
    /// nothing is in service.
    began: AtomicU32,
    /// A regular file that the kernel may know, because a request was about it or the answer told
    /// of it; 0: none.
    regular: AtomicU64,
    way: Way,
}

/// How an answer gets to the kernel.
pub enum Way {
    /// Written to the device.
    Device(Arc<OwnedFd>),
    /// Left in the memory of an entry of a ring, for the thread that serves it.
    Ring(Mutex<RingAnswer>),
    /// Nobody hears it.
    #[cfg(test)]
    Memory(Mutex<Vec<Vec<u8>>>),
}

impl fmt::Debug for ServingThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("unique", &self.unique).field("began", &self.began).finish_non_exhaustive()
    }
}

impl ServingThread {
    /// Nothing is in service.
    pub fn new(way: Way) -> ServingThread {
        ServingThread { unique: AtomicU64::new(0), program: AtomicU32::new(0), began: AtomicU32::new(0), regular: AtomicU64::new(0), way }
    }

    /// The calling thread has taken a request, in sample `now`.
    pub fn begin(&self, unique: u64, program: u32, now: u32) {
        self.program.store(program, Ordering::Relaxed);
        self.began.store(now.max(1), Ordering::Relaxed);
        self.unique.store(unique, Ordering::Release);
    }

    /// The calling thread has nothing to do with it any more.
    pub fn end(&self) {
        self.began.store(0, Ordering::Relaxed);
    }

    /// In which sample the thread took what it works on.
    pub fn began(&self) -> Option<u32> {
        Some(self.began.load(Ordering::Relaxed)).filter(|began| *began > 0)
    }

    /// This is a regular file.
    pub fn note_regular(&self, file: INodeNo) {
        self.regular.store(file.0, Ordering::Relaxed);
    }

    /// The last regular file that a request or an answer was about.
    pub fn regular_file(&self) -> Option<INodeNo> {
        Some(INodeNo(self.regular.load(Ordering::Relaxed))).filter(|file| file.0 != 0)
    }

    /// The thread of the program that waits for this request, if it is in service here and has no
    /// answer.
    pub fn program_of(&self, unique: u64) -> Option<u32> {
        let program = self.program.load(Ordering::Relaxed);
        (self.unique.load(Ordering::Acquire) == unique).then_some(program)
    }

    /// Ends the wait of a program whose request may go on without it. False if it has its answer
    /// already.
    pub fn interrupt(&self, unique: u64) -> bool {
        self.send(unique, Errno::EINTR.code(), &[])
    }

    /// Takes the request from its thread, which finds that it has no answer to give. False if it
    /// has its answer already.
    pub fn take_over(&self, unique: u64) -> bool {
        self.unique.compare_exchange(unique, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The answer in the memory of a ring, if that is the way.
    pub fn ring_answer(&self) -> Option<MutexGuard<'_, RingAnswer>> {
        match &self.way {
            Way::Ring(answer) => Some(locked(answer)),
            _ => None,
        }
    }

    fn is_awaited(&self, unique: u64) -> bool {
        self.unique.load(Ordering::Relaxed) == unique
    }

    /// Sends the answer if there is none yet. False if there is one, or nobody waits any more.
    fn send(&self, unique: u64, error: i32, pieces: &[&[u8]]) -> bool {
        if self.unique.compare_exchange(unique, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        match &self.way {
            Way::Device(device) => write_reply(device, unique, error, pieces).is_ok(),
            Way::Ring(answer) => {
                locked(answer).give(error, pieces);
                true
            }
            #[cfg(test)]
            Way::Memory(list) => {
                let header = out_header(unique, error, pieces.iter().map(|piece| piece.len()).sum());
                let whole = std::iter::once(header.bytes()).chain(pieces.iter().copied()).collect::<Vec<_>>().concat();
                list.lock().expect("no panic").push(whole);
                true
            }
        }
    }

    /// What was answered.
    #[cfg(test)]
    pub fn answers(&self) -> Vec<Vec<u8>> {
        match &self.way {
            Way::Device(_) | Way::Ring(_) => Vec::new(),
            Way::Memory(list) => list.lock().expect("no panic").clone(),
        }
    }
}

fn locked(answer: &Mutex<RingAnswer>) -> MutexGuard<'_, RingAnswer> {
    answer.lock().expect("no code panics while it holds this lock")
}

/// Writes one reply, or with `unique` 0 one notification, whose code takes the place of the error.
///
/// # Errors
/// `ENOENT`: the program does not wait any more, or what a notification is about is not known to
/// the kernel. Others if the connection has ended.
pub fn write_reply(device: &OwnedFd, unique: u64, error: i32, pieces: &[&[u8]]) -> io::Result<()> {
    let bytes = pieces.iter().map(|piece| piece.len()).sum();
    let header = out_header(unique, error, bytes);
    let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut list = [empty; PIECES_MAX + 1];
    let mut count = 0;
    for piece in std::iter::once(header.bytes()).chain(pieces.iter().copied().filter(|piece| !piece.is_empty())) {
        list[count] = libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
        count += 1;
    }
    // SAFETY: the first `count` pieces are live slices of the stated sizes, which the call only
    // reads.
    let written = unsafe { libc::writev(device.as_raw_fd(), list.as_ptr(), count as i32) };
    if written < 0 {
        return Err(io::Error::last_os_error());
    }
    debug_assert_eq!(written as usize, OUT_HEADER_BYTES + bytes);
    Ok(())
}

/// The answer to one request. One that is dropped says `EIO`.
#[derive(Debug)]
pub struct Answer {
    service: Arc<ServingThread>,
    unique: u64,
}

impl Answer {
    /// To the request that this thread has begun to serve.
    pub fn new(service: &Arc<ServingThread>, unique: u64) -> Answer {
        Answer { service: service.clone(), unique }
    }

    fn send(mut self, pieces: &[&[u8]]) -> bool {
        let unique = std::mem::take(&mut self.unique);
        self.service.send(unique, 0, pieces)
    }

    pub(super) fn fail(mut self, errno: Errno) {
        let unique = std::mem::take(&mut self.unique);
        self.service.send(unique, errno.code(), &[]);
    }

    fn is_awaited(&self) -> bool {
        self.service.is_awaited(self.unique)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.unique != 0 {
            self.service.send(self.unique, Errno::EIO.code(), &[]);
        }
    }
}

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(pub(super) Answer);

        #[allow(dead_code)]
        impl $name {
            /// It cannot be done.
            pub fn error(self, errno: Errno) {
                self.0.fail(errno);
            }

            /// False once the wait has been interrupted: then nobody will hear the answer.
            pub fn is_awaited(&self) -> bool {
                self.0.is_awaited()
            }
        }
    )*};
}

replies! {
    /// Answers with nothing but success.
    ReplyEmpty,
    /// Answers with bytes.
    ReplyData,
    /// Answers with an object.
    ReplyEntry,
    /// Answers with attributes.
    ReplyAttr,
    /// Answers with attributes and the time of birth.
    ReplyStatx,
    /// Answers with an open file.
    ReplyOpen,
    /// Answers with a new, open file.
    ReplyCreate,
    /// Answers how much was written.
    ReplyWrite,
    /// Answers with the state of the file system.
    ReplyStatfs,
    /// Answers with the value of an extended attribute, or its size.
    ReplyXattr,
    /// Answers with a lock that is in the way, or with none.
    ReplyLock,
    /// Answers with an offset.
    ReplyLseek,
}

impl ReplyEmpty {
    /// Done.
    pub fn ok(self) {
        self.0.send(&[]);
    }

    /// Done; false if nobody hears that any more, so that it must be undone: a lock that its
    /// program does not wait for.
    pub fn ok_if_awaited(self) -> bool {
        self.0.send(&[])
    }
}

impl ReplyData {
    /// These bytes.
    pub fn data(self, data: &[u8]) {
        self.0.send(&[data]);
    }
}

impl ReplyEntry {
    /// This object, which the kernel calls `node` from now on; what may be kept for
    /// how long is in `ttls`.
    pub fn entry(self, ttls: Ttls, node: INodeNo, attr: &FileAttr) {
        if attr.kind == FileType::REGULAR {
            self.0.service.note_regular(node);
        }
        self.0.send(&[OutRecord::<128>::new().entry(node, ttls, attr).bytes()]);
    }

    /// Nothing has this name, which may be believed for `ttl`.
    pub fn absent(self, ttl: &Duration) {
        let record = OutRecord::<128>::new().u64(0).u64(0).u64(ttl.as_secs()).u64(0).u32(ttl.subsec_nanos()).u32(0);
        // Attributes of nothing.
        self.0.send(&[(0..11).fold(record, |record, _| record.u64(0)).bytes()]);
    }
}

impl ReplyAttr {
    /// These attributes, which may be kept for `ttl`.
    pub fn attr(self, ttl: &Duration, attr: &FileAttr) {
        self.0.send(&[OutRecord::<104>::new().u64(ttl.as_secs()).u32(ttl.subsec_nanos()).u32(0).attr(attr).bytes()]);
    }
}

impl ReplyStatx {
    /// These attributes, which may be kept for `ttl`.
    pub fn attr(self, ttl: &Duration, attr: &FileAttr) {
        let record = OutRecord::<288>::new().u64(ttl.as_secs()).u32(ttl.subsec_nanos()).u32(0).u64(0).u64(0);
        self.0.send(&[record.statx(attr).bytes()]);
    }
}

impl ReplyOpen {
    /// Open under this number; false if nobody hears that any more: then it will never be closed.
    pub fn opened(self, file: FileHandle, flags: FopenFlags) -> bool {
        self.0.send(&[OutRecord::<16>::new().u64(file.0).u32(flags.bits()).u32(0).bytes()])
    }
}

impl ReplyCreate {
    /// Made and open under this number; false as for [`ReplyOpen::opened`].
    pub fn created(self, ttls: Ttls, attr: &FileAttr, file: FileHandle, flags: FopenFlags) -> bool {
        let record = OutRecord::<144>::new().entry(attr.ino, ttls, attr);
        self.0.send(&[record.u64(file.0).u32(flags.bits()).u32(0).bytes()])
    }
}

impl ReplyWrite {
    /// So many bytes.
    pub fn written(self, bytes: u32) {
        self.0.send(&[OutRecord::<8>::new().u32(bytes).u32(0).bytes()]);
    }
}

impl ReplyLseek {
    /// There.
    pub fn offset(self, offset: u64) {
        self.0.send(&[OutRecord::<8>::new().u64(offset).bytes()]);
    }
}

impl ReplyStatfs {
    /// Blocks in all, free ones, those for plain users, inodes, free ones, preferred size, longest
    /// name, size of a block.
    #[allow(clippy::too_many_arguments)]
    pub fn statfs(self, blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32) {
        let record = OutRecord::<80>::new().u64(blocks).u64(bfree).u64(bavail).u64(files).u64(ffree);
        let record = record.u32(bsize).u32(namelen).u32(frsize);
        self.0.send(&[(0..7).fold(record, |record, _| record.u32(0)).bytes()]);
    }
}

impl ReplyXattr {
    /// The size, for one who asked with no room.
    pub fn size(self, size: u32) {
        self.0.send(&[OutRecord::<8>::new().u32(size).u32(0).bytes()]);
    }

    /// The value.
    pub fn data(self, data: &[u8]) {
        self.0.send(&[data]);
    }
}

impl ReplyLock {
    /// This lock is in the way; one with `F_UNLCK` says that none is.
    pub fn lock(self, lock: &FileLock) {
        self.0.send(&[OutRecord::<24>::new().u64(lock.start).u64(lock.end).u32(lock.kind as u32).u32(lock.pid).bytes()]);
    }
}

/// Memory for a listing that is there before its first entry.
const LISTING_BYTES_AT_ONCE: usize = 32 << 10;

/// Answers with entries of a directory.
#[derive(Debug)]
pub struct ReplyDirectory {
    answer: Answer,
    list: Vec<u8>,
    max: usize,
}

impl ReplyDirectory {
    pub(super) fn new(answer: Answer, max: usize) -> ReplyDirectory {
        ReplyDirectory { answer, list: Vec::with_capacity(max.min(LISTING_BYTES_AT_ONCE)), max }
    }

    /// One more; true if there is no room for it.
    pub fn add(&mut self, ino: INodeNo, cookie: u64, kind: FileType, name: &std::ffi::OsStr) -> bool {
        !add_dirent(&mut self.list, self.max, &[], ino, cookie, kind, name.as_encoded_bytes())
    }

    /// That is all.
    pub fn ok(self) {
        self.answer.send(&[&self.list]);
    }

    /// It cannot be done.
    pub fn error(self, errno: Errno) {
        self.answer.fail(errno);
    }
}

/// Answers with entries of a directory and their attributes.
#[derive(Debug)]
pub struct ReplyDirectoryPlus(pub(super) ReplyDirectory);

impl ReplyDirectoryPlus {
    /// One more; true if there is no room for it. With number 0 the kernel keeps the name only.
    pub fn add(&mut self, ino: INodeNo, cookie: u64, name: &std::ffi::OsStr, ttls: Ttls, attr: &FileAttr) -> bool {
        let entry = OutRecord::<128>::new().entry(ino, ttls, attr);
        !add_dirent(&mut self.0.list, self.0.max, entry.bytes(), attr.ino, cookie, attr.kind, name.as_encoded_bytes())
    }

    /// That is all.
    pub fn ok(self) {
        self.0.ok();
    }

    /// It cannot be done.
    pub fn error(self, errno: Errno) {
        self.0.error(errno);
    }
}
