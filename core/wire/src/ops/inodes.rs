//! Metadata servers, by handle: attributes, opens and closes, extended attributes.

use bytes::Bytes;
use weft_base::{Attr, Credentials, DataTime, Handle, MODE_ACL, Result, WallTime};

use super::locks::LocksOfFile;
use crate::partition::PartitionMap;
use crate::{Capability, Ceiling, Rights, wire_struct};

wire_struct! {
    /// What a metadata server knows of an object.
    pub struct FileState {
        /// Attributes as of the last close or truncation.
        pub attr: Attr,
        /// Given if another client has the file open for writing (or had it when it was lost): the
        /// size and the times may be larger, and the data servers know them. Also if any client
        /// has it open for writing and it has holes. The capability lets the client ask.
        pub ask_data: Option<Capability>,
        /// Given for directories.
        pub partitions: Option<PartitionMap>,
    }

    /// Attributes of an object.
    pub struct GetAttrRequest {
        /// The object.
        pub handle: Handle,
    }

    /// Attributes of objects of one server, at most 4096.
    pub struct GetAttrManyRequest {
        /// The objects.
        pub handles: Vec<Handle>,
    }

    /// One result for every handle.
    pub struct GetAttrManyReply {
        /// In the order of the request.
        pub states: Vec<Result<FileState>>,
    }

    /// Asks which of these objects of one server, at most 4096, are no more and will not come back
    /// after a crash either.
    pub struct CheckGoneRequest {
        /// The objects.
        pub handles: Vec<Handle>,
    }

    /// One answer for every handle.
    pub struct CheckGoneReply {
        /// In the order of the request: with what the datafiles of one that is gone may be removed
        /// ([`Rights::MANAGE`]).
        pub gone: Vec<Option<Capability>>,
    }

    /// Changes what is given.
    pub struct SetAttrRequest {
        /// The object.
        pub handle: Handle,
        /// Permission bits.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Truncates or extends a file to this many bytes.
        pub size: Option<u64>,
        /// Last access.
        pub atime: Option<SetTime>,
        /// Last change of the data.
        pub mtime: Option<SetTime>,
        /// Who asks.
        pub who: Credentials,
        /// The caller has the file open for writing: a change of size needs no write permission on
        /// the inode.
        pub opened_for_write: bool,
        optional {
            /// From now on the object is sealed, or not any more; nothing else is asked for.
            1 pub seal: bool,
        }
    }

    /// A time stamp to set.
    pub struct SetTime {
        /// `None`: the server's present time.
        pub at: Option<WallTime>,
    }

    /// What the kernel of a mount knew of a file when it allowed an open.
    pub struct Judged {
        /// Permission bits.
        pub mode: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
    }

    /// Opens by handle.
    pub struct OpenRequest {
        /// The file.
        pub handle: Handle,
        /// Rights wanted (READ, WRITE).
        pub rights: Rights,
        /// Cut it to nothing.
        pub truncate: bool,
        /// Orders opens and closes of one client.
        pub open_sequence: u64,
        /// Who asks.
        pub who: Credentials,
        /// If given and not true any more, or if the file has no name any more, the answer is
        /// Stale: the path must be walked again.
        pub judged: Option<Judged>,
        optional {
            /// The client knows by [`ReadInlineRequest`] to read what is not at data servers. Who
            /// does not say so finds it there.
            2 pub inline: bool,
            /// The client wants all bytes with the answer, if it gets them by [`ReadInlineRequest`]
            /// otherwise.
            4 pub content: bool,
            /// The client has the file open, and a data server has allocated nothing more under the
            /// ceiling that it has (see [`Ceiling`]).
            6 pub room: RoomWanted,
            /// The client can delay what it writes to the file ([`Rights::DELAY`]): it hears
            /// notices.
            8 pub can_delay: bool,
        }
    }

    /// A wish for a higher ceiling. One answered with `QuotaExceeded` is not granted.
    pub struct RoomWanted {
        /// `Ceiling::file_bytes` that was not enough.
        pub above_bytes: u64,
        /// Where the bytes end that are to be written, in the file.
        pub end_bytes: u64,
    }

    /// The open file.
    pub struct OpenReply {
        /// Its state.
        pub state: FileState,
        /// For the data servers.
        pub capability: Capability,
        optional {
            /// The bulk data is so many bytes, all that is in the file at this moment.
            2 pub content_bytes: u32,
            /// Given if the capability is for writing and the owner of the file has a limit of
            /// bytes.
            4 pub ceiling: Ceiling,
            /// The client has [`Rights::DELAY`].
            6 pub delay: OpenDelay,
        }
    }

    /// With which a client delays what it writes to a file that was there before.
    pub struct OpenDelay {
        /// As `CreateReply::delay_bytes`; 0: data servers may have some of the file, and all of it
        /// goes there.
        pub bytes: u32,
        /// The time of the server.
        pub now: WallTime,
    }

    /// What a client has written to a file since it opened it or last reported.
    pub struct Written {
        /// One past the last byte written.
        pub end_bytes: u64,
        /// When, as the data servers said.
        pub mtime: DataTime,
        /// `Attr::truncate_epoch` as the client knew it when it wrote.
        pub truncate_epoch: u32,
    }

    /// Reports writes and gives up rights. Opens and closes are states, not counts: the client
    /// counts its own opens and tells the server only what it still holds. A close whose
    /// `open_sequence` is older than the newest open of the same client and file changes no rights.
    pub struct CloseRequest {
        /// The file.
        pub handle: Handle,
        /// The newest open that the client knows of.
        pub open_sequence: u64,
        /// What it still has open (none: everything is closed).
        pub keeps: Rights,
        /// What it wrote.
        pub written: Option<Written>,
    }

    /// Closes of many files of one server, one after another. They do not depend on each other.
    pub struct CloseManyRequest {
        /// At most [`CLOSES_MAX`].
        pub closes: Vec<CloseRequest>,
        optional {
            /// What was kept of some of them under [`Rights::DELAY`], which ends: all that is in
            /// the file, for its server to keep. At most [`DELAYED_BYTES_MAX`] bytes together.
            1 pub contents: Vec<DelayedContent>,
            /// Which of them, by their positions in a byte each, have been read, and their time of
            /// the last access may be too old.
            2 pub read: Bytes,
            /// Attributes of some of them that were changed under the same right: of those with a
            /// content, and of those without one if the answer to their create said
            /// `closes_with_attributes`.
            3 pub attributes: Vec<DelayedAttributes>,
        }
    }

    /// What the owner of a file has set of it, for its close. Made if the answer to its create said
    /// that it may come so.
    pub struct DelayedAttributes {
        /// The position of its close.
        pub number: u8,
        /// Permission bits (`0o777`).
        pub mode: Option<u32>,
        /// Last access.
        pub atime: Option<WallTime>,
        /// Last change of the data, after all writes whose times are of its epoch or an earlier
        /// one.
        pub mtime: Option<WallTime>,
        /// When it was set, by the clock of this server as its client knows it.
        pub at: WallTime,
    }

    /// All bytes of a file that is being closed.
    pub struct DelayedContent {
        /// The position of its close.
        pub number: u8,
        /// The bytes.
        pub content: Bytes,
    }

    /// What became of each close.
    pub struct CloseManyReply {
        /// In the order of the request. [`Status::Busy`](weft_base::Status::Busy): not possible
        /// within this turn, ask for it alone. Of one with a content or attributes nothing is done
        /// when it fails: [`Status::CapabilityRefused`](weft_base::Status::CapabilityRefused) if
        /// the right to delay has ended, any other: the content is to be written to data servers,
        /// attributes are to be set alone.
        pub outcomes: Vec<Result<()>>,
    }

    /// Target of a symlink.
    pub struct ReadlinkRequest {
        /// The symlink.
        pub handle: Handle,
    }

    /// The target.
    pub struct ReadlinkReply {
        /// Up to 4095 bytes.
        pub target: Bytes,
    }

    /// The strips of a file.
    pub struct StripsRequest {
        /// The file.
        pub handle: Handle,
    }

    /// They never change.
    pub struct StripsReply {
        /// As `strips:DATAFILE:BYTES;...`.
        pub strips: Bytes,
    }

    /// All bytes of a file whose attributes say that they are on the server of its inode.
    pub struct ReadInlineRequest {
        /// The file, and permission to read it.
        pub capability: Capability,
    }

    /// The whole content at one moment.
    pub struct ReadInlineReply {
        /// `None`: it is at data servers now, and stays there.
        pub content: Option<Bytes>,
    }

    /// Value of an extended attribute.
    pub struct GetXattrRequest {
        /// The object.
        pub handle: Handle,
        /// Full name with its name space (`user.x`).
        pub name: Bytes,
        /// Who asks.
        pub who: Credentials,
    }

    /// The value.
    pub struct GetXattrReply {
        /// Up to 64 KiB.
        pub value: Bytes,
    }

    /// Sets an extended attribute.
    pub struct SetXattrRequest {
        /// The object.
        pub handle: Handle,
        /// Full name with its name space, up to 255 bytes.
        pub name: Bytes,
        /// Up to 64 KiB.
        pub value: Bytes,
        /// Fail if it exists (`XATTR_CREATE`).
        pub create_only: bool,
        /// Fail if it does not exist (`XATTR_REPLACE`).
        pub replace_only: bool,
        /// Who asks.
        pub who: Credentials,
    }

    /// Names of extended attributes.
    pub struct ListXattrRequest {
        /// The object.
        pub handle: Handle,
        /// Who asks.
        pub who: Credentials,
    }

    /// The names.
    pub struct ListXattrReply {
        /// Sorted.
        pub names: Vec<Bytes>,
    }

    /// Removes an extended attribute.
    pub struct RemoveXattrRequest {
        /// The object.
        pub handle: Handle,
        /// Its full name.
        pub name: Bytes,
        /// Who asks.
        pub who: Credentials,
    }

    /// Brings everything that was acknowledged to stable storage.
    pub struct SyncMetaRequest {}

    /// What a client has open, told to a server that has restarted.
    pub struct ReclaimRequest {
        /// File, rights, sequence of the newest open.
        pub opens: Vec<OpenFile>,
        optional {
            /// Locks of programs on these files.
            2 pub locks: Vec<LocksOfFile>,
            /// True if another request follows with the rest.
            4 pub goes_on: bool,
        }
    }

    /// One open file of a client.
    pub struct OpenFile {
        /// The file.
        pub handle: Handle,
        /// Its rights.
        pub rights: Rights,
        /// The newest open.
        pub open_sequence: u64,
    }
}

