//! The state as records, slice by slice, for checkpoints.

use bytes::Bytes;
use weft_base::{ClientId, Handle};

use crate::ceilings::Reserved;
use crate::change::encode;
use crate::partitions::Partition;
use crate::{Change, State};

/// Where the next slice of a snapshot begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SnapshotCursor {
    /// The beginning: counter, transactions and clients with locks.
    #[default]
    Start,
    /// Inodes (with targets and extended attributes) from this handle on.
    Inodes(Handle),
    /// Directories that are split, from this handle on.
    Partitions(Handle),
    /// Entries of this directory behind this cookie, then further directories.
    Entries(Handle, u64),
    /// Answers to this client from this sequence on, then further clients.
    Replies(ClientId, u64),
    /// Everything was given.
    End,
}

impl State {
    /// The next slice: about `max_changes` changes (a group of entries with one hash is never cut)
    /// packed into records, and where to go on. The slice shows the state at this moment; changes
    /// between slices reach a recovery through the journal.
    pub fn snapshot_from(&self, cursor: SnapshotCursor, max_changes: usize) -> (Vec<Bytes>, SnapshotCursor) {
        let mut changes = Vec::new();
        let next = match cursor {
            SnapshotCursor::Start => {
                changes.push(Change::PutCounter { next: self.next_counter });
                let prepared =
                    self.transactions.prepared.iter().map(|(tx, prepared)| Change::PutPrepared { tx: *tx, prepared: prepared.clone() });
                changes.extend(prepared);
                changes.extend(self.lockers().iter().map(|client| Change::PutLocker { client: *client }));
                let decided = self.transactions.decided.iter();
                changes.extend(decided.map(|(tx, participants)| Change::PutDecided { tx: *tx, participants: participants.clone() }));
                changes.extend(self.holders().iter().map(|client| Change::PutHolder { client: *client }));
                changes.extend(self.accounts().kept());
                changes.extend(self.delegations().kept());
                SnapshotCursor::Inodes(Handle(0))
            }
            SnapshotCursor::Inodes(first) => self.inodes_from(first, max_changes, &mut changes),
            SnapshotCursor::Partitions(first) => self.partitions_from(first, max_changes, &mut changes),
            SnapshotCursor::Entries(dir, cookie) => self.entries_from(dir, cookie, max_changes, &mut changes),
            SnapshotCursor::Replies(client, sequence) => self.replies_from(client, sequence, max_changes, &mut changes),
            SnapshotCursor::End => SnapshotCursor::End,
        };
        (pack(&changes), next)
    }

    fn inodes_from(&self, first: Handle, max_changes: usize, changes: &mut Vec<Change>) -> SnapshotCursor {
        for (handle, inode) in self.inodes.from(first) {
            if changes.len() >= max_changes {
                return SnapshotCursor::Inodes(handle);
            }
            changes.push(Change::PutInode { handle, inode: inode.clone() });
            if let Some(Reserved { file_bytes, beside_bytes }) = self.accounts().reserved(handle) {
                changes.push(Change::PutCeiling { handle, file_bytes, beside_bytes });
            }
            if let Some(target) = self.targets.get(&handle) {
                changes.push(Change::PutTarget { handle, target: target.clone() });
            }
            for (name, value) in self.xattrs.of(handle) {
                changes.push(Change::PutXattr { handle, name: name.clone(), value: value.clone() });
            }
        }
        SnapshotCursor::Partitions(Handle(0))
    }

    fn partitions_from(&self, first: Handle, max_changes: usize, changes: &mut Vec<Change>) -> SnapshotCursor {
        for (dir, Partition { map, inode }) in self.split().range(first..) {
            if changes.len() >= max_changes {
                return SnapshotCursor::Partitions(*dir);
            }
            changes.push(Change::PutPartition { dir: *dir, map: map.clone(), known: inode.into() });
            // Attributes of an inode that is here came with it.
            if self.inodes.get(*dir).is_none() {
                let attributes = self.xattrs.of(*dir);
                changes.extend(attributes.map(|(name, value)| Change::PutXattr { handle: *dir, name: name.clone(), value: value.clone() }));
            }
        }
        SnapshotCursor::Entries(Handle(0), 0)
    }

    fn entries_from(&self, first: Handle, mut cookie: u64, max_changes: usize, changes: &mut Vec<Change>) -> SnapshotCursor {
        for (dir, directory) in self.directories.range(first..) {
            if *dir != first {
                cookie = 0;
            }
            for (hash, entries) in directory.after(cookie) {
                if changes.len() >= max_changes {
                    return SnapshotCursor::Entries(*dir, cookie);
                }
                cookie = hash;
                changes.extend(entries.iter().map(|entry| Change::PutEntry {
                    dir: *dir,
                    name: Bytes::copy_from_slice(entry.name),
                    handle: entry.handle,
                    kind: entry.kind,
                }));
            }
        }
        SnapshotCursor::Replies(ClientId(0), 0)
    }

    fn replies_from(&self, first: ClientId, mut sequence: u64, max_changes: usize, changes: &mut Vec<Change>) -> SnapshotCursor {
        for client in self.replies.clients().into_iter().filter(|client| *client >= first) {
            if client != first {
                sequence = 0;
            }
            for (request, finished_below, body) in self.replies.durable_of(client, sequence) {
                if changes.len() >= max_changes {
                    return SnapshotCursor::Replies(client, request.sequence);
                }
                let (incarnation, sequence) = (request.incarnation, request.sequence);
                changes.push(Change::PutReply { client, incarnation, sequence, finished_below, body: body.clone() });
            }
        }
        SnapshotCursor::End
    }
}

/// Packs changes into records of a moderate size.
fn pack(changes: &[Change]) -> Vec<Bytes> {
    changes
        .chunks(64)
        .map(|chunk| {
            let mut out = Vec::with_capacity(chunk.len() * 100);
            encode(chunk, &mut out);
            Bytes::from(out)
        })
        .collect()
}
