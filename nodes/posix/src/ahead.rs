//! Reading ahead. A program that reads a file in order would wait for servers at each of its reads.
//! So from its second read on more is asked for than it wants, and kept for those that follow, as
//! long as nobody can have changed the file ([`weft_client::Hold`]). One that reads blocks of one
//! size at equal distances, as each of several programs does that share a file block by block, has
//! its next blocks read from its third one on.
//!
//! At first a read asks for more itself. Of large reads, and where most of the time passes in long
//! waits for servers, a flow beside the reads does, as soon as less is kept than half of what is
//! asked for at once ([`crate::Posix::move_in_background`]): servers work while the program does.
//! Elsewhere that would save little, and costs a thread that is woken and bytes that move from the
//! cache of one processor to that of another.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use weft_base::{Nanos, Payload};
use weft_client::Hold;

use crate::signal::Signal;

/// Most bytes that are asked for at once.
const BYTES_MAX: u64 = 1 << 20;
/// The first time so many times the bytes that are wanted, later twice as many as before.
const FACTOR: u64 = 4;
/// A read of so many bytes is a large one.
const LARGE_BYTES: u64 = BYTES_MAX / 2;
/// Reads that have waited for as much as is asked for at once: then it is known what takes the
/// time.
const WAITS_MIN: u64 = 4;
/// A wait for as much that is longer than this, in nanoseconds, is one for a network or a disk:
/// 1.5 GB/s. From the memory of a server beside the program it comes sooner than a second thread
/// could hand it over.
const SLOW_NS: u64 = 700_000;
/// Open files of which something is kept, at most; that of others is asked for piece by piece. Of
/// each it is at most one and a half times what is asked for at once. One counts twice while more
/// of it is asked for.
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
pub(crate) struct Ahead {
    state: Mutex<Reading>,
    /// What a read may wait for is there, or will not come.
    settled: Signal,
}

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
    /// How long reads have waited for servers since as much as possible is asked for at once.
    waits: Waits,
    /// A read asks for more than it wants.
    is_asking: bool,
    /// That was in vain once, or the file is closed.
    is_over: bool,
    /// What is likely to be read next.
    kept: Option<Kept>,
    /// What follows it is asked for, by the flow beside the reads.
    coming: Option<Coming>,
    /// A read waits for that. One that is given up meanwhile leaves this set: then the next one
    /// ends the reading ahead, as a second one under way does.
    is_awaited: bool,
    /// How often that flow was asked.
    times: u64,
    /// Its span for the last time, in a trace; 0: none.
    span: u32,
}

/// Reads that wait for what they have asked for.
#[derive(Debug, Default)]
struct Waits {
    count: u64,
    /// When the first one began.
    since: Nanos,
    /// All together, in nanoseconds.
    ns: u64,
    /// That was most of the time, and they were long.
    are_most: bool,
}

impl Waits {
    /// One begins.
    fn begin(&mut self, now: Nanos) {
        if self.count == 0 {
            (self.since, self.ns) = (now, 0);
        }
        self.are_most |= self.count >= WAITS_MIN && self.ns > (now.since(self.since) / 2).max(self.count * SLOW_NS);
        self.count += 1;
    }
}

/// What is being asked for beside the reads.
#[derive(Debug)]
struct Coming {
    /// Which time it is.
    time: u64,
    /// Where it begins.
    start: u64,
    /// It is blocks.
    is_blocks: bool,
    hold: Hold,
}

#[derive(Debug)]
struct Kept {
    /// By where they begin: the bytes from the end of the last read on, or blocks.
    blocks: VecDeque<(u64, VecDeque<Payload>)>,
    hold: Hold,
    /// It counts while this is kept.
    _share: Arc<()>,
}

/// What a read begins with.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    /// Its first bytes.
    pub read: Vec<Payload>,
    /// The hold of this moment, if it goes on where the last one ended.
    pub hold: Option<Hold>,
    /// What follows is asked for already: it is to be waited for ([`Ahead::comes`]).
    pub is_coming: bool,
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
    since: Nanos,
    share: Arc<()>,
}

