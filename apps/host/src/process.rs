//! Background processes and how to tell that they live.
//!
//! A process that others must find holds an exclusive lock (`flock`) on its pid file for as long as
//! it lives. The kernel drops the lock with the process, however it dies, so a pid file without a
//! lock is nobody's, and a pid that was given to a stranger is never signalled. Nor is one that
//! somebody else wrote: a pid file must be of this user or of root, and the process that it names
//! must have begun when it says, run this program and be of this user.
//!
//! The file stays when its process has gone, and is written in place: so it keeps its block on the
//! disk, and what ran before can be started again when the disk is full. Where even that block is
//! missing, the kernel's list of locks names the holder.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{identity, job, trust};

/// How often something that should happen soon is looked at.
const POLL: Duration = Duration::from_millis(5);

/// How long the entry of an ended process in the process table is waited for.
const REAP_PATIENCE: Duration = Duration::from_secs(1);

/// Our own pid file, locked until this is dropped or the process ends.
#[derive(Debug)]
pub struct PidFile {
    file: File,
}

/// Why a pid file was not taken: a living process holds it.
#[derive(Debug)]
pub struct Held(String);

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Held {}

/// A living process that holds a pid file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its pid.
    pub pid: i32,
    /// When it began ([`identity::started`]).
    pub began: u64,
    /// What it wrote behind the pid (the mount point of a mount).
    pub note: String,
}

/// How a process that should end did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It did not run.
    WasNotRunning,
    /// After SIGTERM.
    Stopped,
    /// After SIGKILL.
    Killed,
}

impl PidFile {
    /// Takes the file and writes our pid and `note` into it. On a full disk it may stay without the
    /// pid, but not without a note.
    ///
    /// # Errors
    /// [`Held`] if another living process holds it, or the disk refuses.
    pub fn take(path: &Path, note: &str) -> Result<PidFile> {
        let open = trust::own_file().read(true).write(true).create(true).truncate(false).mode(0o644).open(path);
        let file = open.with_context(|| format!("cannot open the pid file {}", path.display()))?;
        trust::check_file(path, &file)?;
        // Somebody who only looks holds a shared lock for some microseconds: try again before
        // believing in a rival.
        let end = Instant::now() + Duration::from_millis(500);
        while let Err(error) = file.try_lock() {
            match error {
                TryLockError::Error(error) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
                TryLockError::WouldBlock if Instant::now() < end => thread::sleep(POLL),
                TryLockError::WouldBlock => {
                    let who = holder(path)?.map_or("another process".to_string(), |holder| format!("process {}", holder.pid));
                    bail!(Held(format!("{who} runs already and holds {}", path.display())));
                }
            }
        }
        let pid_file = PidFile { file };
        match pid_file.set_note(note) {
            Err(error) if note.is_empty() && is_full(&error) => {}
            written => written.with_context(|| {
                format!("cannot write the pid file {}; if its disk is full, make room there and try again", path.display())
            })?,
        }
        Ok(pid_file)
    }

    /// Writes another note behind our pid.
    ///
    /// # Errors
    /// Of the disk.
    pub fn set_note(&self, note: &str) -> io::Result<()> {
        let pid = std::process::id();
        let text = format!("{pid} {}\n{note}", identity::started(pid as i32).map_err(io::Error::other)?);
        self.file.write_all_at(text.as_bytes(), 0)?;
        // Not before: that would give the block back.
        self.file.set_len(text.len() as u64)
    }

    /// Holds the file until the process is gone, so that whoever waits for its end does not go on
    /// while it still tears down.
    pub fn hold_until_exit(self) {
        std::mem::forget(self);
    }

    /// Gives the file up while the process goes on. It stays, without a lock: another process may
    /// have opened it already to take it next.
    pub fn release(self) {
        drop(self.file);
    }
}

/// True if there was no room on a disk.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The process that holds a lock (`flock`) on this file, by the kernel's list. `None` if it is not
/// in the list: in a container, or on file systems whose files have other numbers there.
fn locker(file: &File) -> Option<i32> {
    let meta = file.metadata().ok()?;
    let (major, minor) = (nix::sys::stat::major(meta.dev()), nix::sys::stat::minor(meta.dev()));
    locker_in(&std::fs::read_to_string("/proc/locks").ok()?, &format!("{major:02x}:{minor:02x}:{}", meta.ino()))
}

/// The same in this list: `3: FLOCK ADVISORY WRITE 4711 fe:00:131 0 EOF`, and `3: -> FLOCK ...` for
/// whoever waits.
fn locker_in(list: &str, file: &str) -> Option<i32> {
    list.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_held = words.next()? == "FLOCK" && words.nth(1)? == "WRITE";
        let (pid, place) = (words.next()?.parse().ok()?, words.next()?);
        (is_held && place == file && pid > 0).then_some(pid)
    })
}

