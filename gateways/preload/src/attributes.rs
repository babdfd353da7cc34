//! Attributes: what programs ask and change.

use std::ffi::{c_char, c_int, c_long, c_uint};
use std::sync::Arc;

use libc::{gid_t, mode_t, timespec, uid_t};
use weft_base::{Attr, FileKind, WallTime};
use weft_client::SetAttr;
use weft_host::door::ProgramFs;
use weft_posix::InodeNumber;
use weft_wire::ops::SetTime;

use crate::border::{Errno, Outcome, border, calls, checked, fail};
use crate::shown::{fill_stat, fill_statfs, fill_statvfs, fill_statx, permits};
use crate::walk::{Begin, attr_of, locate};
use crate::{real, session, table};

/// True if the call is about the descriptor of Weft alone.
///
/// # Safety
/// The path is null or a string.
unsafe fn is_descriptor(dir: c_int, path: *const c_char, flags: c_int) -> bool {
    flags & libc::AT_EMPTY_PATH != 0 && table::is_weft(dir) && (path.is_null() || *path == 0)
}

fn follows(flags: c_int) -> bool {
    flags & libc::AT_SYMLINK_NOFOLLOW == 0
}

/// Attributes of what a descriptor of Weft is.
pub(crate) fn of_descriptor(fd: c_int) -> Outcome<(Arc<ProgramFs>, Attr)> {
    let open = table::get(fd)?;
    let fs = session::fs()?;
    let attr = attr_of(&fs, open.node)?;
    Ok((fs, attr))
}

/// What a path leads to, wherever: attributes in Weft, or a path for the kernel.
enum Found {
    Weft(Arc<ProgramFs>, Attr),
    Kernel(std::ffi::CString),
}

fn find(begin: &Begin, follow: bool) -> Outcome<Found> {
    let fs = session::fs()?;
    Ok(match begin.attr(&fs, follow)? {
        Ok(attr) => Found::Weft(fs, attr),
        Err(path) => Found::Kernel(path),
    })
}

unsafe fn stat_at(dir: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
    if is_descriptor(dir, path, flags) {
        return stat_open(dir, to);
    }
    let Some(begin) = locate(dir, path) else { return real::fstatat(dir, path, to, flags) };
    border(|| match find(&begin, follows(flags))? {
        Found::Kernel(path) => checked(real::fstatat(libc::AT_FDCWD, path.as_ptr(), to, flags)),
        Found::Weft(fs, attr) => fill_stat(to, &fs, &attr),
    })
}

unsafe fn stat_open(fd: c_int, to: *mut libc::stat) -> c_int {
    if !table::is_weft(fd) {
        return real::fstat(fd, to);
    }
    border(|| {
        let (fs, attr) = of_descriptor(fd)?;
        fill_stat(to, &fs, &attr)
    })
}

unsafe fn access_at(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    let found = match locate(dir, path) {
        Some(begin) => begin,
        None if !is_descriptor(dir, path, flags) => return real::faccessat(dir, path, mode, flags),
        None => {
            return border(|| {
                let (fs, attr) = of_descriptor(dir)?;
                allowed(&fs, &attr, mode, flags)
            });
        }
    };
    border(|| match find(&found, follows(flags))? {
        Found::Kernel(path) => checked(real::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, flags)),
        Found::Weft(fs, attr) => allowed(&fs, &attr, mode, flags),
    })
}

fn allowed(fs: &ProgramFs, attr: &Attr, mode: c_int, flags: c_int) -> Outcome<c_int> {
    if mode & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 {
        return fail(libc::EINVAL);
    }
    let mut who = fs.who().clone();
    if flags & libc::AT_EACCESS == 0 {
        // SAFETY: asks for numbers.
        (who.uid, who.gid) = unsafe { (libc::getuid(), libc::getgid()) };
    }
    if permits(fs, attr, &who, mode as u32)? { Ok(0) } else { fail(libc::EACCES) }
}

/// Changes attributes of what a path leads to.
unsafe fn change_at(
    (dir, path): (c_int, *const c_char),
    flags: c_int,
    change: impl FnOnce(&Attr) -> Outcome<SetAttr>,
    real: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    if is_descriptor(dir, path, flags) {
        return change_open(dir, change, || -1);
    }
    let Some(begin) = locate(dir, path) else { return real(dir, path) };
    border(|| match find(&begin, follows(flags))? {
        Found::Kernel(path) => checked(real(libc::AT_FDCWD, path.as_ptr())),
        Found::Weft(fs, attr) => set(&fs, &attr, change(&attr)?),
    })
}

/// Changes attributes of what a descriptor is.
unsafe fn change_open(fd: c_int, change: impl FnOnce(&Attr) -> Outcome<SetAttr>, real: impl FnOnce() -> c_int) -> c_int {
    if !table::is_weft(fd) {
        return real();
    }
    border(|| {
        let (node, fs) = (table::get(fd)?.node, session::fs()?);
        let attr = fs.run("stat", b"", async |posix| posix.getattr_to_change(node).await)?;
        set(&fs, &attr, change(&attr)?)
    })
}

