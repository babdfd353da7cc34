//! What happened when, for viewers: the commands of every rank and the accesses of every disk, in virtual time.

use weft_model::{JobKind, Seek};

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
    /// How it was reached.
    pub seek: Seek,
    /// Start, nanoseconds.
    pub start: u64,
    /// End, nanoseconds.
    pub end: u64,
}

/// What a process sent or received: a packet, or a message whose last packet has left the card. The start is the end minus the time that
/// these bytes need on the link; with several messages on one card at a time such spans overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferSpan {
    /// Process: ranks of all applications in their order, then servers.
    pub process: u32,
    /// Sent, not received.
    pub sent: bool,
    /// The other process.
    pub peer: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// Start, nanoseconds.
    pub start: u64,
    /// End, nanoseconds.
    pub end: u64,
}

/// All of a run; commands rank by rank, accesses in the order of their starts, transfers in the order of their ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Commands.
    pub commands: Vec<CommandSpan>,
    /// Accesses.
    pub disks: Vec<DiskSpan>,
    /// Messages and packets on the cards of clients and servers.
    pub transfers: Vec<TransferSpan>,
}
