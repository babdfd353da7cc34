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
