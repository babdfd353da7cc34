//! What happened when, for viewers: the commands of every rank and the accesses of every disk, in virtual time.

use weft_model::JobKind;

/// A command of a rank, from its start to its end. Non-blocking commands end at once here; what they wait for shows in the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandSpan {
    /// Application.
    pub app: u32,
    /// Rank in its world.
    pub rank: u32,
    /// Index in the rank's program.
    pub position: u32,
    /// Start, nanoseconds.
    pub start: u64,
    /// End, nanoseconds.
    pub end: u64,
}

/// An access of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpan {
    /// Server.
    pub server: u32,
    /// Reading or writing.
    pub kind: JobKind,
    /// File, numbered through all applications.
    pub file: u32,
    /// First byte in the server's part of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Start, nanoseconds.
    pub start: u64,
    /// End, nanoseconds.
    pub end: u64,
}

/// All of a run; commands rank by rank, accesses in the order of their starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Commands.
    pub commands: Vec<CommandSpan>,
    /// Accesses.
    pub disks: Vec<DiskSpan>,
}
