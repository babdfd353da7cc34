//! What the machine does beside this process: processors, memory, network cards and disks, as the
//! kernel counts them. Looked at by the thread that writes traces.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use weft_host::proc;

/// How often it is looked at: each look reads four files of the kernel.
const INTERVAL: Duration = Duration::from_millis(250);
/// Bytes of such a file that are read: its first lines are those of all processors together.
const BYTES_MAX: usize = 1 << 16;
/// Bytes of a sector in `/proc/diskstats`, whatever the disk's are.
const SECTOR: u64 = 512;

/// Gauges of one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// Of `load.host`, if it can be compared with a look before: of the time since then.
    pub host: Option<[u64; 5]>,
    /// Of `load.memory`.
    pub memory: [u64; 5],
    /// Of `load.devices`: since the first look.
    pub devices: [u64; 5],
}

/// Reads what the kernel counts for the whole machine.
#[derive(Debug, Default)]
pub struct Host {
    files: Option<Files>,
    last: Option<Instant>,
    before: Option<Processors>,
    disks: Vec<String>,
    /// What devices had done at the first look.
    first: Option<[u64; 4]>,
}

#[derive(Debug)]
struct Files {
    stat: File,
    memory: File,
    network: File,
    disks: File,
}

impl Host {
    /// The gauges, if it is time for them and the kernel counts. Those of processors are of the
    /// time since the look before.
    pub fn look(&mut self) -> Option<Gauges> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last < INTERVAL) {
            return None;
        }
        if self.last.is_none() {
            self.files = Files::open();
            self.disks = disks(Path::new("/sys/block"));
        }
        self.last = Some(now);
        let files = self.files.as_ref()?;
        let processors = Processors::of(&text(&files.stat)?)?;
        let before = self.before.replace(processors);
        let [received, sent] = network(&text(&files.network)?);
        let [read, written] = on_disks(&text(&files.disks)?, &self.disks);
        let devices = [received, sent, read, written];
        let first = *self.first.get_or_insert(devices);
        Some(Gauges {
            host: before.map(|before| processors.since(before)),
            memory: memory(&text(&files.memory)?)?,
            devices: std::array::from_fn(|which| devices.get(which).map_or(0, |now| now.saturating_sub(first[which]))),
        })
    }
}

impl Files {
    fn open() -> Option<Files> {
        let open = |name: &str| File::open(Path::new("/proc").join(name)).ok();
        Some(Files { stat: open("stat")?, memory: open("meminfo")?, network: open("net/dev")?, disks: open("diskstats")? })
    }
}

fn text(file: &File) -> Option<String> {
    let mut bytes = vec![0; BYTES_MAX];
    let length = file.read_at(&mut bytes, 0).ok()?;
    bytes.truncate(length);
    String::from_utf8(bytes).ok()
}

/// What all processors together did since the machine started, in ticks of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Processors {
    busy: u64,
    waiting: u64,
    stolen: u64,
    all: u64,
    /// Threads that run or could.
    runnable: u64,
    count: u64,
}

impl Processors {
    /// The first line of `/proc/stat` (user, nice, system, idle, iowait, irq, softirq, steal; times
    /// of guests are in those of users), and that of runnable threads.
    fn of(stat: &str) -> Option<Processors> {
        let first = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = first.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, waiting, irq, soft, stolen] = *ticks.first_chunk::<8>()?;
        let busy = [user, nice, system, irq, soft].iter().fold(0, |sum: u64, ticks| sum.saturating_add(*ticks));
        let all = [idle, waiting, stolen].iter().fold(busy, |sum, ticks| sum.saturating_add(*ticks));
        let runnable = stat.lines().find_map(|line| line.strip_prefix("procs_running ")?.trim().parse().ok()).unwrap_or(0);
        let count = stat.lines().filter(|line| line.starts_with("cpu")).count().saturating_sub(1);
        Some(Processors { busy, waiting, stolen, all, runnable, count: count as u64 })
    }

    fn since(self, before: Processors) -> [u64; 5] {
        let all = self.all.saturating_sub(before.all).max(1);
        // The kernel may count idle and waiting time backwards a little.
        let percent = |now: u64, before: u64| (now.saturating_sub(before).saturating_mul(100).saturating_add(all / 2) / all).min(100);
        let waiting = percent(self.waiting, before.waiting);
        [percent(self.busy, before.busy), waiting, percent(self.stolen, before.stolen), self.runnable, self.count]
    }
}

