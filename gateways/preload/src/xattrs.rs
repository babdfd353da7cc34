//! Extended attributes.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;

use libc::{size_t, ssize_t};
use weft_client::XattrFlags;
use weft_host::door::ProgramFs;
use weft_posix::InodeNumber;

use crate::border::{Failed, Outcome, border, calls, checked, fail, memory, memory_mut, text};
use crate::walk::{Begin, locate};
use crate::{real, session, table};

/// Does something with what a path leads to: in Weft, or by the kernel's path.
unsafe fn at<T: Failed + PartialEq>(
    path: *const c_char,
    follow: bool,
    work: impl FnOnce(&Arc<ProgramFs>, InodeNumber) -> Outcome<T>,
    real: impl FnOnce(*const c_char) -> T,
) -> T {
    let Some(begin) = locate(libc::AT_FDCWD, path) else { return real(path) };
    border(|| {
        let fs = session::fs()?;
        match found(&begin, &fs, follow)? {
            Ok(node) => work(&fs, node),
            Err(path) => checked(real(path.as_ptr())),
        }
    })
}

fn found(begin: &Begin, fs: &Arc<ProgramFs>, follow: bool) -> Outcome<Result<InodeNumber, CString>> {
    Ok(begin.attr(fs, follow)?.map(|attr| InodeNumber::of(attr.handle)))
}

/// The same with a descriptor.
unsafe fn on<T: Failed>(fd: c_int, work: impl FnOnce(&Arc<ProgramFs>, InodeNumber) -> Outcome<T>, real: impl FnOnce() -> T) -> T {
    if !table::is_weft(fd) {
        return real();
    }
    border(|| {
        let open = table::get(fd)?;
        if open.is_path_only() { fail(libc::EBADF) } else { work(&session::fs()?, open.node) }
    })
}

/// Copies a result into a buffer; without one only its length is told.
unsafe fn hand_out(value: &[u8], to: *mut c_void, bytes: size_t) -> Outcome<ssize_t> {
    if bytes > 0 {
        let to = memory_mut(to, bytes)?;
        if value.len() > to.len() {
            return fail(libc::ERANGE);
        }
        to[..value.len()].copy_from_slice(value);
    }
    Ok(value.len() as ssize_t)
}

unsafe fn get(fs: &Arc<ProgramFs>, node: InodeNumber, name: *const c_char, to: *mut c_void, bytes: size_t) -> Outcome<ssize_t> {
    let name = text(name)?;
    let value = fs.run("getxattr", name, async |posix| posix.get_xattr(fs.who(), node, name).await)?;
    hand_out(&value, to, bytes)
}

unsafe fn list(fs: &Arc<ProgramFs>, node: InodeNumber, to: *mut c_char, bytes: size_t) -> Outcome<ssize_t> {
    let names = fs.run("listxattr", b"", async |posix| posix.list_xattr(fs.who(), node).await)?;
    let all = names.iter().fold(Vec::new(), |all, name| [all.as_slice(), name, b"\0"].concat());
    hand_out(&all, to.cast(), bytes)
}

unsafe fn set(fs: &Arc<ProgramFs>, node: InodeNumber, name: *const c_char, value: &[u8], flags: c_int) -> Outcome<c_int> {
    let name = text(name)?;
    let flags = match flags {
        0 => XattrFlags::default(),
        libc::XATTR_CREATE => XattrFlags { create_only: true, ..XattrFlags::default() },
        libc::XATTR_REPLACE => XattrFlags { replace_only: true, ..XattrFlags::default() },
        _ => return fail(libc::EINVAL),
    };
    fs.run("setxattr", name, async |posix| posix.set_xattr(fs.who(), node, name, value, flags).await)?;
    Ok(0)
}

unsafe fn take(fs: &Arc<ProgramFs>, node: InodeNumber, name: *const c_char) -> Outcome<c_int> {
    let name = text(name)?;
    fs.run("removexattr", name, async |posix| posix.remove_xattr(fs.who(), node, name).await)?;
    Ok(0)
}

calls! {
    fn getxattr(path: *const c_char, name: *const c_char, to: *mut c_void, bytes: size_t) -> ssize_t {
        at(path, true, |fs, node| get(fs, node, name, to, bytes), |path| real::getxattr(path, name, to, bytes))
    }

    fn lgetxattr(path: *const c_char, name: *const c_char, to: *mut c_void, bytes: size_t) -> ssize_t {
        at(path, false, |fs, node| get(fs, node, name, to, bytes), |path| real::lgetxattr(path, name, to, bytes))
    }

    fn fgetxattr(fd: c_int, name: *const c_char, to: *mut c_void, bytes: size_t) -> ssize_t {
        on(fd, |fs, node| get(fs, node, name, to, bytes), || real::fgetxattr(fd, name, to, bytes))
    }

    fn setxattr(path: *const c_char, name: *const c_char, from: *const c_void, bytes: size_t, flags: c_int) -> c_int {
        let work = |fs: &Arc<ProgramFs>, node| set(fs, node, name, memory(from, bytes)?, flags);
        at(path, true, work, |path| real::setxattr(path, name, from, bytes, flags))
    }

    fn lsetxattr(path: *const c_char, name: *const c_char, from: *const c_void, bytes: size_t, flags: c_int) -> c_int {
        let work = |fs: &Arc<ProgramFs>, node| set(fs, node, name, memory(from, bytes)?, flags);
        at(path, false, work, |path| real::lsetxattr(path, name, from, bytes, flags))
    }

    fn fsetxattr(fd: c_int, name: *const c_char, from: *const c_void, bytes: size_t, flags: c_int) -> c_int {
        let work = |fs: &Arc<ProgramFs>, node| set(fs, node, name, memory(from, bytes)?, flags);
        on(fd, work, || real::fsetxattr(fd, name, from, bytes, flags))
    }

    fn listxattr(path: *const c_char, to: *mut c_char, bytes: size_t) -> ssize_t {
        at(path, true, |fs, node| list(fs, node, to, bytes), |path| real::listxattr(path, to, bytes))
    }

    fn llistxattr(path: *const c_char, to: *mut c_char, bytes: size_t) -> ssize_t {
        at(path, false, |fs, node| list(fs, node, to, bytes), |path| real::llistxattr(path, to, bytes))
    }

    fn flistxattr(fd: c_int, to: *mut c_char, bytes: size_t) -> ssize_t {
        on(fd, |fs, node| list(fs, node, to, bytes), || real::flistxattr(fd, to, bytes))
    }

    fn removexattr(path: *const c_char, name: *const c_char) -> c_int {
        at(path, true, |fs, node| take(fs, node, name), |path| real::removexattr(path, name))
    }

    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int {
        at(path, false, |fs, node| take(fs, node, name), |path| real::lremovexattr(path, name))
    }

    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
        on(fd, |fs, node| take(fs, node, name), || real::fremovexattr(fd, name))
    }
}
