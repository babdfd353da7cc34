//! From a path as a program names it to where it is: in Weft, or in the kernel's tree.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Attr, FileKind, Handle};
use weft_client::{Purpose, WalkEnd};
use weft_host::door::ProgramFs;
use weft_posix::InodeNumber;

use crate::border::{Outcome, fail, is_inside, text};
use crate::prefix::{PATH_BYTES_MAX, Prefix, Side};
use crate::table::Open;
use crate::{real, session, table};

/// How often a path may lead out of the file system and into it again, as symlinks in Linux.
const CROSSINGS_MAX: usize = 40;

/// Where a walk in Weft begins, and by which path it goes on.
#[derive(Clone, Debug)]
pub(crate) struct Begin {
    /// `None`: the root.
    dir: Option<InodeNumber>,
    path: Vec<u8>,
    /// The directory as the program sees it.
    shown: Vec<u8>,
    /// It is named by a symlink of the kernel that stands for a descriptor of Weft: by this path.
    descriptor: Option<(CString, Arc<Open>)>,
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub(crate) enum Spot {
    /// A directory of Weft, reached without a last name, or whatever a descriptor is.
    Directory(InodeNumber),
    /// A name in a directory of Weft, there or not.
    Name(InodeNumber, Bytes),
    /// Out of Weft, by this absolute path.
    Outside(CString),
}

/// Where a name is that is made, moved or removed.
#[derive(Clone, Debug)]
pub(crate) enum Named {
    /// In a directory of Weft, there or not.
    Weft(InodeNumber, Bytes),
    /// A path of the kernel.
    Kernel(CString),
}

impl Begin {
    /// The path as the program sees it.
    pub fn shown(&self) -> Vec<u8> {
        match (self.path.is_empty(), self.shown.as_slice()) {
            (true, shown) => shown.to_vec(),
            (false, shown) => [shown, b"/", &self.path].concat(),
        }
    }

    /// What the descriptor is that the path stands for (`/dev/stdin`, `/proc/self/fd/3`).
    pub fn descriptor(&self) -> Option<&Arc<Open>> {
        self.descriptor.as_ref().map(|(_, open)| open)
    }

    /// True if only a directory can be meant.
    pub fn wants_directory(&self) -> bool {
        self.path.ends_with(b"/")
    }

    /// Where the last name of the path is, for what is done with it.
    ///
    /// # Errors
    /// Those of the servers; as Linux says it of a path without a name at its end, or with a slash
    /// behind it.
    pub fn name(&self, fs: &Arc<ProgramFs>, purpose: Purpose) -> Outcome<Named> {
        match self.walk(fs, false)? {
            Spot::Outside(path) => Ok(Named::Kernel(path)),
            Spot::Directory(_) => fail(purpose.without_name(&self.path).errno()),
            Spot::Name(dir, name) => {
                if self.wants_directory() {
                    fs.run("lookup", &name, async |posix| posix.check_slash(fs.who(), (dir, &name), purpose).await)?;
                }
                Ok(Named::Weft(dir, name))
            }
        }
    }

    /// Goes there. A symlink at the end is followed if `follow`, whatever stands behind it.
    ///
    /// # Errors
    /// Those of the servers; ELOOP.
    pub fn walk(&self, fs: &Arc<ProgramFs>, follow: bool) -> Outcome<Spot> {
        let Some(prefix) = session::prefix() else { return fail(libc::ENOENT) };
        if let Some((path, open)) = &self.descriptor {
            return Ok(if follow { Spot::Directory(open.node) } else { Spot::Outside(path.clone()) });
        }
        let mut begin = self.clone();
        for _ in 0..CROSSINGS_MAX {
            if begin.path.len() >= PATH_BYTES_MAX {
                return fail(libc::ENAMETOOLONG);
            }
            let place = fs.run("walk", &begin.path, async |posix| {
                let dir = begin.dir.unwrap_or(posix.root());
                posix.walk(fs.who(), dir, &begin.path, follow).await
            })?;
            let path = match place {
                WalkEnd::Directory(dir) => return Ok(Spot::Directory(InodeNumber::of(dir))),
                WalkEnd::Name(dir, name) => return Ok(Spot::Name(InodeNumber::of(dir), name)),
                WalkEnd::Outside(path) => path,
            };
            match side(prefix, prefix.parent(), &path) {
                Side::Inside(rest) => begin = at_root(prefix, rest),
                Side::Outside => {
                    let path = if path.starts_with(b"/") { path } else { [prefix.parent(), b"/", &path].concat() };
                    return CString::new(path).map(Spot::Outside).or(fail(libc::EINVAL));
                }
            }
        }
        fail(libc::ELOOP)
    }

