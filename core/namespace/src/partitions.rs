//! Directories whose names are spread over several servers by ranges of their hashes. Each of these
//! servers keeps its names and what it must know of the directory to work with them; the inode,
//! with the parent and all extended attributes, is with one of them, the *owner* of the directory.

use weft_base::{Handle, Result, ServerId, Status, WallTime, is_project_attribute};
use weft_layout::Hints;
use weft_wire::ops::{DirTarget, PartitionInode, PartitionMap, TxPart};

use crate::{Change, Inode, Record, ServerPart, State, is_for_names};

impl From<&PartitionInode> for Inode {
    /// Parent and time of access are known where the inode is.
    fn from(known: &PartitionInode) -> Inode {
        let PartitionInode { mode, uid, gid, layout, mtime, ctime, version } = *known;
        // A new inode is not sealed, this one may be.
        Inode { mode, mtime, ctime, version, ..Inode::new_directory(Handle(0), mode, uid, gid, layout, WallTime(0)) }
    }
}

impl From<&Inode> for PartitionInode {
    fn from(inode: &Inode) -> PartitionInode {
        let Inode { mode, uid, gid, layout, mtime, ctime, version, .. } = *inode;
        PartitionInode { mode, uid, gid, layout, mtime, ctime, version }
    }
}

/// Some names of a directory are here.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    pub(crate) map: PartitionMap,
    /// Where the directory's inode is, that counts and not this one.
    pub(crate) inode: Inode,
}

impl State {
    /// The directory of a name that is here, whatever map the asking side knows.
    ///
    /// # Errors
    /// [`Status::StaleMap`] if the names with its hash are elsewhere, [`Status::NotFound`] if the
    /// directory was removed, [`Status::NotDirectory`], and as [`State::inode`].
    pub fn directory(&self, at: &DirTarget, name: &[u8]) -> Result<&Inode> {
        let inode = self.known_directory(at)?;
        self.check_holds(at.dir, name)?;
        Ok(inode)
    }

    /// The directory of a listing that goes on behind a cookie here, and the last hash up to which
    /// its names are here.
    ///
    /// # Errors
    /// As [`State::directory`].
    pub(crate) fn directory_behind(&self, at: &DirTarget, cookie: u64) -> Result<(&Inode, u64)> {
        let inode = self.known_directory(at)?;
        let Some(Partition { map, .. }) = self.partition(at.dir) else { return Ok((inode, u64::MAX)) };
        if map.server_behind(cookie) != self.settings.server {
            return Err(self.elsewhere(at.dir));
        }
        Ok((inode, map.last_of_range(cookie.saturating_add(1))))
    }

    /// A directory of which some names are here.
    ///
    /// # Errors
    /// As [`State::directory`], but nobody looks where a name is.
    pub(crate) fn known_directory(&self, at: &DirTarget) -> Result<&Inode> {
        if at.dir.server() != self.settings.server {
            return self.partition_inode(at);
        }
        let inode = self.inode(at.dir).map_err(|status| match status {
            // Handles are never used again: it was removed, and nothing has a name in it.
            Status::Stale => Status::NotFound,
            status => status,
        })?;
        if !inode.is_directory() {
            return Err(Status::NotDirectory);
        }
        Ok(inode)
    }

    fn partition_inode(&self, at: &DirTarget) -> Result<&Inode> {
        self.transactions.locks.check_decided(at.dir)?;
        match self.split().get(&at.dir) {
            Some(partition) => Ok(&partition.inode),
            // Whoever has a map comes here because of it: the owner says what has become of it.
            None if at.map_epoch > 0 => Err(self.elsewhere(at.dir)),
            None => Err(Status::WrongServer),
        }
    }

    /// Why names are not looked for here: they are elsewhere, unless they are on their way.
    fn elsewhere(&self, dir: Handle) -> Status {
        self.transactions.locks.check_range(dir).err().unwrap_or(Status::StaleMap)
    }

