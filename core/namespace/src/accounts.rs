//! What each user and each project takes, and may take.
//!
//! The sums over the inodes of this server, by owner and by project, are derived: every replay
//! builds them anew and no record is longer for them. Who is limited has an *allowance* on each
//! server: the inodes or bytes that he may have there, lent by metadata server 0, which keeps the
//! limits and knows what it has lent (`nodes/meta-server/src/quotas.rs`). A server makes nothing
//! beyond the allowance, so nobody goes beyond a limit as long as the allowances are no more than
//! it. Bytes of files that somebody writes to count as far as these may grow (`ceilings.rs`).

use std::collections::{BTreeMap, BTreeSet};

use weft_base::{Handle, Result, ServerId, Status};
use weft_wire::ops::{QuotaId, QuotaKind, TxPart, UsageReply, UsageRequest, UserBytes, UserUsage};

use crate::ceilings::Reserved;
use crate::ops::known_hints;
use crate::{Change, Inode, State};

/// Users or projects in one answer.
const USERS_MAX: usize = 4096;
/// In a record: no limit, no loan.
pub const NO_LIMIT: u64 = u64::MAX;

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The number of objects.
    Inodes,
    /// What files take, in whole blocks.
    Bytes,
}

/// Of what a user or project has so much, and may have so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// Whose it is.
    pub id: QuotaId,
    /// What is counted.
    pub of: Resource,
}

/// For whom an object counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Its owner.
    pub uid: u32,
    /// Its project; 0: none.
    pub project: u32,
}

impl Charged {
    /// Those who have a quota for it.
    pub fn ids(self) -> impl Iterator<Item = QuotaId> {
        [Some(QuotaId::user(self.uid)), (self.project != 0).then(|| QuotaId::project(self.project))].into_iter().flatten()
    }
}

/// What a user or project takes and may take here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    inodes: u64,
    bytes: u64,
    /// Bytes beside these that files may take to which somebody writes.
    reserved: u64,
    /// Directories that transactions are about to make.
    making: u64,
    /// Inodes without a name that nobody has open.
    leaving: u64,
    /// Inodes that it may have, if it is limited.
    inodes_lent: Option<u64>,
    /// Bytes that it may have, if it is limited.
    bytes_lent: Option<u64>,
}

impl Sums {
    /// What counts, and what may count.
    fn of(&self, resource: Resource) -> (u64, Option<u64>) {
        match resource {
            Resource::Inodes => (self.inodes + self.making, self.inodes_lent),
            Resource::Bytes => (self.bytes.saturating_add(self.reserved), self.bytes_lent),
        }
    }
}

/// What users and projects take and may take. Who takes nothing and is not limited is not in it.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    sums: BTreeMap<QuotaId, Sums>,
    /// How many allowances of inodes there are here, and of bytes.
    limited: (usize, usize),
    /// How many of these are of users.
    of_users: usize,
    /// At metadata server 0: what they may have in the file system.
    limits: BTreeMap<Account, u64>,
    /// What they may have on servers: of this one, and of all at metadata server 0.
    lent: BTreeMap<(Account, ServerId), u64>,
    /// What files that somebody writes to may take, if those are limited for whom they count.
    reserved: BTreeMap<Handle, Reserved>,
}

/// What of an inode counts: for whom, and the bytes that it takes and may take beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) charged: Charged,
    bytes: u64,
    reserved: u64,
}

impl Counted {
    #[inline]
    pub(crate) fn of(inode: &Inode, reserved: Option<Reserved>) -> Counted {
        let bytes = inode.taken_bytes();
        let reserved = reserved.map_or(0, |reserved| reserved.bytes(&inode.layout).saturating_sub(bytes));
        Counted { charged: inode.charged(), bytes, reserved }
    }
}

impl Accounts {
    /// An inode counts so now, and has counted so before.
    #[inline]
    pub(crate) fn changed(&mut self, before: Option<Counted>, now: Option<Counted>) {
        if before != now {
            self.count(before, now);
        }
    }

