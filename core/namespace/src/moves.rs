//! Names that go from one server to another while their directory is used: in slices, each one
//! transaction of the server that has them, the one that gets them, and the one with the inode of
//! the directory if that is a third. Inodes stay where they are.

use bytes::Bytes;
use weft_base::{Credentials, Handle, MILLISECOND, Result, ServerId, Status};
use weft_wire::ops::{GiveNamesRequest, MovedName, MovedNames, PartitionMap, TxPart};

use crate::access::check_owner;
use crate::directory::{Directory, Entry};
use crate::{Change, Inode, Record, ServerPart, State};

/// The attribute of a directory that its server has spread by itself: over how many servers its
/// names were before. Nobody else sees it.
const SPREAD_FROM: &[u8] = b"system.weft.spread_from";

/// Most names of one slice, but for names of one hash.
pub const SLICE_NAMES_MAX: usize = 1024;

/// Fewest names that a slice is cut down to.
const SLICE_NAMES_MIN: u32 = 16;
/// A slice that is over sooner may be followed by a larger one, in nanoseconds.
const SLICE_FAST_NS: u64 = 2 * MILLISECOND;
/// A slice that takes longer is followed by a smaller one, in nanoseconds.
const SLICE_SLOW_NS: u64 = 8 * MILLISECOND;

impl State {
    /// Checks that somebody may say how the names of a directory of this server are spread.
    ///
    /// # Errors
    /// [`Status::NotPermitted`] unless it is its owner; [`Status::NotDirectory`], and as
    /// [`State::inode`].
    pub fn check_split(&self, dir: Handle, who: &Credentials) -> Result<()> {
        let inode = self.inode(dir)?;
        check_owner(who, inode, true)?;
        if inode.is_directory() { Ok(()) } else { Err(Status::NotDirectory) }
    }

    /// Over how many servers the names of a directory were before its server spread it by itself;
    /// `None`: it has not, or somebody has said since how they shall be.
    pub fn spread_from(&self, dir: Handle) -> Option<u16> {
        std::str::from_utf8(self.xattrs.get(dir, SPREAD_FROM)?).ok()?.parse().ok()
    }

    /// The change that remembers it, or forgets it; `None`: it is remembered so.
    pub fn keep_spread_from(&self, dir: Handle, servers: Option<u16>) -> Option<Change> {
        let name = Bytes::from_static(SPREAD_FROM);
        match servers {
            _ if servers == self.spread_from(dir) => None,
            Some(servers) => Some(Change::PutXattr { handle: dir, name, value: servers.to_string().into() }),
            None => Some(Change::DeleteXattr { handle: dir, name }),
        }
    }

    /// Directories that this server has spread by itself.
    pub fn spread_by_itself(&self) -> impl Iterator<Item = Handle> {
        self.split().keys().copied().filter(|dir| self.spread_from(*dir).is_some())
    }

    /// Where a directory that this server has spread by itself goes back to, if it may get four
    /// times as many names before more than `names_max` on one server are too many.
    pub fn way_back(&self, dir: Handle, names_max: u64) -> Option<PartitionMap> {
        let (before, servers) = (self.spread_from(dir)?, self.partitions(dir).servers().len() as u16);
        let names = self.directories.get(&dir).map_or(0, Directory::len);
        let is_small = servers > before && may_go_back(names, servers, before, names_max);
        if is_small { self.even_map(dir.server(), before) } else { None }
    }

    /// The parts of the next slice of a move, and how many names it has: those of the highest
    /// hashes.
    ///
    /// # Errors
    /// [`Status::StaleMap`] if the names are not all here, or the map is not that of now;
    /// [`Status::Invalid`] for a server that has them already; as [`PartitionMap::moved`].
    pub fn plan_move(&self, request: &GiveNamesRequest) -> Result<(Vec<ServerPart>, u32)> {
        let GiveNamesRequest { dir, ref map, first, last, to, names_max } = *request;
        let own = self.settings.server;
        let inode = self.known_inode(dir).ok_or(Status::StaleMap)?;
        if to == own || !inode.is_directory() {
            return Err(Status::Invalid);
        }
        if !holds_all(&self.partitions(dir), own, (first, last)) || !holds_all(map, own, (first, last)) {
            return Err(Status::StaleMap);
        }
        let (first, names) = self.highest_names(dir, (first, last), names_max as usize);
        let (count, map) = (names.len() as u32, map.moved(first, last, to)?);
        let is_all = dir.server() != own && !map.has(own);
        let hints = self.attributes_for_names(dir);
        let give = TxPart::GiveNames { dir, first, last, map: map.clone() };
        let moved = MovedNames { dir, first, last, map: map.clone(), known: inode.into(), is_all, hints, names };
        let mut parts = vec![ServerPart { server: own, part: give }, ServerPart { server: to, part: TxPart::TakeNames { names: moved } }];
        if ![own, to].contains(&dir.server()) {
            parts.push(ServerPart { server: dir.server(), part: TxPart::PutMap { dir, map } });
        }
        Ok((parts, count))
    }

