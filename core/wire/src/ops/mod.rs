//! The table of operations: one row for each, from which everything follows that other crates know
//! of it. `ARCHITECTURE.md` ("How to change things") says what else a new row needs.

mod classic;
mod data;
mod delegation;
mod inodes;
mod leases;
mod live;
mod locks;
mod many;
mod mount;
mod names;
mod quota;
mod row;
mod server;
mod split;
#[cfg(test)]
mod tests;
mod trace;
mod trees;
mod watch;

use bytes::Bytes;
use weft_base::{Handle, Result, ServerRole, Status};

pub use self::classic::*;
pub use self::data::*;
pub use self::delegation::*;
pub use self::inodes::*;
pub use self::leases::*;
pub use self::live::*;
pub use self::locks::*;
pub use self::many::*;
pub use self::mount::*;
pub use self::names::*;
pub use self::quota::*;
pub use self::row::*;
pub use self::server::*;
pub use self::split::*;
pub use self::trace::*;
pub use self::trees::*;
pub use self::watch::*;
use crate::Wire;
pub use crate::disk_use::DiskUse;
use crate::handle_tags::Tagged;
pub use crate::partition::{Move, Partition, PartitionMap};
pub use crate::tx::*;

/// A request type: knows its row and its reply type.
pub trait Operation: Wire + Sync {
    /// Its row.
    const OP: Op;
    /// What a successful reply carries.
    type Reply: Wire;

    /// Calls `see` with each handle that the request names, in one order.
    fn each_handle(&self, see: &mut dyn FnMut(Handle));

    /// Calls `see` with each handle of which a reply tells the client, in one order. Not with those
    /// that the request has named.
    fn each_told(reply: &Self::Reply, see: &mut dyn FnMut(Handle));
}

