//! A file system of a test: started as a user would, brought down whatever happens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{alive, signal};
use crate::program::{ok, run, wait_until, weft};

/// A test that takes longer has got stuck: its mounts and servers are killed, so that it fails
/// instead of hanging for ever.
const TEST_PATIENCE: Duration = Duration::from_secs(300);
/// For processes that were killed or started.
const PROCESS_PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of every log that are shown when a test has failed.
const LOG_BYTES: usize = 3000;

/// A running file system in a temporary folder. Dropping it stops everything, by force if need be.
#[derive(Debug)]
pub struct FileSystem {
    dir: Option<TempDir>,
    root: PathBuf,
    watchdog: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl FileSystem {
    /// A place for a file system that nobody has started yet.
    pub fn prepare() -> FileSystem {
        FileSystem::prepare_for(TEST_PATIENCE)
    }

    /// The same for a test that takes longer on purpose.
    pub fn prepare_for(patience: Duration) -> FileSystem {
        FileSystem::prepare_there(&std::env::temp_dir(), patience)
    }

    /// The same in a folder of this one.
    pub fn prepare_in(parent: &Path) -> FileSystem {
        FileSystem::prepare_there(parent, TEST_PATIENCE)
    }

    fn prepare_there(parent: &Path, patience: Duration) -> FileSystem {
        let dir = tempfile::Builder::new().prefix("weft-").tempdir_in(parent).expect("a temporary folder");
        // As the mount table has it.
        let root = dir.path().canonicalize().expect("a new folder has a path");
        let (sender, receiver) = mpsc::channel();
        let watched = root.clone();
        let thread = std::thread::spawn(move || {
            if receiver.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the test is stuck: everything in {} is killed after {} s", watched.display(), patience.as_secs());
                end_by_force(&watched);
            }
        });
        FileSystem { dir: Some(dir), root, watchdog: Some((sender, thread)) }
    }

    /// A new file system without a mount.
    pub fn up(args: &[&str]) -> FileSystem {
        let fs = FileSystem::prepare();
        fs.start(args);
        fs
    }

    /// A new file system with a mount ([`FileSystem::mnt`]).
    pub fn mounted(args: &[&str]) -> FileSystem {
        let fs = FileSystem::prepare();
        fs.start_mounted(args);
        fs
    }

    /// `weft up` without a mount.
    #[track_caller]
    pub fn start(&self, args: &[&str]) {
        ok(weft().args(["up", "--state"]).arg(self.state()).args(args));
    }

    /// `weft up` with a mount.
    #[track_caller]
    pub fn start_mounted(&self, args: &[&str]) {
        ok(weft().args(["up", "--state"]).arg(self.state()).arg("--mount").arg(self.mnt()).args(args));
    }

    /// Another mount at [`FileSystem::path`]`(name)`, with options as for `-o`.
    #[track_caller]
    pub fn mount(&self, name: &str, options: &str) -> PathBuf {
        let place = self.path(name);
        std::fs::create_dir_all(&place).expect("a mount point can be made");
        let mut command = weft();
        command.arg("mount").arg(self.state()).arg(&place);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        ok(&mut command);
        place
    }

