//! Parts of transactions: what must be true for each before it is agreed to, and what it changes
//! when it is decided. The same parts make up changes that stay on one server; then both happen at
//! once.

use bytes::Bytes;
use weft_base::{ClientId, Credentials, Handle, MODE_UNNAMED, Result, ServerId, Status, WRITE, WallTime, check_name};
use weft_wire::ops::{TxId, TxPart};

use crate::access::check_owner;
use crate::accounts::made_for;
use crate::ops::known_hints;
use crate::{Change, Inode, InodeFlags, LockMode, Prepared, Record, State};

/// Names that one inode may have at most.
const LINKS_MAX: u32 = i32::MAX as u32;

/// A part and the server that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPart {
    /// Where.
    pub server: ServerId,
    /// What.
    pub part: TxPart,
}

impl State {
    /// Parts of this server that wait for their coordinators' decisions.
    pub fn prepared_transactions(&self) -> Vec<TxId> {
        self.transactions.prepared.keys().copied().collect()
    }

    /// A part that waits for its coordinator's decision.
    pub fn prepared(&self, tx: TxId) -> Option<&Prepared> {
        self.transactions.prepared.get(&tx)
    }

    /// Transactions that this server has decided to commit, with the participants that may not know
    /// yet.
    pub fn decided_transactions(&self) -> Vec<(TxId, Vec<ServerId>)> {
        self.transactions.decided.iter().map(|(tx, participants)| (*tx, participants.clone())).collect()
    }

    /// True if this server has decided to commit the transaction and somebody may not know yet.
    pub fn is_decided(&self, tx: TxId) -> bool {
        self.transactions.decided.contains_key(&tx)
    }

    /// Locks a coordinator's own parts; they have been prepared, and make this directory, if any:
    /// nothing else gets its handle meanwhile.
    pub fn lock_own(&mut self, tx: TxId, parts: &[TxPart], made: Option<Handle>) {
        if let Some(made) = made {
            self.saw_handle(made);
        }
        self.transactions.locks.lock(tx, LockMode::Own, parts, None);
        self.accounts_mut().makes(parts, false);
    }

    /// Releases a coordinator's own locks.
    pub fn unlock_own(&mut self, tx: TxId, parts: &[TxPart]) {
        self.transactions.locks.unlock(tx, parts, None);
        self.accounts_mut().makes(parts, true);
    }

