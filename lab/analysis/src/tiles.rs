//! The pyramid of tiles: what a row of spans looks like from any height. A tile of level k is 2^k
//! ns wide and begins at a multiple of its width, for every pyramid alike, so tiles of many
//! pyramids add up without any rounding. Level `base` is made from the spans, every further one
//! from pairs of the level below; only tiles in which something happens are kept. `base` is the
//! finest level with at most one tile for every four spans, so all levels together need about as
//! much memory as a third of the spans themselves.
//!
//! Below `base` the spans are looked at directly: there are few of them in a window that is so
//! narrow. A track keeps only their positions; their times lie beside their records
//! ([`weft_trace::events`]).

use std::ops::Range;

/// One span: what the pyramid is made of, and what a narrow window shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Nanoseconds since the beginning of the run.
    pub start: u64,
    /// Nanoseconds since the beginning of the run; not before `start`.
    pub end: u64,
    /// Position of its record among the events of the merged trace.
    pub event: u32,
}

/// What happened in one tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Number of the tile: it begins at this many times its width.
    pub index: u64,
    /// Nanoseconds in which spans ran, all spans added up.
    pub busy: u64,
    /// Spans that began here.
    pub count: u32,
    /// Nanoseconds of the longest span that ran here, with its parts outside.
    pub longest: u64,
    /// Its record.
    pub event: u32,
}

impl Tile {
    fn add(&mut self, other: &Tile) {
        self.busy = self.busy.saturating_add(other.busy);
        self.count = self.count.saturating_add(other.count);
        // The earlier record of two equally long ones, so that the order of adding up does not
        // matter.
        if (other.longest, std::cmp::Reverse(other.event)) > (self.longest, std::cmp::Reverse(self.event)) {
            (self.longest, self.event) = (other.longest, other.event);
        }
    }
}

/// Where a track finds its spans again: it keeps only their positions.
pub trait Bars {
    /// The span at this position.
    fn bar(&self, event: u32) -> Bar;
}

/// Spans of one kind on one row, with their tiles.
#[derive(Debug, Default)]
pub struct Track {
    /// Positions of the spans, by start; so they rise.
    events: Vec<u32>,
    /// Nanoseconds of each; [`u32::MAX`] for all that are longer. They are asked for many at once,
    /// and lie here one beside the other.
    durations: Vec<u32>,
    /// For each span the latest end so far, if it is not that of the span itself: rises, so it can
    /// be searched though spans overlap.
    latest_end: Option<Vec<u64>>,
    /// `sums[i]` is the time of the first `i` times [`BARS_PER_SUM`] spans.
    sums: Vec<u64>,
    base: u32,
    levels: Vec<Vec<Tile>>,
}

/// Highest level: tiles of 2^62 ns, longer than any run.
pub const LEVEL_MAX: u32 = 62;
/// Spans for each tile of the finest level, at least.
const BARS_PER_TILE: usize = 4;
/// Spans between two sums that are kept.
const BARS_PER_SUM: usize = 64;

impl Track {
    /// A track of these bars, sorted by start.
    pub fn new(bars: &[Bar]) -> Track {
        debug_assert!(bars.is_sorted_by_key(|bar| bar.start));
        let latest_end = (!bars.is_sorted_by_key(|bar| bar.end)).then(|| {
            let mut latest = 0;
            let latest_end = bars.iter().map(|bar| {
                latest = bar.end.max(latest);
                latest
            });
            latest_end.collect()
        });
        let mut sum = 0;
        let sums = bars.chunks(BARS_PER_SUM).map(|bars| {
            let before = sum;
            sum += bars.iter().map(|bar| bar.end - bar.start).sum::<u64>();
            before
        });
        let sums = sums.collect();
        let events = bars.iter().map(|bar| bar.event).collect();
        let durations = bars.iter().map(|bar| u32::try_from(bar.end - bar.start).unwrap_or(u32::MAX)).collect();
        let base = finest_level(bars);
        let mut levels = Vec::new();
        let mut level = tiles_of(bars, base);
        while level.len() > 2 {
            let next = above(&level);
            levels.push(level);
            level = next;
        }
        levels.push(level);
        Track { events, durations, latest_end, sums, base, levels }
    }

