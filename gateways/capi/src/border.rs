//! The border to C: what comes in is checked, what goes out is a value, `errno` and a text.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft_base::Status;
use weft_library::{Error, Result};

thread_local! {
    /// Of the last call of this thread that failed.
    static LAST: RefCell<CString> = RefCell::default();
}

/// What a failed call returns.
pub(crate) trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: c_int = -1;
}

impl Failed for i64 {
    const FAILED: i64 = -1;
}

impl<T> Failed for *mut T {
    const FAILED: *mut T = std::ptr::null_mut();
}

/// Runs a call. Nothing is left half done by a panic but the call itself.
pub(crate) fn border<T: Failed>(call: impl FnOnce() -> Result<T>) -> T {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            fail(error.errno(), &error.text);
            T::FAILED
        }
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            fail(libc::EIO, &format!("an error in libweft: {}", words.unwrap_or("a panic")));
            T::FAILED
        }
    }
}

/// Sets `errno` and the text.
pub(crate) fn fail(errno: c_int, text: &str) {
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    // A thread that ends has nobody left to read it.
    let _ = LAST.try_with(|last| last.replace(text));
    // SAFETY: the address is that of this thread's `errno`.
    unsafe { *libc::__errno_location() = errno };
}

pub(crate) fn invalid(what: &str) -> Error {
    Error::new(Status::Invalid, what)
}

/// What a pointer names.
///
/// # Safety
/// It is NULL or valid while the result is used.
pub(crate) unsafe fn given<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: the caller's.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid(&format!("{what} is NULL")))
}

/// The bytes of a string.
///
/// # Safety
/// It is NULL or a string that ends with NUL and is not changed while the result is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a [u8]> {
    if pointer.is_null() {
        return Err(invalid(&format!("{what} is NULL")));
    }
    // SAFETY: the caller's.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Memory to read.
///
/// # Safety
/// It is NULL or so many values are valid there while the result is used.
pub(crate) unsafe fn memory<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T]> {
    match check_memory::<T>(pointer.is_null(), count)? {
        false => Ok(&[]),
        // SAFETY: the caller's; the length was checked.
        true => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

/// Memory to write.
///
/// # Safety
/// It is NULL or so many values are there, and nobody else uses them while the result is used.
pub(crate) unsafe fn memory_mut<'a, T>(pointer: *mut T, count: usize) -> Result<&'a mut [T]> {
    match check_memory::<T>(pointer.is_null(), count)? {
        false => Ok(&mut []),
        // SAFETY: the caller's; the length was checked.
        true => Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) }),
    }
}

/// False if there is none.
fn check_memory<T>(is_null: bool, count: usize) -> Result<bool> {
    match (is_null, count) {
        (_, 0) => Ok(false),
        (true, _) => Err(invalid("a buffer is NULL")),
        _ if count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) => Err(invalid("a buffer is too long")),
        _ => Ok(true),
    }
}

/// Copies a result into a buffer of C: its length is returned; with a buffer of 0 bytes only that.
pub(crate) fn hand_out(value: &[u8], buffer: &mut [u8], cuts: bool) -> Result<i64> {
    if buffer.is_empty() {
        return Ok(value.len() as i64);
    }
    if value.len() > buffer.len() && !cuts {
        return Err(Error::new(Status::Range, "the buffer is too small"));
    }
    let bytes = value.len().min(buffer.len());
    buffer[..bytes].copy_from_slice(&value[..bytes]);
    Ok(bytes as i64)
}

/// The text of this thread's last failed call.
#[unsafe(no_mangle)]
pub extern "C" fn weft_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn weft_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> (c_int, String) {
        // SAFETY: the string is this thread's, and nothing replaces it meanwhile.
        let text = unsafe { CStr::from_ptr(weft_error()) };
        (std::io::Error::last_os_error().raw_os_error().unwrap_or(0), text.to_string_lossy().into_owned())
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let silent = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let value: c_int = border(|| panic!("a {} one", "bad"));
        std::panic::set_hook(silent);
        assert_eq!(value, -1);
        assert_eq!(last(), (libc::EIO, "an error in libweft: a bad one".into()));
    }

    #[test]
    fn errors_are_of_their_thread() {
        let value: *mut u8 = border(|| Err(invalid("mine\0!")));
        assert!(value.is_null());
        std::thread::spawn(|| assert_eq!(last().1, "")).join().unwrap();
        assert_eq!(last(), (libc::EINVAL, "mine?!".into()));
    }

    #[test]
    fn memory_that_cannot_be_is_refused() {
        let byte = 7u8;
        // SAFETY: each is NULL, empty, refused for its length, or one byte that is there.
        unsafe {
            assert!(memory::<u8>(std::ptr::null(), 1).is_err());
            assert!(memory::<u64>(std::ptr::dangling(), usize::MAX / 4).is_err());
            assert_eq!(memory::<u8>(std::ptr::null(), 0).unwrap(), [0u8; 0]);
            assert_eq!(memory(&byte, 1).unwrap(), [7]);
        }
        assert_eq!(hand_out(b"value", &mut [], false).unwrap(), 5);
        assert_eq!(hand_out(b"value", &mut [0; 4], false).unwrap_err().status, Status::Range);
        assert_eq!(hand_out(b"value", &mut [0; 4], true).unwrap(), 4);
    }
}