    fn count(&mut self, before: Option<Counted>, now: Option<Counted>) {
        if let Some(Counted { charged, bytes, reserved }) = now {
            for id in charged.ids() {
                let sums = self.sums.entry(id).or_default();
                sums.inodes += 1;
                sums.bytes = sums.bytes.saturating_add(bytes);
                sums.reserved = sums.reserved.saturating_add(reserved);
            }
        }
        if let Some(Counted { charged, bytes, reserved }) = before {
            for id in charged.ids() {
                let sums = self.sums.get_mut(&id).expect("what counts no longer was counted");
                sums.inodes -= 1;
                sums.bytes = sums.bytes.saturating_sub(bytes);
                sums.reserved = sums.reserved.saturating_sub(reserved);
                self.forget_empty(id);
            }
        }
    }

    /// An inode that counts for these is about to be removed for good, or not any more.
    pub(crate) fn leaves(&mut self, charged: Charged, is_leaving: bool) {
        for id in charged.ids() {
            let sums = self.sums.get_mut(&id).expect("what leaves was counted");
            sums.leaving = if is_leaving { sums.leaving + 1 } else { sums.leaving - 1 };
        }
    }

    fn forget_empty(&mut self, id: QuotaId) {
        let is_empty = |sums: &Sums| sums.inodes + sums.making == 0 && sums.inodes_lent.is_none() && sums.bytes_lent.is_none();
        if self.sums.get(&id).is_some_and(is_empty) {
            self.sums.remove(&id);
        }
    }

    /// True if whoever makes something for this project (0: for none) meets no limit here.
    pub(crate) fn is_unlimited(&self, project: u32) -> bool {
        let is_limited = |sums: &Sums| sums.inodes_lent.is_some() || sums.bytes_lent.is_some();
        self.limited == (0, 0) || self.of_users == 0 && !self.sums.get(&QuotaId::project(project)).is_some_and(is_limited)
    }

    /// What a file may take while somebody writes to it, if it has a ceiling.
    #[inline]
    pub(crate) fn reserved(&self, handle: Handle) -> Option<Reserved> {
        if self.reserved.is_empty() { None } else { self.reserved.get(&handle).copied() }
    }

    /// Somebody writes to a file or not: what it may take from now on.
    #[inline]
    pub(crate) fn goes_on(&mut self, handle: Handle, is_written: bool) -> Option<Reserved> {
        if !is_written && !self.reserved.is_empty() {
            self.reserved.remove(&handle);
        }
        self.reserved(handle)
    }

    /// From now on a file may take so much.
    pub(crate) fn reserve(&mut self, handle: Handle, inode: &Inode, reserved: Reserved) {
        let before = Counted::of(inode, self.reserved.insert(handle, reserved));
        self.changed(Some(before), Some(Counted::of(inode, Some(reserved))));
    }

    /// A transaction is about to make directories, or is over.
    pub(crate) fn makes(&mut self, parts: &[TxPart], is_over: bool) {
        for id in made_for(parts).flat_map(Charged::ids) {
            let sums = self.sums.entry(id).or_default();
            sums.making = if is_over { sums.making.saturating_sub(1) } else { sums.making + 1 };
            self.forget_empty(id);
        }
    }

    /// Takes in a limit or loan, on this server.
    pub(crate) fn apply(&mut self, change: &Change, own: ServerId) {
        let of_user = |uid, of| Account { id: QuotaId::user(uid), of };
        let of_project = |project, is_bytes| {
            let of = if is_bytes { Resource::Bytes } else { Resource::Inodes };
            Account { id: QuotaId::project(project), of }
        };
        match *change {
            Change::PutLimit { uid, inodes } => self.limit(of_user(uid, Resource::Inodes), inodes),
            Change::PutByteLimit { uid, bytes } => self.limit(of_user(uid, Resource::Bytes), bytes),
            Change::PutLoan { uid, server, inodes } => self.lend(of_user(uid, Resource::Inodes), server, inodes, server == own),
            Change::PutByteLoan { uid, server, bytes } => self.lend(of_user(uid, Resource::Bytes), server, bytes, server == own),
            Change::PutProjectLimit { project, is_bytes, most } => self.limit(of_project(project, is_bytes), most),
            Change::PutProjectLoan { project, server, is_bytes, most } => {
                self.lend(of_project(project, is_bytes), server, most, server == own);
            }
            _ => {}
        }
    }

