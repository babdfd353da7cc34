//! What each user takes, and may take.
//!
//! The sums over the inodes of this server, by owner, are derived: every replay builds them anew
//! and no record is longer for them. A user who is limited has an *allowance* on each server: the
//! inodes that he may have there, lent by metadata server 0, which keeps the limits and knows what
//! it has lent (`nodes/meta-server/src/quotas.rs`). A server makes nothing beyond the allowance, so
//! nobody goes beyond a limit as long as the allowances are no more than it.

use std::collections::{BTreeMap, BTreeSet};

use weft_base::{FileKind, Result, ServerId, Status, whole_blocks};
use weft_wire::ops::{TxPart, UsageReply, UsageRequest, UserUsage};

use crate::{Inode, State};

/// Users in one answer.
const USERS_MAX: usize = 4096;
/// In a record: no limit, no loan.
pub const NO_LIMIT: u64 = u64::MAX;

/// What a user takes and may take here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    inodes: u64,
    bytes: u64,
    /// Directories that transactions are about to make.
    making: u64,
    /// Inodes without a name that nobody has open.
    leaving: u64,
    /// Inodes that he may have, if he is limited.
    allowance: Option<u64>,
}

/// What users take and may take. Whoever takes nothing and is not limited is not in it.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: BTreeMap<u32, Account>,
    /// Users with an allowance here.
    limited: usize,
    /// At metadata server 0: inodes that users may have in the file system.
    limits: BTreeMap<u32, u64>,
    /// Inodes that users may have on servers: of this one, and of all at metadata server 0.
    lent: BTreeMap<(u32, ServerId), u64>,
}

/// What of an inode counts: its owner, and the bytes that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) uid: u32,
    bytes: u64,
}

impl Counted {
    #[inline]
    pub(crate) fn of(inode: &Inode) -> Counted {
        let bytes = if inode.kind == FileKind::File { whole_blocks(inode.size).saturating_sub(inode.hole_bytes()) } else { 0 };
        Counted { uid: inode.uid, bytes }
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
        if let Some(Counted { uid, bytes }) = now {
            let account = self.users.entry(uid).or_default();
            account.inodes += 1;
            account.bytes = account.bytes.saturating_add(bytes);
        }
        if let Some(Counted { uid, bytes }) = before {
            let account = self.users.get_mut(&uid).expect("what counts no longer was counted");
            account.inodes -= 1;
            account.bytes = account.bytes.saturating_sub(bytes);
            self.forget_empty(uid);
        }
    }

    /// An inode of a user is about to be removed for good, or not any more.
    pub(crate) fn leaves(&mut self, uid: u32, is_leaving: bool) {
        let account = self.users.get_mut(&uid).expect("what leaves was counted");
        account.leaving = if is_leaving { account.leaving + 1 } else { account.leaving - 1 };
    }

    fn forget_empty(&mut self, uid: u32) {
        if self.users.get(&uid).is_some_and(|account| account.inodes + account.making == 0 && account.allowance.is_none()) {
            self.users.remove(&uid);
        }
    }

    /// A transaction is about to make directories, or is over.
    pub(crate) fn makes(&mut self, parts: &[TxPart], is_over: bool) {
        for part in parts {
            let TxPart::MakeDirectory { uid, .. } = part else { continue };
            let account = self.users.entry(*uid).or_default();
            account.making = if is_over { account.making.saturating_sub(1) } else { account.making + 1 };
            self.forget_empty(*uid);
        }
    }

    pub(crate) fn limit(&mut self, uid: u32, inodes_max: u64) {
        match inodes_max {
            NO_LIMIT => drop(self.limits.remove(&uid)),
            inodes => drop(self.limits.insert(uid, inodes)),
        }
    }

    pub(crate) fn lend(&mut self, uid: u32, server: ServerId, inodes: u64, is_here: bool) {
        let allowance = (inodes != NO_LIMIT).then_some(inodes);
        match allowance {
            None => drop(self.lent.remove(&(uid, server))),
            Some(inodes) => drop(self.lent.insert((uid, server), inodes)),
        }
        if is_here {
            let account = self.users.entry(uid).or_default();
            self.limited = self.limited + usize::from(allowance.is_some()) - usize::from(account.allowance.is_some());
            account.allowance = allowance;
            self.forget_empty(uid);
        }
    }

    /// All limits and loans, for a snapshot: user and inodes, user, server and inodes.
    pub(crate) fn kept(&self) -> (impl Iterator<Item = (u32, u64)>, impl Iterator<Item = (u32, ServerId, u64)>) {
        let limits = self.limits.iter().map(|(uid, inodes)| (*uid, *inodes));
        (limits, self.lent.iter().map(|((uid, server), inodes)| (*uid, *server, *inodes)))
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
            return Ok(UsageReply { users: Vec::new(), next: None });
        }
        let accounts = self.accounts();
        let mut found = accounts.users.range(from..=to);
        let of = |(uid, account): (&u32, &Account)| UserUsage {
            uid: *uid,
            inodes: account.inodes,
            bytes: account.bytes,
            inodes_lent: account.allowance,
            inodes_max: accounts.limits.get(uid).copied(),
        };
        let users = found.by_ref().take(USERS_MAX).map(of).collect();
        Ok(UsageReply { users, next: found.next().map(|(uid, _)| *uid) })
    }

    /// True if a user can make nothing more here before this server has asked for more.
    #[inline]
    pub fn lacks_allowance(&self, uid: u32) -> bool {
        let accounts = self.accounts();
        if accounts.limited == 0 {
            return false;
        }
        let account = accounts.users.get(&uid).copied().unwrap_or_default();
        account.allowance.is_some_and(|allowance| account.inodes + account.making >= allowance)
    }

    /// # Errors
    /// [`Status::QuotaExceeded`].
    pub(crate) fn check_allowance(&self, uid: u32) -> Result<()> {
        if self.lacks_allowance(uid) { Err(Status::QuotaExceeded) } else { Ok(()) }
    }

    /// Inodes of a user here, also those that are about to be made, and his allowance.
    pub fn allowance(&self, uid: u32) -> (u64, Option<u64>) {
        let account = self.accounts().users.get(&uid).copied().unwrap_or_default();
        (account.inodes + account.making, account.allowance)
    }

    /// True if some inodes of a user are about to be removed for good.
    pub fn is_leaving(&self, uid: u32) -> bool {
        !self.is_in_grace() && self.accounts().users.get(&uid).is_some_and(|account| account.leaving > 0)
    }

    /// Inodes that a user may have in the file system, if he is limited; metadata server 0 knows.
    pub fn inodes_max(&self, uid: u32) -> Option<u64> {
        self.accounts().limits.get(&uid).copied()
    }

    /// What servers have been lent for a user, as metadata server 0 knows.
    pub fn lent(&self, uid: u32) -> BTreeMap<ServerId, u64> {
        let all = self.accounts().lent.range((uid, ServerId(0))..=(uid, ServerId(u16::MAX)));
        all.map(|((_, server), inodes)| (*server, *inodes)).collect()
    }

    /// All users of whom metadata server 0 keeps a limit, or a loan.
    pub fn limited_users(&self) -> BTreeSet<u32> {
        let accounts = self.accounts();
        accounts.limits.keys().copied().chain(accounts.lent.keys().map(|(uid, _)| *uid)).collect()
    }
}
