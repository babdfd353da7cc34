//! What a row of the table of operations says besides its messages.

/// What an operation does to the free space of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// It writes nothing.
    Untouched,
    /// It needs space: refused on a full disk.
    Needed,
    /// It gives space back, or ends what was begun: it may use the last of the journal.
    Freed,
}

/// A kind of work, for dashboards that show four numbers instead of forty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Looks at names or inodes; an open too, which changes only the table of open files.
    MetaRead,
    /// Changes names or inodes.
    MetaChange,
    /// Gives bytes of a file.
    DataRead,
    /// Takes bytes of a file.
    DataWrite,
    /// Everything else: closes (what they change belongs to the writes before), flushes,
    /// transactions between servers, questions of dashboards.
    Other,
}

/// By what a request is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedBy {
    /// By the key alone: it names no object.
    Key,
    /// By the key of the servers: they ask it each other.
    ServersKey,
    /// By a client's key without limits: it writes on the disks of servers, and names what others
    /// do.
    UnlimitedKey,
    /// By the permission bits for the user that it names.
    User,
    /// By the handle: whoever knows it is told what does not need a permission.
    Handle,
    /// By what its client has open.
    Open,
    /// By a capability.
    Capability,
}
