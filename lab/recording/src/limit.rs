//! How long the kernel kept this process from running because a control group that it is in may
//! have a part of the processors only: a container, a unit or a job with a limit.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// After so many looks it is asked in which control groups the process is.
const LOOKS_PER_LISTING: u32 = 10;

/// Reads `cpu.stat` of the control groups of this process that are limited.
#[derive(Debug, Default)]
pub struct Limit {
    groups: Vec<Group>,
    looks: u32,
    stopped_ns: u64,
}

#[derive(Debug)]
struct Group {
    folder: PathBuf,
    stat: File,
    stopped_ns: u64,
    /// It may run so long in each period, in microseconds.
    quota_us: u64,
    period_us: u64,
}

impl Limit {
    /// The gauges of `load.limit`, `interval_ns` after the last look; `None`: nothing limits.
    pub fn look(&mut self, interval_ns: u64) -> Option<[u64; 5]> {
        if self.looks.is_multiple_of(LOOKS_PER_LISTING) {
            self.list(Path::new("/sys/fs/cgroup"), &std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
        }
        self.looks = self.looks.wrapping_add(1);
        let more = |group: &mut Group| {
            let stopped_ns = stopped_ns(&group.stat)?;
            let more = stopped_ns.saturating_sub(group.stopped_ns);
            group.stopped_ns = stopped_ns;
            Some((more.min(interval_ns), group.quota_us, group.period_us))
        };
        // Whoever is stopped by one of them is stopped.
        let (last_ns, quota_us, period_us) = self.groups.iter_mut().filter_map(more).max_by_key(|(more, ..)| *more)?;
        self.stopped_ns += last_ns;
        Some([self.stopped_ns, last_ns, interval_ns, quota_us, period_us])
    }

    /// Finds the groups that are limited, among those of `/proc/self/cgroup`.
    fn list(&mut self, root: &Path, memberships: &str) {
        let mut before = std::mem::take(&mut self.groups);
        for line in memberships.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
            let mount = match controllers {
                "" => root.to_path_buf(),
                _ if controllers.split(',').any(|one| one == "cpu") => root.join("cpu"),
                _ => continue,
            };
            let folder = mount.join(path.trim_start_matches('/'));
            for folder in folder.ancestors().take_while(|folder| folder.starts_with(&mount)) {
                let Some((quota_us, period_us)) = limit_of(folder) else { continue };
                let known = before.iter().position(|group| group.folder == folder);
                match known.map(|at| before.swap_remove(at)) {
                    Some(group) => self.groups.push(Group { quota_us, period_us, ..group }),
                    None => self.groups.extend(Group::open(folder, quota_us, period_us)),
                }
            }
        }
    }
}

impl Group {
    fn open(folder: &Path, quota_us: u64, period_us: u64) -> Option<Group> {
        let stat = File::open(folder.join("cpu.stat")).ok()?;
        let stopped_ns = stopped_ns(&stat)?;
        Some(Group { folder: folder.into(), stat, stopped_ns, quota_us, period_us })
    }
}

/// The quota of a control group and its period, in microseconds; `None`: it has no limit.
fn limit_of(folder: &Path) -> Option<(u64, u64)> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    if let Some(text) = read("cpu.max") {
        let mut words = text.split_whitespace();
        return Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?));
    }
    // Version 1; -1 is no limit.
    Some((read("cpu.cfs_quota_us")?.trim().parse().ok()?, read("cpu.cfs_period_us")?.trim().parse().ok()?))
}

/// Nanoseconds for which it was kept from running.
fn stopped_ns(stat: &File) -> Option<u64> {
    let mut bytes = [0; 1024];
    let length = stat.read_at(&mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..length]).ok()?.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", number) => number.trim().parse::<u64>().ok()?.checked_mul(1000),
        ("throttled_time", number) => number.trim().parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(folder: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(folder).expect("a folder");
        files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).expect("a file"));
    }

    #[test]
    fn the_group_that_stops_most_is_told_in_both_versions() {
        let root = tempfile::tempdir().expect("a folder");
        group(&root.path().join("job"), &[("cpu.max", "20000 100000\n"), ("cpu.stat", "usage_usec 5\nthrottled_usec 7\n")]);
        group(&root.path().join("job/step"), &[("cpu.max", "max 100000\n"), ("cpu.stat", "throttled_usec 9\n")]);
        let v1 = [("cpu.cfs_quota_us", "5000"), ("cpu.cfs_period_us", "100000"), ("cpu.stat", "nr_throttled 1\nthrottled_time 500\n")];
        group(&root.path().join("cpu/old"), &v1);
        let mut limit = Limit { looks: 1, ..Limit::default() };
        limit.list(root.path(), "4:cpuset:/x\n2:cpu,cpuacct:/old\n0::/job/step\n");
        assert_eq!(limit.groups.len(), 2, "one that has no limit is not looked at: {limit:?}");
        assert_eq!(limit.look(50_000_000), Some([0, 0, 50_000_000, 20_000, 100_000]));
        std::fs::write(root.path().join("job/cpu.stat"), "usage_usec 5\nthrottled_usec 3007\n").expect("a file");
        std::fs::write(root.path().join("cpu/old/cpu.stat"), "throttled_time 40000500").expect("a file");
        assert_eq!(limit.look(50_000_000), Some([40_000_000, 40_000_000, 50_000_000, 5_000, 100_000]));
        limit.list(root.path(), "0::/job\n");
        assert_eq!(limit.look(50_000_000), Some([40_000_000, 0, 50_000_000, 20_000, 100_000]), "it has left the other");
        limit.list(root.path(), "0::/\n");
        assert_eq!(limit.look(50_000_000), None);
    }
}
