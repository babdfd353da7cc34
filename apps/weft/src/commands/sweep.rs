//! `weft sweep`, which only `weft run` calls: clears up after it, however it ended.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use weft_host::config::Config;
use weft_host::state::StateDir;
use weft_host::{job, mounts, process, trust};

use super::down;

/// How long something may still be in the way: a mount process that ends, a `weft up` that starts
/// servers.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a mount point that seems to be in another's hands may be just on its way: removed by a
/// sweeper, or given up by a `weft run` that was killed.
const HANDS: Duration = Duration::from_millis(500);

/// The folder of one `weft run`, and the process that removes it.
#[derive(Debug)]
pub struct Scratch {
    home: PathBuf,
    sweeper: Child,
    /// The mount point, with a shared lock: other jobs may use it, and no sweeper removes it.
    held: Option<File>,
}

impl Scratch {
    /// A new folder below this one, or below that for temporary files. It is removed when the
    /// result is given back, and when this process ends without that.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn begin(below: Option<&Path>) -> Result<Scratch> {
        let below = std::path::absolute(below.map_or_else(job::temporary_dir, Path::to_path_buf))?;
        let made = tempfile::Builder::new().prefix("weft-run-").tempdir_in(&below);
        let home = made.with_context(|| format!("cannot make a folder below {}; name another place by --scratch", below.display()))?;
        let mut command = job::this_program()?;
        command.arg("sweep").arg(home.path()).stdin(Stdio::piped()).stdout(Stdio::null()).current_dir("/");
        let sweeper = command.spawn().context("cannot start the process that clears up")?;
        // From here on it is removed by the sweeper: never all of it, a mount may be in it.
        Ok(Scratch { home: home.keep(), sweeper, held: None })
    }

    /// The folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Where an ephemeral file system has its state.
    pub fn state(&self) -> PathBuf {
        self.home.join("state")
    }

    /// A mount point in the folder.
    ///
    /// # Errors
    /// Of the disk.
    pub fn own_mount_point(&mut self) -> Result<PathBuf> {
        self.mount_point(&self.home.join("mnt"))
    }

    /// A mount point that somebody named; what has to be made for it is removed again, unless
    /// another job uses it then.
    ///
    /// # Errors
    /// Of the disk.
    pub fn mount_point(&mut self, at: &Path) -> Result<PathBuf> {
        let at = std::path::absolute(at)?;
        process::wait_until(HANDS, || {
            match fs::DirBuilder::new().mode(0o700).create(&at) {
                Ok(()) => std::os::unix::fs::symlink(&at, self.home.join("made")).context("cannot note which mount point was made")?,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("cannot make the mount point {}", at.display())),
            }
            self.held = match hold(&at) {
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WouldBlock) => return Ok(false),
                // Where there are no locks it is as good as it can be.
                held => held.ok(),
            };
            Ok(true)
        })?;
        Ok(mounts::resolve(&at))
    }

    /// Clears up, and waits for that.
    ///
    /// # Errors
    /// If something could not be removed; the sweeper has said what.
    pub fn end(mut self) -> Result<()> {
        let made = self.home.join("made");
        // What another job has mounted there for all to see hides the locks from the sweeper.
        if made.is_symlink()
            && let Some(held) = &self.held
            && !process::wait_until(HANDS, || Ok(held.try_lock().is_ok()))?
        {
            fs::remove_file(&made).with_context(|| format!("cannot remove {}", made.display()))?;
        }
        drop(self.held.take());
        drop(self.sweeper.stdin.take());
        if !self.sweeper.wait()?.success() {
            bail!("{} could not be cleared up", self.home.display());
        }
        Ok(())
    }
}

/// Clear up after `weft run` when standard input ends
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Its folder
    home: PathBuf,
}

impl Args {
    pub fn run(self) -> Result<()> {
        process::detach();
        trust::check_folder(&self.home)?;
        // Nothing is ever written: the other end is closed with `weft run`.
        let _ = std::io::stdin().read(&mut [0]);
        let state = self.home.join("state");
        let mut reason = None;
        // `weft up` may still hold the state.
        process::wait_until(PATIENCE, || {
            reason = stop(&state).err();
            Ok(reason.is_none())
        })?;
        if let Some(reason) = reason {
            return Err(reason.context(format!("{} stays", self.home.display())));
        }
        for path in [state.clone(), self.home.join("job.sock")] {
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            if let Err(error) = removed
                && error.kind() != ErrorKind::NotFound
            {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
        }
        if let Ok(made) = fs::read_link(self.home.join("made")) {
            // Only an empty folder, and only when the mount has gone from it, and no other job has
            // one there: in a namespace of its own that would go with the folder.
            let begun = Instant::now();
            process::wait_until(PATIENCE, || {
                Ok(match remove_unless_held(&made).map_err(|error| error.kind()) {
                    Err(ErrorKind::ResourceBusy) => false,
                    Err(ErrorKind::WouldBlock) => begun.elapsed() >= HANDS,
                    _ => true,
                })
            })?;
            let _ = fs::remove_file(self.home.join("made"));
        }
        fs::remove_dir(&self.home).with_context(|| format!("cannot remove {}", self.home.display()))?;
        Ok(())
    }
}

/// Takes a shared lock on a mount point. `NotFound`, `WouldBlock`: a sweeper is just removing it.
fn hold(at: &Path) -> io::Result<File> {
    let held = File::open(at)?;
    held.try_lock_shared()?;
    if held.metadata()?.nlink() == 0 { Err(ErrorKind::NotFound.into()) } else { Ok(held) }
}

/// Removes a mount point. `WouldBlock`: a job uses it.
fn remove_unless_held(at: &Path) -> io::Result<()> {
    let held = File::open(at);
    if let Ok(Err(TryLockError::WouldBlock)) = held.as_ref().map(File::try_lock) {
        return Err(ErrorKind::WouldBlock.into());
    }
    fs::remove_dir(at)
}

/// Stops the servers of a file system, if there is one.
fn stop(state: &Path) -> Result<()> {
    if !state.join("run").exists() {
        return Ok(());
    }
    let state = StateDir::of_config(&state.join("weft.toml"));
    let lock = state.lock()?;
    let stopped =
        if state.config_file().is_file() { down::stop_all(&state, &Config::load(&state.config_file())?).map(drop) } else { Ok(()) };
    lock.release();
    stopped
}
