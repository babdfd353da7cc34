//! Reading ahead. A program that reads a file in order and in small pieces would wait for servers
//! at each of them. So from its second read on more is asked for than it wants, and kept for those
//! that follow, as long as nobody can have changed the file ([`weft_client::Hold`]). One that reads
//! blocks of one size at equal distances, as each of several programs does that share a file block
//! by block, has its next blocks read from its third one on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use weft_base::Payload;
use weft_client::Hold;

/// Most bytes that are asked for at once.
const BYTES_MAX: u64 = 1 << 20;
/// The first time so many times the bytes that are wanted, later twice as many as before.
const FACTOR: u64 = 4;
/// Open files of which something is kept, at most; that of others is asked for piece by piece.
const FILES_MAX: usize = 128;

/// Of how many open files something is kept.
#[derive(Debug, Default)]
pub(crate) struct Budget(Arc<()>);

impl Budget {
    /// Counts while it lives. `None`: there are enough.
    fn share(&self) -> Option<Arc<()>> {
        (Arc::strong_count(&self.0) <= FILES_MAX).then(|| self.0.clone())
    }
}

/// What was read ahead of one open file.
#[derive(Debug, Default)]
pub(crate) struct Ahead(Mutex<Reading>);

/// How far it was read.
#[derive(Debug, Default)]
struct Reading {
    /// Where the last read begins and ends.
    start: u64,
    end: u64,
    /// How far it begins behind the one before.
    step: u64,
    /// It and the one before are such blocks.
    is_block: bool,
    /// Bytes that were asked for last, with those that were wanted; 0: no more than these.
    asked: u64,
    /// Somebody asks for more than is wanted.
    is_asking: bool,
    /// That was in vain once.
    is_over: bool,
    /// What is likely to be read next.
    kept: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// By where they begin: the bytes from the end of the last read on, or blocks.
    blocks: VecDeque<(u64, VecDeque<Payload>)>,
    hold: Hold,
    /// It counts while this is kept.
    _share: Arc<()>,
}

/// More than is wanted is being asked for; to be given to [`Ahead::end`].
#[derive(Debug)]
pub(crate) struct Asking {
    /// What is to be read: first what is wanted, from its first missing byte on.
    pub ranges: Vec<(u64, u64)>,
    /// So many bytes are wanted, before this place.
    missing: u64,
    end: u64,
    hold: Hold,
    share: Arc<()>,
}

impl Ahead {
    /// A read begins: gives its first bytes, as far as they are kept, and the hold of this moment
    /// if it goes on where the last one ended.
    pub fn begin(&self, offset: u64, bytes: u64, hold: impl FnOnce() -> Option<Hold>) -> (Vec<Payload>, Option<Hold>) {
        let mut state = self.lock();
        let is_next = offset > 0 && offset == state.end;
        let (step, same) = (offset.saturating_sub(state.start), bytes == state.end - state.start);
        state.is_block = !is_next && same && step == state.step && step > bytes;
        (state.start, state.end, state.step) = (offset, offset.saturating_add(bytes), step);
        let kept = state.kept.take();
        if !is_next && !state.is_block {
            state.asked = 0;
            return (Vec::new(), None);
        }
        let hold = hold();
        let Some(mut kept) = kept.filter(|kept| hold == Some(kept.hold)) else { return (Vec::new(), hold) };
        let head = kept.take(offset, bytes);
        state.kept = (!kept.blocks.is_empty()).then_some(kept);
        (head, hold)
    }

    /// It has to ask for so many bytes before `end`, where it ends. `size`: that of the file, in
    /// bytes.
    pub fn ask(&self, (missing, end): (u64, u64), hold: Hold, size: u64, budget: &Budget) -> Option<Asking> {
        let mut state = self.lock();
        let all = (state.asked * 2).max(missing.saturating_mul(FACTOR)).min(BYTES_MAX);
        let more = all.saturating_sub(missing);
        let mut ranges = vec![(end - missing, missing)];
        if state.is_block && missing == end - state.start {
            let blocks = (1..=more / missing.max(1)).map(|number| (end - missing).saturating_add(state.step.saturating_mul(number)));
            ranges.extend(blocks.take_while(|start| start.saturating_add(missing) <= size).map(|start| (start, missing)));
        } else if !state.is_block {
            ranges[0].1 += more.min(size.saturating_sub(end));
        }
        let is_more = ranges.len() > 1 || ranges[0].1 > missing;
        if end != state.end || state.is_asking || state.is_over || !is_more {
            return None;
        }
        let asking = Asking { ranges, missing, end, hold, share: budget.share()? };
        (state.asked, state.is_asking) = (all, true);
        Some(asking)
    }

    /// It has got what it asked for; `hold`: that of this moment. Gives what was wanted, and keeps
    /// the rest.
    pub fn end(&self, asking: Asking, read: Vec<Vec<Payload>>, hold: Option<Hold>) -> Vec<Payload> {
        let starts = asking.ranges.iter().map(|(start, _)| *start);
        let mut blocks: VecDeque<_> = starts.zip(read.into_iter().map(VecDeque::from)).collect();
        let wanted = take_from(&mut blocks, asking.missing);
        let mut state = self.lock();
        state.is_asking = false;
        // Another read has come meanwhile: a program, or a cache above, that has several under way
        // does not wait for each, and would have most of it read twice.
        state.is_over |= asking.end != state.end;
        if !state.is_over && hold == Some(asking.hold) && !blocks.is_empty() {
            state.kept = Some(Kept { blocks, hold: asking.hold, _share: asking.share });
        }
        wanted
    }

    /// It could not be had, or not soon: a server or some bytes that are not wanted may be the
    /// cause. From now on nothing more is asked for.
    pub fn give_up(&self) {
        self.lock().is_over = true;
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

impl Kept {
    /// Takes bytes from this place on, if it is where the first block begins.
    fn take(&mut self, offset: u64, bytes: u64) -> Vec<Payload> {
        if self.blocks.front().is_none_or(|(start, _)| *start != offset) {
            self.blocks.clear();
        }
        take_from(&mut self.blocks, bytes)
    }
}

/// Takes the first bytes of the first block; fewer if it has not so many.
fn take_from(blocks: &mut VecDeque<(u64, VecDeque<Payload>)>, bytes: u64) -> Vec<Payload> {
    let Some((start, pieces)) = blocks.front_mut() else { return Vec::new() };
    let taken = take(pieces, bytes);
    *start += taken.iter().map(Payload::len).sum::<u64>();
    if pieces.is_empty() {
        blocks.pop_front();
    }
    taken
}

/// Takes the first bytes; fewer if there are not so many.
fn take(pieces: &mut VecDeque<Payload>, mut bytes: u64) -> Vec<Payload> {
    let mut taken = Vec::new();
    while bytes > 0
        && let Some(piece) = pieces.pop_front()
    {
        let some = piece.len().min(bytes);
        if some < piece.len() {
            pieces.push_front(piece.slice(some, piece.len() - some));
        }
        taken.push(piece.slice(0, some));
        bytes -= some;
    }
    taken
}
