//! Appends of two mounts to one file: all there, or refused.
//!
//! `WEFT_LINES` is the number of lines of each mount (300 by default).

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{Error, Write};
use std::path::Path;
use std::sync::Barrier;

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
    if !available("promise_appends_are_kept_or_refused", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "2", "--stripe-size", "64KiB"]);
    let mounts = [fs.mnt(), fs.mount("second", "")];

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

    // Two files that stay open: the second is refused, and so is any other foreign writer; readers
    // are not.
    let mut log = OpenOptions::new().append(true).create(true).open(mounts[0].join("log")).unwrap();
    log.write_all(b"one\n").unwrap();
    let foreign = mounts[1].join("log");
    let code = |outcome: Result<fs::File, Error>| outcome.map(|_| ()).map_err(|error| error.raw_os_error());
    assert_eq!(code(OpenOptions::new().append(true).open(&foreign)), Err(BUSY));
    assert_eq!(code(OpenOptions::new().write(true).open(&foreign)), Err(BUSY));
    assert_eq!(code(OpenOptions::new().write(true).truncate(true).open(&foreign)), Err(BUSY));
    assert_eq!(fs::read(&foreign).unwrap(), b"one\n");
    // Others of the same mount may.
    assert!(append(&mounts[0].join("log"), "two\n"));
    log.write_all(b"three\n").unwrap();
    drop(log);
    while !append(&foreign, "four\n") {}
    assert_eq!(fs::read(mounts[0].join("log")).unwrap(), b"one\ntwo\nthree\nfour\n");
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
    assert_eq!(file.write_all(b"two").map_err(|error| error.raw_os_error()), Err(BUSY), "the other mount may write at any time");
    other.write_all(b"ONE, ").unwrap();
    drop(other);
    while file.write_all(b"two").is_err() {}
    assert_eq!(fs::read(b.join("file")).unwrap(), b"ONE, two");
}
