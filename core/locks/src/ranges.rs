//! Locks on one file: ranges of bytes with owners, as `fcntl` has them, and whole files, as `flock`
//! has them. The two families do not see each other, as on any local file system.

use weft_base::ClientId;
use weft_wire::ops::{HeldLock, Lock, LockKind, Unlock};

/// The locks on one file.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    held: Vec<HeldLock>,
}

fn overlaps(lock: &Lock, start: u64, end: u64) -> bool {
    lock.start <= end && start <= lock.end
}

/// True if both are of one owner and one family.
pub(crate) fn is_of_one(one: &HeldLock, other: &HeldLock) -> bool {
    one.client == other.client && is_of(one, other.client, &other.lock.whole())
}

fn is_of(held: &HeldLock, client: ClientId, of: &Unlock) -> bool {
    held.client == client && held.lock.family == of.family && held.lock.owner == of.owner
}

/// True if two owners cannot have these at once.
pub(crate) fn excludes(one: &HeldLock, other: &HeldLock) -> bool {
    one.lock.family == other.lock.family
        && !is_of_one(one, other)
        && overlaps(&one.lock, other.lock.start, other.lock.end)
        && (one.lock.kind == LockKind::Exclusive || other.lock.kind == LockKind::Exclusive)
}

impl Ranges {
    /// A lock of somebody else that is in the way.
    pub fn conflict(&self, wanted: &HeldLock) -> Option<HeldLock> {
        self.in_the_way(wanted).next().copied()
    }

    /// All locks of others that are in the way.
    pub fn in_the_way<'a>(&'a self, wanted: &'a HeldLock) -> impl Iterator<Item = &'a HeldLock> {
        self.held.iter().filter(|held| excludes(held, wanted))
    }

    /// True if the owner of this one has any lock of the family.
    pub fn has_any_of(&self, wanted: &HeldLock) -> bool {
        self.held.iter().any(|held| is_of_one(held, wanted))
    }

    /// Takes the lock; what its owner held of the range before is replaced. False, and nothing
    /// happens, if somebody is in the way.
    pub fn lock(&mut self, wanted: HeldLock) -> bool {
        if self.conflict(&wanted).is_some() {
            return false;
        }
        self.put(wanted);
        true
    }

    /// As [`Ranges::lock`], whoever is in the way: somebody else has decided about it.
    pub fn put(&mut self, wanted: HeldLock) {
        self.unlock(wanted.client, &wanted.lock.whole());
        // Neighbours of one kind become one, so that a program which locks byte by byte leaves no
        // long list.
        let mut joined = wanted;
        self.held.retain(|held| {
            let (one, all) = (&held.lock, &mut joined.lock);
            let joins = is_of_one(held, &wanted)
                && one.kind == all.kind
                && one.file == all.file
                && (one.end.checked_add(1) == Some(all.start) || all.end.checked_add(1) == Some(one.start));
            if joins {
                (all.start, all.end) = (all.start.min(one.start), all.end.max(one.end));
            }
            !joins
        });
        self.held.push(joined);
    }

    /// Gives a range back; what an owner holds around it stays.
    pub fn unlock(&mut self, client: ClientId, range: &Unlock) {
        let mut pieces = Vec::new();
        self.held.retain(|held| {
            if !is_of(held, client, range) || !overlaps(&held.lock, range.start, range.end) {
                return true;
            }
            if held.lock.start < range.start {
                pieces.push(HeldLock { lock: Lock { end: range.start - 1, ..held.lock }, ..*held });
            }
            if held.lock.end > range.end {
                pieces.push(HeldLock { lock: Lock { start: range.end + 1, ..held.lock }, ..*held });
            }
            false
        });
        self.held.append(&mut pieces);
    }

    /// What an owner holds of a range excludes no readers any more.
    pub fn share(&mut self, client: ClientId, range: &Unlock) {
        let held = self.held.iter().filter(|held| is_of(held, client, range) && overlaps(&held.lock, range.start, range.end));
        let part = |held: &HeldLock| {
            let (start, end) = (held.lock.start.max(range.start), held.lock.end.min(range.end));
            HeldLock { lock: Lock { kind: LockKind::Shared, start, end, ..held.lock }, ..*held }
        };
        let parts: Vec<HeldLock> = held.map(part).collect();
        parts.into_iter().for_each(|part| self.put(part));
    }

