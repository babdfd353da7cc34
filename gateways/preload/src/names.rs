//! Names: made, moved, removed.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::sync::Arc;

use bytes::Bytes;
use libc::{dev_t, mode_t, size_t, ssize_t};
use weft_base::FileKind;
use weft_client::{Purpose, RenameFlags};
use weft_host::door::ProgramFs;
use weft_posix::InodeNumber;

use crate::border::{Outcome, border, calls, checked, fail, memory_mut, text};
use crate::walk::{Begin, Named, Spot, locate};
use crate::{real, session, table};

/// Makes something at a path that is in Weft.
fn make(
    begin: &Begin,
    purpose: Purpose,
    real: impl FnOnce(&CString) -> c_int,
    work: impl FnOnce(&Arc<ProgramFs>, InodeNumber, &Bytes) -> Outcome<()>,
) -> c_int {
    border(|| {
        let fs = session::fs()?;
        match begin.name(&fs, purpose)? {
            Named::Kernel(path) => checked(real(&path)),
            Named::Weft(dir, name) => work(&fs, dir, &name).map(|()| 0),
        }
    })
}

unsafe fn mkdir_at(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    let Some(begin) = locate(dir, path) else { return real::mkdirat(dir, path, mode) };
    make(
        &begin,
        Purpose::MakeDirectory,
        |path| real::mkdirat(libc::AT_FDCWD, path.as_ptr(), mode),
        |fs, dir, name| {
            let mode = weft_base::mode_with_umask(mode & 0o1777, session::umask(fs));
            Ok(fs.run("mkdir", name, async |posix| posix.mkdir(fs.who(), dir, name, mode).await.map(drop))?)
        },
    )
}

unsafe fn mknod_at(dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    let Some(begin) = locate(dir, path) else { return real::mknodat(dir, path, mode, device) };
    make(
        &begin,
        Purpose::Make,
        |path| real::mknodat(libc::AT_FDCWD, path.as_ptr(), mode, device),
        |fs, dir, name| {
            let bits = if mode & libc::S_IFMT == 0 { libc::S_IFREG } else { mode & libc::S_IFMT };
            let kind = FileKind::from_code((bits >> 12) as u8).filter(|kind| !matches!(kind, FileKind::Directory | FileKind::Symlink));
            let Some(kind) = kind else { return fail(libc::EINVAL) };
            let mode = weft_base::mode_with_umask(mode, session::umask(fs));
            let made =
                async |posix: &weft_library::PosixLayer<_>| posix.mknod(fs.who(), dir, name, kind, mode, device as u32).await.map(drop);
            Ok(fs.run("mknod", name, made)?)
        },
    )
}

unsafe fn unlink_at(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    let Some(begin) = locate(dir, path) else { return real::unlinkat(dir, path, flags) };
    let is_directory = flags & libc::AT_REMOVEDIR != 0;
    border(|| {
        let fs = session::fs()?;
        let (dir, name) = match begin.name(&fs, if is_directory { Purpose::RemoveDirectory } else { Purpose::Remove })? {
            Named::Kernel(path) => return checked(real::unlinkat(libc::AT_FDCWD, path.as_ptr(), flags)),
            Named::Weft(dir, name) => (dir, name),
        };
        match is_directory {
            true => fs.run("rmdir", &name, async |posix| posix.rmdir(fs.who(), dir, &name).await)?,
            false => fs.run("unlink", &name, async |posix| posix.unlink(fs.who(), dir, &name).await)?,
        }
        Ok(0)
    })
}

