//! Servers know each other by more than a number: every store has a birth, drawn when it was made.
//! A server whose folder was lost and made again has the number and name of the old one and nothing
//! of what it held, so nobody may take it for the old one. When servers meet, they also agree on
//! the cluster map, which metadata server 0 decides about.
//!
//! ```text
//! another server                       metadata server 0
//!   Meet {me, birth, yours, epoch} ───▶  met before? the same birth : remembered in the superblock
//!                                        not in the map, or under another name or address? (NotReady, and it is asked back there:
//!      ◀── Meet {me, birth, epoch}
//!   {birth, epoch, me} ───────────────▶  the same? the next epoch of the map has it; it asks again)
//!      ◀── {birth, epoch, map} ────────  (or StoreReplaced, or WrongServer if `yours` is not its birth: the asker stops)
//!   remembers births and map in its superblock
//!                                        the map is new? everybody else is told:
//!      ◀── Meet {me, birth, yours, map}
//! ```
//! Every minute from then on both ask each other again. An answer says how far the journal is on
//! stable storage, and who has asked notes that in its superblock; and how far that of the asker
//! was. A server whose journal ends before that has an older copy of its folder, and stops. Only
//! answers count: a request may be late, or come from anybody.
//!
//! A server that was never introduced serves nothing before. Metadata server 0 itself, when it is
//! new, asks everybody whether they have met another one. Whoever is shown a map that contradicts
//! what it has seen stops: files would be looked for where they are not.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use weft_base::{ClusterMap, Result, ServerEntry, ServerId, Status, WallTime};
use weft_journal::Superblock;
use weft_rt::{Disk, Signal};
use weft_wire::ops::MeetRequest;

use crate::{Durability, Meets};

/// The metadata server that knows all others.
pub(crate) const REGISTRAR: ServerId = ServerId(0);
/// Servers that are asked back at a time, at most.
const CLAIMS_MAX: usize = 16;
/// A tenth of a second, in nanoseconds.
const TENTH_NS: i64 = 100_000_000;
/// The beginning of 2026 in tenths of a second of Unix time.
const YEAR_2026: i64 = 17_672_256_000;

/// The map with which a new store begins: metadata server 0 founds the file system as its
/// configuration says, all others wait until they hear from it. `now` is given where nothing
/// outlives the server: the epochs of such lives must not be the same.
pub fn first_map(config: &ClusterMap, server: ServerId, meets: Meets, now: Option<WallTime>) -> ClusterMap {
    if meets != Meets::Nobody && server != REGISTRAR {
        return config.unagreed();
    }
    if config.epoch > 0 {
        return config.clone();
    }
    let lived = now.map_or(0, |now| (now.0 / TENTH_NS - YEAR_2026).clamp(0, i64::from(u32::MAX / 2)) as u32);
    config.unagreed().founded(1 + lived)
}

/// Whom a server has met, and the cluster map to which it has agreed.
#[derive(Debug)]
pub struct Introduction {
    /// `None`: nothing outlives the server.
    superblock: RefCell<Option<Superblock>>,
    map: RefCell<Rc<ClusterMap>>,
    epoch: Cell<u32>,
    /// What the configuration says of the servers.
    pub(crate) config: ClusterMap,
    pub(crate) me: ServerEntry,
    pub(crate) meets: Meets,
    /// It is being stored.
    is_noting: Cell<bool>,
    /// What was heard of the journals of others is not stored yet.
    has_heard: Cell<bool>,
    /// Metadata server 0 has said that the store has what it had, or was not there to say so.
    was_judged: Cell<bool>,
    /// Somebody sets the contract.
    pub(crate) is_contract_changing: Cell<bool>,
    /// Who has heard of which epoch of the map. Metadata server 0 keeps it.
    pub(crate) told: RefCell<BTreeMap<ServerId, u32>>,
    /// The map has changed.
    pub(crate) changed: Signal,
    /// Who says that it is a new server, or has another name or address, and is not asked back yet.
    pub(crate) claims: RefCell<BTreeMap<ServerId, MeetRequest>>,
    /// There is a claim.
    pub(crate) claimed: Signal,
}

