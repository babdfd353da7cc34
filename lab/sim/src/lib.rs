//! `weft sim`: parallel programs and their I/O on modelled clusters. Plans and machine profiles are
//! TOML files; a plan whose keys stand for several values is a sweep over all combinations, run on
//! all cores. It never talks to a real server.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod case;
mod cluster;
mod dnfsp_system;
mod figures;
mod list;
mod picture;
mod pool;
mod program;
mod rates;
mod run;
mod scale_system;
#[cfg(test)]
mod scale_test;
mod tasks;
mod thesis;
mod trace;
mod weft_system;
mod workload;
#[cfg(test)]
mod wrong_plans_test;

pub use run::{VirtualPhase, simulated, virtual_phases};

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

/// Simulate parallel programs and their I/O on modelled clusters
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weft sim list\n  weft sim run interleaved\n  weft sim run lab/plans/scale.toml --csv > scale.csv\n  \
weft sim run weft-creates\n  weft sim thesis --table C.3")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    /// Folder with plans/ and profiles/; what is not there is taken from the program itself
    #[arg(long, default_value = "lab", global = true)]
    lab: PathBuf,
    /// Simulations at once [default: one for each core]
    #[arg(long, global = true, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    List(list::Args),
    Thesis(thesis::Args),
}

impl Args {
    /// Does what the arguments say.
    ///
    /// # Errors
    /// A plan that makes no sense, or files that cannot be read or written.
    pub fn run(self) -> Result<bool> {
        let threads = self.threads.map_or_else(pool::cores, usize::from);
        let lab = weft_plan::files::Lab::near(self.lab);
        match self.command {
            Command::Run(args) => args.run(&lab, threads)?,
            Command::List(args) => args.run(&lab)?,
            Command::Thesis(args) => return args.run(threads),
        }
        Ok(true)
    }
}
