//! Locks of transactions on names and inodes. They are part of prepared parts (and come back with
//! them after a restart) or belong to a coordinator that is collecting agreements. Nobody ever
//! waits while asking for one: a conflict is answered at once, so there are no deadlocks.
//!
//! A coordinator's own locks keep writers out; readers see the state before the change, which is
//! right, since nothing is decided until the coordinator says so itself. The locks of a prepared
//! part keep readers out too: the coordinator may have told its client already that the change is
//! made.
//!
//! Names that go from one server to another are locked as the range of their hashes.

use std::collections::BTreeMap;

use weft_base::{Handle, MODE_SEALED, Result, Status};
use weft_wire::NameKey;
use weft_wire::ops::{MovedNames, TxId, TxPart};

/// Why something is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// This server coordinates and has not decided.
    Own,
    /// Another server decides.
    Prepared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lock {
    tx: TxId,
    mode: LockMode,
}

/// Names of one directory that are locked by their hashes, from the first to the last. Where only
/// the map is to be another one, it is no hash at all.
#[derive(Clone, Copy, Debug)]
struct RangeLock {
    hashes: (u64, u64),
    lock: Lock,
}

impl RangeLock {
    fn has(&self, hash: u64) -> bool {
        self.hashes.0 <= hash && hash <= self.hashes.1
    }
}

/// No hash.
const EMPTY: (u64, u64) = (1, 0);

/// The locks of one server.
#[derive(Debug)]
pub(crate) struct Locks {
    key: NameKey,
    /// One for each directory.
    ranges: BTreeMap<Handle, RangeLock>,
    names: BTreeMap<Handle, BTreeMap<Box<[u8]>, Lock>>,
    inodes: BTreeMap<Handle, Lock>,
    move_token: Option<TxId>,
}

/// What a part locks.
enum Locked<'a> {
    Name(Handle, &'a [u8]),
    Inode(Handle),
    Range(Handle, (u64, u64)),
    Nothing,
    MoveToken,
}

fn locked(part: &TxPart) -> Locked<'_> {
    match part {
        TxPart::InsertEntry { dir, name, .. } | TxPart::RemoveEntry { dir, name, .. } => Locked::Name(*dir, name),
        TxPart::RemoveDirectory { dir, .. } | TxPart::SetParent { dir, .. } => Locked::Inode(*dir),
        TxPart::ChangeLinks { handle, .. } => Locked::Inode(*handle),
        TxPart::ChangePartition { dir, .. } | TxPart::RemovePartition { dir, .. } => Locked::Inode(*dir),
        TxPart::MakePartition { dir, .. } if *dir != Handle(0) => Locked::Inode(*dir),
        TxPart::GiveNames { dir, first, last, .. } | TxPart::TakeNames { names: MovedNames { dir, first, last, .. } } => {
            Locked::Range(*dir, (*first, *last))
        }
        TxPart::PutMap { dir, .. } => Locked::Range(*dir, EMPTY),
        TxPart::ExpectMap { .. } | TxPart::ExpectProject { .. } => Locked::Nothing,
        // Nobody knows its handle before it is agreed to; then see `lock`.
        TxPart::MakeDirectory { .. } | TxPart::InheritHints { .. } | TxPart::MakePartition { .. } => Locked::Nothing,
        TxPart::MoveToken {} => Locked::MoveToken,
    }
}

impl Locks {
    /// None yet; names are hashed with this key.
    pub(crate) fn new(key: NameKey) -> Locks {
        Locks { key, ranges: BTreeMap::new(), names: BTreeMap::new(), inodes: BTreeMap::new(), move_token: None }
    }

    /// The lock of a range in which the name lies.
    fn range_of(&self, dir: Handle, name: &[u8]) -> Option<&Lock> {
        let range = self.ranges.get(&dir)?;
        range.has(self.key.hash(name)).then_some(&range.lock)
    }

    /// True if a part of `tx` can have its lock.
    pub(crate) fn free_for(&self, tx: TxId, part: &TxPart) -> bool {
        let mine = |lock: Option<&Lock>| lock.is_none_or(|lock| lock.tx == tx);
        match locked(part) {
            Locked::Name(dir, name) => {
                let name_lock = self.names.get(&dir).and_then(|names| names.get(name));
                mine(name_lock) && mine(self.inodes.get(&dir)) && mine(self.range_of(dir, name))
            }
            // To remove or seal a directory, nobody may be about to change its entries.
            Locked::Inode(handle) => {
                let entries = self.names.get(&handle).into_iter().flat_map(BTreeMap::values);
                let closes = match part {
                    TxPart::RemoveDirectory { .. } | TxPart::RemovePartition { .. } => true,
                    TxPart::ChangePartition { mode, .. } => mode & MODE_SEALED != 0,
                    _ => false,
                };
                let is_moving = self.ranges.get(&handle).is_some_and(|range| range.lock.tx != tx);
                mine(self.inodes.get(&handle)) && !is_moving && (!closes || entries.into_iter().all(|lock| lock.tx == tx))
            }
            // Nobody may be about to change what goes, or what goes with it.
            Locked::Range(dir, hashes) => {
                let range = RangeLock { hashes, lock: Lock { tx, mode: LockMode::Own } };
                let mut names = self.names.get(&dir).into_iter().flatten();
                mine(self.inodes.get(&dir))
                    && mine(self.ranges.get(&dir).map(|range| &range.lock))
                    && names.all(|(name, lock)| lock.tx == tx || !range.has(self.key.hash(name)))
            }
            Locked::Nothing => true,
            Locked::MoveToken => self.move_token.is_none_or(|holder| holder == tx),
        }
    }