    /// The parts of a range in which its owner holds nothing.
    pub fn gaps(&self, client: ClientId, range: &Unlock) -> Vec<Unlock> {
        self.parts_without(range, |held| is_of(held, client, range))
    }

    /// The parts of a lock in which its owner holds nothing, and nobody else what is in the way.
    pub fn free_parts(&self, wanted: &HeldLock) -> Vec<Unlock> {
        let range = wanted.lock.whole();
        self.parts_without(&range, |held| is_of(held, wanted.client, &range) || excludes(held, wanted))
    }

    /// The parts of a range in which none of these locks lies.
    fn parts_without(&self, range: &Unlock, is_meant: impl Fn(&HeldLock) -> bool) -> Vec<Unlock> {
        let within = self.held.iter().filter(|held| is_meant(held) && overlaps(&held.lock, range.start, range.end));
        let mut parts: Vec<(u64, u64)> = within.map(|held| (held.lock.start, held.lock.end)).collect();
        parts.sort_unstable();
        let mut gaps = Vec::new();
        let mut next = Some(range.start);
        for (start, end) in parts {
            match next {
                Some(from) if from < start => gaps.push(Unlock { start: from, end: start - 1, ..range.clone() }),
                _ => {}
            }
            // Locks of several owners may overlap.
            next = next.and_then(|from| Some(from.max(end.checked_add(1)?)));
        }
        if let Some(from) = next.filter(|from| *from <= range.end) {
            gaps.push(Unlock { start: from, ..range.clone() });
        }
        gaps
    }

    /// The locks for which `is_gone` says so are dropped.
    pub fn drop_where(&mut self, is_gone: impl Fn(&HeldLock) -> bool) {
        self.held.retain(|held| !is_gone(held));
    }

