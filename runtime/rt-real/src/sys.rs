//! The system calls that the standard library does not offer, each behind a safe function. All
//! `unsafe` of this crate is here.
//!
//! Everything that may block takes a time limit or is marked as not waiting; a call interrupted by
//! a signal is made again.
//!
//! The calls of every request (receive, send, wait, write) go to the kernel directly: the C library
//! makes each a point where the thread may be cancelled, which costs two locked instructions in a
//! process with threads, and nobody cancels threads here.

#![allow(unsafe_code)]

mod heap;
mod limits;
mod pages;
mod sockets;

use std::cell::RefCell;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use bytes::BufMut;
use weft_base::{Nanos, SECOND};

pub use heap::give_freed_memory_back;
pub use limits::{do_with_few_addresses, outlive_the_file_size_limit};
pub use pages::{PageBytes, PagedHeap, keep_pages_in, page_bytes};
pub(crate) use sockets::*;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(result as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn owned(fd: libc::c_int) -> OwnedFd {
    // SAFETY: only called with a descriptor that a system call of this file has just returned and
    // nobody else knows.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The lowest number that descriptors of clients get.
static LOWEST: AtomicI32 = AtomicI32::new(0);

/// From now on the descriptors that clients of this process keep (connections, events) get this
/// number or a higher one: for libraries in programs that choose numbers of descriptors themselves.
pub fn keep_descriptors_from(lowest: libc::c_int) {
    LOWEST.store(lowest, Ordering::Relaxed);
}

/// A descriptor that is kept, with a number as [`keep_descriptors_from`] says.
pub(crate) fn kept(fd: OwnedFd) -> io::Result<OwnedFd> {
    match LOWEST.load(Ordering::Relaxed) {
        0 => Ok(fd),
        // SAFETY: takes no memory.
        lowest => check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) }).map(owned),
    }
}

// -------------------------------------------------------------------------------------------------
// processes

/// How often a process was forked off on the way to this one, since this was first asked. What
/// threads keep for themselves (descriptors, random numbers) is the parent's in a child.
pub(crate) fn forks() -> u32 {
    static FORKS: AtomicU32 = AtomicU32::new(0);
    static WATCHED: Once = Once::new();
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler is there as long as the code that registers it, and does nothing but
    // count. If there is no memory for it, nothing is noticed, as before.
    WATCHED.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
    FORKS.load(Ordering::Relaxed)
}

// -------------------------------------------------------------------------------------------------
// time, usage

/// The monotonic clock.
pub(crate) fn monotonic() -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Nanos(time.tv_sec as u64 * SECOND + time.tv_nsec as u64)
}

/// Processor time of the calling thread in microseconds.
pub(crate) fn thread_cpu_us() -> u64 {
    // SAFETY: all-zero bytes are a valid rusage, which is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid to write to.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec { tv_sec: (nanos / SECOND) as libc::time_t, tv_nsec: (nanos % SECOND) as libc::c_long }
}

// -------------------------------------------------------------------------------------------------
// waiting

/// A descriptor to wait for in [`poll`], and afterwards what happened on it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Watched(libc::pollfd);

impl Watched {
    /// For becoming readable, closed or broken; for becoming writable too if `write`.
    pub(crate) fn new(fd: BorrowedFd<'_>, write: bool) -> Watched {
        let events = libc::POLLIN | if write { libc::POLLOUT } else { 0 };
        Watched(libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 })
    }

    /// For becoming writable, closed or broken.
    pub(crate) fn writable_only(fd: BorrowedFd<'_>) -> Watched {
        Watched(libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 })
    }

    /// For nothing.
    pub(crate) fn nothing() -> Watched {
        Watched(libc::pollfd { fd: -1, events: 0, revents: 0 })
    }

    /// True if it is readable, closed or broken: a receive will not wait.
    pub(crate) fn readable(self) -> bool {
        self.0.revents & !libc::POLLOUT != 0
    }
}

/// Waits until something happens on one of the descriptors, `until` comes, or a signal arrives.
pub(crate) fn poll(watched: &mut [Watched], until: Nanos) -> io::Result<()> {
    let limit = timespec(until.since(monotonic()));
    let limit_pointer = if until == Nanos::NEVER { std::ptr::null() } else { &raw const limit };
    let count = watched.len() as libc::nfds_t;
    // SAFETY: `Watched` has the layout of a pollfd and there are `count` of them; the time limit is
    // null or valid; no mask is given.
    let result = unsafe { libc::ppoll(watched.as_mut_ptr().cast(), count, limit_pointer, std::ptr::null()) };
    match check(result) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            watched.iter_mut().for_each(|one| one.0.revents = 0);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Sleeps while `word` is `expected`, until it is woken or `until` comes.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, until: Nanos) {
    let limit = timespec(until.since(monotonic()));
    let limit_pointer = if until == Nanos::NEVER { std::ptr::null() } else { &raw const limit };
    // SAFETY: `word` is a live 32-bit word, the time limit null or valid. Every way of returning is
    // fine: callers look again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, expected, limit_pointer) };
}