    /// Checks whether all parts, which concern this server, can be done for this client, and
    /// chooses handles for new directories. Returns one handle for each part: the directory made,
    /// or the object concerned (0 if none).
    ///
    /// # Errors
    /// `conflict` if another transaction is in the way or the names lead elsewhere than the
    /// coordinator believes; otherwise why the operation is impossible.
    pub fn prepare_parts(
        &self,
        tx: TxId,
        by: Option<ClientId>,
        parts: &[TxPart],
        who: &Credentials,
        conflict: Status,
    ) -> Result<Vec<Handle>> {
        let mut made = 0;
        let mut handles = Vec::with_capacity(parts.len());
        for part in parts {
            // A change on this server alone was looked at before.
            if !self.transactions.locks.free_for(tx, part) || tx.number != 0 && self.is_part_delegated(by, part) {
                return Err(conflict);
            }
            handles.push(match part {
                TxPart::InsertEntry { dir, name, handle, replaces, .. } => {
                    check_name(name)?;
                    self.check_entry_change(*dir, name, *replaces, who, conflict)?;
                    *handle
                }
                TxPart::RemoveEntry { dir, name, handle } => {
                    self.check_entry_change(*dir, name, Some(*handle), who, conflict)?;
                    *handle
                }
                TxPart::MakeDirectory { .. } => {
                    made_for(parts).try_for_each(|charged| self.check_allowance(charged))?;
                    made += 1;
                    Handle::new(self.settings.server, self.next_counter + made - 1)
                }
                // The directory that the part before made.
                TxPart::InheritHints { hints } if made > 0 => {
                    self.check_room_of_all(hints)?;
                    Handle::new(self.settings.server, self.next_counter + made - 1)
                }
                TxPart::InheritHints { .. } => return Err(Status::Invalid),
                TxPart::MakePartition { dir: Handle(0), .. } if made > 0 => Handle::new(self.settings.server, self.next_counter + made - 1),
                TxPart::MakePartition { dir, hints, .. } => {
                    self.check_room_of_all(hints)?;
                    let is_new = dir.server() != self.settings.server && *dir != Handle(0) && self.partition(*dir).is_none();
                    if is_new { *dir } else { return Err(Status::Invalid) }
                }
                TxPart::ChangePartition { dir, .. } => {
                    self.prepare_partition(*dir, conflict)?;
                    *dir
                }
                TxPart::RemovePartition { dir, must_own } => {
                    let inode = self.prepare_partition(*dir, conflict)?;
                    inode.check_unsealed()?;
                    check_owner(who, inode, *must_own)?;
                    if self.directories.get(dir).is_some_and(|directory| directory.len() > 0) {
                        return Err(Status::NotEmpty);
                    }
                    *dir
                }
                TxPart::RemoveDirectory { dir, must_own } => {
                    let inode = self.prepare_inode(*dir, who, *must_own)?;
                    if !inode.is_directory() {
                        return Err(Status::NotDirectory);
                    }
                    if inode.parent() == *dir {
                        return Err(Status::Invalid);
                    }
                    if self.is_split(*dir) {
                        return Err(Status::StaleMap);
                    }
                    if self.directories.get(dir).is_some_and(|directory| directory.len() > 0) {
                        return Err(Status::NotEmpty);
                    }
                    *dir
                }
                TxPart::ChangeLinks { handle, kind, delta, must_own } => {
                    let inode = self.prepare_inode(*handle, who, *must_own)?;
                    if inode.kind != *kind || inode.is_directory() {
                        return Err(Status::Invalid);
                    }
                    if inode.nlink == 0 {
                        self.check_may_be_named(*handle, inode, *delta, conflict)?;
                    }
                    if inode.flags.has(InodeFlags::TRUNCATING) {
                        // Its answer is fixed already and shows this link count.
                        return Err(conflict);
                    }
                    if *delta > 0 && inode.has_no_metafile() {
                        // Its name and itself are one.
                        return Err(Status::NotPermitted);
                    }
                    if *delta > 0 && inode.nlink >= LINKS_MAX {
                        return Err(Status::TooManyLinks);
                    }
                    *handle
                }
                TxPart::SetParent { dir, parent, must_own } => {
                    let inode = self.prepare_inode(*dir, who, *must_own)?;
                    if !inode.is_directory() {
                        return Err(Status::NotDirectory);
                    }
                    if inode.parent() != *parent {
                        // Its entry `..` changes.
                        self.may_access(who, *dir, inode, WRITE)?;
                    }
                    *dir
                }
                TxPart::GiveNames { .. } | TxPart::TakeNames { .. } | TxPart::PutMap { .. } | TxPart::ExpectMap { .. } => {
                    self.prepare_move(part, conflict)?
                }
                TxPart::ExpectProject { handle, project } => {
                    if self.inode(*handle)?.project != *project {
                        return Err(Status::CrossDevice);
                    }
                    *handle
                }
                TxPart::MoveToken {} => Handle(0),
            });
        }
        Ok(handles)
    }

    /// Checks that no part of a change on this server alone removes or moves a directory in which
    /// another client makes files without asking: that it is another one then would hide what this
    /// client has set of it.
    ///
    /// # Errors
    /// [`Status::Busy`]: it is asked for it back.
    pub fn check_moved(&self, client: ClientId, parts: &[ServerPart]) -> Result<()> {
        let moves = |part: &TxPart| matches!(part, TxPart::RemoveDirectory { .. } | TxPart::SetParent { .. });
        let is_delegated = parts.iter().any(|part| moves(&part.part) && self.is_part_delegated(Some(client), &part.part));
        if is_delegated { Err(Status::Busy) } else { Ok(()) }
    }

