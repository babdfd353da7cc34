//! Files in memory. There is no page of the kernel behind a file of Weft, so a mapping is a copy:
//! one that others' changes would show in, or that would change the file, there is not.

use std::ffi::{c_int, c_void};

use libc::{off_t, size_t};

use crate::border::{Errno, Outcome, border, calls, checked, fail};
use crate::{data, real, table};

unsafe fn map(at: *mut c_void, bytes: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t) -> Outcome<*mut c_void> {
    let open = table::get(fd)?;
    if !open.reads() {
        return fail(libc::EACCES);
    }
    let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    if is_shared && access & libc::PROT_WRITE != 0 {
        return fail(libc::ENODEV);
    }
    // SAFETY: asks for a number.
    let page = libc::sysconf(libc::_SC_PAGESIZE);
    if bytes == 0 || offset < 0 || offset % page != 0 {
        return fail(libc::EINVAL);
    }
    // Checked before memory is taken: that there is something to be read.
    let file = open.file()?.share();
    let size = file.fs.run("stat", &open.path, async |posix| posix.getattr_open(file.number).await)?.size;
    let filled = size.saturating_sub(offset as u64).min(bytes as u64) as usize;
    let kept = flags & !(libc::MAP_TYPE | libc::MAP_POPULATE | libc::MAP_SYNC) | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let memory = real::mmap(at, bytes, libc::PROT_READ | libc::PROT_WRITE, kept, -1, 0);
    if memory == libc::MAP_FAILED {
        return Err(Errno(crate::border::errno()));
    }
    let copied = data::fill(&open, &file, std::slice::from_raw_parts_mut(memory.cast(), filled), offset as u64);
    let protected = copied.and_then(|_| match access == libc::PROT_READ | libc::PROT_WRITE {
        true => Ok(0),
        false => checked(libc::mprotect(memory, bytes, access)),
    });
    if let Err(error) = protected {
        libc::munmap(memory, bytes);
        return Err(error);
    }
    Ok(memory)
}

calls! {
    fn mmap | mmap64(at: *mut c_void, bytes: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void {
        if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 || !table::is_weft(fd) {
            return real::mmap(at, bytes, access, flags, fd, offset);
        }
        let mapped: *mut c_void = border(|| map(at, bytes, access, flags, fd, offset));
        if mapped.is_null() { libc::MAP_FAILED } else { mapped }
    }
}
