//! Lines for people about connections, so few that a hostile peer cannot fill a disk with them.

use std::fmt;
use std::sync::Arc;

use weft_base::{Nanos, SECOND};

use crate::clock;
use crate::log_lines::{self, Level};

/// Lines in one interval.
const LINES_MAX: u32 = 20;
/// The interval in nanoseconds.
const INTERVAL_NS: u64 = 10 * SECOND;

/// Where a server writes lines for people.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(&str) + Send + Sync>);

impl Log {
    /// Calls `write` with each line, without a line end.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Log {
        Log(Arc::new(write))
    }

    /// To the standard error output, behind the time and `name`, as warnings.
    pub fn to_stderr(name: &str) -> Log {
        let name = name.to_string();
        Log::new(move |line| log_lines::write_line(Level::Warn, &name, line))
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

/// A log that leaves lines out when there are too many, and says so.
#[derive(Debug)]
pub struct LimitedLog {
    log: Log,
    since: Nanos,
    lines: u32,
    left_out: u32,
}

impl LimitedLog {
    /// Writes to `log`.
    pub fn new(log: Log) -> LimitedLog {
        LimitedLog { log, since: Nanos(0), lines: 0, left_out: 0 }
    }

    /// Writes a line, or counts it.
    pub fn line(&mut self, line: &str) {
        let now = clock::now();
        if now.since(self.since) >= INTERVAL_NS {
            if self.left_out > 0 {
                (self.log.0)(&format!("{} lines like the last ones were left out", self.left_out));
            }
            (self.since, self.lines, self.left_out) = (now, 0, 0);
        }
        if self.lines < LINES_MAX {
            self.lines += 1;
            (self.log.0)(line);
        } else {
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_flood_is_cut() {
        let lines = Arc::new(Mutex::new(0));
        let count = lines.clone();
        let mut log = LimitedLog::new(Log::new(move |_| *count.lock().expect("not poisoned") += 1));
        (0..1000).for_each(|_| log.line("again"));
        assert_eq!(*lines.lock().expect("not poisoned"), LINES_MAX);
        assert_eq!(log.left_out, 1000 - LINES_MAX);
    }
}
