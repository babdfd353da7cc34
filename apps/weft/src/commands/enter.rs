//! `weft enter`, which only `weft run` calls: becomes the command of a job once its mount is there.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use weft_host::private::Said;
use weft_host::{job, private, socket_path};

/// Become the command of a job
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where `weft run` listens
    #[arg(long)]
    socket: PathBuf,
    /// The process of `weft run`
    #[arg(long)]
    parent: i32,
    /// Attach a mount of the file system with this name, in a namespace
    #[arg(long)]
    private: Option<String>,
    /// The mount takes no changes
    #[arg(long)]
    read_only: bool,
    /// No program of it is run
    #[arg(long)]
    no_exec: bool,
    /// Signals, by number, that `weft run` has blocked for itself and the command is to get
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    release: Vec<i32>,
    /// Where the mount is, and the command
    #[arg(last = true, required = true, num_args = 2..)]
    line: Vec<OsString>,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let [place, program, args @ ..] = &self.line[..] else { bail!("`weft run` calls this with a place and a command") };
        let stream = socket_path::connect(&self.socket).context("`weft run` has gone")?;
        let said = match &self.private {
            Some(fs_name) => private::attach(place.as_ref(), fs_name, (self.read_only, self.no_exec))
                .map_or_else(|error| Said::Failed(format!("{error:#}")), Said::Attached),
            None => Said::Ready,
        };
        private::die_with(self.parent)?;
        said.tell(&stream).context("`weft run` has gone")?;
        if matches!(said, Said::Failed(_)) || private::wait_for_go(&stream).is_err() {
            // `weft run` knows why, and says it.
            return Ok(ExitCode::from(job::FAILED));
        }
        // The folder of before may be below the mount now.
        if let Ok(here) = std::env::current_dir() {
            let _ = std::env::set_current_dir(here);
        }
        job::release(&self.release)?;
        Ok(job::become_program("weft run", Command::new(program).args(args)))
    }
}
