//! Locks of programs, through one mount and between mounts.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use rustix::process::Signal;
use weft_system_tests::{FileSystem, Need, available, run, signal, wait_until};

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

    // Among the programs of a mount and of two, as anywhere.
    for (first, second) in [(&one, &two), (&one, &other)] {
        flock(first, SHARED).unwrap();
        flock(second, SHARED).unwrap();
        assert_eq!(flock(first, EXCLUSIVE), Err(Errno::WOULDBLOCK));
        flock(second, UNLOCK).unwrap();
        flock(first, EXCLUSIVE).unwrap();
        assert_eq!(flock(second, SHARED), Err(Errno::WOULDBLOCK));
        // The other family does not see them.
        fcntl_lock(second, EXCLUSIVE).unwrap();
        fcntl_lock(second, UNLOCK).unwrap();
        flock(first, UNLOCK).unwrap();
    }
    // A lock ends with its open file, and whoever waits for it gets it.
    flock(&other, EXCLUSIVE).unwrap();
    let waits = std::thread::spawn(move || flock(&one, FlockOperation::LockExclusive).map(|()| one));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waits.is_finished());
    drop(other);
    let one = waits.join().unwrap().unwrap();
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
    assert_eq!(flock(&other, EXCLUSIVE), Err(Errno::WOULDBLOCK));
    let waits = std::thread::spawn(move || flock(&other, FlockOperation::LockExclusive).map(|()| other));
    std::thread::sleep(Duration::from_millis(300));
    fs.kill("meta0");
    fs.start(&[]);
    std::thread::sleep(Duration::from_secs(1));
    assert!(!waits.is_finished(), "it waits through a restart");
    flock(&one, UNLOCK).unwrap();
    let other = waits.join().unwrap().unwrap();
    assert!(is_taken(&one));
    flock(&other, UNLOCK).unwrap();
}

/// Locks of open file descriptions (`F_OFD_SETLK`) and `F_GETLK`, for which Rust programs need
/// `unsafe`: on bytes of a file through two mounts, whose folders are the arguments.
const RANGES: &str = r#"
import errno, fcntl, os, struct, sys, threading, time
OFD_SETLK, OFD_SETLKW = 37, 38
def record(kind, start, length):
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)
def lock(fd, kind, start, length, how=OFD_SETLK):
    try:
        fcntl.fcntl(fd, how, record(kind, start, length))
        return True
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EACCES), error
        return False
def holder(fd):
    found = fcntl.fcntl(fd, fcntl.F_GETLK, record(fcntl.F_WRLCK, 0, 0))
    kind, _, start, length, process = struct.unpack("hhqqi4x", found)
    return kind, start, length, process
one, two = (os.open(sys.argv[1] + "/ranges", os.O_RDWR | os.O_CREAT) for _ in range(2))
other = os.open(sys.argv[2] + "/ranges", os.O_RDWR)
assert lock(one, fcntl.F_WRLCK, 0, 100) and lock(one, fcntl.F_UNLCK, 40, 20)
for fd in (two, other):
    assert not lock(fd, fcntl.F_RDLCK, 39, 1) and not lock(fd, fcntl.F_RDLCK, 60, 1)
    assert lock(fd, fcntl.F_RDLCK, 40, 20)
assert lock(two, fcntl.F_UNLCK, 0, 0)
kind, start, length, process = holder(other)
assert kind == fcntl.F_WRLCK and (start, length) in ((0, 40), (60, 40)), (kind, start, length)
assert process == 0, "a process of another mount has no number here: %d" % process
waits = threading.Thread(target=lock, args=(other, fcntl.F_WRLCK, 0, 100, OFD_SETLKW))
waits.start()
time.sleep(0.3)
assert waits.is_alive()
os.close(one)
waits.join(30)
assert not waits.is_alive() and not lock(two, fcntl.F_RDLCK, 0, 1)
os.close(other)
limit = time.monotonic() + 30
while not lock(two, fcntl.F_WRLCK, 0, 0):
    assert time.monotonic() < limit
print("all ranges")
"#;

#[test]
fn ranges_of_open_files_are_locked_between_mounts() {
    if !available("ranges_of_open_files_are_locked_between_mounts", &[Need::Fuse, Need::Programs(&["python3"])]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let b = fs.mount("second", "");
    let finished = run(Command::new("python3").args(["-c", RANGES]).arg(fs.mnt()).arg(b), PATIENCE);
    assert!(finished.is_success() && finished.words().contains("all ranges"), "{}", finished.words());
}

#[test]
fn locks_of_a_mount_that_dies_are_free_when_its_session_ends() {
    if !available("locks_of_a_mount_that_dies_are_free_when_its_session_ends", &[Need::Fuse, Need::Programs(&["flock", "sleep"])]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let (a, b) = (fs.mnt(), fs.mount("second", ""));
    let other = open(&a.join("file"));
    let mut held = holder(&b.join("file"));
    wait_until("a lock of a process", PATIENCE, || is_taken(&other));
    // A wait of its own dies with it, too.
    let mut waits = holder(&b.join("file"));
    std::thread::sleep(Duration::from_millis(300));
    fs.kill_mount(&b);
    for process in [&mut held, &mut waits] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert!(is_taken(&other), "it may be away for a moment only");
    wait_until("the end of its session", PATIENCE, || !is_taken(&other));
}

#[test]
fn a_signal_ends_the_wait_for_a_lock_of_another_mount() {
    if !available("a_signal_ends_the_wait_for_a_lock_of_another_mount", &[Need::Fuse, Need::Programs(&["flock", "sleep"])]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let (a, b) = (fs.mnt(), fs.mount("second", ""));
    let file = open(&a.join("file"));
    flock(&file, EXCLUSIVE).unwrap();
    let mut first = holder(&b.join("file"));
    std::thread::sleep(Duration::from_millis(300));
    let mut second = Command::new("flock").arg(b.join("file")).arg("true").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    signal(first.id(), Signal::INT).unwrap();
    first.wait().unwrap();
    // Its place is given up: the next one has its turn.
    flock(&file, UNLOCK).unwrap();
    assert!(second.wait().unwrap().success());
    wait_until("a free lock", PATIENCE, || flock(&file, EXCLUSIVE).is_ok());
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
