//! Why a server stops.

use std::fmt;

use weft_base::Status;
use weft_journal::JournalError;
use weft_rt::DiskError;

/// Why a server cannot start or go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerError {
    /// The configuration makes no sense, as the words say.
    Config(String),
    /// The disk of the server of this name holds no store, and the configuration does not say that
    /// one should be made.
    NotFormatted(String),
    /// The store belongs to somebody else or is damaged, as the words say.
    Store(String),
    /// The journal cannot be trusted or used.
    Journal(JournalError),
    /// The disk failed at what the first part says.
    Disk(&'static str, DiskError),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Config(text) | ServerError::Store(text) => f.write_str(text),
            ServerError::NotFormatted(name) => {
                write!(f, "the directory of {name} holds no store; is it the right one, and mounted? A new store is made only on demand")
            }
            ServerError::Journal(error) => write!(f, "the journal: {error}"),
            ServerError::Disk(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for ServerError {}

impl From<JournalError> for ServerError {
    fn from(error: JournalError) -> ServerError {
        match error {
            JournalError::Foreign(text) => ServerError::Store(text),
            error => ServerError::Journal(error),
        }
    }
}

impl From<ServerError> for Status {
    fn from(error: ServerError) -> Status {
        match error {
            ServerError::Journal(error) => error.into(),
            ServerError::Disk(_, error) => error.into(),
            ServerError::Config(_) | ServerError::NotFormatted(_) | ServerError::Store(_) => Status::Io,
        }
    }
}