fn set(fs: &ProgramFs, attr: &Attr, change: SetAttr) -> Outcome<c_int> {
    fs.run("setattr", b"", async |posix| posix.setattr(fs.who(), InodeNumber::of(attr.handle), &change).await)?;
    Ok(0)
}

fn mode_change(mode: mode_t, attr: &Attr) -> Outcome<SetAttr> {
    if attr.kind == FileKind::Symlink {
        return fail(libc::EOPNOTSUPP);
    }
    Ok(SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() })
}

fn owner_change(uid: uid_t, gid: gid_t, attr: &Attr) -> Outcome<SetAttr> {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    let mut change = SetAttr { uid: given(uid), gid: given(gid), ..SetAttr::default() };
    // As the kernel does it for a file that is run.
    if attr.kind == FileKind::File && (change.uid.is_some() || change.gid.is_some()) && weft_base::set_id_bits(attr.mode) != 0 {
        change.mode = Some(attr.mode & !weft_base::set_id_bits(attr.mode));
    }
    Ok(change)
}

/// Times as a change; `None`: both are now.
fn time_change(times: Option<[timespec; 2]>) -> Outcome<SetAttr> {
    let one = |time: timespec| match time.tv_nsec {
        libc::UTIME_OMIT => Ok(None),
        libc::UTIME_NOW => Ok(Some(SetTime { at: None })),
        nanos @ 0..=999_999_999 => {
            let at = time.tv_sec.checked_mul(1_000_000_000).and_then(|at| at.checked_add(nanos)).ok_or(Errno(libc::EINVAL))?;
            Ok(Some(SetTime { at: Some(WallTime(at)) }))
        }
        _ => fail(libc::EINVAL),
    };
    let now = || Some(SetTime { at: None });
    let (atime, mtime) = match times {
        Some([atime, mtime]) => (one(atime)?, one(mtime)?),
        None => (now(), now()),
    };
    Ok(SetAttr { atime, mtime, ..SetAttr::default() })
}

unsafe fn pair(times: *const timespec) -> Option<[timespec; 2]> {
    (!times.is_null()).then(|| [*times, *times.add(1)])
}

unsafe fn pair_of_us(times: *const libc::timeval) -> Option<[timespec; 2]> {
    let one = |time: libc::timeval| timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec.saturating_mul(1000) };
    (!times.is_null()).then(|| [one(*times), one(*times.add(1))])
}

unsafe fn set_times_at(dir: c_int, path: *const c_char, times: Option<[timespec; 2]>, flags: c_int) -> c_int {
    let pointer = times.as_ref().map_or(std::ptr::null(), |times| times.as_ptr());
    change_at((dir, path), flags, |_| time_change(times), |dir, path| real::utimensat(dir, path, pointer, flags))
}

unsafe fn set_times_open(fd: c_int, times: Option<[timespec; 2]>) -> c_int {
    let pointer = times.as_ref().map_or(std::ptr::null(), |times| times.as_ptr());
    change_open(fd, |_| time_change(times), || real::futimens(fd, pointer))
}

const HERE: c_int = libc::AT_FDCWD;
const NO_FOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

