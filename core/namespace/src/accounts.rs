//! What each user takes: the sums over the inodes of this server, by owner. Derived, so every
//! replay builds them anew and no record is longer for them.

use std::collections::BTreeMap;

use weft_base::{FileKind, Result, Status, whole_blocks};
use weft_wire::ops::{UsageReply, UsageRequest, UserUsage};

use crate::{Inode, State};

/// Users in one answer.
const USERS_MAX: usize = 4096;

/// What a user takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) inodes: u64,
    pub(crate) bytes: u64,
}

/// What users take. Who takes nothing is not in it.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: BTreeMap<u32, Usage>,
}

/// What of an inode counts: its owner, and the bytes that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    uid: u32,
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
            let usage = self.users.entry(uid).or_default();
            usage.inodes += 1;
            usage.bytes = usage.bytes.saturating_add(bytes);
        }
        if let Some(Counted { uid, bytes }) = before {
            let usage = self.users.get_mut(&uid).expect("what counts no longer was counted");
            usage.inodes -= 1;
            usage.bytes = usage.bytes.saturating_sub(bytes);
            if usage.inodes == 0 {
                self.users.remove(&uid);
            }
        }
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
        let mut found = self.accounts().users.range(from..=to);
        let of = |(uid, usage): (&u32, &Usage)| UserUsage { uid: *uid, inodes: usage.inodes, bytes: usage.bytes };
        let users = found.by_ref().take(USERS_MAX).map(of).collect();
        Ok(UsageReply { users, next: found.next().map(|(uid, _)| *uid) })
    }
}
