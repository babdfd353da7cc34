//! Names: made, moved, removed.

use std::ffi::{c_char, c_int};

use weft_client::RenameFlags;
use weft_library::Result;

use crate::border::{border, given, hand_out, invalid, memory_mut, text};
use crate::types::weft_fs;

/// A file system and a path of it.
unsafe fn place<'a>(fs: *mut weft_fs, path: *const c_char) -> Result<(&'a weft_fs, &'a [u8])> {
    // SAFETY: the caller's.
    unsafe { Ok((given(fs, "the file system")?, text(path, "the path")?)) }
}

/// Makes a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_mkdir(fs: *mut weft_fs, path: *const c_char, mode: u32) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, path) = unsafe { place(fs, path) }?;
        fs.0.mkdir(path, mode).map(|()| 0)
    })
}

/// Removes a name that leads to no directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_unlink(fs: *mut weft_fs, path: *const c_char) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, path) = unsafe { place(fs, path) }?;
        fs.0.unlink(path).map(|()| 0)
    })
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_rmdir(fs: *mut weft_fs, path: *const c_char) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, path) = unsafe { place(fs, path) }?;
        fs.0.rmdir(path).map(|()| 0)
    })
}

/// Moves a name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_rename(fs: *mut weft_fs, from: *const c_char, to: *const c_char, flags: u32) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let ((fs, from), to) = unsafe { (place(fs, from)?, text(to, "the new path")?) };
        let flags = match flags {
            0 => RenameFlags::default(),
            libc::RENAME_NOREPLACE => RenameFlags { no_replace: true, exchange: false },
            libc::RENAME_EXCHANGE => RenameFlags { no_replace: false, exchange: true },
            _ => return Err(invalid("rename: flags that there are not")),
        };
        fs.0.rename(from, to, flags).map(|()| 0)
    })
}

/// Gives an object one more name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_link(fs: *mut weft_fs, path: *const c_char, name: *const c_char) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let ((fs, path), name) = unsafe { (place(fs, path)?, text(name, "the new path")?) };
        fs.0.link(path, name).map(|()| 0)
    })
}

/// Makes a symlink.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_symlink(fs: *mut weft_fs, target: *const c_char, path: *const c_char) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let ((fs, path), target) = unsafe { (place(fs, path)?, text(target, "the target")?) };
        fs.0.symlink(target, path).map(|()| 0)
    })
}

/// The target of a symlink.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_readlink(fs: *mut weft_fs, path: *const c_char, buffer: *mut c_char, bytes: usize) -> i64 {
    border(|| {
        // SAFETY: C's, as the header says.
        let ((fs, path), buffer) = unsafe { (place(fs, path)?, memory_mut(buffer.cast::<u8>(), bytes)?) };
        hand_out(&fs.0.readlink(path)?, buffer, true)
    })
}