macro_rules! operations {
    ($(
        $(#[doc = $doc:literal])*
        $code:literal $name:ident ( $request:ty ) -> $reply:ty, $role:ident $goes_to:literal,
            $effect:ident, $space:ident, $class:ident, by $allowed_by:ident, traced $event:literal, about $($about:ident).+
                $( and $($other:ident).+ )? $( each $($each:ident).+ )?
                $(, tells $($told:ident).+ $( each $($told_each:ident).+ )? $( each_ok $($told_ok:ident).+ )?)?;
    )*) => {
        /// Every operation by name and number. The numbers are part of the wire format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Op { $( $(#[doc = $doc])* $name = $code, )* }

        impl Op {
            /// All operations.
            pub const ALL: &'static [Op] = &[ $( Op::$name, )* ];

            /// The number on the wire.
            pub const fn code(self) -> u16 { self as u16 }

            /// The operation with this number.
            #[inline]
            pub const fn from_code(code: u16) -> Option<Op> {
                match code { $( $code => Some(Op::$name), )* _ => None }
            }

            /// Its name, as in statistics.
            pub const fn name(self) -> &'static str {
                match self { $( Op::$name => stringify!($name), )* }
            }

            /// Its name in traces, behind that of the server's layer: `create` of `meta.create`.
            pub const fn event_name(self) -> &'static str {
                match self { $( Op::$name => $event, )* }
            }

            /// Which servers answer it; `None`: every one, also one that the others do not know
            /// yet.
            pub const fn role(self) -> Option<ServerRole> {
                match self { $( Op::$name => operations!(@role $role), )* }
            }

            /// Which of these servers, for people.
            pub const fn goes_to(self) -> &'static str {
                match self { $( Op::$name => $goes_to, )* }
            }

            /// True if it must be executed exactly once: its reply is kept in the reply table.
            pub const fn changes(self) -> bool {
                match self { $( Op::$name => operations!(@changes $effect), )* }
            }

            /// What it does to free space.
            pub const fn space(self) -> Space {
                match self { $( Op::$name => Space::$space, )* }
            }

            /// What kind of work it is.
            pub const fn class(self) -> Class {
                match self { $( Op::$name => Class::$class, )* }
            }

            /// True if the answer may come much later, so that a request of it comes over a
            /// connection of its own.
            pub const fn waits(self) -> bool {
                matches!(self, Op::Notices | Op::Changes)
            }

            /// By what a request of it is allowed.
            pub const fn allowed_by(self) -> AllowedBy {
                match self { $( Op::$name => AllowedBy::$allowed_by, )* }
            }

            /// Calls `see` with each handle of which the body of a successful reply tells.
            ///
            /// # Errors
            /// [`Status::BadMessage`] for a malformed body.
            pub fn each_told(self, body: Bytes, see: &mut dyn FnMut(Handle)) -> Result<()> {
                match self { $( Op::$name => <$request>::each_told(&<$reply>::from_bytes(body)?, see), )* }
                Ok(())
            }

            /// Reads the body of a successful reply, whatever it says.
            ///
            /// # Errors
            /// [`Status::BadMessage`] for a malformed body.
            pub fn check_reply(self, body: Bytes) -> Result<()> {
                match self { $( Op::$name => <$reply>::from_bytes(body).map(drop), )* }
            }
        }

        /// A decoded request of any operation.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Request { $( $(#[doc = $doc])* $name($request), )* }

        impl Request {
            /// Decodes the body of a request.
            ///
            /// # Errors
            /// [`Status::NotSupported`] for an unknown operation, [`Status::BadMessage`] for a
            /// malformed body.
            pub fn decode(op: u16, body: Bytes) -> Result<Request> {
                Request::of(Op::from_code(op).ok_or(Status::NotSupported)?, body)
            }

            /// Decodes the body of a request for this operation.
            ///
            /// # Errors
            /// [`Status::BadMessage`] for a malformed body.
            pub fn of(op: Op, body: Bytes) -> Result<Request> {
                match op {
                    $( Op::$name => Ok(Request::$name(<$request>::from_bytes(body)?)), )*
                }
            }

            /// As [`Request::of`], with the tags of the handles that it names.
            ///
            /// # Errors
            /// [`Status::BadMessage`] for a malformed body.
            pub fn tagged(op: Op, body: Bytes) -> Result<Tagged<Request>> {
                Ok(match op {
                    $( Op::$name => {
                        let Tagged { message, tags } = Tagged::<$request>::from_bytes(body)?;
                        Tagged { message: Request::$name(message), tags }
                    } )*
                })
            }

            /// Calls `see` with each handle that it names, in one order.
            pub fn each_handle(&self, see: &mut dyn FnMut(Handle)) {
                match self { $( Request::$name(request) => request.each_handle(see), )* }
            }

            /// The encoded body.
            pub fn encode(&self) -> Bytes {
                match self { $( Request::$name(request) => request.to_bytes(), )* }
            }

            /// The operation.
            pub const fn op(&self) -> Op {
                match self { $( Request::$name(_) => Op::$name, )* }
            }

            /// What it is about, for people who ask what is busy: the directory if it has a name in
            /// it, since a server that is asked for a million names in one directory shall say so;
            /// else the object. 0: nothing in particular.
            #[inline]
            pub fn object(&self) -> Handle {
                match self { $( Request::$name(_request) => operations!(@about _request $($about).+), )* }
            }

            /// The file and the number of its datafile, of requests to data servers about one.
            #[inline]
            pub fn datafile(&self) -> Option<(Handle, u32)> {
                match self { $( Request::$name(_request) => operations!(@datafile $role _request $($about).+), )* }
            }
        }

        $( impl Operation for $request {
            const OP: Op = Op::$name;
            type Reply = $reply;

            #[allow(unused_variables)] // requests that name no object
            fn each_handle(&self, see: &mut dyn FnMut(Handle)) {
                operations!(@see self see $($about).+);
                $( see(self.$($other).+); )?
                $( operations!(@each self see $($each).+); )?
            }

            #[allow(unused_variables)] // replies that tell of no object
            fn each_told(reply: &$reply, see: &mut dyn FnMut(Handle)) {
                $(
                    operations!(@see reply see $($told).+);
                    $( operations!(@each reply see $($told_each).+); )?
                    $( operations!(@each_ok reply see $($told_ok).+); )?
                )?
            }
        } )*
    };
    (@role Any) => { None };
    (@role $role:ident) => { Some(ServerRole::$role) };
    (@changes once) => { true };
    (@changes reads) => { false };
    (@see $message:ident $see:ident nothing) => {};
    (@see $message:ident $see:ident $($field:ident).+) => { $see($message.$($field).+) };
    (@each $message:ident $see:ident $list:ident) => { $message.$list.iter().for_each(|handle| $see(*handle)) };
    (@each $message:ident $see:ident $list:ident . $($field:ident).+) => { $message.$list.iter().for_each(|element| $see(element.$($field).+)) };
    (@each_ok $message:ident $see:ident $list:ident . $field:ident) => { $message.$list.iter().flatten().for_each(|element| $see(element.$field)) };
    (@about $request:ident nothing) => { Handle(0) };
    (@about $request:ident $($about:ident).+) => { $request.$($about).+ };
    (@datafile Data $request:ident nothing) => { None };
    (@datafile Data $request:ident $($about:ident).+) => { Some(($request.handle, $request.index)) };
    (@datafile $role:ident $request:ident $($about:ident).+) => { None };
}

