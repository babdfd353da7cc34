//! Listings of directories.

use std::ffi::{c_char, c_int};

use weft_base::Status;
use weft_library::Error;

use crate::border::{border, given, invalid, text};
use crate::types::{weft_attr, weft_dir, weft_entry, weft_fs};

/// Begins to list a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_opendir(fs: *mut weft_fs, path: *const c_char, with_attrs: c_int) -> *mut weft_dir {
    border(|| {
        // SAFETY: C's, as the header says.
        let (fs, path) = unsafe { (given(fs, "the file system")?, text(path, "the path")?) };
        Ok(Box::into_raw(Box::new(weft_dir(fs.0.list(path, with_attrs != 0)?))))
    })
}

/// The next entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_readdir(dir: *mut weft_dir, entry: *mut weft_entry) -> c_int {
    border(|| {
        // SAFETY: C's, as the header says; one thread at a time uses a listing.
        let (dir, entry) = unsafe { (dir.as_mut(), entry.as_mut()) };
        let (Some(dir), Some(entry)) = (dir, entry) else { return Err(invalid("the listing or the entry is NULL")) };
        let Some(found) = dir.0.next_entry()? else { return Ok(0) };
        let attr = found.attr.as_ref().map(weft_attr::from);
        entry.inode = found.handle.0;
        entry.kind = found.kind.mode_bits();
        entry.has_attr = attr.is_some().into();
        entry.attr = attr.unwrap_or_default();
        if found.name.len() >= entry.name.len() {
            return Err(Error::new(Status::NameTooLong, "list: a name is too long"));
        }
        entry.name.fill(0);
        entry.name.iter_mut().zip(&found.name).for_each(|(to, byte)| *to = *byte as c_char);
        Ok(1)
    })
}

/// Ends a listing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_closedir(dir: *mut weft_dir) -> c_int {
    border(|| {
        if !dir.is_null() {
            // SAFETY: it was made by `weft_opendir` and is given back once.
            drop(unsafe { Box::from_raw(dir) });
        }
        Ok(0)
    })
}