    /// True if a client, another than this one, makes files without asking in a directory that this
    /// part is about, or perhaps the file: it is asked for it back.
    fn is_part_delegated(&self, client: Option<ClientId>, part: &TxPart) -> bool {
        match part {
            TxPart::InsertEntry { dir, .. }
            | TxPart::RemoveEntry { dir, .. }
            | TxPart::RemoveDirectory { dir, .. }
            | TxPart::SetParent { dir, .. } => self.is_delegated_elsewhere(client, *dir),
            // That client has to know, too.
            TxPart::ChangePartition { dir, .. } | TxPart::GiveNames { dir, .. } | TxPart::PutMap { dir, .. } => {
                self.is_delegated_elsewhere(None, *dir)
            }
            TxPart::ChangeLinks { handle, .. } => self.is_untold_elsewhere(client, *handle),
            _ => false,
        }
    }

    /// The changes of prepared parts, to be applied now. Cannot fail: what the parts need is locked
    /// since it was checked.
    pub fn commit_parts(&self, prepared: &Prepared, record: &mut Record) {
        for (part, handle) in prepared.parts.iter().zip(&prepared.handles) {
            self.commit_part(part, *handle, prepared.time, record);
        }
    }

    /// Does parts that all concern this server as one change, if they are possible. Returns one
    /// handle for each part.
    ///
    /// # Errors
    /// [`Status::Busy`] if a transaction is in the way; otherwise why the operation is impossible.
    pub fn prepare_local(&self, mut parts: Vec<TxPart>, who: &Credentials, now: WallTime, record: &mut Record) -> Result<Vec<Handle>> {
        // No transaction has this number.
        let tx = TxId { coordinator: self.settings.server, number: 0 };
        let handles = self.prepare_parts(tx, None, &parts, who, Status::Busy)?;
        if let Some(made) = made_directory(&parts, &handles) {
            lead_to_made(&mut parts, made);
        }
        let prepared = Prepared { parts, handles, time: now };
        self.commit_parts(&prepared, record);
        Ok(prepared.handles)
    }

    fn prepare_inode(&self, handle: Handle, who: &Credentials, must_own: bool) -> Result<&Inode> {
        let inode = self.inode(handle)?;
        inode.check_unsealed()?;
        check_owner(who, inode, must_own)?;
        Ok(inode)
    }

    /// Checks that a file without a name may get one: one that never had any, as long as somebody
    /// has it open.
    fn check_may_be_named(&self, handle: Handle, inode: &Inode, delta: i64, conflict: Status) -> Result<()> {
        if delta != 1 || inode.mode & MODE_UNNAMED == 0 {
            return Err(Status::NotFound);
        }
        match self.check_kept(handle, inode) {
            // Who has it open may not have said so yet.
            Err(Status::Busy) => Err(conflict),
            Err(_) => Err(Status::NotFound),
            Ok(()) => Ok(()),
        }
    }

    fn check_entry_change(&self, dir: Handle, name: &[u8], leads_to: Option<Handle>, who: &Credentials, conflict: Status) -> Result<()> {
        let inode = self.prepare_partition(dir, conflict).map_err(|status| match status {
            // It was removed since it was looked at.
            Status::Stale => Status::NotFound,
            status => status,
        })?;
        self.check_holds(dir, name)?;
        self.check_directory(who, dir, inode, true)?;
        if self.entry(dir, name).map(|(handle, _)| handle) == leads_to { Ok(()) } else { Err(conflict) }
    }