// Number, name, request and reply; who answers it;
//     once: executed exactly once, by the reply table, or reads: may be repeated (as writes to
//     datafiles may: the same bytes at the same place); what it does to free space; its class in
//     dashboards; by what it is allowed; its name in traces (`other`: it shares an event); what it
//     is about, with the other object (`and`) or the list of objects (`each`) that it names; of
//     which objects the reply tells (`tells`; `each_ok`: of a list of results).
operations! {
    // Any server.
    /// Who are you, and how are you?
    1 Ping(PingRequest) -> ServerInfo, Any "any server", reads, Untouched, Other, by Key, traced "other", about nothing;
    /// The cluster map.
    2 GetMap(GetMapRequest) -> GetMapReply, Any "any server", reads, Untouched, Other, by Key, traced "other", about nothing;
    /// Switch the recording of traces, and how does it stand?
    3 Trace(TraceRequest) -> TraceReply, Any "any server", reads, Untouched, Other, by UnlimitedKey, traced "other", about nothing;
    /// Give a piece of a file that the recording has written.
    4 TraceRead(TraceReadRequest) -> TraceReadReply, Any "any server",
        reads, Untouched, Other, by UnlimitedKey, traced "other", about nothing;
    /// Another server introduces itself.
    5 Meet(MeetRequest) -> MeetReply, Any "metadata server 0; any server",
        reads, Untouched, Other, by ServersKey, traced "other", about nothing;
    /// How busy are you, and with what?
    8 Live(LiveRequest) -> LiveReply, Any "any server", reads, Untouched, Other, by Key, traced "other", about nothing;
    /// What an acknowledged change survives from now on.
    9 SetDurability(SetDurabilityRequest) -> (), Any "any server", reads, Untouched, Other, by UnlimitedKey, traced "other", about nothing;
    /// Which keys of clients do you accept?
    10 GetKeys(GetKeysRequest) -> GetKeysReply, Any "metadata server 0; any server",
        reads, Untouched, Other, by ServersKey, traced "other", about nothing;

    // Metadata servers, by name in a directory.
    /// What does this name lead to?
    16 Lookup(LookupRequest) -> LookupReply, Meta "server of the name", reads, Untouched, MetaRead, by User, traced "lookup", about at.dir, tells handle;
    /// Make (and open) a file, symlink, pipe, socket or device.
    17 Create(CreateRequest) -> CreateReply, Meta "server of the name", once, Needed, MetaChange, by User, traced "create", about at.dir, tells handle;
    /// Make a directory.
    18 Mkdir(MkdirRequest) -> MkdirReply, Meta "server of the name", once, Needed, MetaChange, by User, traced "mkdir", about at.dir, tells state.attr.handle;
    /// Remove a name that does not lead to a directory.
    19 Unlink(UnlinkRequest) -> UnlinkReply, Meta "server of the name", once, Freed, MetaChange, by User, traced "unlink", about at.dir;
    /// Remove an empty directory.
    20 Rmdir(RmdirRequest) -> RmdirReply, Meta "server of the name", once, Freed, MetaChange, by User, traced "rmdir", about at.dir;
    /// Move a name. Goes to the server of the old name.
    21 Rename(RenameRequest) -> RenameReply, Meta "server of the old name",
        once, Needed, MetaChange, by User, traced "rename", about from.dir and to.dir;
    /// Add a name to an object. Goes to the server of the new name.
    22 Link(LinkRequest) -> LinkReply, Meta "server of the new name", once, Needed, MetaChange, by User, traced "link", about to.dir and handle;
    /// List entries.
    23 ReadDir(ReadDirRequest) -> ReadDirReply, Meta "server of the directory's partition",
        reads, Untouched, MetaRead, by User, traced "readdir", about at.dir, tells nothing each entries.handle;
    /// What do these names lead to, and may their files be read?
    24 LookupMany(LookupManyRequest) -> LookupManyReply, Meta "server of the names",
        reads, Untouched, MetaRead, by User, traced "lookupmany", about nothing each dirs.at.dir, tells nothing each_ok found.handle;
    /// Remove many names, and what they lead to.
    25 RemoveEntries(RemoveEntriesRequest) -> RemoveEntriesReply, Meta "server of the names",
        once, Freed, MetaChange, by User, traced "removeentries", about at.dir, tells nothing each left.handle;
    /// Spread the names of a directory over servers, or how does it go on?
    26 Split(SplitRequest) -> SplitReply, Meta "server of the inode", reads, Needed, Other, by User, traced "split", about dir;

    /// These files were made in directories that are delegated to this client.
    27 CreateMany(CreateManyRequest) -> CreateManyReply, Meta "server of the directories",
        once, Freed, MetaChange, by UnlimitedKey, traced "createmany", about nothing each groups.dir;

    // Metadata servers, by handle.
    /// Attributes.
    32 GetAttr(GetAttrRequest) -> FileState, Meta "server of the inode",
        reads, Untouched, MetaRead, by Handle, traced "getattr", about handle;
    /// Attributes of many objects of one server.
    33 GetAttrMany(GetAttrManyRequest) -> GetAttrManyReply, Meta "server of the inodes",
        reads, Untouched, MetaRead, by Handle, traced "getattrmany", about nothing each handles;
    /// Change attributes; truncate.
    34 SetAttr(SetAttrRequest) -> FileState, Meta "server of the inode", once, Freed, MetaChange, by User, traced "setattr", about handle;
    /// Open by handle.
    35 Open(OpenRequest) -> OpenReply, Meta "server of the inode", once, Needed, MetaRead, by User, traced "open", about handle;
    /// Report what was written, give up rights.
    36 Close(CloseRequest) -> (), Meta "server of the inode", once, Freed, Other, by Open, traced "close", about handle;
    /// Target of a symlink.
    37 Readlink(ReadlinkRequest) -> ReadlinkReply, Meta "server of the inode",
        reads, Untouched, MetaRead, by Handle, traced "readlink", about handle;
    /// Value of an extended attribute.
    38 GetXattr(GetXattrRequest) -> GetXattrReply, Meta "server of the inode",
        reads, Untouched, MetaRead, by User, traced "getxattr", about handle;
    /// Set an extended attribute.
    39 SetXattr(SetXattrRequest) -> (), Meta "server of the inode", once, Needed, MetaChange, by User, traced "setxattr", about handle;
    /// Names of extended attributes.
    40 ListXattr(ListXattrRequest) -> ListXattrReply, Meta "server of the inode",
        reads, Untouched, MetaRead, by User, traced "listxattr", about handle;
    /// Remove an extended attribute.
    41 RemoveXattr(RemoveXattrRequest) -> (), Meta "server of the inode",
        once, Freed, MetaChange, by User, traced "removexattr", about handle;
    /// Everything acknowledged so far is on stable storage when this is answered.
    42 SyncMeta(SyncMetaRequest) -> (), Meta "metadata server", reads, Untouched, Other, by Key, traced "sync", about nothing;
    /// After a restart of the server: what the client has open.
    43 Reclaim(ReclaimRequest) -> (), Meta "metadata server", reads, Untouched, Other, by Open, traced "reclaim", about nothing each opens.handle;
    /// Many closes at once.
    44 CloseMany(CloseManyRequest) -> CloseManyReply, Meta "server of the inodes",
        once, Freed, Other, by Open, traced "closemany", about nothing each closes.handle;
    /// The strips of a file with the distribution `varstrip`.
    45 Strips(StripsRequest) -> StripsReply, Meta "server of the inode",
        reads, Untouched, MetaRead, by Handle, traced "strips", about handle;
    /// All bytes of a file that are on the server of its inode.
    46 ReadInline(ReadInlineRequest) -> ReadInlineReply, Meta "server of the inode", reads, Untouched, MetaRead, by Capability, traced "readinline", about capability.handle;
    /// Which of these objects are no more, nor will be again?
    47 CheckGone(CheckGoneRequest) -> CheckGoneReply, Meta "server of the inodes",
        reads, Untouched, Other, by UnlimitedKey, traced "checkgone", about nothing each handles;

    // Metadata servers: steps of the protocol of PVFS2, a yardstick.
    /// Create, step 1: attributes and hints of a directory.
    48 ClassicDirectory(ClassicDirectoryRequest) -> ClassicDirectoryReply, Meta "server of the directory",
        reads, Untouched, MetaRead, by UnlimitedKey, traced "classic_directory", about dir;
    /// Handles for files without a metafile.
    49 ClassicReserve(ClassicReserveRequest) -> ClassicReserveReply, Meta "server of the directory",
        once, Needed, MetaChange, by UnlimitedKey, traced "classic_reserve", about dir;
    /// Create, step 2: a metafile without a name.
    50 ClassicMakeMetafile(ClassicMakeMetafileRequest) -> ClassicMakeMetafileReply, Meta "server of the directory",
        once, Needed, MetaChange, by UnlimitedKey, traced "classic_make", about dir;
    /// Create, step 4: attributes of a metafile.
    51 ClassicSetMetafile(ClassicSetMetafileRequest) -> (), Meta "server of the inode",
        once, Needed, MetaChange, by UnlimitedKey, traced "classic_set", about capability.handle;
    /// Create, step 5: a name for it.
    52 ClassicInsertEntry(ClassicInsertEntryRequest) -> (), Meta "server of the name",
        once, Needed, MetaChange, by UnlimitedKey, traced "classic_insert", about at.dir;
    /// Removal, step 1: a name is gone.
    53 ClassicRemoveEntry(ClassicRemoveEntryRequest) -> ClassicRemoveEntryReply, Meta "server of the name",
        once, Freed, MetaChange, by UnlimitedKey, traced "classic_take", about at.dir;
    /// Removal, step 4: a metafile without a name is gone.
    54 ClassicRemoveMetafile(ClassicRemoveMetafileRequest) -> (), Meta "server of the inode",
        once, Freed, MetaChange, by UnlimitedKey, traced "classic_remove", about capability.handle;

    // Metadata servers: locks of programs.
    /// Take a lock of a program, or wait for it.
    56 Lock(LockRequest) -> LockReply, Meta "server of the inode", once, Freed, Other, by Open, traced "lock", about handle;
    /// Give locks of programs back.
    57 Unlock(UnlockRequest) -> (), Meta "server of the inode", once, Freed, Other, by Open, traced "unlock", about handle;
    /// Who is in the way of a lock?
    58 LockTest(LockTestRequest) -> LockTestReply, Meta "server of the inode",
        reads, Untouched, Other, by Open, traced "locktest", about handle;
    /// Give a wait for a lock up.
    59 LockCancel(LockCancelRequest) -> (), Meta "server of the inode",
        reads, Untouched, Other, by Open, traced "lockcancel", about handle;

    // Metadata servers: leases.
    /// What must the client not believe any more? Waits until there is something.
    60 Notices(NoticesRequest) -> NoticesReply, Meta "metadata server", reads, Untouched, Other, by Key, traced "notices", about nothing;

    // Metadata servers: what watches them.
    /// What has changed? Waits until there is something.
    61 Changes(ChangesRequest) -> ChangesReply, Meta "metadata server",
        reads, Untouched, Other, by UnlimitedKey, traced "changes", about nothing;

    // Between metadata servers.
    /// Prepare a part of a transaction.
    64 TxPrepare(TxPrepareRequest) -> TxPrepareReply, Meta "participant",
        once, Freed, Other, by ServersKey, traced "prepare", about nothing;
    /// Commit or abort a prepared part.
    65 TxDecide(TxDecideRequest) -> (), Meta "participant", once, Freed, Other, by ServersKey, traced "decide", about nothing;
    /// What became of a transaction?
    66 TxStatus(TxStatusRequest) -> TxStatusReply, Meta "coordinator",
        reads, Untouched, Other, by ServersKey, traced "status", about nothing;
    /// The parent of a directory.
    67 Parent(ParentRequest) -> ParentReply, Meta "server of the directory",
        reads, Untouched, MetaRead, by Handle, traced "parent", about dir;
    /// Let names of a directory go to another server.
    68 GiveNames(GiveNamesRequest) -> GiveNamesReply, Meta "server of the names",
        reads, Needed, Other, by ServersKey, traced "givenames", about dir;
    /// Lend inodes for a user.
    69 Borrow(BorrowRequest) -> BorrowReply, Meta "metadata server 0",
        reads, Needed, Other, by ServersKey, traced "borrow", about nothing;
    /// Give back what a user does not use.
    70 Recall(RecallRequest) -> RecallReply, Meta "metadata server", reads, Freed, Other, by ServersKey, traced "recall", about nothing;

    // Metadata servers: what users take.
    /// What do these users take here?
    71 Usage(UsageRequest) -> UsageReply, Meta "metadata server", reads, Untouched, Other, by User, traced "usage", about nothing;
    /// How much may this user have?
    72 SetQuota(SetQuotaRequest) -> SetQuotaReply, Meta "metadata server 0",
        reads, Needed, Other, by UnlimitedKey, traced "setquota", about nothing;

    // Data servers.
    /// Write pieces of a datafile; the bytes are the bulk data.
    96 Write(WriteRequest) -> WriteReply, Data "data server", reads, Needed, DataWrite, by Capability, traced "write", about handle;
    /// Read pieces of a datafile; the bytes are the reply's bulk data.
    97 Read(ReadRequest) -> ReadReply, Data "data server", reads, Untouched, DataRead, by Capability, traced "read", about handle;
    /// Local size and times of a datafile.
    98 ObjectStat(ObjectStatRequest) -> ObjectStatReply, Data "data server",
        reads, Untouched, Other, by Capability, traced "stat", about handle;
    /// Cut a datafile.
    99 ObjectTruncate(ObjectTruncateRequest) -> (), Data "data server", reads, Freed, Other, by Capability, traced "truncate", about handle;
    /// Bring a datafile to stable storage.
    100 ObjectSync(ObjectSyncRequest) -> (), Data "data server", reads, Untouched, Other, by Capability, traced "sync", about handle;
    /// Remove a datafile.
    101 ObjectRemove(ObjectRemoveRequest) -> (), Data "data server", reads, Freed, Other, by Capability, traced "remove", about handle;
    /// Writes from now on come after a time that was set.
    102 ObjectEpoch(ObjectEpochRequest) -> (), Data "data server", reads, Needed, Other, by Capability, traced "epoch", about handle;
    /// Read pieces of many datafiles; the bytes are the reply's bulk data.
    103 ReadMany(ReadManyRequest) -> ReadManyReply, Data "data server",
        reads, Untouched, DataRead, by Capability, traced "readmany", about nothing each reads.capability.handle;
    /// Make a hole in a datafile.
    104 ObjectPunch(ObjectPunchRequest) -> WriteReply, Data "data server", reads, Freed, Other, by Capability, traced "punch", about handle;
    /// Give bytes of a datafile their space.
    105 ObjectAllocate(ObjectAllocateRequest) -> WriteReply, Data "data server",
        reads, Needed, DataWrite, by Capability, traced "allocate", about handle;
    /// Where is the next byte that was written, or was not?
    106 ObjectSeek(ObjectSeekRequest) -> ObjectSeekReply, Data "data server",
        reads, Untouched, Other, by Capability, traced "seek", about handle;
    /// Which datafiles are here?
    107 ListDatafiles(ListDatafilesRequest) -> ListDatafilesReply, Data "data server",
        reads, Untouched, Other, by UnlimitedKey, traced "listdatafiles", about handle, tells nothing each datafiles.handle;
}
/// Who has a place for each operation needs the number of the last one.
const _: () = {
    let mut place = 1;
    while place < Op::ALL.len() {
        assert!(Op::ALL[place - 1].code() < Op::ALL[place].code(), "the table is in the order of numbers");
        place += 1;
    }
};
