//! Errors as programs see them: an errno, and a sentence with the path.

use std::fmt;

use weft_base::Status;

/// Result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The reason.
    pub status: Status,
    /// The reason in words, with the call and its path.
    pub text: String,
    errno: i32,
}

/// The Linux errno of a descriptor that is not open for this (EBADF). No server says so.
const NOT_OPEN_FOR_IT: i32 = 9;

impl Error {
    /// With these words.
    pub fn new(status: Status, text: impl Into<String>) -> Error {
        Error { status, text: text.into(), errno: status.errno() }
    }

    /// Of a file that is open, and not for this.
    pub(crate) fn not_open_for_it(text: String) -> Error {
        Error { status: Status::AccessDenied, text, errno: NOT_OPEN_FOR_IT }
    }

    /// The Linux errno.
    pub fn errno(&self) -> i32 {
        self.errno
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
