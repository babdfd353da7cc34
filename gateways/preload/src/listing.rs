//! Listings of directories. A `DIR` of Weft is a struct of this library; it begins with a number
//! that no `DIR` of the C library begins with, where that has its descriptor.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::Arc;

use libc::{DIR, dirent64};
use weft_base::FileKind;
use weft_host::door::ProgramFs;

use crate::border::{Outcome, border, calls, errno, fail, quietly, set_errno};
use crate::table::Open;
use crate::walk::locate;
use crate::{opening, real, session, table};

/// "WeftLIST": as a descriptor, one that there cannot be.
const MARK: u64 = u64::from_le_bytes(*b"WeftLIST");

/// A listing.
#[repr(C)]
struct Listing {
    mark: u64,
    fd: c_int,
    open: Arc<Open>,
    /// The listing in the file system, by its number.
    number: Option<(Arc<ProgramFs>, u64)>,
    /// Behind which entry the next page begins.
    behind: u64,
    /// Behind which entry the program is.
    place: u64,
    page: VecDeque<Item>,
    shown: dirent64,
}

struct Item {
    cookie: u64,
    inode: u64,
    kind: FileKind,
    name: Vec<u8>,
}

impl Listing {
    fn begin(&mut self, at: u64) {
        self.page.clear();
        (self.behind, self.place) = (at, at);
        self.end_number();
    }

    fn end_number(&mut self) {
        if let Some((fs, number)) = self.number.take() {
            fs.posix().close_dir(number);
        }
    }

    /// The next entry; `None` at the end.
    fn next(&mut self) -> Outcome<Option<&mut dirent64>> {
        if self.page.is_empty() {
            self.read_page()?;
        }
        let Some(item) = self.page.pop_front() else { return Ok(None) };
        self.place = item.cookie;
        let shown = &mut self.shown;
        if item.name.len() >= shown.d_name.len() {
            return fail(libc::EOVERFLOW);
        }
        shown.d_ino = item.inode;
        shown.d_off = item.cookie as i64;
        shown.d_reclen = size_of::<dirent64>() as u16;
        shown.d_type = (item.kind.mode_bits() >> 12) as u8;
        shown.d_name.fill(0);
        shown.d_name.iter_mut().zip(&item.name).for_each(|(to, byte)| *to = *byte as c_char);
        Ok(Some(shown))
    }

    fn read_page(&mut self) -> Outcome<()> {
        let fs = session::fs()?;
        // In a child process, or after a change of the user, it is begun anew at the same place.
        let is_own = self.number.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, &fs));
        if !is_own {
            let number = fs.posix().open_dir(self.open.node);
            self.number = Some((fs.clone(), number));
        }
        let number = self.number.as_ref().map_or(0, |(_, number)| *number);
        let (behind, page) = (self.behind, &mut self.page);
        fs.run("list", &self.open.path, async |posix| {
            let add = |listed: weft_posix::Listed<'_>| {
                let inode = listed.node.handle().0;
                page.push_back(Item { cookie: listed.cookie, inode, kind: listed.kind, name: listed.name.to_vec() });
                false
            };
            posix.list(number, fs.who(), behind, false, add).await
        })?;
        self.behind = self.page.back().map_or(self.behind, |last| last.cookie);
        Ok(())
    }
}

/// A listing of Weft's.
unsafe fn listing<'a>(dir: *mut DIR) -> Option<&'a mut Listing> {
    let listing = dir.cast::<Listing>();
    if dir.is_null() || (&raw const (*listing).mark).read_unaligned() != MARK {
        return None;
    }
    listing.as_mut()
}

fn list(fd: c_int) -> Outcome<*mut DIR> {
    let open = table::get(fd)?;
    if open.kind != FileKind::Directory {
        return fail(libc::ENOTDIR);
    }
    if !open.reads() {
        return fail(libc::EBADF);
    }
    // SAFETY: plain numbers, which may be 0.
    let shown = unsafe { std::mem::zeroed() };
    let listing = Listing { mark: MARK, fd, open, number: None, behind: 0, place: 0, page: VecDeque::new(), shown };
    Ok(Box::into_raw(Box::new(listing)).cast())
}

/// Opens a directory of Weft for listing.
fn open_listing(begin: &crate::walk::Begin) -> Outcome<*mut DIR> {
    let fd = opening::open_inside(begin, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0)?;
    if !table::is_weft(fd) {
        // It led outside. SAFETY: the descriptor is the listing's.
        return Ok(unsafe { real::fdopendir(fd) });
    }
    list(fd)
}

/// Fails for a directory that may not be read, as an open of the kernel does.
fn check_readable(dir: *mut DIR) -> Outcome<*mut DIR> {
    // SAFETY: it was made just now.
    if let Some(listing) = unsafe { listing(dir) }
        && let Err(error) = listing.read_page()
    {
        let fd = listing.fd;
        // SAFETY: as above; nobody else knows it.
        drop(unsafe { Box::from_raw(dir.cast::<Listing>()) });
        table::remove(fd);
        crate::reserve::give_back(fd);
        return Err(error);
    }
    Ok(dir)
}