unsafe fn rename_at((from_dir, from): (c_int, *const c_char), (to_dir, to): (c_int, *const c_char), flags: c_uint) -> c_int {
    let (source, goal) = (locate(from_dir, from), locate(to_dir, to));
    if source.is_none() && goal.is_none() {
        return real::renameat2(from_dir, from, to_dir, to, flags);
    }
    let known = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE;
    border(|| {
        if flags & !known != 0 || flags == known {
            return fail(libc::EINVAL);
        }
        let (Some(source), Some(goal)) = (source, goal) else { return fail(libc::EXDEV) };
        let fs = session::fs()?;
        let wanted = RenameFlags { no_replace: flags & libc::RENAME_NOREPLACE != 0, exchange: flags & libc::RENAME_EXCHANGE != 0 };
        // What is in the kernel's tree is the kernel's if both are.
        match (source.name(&fs, Purpose::Move)?, goal.name(&fs, Purpose::target_of(wanted))?) {
            (Named::Weft(from_dir, from), Named::Weft(to_dir, to)) => {
                let (old, new) = ((from_dir, &*from, source.wants_directory()), (to_dir, &*to, goal.wants_directory()));
                fs.run("rename", &from, async |posix| posix.rename_written(fs.who(), old, new, wanted).await)?;
                Ok(0)
            }
            (Named::Kernel(from), Named::Kernel(to)) => {
                checked(real::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags))
            }
            _ => fail(libc::EXDEV),
        }
    })
}

unsafe fn link_at((from_dir, from): (c_int, *const c_char), (to_dir, to): (c_int, *const c_char), flags: c_int) -> c_int {
    let goal = locate(to_dir, to);
    // An open file that gets a name.
    let is_open = flags & libc::AT_EMPTY_PATH != 0 && table::is_weft(from_dir) && !from.is_null() && *from == 0;
    let source = locate(from_dir, from);
    if source.is_none() && goal.is_none() && !is_open {
        return real::linkat(from_dir, from, to_dir, to, flags);
    }
    border(|| {
        let fs = session::fs()?;
        let (node, kind) = match (is_open, &source) {
            (true, _) => table::get(from_dir).map(|open| (open.node, open.kind))?,
            (false, None) => return fail(libc::EXDEV),
            (false, Some(begin)) => match begin.attr(&fs, flags & libc::AT_SYMLINK_FOLLOW != 0)? {
                Ok(attr) => (InodeNumber::of(attr.handle), attr.kind),
                Err(_) => return fail(libc::EXDEV),
            },
        };
        let Some(goal) = goal else { return fail(libc::EXDEV) };
        match goal.name(&fs, Purpose::Make)? {
            Named::Kernel(_) => fail(libc::EXDEV),
            Named::Weft(dir, name) if kind == FileKind::Directory => {
                // Not that it is no file, but that there is the name, is what Linux tells first.
                let there = Spot::Name(dir, name).attr(&fs);
                fail(if there.is_ok() { libc::EEXIST } else { libc::EPERM })
            }
            Named::Weft(dir, name) => {
                fs.run("link", &name, async |posix| posix.link(fs.who(), node, dir, &name).await)?;
                Ok(0)
            }
        }
    })
}

unsafe fn symlink_at(to: *const c_char, dir: c_int, path: *const c_char) -> c_int {
    let Some(begin) = locate(dir, path) else { return real::symlinkat(to, dir, path) };
    make(
        &begin,
        Purpose::Make,
        |path| real::symlinkat(to, libc::AT_FDCWD, path.as_ptr()),
        |fs, dir, name| {
            let to = text(to)?;
            if to.is_empty() {
                return fail(libc::ENOENT);
            }
            Ok(fs.run("symlink", name, async |posix| posix.symlink(fs.who(), dir, name, to).await.map(drop))?)
        },
    )
}

/// The target of a symlink; `Err` of the path if that is outside.
pub(crate) fn read_symlink(begin: &Begin) -> Outcome<Result<Bytes, CString>> {
    if let Some(open) = begin.descriptor() {
        return Ok(Ok(Bytes::copy_from_slice(&open.path)));
    }
    let fs = session::fs()?;
    let attr = match begin.attr(&fs, false)? {
        Ok(attr) => attr,
        Err(path) => return Ok(Err(path)),
    };
    if attr.kind != FileKind::Symlink {
        return fail(libc::EINVAL);
    }
    Ok(Ok(fs.run("readlink", b"", async |posix| posix.readlink(InodeNumber::of(attr.handle)).await)?))
}

