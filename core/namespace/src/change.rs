//! Changes and records: what is journaled, replayed and applied. Every change is absolute: its
//! effect on what it names depends on nothing that was there before, so a replay over a newer state
//! ends exactly where the live state was (`weft_store::checkpoint`).

use bytes::Bytes;
use weft_base::{ClientId, FileKind, Handle, RequestId, Result, ServerId, Status, WallTime};
use weft_wire::ops::{MovedName, PartitionInode, PartitionMap, TxId, TxPart};
use weft_wire::{Reader, Rights, Wire, wire_for_variants, wire_struct};

#[cfg(test)]
mod tests;

use crate::Inode;
use crate::marks::Marks;

/// Version of the encoding of records.
pub const RECORD_VERSION: u8 = 4;
/// The version before is read, too: in its inodes no time of birth follows, and files have no
/// holes.
const RECORD_VERSION_OLDEST: u8 = 3;

/// In place of the number of a change: extensions follow to the end of the record.
const EXTENSIONS: u8 = 0;

wire_struct! {
    /// A part of a transaction that a participant has agreed to: kept until the coordinator
    /// decides.
    pub struct Prepared {
        /// What was agreed to.
        pub parts: Vec<TxPart>,
        /// For each part the handle of the directory made, or of the object concerned.
        pub handles: Vec<Handle>,
        /// The time stamps of the change.
        pub time: WallTime,
    }
}

