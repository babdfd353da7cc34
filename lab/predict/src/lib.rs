//! `weft predict`: what Weft would do on this machine, or on one that differs from it in something,
//! by its own code in virtual time.
//!
//! `calibrate` learns what the machine is like, `run` simulates a plan on it, and does it for real
//! beside that if it is asked to, so that the error of the prediction is known where it can be. It
//! never guesses without a profile, and never changes what it measures.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod advice;
mod calibrate;
mod fit;
mod machine;
mod run;
mod twin;

pub use advice::{Advice, Advised, advise};

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Subcommand;
use weft_bench::Stop;
use weft_host::connect::Common;
use weft_host::output::{print, shell_word, tell_plainly};

use calibrate::Calibrated;

/// Repetitions of one thing differ by so much on a machine that does nothing else.
const UNREST_MAX: f64 = 0.25;

/// Predict what Weft would do on this machine, or on one that differs from it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weft predict calibrate                                   half a minute, on an idle machine; from then on `weft explain` says what a change gives
  weft predict run weft-creates --set clients=1,2,4
  weft predict run engines --measure                       beside what this machine really does
  weft predict run weft-creates --machine machine.toml --what-if weft.metadata_servers=4 --what-if network.link_latency=100us")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Calibrate(CalibrateArgs),
    Run(run::Args),
}

/// Learn what this machine is like, and write it as a profile for plans
///
/// Measures messages, copying and the disk, and short runs of Weft on temporary file systems; then
/// varies what cannot be measured alone until the simulator takes as long as they did. Whatever
/// else this machine does meanwhile is taken for a part of it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weft predict calibrate\n  weft predict calibrate machine.toml --dir /mnt/disk")]
struct CalibrateArgs {
    /// The profile; `weft sim run --set profile=FILE` takes it, too [default: that of this machine,
    /// which `weft explain`, `weft view` and `weft predict run` find: machine-HOST.toml in
    /// ~/.config/weft]
    file: Option<PathBuf>,
    /// Where the file systems are [default: where temporary files are]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Args {
    /// Does what the arguments say.
    ///
    /// # Errors
    /// A plan that makes no sense, or something that cannot be measured, read or written.
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        match self.what {
            What::Calibrate(args) => args.run(common),
            What::Run(args) => args.run(common),
        }
    }
}

impl CalibrateArgs {
    fn run(self, common: &Common) -> Result<ExitCode> {
        // What cannot be written is said before it is measured. The usual folder is made.
        let folder = self.file.as_deref().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
        if let (Some(file), Some(folder)) = (&self.file, folder)
            && !folder.is_dir()
        {
            bail!("cannot write {}; its folder is missing: make it", file.display());
        }
        if let Some(file) = self.file.as_ref().filter(|file| file.is_dir()) {
            bail!("cannot write {}; it is a folder: give the name of a file in it", file.display());
        }
        let stop = Stop::at_signals()?;
        let tell = |what: &str| {
            if std::io::stderr().is_terminal() {
                tell_plainly(what);
            }
        };
        let Calibrated { machine, errors, unrest } = calibrate::calibrate(self.dir.as_deref(), common, &stop, tell)?;
        let (file, now) = match self.file {
            Some(file) => {
                let now = format!("weft predict run PLAN --machine {}", shell_word(&file));
                (file, now)
            }
            None => (twin::usual_profile()?, "weft predict run PLAN, and weft explain says what a change would give".into()),
        };
        twin::write(&file, &(machine.profile() + &twin::seen(&errors)))?;
        let (low, high) = errors.iter().fold((0.0_f64, 0.0_f64), |(low, high), error| (low.min(*error), high.max(*error)));
        print(&format!(
            "{} describes {}; its probes are simulated with errors from {:.0} % to {:+.0} %.\nNow: {now}\n",
            file.display(),
            machine.description,
            low * 100.0,
            high * 100.0
        ))?;
        if unrest > UNREST_MAX {
            tell_plainly(&format!(
                "The machine was not at rest: the slowest repetition of a probe was {:.0} % below the fastest. Do this again when it is.",
                unrest * 100.0
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}
