//! Changes as rows of databases: keys whose order is that of a snapshot, values that are changes.
//! A row says what is there now: reading all rows and applying their changes makes the state.

use bytes::Bytes;
use weft_base::{ClientId, Handle, Result, ServerId};
use weft_namespace::{Change, InodeFlags};
use weft_wire::ops::PartitionInode;
use weft_wire::ops::{MovedName, TxId};
use weft_wire::{Reader, Wire};

/// First bytes of keys, in the order in which rows are applied.
mod kind {
    pub(super) const COUNTER: u8 = 1;
    pub(super) const PREPARED: u8 = 2;
    pub(super) const DECIDED: u8 = 3;
    pub(super) const INODE: u8 = 4;
    pub(super) const LAYOUT: u8 = 5;
    pub(super) const TARGET: u8 = 6;
    pub(super) const XATTR: u8 = 7;
    pub(super) const ENTRY: u8 = 8;
    pub(super) const REPLY: u8 = 9;
    pub(super) const LOCKER: u8 = 10;
    pub(super) const HOLDER: u8 = 11;
    pub(super) const PARTITION: u8 = 12;
    pub(super) const LIMIT: u8 = 13;
    pub(super) const LOAN: u8 = 14;
    pub(super) const BYTE_LIMIT: u8 = 15;
    pub(super) const BYTE_LOAN: u8 = 16;
    pub(super) const CEILING: u8 = 17;
    pub(super) const DELEGATION: u8 = 18;
    pub(super) const HANDLES: u8 = 19;
    /// Behind the number of a project: 0 for inodes, 1 for bytes.
    pub(super) const PROJECT_LIMIT: u8 = 20;
    pub(super) const PROJECT_LOAN: u8 = 21;
}

/// What a change does to a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowChange {
    /// The row is this.
    Put(Vec<u8>, Vec<u8>),
    /// The row is gone.
    Delete(Vec<u8>),
    /// All rows from the first key to before the second are gone.
    DeleteRange(Vec<u8>, Vec<u8>),
    /// The inode or partition of this row has other times and another version, as the change says.
    Touch(Vec<u8>, Change),
}

/// Whose database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// The server: attributes, transactions, replies.
    Server,
    /// An object: what only concerns it (the key/value pairs of Trove).
    Object(Handle),
}

