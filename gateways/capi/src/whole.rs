//! Whole files, many at a time.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use bytes::Bytes;

use crate::border::{border, fail, given, memory, memory_mut, text};
use crate::types::{weft_fs, weft_whole};

/// Reads whole files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_read_many(fs: *mut weft_fs, paths: *const *const c_char, count: usize, files: *mut weft_whole) -> i64 {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, names, files) = unsafe { (given(fs, "the file system")?, memory(paths, count)?, memory_mut(files, count)?) };
        let mut paths = Vec::with_capacity(count);
        for name in names {
            // SAFETY: C's strings.
            paths.push(Bytes::copy_from_slice(unsafe { text(*name, "a path") }?));
        }
        let mut failed = 0;
        for (file, result) in files.iter_mut().zip(fs.0.read_many(&paths)) {
            *file = match result {
                Ok(data) => {
                    let (first, bytes) = (data.as_ptr().cast::<c_void>(), data.len());
                    // The bytes are where they are until the owner is dropped.
                    weft_whole { data: first, bytes, error: 0, owner: Box::into_raw(Box::new(data)).cast() }
                }
                Err(error) => {
                    if failed == 0 {
                        fail(error.errno(), &error.text);
                    }
                    failed += 1;
                    weft_whole { data: null(), bytes: 0, error: error.errno(), owner: null_mut() }
                }
            };
        }
        Ok(failed)
    })
}

/// Makes or replaces a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_put(fs: *mut weft_fs, path: *const c_char, data: *const c_void, bytes: usize, mode: u32) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, path, data) = unsafe { (given(fs, "the file system")?, text(path, "a path")?, memory(data.cast::<u8>(), bytes)?) };
        fs.0.put(path, mode, false, &Bytes::copy_from_slice(data))?;
        Ok(0)
    })
}

/// Gives back what [`weft_read_many`] has filled in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_free_many(files: *mut weft_whole, count: usize) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says.
        let files = unsafe { memory_mut(files, count) }?;
        for file in files {
            if !file.owner.is_null() {
                // SAFETY: it was made by `weft_read_many`, and is taken out here.
                drop(unsafe { Box::from_raw(file.owner.cast::<Bytes>()) });
            }
            *file = weft_whole { data: null(), bytes: 0, error: 0, owner: null_mut() };
        }
        Ok(0)
    })
}