    /// Attributes of what is there; `Err` of the path if that is outside.
    ///
    /// # Errors
    /// Those of the servers.
    pub fn attr(&self, fs: &Arc<ProgramFs>, follow: bool) -> Outcome<Result<Attr, CString>> {
        let spot = self.walk(fs, follow || self.wants_directory())?;
        let attr = match spot {
            Spot::Outside(path) => return Ok(Err(path)),
            spot => spot.attr(fs)?,
        };
        if self.wants_directory() && attr.kind != FileKind::Directory {
            return fail(libc::ENOTDIR);
        }
        Ok(Ok(attr))
    }
}

impl Spot {
    /// Attributes of what is there.
    ///
    /// # Errors
    /// Those of the servers; EXDEV if it is outside.
    pub fn attr(&self, fs: &Arc<ProgramFs>) -> Outcome<Attr> {
        match self {
            Spot::Directory(dir) => attr_of(fs, *dir),
            Spot::Name(dir, name) => Ok(fs.run("stat", name, async |posix| posix.look(fs.who(), *dir, name).await)?),
            Spot::Outside(_) => fail(libc::EXDEV),
        }
    }
}

/// Attributes of an object, exact.
///
/// # Errors
/// Those of the servers.
pub(crate) fn attr_of(fs: &Arc<ProgramFs>, node: InodeNumber) -> Outcome<Attr> {
    Ok(fs.run("stat", b"", async |posix| posix.getattr(node).await)?.attr)
}

/// The object of a number that was kept.
pub(crate) fn node_of(handle: u64) -> InodeNumber {
    InodeNumber::of(Handle(handle))
}

fn at_root(prefix: &Prefix, path: Vec<u8>) -> Begin {
    Begin { dir: None, path, shown: prefix.path().to_vec(), descriptor: None }
}

fn side(prefix: &Prefix, base: &[u8], path: &[u8]) -> Side {
    prefix.side(base, path, |path| {
        let path = CString::new(path).ok()?;
        // SAFETY: a string; what is returned is one, from `malloc`.
        unsafe {
            let found = real::realpath(path.as_ptr(), std::ptr::null_mut());
            if found.is_null() {
                return None;
            }
            let copy = CStr::from_ptr(found).to_bytes().to_vec();
            libc::free(found.cast());
            Some(copy)
        }
    })
}

/// The kernel's directory that a relative path begins at.
fn kernel_dir(dir: c_int) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    let link = if dir == libc::AT_FDCWD { "/proc/self/cwd".into() } else { format!("/proc/self/fd/{dir}") };
    std::fs::read_link(link).ok().map(|path| path.into_os_string().into_vec())
}

/// Where a path of a call begins in Weft; `None` if it is the kernel's. An empty path is the
/// kernel's, too, as it is an error or means a descriptor.
///
/// # Safety
/// The path is null or a string.
#[inline]
pub(crate) unsafe fn locate(dir: c_int, path: *const c_char) -> Option<Begin> {
    session::prefix()?;
    if is_inside() {
        return None;
    }
    // SAFETY: the caller's.
    begin_of(dir, unsafe { text(path) }.ok()?)
}

