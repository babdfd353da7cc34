//! The error of client operations: small enough to return by value everywhere, and able to say what
//! happened to which object at which server.

use std::fmt;

use weft_base::{ClusterMap, Handle, ServerId, Status};

/// Result of a client operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of the client failed. `Copy`, 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The reason.
    pub status: Status,
    /// What was tried, in the words of the API (`create`, `read`).
    pub operation: &'static str,
    /// The object, or the directory that holds the name; handle 0 if there is none.
    pub handle: Handle,
    /// The server that answered, or that should have.
    pub server: Option<ServerId>,
}

impl Error {
    /// An error found by the client itself, without a server.
    pub fn local(status: Status, operation: &'static str, handle: Handle) -> Error {
        Error { status, operation, handle, server: None }
    }

    /// True if there is no such name or object (any more).
    pub fn is_gone(&self) -> bool {
        matches!(self.status, Status::NotFound | Status::Stale)
    }

    /// The error in full for people: with the server's name and address from the map, and what to
    /// do about it if that is known.
    pub fn explain(&self, map: &ClusterMap) -> String {
        let mut text = self.operation.to_string();
        if self.handle != Handle(0) {
            text += &format!(" of {}", self.handle);
        }
        if let Some(id) = self.server {
            match map.server(id) {
                Some(entry) => text += &format!(" at {} ({})", entry.name, entry.address),
                None => text += &format!(" at {id}, which is not in the map of {:?}", map.fs_name),
            }
        }
        text += &format!(": {}", self.status);
        if let Some(advice) = advice(self.status) {
            text += &format!("; {advice}");
        }
        text
    }
}

/// What a person can do about an error, if anything is known to help.
fn advice(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::TimedOut | Status::Unreachable => "is the server running? try `weft status`",
        Status::NotReady => "the server is starting or stopping; `weft status` shows when it serves",
        Status::AuthenticationFailed => "use the key file that belongs to this file system (--key-file)",
        Status::WrongFileSystem => "the address belongs to another file system; check the configuration file",
        Status::VersionMismatch | Status::FeatureMissing | Status::NewerExtension => "use the same version of weft on client and servers",
        Status::MapChanged => "the config must name the servers that it named then, in the same order",
        Status::NoSpace => "free space on the server, `weft df` shows where; reads go on",
        Status::QuotaExceeded => "remove something, or have the limit raised; `weft quota show` tells it",
        Status::CapabilityExpired => "compare the clocks of metadata and data servers: they differ by an hour or more",
        Status::ReadOnly => "the log of the server says which disk failed",
        _ => return None,
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.operation, self.handle)?;
        if let Some(server) = self.server {
            write!(f, " at {server}")?;
        }
        write!(f, ": {}", self.status)
    }
}

impl std::error::Error for Error {}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        error.status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::{FsId, ROOT_HANDLE, ServerEntry};

    #[test]
    fn says_what_where_and_what_to_do() {
        let entry = ServerEntry { id: ServerId(0), name: "meta0".into(), address: "unix:/run/m0".into() };
        let map = ClusterMap::of(FsId(1), "demo", [entry], 1 << 20).founded(1);
        let error = Error { status: Status::TimedOut, operation: "create", handle: ROOT_HANDLE, server: Some(ServerId(0)) };
        assert_eq!(error.to_string(), "create of h0.1 at meta0: no answer before the deadline");
        assert_eq!(
            error.explain(&map),
            "create of h0.1 at meta0 (unix:/run/m0): no answer before the deadline; is the server running? try `weft status`"
        );
        let asked = Error { operation: "ping", handle: Handle(0), ..error };
        assert!(asked.explain(&map).starts_with("ping at meta0 (unix:/run/m0): no answer"), "no object is meant");
        assert!(size_of::<Error>() <= 40);
    }
}
