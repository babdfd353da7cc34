//! The state of a metadata server and the one function that changes it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use weft_base::{ClientId, FileKind, Handle, RequestId, Result, ServerId, Status, WallTime};
use weft_wire::ops::TxId;
use weft_wire::{Capability, ClusterKey, NameKey, Rights};

use crate::accounts::{Accounts, Counted};
use crate::ceilings::Reserved;
use crate::change::Prepared;
use crate::contents::Contents;
use crate::delegations::Delegations;
use crate::directory::{Directory, Entry};
use crate::flagged::{Flagged, Flags};
use crate::graves::Graves;
use crate::locks::Locks;
use crate::opens::Opens;
use crate::partitions::Partition;
use crate::placement::Placement;
use crate::replies::Replies;
use crate::table::InodeTable;
use crate::xattrs::Xattrs;
use crate::{Admission, Change, Inode, InodeFlags, LockMode, Record};

/// What a state must know of its file system. Constant while the server runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This server.
    pub server: ServerId,
    /// The key of the hash of names, the same on all servers of the file system.
    pub name_key: NameKey,
    /// What the extended attributes of all objects of this server may take in memory, about, in
    /// bytes.
    pub xattr_bytes_max: u64,
    /// What directories without the hint `inline_limit` have in its place, in bytes; 0: off.
    pub inline_limit: u32,
}

/// Circumstances of one request.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    /// Who sends it.
    pub client: ClientId,
    /// The wall clock, for time stamps and the ends of capabilities.
    pub now: WallTime,
    /// Signs capabilities.
    pub key: &'a ClusterKey,
    /// How long capabilities hold, in nanoseconds.
    pub capability_ns: i64,
}

impl RequestContext<'_> {
    /// A capability for the asking client.
    pub fn capability(&self, handle: Handle, rights: Rights) -> Capability {
        let expires = WallTime(self.now.0.saturating_add(self.capability_ns));
        // The others are no business of data servers.
        let known = Rights::OF_DATA.with(Rights::UNDER_CEILING);
        Capability::sign(self.key, handle, self.client, rights.and(known), expires)
    }
}

/// Transactions that are not over.
#[derive(Debug)]
pub(crate) struct Transactions {
    /// Parts of this server that wait for their coordinators.
    pub(crate) prepared: BTreeMap<TxId, Prepared>,
    /// What this server has decided, and who may not know yet.
    pub(crate) decided: BTreeMap<TxId, Vec<ServerId>>,
    /// What they hold. Volatile.
    pub(crate) locks: Locks,
}

/// Everything that a metadata server knows.
#[derive(Debug)]
pub struct State {
    pub(crate) settings: Settings,
    pub(crate) placement: Placement,
    pub(crate) inodes: InodeTable,
    pub(crate) directories: BTreeMap<Handle, Directory>,
    contents: Contents,
    /// Directories of which some names are here and others elsewhere.
    split: BTreeMap<Handle, Partition>,
    /// More names than this are many, and directories that have had so many. Derived.
    large: (u64, BTreeSet<Handle>),
    pub(crate) targets: BTreeMap<Handle, Bytes>,
    pub(crate) xattrs: Xattrs,
    pub(crate) transactions: Transactions,
    pub(crate) replies: Replies,
    /// Clients that have had locks of programs, or files open for more than reading.
    lockers: BTreeSet<ClientId>,
    /// Counter of the next new handle.
    pub(crate) next_counter: u64,
    /// Clients that may believe what they were told.
    holders: BTreeSet<ClientId>,
    delegations: Delegations,

    // Derived from the above.
    pub(crate) flagged: Flagged,
    accounts: Accounts,

    // Volatile.
    pub(crate) graves: Graves,
    pub(crate) opens: Opens,
}

impl State {
    /// An empty state: not even a root.
    pub fn new(settings: Settings) -> State {
        let locks = Locks::new(settings.name_key);
        State {
            settings,
            placement: Placement::default(),
            inodes: InodeTable::default(),
            directories: BTreeMap::new(),
            split: BTreeMap::new(),
            large: (u64::MAX, BTreeSet::new()),
            targets: BTreeMap::new(),
            xattrs: Xattrs::default(),
            contents: Contents::default(),
            transactions: Transactions { prepared: BTreeMap::new(), decided: BTreeMap::new(), locks },
            replies: Replies::default(),
            lockers: BTreeSet::new(),
            // Counter 0 names nothing, 1 is the root.
            next_counter: 2,
            holders: BTreeSet::new(),
            delegations: Delegations::default(),
            flagged: Flagged::default(),
            accounts: Accounts::default(),
            graves: Graves::default(),
            opens: Opens::default(),
        }
    }

