//! How long the threads of this process were ready to run and had to wait for a processor: the
//! kernel counts it for each of them. Looked at by the thread that writes traces, so it costs those
//! that record nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// How often it is looked at.
const INTERVAL: Duration = Duration::from_millis(50);
/// After so many looks the threads are counted again.
const LOOKS_PER_LISTING: u32 = 10;

/// Reads `schedstat` of every thread.
#[derive(Debug, Default)]
pub struct Processor {
    threads: BTreeMap<i32, Thread>,
    looks: u32,
    last: Option<Instant>,
    waited_ns: u64,
    ran_ns: u64,
}

#[derive(Debug)]
struct Thread {
    file: File,
    ran_ns: u64,
    waited_ns: u64,
}

impl Processor {
    /// The gauges of `load.processor`, if it is time for them and the kernel counts.
    pub fn look(&mut self) -> Option<[u64; 5]> {
        let now = Instant::now();
        let passed = self.last.map(|last| now - last);
        if passed.is_some_and(|passed| passed < INTERVAL) {
            return None;
        }
        if self.looks.is_multiple_of(LOOKS_PER_LISTING) {
            self.list(passed.is_none());
        }
        (self.looks, self.last) = (self.looks.wrapping_add(1), Some(now));
        let mut most_ns = 0;
        let (mut waited, mut ran) = (0, 0);
        self.threads.retain(|_, thread| {
            let Some((ran_ns, waited_ns)) = read(&thread.file) else { return false };
            let more = waited_ns.saturating_sub(thread.waited_ns);
            most_ns = more.max(most_ns);
            waited += more;
            ran += ran_ns.saturating_sub(thread.ran_ns);
            (thread.ran_ns, thread.waited_ns) = (ran_ns, waited_ns);
            true
        });
        (self.waited_ns, self.ran_ns) = (self.waited_ns + waited, self.ran_ns + ran);
        let interval_ns = passed?.as_nanos() as u64;
        // The kernel counts a wait when it is over.
        Some([self.waited_ns, self.ran_ns, self.threads.len() as u64, most_ns, interval_ns.max(most_ns)])
    }

    /// Opens the counters of new threads. What those had waited before the first look is of no
    /// recording.
    fn list(&mut self, is_first: bool) {
        let own = nix::unistd::gettid().as_raw();
        let Ok(entries) = std::fs::read_dir("/proc/self/task") else { return };
        for entry in entries.flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(number) = number.filter(|number| *number != own && !self.threads.contains_key(number)) else { continue };
            let Ok(file) = File::open(entry.path().join("schedstat")) else { continue };
            let (ran_ns, waited_ns) = if is_first { read(&file).unwrap_or_default() } else { (0, 0) };
            self.threads.insert(number, Thread { file, ran_ns, waited_ns });
        }
    }
}

/// Nanoseconds that a thread has run, and that it has waited.
fn read(file: &File) -> Option<(u64, u64)> {
    let mut bytes = [0; 96];
    let length = file.read_at(&mut bytes, 0).ok()?;
    let mut words = std::str::from_utf8(&bytes[..length]).ok()?.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_has_run_is_seen_and_intervals_are_kept() {
        let mut processor = Processor::default();
        assert_eq!(processor.look(), None, "nothing to compare with");
        if processor.threads.is_empty() {
            return; // A kernel that does not count.
        }
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = stop.clone();
        let busy = std::thread::spawn(move || while !seen.load(std::sync::atomic::Ordering::Relaxed) {});
        assert_eq!(processor.look(), None, "too early");
        // Threads are listed at every tenth look.
        let found = (0..200).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            processor.look().filter(|gauges| gauges[1] > 1_000_000)
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        busy.join().expect("no panic");
        let [.., threads, most_ns, interval_ns] = found.expect("a thread ran all the time");
        assert!(threads >= 1 && interval_ns >= most_ns && interval_ns >= INTERVAL.as_nanos() as u64);
    }
}
