//! Which bytes of a file this process has left out when it wrote: holes, if nobody else has written
//! them. Whoever writes a file from its beginning to its end leaves none, in whatever order the
//! writes of a mount's threads arrive. Else the last close says so (`open_inode.rs`), and the data
//! servers are asked how much the file takes.

use std::collections::BTreeMap;

/// Ranges that are remembered at most: more than a mount has writes under way.
const RANGES_MAX: usize = 64;

/// What own writes have left out. In bytes of the file.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Of what lies before this, its metadata server knows how much are holes.
    known_end: u64,
    /// What was written behind it, by its first byte: disjoint ranges that do not touch.
    beyond: BTreeMap<u64, u64>,
    /// There may be holes of which the metadata server does not know.
    found: bool,
}

impl Gaps {
    /// The metadata server says that the file has so many bytes.
    pub(super) fn told(&mut self, size: u64) {
        if self.beyond.is_empty() {
            self.known_end = self.known_end.max(size);
        }
    }

    /// The file was cut or extended to this size: what the server did not know of holes before that
    /// it does not know now.
    pub(super) fn resized(&mut self, size: u64) {
        self.found = size > 0 && self.any();
        self.beyond.clear();
        self.known_end = size;
    }

    /// Others may have cut the file: what was known of it is not known any more.
    pub(super) fn forget(&mut self) {
        self.found = self.any();
        self.beyond.clear();
        self.known_end = 0;
    }

    /// These bytes were written.
    pub(super) fn written(&mut self, start: u64, end: u64) {
        if start > self.known_end {
            let (mut from, mut to) = (start, end);
            while let Some((&first, &behind)) = self.beyond.range(..=to).next_back()
                && behind >= from
            {
                self.beyond.remove(&first);
                (from, to) = (from.min(first), to.max(behind));
            }
            self.beyond.insert(from, to);
            if self.beyond.len() > RANGES_MAX {
                self.give_up();
            }
            return;
        }
        self.known_end = self.known_end.max(end);
        while let Some(range) = self.beyond.first_entry().filter(|range| *range.key() <= self.known_end) {
            self.known_end = self.known_end.max(range.remove());
        }
    }

    /// Something was done to the file that may have made holes, or filled some.
    pub(super) fn made(&mut self) {
        self.found = true;
    }

    /// True if the metadata server must be told that there may be holes.
    pub(super) fn any(&self) -> bool {
        self.found || !self.beyond.is_empty()
    }

    /// The metadata server has heard of the end of what was written, and not of gaps.
    pub(super) fn kept_back(&mut self) {
        if !self.beyond.is_empty() {
            self.give_up();
        }
    }

    /// True if the metadata server must be told; it is from now on.
    pub(super) fn take(&mut self) -> bool {
        self.kept_back();
        std::mem::take(&mut self.found)
    }

    /// Which bytes are missing is not counted any more.
    fn give_up(&mut self) {
        self.found = true;
        self.known_end = self.beyond.last_key_value().map_or(0, |(_, end)| *end).max(self.known_end);
        self.beyond.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_writes_from_beginning_to_end_leaves_none() {
        let mut gaps = Gaps::default();
        gaps.told(100);
        for (start, end) in [(50, 120), (200, 300), (130, 150), (300, 301), (120, 130), (150, 200)] {
            gaps.written(start, end);
        }
        assert!(!gaps.any() && gaps.beyond.is_empty());
        assert_eq!(gaps.known_end, 301);
        assert!(!gaps.take());
    }

    #[test]
    fn what_is_left_out_is_told_once() {
        let mut gaps = Gaps::default();
        gaps.written(10, 20);
        // Asked meanwhile: the size is that of the own write.
        gaps.told(20);
        assert!(gaps.any());
        assert!(gaps.take() && !gaps.any() && !gaps.take());
        gaps.written(20, 30);
        assert!(!gaps.any(), "of what is before that the server knows now");
        gaps.made();
        assert!(gaps.take());
    }

    #[test]
    fn a_gap_outlives_reports_and_truncations() {
        let mut gaps = Gaps::default();
        gaps.written(10, 20);
        gaps.kept_back();
        gaps.written(0, 30);
        gaps.resized(15);
        assert!(gaps.take(), "which bytes are missing is not known any more");
        gaps.written(15, 40);
        gaps.written(60, 70);
        gaps.resized(0);
        assert!(!gaps.any(), "an empty file has no holes");
        gaps.resized(500);
        gaps.written(500, 600);
        assert!(!gaps.any(), "of the hole that a truncation makes the server knows");
    }

    #[test]
    fn what_others_have_cut_is_not_known_any_more() {
        let mut gaps = Gaps::default();
        gaps.told(100);
        gaps.forget();
        assert!(!gaps.any());
        gaps.told(10);
        gaps.written(50, 60);
        gaps.forget();
        assert!(gaps.take(), "what was left out before that is to be told all the same");
    }

    #[test]
    fn ranges_are_bounded() {
        let mut gaps = Gaps::default();
        for number in (1..1000).rev() {
            gaps.written(number * 10, number * 10 + 5);
        }
        assert!(gaps.beyond.len() <= RANGES_MAX && gaps.any());
        assert!(gaps.take());
        assert_eq!(gaps.known_end, 9995);
    }
}
