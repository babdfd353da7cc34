//! What the C library does with paths by calls of its own: canonical paths, patterns, walks through
//! trees, names of temporary files.

use std::collections::{HashSet, VecDeque};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use libc::{mode_t, size_t};
use weft_base::FileKind;

use crate::border::{Errno, Outcome, border, calls, errno, fail, set_errno, text};
use crate::prefix::PATH_BYTES_MAX;
use crate::walk::{Begin, begin_of, locate};
use crate::{attributes, cwd, listing, names as made, opening, real, session, table};

/// Symlinks on one way, at most, as in Linux.
const SYMLINKS_MAX: usize = 40;

/// The path without symlinks, `.` and `..` that leads where this absolute path leads, also through
/// both trees.
///
/// # Errors
/// ENOENT and what else a walk may meet.
pub(crate) fn real_path(path: &[u8]) -> Outcome<Vec<u8>> {
    if let Some(open) = begin_of(libc::AT_FDCWD, path).as_ref().and_then(Begin::descriptor) {
        return real_path(&open.path);
    }
    let mut way: Vec<Vec<u8>> = Vec::new();
    let mut left = parts(path);
    let mut symlinks = 0;
    let text_of = |way: &[Vec<u8>]| way.iter().fold(Vec::new(), |text: Vec<u8>, name| [text.as_slice(), b"/", name].concat());
    while let Some(name) = left.pop_front() {
        if matches!(name.as_slice(), b"." | b"..") {
            if !way.is_empty() && kind_of(&text_of(&way))? != libc::S_IFDIR {
                return fail(libc::ENOTDIR);
            }
            if name == b".." {
                way.pop();
            }
            continue;
        }
        way.push(name);
        let here = text_of(&way);
        if here.len() >= PATH_BYTES_MAX {
            return fail(libc::ENAMETOOLONG);
        }
        let Some(target) = target_of(&here)? else { continue };
        symlinks += 1;
        if symlinks > SYMLINKS_MAX {
            return fail(libc::ELOOP);
        }
        if target.starts_with(b"/") {
            way.clear();
        } else {
            way.pop();
        }
        parts(&target).into_iter().rev().for_each(|name| left.push_front(name));
    }
    let whole = text_of(&way);
    Ok(if whole.is_empty() { b"/".to_vec() } else { whole })
}

/// The names of a path, also `.` and `..`. A slash behind the last one is `.`.
fn parts(path: &[u8]) -> VecDeque<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let last = path.ends_with(b"/").then_some(&b"."[..]);
    names.chain(last).map(<[u8]>::to_vec).collect()
}

