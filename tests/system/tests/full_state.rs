//! The whole of a file system (stores, pid files, sockets, logs) on one small disk that others fill
//! to the last byte, at any moment of what people do with it: nothing dies, nothing is lost, what
//! ran can be started again, and with room everything works again by itself.
//!
//! `cargo test -p weft-system-tests --test full_state -- --ignored` runs twenty rounds, or as many
//! as `WEFT_FULL_ROUNDS` says, from the seed `WEFT_FULL_SEED`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;
use weft_system_tests::load::content;
use weft_system_tests::{FileSystem, Need, Random, alive, available, fails, ok, signal, wait_until, weft};

const PATIENCE: Duration = Duration::from_secs(60);
const NEEDS: [Need; 2] = [Need::Fuse, Need::LoopDevice];
const DISK_MIB: u64 = 200;

/// A place for a state on a disk of its own. The disk's root is `disk` in the folder of the test.
fn small_disk(mib: u64, patience: Duration) -> FileSystem {
    let fs = FileSystem::prepare_for(patience);
    let (image, disk) = (fs.path("image"), fs.path("disk"));
    File::create(&image).unwrap().set_len(mib << 20).unwrap();
    // Without blocks that are kept for root: full is full.
    ok(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image));
    fs::create_dir(&disk).unwrap();
    ok(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&disk));
    for dir in [disk.join("state"), fs.state()] {
        fs::create_dir(&dir).unwrap();
    }
    ok(Command::new("chmod").arg("700").arg(disk.join("state")));
    ok(Command::new("mount").arg("--bind").arg(disk.join("state")).arg(fs.state()));
    fs
}

fn ballast(fs: &FileSystem) -> PathBuf {
    fs.path("disk").join("ballast")
}

