//! Which server holds which names of a directory: ranges of the hashes of names.
//!
//! The hash of a name is also the cookie of a listing, so partitions follow each other in the order
//! of a listing: whoever lists a directory walks from range to range, and a boundary that moves
//! meanwhile neither hides a name nor shows it twice.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use weft_base::{FsId, Handle, Result, ServerId, Status};

use crate::codec::{wire_for_fields, wire_for_newtypes};
use crate::{ClusterKey, Reader, Wire};

/// The smallest hash of a name, and cookie: 0 begins a listing, 1 and 2 are `.` and `..` of
/// gateways.
pub const HASH_MIN: u64 = 3;
/// The largest: programs take cookies for signed numbers, and 2^63-1 itself means "end" to some.
pub const HASH_MAX: u64 = (1 << 63) - 2;
/// Most ranges of one directory.
pub const RANGES_MAX: usize = 4096;

/// The key of the hash of names. Servers have it from the cluster key, clients from servers; nobody
/// else can choose names that collide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NameKey(pub [u8; 16]);

impl std::fmt::Debug for NameKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NameKey(secret)")
    }
}

impl NameKey {
    /// The key of a file system.
    pub fn of(key: &ClusterKey, fs_id: FsId) -> NameKey {
        let secret = key.mac(b"weft names", &[&fs_id.0.to_le_bytes()]);
        let mut name_key = [0; 16];
        name_key.copy_from_slice(&secret[..16]);
        NameKey(name_key)
    }

    /// SipHash-2-4 (Aumasson, Bernstein 2012) of a name, within [`HASH_MIN`] to [`HASH_MAX`].
    pub fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(name);
        (hasher.finish() >> 1).clamp(HASH_MIN, HASH_MAX)
    }
}

wire_for_newtypes! { NameKey; }

/// The names of a directory from one hash up to the next range, and their server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The first hash.
    pub first: u64,
    /// Who holds them.
    pub server: ServerId,
}

/// Names that are to go from one server to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The first of their hashes.
    pub first: u64,
    /// The last.
    pub last: u64,
    /// Who holds them.
    pub from: ServerId,
    /// Who shall.
    pub to: ServerId,
}

/// Which server holds which names of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMap {
    epoch: u32,
    ranges: Vec<Partition>,
}

impl PartitionMap {
    /// A map of ranges; `epoch` counts changes of the map from 1.
    ///
    /// # Errors
    /// [`Status::BadMessage`] unless the ranges begin at 0 and are sorted, of metadata servers, at
    /// least one and at most `RANGES_MAX`.
    pub fn new(epoch: u32, ranges: Vec<Partition>) -> Result<PartitionMap> {
        let in_order = ranges.windows(2).all(|pair| pair[0].first < pair[1].first);
        let of_names = ranges.iter().all(|range| range.first <= HASH_MAX && range.server.0 < ServerId::FIRST_DATA);
        let whole = ranges.first().is_some_and(|range| range.first == 0) && ranges.len() <= RANGES_MAX;
        if epoch > 0 && in_order && of_names && whole { Ok(PartitionMap { epoch, ranges }) } else { Err(Status::BadMessage) }
    }

    /// The map of a directory whose names are spread evenly over these servers, of which there is
    /// at least one, in the order of the hashes.
    pub fn even(servers: &[ServerId]) -> PartitionMap {
        assert!(!servers.is_empty() && servers.len() <= RANGES_MAX, "a directory has between one and {RANGES_MAX} ranges");
        let width = HASH_MAX / servers.len() as u64 + 1;
        let ranges = servers.iter().zip(0..).map(|(server, at)| Partition { first: at * width, server: *server });
        PartitionMap { epoch: 1, ranges: ranges.collect() }
    }

    /// The map of a directory that was never split.
    pub fn whole(server: ServerId) -> PartitionMap {
        PartitionMap { epoch: 1, ranges: vec![Partition { first: 0, server }] }
    }

