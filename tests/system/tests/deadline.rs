//! Servers that do not answer: every operation ends by its deadline, and nothing is left hanging.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weft_system_tests::{FileSystem, Need, alive, available, ok, run, signal, states_of_threads, wait_until, weft};

/// The deadline of the mounts in these tests.
const DEADLINE: Duration = Duration::from_secs(3);
/// An operation of a program may be several of the mount (find the name, open, read); a busy
/// machine adds to each.
const BOUND: Duration = Duration::from_secs(20);

fn mounted() -> FileSystem {
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "2", "--stripe-size", "64KiB", "--timeout", "3", "-o", "cache_ms=0"]);
    fs::write(fs.mnt().join("file"), vec![1; 300_000]).unwrap();
    fs
}

/// Runs programs that use everything; each must end by itself, with an error.
fn all_end_with_errors(fs: &FileSystem, write: bool) {
    let mnt = fs.mnt();
    let mut commands = vec![vec!["cat", "file"], vec!["dd", "if=/dev/zero", "of=file", "bs=300000", "count=1", "conv=notrunc,fsync"]];
    if write {
        commands.extend([
            vec!["touch", "new"],
            vec!["mkdir", "dir"],
            vec!["ls", "-l", "."],
            vec!["mv", "file", "other"],
            vec!["rm", "file"],
        ]);
    }
    let running: Vec<_> = commands
        .into_iter()
        .map(|words| {
            let mnt = mnt.clone();
            std::thread::spawn(move || {
                let begun = Instant::now();
                let finished = run(Command::new(words[0]).args(&words[1..]).current_dir(&mnt), BOUND);
                assert!(finished.status.is_some(), "{words:?} did not end within {} s", BOUND.as_secs());
                assert!(!finished.is_success(), "{words:?} succeeded without a server");
                assert!(begun.elapsed() >= DEADLINE / 2, "{words:?} gave up after {:?}: {}", begun.elapsed(), finished.words());
            })
        })
        .collect();
    for thread in running {
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

#[test]
fn promise_deadline() {
    if !available("promise_deadline", &[Need::Fuse]) {
        return;
    }
    let fs = mounted();
    // `cat` must change into the mount: a directory that is in use already stays usable.
    for (server, uses_meta) in [("data1", false), ("meta0", true)] {
        fs.signal(server, Signal::STOP);
        if uses_meta {
            // Changing the directory asks the server of the directory: only what is open is tried.
            meta_is_silent(&fs);
        } else {
            all_end_with_errors(&fs, false);
        }
        // What does not need the silent server is not held up.
        if !uses_meta {
            fs::write(fs.mnt().join("empty"), b"").unwrap();
            fs::remove_file(fs.mnt().join("empty")).unwrap();
        }
        fs.signal(server, Signal::CONT);
        wait_until("normal service", BOUND, || fs::read(fs.mnt().join("file")).is_ok_and(|bytes| bytes.len() == 300_000));
    }

    errors_are_told(&fs);

    // Nothing is left waiting in the kernel, and a mount whose server is silent can be unmounted.
    let mount = fs.mount_pid(&fs.mnt());
    fs.signal("data0", Signal::STOP);
    let mut file = File::options().append(true).open(fs.mnt().join("file")).unwrap();
    assert!(file.write_all(&vec![2; 300_000]).is_err());
    assert!(!states_of_threads(std::process::id()).contains(&'D') && !states_of_threads(mount).contains(&'D'));
    let begun = Instant::now();
    drop(file);
    ok(weft().arg("umount").arg(fs.mnt()));
    assert!(begun.elapsed() < BOUND);
    wait_until("the end of the mount process", BOUND * 2, || !alive(mount));
    fs.signal("data0", Signal::CONT);
    fs.start_mounted(&[]);
    assert!(fs::metadata(fs.mnt().join("file")).unwrap().len() >= 300_000);
    fs.down();
}

/// Programs got a number for an error; the log of the mount, `weft status` and `weft metrics` know
/// which server it was.
fn errors_are_told(fs: &FileSystem) {
    let (_, report) = fs.status();
    let errors = report["mounts"][0]["errors"].as_array().unwrap_or_else(|| panic!("{report}"));
    let count = |server: &str| {
        let row = errors.iter().find(|row| row["server"] == server && row["reason"] == "no answer before the deadline");
        row.and_then(|row| row["count"].as_u64()).unwrap_or(0)
    };
    assert!(count("data1") >= 2 && count("meta0") >= 3 && count("data0") == 0, "{report}");
    let metrics = ok(weft().args(["metrics", "--once"]).arg(fs.state()));
    let line = metrics.lines().find(|line| line.starts_with("weft_mount_errors_total{") && line.contains("server=\"data1\""));
    assert!(line.is_some_and(|line| line.ends_with(&format!(" {}", count("data1"))) && line.contains("mount=\"mount-mnt\"")), "{metrics}");
    let logs = fs::read_dir(fs.state().join("run")).unwrap().map(|entry| entry.unwrap().path());
    let log = logs.into_iter().find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".log") && name.to_string_lossy().starts_with("mount"))
    });
    let log = fs::read_to_string(log.expect("the mount has a log")).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("data1") && line.contains("no answer before the deadline")).collect();
    // One for each object, however often it was tried; with what to do.
    assert!((1..=2).contains(&lines.len()) && lines[0].contains("weft status"), "{log}");
}