/// Wakes the one thread that sleeps on `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: takes the address of a live word and does not write to it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}

/// A counter in the kernel that makes a descriptor readable, to wake a thread that waits for
/// sockets.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<EventFd> {
        // SAFETY: takes no memory.
        check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(owned).and_then(kept).map(EventFd)
    }

    /// Makes it readable. May be called in a signal handler.
    pub(crate) fn signal(&self) {
        let one = 1u64;
        // SAFETY: reads the 8 bytes of `one`. It fails only when the counter is at its end: then it
        // is readable anyway.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes it unreadable again.
    pub(crate) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: writes at most 8 bytes to `count`. It fails only when it was not readable.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A set of descriptors to wait for, level-triggered.
pub(crate) struct Epoll {
    fd: OwnedFd,
    /// Where the kernel writes what happened.
    events: RefCell<Vec<libc::epoll_event>>,
}

impl std::fmt::Debug for Epoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Epoll").field(&self.fd).finish()
    }
}

/// What happened on one descriptor of an [`Epoll`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Happened {
    pub(crate) token: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The connection has ended in both directions or broken.
    pub(crate) hangup: bool,
}

/// Most events that one [`Epoll::wait`] returns.
const EVENTS_MAX: usize = 256;

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: takes no memory.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(owned)?;
        Ok(Epoll { fd, events: RefCell::new(vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX]) })
    }

    fn control(&self, operation: libc::c_int, fd: BorrowedFd<'_>, token: u64, read: bool, write: bool) -> io::Result<()> {
        let events = if read { libc::EPOLLIN } else { 0 } | if write { libc::EPOLLOUT } else { 0 };
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: `event` is valid for the duration of the call.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) }).map(drop)
    }

    /// Begins to watch. A descriptor leaves the set by being closed.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, true, false)
    }

    /// Changes what is watched.
    pub(crate) fn change(&self, fd: BorrowedFd<'_>, token: u64, read: bool, write: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, read, write)
    }

    /// Watches a descriptor no more.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, false, false)
    }

    /// Waits until something happens or `until` comes (to the next millisecond), and appends what
    /// happened.
    pub(crate) fn wait(&self, until: Nanos, into: &mut Vec<Happened>) -> io::Result<()> {
        let limit_ms = match until {
            Nanos(0) => 0,
            Nanos::NEVER => -1,
            until => until.since(monotonic()).div_ceil(weft_base::MILLISECOND).min(60_000) as libc::c_int,
        };
        let mut events = self.events.borrow_mut();
        let (fd, place) = (self.fd.as_raw_fd(), events.as_mut_ptr());
        // SAFETY: `place` is valid for writes of `EVENTS_MAX` entries; no mask is given.
        let result = unsafe { libc::syscall(libc::SYS_epoll_pwait, fd, place, EVENTS_MAX, limit_ms, 0usize, 0usize) };
        let count = match check(result as libc::c_int) {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        into.extend(events[..count].iter().map(|event| Happened {
            token: event.u64,
            readable: event.events & !(libc::EPOLLOUT as u32) != 0,
            writable: event.events & !(libc::EPOLLIN as u32) != 0,
            hangup: event.events & (libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0,
        }));
        Ok(())
    }
}

// -------------------------------------------------------------------------------------------------
// files

/// Reads at most `max` bytes at `offset` behind what `into` holds already; 0 means the end of the
/// file.
pub(crate) fn read_at(file: &File, into: &mut impl BufMut, max: usize, offset: u64) -> io::Result<usize> {
    let chunk = into.chunk_mut();
    let len = chunk.len().min(max);
    let start = chunk.as_mut_ptr();
    let read = retry(|| {
        // SAFETY: `start` is valid for writes of `len` bytes: both come from the free part of
        // `into`, borrowed until here.
        unsafe { libc::pread64(file.as_raw_fd(), start.cast(), len, offset as libc::off64_t) }
    })?;
    // SAFETY: the kernel has initialised that many bytes of the free part.
    unsafe { into.advance_mut(read) };
    Ok(read)
}

/// Writes all of `slices` one after another from `offset` on, in as few calls as the system allows.
pub(crate) fn write_all_vectored_at(file: &File, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let count = slices.len().min(libc::UIO_MAXIOV as usize);
        let written = retry(|| {
            // SAFETY: `IoSlice` has the layout of `iovec`; the first `count` of them and what they
            // point to are borrowed until here.
            unsafe { libc::pwritev64(file.as_raw_fd(), slices.as_ptr().cast(), count as libc::c_int, offset as libc::off64_t) }
        })?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut slices, written);
        offset += written as u64;
    }
    Ok(())
}

/// Writes all bytes at `offset`.
pub(crate) fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = retry(|| write_at(file, bytes, offset))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

#[cfg(target_pointer_width = "64")]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> isize {
    // SAFETY: the slice is valid for reads of its length; the offset is one register.
    unsafe { libc::syscall(libc::SYS_pwrite64, file.as_raw_fd(), bytes.as_ptr(), bytes.len(), offset) as isize }
}