calls! {
    fn opendir(path: *const c_char) -> *mut DIR {
        match locate(libc::AT_FDCWD, path) {
            None => real::opendir(path),
            Some(begin) => border(|| check_readable(open_listing(&begin)?)),
        }
    }

    fn fdopendir(fd: c_int) -> *mut DIR {
        if table::is_weft(fd) { border(|| list(fd)) } else { real::fdopendir(fd) }
    }

    fn readdir | readdir64(dir: *mut DIR) -> *mut dirent64 {
        let Some(listing) = listing(dir) else { return real::readdir(dir) };
        border(|| Ok(listing.next()?.map_or(std::ptr::null_mut(), |shown| shown)))
    }

    fn readdir_r | readdir64_r(dir: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64) -> c_int {
        if listing(dir).is_none() {
            return real::readdir_r(dir, entry, result);
        }
        let before = errno();
        set_errno(0);
        let found = readdir(dir);
        *result = std::ptr::null_mut();
        let why = errno();
        if !found.is_null() {
            *entry = *found;
            *result = entry;
        }
        set_errno(before);
        if found.is_null() { why } else { 0 }
    }

    fn closedir(dir: *mut DIR) -> c_int {
        let Some(listing) = listing(dir) else { return real::closedir(dir) };
        let fd = listing.fd;
        let mut listing = Box::from_raw(dir.cast::<Listing>());
        listing.mark = 0;
        quietly(|| {
            listing.end_number();
            drop(listing);
        });
        opening::close(fd)
    }

    fn rewinddir(dir: *mut DIR) -> () {
        match listing(dir) {
            None => real::rewinddir(dir),
            Some(listing) => quietly(|| listing.begin(0)),
        }
    }

    fn seekdir(dir: *mut DIR, place: c_long) -> () {
        match listing(dir) {
            None => real::seekdir(dir, place),
            Some(listing) => quietly(|| listing.begin(place as u64)),
        }
    }

    fn telldir(dir: *mut DIR) -> c_long {
        match listing(dir) {
            None => real::telldir(dir),
            Some(listing) => listing.place as c_long,
        }
    }

    fn dirfd(dir: *mut DIR) -> c_int {
        match listing(dir) {
            None => real::dirfd(dir),
            Some(listing) => listing.fd,
        }
    }

    fn getdents64(fd: c_int, buffer: *mut c_void, bytes: libc::size_t) -> libc::ssize_t {
        if !table::is_weft(fd) {
            return libc::syscall(libc::SYS_getdents64, fd, buffer, bytes) as libc::ssize_t;
        }
        // Its place would have to be the offset of the descriptor.
        border(|| fail(libc::EOPNOTSUPP))
    }

    fn scandirat | scandirat64(
        dir: c_int,
        path: *const c_char,
        list: *mut *mut *mut dirent64,
        keep: Option<unsafe extern "C" fn(*const dirent64) -> c_int>,
        order: Option<unsafe extern "C" fn(*mut *const dirent64, *mut *const dirent64) -> c_int>,
    ) -> c_int {
        let Some(begin) = locate(dir, path) else {
            let (keep, order) = (keep.map_or(std::ptr::null(), |call| call as *const c_void), order.map_or(std::ptr::null(), |call| call as *const c_void));
            return real::scandirat(dir, path, list.cast(), keep, order);
        };
        let dir: *mut DIR = border(|| check_readable(open_listing(&begin)?));
        if dir.is_null() {
            return -1;
        }
        let mut found: Vec<*mut dirent64> = Vec::new();
        set_errno(0);
        loop {
            let entry = readdir(dir);
            if entry.is_null() {
                break;
            }
            if keep.is_none_or(|keep| keep(entry) != 0) {
                let copy = libc::malloc(size_of::<dirent64>()).cast::<dirent64>();
                if copy.is_null() {
                    break;
                }
                *copy = *entry;
                found.push(copy);
            }
            set_errno(0);
        }
        let why = errno();
        closedir(dir);
        let array = libc::malloc((found.len().max(1)) * size_of::<*mut dirent64>()).cast::<*mut dirent64>();
        if why != 0 || array.is_null() {
            found.into_iter().for_each(|entry| libc::free(entry.cast()));
            libc::free(array.cast());
            set_errno(if why == 0 { libc::ENOMEM } else { why });
            return -1;
        }
        found.iter().enumerate().for_each(|(at, entry)| *array.add(at) = *entry);
        if let Some(order) = order {
            let order: unsafe extern "C" fn(*const c_void, *const c_void) -> c_int = std::mem::transmute(order);
            libc::qsort(array.cast(), found.len(), size_of::<*mut dirent64>(), Some(order));
        }
        *list = array;
        found.len() as c_int
    }

    fn scandir | scandir64(
        path: *const c_char,
        list: *mut *mut *mut dirent64,
        keep: Option<unsafe extern "C" fn(*const dirent64) -> c_int>,
        order: Option<unsafe extern "C" fn(*mut *const dirent64, *mut *const dirent64) -> c_int>,
    ) -> c_int {
        scandirat(libc::AT_FDCWD, path, list, keep, order)
    }
}