/// A change as rows. An object that is gone is told by [`Change::DeleteInode`] itself, and names of
/// a directory that is elsewhere by [`Change::DeletePartition`]: their own database, where they
/// have one, goes with it.
pub(crate) fn rows_of(change: &Change, mut put: impl FnMut(Owner, RowChange)) {
    use Owner::{Object, Server};
    use RowChange::{Delete, DeleteRange, Put, Touch};
    match change {
        Change::PutInode { handle, inode } => {
            put(Server, Put(of_handle(kind::INODE, *handle), value(change)));
            // Whoever wrote to it has closed it.
            if inode.flags.has(InodeFlags::HAS_DATA) && !inode.flags.has(InodeFlags::WRITING) {
                put(Server, Delete(of_handle(kind::CEILING, *handle)));
            }
        }
        Change::PutCeiling { handle, .. } => put(Server, Put(of_handle(kind::CEILING, *handle), value(change))),
        Change::DeleteInode { handle } => {
            put(Server, Delete(of_handle(kind::INODE, *handle)));
            put(Server, Delete(of_handle(kind::CEILING, *handle)));
            put(Server, Delete(of_handle(kind::DELEGATION, *handle)));
            all_of_object(*handle, &mut put);
        }
        Change::PutPartition { dir, .. } => put(Server, Put(of_handle(kind::PARTITION, *dir), value(change))),
        Change::DeletePartition { dir } => {
            put(Server, Delete(of_handle(kind::PARTITION, *dir)));
            all_of_object(*dir, &mut put);
        }
        Change::TouchPartition { dir, .. } => put(Server, Touch(of_handle(kind::PARTITION, *dir), change.clone())),
        Change::Touch { handle, .. } => put(Server, Touch(of_handle(kind::INODE, *handle), change.clone())),
        Change::PutEntry { dir, name, .. } => put(Object(*dir), Put(of_name(kind::ENTRY, *dir, name), value(change))),
        Change::DeleteEntry { dir, name } => put(Object(*dir), Delete(of_name(kind::ENTRY, *dir, name))),
        Change::GiveNames { dir, names } => {
            names.iter().for_each(|name| put(Object(*dir), Delete(of_name(kind::ENTRY, *dir, name))));
        }
        Change::TakeNames { dir, names } => {
            for MovedName { name, handle, kind } in names {
                let entry = Change::PutEntry { dir: *dir, name: name.clone(), handle: *handle, kind: *kind };
                put(Object(*dir), Put(of_name(kind::ENTRY, *dir, name), value(&entry)));
            }
        }
        Change::PutTarget { handle, .. } => put(Object(*handle), Put(of_handle(kind::TARGET, *handle), value(change))),
        Change::PutXattr { handle, name, .. } => put(Object(*handle), Put(of_name(kind::XATTR, *handle, name), value(change))),
        Change::DeleteXattr { handle, name } => put(Object(*handle), Delete(of_name(kind::XATTR, *handle, name))),
        Change::PutPrepared { tx, .. } => put(Server, Put(of_tx(kind::PREPARED, tx), value(change))),
        Change::DeletePrepared { tx } => put(Server, Delete(of_tx(kind::PREPARED, tx))),
        Change::PutDecided { tx, .. } => put(Server, Put(of_tx(kind::DECIDED, tx), value(change))),
        Change::DeleteDecided { tx } => put(Server, Delete(of_tx(kind::DECIDED, tx))),
        Change::PutReply { client, incarnation, sequence, finished_below, .. } => {
            // Answers to older lives, and those that the client has, are dropped.
            let oldest = of_client(*client);
            put(Server, DeleteRange(oldest, of_reply(*client, *incarnation, *finished_below)));
            put(Server, Put(of_reply(*client, *incarnation, *sequence), value(change)));
        }
        Change::ForgetClient { client } => {
            put(Server, DeleteRange(of_client(*client), end(of_client(*client))));
            put(Server, DeleteRange(of_handles(*client), end(of_handles(*client))));
        }
        Change::PutLocker { client } => put(Server, Put(of_locker(*client), value(change))),
        Change::DeleteLocker { client } => put(Server, Delete(of_locker(*client))),
        Change::PutHolder { client } => put(Server, Put(of_holder(*client), value(change))),
        Change::DeleteHolder { client } => put(Server, Delete(of_holder(*client))),
        Change::PutDelegation { dir, .. } => put(Server, Put(of_handle(kind::DELEGATION, *dir), value(change))),
        Change::DeleteDelegation { dir } => put(Server, Delete(of_handle(kind::DELEGATION, *dir))),
        Change::PutHandles { client, first, .. } => {
            let key = [&of_handles(*client)[..], &first.to_be_bytes()].concat();
            put(Server, Put(key, value(change)));
        }
        // Contents are nothing that these engines keep.
        Change::PutContent { .. } => {}
        Change::PutLimit { uid, .. } => put(Server, Put(of_user(kind::LIMIT, *uid), value(change))),
        Change::PutByteLimit { uid, .. } => put(Server, Put(of_user(kind::BYTE_LIMIT, *uid), value(change))),
        Change::PutLoan { uid, server, .. } => put(Server, Put(of_loan(kind::LOAN, *uid, *server), value(change))),
        Change::PutByteLoan { uid, server, .. } => put(Server, Put(of_loan(kind::BYTE_LOAN, *uid, *server), value(change))),
        Change::PutProjectLimit { project, is_bytes, .. } => {
            let key = [&of_user(kind::PROJECT_LIMIT, *project)[..], &[u8::from(*is_bytes)]].concat();
            put(Server, Put(key, value(change)));
        }
        Change::PutProjectLoan { project, server, is_bytes, .. } => {
            let key = [&of_loan(kind::PROJECT_LOAN, *project, *server)[..], &[u8::from(*is_bytes)]].concat();
            put(Server, Put(key, value(change)));
        }
        Change::PutCounter { .. } => put(Server, Put(vec![kind::COUNTER], value(change))),
    }
}

