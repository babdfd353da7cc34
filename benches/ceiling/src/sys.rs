//! Safe wrappers around the few system calls that the standard library does not offer in the plain
//! form that is measured.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Bytes per page; buffers start on a page so that a request of 1 MiB covers 256 pages and not 257.
pub(crate) const PAGE_BYTES: usize = 4096;

#[derive(Clone, Copy)]
#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "read through the pointer to the pages")] [u8; PAGE_BYTES]);

/// A buffer of whole pages that starts on a page boundary, as O_DIRECT and FUSE direct I/O like it.
pub(crate) struct PageBuf {
    pages: Vec<Page>,
    len_bytes: usize,
}

impl PageBuf {
    pub(crate) fn new(len_bytes: usize, fill: u8) -> Self {
        let pages = vec![Page([fill; PAGE_BYTES]); len_bytes.div_ceil(PAGE_BYTES)];
        Self { pages, len_bytes }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the vector holds at least `len_bytes` initialised bytes (a whole number of pages
        // without padding).
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len_bytes) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the borrow of `self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len_bytes) }
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// `openat(2)` with close-on-exec.
pub(crate) fn open_at(dir: BorrowedFd<'_>, name: &CStr, flags: libc::c_int, mode: libc::mode_t) -> io::Result<OwnedFd> {
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    let fd = check(unsafe { libc::openat(dir.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC, mode) })?;
    // SAFETY: the kernel just handed out this descriptor, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `fstat(2)`, result dropped.
pub(crate) fn fstat(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes one `stat` into the space given.
    check(unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) }).map(drop)
}

/// `fstatat(2)` without following links, result dropped.
pub(crate) fn stat_at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `name` is NUL-terminated; the kernel writes one `stat` into the space given.
    check(unsafe { libc::fstatat(dir.as_raw_fd(), name.as_ptr(), stat.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW) }).map(drop)
}

/// `unlinkat(2)` of a file.
pub(crate) fn unlink_at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: `name` is NUL-terminated and outlives the call.
    check(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// One `getdents64(2)`; returns how many entries (`.` and `..` included) the kernel put into
/// `buffer`, 0 at the end.
pub(crate) fn getdents(dir: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<u64> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`.
    let filled = unsafe { libc::syscall(libc::SYS_getdents64, dir.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
    if filled < 0 {
        return Err(io::Error::last_os_error());
    }
    // A record is: inode u64, offset u64, record length u16, type u8, name.
    let mut rest = &buffer[..filled as usize];
    let mut entries = 0;
    while let Some(length) = rest.get(16..18) {
        let record_bytes = usize::from(u16::from_ne_bytes([length[0], length[1]]));
        if record_bytes == 0 || record_bytes > rest.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "directory record of impossible length"));
        }
        rest = &rest[record_bytes..];
        entries += 1;
    }
    Ok(entries)
}

/// Asks the kernel to drop the clean cached pages of a file, so that the next read goes to the
/// disk.
pub(crate) fn drop_cache(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::posix_fadvise(fd.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// A system call that does next to nothing: the parent's process id.
pub(crate) fn getppid() -> i64 {
    // SAFETY: the call takes no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_getppid) }
}

/// The processors that a thread may run on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affinity(libc::cpu_set_t);

impl Affinity {
    /// That of the calling thread.
    pub(crate) fn current() -> io::Result<Self> {
        // SAFETY: a `cpu_set_t` is a plain array of bits, for which zero is a valid value.
        let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
        // SAFETY: the kernel writes at most the size given to `set`; thread 0 is the caller.
        check(unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) })?;
        Ok(Self(set))
    }

    /// So many processors of this set, after the first `skipped` of them; `None` when it has fewer.
    pub(crate) fn some(&self, skipped: usize, count: usize) -> Option<Self> {
        // SAFETY: for the macros below: `cpu` is below CPU_SETSIZE, so they stay within the array.
        let is_in = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &self.0) };
        let chosen: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(is_in).skip(skipped).take(count).collect();
        // SAFETY: a `cpu_set_t` is a plain array of bits, for which zero is a valid value.
        let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
        // SAFETY: as above.
        chosen.iter().for_each(|cpu| unsafe { libc::CPU_SET(*cpu, &mut set) });
        (chosen.len() == count).then_some(Self(set))
    }

    /// How many processors are in the set.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        // SAFETY: the set is valid; the macro only counts its bits.
        unsafe { libc::CPU_COUNT(&self.0) as usize }
    }

    /// Makes it that of the calling thread, and of threads and processes that it starts from now
    /// on.
    pub(crate) fn apply(&self) -> io::Result<()> {
        // SAFETY: the kernel reads the size given from the set; thread 0 is the caller.
        check(unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &self.0) }).map(drop)
    }
}

/// Lazy unmount (`MNT_DETACH`): the mount disappears now, and its resources when the last user lets
/// go.
pub(crate) fn unmount_lazily(mount_point: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(mount_point.as_os_str().as_bytes())?;
    // SAFETY: `path` is NUL-terminated and outlives the call.
    check(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) }).map(drop)
}

/// An epoll set; the token of a descriptor is its number.
pub(crate) struct Epoll(OwnedFd);

/// What a descriptor in an [`Epoll`] set waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Readable, or closed by the peer.
    Read,
    /// Writable only.
    Write,
    /// Both.
    ReadWrite,
}

impl Interest {
    fn bits(self) -> u32 {
        (match self {
            Interest::Read => libc::EPOLLIN | libc::EPOLLRDHUP,
            Interest::Write => libc::EPOLLOUT,
            Interest::ReadWrite => libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLOUT,
        }) as u32
    }
}

/// One ready descriptor.
pub(crate) struct Ready {
    pub(crate) fd: i32,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel just handed out this descriptor.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn add(&self, fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest)
    }

    pub(crate) fn modify(&self, fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest)
    }

    fn control(&self, operation: libc::c_int, fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.bits(), u64: fd.as_raw_fd() as u64 };
        // SAFETY: `event` lives through the call.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) }).map(drop)
    }

    /// Waits without a limit for at least one ready descriptor.
    pub(crate) fn wait(&self, ready: &mut Vec<Ready>) -> io::Result<()> {
        const EVENTS: usize = 64;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let count = loop {
            // SAFETY: the kernel writes at most EVENTS events.
            match check(unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), EVENTS as libc::c_int, -1) }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => break other?,
            }
        };
        ready.clear();
        for event in &events[..count as usize] {
            let bits = event.events;
            let has = |wanted: libc::c_int| bits & wanted as u32 != 0;
            ready.push(Ready {
                fd: event.u64 as i32,
                readable: has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
                writable: has(libc::EPOLLOUT),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn page_buffers_start_on_a_page() {
        let mut buffer = PageBuf::new(47008, 7);
        assert_eq!(buffer.bytes().len(), 47008);
        assert_eq!(buffer.bytes().as_ptr() as usize % PAGE_BYTES, 0);
        assert!(buffer.bytes().iter().all(|byte| *byte == 7));
        buffer.bytes_mut()[47007] = 9;
        assert_eq!(buffer.bytes()[47007], 9);
    }

    #[test]
    fn getdents_counts_every_entry_once() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for index in 0..100 {
            std::fs::write(dir.path().join(format!("f{index}")), b"").expect("an empty file");
        }
        let open = std::fs::File::open(dir.path()).expect("the directory exists");
        let mut buffer = vec![0; 1024];
        let mut entries = 0;
        loop {
            match getdents(open.as_fd(), &mut buffer).expect("a readable directory") {
                0 => break,
                some => entries += some,
            }
        }
        assert_eq!(entries, 102);
    }
}