/// What the flow beside the reads asks for; to be given to [`Ahead::end_behind`].
#[derive(Debug)]
pub(crate) struct AskingBehind {
    /// What is to be read.
    pub ranges: Vec<(u64, u64)>,
    time: u64,
    hold: Hold,
    share: Arc<()>,
}

impl Ahead {
    /// A read begins.
    pub fn begin(&self, offset: u64, bytes: u64, hold: impl FnOnce() -> Option<Hold>) -> Begun {
        let mut state = self.lock();
        let is_next = offset > 0 && offset == state.end;
        let (step, same) = (offset.saturating_sub(state.start), bytes == state.end - state.start);
        state.is_block = !is_next && same && step == state.step && step > bytes;
        (state.start, state.end, state.step) = (offset, offset.saturating_add(bytes), step);
        if state.is_awaited {
            self.end_all(state);
            return Begun::default();
        }
        let (kept, coming) = (state.kept.take(), state.coming.take());
        if !is_next && !state.is_block {
            (state.asked, state.waits) = (0, Waits::default());
            return Begun::default();
        }
        let hold = hold();
        state.coming = coming.filter(|coming| hold == Some(coming.hold) && coming.is_blocks == state.is_block);
        let mut read = Vec::new();
        if let Some(mut kept) = kept.filter(|kept| hold == Some(kept.hold)) {
            read = kept.take(offset, bytes);
            state.kept = (!kept.blocks.is_empty()).then_some(kept);
        }
        let at = offset + length(&read);
        state.is_awaited = at < state.end && state.coming.as_ref().is_some_and(|coming| coming.start == at);
        Begun { read, hold, is_coming: state.is_awaited }
    }

    /// What was waited for, as far as so many bytes from this place on are there.
    pub fn go_on(&self, offset: u64, bytes: u64) -> Vec<Payload> {
        let mut state = self.lock();
        state.is_awaited = false;
        let Some(mut kept) = state.kept.take() else { return Vec::new() };
        let read = kept.take(offset, bytes);
        state.kept = (!kept.blocks.is_empty()).then_some(kept);
        read
    }

    /// Waits until what is asked for is there, or will not come. Gives the span in which it was
    /// asked for.
    pub async fn comes(&self) -> u32 {
        self.settles(|state| state.coming.is_none().then_some(state.span)).await
    }

    /// What is to be asked for is asked for in this span.
    pub fn note_span(&self, span: u32) {
        self.lock().span = span;
    }

    /// It has to ask for so many bytes before `end`, where it ends. `size`: that of the file, in
    /// bytes.
    pub fn ask(&self, (missing, end): (u64, u64), hold: Hold, size: u64, now: Nanos, budget: &Budget) -> Option<Asking> {
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
        let asking = Asking { ranges, missing, end, hold, since: now, share: budget.share()? };
        if all == BYTES_MAX {
            state.waits.begin(now);
        }
        (state.asked, state.is_asking, state.coming) = (all, true, None);
        Some(asking)
    }

    /// It has got what it asked for; `hold`: that of this moment. Gives what was wanted, and keeps
    /// the rest.
    pub fn end(&self, asking: Asking, read: Vec<Vec<Payload>>, hold: Option<Hold>, now: Nanos) -> Vec<Payload> {
        let starts = asking.ranges.iter().map(|(start, _)| *start);
        let mut blocks: VecDeque<_> = starts.zip(read.into_iter().map(VecDeque::from)).collect();
        let wanted = take_from(&mut blocks, asking.missing);
        let mut state = self.lock();
        state.is_asking = false;
        state.waits.ns += now.since(asking.since);
        // Another read has come meanwhile: a program, or a cache above, that has several under way
        // does not wait for each, and would have most of it read twice.
        state.is_over |= asking.end != state.end;
        if !state.is_over && hold == Some(asking.hold) && !blocks.is_empty() {
            state.kept = Some(Kept { blocks, hold: asking.hold, _share: asking.share });
        }
        wanted
    }

