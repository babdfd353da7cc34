//! The verdict of `weft explain` while something is the matter, and what puts that in from outside:
//! limits of control groups, disks of a server's own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{FileSystem, Need, ok, wait_until, weft};

/// What a thread of the program does until it is told to stop.
pub type Round = fn(&Path, u32);

/// The verdict on a recording while so many threads do that, each in a directory of its own, and
/// `trouble` happens, which begins with the recording. It gets a function which waits and is true
/// until the recording is over.
pub fn told_of(
    fs: &FileSystem,
    (threads, seconds): (usize, &str),
    round: Round,
    trouble: impl FnOnce(&dyn Fn(Duration) -> bool),
) -> Vec<Value> {
    let mut explain = weft();
    explain.arg("explain").arg(fs.state());
    let trouble = |goes_on: &dyn Fn(Duration) -> bool| {
        let has_traces =
            |entry: std::io::Result<fs::DirEntry>| entry.is_ok_and(|entry| entry.path().extension().is_some_and(|end| end == "wtrace"));
        let is_on = || fs::read_dir(fs.state().join("trace")).is_ok_and(|mut entries| entries.any(has_traces));
        wait_until("a recording that has begun", Duration::from_secs(20), || is_on() || !goes_on(Duration::ZERO));
        trouble(goes_on);
    };
    told_by(explain, &fs.mnt(), (threads, seconds), round, trouble)
}

/// The same of any mount, as seen from here, with the command that explains it.
pub fn told_by(
    mut explain: Command,
    mnt: &Path,
    (threads, seconds): (usize, &str),
    round: Round,
    trouble: impl FnOnce(&dyn Fn(Duration) -> bool),
) -> Vec<Value> {
    let stop = AtomicBool::new(false);
    let dirs: Vec<PathBuf> = (0..threads).map(|thread| mnt.join(format!("d{thread}"))).collect();
    dirs.iter().for_each(|dir| fs::create_dir_all(dir).expect("a directory"));
    let out = std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for dir in &dirs {
            let stop = &stop;
            scope.spawn(move || (0..).take_while(|_| !stop.load(Ordering::Relaxed)).for_each(|number| round(dir, number)));
        }
        explain.args(["--seconds", seconds, "--json"]).stdout(Stdio::piped());
        let recording = explain.spawn().expect("weft is there");
        let recorded = scope.spawn(move || recording.wait_with_output().expect("it ends"));
        trouble(&|pause| {
            std::thread::sleep(pause);
            !recorded.is_finished()
        });
        recorded.join().expect("no panic")
    });
    let report: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error}: {out:?}"));
    let told = report["verdict"].as_array().expect("a list").clone();
    told.iter().for_each(|one| eprintln!("{}: {}", one["cause"], one["sentence"]));
    told
}

/// Limits of one process by a control group, until it is dropped.
#[derive(Debug)]
pub struct Limited {
    group: PathBuf,
    pid: u32,
}

/// Where control groups of this kind are (version 1).
fn groups(kind: &str) -> PathBuf {
    Path::new("/sys/fs/cgroup").join(kind)
}

impl Limited {
    /// True if this machine has control groups of this kind (`cpu`, `freezer`, `blkio`).
    pub fn is_there(kind: &str) -> bool {
        groups(kind).join("cgroup.procs").exists()
    }

    /// Puts a process into a group of its own with these values.
    pub fn new(kind: &str, pid: u32, values: &[(&str, &str)]) -> Limited {
        let group = groups(kind).join(format!("weft-{pid}"));
        fs::create_dir(&group).expect("a control group can be made");
        let limited = Limited { group, pid };
        fs::write(limited.group.join("cgroup.procs"), pid.to_string()).expect("the process is there");
        values.iter().for_each(|(key, value)| limited.set(key, value));
        limited
    }

    /// A part of a processor, in percent.
    pub fn to_processor(pid: u32, percent: u32) -> Limited {
        Limited::new("cpu", pid, &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", &(percent * 1000).to_string())])
    }

    /// Gives a value.
    pub fn set(&self, key: &str, value: &str) {
        fs::write(self.group.join(key), value).unwrap_or_else(|error| panic!("{key} = {value}: {error}"));
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // Either may have ended; an empty group that stays harms nobody.
        let above = self.group.parent().map(|above| above.join("cgroup.procs"));
        let _ = fs::write(self.group.join("freezer.state"), "THAWED");
        let _ = above.map(|above| fs::write(above, self.pid.to_string()));
        let _ = fs::remove_dir(&self.group);
    }
}

/// A disk that one server has for itself: an image, and where it is mounted. Unmounted with the
/// file system's folder.
#[derive(Debug)]
pub struct OwnDisk {
    /// Its root.
    pub root: PathBuf,
    /// The file that holds it.
    pub image: PathBuf,
}

impl OwnDisk {
    /// Moves the store of a server of a file system that does not run onto a disk of so many bytes,
    /// whose image lies in `place`.
    pub fn of(fs: &FileSystem, server: &str, place: &Path, mib: u64) -> OwnDisk {
        let disk = OwnDisk { root: fs.path("disk"), image: place.join("image") };
        File::create(&disk.image).and_then(|file| file.set_len(mib << 20)).expect("an image");
        // No journal, so that nothing but the server writes.
        ok(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=0"]).arg(&disk.image));
        fs::create_dir(&disk.root).expect("a folder");
        ok(Command::new("mount").args(["-o", "loop,errors=continue"]).arg(&disk.image).arg(&disk.root));
        ok(Command::new("cp").args(["-a", "--sparse=always"]).arg(fs.server_dir(server)).arg(disk.root.join("store")));
        ok(Command::new("mount").arg("--bind").arg(disk.root.join("store")).arg(fs.server_dir(server)));
        disk
    }

    /// Its device as control groups name it.
    pub fn device(&self) -> String {
        let table = fs::read_to_string("/proc/self/mountinfo").expect("proc is mounted");
        let of_root = |line: &&str| line.split(' ').nth(4).is_some_and(|place| Path::new(place) == self.root);
        let line = table.lines().find(of_root).expect("it is mounted");
        line.split(' ').nth(2).expect("its device").to_string()
    }

    /// Takes all that is free.
    pub fn fill(&self) {
        let mut file = File::create(self.root.join("ballast")).expect("a file");
        // Until there is no room.
        let _ = std::io::copy(&mut std::io::repeat(7), &mut file);
    }

    /// From now on nothing can be written where nothing was: its image has no room.
    pub fn refuse_writes(&self) {
        let mut file = File::create(self.image.with_file_name("ballast")).expect("a file");
        let _ = std::io::copy(&mut std::io::repeat(7), &mut file);
    }
}

/// Calls of a process that another program holds up, or answers, until it is dropped.
#[derive(Debug)]
pub struct Meddled(Child);

impl Meddled {
    /// The programs that this needs.
    pub const NEEDS: Need = Need::Programs(&["strace"]);

    /// These calls of a process (and others as they come) are treated as `strace -e inject=...`
    /// says.
    pub fn with(pid: u32, calls: &str, how: &str) -> Meddled {
        let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:{how}"));
        let mut command = Command::new("strace");
        command.args(["-q", "-f", "-o", "/dev/null", "-e", &trace, "-e", &inject, "-p", &pid.to_string()]);
        let meddled = Meddled(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace is installed"));
        let is_traced = || {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
        };
        wait_until("a process that is looked into", Duration::from_secs(20), is_traced);
        meddled
    }
}

impl Drop for Meddled {
    fn drop(&mut self) {
        // It lets the process go before it ends; only this signal is its to answer.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Tells threads to stop, also when what they serve fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
