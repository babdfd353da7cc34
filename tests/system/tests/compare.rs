//! The script that compares mounted file systems, with a mount and a plain directory.

use std::path::Path;
use std::process::Command;

use weft_system_tests::{FileSystem, Need, available, fails, ok, weft};

fn script() -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/compare-mount.sh"));
    command.env("WEFT", weft().get_program()).envs([("FILES", "40"), ("MIB", "1"), ("TURNS", "2"), ("PAUSE", "0.1"), ("PROCESSES", "1 2")]);
    command.env_remove("MDTEST").env_remove("IOR");
    command
}

#[test]
fn file_systems_are_measured_in_turns_and_compared_by_pairs() {
    let test = "file_systems_are_measured_in_turns_and_compared_by_pairs";
    if !available(test, &[Need::Fuse, Need::Programs(&["bash", "python3", "awk", "chrt", "ps"])]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "1"]);
    let plain = fs.path("plain");
    std::fs::create_dir(&plain).unwrap();
    let results = fs.path("results.csv");
    let mut command = script();
    command.env("OUT", &results).args(["empty", "interleaved"]);
    command.arg(format!("weft={}", fs.mnt().display())).arg(format!("plain={}", plain.display()));
    let text = ok(&mut command);
    assert!(text.contains("| work | weft | plain | weft / plain, pairs |"), "{text}");
    for work in [
        "1 process: create",
        "2 processes: stat at once",
        "2 processes: stat after 0.1 s",
        "1 process: remove",
        "interleaved, 2 processes: write",
    ] {
        let row = text.lines().find(|line| line.contains(work)).unwrap_or_else(|| panic!("no {work} in\n{text}"));
        // Two rates and a ratio, each with its range.
        assert_eq!(row.matches('–').count(), 3, "{row}");
    }
    let lines = std::fs::read_to_string(results).unwrap();
    let order: Vec<&str> =
        lines.lines().filter(|line| line.contains("1 process: create")).filter_map(|line| line.split('"').nth(3)).collect();
    assert_eq!(order, ["weft", "plain", "weft", "plain"], "in turns");
    for place in [fs.mnt(), plain] {
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "{} is left as it was", place.display());
    }
    assert!(fails(script().arg("nonsense")).contains("NAME=DIR"));
    assert!(fails(script().arg("empty").arg("a=/no/such/place")).contains("/no/such/place is no directory"));
}
