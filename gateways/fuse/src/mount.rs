//! Attaching to and detaching from the kernel's tree, as root by the system call and as a plain
//! user by `fusermount3`.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// Largest request in bytes; the kernel allows 256 pages.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// What the kernel sees to at a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelFlags {
    /// Other users may use it.
    pub allow_other: bool,
    /// No changes.
    pub read_only: bool,
    /// No program of it is run.
    pub no_exec: bool,
}

/// Attaches a new connection at `mountpoint`: as root by the system call, else, or where root may
/// not mount, by the helper.
///
/// # Errors
/// What the kernel or the helper says.
pub fn attach(mountpoint: &Path, fs_name: &str, asked: KernelFlags) -> io::Result<OwnedFd> {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        match mount_directly(mountpoint, fs_name, asked) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            done => return done,
        }
    }
    mount_by_helper(mountpoint, &helper_options(fs_name, asked))
}

/// Attaches a new connection at `mountpoint` by the system call alone: as root, or in a user
/// namespace of one's own.
///
/// # Errors
/// What the kernel says; `EPERM` if this process may not mount.
pub fn mount_directly(mountpoint: &Path, fs_name: &str, asked: KernelFlags) -> io::Result<OwnedFd> {
    let device: OwnedFd = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse")?.into();
    let root_mode = std::fs::metadata(mountpoint)?.mode() & libc::S_IFMT;
    // SAFETY: getuid and getgid have no preconditions.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let mut data = format!("fd={},rootmode={root_mode:o},user_id={uid},group_id={gid},", device.as_raw_fd());
    data.push_str(&format!("default_permissions,max_read={REQUEST_BYTES_MAX}"));
    if asked.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = libc::MS_NODEV | libc::MS_NOSUID | libc::MS_NOATIME;
    for (is_asked, flag) in [(asked.read_only, libc::MS_RDONLY), (asked.no_exec, libc::MS_NOEXEC)] {
        flags |= if is_asked { flag } else { 0 };
    }
    let source = CString::new(format!("weft:{fs_name}"))?;
    let target = CString::new(mountpoint.as_os_str().as_bytes())?;
    let data = CString::new(data)?;
    // The part behind the dot is what tables of mounts show beside `fuse`.
    let kind = c"fuse.weft";
    // SAFETY: all four are NUL-terminated strings that outlive the call.
    let done = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(device) }
}

fn helper_options(fs_name: &str, asked: KernelFlags) -> Vec<String> {
    // The helper splits at commas, and a backslash quotes one.
    let escaped = fs_name.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = vec![
        format!("fsname=weft:{escaped}"),
        "subtype=weft".into(),
        "default_permissions".into(),
        "noatime".into(),
        "nodev".into(),
        "nosuid".into(),
        format!("max_read={REQUEST_BYTES_MAX}"),
    ];
    for (is_asked, option) in [(asked.allow_other, "allow_other"), (asked.no_exec, "noexec")] {
        list.extend(is_asked.then(|| option.into()));
    }
    list.push(if asked.read_only { "ro".into() } else { "rw".into() });
    list
}

/// Mounts through the set-uid helper `fusermount3` and gives the connection to the kernel.
///
/// # Errors
/// With the words of the helper, or that it is not installed.
fn mount_by_helper(mountpoint: &Path, options: &[String]) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: fcntl on a descriptor that we own; clearing FD_CLOEXEC lets the helper inherit it.
    if unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_SETFD, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let output = Command::new("fusermount3")
        .arg("-o")
        .arg(options.join(","))
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            let advice = if error.kind() == io::ErrorKind::NotFound { ": install the package fuse3" } else { "" };
            io::Error::new(error.kind(), format!("cannot run fusermount3 ({error}){advice}"))
        })?;
    drop(theirs);
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).trim().to_string();
        return Err(io::Error::other(format!("fusermount3 refused to mount {}: {words}", mountpoint.display())));
    }
    receive_descriptor(&ours)
}

/// Detaches a mount. With `lazy` even while files are open: the tree forgets it at once, the
/// connection ends with its last user.
///
/// # Errors
/// With the words of the system or the helper.
pub fn unmount(mountpoint: &Path, lazy: bool) -> io::Result<()> {
    let path = CString::new(mountpoint.as_os_str().as_bytes())?;
    let flags = if lazy { libc::MNT_DETACH } else { 0 };
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    if unsafe { libc::umount2(path.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EPERM) {
        return Err(error);
    }
    let output = Command::new("fusermount3").arg(if lazy { "-uz" } else { "-u" }).arg("--").arg(mountpoint).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_string()))
}

/// Removes what a killed mount process leaves behind: a mount point that answers "transport
/// endpoint is not connected". Says whether there was one.
///
/// # Errors
/// If it cannot be detached.
pub fn clear_dead_mount(mountpoint: &Path) -> io::Result<bool> {
    match std::fs::metadata(mountpoint) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => unmount(mountpoint, true).map(|()| true),
        _ => Ok(false),
    }
}

/// Takes the one descriptor that the helper sends.
fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0u8; 1];
    let mut piece = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = [0u64; 8];
    // SAFETY: an all-zero msghdr is valid; its pointers are set below to buffers that outlive the
    // call.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: `message` points to live buffers of the stated sizes.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel filled `message`; CMSG_FIRSTHDR checks the length that it reports.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: `header` is null or points into `control`, which is aligned for it.
    let is_descriptor = !header.is_null() && unsafe { (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS };
    if !is_descriptor {
        return Err(io::Error::other("fusermount3 sent no descriptor"));
    }
    // SAFETY: a SCM_RIGHTS message carries at least one int; the descriptor is new and nobody else
    // owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()) })
}