    /// A path in the folder of this test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }
    /// The folder of a server.
    pub fn server_dir(&self, server: &str) -> PathBuf {
        self.state().join("servers").join(server)
    }
    /// The first mount.
    pub fn mnt(&self) -> PathBuf {
        self.path("mnt")
    }
    /// A path of the file system for commands that need no mount.
    pub fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.state().display())
    }

    /// `weft status`: true if all is well, and the report.
    pub fn status(&self) -> (bool, Value) {
        let finished = run(weft().args(["status", "--json", "--state"]).arg(self.state()), PROCESS_PATIENCE);
        let report = serde_json::from_slice(&finished.out).unwrap_or_else(|_| panic!("no JSON: {}", finished.words()));
        (finished.is_success(), report)
    }

    /// A field of a server in the report of [`FileSystem::status`].
    pub fn server(&self, name: &str, field: &str) -> Value {
        let (_, report) = self.status();
        let rows = report["servers"].as_array().unwrap_or_else(|| panic!("{report}"));
        rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))[field].clone()
    }

    /// Sum of a field over all servers of a role.
    pub fn total(&self, role: &str, field: &str) -> u64 {
        let (_, report) = self.status();
        let rows = report["servers"].as_array().unwrap_or_else(|| panic!("{report}"));
        rows.iter().filter(|row| row["role"] == role).map(|row| row[field].as_u64().unwrap_or_else(|| panic!("{row}"))).sum()
    }

    /// Requests that servers have answered so far, by operation.
    pub fn answered(&self) -> BTreeMap<String, u64> {
        let text = ok(weft().arg("metrics").arg(self.state()).arg("--once"));
        let mut counts = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("weft_request_duration_seconds_count{")) {
            let (labels, count) = line.rsplit_once("} ").expect("a line of the text format");
            let op = labels.split("op=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an operation");
            *counts.entry(op.to_string()).or_default() += count.parse::<u64>().expect("a number");
        }
        counts
    }

    /// How many requests of these operations servers have answered so far.
    pub fn answered_of(&self, ops: &[&str]) -> u64 {
        let counts = self.answered();
        ops.iter().filter_map(|op| counts.get(*op)).sum()
    }

    /// The process of a server, if it runs.
    pub fn pid(&self, server: &str) -> Option<u32> {
        self.server(server, "pid").as_u64().map(|pid| pid as u32)
    }

    /// The process of the mount at this place.
    #[track_caller]
    pub fn mount_pid(&self, place: &Path) -> u32 {
        let (_, report) = self.status();
        let rows = report["mounts"].as_array().unwrap_or_else(|| panic!("{report}"));
        let row = rows.iter().find(|row| row["place"].as_str().is_some_and(|text| Path::new(text) == place));
        row.and_then(|row| row["pid"].as_u64()).unwrap_or_else(|| panic!("no mount at {} in {report}", place.display())) as u32
    }

    /// Kills a server (SIGKILL) and waits until it is gone.
    #[track_caller]
    pub fn kill(&self, server: &str) {
        let pid = self.pid(server).unwrap_or_else(|| panic!("{server} does not run"));
        kill_and_wait(pid);
    }

    /// Kills a server that may just be ending by itself.
    pub fn kill_if_alive(&self, server: &str) {
        if let Some(pid) = self.pid(server) {
            let _ = signal(pid, Signal::KILL);
            wait_until("the end of a killed process", PROCESS_PATIENCE, || !alive(pid));
        }
    }

    /// Kills the process of a mount; the dead mount stays in the tree.
    #[track_caller]
    pub fn kill_mount(&self, place: &Path) {
        kill_and_wait(self.mount_pid(place));
    }

    /// Sends a server any signal.
    #[track_caller]
    pub fn signal(&self, server: &str, what: Signal) {
        let pid = self.pid(server).unwrap_or_else(|| panic!("{server} does not run"));
        signal(pid, what).unwrap_or_else(|error| panic!("cannot signal {server}: {error}"));
    }

    /// `weft down`; nothing of it is left afterwards.
    #[track_caller]
    pub fn down(&self) {
        ok(weft().args(["down", "--state"]).arg(self.state()));
        assert_eq!(processes(&self.root), [0; 0], "weft down left processes");
        assert_eq!(mounts(&self.root), [""; 0], "weft down left mounts");
    }

    /// Processes that belong to this test's folder.
    pub fn processes(&self) -> Vec<u32> {
        processes(&self.root)
    }

    /// The server that holds a directory's entries and the inodes of the files in it, by the inode
    /// number of the directory.
    pub fn server_of(&self, dir: &Path) -> String {
        use std::os::unix::fs::MetadataExt;
        let handle = std::fs::metadata(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())).ino();
        format!("meta{}", handle >> 48)
    }
}

#[track_caller]
fn kill_and_wait(pid: u32) {
    signal(pid, Signal::KILL).unwrap_or_else(|error| panic!("cannot kill process {pid}: {error}"));
    wait_until("the end of a killed process", PROCESS_PATIENCE, || !alive(pid));
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_logs(&self.state().join("run"));
        }
        for pid in processes(&self.root) {
            // A stopped process would ignore SIGTERM for ever.
            let _ = signal(pid, Signal::CONT);
        }
        if self.state().join("weft.toml").exists() {
            run(weft().args(["down", "--state"]).arg(self.state()), Duration::from_secs(30));
        }
        end_by_force(&self.root);
        if let Some((sender, thread)) = self.watchdog.take() {
            drop(sender);
            // It has nothing left to say.
            let _ = thread.join();
        }
        if std::env::var_os("WEFT_KEEP").is_some()
            && let Some(dir) = self.dir.take()
        {
            eprintln!("kept: {}", dir.keep().display());
        }
    }
}

/// Kills every process and removes every mount that has to do with this folder.
fn end_by_force(root: &Path) {
    for pid in processes(root) {
        // It may end by itself meanwhile.
        let _ = signal(pid, Signal::KILL);
    }
    // The innermost first.
    for place in mounts(root).iter().rev() {
        let unmounted = run(Command::new("umount").args(["-l", place]), Duration::from_secs(10));
        if !unmounted.is_success() {
            run(Command::new("fusermount3").args(["-uz", place]), Duration::from_secs(10));
        }
    }
}

/// Processes of weft whose command line names the folder.
fn processes(root: &Path) -> Vec<u32> {
    let root = root.as_os_str().as_encoded_bytes();
    let me = std::process::id();
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).filter(|pid| *pid != me);
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_weft = line.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(b"weft"));
        is_weft && line.windows(root.len()).any(|window| window == root)
    })
    .collect()
}

/// Mount points below the folder, in the order of the mount table.
fn mounts(root: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let places = table.lines().filter_map(|line| line.split(' ').nth(4));
    places.filter(|place| Path::new(place).starts_with(root)).map(str::to_string).collect()
}

fn show_logs(run_dir: &Path) {
    for entry in std::fs::read_dir(run_dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let bytes = std::fs::read(&path).unwrap_or_default();
            let tail = &bytes[bytes.len().saturating_sub(LOG_BYTES)..];
            eprintln!("--- {}\n{}", path.display(), String::from_utf8_lossy(tail));
        }
    }
}