    /// Applies a record: the only way in which the state changes, live and in a replay. Never
    /// fails: what a change names may be missing while a replay runs over a newer checkpoint.
    pub fn apply(&mut self, record: &mut Record) {
        for change in record.changes.drain(..) {
            self.apply_change(change);
        }
        if let Some(open) = record.open.take() {
            self.apply_open(open);
        }
    }

    /// Takes one change in.
    pub fn apply_change(&mut self, change: Change) {
        match change {
            Change::PutInode { handle, inode } => self.put_inode(handle, inode),
            Change::DeleteInode { handle } => self.delete_inode(handle),
            Change::PutEntry { dir, name, handle, kind } => {
                let hash = self.hash(&name);
                let directory = self.directories.entry(dir).or_default();
                directory.put(hash, Entry { name: &name, handle, kind });
                if directory.len() > self.large.0 {
                    self.large.1.insert(dir);
                }
            }
            Change::DeleteEntry { dir, name } => {
                let hash = self.hash(&name);
                if let Some(directory) = self.directories.get_mut(&dir) {
                    directory.remove(hash, &name);
                }
            }
            Change::Touch { handle, mtime, ctime, version } => {
                if let Some(inode) = self.inodes.get_mut(handle) {
                    (inode.mtime, inode.ctime, inode.version) = (mtime, ctime, version);
                }
            }
            // Copied, so that no message buffer is kept alive by a few bytes of it.
            Change::PutTarget { handle, target } => {
                self.targets.insert(handle, Bytes::copy_from_slice(&target));
            }
            Change::PutXattr { handle, name, value } => self.xattrs.put(handle, &name, &value),
            Change::DeleteXattr { handle, name } => self.xattrs.delete(handle, &name),
            Change::PutPrepared { tx, prepared } => {
                assert!(tx.coordinator != self.settings.server, "a coordinator prepares nothing, it decides");
                if let Some(made) = prepared.made() {
                    self.saw_handle(made);
                }
                self.transactions.locks.lock(tx, LockMode::Prepared, &prepared.parts, prepared.made());
                self.accounts.makes(&prepared.parts, false);
                // A replay may meet it twice.
                if let Some(before) = self.transactions.prepared.insert(tx, prepared) {
                    self.accounts.makes(&before.parts, true);
                }
            }
            Change::DeletePrepared { tx } => {
                if let Some(prepared) = self.transactions.prepared.remove(&tx) {
                    self.transactions.locks.unlock(tx, &prepared.parts, prepared.made());
                    self.accounts.makes(&prepared.parts, true);
                }
            }
            Change::PutDecided { tx, participants } => {
                assert!(tx.coordinator == self.settings.server, "only its coordinator decides a transaction");
                self.transactions.decided.insert(tx, participants);
            }
            Change::DeleteDecided { tx } => {
                self.transactions.decided.remove(&tx);
            }
            Change::PutReply { client, incarnation, sequence, finished_below, body } => {
                self.replies.put(RequestId { client, incarnation, sequence }, finished_below, body);
            }
            Change::ForgetClient { client } => {
                self.replies.forget(client);
                self.delegations.forget(client);
            }
            Change::PutLocker { client } => {
                self.lockers.insert(client);
            }
            Change::DeleteLocker { client } => {
                self.lockers.remove(&client);
            }
            Change::PutCounter { next } => self.next_counter = self.next_counter.max(next),
            Change::PutPartition { dir, map, known } => self.put_partition(dir, map, known),
            Change::DeletePartition { dir } => self.delete_partition(dir),
            Change::TouchPartition { dir, mtime, ctime, version } => {
                if let Some(Partition { inode, .. }) = self.split.get_mut(&dir) {
                    (inode.mtime, inode.ctime, inode.version) = (mtime, ctime, version);
                }
            }
            Change::GiveNames { dir, names } => self.give_names(dir, &names),
            Change::TakeNames { dir, names } => self.take_names(dir, names),
            Change::PutContent { handle, content } => {
                // In a replay over a newer checkpoint it may be gone, or out.
                if let Some(run) = self.inodes.get(handle).and_then(Inode::content_run) {
                    self.contents.put(handle, run, content);
                }
            }
            change @ (Change::PutLimit { .. }
            | Change::PutByteLimit { .. }
            | Change::PutLoan { .. }
            | Change::PutByteLoan { .. }
            | Change::PutProjectLimit { .. }
            | Change::PutProjectLoan { .. }) => {
                self.accounts.apply(&change, self.settings.server);
            }
            Change::PutCeiling { handle, file_bytes, beside_bytes } => self.put_ceiling(handle, Reserved { file_bytes, beside_bytes }),
            Change::PutHolder { client } => drop(self.holders.insert(client)),
            Change::DeleteHolder { client } => drop(self.holders.remove(&client)),
            Change::PutDelegation { dir, client } => self.delegations.put(dir, client),
            Change::DeleteDelegation { dir } => self.delegations.delete(dir),
            Change::PutHandles { client, first, end } => {
                self.next_counter = self.next_counter.max(end);
                self.delegations.put_handles(client, first..end);
            }
        }
    }