/// The living process that holds a pid file, if there is one.
///
/// # Errors
/// If the file exists and cannot be read.
pub fn holder(path: &Path) -> Result<Option<Holder>> {
    let mut file = match trust::own_file().read(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(|| format!("cannot open the pid file {}", path.display()))?,
    };
    trust::check_file(path, &file)?;
    let end = Instant::now() + Duration::from_millis(200);
    loop {
        match file.try_lock_shared() {
            Ok(()) => return Ok(None),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("cannot look at the lock of {}", path.display())),
        }
        let mut text = String::new();
        file.rewind()?;
        file.read_to_string(&mut text)?;
        // The kernel knows who holds it now; what is written may still be from the holder before,
        // or be a lie.
        let locker = locker(&file);
        let mut named = None;
        if let Some((who, note)) = text.split_once('\n')
            && let Some((pid, began)) = who.split_once(' ')
            && let (Ok(pid), Ok(began)) = (pid.parse(), began.parse())
            && {
                named = Some(pid);
                locker.is_none_or(|locker| locker == pid)
            }
        {
            return Ok(Some(Holder { pid, began, note: note.to_string() }));
        }
        // The holder has locked the file and not yet written its pid, or cannot write it.
        if Instant::now() >= end {
            match (locker, named) {
                (Some(pid), None) => return Ok(Some(Holder { pid, began: identity::started(pid)?, note: String::new() })),
                (Some(pid), Some(named)) => {
                    bail!("{} names process {named}, but process {pid} holds it: both are left alone", path.display())
                }
                (None, _) => bail!("{} is locked but names no process", path.display()),
            }
        }
        thread::sleep(POLL);
    }
}

/// Ends the holder of a pid file: SIGTERM, and SIGKILL if it still lives after `patience`.
///
/// # Errors
/// If it cannot be signalled, or survives SIGKILL for another `patience`.
pub fn end(path: &Path, patience: Duration) -> Result<Ended> {
    for (signal, outcome) in [(Signal::SIGTERM, Ended::Stopped), (Signal::SIGKILL, Ended::Killed)] {
        let Some(first) = holder(path)? else {
            return Ok(if signal == Signal::SIGTERM { Ended::WasNotRunning } else { Ended::Stopped });
        };
        if let Err(error) = identity::check(first.pid, first.began) {
            // It may have ended meanwhile.
            if holder(path)?.as_ref() != Some(&first) {
                continue;
            }
            return Err(error.context(format!("the process that {} names is not ended", path.display())));
        }
        send(first.pid, signal)?;
        if wait_until(patience, || Ok(holder(path)?.is_none_or(|holder| holder.pid != first.pid)))? {
            // Ended it has; where init is slow its entry in the process table takes a moment longer
            // to go, and may also stay.
            wait_until(REAP_PATIENCE, || Ok(kill(Pid::from_raw(first.pid), None) == Err(nix::errno::Errno::ESRCH)))?;
            return Ok(outcome);
        }
    }
    bail!("the process that holds {} does not end, not even after SIGKILL", path.display())
}

fn send(pid: i32, signal: Signal) -> Result<()> {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot send {signal} to process {pid}")),
    }
}

/// Looks at `condition` until it holds or `patience` is over; tells whether it held.
///
/// # Errors
/// Of the condition.
pub fn wait_until(patience: Duration, mut condition: impl FnMut() -> Result<bool>) -> Result<bool> {
    let end = Instant::now() + patience;
    loop {
        if condition()? {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        thread::sleep(POLL);
    }
}

/// Ends a server that this process has started, as [`end`] does; at once if it has not come as far
/// as its pid file.
pub fn end_server(child: &mut Child, pid_file: &Path, patience: Duration) {
    match end(pid_file, patience) {
        Ok(Ended::Stopped | Ended::Killed) => drop(child.wait()),
        _ => kill_child(child),
    }
}

/// Ends a process that this one has started, at once.
pub fn kill_child(child: &mut Child) {
    // It may have ended just now.
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits for the end of a process that this one has started; it is killed if that takes longer than
/// `patience`. Tells whether it ended by itself.
pub fn end_child(child: &mut Child, patience: Duration) -> bool {
    let ended = matches!(wait_until(patience, || Ok(child.try_wait()?.is_some())), Ok(true));
    if !ended {
        kill_child(child);
    }
    ended
}

/// Starts this program again in the background; what it prints goes to the end of `log`. With
/// `--detached` among `args` it leaves the terminal's session by itself. It inherits no other
/// descriptor: a lock or pipe of whoever started this one would stay open as long as it lives.
/// Without a log it runs all the same.
///
/// # Errors
/// If the process cannot be started.
pub fn start_in_background<S: AsRef<std::ffi::OsStr>>(
    args: impl IntoIterator<Item = S>,
    log: &Path,
    stdin: Stdio,
    stdout: Stdio,
) -> Result<Child> {
    let open = OpenOptions::new().append(true).create(true).mode(0o600).open(log);
    let log_file = open.map_or_else(
        |error| {
            crate::output::tell(&format!("cannot write the log {}, so there is none: {error}", log.display()));
            Stdio::null()
        },
        Stdio::from,
    );
    weft_rt_real::keep_descriptors_to_ourselves().context("cannot keep open files from the process in the background")?;
    let mut command = job::this_program()?;
    command.args(args).stdin(stdin).stdout(stdout).stderr(log_file).current_dir("/");
    command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))
}

