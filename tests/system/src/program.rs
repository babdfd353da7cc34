//! Running programs with a bound on every wait.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long any command of a test may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often something that should happen soon is looked at.
const POLL: Duration = Duration::from_millis(5);

/// What became of a command.
#[derive(Debug)]
pub struct Finished {
    /// How it ended; `None` if it had to be killed because it took too long.
    pub status: Option<ExitStatus>,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub errors: Vec<u8>,
}

impl Finished {
    /// True if it ended by itself with code 0.
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Both outputs, for people.
    pub fn words(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.out), String::from_utf8_lossy(&self.errors))
    }
}

/// The program under test: `WEFT_BIN`, or the one that was built beside this test, or one that is
/// built now.
pub fn weft() -> Command {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let mut command = Command::new(PATH.get_or_init(find_weft));
    command.env_remove("WEFT_KEY_FILE");
    command
}

/// [`weft`] for other users ([`crate::as_user`]), who may not reach the folder in which it was
/// built: a descriptor leads there, too. To be called once by who may.
pub fn weft_for_others() -> Command {
    static FILE: OnceLock<File> = OnceLock::new();
    let file = FILE.get_or_init(|| File::open(weft().get_program()).expect("the program can be read"));
    let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    command.env_remove("WEFT_KEY_FILE");
    command
}

fn find_weft() -> PathBuf {
    std::env::var_os("WEFT_BIN").map_or_else(|| built("weft", "weft"), PathBuf::from)
}

/// A file that cargo makes of a package: the one that lies beside this test, or one that is built
/// now.
pub fn built(package: &str, file: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("tests lie in target/PROFILE/deps");
    let beside = profile.join(file);
    if !beside.is_file() {
        let mut build = cargo();
        build.args(["build", "-p", package, "--target-dir"]).arg(profile.parent().expect("a profile lies in the target directory"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let finished = run(&mut build, Duration::from_secs(1200));
        assert!(finished.is_success(), "cannot build {package}:\n{}", finished.words());
    }
    beside
}

/// Cargo as a shell starts it. What cargo has started knows of its package by variables; build
/// scripts that look at the same ones, as that of ring, make cargo build nearly all anew for each
/// value.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name.as_bytes().starts_with(b"CARGO_PKG_") || name.as_bytes().starts_with(b"CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Runs a command to its end, or kills it after `patience`.
pub fn run(command: &mut Command, patience: Duration) -> Finished {
    // Files and not pipes: what a command starts in the background may keep a pipe open for ever.
    let mut outputs = [tempfile::tempfile().expect("a temporary file"), tempfile::tempfile().expect("a temporary file")];
    let copy = |file: &File| file.try_clone().expect("a descriptor can be duplicated");
    command.stdin(Stdio::null()).stdout(copy(&outputs[0])).stderr(copy(&outputs[1]));
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let end = Instant::now() + patience;
    let status = loop {
        if let Some(status) = child.try_wait().expect("waiting for a child works") {
            break Some(status);
        }
        if Instant::now() >= end {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(POLL);
    };
    let [out, errors] = outputs.each_mut().map(|file| {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("a temporary file can be read");
        bytes
    });
    Finished { status, out, errors }
}

/// Runs a command that must succeed; gives its standard output.
#[track_caller]
pub fn ok(command: &mut Command) -> String {
    let finished = run(command, PATIENCE);
    assert!(finished.is_success(), "{command:?} failed ({:?}):\n{}", finished.status, finished.words());
    String::from_utf8_lossy(&finished.out).into_owned()
}

/// Runs a command that must fail by itself; gives what it printed on both outputs.
#[track_caller]
pub fn fails(command: &mut Command) -> String {
    let finished = run(command, PATIENCE);
    assert!(finished.status.is_some_and(|status| !status.success()), "{command:?} did not fail:\n{}", finished.words());
    // No code: a signal. 101: a panic.
    let code = finished.status.and_then(|status| status.code());
    assert!(code.is_some_and(|code| code != 101), "{command:?} crashed ({:?}):\n{}", finished.status, finished.words());
    finished.words()
}

/// Waits until `condition` holds; panics with `what` if it does not within `patience`.
#[track_caller]
pub fn wait_until(what: &str, patience: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + patience;
    while !condition() {
        assert!(Instant::now() < end, "{what}: not within {} s", patience.as_secs());
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_end_in_time() {
        assert_eq!(ok(Command::new("sh").args(["-c", "echo out; echo err >&2"])), "out\n");
        assert_eq!(fails(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])), "out\nerr\n");
        let endless = run(Command::new("sleep").arg("60"), Duration::from_millis(20));
        assert!(endless.status.is_none() && !endless.is_success());
        // A child in the background that keeps the outputs open is nobody's business.
        let begun = Instant::now();
        ok(Command::new("sh").args(["-c", "sleep 30 & echo $!"]));
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
