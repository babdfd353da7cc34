//! Where accesses go relative to the one before: what a disk pays for.

use crate::{Access, FileKey};

/// How far an access is from the end of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// It continues there: no positioning.
    Sequential,
    /// In the same file, less than the bound away.
    Near,
    /// Anything else, and the first of all.
    Far,
}

/// Operations and bytes of one disk, by distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessCounts {
    /// Read operations.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write operations.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Operations that continued where the one before ended.
    pub sequential: u64,
    /// Operations near the one before.
    pub near: u64,
    /// All other operations.
    pub far: u64,
}

/// Counts the operations of one disk.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    near_bytes: u64,
    last: Option<(FileKey, u64)>,
    counts: AccessCounts,
}

impl Places {
    /// Less than `near_bytes` away is near ([`crate::classic::NEAR_BYTES`] as in the thesis).
    pub fn new(near_bytes: u64) -> Places {
        Places { near_bytes, last: None, counts: AccessCounts::default() }
    }

    /// An operation begins.
    pub fn note(&mut self, access: Access, file: FileKey, offset: u64, bytes: u64) -> Distance {
        let distance = match self.last {
            Some((last, end)) if last == file && end == offset => Distance::Sequential,
            Some((last, end)) if last == file && end.abs_diff(offset) < self.near_bytes => Distance::Near,
            _ => Distance::Far,
        };
        self.last = Some((file, offset + bytes));
        let counts = &mut self.counts;
        match access {
            Access::Read => (counts.reads, counts.read_bytes) = (counts.reads + 1, counts.read_bytes + bytes),
            Access::Write => (counts.writes, counts.written_bytes) = (counts.writes + 1, counts.written_bytes + bytes),
        }
        match distance {
            Distance::Sequential => counts.sequential += 1,
            Distance::Near => counts.near += 1,
            Distance::Far => counts.far += 1,
        }
        distance
    }

    /// The counts until now.
    pub fn counts(&self) -> AccessCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_from_the_last_end_in_the_same_file() {
        let mut places = Places::new(100);
        let (a, b) = (FileKey(1), FileKey(2));
        let mut note = |file, offset| places.note(Access::Read, file, offset, 10);
        assert_eq!(note(a, 0), Distance::Far, "the first");
        assert_eq!(note(a, 10), Distance::Sequential);
        assert_eq!(note(a, 119), Distance::Near, "99 beyond");
        assert_eq!(note(a, 30), Distance::Near, "99 back");
        assert_eq!(note(a, 140), Distance::Far, "100 beyond");
        assert_eq!(note(b, 150), Distance::Far, "another file");
        let counts = places.counts();
        assert_eq!((counts.reads, counts.read_bytes, counts.sequential, counts.near, counts.far), (6, 60, 1, 2, 3));
    }
}
