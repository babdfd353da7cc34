//! Opening and closing file systems.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::Duration;

use weft_base::ROOT_HANDLE;
use weft_host::door::{self, ProgramFs};
use weft_library::Result;

use crate::border::{border, given, invalid, text};
use crate::types::{weft_fs, weft_options, weft_space};

/// Key file and deadline; a program of before knows fewer fields.
unsafe fn settings(options: *const weft_options) -> Result<(Option<PathBuf>, Option<Duration>)> {
    if options.is_null() {
        return Ok((None, None));
    }
    // SAFETY: its first field is there in all versions.
    let size = unsafe { (&raw const (*options).size).read() };
    if size < size_of::<weft_options>() {
        return Err(invalid("weft_options: the field size must be sizeof(weft_options)"));
    }
    // SAFETY: C says that it is at least so long.
    let options = unsafe { options.read() };
    let key_file = match options.key_file.is_null() {
        true => None,
        // SAFETY: C's string.
        false => Some(PathBuf::from(OsStr::from_bytes(unsafe { text(options.key_file, "the key file") }?))),
    };
    let timeout = (options.timeout_seconds > 0).then(|| Duration::from_secs(options.timeout_seconds.into()));
    Ok((key_file, timeout))
}

/// Those that are open, for the end of the process.
static OPEN: Mutex<Vec<Weak<ProgramFs>>> = Mutex::new(Vec::new());
static AT_EXIT: Once = Once::new();

/// A process that ends without closing a file system would hold up for a while who changes what it
/// was told.
fn remember(fs: &Arc<ProgramFs>) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|fs| fs.strong_count() > 0);
    open.push(Arc::downgrade(fs));
    AT_EXIT.call_once(|| {
        // SAFETY: the function stays as long as this library. If it cannot be called, others wait.
        let _ = unsafe { libc::atexit(leave_leases) };
    });
}

extern "C" fn leave_leases() {
    let open = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    let open: Vec<_> = open.iter().filter_map(Weak::upgrade).filter(|fs| fs.is_own()).collect();
    if !open.is_empty() {
        // What belongs to the thread that ends may be gone already. Nobody hears of a panic.
        let leaving = std::thread::Builder::new().spawn(move || open.iter().for_each(|fs| fs.leave_leases()));
        let _ = leaving.map(std::thread::JoinHandle::join);
    }
}

/// Opens a file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_open_fs(fs: *const c_char, options: *const weft_options) -> *mut weft_fs {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, (key_file, timeout)) = unsafe { (text(fs, "the file system")?, settings(options)?) };
        let opened = Arc::new(door::open(OsStr::from_bytes(fs), key_file, timeout)?);
        remember(&opened);
        Ok(Box::into_raw(Box::new(weft_fs(opened))))
    })
}

/// Closes a file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_close_fs(fs: *mut weft_fs) -> c_int {
    border(|| {
        if !fs.is_null() {
            // SAFETY: it was made by `weft_open_fs` and is given back once.
            drop(unsafe { Box::from_raw(fs) });
        }
        Ok(0)
    })
}

/// How full a file system is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_statfs(fs: *mut weft_fs, space: *mut weft_space) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, space) = unsafe { (given(fs, "the file system")?, space.as_mut()) };
        let space = space.ok_or_else(|| invalid("the result is NULL"))?;
        let stats = fs.0.statfs(ROOT_HANDLE)?;
        *space = weft_space {
            capacity_bytes: stats.capacity_bytes,
            free_bytes: stats.free_bytes,
            inodes: stats.inodes,
            unanswered: stats.unanswered.len() as u64,
        };
        Ok(0)
    })
}
