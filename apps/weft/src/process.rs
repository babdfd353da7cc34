//! Background processes and how to tell that they live.
//!
//! A process that others must find holds an exclusive lock (`flock`) on its pid file for as long as it lives. The kernel drops the lock
//! with the process, however it dies, so a pid file without a lock is nobody's, and a pid that was given to a stranger is never
//! signalled. Nor is one that somebody else wrote: a pid file must be of this user or of root, and the process that it names must have begun
//! when it says, run this program and be of this user.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use crate::{identity, trust};

/// How often something that should happen soon is looked at.
const POLL: Duration = Duration::from_millis(5);

/// How long the entry of an ended process in the process table is waited for.
const REAP_PATIENCE: Duration = Duration::from_secs(1);

/// Our own pid file, locked until this is dropped or the process ends.
#[derive(Debug)]
pub struct PidFile {
    file: File,
    path: PathBuf,
}

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
    /// Takes the file and writes our pid and `note` into it.
    ///
    /// # Errors
    /// If another living process holds it, or the disk refuses.
    pub fn take(path: &Path, note: &str) -> Result<PidFile> {
        let open = trust::own_file().read(true).write(true).create(true).truncate(false).mode(0o644).open(path);
        let mut file = open.with_context(|| format!("cannot open the pid file {}", path.display()))?;
        trust::check_file(path, &file)?;
        // Somebody who only looks holds a shared lock for some microseconds: try again before believing in a rival.
        let end = Instant::now() + Duration::from_millis(500);
        while let Err(error) = file.try_lock() {
            match error {
                TryLockError::Error(error) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
                TryLockError::WouldBlock if Instant::now() < end => thread::sleep(POLL),
                TryLockError::WouldBlock => match holder(path)? {
                    Some(holder) => bail!("it runs already, as process {} (it holds {})", holder.pid, path.display()),
                    None => bail!("another process starts it just now (it holds {})", path.display()),
                },
            }
        }
        file.set_len(0)?;
        let pid = std::process::id();
        write!(file, "{pid} {}\n{note}", identity::started(pid as i32)?)?;
        Ok(PidFile { file, path: path.to_path_buf() })
    }

    /// Holds the file until the process is gone, so that whoever waits for its end does not go on while it still tears down.
    pub fn hold_until_exit(self) {
        std::mem::forget(self);
    }

    /// Gives the file up and removes it while the process goes on.
    pub fn remove(self) {
        // If this fails, the file stays behind without a lock, and that means the same.
        let _ = std::fs::remove_file(&self.path);
        drop(self.file);
    }
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
        if let Some((who, note)) = text.split_once('\n')
            && let Some((pid, began)) = who.split_once(' ')
            && let (Ok(pid), Ok(began)) = (pid.parse(), began.parse())
        {
            return Ok(Some(Holder { pid, began, note: note.to_string() }));
        }
        // The holder has locked the file and not yet written its pid.
        if Instant::now() >= end {
            bail!("{} is locked but names no process", path.display());
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
            let _ = std::fs::remove_file(path);
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
            let _ = std::fs::remove_file(path);
            // Ended it has; where init is slow its entry in the process table takes a moment longer to go, and may also stay.
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

/// Starts this program again in the background; what it prints goes to the end of `log`. With `--detached` among `args` it leaves the
/// terminal's session by itself.
///
/// # Errors
/// If the process cannot be started or the log cannot be written.
pub fn start_in_background<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>, log: &Path, stdout: Stdio) -> Result<Child> {
    let open = OpenOptions::new().append(true).create(true).mode(0o600).open(log);
    let log_file = open.with_context(|| format!("cannot write the log {}", log.display()))?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(&program);
    command.args(args).stdin(Stdio::null()).stdout(stdout).stderr(log_file).current_dir("/");
    command.spawn().with_context(|| format!("cannot start {}", program.display()))
}

/// Leaves the session of the terminal, so that closing it or pressing Ctrl-C there does not reach this process.
pub fn detach() {
    // Fails only for a process that leads a group already: then it is as detached as it needs to be.
    let _ = nix::unistd::setsid();
}

/// Lets this process open as many files and connections as its hard limit allows: the soft one, usually 1024, is for programs that still
/// use `select`.
pub fn raise_descriptors() {
    // What cannot be raised stays as it is; then the process refuses connections earlier.
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// SIGTERM, SIGINT and SIGHUP, turned from a sudden end into something to wait for.
#[derive(Debug)]
pub struct StopSignals(SigSet);

impl StopSignals {
    /// From now on these signals wait until they are asked for. Call it before any other thread is started, since threads inherit it.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn block() -> Result<StopSignals> {
        let set = stop_signals();
        set.thread_block().context("cannot block signals")?;
        Ok(StopSignals(set))
    }

    /// Lets them through again: a process inherits what the one that started it had blocked.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn unblock() -> Result<()> {
        stop_signals().thread_unblock().context("cannot unblock signals")
    }

    /// Waits for the next of them.
    pub fn wait(&self) -> Signal {
        loop {
            if let Ok(signal) = self.0.wait() {
                return signal;
            }
        }
    }

    /// Calls `on_stop` at the first signal, in a thread of its own; a second one ends the process at once.
    pub fn on_stop(self, on_stop: impl FnOnce() + Send + 'static) {
        thread::spawn(move || {
            self.wait();
            on_stop();
            self.wait();
            std::process::exit(130);
        });
    }
}

fn stop_signals() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect()
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
        assert!(PidFile::take(&path, "").unwrap_err().to_string().contains("runs already"));
        drop(mine);
        assert!(path.exists(), "only an orderly end removes the file");
        assert_eq!(holder(&path).unwrap(), None, "a file without a lock is nobody's");
        PidFile::take(&path, "").unwrap().remove();
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_pid_is_never_signalled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pid");
        // Our own pid: had it been signalled, this test would be dead.
        std::fs::write(&path, format!("{}\n", std::process::id())).unwrap();
        assert_eq!(end(&path, Duration::from_secs(1)).unwrap(), Ended::WasNotRunning);
        assert!(!path.exists());
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
            writeln!(forged, "{pid} {began}").unwrap();
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
