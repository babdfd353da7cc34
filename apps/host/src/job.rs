//! A program that runs in place of this one: signals are passed on to it, and this process ends as
//! it ended.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{AccessFlags, Pid, access};
use rustix::process::{PidfdFlags, WaitOptions, pidfd_open, waitpid};

use crate::output::tell_plainly;
use crate::parallel;

/// The number of a process with which servers end that are started with this variable: also those
/// of a `weft up`, which itself ends before them, and of builds that know no such option of it.
pub const UNTIL_VARIABLE: &str = "WEFT_UNTIL";

/// Signals that somebody may want the program to have. Stopping and going on (Ctrl-Z) need no help:
/// the terminal sends them to all of its foreground.
const PASSED_ON: [Signal; 8] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM, Signal::SIGWINCH];

/// A program whose end is waited for.
pub trait Program {
    /// The number of its process.
    fn id(&self) -> u32;

    /// How it has ended; `None` if it has not.
    ///
    /// # Errors
    /// Of the operating system.
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>>;
}

impl Program for Child {
    fn id(&self) -> u32 {
        Child::id(self)
    }

    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        Child::try_wait(self)
    }
}

/// A program that was started by [`JobSignals::start`].
#[derive(Debug)]
pub struct Started(rustix::process::Pid);

impl Program for Started {
    fn id(&self) -> u32 {
        self.0.as_raw_pid() as u32
    }

    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        Ok(waitpid(Some(self.0), WaitOptions::NOHANG)?.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
    }
}

/// Signals to this process, held until they are passed on.
#[derive(Debug)]
pub struct JobSignals {
    waiting: SignalFd,
    /// Those that were not blocked before.
    held: SigSet,
}

impl JobSignals {
    /// From now on they wait. Call it before any other thread is started and before the program
    /// is, since its end is such a signal, too.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn hold() -> Result<JobSignals> {
        let set: SigSet = PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect();
        let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK).context("cannot hold signals back")?;
        let held = set.iter().filter(|signal| !before.contains(*signal)).collect();
        Ok(JobSignals { waiting: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC).context("cannot wait for signals")?, held })
    }

    /// The numbers of the signals that are blocked only because they are held here. The program
    /// inherits that, and is to be begun without it: [`release`].
    pub fn held(&self) -> Vec<i32> {
        self.held.iter().map(|signal| signal as i32).collect()
    }

    /// Starts a program that gets these signals: none of them is blocked for it because it is held
    /// here. Of the command only the program, its arguments and variables count.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&self, command: &Command) -> io::Result<Started> {
        let mut mask = SigSet::thread_get_mask()?;
        self.held.iter().for_each(|signal| mask.remove(signal));
        let mut attributes = PosixSpawnAttr::init()?;
        attributes.set_sigmask(&mask)?;
        // Ignored here, and ignored would be inherited.
        attributes.set_sigdefault(&[Signal::SIGPIPE].into_iter().collect())?;
        attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
        let text = |text: &OsStr| CString::new(text.as_bytes());
        let mut line = std::iter::once(command.get_program()).chain(command.get_args()).map(text).collect::<Result<Vec<_>, _>>()?;
        let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => drop(variables.insert(name.into(), value.into())),
                None => drop(variables.remove(name)),
            }
        }
        let variable = |(name, value): (OsString, OsString)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat());
        let variables = variables.into_iter().map(variable).collect::<Result<Vec<_>, _>>()?;
        let spawn = |line: &[CString]| posix_spawnp(&line[0], &PosixSpawnFileActions::init()?, &attributes, line, &variables);
        let pid = match spawn(&line) {
            // A script that does not say whose, as shells and execvp(3) run it.
            Err(Errno::ENOEXEC) => {
                line[0] = text(found(command.get_program()).as_os_str())?;
                line.insert(0, c"/bin/sh".into());
                spawn(&line)?
            }
            spawned => spawned?,
        };
        rustix::process::Pid::from_raw(pid.as_raw()).map(Started).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Waits until the program has ended; passes on what comes meanwhile.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn wait(&self, program: &mut impl Program) -> Result<ExitStatus> {
        let pid = Pid::from_raw(program.id() as i32);
        loop {
            if let Some(status) = program.try_wait()? {
                return Ok(status);
            }
            let Some(info) = self.waiting.read_signal().context("cannot wait for signals")? else { continue };
            let signal = Signal::try_from(info.ssi_signo as i32).context("an unknown signal")?;
            // What the terminal sends (from the kernel, with a positive code) goes to its whole
            // foreground, so the program has it already; so it has what it sent itself.
            let is_for_program = signal != Signal::SIGCHLD && info.ssi_code <= 0 && info.ssi_pid != program.id();
            if is_for_program {
                // It may have ended just now.
                let _ = kill(pid, signal);
            }
        }
    }
}