/// Where a symlink leads; `None` for anything else that is there.
fn target_of(path: &[u8]) -> Outcome<Option<Vec<u8>>> {
    let Some(begin) = begin_of(libc::AT_FDCWD, path) else {
        let path = CString::new(path).map_err(|_| Errno(libc::EINVAL))?;
        let mut target = vec![0u8; PATH_BYTES_MAX];
        // SAFETY: a string, and so much memory.
        let len = unsafe { real::readlinkat(libc::AT_FDCWD, path.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
        return match len {
            0.. => {
                target.truncate(len as usize);
                Ok(Some(target))
            }
            _ if errno() == libc::EINVAL => Ok(None),
            _ if leads_to_prefix(path.as_bytes()) => Ok(None),
            _ => fail(errno()),
        };
    };
    if let Some(open) = begin.descriptor() {
        return Ok(Some(open.path.clone()));
    }
    let fs = session::fs()?;
    match begin.attr(&fs, false)? {
        Ok(attr) if attr.kind == FileKind::Symlink => Ok(made::read_symlink(&begin)?.ok().map(|target| target.to_vec())),
        Ok(_) => Ok(None),
        Err(_) => fail(libc::ELOOP),
    }
}

/// True for a directory above the prefix, which need not be there for the kernel.
fn leads_to_prefix(path: &[u8]) -> bool {
    session::prefix().is_some_and(|prefix| prefix.path().strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/")))
}

fn kind_of(path: &[u8]) -> Outcome<u32> {
    match begin_of(libc::AT_FDCWD, path) {
        Some(begin) => match begin.attr(&session::fs()?, false)? {
            Ok(attr) => Ok(attr.kind.mode_bits()),
            Err(_) => fail(libc::ELOOP),
        },
        None if leads_to_prefix(path) => Ok(libc::S_IFDIR),
        None => {
            let path = CString::new(path).map_err(|_| Errno(libc::EINVAL))?;
            // SAFETY: plain numbers to be written to, and a string.
            unsafe {
                let mut stat: libc::stat = std::mem::zeroed();
                crate::border::checked(real::fstatat(libc::AT_FDCWD, path.as_ptr(), &mut stat, libc::AT_SYMLINK_NOFOLLOW))?;
                Ok(stat.st_mode & libc::S_IFMT)
            }
        }
    }
}

/// Copies a path into memory of the program or from `malloc`.
unsafe fn hand_out(path: &[u8], to: *mut c_char) -> Outcome<*mut c_char> {
    let to = if to.is_null() { libc::malloc(path.len() + 1).cast() } else { to };
    if to.is_null() {
        return fail(libc::ENOMEM);
    }
    to.cast::<u8>().copy_from_nonoverlapping(path.as_ptr(), path.len());
    *to.add(path.len()) = 0;
    Ok(to)
}

/// Replaces the six `X` of a template until `make` succeeds.
unsafe fn temporary(template: *mut c_char, behind: c_int, make: impl Fn(*const c_char) -> c_int) -> c_int {
    let len = libc::strlen(template);
    let place = len.checked_sub(behind.max(0) as usize).and_then(|end| end.checked_sub(6));
    let Some(place) = place.filter(|place| CStr::from_ptr(template.add(*place)).to_bytes().starts_with(b"XXXXXX")) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    for _ in 0..1000 {
        let mut random = [0u8; 6];
        if libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) != random.len() as isize {
            return -1;
        }
        (0..6).for_each(|at| *template.add(place + at) = LETTERS[usize::from(random[at]) % LETTERS.len()] as c_char);
        let result = make(template);
        if result >= 0 || errno() != libc::EEXIST {
            return result;
        }
    }
    -1
}

/// What is called for each object of a tree.
type Visit = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut Ftw) -> c_int;

/// Where an object of a tree is.
#[repr(C)]
pub(crate) struct Ftw {
    base: c_int,
    level: c_int,
}

/// A walk through a tree as `nftw` and `ftw` do it.
struct Walk {
    visit: Visit,
    flags: c_int,
    device: libc::dev_t,
    /// Directories that were met, if symlinks are followed, which may lead round in circles.
    met: HashSet<(libc::dev_t, libc::ino_t)>,
}

const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;
const FTW_PHYS: c_int = 1;
const FTW_MOUNT: c_int = 2;
const FTW_DEPTH: c_int = 8;
/// It is `ftw`, which tells less. No flag of C.
const FTW_OLD: c_int = 1 << 30;
/// Directories within directories, at most.
const LEVELS_MAX: c_int = 1024;

impl Walk {
    unsafe fn go(&mut self, path: &CString, level: c_int) -> c_int {
        let mut stat: libc::stat = std::mem::zeroed();
        let follow = if self.flags & FTW_PHYS != 0 { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
        let mut kind = FTW_F;
        if attributes::fstatat(libc::AT_FDCWD, path.as_ptr(), &mut stat, follow) != 0 {
            kind = match attributes::fstatat(libc::AT_FDCWD, path.as_ptr(), &mut stat, libc::AT_SYMLINK_NOFOLLOW) {
                0 if self.flags & FTW_OLD != 0 => FTW_NS,
                0 => FTW_SLN,
                _ if level == 0 => return -1,
                _ => FTW_NS,
            };
        } else if stat.st_mode & libc::S_IFMT == libc::S_IFLNK {
            kind = FTW_SL;
        }
        if level == 0 {
            self.device = stat.st_dev;
        } else if self.flags & FTW_MOUNT != 0 && stat.st_dev != self.device {
            return 0;
        }
        let base = path.as_bytes().iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1) as c_int;
        let mut place = Ftw { base, level };
        if kind != FTW_F || stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
            return (self.visit)(path.as_ptr(), &stat, kind, &mut place);
        }
        if self.flags & FTW_PHYS == 0 && !self.met.insert((stat.st_dev, stat.st_ino)) {
            return 0;
        }
        let dir = if level < LEVELS_MAX { listing::opendir(path.as_ptr()) } else { std::ptr::null_mut() };
        if dir.is_null() {
            return (self.visit)(path.as_ptr(), &stat, FTW_DNR, &mut place);
        }
        let mut found = Vec::new();
        loop {
            let entry = listing::readdir(dir);
            let Some(entry) = entry.as_ref() else { break };
            let name = CStr::from_ptr(entry.d_name.as_ptr()).to_bytes();
            if !matches!(name, b"." | b"..") {
                found.push(name.to_vec());
            }
        }
        listing::closedir(dir);
        let mut result = if self.flags & FTW_DEPTH == 0 { (self.visit)(path.as_ptr(), &stat, FTW_D, &mut place) } else { 0 };
        for name in found {
            if result != 0 {
                return result;
            }
            let Ok(below) = CString::new([path.as_bytes(), b"/", &name].concat()) else { continue };
            result = self.go(&below, level + 1);
        }
        if result == 0 && self.flags & FTW_DEPTH != 0 {
            result = (self.visit)(path.as_ptr(), &stat, FTW_DP, &mut place);
        }
        result
    }
}

