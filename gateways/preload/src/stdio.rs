//! Streams of the C library on files of Weft: how they are made. How they are read and written is
//! in `jumps.rs`.

use std::ffi::{c_char, c_int};

use libc::FILE;

use crate::border::{Errno, Outcome, border, calls, checked, fail, quietly, text};
use crate::jumps::{fileno_unlocked, watch};
use crate::walk::{Begin, locate};
use crate::{data, opening, real, reserve, table};

/// Flags of an open by the mode of a stream.
fn flags_of(mode: &[u8]) -> Outcome<c_int> {
    let (access, more) = match mode.first() {
        Some(b'r') => (libc::O_RDONLY, 0),
        Some(b'w') => (libc::O_WRONLY, libc::O_CREAT | libc::O_TRUNC),
        Some(b'a') => (libc::O_WRONLY, libc::O_CREAT | libc::O_APPEND),
        _ => return fail(libc::EINVAL),
    };
    let mut parts = mode[1..].split(|byte| *byte == b',');
    let rest = parts.next().unwrap_or_default();
    if parts.any(|part| part.starts_with(b"ccs=")) {
        // The C library takes an encoding only where it opens the file itself.
        return fail(libc::EINVAL);
    }
    let has = |letter| rest.contains(&letter);
    let access = if has(b'+') { libc::O_RDWR } else { access };
    let flag = |letter, flag| if has(letter) { flag } else { 0 };
    Ok(access | more | flag(b'x', libc::O_EXCL) | flag(b'e', libc::O_CLOEXEC))
}

/// Opens a file for a stream.
fn open_for_stream(begin: &Begin, mode: &[u8]) -> Outcome<c_int> {
    let flags = flags_of(mode)?;
    let fd = opening::open_inside(begin, flags, 0o666)?;
    if table::is_weft(fd) {
        begin_at_end(fd, flags);
    }
    Ok(fd)
}

/// A stream that only appends is at the end of its file from the beginning.
fn begin_at_end(fd: c_int, flags: c_int) {
    if flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE == libc::O_WRONLY {
        // What cannot be done now is told by the first call on the stream.
        let _ = data::seek(fd, 0, libc::SEEK_END);
    }
}

/// A stream over a descriptor of Weft. The C library looks at the descriptor of the kernel, which
/// can be written to only; so it is shown another one under the same number for that moment.
unsafe fn stream(fd: c_int, mode: *const c_char) -> Outcome<*mut FILE> {
    if !watch() {
        crate::border::tell("streams of this C library are not known: use open and read");
        return fail(libc::EOPNOTSUPP);
    }
    let open = table::get(fd)?;
    let flags = flags_of(text(mode)?)?;
    let needs = flags & libc::O_ACCMODE;
    if (needs != libc::O_WRONLY && !open.reads()) || (needs != libc::O_RDONLY && !open.writes()) {
        return fail(libc::EINVAL);
    }
    let close_on_exec =
        checked(libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD))? as c_int & libc::FD_CLOEXEC != 0 || flags & libc::O_CLOEXEC != 0;
    let kept = checked(libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, reserve::lowest()))? as c_int;
    let null =
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_APPEND | libc::O_CLOEXEC, 0) as c_int;
    let shown = null >= 0 && libc::syscall(libc::SYS_dup3, null, fd, 0) >= 0;
    reserve::give_back(null);
    let file = if shown { real::fdopen(fd, mode) } else { std::ptr::null_mut() };
    let why = crate::border::errno();
    libc::syscall(libc::SYS_dup3, kept, fd, if close_on_exec { libc::O_CLOEXEC } else { 0 });
    reserve::give_back(kept);
    if file.is_null() {
        return Err(Errno(why));
    }
    if flags & libc::O_APPEND != 0 && open.flags() & libc::O_APPEND == 0 {
        open.set_flags(open.flags() | libc::O_APPEND);
        begin_at_end(fd, flags);
    }
    Ok(file)
}

calls! {
    fn fopen | fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        let Some(begin) = locate(libc::AT_FDCWD, path) else { return real::fopen(path, mode) };
        border(|| {
            let fd = open_for_stream(&begin, text(mode)?)?;
            if !table::is_weft(fd) {
                return Ok(real::fdopen(fd, mode));
            }
            let made = stream(fd, mode);
            if made.is_err() {
                table::remove(fd).into_iter().for_each(opening::closed);
                reserve::give_back(fd);
            }
            made
        })
    }

    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        if table::is_weft(fd) { border(|| stream(fd, mode)) } else { real::fdopen(fd, mode) }
    }

    fn freopen | freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
        let fd = fileno_unlocked(file);
        let was_weft = table::is_weft(fd);
        if path.is_null() && was_weft {
            // Another mode for what is open: the C library would open it by its number.
            return border(|| fail(libc::EBADF));
        }
        let Some(begin) = locate(libc::AT_FDCWD, path) else {
            // It puts the new file under the old number by calls of its own.
            let again = real::freopen(path, mode, file);
            if was_weft {
                quietly(|| table::remove(fd).into_iter().for_each(opening::closed));
            }
            return again;
        };
        let new: c_int = border(|| open_for_stream(&begin, text(mode)?));
        if new < 0 {
            real::freopen(c"/dev/null".as_ptr(), mode, file);
            return std::ptr::null_mut();
        }
        watch();
        let again = real::freopen(c"/dev/null".as_ptr(), mode, file);
        if was_weft {
            quietly(|| table::remove(fd).into_iter().for_each(opening::closed));
        }
        let moved = if again.is_null() { -1 } else { opening::dup2(new, fileno_unlocked(again)) };
        opening::close(new);
        if moved < 0 { std::ptr::null_mut() } else { again }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_fopen() {
        assert_eq!(flags_of(b"r"), Ok(libc::O_RDONLY));
        assert_eq!(flags_of(b"rb+"), Ok(libc::O_RDWR));
        assert_eq!(flags_of(b"wxe"), Ok(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_EXCL | libc::O_CLOEXEC));
        assert_eq!(flags_of(b"a+"), Ok(libc::O_RDWR | libc::O_CREAT | libc::O_APPEND));
        assert!(flags_of(b"").is_err() && flags_of(b"x").is_err() && flags_of(b"w,ccs=UTF-8").is_err());
    }
}
