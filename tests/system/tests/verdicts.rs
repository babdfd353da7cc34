//! Faults that are put in from outside into a file system of real processes: the verdict names
//! cause and place first. The same in virtual time, with more of them, is in
//! `tests/sim/tests/verdicts.rs`, those that need root in `faults/`. No time is compared: the
//! machine may be busy.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::Value;
use weft_system_tests::verdict::{Round, told_of};
use weft_system_tests::{FileSystem, Need, available};

/// The verdict on a recording while four threads do that.
fn told(fs: &FileSystem, round: Round, trouble: impl FnOnce(&dyn Fn(Duration) -> bool)) -> Vec<Value> {
    told_of(fs, (4, "1.5"), round, trouble)
}

#[track_caller]
fn assert_first(told: &[Value], cause: &str, place: Option<&str>) {
    let first = &told[0];
    assert_eq!((first["cause"].as_str(), first["place"].as_str()), (Some(cause), place), "{told:#?}");
    assert!(first["share"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)), "{told:#?}");
}

fn files(dir: &Path, number: u32) {
    let path = dir.join(format!("f{}", number % 8));
    let _ = fs::write(&path, vec![7; 300_000]).and_then(|()| fs::read(&path));
}

fn nothing(_: &dyn Fn(Duration) -> bool) {}

/// A stopped server is continued when the recording is over, so that the program ends.
fn stopped(server: &str, args: &[&str]) {
    let fs = FileSystem::mounted(args);
    let told = told(&fs, files, |goes_on| {
        goes_on(Duration::from_millis(500));
        fs.signal(server, Signal::STOP);
        goes_on(Duration::from_millis(2_000));
        fs.signal(server, Signal::CONT);
    });
    assert_first(&told, "no_answer", Some(server));
    fs.down();
}

#[test]
fn a_stopped_data_server() {
    if available("a_stopped_data_server", &[Need::Fuse]) {
        stopped("data1", &["--meta", "1", "--data", "2"]);
    }
}

#[test]
fn a_stopped_metadata_server() {
    if available("a_stopped_metadata_server", &[Need::Fuse]) {
        stopped("meta0", &["--meta", "1", "--data", "1"]);
    }
}

/// Nine tenths of the time it stands still.
#[test]
fn a_server_that_mostly_stands_still() {
    if !available("a_server_that_mostly_stands_still", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "2"]);
    let told = told(&fs, files, |goes_on| {
        let mut is_on = true;
        while is_on {
            fs.signal("data1", Signal::STOP);
            is_on = goes_on(Duration::from_millis(90));
            fs.signal("data1", Signal::CONT);
            is_on &= goes_on(Duration::from_millis(10));
        }
    });
    assert_eq!(told[0]["place"].as_str(), Some("data1"), "{told:#?}");
    fs.down();
}

#[test]
fn locks_that_others_hold() {
    if !available("locks_that_others_hold", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let wait = |dir: &Path, _| {
        let file = File::options().create(true).append(true).open(dir.parent().expect("the mount").join("lock")).expect("a file");
        flock(&file, FlockOperation::LockExclusive).expect("its turn comes");
        std::thread::sleep(Duration::from_millis(100));
        flock(&file, FlockOperation::Unlock).expect("it is held");
    };
    // Those that still wait at the end are told before.
    let told: Vec<Value> = told(&fs, wait, nothing).into_iter().filter(|one| one["cause"] != "unfinished").collect();
    assert_first(&told, "application_lock", Some("meta0"));
    fs.down();
}

#[test]
fn a_program_that_does_something_else() {
    if !available("a_program_that_does_something_else", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let rarely = |dir: &Path, number| {
        let _ = fs::write(dir.join(format!("f{}", number % 8)), [7; 100]);
        std::thread::sleep(Duration::from_millis(300));
    };
    assert_first(&told(&fs, rarely, nothing), "program", None);
    fs.down();
}

/// Where processors are scarce that comes first, for it is true as well.
#[test]
fn small_pieces() {
    if !available("verdict_of_small_pieces", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let small = |dir: &Path, _| {
        let mut file = File::create(dir.join("f")).expect("a file");
        (0..500).for_each(|_| file.write_all(&[7; 2048]).expect("there is room"));
    };
    let told = told(&fs, small, nothing);
    let cause = told[0]["cause"].as_str();
    assert!(matches!(cause, Some("small_pieces" | "processor")), "{told:#?}");
    fs.down();
}
