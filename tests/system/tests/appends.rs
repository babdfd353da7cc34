//! Appends of two mounts to one file: all there, or refused.
//!
//! `WEFT_LINES` is the number of lines of each mount (300 by default).

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use weft_journal::Superblock;
use weft_system_tests::{FileSystem, Need, available};

fn lines() -> usize {
    std::env::var("WEFT_LINES").ok().and_then(|lines| lines.parse().ok()).unwrap_or(300)
}

const BUSY: Option<i32> = Some(16);

fn line(writer: usize, number: usize) -> String {
    format!("{writer} {number} {}\n", "x".repeat(number % 90))
}

/// One line, as `echo line >> file` does. False if it was refused.
fn append(path: &Path, text: &str) -> bool {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    match opened.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => true,
        Err(error) if error.raw_os_error() == BUSY => false,
        Err(error) => panic!("{error}"),
    }
}

fn check(path: &Path, expected: &BTreeSet<String>) {
    let text = fs::read_to_string(path).unwrap();
    let found: Vec<&str> = text.lines().collect();
    assert_eq!(found.len(), expected.len(), "lines");
    let unknown = found.iter().find(|line| !expected.contains(&format!("{line}\n")));
    assert_eq!(unknown, None);
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), expected.len(), "each once");
}

#[test]
fn promise_appends_are_kept_or_refused() {
    if available("promise_appends_are_kept_or_refused", &[Need::Fuse]) {
        appends("cache_ms=1000", false);
    }
    if available("promise_appends_are_kept_or_refused", &[Need::Fuse, Need::Kernel(6, 16)]) {
        appends("leases", true);
    }
}

/// `shares`: mounts with these options can be told that they are not alone, and none is refused.
fn appends(options: &str, shares: bool) {
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "2", "--stripe-size", "64KiB", "-o", options]);
    let mounts = [fs.mnt(), fs.mount("second", options)];
    let append = |path: &Path, text: &str| {
        let is_done = append(path, text);
        assert!(is_done || !shares, "nothing is refused");
        is_done
    };

    // In turns, each with an open file of its own: the kernel of either mount knows an old end.
    let mut expected = BTreeSet::new();
    for number in 0..lines() {
        for (writer, mount) in mounts.iter().enumerate() {
            let text = line(writer, number);
            while !append(&mount.join("turns"), &text) {}
            expected.insert(text);
        }
    }
    check(&mounts[0].join("turns"), &expected);

    // At the same time: what was refused is tried again.
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        for (writer, mount) in mounts.iter().enumerate() {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                for number in 0..lines() {
                    while !append(&mount.join("crowd"), &line(writer, number)) {}
                }
            });
        }
    });
    let all = (0..2).flat_map(|writer| (0..lines()).map(move |number| line(writer, number))).collect();
    check(&mounts[1].join("crowd"), &all);

    // Two files that stay open: a mount that can be told shares the file, another one does not.
    let mut log = OpenOptions::new().append(true).create(true).open(mounts[0].join("log")).unwrap();
    log.write_all(b"one\n").unwrap();
    let foreign = mounts[1].join("log");
    let open = |options: &mut OpenOptions| options.open(&foreign).map_err(|error| error.raw_os_error());
    let mut second = match (shares, open(OpenOptions::new().append(true))) {
        (true, opened) => Some(opened.expect("the first one is told")),
        (false, outcome) => {
            assert_eq!(outcome.map(drop), Err(BUSY));
            assert_eq!(open(OpenOptions::new().write(true)).map(drop), Err(BUSY));
            assert_eq!(open(OpenOptions::new().write(true).truncate(true)).map(drop), Err(BUSY));
            None
        }
    };
    assert_eq!(fs::read(&foreign).unwrap(), b"one\n");
    // Others of the same mount may.
    assert!(append(&mounts[0].join("log"), "two\n"));
    if let Some(second) = second.as_mut() {
        second.write_all(b"from the other mount\n").unwrap();
    }
    log.write_all(b"three\n").unwrap();
    drop(log);
    while !append(&foreign, "four\n") {}
    let other = if shares { "from the other mount\n" } else { "" };
    assert_eq!(fs::read_to_string(mounts[0].join("log")).unwrap(), format!("one\ntwo\n{other}three\nfour\n"));
}

#[test]
fn a_file_that_becomes_append_only_later() {
    if !available("a_file_that_becomes_append_only_later", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let (a, b) = (fs.mnt(), fs.mount("second", ""));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(a.join("file")).unwrap();
    file.write_all(b"one").unwrap();
    let mut other = OpenOptions::new().write(true).open(b.join("file")).unwrap();
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND).unwrap();
    other.write_all(b"ONE, ").unwrap();
    file.write_all(b"two").unwrap();
    drop(other);
    file.write_all(b" three").unwrap();
    assert_eq!(fs::read(b.join("file")).unwrap(), b"ONE, two three");
}

/// Of a server that has stopped in order nothing is missing after the next start of the machine:
/// nobody waits for clients of before.
#[test]
fn a_machine_that_was_shut_down_in_order_holds_up_no_append() {
    if !available("a_machine_that_was_shut_down_in_order_holds_up_no_append", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let log = fs.mnt().join("log");
    fs::write(&log, vec![b'x'; 20_000]).unwrap();
    let file = fs.server_dir("meta0").join("superblock");
    let load = || Superblock::parse(&fs::read(&file).unwrap()).unwrap();
    assert!(!load().has_stopped());
    fs.down();
    assert!(load().has_stopped());
    // As if the machine had been started again since.
    let superblock = load();
    fs::write(&file, Superblock { boot_id: superblock.boot_id ^ 1, ..superblock }.to_text()).unwrap();
    fs.start_mounted(&[]);
    let begun = Instant::now();
    assert!(append(&log, "one line more"));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(fs::metadata(&log).unwrap().len(), 20_013);
    fs.kill("meta0");
    assert!(!load().has_stopped());
}
