//! Do reads and sizes show what was written? Every byte of a file is a register: a read gives a
//! value whose write had begun, and that was not overwritten for sure before the read began. Every
//! write of a history has its own value, so it is known which write a read has seen; whoever reads
//! later sees no older one. Writes without an answer may have been done in part, at any time after
//! they began; truncations write zeros to everything behind their size. A write that is under way
//! while a data server starts again may be done in part before and once more after that.

use std::collections::BTreeSet;

use weft_base::{FileKind, Handle, Nanos};

use crate::history::{Action, Answer, Event, History, Outcome};
use weft_client::Fallocate;

/// What a run allows beyond a perfect file system: operations that began between these positions
/// may have been lost (a power cut within the batch interval).
pub type LostBetween = Option<(u64, u64)>;

/// Checks reads and sizes of all files of a history. `data_starts`: when data servers were started.
///
/// # Errors
/// What is wrong, for people.
pub fn check(history: &History, lost: LostBetween, data_starts: &[Nanos]) -> Result<(), String> {
    let files: BTreeSet<Handle> = history.events().iter().filter_map(file_of).collect();
    files
        .into_iter()
        .try_for_each(|file| FileRecord::of(history, file, lost, data_starts).check().map_err(|text| format!("{file}: {text}")))
}

fn file_of(event: &Event) -> Option<Handle> {
    match event.action {
        Action::Write { handle, .. } | Action::Content { handle, .. } | Action::Allocate { handle, .. } | Action::Read { handle, .. } => {
            Some(handle)
        }
        _ => None,
    }
}

/// What happened to one file.
#[derive(Default)]
struct FileRecord {
    changes: Vec<Change>,
    reads: Vec<Read>,
    sizes: Vec<Size>,
}

/// A write, or the zeros of a truncation or of a hole.
#[derive(Clone, Copy, Debug)]
struct Change {
    event: usize,
    begin: u64,
    /// `u64::MAX` if it is not sure that it happened.
    end: u64,
    from: u64,
    /// `u64::MAX` for a truncation.
    to: u64,
    value: u8,
    /// It makes the file no longer.
    keeps_size: bool,
    /// It may be undone, or done again: that somebody has seen it says nothing about later.
    is_fickle: bool,
}

impl Change {
    fn is_cut(&self) -> bool {
        self.to == u64::MAX
    }
    /// The size of the file that it makes.
    fn size(&self) -> u64 {
        match self.is_cut() {
            true => self.from,
            false if self.keeps_size => 0,
            false => self.to,
        }
    }
}

#[derive(Clone, Debug)]
struct Read {
    event: usize,
    begin: u64,
    end: u64,
    offset: u64,
    len: u64,
    data: Vec<u8>,
}

impl Read {
    /// The byte at a position; what lies behind the end of the file counts as zero.
    fn byte(&self, position: u64) -> u8 {
        self.data.get((position - self.offset) as usize).copied().unwrap_or(0)
    }
}

/// Somebody was told that the size is between `low` and `high`.
#[derive(Clone, Copy, Debug)]
struct Size {
    event: usize,
    begin: u64,
    end: u64,
    low: u64,
    high: u64,
}

impl FileRecord {
    fn of(history: &History, file: Handle, lost: LostBetween, data_starts: &[Nanos]) -> FileRecord {
        let mut record = FileRecord::default();
        for (number, event) in history.events().iter().enumerate() {
            let is_lost = lost.is_some_and(|(from, to)| (from..to).contains(&event.begin));
            let is_write = matches!(event.action, Action::Write { .. });
            let is_lost = is_lost || is_write && history.may_be_lost(event.client, file);
            let is_over_a_start = data_starts.iter().any(|at| (event.begin_at..=event.end_at).contains(at));
            record.add(number, event, file, is_lost, is_over_a_start);
        }
        record
    }