/// The file of a program that is named as on a command line.
fn found(program: &OsStr) -> PathBuf {
    let path = std::env::var_os("PATH").filter(|_| !program.as_bytes().contains(&b'/')).unwrap_or_default();
    let is_program = |file: &PathBuf| access(file, AccessFlags::X_OK).is_ok() && file.is_file();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(is_program).unwrap_or_else(|| program.into())
}

/// Lets signals by these numbers come again, just before this process becomes the program of a
/// [`JobSignals`]. One that has come meanwhile counts now.
///
/// # Errors
/// A number is none of a signal, or of the operating system.
pub fn release(signals: &[i32]) -> Result<()> {
    let signals: nix::Result<SigSet> = signals.iter().map(|number| Signal::try_from(*number)).collect();
    signals.and_then(|signals| signals.thread_unblock()).context("cannot let signals come to the command")
}

/// What commands that run a program end with when they fail themselves, as `env` and `timeout` do.
pub const FAILED: u8 = 125;

/// Becomes a program. If that cannot be, says so in the name of `who` and gives the code that
/// shells have for it: 127 if it is not there, else 126.
pub fn become_program(who: &str, command: &mut Command) -> ExitCode {
    let error = command.exec();
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    tell_plainly(&format!("{who}: cannot run {}: {error}", command.get_program().display()));
    ExitCode::from(code)
}

/// This program, to be run once more.
///
/// # Errors
/// If its file cannot be found.
pub fn this_program() -> Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot find this program's own file")?))
}

/// The value of `LD_PRELOAD` with this library in front of others.
///
/// # Errors
/// The loader of programs would not find it.
pub fn preloaded(library: &Path) -> Result<OsString> {
    if library.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b':' | b' ' | b'\t' | b'\n')) {
        bail!("{}: the loader of programs takes no library whose path has spaces or colons", library.display());
    }
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    Ok(all)
}

/// The folder for temporary files; an empty `TMPDIR` names none, as for shells.
pub fn temporary_dir() -> PathBuf {
    let named = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty());
    named.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
}

/// Calls `then` when a process has ended, in a thread of its own. The process must live now, so
/// that its number is its own.
///
/// # Errors
/// If there is no such process.
pub fn on_exit(pid: i32, then: impl FnOnce() + Send + 'static) -> Result<()> {
    let process = rustix::process::Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let process = process.with_context(|| format!("there is no process {pid}"))?;
    parallel::start(move || {
        // Ready to be read means that it has ended.
        let mut ends = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        while poll(&mut ends, PollTimeout::NONE).is_err() {}
        then();
    })
    .map(drop)
}

/// Ends as a program did: by the same signal, or gives the code to end with.
pub fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(code) = status.code() {
        return ExitCode::from(code as u8);
    }
    let number = status.signal().unwrap_or(0);
    if let Ok(signal) = Signal::try_from(number) {
        // It left its core itself, if it was to.
        let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
        let set: SigSet = [signal].into_iter().collect();
        let _ = raise(signal);
        let _ = set.thread_unblock();
    }
    // The signal is ignored here: as shells say it.
    ExitCode::from(128 + number as u8)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_script_that_does_not_say_whose_it_is_is_one_of_the_shell() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "exit $1").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(&script);
        let mut started = JobSignals::hold().unwrap().start(command.arg("7")).unwrap();
        let ended = (0..2000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            started.try_wait().unwrap()
        });
        assert_eq!(ended.and_then(|status| status.code()), Some(7));
        assert_eq!(found(OsStr::new("sh")).file_name(), Some(OsStr::new("sh")));
        assert!(found(OsStr::new("sh")).is_absolute() && found(OsStr::new("./sh")).as_os_str() == "./sh");
    }
}