    /// Locks what the parts need, and the directory `made` that they will make: once the
    /// coordinator has decided, its client knows its handle.
    pub(crate) fn lock(&mut self, tx: TxId, mode: LockMode, parts: &[TxPart], made: Option<Handle>) {
        let lock = Lock { tx, mode };
        if let Some(made) = made {
            self.inodes.insert(made, lock);
        }
        for part in parts {
            match locked(part) {
                Locked::Name(dir, name) => {
                    self.names.entry(dir).or_default().insert(name.into(), lock);
                }
                Locked::Inode(handle) => {
                    self.inodes.insert(handle, lock);
                }
                Locked::Range(dir, hashes) => {
                    self.ranges.insert(dir, RangeLock { hashes, lock });
                }
                Locked::Nothing => {}
                Locked::MoveToken => self.move_token = Some(tx),
            }
        }
    }

    pub(crate) fn unlock(&mut self, tx: TxId, parts: &[TxPart], made: Option<Handle>) {
        if let Some(made) = made {
            self.inodes.remove(&made);
        }
        for part in parts {
            match locked(part) {
                Locked::Name(dir, name) => {
                    if let Some(names) = self.names.get_mut(&dir) {
                        if names.get(name).is_some_and(|lock| lock.tx == tx) {
                            names.remove(name);
                        }
                        if names.is_empty() {
                            self.names.remove(&dir);
                        }
                    }
                }
                Locked::Inode(handle) => {
                    if self.inodes.get(&handle).is_some_and(|lock| lock.tx == tx) {
                        self.inodes.remove(&handle);
                    }
                }
                Locked::Range(dir, _) => {
                    if self.ranges.get(&dir).is_some_and(|range| range.lock.tx == tx) {
                        self.ranges.remove(&dir);
                    }
                }
                Locked::Nothing => {}
                Locked::MoveToken => {
                    self.move_token.take_if(|holder| *holder == tx);
                }
            }
        }
    }

    /// True if neither the object nor a name in it is locked.
    pub(crate) fn is_free(&self, handle: Handle) -> bool {
        !self.names.contains_key(&handle) && !self.inodes.contains_key(&handle) && !self.ranges.contains_key(&handle)
    }

    /// True if no lock exists.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.inodes.is_empty() && self.ranges.is_empty() && self.move_token.is_none()
    }

    /// For a change of a name by an ordinary request.
    pub(crate) fn check_write_name(&self, dir: Handle, name: &[u8]) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let name_locked = self.names.get(&dir).is_some_and(|names| names.contains_key(name));
        free(!name_locked && !self.inodes.contains_key(&dir) && self.range_of(dir, name).is_none())
    }

    /// For a look at a name.
    pub(crate) fn check_read_name(&self, dir: Handle, name: &[u8]) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let name_lock = self.names.get(&dir).and_then(|names| names.get(name));
        free(!prepared(name_lock) && !prepared(self.inodes.get(&dir)) && !prepared(self.range_of(dir, name)))
    }

    /// For a change of an inode by an ordinary request.
    pub(crate) fn check_write_inode(&self, handle: Handle) -> Result<()> {
        free(!self.inodes.contains_key(&handle) && !self.ranges.contains_key(&handle))
    }

    /// For a change of a directory after which its entries do not change any more.
    pub(crate) fn check_entries(&self, dir: Handle) -> Result<()> {
        free(!self.names.contains_key(&dir))
    }

    /// For whoever looks where names of a directory are: another server is deciding about that.
    pub(crate) fn check_range(&self, dir: Handle) -> Result<()> {
        free(!prepared(self.ranges.get(&dir).map(|range| &range.lock)))
    }

    /// For a look at an inode; a directory's attributes depend on its entries.
    pub(crate) fn check_read_inode(&self, handle: Handle) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let entries = self.names.get(&handle).into_iter().flat_map(BTreeMap::values);
        free(!prepared(self.inodes.get(&handle)) && !entries.into_iter().any(|lock| prepared(Some(lock))))?;
        self.check_range(handle)
    }

    /// For any look at an inode, whatever the question: no other server is deciding about it.
    pub(crate) fn check_decided(&self, handle: Handle) -> Result<()> {
        free(!prepared(self.inodes.get(&handle)))
    }
}

fn prepared(lock: Option<&Lock>) -> bool {
    lock.is_some_and(|lock| lock.mode == LockMode::Prepared)
}

