//! The table of operations: one row for each, with its request and reply. To add an operation, add its structs and a row here,
//! one file in the server, one in the client, and a line in `docs/wire.md`.

use bytes::Bytes;
use weft_base::{Attr, ClusterMap, Credentials, FileKind, FsId, Handle, Result, ServerId, Status, WallTime};

pub use crate::tx::*;
use crate::{Capability, Rights, Wire, wire_struct};

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
    20 Rmdir(RmdirRequest) -> (), changes;
    /// Move a name. Goes to the server of the old name.
    21 Rename(RenameRequest) -> (), changes;
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
}

wire_struct! {
    /// Nothing to say.
    pub struct PingRequest {}

    /// What a server says of itself.
    pub struct ServerInfo {
        /// Its file system.
        pub fs_id: FsId,
        /// Name of the file system.
        pub fs_name: String,
        /// Its number.
        pub server: ServerId,
        /// Its name.
        pub name: String,
        /// True if the root directory is here; of exactly one server in a file system.
        pub owns_root: bool,
        /// `memory` or `journal`.
        pub engine: String,
        /// `sync`, `batch` or `none`.
        pub durability: String,
        /// `serving`, or what it does instead (`replaying`, `read-only: ...`).
        pub state: String,
        /// Milliseconds since it started.
        pub uptime_ms: u64,
        /// Counts its starts.
        pub boot: u32,
        /// Inodes or datafiles.
        pub objects: u64,
        /// Bytes used for them.
        pub used_bytes: u64,
        /// Bytes that it could hold.
        pub capacity_bytes: u64,
        /// Bytes still free.
        pub free_bytes: u64,
        /// Requests received since the start.
        pub requests: u64,
        /// Bytes received since the start.
        pub received_bytes: u64,
        /// Bytes sent since the start.
        pub sent_bytes: u64,
        /// Processor time used since the start, in microseconds.
        pub cpu_us: u64,
        /// Turns of its loop that had requests; requests / turns is the size of a batch.
        pub turns: u64,
        /// Writes to the journal.
        pub journal_writes: u64,
        /// Flushes of the journal to stable storage.
        pub journal_syncs: u64,
        /// What it has asked of the disk that holds the data (data servers).
        pub disk: Option<DiskUse>,
    }

    /// Operations of the disk that holds the data of a server, since its start.
    pub struct DiskUse {
        /// `none`, `write_behind`, `aggregation` or `server_directed`.
        pub cache_layer: String,
        /// Reads.
        pub reads: u64,
        /// Bytes that they asked for.
        pub read_bytes: u64,
        /// Writes.
        pub writes: u64,
        /// Bytes of them.
        pub written_bytes: u64,
        /// Operations that began where the one before ended.
        pub sequential: u64,
        /// Operations that began less than 5 MiB from there.
        pub near: u64,
        /// All others.
        pub far: u64,
        /// Accesses of requests that met in the cache layer; what did not meet others went to the disk as it was.
        pub gathered: u64,
        /// Operations that these became.
        pub gathered_jobs: u64,
        /// Bytes that were read only because they lay between others.
        pub sieved_bytes: u64,
    }

    /// Nothing to say.
    pub struct GetMapRequest {}

    /// A directory as the target of a name operation, with the epoch of the partition map by which the client chose the server.
    pub struct DirTarget {
        /// The directory.
        pub dir: Handle,
        /// The epoch; 0 if the client has no map yet.
        pub map_epoch: u32,
    }

    /// Which server holds which names of a directory. Partition `i` of `2^depth` holds the names whose hash ends in the bits `i`
    /// (extendible hashing, Fagin et al. 1979); until directories split, `depth` is 0.
    pub struct PartitionMap {
        /// Counts changes of the map, from 1.
        pub epoch: u32,
        /// Number of hash bits used.
        pub depth: u8,
        /// Server of each partition, `2^depth` of them.
        pub servers: Vec<ServerId>,
    }

    /// What a metadata server knows of an object.
    pub struct FileState {
        /// Attributes as of the last close or truncation.
        pub attr: Attr,
        /// Given if another client has the file open for writing (or had it when it was lost): the size and the times may be
        /// larger, and the data servers know them. The capability lets the client ask.
        pub ask_data: Option<Capability>,
        /// Given for directories.
        pub partitions: Option<PartitionMap>,
    }

    /// Finds a name.
    pub struct LookupRequest {
        /// Where.
        pub at: DirTarget,
        /// The name; `.` and `..` are for clients to resolve.
        pub name: Bytes,
        /// Who asks.
        pub who: Credentials,
    }

    /// What the name leads to.
    pub struct LookupReply {
        /// The object.
        pub handle: Handle,
        /// What it is.
        pub kind: FileKind,
        /// Given if its inode is on this server too.
        pub state: Option<FileState>,
    }

    /// Makes an object that is no directory, on the server that holds the name.
    pub struct CreateRequest {
        /// Where.
        pub at: DirTarget,
        /// The name.
        pub name: Bytes,
        /// What to make; not a directory.
        pub kind: FileKind,
        /// Permission bits, the umask applied already.
        pub mode: u32,
        /// Device number of a device.
        pub rdev: u32,
        /// Target of a symlink.
        pub target: Bytes,
        /// Fail if the name exists; otherwise the existing file is opened.
        pub exclusive: bool,
        /// Rights to open it with; none: do not open.
        pub open: Rights,
        /// Orders opens and closes of one client (see [`CloseRequest`]).
        pub open_sequence: u64,
        /// Stripe size in bytes; 0: what the directory says.
        pub stripe_bytes: u32,
        /// Number of datafiles; 0: what the directory says.
        pub stripe_width: u16,
        /// Who asks.
        pub who: Credentials,
    }

    /// The new (or existing) object.
    pub struct CreateReply {
        /// False if the name existed.
        pub created: bool,
        /// The object.
        pub handle: Handle,
        /// What it is.
        pub kind: FileKind,
        /// Given if its inode is on this server; if not, open it there.
        pub state: Option<FileState>,
        /// Given if it was opened.
        pub capability: Option<Capability>,
        /// If the name was made: the directory after it.
        pub dir: DirChange,
    }

    /// Makes a directory; the server of the name chooses the server of the directory.
    pub struct MkdirRequest {
        /// Where.
        pub at: DirTarget,
        /// The name.
        pub name: Bytes,
        /// Permission bits, the umask applied already.
        pub mode: u32,
        /// Stripe size for files in it, in bytes; 0: as its parent.
        pub stripe_bytes: u32,
        /// Number of datafiles for files in it; 0: as its parent.
        pub stripe_width: u16,
        /// Who asks.
        pub who: Credentials,
    }

    /// The new directory.
    pub struct MkdirReply {
        /// Its state.
        pub state: FileState,
    }

    /// Removes a name that leads to anything but a directory.
    pub struct UnlinkRequest {
        /// Where.
        pub at: DirTarget,
        /// The name.
        pub name: Bytes,
        /// Who asks.
        pub who: Credentials,
    }

    /// What the name led to.
    pub struct UnlinkReply {
        /// The object.
        pub handle: Handle,
        /// The directory after the change.
        pub dir: DirChange,
    }

    /// What became of a directory by a change of one name. Whoever knew it as it was before the change knows it now.
    pub struct DirChange {
        /// Its version, one more than before; 0 if the directory was not changed.
        pub version: u64,
        /// Its mtime and ctime.
        pub time: WallTime,
    }

    /// Removes an empty directory.
    pub struct RmdirRequest {
        /// Where its name is.
        pub at: DirTarget,
        /// The name.
        pub name: Bytes,
        /// Who asks.
        pub who: Credentials,
    }

    /// Moves a name.
    pub struct RenameRequest {
        /// Where the name is.
        pub from: DirTarget,
        /// The name.
        pub from_name: Bytes,
        /// Where it shall be.
        pub to: DirTarget,
        /// What it shall be there.
        pub to_name: Bytes,
        /// Fail if the new name exists (`RENAME_NOREPLACE`).
        pub no_replace: bool,
        /// Swap both names (`RENAME_EXCHANGE`).
        pub exchange: bool,
        /// Who asks.
        pub who: Credentials,
    }

    /// Adds a name to an object that is no directory.
    pub struct LinkRequest {
        /// The object.
        pub handle: Handle,
        /// What it is.
        pub kind: FileKind,
        /// Where the new name goes.
        pub to: DirTarget,
        /// The new name.
        pub to_name: Bytes,
        /// Who asks.
        pub who: Credentials,
    }

    /// The object with its new link count.
    pub struct LinkReply {
        /// Given if its inode is on this server too.
        pub state: Option<FileState>,
    }

    /// Lists entries after a cookie.
    pub struct ReadDirRequest {
        /// Which directory.
        pub at: DirTarget,
        /// 0, or the cookie of the last entry seen.
        pub cookie: u64,
        /// The reply's body shall not be much larger than this.
        pub bytes_max: u32,
        /// With the state of objects whose inode is here.
        pub with_state: bool,
        /// Who asks.
        pub who: Credentials,
    }

    /// One entry.
    pub struct DirEntry {
        /// The name.
        pub name: Bytes,
        /// What it leads to.
        pub handle: Handle,
        /// What that is.
        pub kind: FileKind,
        /// Where to go on after it. Cookies grow along the listing, are larger than 2 and less than 2^63.
        pub cookie: u64,
        /// Given on request if the inode is here.
        pub state: Option<FileState>,
    }

    /// Some entries.
    pub struct ReadDirReply {
        /// In the order of their cookies. `.` and `..` are not among them.
        pub entries: Vec<DirEntry>,
        /// No entry follows.
        pub end: bool,
        /// The directory's parent, for `..`.
        pub parent: Handle,
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
        /// The caller has the file open for writing: a change of size needs no write permission on the inode.
        pub opened_for_write: bool,
    }

    /// A time stamp to set.
    pub struct SetTime {
        /// `None`: the server's present time.
        pub at: Option<WallTime>,
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
    }

    /// The open file.
    pub struct OpenReply {
        /// Its state.
        pub state: FileState,
        /// For the data servers.
        pub capability: Capability,
    }

    /// What a client has written to a file since it opened it or last reported.
    pub struct Written {
        /// One past the last byte written.
        pub end_bytes: u64,
        /// When.
        pub mtime: WallTime,
        /// `Attr::truncate_epoch` as the client knew it when it wrote.
        pub truncate_epoch: u32,
    }

    /// Reports writes and gives up rights. Opens and closes are states, not counts: the client counts its own opens and tells
    /// the server only what it still holds. A close whose `open_sequence` is older than the newest open of the same client and
    /// file changes no rights.
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

    /// A contiguous piece of a datafile.
    pub struct Piece {
        /// First byte, counted within the datafile.
        pub offset: u64,
        /// Number of bytes, at least 1.
        pub bytes: u32,
    }

    /// Writes pieces (list I/O); the bulk data is their concatenation.
    pub struct WriteRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// Permission.
        pub capability: Capability,
        /// At most 1024, ordered and disjoint.
        pub pieces: Vec<Piece>,
        /// Time of the change.
        pub mtime: WallTime,
        /// On stable storage before the reply.
        pub sync: bool,
    }

    /// Written.
    pub struct WriteReply {
        /// Local size of the datafile now, in bytes.
        pub size: u64,
    }

    /// Reads pieces (list I/O).
    pub struct ReadRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// Permission.
        pub capability: Capability,
        /// At most 1024, ordered and disjoint.
        pub pieces: Vec<Piece>,
    }

    /// The bulk data is the concatenation of what there is of each piece.
    pub struct ReadReply {
        /// Bytes of each piece that lie below the local end of the datafile; holes are read as zeros.
        pub got: Vec<u32>,
        /// Local size of the datafile, in bytes.
        pub size: u64,
    }

    /// Local size and times.
    pub struct ObjectStatRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// Any genuine capability for the file.
        pub capability: Capability,
    }

    /// Answer; a datafile that was never written has size 0.
    pub struct ObjectStatReply {
        /// Local size in bytes.
        pub size: u64,
        /// Bytes allocated for it.
        pub allocated_bytes: u64,
        /// Last write.
        pub mtime: WallTime,
    }

    /// Cuts (never extends) a datafile. Idempotent: done once for each epoch.
    pub struct ObjectTruncateRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// With the right MANAGE.
        pub capability: Capability,
        /// New local size, if it is less than the present one.
        pub size: u64,
        /// `Attr::truncate_epoch` after the truncation.
        pub truncate_epoch: u32,
    }

    /// Brings a datafile to stable storage.
    pub struct ObjectSyncRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// Any genuine capability for the file.
        pub capability: Capability,
    }

    /// Removes a datafile. Idempotent.
    pub struct ObjectRemoveRequest {
        /// The file.
        pub handle: Handle,
        /// Which of its datafiles.
        pub index: u32,
        /// With the right MANAGE.
        pub capability: Capability,
    }
}

impl Copy for DirChange {}

impl DirChange {
    /// No change.
    pub const NONE: DirChange = DirChange { version: 0, time: WallTime(0) };
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

    #[test]
    fn operation_numbers_round_trip() {
        for op in Op::ALL {
            assert_eq!(Op::from_code(op.code()), Some(*op));
        }
        assert_eq!(Request::decode(9999, Bytes::new()), Err(Status::NotSupported));
    }

    #[test]
    fn wire_md_lists_every_operation() {
        let document = include_str!("../../../docs/wire.md");
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
