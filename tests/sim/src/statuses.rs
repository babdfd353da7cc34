//! What the status of a failed operation says of the operation, and of the cluster.

use weft_base::Status;

/// True if an operation that ends with this status has had no effect and will have none.
pub(crate) fn is_definite(status: Status) -> bool {
    use Status::*;
    matches!(
        status,
        NotFound
            | Exists
            | NotDirectory
            | IsDirectory
            | NotEmpty
            | AccessDenied
            | NotPermitted
            | Invalid
            | NameTooLong
            | NoSpace
            | TooManyLinks
            | CrossDevice
            | Stale
            | NoAttribute
            | NotSupported
            | TooManySymlinks
            | FileTooBig
    )
}

/// True if a correct cluster never answers this to an operation of a correct client.
pub fn is_internal(status: Status) -> bool {
    use Status::*;
    matches!(
        status,
        WrongServer
            | CapabilityRefused
            | CapabilityExpired
            | BadMessage
            | VersionMismatch
            | AuthenticationFailed
            | StaleRequest
            | WrongFileSystem
            | StaleMap
            | BadChecksum
            | SizeUncertain
            | AccessDenied
            | CrossDevice
            | Range
            | TooBig
            | Unknown
    )
}
