//! What the kernel tells in files below `/proc`, line by line and field by field.

/// What stands behind `name:` in the first line that begins so.
pub fn line<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':').map(str::trim))
}

/// Bytes of a line of `/proc/meminfo`.
pub fn memory(meminfo: &str, name: &str) -> Option<u64> {
    line(meminfo, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
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