    /// Checks that names with the hash of this one are here.
    ///
    /// # Errors
    /// [`Status::StaleMap`].
    pub(crate) fn check_holds(&self, dir: Handle, name: &[u8]) -> Result<()> {
        match self.partition(dir) {
            Some(partition) if partition.map.server(self.hash(name)) != self.settings.server => Err(self.elsewhere(dir)),
            _ => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn partition(&self, dir: Handle) -> Option<&Partition> {
        if self.split().is_empty() { None } else { self.split().get(&dir) }
    }

    /// What is known here of a directory of which some names are here.
    pub fn known_inode(&self, dir: Handle) -> Option<&Inode> {
        match self.inodes.get(dir) {
            None => self.partition(dir).map(|partition| &partition.inode),
            inode => inode,
        }
    }

    /// The map of a directory's entries: all with the inode, unless it is known to be split.
    pub fn partitions(&self, dir: Handle) -> PartitionMap {
        self.partition(dir).map_or_else(|| PartitionMap::whole(dir.server()), |partition| partition.map.clone())
    }

    /// True if names of the directory are, as far as is known here, with several servers.
    pub fn is_split(&self, dir: Handle) -> bool {
        self.partition(dir).is_some_and(|partition| partition.map.is_split(dir))
    }

    /// The server of a name in a directory, as far as is known here.
    pub fn server_of_name(&self, dir: Handle, name: &[u8]) -> ServerId {
        self.partition(dir).map_or(dir.server(), |partition| partition.map.server(self.hash(name)))
    }

    /// The change that records new times of a directory whose entries here change at `now`.
    pub(crate) fn touch(&self, dir: Handle, inode: &Inode, now: WallTime) -> Change {
        let (mtime, ctime, version) = (now, inode.ctime.max(now), inode.version + 1);
        match dir.server() == self.settings.server {
            true => Change::Touch { handle: dir, mtime, ctime, version },
            false => Change::TouchPartition { dir, mtime, ctime, version },
        }
    }

    /// The parts of the removal of a directory.
    pub(crate) fn removal_parts(&self, dir: Handle, must_own: bool) -> Vec<ServerPart> {
        // What others know of the map may be old.
        match self.partition(dir).filter(|partition| dir.server() == self.settings.server && partition.map.is_split(dir)) {
            Some(partition) => removal_over(&partition.map, dir, must_own),
            None => vec![ServerPart { server: dir.server(), part: TxPart::RemoveDirectory { dir, must_own } }],
        }
    }

    /// The map of a new directory that this server is to own and that gets these hints; `None`: it
    /// is not split.
    pub(crate) fn map_of_new(&self, owner: ServerId, hints: &Hints) -> Option<PartitionMap> {
        let map = self.even_map(owner, hints.presplit?)?;
        map.only_server().is_none().then_some(map)
    }

    /// The map of a directory of this owner whose names are spread over so many servers, as far as
    /// there are, evenly. `None`: the owner has not joined yet.
    pub fn even_map(&self, owner: ServerId, servers: u16) -> Option<PartitionMap> {
        let all = &self.placement.meta;
        let count = usize::from(servers).clamp(1, all.len().max(1));
        let first = all.iter().position(|server| *server == owner)?;
        let round: Vec<ServerId> = all.iter().cycle().skip(first).take(count).copied().collect();
        Some(PartitionMap::even(&round))
    }

    /// The parts of a change of a directory that is split, from the record that would make it if it
    /// were not. `sets_times`: the times of the last access and of the last change are set.
    ///
    /// # Errors
    /// [`Status::Invalid`] if the record changes no inode of this directory.
    pub fn spread_change(&self, dir: Handle, record: &Record, sets_times: (bool, bool)) -> Result<Vec<ServerPart>> {
        let inode = record.changes.iter().find_map(|change| match change {
            Change::PutInode { handle, inode } if *handle == dir => Some(inode),
            _ => None,
        });
        let Inode { mode, uid, gid, atime, mtime, .. } = *inode.ok_or(Status::Invalid)?;
        let attributes = record.changes.iter().filter_map(|change| match change {
            Change::PutXattr { handle, name, value } if *handle == dir => Some((name.clone(), Some(value.clone()))),
            Change::DeleteXattr { handle, name } if *handle == dir => Some((name.clone(), None)),
            _ => None,
        });
        let attributes: Vec<_> = attributes.collect();
        let (atime, mtime) = (sets_times.0.then_some(atime), sets_times.1.then_some(mtime));
        let part = |server: ServerId| {
            let is_known = |name: &[u8]| server == dir.server() || is_for_names(name);
            let attributes = attributes.iter().filter(|(name, _)| is_known(name)).cloned().collect();
            ServerPart { server, part: TxPart::ChangePartition { dir, mode, uid, gid, atime, mtime, attributes } }
        };
        Ok(self.partitions(dir).servers().into_iter().map(part).collect())
    }

    /// Checks that a part about a partition can be done; returns the directory.
    ///
    /// # Errors
    /// `conflict` if the coordinator believes something else; otherwise why it is impossible.
    pub(crate) fn prepare_partition(&self, dir: Handle, conflict: Status) -> Result<&Inode> {
        let inode = if dir.server() == self.settings.server { self.inode(dir)? } else { self.known_inode(dir).ok_or(conflict)? };
        if inode.is_directory() { Ok(inode) } else { Err(Status::NotDirectory) }
    }

    /// The changes of a part that changes or ends what is known of a directory here.
    pub(crate) fn commit_partition(&self, part: &TxPart, now: WallTime, record: &mut Record) {
        match part {
            TxPart::ChangePartition { dir, mode, uid, gid, atime, mtime, attributes } => {
                let Some(inode) = self.known_inode(*dir) else { return };
                let (mode, uid, gid, was) = (*mode, *uid, *gid, inode.changed(now));
                let (atime, mtime) = (atime.unwrap_or(was.atime), mtime.unwrap_or(was.mtime));
                let project = attributes.iter().rev().find(|(name, _)| is_project_attribute(name));
                // It was checked when it was set.
                let project_of = |value: &bytes::Bytes| weft_layout::project(value).unwrap_or_default();
                let project = project.map_or(was.project, |(_, value)| value.as_ref().map_or(0, project_of));
                let inode = Inode { mode, uid, gid, atime, mtime, project, ..was };
                record.changes.extend(attributes.iter().map(|(name, value)| match value {
                    Some(value) => Change::PutXattr { handle: *dir, name: name.clone(), value: value.clone() },
                    None => Change::DeleteXattr { handle: *dir, name: name.clone() },
                }));
                record.changes.push(match dir.server() == self.settings.server {
                    true => Change::PutInode { handle: *dir, inode },
                    false => Change::PutPartition { dir: *dir, map: self.partitions(*dir), known: (&inode).into() },
                });
            }
            TxPart::RemovePartition { dir, .. } => {
                if dir.server() == self.settings.server {
                    record.changes.push(Change::DeleteInode { handle: *dir });
                }
                record.changes.push(Change::DeletePartition { dir: *dir });
            }
            other => unreachable!("{other:?} is about no partition"),
        }
    }

    pub(crate) fn put_partition(&mut self, dir: Handle, map: PartitionMap, known: PartitionInode) {
        self.directories.entry(dir).or_default();
        self.split_mut().insert(dir, Partition { map, inode: (&known).into() });
    }

    pub(crate) fn delete_partition(&mut self, dir: Handle) {
        self.split_mut().remove(&dir);
        // In a replay over a newer checkpoint, earlier records may have brought some back.
        if self.inodes.get(dir).is_none() {
            self.directories.remove(&dir);
            self.xattrs.delete_all(dir);
        }
    }
}

/// The parts of the removal of a directory that is split so, and by no other map.
pub fn removal_over(map: &PartitionMap, dir: Handle, must_own: bool) -> Vec<ServerPart> {
    let expect = ServerPart { server: dir.server(), part: TxPart::ExpectMap { dir, map: map.clone() } };
    let remove = |server| ServerPart { server, part: TxPart::RemovePartition { dir, must_own } };
    // Its owner has something to remove whoever holds the names.
    let others = map.servers().into_iter().filter(|server| *server != dir.server());
    [expect, remove(dir.server())].into_iter().chain(others.map(remove)).collect()
}
