//! What can be wrong with a file, where, and the pair "what was sound, and why not all of it".

use std::fmt;

/// Why a file (or the rest of it) could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Byte of the file at which the faulty piece begins.
    pub offset: u64,
    /// Line of that byte, counted from 1; `None` inside binary data.
    pub line: Option<u64>,
    /// What is wrong there.
    pub problem: Problem,
}

/// The kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The file ends inside something; the text says inside what.
    Truncated(String),
    /// Not well-formed XML, or not UTF-8.
    Syntax(String),
    /// An attribute or an element that must be there is not.
    Missing {
        /// Element that lacks it.
        element: String,
        /// Name of the missing attribute or child element.
        part: String,
    },
    /// A value cannot be what its place asks for.
    Value {
        /// Element that holds it.
        element: String,
        /// Name of the attribute or child element.
        part: String,
        /// The value as the file has it.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// An element at a place where it has no meaning.
    Misplaced(String),
    /// Elements nested deeper than this program follows.
    TooDeep,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "line {line} (byte {}): {}", self.offset, self.problem),
            None => write!(out, "byte {}: {}", self.offset, self.problem),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(inside) => write!(out, "the file ends inside {inside}"),
            Self::Syntax(text) => out.write_str(text),
            Self::Missing { element, part } => write!(out, "<{element}> lacks {part}"),
            Self::Value { element, part, found, expected } => write!(out, "<{element}>: {part} is {found:?}, expected {expected}"),
            Self::Misplaced(what) => write!(out, "{what} has no meaning here"),
            Self::TooDeep => write!(out, "elements are nested more than {} deep", crate::xml::DEPTH_MAX),
        }
    }
}

impl std::error::Error for Error {}

/// What could be read of a file, and the first reason why it is not all.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial<T> {
    /// Everything sound that was found.
    pub value: T,
    /// The first fault, if there was one.
    pub error: Option<Error>,
}

impl<T> Partial<T> {
    /// The value if the whole file was sound.
    ///
    /// # Errors
    /// The first fault of the file.
    pub fn complete(self) -> Result<T, Error> {
        match self.error {
            None => Ok(self.value),
            Some(error) => Err(error),
        }
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Partial<U> {
        Partial { value: change(self.value), error: self.error }
    }
}

/// Line of a byte of a text, counted from 1.
pub(crate) fn line_of(text: &[u8], offset: usize) -> u64 {
    let end = offset.min(text.len());
    1 + text[..end].iter().filter(|&&byte| byte == b'\n').count() as u64
}
