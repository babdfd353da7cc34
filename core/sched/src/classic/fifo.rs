//! `none` and `write_behind`: first in, first out, reads first; writes that happen to follow each
//! other seamlessly become one job. They differ in what they accept: `none` takes a write only when
//! no other waits.

use std::collections::VecDeque;

use weft_base::Nanos;

use super::ClassicConfig;
use crate::{Access, CacheLayer, Job, JobPiece, LayerStats, Next, Piece, Queued};

/// Both layers.
#[derive(Clone, Debug)]
pub struct Fifo {
    /// `none`: a write is accepted only if none is queued (one may be on the disk). Else while
    /// there is memory for it.
    one_write: bool,
    granularity: u64,
    reads: VecDeque<Piece>,
    writes: VecDeque<Piece>,
    read_bytes: u64,
    write_bytes: u64,
    stats: LayerStats,
}

impl Fifo {
    /// The layer `none`, empty.
    pub fn none(config: &ClassicConfig) -> Fifo {
        Fifo::new(config, true)
    }

    /// The layer `write_behind`, empty.
    pub fn write_behind(config: &ClassicConfig) -> Fifo {
        Fifo::new(config, false)
    }

    fn new(config: &ClassicConfig, one_write: bool) -> Fifo {
        Fifo {
            one_write,
            granularity: config.granularity,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            read_bytes: 0,
            write_bytes: 0,
            stats: LayerStats::default(),
        }
    }

    fn oldest_read(&mut self, parts: &mut Vec<JobPiece>) -> Option<Job> {
        let read = self.reads.pop_front()?;
        self.read_bytes -= read.bytes;
        parts.push(part(&read));
        Some(Job { access: Access::Read, file: read.file, offset: read.offset, bytes: read.bytes })
    }

    fn oldest_writes(&mut self, parts: &mut Vec<JobPiece>) -> Option<Job> {
        let first = self.writes.pop_front()?;
        parts.push(part(&first));
        let mut job = Job { access: Access::Write, file: first.file, offset: first.offset, bytes: first.bytes };
        while let Some(&next) = self.writes.front()
            && next.file == job.file
            && next.offset == job.end()
            && job.bytes + next.bytes <= self.granularity
        {
            job.bytes += next.bytes;
            parts.push(part(&next));
            self.writes.pop_front();
        }
        self.write_bytes -= job.bytes;
        Some(job)
    }
}

pub(super) fn part(piece: &Piece) -> JobPiece {
    JobPiece { tag: piece.tag, offset: piece.offset, bytes: piece.bytes }
}

impl CacheLayer for Fifo {
    fn accepts(&self, bytes: u64, memory_free: u64) -> bool {
        if self.one_write { self.writes.is_empty() } else { memory_free > bytes }
    }

    fn add(&mut self, _now: Nanos, piece: Piece) {
        self.stats.note_added(&piece);
        match piece.access {
            Access::Read => {
                self.read_bytes += piece.bytes;
                self.reads.push_back(piece);
            }
            Access::Write => {
                self.write_bytes += piece.bytes;
                self.writes.push_back(piece);
            }
        }
    }

    fn next(&mut self, _now: Nanos, memory_free: u64, parts: &mut Vec<JobPiece>) -> Next {
        parts.clear();
        let job = match self.reads.front() {
            Some(read) if memory_free > read.bytes => self.oldest_read(parts),
            _ => self.oldest_writes(parts),
        };
        job.inspect(|job| self.stats.note_job(job)).map_or(Next::Idle, Next::Job)
    }

    fn queued(&self, access: Access) -> Queued {
        match access {
            Access::Read => Queued { entries: self.reads.len() as u64, bytes: self.read_bytes },
            Access::Write => Queued { entries: self.writes.len() as u64, bytes: self.write_bytes },
        }
    }

    fn stats(&self) -> LayerStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileKey;

    const NOW: Nanos = Nanos(0);

    fn piece(access: Access, file: u64, offset: u64, bytes: u64) -> Piece {
        Piece { access, file: FileKey(file), offset, bytes, tag: offset }
    }

    fn job(access: Access, file: u64, offset: u64, bytes: u64) -> Next {
        Next::Job(Job { access, file: FileKey(file), offset, bytes })
    }

    #[test]
    fn reads_come_first_and_writes_in_order_merge_up_to_the_granularity() {
        let mut layer = Fifo::write_behind(&ClassicConfig { granularity: 20, ..ClassicConfig::default() });
        for (file, offset, bytes) in [(1, 0, 10), (1, 10, 10), (1, 20, 10), (1, 40, 5), (2, 45, 5)] {
            layer.add(NOW, piece(Access::Write, file, offset, bytes));
        }
        layer.add(NOW, piece(Access::Read, 1, 100, 7));
        layer.add(NOW, piece(Access::Read, 1, 107, 7));
        let mut parts = Vec::new();
        assert_eq!(layer.next(NOW, 8, &mut parts), job(Access::Read, 1, 100, 7), "reads are not merged");
        assert_eq!(layer.next(NOW, 7, &mut parts), job(Access::Write, 1, 0, 20), "too little memory for the read: strictly more is needed");
        assert_eq!(parts.iter().map(|part| part.tag).collect::<Vec<_>>(), [0, 10]);
        assert_eq!(layer.next(NOW, 8, &mut parts), job(Access::Read, 1, 107, 7));
        assert_eq!(layer.queued(Access::Write), Queued { entries: 3, bytes: 20 });
        assert_eq!(layer.next(NOW, 8, &mut parts), job(Access::Write, 1, 20, 10));
        assert_eq!(layer.next(NOW, 8, &mut parts), job(Access::Write, 1, 40, 5));
        assert_eq!(layer.next(NOW, 8, &mut parts), job(Access::Write, 2, 45, 5), "another file");
        assert_eq!(layer.next(NOW, 8, &mut parts), Next::Idle);
    }

    #[test]
    fn what_they_accept() {
        let config = ClassicConfig::default();
        let (mut none, behind) = (Fifo::none(&config), Fifo::write_behind(&config));
        assert!(none.accepts(10, 0));
        none.add(NOW, piece(Access::Read, 1, 0, 10));
        assert!(none.accepts(10, 0));
        none.add(NOW, piece(Access::Write, 1, 0, 10));
        assert!(!none.accepts(10, 1 << 40));
        assert!(behind.accepts(10, 11) && !behind.accepts(10, 10));
    }
}
