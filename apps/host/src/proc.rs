//! What the kernel tells in files below `/proc`, line by line and field by field.

use std::path::Path;

/// What stands behind `name:` in the first line that begins so.
pub fn line<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':').map(str::trim))
}

/// Bytes of a line of `/proc/meminfo`.
pub fn memory(meminfo: &str, name: &str) -> Option<u64> {
    line(meminfo, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Most bytes of memory that the control groups of this process, which `own` names
/// (`/proc/self/cgroup`), allow it, by the files below `root`: schedulers of clusters give their
/// jobs memory so. `u64::MAX`: they set no limit.
pub fn memory_limit(own: &Path, root: &Path) -> u64 {
    let text = std::fs::read_to_string(own).unwrap_or_default();
    let limits = text.lines().filter_map(|line| {
        let (_, group) = line.split_once(':')?;
        let (root, file, group) = match group.split_once(":/")? {
            ("", group) => (root.to_path_buf(), "memory.max", group),
            ("memory", group) => (root.join("memory"), "memory.limit_in_bytes", group),
            _ => return None,
        };
        let folder = root.join(group);
        let number = |folder: &Path| std::fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
        folder.ancestors().take_while(|folder| folder.starts_with(&root)).filter_map(number).min()
    });
    limits.min().unwrap_or(u64::MAX)
}

/// A number of `/proc/PID/stat`, by its place there from 4 on: the second field is a name in
/// parentheses that may hold anything.
pub fn stat_field(stat: &str, place: usize) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(place - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let (own, job, step) = (root.path().join("own"), root.path().join("job"), root.path().join("job/step"));
        let old = root.path().join("memory/slurm");
        std::fs::create_dir_all(&step).unwrap();
        std::fs::create_dir_all(&old).unwrap();
        std::fs::write(&own, "4:memory:/slurm\n1:name=systemd:/other\n0::/job/step\n").unwrap();
        assert_eq!(memory_limit(&own, root.path()), u64::MAX);
        std::fs::write(job.join("memory.max"), "3000\n").unwrap();
        std::fs::write(step.join("memory.max"), "max\n").unwrap();
        assert_eq!(memory_limit(&own, root.path()), 3000);
        std::fs::write(old.join("memory.limit_in_bytes"), "2000\n").unwrap();
        assert_eq!(memory_limit(&own, root.path()), 2000);
        assert_eq!(memory_limit(&root.path().join("none"), root.path()), u64::MAX);
    }

    #[test]
    fn lines_and_fields_are_found() {
        let memory_info = "MemTotal:       16318480 kB\nMemFree:  1 kB\nHugePages:  7\n";
        assert_eq!((memory(memory_info, "MemTotal"), memory(memory_info, "MemFree")), (Some(16_318_480 << 10), Some(1024)));
        assert_eq!((memory(memory_info, "Mem"), memory(memory_info, "HugePages")), (None, None));
        assert_eq!(line("model name\t: A: processor\n", "model name"), Some("A: processor"));
        let stat = "42 (a) b) S 1 2 3 4 5 6 7 8 9 10 110 20 13 14";
        assert_eq!((stat_field(stat, 14), stat_field(stat, 15), stat_field(stat, 99)), (Some(110), Some(20), None));
        assert_eq!(stat_field("no process", 14), None);
    }
}
