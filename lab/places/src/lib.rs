//! `weft lab`: one plan on several places in turns: directories of any file system, file systems of
//! Weft, virtual time and models; who or what fails is left out, and what was interrupted goes on.
//! It never measures or simulates itself, which `lab/bench` and `lab/sim` do.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod run;

use std::path::PathBuf;

use anyhow::Result;
use weft_bench::{Results, Summary};
use weft_host::connect::Common;
use weft_host::output::print_as;

/// Run a plan on several places in turns: mounted file systems, Weft, virtual time, models
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft lab run mdtest --path weft=~/mnt --path ext4=/srv/plain --set local.restart=false
  weft lab show mdtest.jsonl")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Run(Box<run::Args>),
    /// Show what came out of `weft lab run` so far
    #[command(after_help = "\
Examples:
  weft lab show mdtest.jsonl
  weft lab show mdtest.jsonl --json > m.json && weft plot sweep m.json --over clients --lines place -o scaling.svg")]
    Show(ShowArgs),
}

/// Options of `weft lab show`.
#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Results
    file: PathBuf,
    /// Print JSON, as `weft bench run` does: `weft plot sweep` draws it
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Does what the arguments say.
    ///
    /// # Errors
    /// A plan that makes no sense, results that cannot be read or written, and places of which none
    /// is left.
    pub fn run(self, common: &Common) -> Result<bool> {
        match self.what {
            What::Run(args) => return args.run(common),
            What::Show(args) => show(&Summary::of(&Results::read(&args.file)?), args.json)?,
        }
        Ok(true)
    }
}

/// Prints it.
fn show(summary: &Summary, json: bool) -> Result<()> {
    Ok(print_as(json, &summary.json()?, || summary.text())?)
}
