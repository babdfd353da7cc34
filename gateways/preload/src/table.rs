//! What this process has open in Weft, by its descriptors, and its working directory if that is in
//! Weft.
//!
//! # Invariants
//! - A number in the table belongs to a descriptor of `reserve.rs` that is open in this process.
//! - The table's locks are never held while Weft works.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use weft_base::FileKind;
use weft_host::door::ProgramFs;
use weft_posix::{InodeNumber, OpenHow, Stable, WriteHow};
use weft_wire::Rights;

use crate::border::{Outcome, fail};
use crate::reserve::NUMBERS_MAX;
use crate::session;

/// What is open: an open file description.
#[derive(Debug)]
pub(crate) struct Open {
    /// The object.
    pub node: InodeNumber,
    /// What it is.
    pub kind: FileKind,
    /// The path by which it was opened, as the program sees it.
    pub path: Vec<u8>,
    /// Another process opened it: a parent, or the program before an `exec`.
    pub is_inherited: bool,
    /// Flags as for `open`; `O_APPEND` may change.
    flags: AtomicI32,
    /// Where it is open in this process. Held while the shared offset is used.
    at: Mutex<Option<At>>,
}

/// A file that is open in a file system.
#[derive(Clone, Debug)]
pub(crate) struct At {
    /// The file system.
    pub fs: Arc<ProgramFs>,
    /// Its number there.
    pub number: u64,
}

impl Open {
    /// One that was opened just now; `at` is given for files whose data may be used.
    pub fn new(node: InodeNumber, kind: FileKind, path: Vec<u8>, flags: c_int, at: Option<At>) -> Open {
        Open { node, kind, path, is_inherited: false, flags: AtomicI32::new(flags), at: Mutex::new(at) }
    }

    /// Flags as for `open`.
    pub fn flags(&self) -> c_int {
        self.flags.load(Ordering::Relaxed)
    }

    /// Changes flags, as `F_SETFL` does.
    pub fn set_flags(&self, flags: c_int) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// True if only names and attributes can be used through it.
    pub fn is_path_only(&self) -> bool {
        self.flags() & libc::O_PATH != 0
    }

    /// How it writes.
    pub fn write_how(&self) -> WriteHow {
        WriteHow { append: self.flags() & libc::O_APPEND != 0, ..WriteHow::default() }
    }

    /// True if it is open for reading.
    pub fn reads(&self) -> bool {
        !self.is_path_only() && self.flags() & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// True if it is open for writing.
    pub fn writes(&self) -> bool {
        !self.is_path_only() && self.flags() & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// The file, to be read or written in this process: opened again if it is another process that
    /// opened it. The guard keeps others from the offset.
    ///
    /// # Errors
    /// EBADF, EISDIR, and why it cannot be opened.
    pub fn file(&self) -> Outcome<Located<'_>> {
        if self.is_path_only() {
            return fail(libc::EBADF);
        }
        match self.kind {
            FileKind::File => {}
            FileKind::Directory => return fail(libc::EISDIR),
            _ => return fail(libc::EBADF),
        }
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        if at.is_none() {
            let fs = session::fs()?;
            let how =
                OpenHow { stable: Stable::of_flags(self.flags(), libc::O_SYNC, libc::O_DSYNC), ..OpenHow::direct(rights_of(self.flags())) };
            let number = fs.run("open", &self.path, async |posix| posix.open_again(fs.who(), self.node, how).await)?;
            *at = Some(At { fs, number });
        }
        Ok(Located(at))
    }

    /// The same description for a child process: what is open in the parent is not open there.
    fn inherited(&self) -> Open {
        let mut open = Open::new(self.node, self.kind, self.path.clone(), self.flags(), None);
        open.is_inherited = true;
        open
    }

    /// Before a descriptor of it is closed: what it has kept of its writes is at servers then.
    pub fn finish(&self) -> Outcome<()> {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match at.filter(|at| at.fs.posix().has_gathered(at.number)) {
            Some(At { fs, number }) => Ok(fs.run("close", &self.path, async |posix| posix.before_close(number).await)?),
            None => Ok(()),
        }
    }

    /// The file system in which it was open, if it was; it is opened again when it is used.
    pub fn detach(&self) -> Option<At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A file that is open in this process, for one call after another.
pub(crate) struct Located<'a>(MutexGuard<'a, Option<At>>);

impl Located<'_> {
    /// Without the guard, for calls that do not use the offset.
    pub fn share(self) -> At {
        self.at().clone()
    }

