//! One file with two contents: what the page cache shows, and what is on stable storage. Between
//! them stand the changes that no sync has covered yet; a power cut keeps an arbitrary part of
//! those.

use std::collections::VecDeque;

use weft_base::Payload;

use super::extents::Extents;
use super::ranges::RangeSet;
use crate::Random;
use crate::random::mix;

/// What a power cut leaves whole: a sector is old or new, never a mixture.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// The unit in which space is given out and the page cache writes back.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// With more changes waiting than this, the page cache writes the older half back by itself.
const CHANGES_MAX: usize = 1 << 15;

/// A change that is not on stable storage yet.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write {
        offset: u64,
        data: Payload,
    },
    SetLen(u64),
    /// The file reaches at least so far.
    Extend(u64),
    Punch {
        start: u64,
        end: u64,
    },
}

/// How a power cut chooses among the changes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survival {
    /// Nothing that was not synced is there.
    Nothing,
    /// Everything is there.
    Everything,
    /// Everything up to some change, which is torn.
    Prefix,
    /// Each block shows a state of its own between the last sync and the power cut.
    Blocks,
    /// Each sector does.
    Sectors,
}

impl Survival {
    pub(crate) fn draw(random: &mut Random) -> Survival {
        use Survival::*;
        *random.pick(&[Nothing, Everything, Prefix, Prefix, Blocks, Sectors]).expect("the list is not empty")
    }
}

/// A file. One that has lost its name lives on while somebody has it open.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimFile {
    content: Extents,
    len: u64,
    durable: Extents,
    durable_len: u64,
    changes: VecDeque<Change>,
    /// Number of the first change in `changes`, counted over the whole life of the file.
    first_change: u64,
    allocated: RangeSet,
    pub(crate) opens: u32,
    pub(crate) is_named: bool,
}

