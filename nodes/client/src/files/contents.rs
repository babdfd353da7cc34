//! Contents of small files that were read together with a file of the same directory, and how many
//! are read so; and when a directory is listed for those who ask for its names one by one.
//!
//! A program that reads some files of a directory mostly goes on to others, in some order. So from
//! the third file on that is read by a message of its own, that message reads others, too. A file
//! that comes along costs about a thirtieth of a message, so reading [`FEW`] of them in vain for
//! each message at most doubles what reading costs, and a directory is read with a thirtieth of the
//! messages even if its files are wanted in random order. Where most of them are wanted at once,
//! more come along.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use weft_base::{FastMap, Handle};

use crate::knowledge::TellingId;

/// Longer files are read alone.
pub(super) const FILE_BYTES_MAX: u64 = 128 << 10;
/// Bytes that one read asks for together.
pub(super) const TOGETHER_BYTES_MAX: u64 = 2 << 20;
/// So many files of a directory are read alone first.
const ALONE: u32 = 2;
/// And so many where a server does not answer.
const PAUSE: u32 = 100;
/// After so many names that were looked up, or files whose attributes were asked for, a page of the
/// listing is asked for: as many as cost about as much.
const LOOKUPS: u32 = 8;
/// And after so many of a directory of a few names, and one more for so many further ones.
const LOOKUPS_FEW: u32 = 2;
const NAMES_OF_A_LOOKUP: u64 = 32;
/// Pages that are listed for those who look names up. Who goes through a larger directory in random
/// order would have most of it forgotten again.
const PAGES_MAX: u32 = 64;
/// With so many files that were not here a directory is listed again.
const MISSED: u32 = 100;
/// Files that are read together, at first and at most.
const FEW: usize = 32;
const MANY: usize = 256;
/// So many more files may have been read in vain in a directory than were of use.
const IN_VAIN_MAX: u64 = 256;
/// Bytes kept in all.
const BYTES_MAX: usize = 32 << 20;
/// Bytes that one takes without its content.
const MARK_BYTES: usize = 100;
/// Directories that are counted; when there are more, all are forgotten.
const DIRECTORIES_MAX: usize = 4096;

/// What was read, and what for.
#[derive(Debug, Default)]
pub(crate) struct Contents(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    files: FastMap<Handle, Kept>,
    /// In the order in which they came; some are not kept any more.
    order: VecDeque<(Handle, u64)>,
    /// How many have come.
    came: u64,
    bytes: usize,
    directories: FastMap<Handle, Reading>,
}

#[derive(Debug)]
struct Kept {
    /// The content is that of the file since then, as long as what was told of it goes on to hold.
    since: TellingId,
    /// `None`: it was read alone, and is not read with others again.
    data: Option<Bytes>,
    dir: Handle,
    came: u64,
    is_used: bool,
}

/// How the files of a directory are read.
#[derive(Debug)]
struct Reading {
    /// So many files are read alone before more are read together.
    alone: u32,
    /// Files that the last read together asked for, and how many of all have been of use since.
    together: usize,
    used_since: usize,
    used: u64,
    in_vain: u64,
    /// So many names are looked up before more are listed, and how often that was.
    lookups: u32,
    pages: u32,
    /// The listing goes on behind this cookie; `None`: all is listed.
    listed: Option<u64>,
    /// Files that were not here when they were read, since all is listed.
    missed: u32,
}

impl Default for Reading {
    fn default() -> Reading {
        Reading { alone: ALONE, together: FEW, used_since: 0, used: 0, in_vain: 0, lookups: LOOKUPS, pages: 0, listed: Some(0), missed: 0 }
    }
}

impl Contents {
    /// The content of a file, if it is that since this telling.
    pub(super) fn get(&self, file: Handle, since: TellingId) -> Option<Bytes> {
        let mut inner = self.lock();
        let kept = inner.files.get_mut(&file).filter(|kept| kept.since == since)?;
        let (data, dir, is_first) = (kept.data.clone()?, kept.dir, !kept.is_used);
        kept.is_used = true;
        if is_first {
            let reading = inner.reading(dir);
            reading.used += 1;
            reading.used_since += 1;
        }
        Some(data)
    }

    /// True if [`Contents::get`] would give it, or it was read alone.
    pub(super) fn was_read(&self, file: Handle, since: TellingId) -> bool {
        self.lock().files.get(&file).is_some_and(|kept| kept.since == since)
    }

