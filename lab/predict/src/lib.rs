//! `weft predict`: what Weft would do on this machine, or on one that differs from it in something,
//! by its own code in virtual time.
//!
//! `calibrate` learns what the machine is like, `run` simulates a plan on it, and does it for real
//! beside that if it is asked to, so that the error of the prediction is known where it can be. It
//! never guesses without a profile, and never changes what it measures.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod calibrate;
mod fit;
mod machine;
mod run;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use weft_bench::Stop;
use weft_host::connect::Common;
use weft_host::output::{print, tell_plainly};

use calibrate::Calibrated;

/// Repetitions of one thing differ by so much on a machine that does nothing else.
const UNREST_MAX: f64 = 0.25;

/// Predict what Weft would do on this machine, or on one that differs from it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weft predict calibrate machine.toml                                         half a minute, on an idle machine
  weft predict run weft-creates --machine machine.toml --set clients=1,2,4
  weft predict run engines --machine machine.toml --measure                   beside what this machine really does
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
#[command(after_help = "Example:\n  weft predict calibrate machine.toml --dir /mnt/disk")]
struct CalibrateArgs {
    /// The profile; `weft sim run --set profile=FILE` takes it, too
    file: PathBuf,
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
        let stop = Stop::at_signals()?;
        let tell = |what: &str| {
            if std::io::stderr().is_terminal() {
                tell_plainly(what);
            }
        };
        let Calibrated { machine, errors, unrest } = calibrate::calibrate(self.dir.as_deref(), common, &stop, tell)?;
        std::fs::write(&self.file, machine.profile()).with_context(|| format!("cannot write {}", self.file.display()))?;
        let (low, high) = errors.iter().fold((0.0_f64, 0.0_f64), |(low, high), error| (low.min(*error), high.max(*error)));
        print(&format!(
            "{0} describes {1}; its probes are simulated with errors from {2:.0} % to {3:+.0} %.\n\
             Now: weft predict run PLAN --machine {0}\n",
            self.file.display(),
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