#[cfg(not(target_pointer_width = "64"))]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> isize {
    // SAFETY: the slice is valid for reads of its length.
    unsafe { libc::pwrite64(file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), offset as libc::off64_t) }
}

fn fallocate(file: &File, mode: libc::c_int, offset: u64, len: u64) -> io::Result<()> {
    retry(|| {
        // SAFETY: takes no memory.
        let result = unsafe { libc::fallocate64(file.as_raw_fd(), mode, offset as libc::off64_t, len as libc::off64_t) };
        result as isize
    })
    .map(drop)
}

/// Reserves space for a range and extends the file to its end.
pub(crate) fn reserve(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, 0, offset, len)
}

/// Gives the space of a range back.
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, len)
}

/// Total and available bytes of the file system that holds `path`.
pub(crate) fn space(path: &Path) -> io::Result<(u64, u64)> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` ends with a NUL and `stat` is valid to write to.
    space_by(|stat| unsafe { libc::statvfs64(path.as_ptr(), stat) })
}

/// The same of the file system that holds a file.
pub(crate) fn space_beside(file: &File) -> io::Result<(u64, u64)> {
    // SAFETY: `stat` is valid to write to.
    space_by(|stat| unsafe { libc::fstatvfs64(file.as_raw_fd(), stat) })
}

fn space_by(ask: impl FnOnce(&mut libc::statvfs64) -> libc::c_int) -> io::Result<(u64, u64)> {
    // SAFETY: all-zero bytes are a valid statvfs, which is plain numbers.
    let mut stat: libc::statvfs64 = unsafe { std::mem::zeroed() };
    check(ask(&mut stat))?;
    Ok((stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize))
}

// -------------------------------------------------------------------------------------------------
// descriptors

/// The standard error output as a file.
pub(crate) fn stderr_file() -> io::Result<File> {
    Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?))
}

/// Lets the standard error output of this process go to `file`.
pub(crate) fn replace_stderr(file: &File) -> io::Result<()> {
    // SAFETY: both descriptors are open, and what descriptor 2 led to before is only reached
    // through it.
    check(unsafe { libc::dup2(file.as_raw_fd(), libc::STDERR_FILENO) }).map(drop)
}

/// Marks every descriptor above the standard ones so that programs which this process starts do not
/// get it.
pub fn keep_descriptors_to_ourselves() -> io::Result<()> {
    // SAFETY: only a flag of descriptors changes, and what this process does with them stays as it
    // is.
    let marked = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if marked == 0 {
        return Ok(());
    }
    // Kernels before 5.11: one by one.
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(fd) = entry?.file_name().to_str().and_then(|name| name.parse::<libc::c_int>().ok()) else { continue };
        if fd > libc::STDERR_FILENO {
            // SAFETY: as above; a descriptor that was closed meanwhile is an error that means
            // nothing.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// Runs this in a forked child; gives the number that it returns.
    fn in_child(number: impl FnOnce() -> u64) -> u64 {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        // SAFETY: the child has one thread, calls what takes no lock that another thread may hold,
        // and ends without destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let _ = std::io::Write::write_all(&mut writer, &number().to_le_bytes());
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
        drop(writer);
        let mut bytes = [0; 8];
        std::io::Read::read_exact(&mut reader, &mut bytes).unwrap();
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        u64::from_le_bytes(bytes)
    }

    /// Otherwise two children are one client to the servers.
    #[test]
    fn a_child_draws_random_numbers_of_its_own() {
        crate::clock::random();
        let drawn = [in_child(crate::clock::random), in_child(crate::clock::random), crate::clock::random()];
        assert!(drawn[0] != drawn[1] && drawn[0] != drawn[2] && drawn[1] != drawn[2], "{drawn:?}");
    }

    /// Otherwise it takes wake-ups that are meant for its parent.
    #[test]
    fn a_child_waits_with_an_event_of_its_own() {
        let event = || crate::client::event_of_this_thread() as u64;
        let (mine, again) = (event(), event());
        assert_eq!(mine, again);
        assert_ne!(in_child(event), mine);
        assert_eq!(event(), mine);
    }

    #[test]
    fn the_other_end_of_a_connection_is_known() {
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer_process(unix.as_fd()), Some(std::process::id() as i32));
        assert_eq!(peer_address(unix.as_fd()), None);
        assert_eq!((peer_user(unix.as_fd()).is_some(), peer_ip(unix.as_fd())), (true, None));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(peer_process(server.as_fd()), None);
        assert_eq!(peer_address(server.as_fd()), client.local_addr().ok());
        assert_eq!(peer_ip(server.as_fd()), client.local_addr().ok().map(|address| address.ip()));
        if let Ok(listener) = std::net::TcpListener::bind("[::1]:0") {
            let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            assert_eq!(peer_ip(server.as_fd()), Some(std::net::Ipv6Addr::LOCALHOST.into()));
        }
    }
}
