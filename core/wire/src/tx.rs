//! What servers say to each other to change two of them as one: the parts of a logged transaction.

use bytes::Bytes;
use weft_base::{ClientId, Credentials, FileKind, Handle, Layout, Result, ServerId, WallTime};

use crate::partition::PartitionMap;
use crate::{wire_for_variants, wire_struct};

wire_struct! {
    /// Names a transaction: the server that coordinates it and that server's counter.
    pub struct TxId {
        /// Who decides.
        pub coordinator: ServerId,
        /// Never reused by this coordinator.
        pub number: u64,
    }
}

impl Copy for TxId {}
impl PartialOrd for TxId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for TxId {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.coordinator, self.number).cmp(&(other.coordinator, other.number))
    }
}

wire_struct! {
    /// A name that goes from one server to another.
    pub struct MovedName {
        /// The name.
        pub name: Bytes,
        /// What it leads to; that stays where it is.
        pub handle: Handle,
        /// What that is.
        pub kind: FileKind,
    }

    /// What a server that holds names of a directory knows of the directory.
    pub struct PartitionInode {
        /// Permission bits.
        pub mode: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// What files in it inherit.
        pub layout: Layout,
        /// Last change of the names there, or as it was set.
        pub mtime: WallTime,
        /// Last change of the names there, or of the inode.
        pub ctime: WallTime,
        /// Counts the changes there.
        pub version: u64,
    }

    /// Names of a directory that go from one server to another, with what the new server must know
    /// of the directory if it knows nothing.
    pub struct MovedNames {
        /// The directory.
        pub dir: Handle,
        /// The first of their hashes.
        pub first: u64,
        /// The last.
        pub last: u64,
        /// Who holds which names then.
        pub map: PartitionMap,
        /// What is known where they are.
        pub known: PartitionInode,
        /// Nothing of the directory stays there: what was counted there is counted here.
        pub is_all: bool,
        /// The hints of the directory (names and values of extended attributes).
        pub hints: Vec<(Bytes, Bytes)>,
        /// All names with these hashes.
        pub names: Vec<MovedName>,
    }
}

impl Copy for PartitionInode {}

/// One change at one server. Preparing it checks that it is possible and locks what it touches;
/// committing it cannot fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxPart {
    /// The name `name` in `dir` shall lead to `handle`.
    InsertEntry {
        /// Directory whose partition is here.
        dir: Handle,
        /// The name.
        name: Bytes,
        /// What it leads to; 0: the directory that the same transaction makes.
        handle: Handle,
        /// What that is.
        kind: FileKind,
        /// What the name leads to now; `None`: the name must be free.
        replaces: Option<Handle>,
    },
    /// The name shall be gone.
    RemoveEntry {
        /// Directory whose partition is here.
        dir: Handle,
        /// The name.
        name: Bytes,
        /// What it leads to now.
        handle: Handle,
    },
    /// A directory shall be made here; its handle is chosen when this is prepared.
    MakeDirectory {
        /// The directory that will hold its name.
        parent: Handle,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// What files in it inherit.
        layout: Layout,
    },
    /// The directory that the part before makes shall have these hints (names and values of
    /// extended attributes).
    InheritHints {
        /// Of the directory that it is made in.
        hints: Vec<(Bytes, Bytes)>,
    },
    /// The names of a directory shall be spread by this map, and some of them be here.
    MakePartition {
        /// The directory; 0: the one that the same transaction makes.
        dir: Handle,
        /// Who holds which names.
        map: PartitionMap,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// What files in it inherit.
        layout: Layout,
        /// Its hints (names and values of extended attributes).
        hints: Vec<(Bytes, Bytes)>,
    },
    /// A directory, of which some names are here, shall have these attributes.
    ChangePartition {
        /// The directory.
        dir: Handle,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// If it is set: the time of the last access.
        atime: Option<WallTime>,
        /// If it is set: the time of the last change of names.
        mtime: Option<WallTime>,
        /// Extended attributes that are set or, without a value, removed.
        attributes: Vec<(Bytes, Option<Bytes>)>,
    },
    /// A directory of which some names could be here shall be gone, with its inode if that is here;
    /// none may be here, and none comes any more when this is prepared.
    RemovePartition {
        /// The directory.
        dir: Handle,
        /// Its name is in a sticky directory: only its owner may do it.
        must_own: bool,
    },
    /// The directory shall be gone; it must be empty and becomes closed for new entries when this
    /// is prepared. One whose names are spread over servers is refused (`StaleMap`).
    RemoveDirectory {
        /// The directory.
        dir: Handle,
        /// Its name is in a sticky directory: only its owner may do it.
        must_own: bool,
    },
    /// The link count of an inode that is here, and is no directory, shall change by `delta`.
    ChangeLinks {
        /// The inode.
        handle: Handle,
        /// What the coordinator believes it to be.
        kind: FileKind,
        /// +1, -1, or 0 for a renamed object (only the time of its change is set).
        delta: i64,
        /// Its name is in a sticky directory: only its owner may do it.
        must_own: bool,
    },
    /// The directory shall know its new parent (or, renamed within its parent, the time of the
    /// change).
    SetParent {
        /// The directory.
        dir: Handle,
        /// Its new parent.
        parent: Handle,
        /// Its name is in a sticky directory: only its owner may do it.
        must_own: bool,
    },
    /// The names of a directory with these hashes, which are here, shall be elsewhere. Only a
    /// coordinator has this part.
    GiveNames {
        /// The directory.
        dir: Handle,
        /// The first of the hashes.
        first: u64,
        /// The last.
        last: u64,
        /// Who holds which names then.
        map: PartitionMap,
    },
    /// The names of a directory with these hashes, which are with the coordinator, shall be here.
    /// Until it is decided whoever asks for them waits.
    TakeNames {
        /// What goes, and what is known of its directory.
        names: MovedNames,
    },
    /// The names of a directory, whose inode is here, shall be spread by this map; others hold the
    /// names that move.
    PutMap {
        /// The directory.
        dir: Handle,
        /// Who holds which names then.
        map: PartitionMap,
    },
    /// The names of a directory, whose inode is here, are spread by this map and no other.
    ExpectMap {
        /// The directory.
        dir: Handle,
        /// What the coordinator believes.
        map: PartitionMap,
    },
    /// An object, whose inode is here, counts for this project: its name goes to a directory of
    /// that.
    ExpectProject {
        /// The object.
        handle: Handle,
        /// The number of the project.
        project: u32,
    },
    /// The right to move directories between directories, of which there is one in a file system
    /// (at metadata server 0): with it nobody else can make a cycle.
    MoveToken {},
}

