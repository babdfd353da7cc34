//! Whose close it is. The kernel says each time that a descriptor is closed, also those that a
//! child process got with `fork` and closes with `exec`. What was written to a new file may still
//! be here (`weft_posix::Posix::before_close`); the program that wrote it waits for it when it
//! closes the file, and its children do not: a silent data server would hold up `exec`.

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weft_base::FastMap;

/// Who wrote last to each open file of which something may still be here, or has made it.
#[derive(Debug, Default)]
pub struct Writers {
    /// Threads by the number of the open file, as the kernel names them to this mount.
    threads: Mutex<FastMap<u64, u32>>,
}

impl Writers {
    /// A thread has written to the open file, or made it.
    pub fn wrote(&self, file: u64, thread: u32) {
        self.threads().insert(file, thread);
    }

    /// The open file is given back.
    pub fn forget(&self, file: u64) {
        self.threads().remove(&file);
    }

    /// True if a thread that closes a descriptor of the open file is of another process than the
    /// thread that wrote to it last, and that one is still there: it will close its own.
    pub fn waits_for_another(&self, file: u64, closer: u32) -> bool {
        let writer = self.threads().get(&file).copied();
        writer.is_some_and(|writer| writer != closer && is_of_another_process(writer, closer))
    }

    fn threads(&self) -> MutexGuard<'_, FastMap<u64, u32>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// False also if it is not known: 0 is a thread that this mount cannot name.
fn is_of_another_process(thread: u32, other: u32) -> bool {
    let exists = |path: String| Path::new(&path).try_exists();
    let answer = || -> io::Result<bool> {
        // `/proc` may be of other process numbers than those of this mount.
        let is_ours = std::fs::read_link("/proc/self")?.as_os_str() == std::process::id().to_string().as_str();
        Ok(is_ours
            && exists(format!("/proc/{thread}/task"))?
            && exists(format!("/proc/{other}/task"))?
            && !exists(format!("/proc/{thread}/task/{other}"))?)
    };
    thread != 0 && other != 0 && answer().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_thread() -> u32 {
        // SAFETY: it has no conditions.
        u32::try_from(unsafe { libc::gettid() }).expect("threads have positive numbers")
    }

    #[test]
    fn only_a_process_that_did_not_write_waits_for_nobody() {
        let writers = Writers::default();
        let (child, gone) = (std::process::id(), 0x3fff_ffff);
        let mut program = std::process::Command::new("sleep").arg("100").spawn().expect("a child");
        writers.wrote(1, own_thread());
        assert!(!writers.waits_for_another(1, own_thread()), "its own close");
        assert!(!writers.waits_for_another(1, child), "another thread of its process");
        assert!(!writers.waits_for_another(2, program.id()), "nothing was written");
        assert!(!writers.waits_for_another(1, 0), "nobody knows who closes");
        assert!(writers.waits_for_another(1, program.id()));
        // Who wrote last counts, as long as it is there.
        writers.wrote(1, program.id());
        assert!(!writers.waits_for_another(1, program.id()));
        assert!(writers.waits_for_another(1, own_thread()));
        writers.wrote(1, gone);
        assert!(!writers.waits_for_another(1, own_thread()), "the writer has ended");
        writers.forget(1);
        assert!(!writers.waits_for_another(1, own_thread()));
        program.kill().and_then(|()| program.wait()).expect("it was there");
    }
}