    fn commit_part(&self, part: &TxPart, made: Handle, now: WallTime, record: &mut Record) {
        // What is looked up here was there when the part was prepared, and the lock has kept it.
        match part {
            TxPart::InsertEntry { dir, name, handle, kind, .. } => {
                record.changes.push(Change::PutEntry { dir: *dir, name: name.clone(), handle: *handle, kind: *kind });
                self.touch_if_there(*dir, now, record);
            }
            TxPart::RemoveEntry { dir, name, .. } => {
                record.changes.push(Change::DeleteEntry { dir: *dir, name: name.clone() });
                self.touch_if_there(*dir, now, record);
            }
            TxPart::MakeDirectory { parent, mode, uid, gid, layout } => {
                let inode = Inode::new_directory(*parent, *mode, *uid, *gid, *layout, now);
                record.changes.push(Change::PutInode { handle: made, inode });
            }
            TxPart::InheritHints { hints } => {
                let project = known_hints(hints).project;
                for change in &mut record.changes {
                    match change {
                        Change::PutInode { handle, inode } if *handle == made => inode.project = project,
                        _ => {}
                    }
                }
                record.changes.extend(hints.iter().map(|(name, value)| put_xattr(made, name, value)));
            }
            TxPart::MakePartition { map, mode, uid, gid, layout, hints, .. } => {
                let inode = Inode::new_directory(Handle(0), *mode, *uid, *gid, *layout, now);
                record.changes.push(Change::PutPartition { dir: made, map: map.clone(), known: (&inode).into() });
                if made.server() != self.settings.server {
                    record.changes.extend(hints.iter().map(|(name, value)| put_xattr(made, name, value)));
                }
            }
            TxPart::ChangePartition { .. } | TxPart::RemovePartition { .. } => self.commit_partition(part, now, record),
            TxPart::RemoveDirectory { dir, .. } => self.remove_directory(*dir, record),
            TxPart::GiveNames { .. } | TxPart::TakeNames { .. } | TxPart::PutMap { .. } | TxPart::ExpectMap { .. } => {
                self.commit_move(part, record);
            }
            TxPart::ChangeLinks { handle, delta, .. } => {
                if let Some(inode) = self.inodes.get(*handle) {
                    record.changes.push(self.change_links(*handle, inode, *delta, now));
                }
            }
            TxPart::SetParent { dir, parent, .. } => {
                if let Some(inode) = self.inodes.get(*dir) {
                    let inode = inode.changed(now).within(*parent);
                    record.changes.push(Change::PutInode { handle: *dir, inode });
                }
            }
            TxPart::ExpectProject { .. } | TxPart::MoveToken {} => {}
        }
    }

    /// The changes that end a directory whose names are all here.
    pub(crate) fn remove_directory(&self, dir: Handle, record: &mut Record) {
        record.changes.push(Change::DeleteInode { handle: dir });
        // It was split once.
        if self.partition(dir).is_some() {
            record.changes.push(Change::DeletePartition { dir });
        }
    }

    fn touch_if_there(&self, dir: Handle, now: WallTime, record: &mut Record) {
        if let Some(inode) = self.known_inode(dir) {
            record.changes.push(self.touch(dir, inode, now));
        }
    }
}

impl Prepared {
    /// The directory that the parts make, if they make one.
    pub fn made(&self) -> Option<Handle> {
        made_directory(&self.parts, &self.handles)
    }
}

/// The directory that prepared parts make, if they make one.
pub fn made_directory(parts: &[TxPart], handles: &[Handle]) -> Option<Handle> {
    let made = |part: &TxPart| matches!(part, TxPart::MakeDirectory { .. });
    parts.iter().zip(handles).find_map(|(part, handle)| made(part).then_some(*handle))
}

/// Lets what a transaction gives to the directory that it makes lead there.
pub fn lead_to_made<'a>(parts: impl IntoIterator<Item = &'a mut TxPart>, made: Handle) {
    for part in parts {
        if let TxPart::InsertEntry { handle, .. } | TxPart::MakePartition { dir: handle, .. } = part
            && *handle == Handle(0)
        {
            *handle = made;
        }
    }
}

pub(crate) fn put_xattr(handle: Handle, name: &Bytes, value: &Bytes) -> Change {
    Change::PutXattr { handle, name: name.clone(), value: value.clone() }
}
