//! What truncations and removals have freed, until it may be used again.

use std::collections::VecDeque;

use weft_base::Nanos;
use weft_store::objects::{BLOCK_BYTES, BlockRun, ObjectRecord, ObjectTable, QuarantineMark};

/// What is known about space beyond the table.
#[derive(Debug, Default)]
pub struct SpaceState {
    /// Large runs that were freed since the last round began.
    pub freed_runs: Vec<BlockRun>,
    /// Something was freed since the last round began.
    pub freed: bool,
    /// Large runs are with a round that has not ended.
    pub round_has_runs: bool,
    /// What rounds have made durable, in their order.
    pub durable: VecDeque<(QuarantineMark, Vec<BlockRun>)>,
    /// When idle reservations were looked at, and the count of plans then.
    pub looked_at: Nanos,
    pub plans_then: u64,
    /// There was room then for far more than what clients gather.
    pub has_plenty: bool,
}

/// What was freed before a round began; to be given to `freed_is_durable` when the round has ended.
#[derive(Debug)]
pub struct Freed {
    pub mark: QuarantineMark,
    pub runs: Vec<BlockRun>,
}

impl SpaceState {
    /// Nothing was freed yet.
    pub fn new(now: Nanos) -> SpaceState {
        SpaceState { looked_at: now, ..SpaceState::default() }
    }

    /// Looks at a change before it is applied: what will it free?
    pub fn note_change(&mut self, table: &ObjectTable, record: &ObjectRecord, punch_bytes: u64) {
        let (key, cut) = match record {
            ObjectRecord::Put { .. } => return,
            ObjectRecord::Punch { key, local_offset, len, .. } => {
                let freed = table.freed_by_punch(*key, *local_offset, *len);
                self.freed |= !freed.is_empty();
                let large = freed.iter().map(|run| run.blocks).sum::<u64>() * BLOCK_BYTES >= punch_bytes;
                freed.into_iter().filter(|_| large).for_each(|run| push_run(&mut self.freed_runs, run));
                return;
            }
            ObjectRecord::Truncate { key, size_bytes, .. } => (*key, size_bytes.next_multiple_of(BLOCK_BYTES)),
            ObjectRecord::Remove { key } => (*key, 0),
        };
        self.freed = true;
        if table.stat(key).is_none_or(|stat| stat.allocated_bytes < punch_bytes) {
            return;
        }
        for extent in table.extents(key) {
            // Whole blocks behind the cut belong to nobody else, so their unwritten parts go with
            // them.
            let skipped = cut.saturating_sub(extent.local_offset);
            if skipped < extent.len {
                let start = (extent.disk_offset + skipped) / BLOCK_BYTES;
                let end = (extent.disk_offset + extent.len).div_ceil(BLOCK_BYTES);
                push_run(&mut self.freed_runs, BlockRun { start, blocks: end - start });
            }
        }
    }

    /// True if space that was freed is not usable yet.
    pub fn is_coming_back(&self) -> bool {
        self.freed || !self.durable.is_empty()
    }
}

/// Appends a run, joining it to the last one if they touch or share a block.
fn push_run(runs: &mut Vec<BlockRun>, run: BlockRun) {
    match runs.last_mut() {
        Some(last) if last.start <= run.start && run.start <= last.end() => last.blocks = last.blocks.max(run.end() - last.start),
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::{DataTime, Handle};
    use weft_store::objects::ObjectKey;

    const KEY: ObjectKey = ObjectKey { handle: Handle(1), index: 0 };

    fn write(table: &mut ObjectTable, key: ObjectKey, offset: u64, len: u64) -> u64 {
        let plan = table.plan_write(key, offset, len).unwrap();
        if let Some(record) = table.record_for(&plan, DataTime::NONE).unwrap() {
            table.apply(&record);
        }
        plan.pieces[0].disk_offset
    }

    #[test]
    fn a_cut_frees_whole_blocks_behind_it_only() {
        let mut table = ObjectTable::new(1 << 30);
        let at = write(&mut table, KEY, 0, 40960) / BLOCK_BYTES;
        let mut space = SpaceState::new(Nanos(0));
        let cut = |size_bytes| ObjectRecord::Truncate { key: KEY, size_bytes, mtime: DataTime::NONE, truncate_epoch: 1 };
        for (size, blocks) in [(0, 10), (1, 9), (4096, 9), (4097, 8), (36864, 1)] {
            space.freed_runs.clear();
            space.note_change(&table, &cut(size), 4096);
            assert_eq!(space.freed_runs, [BlockRun { start: at + 10 - blocks, blocks }], "cut to {size}");
        }
        space.freed_runs.clear();
        space.note_change(&table, &cut(36865), 4096);
        assert_eq!(space.freed_runs, []);
        space.note_change(&table, &ObjectRecord::Remove { key: KEY }, 40961);
        assert_eq!(space.freed_runs, [], "too small to be worth it");
        space.note_change(&table, &ObjectRecord::Remove { key: KEY }, 40960);
        assert_eq!(space.freed_runs, [BlockRun { start: at, blocks: 10 }]);
    }

    #[test]
    fn extents_that_share_a_block_free_it_once() {
        let mut table = ObjectTable::new(1 << 30);
        let at = write(&mut table, KEY, 0, 10) / BLOCK_BYTES;
        write(&mut table, KEY, 100, 10);
        write(&mut table, KEY, 4000, 200);
        let mut space = SpaceState::new(Nanos(0));
        space.note_change(&table, &ObjectRecord::Remove { key: KEY }, 1);
        let total: u64 = space.freed_runs.iter().map(|run| run.blocks).sum();
        assert_eq!((space.freed_runs[0].start, total), (at, table.used_bytes() / BLOCK_BYTES));
    }
}
