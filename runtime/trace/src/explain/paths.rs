//! The critical paths of all operations, one after the other: of each segment its duration and what
//! it is (a [`Spot`], of which there are few). Segments of a path follow one another without a gap,
//! so their beginnings need not be kept.

use std::ops::Range;

use weft_base::FastMap;

use super::blocking::Work;
use super::{Segment, Storage};
use crate::{EventId, Stage};

/// What a segment is, without its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spot {
    pub stage: Stage,
    pub node: usize,
    pub peer: Option<u16>,
    pub event: EventId,
    pub phase: Option<u8>,
}

/// Nanoseconds of a segment in which the storage worked, as [`Segment::storage_ns`].
pub(super) type StorageNs = [u64; Storage::ALL.len()];

#[derive(Debug, Default)]
pub(super) struct Paths {
    /// By segment.
    durations_ns: Vec<u64>,
    /// By segment: position in `spots`.
    of: Vec<u32>,
    spots: Vec<Spot>,
    known: FastMap<Spot, u32>,
    /// Segments in which the storage worked.
    storage: Vec<(u32, StorageNs)>,
    /// Segments with time behind other work of the same server, by what it was, in nanoseconds.
    blocked: Vec<(u32, Stage, u64)>,
}

impl Paths {
    /// Adds the path of an operation that begins at `start_ns`; returns where its segments are.
    pub fn push(&mut self, start_ns: i64, path: &[Segment], work: &Work) -> Range<u32> {
        let first = self.len();
        let mut at = start_ns;
        for segment in path {
            debug_assert_eq!(segment.start_ns, at, "segments follow one another");
            at = at.saturating_add_unsigned(segment.dur_ns);
            let number = self.len();
            let spot = Spot { stage: segment.stage, node: segment.node, peer: segment.peer, event: segment.event, phase: segment.phase };
            let spot = self.number(spot);
            self.of.push(spot);
            self.durations_ns.push(segment.dur_ns);
            if segment.storage_ns != StorageNs::default() {
                self.storage.push((number, segment.storage_ns));
            }
            self.blocked.extend(work.during(segment).into_iter().map(|(by, ns)| (number, by, ns)));
        }
        first..self.len()
    }

    /// Adds the paths of other operations behind these; returns by how much their segments move.
    pub fn append(&mut self, other: Paths) -> u32 {
        let before = self.len();
        let numbers: Vec<u32> = other.spots.iter().map(|spot| self.number(*spot)).collect();
        self.of.extend(other.of.iter().map(|spot| numbers[*spot as usize]));
        self.durations_ns.extend(other.durations_ns);
        self.storage.extend(other.storage.into_iter().map(|(segment, ns)| (segment + before, ns)));
        self.blocked.extend(other.blocked.into_iter().map(|(segment, by, ns)| (segment + before, by, ns)));
        before
    }

    fn len(&self) -> u32 {
        u32::try_from(self.of.len()).expect("memory holds fewer segments")
    }

    fn number(&mut self, spot: Spot) -> u32 {
        let next = self.spots.len() as u32;
        *self.known.entry(spot).or_insert_with(|| {
            self.spots.push(spot);
            next
        })
    }

    /// What segments can be; [`Paths::segments`] counts them.
    pub fn spots(&self) -> &[Spot] {
        &self.spots
    }

    /// Spot and nanoseconds of these segments.
    pub fn segments(&self, range: Range<u32>) -> impl Iterator<Item = (u32, u64)> {
        let range = range.start as usize..range.end as usize;
        self.of[range.clone()].iter().copied().zip(self.durations_ns[range].iter().copied())
    }

    /// Of these segments those in which the storage worked: spot and nanoseconds.
    pub fn storage(&self, range: Range<u32>) -> impl Iterator<Item = (u32, &StorageNs)> {
        let first = self.storage.partition_point(|(segment, _)| *segment < range.start);
        let inside = self.storage[first..].iter().take_while(move |(segment, _)| *segment < range.end);
        inside.map(|(segment, ns)| (self.of[*segment as usize], ns))
    }

    /// Of these segments those with time behind other work: spot, what that was, nanoseconds.
    pub fn blocked(&self, range: Range<u32>) -> impl Iterator<Item = (u32, Stage, u64)> {
        let first = self.blocked.partition_point(|(segment, ..)| *segment < range.start);
        let inside = self.blocked[first..].iter().take_while(move |(segment, ..)| *segment < range.end);
        inside.map(|(segment, by, ns)| (self.of[*segment as usize], *by, *ns))
    }

    /// The path of an operation that begins at `start_ns`.
    pub fn path(&self, start_ns: i64, range: Range<u32>) -> Vec<Segment> {
        let mut at = start_ns;
        let first = self.storage.partition_point(|(segment, _)| *segment < range.start);
        let mut storage = self.storage[first..].iter().peekable();
        let segment = |(number, (spot, dur_ns)): (u32, (u32, u64))| {
            let Spot { stage, node, peer, event, phase } = self.spots[spot as usize];
            let storage_ns = storage.next_if(|(segment, _)| *segment == number).map_or(StorageNs::default(), |(_, ns)| *ns);
            let start_ns = at;
            at = at.saturating_add_unsigned(dur_ns);
            Segment { stage, node, peer, event, phase, start_ns, dur_ns, storage_ns }
        };
        range.clone().zip(self.segments(range)).map(segment).collect()
    }
}