impl Introduction {
    /// As the superblock says, or else the first map. Tests of one server alone need no
    /// introduction.
    pub fn new(config: &ClusterMap, me: ServerId, superblock: Option<Superblock>, meets: Meets, now: WallTime) -> Introduction {
        let map = superblock.as_ref().map(|superblock| superblock.map.clone());
        let map = map.unwrap_or_else(|| first_map(config, me, meets, Some(now)));
        let named = || ServerEntry { id: me, name: me.to_string(), address: String::new() };
        Introduction {
            epoch: Cell::new(map.epoch),
            map: RefCell::new(Rc::new(map)),
            config: config.unagreed(),
            me: config.server(me).cloned().unwrap_or_else(named),
            was_judged: Cell::new(superblock.is_none() || me == REGISTRAR),
            superblock: RefCell::new(superblock),
            meets,
            is_noting: Cell::new(false),
            has_heard: Cell::new(false),
            is_contract_changing: Cell::new(false),
            told: RefCell::default(),
            changed: Signal::new(),
            claims: RefCell::default(),
            claimed: Signal::new(),
        }
    }

    /// True if the server may serve.
    pub fn is_complete(&self) -> bool {
        self.meets == Meets::Nobody || self.was_judged.get() && self.is_agreed()
    }

    /// True if the server was introduced, in this life or an earlier one.
    pub(crate) fn is_agreed(&self) -> bool {
        self.epoch.get() > 0 && self.is_known()
    }

    /// From now on the server may serve if it was introduced.
    pub(crate) fn judged(&self) {
        self.was_judged.set(true);
    }

    /// The cluster map; of epoch 0 until the server has agreed to one.
    pub fn map(&self) -> Rc<ClusterMap> {
        self.map.borrow().clone()
    }