    /// How many spans there are.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True if the span at this position is on this track.
    pub fn holds(&self, event: u32) -> bool {
        self.events.binary_search(&event).is_ok()
    }

    /// The bars, by start.
    pub fn bars<'a>(&'a self, all: &'a impl Bars) -> impl Iterator<Item = Bar> + 'a {
        self.events.iter().map(|event| all.bar(*event))
    }

    /// Duration in nanoseconds and position of the bars that begin in [from, to), by start.
    pub fn beginning_in<'a>(&'a self, all: &'a impl Bars, from: u64, to: u64) -> impl ExactSizeIterator<Item = (u64, u32)> + 'a {
        let range = self.begun(all, from, to);
        let durations = &self.durations[range.clone()];
        self.events[range].iter().zip(durations).map(|(event, ns)| (duration(all, *event, *ns), *event))
    }

    /// Places of the bars that begin in [from, to).
    fn begun(&self, all: &impl Bars, from: u64, to: u64) -> Range<usize> {
        let first = self.events.partition_point(|event| all.bar(*event).start < from);
        let last = self.events.partition_point(|event| all.bar(*event).start < to);
        first..last.max(first)
    }

    /// The bars that touch [from, to), and possibly some that end before.
    pub fn touching<'a>(&'a self, all: &'a impl Bars, from: u64, to: u64) -> impl ExactSizeIterator<Item = Bar> + 'a {
        let first = match &self.latest_end {
            Some(latest_end) => latest_end.partition_point(|end| *end < from),
            None => self.events.partition_point(|event| all.bar(*event).end < from),
        };
        let last = self.events.partition_point(|event| all.bar(*event).start < to);
        self.events[first.min(last)..last].iter().map(|event| all.bar(*event))
    }

    /// Number and time in nanoseconds of the bars that begin in [from, to).
    pub fn total(&self, all: &impl Bars, from: u64, to: u64) -> (u64, u64) {
        let Range { start: first, end: last } = self.begun(all, from, to);
        ((last - first) as u64, self.time_before(all, last) - self.time_before(all, first))
    }

    /// The time of the first so many spans.
    fn time_before(&self, all: &impl Bars, count: usize) -> u64 {
        let kept = (count / BARS_PER_SUM).min(self.sums.len().saturating_sub(1));
        let rest = kept * BARS_PER_SUM..count;
        let rest = self.events[rest.clone()].iter().zip(&self.durations[rest]);
        self.sums.get(kept).copied().unwrap_or(0) + rest.map(|(event, ns)| duration(all, *event, *ns)).sum::<u64>()
    }

