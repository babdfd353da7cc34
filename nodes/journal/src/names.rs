//! Names of the files in a server's directory.

/// A journal segment by sequence number.
pub(crate) fn segment(sequence: u64) -> String {
    format!("journal.{sequence}")
}

/// An allocated file that waits to become a segment.
pub(crate) fn spare(number: u64) -> String {
    format!("spare.{number}")
}

/// A finished checkpoint by generation.
pub(crate) fn checkpoint(generation: u64) -> String {
    format!("checkpoint.{generation}")
}

/// The checkpoint that is being written.
pub(crate) const CHECKPOINT_UNFINISHED: &str = "checkpoint.new";

/// The numbers of all files `prefix.<number>` in `names`, ascending.
pub(crate) fn numbers(names: &[String], prefix: &str) -> Vec<u64> {
    let number = |name: &String| name.strip_prefix(prefix)?.strip_prefix('.')?.parse::<u64>().ok();
    let mut found: Vec<u64> = names.iter().filter_map(number).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_sorted_as_numbers() {
        let names = ["journal.10", "journal.9", "journal.x", "journalist.3", "checkpoint.4", "checkpoint.new"].map(String::from);
        assert_eq!(numbers(&names, "journal"), [9, 10]);
        assert_eq!(numbers(&names, "checkpoint"), [4]);
    }
}
