//! What has changed at a metadata server, as its journal says.

use bytes::Bytes;
use weft_base::{FileKind, Handle, WallTime};

use crate::codec::wire_for_choices;
use crate::tx::TxId;
use crate::wire_struct;

wire_struct! {
    /// A place in the changes of one server. It outlives the server and its client.
    pub struct ChangeCursor {
        /// Which journal; 0: the changes from now on are wanted.
        pub log: u64,
        /// All records up to this one are known.
        pub lsn: u64,
        /// Where the server has found the next record; a hint.
        pub segment: u64,
        /// The same.
        pub offset: u64,
    }

    /// What has changed behind a cursor?
    pub struct ChangesRequest {
        /// The cursor.
        pub after: ChangeCursor,
        /// If nothing has changed, the answer may wait so long, in milliseconds; the server takes
        /// [`CHANGES_WAIT_MS_MAX`] at most.
        pub wait_ms: u32,
    }

    /// A piece of what has changed. All of it survives a power cut.
    pub struct ChangesReply {
        /// Behind these.
        pub until: ChangeCursor,
        /// The server does not have all changes behind the cursor any more: some are lost to the
        /// client, and the list goes on from now.
        pub lost: bool,
        /// There are more.
        pub more: bool,
        /// In the order in which the server has made them.
        pub changes: Vec<ToldChange>,
    }

    /// One change.
    pub struct ToldChange {
        /// What happened.
        pub what: ChangeKind,
        /// The directory of the name; 0 if the change is told by the object alone.
        pub dir: Handle,
        /// The name.
        pub name: Bytes,
        /// Of a rename: the directory of the new name.
        pub to_dir: Handle,
        /// The new name.
        pub to_name: Bytes,
        /// The object; 0 if the record does not say it.
        pub handle: Handle,
        /// What that is, if the record says it.
        pub kind: Option<FileKind>,
        /// When, by the server's clock; 0 if the record does not say it.
        pub time: WallTime,
        /// Of a change that is a part of one over several servers: which.
        pub tx: Option<TxId>,
    }
}

impl Copy for ChangeCursor {}

impl ToldChange {
    /// Nothing is said but what it was.
    pub fn empty(what: ChangeKind) -> ToldChange {
        let (zero, none) = (Handle(0), Bytes::new());
        let (name, to_name) = (none.clone(), none);
        ToldChange { what, dir: zero, name, to_dir: zero, to_name, handle: zero, kind: None, time: WallTime(0), tx: None }
    }
}

/// Longest wait of a request for changes, in milliseconds: shorter than a client waits before it
/// asks again on its own.
pub const CHANGES_WAIT_MS_MAX: u32 = 1_500;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChangeKind {
    /// The name leads to this object now: it was made, linked, exchanged, or moved here from
    /// another server.
    Created = 1,
    /// The name leads to nothing any more.
    Removed = 2,
    /// The name has become the new name, on the same server.
    Renamed = 3,
    /// Attributes or extended attributes of the object have changed, or its data, and somebody may
    /// be writing to it still.
    Changed = 4,
    /// The file was changed or open for writing, and nobody has it open for writing any more.
    Written = 5,
}

wire_for_choices! {
    ChangeKind { Created, Removed, Renamed, Changed, Written }
}