    fn add(&mut self, number: usize, event: &Event, file: Handle, is_lost: bool, is_over_a_start: bool) {
        let is_fickle = is_lost || is_over_a_start;
        let sure = matches!(event.outcome, Outcome::Done(_)) && !is_lost;
        let end = if sure { event.end } else { u64::MAX };
        let plain = Change { event: number, begin: event.begin, end, from: 0, to: 0, value: 0, keeps_size: false, is_fickle };
        if let Action::Allocate { handle, offset, len, how } = &event.action
            && *handle == file
        {
            let to = offset + len;
            // A reservation changes no byte.
            let (from, keeps_size) = match how {
                Fallocate::Reserve { keep_size } => (to, *keep_size),
                Fallocate::Zero { keep_size } => (*offset, *keep_size),
                Fallocate::Punch => (*offset, true),
            };
            self.changes.push(Change { from, to, keeps_size, ..plain });
        }
        let mut change = |from, to, value| self.changes.push(Change { from, to, value, ..plain });
        match (&event.action, &event.outcome) {
            (Action::Write { handle, offset, len, tag }, _) if *handle == file => change(*offset, offset + len, *tag),
            (Action::Content { .. } | Action::SetSize { .. }, Outcome::Failed(_)) => {}
            // One of an unknown file may be that of any.
            (Action::Content { handle, len, tag, at_once }, _) if *handle == file || *handle == Handle(0) => {
                change(0, *len, *tag);
                change(*len, u64::MAX, 0);
                if !at_once {
                    change(0, u64::MAX, 0);
                }
            }
            (Action::SetSize { handle, size }, _) if *handle == file => change(*size, u64::MAX, 0),
            (Action::Create { truncate: true, .. }, Outcome::Done(Answer::Created(seen, false))) if seen.handle == file => {
                change(0, u64::MAX, 0);
            }
            // It may have cut any file.
            (Action::Create { truncate: true, .. }, Outcome::Unknown(_) | Outcome::Running) => change(0, u64::MAX, 0),
            (Action::Read { handle, offset, len }, Outcome::Done(Answer::Data(data))) if *handle == file => {
                let got = offset + data.len() as u64;
                let (low, high) = (if data.is_empty() { 0 } else { got }, if (data.len() as u64) < *len { got } else { u64::MAX });
                // A read behind the end says only that the file ends before.
                let high = if data.is_empty() { *offset } else { high };
                self.sizes.push(Size { event: number, begin: event.begin, end: event.end, low, high });
                let data = data.clone();
                self.reads.push(Read { event: number, begin: event.begin, end: event.end, offset: *offset, len: *len, data });
            }
            (Action::GetAttr { .. } | Action::Lookup { .. } | Action::Open { .. }, Outcome::Done(Answer::Attr(seen)))
                if seen.handle == file && seen.kind == FileKind::File =>
            {
                self.sizes.push(Size { event: number, begin: event.begin, end: event.end, low: seen.size, high: seen.size });
            }
            _ => {}
        }
    }

    fn check(&self) -> Result<(), String> {
        for position in self.positions() {
            self.check_byte(position)?;
        }
        self.sizes.iter().try_for_each(|size| self.check_size(size))
    }

    /// One position of every run of bytes that all operations treat alike.
    fn positions(&self) -> BTreeSet<u64> {
        let mut positions = BTreeSet::new();
        for change in &self.changes {
            positions.extend([change.from, change.to]);
        }
        for read in &self.reads {
            positions.extend([read.offset, read.offset + read.data.len() as u64]);
            let mut at = read.offset;
            for run in read.data.chunk_by(|a, b| a == b) {
                positions.insert(at);
                at += run.len() as u64;
            }
        }
        positions
    }

    fn check_byte(&self, position: u64) -> Result<(), String> {
        let initial = Change { event: usize::MAX, begin: 0, end: 0, from: 0, to: u64::MAX, value: 0, keeps_size: false, is_fickle: false };
        let changes: Vec<Change> =
            self.changes.iter().filter(|change| (change.from..change.to).contains(&position)).copied().chain([initial]).collect();
        let reads: Vec<&Read> = self.reads.iter().filter(|read| (read.offset..read.offset + read.len).contains(&position)).collect();
        let done_by: Vec<u64> = changes
            .iter()
            .map(|change| {
                let is_proof = change.value != 0 && !change.is_fickle;
                let seen = reads.iter().filter(|read| is_proof && read.byte(position) == change.value);
                seen.map(|read| read.end).min().unwrap_or(u64::MAX).min(change.end)
            })
            .collect();
        for read in &reads {
            let value = read.byte(position);
            let explains = |number: usize| {
                let change = &changes[number];
                let overwritten = |other: usize| done_by[number] < changes[other].begin && done_by[other] < read.begin;
                change.value == value && change.begin < read.end && !(0..changes.len()).any(overwritten)
            };
            if !(0..changes.len()).any(explains) {
                let mut writers: Vec<_> = changes.iter().filter(|change| change.event != usize::MAX).collect();
                writers.sort_by_key(|change| change.begin);
                let writers: Vec<_> =
                    writers.iter().map(|change| format!("#{} {} [{},{}]", change.event, change.value, change.begin, change.end)).collect();
                let event = read.event;
                return Err(format!("read #{event} shows {value} at byte {position}; written there: {}", writers.join(", ")));
            }
        }
        Ok(())
    }

