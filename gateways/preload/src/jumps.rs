//! How streams of the C library come to their descriptors. It reads and writes their descriptors by
//! calls of its own that nobody can take the place of, except in one table: the functions that do
//! so are entries of `_IO_file_jumps` and `_IO_wfile_jumps`, which the C library exports, as it
//! does the functions. Where the tables are what they are known to be, entry by entry, these five
//! become ours, which look whether the descriptor is Weft's. Where not, streams on Weft are
//! refused.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use libc::{FILE, off_t, size_t, ssize_t};

use crate::border::{errno, set_errno};
use crate::table;

/// A place in the C library's list of streams.
type Place = *mut c_void;

unsafe extern "C" {
    /// The descriptor of a stream.
    pub(crate) fn fileno_unlocked(file: *mut FILE) -> c_int;
    fn fflush_unlocked(file: *mut FILE) -> c_int;
    fn ftrylockfile(file: *mut FILE) -> c_int;
    fn funlockfile(file: *mut FILE);
    fn __fpending(file: *mut FILE) -> size_t;
    fn _IO_list_lock();
    fn _IO_list_unlock();
    fn _IO_iter_begin() -> Place;
    fn _IO_iter_end() -> Place;
    fn _IO_iter_next(place: Place) -> Place;
    fn _IO_iter_file(place: Place) -> *mut FILE;
}

/// Writes out what is left in streams. One that another thread is at work with, or waits in for
/// input, is passed over: a program does not wait for such a thread at its end either.
///
/// # Safety
/// The C library's list of streams is whole.
pub(crate) unsafe fn write_out() {
    _IO_list_lock();
    let mut place = _IO_iter_begin();
    while place != _IO_iter_end() {
        let file = _IO_iter_file(place);
        if ftrylockfile(file) == 0 {
            if __fpending(file) > 0 {
                fflush_unlocked(file);
            }
            funlockfile(file);
        }
        place = _IO_iter_next(place);
    }
    _IO_list_unlock();
}

/// Entries of a table: two that are unused, and behind them the functions. These are the places of
/// the five, with their names and ours.
const PLACES: [(usize, &CStr, usize); 5] = [
    (14, c"_IO_file_read", 0),
    (15, c"_IO_file_write", 1),
    (16, c"_IO_file_seek", 2),
    (17, c"_IO_file_close", 3),
    (18, c"_IO_file_stat", 4),
];

/// The C library's functions, in the order of [`PLACES`]; `None`: its tables are others.
static BEFORE: OnceLock<Option<[usize; 5]>> = OnceLock::new();

fn before() -> [usize; 5] {
    BEFORE.get().copied().flatten().unwrap_or([0; 5])
}

unsafe extern "C" fn read_stream(file: *mut FILE, buffer: *mut c_void, bytes: ssize_t) -> ssize_t {
    let fd = fileno_unlocked(file);
    if table::is_weft(fd) {
        return libc::read(fd, buffer, bytes as size_t);
    }
    let call: unsafe extern "C" fn(*mut FILE, *mut c_void, ssize_t) -> ssize_t = std::mem::transmute(before()[0]);
    call(file, buffer, bytes)
}

unsafe extern "C" fn write_stream(file: *mut FILE, data: *const c_void, bytes: ssize_t) -> ssize_t {
    let fd = fileno_unlocked(file);
    let call: unsafe extern "C" fn(*mut FILE, *const c_void, ssize_t) -> ssize_t = std::mem::transmute(before()[1]);
    if !table::is_weft(fd) {
        return call(file, data, bytes);
    }
    let mut done = 0;
    while done < bytes {
        let put = libc::write(fd, data.add(done as usize), (bytes - done) as size_t);
        if put <= 0 {
            // As the C library does; and a call of its own, of no bytes, that leaves the mark.
            let why = errno();
            mark_error(file);
            set_errno(why);
            break;
        }
        done += put;
    }
    // What it believes of its descriptor's offset: below 0 nothing.
    let offset = file.byte_add(OFFSET_PLACE).cast::<i64>();
    if *offset >= 0 {
        *offset += done as i64;
    }
    done
}

/// Where a stream has its offset, in bytes from its beginning (`_offset`). Programs are compiled
/// with these places, so they never change.
const OFFSET_PLACE: usize = 144;
/// `_IO_ERR_SEEN`, in the flags that a stream begins with.
const ERROR_SEEN: c_int = 0x20;

unsafe fn mark_error(file: *mut FILE) {
    *file.cast::<c_int>() |= ERROR_SEEN;
}

unsafe extern "C" fn seek_stream(file: *mut FILE, offset: off_t, whence: c_int) -> off_t {
    let fd = fileno_unlocked(file);
    if table::is_weft(fd) {
        return libc::lseek(fd, offset, whence);
    }
    let call: unsafe extern "C" fn(*mut FILE, off_t, c_int) -> off_t = std::mem::transmute(before()[2]);
    call(file, offset, whence)
}

unsafe extern "C" fn close_stream(file: *mut FILE) -> c_int {
    let fd = fileno_unlocked(file);
    if table::is_weft(fd) {
        return libc::close(fd);
    }
    let call: unsafe extern "C" fn(*mut FILE) -> c_int = std::mem::transmute(before()[3]);
    call(file)
}

unsafe extern "C" fn stat_stream(file: *mut FILE, to: *mut libc::stat) -> c_int {
    let fd = fileno_unlocked(file);
    if table::is_weft(fd) {
        return libc::fstat(fd, to);
    }
    let call: unsafe extern "C" fn(*mut FILE, *mut libc::stat) -> c_int = std::mem::transmute(before()[4]);
    call(file, to)
}

fn ours() -> [usize; 5] {
    [
        read_stream as *const () as usize,
        write_stream as *const () as usize,
        seek_stream as *const () as usize,
        close_stream as *const () as usize,
        stat_stream as *const () as usize,
    ]
}

/// Puts ours into the tables.
///
/// # Safety
/// Nothing else changes the tables meanwhile.
unsafe fn replace() -> Option<[usize; 5]> {
    let find = |name: &CStr| libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize;
    let known = PLACES.map(|(_, name, _)| find(name));
    let tables = [find(c"_IO_file_jumps"), find(c"_IO_wfile_jumps")];
    let is_known = |table: usize| table != 0 && PLACES.iter().all(|(place, _, at)| *(table as *const usize).add(*place) == known[*at]);
    if known.contains(&0) || !tables.into_iter().all(is_known) {
        return None;
    }
    let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
    for table in tables {
        let (first, end) = (table & !(page - 1), table + (PLACES[4].0 + 1) * size_of::<usize>());
        // They are read-only once the program is loaded, and are again afterwards.
        if libc::mprotect(first as *mut c_void, end - first, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return None;
        }
        for (place, _, at) in PLACES {
            (table as *mut usize).add(place).write_volatile(ours()[at]);
        }
        libc::mprotect(first as *mut c_void, end - first, libc::PROT_READ);
    }
    Some(known)
}

/// From now on streams may be on descriptors of Weft. False if this C library is another than is
/// known.
pub(crate) fn watch() -> bool {
    // SAFETY: once in a process.
    BEFORE.get_or_init(|| unsafe { replace() }).is_some()
}