/// Operations by path while the metadata server is silent. The commands start in `/` and name the
/// mount by its path.
fn meta_is_silent(fs: &FileSystem) {
    let mnt = fs.mnt();
    let path = |name: &str| mnt.join(name).display().to_string();
    let commands = [
        vec!["cat".to_string(), path("file")],
        vec!["touch".into(), path("new")],
        vec!["mkdir".into(), path("dir")],
        vec!["ls".into(), "-l".into(), path("")],
        vec!["mv".into(), path("file"), path("other")],
    ];
    let running: Vec<_> = commands
        .into_iter()
        .map(|words| {
            std::thread::spawn(move || {
                let finished = run(Command::new(&words[0]).args(&words[1..]), BOUND);
                assert!(finished.status.is_some(), "{words:?} did not end within {} s", BOUND.as_secs());
                assert!(!finished.is_success(), "{words:?} succeeded without a server");
            })
        })
        .collect();
    for thread in running {
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

/// Commands without a mount obey their deadline too, and name the server.
#[test]
fn commands_name_the_silent_server() {
    let fs = FileSystem::up(&["--data", "2"]);
    fs::write(fs.path("file"), vec![1; 3 << 20]).unwrap();
    ok(weft().arg("cp").arg(fs.path("file")).arg(fs.at("/file")));
    fs.signal("data1", Signal::STOP);
    let words = weft_system_tests::fails(weft().args(["cat", "--timeout", "2"]).arg(fs.at("/file")));
    assert!(words.contains("no answer before the deadline"), "{words}");
    let words = weft_system_tests::fails(weft().args(["ping", "--timeout", "2"]).arg(fs.state()));
    assert!(words.contains("data1"), "{words}");
    fs.signal("data1", Signal::CONT);
    ok(weft().args(["cp"]).arg(fs.at("/file")).arg(fs.path("back")));
    assert_eq!(fs::read(fs.path("back")).unwrap().len(), 3 << 20);
}

/// All servers are gone for good: programs get errors, the mount goes away when asked.
#[test]
fn a_mount_without_servers_ends_cleanly() {
    if !available("a_mount_without_servers_ends_cleanly", &[Need::Fuse]) {
        return;
    }
    let fs = mounted();
    let mount = fs.mount_pid(&fs.mnt());
    let file = File::open(fs.mnt().join("file")).unwrap();
    ["meta0", "data0", "data1"].iter().for_each(|server| fs.kill(server));
    let mut bytes = [0; 10];
    assert!(std::os::unix::fs::FileExt::read_at(&file, &mut bytes, 0).is_err());
    assert!(fs::metadata(fs.mnt().join("file")).is_err());
    ok(Command::new("fusermount3").arg("-uz").arg(fs.mnt()));
    drop(file);
    wait_until("the end of the mount process", BOUND * 2, || !alive(mount));
}

/// A write of a program that has switched to appending asks the metadata server for the right and
/// then writes: one operation, one deadline.
#[test]
fn several_servers_share_the_deadline_of_one_operation() {
    if !available("several_servers_share_the_deadline_of_one_operation", &[Need::Fuse]) {
        return;
    }
    const DEADLINE: Duration = Duration::from_secs(8);
    let timeout = DEADLINE.as_secs().to_string();
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1", "--timeout", &timeout, "-o", "cache_ms=0"]);
    let mut file = File::create_new(fs.mnt().join("file")).unwrap();
    file.write_all(b"first").unwrap();
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND).unwrap();
    // Asking for them takes its time when servers do not answer.
    let [meta, data] = ["meta0", "data0"].map(|server| fs.pid(server).unwrap());
    [meta, data].iter().for_each(|pid| signal(*pid, Signal::STOP).unwrap());
    let begun = Instant::now();
    let writer = std::thread::spawn(move || file.write_all(b"second").map(|()| file));
    std::thread::sleep(DEADLINE * 3 / 4);
    // From here on it waits for the other one.
    signal(meta, Signal::CONT).unwrap();
    assert!(writer.join().unwrap().is_err(), "a data server does not answer");
    let took = begun.elapsed();
    signal(data, Signal::CONT).unwrap();
    assert!(took < DEADLINE * 3 / 2, "{took:?}");
    fs.down();
}

/// Who starts a program hands it copies of its open files, which `exec` closes: the program does
/// not wait for what its parent has written.
#[test]
fn a_child_does_not_wait_for_writes_of_its_parent() {
    if !available("a_child_does_not_wait_for_writes_of_its_parent", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    // A mount keeps writes to larger files once it has met one.
    fs::write(fs.mnt().join("first"), [7; 100_000]).expect("the data servers answer");
    let silent = fs.pid("data0").expect("it runs");
    let file = |name: &str| File::create_new(fs.mnt().join(name)).expect("a new file");
    let (mut kept, streams) = (file("kept"), ["stream", "other"].map(file));
    kept.write_all(&[7; 100_000]).expect("written");
    signal(silent, Signal::STOP).expect("it lives");
    // These wait with their first writes, or soon after.
    let streams = streams.map(|mut file| std::thread::spawn(move || file.write_all(&vec![7; 8 << 20])));
    std::thread::sleep(Duration::from_millis(300));
    // Less than the deadline of the mount, 30 s.
    let child = run(&mut Command::new("true"), BOUND);
    signal(silent, Signal::CONT).expect("it lives");
    assert!(child.is_success(), "the child waited for the server: {}", child.words());
    drop(kept);
    streams.into_iter().for_each(|stream| stream.join().expect("no panic").expect("the server goes on"));
    for (name, bytes) in [("kept", 100_000), ("stream", 8 << 20), ("other", 8 << 20)] {
        assert!(fs::read(fs.mnt().join(name)).expect("it was closed") == vec![7; bytes], "{name}");
    }
}