    fn check_size(&self, size: &Size) -> Result<(), String> {
        let (low, high) = (self.size_at_least(size), self.size_at_most(size));
        if size.high < low || size.low > high {
            let (event, told) = (size.event, if size.low == size.high { size.low } else { size.low.min(size.high) });
            return Err(format!("#{event} shows a size of {told} (or of a range), but it must be from {low} to {high}"));
        }
        Ok(())
    }

    /// The size is at least what was written for sure before and not cut for sure or perhaps since.
    fn size_at_least(&self, size: &Size) -> u64 {
        let stands = |number: usize| {
            let change = &self.changes[number];
            let cuts = self.changes.iter().enumerate().filter(|(other, cut)| *other != number && cut.is_cut());
            change.end < size.begin && !cuts.into_iter().any(|(_, cut)| cut.end > change.begin && cut.begin < size.end)
        };
        (0..self.changes.len()).filter(|number| stands(*number)).map(|number| self.changes[number].size()).max().unwrap_or(0)
    }

    /// The size is at most the largest that any change can have made, cut by every truncation that
    /// came after it for sure.
    fn size_at_most(&self, size: &Size) -> u64 {
        let begun = self.changes.iter().filter(|change| change.begin < size.end);
        let reached = begun.map(|change| {
            let cuts = self.changes.iter().filter(|cut| cut.is_cut() && change.end < cut.begin && cut.end < size.begin);
            cuts.map(Change::size).min().unwrap_or(u64::MAX).min(change.size())
        });
        reached.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Seen, Time};
    use weft_base::Status;

    const FILE: Handle = Handle(7);

    fn write(offset: u64, len: u64, tag: u8) -> (Action, Outcome) {
        (Action::Write { handle: FILE, offset, len, tag }, Outcome::Done(Answer::Nothing))
    }
    fn lost_write(offset: u64, len: u64, tag: u8) -> (Action, Outcome) {
        (Action::Write { handle: FILE, offset, len, tag }, Outcome::Unknown(Status::TimedOut))
    }
    fn read(len: u64, data: &[u8]) -> (Action, Outcome) {
        (Action::Read { handle: FILE, offset: 0, len }, Outcome::Done(Answer::Data(data.to_vec())))
    }
    fn cut(size: u64) -> (Action, Outcome) {
        (Action::SetSize { handle: FILE, size }, Outcome::Done(Answer::Nothing))
    }
    fn size(size: u64) -> (Action, Outcome) {
        let seen = Seen { handle: FILE, kind: FileKind::File, mode: 0, nlink: 1, size, mtime: Time::Set(0) };
        (Action::GetAttr { handle: FILE, held: false }, Outcome::Done(Answer::Attr(seen)))
    }

    /// Operations one after another.
    fn serial(operations: &[(Action, Outcome)]) -> Result<(), String> {
        let mut history = History::new();
        for (action, outcome) in operations {
            let number = history.begin(0, action.clone(), Nanos(0));
            history.end(number, outcome.clone(), Nanos(0));
        }
        check(&history, None, &[])
    }

    #[test]
    fn the_last_write_is_read() {
        assert_eq!(serial(&[write(0, 4, 1), write(2, 4, 2), read(9, &[1, 1, 2, 2, 2, 2])]), Ok(()));
        assert!(serial(&[write(0, 4, 1), write(2, 4, 2), read(9, &[1, 1, 1, 2, 2, 2])]).is_err());
        assert!(serial(&[write(0, 4, 1), read(9, &[1, 1])]).is_err(), "cut short");
        assert!(serial(&[write(0, 4, 1), read(9, &[1, 1, 1, 1, 9])]).is_err(), "nobody wrote that");
        assert_eq!(serial(&[write(2, 2, 1), read(9, &[0, 0, 1, 1])]), Ok(()));
    }

    #[test]
    fn a_lost_write_may_come_late_but_not_go_again() {
        assert_eq!(serial(&[lost_write(0, 2, 1), read(2, &[]), read(2, &[1, 0]), read(2, &[1, 1])]), Ok(()));
        assert!(serial(&[lost_write(0, 2, 1), read(2, &[1, 1]), read(2, &[])]).is_err());
        assert!(serial(&[write(0, 1, 1), lost_write(0, 1, 2), read(1, &[2]), read(1, &[1])]).is_err());
    }