    fn put_inode(&mut self, handle: Handle, inode: Inode) {
        assert!(handle.server() == self.settings.server, "{handle} belongs to another server");
        self.saw_handle(handle);
        if inode.is_directory() {
            self.directories.entry(handle).or_default();
        }
        let reserved = self.accounts.reserved(handle);
        let goes_on = self.accounts.goes_on(handle, inode.flags.has(InodeFlags::WRITING));
        let (now, has, counts) = (Flags::of(&inode), inode.content_run(), Counted::of(&inode, goes_on));
        let old = self.inodes.insert(handle, inode);
        let (counted, before, had) =
            old.map_or((None, Flags::default(), None), |old| (Some(Counted::of(&old, reserved)), Flags::of(&old), old.content_run()));
        let is_leaving = (before.is_orphan || now.is_orphan) && !self.opens.is_open(handle);
        if let (true, true, Some(counted)) = (is_leaving, before.is_orphan, counted) {
            self.accounts.leaves(counted.charged, false);
        }
        self.accounts.changed(counted, Some(counts));
        if is_leaving && now.is_orphan {
            self.accounts.leaves(counts.charged, true);
        }
        if had != has {
            self.contents.moved(handle, had, has);
        }
        self.flagged.changed(handle, before, now);
    }

    fn delete_inode(&mut self, handle: Handle) {
        let Some(old) = self.inodes.remove(handle) else {
            // In a replay over a newer checkpoint, earlier records may have brought parts of it
            // back.
            self.directories.remove(&handle);
            self.targets.remove(&handle);
            self.xattrs.delete_all(handle);
            return;
        };
        if old.is_directory() {
            self.directories.remove(&handle);
            self.delegations.delete(handle);
        }
        if old.kind == FileKind::Symlink || old.layout.is_varstrip() {
            self.targets.remove(&handle);
        }
        self.xattrs.delete_all(handle);
        if let Some(run) = old.content_run() {
            self.contents.moved(handle, Some(run), None);
        }
        let flags = Flags::of(&old);
        self.flagged.gone(handle, flags);
        if flags.is_orphan && !self.opens.is_open(handle) {
            self.accounts.leaves(old.charged(), false);
        }
        let reserved = self.accounts.reserved(handle);
        self.accounts.goes_on(handle, false);
        self.accounts.changed(Some(Counted::of(&old, reserved)), None);
        if old.kind != FileKind::File {
            self.graves.bury(handle, old);
        }
    }

    /// Handles are never given out twice.
    pub(crate) fn saw_handle(&mut self, handle: Handle) {
        if handle.server() == self.settings.server {
            self.next_counter = self.next_counter.max(handle.counter() + 1);
        }
    }

    // ---- What is known
    // ---------------------------------------------------------------------------------------------

    /// What the state must know of its file system.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where new objects go.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// From now on new objects go where this says; what there is stays.
    pub fn place(&mut self, placement: Placement) {
        self.placement = placement;
    }

    /// What users take.
    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Directories in which clients make files without asking.
    pub(crate) fn delegations(&self) -> &Delegations {
        &self.delegations
    }

    /// What users take, to be changed.
    pub(crate) fn accounts_mut(&mut self) -> &mut Accounts {
        &mut self.accounts
    }

    /// Number of inodes.
    pub fn inode_count(&self) -> u64 {
        self.inodes.len()
    }

    /// Directories of which some names are here and others elsewhere.
    pub(crate) fn split(&self) -> &BTreeMap<Handle, Partition> {
        &self.split
    }

    /// Contents of files that are here.
    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The same, to be changed.
    pub(crate) fn contents_mut(&mut self) -> &mut Contents {
        &mut self.contents
    }

    /// From now on directories with more names here than this are told of.
    pub fn tell_large(&mut self, above: u64) {
        self.large.0 = above;
    }

