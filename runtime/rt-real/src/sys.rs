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

use std::cell::RefCell;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU32;

use bytes::BufMut;
use weft_base::{Nanos, SECOND};

/// Asks for unix socket buffers of this many bytes; the kernel may give less.
const UNIX_BUFFER_BYTES: libc::c_int = 4 << 20;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
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
// sockets

/// Receives at most `max` bytes behind what `into` holds already; 0 means that the peer has closed.
/// If nothing is there it fails at once, or with `wait` after [`RECEIVE_WAIT_NS`] on a socket of
/// [`limit_receive_wait`].
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut impl BufMut, max: usize, wait: bool) -> io::Result<usize> {
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    let chunk = into.chunk_mut();
    let len = chunk.len().min(max);
    let start = chunk.as_mut_ptr();
    let received = retry(|| {
        // SAFETY: `start` is valid for writes of `len` bytes: both come from the free part of
        // `into`, borrowed until here.
        unsafe { libc::syscall(libc::SYS_recvfrom, fd.as_raw_fd(), start, len, flags, 0usize, 0usize) as isize }
    })?;
    // SAFETY: the kernel has initialised that many bytes of the free part.
    unsafe { into.advance_mut(received) };
    Ok(received)
}

/// Sends pieces one after another as far as the socket takes them without waiting; returns how many
/// bytes it took.
pub(crate) fn send(fd: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    if let [one] = pieces {
        return retry(|| {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: the slice is valid for reads of its length.
            unsafe { libc::syscall(libc::SYS_sendto, fd.as_raw_fd(), one.as_ptr(), one.len(), flags, 0usize, 0usize) as isize }
        });
    }
    // SAFETY: all-zero bytes are a valid msghdr without addresses and control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len() as _;
    retry(|| {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: an `IoSlice` has the layout of an `iovec`; sendmsg only reads them and what they
        // point to.
        unsafe { libc::syscall(libc::SYS_sendmsg, fd.as_raw_fd(), &raw const message, flags) as isize }
    })
}

/// Like [`receive`] without waiting, and takes a descriptor that travels beside the bytes. More
/// than one are closed.
pub(crate) fn receive_with_descriptor(fd: BorrowedFd<'_>, into: &mut impl BufMut, max: usize) -> io::Result<(usize, Option<OwnedFd>)> {
    let chunk = into.chunk_mut();
    let mut piece = libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: chunk.len().min(max) };
    let mut control = [0u64; CONTROL_WORDS];
    // SAFETY: all-zero bytes are a valid msghdr; its pointers are set below to memory that outlives
    // the call.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let received = retry(|| {
        // SAFETY: the piece is the free part of `into`, borrowed until here; `control` is as long
        // as stated.
        unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) }
    })?;
    // SAFETY: the kernel has initialised that many bytes of the free part.
    unsafe { into.advance_mut(received) };
    let mut descriptor = None;
    // SAFETY: the kernel has filled `message`; CMSG_FIRSTHDR looks at the length that it reports.
    let header = unsafe { libc::CMSG_FIRSTHDR(&message) };
    if let Some(head) = std::ptr::NonNull::new(header) {
        // SAFETY: points into `control`, which is aligned for it and holds a whole header, as
        // CMSG_FIRSTHDR has checked.
        let head = unsafe { head.as_ref() };
        if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: takes no memory.
            let bytes = head.cmsg_len - unsafe { libc::CMSG_LEN(0) } as usize;
            for at in 0..bytes / size_of::<libc::c_int>() {
                // SAFETY: the kernel has put so many descriptors behind the header; `control` is
                // large enough for them.
                let number = unsafe { libc::CMSG_DATA(header).cast::<libc::c_int>().add(at).read_unaligned() };
                let owned = owned(number);
                descriptor.get_or_insert(owned);
            }
        }
    }
    Ok((received, descriptor))
}

/// Words of eight bytes for one descriptor beside a message; the kernel closes what does not fit.
const CONTROL_WORDS: usize = 3;

/// Sends bytes with a descriptor beside the first of them; returns how many bytes the socket took.
pub(crate) fn send_with_descriptor(fd: BorrowedFd<'_>, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0u64; CONTROL_WORDS];
    // SAFETY: all-zero bytes are a valid msghdr; its pointers are set below to memory that outlives
    // the call.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    let number_bytes = size_of::<libc::c_int>() as u32;
    // SAFETY: takes no memory.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(number_bytes) } as _;
    // SAFETY: `control` is aligned and as long as CMSG_SPACE says, so its first header and the data
    // behind it are inside.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(number_bytes) as _;
        libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(descriptor.as_raw_fd());
    }
    retry(|| {
        // SAFETY: everything that `message` points to lives until here, and sendmsg only reads it.
        unsafe { libc::sendmsg(fd.as_raw_fd(), &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }
    })
}

/// Ends a connection in both directions; whoever waits on it wakes up.
pub(crate) fn shutdown(fd: BorrowedFd<'_>) {
    // SAFETY: takes no memory. An error means that it is shut down already.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}

fn set_option<T>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is valid for reads of its size for the duration of the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) }).map(drop)
}

/// The process at the other end of a Unix socket; `None` if it is another kind of socket.
pub(crate) fn peer_process(fd: BorrowedFd<'_>) -> Option<i32> {
    peer_credentials(fd).map(|who| who.pid)
}

/// The user at the other end of a Unix socket; `None` if it is another kind of socket.
pub(crate) fn peer_user(fd: BorrowedFd<'_>) -> Option<u32> {
    peer_credentials(fd).map(|who| who.uid)
}

