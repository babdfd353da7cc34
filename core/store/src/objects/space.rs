//! Free space of the container in blocks: best fit near a goal, and the quarantine of what was
//! freed.
//!
//! Blocks below the high-water mark are used, free or in quarantine; blocks above were never used
//! or have been given back. Free runs are kept by place (to merge neighbours) and by size (to find
//! the best fit), both in O(log n).

use super::BLOCK_BYTES;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Consecutive blocks of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockRun {
    /// The first block.
    pub start: u64,
    /// How many, at least 1.
    pub blocks: u64,
}

impl BlockRun {
    /// The block behind the last one.
    pub fn end(&self) -> u64 {
        self.start + self.blocks
    }
}

/// Stands for transfers in flight: space freed while it is open is not used again before it is
/// closed. Must be given back to `end_io`.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an open ticket keeps freed space in quarantine for ever"]
pub struct IoTicket(u64);

/// Everything that was freed before this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuarantineMark(u64);

/// Gives out and takes back blocks.
#[derive(Debug)]
pub struct SpaceAllocator {
    capacity: u64,
    high_water: u64,
    free_by_start: BTreeMap<u64, u64>,
    free_by_size: BTreeSet<(u64, u64)>,
    free_blocks: u64,
    quarantine: VecDeque<Quarantined>,
    quarantined_blocks: u64,
    next_mark: u64,
    durable_mark: u64,
    next_ticket: u64,
    open_tickets: BTreeSet<u64>,
}

#[derive(Debug)]
struct Quarantined {
    run: BlockRun,
    mark: u64,
    /// Tickets below this number were given out before the run was freed.
    tickets_before: u64,
}

impl SpaceAllocator {
    /// An allocator for `capacity` blocks of which the first `header` are in use.
    pub fn new(header: u64, capacity: u64) -> SpaceAllocator {
        SpaceAllocator {
            capacity,
            high_water: header,
            free_by_start: BTreeMap::new(),
            free_by_size: BTreeSet::new(),
            free_blocks: 0,
            quarantine: VecDeque::new(),
            quarantined_blocks: 0,
            next_mark: 1,
            durable_mark: 0,
            next_ticket: 1,
            open_tickets: BTreeSet::new(),
        }
    }

    /// An allocator in which exactly `header` blocks and the runs in `used` (ascending) are in use.
    /// `Err` names the first run that overlaps another one or the header.
    pub fn with_used(header: u64, capacity: u64, used: impl IntoIterator<Item = BlockRun>) -> Result<SpaceAllocator, BlockRun> {
        let mut space = SpaceAllocator::new(header, capacity);
        for run in used {
            if run.start < space.high_water {
                return Err(run);
            }
            let gap = BlockRun { start: space.high_water, blocks: run.start - space.high_water };
            space.high_water = run.end();
            if gap.blocks > 0 {
                space.insert_free(gap);
            }
        }
        Ok(space)
    }

    /// Takes between `min` and `max` consecutive blocks, as many as it finds in a good place: at
    /// `goal` if that is free (above the high-water mark only if no free run holds `max`: space
    /// that was used before is in the page cache, and overwriting it there is several times cheaper
    /// than new pages), else the smallest free run that holds `max`, else above the high-water
    /// mark, else the longest run. `None` if no `min` consecutive blocks are free.
    pub fn take(&mut self, min: u64, max: u64, goal: Option<u64>) -> Option<BlockRun> {
        assert!(0 < min && min <= max, "asked for {min} to {max} blocks");
        let run = self.find(min, max, goal)?;
        assert!((min..=max).contains(&run.blocks) && run.end() <= self.high_water, "what is given out is below the high-water mark");
        Some(run)
    }

    fn find(&mut self, min: u64, max: u64, goal: Option<u64>) -> Option<BlockRun> {
        if let Some(goal) = goal
            && let Some(run) = self.take_at(goal, min, max)
        {
            return Some(run);
        }
        if let Some(&(_, start)) = self.free_by_size.range((max, 0)..).next() {
            return Some(self.take_from_free(start, start, max));
        }
        let above = self.capacity.saturating_sub(self.high_water);
        let longest = self.free_by_size.last().copied();
        match longest {
            Some((blocks, start)) if above < max && blocks >= above && blocks >= min => Some(self.take_from_free(start, start, blocks)),
            _ if above >= min => Some(self.take_above(above.min(max))),
            _ => None,
        }
    }

