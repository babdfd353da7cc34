//! One operation of the API under way.

use weft_base::{Handle, Nanos, ServerId, Status};

use crate::error::Error;

/// What an operation is called in errors, what it is about, and until when it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) operation: &'static str,
    pub(crate) handle: Handle,
    pub(crate) deadline: Nanos,
}

impl Flow {
    /// An error found without a server.
    pub(crate) fn error(&self, status: Status) -> Error {
        Error::local(status, self.operation, self.handle)
    }

    /// An error of a server.
    pub(crate) fn error_at(&self, status: Status, server: ServerId) -> Error {
        Error { server: Some(server), ..self.error(status) }
    }
}
