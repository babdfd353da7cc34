//! Locks of programs: granted truly within a mount, refused between mounts.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use weft_system_tests::{FileSystem, Need, available, run, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);
const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;
const UNLOCK: FlockOperation = FlockOperation::Unlock;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// A process that holds a lock (or waits for it) until it is killed.
fn holder(path: &Path) -> Child {
    // One process, not one and its child, who would inherit the open file.
    Command::new("flock").arg("--no-fork").arg(path).args(["sleep", "1000"]).spawn().unwrap()
}

fn is_taken(file: &File) -> bool {
    match flock(file, EXCLUSIVE) {
        Ok(()) => flock(file, UNLOCK).map(|()| false).unwrap(),
        Err(Errno::WOULDBLOCK) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn promise_locks_are_true() {
    if !available("promise_locks_are_true", &[Need::Fuse, Need::Programs(&["flock", "sleep"])]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1"]);
    let (a, b) = (fs.mnt(), fs.mount("second", ""));
    let (one, two, other) = (open(&a.join("file")), open(&a.join("file")), open(&b.join("file")));

    // Among the programs of a mount, as anywhere.
    flock(&one, SHARED).unwrap();
    flock(&two, SHARED).unwrap();
    assert_eq!(flock(&one, EXCLUSIVE), Err(Errno::WOULDBLOCK));
    flock(&two, UNLOCK).unwrap();
    flock(&one, EXCLUSIVE).unwrap();
    assert_eq!(flock(&two, SHARED), Err(Errno::WOULDBLOCK));
    fcntl_lock(&two, EXCLUSIVE).unwrap();

    // Another mount is refused both kinds, whatever it asks for.
    for lock in [EXCLUSIVE, SHARED, FlockOperation::LockExclusive] {
        assert_eq!(flock(&other, lock), Err(Errno::NOLCK));
        assert_eq!(fcntl_lock(&other, lock), Err(Errno::NOLCK));
    }
    flock(&one, UNLOCK).unwrap();
    assert_eq!(flock(&other, SHARED), Err(Errno::NOLCK), "one is left");
    fcntl_lock(&two, UNLOCK).unwrap();
    wait_until("the other mount's turn", PATIENCE, || flock(&other, EXCLUSIVE).is_ok());
    assert_eq!(flock(&one, SHARED), Err(Errno::NOLCK));
    drop(other);
    wait_until("the end of a lock with its file", PATIENCE, || flock(&one, EXCLUSIVE).is_ok());
    flock(&one, UNLOCK).unwrap();

    // Who is killed holds nothing any more; who waits gets it.
    let mut first = holder(&a.join("file"));
    wait_until("a lock of a process", PATIENCE, || is_taken(&one));
    let mut second = holder(&a.join("file"));
    first.kill().unwrap();
    first.wait().unwrap();
    second.kill().unwrap();
    second.wait().unwrap();
    wait_until("a free lock", PATIENCE, || !is_taken(&one));
}

#[test]
fn who_waits_for_a_lock_can_be_killed_and_gets_it_otherwise() {
    if !available("who_waits_for_a_lock_can_be_killed_and_gets_it_otherwise", &[Need::Fuse, Need::Programs(&["flock", "true"])]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let path = fs.mnt().join("file");
    let file = open(&path);
    flock(&file, EXCLUSIVE).unwrap();
    let mut killed = Command::new("flock").arg(&path).arg("true").spawn().unwrap();
    let mut patient = Command::new("flock").arg(&path).arg("true").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(killed.try_wait().unwrap().is_none() && patient.try_wait().unwrap().is_none(), "both wait");
    killed.kill().unwrap();
    let begun = Instant::now();
    killed.wait().unwrap();
    assert!(begun.elapsed() < PATIENCE);
    assert!(patient.try_wait().unwrap().is_none());
    flock(&file, UNLOCK).unwrap();
    assert!(patient.wait().unwrap().success());
    // Nobody is left who holds it.
    wait_until("a free lock", PATIENCE, || flock(&file, EXCLUSIVE).is_ok());
}

/// The folder of the test below, and which of its two files the process locks first.
const CROSSING: &str = "WEFT_LOCKS_CROSSING";

/// Two processes that want what the other one has would wait for each other for ever: one of them
/// is told.
#[test]
fn crossing_locks_are_refused() {
    if !available("crossing_locks_are_refused", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let test = std::env::current_exe().unwrap();
    let processes = ["0", "1"].map(|first| {
        let mut command = Command::new(&test);
        command.args(["--exact", "a_process_with_crossing_locks", "--ignored", "--nocapture"]);
        command.env(CROSSING, format!("{first}{}", fs.mnt().display()));
        std::thread::spawn(move || run(&mut command, PATIENCE))
    });
    let said = processes.map(|process| {
        let finished = process.join().unwrap();
        assert!(finished.is_success(), "{}", finished.words());
        finished.words()
    });
    let count = |word: &str| said.iter().filter(|words| words.contains(word)).count();
    assert_eq!((count("refused: deadlock"), count("has both locks")), (1, 1), "{said:?}");
}

#[test]
#[ignore = "started twice by crossing_locks_are_refused, which says what to lock in WEFT_LOCKS_CROSSING"]
fn a_process_with_crossing_locks() {
    let what = std::env::var(CROSSING).unwrap_or_else(|_| panic!("{CROSSING} must say what to lock"));
    let (first, folder) = what.split_at(1);
    let second = if first == "0" { "1" } else { "0" };
    let path = |name: &str, what: &str| Path::new(folder).join(format!("{name}{what}"));
    let files = [first, second].map(|name| open(&path("file", name)));
    fcntl_lock(&files[0], FlockOperation::LockExclusive).unwrap();
    File::create(path("locked", first)).unwrap();
    wait_until("the other process to lock its file", PATIENCE, || path("locked", second).exists());
    match fcntl_lock(&files[1], FlockOperation::LockExclusive) {
        Ok(()) => println!("has both locks"),
        Err(Errno::DEADLK) => println!("refused: deadlock"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn locks_outlive_a_restart_of_the_server_and_end_with_their_mount() {
    if !available("locks_outlive_a_restart_of_the_server_and_end_with_their_mount", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let (a, b) = (fs.mnt(), fs.mount("second", ""));
    let (one, other) = (open(&a.join("file")), open(&b.join("file")));
    flock(&one, EXCLUSIVE).unwrap();
    fs.kill("meta0");
    fs.start(&[]);
    // Not before the first mount has told the server again what it holds.
    assert_eq!(flock(&other, EXCLUSIVE), Err(Errno::NOLCK));
    flock(&one, UNLOCK).unwrap();
    wait_until("the other mount's turn", PATIENCE, || flock(&other, EXCLUSIVE).is_ok());
}

#[test]
fn who_knows_better_locks_locally() {
    if !available("who_knows_better_locks_locally", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1", "-o", "locks=local"]);
    let (a, b) = (fs.mnt(), fs.mount("second", "locks=local"));
    let (one, two, other) = (open(&a.join("file")), open(&a.join("file")), open(&b.join("file")));
    flock(&one, EXCLUSIVE).unwrap();
    assert_eq!(flock(&two, EXCLUSIVE), Err(Errno::WOULDBLOCK));
    flock(&other, EXCLUSIVE).unwrap();
}
