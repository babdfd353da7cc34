//! Attributes, also extended ones.

use std::ffi::{c_char, c_int, c_void};

use weft_base::WallTime;
use weft_client::{SetAttr, XattrFlags};
use weft_library::Result;
use weft_wire::ops::SetTime;

use crate::border::{border, given, hand_out, invalid, memory, memory_mut, text};
use crate::types::{weft_attr, weft_fs};

/// A time that is now at the server (`WEFT_TIME_NOW`).
const TIME_NOW: i64 = i64::MAX;
/// A time that stays (`WEFT_TIME_OMIT`).
const TIME_OMIT: i64 = i64::MIN;

unsafe fn stat(fs: *mut weft_fs, path: *const c_char, attr: *mut weft_attr, follow: bool) -> c_int {
    border(|| {
        // SAFETY: the caller's.
        let (fs, path, attr) = unsafe { (given(fs, "the file system")?, text(path, "the path")?, attr.as_mut()) };
        *attr.ok_or_else(|| invalid("the result is NULL"))? = (&fs.0.stat(path, follow)?).into();
        Ok(0)
    })
}

/// Changes attributes; symlinks are followed.
unsafe fn change(fs: *mut weft_fs, path: *const c_char, change: impl FnOnce() -> Result<SetAttr>) -> c_int {
    border(|| {
        // SAFETY: the caller's.
        let (fs, path) = unsafe { (given(fs, "the file system")?, text(path, "the path")?) };
        fs.0.setattr(path, true, &change()?).map(|()| 0)
    })
}

/// Attributes of what a path leads to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_stat(fs: *mut weft_fs, path: *const c_char, attr: *mut weft_attr) -> c_int {
    // SAFETY: C's, as the header says.
    unsafe { stat(fs, path, attr, true) }
}

/// The same, of a symlink itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_lstat(fs: *mut weft_fs, path: *const c_char, attr: *mut weft_attr) -> c_int {
    // SAFETY: C's, as the header says.
    unsafe { stat(fs, path, attr, false) }
}

/// Cuts or extends a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_truncate(fs: *mut weft_fs, path: *const c_char, bytes: u64) -> c_int {
    // SAFETY: C's, as the header says.
    unsafe { change(fs, path, || Ok(SetAttr { size: Some(bytes), ..SetAttr::default() })) }
}

/// Changes permission bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_chmod(fs: *mut weft_fs, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: C's, as the header says.
    unsafe { change(fs, path, || Ok(SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() })) }
}

/// Changes owner and group; `u32::MAX` leaves one as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_chown(fs: *mut weft_fs, path: *const c_char, uid: u32, gid: u32) -> c_int {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    // SAFETY: C's, as the header says.
    unsafe { change(fs, path, || Ok(SetAttr { uid: given(uid), gid: given(gid), ..SetAttr::default() })) }
}

/// Changes times, in nanoseconds since 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_utimens(fs: *mut weft_fs, path: *const c_char, atime_ns: i64, mtime_ns: i64) -> c_int {
    let time = |ns| match ns {
        TIME_OMIT => None,
        TIME_NOW => Some(SetTime { at: None }),
        ns => Some(SetTime { at: Some(WallTime(ns)) }),
    };
    // SAFETY: C's, as the header says.
    unsafe { change(fs, path, || Ok(SetAttr { atime: time(atime_ns), mtime: time(mtime_ns), ..SetAttr::default() })) }
}

/// The value of an extended attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_getxattr(
    fs: *mut weft_fs,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    bytes: usize,
) -> i64 {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, path, name) = unsafe { (given(fs, "the file system")?, text(path, "the path")?, text(name, "the name")?) };
        // SAFETY: C's, as the header says.
        let value = unsafe { memory_mut(value.cast::<u8>(), bytes) }?;
        hand_out(&fs.0.get_xattr(path, name)?, value, false)
    })
}

/// Sets an extended attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_setxattr(
    fs: *mut weft_fs,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    bytes: usize,
    flags: c_int,
) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, path, name) = unsafe { (given(fs, "the file system")?, text(path, "the path")?, text(name, "the name")?) };
        // SAFETY: C's, as the header says.
        let value = unsafe { memory(value.cast::<u8>(), bytes) }?;
        if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
            return Err(invalid("setxattr: a flag that there is not"));
        }
        let flags = XattrFlags { create_only: flags & libc::XATTR_CREATE != 0, replace_only: flags & libc::XATTR_REPLACE != 0 };
        fs.0.set_xattr(path, name, value, flags).map(|()| 0)
    })
}

/// The names of all extended attributes, each with NUL behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_listxattr(fs: *mut weft_fs, path: *const c_char, names: *mut c_char, bytes: usize) -> i64 {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, path) = unsafe { (given(fs, "the file system")?, text(path, "the path")?) };
        // SAFETY: C's, as the header says.
        let names = unsafe { memory_mut(names.cast::<u8>(), bytes) }?;
        let list: Vec<u8> = fs.0.list_xattr(path)?.iter().flat_map(|name| [name.as_ref(), b"\0"].concat()).collect();
        hand_out(&list, names, false)
    })
}

/// Removes an extended attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_removexattr(fs: *mut weft_fs, path: *const c_char, name: *const c_char) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, path, name) = unsafe { (given(fs, "the file system")?, text(path, "the path")?, text(name, "the name")?) };
        fs.0.remove_xattr(path, name).map(|()| 0)
    })
}