    /// Where [`SpaceAllocator::take`] would find exactly so many blocks; nothing is taken.
    pub fn place(&self, blocks: u64) -> Option<BlockRun> {
        let free = self.free_by_size.range((blocks, 0)..).next().map(|(_, start)| *start);
        let above = || (self.capacity.saturating_sub(self.high_water) >= blocks).then_some(self.high_water);
        free.or_else(above).map(|start| BlockRun { start, blocks })
    }

    /// Takes this run, which [`SpaceAllocator::place`] has found.
    pub fn take_run(&mut self, run: BlockRun) {
        let taken = match run.start == self.high_water {
            true => Some(self.take_above(run.blocks)),
            false => self.take_at(run.start, run.blocks, run.blocks),
        };
        assert!(taken == Some(run), "{run:?} was found free and is taken by somebody else");
    }

    /// Takes exactly `blocks` blocks in as few runs as it finds; `None` (and nothing taken) if
    /// fewer are free.
    pub fn take_scattered(&mut self, blocks: u64, goal: Option<u64>) -> Option<Vec<BlockRun>> {
        if self.available_blocks() < blocks {
            return None;
        }
        let mut runs = Vec::new();
        let (mut left, mut goal) = (blocks, goal);
        while left > 0 {
            let run = self.take(1, left, goal).expect("enough blocks are free, and a single block fits anywhere");
            left -= run.blocks;
            goal = Some(run.end());
            runs.push(run);
        }
        Some(runs)
    }

    /// Frees blocks into quarantine.
    pub fn free(&mut self, run: BlockRun) {
        assert!(run.blocks > 0 && run.end() <= self.high_water, "freed blocks {run:?} were never given out");
        self.quarantine.push_back(Quarantined { run, mark: self.next_mark, tickets_before: self.next_ticket });
        self.quarantined_blocks += run.blocks;
        self.next_mark += 1;
    }

    /// Marks everything freed so far. Taken after the journal records of the frees were written and
    /// before the sync of the journal begins.
    pub fn quarantine_mark(&self) -> QuarantineMark {
        QuarantineMark(self.next_mark)
    }

    /// Says that the journal is durable up to `mark`. Space freed before it becomes free, except
    /// what open tickets may still touch; that follows when they are closed. Returns the number of
    /// blocks that became free.
    pub fn release_quarantine(&mut self, mark: QuarantineMark) -> u64 {
        assert!(mark.0 <= self.next_mark, "a mark of another allocator");
        self.durable_mark = self.durable_mark.max(mark.0);
        self.drain_quarantine()
    }