    /// Where it is open.
    pub fn at(&self) -> &At {
        self.0.as_ref().expect("it has just been opened")
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let at = self.at.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(At { fs, number }) = at.take() {
            // In a child process it is still the parent's.
            if fs.is_own() && !fs.posix().try_release(number) {
                fs.posix().rt().block_on(fs.posix().release(number));
            }
        }
    }
}

/// What an open with these flags is for.
pub(crate) fn rights_of(flags: c_int) -> Rights {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Rights::READ,
        libc::O_WRONLY => Rights::WRITE,
        _ => Rights::READ.with(Rights::WRITE),
    }
}

/// A working directory in Weft.
#[derive(Clone, Debug)]
pub(crate) struct Cwd {
    /// The directory.
    pub node: InodeNumber,
    /// Its path as the program sees it.
    pub path: Vec<u8>,
}

/// 1: the number is Weft's. Read without a lock by every call.
static MARKS: [AtomicU8; NUMBERS_MAX] = [const { AtomicU8::new(0) }; NUMBERS_MAX];
static TABLE: RwLock<Vec<Option<Arc<Open>>>> = RwLock::new(Vec::new());
static IS_IN_WEFT: AtomicBool = AtomicBool::new(false);
static CWD: RwLock<Option<Cwd>> = RwLock::new(None);

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// True if the descriptor is Weft's.
#[inline]
pub(crate) fn is_weft(fd: c_int) -> bool {
    MARKS.get(fd as usize).is_some_and(|mark| mark.load(Ordering::Acquire) != 0)
}

/// What a descriptor of Weft is.
///
/// # Errors
/// EBADF.
pub(crate) fn get(fd: c_int) -> Outcome<Arc<Open>> {
    read(&TABLE).get(fd as usize).cloned().flatten().ok_or(crate::border::Errno(libc::EBADF))
}

/// A descriptor is this from now on. What it was is returned, to be dropped by the caller.
pub(crate) fn put(fd: c_int, open: Arc<Open>) -> Option<Arc<Open>> {
    let at = fd as usize;
    let mut table = write(&TABLE);
    if table.len() <= at {
        table.resize(at + 1, None);
    }
    MARKS[at].store(1, Ordering::Release);
    table[at].replace(open)
}

/// A descriptor is not Weft's any more. What it was is returned, to be dropped by the caller.
pub(crate) fn remove(fd: c_int) -> Option<Arc<Open>> {
    let at = fd as usize;
    let mut table = write(&TABLE);
    MARKS.get(at)?.store(0, Ordering::Release);
    table.get_mut(at)?.take()
}

/// All descriptors of Weft.
pub(crate) fn all() -> Vec<(c_int, Arc<Open>)> {
    let table = read(&TABLE);
    table.iter().enumerate().filter_map(|(fd, open)| Some((fd as c_int, open.clone()?))).collect()
}

/// True if the working directory is in Weft.
#[inline]
pub(crate) fn is_cwd_weft() -> bool {
    IS_IN_WEFT.load(Ordering::Acquire)
}

/// The working directory if it is in Weft.
pub(crate) fn cwd() -> Option<Cwd> {
    if is_cwd_weft() { read(&CWD).clone() } else { None }
}

/// The working directory is this; `None`: the kernel's.
pub(crate) fn set_cwd(to: Option<Cwd>) {
    let mut cwd = write(&CWD);
    IS_IN_WEFT.store(to.is_some(), Ordering::Release);
    *cwd = to;
}

/// Both locks, so that no other thread has them while a child process is made.
pub(crate) type Held = (RwLockWriteGuard<'static, Vec<Option<Arc<Open>>>>, RwLockWriteGuard<'static, Option<Cwd>>);

/// Takes both locks.
pub(crate) fn hold() -> Held {
    (write(&TABLE), write(&CWD))
}

/// In a child process: everything is the parent's, and is opened again when it is used. Those that
/// were one description still are.
pub(crate) fn inherit(held: &mut Held) {
    let mut fresh: Vec<(Arc<Open>, Arc<Open>)> = Vec::new();
    for open in held.0.iter_mut().flatten() {
        let known = fresh.iter().find(|(old, _)| Arc::ptr_eq(old, open)).map(|(_, new)| new.clone());
        let new = known.unwrap_or_else(|| {
            let new = Arc::new(open.inherited());
            fresh.push((open.clone(), new.clone()));
            new
        });
        *open = new;
    }
    // Another thread of the parent may have been within one of them.
    fresh.into_iter().for_each(|(old, _)| std::mem::forget(old));
}