/// `FTW_CHDIR` and `FTW_ACTIONRETVAL`, which are not done here.
const FTW_OTHERS: c_int = 4 | 16;

unsafe fn walk_tree(path: *const c_char, visit: Visit, flags: c_int) -> c_int {
    if flags & FTW_OTHERS != 0 {
        set_errno(libc::EOPNOTSUPP);
        return -1;
    }
    Walk { visit, flags, device: 0, met: HashSet::new() }.go(&CStr::from_ptr(path).to_owned(), 0)
}

const GLOB_ALTDIRFUNC: c_int = 1 << 9;

calls! {
    fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
        let in_weft = locate(libc::AT_FDCWD, path).is_some();
        if !in_weft {
            return real::realpath(path, to);
        }
        border(|| {
            let path = text(path)?;
            let whole = if path.starts_with(b"/") { path.to_vec() } else { [here()?.as_slice(), b"/", path].concat() };
            hand_out(&real_path(&whole)?, to)
        })
    }

    fn __realpath_chk(path: *const c_char, to: *mut c_char, room: size_t) -> *mut c_char {
        if room < libc::PATH_MAX as size_t { libc::abort() }
        realpath(path, to)
    }

    fn canonicalize_file_name(path: *const c_char) -> *mut c_char { realpath(path, std::ptr::null_mut()) }

    fn mkstemp | mkstemp64(template: *mut c_char) -> c_int { mkostemps(template, 0, 0) }

    fn mkostemp | mkostemp64(template: *mut c_char, flags: c_int) -> c_int { mkostemps(template, 0, flags) }

    fn mkstemps | mkstemps64(template: *mut c_char, behind: c_int) -> c_int { mkostemps(template, behind, 0) }

    fn mkostemps | mkostemps64(template: *mut c_char, behind: c_int, flags: c_int) -> c_int {
        if locate(libc::AT_FDCWD, template).is_none() {
            return real::mkostemps(template, behind, flags);
        }
        let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        temporary(template, behind, |path| opening::open(path, flags, 0o600))
    }

    fn mkdtemp(template: *mut c_char) -> *mut c_char {
        if locate(libc::AT_FDCWD, template).is_none() {
            return real::mkdtemp(template);
        }
        if temporary(template, 0, |path| made::mkdir(path, 0o700 as mode_t)) < 0 { std::ptr::null_mut() } else { template }
    }

    fn glob | glob64(pattern: *const c_char, flags: c_int, failed: *const c_void, found: *mut libc::glob64_t) -> c_int {
        if flags & GLOB_ALTDIRFUNC != 0 || found.is_null() || locate(libc::AT_FDCWD, pattern).is_none() {
            return real::glob(pattern, flags, failed, found);
        }
        // The C library asks by functions that it is given. They lie behind its results.
        let given = found.cast::<*const c_void>().add(4);
        *given = listing::closedir as *const c_void;
        *given.add(1) = listing::readdir as *const c_void;
        *given.add(2) = listing::opendir as *const c_void;
        *given.add(3) = attributes::lstat as *const c_void;
        *given.add(4) = attributes::stat as *const c_void;
        real::glob(pattern, flags | GLOB_ALTDIRFUNC, failed, found)
    }

    fn nftw | nftw64(path: *const c_char, visit: Visit, depth: c_int, flags: c_int) -> c_int {
        match locate(libc::AT_FDCWD, path) {
            None => real::nftw(path, visit as *const c_void, depth, flags),
            Some(_) => walk_tree(path, visit, flags),
        }
    }

    fn ftw | ftw64(path: *const c_char, visit: Visit, depth: c_int) -> c_int {
        match locate(libc::AT_FDCWD, path) {
            None => real::ftw(path, visit as *const c_void, depth),
            // One parameter more is given than is looked at.
            Some(_) => walk_tree(path, visit, FTW_OLD),
        }
    }
}

/// The working directory as a path.
fn here() -> Outcome<Vec<u8>> {
    if let Some(cwd) = table::cwd() {
        return Ok(cwd.path);
    }
    let mut memory = vec![0u8; PATH_BYTES_MAX];
    // SAFETY: so much memory.
    let found = unsafe { cwd::getcwd(memory.as_mut_ptr().cast(), memory.len()) };
    if found.is_null() {
        return fail(errno());
    }
    memory.truncate(memory.iter().position(|byte| *byte == 0).unwrap_or(0));
    Ok(memory)
}
