//! How much is gathered (`gathered.rs`), of one file and of all of a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use weft_base::{Nanos, SECOND};

/// Bytes that are gathered of all files of a client at most.
const BYTES_MAX: usize = 64 << 20;
/// After an answer of a data server that has little room nothing is gathered for so long, in
/// nanoseconds, and then only after another answer.
const SCARCE_NS: u64 = 10 * SECOND;
/// After a file of which it was worth the trouble so many more may be such, too.
const EXPECTED: usize = 32;

/// What data servers have said of their room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// None was written to yet, or not since one had little.
    Unknown,
    Plenty,
    Scarce,
}

/// Whether it is worth the trouble to gather what is written to the next file.
#[derive(Debug)]
pub(crate) struct Expected(AtomicUsize);

impl Default for Expected {
    /// The first files may be such.
    fn default() -> Expected {
        Expected(AtomicUsize::new(EXPECTED))
    }
}

impl Expected {
    /// It was, of a file.
    pub(super) fn came(&self) {
        self.0.store(EXPECTED, Ordering::Relaxed);
    }

    /// True if it was of one of the last files. Counts as one more.
    pub(super) fn expects(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0 && self.0.fetch_sub(1, Ordering::Relaxed) > 0
    }
}

/// What all files of a client have gathered, and whether more is to come.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    bytes: AtomicUsize,
    /// New files that are larger than their server keeps.
    pub(super) large: Expected,
    /// Files that were there before, and are written in pieces.
    pub(super) again: Expected,
    /// Each part of a file that is being sent (`behind.rs`) has another one of it.
    sending: Arc<()>,
    /// A data server has said that it has plenty of room, and none since that it has little.
    has_plenty: AtomicBool,
    /// Until then what one has said that has little counts for all.
    scarce_until: AtomicU64,
}

/// The share of one file in that, given back when it is dropped.
#[derive(Debug)]
pub(super) struct GatheredShare {
    pub(super) all: Arc<Gathered>,
    bytes: usize,
}

impl Gathered {
    /// A share of nothing.
    pub(super) fn share(all: &Arc<Gathered>) -> GatheredShare {
        GatheredShare { all: Arc::clone(all), bytes: 0 }
    }

    /// A data server was written to, and may have said that it has plenty of room.
    pub(super) fn told(&self, has_plenty: bool, now: Nanos) {
        if !has_plenty {
            self.scarce_until.store(now.0 + SCARCE_NS, Ordering::Relaxed);
            self.has_plenty.store(false, Ordering::Relaxed);
        } else if !self.has_plenty.load(Ordering::Relaxed) && !self.is_scarce(now) {
            self.has_plenty.store(true, Ordering::Relaxed);
        }
    }

    fn is_scarce(&self, now: Nanos) -> bool {
        now.0 < self.scarce_until.load(Ordering::Relaxed)
    }

    /// Whether data servers will take what is gathered.
    pub(super) fn room(&self, now: Nanos) -> Room {
        match self.has_plenty.load(Ordering::Relaxed) {
            true => Room::Plenty,
            false if self.is_scarce(now) => Room::Scarce,
            false => Room::Unknown,
        }
    }

    /// Counts a part that is being sent, until the answer is dropped.
    pub(super) fn sends(&self) -> Arc<()> {
        self.sending.clone()
    }

    /// True if a part of any file is being sent.
    pub(super) fn is_sending(&self) -> bool {
        Arc::strong_count(&self.sending) > 1
    }
}

impl GatheredShare {
    /// Makes the share as large as this, if it is not; false if there is no room.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 && self.all.bytes.fetch_add(more, Ordering::Relaxed) + more > BYTES_MAX {
            self.all.bytes.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.bytes += more;
        true
    }
}

impl GatheredShare {
    /// Another one, of nothing.
    pub(super) fn of_nothing(&self) -> GatheredShare {
        Gathered::share(&self.all)
    }
}

impl Drop for GatheredShare {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_given_back_and_all_are_bounded() {
        let all = Arc::<Gathered>::default();
        let mut first = Gathered::share(&all);
        assert!(first.grow(BYTES_MAX - 10) && first.grow(10), "it is as large already");
        let mut second = first.of_nothing();
        assert!(second.grow(10) && !second.grow(11) && second.grow(10));
        drop(first);
        assert!(second.grow(BYTES_MAX) && !second.grow(BYTES_MAX + 1));
        drop(second);
        assert_eq!(all.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_server_without_room_counts_for_all() {
        let all = Gathered::default();
        assert_eq!(all.room(Nanos(SECOND)), Room::Unknown);
        all.told(true, Nanos(SECOND));
        assert_eq!(all.room(Nanos(SECOND)), Room::Plenty);
        all.told(false, Nanos(2 * SECOND));
        all.told(true, Nanos(3 * SECOND));
        // A disk that was full a moment ago is one until its server says otherwise.
        assert_eq!([3, 12].map(|seconds| all.room(Nanos(seconds * SECOND))), [Room::Scarce, Room::Unknown]);
        all.told(true, Nanos(12 * SECOND));
        assert_eq!(all.room(Nanos(12 * SECOND)), Room::Plenty);
    }

    #[test]
    fn more_large_files_are_expected_at_first_and_after_one() {
        let large = Expected::default();
        for _ in 0..2 {
            assert_eq!((0..2 * EXPECTED).filter(|_| large.expects()).count(), EXPECTED);
            large.came();
        }
    }
}
