//! `weft bench ceiling`: what this machine allows at best.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use weft_ceiling::{Options, Reps, run_all};
use weft_host::output::print_as;
use weft_host::units::seconds;

use crate::crew::Stop;
use crate::yardstick::spawner;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the disk is measured [default: where temporary files are]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Seconds of each repetition
    #[arg(long, value_name = "S", default_value_t = 0.3, value_parser = seconds(0.000_001, 3600.0))]
    seconds: f64,
    /// Repetitions
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// Only these
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_parser = ["cpu", "rpc", "bulk", "fuse", "disk"])]
    only: Vec<String>,
    /// Threads that serve the null FUSE file system
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    fuse_threads: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Options of the hidden command that serves what is measured against.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// What to serve
    words: Vec<OsString>,
}

impl Args {
    /// Measures and prints.
    ///
    /// # Errors
    /// When something cannot be measured that every machine allows.
    pub fn run(self) -> Result<()> {
        let mut options = Options::new(spawner()?);
        options.reps = Reps::new(Duration::from_secs_f64(self.seconds), self.reps as usize);
        options.null_fuse.threads = usize::from(self.fuse_threads);
        options.only = self.only;
        let dir = self.dir.unwrap_or_else(weft_host::job::temporary_dir);
        let show = std::io::stderr().is_terminal();
        let stop = Stop::at_signals()?;
        let all = run_all(&dir, &options, |row| {
            if show {
                weft_host::output::tell_plainly(&row.to_string());
            }
            stop.check()
        });
        // Ctrl-C of a terminal ends what is measured against, too.
        stop.check()?;
        let all = all?;
        Ok(print_as(self.json, &all, || format!("{all}\n"))?)
    }
}

impl ServerArgs {
    /// Serves until standard input ends.
    ///
    /// # Errors
    /// If it cannot.
    pub fn run(self) -> Result<()> {
        weft_ceiling::serve_child(&self.words)?;
        Ok(())
    }
}