    fn limit(&mut self, account: Account, most: u64) {
        match most {
            NO_LIMIT => drop(self.limits.remove(&account)),
            most => drop(self.limits.insert(account, most)),
        }
    }

    fn lend(&mut self, account: Account, server: ServerId, most: u64, is_here: bool) {
        let allowance = (most != NO_LIMIT).then_some(most);
        match allowance {
            None => drop(self.lent.remove(&(account, server))),
            Some(most) => drop(self.lent.insert((account, server), most)),
        }
        if is_here {
            let sums = self.sums.entry(account.id).or_default();
            let (lent, limited) = match account.of {
                Resource::Inodes => (&mut sums.inodes_lent, &mut self.limited.0),
                Resource::Bytes => (&mut sums.bytes_lent, &mut self.limited.1),
            };
            let (now, before) = (usize::from(allowance.is_some()), usize::from(lent.is_some()));
            *limited = *limited + now - before;
            if account.id.kind == QuotaKind::User {
                self.of_users = self.of_users + now - before;
            }
            *lent = allowance;
            self.forget_empty(account.id);
        }
    }

    /// All limits and loans, for a snapshot.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Change> {
        let limits = self.limits.iter().map(|(account, most)| put_limit(*account, *most));
        limits.chain(self.lent.iter().map(|((account, server), most)| put_loan(*account, *server, *most)))
    }
}

/// For whom count the directories that these parts of one server make.
pub fn made_for(parts: &[TxPart]) -> impl Iterator<Item = Charged> {
    parts.iter().enumerate().filter_map(|(at, part)| {
        let TxPart::MakeDirectory { uid, .. } = part else { return None };
        let hints = parts[at..].iter().find_map(|part| if let TxPart::InheritHints { hints } = part { Some(hints) } else { None });
        Some(Charged { uid: *uid, project: hints.map_or(0, |hints| known_hints(hints).project) })
    })
}

/// The change that limits a user or project; [`NO_LIMIT`] ends that.
pub fn put_limit(account: Account, most: u64) -> Change {
    let Account { id: QuotaId { kind, number }, of } = account;
    match (kind, of) {
        (QuotaKind::User, Resource::Inodes) => Change::PutLimit { uid: number, inodes: most },
        (QuotaKind::User, Resource::Bytes) => Change::PutByteLimit { uid: number, bytes: most },
        (QuotaKind::Project, of) => Change::PutProjectLimit { project: number, is_bytes: of == Resource::Bytes, most },
    }
}

/// The change that lends a server so much; [`NO_LIMIT`]: nothing.
pub fn put_loan(account: Account, server: ServerId, most: u64) -> Change {
    let Account { id: QuotaId { kind, number }, of } = account;
    match (kind, of) {
        (QuotaKind::User, Resource::Inodes) => Change::PutLoan { uid: number, server, inodes: most },
        (QuotaKind::User, Resource::Bytes) => Change::PutByteLoan { uid: number, server, bytes: most },
        (QuotaKind::Project, of) => Change::PutProjectLoan { project: number, server, is_bytes: of == Resource::Bytes, most },
    }
}