/// Leaves the session of the terminal, so that closing it or pressing Ctrl-C there does not reach
/// this process.
pub fn detach() {
    // Fails only for a process that leads a group already: then it is as detached as it needs to
    // be.
    let _ = nix::unistd::setsid();
}

/// Lets this process open as many files and connections as its hard limit allows: the soft one,
/// usually 1024, is for programs that still use `select`.
pub fn raise_descriptors() {
    // What cannot be raised stays as it is; then the process refuses connections earlier.
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// The last lines of a log, for a message about a process that failed.
pub fn log_tail(log: &Path, lines: usize) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| format!("\n    {line}")).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_pid_file_tells_who_lives() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pid");
        assert_eq!(holder(&path).unwrap(), None);
        let mine = PidFile::take(&path, "/mnt/a\nb").unwrap();
        let pid = std::process::id() as i32;
        let expected = Holder { pid, began: identity::started(pid).unwrap(), note: "/mnt/a\nb".into() };
        assert_eq!(holder(&path).unwrap(), Some(expected));
        let refused = PidFile::take(&path, "").unwrap_err();
        assert!(refused.is::<Held>() && refused.to_string().contains("runs already"), "{refused}");
        drop(mine);
        assert_eq!(holder(&path).unwrap(), None, "a file without a lock is nobody's");
        PidFile::take(&path, "").unwrap().release();
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written.lines().count(), 1, "written in place, and as long as it is: {written}");
        let missing = PidFile::take(&dir.path().join("no/x.pid"), "").unwrap_err();
        assert!(!missing.is::<Held>(), "{missing}");
    }

    #[test]
    fn who_holds_a_file_without_a_pid_is_known_to_the_kernel() {
        let list = "1: FLOCK  ADVISORY  WRITE 12 fe:00:131 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 13 fe:00:132 0 EOF\n\
                    2: FLOCK  ADVISORY  READ 14 fe:00:132 0 EOF\n3: POSIX  ADVISORY  WRITE 15 fe:00:132 0 EOF\n\
                    4: FLOCK  ADVISORY  WRITE 16 fe:00:132 0 EOF\n";
        assert_eq!(locker_in(list, "fe:00:131"), Some(12));
        assert_eq!(locker_in(list, "fe:00:132"), Some(16));
        assert_eq!(locker_in(list, "fe:00:133"), None);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pid");
        // As a full disk leaves it.
        std::fs::write(&path, "").unwrap();
        let file = File::open(&path).unwrap();
        file.lock().unwrap();
        if locker(&file).is_some() {
            let pid = std::process::id() as i32;
            let expected = Holder { pid, began: identity::started(pid).unwrap(), note: String::new() };
            assert_eq!(holder(&path).unwrap(), Some(expected));
        }
    }

    #[test]
    fn a_stale_pid_is_never_signalled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pid");
        // Our own pid: had it been signalled, this test would be dead.
        std::fs::write(&path, format!("{}\n", std::process::id())).unwrap();
        assert_eq!(end(&path, Duration::from_secs(1)).unwrap(), Ended::WasNotRunning);
    }

    #[test]
    fn a_pid_file_that_names_somebody_elses_process_ends_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pid");
        let mut victim = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = victim.id() as i32;
        for began in [0, identity::started(pid).unwrap()] {
            // Whoever could write here would hold the lock as well.
            let mut forged = File::create(&path).unwrap();
            io::Write::write_all(&mut forged, format!("{pid} {began}\n").as_bytes()).unwrap();
            forged.lock().unwrap();
            let refused = wait_until(Duration::from_secs(20), || {
                // Between fork and exec the child still is this program.
                Ok(began == 0 || identity::check(pid, began).is_err())
            });
            assert!(refused.unwrap());
            let message = format!("{:#}", end(&path, Duration::from_secs(1)).unwrap_err());
            assert!(message.contains("left alone"), "{message}");
        }
        assert!(victim.try_wait().unwrap().is_none(), "it lives");
        victim.kill().unwrap();
        victim.wait().unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(PidFile::take(&path, "").is_err() && holder(&path).is_err(), "a symlink in its place is not followed");
    }

    #[test]
    fn the_tail_of_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(log_tail(&log, 3), "");
        std::fs::write(&log, "a\nb\nc\n").unwrap();
        assert_eq!(log_tail(&log, 2), "\n    b\n    c");
    }
}