    #[test]
    fn what_was_cut_stays_cut() {
        assert_eq!(serial(&[write(0, 4, 1), cut(2), cut(4), read(9, &[1, 1, 0, 0]), size(4)]), Ok(()));
        assert!(serial(&[write(0, 4, 1), cut(2), cut(4), read(9, &[1, 1, 1, 1])]).is_err());
        assert!(serial(&[write(0, 4, 1), cut(2), size(4)]).is_err());
        assert!(serial(&[write(0, 4, 1), size(3)]).is_err());
        assert_eq!(serial(&[cut(2), lost_write(0, 4, 1), size(2), size(4)]), Ok(()));
    }

    #[test]
    fn a_content_is_there_as_a_whole() {
        let put = |handle, len, tag, at_once| (Action::Content { handle, len, tag, at_once }, Outcome::Done(Answer::Nothing));
        let new = || put(FILE, 2, 2, true);
        assert_eq!(serial(&[write(0, 4, 1), new(), read(9, &[2, 2]), size(2)]), Ok(()));
        for wrong in [&[2, 2, 1, 1][..], &[2, 1], &[2], &[0, 0], &[], &[2, 2, 0, 0]] {
            assert!(serial(&[write(0, 4, 1), new(), read(9, wrong)]).is_err(), "{wrong:?}");
        }
        let unknown = (put(Handle(0), 2, 2, true).0, Outcome::Unknown(Status::TimedOut));
        assert_eq!(serial(&[write(0, 4, 1), unknown.clone(), read(9, &[1, 1, 1, 1]), read(9, &[2, 2])]), Ok(()));
        assert!(serial(&[write(0, 4, 1), unknown, read(9, &[2, 2]), read(9, &[1, 1, 1, 1])]).is_err());
    }

    #[test]
    fn holes_are_zeros_and_keep_the_size() {
        let hole = |offset, len, how| (Action::Allocate { handle: FILE, offset, len, how }, Outcome::Done(Answer::Nothing));
        let punch = |offset, len| hole(offset, len, Fallocate::Punch);
        assert_eq!(serial(&[write(0, 4, 1), punch(1, 9), read(9, &[1, 0, 0, 0]), size(4)]), Ok(()));
        assert!(serial(&[write(0, 4, 1), punch(1, 2), read(9, &[1, 1, 0, 1])]).is_err(), "it is still there");
        assert!(serial(&[write(0, 4, 1), punch(1, 2), read(9, &[1, 0, 0, 0])]).is_err(), "too much is gone");
        assert!(serial(&[write(0, 4, 1), punch(1, 9), size(10)]).is_err());
        let (zero, reserve) = (Fallocate::Zero { keep_size: false }, Fallocate::Reserve { keep_size: false });
        assert_eq!(serial(&[write(0, 2, 1), hole(1, 3, zero), read(9, &[1, 0, 0, 0]), size(4)]), Ok(()));
        assert_eq!(serial(&[write(0, 2, 1), hole(1, 3, reserve), read(9, &[1, 1, 0, 0]), size(4)]), Ok(()));
        assert!(serial(&[write(0, 2, 1), hole(1, 3, reserve), size(2)]).is_err());
        assert_eq!(serial(&[write(0, 2, 1), hole(0, 2, Fallocate::Reserve { keep_size: true }), read(9, &[1, 1]), size(2)]), Ok(()));
    }

    #[test]
    fn a_power_cut_gives_back_older_bytes() {
        let mut history = History::new();
        for (action, outcome) in [write(0, 2, 1), write(0, 2, 2), read(2, &[2, 1])] {
            let number = history.begin(0, action, Nanos(0));
            history.end(number, outcome, Nanos(0));
        }
        assert!(check(&history, None, &[]).is_err());
        assert_eq!(check(&history, Some((3, 5)), &[]), Ok(()));
    }

    #[test]
    fn a_write_may_be_done_again_by_a_server_that_starts_meanwhile() {
        let judge = |starts: &[Nanos]| {
            let mut history = History::new();
            let repeated = history.begin(0, write(0, 2, 1).0, Nanos(10));
            for (at, (action, outcome)) in (11..).zip([read(2, &[1, 0]), write(0, 2, 2), read(2, &[1, 1])]) {
                let number = history.begin(1, action, Nanos(at));
                history.end(number, outcome, Nanos(at));
            }
            history.end(repeated, Outcome::Done(Answer::Nothing), Nanos(20));
            check(&history, None, starts)
        };
        assert!(judge(&[]).is_err() && judge(&[Nanos(9), Nanos(21)]).is_err());
        assert_eq!(judge(&[Nanos(15)]), Ok(()));
    }
}
