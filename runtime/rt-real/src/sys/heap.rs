//! The heap of the process.

/// Gives memory that was freed back to the system. The C library does so by itself at the end of
/// its heap alone: one small piece there that is in use keeps all before it. Takes some 10 ms for
/// each 100 MB; meanwhile other threads wait who want more memory than they have at hand. Nothing
/// is done with other C libraries than GNU's.
pub fn give_freed_memory_back() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it takes a number, and any thread may call it at any time.
        unsafe { libc::malloc_trim(0) };
    }
}
