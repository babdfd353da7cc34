//! Opening and closing.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use weft_base::{Attr, FileKind};
use weft_client::Error;
use weft_host::door::ProgramFs;
use weft_posix::{InodeNumber, Met, OpenHow, Stable};
use weft_wire::Rights;

use crate::border::{Outcome, border, calls, checked, fail, is_inside, set_errno};
use crate::table::{At, Open, rights_of};
use crate::walk::{Begin, Spot, locate};
use crate::{jumps, locks, real, reserve, session, table};

/// A descriptor for what was opened.
///
/// # Errors
/// EMFILE; it is closed then.
fn install(open: Open) -> Outcome<c_int> {
    jumps::watch();
    let fd = reserve::take(open.flags() & libc::O_CLOEXEC != 0)?;
    // What was there before was closed past this library.
    drop(table::put(fd, Arc::new(open)));
    Ok(fd)
}

/// Opens what lies in Weft.
pub(crate) fn open_inside(begin: &Begin, flags: c_int, mode: u32) -> Outcome<c_int> {
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return fail(libc::EOPNOTSUPP);
    }
    let fs = session::fs()?;
    let follows = flags & libc::O_NOFOLLOW == 0 && flags & (libc::O_CREAT | libc::O_EXCL) != libc::O_CREAT | libc::O_EXCL;
    let looks_first = flags & (libc::O_PATH | libc::O_DIRECTORY) != 0;
    if looks_first && flags & libc::O_CREAT != 0 && flags & libc::O_PATH == 0 {
        return fail(libc::EINVAL);
    }
    let has_looked = looks_first || begin.descriptor().is_some();
    let mut follow = has_looked && follows || begin.wants_directory() && flags & libc::O_CREAT == 0;
    loop {
        let spot = begin.walk(&fs, follow)?;
        let attr = match &spot {
            // SAFETY: a string of our own.
            Spot::Outside(path) => return checked(unsafe { real::open(path.as_ptr(), flags, mode) }),
            Spot::Directory(_) if flags & libc::O_PATH == 0 && flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL => {
                return fail(libc::EEXIST);
            }
            Spot::Directory(_) => spot.attr(&fs)?,
            Spot::Name(..) if looks_first => spot.attr(&fs)?,
            Spot::Name(dir, name) => {
                if begin.wants_directory() && flags & libc::O_CREAT != 0 {
                    return fail(libc::EISDIR);
                }
                match open_name(&fs, *dir, name, flags, mode)? {
                    Met::File(attr, number) => {
                        let open = Open::new(node(&attr), attr.kind, begin.shown(), flags, Some(At { fs, number }));
                        return if begin.wants_directory() { fail(libc::ENOTDIR) } else { install(open) };
                    }
                    Met::Other(attr) => attr,
                }
            }
        };
        match attr.kind {
            FileKind::Symlink if follows && !follow => follow = true,
            FileKind::Symlink if flags & libc::O_PATH == 0 => return fail(libc::ELOOP),
            FileKind::Directory => return install(directory(&attr, begin, flags)?),
            _ if flags & libc::O_DIRECTORY != 0 || begin.wants_directory() => return fail(libc::ENOTDIR),
            FileKind::File if begin.descriptor().is_some() && flags & libc::O_PATH == 0 => {
                let (node, how) = (node(&attr), how_of(flags));
                let number = fs.run("open", &begin.shown(), async |posix| posix.open_node(fs.who(), node, how).await)?;
                return install(Open::new(node, attr.kind, begin.shown(), flags, Some(At { fs, number })));
            }
            _ if flags & libc::O_PATH != 0 => return install(Open::new(node(&attr), attr.kind, begin.shown(), flags, None)),
            // Pipes, sockets and devices belong to a kernel.
            _ => return fail(libc::ENXIO),
        }
    }
}

fn node(attr: &Attr) -> InodeNumber {
    InodeNumber::of(attr.handle)
}

/// How a file is opened with these flags.
fn how_of(flags: c_int) -> OpenHow {
    let truncate = flags & libc::O_TRUNC != 0;
    let rights = if truncate { rights_of(flags).with(Rights::WRITE) } else { rights_of(flags) };
    OpenHow {
        truncate,
        exclusive: flags & libc::O_EXCL != 0,
        stable: Stable::of_flags(flags, libc::O_SYNC, libc::O_DSYNC),
        ..OpenHow::direct(rights)
    }
}

fn open_name(fs: &ProgramFs, dir: InodeNumber, name: &[u8], flags: c_int, mode: u32) -> Outcome<Met> {
    let how = how_of(flags);
    let make = (flags & libc::O_CREAT != 0).then(|| weft_base::mode_with_umask(mode, session::umask(fs)));
    Ok(fs.run("open", name, async |posix| posix.open_name(fs.who(), dir, name, how, make).await)?)
}

fn directory(attr: &Attr, begin: &Begin, flags: c_int) -> Outcome<Open> {
    if flags & libc::O_PATH == 0 && (flags & libc::O_ACCMODE != libc::O_RDONLY || flags & (libc::O_CREAT | libc::O_TRUNC) != 0) {
        return fail(libc::EISDIR);
    }
    Ok(Open::new(node(attr), FileKind::Directory, begin.shown(), flags, None))
}

/// Opens at a path, wherever it leads.
unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int {
    match locate(dir, path) {
        None => real::openat(dir, path, flags, mode),
        Some(begin) => border(|| open_inside(&begin, flags, mode)),
    }
}

/// A descriptor of Weft is closed, or was just replaced by another one: its part of the work.
pub(crate) fn closed(open: Arc<Open>) {
    locks::closed(&open);
    drop(open);
}

