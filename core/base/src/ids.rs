//! Identifiers. Raw numbers are wrapped where two of them could be confused.

use std::fmt;

/// Names an object of the file system for ever: handles are never reused.
///
/// The high 16 bits are the [`ServerId`] of the metadata server in whose range the handle lies, the
/// low 48 bits a counter of that server. So the owner of any handle is known without asking.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Handle(pub u64);

/// The root directory: number 1 in the range of metadata server 0. It equals the inode number that
/// FUSE demands for a root.
pub const ROOT_HANDLE: Handle = Handle(1);

impl Handle {
    /// Bits of a handle that count objects within the range of one server.
    pub const COUNTER_BITS: u32 = 48;

    /// The handle number `counter` in the range of `server`. `counter` must fit 48 bits.
    pub fn new(server: ServerId, counter: u64) -> Handle {
        assert!(counter < 1 << Self::COUNTER_BITS, "handle range of {server} is used up");
        Handle((u64::from(server.0) << Self::COUNTER_BITS) | counter)
    }

    /// The metadata server that owns the object.
    pub fn server(self) -> ServerId {
        ServerId((self.0 >> Self::COUNTER_BITS) as u16)
    }

    /// The number within the range of the server.
    pub fn counter(self) -> u64 {
        self.0 & ((1 << Self::COUNTER_BITS) - 1)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{}.{}", self.server().0, self.counter())
    }
}
impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Numbers a server of one file system for ever, metadata and data servers alike: never a position
/// in a list, and never given to another one. Metadata servers have the low numbers because theirs
/// are part of handles; data servers start at [`ServerId::FIRST_DATA`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServerId(pub u16);

impl ServerId {
    /// The number of the first data server.
    pub const FIRST_DATA: u16 = 0x8000;

    /// The data server with this number among data servers.
    pub fn data(index: u16) -> ServerId {
        assert!(index < Self::FIRST_DATA, "data server index {index} is too large");
        ServerId(Self::FIRST_DATA + index)
    }

    /// What the number says about the role of the server.
    pub fn role(self) -> ServerRole {
        if self.0 < Self::FIRST_DATA { ServerRole::Meta } else { ServerRole::Data }
    }

    /// Its number among the servers of its role: the `id` of a configuration.
    pub fn index(self) -> usize {
        usize::from(self.0 & (Self::FIRST_DATA - 1))
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.role(), self.index())
    }
}
impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The two kinds of servers. A server's default name is its role and index: `meta0`, `data3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerRole {
    /// Holds inodes and directory entries.
    Meta,
    /// Holds datafiles, the stripes of files.
    Data,
}

impl fmt::Display for ServerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServerRole::Meta => "meta",
            ServerRole::Data => "data",
        })
    }
}

/// Identifies a file system (PVFS2: collection). Random at creation, never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FsId(pub u64);

impl fmt::Debug for FsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
impl fmt::Display for FsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One client process (or one server acting as a client of others). Random, drawn when the process
/// starts, so that a new process never inherits replies meant for an old one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClientId(pub u64);

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{:x}", self.0)
    }
}

/// Names one request of one client to one server, for exactly-once execution and for traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RequestId {
    /// Who asks.
    pub client: ClientId,
    /// Counts the lives of this client identity; a server forgets older lives when it sees a newer
    /// one.
    pub incarnation: u32,
    /// Counts the requests of this client to this server from 1. A retry repeats the number.
    pub sequence: u64,
}

/// Position of a datafile among the datafiles of one file (0-based).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StripeIndex(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_tells_its_server() {
        let handle = Handle::new(ServerId(7), 42);
        assert_eq!((handle.server(), handle.counter()), (ServerId(7), 42));
        assert_eq!(handle.to_string(), "h7.42");
        assert_eq!(ROOT_HANDLE, Handle::new(ServerId(0), 1));
    }

    #[test]
    fn server_names_follow_roles() {
        assert_eq!(ServerId(1).to_string(), "meta1");
        assert_eq!(ServerId::data(3).to_string(), "data3");
        assert_eq!(ServerId::data(3).index(), 3);
    }
}