/// One change of the state. See `docs/on-disk.md`, section "Metadata records".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The inode is this. A handle above all known ones moves the counter for new handles.
    PutInode {
        /// Its handle.
        handle: Handle,
        /// All of it.
        inode: Inode,
    },
    /// The inode is gone, with its target and extended attributes.
    DeleteInode {
        /// Its handle.
        handle: Handle,
    },
    /// The name leads there.
    PutEntry {
        /// The directory.
        dir: Handle,
        /// The name.
        name: Bytes,
        /// The object.
        handle: Handle,
        /// What it is.
        kind: FileKind,
    },
    /// The name is gone.
    DeleteEntry {
        /// The directory.
        dir: Handle,
        /// The name.
        name: Bytes,
    },
    /// Entries of a directory have changed: its new times and version.
    Touch {
        /// The directory.
        handle: Handle,
        /// Time of the change of its entries.
        mtime: WallTime,
        /// Time of the change of its inode.
        ctime: WallTime,
        /// Its version.
        version: u64,
    },
    /// The target of a symlink, or the strips of a file with the distribution `varstrip`.
    PutTarget {
        /// The object.
        handle: Handle,
        /// Its target, or `strips:DATAFILE:BYTES;...`.
        target: Bytes,
    },
    /// An extended attribute has this value.
    PutXattr {
        /// The object.
        handle: Handle,
        /// Full name of the attribute.
        name: Bytes,
        /// Its value.
        value: Bytes,
    },
    /// An extended attribute is gone.
    DeleteXattr {
        /// The object.
        handle: Handle,
        /// Full name of the attribute.
        name: Bytes,
    },
    /// This server has agreed to a part of a transaction; what it touches is locked.
    PutPrepared {
        /// The transaction.
        tx: TxId,
        /// What was agreed to.
        prepared: Prepared,
    },
    /// A prepared part is decided (its changes are in the same record) or given up.
    DeletePrepared {
        /// The transaction.
        tx: TxId,
    },
    /// This server has decided to commit a transaction and tells the participants until all have
    /// acknowledged.
    PutDecided {
        /// The transaction.
        tx: TxId,
        /// Who must be told.
        participants: Vec<ServerId>,
    },
    /// All participants have acknowledged.
    DeleteDecided {
        /// The transaction.
        tx: TxId,
    },
    /// The successful answer to a changing request. Answers below `finished_below` are dropped.
    PutReply {
        /// Who asked.
        client: ClientId,
        /// Its life; answers to older lives are dropped.
        incarnation: u32,
        /// Number of the request.
        sequence: u64,
        /// The client waits for nothing below this.
        finished_below: u64,
        /// The encoded reply.
        body: Bytes,
    },
    /// The client will never ask again.
    ForgetClient {
        /// The client.
        client: ClientId,
    },
    /// The client has locks of programs here, or files open for more than reading: after a restart
    /// it is waited for.
    PutLocker {
        /// The client.
        client: ClientId,
    },
    /// It has none any more.
    DeleteLocker {
        /// The client.
        client: ClientId,
    },
    /// This client may believe what it is told until it hears otherwise (`weft-lease`).
    PutHolder {
        /// The client.
        client: ClientId,
    },
    /// This client believes nothing any more.
    DeleteHolder {
        /// The client.
        client: ClientId,
    },
    /// Some names of a directory are here, as the map says, and this is what is known of it. Where
    /// its inode is, only the map counts.
    PutPartition {
        /// The directory.
        dir: Handle,
        /// Who holds which names.
        map: PartitionMap,
        /// What the inode says, for those who work with the names.
        known: PartitionInode,
    },
    /// No name of the directory is here any more.
    DeletePartition {
        /// The directory.
        dir: Handle,
    },
    /// Entries here, of a directory whose inode is elsewhere, have changed: the new times and
    /// version of what is here.
    TouchPartition {
        /// The directory.
        dir: Handle,
        /// Time of the change of its entries.
        mtime: WallTime,
        /// Time of the change of its inode.
        ctime: WallTime,
        /// Its version.
        version: u64,
    },
    /// These names have gone to another server.
    GiveNames {
        /// The directory.
        dir: Handle,
        /// The names.
        names: Vec<Bytes>,
    },
    /// These names have come from another server.
    TakeNames {
        /// The directory.
        dir: Handle,
        /// The names, and what they lead to.
        names: Vec<MovedName>,
    },
    /// Handles below this were given out (48-bit counter of this server).
    PutCounter {
        /// The next free counter.
        next: u64,
    },
    /// The content of a file, which its inode says is here.
    PutContent {
        /// The file.
        handle: Handle,
        /// All of it.
        content: Bytes,
    },
    /// So much may a user have in the file system; metadata server 0 keeps it.
    PutLimit {
        /// The user.
        uid: u32,
        /// Inodes; the largest number: as many as he likes.
        inodes: u64,
    },
    /// So much of that may he have on one server. That server keeps it, and metadata server 0,
    /// which may believe that it is more.
    PutLoan {
        /// The user.
        uid: u32,
        /// The server.
        server: ServerId,
        /// Inodes; the largest number: nothing is lent, as for somebody without a limit.
        inodes: u64,
    },
    /// As [`Change::PutLimit`], of bytes.
    PutByteLimit {
        /// The user.
        uid: u32,
        /// Bytes; the largest number: as many as he likes.
        bytes: u64,
    },
    /// As [`Change::PutLoan`], of bytes.
    PutByteLoan {
        /// The user.
        uid: u32,
        /// The server.
        server: ServerId,
        /// Bytes; the largest number: nothing is lent.
        bytes: u64,
    },
    /// So much may be made in the directories of a project in the whole file system; metadata
    /// server 0 keeps it.
    PutProjectLimit {
        /// The project.
        project: u32,
        /// It is about bytes, else about inodes.
        is_bytes: bool,
        /// So many; the largest number: without a limit.
        most: u64,
    },
    /// So much of that on one server, as [`Change::PutLoan`].
    PutProjectLoan {
        /// The project.
        project: u32,
        /// The server.
        server: ServerId,
        /// It is about bytes, else about inodes.
        is_bytes: bool,
        /// So many; the largest number: nothing is lent.
        most: u64,
    },
    /// What a file may take until nobody has it open for writing. Without effect on one that nobody
    /// has.
    PutCeiling {
        /// The file.
        handle: Handle,
        /// What each datafile may have: as much as it has of a file of so many bytes.
        file_bytes: u64,
        /// Bytes that it may take beside that.
        beside_bytes: u64,
    },
    /// The client makes files in the directory without asking.
    PutDelegation {
        /// The directory.
        dir: Handle,
        /// Who.
        client: ClientId,
    },
    /// Nobody does any more.
    DeleteDelegation {
        /// The directory.
        dir: Handle,
    },
    /// The handles with these counters are for files that the client makes without asking.
    PutHandles {
        /// Who.
        client: ClientId,
        /// The first counter.
        first: u64,
        /// The first counter behind them.
        end: u64,
    },
}