    /// All locks, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &HeldLock> {
        self.held.iter()
    }

    /// How many pieces a client has.
    pub fn count_of(&self, client: ClientId) -> usize {
        self.held.iter().filter(|held| held.client == client).count()
    }

    /// How many pieces there are.
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// True if nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_wire::ops::{Family, Owner};

    const US: ClientId = ClientId(7);

    fn lock(owner: Owner, kind: LockKind, start: u64, end: u64) -> HeldLock {
        HeldLock { client: US, lock: Lock { family: Family::Fcntl, owner, kind, start, end, process: owner as u32, file: owner } }
    }

    fn range(owner: Owner, start: u64, end: u64) -> Unlock {
        Unlock { family: Family::Fcntl, owner, start, end }
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let mut ranges = Ranges::default();
        assert!(ranges.lock(lock(1, LockKind::Shared, 0, 99)) && ranges.lock(lock(2, LockKind::Shared, 50, 149)));
        assert!(!ranges.lock(lock(3, LockKind::Exclusive, 99, 99)));
        assert_eq!(ranges.conflict(&lock(3, LockKind::Exclusive, 120, 130)).map(|held| held.lock.process), Some(2));
        assert!(!ranges.lock(lock(1, LockKind::Exclusive, 0, 99)), "the other reader is in the way of an upgrade");
        assert!(ranges.lock(lock(1, LockKind::Exclusive, 0, 49)), "where it is not, it is not");
        assert!(ranges.conflict(&lock(2, LockKind::Shared, 49, 49)).is_some());
        let same_owner = HeldLock { client: ClientId(8), ..lock(1, LockKind::Shared, 0, 9) };
        assert!(ranges.conflict(&same_owner).is_some(), "the numbers of another client's owners are others");
        let mut flock = lock(3, LockKind::Exclusive, 0, u64::MAX);
        flock.lock.family = Family::Flock;
        assert!(ranges.lock(flock), "the other family");
        ranges.drop_where(|held| held.lock.family == Family::Fcntl);
        assert_eq!(ranges.count(), 1);
        ranges.unlock(US, &flock.lock.whole());
        assert!(ranges.is_empty());
    }

    #[test]
    fn what_is_shared_lets_readers_in_there_only() {
        let mut ranges = Ranges::default();
        assert!(ranges.lock(lock(1, LockKind::Exclusive, 0, 99)));
        ranges.share(US, &range(1, 50, 200));
        assert!(ranges.conflict(&lock(2, LockKind::Shared, 50, 300)).is_none());
        assert!(ranges.conflict(&lock(2, LockKind::Shared, 49, 49)).is_some());
        assert!(
            ranges.conflict(&lock(2, LockKind::Exclusive, 99, 99)).is_some()
                && ranges.conflict(&lock(2, LockKind::Exclusive, 100, 100)).is_none()
        );
    }

    #[test]
    fn unlocking_the_middle_leaves_both_ends() {
        let mut ranges = Ranges::default();
        assert!(ranges.lock(lock(1, LockKind::Exclusive, 0, u64::MAX)));
        ranges.unlock(US, &range(1, 10, 19));
        assert!(ranges.conflict(&lock(2, LockKind::Shared, 10, 19)).is_none());
        assert!(
            ranges.conflict(&lock(2, LockKind::Shared, 9, 9)).is_some() && ranges.conflict(&lock(2, LockKind::Shared, 20, 20)).is_some()
        );
        assert_eq!(ranges.gaps(US, &range(1, 0, u64::MAX)), [range(1, 10, 19)]);
        assert_eq!(ranges.gaps(US, &range(1, 15, 30)), [range(1, 15, 19)]);
        assert!(ranges.gaps(US, &range(1, 20, u64::MAX)).is_empty());
        assert_eq!(ranges.gaps(US, &range(2, 5, u64::MAX)), [range(2, 5, u64::MAX)]);
        assert!(ranges.lock(lock(1, LockKind::Exclusive, 10, 19)));
        assert_eq!(ranges.count(), 1, "one again");
    }

    /// Against the plainest table: one entry for each byte.
    #[test]
    fn ranges_behave_like_bytes() {
        const BYTES: u64 = 24;
        let mut random = 7u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut ranges = Ranges::default();
        let mut bytes: Vec<[Option<LockKind>; 4]> = vec![[None; 4]; BYTES as usize];
        for step in 0..20_000 {
            let owner = next(4);
            let start = next(BYTES);
            let end = start + next(BYTES - start);
            let of_bytes = start as usize..=end as usize;
            match next(5) {
                0 | 1 => {
                    ranges.unlock(US, &range(owner, start, end));
                    bytes[of_bytes].iter_mut().for_each(|byte| byte[owner as usize] = None);
                }
                kind => {
                    let kind = if kind == 2 { LockKind::Exclusive } else { LockKind::Shared };
                    let free = |byte: &[Option<LockKind>; 4]| {
                        let others = byte.iter().enumerate().filter(|(other, _)| *other != owner as usize).filter_map(|(_, held)| *held);
                        others.into_iter().all(|held| held == LockKind::Shared && kind == LockKind::Shared)
                    };
                    let expected = bytes[of_bytes.clone()].iter().all(free);
                    assert_eq!(ranges.lock(lock(owner, kind, start, end)), expected, "step {step}");
                    if expected {
                        bytes[of_bytes].iter_mut().for_each(|byte| byte[owner as usize] = Some(kind));
                    }
                }
            }
            for owner in 0..4 {
                let gaps = ranges.gaps(US, &range(owner, 0, BYTES - 1));
                for (at, byte) in bytes.iter().enumerate() {
                    let found = ranges.held.iter().find(|held| held.lock.owner == owner && overlaps(&held.lock, at as u64, at as u64));
                    assert_eq!(found.map(|held| held.lock.kind), byte[owner as usize], "step {step}, byte {at}, owner {owner}");
                    let is_gap = gaps.iter().any(|gap| (gap.start..=gap.end).contains(&(at as u64)));
                    assert_eq!(is_gap, found.is_none(), "step {step}, byte {at}, owner {owner}");
                }
            }
        }
        ranges.drop_where(|held| held.client == US);
        assert!(ranges.is_empty());
    }
}
