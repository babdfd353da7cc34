//! The border to programs: what every call of ours does around its work.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_long};
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft_library::Error;

thread_local! {
    /// This thread is at work for Weft: calls of its own that come back to us go on to the C
    /// library.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// What this thread kept for itself is gone: it is about to end.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
    /// Made by a thread's first work, and so dropped after everything that work makes.
    static ENDING: Ending = const { Ending };
}

struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        IS_ENDING.set(true);
    }
}

/// Work that is handed to another thread, which is waited for.
struct Handed<T>(T);

// SAFETY: the two threads never run at the same time.
unsafe impl<T> Send for Handed<T> {}

/// Does the work here, or, when this thread is ending, on another one: the main thread of a program
/// has nothing of its own any more when it writes what is left in its streams.
fn somewhere<T>(call: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    if !IS_ENDING.get() {
        // If it is gone the flag was set.
        let _ = ENDING.try_with(|_| ());
        return call();
    }
    let handed = Handed(call);
    std::thread::scope(|scope| {
        let work = move || {
            stay_inside();
            // All of it, not the field: only that may be handed over.
            let handed = handed;
            Handed((handed.0)())
        };
        let done = std::thread::Builder::new().name("weft-last".into()).spawn_scoped(scope, work).map_err(|_| Errno(libc::EAGAIN))?;
        done.join().map_or_else(|panic| std::panic::resume_unwind(panic), |Handed(outcome)| outcome)
    })
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc.
const CANCEL_DISABLE: c_int = 1;

/// Why a call failed: an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub c_int);

/// Result of the work behind a call.
pub(crate) type Outcome<T> = Result<T, Errno>;

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        Errno(error.errno())
    }
}

/// An errno as an outcome.
pub(crate) fn fail<T>(errno: c_int) -> Outcome<T> {
    Err(Errno(errno))
}

/// What a failed call returns.
pub(crate) trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: c_int = -1;
}

impl Failed for c_long {
    const FAILED: c_long = -1;
}

impl Failed for isize {
    const FAILED: isize = -1;
}

impl<T> Failed for *mut T {
    const FAILED: *mut T = std::ptr::null_mut();
}

/// True while this thread is at work for Weft.
#[inline]
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// This thread is Weft's, for ever.
pub(crate) fn stay_inside() {
    INSIDE.set(true);
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the address is that of this thread's `errno`.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The outcome of a call of the C library that says -1 and `errno`.
pub(crate) fn checked<T: Failed + PartialEq>(result: T) -> Outcome<T> {
    if result == T::FAILED { fail(errno()) } else { Ok(result) }
}

/// Does the work of a call: no panic gets out, the thread is not cancelled within, and `errno`
/// changes only if it fails. Work for Weft within work for Weft, as of a signal handler that
/// interrupts it, is refused with EDEADLK: it would wait for itself.
pub(crate) fn border<T: Failed>(call: impl FnOnce() -> Outcome<T>) -> T {
    let before = errno();
    if INSIDE.replace(true) {
        set_errno(libc::EDEADLK);
        return T::FAILED;
    }
    let mut cancel = 0;
    // SAFETY: writes one number.
    unsafe { pthread_setcancelstate(CANCEL_DISABLE, &mut cancel) };
    let outcome = catch_unwind(AssertUnwindSafe(|| somewhere(call)));
    // SAFETY: as above.
    unsafe { pthread_setcancelstate(cancel, &mut cancel) };
    INSIDE.set(false);
    match outcome {
        Ok(Ok(value)) => {
            set_errno(before);
            value
        }
        Ok(Err(Errno(errno))) => {
            set_errno(errno);
            T::FAILED
        }
        Err(_) => {
            tell("an error in this library: the call was not done");
            set_errno(libc::EIO);
            T::FAILED
        }
    }
}

/// The same for what returns its errno, as some calls of POSIX do.
pub(crate) fn border_errno(call: impl FnOnce() -> Outcome<()>) -> c_int {
    let before = errno();
    let result = border(|| call().map(|()| 0));
    let found = errno();
    set_errno(before);
    if result == 0 { 0 } else { found }
}

/// Work that nobody hears the end of.
pub(crate) fn quietly(call: impl FnOnce()) {
    let before = errno();
    border(|| {
        call();
        Ok(0)
    });
    set_errno(before);
}

/// A line for the person before the terminal, where an errno would not be understood.
pub(crate) fn tell(words: &str) {
    let line = format!("libweft_preload: {words}\n");
    // SAFETY: reads so many bytes of the line. Nobody can be told if it fails.
    unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, line.as_ptr(), line.len()) };
}

/// The bytes of a string of C. A null pointer is EFAULT.
///
/// # Safety
/// It is null or a string that ends with NUL and is not changed meanwhile.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Outcome<&'a [u8]> {
    if pointer.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Memory that a program has given to be read. A null pointer is EFAULT.
///
/// # Safety
/// It is null or so many bytes are there.
pub(crate) unsafe fn memory<'a>(pointer: *const std::ffi::c_void, bytes: usize) -> Outcome<&'a [u8]> {
    match bytes {
        0 => Ok(&[]),
        _ if pointer.is_null() => fail(libc::EFAULT),
        _ if bytes > isize::MAX as usize => fail(libc::EINVAL),
        // SAFETY: the caller's.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), bytes) }),
    }
}

/// The same to be written.
///
/// # Safety
/// As above, and nobody else uses it meanwhile.
pub(crate) unsafe fn memory_mut<'a>(pointer: *mut std::ffi::c_void, bytes: usize) -> Outcome<&'a mut [u8]> {
    match bytes {
        0 => Ok(&mut []),
        _ if pointer.is_null() => fail(libc::EFAULT),
        _ if bytes > isize::MAX as usize => fail(libc::EINVAL),
        // SAFETY: the caller's.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), bytes) }),
    }
}

/// Exports functions under the names that programs call, each also under other names that mean the
/// same on this machine.
macro_rules! calls {
    ($( $(#[$doc:meta])* fn $name:ident $(| $alias:ident)* ($($args:tt)*) -> $result:ty $body:block )*) => { $(
        $(#[$doc])*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($args)*) -> $result $body
        $crate::border::calls! { @aliases [$($alias)*] $name ($($args)*) $result }
    )* };
    (@aliases [$($alias:ident)*] $name:ident $args:tt $result:ty) => {
        $( $crate::border::calls! { @alias $alias $name $args $result } )*
    };
    (@alias $alias:ident $name:ident ($($arg:ident: $kind:ty),* $(,)?) $result:ty) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $alias($($arg: $kind),*) -> $result {
            $name($($arg),*)
        }
    };
}
pub(crate) use calls;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_changes_only_with_a_failure() {
        set_errno(7);
        assert_eq!((border(|| Ok(3)), errno()), (3, 7));
        assert_eq!((border(|| fail::<c_int>(libc::ENOENT)), errno()), (-1, libc::ENOENT));
        set_errno(7);
        assert_eq!((border_errno(|| fail(libc::EINVAL)), errno()), (libc::EINVAL, 7));
        assert_eq!(border_errno(|| Ok(())), 0);
    }

    #[test]
    fn a_panic_is_eio_and_work_within_work_is_refused() {
        let silent = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let value: c_int = border(|| panic!("inside"));
        std::panic::set_hook(silent);
        assert_eq!((value, errno(), is_inside()), (-1, libc::EIO, false));
        let inner = border(|| Ok(border(|| Ok(1)) * 10 + errno()));
        assert_eq!(inner, -10 + libc::EDEADLK);
    }
}
