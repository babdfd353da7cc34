//! Why the durable memory of a server refuses.

use std::fmt;

use weft_base::Status;
use weft_rt::DiskError;

/// Why an operation on the journal failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalError {
    /// The disk has no room for another segment or for the checkpoint. Nothing was lost; the same
    /// call may succeed later.
    NoSpace,
    /// The disk has too little room to make a journal; nothing was made.
    NoSpaceToBegin {
        /// The least that is needed.
        needed_bytes: u64,
        /// What is there.
        free_bytes: u64,
    },
    /// The disk failed. The journal accepts nothing any more: what it holds beyond the last success
    /// is unknown.
    Disk {
        /// What was being done.
        action: String,
        /// What the disk said.
        error: DiskError,
    },
    /// The store is not the one that it should be, as the words say.
    Foreign(String),
    /// What was found on the disk cannot be trusted; the words say what and where.
    Damaged(String),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::NoSpace => f.write_str("no space left on the server's disk"),
            JournalError::NoSpaceToBegin { needed_bytes, free_bytes } => {
                let (needed, free) = (needed_bytes.div_ceil(1 << 20), free_bytes >> 20);
                write!(
                    f,
                    "a new server needs at least {needed} MiB on its disk, and {free} MiB are free: make room or give it another folder"
                )
            }
            JournalError::Disk { action, error } => write!(f, "cannot {action}: {error}"),
            JournalError::Foreign(what) | JournalError::Damaged(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for JournalError {}

impl From<JournalError> for Status {
    fn from(error: JournalError) -> Status {
        match error {
            JournalError::NoSpace | JournalError::NoSpaceToBegin { .. } => Status::NoSpace,
            _ => Status::Io,
        }
    }
}

impl JournalError {
    /// For `map_err`: names the action that the disk refused.
    pub fn during(action: impl Into<String>) -> impl FnOnce(DiskError) -> JournalError {
        move |error| match error {
            DiskError::NoSpace => JournalError::NoSpace,
            error => JournalError::Disk { action: action.into(), error },
        }
    }
}
