//! Changes and records: what is journaled, replayed and applied. Every change is absolute: its
//! effect on what it names depends on nothing that was there before, so a replay over a newer state
//! ends exactly where the live state was (`weft_store::checkpoint`).

use bytes::Bytes;
use weft_base::{ClientId, FileKind, Handle, RequestId, Result, ServerId, Status, WallTime};
use weft_wire::ops::{MovedName, PartitionMap, TxId, TxPart};
use weft_wire::{Reader, Rights, Wire, wire_for_variants, wire_struct};

use crate::marks::Marks;
use crate::{Inode, PartitionInode};

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
    /// The client has had locks of programs here: after a restart it is waited for.
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

    /// Empties it for the next operation, keeping its memory.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.open = None;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_base::Layout;

    fn samples() -> Vec<Change> {
        let tx = TxId { coordinator: ServerId(1), number: 9 };
        let layout = Layout { stripe_bytes: 4096, width: 2, first: 1, generation: 1 };
        let inode = Inode::new(FileKind::File, 0o640, 7, 8, layout, WallTime(5));
        let name = Bytes::from_static(b"name");
        let (handle, dir) = (Handle(3), Handle(1));
        let prepared = Prepared { parts: vec![TxPart::MoveToken {}], handles: vec![Handle(0)], time: WallTime(4) };
        vec![
            Change::PutInode { handle, inode: inode.clone() },
            Change::DeleteInode { handle },
            Change::PutEntry { dir, name: name.clone(), handle, kind: FileKind::Symlink },
            Change::DeleteEntry { dir, name: name.clone() },
            Change::Touch { handle, mtime: WallTime(1), ctime: WallTime(2), version: 3 },
            Change::PutTarget { handle, target: name.clone() },
            Change::PutXattr { handle, name: name.clone(), value: Bytes::new() },
            Change::DeleteXattr { handle, name },
            Change::PutPrepared { tx, prepared },
            Change::DeletePrepared { tx },
            Change::PutDecided { tx, participants: vec![ServerId(0), ServerId(2)] },
            Change::DeleteDecided { tx },
            Change::PutReply { client: ClientId(6), incarnation: 1, sequence: 2, finished_below: 1, body: Bytes::from_static(b"r") },
            Change::ForgetClient { client: ClientId(6) },
            Change::PutLocker { client: ClientId(6) },
            Change::DeleteLocker { client: ClientId(6) },
            Change::PutCounter { next: 77 },
            Change::PutHolder { client: ClientId(6) },
            Change::DeleteHolder { client: ClientId(6) },
            Change::PutPartition { dir, map: PartitionMap::even(&[ServerId(1), ServerId(0)]), known: PartitionInode::of(&inode) },
            Change::DeletePartition { dir },
            Change::TouchPartition { dir, mtime: WallTime(1), ctime: WallTime(2), version: 3 },
            Change::GiveNames { dir, names: vec![Bytes::from_static(b"one"), Bytes::from_static(b"other")] },
            Change::TakeNames { dir, names: vec![MovedName { name: Bytes::from_static(b"one"), handle, kind: FileKind::File }] },
            Change::PutContent { handle, content: Bytes::from_static(b"bytes") },
        ]
    }

    #[test]
    fn records_round_trip() {
        let record = Record { changes: samples(), open: None };
        let mut out = Vec::new();
        record.encode(&mut out);
        assert_eq!(Record::decode(out.clone().into()), Ok(record));
        for end in 0..out.len() {
            // A cut record is refused or is a shorter list of the same changes; it never becomes
            // something else.
            if let Ok(cut) = Record::decode(out[..end].to_vec().into()) {
                assert_eq!(cut.changes, samples()[..cut.changes.len()]);
            }
        }
        out[0] = 1;
        assert_eq!(Record::decode(out.into()), Err(Status::VersionMismatch));
    }

    #[test]
    fn records_of_the_version_before_are_read() {
        let layout = Layout { stripe_bytes: 4096, width: 2, first: 1, generation: 1 };
        let inode = Inode { born: WallTime(0), ..Inode::new(FileKind::File, 0o7640, 7, 8, layout, WallTime(5)) };
        let changes = vec![Change::PutInode { handle: Handle(3), inode }, Change::PutCounter { next: 7 }];
        let mut out = Vec::new();
        encode(&changes, &mut out);
        assert_eq!(out.len(), 1 + (1 + 8 + 96) + (1 + 8), "as it was");
        out[0] = 3;
        assert_eq!(Record::decode(out.into()).map(|record| record.changes), Ok(changes));
    }

    #[test]
    fn extensions_follow_the_changes() {
        let with = |tag: u8| {
            let mut out = Vec::new();
            encode(&samples()[1..3], &mut out);
            out.extend([EXTENSIONS, tag, 0, 1, 0, 0, 0, 77]);
            Record::decode(out.into()).map(|record| record.changes)
        };
        assert_eq!(with(2), Ok(samples()[1..3].to_vec()));
        assert_eq!(with(9), Err(Status::NewerExtension));
        assert_eq!(with(0), Err(Status::BadMessage));
        assert_eq!(with(3), Err(Status::BadMessage), "with a value, which it has not");
    }

    #[test]
    fn a_record_with_strips_is_refused_by_older_programs() {
        let layout = Layout { stripe_bytes: 4096, width: 2, first: 0, generation: 1 | Layout::VARSTRIP };
        let inode = Inode::new(FileKind::File, 0o640, 7, 8, layout, WallTime(5));
        let target = Bytes::from_static(b"strips:0:4096;1:8192");
        let changes = vec![Change::PutInode { handle: Handle(3), inode }, Change::PutTarget { handle: Handle(3), target }];
        let mut out = Vec::new();
        encode(&changes, &mut out);
        assert_eq!(out[out.len() - 7..], [EXTENSIONS, 1, 0, 0, 0, 0, 0], "an odd tag");
        assert_eq!(Record::decode(out.into()).map(|record| record.changes), Ok(changes));
    }

    #[test]
    fn on_disk_md_metadata_records_golden_bytes() {
        let mut out = Vec::new();
        encode(&samples()[1..5], &mut out);
        #[rustfmt::skip]
        let expected = [
            4,
            2, 3, 0, 0, 0, 0, 0, 0, 0,
            3, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, b'n', b'a', b'm', b'e', 3, 0, 0, 0, 0, 0, 0, 0, 10,
            4, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, b'n', b'a', b'm', b'e',
            5, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(out, expected);
        let mut inode = Vec::new();
        samples()[0].put(&mut inode);
        assert_eq!(inode.len(), 1 + 8 + 96 + 8);
        assert_eq!(inode[9..15], [8, 0, 0xa0, 0x11, 7, 0], "kind, flags, mode, owner");
        assert_eq!(inode[105..], [5, 0, 0, 0, 0, 0, 0, 0], "when it was made");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut with_version = vec![RECORD_VERSION];
            with_version.extend_from_slice(&bytes);
            let _ = Record::decode(with_version.into());
            let _ = Record::decode(bytes.into());
        }
    }
}