/// Duplicates a descriptor of Weft by a call of the kernel.
fn duplicate(fd: c_int, call: impl FnOnce() -> libc::c_long) -> Outcome<c_int> {
    let open = table::get(fd)?;
    let new = checked(call())? as c_int;
    if new as usize >= reserve::NUMBERS_MAX || reserve::is_own(new) {
        reserve::give_back(new);
        return fail(libc::EMFILE);
    }
    table::put(new, open).into_iter().for_each(closed);
    Ok(new)
}

unsafe fn dup_to(fd: c_int, to: c_int, real: impl FnOnce() -> c_int, close_on_exec: c_int) -> c_int {
    let is_ours = table::is_weft(fd);
    if reserve::is_own(to) && !is_inside() {
        set_errno(libc::EBADF);
        return -1;
    }
    if !is_ours && !table::is_weft(to) {
        return real();
    }
    border(|| match is_ours {
        true if fd == to => Ok(fd),
        true => duplicate(fd, || libc::syscall(libc::SYS_dup3, fd, to, close_on_exec)),
        false => {
            let new = checked(real())?;
            table::remove(to).into_iter().for_each(closed);
            Ok(new)
        }
    })
}

/// Flags that `F_SETFL` may change.
const CHANGEABLE: c_int = libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME | libc::O_DIRECT;
/// Flags that are of the open alone.
const OF_OPEN: c_int = libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY | libc::O_TRUNC | libc::O_CLOEXEC;

unsafe fn control(fd: c_int, command: c_int, arg: usize) -> Outcome<c_int> {
    let open = table::get(fd)?;
    let kernel = || libc::syscall(libc::SYS_fcntl, fd, command, arg);
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicate(fd, kernel),
        libc::F_GETFD | libc::F_SETFD => checked(kernel()).map(|result| result as c_int),
        libc::F_GETFL => Ok(open.flags() & !OF_OPEN | libc::O_LARGEFILE),
        libc::F_SETFL => {
            open.set_flags(open.flags() & !CHANGEABLE | arg as c_int & CHANGEABLE);
            Ok(0)
        }
        libc::F_SETLK | libc::F_SETLKW | libc::F_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW | libc::F_OFD_GETLK => {
            locks::record_lock(fd, &open, command, arg as *mut libc::flock)
        }
        libc::F_GETOWN => Ok(0),
        _ => fail(libc::EINVAL),
    }
}

calls! {
    fn open | open64 | __open | __open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
        open_at(libc::AT_FDCWD, path, flags, mode)
    }

    fn openat | openat64(dir: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
        open_at(dir, path, flags, mode)
    }

    fn __open_2 | __open64_2(path: *const c_char, flags: c_int) -> c_int {
        open_at(libc::AT_FDCWD, path, flags, 0)
    }

    fn __openat_2 | __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        open_at(dir, path, flags, 0)
    }

    fn creat | creat64(path: *const c_char, mode: libc::mode_t) -> c_int {
        open_at(libc::AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode)
    }

    fn close | __close(fd: c_int) -> c_int {
        if table::is_weft(fd) {
            return border(|| {
                let Some(open) = table::remove(fd) else { return fail(libc::EBADF) };
                reserve::give_back(fd);
                let finished = open.finish();
                closed(open);
                finished.map(|()| 0)
            });
        }
        if reserve::is_own(fd) && !is_inside() {
            set_errno(libc::EBADF);
            return -1;
        }
        real::close(fd)
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 && session::prefix().is_some() {
            for (fd, _) in table::all() {
                if (first..=last).contains(&(fd as c_uint)) {
                    close(fd);
                }
            }
        }
        let last = last.min(reserve::lowest() as c_uint - 1);
        if first > last { 0 } else { real::close_range(first, last, flags) }
    }

    fn closefrom(first: c_int) -> () {
        if session::prefix().is_none() {
            return real::closefrom(first);
        }
        if close_range(first.max(0) as c_uint, c_uint::MAX, 0) != 0 {
            (first.max(0)..reserve::lowest().min(1 << 20)).for_each(|fd| _ = close(fd));
        }
    }

    fn dup(fd: c_int) -> c_int {
        match table::is_weft(fd) {
            true => border(|| duplicate(fd, || libc::syscall(libc::SYS_dup, fd))),
            false => real::dup(fd),
        }
    }

    fn dup2 | __dup2(fd: c_int, to: c_int) -> c_int {
        dup_to(fd, to, || real::dup2(fd, to), 0)
    }

    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
        if fd == to {
            set_errno(libc::EINVAL);
            return -1;
        }
        dup_to(fd, to, || real::dup3(fd, to, flags), flags)
    }

    fn fcntl | fcntl64 | __fcntl(fd: c_int, command: c_int, arg: usize) -> c_int {
        match table::is_weft(fd) {
            true => border(|| control(fd, command, arg)),
            false => real::fcntl(fd, command, arg),
        }
    }

    fn ioctl(fd: c_int, request: libc::Ioctl, arg: usize) -> c_int {
        match table::is_weft(fd) {
            false => real::ioctl(fd, request, arg),
            true => border(|| match request {
                libc::FIOCLEX | libc::FIONCLEX => checked(real::ioctl(fd, request, arg)),
                _ => fail(libc::ENOTTY),
            }),
        }
    }
}

/// An error of the client as the errno of a call.
impl From<Error> for crate::border::Errno {
    fn from(error: Error) -> Self {
        crate::border::Errno(error.status.errno())
    }
}
