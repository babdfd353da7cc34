//! `weft preload`: a program that finds a file system below a prefix of its paths, without a mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use weft_host::connect::{Common, Fs, KEY_FILE_VARIABLE};
use weft_host::door::{ABSORB_VARIABLE, LEASES_VARIABLE};
use weft_host::fs_arg::is_url;
use weft_host::job;

/// The library, beside this program or where `make install-library` puts it.
const LIBRARY: &str = "libweft_preload.so";

/// Run a program that finds a file system below a prefix of its paths, without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  weft preload ~/fs -- bash -c 'cp -r /usr/include /weft && du -s /weft/include'
  weft preload ~/fs --at /scratch -- mpiexec -n 4 ior -o /scratch/file

A library takes the place of the calls of the C library that are about paths below the prefix, in the program and in those that it starts. \
Programs without a dynamic C library, those with set-user-ID, and those that are started without LD_PRELOAD and WEFT_PRELOAD in \
their environment (env -i) are not reached: they find nothing there. See docs/doors.md.

`weft preload` becomes the program and so ends as it does; 125 says that it failed itself, 126 and 127 that the program cannot be run or found.")]
pub struct Args {
    /// The file system
    #[arg(value_name = "FS")]
    fs: OsString,
    /// Where the program finds it; what is there for others is hidden
    #[arg(long, value_name = "/PREFIX", default_value = "/weft")]
    at: PathBuf,
    /// When to believe what servers tell until others change it, as mounts do: a program that is
    /// stopped holds up for some seconds who wants to change what it was told [default: busy, with
    /// --absorb: always]
    #[arg(long, value_name = "WHEN")]
    leases: Option<Leases>,
    /// Make files of directories that only this program knows without asking their server each
    /// time: a program that is killed loses those of the last milliseconds
    #[arg(long)]
    absorb: bool,
    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// When leases are kept.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Leases {
    /// Each call asks
    Never,
    /// From a program's 16th call on
    Busy,
    /// From its first call on
    Always,
}

impl Leases {
    fn word(self) -> &'static str {
        match self {
            Leases::Never => "never",
            Leases::Busy => "busy",
            Leases::Always => "always",
        }
    }
}

impl Args {
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        let command = self.command(common);
        super::ended_as("weft preload", command.map(|mut command| job::become_program("weft preload", &mut command)))
    }

    /// The program with what it needs to find the file system.
    fn command(&self, common: &Common) -> Result<Command> {
        let preloaded = job::preloaded(&library()?)?;
        // What the program would not be told in as many words.
        Fs::open(&self.fs, common)?.stat(b"/", true)?;
        let fs = match is_url(&self.fs) {
            true => self.fs.clone(),
            false => std::path::absolute(&self.fs).with_context(|| self.fs.display().to_string())?.into_os_string(),
        };
        let at = self.at.as_os_str().as_bytes();
        let is_clean = at.starts_with(b"/")
            && !at.contains(&b'=')
            && at[1..].split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."));
        if !is_clean {
            bail!("--at {}: give an absolute path other than / without `.`, `..` and `=`", self.at.display());
        }
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command.env("WEFT_PRELOAD", [self.at.as_os_str(), OsStr::new("="), &fs].into_iter().collect::<OsString>());
        if let Some(leases) = self.leases {
            command.env(LEASES_VARIABLE, leases.word());
        }
        if self.absorb {
            command.env(ABSORB_VARIABLE, "yes");
        }
        command.env("WEFT_PRELOAD_TIMEOUT", common.timeout().as_secs().to_string());
        command.env("LD_PRELOAD", preloaded);
        if let Some(key_file) = &common.key_file {
            command.env(KEY_FILE_VARIABLE, std::path::absolute(key_file)?);
        }
        Ok(command)
    }
}

/// Finds the library.
fn library() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY), folder.join("../lib/weft").join(LIBRARY)];
    let Some(found) = places.iter().find(|place| place.is_file()) else {
        bail!("there is no {LIBRARY} beside this program or in ../lib: `make install-library` puts it there");
    };
    found.canonicalize().with_context(|| found.display().to_string())
}