    /// Directories of this server that have had many names lately, with how many are here.
    pub fn large_directories(&mut self) -> Vec<(Handle, u64)> {
        let (above, directories, own) = (self.large.0, &self.directories, self.settings.server);
        let len = |dir: &Handle| directories.get(dir).map_or(0, Directory::len);
        let told = self.large.1.iter().filter(|dir| dir.server() == own).map(|dir| (*dir, len(dir))).collect();
        self.large.1.retain(|dir| len(dir) > above);
        told
    }

    /// The same, to be changed.
    pub(crate) fn split_mut(&mut self) -> &mut BTreeMap<Handle, Partition> {
        &mut self.split
    }

    /// What all extended attributes take in memory, about, in bytes.
    pub fn xattr_bytes(&self) -> u64 {
        self.xattrs.bytes()
    }

    /// The inode, if it is there.
    pub fn peek(&self, handle: Handle) -> Option<&Inode> {
        self.inodes.get(handle)
    }

    /// The hash of a name.
    pub fn hash(&self, name: &[u8]) -> u64 {
        self.settings.name_key.hash(name)
    }

    /// The handle of the next new object. The record that makes the object uses it up.
    pub fn next_handle(&self) -> Handle {
        Handle::new(self.settings.server, self.next_counter)
    }

    /// What a name leads to, without any check.
    pub fn entry(&self, dir: Handle, name: &[u8]) -> Option<(Handle, FileKind)> {
        let entry = self.directories.get(&dir)?.get(self.hash(name), name)?;
        Some((entry.handle, entry.kind))
    }

    /// The inode of an object of this server, unlinked files included.
    ///
    /// # Errors
    /// [`Status::WrongServer`], [`Status::Stale`], [`Status::Busy`] while it is in the hands of a
    /// prepared transaction.
    pub fn inode(&self, handle: Handle) -> Result<&Inode> {
        match self.inodes.get(handle) {
            // Its transaction may have been decided: then even what it is may be history.
            Some(inode) => self.transactions.locks.check_decided(handle).map(|()| inode),
            None if handle.server() != self.settings.server => Err(Status::WrongServer),
            None => {
                self.transactions.locks.check_decided(handle)?;
                Err(Status::Stale)
            }
        }
    }

    /// Checks that an inode may be looked at now.
    ///
    /// # Errors
    /// [`Status::Busy`] while a transaction or a truncation is at it.
    pub fn check_readable(&self, handle: Handle, inode: &Inode) -> Result<()> {
        if inode.flags.has(InodeFlags::TRUNCATING) {
            return Err(Status::Busy);
        }
        self.transactions.locks.check_read_inode(handle)
    }

    /// Checks that an inode may be changed now.
    ///
    /// # Errors
    /// [`Status::Busy`].
    pub fn check_writable(&self, handle: Handle, inode: &Inode) -> Result<()> {
        if inode.flags.has(InodeFlags::TRUNCATING) {
            return Err(Status::Busy);
        }
        self.transactions.locks.check_write_inode(handle)
    }

    /// True if no transaction is at the attributes or the entries of a directory: what is told of
    /// them now holds until somebody asks for a change.
    pub fn is_settled(&self, dir: Handle) -> bool {
        self.transactions.locks.is_free(dir)
    }

    /// True if transactions hold locks.
    pub fn has_locks(&self) -> bool {
        !self.transactions.locks.is_empty()
    }

    // ---- Requests
    // ---------------------------------------------------------------------------------------------

    /// Judges a changing request by its identity.
    ///
    /// # Errors
    /// [`Status::StaleRequest`], [`Status::Overloaded`].
    pub fn admit(&mut self, request: RequestId, finished_below: u64) -> Result<Admission> {
        self.replies.admit(request, finished_below)
    }

    /// Keeps an answer in memory: of a request that changed nothing durable, or a refusal.
    /// Transient refusals are not answers.
    pub fn remember(&mut self, request: RequestId, finished_below: u64, body: Result<Bytes>) {
        // Nor is one that is waited for a while.
        if !matches!(&body, Err(status) if status.is_transient() || *status == Status::SharedAppend) {
            self.replies.put_volatile(request, finished_below, body);
        }
    }

    /// Clients that have locks of programs, or files open for more than reading, or had them a
    /// moment ago.
    pub fn lockers(&self) -> &BTreeSet<ClientId> {
        &self.lockers
    }

    /// Clients that may believe what they were told, also by an earlier life of this server.
    pub fn holders(&self) -> &BTreeSet<ClientId> {
        &self.holders
    }

    /// All clients with answers that are kept, sorted.
    pub fn reply_clients(&self) -> Vec<ClientId> {
        self.replies.clients()
    }
}