    /// The names of the highest hashes in a range, and the hash from which on they are all.
    fn highest_names(&self, dir: Handle, (first, last): (u64, u64), names_max: usize) -> (u64, Vec<MovedName>) {
        let names_max = names_max.clamp(1, SLICE_NAMES_MAX);
        let (mut names, mut lowest) = (Vec::new(), first);
        for (hash, group) in self.directories.get(&dir).into_iter().flat_map(|directory| directory.down_from(first, last)) {
            if !names.is_empty() && names.len() + group.len() > names_max {
                return (lowest, names);
            }
            names.extend(group.iter().map(|entry| moved(&entry)));
            lowest = hash;
        }
        (first, names)
    }

    /// Checks that a part of a move can be done; returns its directory.
    ///
    /// # Errors
    /// `conflict` if the coordinator believes something else.
    pub(crate) fn prepare_move(&self, part: &TxPart, conflict: Status) -> Result<Handle> {
        let own = self.settings.server;
        // The server of the inode counts the changes of the map.
        let is_next =
            |dir: Handle, map: &PartitionMap| dir.server() != own || self.partitions(dir).epoch().checked_add(1) == Some(map.epoch());
        let (dir, is_right) = match part {
            TxPart::GiveNames { dir, first, last, map } => {
                self.prepare_partition(*dir, conflict)?;
                (*dir, is_next(*dir, map) && holds_all(&self.partitions(*dir), own, (*first, *last)))
            }
            TxPart::TakeNames { names: MovedNames { dir, first, last, map, names, .. } } => {
                if dir.server() == own {
                    self.prepare_partition(*dir, conflict)?;
                }
                let is_sound = names.iter().all(|moved| (*first..=*last).contains(&self.hash(&moved.name)));
                if !is_sound || !holds_all(map, own, (*first, *last)) {
                    return Err(Status::BadMessage);
                }
                (*dir, is_next(*dir, map))
            }
            TxPart::PutMap { dir, map } => {
                self.prepare_partition(*dir, conflict)?;
                (*dir, dir.server() == own && is_next(*dir, map))
            }
            TxPart::ExpectMap { dir, map } => (*dir, dir.server() == own && self.partitions(*dir) == *map),
            other => unreachable!("{other:?} moves nothing"),
        };
        if is_right { Ok(dir) } else { Err(conflict) }
    }

    /// The changes of a part of a move.
    pub(crate) fn commit_move(&self, part: &TxPart, record: &mut Record) {
        match part {
            TxPart::GiveNames { dir, first, last, map } => {
                let directory = self.directories.get(dir).into_iter();
                let groups = directory.flat_map(|directory| directory.down_from(*first, *last));
                let names = groups.flat_map(|(_, group)| group.iter()).map(|entry| Bytes::copy_from_slice(entry.name)).collect();
                record.changes.push(Change::GiveNames { dir: *dir, names });
                match self.known_inode(*dir) {
                    Some(inode) if dir.server() == self.settings.server || map.has(self.settings.server) => {
                        record.changes.push(put_map(*dir, map, inode));
                    }
                    _ => record.changes.push(Change::DeletePartition { dir: *dir }),
                }
            }
            TxPart::TakeNames { names } => self.commit_taken(names, record),
            TxPart::PutMap { dir, map } => {
                if let Some(inode) = self.known_inode(*dir) {
                    record.changes.push(put_map(*dir, map, inode));
                }
            }
            TxPart::ExpectMap { .. } => {}
            other => unreachable!("{other:?} moves nothing"),
        }
    }

    fn commit_taken(&self, moved: &MovedNames, record: &mut Record) {
        let MovedNames { dir, map, known: told, is_all, hints, names, .. } = moved;
        let known = match self.known_inode(*dir) {
            // What was counted where nothing stays is counted here.
            Some(inode) if *is_all => Inode {
                mtime: inode.mtime.max(told.mtime),
                ctime: inode.ctime.max(told.ctime),
                version: inode.version + told.version,
                ..inode.clone()
            },
            Some(inode) => inode.clone(),
            None => {
                record.changes.extend(hints.iter().map(|(name, value)| {
                    let (name, value) = (name.clone(), value.clone());
                    Change::PutXattr { handle: *dir, name, value }
                }));
                Inode { version: if *is_all { told.version } else { 1 }, ..told.into() }
            }
        };
        if dir.server() == self.settings.server && *is_all {
            let Inode { mtime, ctime, version, .. } = known;
            record.changes.push(Change::Touch { handle: *dir, mtime, ctime, version });
        }
        record.changes.push(put_map(*dir, map, &known));
        record.changes.push(Change::TakeNames { dir: *dir, names: names.clone() });
    }