    /// A file of this directory is read, and its content is not here: how many files to read
    /// together, with it.
    pub(super) fn wanted(&self, dir: Handle) -> usize {
        let mut inner = self.lock();
        let reading = inner.reading(dir);
        if reading.alone > 0 || reading.in_vain > reading.used + IN_VAIN_MAX {
            reading.alone = reading.alone.saturating_sub(1);
            return 1;
        }
        if reading.used_since * 2 > reading.together {
            reading.together = (reading.together * 2).min(MANY);
        }
        reading.used_since = 0;
        reading.missed += 1;
        if reading.listed.is_none() && reading.missed > MISSED {
            // What was told has been forgotten.
            (reading.listed, reading.missed) = (Some(0), 0);
        }
        reading.together
    }

    /// Some files of this directory cannot be had soon, or nothing is told of them under leases
    /// because others change it often: for a while each is read, and each name looked up, alone.
    pub(super) fn pause(&self, dir: Handle) {
        let mut inner = self.lock();
        let reading = inner.reading(dir);
        (reading.alone, reading.lookups) = (PAUSE, PAUSE);
    }

    /// A name in this directory, which has so many as far as is known, was looked up, or a file of
    /// it was asked for. True if more names shall be listed.
    pub(super) fn looked_up(&self, dir: Handle, names: Option<u64>) -> bool {
        let enough = names.map_or(LOOKUPS, |names| (LOOKUPS_FEW as u64 + names / NAMES_OF_A_LOOKUP).min(LOOKUPS.into()) as u32);
        let mut inner = self.lock();
        let reading = inner.reading(dir);
        reading.lookups = reading.lookups.saturating_sub(1);
        if reading.lookups + enough > LOOKUPS {
            return false;
        }
        (reading.lookups, reading.pages) = (LOOKUPS, reading.pages.saturating_add(1));
        reading.listed.is_some() && reading.pages <= PAGES_MAX
    }

    /// Behind which cookie a listing would tell more files of it; `None`: it was listed to its end.
    pub(super) fn listed(&self, dir: Handle) -> Option<u64> {
        self.lock().reading(dir).listed
    }

    /// A page behind this cookie was listed, with what is told under leases of its files: up to
    /// that cookie, or to the end.
    pub(crate) fn note_listed(&self, dir: Handle, behind: u64, until: Option<u64>) {
        let mut inner = self.lock();
        let reading = inner.reading(dir);
        if reading.listed == Some(behind) {
            (reading.listed, reading.missed) = (until, 0);
        }
    }

    /// Keeps a content that was read while what was told of the file then went on to hold.
    pub(super) fn keep(&self, dir: Handle, file: Handle, since: TellingId, data: Bytes) {
        self.lock().keep(dir, file, since, Some(data));
    }

