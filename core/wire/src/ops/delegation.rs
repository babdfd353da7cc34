//! Delegated directories: their client makes and removes names in them by itself, and tells of many
//! at once.

use bytes::Bytes;
use weft_base::{Credentials, Handle, Layout, Result, WallTime};

use crate::{Capability, Rights, wire_struct};

wire_struct! {
    /// The right to make and remove files in a directory without asking. It ends when its client
    /// gives it back, or hears nothing any more while others ask for the directory.
    pub struct Delegation {
        /// The handles for these files, if it has few left. They are the client's, for all
        /// directories of this server that are delegated to it.
        pub handles: Option<HandleRange>,
        /// As of a create with [`CreateRequest::can_delay`](super::CreateRequest::can_delay), for
        /// each of these files; 0: nothing that is written to them may be kept.
        pub delay_bytes: u32,
    }

    /// Handles of one server, one after another.
    pub struct HandleRange {
        /// The first one.
        pub first: Handle,
        /// How many.
        pub count: u32,
    }

    /// Tells of files and directories that a client has made in directories that are delegated to
    /// it, in the order in which it has made them. All files are open then.
    pub struct CreateManyRequest {
        /// The files: at most [`CREATES_MAX`] together.
        pub groups: Vec<NewFiles>,
        /// Directories that are not delegated to it any more when this is done, at most
        /// [`CREATES_MAX`]. Those that are not are none of its business, and no error.
        pub returned: Vec<Handle>,
        /// It needs more handles.
        pub wants_handles: bool,
        optional {
            /// Of which of the files, by their positions in a byte each, it has bytes for data
            /// servers.
            2 pub to_data: Bytes,
            /// Which of the files, by their positions in a byte each, are directories: what is said
            /// of how they are open counts for nothing. They are delegated to it, too. Made if a
            /// create with [`CreateReply::tells_directories`](super::CreateReply) has delegated the
            /// directory.
            3 pub directories: Bytes,
            /// What was set of delegated directories. Made on the same condition. At most
            /// [`CREATES_MAX`] with the files.
            5 pub attributes: Vec<NewAttributes>,
            /// Which of the files, by their positions in a byte each, lose their name instead: of
            /// them only the name, the handle and `named_at` count. None of them is made by the
            /// same request. Made if the reply that has delegated the directory allows it.
            7 pub removed: Bytes,
        }
    }

    /// Files made one after another in one directory by one user.
    pub struct NewFiles {
        /// The directory.
        pub dir: Handle,
        /// The user.
        pub who: Credentials,
        /// The files.
        pub files: Vec<NewFile>,
    }

    /// A file that its client has made, or removed.
    pub struct NewFile {
        /// Its name.
        pub name: Bytes,
        /// One of the handles that the client was given.
        pub handle: Handle,
        /// Permission bits.
        pub mode: u32,
        /// Rights that it is open with.
        pub open: Rights,
        /// Orders opens and closes of one client.
        pub open_sequence: u64,
        /// What is written to it is kept by the client ([`Rights::DELAY`]).
        pub delays: bool,
        /// When it was made, by the clock of this server as its client knows it.
        pub made_at: WallTime,
        /// When its directory was changed last by then, and perhaps by a change of such a name
        /// since.
        pub named_at: WallTime,
        /// Its striping.
        pub layout: Layout,
    }

    /// What the owner of a directory has set of it while it was delegated.
    pub struct NewAttributes {
        /// So many files of the request were made before.
        pub position: u8,
        /// The directory.
        pub dir: Handle,
        /// The user.
        pub who: Credentials,
        /// Permission bits (`0o777`).
        pub mode: Option<u32>,
        /// Last access.
        pub atime: Option<WallTime>,
        /// Last change.
        pub mtime: Option<WallTime>,
        /// When it was set, by the clock of this server as its client knows it.
        pub at: WallTime,
        /// The version of the directory since then: one that has it was told before.
        pub version: u64,
    }

    /// What became of each file.
    pub struct CreateManyReply {
        /// In the order of the request. An error: there is no such file, nor will there be.
        pub outcomes: Vec<Result<()>>,
        /// More handles.
        pub handles: Option<HandleRange>,
        /// What the client believes of these files it may go on to believe under its lease on their
        /// directories. False: it must not, and nothing was given back.
        pub is_leased: bool,
        optional {
            /// Of the files with bytes for data servers; one that is missing is to be asked for
            /// with an open.
            2 pub capabilities: Vec<NewCapability>,
            /// What became of each of the attributes. An error: they were not set.
            4 pub attributes: Vec<Result<()>>,
        }
    }

    /// What data servers want to see of a file, as with the answer to an open.
    pub struct NewCapability {
        /// The position of the file.
        pub number: u8,
        /// For what it is open.
        pub capability: Capability,
    }
}

/// Most files and attributes in one [`CreateManyRequest`]: their records must fit one frame of a
/// journal with small segments.
pub const CREATES_MAX: usize = 128;

/// So many handles a client is given at a time.
pub const HANDLES_GIVEN: u32 = 4096;

/// With fewer a client needs more.
pub const HANDLES_FEW: u32 = 1024;