/// Bytes that programs use, that files have in memory, that are not on disk yet, that are swapped
/// out, and that there are.
fn memory(meminfo: &str) -> Option<[u64; 5]> {
    let bytes = |name: &str| proc::memory(meminfo, name);
    let total = bytes("MemTotal")?;
    let used = total.saturating_sub(bytes("MemAvailable")?);
    let swapped = bytes("SwapTotal").unwrap_or(0).saturating_sub(bytes("SwapFree").unwrap_or(0));
    Some([used, bytes("Cached").unwrap_or(0), bytes("Dirty").unwrap_or(0), swapped, total])
}

/// Bytes received and sent by all network cards of this process's network; what stays on the
/// machine is not counted.
fn network(dev: &str) -> [u64; 2] {
    let mut sums = [0_u64; 2];
    for line in dev.lines() {
        let Some((name, counts)) = line.split_once(':') else { continue };
        let counts: Vec<u64> = counts.split_whitespace().map_while(|word| word.parse().ok()).collect();
        if let (true, [received, .., sent]) = (name.trim() != "lo", counts.get(..9).unwrap_or(&[])) {
            sums = [sums[0].saturating_add(*received), sums[1].saturating_add(*sent)];
        }
    }
    sums
}

/// Disks that are no part of others: not partitions, and not what is made of files, memory or other
/// disks.
fn disks(block: &Path) -> Vec<String> {
    let names = std::fs::read_dir(block).into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let made = ["loop", "ram", "zram", "dm-", "md", "nbd"];
    names.filter(|name| !made.iter().any(|begin| name.starts_with(begin))).collect()
}

/// Bytes read and written by these disks.
fn on_disks(diskstats: &str, disks: &[String]) -> [u64; 2] {
    let mut sums = [0_u64; 2];
    for line in diskstats.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some([_, _, name, _, _, read, _, _, _, written]) = words.first_chunk::<10>() else { continue };
        if disks.iter().any(|disk| disk == name) {
            let bytes = |sectors: &str| sectors.parse::<u64>().unwrap_or(0).saturating_mul(SECTOR);
            sums = [sums[0].saturating_add(bytes(read)), sums[1].saturating_add(bytes(written))];
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "cpu  100 10 40 800 30 5 5 10 7 0\ncpu0 50 5 20 400 15 3 2 5 3 0\ncpu1 50 5 20 400 15 2 3 5 4 0\nintr 5\nprocs_running 3\n";

    #[test]
    fn processors_are_shares_of_the_time_between_two_looks() {
        let before = Processors::of(STAT).expect("sound");
        let now = Processors::of(&STAT.replace("cpu  100 10 40 800 30", "cpu  150 10 60 810 50")).expect("sound");
        // 100 ticks: 70 busy, 20 waiting, 10 idle.
        assert_eq!(now.since(before), [70, 20, 0, 3, 2]);
        assert_eq!(before.since(now)[..3], [0, 0, 0], "the kernel may count backwards");
        assert_eq!(before.since(before), [0, 0, 0, 3, 2]);
        assert_eq!(Processors::of("cpu 1 2 3\n"), None);
        assert_eq!(Processors::of(""), None);
    }

    #[test]
    fn memory_cards_and_disks_are_bytes() {
        let info = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\nCached: 300 kB\nSwapTotal: 9 kB\nSwapFree: 4 kB\nDirty: 2 kB\n";
        assert_eq!(memory(info), Some([600 << 10, 300 << 10, 2 << 10, 5 << 10, 1000 << 10]));
        assert_eq!(memory("MemTotal: 1000 kB\n"), None);
        let dev = "Inter-| Receive | Transmit\n face |bytes\n    lo: 9 9 9 9 9 9 9 9 9 9 9\n  eth0: 100 1 0 0 0 0 0 0 200 2 0\n eth1:1 0 0 0 0 0 0 0 2 0\n";
        assert_eq!(network(dev), [101, 202]);
        let stats = " 254 0 vda 10 0 8 1 20 0 6 1 0 0 0\n 254 1 vda1 10 0 8 1 20 0 6 1 0 0 0\n 7 0 loop0 1 0 99 1 1 0 99 1\n";
        assert_eq!(on_disks(stats, &["vda".to_string()]), [8 * 512, 6 * 512]);
    }

    #[test]
    fn this_machine_is_seen() {
        let mut host = Host::default();
        let Some(first) = host.look() else { return }; // No such files here.
        assert_eq!((first.host, first.devices), (None, [0; 5]), "nothing to compare with");
        assert_eq!(host.look(), None, "too early");
        let [used, .., total] = first.memory;
        assert!(used > 0 && used <= total, "{first:?}");
        std::thread::sleep(INTERVAL);
        let [busy, waiting, stolen, _, count] = host.look().and_then(|gauges| gauges.host).expect("later");
        assert!(busy + waiting + stolen <= 101 && count >= 1);
    }
}
