//! Open files.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use weft_host::door::ProgramFile;
use weft_library::{LockKind, OpenOptions, Result, Stable};

use crate::border::{border, given, invalid, memory, memory_mut, text};
use crate::types::{weft_attr, weft_file, weft_fs, weft_range};

/// Flags of `open(2)` that say nothing here: reads and writes are never buffered, and no descriptor
/// is inherited.
const WITHOUT_MEANING: c_int = libc::O_CLOEXEC | libc::O_DIRECT | libc::O_LARGEFILE | libc::O_NOATIME | libc::O_NOCTTY | libc::O_NONBLOCK;

fn options_of(flags: c_int, mode: u32) -> Result<OpenOptions> {
    let is_set = |flag| flags & flag != 0;
    let known = libc::O_ACCMODE | libc::O_APPEND | libc::O_TRUNC | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_SYNC;
    if flags & !(known | WITHOUT_MEANING) != 0 {
        return Err(invalid("open: a flag that there is not"));
    }
    Ok(OpenOptions {
        read: matches!(flags & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR),
        write: matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR),
        append: is_set(libc::O_APPEND),
        truncate: is_set(libc::O_TRUNC),
        make: is_set(libc::O_CREAT).then_some(mode),
        exclusive: is_set(libc::O_EXCL) && is_set(libc::O_CREAT),
        no_follow: is_set(libc::O_NOFOLLOW),
        stable: Stable::of_flags(flags, libc::O_SYNC, libc::O_DSYNC),
    })
}

/// Opens a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_open(fs: *mut weft_fs, path: *const c_char, flags: c_int, mode: u32) -> *mut weft_file {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, path) = unsafe { (given(fs, "the file system")?, text(path, "the path")?) };
        let file = fs.0.open_file(path, &options_of(flags, mode)?)?;
        Ok(Box::into_raw(Box::new(weft_file(file))))
    })
}

/// Closes a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_close(file: *mut weft_file) -> c_int {
    border(|| {
        if !file.is_null() {
            // SAFETY: it was made by `weft_open` and is given back once.
            unsafe { Box::from_raw(file) }.0.finish()?;
        }
        Ok(0)
    })
}

/// Reads at an offset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_pread(file: *mut weft_file, buffer: *mut c_void, bytes: usize, offset: u64) -> i64 {
    border(|| {
        // SAFETY: C's, as the header says.
        let (file, buffer) = unsafe { (given(file, "the file")?, memory_mut(buffer.cast::<u8>(), bytes)?) };
        Ok(file.0.read_at(buffer, offset)? as i64)
    })
}

/// Writes at an offset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_pwrite(file: *mut weft_file, data: *const c_void, bytes: usize, offset: u64) -> i64 {
    border(|| {
        // SAFETY: C's, as the header says.
        let (file, data) = unsafe { (given(file, "the file")?, memory(data.cast::<u8>(), bytes)?) };
        file.0.write_at(data, offset)?;
        Ok(bytes as i64)
    })
}

/// Reads a list of ranges.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_read_list(file: *mut weft_file, ranges: *mut weft_range, count: usize) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let (file, ranges) = unsafe { (given(file, "the file")?, memory_mut(ranges, count)?) };
        let mut list = Vec::with_capacity(count);
        for range in ranges.iter_mut() {
            range.done = 0;
            // SAFETY: C's; the buffers do not overlap.
            list.push((range.offset, unsafe { memory_mut(range.data.cast::<u8>(), range.bytes) }?));
        }
        let got = file.0.read_list(&mut list)?;
        ranges.iter_mut().zip(got).for_each(|(range, got)| range.done = got);
        Ok(0)
    })
}

/// Writes a list of ranges.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_write_list(file: *mut weft_file, ranges: *mut weft_range, count: usize) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let (file, ranges) = unsafe { (given(file, "the file")?, memory_mut(ranges, count)?) };
        let mut list = Vec::with_capacity(count);
        for range in ranges.iter_mut() {
            range.done = 0;
            // SAFETY: C's.
            list.push((range.offset, unsafe { memory(range.data.cast_const().cast::<u8>(), range.bytes) }?));
        }
        file.0.write_list(&list)?;
        ranges.iter_mut().for_each(|range| range.done = range.bytes);
        Ok(0)
    })
}

/// Does something with an open file.
///
/// # Safety
/// As the header says of the file.
unsafe fn with(file: *mut weft_file, act: impl FnOnce(&ProgramFile) -> Result<c_int>) -> c_int {
    // SAFETY: C's, as the header says.
    border(|| act(unsafe { &given(file, "the file")?.0 }))
}

/// Attributes of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_fstat(file: *mut weft_file, attr: *mut weft_attr) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let (file, attr) = unsafe { (given(file, "the file")?, attr.as_mut()) };
        *attr.ok_or_else(|| invalid("the result is NULL"))? = (&file.0.stat()?).into();
        Ok(0)
    })
}

/// Cuts or extends an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_ftruncate(file: *mut weft_file, bytes: u64) -> c_int {
    // SAFETY: C's, as the header says; the same below.
    unsafe { with(file, |file| file.truncate(bytes).map(|()| 0)) }
}

/// Brings data and attributes to stable storage.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_fsync(file: *mut weft_file) -> c_int {
    // SAFETY: as above.
    unsafe { with(file, |file| file.sync(false).map(|()| 0)) }
}

/// Brings data to stable storage.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_fdatasync(file: *mut weft_file) -> c_int {
    // SAFETY: as above.
    unsafe { with(file, |file| file.sync(true).map(|()| 0)) }
}

/// Reserves space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_allocate(file: *mut weft_file, offset: u64, bytes: u64) -> c_int {
    // SAFETY: as above.
    unsafe { with(file, |file| file.allocate(offset, bytes).map(|()| 0)) }
}

/// Takes a lock on a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_lock(file: *mut weft_file, offset: u64, bytes: u64, exclusive: c_int, patience_ms: u32) -> c_int {
    let kind = if exclusive == 0 { LockKind::Shared } else { LockKind::Exclusive };
    let patience = Duration::from_millis(patience_ms.into());
    // SAFETY: as above.
    unsafe { with(file, |file| Ok(c_int::from(!file.lock(offset, bytes, kind, patience)?))) }
}

/// Gives a lock back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_unlock(file: *mut weft_file, offset: u64, bytes: u64) -> c_int {
    // SAFETY: as above.
    unsafe { with(file, |file| file.unlock(offset, bytes).map(|()| 0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_open() {
        let of = |flags| options_of(flags, 0o640).unwrap();
        assert_eq!(of(libc::O_RDONLY), OpenOptions { read: true, ..OpenOptions::default() });
        let made = of(libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC);
        assert_eq!(made, OpenOptions { write: true, make: Some(0o640), exclusive: true, ..OpenOptions::default() });
        let synced = of(libc::O_RDWR | libc::O_DSYNC);
        assert_eq!((synced.stable, of(libc::O_RDWR | libc::O_SYNC).stable), (Stable::Data, Stable::All));
        assert!(!of(libc::O_RDONLY | libc::O_EXCL).exclusive);
        assert!(options_of(libc::O_TMPFILE | libc::O_RDWR, 0).is_err() && options_of(libc::O_PATH, 0).is_err());
    }
}