unsafe fn readlink_at(dir: c_int, path: *const c_char, to: *mut c_char, bytes: size_t) -> ssize_t {
    let is_open = !path.is_null() && *path == 0 && table::is_weft(dir);
    let begin = locate(dir, path);
    if begin.is_none() && !is_open {
        return real::readlinkat(dir, path, to, bytes);
    }
    border(|| {
        let target = match begin {
            Some(begin) => match read_symlink(&begin)? {
                Ok(target) => target,
                Err(path) => return checked(real::readlinkat(libc::AT_FDCWD, path.as_ptr(), to, bytes)),
            },
            None => {
                let (fs, open) = (session::fs()?, table::get(dir)?);
                if open.kind != FileKind::Symlink {
                    return fail(libc::ENOENT);
                }
                fs.run("readlink", b"", async |posix| posix.readlink(open.node).await)?
            }
        };
        let to = memory_mut(to.cast(), bytes)?;
        let len = target.len().min(to.len());
        if to.is_empty() {
            return fail(libc::EINVAL);
        }
        to[..len].copy_from_slice(&target[..len]);
        Ok(len as ssize_t)
    })
}

const HERE: c_int = libc::AT_FDCWD;

calls! {
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int { mkdir_at(HERE, path, mode) }

    fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int { mkdir_at(dir, path, mode) }

    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int { mknod_at(HERE, path, mode, device) }

    fn mknodat(dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int { mknod_at(dir, path, mode, device) }

    fn __xmknod(_version: c_int, path: *const c_char, mode: mode_t, device: *const dev_t) -> c_int {
        mknod_at(HERE, path, mode, *device)
    }

    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int { mknod_at(HERE, path, libc::S_IFIFO | mode & 0o7777, 0) }

    fn mkfifoat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int { mknod_at(dir, path, libc::S_IFIFO | mode & 0o7777, 0) }

    fn rmdir(path: *const c_char) -> c_int { unlink_at(HERE, path, libc::AT_REMOVEDIR) }

    fn unlink(path: *const c_char) -> c_int { unlink_at(HERE, path, 0) }

    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int { unlink_at(dir, path, flags) }

    fn remove(path: *const c_char) -> c_int {
        if locate(HERE, path).is_none() {
            return real::remove(path);
        }
        let removed = unlink_at(HERE, path, 0);
        if removed != 0 && crate::border::errno() == libc::EISDIR { unlink_at(HERE, path, libc::AT_REMOVEDIR) } else { removed }
    }

    fn rename(from: *const c_char, to: *const c_char) -> c_int { rename_at((HERE, from), (HERE, to), 0) }

    fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int {
        rename_at((from_dir, from), (to_dir, to), 0)
    }

    fn renameat2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int {
        rename_at((from_dir, from), (to_dir, to), flags)
    }

    fn link(from: *const c_char, to: *const c_char) -> c_int { link_at((HERE, from), (HERE, to), 0) }

    fn linkat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int {
        link_at((from_dir, from), (to_dir, to), flags)
    }

    fn symlink(to: *const c_char, path: *const c_char) -> c_int { symlink_at(to, HERE, path) }

    fn symlinkat(to: *const c_char, dir: c_int, path: *const c_char) -> c_int { symlink_at(to, dir, path) }

    fn readlink(path: *const c_char, to: *mut c_char, bytes: size_t) -> ssize_t { readlink_at(HERE, path, to, bytes) }

    fn readlinkat(dir: c_int, path: *const c_char, to: *mut c_char, bytes: size_t) -> ssize_t { readlink_at(dir, path, to, bytes) }

    fn __readlink_chk(path: *const c_char, to: *mut c_char, bytes: size_t, room: size_t) -> ssize_t {
        if bytes > room { libc::abort() }
        readlink_at(HERE, path, to, bytes)
    }

    fn __readlinkat_chk(dir: c_int, path: *const c_char, to: *mut c_char, bytes: size_t, room: size_t) -> ssize_t {
        if bytes > room { libc::abort() }
        readlink_at(dir, path, to, bytes)
    }
}