    pub(crate) fn give_names(&mut self, dir: Handle, names: &[Bytes]) {
        let key = self.settings.name_key;
        if let Some(directory) = self.directories.get_mut(&dir) {
            names.iter().for_each(|name| directory.remove(key.hash(name), name));
        }
    }

    pub(crate) fn take_names(&mut self, dir: Handle, names: Vec<MovedName>) {
        let key = self.settings.name_key;
        let directory = self.directories.entry(dir).or_default();
        for MovedName { name, handle, kind } in names {
            directory.put(key.hash(&name), Entry { name: &name, handle, kind });
        }
    }
}

/// Over how many servers a directory is to be spread that has so many names on each of its
/// `servers`, of `all` that there are, if more than `names_max` on one are too many. It is spread
/// so that it may double before it is too large again: what moves once need not move twice.
/// `None`: as it is.
pub fn servers_for(names_each: u64, servers: u16, all: u16, names_max: u64) -> Option<u16> {
    if names_max == 0 || names_each <= names_max || servers >= all {
        return None;
    }
    let wanted = names_each.saturating_mul(2 * u64::from(servers)).div_ceil(names_max);
    Some(wanted.min(all.into()) as u16).filter(|wanted| *wanted > servers)
}

/// True if a directory with so many names on each of its `servers` may go back to `before` of them:
/// it may get four times as many names before it is too large for these.
fn may_go_back(names_each: u64, servers: u16, before: u16, names_max: u64) -> bool {
    names_each.saturating_mul(servers.into()) <= u64::from(before) * (names_max / 4)
}

/// How many names the next slice has, after one of `names` that has taken so long, in nanoseconds:
/// no name shall wait long, and no slice be made for a few.
pub fn next_slice(names: u32, took_ns: u64, names_max: u32) -> u32 {
    match took_ns {
        0..SLICE_FAST_NS => (names * 2).min(names_max),
        SLICE_FAST_NS..SLICE_SLOW_NS => names,
        _ => (names / 2).max(SLICE_NAMES_MIN),
    }
    .min(names_max)
}

/// True if a server holds all names with these hashes, in one range.
fn holds_all(map: &PartitionMap, server: ServerId, (first, last): (u64, u64)) -> bool {
    first <= last && map.server(last) == server && map.server(first) == server && map.last_of_range(first) >= last
}

fn put_map(dir: Handle, map: &PartitionMap, inode: &Inode) -> Change {
    Change::PutPartition { dir, map: map.clone(), known: inode.into() }
}

fn moved(entry: &Entry<'_>) -> MovedName {
    MovedName { name: Bytes::copy_from_slice(entry.name), handle: entry.handle, kind: entry.kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_directories_go_to_as_many_servers_as_they_need() {
        for (names_each, servers, all, names_max, expected) in [
            (100, 1, 8, 100, None),
            (101, 1, 8, 100, Some(3)),
            (101, 1, 2, 100, Some(2)),
            (101, 1, 1, 100, None),
            (101, 3, 8, 100, Some(7)),
            (101, 8, 8, 100, None),
            (5000, 1, 8, 100, Some(8)),
            (5000, 1, 8, 0, None),
            (u64::MAX / 2, 2, 9, 1, Some(9)),
        ] {
            assert_eq!(servers_for(names_each, servers, all, names_max), expected, "{names_each} on {servers} of {all}");
        }
    }

    #[test]
    fn small_directories_go_back() {
        for (names_each, servers, before, names_max, expected) in
            [(10, 4, 1, 160, true), (11, 4, 1, 160, false), (11, 4, 2, 160, true), (0, 9, 1, 0, true), (u64::MAX, 2, 1, u64::MAX, false)]
        {
            assert_eq!(may_go_back(names_each, servers, before, names_max), expected, "{names_each} on {servers}, before {before}");
        }
    }

    #[test]
    fn slices_are_as_large_as_names_can_wait() {
        for (names, took_ms, expected) in [(256, 0, 256), (64, 1, 128), (64, 5, 64), (64, 9, 32), (20, 9, 16), (16, 900, 16)] {
            assert_eq!(next_slice(names, took_ms * MILLISECOND, 256), expected, "{names} in {took_ms} ms");
        }
        assert_eq!((next_slice(2, SLICE_SLOW_NS, 2), next_slice(1, 0, 1)), (2, 1), "never more than that");
    }
}
