//! Reading ahead. A program that reads a file in order and in small pieces would wait for servers
//! at each of them. So from its second read on more is asked for than it wants, and kept for those
//! that follow, as long as nobody can have changed the file ([`weft_client::Hold`]).

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
    /// Where the last read ends.
    end: u64,
    /// Bytes that were asked for last, with those that were wanted; 0: no more than these.
    asked: u64,
    /// Somebody asks for more than is wanted.
    is_asking: bool,
    /// That was in vain once.
    is_over: bool,
    /// The bytes from `end` on.
    kept: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    pieces: VecDeque<Payload>,
    hold: Hold,
    /// It counts while this is kept.
    _share: Arc<()>,
}

/// More than is wanted is being asked for; to be given to [`Ahead::end`].
#[derive(Debug)]
pub(crate) struct Asking {
    /// So many bytes more.
    pub more: u64,
    /// So many are wanted, before this place.
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
        state.end = offset.saturating_add(bytes);
        let kept = state.kept.take();
        if !is_next {
            state.asked = 0;
            return (Vec::new(), None);
        }
        let hold = hold();
        let Some(mut kept) = kept.filter(|kept| hold == Some(kept.hold)) else { return (Vec::new(), hold) };
        let head = take(&mut kept.pieces, bytes);
        state.kept = (!kept.pieces.is_empty()).then_some(kept);
        (head, hold)
    }

    /// It has to ask for so many bytes before `end`, where it ends. `size`: that of the file, in
    /// bytes.
    pub fn ask(&self, (missing, end): (u64, u64), hold: Hold, size: u64, budget: &Budget) -> Option<Asking> {
        let mut state = self.lock();
        let all = (state.asked * 2).max(missing.saturating_mul(FACTOR)).min(BYTES_MAX);
        let more = all.saturating_sub(missing).min(size.saturating_sub(end));
        if end != state.end || state.is_asking || state.is_over || more == 0 {
            return None;
        }
        let asking = Asking { more, missing, end, hold, share: budget.share()? };
        (state.asked, state.is_asking) = (all, true);
        Some(asking)
    }

    /// It has got what it asked for; `hold`: that of this moment. Gives what was wanted, and keeps
    /// the rest.
    pub fn end(&self, asking: Asking, read: Vec<Payload>, hold: Option<Hold>) -> Vec<Payload> {
        let mut pieces = VecDeque::from(read);
        let wanted = take(&mut pieces, asking.missing);
        let mut state = self.lock();
        state.is_asking = false;
        // Another read has come meanwhile: a program, or a cache above, that has several under way
        // does not wait for each, and would have most of it read twice.
        state.is_over |= asking.end != state.end;
        if !state.is_over && hold == Some(asking.hold) && !pieces.is_empty() {
            state.kept = Some(Kept { pieces, hold: asking.hold, _share: asking.share });
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