    /// Counts changes of the map, from 1.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The only server, if there is one.
    pub fn only_server(&self) -> Option<ServerId> {
        let first = self.ranges.first()?.server;
        self.ranges.iter().all(|range| range.server == first).then_some(first)
    }

    /// True if the names are not all with the server of the directory's inode.
    pub fn is_split(&self, dir: Handle) -> bool {
        self.ranges.iter().any(|range| range.server != dir.server())
    }

    /// The servers that hold names, each once, in their order.
    pub fn servers(&self) -> Vec<ServerId> {
        let mut servers: Vec<ServerId> = self.ranges.iter().map(|range| range.server).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// The server of the names with this hash.
    pub fn server(&self, hash: u64) -> ServerId {
        let range = &self.ranges[self.position(hash)];
        assert!(range.first <= hash, "every hash lies in the range that begins before it");
        range.server
    }

    /// The last hash of the range in which this one lies.
    pub fn last_of_range(&self, hash: u64) -> u64 {
        self.ranges.get(self.position(hash) + 1).map_or(u64::MAX, |next| next.first - 1)
    }

    /// The map after the names with hashes from `first` to `last` have gone to a server. Neighbours
    /// of one server are one range.
    ///
    /// # Errors
    /// [`Status::Invalid`] for no hash, [`Status::TooBig`] for too many ranges or epochs.
    pub fn moved(&self, first: u64, last: u64, to: ServerId) -> Result<PartitionMap> {
        if first > last || first > HASH_MAX {
            return Err(Status::Invalid);
        }
        let before = self.ranges.iter().copied().filter(|range| range.first < first);
        let mut ranges: Vec<Partition> = before.chain([Partition { first, server: to }]).collect();
        if last < HASH_MAX {
            ranges.push(Partition { first: last + 1, server: self.server(last + 1) });
        }
        ranges.extend(self.ranges.iter().copied().filter(|range| last < HASH_MAX && range.first > last + 1));
        ranges.dedup_by(|next, range| next.server == range.server);
        if ranges.len() > RANGES_MAX {
            return Err(Status::TooBig);
        }
        let epoch = self.epoch.checked_add(1).ok_or(Status::TooBig)?;
        PartitionMap::new(epoch, ranges)
    }

    /// What is to be moved first on the way to a map that says `goal`: the highest hashes that are
    /// elsewhere than there, as far as they come from one server and go to one. `None`: both say
    /// the same.
    pub fn first_move(&self, goal: &PartitionMap) -> Option<Move> {
        let mut last = HASH_MAX;
        loop {
            let (from, to) = (self.server(last), goal.server(last));
            let begins = self.ranges[self.position(last)].first.max(goal.ranges[goal.position(last)].first);
            if from != to {
                return Some(Move { first: begins, last, from, to });
            }
            last = begins.checked_sub(1)?;
        }
    }

    /// True if the server holds any names.
    pub fn has(&self, server: ServerId) -> bool {
        self.ranges.iter().any(|range| range.server == server)
    }

    /// Where a listing goes on behind this cookie.
    pub fn server_behind(&self, cookie: u64) -> ServerId {
        self.server(cookie.saturating_add(1))
    }

    fn position(&self, hash: u64) -> usize {
        // The first range begins at 0.
        self.ranges.partition_point(|range| range.first <= hash) - 1
    }
}

impl Wire for PartitionMap {
    fn put(&self, out: &mut Vec<u8>) {
        self.epoch.put(out);
        self.ranges.put(out);
    }
    fn get(from: &mut Reader) -> Result<Self> {
        PartitionMap::new(Wire::get(from)?, Wire::get(from)?)
    }
}

wire_for_fields! {
    Partition { first, server };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(ranges: &[(u64, u16)]) -> Result<PartitionMap> {
        let ranges = ranges.iter().map(|(first, server)| Partition { first: *first, server: ServerId(*server) }).collect();
        PartitionMap::new(7, ranges)
    }

    #[test]
    fn hashes_stay_in_their_range_and_depend_on_the_key() {
        for i in 0..1000u32 {
            let hash = NameKey([7; 16]).hash(&i.to_le_bytes());
            assert!((HASH_MIN..=HASH_MAX).contains(&hash));
        }
        assert_ne!(NameKey([7; 16]).hash(b"x"), NameKey([8; 16]).hash(b"x"), "the key matters");
        let (one, other) = (ClusterKey([1; 32]), ClusterKey([2; 32]));
        assert_ne!(NameKey::of(&one, FsId(1)), NameKey::of(&other, FsId(1)));
        assert_ne!(NameKey::of(&one, FsId(1)), NameKey::of(&one, FsId(2)));
    }

    #[test]
    fn every_hash_has_one_server() {
        let halves = map(&[(0, 0), (1 << 61, 2), (1 << 62, 0)]).unwrap();
        for (hash, server, last) in [
            (0, 0, (1 << 61) - 1),
            ((1 << 61) - 1, 0, (1 << 61) - 1),
            (1 << 61, 2, (1 << 62) - 1),
            (1 << 62, 0, u64::MAX),
            (u64::MAX, 0, u64::MAX),
        ] {
            assert_eq!((halves.server(hash), halves.last_of_range(hash)), (ServerId(server), last), "{hash}");
        }
        assert_eq!(halves.only_server(), None);
        assert_eq!(PartitionMap::whole(ServerId(4)).only_server(), Some(ServerId(4)));
        assert_eq!(PartitionMap::whole(ServerId(4)).last_of_range(9), u64::MAX);
    }

    #[test]
    fn even_ranges_are_of_one_width() {
        for count in [1, 2, 3, 7, RANGES_MAX] {
            let servers: Vec<ServerId> = (0..count).map(|at| ServerId((at % 100) as u16)).collect();
            let map = PartitionMap::even(&servers);
            assert_eq!(PartitionMap::new(1, map.ranges.clone()), Ok(map.clone()), "a map as any other");
            let width = HASH_MAX / count as u64 + 1;
            assert_eq!((map.server(0), map.server(HASH_MAX)), (servers[0], servers[count - 1]));
            assert!(map.ranges.windows(2).all(|pair| pair[1].first - pair[0].first == width));
            assert!(HASH_MAX - map.ranges[count - 1].first <= width, "the last one, too");
        }
        let map = PartitionMap::even(&[ServerId(2), ServerId(0), ServerId(2)]);
        assert_eq!(map.servers(), [ServerId(0), ServerId(2)]);
        assert!(map.is_split(Handle::new(ServerId(2), 5)) && !PartitionMap::whole(ServerId(2)).is_split(Handle::new(ServerId(2), 5)));
    }

    #[test]
    fn names_move_from_the_highest_hash_down() {
        let (whole, goal) = (PartitionMap::whole(ServerId(1)), PartitionMap::even(&[ServerId(1), ServerId(0), ServerId(2)]));
        let mut map = whole.clone();
        let mut moves = Vec::new();
        while let Some(next) = map.first_move(&goal) {
            // As many hashes as a third of a partition has.
            let first = next.first.max(next.last.saturating_sub(HASH_MAX / 9));
            map = map.moved(first, next.last, next.to).unwrap();
            assert!(map.ranges.len() <= 4 && map.epoch() as usize == moves.len() + 2, "{map:?}");
            moves.push(next);
        }
        assert_eq!(map.ranges, goal.ranges);
        assert!(moves.len() >= 6 && moves.iter().all(|next| next.from == ServerId(1)));
        assert!(moves.windows(2).all(|pair| pair[1].last < pair[0].last));
        assert_eq!((map.has(ServerId(2)), map.has(ServerId(3))), (true, false));
        // And back: one range is what is left.
        while let Some(next) = map.first_move(&whole) {
            assert_eq!(next.to, ServerId(1));
            map = map.moved(next.first, next.last, next.to).unwrap();
        }
        assert_eq!((map.ranges, map.epoch), (whole.ranges, moves.len() as u32 + 3));
        assert_eq!(goal.moved(5, 4, ServerId(0)), Err(Status::Invalid));
        let last = PartitionMap { epoch: u32::MAX, ..goal };
        assert_eq!(last.moved(4, 5, ServerId(2)), Err(Status::TooBig));
    }

    #[test]
    fn maps_with_holes_or_disorder_are_refused() {
        for bad in [&[][..], &[(1, 0)], &[(0, 0), (0, 1)], &[(0, 0), (9, 1), (5, 0)], &[(0, 0x8000)], &[(0, 0), (HASH_MAX + 1, 1)]] {
            assert_eq!(map(bad), Err(Status::BadMessage), "{bad:?}");
        }
        assert_eq!(PartitionMap::new(0, vec![Partition { first: 0, server: ServerId(0) }]), Err(Status::BadMessage), "epochs begin at 1");
        let many = (0..=RANGES_MAX as u64).map(|first| Partition { first, server: ServerId(0) }).collect();
        assert_eq!(PartitionMap::new(1, many), Err(Status::BadMessage));
    }

    proptest! {
        /// A move changes the server of its hashes, and of no others.
        #[test]
        fn a_move_moves_what_it_says(
            borders in proptest::collection::btree_set(1..HASH_MAX, 0..6),
            (one, other) in (0..=HASH_MAX, 0..=HASH_MAX),
            to in 0u16..3,
            looks in proptest::collection::vec(0..=HASH_MAX, 8),
        ) {
            let ranges: Vec<_> = [0].into_iter().chain(borders).zip(0..).map(|(first, at)| Partition { first, server: ServerId(at % 3) }).collect();
            let map = PartitionMap::new(1, ranges).unwrap();
            let (first, last) = (one.min(other), one.max(other));
            let moved = map.moved(first, last, ServerId(to)).unwrap();
            let near = [first.saturating_sub(1), first, last, (last + 1).min(HASH_MAX), HASH_MAX];
            for hash in looks.into_iter().chain(near) {
                let is_moved = first <= hash && hash <= last;
                prop_assert_eq!(moved.server(hash), if is_moved { ServerId(to) } else { map.server(hash) });
            }
            prop_assert!(moved.ranges.windows(2).all(|pair| pair[0].server != pair[1].server));
        }

        /// A listing that goes from range to range by its cookies meets every name once, in the
        /// order of hashes, at its server.
        #[test]
        fn a_listing_over_ranges_is_the_listing_of_the_whole(
            names in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 1..9), 0..60),
            borders in proptest::collection::btree_set(1..HASH_MAX, 0..8),
            page in 1usize..5,
        ) {
            let key = NameKey([3; 16]);
            let firsts = [0].into_iter().chain(borders);
            let ranges: Vec<_> = firsts.zip(0..).map(|(first, at)| Partition { first, server: ServerId(at % 3) }).collect();
            let map = PartitionMap::new(1, ranges).unwrap();
            let mut hashes: Vec<u64> = names.iter().map(|name| key.hash(name)).collect();
            hashes.sort_unstable();
            hashes.dedup();
            let (mut seen, mut cookie) = (Vec::new(), 0);
            while cookie < u64::MAX {
                let (server, last) = (map.server_behind(cookie), map.last_of_range(cookie + 1));
                let held = hashes.iter().copied().filter(|hash| map.server(*hash) == server);
                let behind: Vec<u64> = held.filter(|hash| *hash > cookie && *hash <= last).collect();
                seen.extend(behind.iter().take(page));
                cookie = if behind.len() > page { seen[seen.len() - 1] } else { last };
            }
            prop_assert_eq!(seen, hashes);
        }
    }
}