impl OpenRequest {
    /// Only opens: what else is wanted is to be filled in.
    pub fn of(handle: Handle, rights: Rights, open_sequence: u64, who: Credentials) -> OpenRequest {
        let (judged, inline, content, room, can_delay) = Default::default();
        OpenRequest { handle, rights, truncate: false, open_sequence, who, judged, inline, content, room, can_delay }
    }
}

impl SetAttrRequest {
    /// Changes nothing: what is wanted is to be filled in.
    pub fn of(handle: Handle, who: Credentials) -> SetAttrRequest {
        let (mode, uid, gid, size, atime, mtime) = Default::default();
        SetAttrRequest { handle, mode, uid, gid, size, atime, mtime, who, opened_for_write: false, seal: None }
    }
}

/// Most closes in one [`CloseManyRequest`]: their records must fit one frame of a journal with
/// small segments.
pub const CLOSES_MAX: usize = 128;

/// Most bytes of contents in one [`CloseManyRequest`], for the same reason.
pub const DELAYED_BYTES_MAX: usize = 128 << 10;

impl DelayedAttributes {
    /// Permission bits: what may be set of a mode so.
    pub const PERMISSIONS: u32 = 0o777;

    /// True if a file with this mode may be given that one with its close: other bits, and lists of
    /// access, are for the server to judge when they are set.
    pub fn may_set(of_file: u32, mode: Option<u32>) -> bool {
        const OTHERS: u32 = 0o7777 & !DelayedAttributes::PERMISSIONS;
        of_file & (MODE_ACL | OTHERS) == 0 && mode.is_none_or(|mode| mode & !DelayedAttributes::PERMISSIONS == 0)
    }
}