    /// Calls `take` with every tile of `level` from number `first` up to `last` in which something
    /// happens. A tile may come in several parts, which add up to it.
    pub fn tiles(&self, all: &impl Bars, level: u32, first: u64, last: u64, mut take: impl FnMut(Tile)) {
        if level < self.base {
            let (from, to) = (first << level, last.saturating_add(1).saturating_mul(1 << level));
            for bar in self.touching(all, from, to) {
                parts(&bar, level, first, last, &mut take);
            }
            return;
        }
        let height = (level - self.base).min(self.levels.len() as u32 - 1);
        let tiles = &self.levels[height as usize];
        let shift = level - self.base - height;
        let begin = tiles.partition_point(|tile| tile.index >> shift < first);
        for tile in tiles[begin..].iter().take_while(|tile| tile.index >> shift <= last) {
            take(Tile { index: tile.index >> shift, ..*tile });
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let tiles: usize = self.levels.iter().map(Vec::capacity).sum();
        let ends = self.latest_end.as_ref().map_or(0, Vec::capacity);
        (self.events.capacity() + self.durations.capacity()) * size_of::<u32>()
            + (ends + self.sums.capacity()) * size_of::<u64>()
            + tiles * size_of::<Tile>()
    }
}

/// The duration of a bar of which this is kept.
fn duration(all: &impl Bars, event: u32, ns: u32) -> u64 {
    match ns {
        u32::MAX => {
            let bar = all.bar(event);
            bar.end - bar.start
        }
        ns => u64::from(ns),
    }
}

/// The finest level that needs at most one tile for every [`BARS_PER_TILE`] bars.
fn finest_level(bars: &[Bar]) -> u32 {
    let allowed = (bars.len() / BARS_PER_TILE).max(64) as u64;
    let fits = |level: u32| {
        let (mut count, mut next) = (0u64, 0);
        for bar in bars {
            let (first, last) = ((bar.start >> level).max(next), last_instant(bar) >> level);
            if last >= first {
                count += last - first + 1;
                next = last + 1;
            }
        }
        count <= allowed
    };
    // If the bars are spread evenly it is this one; a coarser level needs fewer tiles.
    let whole = bars.last().map_or(0, |last| last.end) - bars.first().map_or(0, |first| first.start);
    let mut level = (whole / allowed).max(1).ilog2().min(LEVEL_MAX);
    while level < LEVEL_MAX && !fits(level) {
        level += 1;
    }
    while level > 0 && fits(level - 1) {
        level -= 1;
    }
    level
}

/// The last nanosecond of a bar; a bar without length is in the tile where it begins.
fn last_instant(bar: &Bar) -> u64 {
    bar.end.max(bar.start + 1) - 1
}

/// The parts of a bar in the tiles from `first` to `last`.
fn parts(bar: &Bar, level: u32, first: u64, last: u64, take: &mut impl FnMut(Tile)) {
    let begins_in = bar.start >> level;
    for index in begins_in.max(first)..=(last_instant(bar) >> level).min(last) {
        let from = bar.start.max(index << level);
        let to = bar.end.min((index + 1) << level);
        let count = u32::from(index == begins_in);
        take(Tile { index, busy: to.saturating_sub(from), count, longest: bar.end - bar.start, event: bar.event });
    }
}

fn tiles_of(bars: &[Bar], level: u32) -> Vec<Tile> {
    let mut tiles: Vec<Tile> = Vec::new();
    let mut in_order = true;
    for bar in bars {
        parts(bar, level, 0, u64::MAX, &mut |tile| match tiles.last_mut() {
            Some(last) if last.index == tile.index => last.add(&tile),
            last => {
                in_order &= last.is_none_or(|last| last.index < tile.index);
                tiles.push(tile);
            }
        });
    }
    if !in_order {
        tiles.sort_by_key(|tile| tile.index);
        tiles = merged(tiles.into_iter());
    }
    tiles.shrink_to_fit();
    tiles
}

fn above(tiles: &[Tile]) -> Vec<Tile> {
    merged(tiles.iter().map(|tile| Tile { index: tile.index >> 1, ..*tile }))
}

/// Neighbours with the same index become one.
fn merged(tiles: impl Iterator<Item = Tile>) -> Vec<Tile> {
    let mut out: Vec<Tile> = Vec::new();
    for tile in tiles {
        match out.last_mut() {
            Some(last) if last.index == tile.index => last.add(&tile),
            _ => out.push(tile),
        }
    }
    out.shrink_to_fit();
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// What tiles must say, straight from the definition.
    fn brute_force(bars: &[Bar], level: u32, first: u64, last: u64) -> BTreeMap<u64, Tile> {
        let mut tiles = BTreeMap::new();
        for index in first..=last {
            let (from, to) = (u128::from(index) << level, u128::from(index + 1) << level);
            let mut tile = Tile { index, busy: 0, count: 0, longest: 0, event: u32::MAX };
            let mut any = false;
            for bar in bars {
                let (start, end) = (u128::from(bar.start), u128::from(bar.end.max(bar.start + 1)));
                if start < to && end > from {
                    any = true;
                    tile.busy += (u128::from(bar.end).min(to).saturating_sub(start.max(from))) as u64;
                    tile.count += u32::from(start >= from);
                    let longer = (bar.end - bar.start, std::cmp::Reverse(bar.event)) > (tile.longest, std::cmp::Reverse(tile.event));
                    if longer {
                        (tile.longest, tile.event) = (bar.end - bar.start, bar.event);
                    }
                }
            }
            if any {
                tiles.insert(index, tile);
            }
        }
        tiles
    }

    impl Bars for Vec<Bar> {
        fn bar(&self, event: u32) -> Bar {
            self[event as usize]
        }
    }

    fn asked(bars: &Vec<Bar>, level: u32, first: u64, last: u64) -> BTreeMap<u64, Tile> {
        let mut tiles: BTreeMap<u64, Tile> = BTreeMap::new();
        Track::new(bars).tiles(bars, level, first, last, |tile| {
            tiles.entry(tile.index).and_modify(|known| known.add(&tile)).or_insert(tile);
        });
        tiles
    }

    fn bars(gaps_and_lengths: &[(u64, u64)]) -> Vec<Bar> {
        let mut start = 0;
        let bar = |(event, (gap, length)): (usize, &(u64, u64))| {
            start += gap;
            Bar { start, end: start + length, event: event as u32 }
        };
        gaps_and_lengths.iter().enumerate().map(bar).collect()
    }

    proptest! {
        #[test]
        fn tiles_of_every_level_equal_brute_force(
            spans in prop::collection::vec((0u64..2_000, prop_oneof![0u64..50, 0u64..3_000, Just(40_000)]), 0..400),
            level in 0u32..20,
            first in 0u64..600,
            width in 0u64..80,
        ) {
            let bars = bars(&spans);
            prop_assert_eq!(asked(&bars, level, first, first + width), brute_force(&bars, level, first, first + width));
        }

        #[test]
        fn windows_are_those_of_a_plain_search(
            spans in prop::collection::vec((0u64..100, prop_oneof![4 => 0u64..500, 1 => Just(1 << 33)]), 0..200),
            from in 0u64..9_000,
            width in 1u64..5_000,
        ) {
            let bars = bars(&spans);
            let track = Track::new(&bars);
            let to = from + width;
            let beginning: Vec<Bar> = bars.iter().copied().filter(|bar| (from..to).contains(&bar.start)).collect();
            let lengths: Vec<(u64, u32)> = beginning.iter().map(|bar| (bar.end - bar.start, bar.event)).collect();
            prop_assert_eq!(track.beginning_in(&bars, from, to).collect::<Vec<_>>(), lengths);
            prop_assert_eq!(track.total(&bars, from, to), (beginning.len() as u64, beginning.iter().map(|bar| bar.end - bar.start).sum()));
            let touching: Vec<Bar> = track.touching(&bars, from, to).filter(|bar| bar.end >= from).collect();
            let plain: Vec<Bar> = bars.iter().copied().filter(|bar| bar.start < to && bar.end >= from).collect();
            prop_assert_eq!(touching, plain);
        }
    }

    #[test]
    fn a_burst_in_a_long_run_needs_few_tiles_and_loses_nothing() {
        // 10 000 spans within a millisecond, then one an hour later.
        let mut spans = vec![(100, 80); 10_000];
        spans.push((3_600_000_000_000, 5));
        let bars = bars(&spans);
        let track = Track::new(&bars);
        let tiles: usize = track.levels.iter().map(Vec::len).sum();
        assert!(tiles <= bars.len() * 2 / BARS_PER_TILE + 200, "{tiles} tiles");
        let mut busy = 0;
        track.tiles(&bars, 45, 0, u64::MAX >> 45, |tile| busy += tile.busy);
        assert_eq!(busy, 10_000 * 80 + 5);
    }
}
