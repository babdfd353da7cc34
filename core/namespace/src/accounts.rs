//! What each user takes, and may take.
//!
//! The sums over the inodes of this server, by owner, are derived: every replay builds them anew
//! and no record is longer for them. A user who is limited has an *allowance* on each server: the
//! inodes or bytes that he may have there, lent by metadata server 0, which keeps the limits and
//! knows what it has lent (`nodes/meta-server/src/quotas.rs`). A server makes nothing beyond the
//! allowance, so nobody goes beyond a limit as long as the allowances are no more than it. Bytes of
//! files that somebody writes to count as far as these may grow (`ceilings.rs`).

use std::collections::{BTreeMap, BTreeSet};

use weft_base::{Handle, Result, ServerId, Status};
use weft_wire::ops::{TxPart, UsageReply, UsageRequest, UserBytes, UserUsage};

use crate::ceilings::Reserved;
use crate::{Change, Inode, State};

/// Users in one answer.
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

/// Of what a user has so much, and may have so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// The owner of inodes.
    pub uid: u32,
    /// What is counted.
    pub of: Resource,
}

/// What a user takes and may take here.
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
    /// Inodes that he may have, if he is limited.
    inodes_lent: Option<u64>,
    /// Bytes that he may have, if he is limited.
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

/// What users take and may take. Whoever takes nothing and is not limited is not in it.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: BTreeMap<u32, Sums>,
    /// Users with an allowance of inodes here, and of bytes.
    limited: (usize, usize),
    /// At metadata server 0: what users may have in the file system.
    limits: BTreeMap<Account, u64>,
    /// What users may have on servers: of this one, and of all at metadata server 0.
    lent: BTreeMap<(Account, ServerId), u64>,
    /// What files that somebody writes to may take, if their owners are limited.
    reserved: BTreeMap<Handle, Reserved>,
}

/// What of an inode counts: its owner, and the bytes that it takes and may take beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) uid: u32,
    bytes: u64,
    reserved: u64,
}

impl Counted {
    #[inline]
    pub(crate) fn of(inode: &Inode, reserved: Option<Reserved>) -> Counted {
        let bytes = inode.taken_bytes();
        let reserved = reserved.map_or(0, |reserved| reserved.bytes(&inode.layout).saturating_sub(bytes));
        Counted { uid: inode.uid, bytes, reserved }
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
        if let Some(Counted { uid, bytes, reserved }) = now {
            let sums = self.users.entry(uid).or_default();
            sums.inodes += 1;
            sums.bytes = sums.bytes.saturating_add(bytes);
            sums.reserved = sums.reserved.saturating_add(reserved);
        }
        if let Some(Counted { uid, bytes, reserved }) = before {
            let sums = self.users.get_mut(&uid).expect("what counts no longer was counted");
            sums.inodes -= 1;
            sums.bytes = sums.bytes.saturating_sub(bytes);
            sums.reserved = sums.reserved.saturating_sub(reserved);
            self.forget_empty(uid);
        }
    }

    /// An inode of a user is about to be removed for good, or not any more.
    pub(crate) fn leaves(&mut self, uid: u32, is_leaving: bool) {
        let sums = self.users.get_mut(&uid).expect("what leaves was counted");
        sums.leaving = if is_leaving { sums.leaving + 1 } else { sums.leaving - 1 };
    }

    fn forget_empty(&mut self, uid: u32) {
        let is_empty = |sums: &Sums| sums.inodes + sums.making == 0 && sums.inodes_lent.is_none() && sums.bytes_lent.is_none();
        if self.users.get(&uid).is_some_and(is_empty) {
            self.users.remove(&uid);
        }
    }

    /// True if nobody is limited here.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.limited == (0, 0)
    }

    /// What a file may take while somebody writes to it, if its owner is limited.
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
        for part in parts {
            let TxPart::MakeDirectory { uid, .. } = part else { continue };
            let sums = self.users.entry(*uid).or_default();
            sums.making = if is_over { sums.making.saturating_sub(1) } else { sums.making + 1 };
            self.forget_empty(*uid);
        }
    }

    /// Takes in a limit or loan, on this server.
    pub(crate) fn apply(&mut self, change: &Change, own: ServerId) {
        let (inodes_of, bytes_of) = (|uid| Account { uid, of: Resource::Inodes }, |uid| Account { uid, of: Resource::Bytes });
        match *change {
            Change::PutLimit { uid, inodes } => self.limit(inodes_of(uid), inodes),
            Change::PutByteLimit { uid, bytes } => self.limit(bytes_of(uid), bytes),
            Change::PutLoan { uid, server, inodes } => self.lend(inodes_of(uid), server, inodes, server == own),
            Change::PutByteLoan { uid, server, bytes } => self.lend(bytes_of(uid), server, bytes, server == own),
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
            let sums = self.users.entry(account.uid).or_default();
            let (lent, limited) = match account.of {
                Resource::Inodes => (&mut sums.inodes_lent, &mut self.limited.0),
                Resource::Bytes => (&mut sums.bytes_lent, &mut self.limited.1),
            };
            *limited = *limited + usize::from(allowance.is_some()) - usize::from(lent.is_some());
            *lent = allowance;
            self.forget_empty(account.uid);
        }
    }

    /// All limits and loans, for a snapshot.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Change> {
        let limits = self.limits.iter().map(|(account, most)| put_limit(*account, *most));
        limits.chain(self.lent.iter().map(|((account, server), most)| put_loan(*account, *server, *most)))
    }
}