/// The same for a path of our own.
pub(crate) fn begin_of(dir: c_int, path: &[u8]) -> Option<Begin> {
    let prefix = session::prefix()?;
    match path.first()? {
        b'/' => {
            if let Some(below) = prefix.below(path) {
                return Some(at_root(prefix, below.to_vec()));
            }
            if let Some((open, below)) = descriptor_at(path) {
                let descriptor = if below.is_empty() { CString::new(path).ok().map(|path| (path, open.clone())) } else { None };
                return Some(Begin { dir: Some(open.node), path: below.to_vec(), shown: open.path.clone(), descriptor });
            }
        }
        _ if dir == libc::AT_FDCWD => {
            if let Some(cwd) = table::cwd() {
                return Some(Begin { dir: Some(cwd.node), path: path.to_vec(), shown: cwd.path, descriptor: None });
            }
        }
        _ if table::is_weft(dir) => {
            let open = table::get(dir).ok()?;
            return Some(Begin { dir: Some(open.node), path: path.to_vec(), shown: open.path.clone(), descriptor: None });
        }
        _ => {}
    }
    if prefix.may_enter(path) { far(prefix, dir, path) } else { None }
}

/// The open file of Weft whose descriptor a path of the kernel stands for, and what follows behind.
#[inline]
fn descriptor_at(path: &[u8]) -> Option<(Arc<Open>, &[u8])> {
    if !path.starts_with(b"/dev/") && !path.starts_with(b"/proc/") {
        return None;
    }
    let (fd, below) = fd_at(path)?;
    if table::is_weft(fd) { Some((table::get(fd).ok()?, below)) } else { None }
}

/// The descriptor that a path of the kernel stands for, and what follows behind it: nothing if only
/// the descriptor is named, and `/` and more if it is to be a directory.
fn fd_at(path: &[u8]) -> Option<(c_int, &[u8])> {
    let end = |from: usize| path[from..].iter().position(|byte| *byte == b'/').map_or(path.len(), |at| from + at);
    let text = |from: usize, to: usize| std::str::from_utf8(&path[from..to]).ok();
    let number = |from: usize| Some((text(from, end(from))?.parse::<u16>().ok()?.into(), &path[end(from)..]));
    if let Some(name) = path.strip_prefix(b"/dev/") {
        let of_name = |name: &[u8]| [&b"stdin"[..], b"stdout", b"stderr"].iter().position(|known| *known == name);
        let from = path.len() - name.len();
        return match of_name(&path[from..end(from)]) {
            Some(fd) => Some((fd as c_int, &path[end(from)..])),
            None if name.starts_with(b"fd/") => number(from + 3),
            None => None,
        };
    }
    let from = b"/proc/".len();
    let process = text(from, end(from))?;
    let is_own = matches!(process, "self" | "thread-self") || process.parse() == Ok(std::process::id());
    if is_own && path[end(from)..].starts_with(b"/fd/") { number(end(from) + 4) } else { None }
}

#[cold]
fn far(prefix: &Prefix, dir: c_int, path: &[u8]) -> Option<Begin> {
    let base = if path.starts_with(b"/") { Some(Vec::new()) } else { kernel_dir(dir) };
    let before = crate::border::errno();
    let found = side(prefix, &base?, path);
    crate::border::set_errno(before);
    match found {
        Side::Inside(rest) => Some(at_root(prefix, rest)),
        Side::Outside => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_kernel_stand_for_descriptors() {
        assert_eq!(fd_at(b"/dev/stdin"), Some((0, &b""[..])));
        assert_eq!((fd_at(b"/dev/stderr/"), fd_at(b"/dev/fd/63")), (Some((2, &b"/"[..])), Some((63, &b""[..]))));
        assert_eq!(fd_at(b"/proc/self/fd/5/a/b"), Some((5, &b"/a/b"[..])));
        assert_eq!(fd_at(format!("/proc/{}/fd/7", std::process::id()).as_bytes()), Some((7, &b""[..])));
        for other in ["/dev/fd", "/dev/fd/", "/dev/fd/x", "/dev/stdinx", "/dev/null", "/proc/1/fd/0", "/proc/self/fdinfo/0", "/proc/self"] {
            assert_eq!(fd_at(other.as_bytes()), None, "{other}");
        }
    }
}