    /// Its epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch.get()
    }

    /// The birth of this server's store; 0 if nothing outlives the server.
    pub fn birth(&self) -> u64 {
        self.superblock.borrow().as_ref().map_or(0, |known| known.birth)
    }

    /// The birth of another server's store; 0 if it is not known.
    pub(crate) fn birth_of(&self, server: ServerId) -> u64 {
        self.superblock.borrow().as_ref().and_then(|known| known.met.get(&server)).map_or(0, |known| known.birth)
    }

    /// True if the others know this server, or nothing outlives it.
    pub(crate) fn is_known(&self) -> bool {
        self.superblock.borrow().as_ref().is_none_or(Superblock::is_introduced)
    }

    /// True if another server may come after what is known of it. Nothing is noted.
    pub(crate) fn check_birth(&self, server: ServerId, birth: u64) -> Result<()> {
        match self.superblock.borrow().as_ref() {
            Some(known) => known.clone().meet(server, birth).map(drop),
            None => Ok(()),
        }
    }

    /// So far the journal of a server that was met was on stable storage; `None` if it has not said
    /// that.
    pub(crate) fn journal_of(&self, server: ServerId) -> Option<u64> {
        let superblock = self.superblock.borrow();
        let known = superblock.as_ref().and_then(|superblock| superblock.met.get(&server));
        known.map(|known| known.durable_lsn).filter(|lsn| *lsn > 0)
    }

    /// A server that was met has answered so: it has such a journal now. [`Self::note_heard`]
    /// stores that.
    pub(crate) fn heard_of(&self, server: ServerId, durable_lsn: Option<u64>) {
        let mut superblock = self.superblock.borrow_mut();
        let known = superblock.as_mut().and_then(|superblock| superblock.met.get_mut(&server));
        let (Some(known), Some(durable_lsn)) = (known, durable_lsn) else { return };
        if durable_lsn != known.durable_lsn {
            known.durable_lsn = durable_lsn;
            self.has_heard.set(true);
        }
    }

    /// Notes durably what was heard of the journals of others, and how far the own one is.
    pub(crate) async fn note_heard<D: Disk>(&self, disk: &D, durable_lsn: Option<u64>) {
        self.heard_of(self.me.id, durable_lsn);
        let superblock = self.superblock.borrow().clone();
        if let Some(superblock) = superblock.filter(|_| self.has_heard.replace(false)) {
            // What cannot be stored now is tried again.
            self.has_heard.set(self.store(disk, &superblock).await.is_err());
        }
    }

    /// Notes a claim until its server was asked back.
    ///
    /// # Errors
    /// [`Status::Busy`] if there are too many.
    pub(crate) fn claim(&self, request: MeetRequest) -> Result<()> {
        let mut claims = self.claims.borrow_mut();
        if claims.len() >= CLAIMS_MAX && !claims.contains_key(&request.server.id) {
            return Err(Status::Busy);
        }
        claims.insert(request.server.id, request);
        self.claimed.notify();
        Ok(())
    }

    /// Why this map cannot be taken, in words.
    pub(crate) fn objection(&self, next: &ClusterMap) -> Option<String> {
        let map = self.map();
        // What nothing outlives may begin anew.
        let begins = map.epoch == 0 || self.superblock.borrow().is_none() && next.epoch > map.epoch;
        if begins { None } else { map.check_next(next).err() }
    }

    /// Notes the contract durably, and what the next start compares.
    ///
    /// # Errors
    /// [`Status::NotSupported`] if nothing outlives the server; [`Status::Busy`] while births are
    /// being noted; why the disk refused.
    pub(crate) async fn note_durability<D: Disk>(&self, disk: &D, durability: Durability, boot_id: u64) -> Result<()> {
        let mut superblock = self.superblock.borrow().clone().ok_or(Status::NotSupported)?;
        superblock.durability = Some(durability.name().into());
        superblock.boot_id = boot_id;
        self.store(disk, &superblock).await?;
        self.keep(superblock);
        Ok(())
    }

    /// Notes durably that this life has ended in order: to be asked when everything is on stable
    /// storage. Where it cannot be noted, the next start on another boot of the machine takes that
    /// for a power cut.
    pub(crate) async fn note_stop<D: Disk>(&self, disk: &D, durable_lsn: Option<u64>) {
        self.heard_of(self.me.id, durable_lsn);
        let superblock = self.superblock.borrow().clone();
        if let Some(superblock) = superblock {
            let superblock = Superblock { stopped: Some(superblock.boot), ..superblock };
            let _ = self.store(disk, &superblock).await;
        }
    }

    async fn store<D: Disk>(&self, disk: &D, superblock: &Superblock) -> Result<()> {
        if self.is_noting.replace(true) {
            return Err(Status::Busy);
        }
        let stored = superblock.store(disk).await;
        self.is_noting.set(false);
        Ok(stored?)
    }

    /// Goes by a superblock that was stored. What was heard of journals meanwhile counts.
    fn keep(&self, mut stored: Superblock) {
        let mut superblock = self.superblock.borrow_mut();
        for (server, known) in superblock.iter().flat_map(|superblock| &superblock.met) {
            stored.met.entry(*server).and_modify(|stored| stored.durable_lsn = known.durable_lsn);
        }
        *superblock = Some(stored);
    }

    /// Notes births and, if given, the next map durably, both or none. True if the map is new: then
    /// it holds from now on.
    ///
    /// # Errors
    /// [`Status::StoreReplaced`] if a server has another birth than it had; [`Status::MapChanged`]
    /// if there is an objection to the map; [`Status::Busy`] while other births are being noted;
    /// why the disk refused.
    pub(crate) async fn note<D: Disk>(&self, disk: &D, births: &[(ServerId, u64)], next: Option<ClusterMap>) -> Result<bool> {
        let next = next.filter(|next| *next != **self.map.borrow());
        if next.as_ref().is_some_and(|next| self.objection(next).is_some()) {
            return Err(Status::MapChanged);
        }
        let mut superblock = self.superblock.borrow().clone();
        if let Some(superblock) = &mut superblock {
            let mut is_new = next.is_some();
            for (server, birth) in births {
                is_new |= superblock.meet(*server, *birth)?;
            }
            if let Some(next) = &next {
                superblock.map = next.clone();
            }
            if is_new {
                self.store(disk, superblock).await?;
            }
        }
        if let Some(superblock) = superblock {
            self.keep(superblock);
        }
        let Some(next) = next else { return Ok(false) };
        self.epoch.set(next.epoch);
        *self.map.borrow_mut() = Rc::new(next);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::FsId;

    fn config() -> ClusterMap {
        let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: String::new() };
        ClusterMap::of(FsId(1), "test", [ServerId(0), ServerId(1), ServerId::data(0)].map(entry), 4096)
    }

    #[test]
    fn only_metadata_server_0_founds_a_file_system() {
        assert_eq!(first_map(&config(), ServerId(0), Meets::Others, None), config().founded(1));
        assert_eq!(first_map(&config(), ServerId(1), Meets::Others, None), config());
        assert_eq!(first_map(&config().founded(3), ServerId::data(0), Meets::Others, None), config());
        assert_eq!(first_map(&config(), ServerId(1), Meets::Nobody, None), config().founded(1), "nobody else is there");
    }

    #[test]
    fn lives_that_nothing_outlives_have_epochs_of_their_own() {
        let epoch = |tenths: i64| first_map(&config(), ServerId(0), Meets::Others, Some(WallTime((YEAR_2026 + tenths) * TENTH_NS))).epoch;
        assert_eq!((epoch(0), epoch(1), epoch(36_000)), (1, 2, 36_001));
        assert_eq!((epoch(-5), epoch(i64::from(u32::MAX))), (1, 1 + u32::MAX / 2), "clocks that are wrong are no error");
    }
}
