//! Temporary file systems on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use weft_host::fs_arg::CONFIG_NAME;
use weft_host::job::UNTIL_VARIABLE;

/// A temporary file system; dropping it stops it, and so does the death of this process.
pub struct System {
    pub state: PathBuf,
    program: PathBuf,
}

impl System {
    /// Starts it with these arguments of `weft up`, of another program than this if one is given.
    ///
    /// # Errors
    /// If that fails.
    pub fn start(state: PathBuf, arguments: &[String], program: Option<&Path>) -> Result<System> {
        let system = System { state, program: program_or_this(program)? };
        system.weft(std::iter::once("up").chain(arguments.iter().map(String::as_str)).map(OsString::from))?;
        // A program that is not Weft may well end without an error.
        if !system.is_begun() {
            bail!("`{} up` made no file system: is it a build of Weft?", system.program.display());
        }
        Ok(system)
    }

    /// True if there may be something to stop.
    fn is_begun(&self) -> bool {
        self.state.join(CONFIG_NAME).is_file()
    }

    fn weft(&self, words: impl IntoIterator<Item = OsString>) -> Result<()> {
        let (program, is_begun) = (&self.program, self.is_begun());
        let mut command = Command::new(program);
        command.args(words).arg("--state").arg(&self.state).stdin(Stdio::null());
        // However this process ends.
        command.env(UNTIL_VARIABLE, std::process::id().to_string());
        // The servers must not hold pipes of this process open.
        let ended = command.stdout(Stdio::null()).status().with_context(|| format!("cannot start {}", program.display()))?;
        if !ended.success() {
            let what = if is_begun { "stopped" } else { "started" };
            bail!("a temporary file system in {} could not be {what} by {}", self.state.display(), program.display());
        }
        Ok(())
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if self.is_begun()
            && let Err(error) = self.weft(["down".into()])
        {
            weft_host::output::tell(&format!("{error:#}"));
        }
    }
}

/// The program that is given, or this one.
///
/// # Errors
/// Its own file cannot be found.
pub fn program_or_this(program: Option<&Path>) -> Result<PathBuf> {
    program.map_or_else(|| std::env::current_exe().context("cannot find this program's own file"), |program| Ok(program.to_path_buf()))
}
