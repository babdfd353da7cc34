//! The lines that a process writes for people: time, level, who, what, to the standard error
//! output. A process that lives long writes into a file that it keeps small by itself: when the
//! file is full it becomes `FILE.old`, in place of the one before.
//!
//! Nothing here ever fails: a full disk, or a reader who has gone, must not end a server or a
//! mount. Lines that could not be written are counted, and the next one that can be says how many
//! there were.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use weft_base::WallTime;

use crate::{clock, sys};

/// A file of this size is full.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Longest line; the rest of a longer one is cut.
const LINE_BYTES_MAX: usize = 8 << 10;
const SECONDS_OF_DAY: i64 = 86_400;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What happens as it should.
    Info,
    /// Something is wrong somewhere else, or only now.
    Warn,
    /// The process cannot do what it is there for.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Info => "INFO",
            Level::Warn => "WARN",
            Level::Error => "ERROR",
        })
    }
}

static LINES: Mutex<Lines> = Mutex::new(Lines { unwritten: 0, is_cut: false });
static FILE: OnceLock<PathBuf> = OnceLock::new();

/// Writes a line, if it can be written.
pub fn write_line(level: Level, who: &str, what: &str) {
    // A thread that panicked between two lines leaves nothing half done.
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = FILE.get() {
        // As long as it cannot be done, the file that is there is written.
        let _ = rotate(file, FILE_BYTES_MAX);
    }
    lines.write(clock::wall(), level, who, what, &mut io::stderr());
}

/// From now on this process keeps `file` small, into which its standard error output goes.
pub fn keep_log_small(file: &Path) {
    // Only the first call counts: a process has one log.
    let _ = FILE.set(file.to_path_buf());
}

/// True if [`keep_log_small`] was called: the lines of this process go to a file.
pub fn logs_to_file() -> bool {
    FILE.get().is_some()
}

/// Goes on in the file of the log's name, for whoever has moved the old one away. Without a file of
/// its own nothing happens.
///
/// # Errors
/// Of the file; the lines go where they went before.
pub fn reopen_log() -> io::Result<()> {
    let _lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    FILE.get().map_or(Ok(()), |file| begin(file))
}

/// Turns to a new file if the present one is full. If another process has moved it away, its name
/// is followed.
fn rotate(file: &Path, bytes_max: u64) -> io::Result<()> {
    let now = sys::stderr_file()?.metadata()?;
    if !now.is_file() || now.len() < bytes_max {
        return Ok(());
    }
    let is_ours = std::fs::metadata(file).is_ok_and(|named| (named.dev(), named.ino()) == (now.dev(), now.ino()));
    if is_ours {
        let mut old = file.as_os_str().to_owned();
        old.push(".old");
        std::fs::rename(file, old)?;
    }
    begin(file)
}

fn begin(file: &Path) -> io::Result<()> {
    let new: File = OpenOptions::new().append(true).create(true).mode(0o600).open(file)?;
    sys::replace_stderr(&new)
}

/// What is known about the lines before.
struct Lines {
    /// So many could not be written.
    unwritten: u64,
    /// The last one was written in part.
    is_cut: bool,
}

