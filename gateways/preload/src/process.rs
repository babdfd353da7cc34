//! The life of the process: its beginning, its children, who it is, and its end.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};

use libc::{gid_t, pid_t, size_t, uid_t};

use crate::border::{calls, is_inside, quietly};
use crate::{handing, jumps, real, session, table};

/// What the forking thread holds.
struct Forking(UnsafeCell<Option<(session::Held, table::Held)>>);

// SAFETY: only the thread that forks uses it, and the C library lets one do so at a time.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

extern "C" fn before_fork() {
    // A thread that is at work for Weft and forks all the same may hold any lock: its child must
    // not use Weft, and does not get to.
    if session::prefix().is_some() && !is_inside() {
        // SAFETY: see `Forking`.
        unsafe { *FORKING.0.get() = Some((session::hold(), table::hold())) };
    }
}

extern "C" fn in_parent() {
    // SAFETY: see `Forking`.
    unsafe { *FORKING.0.get() = None };
}

extern "C" fn in_child() {
    // SAFETY: see `Forking`; there is no other thread.
    unsafe {
        if let Some((session, table)) = &mut *FORKING.0.get() {
            session::inherit(session);
            table::inherit(table);
        }
        *FORKING.0.get() = None;
    }
}

unsafe extern "C" {
    fn at_quick_exit(handler: extern "C" fn()) -> c_int;
}

/// At the end of `quick_exit`, which writes out no streams.
extern "C" fn end_quickly() {
    if !is_inside() {
        quietly(session::leave);
    }
}

/// Before the program begins.
extern "C" fn begin() {
    if session::prefix().is_none() {
        return;
    }
    // SAFETY: the handlers are there as long as this library is.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
        // What is registered first is done last.
        at_quick_exit(end_quickly);
    }
    quietly(handing::take_over);
}

/// After the program has ended, and everything that it wanted to be done at its end.
extern "C" fn end() {
    if session::prefix().is_some() && !is_inside() {
        // The C library itself does so later still.
        // SAFETY: the C library is as it was when the program ended.
        unsafe { jumps::write_out() };
        quietly(session::leave);
    }
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// A change of the user or of groups that was made.
unsafe fn changed(result: c_int) -> c_int {
    if result == 0 && session::prefix().is_some() {
        quietly(session::change_user);
    }
    result
}

calls! {
    fn _exit | _Exit(code: c_int) -> ! {
        if session::prefix().is_some() && !is_inside() {
            quietly(session::leave);
        }
        libc::syscall(libc::SYS_exit_group, code);
        std::hint::unreachable_unchecked()
    }

    // The child of a `vfork` would share this library's memory with its parent, and not its
    // descriptors.
    fn vfork | __vfork() -> pid_t { libc::fork() }

    fn setuid(uid: uid_t) -> c_int { changed(real::setuid(uid)) }

    fn seteuid(uid: uid_t) -> c_int { changed(real::seteuid(uid)) }

    fn setreuid(uid: uid_t, effective: uid_t) -> c_int { changed(real::setreuid(uid, effective)) }

    fn setresuid(uid: uid_t, effective: uid_t, saved: uid_t) -> c_int { changed(real::setresuid(uid, effective, saved)) }

    fn setgid(gid: gid_t) -> c_int { changed(real::setgid(gid)) }

    fn setegid(gid: gid_t) -> c_int { changed(real::setegid(gid)) }

    fn setregid(gid: gid_t, effective: gid_t) -> c_int { changed(real::setregid(gid, effective)) }

    fn setresgid(gid: gid_t, effective: gid_t, saved: gid_t) -> c_int { changed(real::setresgid(gid, effective, saved)) }

    fn setgroups(count: size_t, groups: *const gid_t) -> c_int { changed(real::setgroups(count, groups)) }

    fn initgroups(user: *const c_char, group: gid_t) -> c_int { changed(real::initgroups(user, group)) }
}