/// All rows of an object but its inode are gone.
fn all_of_object(handle: Handle, put: &mut impl FnMut(Owner, RowChange)) {
    for kind in kind::LAYOUT..=kind::ENTRY {
        put(Owner::Object(handle), RowChange::DeleteRange(of_handle(kind, handle), end(of_handle(kind, handle))));
    }
}

/// The row of an object's layout in its own database: the inode of which it is taken.
pub(crate) fn layout_row(handle: Handle, inode: &Change) -> RowChange {
    RowChange::Put(of_handle(kind::LAYOUT, handle), value(inode))
}

/// The change that a row is.
///
/// # Errors
/// [`weft_base::Status::BadMessage`] if it is none.
pub(crate) fn change_of(value: &[u8]) -> Result<Change> {
    Change::get(&mut Reader::new(Bytes::copy_from_slice(value)))
}

/// True if the row is the layout of an object.
pub(crate) fn is_layout(key: &[u8]) -> bool {
    key.first() == Some(&kind::LAYOUT)
}

/// The row of an inode or partition after a change of its times; `None` if the row is something
/// else.
pub(crate) fn touched(row: &[u8], touch: &Change) -> Option<Vec<u8>> {
    Some(value(&match (change_of(row).ok()?, touch) {
        (Change::PutInode { handle, mut inode }, Change::Touch { mtime, ctime, version, .. }) => {
            (inode.mtime, inode.ctime, inode.version) = (*mtime, *ctime, *version);
            Change::PutInode { handle, inode }
        }
        (Change::PutPartition { dir, map, known }, Change::TouchPartition { mtime, ctime, version, .. }) => {
            let known = PartitionInode { mtime: *mtime, ctime: *ctime, version: *version, ..known };
            Change::PutPartition { dir, map, known }
        }
        _ => return None,
    }))
}

/// The counter of handles behind all that a change names of this server.
pub(crate) fn counter_behind(change: &Change, server: ServerId) -> u64 {
    let handle = match change {
        Change::PutInode { handle, .. } => Some(*handle),
        Change::PutPrepared { prepared, .. } => prepared.made(),
        Change::PutCounter { next } => return *next,
        _ => None,
    };
    handle.filter(|handle| handle.server() == server).map_or(0, |handle| handle.counter() + 1)
}

fn value(change: &Change) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    change.put(&mut out);
    out
}

fn of_handle(kind: u8, handle: Handle) -> Vec<u8> {
    [&[kind][..], &handle.0.to_be_bytes()].concat()
}

fn of_user(kind: u8, uid: u32) -> Vec<u8> {
    [&[kind][..], &uid.to_be_bytes()].concat()
}

fn of_loan(kind: u8, uid: u32, server: ServerId) -> Vec<u8> {
    [&of_user(kind, uid)[..], &server.0.to_be_bytes()].concat()
}

fn of_name(kind: u8, handle: Handle, name: &[u8]) -> Vec<u8> {
    [&[kind][..], &handle.0.to_be_bytes(), name].concat()
}

fn of_tx(kind: u8, tx: &TxId) -> Vec<u8> {
    [&[kind][..], &tx.coordinator.0.to_be_bytes(), &tx.number.to_be_bytes()].concat()
}

fn of_holder(client: ClientId) -> Vec<u8> {
    [&[kind::HOLDER][..], &client.0.to_be_bytes()].concat()
}

fn of_client(client: ClientId) -> Vec<u8> {
    [&[kind::REPLY][..], &client.0.to_be_bytes()].concat()
}

fn of_handles(client: ClientId) -> Vec<u8> {
    [&[kind::HANDLES][..], &client.0.to_be_bytes()].concat()
}

fn of_locker(client: ClientId) -> Vec<u8> {
    [&[kind::LOCKER][..], &client.0.to_be_bytes()].concat()
}

fn of_reply(client: ClientId, incarnation: u32, sequence: u64) -> Vec<u8> {
    [&of_client(client)[..], &incarnation.to_be_bytes(), &sequence.to_be_bytes()].concat()
}

/// The first key behind all keys that begin with `prefix`; no prefix here is all ones.
fn end(mut prefix: Vec<u8>) -> Vec<u8> {
    while prefix.pop_if(|last| *last == u8::MAX).is_some() {}
    if let Some(last) = prefix.last_mut() {
        *last += 1;
    }
    prefix
}