    /// A file is read alone.
    pub(super) fn read_alone(&self, dir: Handle, file: Handle, since: TellingId) {
        self.lock().keep(dir, file, since, None);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

impl Inner {
    fn keep(&mut self, dir: Handle, file: Handle, since: TellingId, data: Option<Bytes>) {
        self.remove(file);
        self.came += 1;
        let came = self.came;
        self.bytes += bytes_of(&data);
        self.order.push_back((file, came));
        let is_used = data.is_none();
        self.files.insert(file, Kept { since, data, dir, came, is_used });
        while self.bytes > BYTES_MAX || self.order.len() > 2 * self.files.len() + 64 {
            let Some((oldest, came)) = self.order.pop_front() else { return };
            if self.files.get(&oldest).is_some_and(|kept| kept.came == came) {
                self.remove(oldest);
            }
        }
    }

    fn reading(&mut self, dir: Handle) -> &mut Reading {
        if self.directories.len() >= DIRECTORIES_MAX && !self.directories.contains_key(&dir) {
            self.directories.clear();
        }
        self.directories.entry(dir).or_default()
    }

    fn remove(&mut self, file: Handle) {
        let Some(gone) = self.files.remove(&file) else { return };
        self.bytes -= bytes_of(&gone.data);
        if !gone.is_used {
            let reading = self.reading(gone.dir);
            reading.in_vain = reading.in_vain.saturating_add(1);
        }
    }
}

/// Bytes that it counts for.
fn bytes_of(data: &Option<Bytes>) -> usize {
    MARK_BYTES + data.as_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Handle = Handle(1);

    fn told(at: u64) -> TellingId {
        TellingId(at)
    }

    fn keep(contents: &Contents, file: u64, at: u64, bytes: usize) {
        contents.keep(DIR, Handle(file), told(at), vec![at as u8; bytes].into());
    }

    #[test]
    fn more_files_come_along_where_they_are_of_use() {
        let contents = Contents::default();
        assert_eq!([(); 3].map(|()| contents.wanted(DIR)), [1, 1, FEW]);
        // In random order few of them are wanted at once, and none is in vain yet.
        assert_eq!([(); 40].map(|()| contents.wanted(DIR)), [FEW; 40]);
        for (file, wanted) in (100..).zip([FEW * 2, FEW * 4, MANY, MANY]) {
            let (first, last) = (file * 1000, file * 1000 + wanted as u64);
            (first..last).for_each(|file| keep(&contents, file, 5, 10));
            (first..last).for_each(|file| assert!(contents.get(Handle(file), told(5)).is_some()));
            assert_eq!(contents.wanted(DIR), wanted);
        }
        assert_eq!(contents.wanted(Handle(2)), 1, "another directory");
    }

    #[test]
    fn reading_in_vain_ends() {
        let contents = Contents::default();
        let mut read = 0;
        for _ in 0..200 {
            for _ in 1..contents.wanted(DIR) {
                read += 1;
                keep(&contents, read, 5, FILE_BYTES_MAX as usize);
            }
        }
        let kept = BYTES_MAX as u64 / FILE_BYTES_MAX;
        assert!((kept + IN_VAIN_MAX..kept + IN_VAIN_MAX + 2 * FEW as u64).contains(&read), "{read} files, of which none was wanted");
    }

    #[test]
    fn files_are_read_alone_where_a_server_does_not_answer() {
        let contents = Contents::default();
        contents.pause(DIR);
        assert!((0..PAUSE).all(|_| contents.wanted(DIR) == 1));
        assert_eq!(contents.wanted(DIR), FEW);
    }

    #[test]
    fn who_looks_many_names_up_has_them_listed() {
        let contents = Contents::default();
        let lists = |lookups: u32| (0..lookups).filter(|_| contents.looked_up(DIR, None)).count();
        assert_eq!((lists(LOOKUPS - 1), lists(1), lists(LOOKUPS)), (0, 1, 1));
        contents.pause(DIR);
        assert_eq!((lists(PAUSE - 1), lists(1)), (0, 1));
        contents.note_listed(DIR, 0, None);
        assert_eq!(lists(10 * LOOKUPS), 0, "all are known");
        contents.note_listed(Handle(2), 5, None);
        assert_eq!((0..LOOKUPS * PAGES_MAX * 2).filter(|_| contents.looked_up(Handle(2), None)).count(), PAGES_MAX as usize);
        // The fewer there are the sooner.
        for (dir, names, lookups) in [(3, 1, 2), (4, 70, 4), (5, 1 << 40, LOOKUPS)] {
            let asks = |lookups: u32| (0..lookups).filter(|_| contents.looked_up(Handle(dir), Some(names))).count();
            assert_eq!((asks(lookups - 1), asks(1)), (0, 1), "{names}");
        }
    }

    #[test]
    fn a_content_is_that_of_what_was_told() {
        let contents = Contents::default();
        keep(&contents, 7, 5, 3);
        assert_eq!(contents.get(Handle(7), told(6)), None);
        assert_eq!(contents.get(Handle(7), told(5)), Some(Bytes::from_static(&[5; 3])));
        keep(&contents, 7, 6, 3);
        assert_eq!(contents.get(Handle(7), told(5)), None);
        assert!(contents.was_read(Handle(7), told(6)));
    }

    #[test]
    fn the_oldest_make_room() {
        let contents = Contents::default();
        const FULL: usize = (1 << 16) - MARK_BYTES;
        let files = (BYTES_MAX >> 16) as u64;
        (0..files + 10).for_each(|file| keep(&contents, file, 5, FULL));
        assert!(
            !contents.was_read(Handle(9), told(5))
                && contents.was_read(Handle(10), told(5))
                && contents.was_read(Handle(files + 9), told(5))
        );
        (0..100_000).for_each(|at| keep(&contents, 10, at, FULL));
        let inner = contents.lock();
        assert!(inner.order.len() <= 2 * inner.files.len() + 64 && inner.bytes <= BYTES_MAX, "{} remembered", inner.order.len());
    }
}