impl SimFile {
    /// An empty file that has a name.
    pub(crate) fn named() -> SimFile {
        SimFile { is_named: true, ..SimFile::default() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn read(&self, offset: u64, len: u64) -> Payload {
        let len = len.min(self.len.saturating_sub(offset));
        if len == 0 { Payload::EMPTY } else { self.content.read(offset, len) }
    }

    /// Bytes of space that a write or reservation of this range needs in addition.
    pub(crate) fn space_needed(&self, offset: u64, len: u64) -> u64 {
        let (start, end) = blocks(offset, len);
        self.allocated.missing(start, end)
    }

    /// Bytes of space that the file occupies.
    pub(crate) fn space(&self) -> u64 {
        self.allocated.total()
    }

    /// Reserves space; gives the bytes that are new.
    pub(crate) fn reserve(&mut self, offset: u64, len: u64) -> u64 {
        let (start, end) = blocks(offset, len);
        self.allocated.insert(start, end)
    }

    /// Frees the blocks that lie wholly in `start..end`; gives their bytes.
    pub(crate) fn release(&mut self, start: u64, end: u64) -> u64 {
        self.allocated.remove(start.next_multiple_of(BLOCK_BYTES), if end == u64::MAX { end } else { end / BLOCK_BYTES * BLOCK_BYTES })
    }

    /// Makes a change that everybody sees at once and that the next sync brings to stable storage.
    pub(crate) fn change(&mut self, change: Change) {
        apply(&mut self.content, &mut self.len, &change);
        self.changes.push_back(change);
        if self.changes.len() > CHANGES_MAX {
            self.make_durable(self.first_change + CHANGES_MAX as u64 / 2);
        }
    }

    /// The number that the next change will have: a sync that begins now covers all changes below
    /// it.
    pub(crate) fn next_change(&self) -> u64 {
        self.first_change + self.changes.len() as u64
    }

    /// Bytes written by the changes below number `below` that are not durable yet.
    pub(crate) fn dirty_bytes(&self, below: u64) -> u64 {
        let count = below.saturating_sub(self.first_change) as usize;
        let bytes = |change: &Change| if let Change::Write { data, .. } = change { data.len() } else { 0 };
        self.changes.iter().take(count).map(bytes).sum()
    }

    /// The ranges that these changes wrote, joined where they touch, in the order of their offsets.
    pub(crate) fn dirty_runs(&self, below: u64) -> RangeSet {
        let count = below.saturating_sub(self.first_change) as usize;
        let mut runs = RangeSet::default();
        for change in self.changes.iter().take(count) {
            if let Change::Write { offset, data } = change {
                runs.insert(*offset, offset + data.len());
            }
        }
        runs
    }

    /// A sync of all changes below number `below` has succeeded.
    pub(crate) fn make_durable(&mut self, below: u64) {
        while self.first_change < below {
            let Some(change) = self.changes.pop_front() else { return };
            self.first_change += 1;
            apply(&mut self.durable, &mut self.durable_len, &change);
        }
    }

    /// A sync of all changes below number `below` has failed. As on Linux the pages count as clean
    /// from now on: everybody still sees the data, but no later sync writes it.
    pub(crate) fn lose(&mut self, below: u64) {
        while self.first_change < below && self.changes.pop_front().is_some() {
            self.first_change += 1;
        }
    }

    /// The power is cut.
    pub(crate) fn power_cut(&mut self, survival: Survival, random: &mut Random) {
        let cuts = Cuts::draw(survival, self.changes.len() as u64, random);
        for (index, change) in std::mem::take(&mut self.changes).into_iter().enumerate() {
            let index = index as u64;
            match &change {
                Change::Write { offset, data } => {
                    for (start, end) in cuts.surviving(index, *offset, *offset + data.len()) {
                        self.durable.write(start, data.slice(start - offset, end - start));
                    }
                    if index < cuts.metadata {
                        self.durable_len = self.durable_len.max(offset + data.len());
                    }
                }
                _ if index < cuts.metadata => apply(&mut self.durable, &mut self.durable_len, &change),
                _ => {}
            }
            self.first_change += 1;
        }
        self.durable.cut(self.durable_len, u64::MAX);
        self.content = self.durable.clone();
        self.len = self.durable_len;
        self.allocated.remove(self.len.next_multiple_of(BLOCK_BYTES), u64::MAX);
        for (at, len) in self.content.ranges() {
            let (start, end) = blocks(at, len);
            self.allocated.insert(start, end);
        }
    }

    /// Changes bytes on stable storage and in the page cache behind everybody's back.
    pub(crate) fn corrupt(&mut self, offset: u64, data: Payload) {
        self.content.write(offset, data.clone());
        self.durable.write(offset, data);
    }
}

fn apply(content: &mut Extents, len: &mut u64, change: &Change) {
    match change {
        Change::Write { offset, data } => {
            content.write(*offset, data.clone());
            *len = (*len).max(offset + data.len());
        }
        Change::SetLen(new) => {
            content.cut(*new, u64::MAX);
            *len = *new;
        }
        Change::Extend(to) => *len = (*len).max(*to),
        Change::Punch { start, end } => content.cut(*start, *end),
    }
}

/// The whole blocks around a range.
fn blocks(offset: u64, len: u64) -> (u64, u64) {
    if len == 0 {
        return (offset, offset);
    }
    (offset / BLOCK_BYTES * BLOCK_BYTES, (offset + len).next_multiple_of(BLOCK_BYTES))
}

/// Which state each part of a file shows after a power cut: change number `n` is in a sector if `n`
/// is below the cut of the sector. So a sector always shows a state that it once had.
struct Cuts {
    metadata: u64,
    count: u64,
    fixed: Option<u64>,
    /// The first change that did not make it as a whole is there in part.
    is_torn: bool,
    /// Bytes of the parts that have a cut of their own.
    unit: u64,
    seed: u64,
}

impl Cuts {
    fn draw(survival: Survival, count: u64, random: &mut Random) -> Cuts {
        let any = random.between(0, count);
        let (metadata, fixed, unit) = match survival {
            Survival::Nothing => (0, Some(0), SECTOR_BYTES),
            Survival::Everything => (count, Some(count), SECTOR_BYTES),
            Survival::Prefix => (any + u64::from(random.coin()), Some(any), SECTOR_BYTES),
            Survival::Blocks => (any, None, BLOCK_BYTES),
            Survival::Sectors => (any, None, SECTOR_BYTES),
        };
        Cuts { metadata, count, fixed, is_torn: survival == Survival::Prefix, unit, seed: random.draw() }
    }

    fn of_unit(&self, unit: u64) -> u64 {
        let hash = mix(self.seed ^ unit);
        match self.fixed {
            Some(cut) => cut + u64::from(self.is_torn && hash & 1 == 1),
            None => hash % (self.count + 1),
        }
    }

    /// The parts of `start..end` in which change `index` survives, neighbours joined.
    fn surviving(&self, index: u64, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut at = start;
        while at < end {
            let to = ((at / self.unit + 1) * self.unit).min(end);
            if index < self.of_unit(at / self.unit) {
                match parts.last_mut() {
                    Some(last) if last.1 == at => last.1 = to,
                    _ => parts.push((at, to)),
                }
            }
            at = to;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes with known versions per sector: after a power cut every sector shows one of the
    /// versions since the last sync.
    #[test]
    fn sectors_are_old_or_new_and_synced_ones_are_there() {
        const SECTORS: u64 = 24;
        let (mut torn_files, mut lost) = (0, 0);
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let mut file = SimFile::default();
            // history[s]: every value that sector s had since the last sync, the synced one first.
            let mut history: Vec<Vec<u8>> = vec![vec![0]; SECTORS as usize];
            let mut durable_len = 0;
            let mut reached = 0;
            for value in 1..=random.between(1, 12) as u8 {
                let from = random.below(SECTORS);
                let to = random.between(from + 1, SECTORS);
                file.change(Change::Write { offset: from * 512, data: vec![value; ((to - from) * 512) as usize].into() });
                reached = reached.max(to * 512);
                history[from as usize..to as usize].iter_mut().for_each(|versions| versions.push(value));
                if random.chance(200_000) {
                    file.make_durable(file.next_change());
                    durable_len = reached;
                    history.iter_mut().for_each(|versions| *versions = versions.split_off(versions.len() - 1));
                }
            }
            let survival = Survival::draw(&mut random);
            file.power_cut(survival, &mut random);
            assert!((durable_len..=reached).contains(&file.len()), "seed {seed}");
            let mut newest = 0;
            for (sector, versions) in history.iter().enumerate() {
                let content = file.read(sector as u64 * 512, 512).to_bytes();
                if content.is_empty() {
                    assert!(sector as u64 * 512 >= durable_len);
                    continue;
                }
                assert!(content.iter().all(|byte| *byte == content[0]), "seed {seed}: sector {sector} is a mixture");
                let known = versions.contains(&content[0]) || (content[0] == 0 && sector as u64 * 512 >= durable_len);
                assert!(known, "seed {seed}: sector {sector} shows {} and had {versions:?}", content[0]);
                newest += usize::from(versions.last() == Some(&content[0]));
                lost += usize::from(versions.last() != Some(&content[0]));
            }
            torn_files += usize::from(newest > 0 && newest < history.len());
        }
        assert!(torn_files > 300 && lost > 2000, "power cuts must tear: {torn_files} files torn, {lost} sectors lost");
    }

    #[test]
    fn a_failed_sync_loses_data_for_good() {
        let mut file = SimFile::default();
        file.change(Change::Write { offset: 0, data: vec![1; 512].into() });
        file.lose(file.next_change());
        assert_eq!(file.read(0, 512).to_bytes(), vec![1; 512]);
        file.make_durable(file.next_change());
        file.power_cut(Survival::Everything, &mut Random::new(1));
        assert_eq!(file.len(), 0);
    }

    #[test]
    fn truncation_frees_space_and_reads_zeros_after_growing_again() {
        let mut file = SimFile::default();
        assert_eq!(file.space_needed(10, 5000), 8192);
        assert_eq!(file.reserve(10, 5000), 8192);
        file.change(Change::Write { offset: 10, data: vec![1; 5000].into() });
        file.change(Change::SetLen(100));
        assert_eq!(file.release(100, u64::MAX), 4096);
        file.change(Change::Extend(200));
        assert_eq!(file.read(90, 500).to_bytes()[..], [[1u8; 10].as_slice(), &[0; 100]].concat());
        assert_eq!(file.space(), 4096);
    }

    #[test]
    fn the_page_cache_writes_back_by_itself() {
        let mut file = SimFile::default();
        for index in 0..CHANGES_MAX as u64 + 10 {
            file.change(Change::Write { offset: index, data: vec![7].into() });
        }
        assert!(file.changes.len() <= CHANGES_MAX);
        file.power_cut(Survival::Nothing, &mut Random::new(1));
        assert_eq!(file.read(0, 1000).to_bytes(), vec![7; 1000]);
    }
}
