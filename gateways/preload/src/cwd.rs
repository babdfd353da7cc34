//! The working directory. While it is in Weft, the kernel's is a directory that has been removed: a
//! relative path that gets past this library leads nowhere.

use std::ffi::{CString, c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::size_t;
use weft_base::FileKind;
use weft_posix::InodeNumber;

use crate::border::{Outcome, border, calls, checked, errno, fail, memory_mut, set_errno};
use crate::shown::permits;
use crate::table::Cwd;
use crate::walk::{Begin, locate};
use crate::{attributes, real, resolve, session, table};

/// How often a name for a directory is tried.
const TRIES: u32 = 100;

/// Makes the kernel's working directory one that is not there any more.
unsafe fn leave_kernel() -> Outcome<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    for _ in 0..TRIES {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = CString::new(format!("/tmp/.weft-preload-{}-{number}", libc::getpid())).expect("a path without NUL");
        if real::mkdirat(libc::AT_FDCWD, path.as_ptr(), 0o700) == 0 {
            let moved = real::chdir(path.as_ptr());
            let why = errno();
            real::unlinkat(libc::AT_FDCWD, path.as_ptr(), libc::AT_REMOVEDIR);
            set_errno(why);
            return checked(moved).map(drop);
        }
        if errno() != libc::EEXIST {
            break;
        }
    }
    // Where nothing can be made, one with nothing but the numbers of descriptors in it.
    checked(real::chdir(c"/proc/self/fdinfo".as_ptr())).map(drop)
}

/// The working directory is this one of Weft.
unsafe fn enter(node: InodeNumber, path: Vec<u8>) -> Outcome<c_int> {
    if !table::is_cwd_weft() {
        leave_kernel()?;
    }
    table::set_cwd(Some(Cwd { node, path }));
    Ok(0)
}

unsafe fn change(begin: &Begin) -> Outcome<c_int> {
    let fs = session::fs()?;
    let attr = match begin.attr(&fs, true)? {
        Ok(attr) => attr,
        Err(path) => {
            checked(real::chdir(path.as_ptr()))?;
            table::set_cwd(None);
            return Ok(0);
        }
    };
    if attr.kind != FileKind::Directory {
        return fail(libc::ENOTDIR);
    }
    if !permits(&fs, &attr, fs.who(), 1)? {
        return fail(libc::EACCES);
    }
    enter(InodeNumber::of(attr.handle), resolve::real_path(&begin.shown())?)
}

unsafe fn change_open(fd: c_int) -> Outcome<c_int> {
    let open = table::get(fd)?;
    let (fs, attr) = attributes::of_descriptor(fd)?;
    if attr.kind != FileKind::Directory {
        return fail(libc::ENOTDIR);
    }
    if !permits(&fs, &attr, fs.who(), 1)? {
        return fail(libc::EACCES);
    }
    // By the path of its open, if it is still there.
    let path = resolve::real_path(&open.path).unwrap_or_else(|_| open.path.clone());
    enter(open.node, path)
}

/// The working directory as a path, in memory of the program or from `malloc`.
unsafe fn shown(path: &[u8], to: *mut c_char, bytes: size_t) -> Outcome<*mut c_char> {
    let needed = path.len() + 1;
    let (to, room) = match to.is_null() {
        true => {
            let room = if bytes == 0 { needed } else { bytes };
            if room < needed {
                return fail(libc::ERANGE);
            }
            (libc::malloc(room).cast::<c_char>(), room)
        }
        false if bytes == 0 => return fail(libc::EINVAL),
        false => (to, bytes),
    };
    if to.is_null() {
        return fail(libc::ENOMEM);
    }
    if room < needed {
        return fail(libc::ERANGE);
    }
    let memory = memory_mut(to.cast(), needed)?;
    memory[..path.len()].copy_from_slice(path);
    memory[path.len()] = 0;
    Ok(to)
}

calls! {
    fn chdir(path: *const c_char) -> c_int {
        if let Some(begin) = locate(libc::AT_FDCWD, path) {
            return border(|| change(&begin));
        }
        let result = real::chdir(path);
        if result == 0 && table::is_cwd_weft() {
            table::set_cwd(None);
        }
        result
    }

    fn fchdir(fd: c_int) -> c_int {
        if table::is_weft(fd) {
            return border(|| change_open(fd));
        }
        let result = real::fchdir(fd);
        if result == 0 && table::is_cwd_weft() {
            table::set_cwd(None);
        }
        result
    }

    fn chroot(path: *const c_char) -> c_int {
        if locate(libc::AT_FDCWD, path).is_some() {
            set_errno(libc::EOPNOTSUPP);
            return -1;
        }
        real::chroot(path)
    }

    fn getcwd(to: *mut c_char, bytes: size_t) -> *mut c_char {
        match table::cwd() {
            None => real::getcwd(to, bytes),
            Some(cwd) => border(|| shown(&cwd.path, to, bytes)),
        }
    }

    fn __getcwd_chk(to: *mut c_char, bytes: size_t, room: size_t) -> *mut c_char {
        if bytes > room { libc::abort() }
        getcwd(to, bytes)
    }

    fn getwd(to: *mut c_char) -> *mut c_char { getcwd(to, libc::PATH_MAX as size_t) }

    fn get_current_dir_name() -> *mut c_char { getcwd(std::ptr::null_mut(), 0) }
}
