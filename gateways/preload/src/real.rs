//! The calls behind ours: the same names in the next library, which is the C library unless another
//! one was preloaded, too.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{DIR, FILE, dev_t, gid_t, iovec, mode_t, off_t, pid_t, size_t, ssize_t, uid_t};

/// The address of a name in the next library; remembered.
fn find(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = place.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a name that ends with NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        crate::border::tell(&format!("this C library has no {}", name.to_string_lossy()));
        // SAFETY: there is nothing that the caller could be answered.
        unsafe { libc::abort() };
    }
    place.store(found, Ordering::Relaxed);
    found
}

macro_rules! next {
    ($( fn $name:ident($($arg:ident: $kind:ty),* $(; $more:ident: $last:ty)?) $(-> $result:ty)?; )*) => { $(
        /// The call of this name.
        pub(crate) unsafe fn $name($($arg: $kind),* $(, $more: $last)?) $(-> $result)? {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name of a function"),
            };
            let call = find(&NEXT, NAME);
            let call: next!(@kind ($($kind),*) $(; $last)? => $($result)?) = transmute(call);
            call($($arg),* $(, $more)?)
        }
    )* };
    (@kind ($($kind:ty),*) => $($result:ty)?) => { unsafe extern "C" fn($($kind),*) $(-> $result)? };
    (@kind ($($kind:ty),*); $last:ty => $($result:ty)?) => { unsafe extern "C" fn($($kind),*, ...) $(-> $result)? };
}

type Path = *const c_char;
type Strings = *const *const c_char;