/// The change that limits a user; [`NO_LIMIT`] ends that.
pub fn put_limit(account: Account, most: u64) -> Change {
    let uid = account.uid;
    match account.of {
        Resource::Inodes => Change::PutLimit { uid, inodes: most },
        Resource::Bytes => Change::PutByteLimit { uid, bytes: most },
    }
}

/// The change that lends a server so much; [`NO_LIMIT`]: nothing.
pub fn put_loan(account: Account, server: ServerId, most: u64) -> Change {
    let uid = account.uid;
    match account.of {
        Resource::Inodes => Change::PutLoan { uid, server, inodes: most },
        Resource::Bytes => Change::PutByteLoan { uid, server, bytes: most },
    }
}

impl State {
    /// What users take on this server.
    ///
    /// # Errors
    /// [`Status::NotPermitted`] if somebody asks for others than himself.
    pub fn usage(&self, request: &UsageRequest) -> Result<UsageReply> {
        let UsageRequest { from, to, ref who } = *request;
        if who.uid != 0 && (from, to) != (who.uid, who.uid) {
            return Err(Status::NotPermitted);
        }
        if from > to {
            return Ok(UsageReply { users: Vec::new(), next: None, bytes: None });
        }
        let accounts = self.accounts();
        let most = |uid: u32, of: Resource| accounts.limits.get(&Account { uid, of }).copied();
        let mut found = accounts.users.range(from..=to);
        let (mut users, mut bytes) = (Vec::new(), Vec::new());
        for (uid, sums) in found.by_ref().take(USERS_MAX) {
            let Sums { inodes, bytes: taken, reserved, inodes_lent, bytes_lent: lent, .. } = *sums;
            users.push(UserUsage { uid: *uid, inodes, bytes: taken, inodes_lent, inodes_max: most(*uid, Resource::Inodes) });
            let max = most(*uid, Resource::Bytes);
            if lent.is_some() || max.is_some() || reserved > 0 {
                bytes.push(UserBytes { uid: *uid, reserved, lent, max });
            }
        }
        Ok(UsageReply { users, next: found.next().map(|(uid, _)| *uid), bytes: (!bytes.is_empty()).then_some(bytes) })
    }

    /// True if a user can make nothing more here before this server has asked for more.
    #[inline]
    pub fn lacks_allowance(&self, uid: u32) -> bool {
        self.accounts().limited.0 > 0 && self.lacks(Account { uid, of: Resource::Inodes }, 1)
    }

    /// True if a user cannot have so much more here before this server has asked for more.
    pub fn lacks(&self, account: Account, more: u64) -> bool {
        let (has, allowance) = self.allowance(account);
        allowance.is_some_and(|allowance| has.saturating_add(more) > allowance)
    }

    /// # Errors
    /// [`Status::QuotaExceeded`].
    pub(crate) fn check_allowance(&self, uid: u32) -> Result<()> {
        if self.lacks_allowance(uid) { Err(Status::QuotaExceeded) } else { Ok(()) }
    }

    /// Bytes that a user may have here beside those that he has, if he is limited.
    #[inline]
    pub(crate) fn bytes_left(&self, uid: u32) -> Option<u64> {
        if self.accounts().limited.1 == 0 {
            return None;
        }
        let (has, allowance) = self.allowance(Account { uid, of: Resource::Bytes });
        Some(allowance?.saturating_sub(has))
    }

    /// What a user has here, also inodes that are about to be made and bytes that are reserved, and
    /// his allowance.
    pub fn allowance(&self, account: Account) -> (u64, Option<u64>) {
        self.accounts().users.get(&account.uid).copied().unwrap_or_default().of(account.of)
    }

    /// True if some inodes of a user are about to be removed for good.
    pub fn is_leaving(&self, uid: u32) -> bool {
        !self.is_in_grace() && self.accounts().users.get(&uid).is_some_and(|sums| sums.leaving > 0)
    }

    /// What a user may have in the file system, if he is limited; metadata server 0 knows.
    pub fn limit(&self, account: Account) -> Option<u64> {
        self.accounts().limits.get(&account).copied()
    }

    /// What servers have been lent for a user, as metadata server 0 knows.
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