fn peer_credentials(fd: BorrowedFd<'_>) -> Option<libc::ucred> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `who` and `len` are valid for writes for the duration of the call, and `len` says how
    // large `who` is.
    let got = unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &raw mut len) };
    // A socket of another kind has no such process, which the kernel tells as 0.
    (got == 0 && who.pid > 0).then_some(who)
}

/// The address of the machine at the other end of a TCP connection; takes no descriptor.
pub(crate) fn peer_ip(fd: BorrowedFd<'_>) -> Option<std::net::IpAddr> {
    // SAFETY: all-zero bytes are a valid address of no family; sockaddr_in6 is the largest that a
    // TCP socket has.
    let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: `address` and `len` are valid for writes for the duration of the call, and `len` says
    // how large `address` is.
    if unsafe { libc::getpeername(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) } != 0 {
        return None;
    }
    match i32::from(address.sin6_family) {
        libc::AF_INET6 => Some(std::net::Ipv6Addr::from(address.sin6_addr.s6_addr).into()),
        // The address of IPv4 lies behind the port, where IPv6 has its flow label, in network order
        // too.
        libc::AF_INET => Some(std::net::Ipv4Addr::from(address.sin6_flowinfo.to_ne_bytes()).into()),
        _ => None,
    }
}

/// True if the process, or the machine, has no descriptor left.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// The address at the other end of a TCP connection.
pub(crate) fn peer_address(fd: BorrowedFd<'_>) -> Option<std::net::SocketAddr> {
    let own = fd.try_clone_to_owned().ok()?;
    std::net::TcpStream::from(own).peer_addr().ok()
}

/// Tunes a TCP connection: no Nagle delay, and a dead peer is noticed within about 20 seconds.
pub(crate) fn tune_tcp(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1i32)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1i32)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 10i32)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 3i32)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3i32)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 20_000i32)
}

/// Gives a unix socket large buffers, so that bulk data takes few wake-ups. Beyond the system's
/// limit only with privilege.
pub(crate) fn tune_unix(fd: BorrowedFd<'_>) {
    for (forced, plain) in [(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)] {
        if set_option(fd, libc::SOL_SOCKET, forced, UNIX_BUFFER_BYTES).is_err() {
            // Smaller buffers than asked for are slower and nothing else.
            let _ = set_option(fd, libc::SOL_SOCKET, plain, UNIX_BUFFER_BYTES);
        }
    }
}

/// A receive that waits ends after this time, in nanoseconds.
pub(crate) const RECEIVE_WAIT_NS: u64 = 100 * weft_base::MILLISECOND;

/// Limits receives that wait to [`RECEIVE_WAIT_NS`].
pub(crate) fn limit_receive_wait(fd: BorrowedFd<'_>) -> io::Result<()> {
    let limit = libc::timeval { tv_sec: 0, tv_usec: (RECEIVE_WAIT_NS / 1000) as libc::suseconds_t };
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, limit)
}

fn unix_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no memory.
    check(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) }).map(owned)
}

/// Longest path of a unix socket in bytes.
pub(crate) const UNIX_PATH_BYTES_MAX: usize = 107;

fn unix_address(path: &Path) -> io::Result<libc::sockaddr_un> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > UNIX_PATH_BYTES_MAX || bytes.is_empty() || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("not a socket path of 1 to {UNIX_PATH_BYTES_MAX} bytes")));
    }
    // SAFETY: all-zero bytes are a valid sockaddr_un with an empty path.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(address)
}

/// Connects to a unix socket, waiting at most `limit_ns` for a free place in the listener's queue.
pub(crate) fn connect_unix(path: &Path, limit_ns: u64) -> io::Result<OwnedFd> {
    let address = unix_address(path)?;
    let socket = unix_socket()?;
    let limit_us = (limit_ns / 1000).max(1);
    let wait = |us: u64| libc::timeval { tv_sec: (us / 1_000_000) as libc::time_t, tv_usec: (us % 1_000_000) as libc::suseconds_t };
    set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDTIMEO, wait(limit_us))?;
    retry(|| {
        // SAFETY: `address` is a valid sockaddr_un of the given length.
        let connected =
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_un>() as libc::socklen_t) };
        connected as isize
    })?;
    set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDTIMEO, wait(0))?;
    Ok(socket)
}

/// Listens on a unix socket that only its owner may connect to. The path must not exist.
pub(crate) fn listen_unix(path: &Path) -> io::Result<OwnedFd> {
    let address = unix_address(path)?;
    let socket = unix_socket()?;
    // SAFETY: `address` is a valid sockaddr_un of the given length.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_un>() as libc::socklen_t) })?;
    // Between bind and listen every connect is refused, so nobody slips in before the mode is set.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    // SAFETY: takes no memory.
    check(unsafe { libc::listen(socket.as_raw_fd(), 1024) })?;
    Ok(socket)
}

/// Makes calls on this descriptor return instead of wait.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes no memory.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: takes no memory.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// Accepts a connection of a listener that does not wait.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let accepted = retry(|| {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: null pointers say that the peer's address is not wanted.
        let fd = unsafe { libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) };
        fd as isize
    })?;
    Ok(owned(accepted as libc::c_int))
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
        check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(owned).map(EventFd)
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
    // SAFETY: all-zero bytes are a valid statvfs, which is plain numbers.
    let mut stat: libc::statvfs64 = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends with a NUL and `stat` is valid to write to.
    check(unsafe { libc::statvfs64(path.as_ptr(), &mut stat) })?;
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
