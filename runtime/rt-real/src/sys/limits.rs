//! Limits that whoever starts a process sets for it.

/// Makes the limit of the size of files (`ulimit -f`) an error of who writes beyond it, and not the
/// end of the process. Programs that this process starts, and one that wants the signal ignored,
/// see no difference.
pub fn outlive_the_file_size_limit() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing; `exec` gives the program the action of before.
    unsafe {
        let before = libc::signal(libc::SIGXFSZ, nothing as extern "C" fn(libc::c_int) as libc::sighandler_t);
        if before != libc::SIG_DFL {
            libc::signal(libc::SIGXFSZ, before);
        }
    }
}

/// Where the addresses of this process are limited (`ulimit -v`), all threads share one heap: the C
/// library otherwise sets addresses of 128 MiB aside for almost each of them, and memory ends long
/// before much is used. Threads that wait for each other then cost less than an end. To be called
/// before there are threads.
pub fn do_with_few_addresses() {
    #[cfg(target_env = "gnu")]
    if are_addresses_limited() {
        // SAFETY: it sets a number, and there are no other threads.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// True if the addresses of this process are limited (`ulimit -v`).
pub(super) fn are_addresses_limited() -> bool {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes to a structure of ours.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    asked == 0 && limit.rlim_cur != libc::RLIM_INFINITY
}