// What follows a semicolon is C's `...`.
next! {
    fn open(path: Path, flags: c_int; mode: mode_t) -> c_int;
    fn openat(dir: c_int, path: Path, flags: c_int; mode: mode_t) -> c_int;
    fn fcntl(fd: c_int, command: c_int; arg: usize) -> c_int;
    fn ioctl(fd: c_int, request: libc::Ioctl; arg: usize) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn closefrom(first: c_int);
    fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t;
    fn write(fd: c_int, data: *const c_void, bytes: size_t) -> ssize_t;
    fn pread(fd: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t;
    fn pwrite(fd: c_int, data: *const c_void, bytes: size_t, offset: off_t) -> ssize_t;
    fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t;
    fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t;
    fn preadv(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn pwritev(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn preadv2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn pwritev2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fn fsync(fd: c_int) -> c_int;
    fn fdatasync(fd: c_int) -> c_int;
    fn syncfs(fd: c_int) -> c_int;
    fn sync_file_range(fd: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int;
    fn ftruncate(fd: c_int, bytes: off_t) -> c_int;
    fn truncate(path: Path, bytes: off_t) -> c_int;
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int;
    fn posix_fallocate(fd: c_int, offset: off_t, bytes: off_t) -> c_int;
    fn posix_fadvise(fd: c_int, offset: off_t, bytes: off_t, advice: c_int) -> c_int;
    fn readahead(fd: c_int, offset: off_t, bytes: size_t) -> ssize_t;
    fn sendfile(out: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t;
    fn copy_file_range(from: c_int, at: *mut off_t, out: c_int, to: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t;
    fn splice(from: c_int, at: *mut off_t, out: c_int, to: *mut off_t, bytes: size_t, flags: c_uint) -> ssize_t;
    fn mmap(at: *mut c_void, bytes: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    fn flock(fd: c_int, operation: c_int) -> c_int;
    fn lockf(fd: c_int, command: c_int, bytes: off_t) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fstatat(dir: c_int, path: Path, to: *mut libc::stat, flags: c_int) -> c_int;
    fn fstat(fd: c_int, to: *mut libc::stat) -> c_int;
    fn statx(dir: c_int, path: Path, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int;
    fn faccessat(dir: c_int, path: Path, mode: c_int, flags: c_int) -> c_int;
    fn statfs(path: Path, to: *mut libc::statfs) -> c_int;
    fn fstatfs(fd: c_int, to: *mut libc::statfs) -> c_int;
    fn statvfs(path: Path, to: *mut libc::statvfs) -> c_int;
    fn fstatvfs(fd: c_int, to: *mut libc::statvfs) -> c_int;
    fn pathconf(path: Path, name: c_int) -> c_long;
    fn fpathconf(fd: c_int, name: c_int) -> c_long;
    fn fchmodat(dir: c_int, path: Path, mode: mode_t, flags: c_int) -> c_int;
    fn fchmod(fd: c_int, mode: mode_t) -> c_int;
    fn fchownat(dir: c_int, path: Path, uid: uid_t, gid: gid_t, flags: c_int) -> c_int;
    fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int;
    fn utimensat(dir: c_int, path: Path, times: *const libc::timespec, flags: c_int) -> c_int;
    fn futimens(fd: c_int, times: *const libc::timespec) -> c_int;
    fn umask(mask: mode_t) -> mode_t;
    fn mkdirat(dir: c_int, path: Path, mode: mode_t) -> c_int;
    fn mknodat(dir: c_int, path: Path, mode: mode_t, device: dev_t) -> c_int;
    fn unlinkat(dir: c_int, path: Path, flags: c_int) -> c_int;
    fn remove(path: Path) -> c_int;
    fn renameat2(from_dir: c_int, from: Path, to_dir: c_int, to: Path, flags: c_uint) -> c_int;
    fn linkat(from_dir: c_int, from: Path, to_dir: c_int, to: Path, flags: c_int) -> c_int;
    fn symlinkat(target: Path, dir: c_int, path: Path) -> c_int;
    fn readlinkat(dir: c_int, path: Path, to: *mut c_char, bytes: size_t) -> ssize_t;
    fn realpath(path: Path, to: *mut c_char) -> *mut c_char;
    fn chdir(path: Path) -> c_int;
    fn fchdir(fd: c_int) -> c_int;
    fn chroot(path: Path) -> c_int;
    fn getcwd(to: *mut c_char, bytes: size_t) -> *mut c_char;
    fn getxattr(path: Path, name: Path, to: *mut c_void, bytes: size_t) -> ssize_t;
    fn lgetxattr(path: Path, name: Path, to: *mut c_void, bytes: size_t) -> ssize_t;
    fn fgetxattr(fd: c_int, name: Path, to: *mut c_void, bytes: size_t) -> ssize_t;
    fn setxattr(path: Path, name: Path, from: *const c_void, bytes: size_t, flags: c_int) -> c_int;
    fn lsetxattr(path: Path, name: Path, from: *const c_void, bytes: size_t, flags: c_int) -> c_int;
    fn fsetxattr(fd: c_int, name: Path, from: *const c_void, bytes: size_t, flags: c_int) -> c_int;
    fn listxattr(path: Path, to: *mut c_char, bytes: size_t) -> ssize_t;
    fn llistxattr(path: Path, to: *mut c_char, bytes: size_t) -> ssize_t;
    fn flistxattr(fd: c_int, to: *mut c_char, bytes: size_t) -> ssize_t;
    fn removexattr(path: Path, name: Path) -> c_int;
    fn lremovexattr(path: Path, name: Path) -> c_int;
    fn fremovexattr(fd: c_int, name: Path) -> c_int;
    fn opendir(path: Path) -> *mut DIR;
    fn fdopendir(fd: c_int) -> *mut DIR;
    fn readdir(dir: *mut DIR) -> *mut libc::dirent64;
    fn readdir_r(dir: *mut DIR, entry: *mut libc::dirent64, result: *mut *mut libc::dirent64) -> c_int;
    fn closedir(dir: *mut DIR) -> c_int;
    fn rewinddir(dir: *mut DIR);
    fn seekdir(dir: *mut DIR, place: c_long);
    fn telldir(dir: *mut DIR) -> c_long;
    fn dirfd(dir: *mut DIR) -> c_int;
    fn scandirat(dir: c_int, path: Path, list: *mut c_void, keep: *const c_void, order: *const c_void) -> c_int;
    fn glob(pattern: Path, flags: c_int, failed: *const c_void, found: *mut libc::glob64_t) -> c_int;
    fn nftw(path: Path, visit: *const c_void, depth: c_int, flags: c_int) -> c_int;
    fn ftw(path: Path, visit: *const c_void, depth: c_int) -> c_int;
    fn mkdtemp(template: *mut c_char) -> *mut c_char;
    fn mkostemps(template: *mut c_char, behind: c_int, flags: c_int) -> c_int;
    fn fopen(path: Path, mode: Path) -> *mut FILE;
    fn fdopen(fd: c_int, mode: Path) -> *mut FILE;
    fn freopen(path: Path, mode: Path, file: *mut FILE) -> *mut FILE;
    fn popen(command: Path, mode: Path) -> *mut FILE;
    fn system(command: Path) -> c_int;
    fn execve(path: Path, argv: Strings, envp: Strings) -> c_int;
    fn execvpe(file: Path, argv: Strings, envp: Strings) -> c_int;
    fn execveat(dir: c_int, path: Path, argv: Strings, envp: Strings, flags: c_int) -> c_int;
    fn posix_spawn(pid: *mut pid_t, path: Path, actions: *const c_void, attr: *const c_void, argv: Strings, envp: Strings) -> c_int;
    fn posix_spawnp(pid: *mut pid_t, file: Path, actions: *const c_void, attr: *const c_void, argv: Strings, envp: Strings) -> c_int;
    fn setuid(uid: uid_t) -> c_int;
    fn seteuid(uid: uid_t) -> c_int;
    fn setreuid(uid: uid_t, effective: uid_t) -> c_int;
    fn setresuid(uid: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    fn setgid(gid: gid_t) -> c_int;
    fn setegid(gid: gid_t) -> c_int;
    fn setregid(gid: gid_t, effective: gid_t) -> c_int;
    fn setresgid(gid: gid_t, effective: gid_t, saved: gid_t) -> c_int;
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int;
    fn initgroups(user: Path, group: gid_t) -> c_int;
}