    /// Opens a ticket for transfers that are planned after this moment.
    pub fn begin_io(&mut self) -> IoTicket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.open_tickets.insert(ticket);
        IoTicket(ticket)
    }

    /// Closes a ticket: its transfers have ended. Returns the number of blocks that became free.
    pub fn end_io(&mut self, ticket: IoTicket) -> u64 {
        assert!(self.open_tickets.remove(&ticket.0), "a ticket of another allocator");
        self.drain_quarantine()
    }

    /// Changes the capacity in blocks. Below what is in use it only stops further growth.
    pub fn set_capacity(&mut self, blocks: u64) {
        self.capacity = blocks;
    }

    /// The number of blocks that the container may have.
    pub fn capacity_blocks(&self) -> u64 {
        self.capacity
    }

    /// Blocks that can be taken now.
    pub fn available_blocks(&self) -> u64 {
        self.free_blocks + self.capacity.saturating_sub(self.high_water)
    }

    /// Blocks in quarantine.
    pub fn quarantined_blocks(&self) -> u64 {
        self.quarantined_blocks
    }

    /// All blocks in use lie below this one.
    pub fn high_water(&self) -> u64 {
        self.high_water
    }

    fn take_at(&mut self, goal: u64, min: u64, max: u64) -> Option<BlockRun> {
        if goal == self.high_water {
            if self.free_by_size.range((max, 0)..).next().is_some() {
                return None;
            }
            let above = self.capacity.saturating_sub(self.high_water);
            return (above >= min).then(|| self.take_above(above.min(max)));
        }
        let (&start, &blocks) = self.free_by_start.range(..=goal).next_back()?;
        let room = (start + blocks).saturating_sub(goal);
        (room >= min).then(|| self.take_from_free(start, goal, room.min(max)))
    }

    fn take_above(&mut self, blocks: u64) -> BlockRun {
        let run = BlockRun { start: self.high_water, blocks };
        self.high_water += blocks;
        run
    }

    /// Cuts `blocks` blocks at `at` out of the free run that begins at `start`.
    fn take_from_free(&mut self, start: u64, at: u64, blocks: u64) -> BlockRun {
        let len = self.free_by_start[&start];
        assert!(start <= at && at + blocks <= start + len, "what is taken is free");
        self.remove_free(start, len);
        let run = BlockRun { start: at, blocks };
        if at > start {
            self.put_free(start, at - start);
        }
        if start + len > run.end() {
            self.put_free(run.end(), start + len - run.end());
        }
        run
    }

    /// Merges `run` with its free neighbours; a free run at the high-water mark lowers it.
    fn insert_free(&mut self, run: BlockRun) {
        let (mut start, mut end) = (run.start, run.end());
        assert!(end <= self.high_water, "blocks {run:?} are given back already");
        if let Some((&before, &blocks)) = self.free_by_start.range(..end).next_back() {
            assert!(before + blocks <= start, "blocks {run:?} are free already");
            if before + blocks == start {
                self.remove_free(before, blocks);
                start = before;
            }
        }
        if let Some(&blocks) = self.free_by_start.get(&end) {
            self.remove_free(end, blocks);
            end += blocks;
        }
        if end == self.high_water {
            self.high_water = start;
        } else {
            self.put_free(start, end - start);
        }
    }

    fn put_free(&mut self, start: u64, blocks: u64) {
        self.free_by_start.insert(start, blocks);
        self.free_by_size.insert((blocks, start));
        self.free_blocks += blocks;
        assert!(self.free_blocks <= self.high_water, "what is free lies below the high-water mark");
    }

    fn remove_free(&mut self, start: u64, blocks: u64) {
        self.free_by_start.remove(&start);
        self.free_by_size.remove(&(blocks, start));
        self.free_blocks -= blocks;
    }

    fn drain_quarantine(&mut self) -> u64 {
        let oldest_open = self.open_tickets.first().copied().unwrap_or(u64::MAX);
        let mut released = 0;
        while let Some(held) = self.quarantine.front() {
            if held.mark >= self.durable_mark || held.tickets_before > oldest_open {
                break;
            }
            let run = held.run;
            self.quarantine.pop_front();
            assert!(self.quarantined_blocks >= run.blocks, "what leaves quarantine was counted");
            self.quarantined_blocks -= run.blocks;
            released += run.blocks;
            self.insert_free(run);
        }
        released
    }
}

