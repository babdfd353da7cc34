//! Sockets: sending and receiving, who is at the other end, and how they are made.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::BufMut;

use super::{check, owned, retry};

/// Asks for unix socket buffers of this many bytes; the kernel may give less.
const UNIX_BUFFER_BYTES: libc::c_int = 4 << 20;

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
            // SAFETY: takes no memory. The length is of another type with musl.
            #[allow(clippy::unnecessary_cast)]
            let bytes = head.cmsg_len as usize - unsafe { libc::CMSG_LEN(0) } as usize;
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