wire_for_variants! {
    Change {
        1 PutInode { handle, inode }
        2 DeleteInode { handle }
        3 PutEntry { dir, name, handle, kind }
        4 DeleteEntry { dir, name }
        5 Touch { handle, mtime, ctime, version }
        6 PutTarget { handle, target }
        7 PutXattr { handle, name, value }
        8 DeleteXattr { handle, name }
        9 PutPrepared { tx, prepared }
        10 DeletePrepared { tx }
        11 PutDecided { tx, participants }
        12 DeleteDecided { tx }
        13 PutReply { client, incarnation, sequence, finished_below, body }
        14 ForgetClient { client }
        15 PutCounter { next }
        16 PutLocker { client }
        17 DeleteLocker { client }
        18 PutHolder { client }
        19 DeleteHolder { client }
        20 PutPartition { dir, map, known }
        21 DeletePartition { dir }
        22 TouchPartition { dir, mtime, ctime, version }
        23 GiveNames { dir, names }
        24 TakeNames { dir, names }
        25 PutContent { handle, content }
        26 PutLimit { uid, inodes }
        27 PutLoan { uid, server, inodes }
        28 PutByteLimit { uid, bytes }
        29 PutByteLoan { uid, server, bytes }
        30 PutCeiling { handle, file_bytes, beside_bytes }
        31 PutDelegation { dir, client }
        32 DeleteDelegation { dir }
        33 PutHandles { client, first, end }
        34 PutProjectLimit { project, is_bytes, most }
        35 PutProjectLoan { project, server, is_bytes, most }
    }
}

/// What an operation does to the volatile table of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenChange {
    /// The client has the file open with these rights, besides those that it had.
    Open {
        /// Who.
        client: ClientId,
        /// The file.
        handle: Handle,
        /// Rights that are added.
        rights: Rights,
        /// Orders opens and closes of one client.
        sequence: u64,
    },
    /// The client keeps only these rights, unless it has opened the file again meanwhile.
    Keep {
        /// Who.
        client: ClientId,
        /// The file.
        handle: Handle,
        /// Rights that remain.
        rights: Rights,
        /// The newest open that the client knew of.
        sequence: u64,
    },
}

/// Everything that one operation changes, as one: it is journaled whole and applied whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Durable changes, in order.
    pub changes: Vec<Change>,
    /// The change of the volatile table of open files. Not encoded.
    pub open: Option<OpenChange>,
}

impl Record {
    /// True if there is nothing to journal.
    pub fn is_volatile(&self) -> bool {
        self.changes.is_empty()
    }

    /// Appends the encoding: version, then the changes to the end.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(&self.changes, out);
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`Status::VersionMismatch`] for another version, [`Status::NewerExtension`] for an extension
    /// that must be understood, [`Status::BadMessage`] for bytes that make no sense.
    pub fn decode(bytes: Bytes) -> Result<Record> {
        let mut reader = Reader::new(bytes);
        let version = u8::get(&mut reader)?;
        if !(RECORD_VERSION_OLDEST..=RECORD_VERSION).contains(&version) {
            return Err(Status::VersionMismatch);
        }
        let (mut changes, mut marks) = (Vec::new(), Marks::default());
        while let Some(code) = reader.peek() {
            if code == EXTENSIONS {
                reader.take(1)?;
                marks = Marks::take(&mut reader)?;
                break;
            }
            changes.push(Change::get(&mut reader)?);
        }
        // A record has one encoding.
        let is_too_new = version < RECORD_VERSION && changes.iter().any(is_born);
        if is_too_new || marks != Marks::of(&changes) {
            return Err(Status::BadMessage);
        }
        Ok(Record { changes, open: None })
    }
}

/// Appends the encoding of a record with these changes.
pub fn encode(changes: &[Change], out: &mut Vec<u8>) {
    RECORD_VERSION.put(out);
    changes.iter().for_each(|change| change.put(out));
    let marks = Marks::of(changes);
    if marks != Marks::default() {
        EXTENSIONS.put(out);
        marks.put(out);
    }
}

fn is_born(change: &Change) -> bool {
    matches!(change, Change::PutInode { inode, .. } if inode.born != WallTime(0))
}

impl Change {
    /// The answer to a request, kept until its client has it.
    pub fn reply(request: RequestId, finished_below: u64, body: Bytes) -> Change {
        let RequestId { client, incarnation, sequence } = request;
        Change::PutReply { client, incarnation, sequence, finished_below, body }
    }
}