/// Bytes of `blocks` blocks.
pub(super) fn bytes_of(blocks: u64) -> u64 {
    blocks * BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(start: u64, blocks: u64) -> BlockRun {
        BlockRun { start, blocks }
    }

    fn free_now(space: &mut SpaceAllocator, run: BlockRun) {
        space.free(run);
        space.release_quarantine(space.quarantine_mark());
    }

    #[test]
    fn best_fit_goal_and_growth() {
        let mut space = SpaceAllocator::new(1, 100);
        assert_eq!(space.take(90, 90, None), Some(run(1, 90)));
        free_now(&mut space, run(10, 5));
        free_now(&mut space, run(20, 3));
        free_now(&mut space, run(30, 10));
        assert_eq!(space.take(3, 3, None), Some(run(20, 3)), "the smallest run that fits");
        assert_eq!(space.take(2, 2, Some(33)), Some(run(33, 2)), "the goal");
        assert_eq!(space.take(1, 9, Some(36)), Some(run(36, 4)), "the goal, even if short");
        assert_eq!(space.take(2, 6, Some(50)), Some(run(91, 6)), "above the mark");
        assert_eq!(space.take(4, 6, None), Some(run(10, 5)), "the longest");
        assert_eq!(space.take(5, 6, None), None);
        assert_eq!(space.take(1, 6, None), Some(run(30, 3)));
        assert_eq!(space.take(1, 6, None), Some(run(97, 3)));
        assert_eq!(space.take(1, 6, None), Some(run(35, 1)));
        assert_eq!((space.take(1, 1, None), space.available_blocks()), (None, 0));
    }

    #[test]
    fn what_is_found_is_taken_later() {
        let mut space = SpaceAllocator::new(1, 20);
        assert_eq!((space.place(19), space.place(20)), (Some(run(1, 19)), None));
        space.take_run(run(1, 10));
        free_now(&mut space, run(3, 4));
        assert_eq!((space.place(3), space.place(5), space.place(10)), (Some(run(3, 3)), Some(run(11, 5)), None));
        space.take_run(run(3, 3));
        space.take_run(run(11, 5));
        assert_eq!((space.place(1), space.place(2), space.available_blocks()), (Some(run(6, 1)), Some(run(16, 2)), 5));
    }

    #[test]
    fn used_space_comes_before_growth() {
        let mut space = SpaceAllocator::new(0, 100);
        space.take(40, 40, None);
        free_now(&mut space, run(10, 8));
        assert_eq!(space.take(1, 8, Some(40)), Some(run(10, 8)), "a run that holds all is better than new space");
        free_now(&mut space, run(10, 8));
        assert_eq!(space.take(1, 9, Some(40)), Some(run(40, 9)), "one that does not is worse");
    }

    #[test]
    fn freed_neighbours_merge_and_lower_the_mark() {
        let mut space = SpaceAllocator::new(1, 100);
        space.take(20, 20, None);
        free_now(&mut space, run(3, 2));
        free_now(&mut space, run(7, 2));
        free_now(&mut space, run(5, 2));
        assert_eq!(space.take(6, 6, None), Some(run(3, 6)));
        free_now(&mut space, run(3, 6));
        free_now(&mut space, run(9, 12));
        assert_eq!((space.high_water(), space.available_blocks()), (3, 97));
    }

    #[test]
    fn quarantine_waits_for_mark_and_tickets() {
        let mut space = SpaceAllocator::new(0, 10);
        space.take(10, 10, None);
        space.free(run(0, 2));
        let ticket = space.begin_io();
        space.free(run(2, 3));
        assert_eq!(space.available_blocks(), 0);
        let mark = space.quarantine_mark();
        space.free(run(5, 1));
        assert_eq!(space.release_quarantine(mark), 2, "what was freed before the transfer began");
        assert_eq!(space.end_io(ticket), 3);
        assert_eq!(space.quarantined_blocks(), 1, "freed after the mark");
        assert_eq!(space.release_quarantine(mark), 0);
        assert_eq!(space.release_quarantine(space.quarantine_mark()), 1);
        assert_eq!(space.available_blocks(), 6);
    }

    #[test]
    fn used_runs_rebuild_the_free_space() {
        let space = SpaceAllocator::with_used(1, 50, [run(1, 2), run(5, 5)]).unwrap();
        assert_eq!((space.available_blocks(), space.high_water()), (42, 10));
        assert_eq!(SpaceAllocator::with_used(1, 50, [run(1, 5), run(5, 5)]).err(), Some(run(5, 5)));
        assert_eq!(SpaceAllocator::with_used(1, 50, [run(0, 1)]).err(), Some(run(0, 1)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        /// Against a bitmap: nothing is given out twice, and everything that is free can be taken.
        #[test]
        fn agrees_with_a_bitmap(ops in proptest::collection::vec((0u8..3, 1u64..20, 0u64..20, 0u64..210), 1..200)) {
            let mut space = SpaceAllocator::new(2, 200);
            let mut used = [false; 200];
            let mut runs: Vec<BlockRun> = Vec::new();
            for (op, min, more, place) in ops {
                if op < 2 || runs.is_empty() {
                    let goal = (op == 1).then_some(place);
                    match space.take(min, min + more, goal) {
                        Some(got) => {
                            prop_assert!(got.blocks >= min && got.blocks <= min + more && got.start >= 2 && got.end() <= 200);
                            for block in got.start..got.end() {
                                prop_assert!(!std::mem::replace(&mut used[block as usize], true), "block {block} given out twice");
                            }
                            runs.push(got);
                        }
                        None => {
                            let longest = used[2..].split(|used| *used).map(<[bool]>::len).max().unwrap_or(0);
                            prop_assert!((longest as u64) < min, "{longest} consecutive blocks are free");
                        }
                    }
                } else {
                    let freed = runs.swap_remove(place as usize % runs.len());
                    used[freed.start as usize..freed.end() as usize].fill(false);
                    free_now(&mut space, freed);
                }
                prop_assert_eq!(space.available_blocks(), used[2..].iter().filter(|used| !**used).count() as u64);
            }
            let left = space.available_blocks();
            prop_assert!(space.take_scattered(left + 1, None).is_none());
            if left > 0 {
                let all = space.take_scattered(left, Some(50)).expect("all that is left");
                prop_assert_eq!(all.iter().map(|run| run.blocks).sum::<u64>(), left);
            }
        }
    }
}
