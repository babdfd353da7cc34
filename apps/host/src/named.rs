//! How commands are told which file system: by position, or by `--state DIR`. Both mean the same,
//! and a mount point will do.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::connect::Common;
use crate::fs_arg::{CONFIG_NAME, FsArg};
use crate::mounted;
use crate::state::StateDir;

/// The file system of a command that talks to its servers.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "named_fs", required = true, multiple = false)]
pub struct NamedFs {
    /// The file system
    #[arg(value_name = "FS")]
    fs: Option<OsString>,
    /// The same, by its state directory
    #[arg(long = "state", value_name = "DIR")]
    state: Option<OsString>,
}

impl NamedFs {
    /// What was given.
    pub fn text(&self) -> &OsStr {
        self.fs.as_deref().or(self.state.as_deref()).unwrap_or_default()
    }
}

/// The state directory of a command that starts, stops or looks after servers of this machine.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "named_state", required = true, multiple = false)]
pub struct NamedState {
    /// The state directory
    #[arg(long = "state", value_name = "DIR")]
    state: Option<PathBuf>,
    /// The same, without --state
    #[arg(value_name = "FS")]
    fs: Option<PathBuf>,
}

impl NamedState {
    /// As it was given, for messages.
    pub fn given(&self) -> PathBuf {
        self.state.as_ref().or(self.fs.as_ref()).cloned().unwrap_or_default()
    }

    /// The directory; that of the file system if a mount point or a config file is given.
    ///
    /// # Errors
    /// If a file system on other machines is behind it.
    pub fn dir(&self, common: &Common) -> Result<PathBuf> {
        let given = self.given();
        let (fs, _) = mounted::behind(given.as_os_str(), common)?;
        if fs == given.as_os_str() {
            if !given.is_file() {
                return Ok(given);
            }
            // The folder of any other file holds something else, or another config than this one.
            if given.file_name() != Some(OsStr::new(CONFIG_NAME)) {
                bail!("{} is a file: give the state directory, or {CONFIG_NAME} in it", given.display());
            }
        }
        match FsArg::parse(&fs)? {
            FsArg::Config(file) => Ok(StateDir::of_config(&file).root().to_path_buf()),
            FsArg::Address { .. } => bail!("{} is served by other machines: start and stop it there", given.display()),
        }
    }
}
