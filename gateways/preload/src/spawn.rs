//! `posix_spawn`. The C library's does everything by calls of its own; so where Weft is concerned
//! (something to hand on, or a path or descriptor of Weft among what is to be done first), a child
//! process is made here, and does it by ours.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{mode_t, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use crate::border::{errno, set_errno};
use crate::exec::{Strings, execute, search};
use crate::walk::locate;
use crate::{cwd, handing, opening, real, session, table};

/// What is to be done first, as the C library keeps it: a kind, and what belongs to it.
#[repr(C)]
struct Action {
    kind: c_int,
    with: With,
}

#[repr(C)]
#[derive(Clone, Copy)]
union With {
    one: c_int,
    two: [c_int; 2],
    open: Opening,
    path: *mut c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Opening {
    fd: c_int,
    path: *mut c_char,
    flags: c_int,
    mode: mode_t,
}

/// The beginning of `posix_spawn_file_actions_t` of glibc.
#[repr(C)]
struct Actions {
    allocated: c_int,
    used: c_int,
    all: *const Action,
}

const CLOSE: c_int = 0;
const DUP2: c_int = 1;
const OPEN: c_int = 2;
const CHDIR: c_int = 3;
const FCHDIR: c_int = 4;
const CLOSE_FROM: c_int = 5;

unsafe fn actions<'a>(given: *const posix_spawn_file_actions_t) -> &'a [Action] {
    match given.cast::<Actions>().as_ref() {
        Some(actions) if actions.used > 0 && !actions.all.is_null() => std::slice::from_raw_parts(actions.all, actions.used as usize),
        _ => &[],
    }
}

unsafe fn concerns_weft(path: *const c_char, given: *const posix_spawn_file_actions_t) -> bool {
    let is_path = |path: *const c_char| locate(libc::AT_FDCWD, path).is_some();
    let is_action = |action: &Action| match action.kind {
        OPEN => is_path(action.with.open.path),
        DUP2 => table::is_weft(action.with.two[0]),
        CHDIR => is_path(action.with.path),
        FCHDIR => table::is_weft(action.with.one),
        _ => false,
    };
    session::prefix().is_some() && (handing::is_needed() || is_path(path) || actions(given).iter().any(is_action))
}

/// Does one thing; false with `errno` if it cannot be done. `kept` stays open.
unsafe fn act(action: &Action, kept: c_int) -> bool {
    let with = &action.with;
    match action.kind {
        CLOSE => {
            opening::close(with.one);
            true
        }
        DUP2 if with.two[0] == with.two[1] => libc::fcntl(with.two[0], libc::F_SETFD, 0) >= 0,
        DUP2 => opening::dup2(with.two[0], with.two[1]) >= 0,
        OPEN => {
            let Opening { fd, path, flags, mode } = with.open;
            let new = opening::open(path, flags, mode);
            if new < 0 {
                return false;
            }
            if new != fd {
                let moved = opening::dup2(new, fd) >= 0;
                opening::close(new);
                return moved;
            }
            true
        }
        CHDIR => cwd::chdir(with.path) == 0,
        FCHDIR => cwd::fchdir(with.one) == 0,
        CLOSE_FROM => {
            let (first, kept) = (with.one as c_uint, kept as c_uint);
            opening::close_range(first, kept - 1, 0);
            opening::close_range(first.max(kept + 1), c_uint::MAX, 0);
            true
        }
        _ => {
            set_errno(libc::ENOSYS);
            false
        }
    }
}

/// What the attributes ask of the child; false with `errno` if it cannot be done.
unsafe fn apply(attr: *const posix_spawnattr_t) -> bool {
    let mut flags = 0;
    libc::posix_spawnattr_getflags(attr, &mut flags);
    let has = |flag: c_int| c_int::from(flags) & flag != 0;
    if has(libc::POSIX_SPAWN_SETSIGDEF) {
        let mut set = std::mem::zeroed();
        libc::posix_spawnattr_getsigdefault(attr, &mut set);
        (1..65).filter(|signal| libc::sigismember(&set, *signal) == 1).for_each(|signal| _ = libc::signal(signal, libc::SIG_DFL));
    }
    let mut is_done = true;
    if has(libc::POSIX_SPAWN_SETSCHEDPARAM | libc::POSIX_SPAWN_SETSCHEDULER) {
        let (mut parameters, mut policy) = (std::mem::zeroed(), 0);
        libc::posix_spawnattr_getschedparam(attr, &mut parameters);
        libc::posix_spawnattr_getschedpolicy(attr, &mut policy);
        is_done &= match has(libc::POSIX_SPAWN_SETSCHEDULER) {
            true => libc::sched_setscheduler(0, policy, &parameters) != -1,
            false => libc::sched_setparam(0, &parameters) == 0,
        };
    }
    if has(libc::POSIX_SPAWN_SETSID.into()) {
        is_done &= libc::setsid() >= 0;
    }
    if has(libc::POSIX_SPAWN_SETPGROUP) {
        let mut group = 0;
        libc::posix_spawnattr_getpgroup(attr, &mut group);
        is_done &= libc::setpgid(0, group) == 0;
    }
    if has(libc::POSIX_SPAWN_RESETIDS) {
        is_done &= libc::setegid(libc::getgid()) == 0 && libc::seteuid(libc::getuid()) == 0;
    }
    if has(libc::POSIX_SPAWN_SETSIGMASK) {
        let mut set = std::mem::zeroed();
        libc::posix_spawnattr_getsigmask(attr, &mut set);
        libc::pthread_sigmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
    is_done
}

unsafe fn spawn(
    pid: *mut pid_t,
    path: *const c_char,
    given: *const posix_spawn_file_actions_t,
    attr: *const posix_spawnattr_t,
    run: impl FnOnce(*const c_char) -> c_int,
) -> c_int {
    let mut pipe = [0; 2];
    if libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
        return errno();
    }
    // Above what actions name, and below what is this library's own.
    let high = libc::fcntl(pipe[1], libc::F_DUPFD_CLOEXEC, 255);
    let child = if high < 0 { -1 } else { libc::fork() };
    if child == 0 {
        let is_ready = (attr.is_null() || apply(attr)) && actions(given).iter().all(|action| act(action, high));
        if is_ready {
            run(path);
        }
        let why = errno();
        real::write(high, (&raw const why).cast(), size_of::<c_int>());
        libc::_exit(127);
    }
    let forked = errno();
    real::close(pipe[1]);
    if high >= 0 {
        real::close(high);
    }
    let mut why: c_int = 0;
    let told = if child < 0 {
        why = forked;
        0
    } else {
        loop {
            let got = real::read(pipe[0], (&raw mut why).cast(), size_of::<c_int>());
            if got >= 0 || errno() != libc::EINTR {
                break got;
            }
        }
    };
    real::close(pipe[0]);
    if told == size_of::<c_int>() as isize {
        libc::waitpid(child, std::ptr::null_mut(), 0);
    } else if child > 0 {
        why = 0;
        if !pid.is_null() {
            *pid = child;
        }
    }
    why
}

crate::border::calls! {
    fn posix_spawn(
        pid: *mut pid_t,
        path: *const c_char,
        given: *const posix_spawn_file_actions_t,
        attr: *const posix_spawnattr_t,
        argv: Strings,
        envp: Strings,
    ) -> c_int {
        if !concerns_weft(path, given) {
            return real::posix_spawn(pid, path, given.cast::<c_void>(), attr.cast::<c_void>(), argv, envp);
        }
        spawn(pid, path, given, attr, |path| execute(path, argv, envp))
    }

    fn posix_spawnp(
        pid: *mut pid_t,
        file: *const c_char,
        given: *const posix_spawn_file_actions_t,
        attr: *const posix_spawnattr_t,
        argv: Strings,
        envp: Strings,
    ) -> c_int {
        if !concerns_weft(file, given) {
            return real::posix_spawnp(pid, file, given.cast::<c_void>(), attr.cast::<c_void>(), argv, envp);
        }
        spawn(pid, file, given, attr, |file| search(file, argv, envp))
    }
}