    /// What the flow beside the reads is to ask for, if little is kept of a file that is read on:
    /// it is the file's next bytes, or its next blocks. `size`: that of the file, in bytes.
    pub fn ask_behind(&self, hold: Hold, size: u64, budget: &Budget) -> Option<AskingBehind> {
        let mut state = self.lock();
        let (bytes, step) = (state.end - state.start, state.step);
        if bytes < LARGE_BYTES && !state.waits.are_most {
            return None;
        }
        let all = (state.asked * 2).max(bytes.saturating_mul(FACTOR)).min(BYTES_MAX);
        state.kept.take_if(|kept| kept.hold != hold);
        let kept = state.kept.as_ref();
        let is_enough = kept.is_some_and(|kept| kept.blocks.iter().map(|(_, pieces)| length(pieces)).sum::<u64>() * 2 > all);
        if state.is_over || state.is_asking || state.coming.is_some() || is_enough {
            return None;
        }
        let last = kept.and_then(|kept| kept.blocks.back());
        let ranges: Vec<_> = if state.is_block {
            let before = last.map_or(state.start, |(start, _)| *start);
            let starts = (1..=all / bytes.max(1)).map(|number| before.saturating_add(step.saturating_mul(number)));
            starts.take_while(|start| start.saturating_add(bytes) <= size).map(|start| (start, bytes)).collect()
        } else {
            let start = last.map_or(state.end, |(start, pieces)| start + length(pieces));
            let more = all.min(size.saturating_sub(start));
            (more > 0).then_some((start, more)).into_iter().collect()
        };
        let start = ranges.first()?.0;
        let asking = AskingBehind { ranges, time: state.times + 1, hold, share: budget.share()? };
        state.times += 1;
        state.asked = all;
        state.coming = Some(Coming { time: asking.time, start, is_blocks: state.is_block, hold });
        Some(asking)
    }

    /// That flow has asked, or will not; `read`: what it got, and the hold of this moment.
    pub fn end_behind(&self, asking: AskingBehind, read: Option<(Vec<Vec<Payload>>, Option<Hold>)>) {
        let mut state = self.lock();
        let Some(coming) = state.coming.take_if(|coming| coming.time == asking.time) else { return };
        if let Some((read, hold)) = read
            && hold == Some(asking.hold)
        {
            let starts = asking.ranges.iter().map(|(start, _)| *start);
            let blocks = starts.zip(read.into_iter().map(VecDeque::from));
            match &mut state.kept {
                Some(kept) => kept.add(blocks, coming.is_blocks),
                none => *none = Some(Kept { blocks: blocks.collect(), hold: asking.hold, _share: asking.share }),
            }
        }
        drop(state);
        self.settled.notify();
    }

    /// It could not be had, or not soon: a server or some bytes that are not wanted may be the
    /// cause. Or nobody reads any more. From now on nothing more is asked for.
    pub fn give_up(&self) {
        self.end_all(self.lock());
    }

    fn end_all(&self, mut state: MutexGuard<'_, Reading>) {
        (state.is_over, state.is_awaited, state.kept, state.coming) = (true, false, None, None);
        drop(state);
        self.settled.notify();
    }

    /// Waits until nothing more is asked for.
    pub async fn given_up(&self) {
        self.settles(|state| state.is_over.then_some(())).await;
    }

    async fn settles<T>(&self, look: impl Fn(&Reading) -> Option<T>) -> T {
        loop {
            let settled = self.settled.wait();
            let seen = look(&self.lock());
            if let Some(seen) = seen {
                return seen;
            }
            settled.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.state.lock().expect("no code panics while it holds this lock")
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

    /// Adds what follows: more blocks, or more of the bytes there are.
    fn add(&mut self, more: impl Iterator<Item = (u64, VecDeque<Payload>)>, are_blocks: bool) {
        for (start, mut pieces) in more {
            match self.blocks.back_mut() {
                Some((last, bytes)) if !are_blocks => {
                    assert_eq!(*last + length(&*bytes), start, "what is asked for follows what is kept");
                    bytes.append(&mut pieces);
                }
                _ => self.blocks.push_back((start, pieces)),
            }
        }
    }
}

fn length<'a>(pieces: impl IntoIterator<Item = &'a Payload>) -> u64 {
    pieces.into_iter().map(Payload::len).sum()
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