fn free(condition: bool) -> Result<()> {
    if condition { Ok(()) } else { Err(Status::Busy) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use weft_base::{FileKind, ServerId};

    const DIR: Handle = Handle(5);
    const KEY: NameKey = NameKey([4; 16]);

    fn tx(number: u64) -> TxId {
        TxId { coordinator: ServerId(0), number }
    }

    fn insert(name: &'static str) -> TxPart {
        TxPart::InsertEntry { dir: DIR, name: Bytes::from(name), handle: Handle(9), kind: FileKind::File, replaces: None }
    }

    #[test]
    fn closing_a_directory_excludes_changes_of_its_entries_both_ways() {
        let close = TxPart::RemoveDirectory { dir: DIR, must_own: false };
        let mut locks = Locks::new(KEY);
        locks.lock(tx(1), LockMode::Prepared, &[insert("a")], None);
        assert!(!locks.free_for(tx(2), &close));
        assert!(locks.free_for(tx(2), &insert("b")));
        assert!(!locks.free_for(tx(2), &insert("a")));
        locks.unlock(tx(1), &[insert("a")], None);
        assert!(locks.is_empty());
        locks.lock(tx(2), LockMode::Prepared, std::slice::from_ref(&close), None);
        assert!(!locks.free_for(tx(1), &insert("a")));
        assert_eq!(locks.check_write_name(DIR, b"x"), Err(Status::Busy));
        locks.unlock(tx(1), std::slice::from_ref(&close), None);
        assert!(!locks.is_empty(), "only the holder unlocks");
    }

    #[test]
    fn own_locks_let_readers_pass() {
        let mut locks = Locks::new(KEY);
        locks.lock(tx(1), LockMode::Own, &[insert("a"), TxPart::MoveToken {}], None);
        assert_eq!(locks.check_read_name(DIR, b"a"), Ok(()));
        assert_eq!(locks.check_read_inode(DIR), Ok(()));
        assert_eq!(locks.check_write_name(DIR, b"a"), Err(Status::Busy));
        assert_eq!(locks.check_write_name(DIR, b"b"), Ok(()));
        assert!(!locks.free_for(tx(2), &TxPart::MoveToken {}));
        locks.unlock(tx(1), &[insert("a"), TxPart::MoveToken {}], None);
        locks.lock(tx(1), LockMode::Prepared, &[insert("a")], None);
        assert_eq!(locks.check_read_name(DIR, b"a"), Err(Status::Busy));
        assert_eq!(locks.check_read_name(DIR, b"b"), Ok(()));
        assert_eq!(locks.check_read_inode(DIR), Err(Status::Busy));
    }

    #[test]
    fn a_range_locks_its_names_and_no_others() {
        let (low, high) = if KEY.hash(b"a") < KEY.hash(b"b") { ("a", "b") } else { ("b", "a") };
        let (first, last) = (KEY.hash(high.as_bytes()), weft_wire::HASH_MAX);
        let map = weft_wire::ops::PartitionMap::whole(ServerId(1));
        let give = TxPart::GiveNames { dir: DIR, first, last, map: map.clone() };
        let change = TxPart::ChangeLinks { handle: DIR, kind: FileKind::Directory, delta: 0, must_own: false };
        let mut locks = Locks::new(KEY);
        for mode in [LockMode::Own, LockMode::Prepared] {
            locks.lock(tx(1), mode, std::slice::from_ref(&give), None);
            for (name, is_free) in [(low, true), (high, false)] {
                assert_eq!(locks.check_write_name(DIR, name.as_bytes()).is_ok(), is_free, "{name}");
                assert_eq!(locks.check_read_name(DIR, name.as_bytes()).is_ok(), is_free || mode == LockMode::Own);
                assert_eq!((locks.free_for(tx(2), &insert(name)), locks.free_for(tx(1), &insert(name))), (is_free, true));
            }
            assert_eq!((locks.check_write_inode(DIR), locks.check_decided(DIR)), (Err(Status::Busy), Ok(())));
            assert_eq!(locks.check_read_inode(DIR).is_ok(), mode == LockMode::Own);
            assert!(!locks.free_for(tx(2), &change) && !locks.free_for(tx(2), &TxPart::PutMap { dir: DIR, map: map.clone() }));
            assert!(!locks.is_free(DIR) && !locks.is_empty());
            locks.unlock(tx(2), std::slice::from_ref(&give), None);
            assert!(!locks.is_empty(), "only the holder unlocks");
            locks.unlock(tx(1), std::slice::from_ref(&give), None);
            assert!(locks.is_empty());
        }
        for (part, is_free) in [(insert(low), true), (insert(high), false), (change, false)] {
            locks.lock(tx(1), LockMode::Own, std::slice::from_ref(&part), None);
            assert_eq!(locks.free_for(tx(2), &give), is_free);
            locks.unlock(tx(1), std::slice::from_ref(&part), None);
        }
        // Only the map is to be another one.
        let put = TxPart::PutMap { dir: DIR, map };
        locks.lock(tx(1), LockMode::Prepared, std::slice::from_ref(&put), None);
        assert_eq!((locks.check_write_name(DIR, b"a"), locks.check_read_inode(DIR)), (Ok(()), Err(Status::Busy)));
    }
}
