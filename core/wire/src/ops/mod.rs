//! The table of operations: one row for each, with its request and reply. To add an operation, add its structs to the file of its
//! kind and a row here, one file in the server, one in the client, and a line in `docs/wire.md`.

mod data;
mod inodes;
mod live;
mod mount;
mod names;
mod server;
mod trace;

use bytes::Bytes;
use weft_base::{ClusterMap, Result, Status};

pub use self::data::*;
pub use self::inodes::*;
pub use self::live::*;
pub use self::mount::*;
pub use self::names::*;
pub use self::server::*;
pub use self::trace::*;
pub use crate::disk_use::DiskUse;
pub use crate::tx::*;
use crate::{Rights, Wire};

/// A request type: knows its number, its reply type and whether it changes anything.
pub trait Operation: Wire {
    /// Its number.
    const OP: Op;
    /// What a successful reply carries.
    type Reply: Wire;
    /// True if the server must execute it exactly once: its reply is kept in the reply table.
    const CHANGES: bool;
}

macro_rules! operations {
    ($( $(#[$doc:meta])* $code:literal $name:ident ( $request:ty ) -> $reply:ty, $effect:ident; )*) => {
        /// Every operation by name and number. The numbers are part of the wire format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Op { $( $(#[$doc])* $name = $code, )* }

        impl Op {
            /// All operations.
            pub const ALL: &'static [Op] = &[ $( Op::$name, )* ];

            /// The number on the wire.
            pub fn code(self) -> u16 { self as u16 }

            /// The operation with this number.
            pub fn from_code(code: u16) -> Option<Op> {
                match code { $( $code => Some(Op::$name), )* _ => None }
            }

            /// Its name, as in traces and statistics.
            pub fn name(self) -> &'static str {
                match self { $( Op::$name => stringify!($name), )* }
            }

            /// True if it must be executed exactly once.
            pub fn changes(self) -> bool {
                match self { $( Op::$name => operations!(@changes $effect), )* }
            }
        }

        /// A decoded request of any operation.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Request { $( $(#[$doc])* $name($request), )* }

        impl Request {
            /// Decodes the body of a request.
            ///
            /// # Errors
            /// [`Status::NotSupported`] for an unknown operation, [`Status::BadMessage`] for a malformed body.
            pub fn decode(op: u16, body: Bytes) -> Result<Request> {
                match Op::from_code(op).ok_or(Status::NotSupported)? {
                    $( Op::$name => Ok(Request::$name(<$request>::from_bytes(body)?)), )*
                }
            }

            /// The operation.
            pub fn op(&self) -> Op {
                match self { $( Request::$name(_) => Op::$name, )* }
            }
        }

        $( impl Operation for $request {
            const OP: Op = Op::$name;
            type Reply = $reply;
            const CHANGES: bool = operations!(@changes $effect);
        } )*
    };
    (@changes changes) => { true };
    (@changes reads) => { false };
}

operations! {
    // Any server.
    /// Who are you, and how are you?
    1 Ping(PingRequest) -> ServerInfo, reads;
    /// The cluster map.
    2 GetMap(GetMapRequest) -> ClusterMap, reads;
    /// Switch the recording of traces, and how does it stand?
    3 Trace(TraceRequest) -> TraceReply, reads;
    /// Give a piece of a file that the recording has written.
    4 TraceRead(TraceReadRequest) -> TraceReadReply, reads;
    /// Another server introduces itself.
    5 Meet(MeetRequest) -> MeetReply, reads;
    /// How busy are you, and with what?
    8 Live(LiveRequest) -> LiveReply, reads;

    // Metadata servers, by name in a directory.
    /// What does this name lead to?
    16 Lookup(LookupRequest) -> LookupReply, reads;
    /// Make (and open) a file, symlink, pipe, socket or device.
    17 Create(CreateRequest) -> CreateReply, changes;
    /// Make a directory.
    18 Mkdir(MkdirRequest) -> MkdirReply, changes;
    /// Remove a name that does not lead to a directory.
    19 Unlink(UnlinkRequest) -> UnlinkReply, changes;
    /// Remove an empty directory.
    20 Rmdir(RmdirRequest) -> RmdirReply, changes;
    /// Move a name. Goes to the server of the old name.
    21 Rename(RenameRequest) -> RenameReply, changes;
    /// Add a name to an object. Goes to the server of the new name.
    22 Link(LinkRequest) -> LinkReply, changes;
    /// List entries.
    23 ReadDir(ReadDirRequest) -> ReadDirReply, reads;

    // Metadata servers, by handle.
    /// Attributes.
    32 GetAttr(GetAttrRequest) -> FileState, reads;
    /// Attributes of many objects of one server.
    33 GetAttrMany(GetAttrManyRequest) -> GetAttrManyReply, reads;
    /// Change attributes; truncate.
    34 SetAttr(SetAttrRequest) -> FileState, changes;
    /// Open by handle.
    35 Open(OpenRequest) -> OpenReply, changes;
    /// Report what was written, give up rights.
    36 Close(CloseRequest) -> (), changes;
    /// Target of a symlink.
    37 Readlink(ReadlinkRequest) -> ReadlinkReply, reads;
    /// Value of an extended attribute.
    38 GetXattr(GetXattrRequest) -> GetXattrReply, reads;
    /// Set an extended attribute.
    39 SetXattr(SetXattrRequest) -> (), changes;
    /// Names of extended attributes.
    40 ListXattr(ListXattrRequest) -> ListXattrReply, reads;
    /// Remove an extended attribute.
    41 RemoveXattr(RemoveXattrRequest) -> (), changes;
    /// Everything acknowledged so far is on stable storage when this is answered.
    42 SyncMeta(SyncMetaRequest) -> (), reads;
    /// After a restart of the server: what the client has open.
    43 Reclaim(ReclaimRequest) -> (), reads;
    /// Many closes at once.
    44 CloseMany(CloseManyRequest) -> CloseManyReply, changes;

    // Between metadata servers.
    /// Prepare a part of a transaction.
    64 TxPrepare(TxPrepareRequest) -> TxPrepareReply, changes;
    /// Commit or abort a prepared part.
    65 TxDecide(TxDecideRequest) -> (), changes;
    /// What became of a transaction?
    66 TxStatus(TxStatusRequest) -> TxStatusReply, reads;
    /// The parent of a directory.
    67 Parent(ParentRequest) -> ParentReply, reads;

    // Data servers.
    /// Write pieces of a datafile; the bytes are the bulk data.
    96 Write(WriteRequest) -> WriteReply, reads;
    /// Read pieces of a datafile; the bytes are the reply's bulk data.
    97 Read(ReadRequest) -> ReadReply, reads;
    /// Local size and times of a datafile.
    98 ObjectStat(ObjectStatRequest) -> ObjectStatReply, reads;
    /// Cut a datafile.
    99 ObjectTruncate(ObjectTruncateRequest) -> (), reads;
    /// Bring a datafile to stable storage.
    100 ObjectSync(ObjectSyncRequest) -> (), reads;
    /// Remove a datafile.
    101 ObjectRemove(ObjectRemoveRequest) -> (), reads;
    /// Writes from now on come after a time that was set.
    102 ObjectEpoch(ObjectEpochRequest) -> (), reads;
}
impl Wire for Rights {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn get(from: &mut crate::Reader) -> Result<Self> {
        Ok(Rights(Wire::get(from)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_base::Handle;

    #[test]
    fn operation_numbers_round_trip() {
        for op in Op::ALL {
            assert_eq!(Op::from_code(op.code()), Some(*op));
        }
        assert_eq!(Request::decode(9999, Bytes::new()), Err(Status::NotSupported));
    }

    #[test]
    fn wire_md_lists_every_operation() {
        let document = include_str!("../../../../docs/wire.md");
        for op in Op::ALL {
            let row = format!("| {} | {} |", op.code(), op.name());
            let line = document.lines().find(|line| line.starts_with(&row)).unwrap_or_else(|| panic!("docs/wire.md lacks {row}"));
            assert_eq!(line.ends_with("| yes |"), op.changes(), "{row}");
        }
    }

    #[test]
    fn left_over_bytes_are_refused() {
        let mut body = GetAttrRequest { handle: Handle(1) }.to_bytes().to_vec();
        assert!(Request::decode(Op::GetAttr.code(), body.clone().into()).is_ok());
        body.push(0);
        assert_eq!(Request::decode(Op::GetAttr.code(), body.into()), Err(Status::BadMessage));
    }

    proptest! {
        #[test]
        fn random_bodies_never_panic(op in 0u16..110, body in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(request) = Request::decode(op, body.into()) {
                prop_assert_eq!(request.op().code(), op);
            }
        }
    }
}
