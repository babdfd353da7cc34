//! `weft sweep`, which only `weft run` calls: clears up after it, however it ended.

use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weft_host::config::Config;
use weft_host::state::StateDir;
use weft_host::{job, mounts, process, trust};

use super::down;

/// How long something may still be in the way: a mount process that ends, a `weft up` that starts
/// servers.
const PATIENCE: Duration = Duration::from_secs(60);

/// The folder of one `weft run`, and the process that removes it.
#[derive(Debug)]
pub struct Scratch {
    home: PathBuf,
    sweeper: Child,
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
        Ok(Scratch { home: home.keep(), sweeper })
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
    pub fn own_mount_point(&self) -> Result<PathBuf> {
        self.mount_point(&self.home.join("mnt"))
    }

    /// A mount point that somebody named; what has to be made for it is removed again.
    ///
    /// # Errors
    /// Of the disk.
    pub fn mount_point(&self, at: &Path) -> Result<PathBuf> {
        let at = std::path::absolute(at)?;
        if let Err(error) = fs::DirBuilder::new().mode(0o700).create(&at) {
            if error.kind() != std::io::ErrorKind::AlreadyExists {
                return Err(error).with_context(|| format!("cannot make the mount point {}", at.display()));
            }
        } else {
            std::os::unix::fs::symlink(&at, self.home.join("made")).context("cannot note which mount point was made")?;
        }
        Ok(mounts::resolve(&at))
    }

    /// Clears up, and waits for that.
    ///
    /// # Errors
    /// If something could not be removed; the sweeper has said what.
    pub fn end(mut self) -> Result<()> {
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
    pub fn run(self) -> Result<ExitCode> {
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
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
        }
        if let Ok(made) = fs::read_link(self.home.join("made")) {
            // Only an empty folder, and only when the mount has gone from it.
            process::wait_until(PATIENCE, || Ok(!is_busy(fs::remove_dir(&made))))?;
            let _ = fs::remove_file(self.home.join("made"));
        }
        fs::remove_dir(&self.home).with_context(|| format!("cannot remove {}", self.home.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn is_busy(removed: std::io::Result<()>) -> bool {
    removed.is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy)
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