wire_for_variants! {
    TxPart {
        1 InsertEntry { dir, name, handle, kind, replaces }
        2 RemoveEntry { dir, name, handle }
        3 MakeDirectory { parent, mode, uid, gid, layout }
        4 RemoveDirectory { dir, must_own }
        5 ChangeLinks { handle, kind, delta, must_own }
        6 SetParent { dir, parent, must_own }
        7 MoveToken {}
        8 InheritHints { hints }
        9 MakePartition { dir, map, mode, uid, gid, layout, hints }
        10 ChangePartition { dir, mode, uid, gid, atime, mtime, attributes }
        11 RemovePartition { dir, must_own }
        12 GiveNames { dir, first, last, map }
        13 TakeNames { names }
        14 PutMap { dir, map }
        15 ExpectMap { dir, map }
        16 ExpectProject { handle, project }
    }
}

wire_struct! {
    /// Coordinator to participant: can you? Locks on success.
    pub struct TxPrepareRequest {
        /// The transaction.
        pub tx: TxId,
        /// Changes at this server, in order.
        pub parts: Vec<TxPart>,
        /// Who wants it.
        pub who: Credentials,
        /// The time stamps of the change.
        pub time: WallTime,
        optional {
            /// The client that wants it: it needs no notice of its own change.
            2 pub client: ClientId,
        }
    }

    /// Yes or no. A refusal is an answer, not an error, so that nobody repeats the request while it
    /// holds locks elsewhere.
    pub struct TxPrepareReply {
        /// For every part one handle: the directory made, or the object concerned (0 if none).
        pub handles: Result<Vec<Handle>>,
    }

    /// Coordinator to participant: do it, or forget it. Idempotent.
    pub struct TxDecideRequest {
        /// The transaction.
        pub tx: TxId,
        /// Do it?
        pub commit: bool,
    }

    /// Participant to coordinator after a crash of either: what became of it?
    pub struct TxStatusRequest {
        /// The transaction.
        pub tx: TxId,
    }

    /// The coordinator's answer. A transaction that it does not know was never decided and counts
    /// as aborted.
    pub struct TxStatusReply {
        /// `None`: not decided yet, ask again.
        pub committed: Option<bool>,
    }

    /// Which directory holds this directory? For the search for cycles.
    pub struct ParentRequest {
        /// The directory.
        pub dir: Handle,
    }

    /// The answer.
    pub struct ParentReply {
        /// The parent; the root is its own.
        pub parent: Handle,
    }
}