calls! {
    fn stat | stat64(path: *const c_char, to: *mut libc::stat) -> c_int { stat_at(HERE, path, to, 0) }

    fn lstat | lstat64(path: *const c_char, to: *mut libc::stat) -> c_int { stat_at(HERE, path, to, NO_FOLLOW) }

    fn fstat | fstat64(fd: c_int, to: *mut libc::stat) -> c_int { stat_open(fd, to) }

    fn fstatat | fstatat64(dir: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
        stat_at(dir, path, to, flags)
    }

    fn __xstat | __xstat64(_version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int { stat_at(HERE, path, to, 0) }

    fn __lxstat | __lxstat64(_version: c_int, path: *const c_char, to: *mut libc::stat) -> c_int {
        stat_at(HERE, path, to, NO_FOLLOW)
    }

    fn __fxstat | __fxstat64(_version: c_int, fd: c_int, to: *mut libc::stat) -> c_int { stat_open(fd, to) }

    fn __fxstatat | __fxstatat64(_version: c_int, dir: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int {
        stat_at(dir, path, to, flags)
    }

    fn statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int {
        if is_descriptor(dir, path, flags) {
            return border(|| {
                let (fs, attr) = of_descriptor(dir)?;
                fill_statx(to, &fs, &attr)
            });
        }
        let Some(begin) = locate(dir, path) else { return real::statx(dir, path, flags, mask, to) };
        border(|| match find(&begin, follows(flags))? {
            Found::Kernel(path) => checked(real::statx(HERE, path.as_ptr(), flags, mask, to)),
            Found::Weft(fs, attr) => fill_statx(to, &fs, &attr),
        })
    }

    fn access(path: *const c_char, mode: c_int) -> c_int { access_at(HERE, path, mode, 0) }

    fn faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int { access_at(dir, path, mode, flags) }

    fn euidaccess | eaccess(path: *const c_char, mode: c_int) -> c_int { access_at(HERE, path, mode, libc::AT_EACCESS) }

    fn chmod(path: *const c_char, mode: mode_t) -> c_int { fchmodat(HERE, path, mode, 0) }

    fn lchmod(path: *const c_char, mode: mode_t) -> c_int { fchmodat(HERE, path, mode, NO_FOLLOW) }

    fn fchmodat(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        change_at((dir, path), flags, |attr| mode_change(mode, attr), |dir, path| real::fchmodat(dir, path, mode, flags))
    }

    fn fchmod(fd: c_int, mode: mode_t) -> c_int {
        change_open(fd, |attr| mode_change(mode, attr), || real::fchmod(fd, mode))
    }

    fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int { fchownat(HERE, path, uid, gid, 0) }

    fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int { fchownat(HERE, path, uid, gid, NO_FOLLOW) }

    fn fchownat(dir: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int {
        change_at((dir, path), flags, |attr| owner_change(uid, gid, attr), |dir, path| real::fchownat(dir, path, uid, gid, flags))
    }

    fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
        change_open(fd, |attr| owner_change(uid, gid, attr), || real::fchown(fd, uid, gid))
    }

    fn utimensat(dir: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int {
        // Without a path it means the descriptor, as the kernel has it.
        if path.is_null() && table::is_weft(dir) {
            return set_times_open(dir, pair(times));
        }
        set_times_at(dir, path, pair(times), flags)
    }

    fn futimens(fd: c_int, times: *const timespec) -> c_int { set_times_open(fd, pair(times)) }

    fn utimes(path: *const c_char, times: *const libc::timeval) -> c_int { set_times_at(HERE, path, pair_of_us(times), 0) }

    fn lutimes(path: *const c_char, times: *const libc::timeval) -> c_int { set_times_at(HERE, path, pair_of_us(times), NO_FOLLOW) }

    fn futimes(fd: c_int, times: *const libc::timeval) -> c_int { set_times_open(fd, pair_of_us(times)) }

    fn futimesat(dir: c_int, path: *const c_char, times: *const libc::timeval) -> c_int { set_times_at(dir, path, pair_of_us(times), 0) }

    fn utime(path: *const c_char, times: *const libc::utimbuf) -> c_int {
        let one = |at| timespec { tv_sec: at, tv_nsec: 0 };
        let times = (!times.is_null()).then(|| [one((*times).actime), one((*times).modtime)]);
        set_times_at(HERE, path, times, 0)
    }

    fn truncate | truncate64(path: *const c_char, bytes: libc::off_t) -> c_int {
        let change = |attr: &Attr| match attr.kind {
            FileKind::Directory => fail(libc::EISDIR),
            _ if bytes < 0 => fail(libc::EINVAL),
            _ => Ok(SetAttr { size: Some(bytes as u64), ..SetAttr::default() }),
        };
        change_at((HERE, path), 0, change, |_, path| real::truncate(path, bytes))
    }

    fn umask(mask: mode_t) -> mode_t {
        session::note_umask(mask);
        real::umask(mask)
    }

    fn statfs | statfs64(path: *const c_char, to: *mut libc::statfs) -> c_int {
        let Some(begin) = locate(HERE, path) else { return real::statfs(path, to) };
        border(|| match find(&begin, true)? {
            Found::Kernel(path) => checked(real::statfs(path.as_ptr(), to)),
            Found::Weft(fs, attr) => fill_statfs(to, &fs, attr.handle),
        })
    }

    fn fstatfs | fstatfs64(fd: c_int, to: *mut libc::statfs) -> c_int {
        if table::is_weft(fd) { border(|| fill_statfs(to, &*session::fs()?, table::get(fd)?.node.handle())) } else { real::fstatfs(fd, to) }
    }

    fn statvfs | statvfs64(path: *const c_char, to: *mut libc::statvfs) -> c_int {
        let Some(begin) = locate(HERE, path) else { return real::statvfs(path, to) };
        border(|| match find(&begin, true)? {
            Found::Kernel(path) => checked(real::statvfs(path.as_ptr(), to)),
            Found::Weft(fs, attr) => fill_statvfs(to, &fs, attr.handle),
        })
    }

    fn fstatvfs | fstatvfs64(fd: c_int, to: *mut libc::statvfs) -> c_int {
        if table::is_weft(fd) { border(|| fill_statvfs(to, &*session::fs()?, table::get(fd)?.node.handle())) } else { real::fstatvfs(fd, to) }
    }

    fn pathconf(path: *const c_char, name: c_int) -> c_long {
        match locate(HERE, path) {
            None => real::pathconf(path, name),
            // What the kernel says of any directory; only limits are asked for.
            Some(_) => real::pathconf(c"/".as_ptr(), name),
        }
    }

    fn fpathconf(fd: c_int, name: c_int) -> c_long {
        if table::is_weft(fd) { real::pathconf(c"/".as_ptr(), name) } else { real::fpathconf(fd, name) }
    }
}
