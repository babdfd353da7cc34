//! Random operations on one file, byte by byte against a model: through one mount, through two, and
//! while servers are killed.
//!
//! `WEFT_FSX_SEED` and `WEFT_FSX_OPERATIONS` choose other runs.

use std::process::Command;
use std::time::Duration;

use weft_system_tests::{FileSystem, Need, available, fsx, run};

/// Names the file for a checker that runs as a process of its own.
const FILE: &str = "WEFT_FSX_FILE";
/// How long that process may take.
const PATIENCE: Duration = Duration::from_secs(300);

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} must be a number")))
}

fn settings(seed: u64, operations: u64) -> fsx::Settings {
    fsx::Settings::new(number("WEFT_FSX_SEED", seed), number("WEFT_FSX_OPERATIONS", operations))
}

#[test]
fn fsx_through_a_mount() {
    if !available("fsx_through_a_mount", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "3", "--stripe-size", "16KiB"]);
    let report = fsx::run(&[fs.mnt().join("fsx")], &settings(1, 40_000)).unwrap_or_else(|error| panic!("{error}"));
    eprintln!("{report:?}");
}

#[test]
fn fsx_over_two_mounts() {
    if !available("fsx_over_two_mounts", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "2", "--stripe-size", "64KiB", "-o", "cache_ms=0"]);
    let other = fs.mount("other", "cache_ms=0");
    let paths = [fs.mnt().join("fsx"), other.join("fsx")];
    fsx::run(&paths, &settings(2, 10_000)).unwrap_or_else(|error| panic!("{error}"));
}

/// Every server dies and comes back while the file is in use; nobody notices.
#[test]
fn fsx_while_servers_are_killed() {
    if !available("fsx_while_servers_are_killed", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "2", "--stripe-size", "16KiB"]);
    let path = fs.mnt().join("fsx");
    let worker = std::thread::spawn(move || {
        let test = std::env::current_exe().expect("a running program has a path");
        run(Command::new(test).args(["--exact", "fsx_of_another_process", "--ignored"]).env(FILE, path), PATIENCE)
    });
    for round in 0..8 {
        if worker.is_finished() {
            break;
        }
        std::thread::sleep(Duration::from_millis(300));
        fs.kill(["data0", "meta0", "data1"][round % 3]);
        fs.start(&[]);
    }
    let finished = worker.join().expect("waiting for a process does not panic");
    assert!(finished.is_success(), "{}", finished.words());
    assert!(finished.words().contains("1 passed"), "the other process has run something else: {}", finished.words());
}

/// The checker of the test above, in a process of its own. A thread that waits in a page fault for
/// a dead server holds the memory map of its process, and then no other thread of that process can
/// start the server again.
#[test]
#[ignore = "started by fsx_while_servers_are_killed, which names the file in WEFT_FSX_FILE"]
fn fsx_of_another_process() {
    let file = std::env::var_os(FILE).unwrap_or_else(|| panic!("{FILE} must name a file on a mount"));
    fsx::run(&[file.into()], &settings(3, 30_000)).unwrap_or_else(|error| panic!("{error}"));
}

/// Many seeds, each a file system of its own setting.
#[test]
#[ignore = "long: WEFT_FSX_SEEDS seeds (default 20) of WEFT_FSX_OPERATIONS operations each"]
fn fsx_many_seeds() {
    if !available("fsx_many_seeds", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::prepare_for(Duration::from_secs(24 * 3600));
    fs.start_mounted(&["--data", "4", "--stripe-size", "4KiB"]);
    let first = number("WEFT_FSX_SEED", 100);
    for seed in first..first + number("WEFT_FSX_SEEDS", 20) {
        let path = fs.mnt().join(format!("fsx-{seed}"));
        let settings =
            fsx::Settings { file_bytes_max: 1 << (14 + seed % 9), ..fsx::Settings::new(seed, number("WEFT_FSX_OPERATIONS", 20_000)) };
        fsx::run(&[path], &settings).unwrap_or_else(|error| panic!("{error}"));
    }
}