/// Takes everything that is free, to the last block.
fn fill(ballast: &Path) {
    let mut file = fs::OpenOptions::new().append(true).create(true).open(ballast).unwrap();
    for bytes in [1 << 20, 4096, 1] {
        let piece = vec![0xBA; bytes];
        loop {
            match file.write_all(&piece) {
                Ok(()) if bytes > 1 => {}
                // What fits in one byte fits in the block that is there.
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Fills the disk again and again, whatever others give back, until it is told to stop.
struct Filler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Filler {
    fn start(fs: &FileSystem, after: Duration) -> Filler {
        let (stop, ballast) = (Arc::<AtomicBool>::default(), ballast(fs));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(after);
            while !told.load(Ordering::Relaxed) {
                fill(&ballast);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Filler { stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("filling does not fail");
    }
}

/// What was acknowledged.
#[derive(Default)]
struct Files(BTreeMap<PathBuf, (u64, u64)>);

impl Files {
    /// Writes files until one is refused for want of space, or so many were written. True if none
    /// was refused.
    fn write(&mut self, dir: &Path, count: u64, random: &mut Random) -> bool {
        for _ in 0..count {
            let (seed, bytes) = (random.below(1 << 40), random.below(900_000));
            let path = dir.join(format!("file{seed}"));
            let written = fs::write(&path, content((seed, bytes)));
            if let Err(error) = written {
                assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{}: {error}", path.display());
                // What did not fit; it may not even be there.
                let _ = fs::remove_file(&path);
                return false;
            }
            self.0.insert(path, (seed, bytes));
        }
        true
    }

    #[track_caller]
    fn verify(&self, when: &str) {
        for (path, what) in &self.0 {
            let bytes = fs::read(path).unwrap_or_else(|error| panic!("{when}: {}: {error}", path.display()));
            assert!(bytes == content(*what), "{when}: {} is damaged", path.display());
        }
    }

    /// Forgets and removes all but some.
    fn remove_half(&mut self) {
        let gone: Vec<PathBuf> = self.0.keys().step_by(2).cloned().collect();
        for path in gone {
            fs::remove_file(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            self.0.remove(&path);
        }
    }
}

/// `weft down`; the disk stays.
#[track_caller]
fn down(fs: &FileSystem) {
    ok(weft().args(["down", "--state"]).arg(fs.state()));
    assert_eq!(fs.processes(), [0; 0], "weft down left processes");
}

const SERVERS: [&str; 2] = ["meta0", "data0"];

fn pids(fs: &FileSystem) -> Vec<u32> {
    SERVERS
        .iter()
        .map(|server| fs.pid(server).unwrap_or_else(|| panic!("{server} does not run")))
        .chain([fs.mount_pid(&fs.mnt())])
        .collect()
}

fn campaign(rounds: u64, seed: u64) {
    let fs = small_disk(DISK_MIB, Duration::from_secs(60 + 60 * rounds));
    let mut random = Random::new(seed);
    let mut files = Files::default();
    fs.start_mounted(&["--meta", "1", "--data", "1", "--stripe-size", "64KiB"]);
    for round in 0..rounds {
        let when = |what: &str| format!("seed {seed}, round {round}, {what}");
        let soon = Duration::from_millis(random.below(400));
        files.write(&fs.mnt(), 1 + random.below(8), &mut random);
        let filler = match round % 4 {
            // While files are written.
            0 => {
                let filler = Filler::start(&fs, soon);
                files.write(&fs.mnt(), 200, &mut random);
                filler
            }
            // While what was killed starts.
            1 => {
                SERVERS.iter().for_each(|server| fs.kill(server));
                let filler = Filler::start(&fs, soon / 4);
                fs.start(&[]);
                filler
            }
            // While all is stopped.
            2 => {
                let filler = Filler::start(&fs, soon / 4);
                down(&fs);
                fs.start(&[]);
                filler
            }
            // While a mount that was killed is made again.
            _ => {
                let filler = Filler::start(&fs, soon / 4);
                fs.kill_mount(&fs.mnt());
                fs.start(&[]);
                filler
            }
        };
        fill(&ballast(&fs));
        files.verify(&when("full"));
        // Everything may end and begin on the full disk.
        if random.below(2) == 0 {
            fs.kill(SERVERS[random.below(2) as usize]);
            fs.start(&[]);
            files.verify(&when("a server killed on the full disk"));
        }
        down(&fs);
        fs.start(&[]);
        files.verify(&when("down and up on the full disk"));
        let before = pids(&fs);
        files.write(&fs.mnt(), 3, &mut random);
        files.remove_half();
        files.verify(&when("removing on the full disk"));
        // There is room again.
        filler.stop();
        fs::remove_file(ballast(&fs)).unwrap();
        let mut count = 0;
        // If files took most of the disk, and were removed soon after a restart, their room comes
        // with the end of the grace.
        wait_until(&when("service with room"), PATIENCE, || {
            count += 1;
            files.write(&fs.mnt(), 5, &mut random)
        });
        files.verify(&when("room"));
        assert_eq!(pids(&fs), before, "{}", when("nothing ended by itself"));
        eprintln!("round {round}: {} files, {count} attempts until there was room", files.0.len());
    }
    down(&fs);
    fs.start(&[]);
    files.verify("at the end");
    down(&fs);
}

#[test]
fn promise_full_disk_under_the_whole_state() {
    if available("promise_full_disk_under_the_whole_state", &NEEDS) {
        campaign(4, 1);
    }
}

#[test]
#[ignore = "minutes: the long campaign"]
fn twenty_rounds_of_a_full_disk() {
    let number =
        |name: &str, usual| std::env::var(name).ok().map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")));
    if available("twenty_rounds_of_a_full_disk", &NEEDS) {
        campaign(number("WEFT_FULL_ROUNDS", 20), number("WEFT_FULL_SEED", 1));
    }
}

/// The first `weft up` where there is too little room says so, leaves nothing behind that the next
/// one trips over, and the same command works when there is room.
#[test]
fn a_first_start_without_room_leaves_no_half_state() {
    if !available("a_first_start_without_room_leaves_no_half_state", &NEEDS) {
        return;
    }
    let fs = small_disk(DISK_MIB, Duration::from_secs(170));
    let free = || {
        let space = rustix::fs::statvfs(fs.path("disk")).unwrap();
        space.f_bavail * space.f_frsize
    };
    let up = |meta: &str| {
        let mut command = weft();
        command.args(["up", "--meta", meta, "--data", "1", "--state"]).arg(fs.state());
        command
    };
    for kept_mib in [0u64, 1, 20] {
        fill(&ballast(&fs));
        let taken = File::options().write(true).open(ballast(&fs)).unwrap();
        taken.set_len(taken.metadata().unwrap().len() - (kept_mib << 20)).unwrap();
        drop(taken);
        let words = fails(&mut up("1"));
        assert!(words.contains("room") || words.contains("free"), "{kept_mib} MiB: {words}");
        assert!(!words.contains("another `weft up`"), "{words}");
        assert_eq!(fs.processes(), [0; 0], "{words}");
        fs::remove_file(ballast(&fs)).unwrap();
        let left = DISK_MIB * (1 << 20) - free();
        assert!(left < 100 << 20, "{left} bytes are kept from others by what was not made: {words}");
    }
    // Also with another shape: nothing was made yet.
    ok(&mut up("2"));
    ok(weft().arg("ls").arg(fs.at("/")));
    down(&fs);
}

/// Who may not make large files (`ulimit -f`) has a full disk when one would have to grow: nothing
/// is killed by that.
#[test]
fn a_limit_of_the_size_of_files_is_a_full_disk() {
    let fs = FileSystem::prepare();
    let up = |mib: u64| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -f {}; exec \"$@\"", mib << 11), "sh"]).arg(weft().get_program());
        command.args(["up", "--meta", "1", "--data", "1", "--state"]).arg(fs.state());
        command
    };
    let words = fails(&mut up(1));
    assert!(words.contains("no file system was made"), "{words}");
    assert_eq!(fs.processes(), [0; 0], "{words}");
    ok(&mut up(40));
    fs::write(fs.path("file"), vec![7; 30 << 20]).unwrap();
    let copy = |name: &str| {
        let mut command = weft();
        command.arg("cp").arg(fs.path("file")).arg(fs.at(name));
        command
    };
    ok(&mut copy("/a"));
    let words = fails(&mut copy("/b"));
    assert!(words.contains("no space"), "{words}");
    let log = fs::read_to_string(fs.state().join("run/data0.log")).unwrap();
    assert_eq!(log.matches("ulimit -f").count(), 2, "once in each life: {log}");
    ok(weft().arg("status").arg(fs.state()));
    ok(weft().arg("rm").arg(fs.at("/a")));
    wait_until("room", PATIENCE, || copy("/c").output().unwrap().status.success());
    fs.down();
}

/// Without room a log stays as it is, and whoever wants to write it lives on; with room it goes on,
/// and says what is missing.
#[test]
fn nobody_dies_of_a_log_that_cannot_be_written() {
    if !available("nobody_dies_of_a_log_that_cannot_be_written", &NEEDS) {
        return;
    }
    let fs = small_disk(DISK_MIB, Duration::from_secs(170));
    fs.start(&["--meta", "1", "--data", "1"]);
    let mnt = fs.mount("mnt", "");
    fs::write(mnt.join("file"), "text").unwrap();
    fill(&ballast(&fs));
    let daemons = [fs.pid("meta0").unwrap(), fs.mount_pid(&mnt)];
    // Each hang-up is a line: more than fit the last block of a log.
    let hang_up = || {
        for pid in daemons {
            signal(pid, Signal::HUP).unwrap();
        }
        std::thread::sleep(Duration::from_millis(4));
    };
    (0..200).for_each(|_| hang_up());
    assert!(daemons.iter().all(|pid| alive(*pid)));
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "text");
    fs::remove_file(ballast(&fs)).unwrap();
    let logs = || fs::read_dir(fs.state().join("run")).unwrap().flatten().map(|entry| entry.path());
    let tells = |path: &PathBuf| {
        let is_one = ["meta0", "mount-"].iter().any(|who| path.file_name().unwrap().to_string_lossy().starts_with(who));
        is_one && path.extension().is_some_and(|end| end == "log") && fs::read_to_string(path).unwrap().contains("could not be written")
    };
    wait_until("both logs going on", PATIENCE, || {
        hang_up();
        logs().filter(|path| tells(path)).count() == 2
    });
    assert!(fs::write(mnt.join("more"), "text").is_ok());
    down(&fs);
}