impl Lines {
    fn write(&mut self, at: WallTime, level: Level, who: &str, what: &str, out: &mut impl Write) {
        let mut text = String::new();
        if self.is_cut {
            text.push('\n');
        }
        if self.unwritten > 0 {
            text += &line(at, Level::Warn, who, &format!("{} lines before this one could not be written", self.unwritten));
        }
        text += &line(at, level, who, what);
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match out.write(rest) {
                Ok(0) => break,
                Ok(bytes) => rest = &rest[bytes..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.is_cut = if rest.len() == text.len() { self.is_cut } else { !rest.is_empty() };
        self.unwritten = if rest.is_empty() { 0 } else { self.unwritten + 1 };
    }
}

/// `2026-11-22T17:09:30.123Z WARN data0: what`, one line whatever `what` holds.
fn line(at: WallTime, level: Level, who: &str, what: &str) -> String {
    let (seconds, nanos) = at.parts();
    let (year, month, day) = date(seconds.div_euclid(SECONDS_OF_DAY));
    let of_day = seconds.rem_euclid(SECONDS_OF_DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z {level} {who}: ", nanos / 1_000_000);
    for (index, part) in what.split('\n').enumerate() {
        // What belongs together stays together, and what a peer sends cannot look like a line of
        // its own.
        text += if index > 0 { "\n    " } else { "" };
        text.extend(part.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }));
    }
    if text.len() > LINE_BYTES_MAX {
        let end = (0..=LINE_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text += " ...";
    }
    text.push('\n');
    text
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Counted in
/// years that begin in March, so that the day which some years have more is the last of its year.
fn date(day: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    // Days since 0000-03-01.
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(DAYS_OF_400_YEARS), day.rem_euclid(DAYS_OF_400_YEARS));
    let days_before = |year: i64| year * 365 + year / 4 - year / 100;
    let mut year = of_era / 366;
    while year < 399 && days_before(year + 1) <= of_era {
        year += 1;
    }
    let of_year = of_era - days_before(year);
    // Five months from March on have 153 days, and so have the next five.
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> String {
        line(WallTime::from_parts(seconds, 123_456_789), Level::Warn, "data0", "what")
    }

    #[test]
    fn a_line_has_time_level_and_name() {
        assert_eq!(at(0), "1970-01-01T00:00:00.123Z WARN data0: what\n");
        assert_eq!(at(1_795_367_370), "2026-11-22T17:09:30.123Z WARN data0: what\n");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.123Z WARN data0: what\n");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59.123Z WARN data0: what\n");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.123Z WARN data0: what\n");
        assert_eq!(at(-1), "1969-12-31T23:59:59.123Z WARN data0: what\n");
    }

    #[test]
    fn every_day_follows_the_day_before() {
        let mut before = date(-800_000);
        for day in -799_999..800_000 {
            let now = date(day);
            let (year, month, of_month) = before;
            let may_follow = now == (year, month, of_month + 1) || now == (year, month + 1, 1) || now == (year + 1, 1, 1);
            assert!(may_follow && (1..=31).contains(&now.2), "{before:?} {now:?}");
            before = now;
        }
    }

    #[test]
    fn a_line_is_one_line() {
        let text = line(WallTime(0), Level::Error, "meta0", "first\n2026-11-22 INFO forged\r\u{1b}[31m");
        assert_eq!(text, "1970-01-01T00:00:00.000Z ERROR meta0: first\n    2026-11-22 INFO forged\u{fffd}\u{fffd}[31m\n");
        let long = line(WallTime(0), Level::Info, "meta0", &"ä".repeat(LINE_BYTES_MAX));
        assert!(long.len() < LINE_BYTES_MAX + 10 && long.ends_with(" ...\n"));
    }

    /// A disk with room for so many bytes.
    struct Small(Vec<u8>, usize);

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fit = bytes.len().min(self.1 - self.0.len());
            self.0.extend_from_slice(&bytes[..fit]);
            if fit == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(fit) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_counted() {
        let mut lines = Lines { unwritten: 0, is_cut: false };
        let mut disk = Small(Vec::new(), 60);
        (0..4).for_each(|number| lines.write(WallTime(0), Level::Info, "data0", &format!("line {number}"), &mut disk));
        assert_eq!((lines.unwritten, lines.is_cut), (3, true));
        disk.1 = 1000;
        lines.write(WallTime(0), Level::Info, "data0", "space again", &mut disk);
        let text = String::from_utf8(disk.0).unwrap();
        let shown: Vec<&str> = text.lines().map(|line| line.get(25..).unwrap_or(line)).collect();
        assert_eq!(
            shown,
            [
                "INFO data0: line 0",
                "1970-01-01T00:00",
                "WARN data0: 3 lines before this one could not be written",
                "INFO data0: space again"
            ]
        );
        assert_eq!((lines.unwritten, lines.is_cut), (0, false));
    }
}