impl State {
    /// What users or projects take on this server.
    ///
    /// # Errors
    /// [`Status::NotPermitted`] if somebody asks for other users than himself, or for all projects.
    pub fn usage(&self, request: &UsageRequest) -> Result<UsageReply> {
        let UsageRequest { from, to, ref who, of_project } = *request;
        let is_one = from == to && (of_project == Some(true) || from == who.uid);
        if who.uid != 0 && !is_one {
            return Err(Status::NotPermitted);
        }
        if from > to {
            return Ok(UsageReply { users: Vec::new(), next: None, bytes: None });
        }
        let accounts = self.accounts();
        let most = |id: QuotaId, of: Resource| accounts.limits.get(&Account { id, of }).copied();
        let mut found = accounts.sums.range(QuotaId::of(from, of_project)..=QuotaId::of(to, of_project));
        let (mut users, mut bytes) = (Vec::new(), Vec::new());
        for (id, sums) in found.by_ref().take(USERS_MAX) {
            let Sums { inodes, bytes: taken, reserved, inodes_lent, bytes_lent: lent, .. } = *sums;
            let uid = id.number;
            users.push(UserUsage { uid, inodes, bytes: taken, inodes_lent, inodes_max: most(*id, Resource::Inodes) });
            let max = most(*id, Resource::Bytes);
            if lent.is_some() || max.is_some() || reserved > 0 {
                bytes.push(UserBytes { uid, reserved, lent, max });
            }
        }
        Ok(UsageReply { users, next: found.next().map(|(id, _)| id.number), bytes: (!bytes.is_empty()).then_some(bytes) })
    }

    /// Who of these can have nothing more made here before this server has asked for more.
    #[inline]
    pub fn lacks_allowance(&self, charged: Charged) -> Option<QuotaId> {
        if self.accounts().limited.0 == 0 {
            return None;
        }
        charged.ids().find(|id| self.lacks(Account { id: *id, of: Resource::Inodes }, 1))
    }

    /// True if so much more cannot be had here before this server has asked for more.
    pub fn lacks(&self, account: Account, more: u64) -> bool {
        let (has, allowance) = self.allowance(account);
        allowance.is_some_and(|allowance| has.saturating_add(more) > allowance)
    }

    /// # Errors
    /// [`Status::QuotaExceeded`].
    pub(crate) fn check_allowance(&self, charged: Charged) -> Result<()> {
        self.lacks_allowance(charged).map_or(Ok(()), |_| Err(Status::QuotaExceeded))
    }

    /// Bytes that these may have here beside those that they have: the least, and whose it is;
    /// `None`: none of them is limited.
    #[inline]
    pub(crate) fn bytes_left(&self, charged: Charged) -> Option<(u64, QuotaId)> {
        if self.accounts().limited.1 == 0 {
            return None;
        }
        let left = |id: QuotaId| {
            let (has, allowance) = self.allowance(Account { id, of: Resource::Bytes });
            Some((allowance?.saturating_sub(has), id))
        };
        charged.ids().filter_map(left).min()
    }

    /// What somebody has here, also inodes that are about to be made and bytes that are reserved,
    /// and his allowance.
    pub fn allowance(&self, account: Account) -> (u64, Option<u64>) {
        self.accounts().sums.get(&account.id).copied().unwrap_or_default().of(account.of)
    }

    /// True if some inodes that count for a user or project are about to be removed for good.
    pub fn is_leaving(&self, id: QuotaId) -> bool {
        !self.is_in_grace() && self.accounts().sums.get(&id).is_some_and(|sums| sums.leaving > 0)
    }

    /// What somebody may have in the file system, if he is limited; metadata server 0 knows.
    pub fn limit(&self, account: Account) -> Option<u64> {
        self.accounts().limits.get(&account).copied()
    }

    /// What servers have been lent for somebody, as metadata server 0 knows.
    pub fn lent(&self, account: Account) -> BTreeMap<ServerId, u64> {
        let all = self.accounts().lent.range((account, ServerId(0))..=(account, ServerId(u16::MAX)));
        all.map(|((_, server), most)| (*server, *most)).collect()
    }

    /// All of which metadata server 0 keeps a limit, or a loan.
    pub fn limited_accounts(&self) -> BTreeSet<Account> {
        let accounts = self.accounts();
        accounts.limits.keys().copied().chain(accounts.lent.keys().map(|(account, _)| *account)).collect()
    }
}
