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
}

impl Error {
    /// With these words.
    pub fn new(status: Status, text: impl Into<String>) -> Error {
        Error { status, text: text.into() }
    }

    /// The Linux errno.
    pub fn errno(&self) -> i32 {
        self.status.errno()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
