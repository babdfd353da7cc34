//! Locks on one file among the programs of one gateway: ranges of bytes with owners, as `fcntl` has
//! them, and whole files, as `flock` has them. Pure: no waiting, no messages. The two families do
//! not see each other, as on any local file system.

/// Who holds a lock: a number that the gateway gives a process (`fcntl`) or an open file (`flock`).
pub type Owner = u64;

/// What a lock keeps others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Others may have it, too.
    Shared,
    /// Nobody else.
    Exclusive,
}

/// The two families of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Of processes, on ranges.
    Fcntl,
    /// Of open files.
    Flock,
}

/// A lock that is held or asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// `fcntl` or `flock`.
    pub family: Family,
    /// Whose.
    pub owner: Owner,
    /// What it keeps others from.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// The process, for those who ask who is in the way.
    pub process: u32,
    /// The open file through which it was asked for.
    pub file: u64,
}

impl Lock {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start <= end && start <= self.end
    }

    fn is_of(&self, family: Family, owner: Owner) -> bool {
        self.family == family && self.owner == owner
    }
}

/// The locks on one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    held: Vec<Lock>,
}

impl Table {
    /// A lock of somebody else that is in the way.
    pub fn conflict(&self, wanted: &Lock) -> Option<Lock> {
        self.in_the_way(wanted).next().copied()
    }

    /// All locks of others that are in the way.
    pub fn in_the_way<'a>(&'a self, wanted: &'a Lock) -> impl Iterator<Item = &'a Lock> {
        self.held.iter().filter(|held| {
            held.family == wanted.family
                && held.owner != wanted.owner
                && held.overlaps(wanted.start, wanted.end)
                && (held.kind == LockKind::Exclusive || wanted.kind == LockKind::Exclusive)
        })
    }

    /// Takes the lock; what its owner held of the range before is replaced. False, and nothing
    /// happens, if somebody is in the way.
    pub fn lock(&mut self, wanted: Lock) -> bool {
        if self.conflict(&wanted).is_some() {
            return false;
        }
        self.unlock(wanted.family, wanted.owner, wanted.start, wanted.end);
        // Neighbours of one kind become one, so that a program which locks byte by byte leaves no
        // long list.
        let mut joined = wanted;
        self.held.retain(|held| {
            let joins = held.is_of(wanted.family, wanted.owner)
                && held.kind == wanted.kind
                && held.file == wanted.file
                && (held.end.checked_add(1) == Some(joined.start) || joined.end.checked_add(1) == Some(held.start));
            if joins {
                (joined.start, joined.end) = (joined.start.min(held.start), joined.end.max(held.end));
            }
            !joins
        });
        self.held.push(joined);
        true
    }

    /// Gives a range back; what an owner holds around it stays.
    pub fn unlock(&mut self, family: Family, owner: Owner, start: u64, end: u64) {
        let mut pieces = Vec::new();
        self.held.retain(|held| {
            if !held.is_of(family, owner) || !held.overlaps(start, end) {
                return true;
            }
            if held.start < start {
                pieces.push(Lock { end: start - 1, ..*held });
            }
            if held.end > end {
                pieces.push(Lock { start: end + 1, ..*held });
            }
            false
        });
        self.held.append(&mut pieces);
    }

    /// An owner is gone.
    pub fn drop_owner(&mut self, family: Family, owner: Owner) {
        self.held.retain(|held| !held.is_of(family, owner));
    }

    /// An open file is gone, and with it the locks that were taken through it.
    pub fn drop_file(&mut self, file: u64) {
        self.held.retain(|held| held.file != file);
    }

    /// The locks for which `is_gone` says so are dropped.
    pub fn drop_where(&mut self, is_gone: impl Fn(&Lock) -> bool) {
        self.held.retain(|held| !is_gone(held));
    }

    /// True if nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: Owner, kind: LockKind, start: u64, end: u64) -> Lock {
        Lock { family: Family::Fcntl, owner, kind, start, end, process: owner as u32, file: owner }
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let mut table = Table::default();
        assert!(table.lock(lock(1, LockKind::Shared, 0, 99)) && table.lock(lock(2, LockKind::Shared, 50, 149)));
        assert!(!table.lock(lock(3, LockKind::Exclusive, 99, 99)));
        assert_eq!(table.conflict(&lock(3, LockKind::Exclusive, 120, 130)).map(|held| held.process), Some(2));
        assert!(!table.lock(lock(1, LockKind::Exclusive, 0, 99)), "the other reader is in the way of an upgrade");
        assert!(table.lock(lock(1, LockKind::Exclusive, 0, 49)), "where it is not, it is not");
        assert!(table.conflict(&lock(2, LockKind::Shared, 49, 49)).is_some());
        let flock = Lock { family: Family::Flock, ..lock(3, LockKind::Exclusive, 0, u64::MAX) };
        assert!(table.lock(flock), "the other family");
        table.drop_owner(Family::Fcntl, 1);
        table.drop_file(2);
        assert!(!table.is_empty());
        table.drop_owner(Family::Flock, 3);
        assert!(table.is_empty());
    }

    #[test]
    fn unlocking_the_middle_leaves_both_ends() {
        let mut table = Table::default();
        assert!(table.lock(lock(1, LockKind::Exclusive, 0, u64::MAX)));
        table.unlock(Family::Fcntl, 1, 10, 19);
        assert!(table.conflict(&lock(2, LockKind::Shared, 10, 19)).is_none());
        assert!(table.conflict(&lock(2, LockKind::Shared, 9, 9)).is_some() && table.conflict(&lock(2, LockKind::Shared, 20, 20)).is_some());
        assert!(table.lock(lock(1, LockKind::Exclusive, 10, 19)));
        assert_eq!(table.held.len(), 1, "one again");
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
        let mut table = Table::default();
        let mut bytes: Vec<[Option<LockKind>; 4]> = vec![[None; 4]; BYTES as usize];
        for step in 0..20_000 {
            let owner = next(4);
            let start = next(BYTES);
            let end = start + next(BYTES - start);
            let range = start as usize..=end as usize;
            match next(5) {
                0 | 1 => {
                    table.unlock(Family::Fcntl, owner, start, end);
                    bytes[range].iter_mut().for_each(|byte| byte[owner as usize] = None);
                }
                kind => {
                    let kind = if kind == 2 { LockKind::Exclusive } else { LockKind::Shared };
                    let free = |byte: &[Option<LockKind>; 4]| {
                        let others = byte.iter().enumerate().filter(|(other, _)| *other != owner as usize).filter_map(|(_, held)| *held);
                        others.into_iter().all(|held| held == LockKind::Shared && kind == LockKind::Shared)
                    };
                    let expected = bytes[range.clone()].iter().all(free);
                    assert_eq!(table.lock(lock(owner, kind, start, end)), expected, "step {step}");
                    if expected {
                        bytes[range].iter_mut().for_each(|byte| byte[owner as usize] = Some(kind));
                    }
                }
            }
            for (at, byte) in bytes.iter().enumerate() {
                for (owner, held) in byte.iter().enumerate() {
                    let found = table.held.iter().find(|lock| lock.owner == owner as u64 && lock.overlaps(at as u64, at as u64));
                    assert_eq!(found.map(|lock| lock.kind), *held, "step {step}, byte {at}, owner {owner}");
                }
            }
        }
        bytes.clear();
        (0..4).for_each(|owner| table.drop_owner(Family::Fcntl, owner));
        assert!(table.is_empty());
    }
}
