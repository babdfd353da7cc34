//! The one list of operating errors. A [`Status`] crosses the wire as its number; gateways turn it
//! into an errno at one place.

use std::fmt;

/// Result with a [`Status`] as error.
pub type Result<T> = std::result::Result<T, Status>;

macro_rules! statuses {
    ($( $(#[$doc:meta])* $name:ident = $code:literal, $errno:literal, $text:literal; )*) => {
        /// Why an operation failed. The numbers are part of the wire format (`docs/wire.md`) and
        /// never change meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Status { $( $(#[$doc])* $name = $code, )* }

        impl Status {
            /// All statuses, for tables and tests.
            pub const ALL: &'static [Status] = &[ $( Status::$name, )* ];

            /// The number on the wire; 0 is success and therefore no `Status`.
            pub fn code(self) -> u16 { self as u16 }

            /// The status with this number. A number from a newer peer reads as
            /// [`Status::Unknown`].
            pub fn from_code(code: u16) -> Status {
                match code { $( $code => Status::$name, )* _ => Status::Unknown }
            }

            /// The Linux errno that programs see.
            pub fn errno(self) -> i32 {
                match self { $( Status::$name => $errno, )* }
            }

            /// A sentence for people.
            pub fn text(self) -> &'static str {
                match self { $( Status::$name => $text, )* }
            }
        }
    };
}

statuses! {
    /// No such name or object.
    NotFound = 1, 2, "no such file or directory";
    /// The name is taken.
    Exists = 2, 17, "the name exists already";
    /// A directory is needed here.
    NotDirectory = 3, 20, "not a directory";
    /// A directory is not allowed here.
    IsDirectory = 4, 21, "is a directory";
    /// The directory has entries.
    NotEmpty = 5, 39, "the directory is not empty";
    /// Mode bits forbid it (EACCES).
    AccessDenied = 6, 13, "permission denied";
    /// Only the owner or root may do it (EPERM).
    NotPermitted = 7, 1, "operation not permitted";
    /// Arguments make no sense.
    Invalid = 8, 22, "invalid argument";
    /// A name is longer than 255 bytes, or the target of a symlink than 4095.
    NameTooLong = 9, 36, "a name is longer than 255 bytes, or the target of a symlink than 4095";
    /// A server's disk or configured capacity is full.
    NoSpace = 10, 28, "no space left on the server";
    /// The link count would overflow.
    TooManyLinks = 11, 31, "too many links";
    /// Not possible between two file systems, or into the directory of another project.
    CrossDevice = 12, 18, "objects are on different file systems, or count for different projects";
    /// The handle names an object that is gone.
    Stale = 13, 116, "stale handle: the object is gone";
    /// A disk failed or data is damaged.
    Io = 14, 5, "input/output error on a server";
    /// The object is locked by a running transaction; ask again.
    Busy = 15, 16, "the object is busy in a transaction";
    /// The server does not know this operation.
    NotSupported = 16, 95, "operation not supported";
    /// No such extended attribute.
    NoAttribute = 17, 61, "no such extended attribute";
    /// The given buffer is too small.
    Range = 18, 34, "result does not fit";
    /// The deadline passed without an answer.
    TimedOut = 19, 110, "no answer before the deadline";
    /// No connection to the server.
    Unreachable = 20, 113, "the server cannot be reached";
    /// The request went to a server that does not own the object.
    WrongServer = 21, 5, "the object is not on this server";
    /// The capability is missing, forged, or for another object or right.
    CapabilityRefused = 22, 13, "the capability was refused";
    /// The capability is too old; ask the metadata server for a new one.
    CapabilityExpired = 23, 11, "the capability has expired";
    /// Malformed message.
    BadMessage = 24, 74, "malformed message";
    /// No common protocol version.
    VersionMismatch = 25, 71, "no common protocol version";
    /// The peer could not prove the key that this connection is about.
    AuthenticationFailed = 26, 13, "the peer does not hold the right key";
    /// A request that its client has already given up or finished.
    StaleRequest = 27, 5, "the request is older than what its client still waits for";
    /// A transaction met another one; its coordinator tries again.
    Conflict = 28, 11, "conflict with another transaction";
    /// Too many symbolic links.
    TooManySymlinks = 29, 40, "too many levels of symbolic links";
    /// An extended attribute or message is too large.
    TooBig = 30, 7, "too large";
    /// The file would be larger than the format allows.
    FileTooBig = 31, 27, "file too large";
    /// The peer belongs to another file system.
    WrongFileSystem = 32, 18, "the server belongs to another file system";
    /// The server is starting (replaying its journal) or stopping; ask again.
    NotReady = 33, 11, "the server is not ready yet";
    /// The server has stopped accepting changes after a disk error.
    ReadOnly = 34, 30, "the server accepts no changes";
    /// The asker's map is old: of the partitions of a directory, or of the servers. It can ask for
    /// the new one.
    StaleMap = 35, 11, "the map of servers or of a directory is too old";
    /// A checksum did not match.
    BadChecksum = 36, 74, "checksum mismatch";
    /// A bounded queue or table is full; ask again later.
    Overloaded = 37, 11, "the server has too much to do";
    /// A truncation came between; the size must be asked at the data servers.
    SizeUncertain = 38, 11, "the size must be asked at the data servers";
    /// The cluster map of a peer contradicts the one that the file system has agreed on.
    MapChanged = 39, 5, "the cluster map contradicts the one that the file system has agreed on";
    /// A server with this number is known, and it was another one: its store was lost and made
    /// again.
    StoreReplaced = 40, 5, "the store of the server is not the one that it had";
    /// Another client has locks on the file (ENOLCK).
    LockedElsewhere = 45, 37, "programs of another mount hold locks on the file";
    /// Another client appends to the file as if it were alone, and does not stop to do so.
    SharedAppend = 46, 16, "another mount appends to the file, and does not hear that others want to write to it";
    /// A message has an extension with an odd number that the receiver does not know.
    NewerExtension = 47, 95, "the peer is newer: its message needs an extension that this version does not know";
    /// One side needs a feature of the protocol that the other one lacks.
    FeatureMissing = 48, 71, "client and server do not have the features of the protocol that they need of each other";
    /// The client's key only reads (EROFS).
    KeyReadsOnly = 49, 30, "the key of this client allows no changes";
    /// The client's key does not speak for this user, or not for servers (EPERM).
    KeyForbids = 50, 1, "the key of this client does not allow it, or not for this user";
    /// An envelope of an encrypted connection is not the one that comes next.
    EnvelopeBroken = 51, 71, "an encrypted message is not the one that was sent: somebody has changed, repeated or put it in on the way";
    /// The file or the client has as many locks as a server keeps (ENOLCK).
    TooManyLocks = 52, 37, "the server keeps no more locks for this file or client";
    /// Others have the file open for writing: whoever appends does so under a lock.
    OthersWrite = 53, 16, "other mounts write to the file that was to be appended to by one alone";
    /// The object belongs to a sealed tree (EPERM).
    Sealed = 54, 1, "the object is sealed and never changes ('weft seal --undo' ends that)";
    /// A file that is to be sealed may still be written to (ETXTBSY).
    BeingWritten = 55, 26, "somebody has the file open for writing";
    /// The user, or the project, has as much as it may have (EDQUOT).
    QuotaExceeded = 56, 122, "the quota of the user, or of the directory's project, is used up";
    /// What a client kept of a file (delayed writes) counts as not written.
    WritesLost = 60, 5, "what was written last is lost: the server had not heard of this client for too long when others asked for the file";
    /// Whoever asks reads a dataset, and changes nothing (EROFS).
    DatasetReadsOnly = 61, 30, "a dataset is only read (-o dataset)";
    /// A status of a newer version.
    Unknown = 65535, 5, "an error that this version does not know";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Status {}

impl Status {
    /// True if the same request may succeed later without anybody changing it: clients retry these
    /// until their deadline.
    pub fn is_transient(self) -> bool {
        matches!(self, Status::Busy | Status::NotReady | Status::Overloaded | Status::Conflict | Status::TimedOut | Status::Unreachable)
    }

    /// True if something is broken, full or gone, as opposed to an answer that programs expect:
    /// worth the last moments of a flight recorder.
    pub fn is_server_error(self) -> bool {
        matches!(
            self,
            Status::Io
                | Status::NoSpace
                | Status::WritesLost
                | Status::TimedOut
                | Status::Unreachable
                | Status::BadMessage
                | Status::StaleRequest
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_round_trip() {
        for status in Status::ALL {
            assert_eq!(Status::from_code(status.code()), *status);
            assert_ne!(status.code(), 0);
        }
        assert_eq!(Status::from_code(60000), Status::Unknown);
    }
}
