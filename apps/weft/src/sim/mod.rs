//! `weft sim`: experiments in virtual time. A plan (TOML) names a machine profile, a cluster and its work; a sweep in it makes a case
//! for every combination of values, and the cases run on all cores.

mod cases;
mod library;
mod plan;
mod profile;
mod result;
mod weft;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::output::{Table, print, print_json};
use result::{csv, table};

/// Run experiments in virtual time: real servers and clients on modelled machines
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft sim list\n  weft sim run creates\n  weft sim run ./my-plan.toml --json --seed 7")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(RunArgs),
    List(ListArgs),
}

/// Run a plan and print a row for each phase of each case
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft sim run creates\n  weft sim run lists-2009 --csv lists.csv\n\n\
A plan is a TOML file; `weft sim list` shows those that come with weft, and `weft sim list --show NAME` prints one to start from.")]
struct RunArgs {
    /// A plan that comes with weft, or a TOML file
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Print JSON: an array with an object for each phase of each case
    #[arg(long)]
    json: bool,
    /// Write the rows to a CSV file as well
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Seed of everything that is left to chance, instead of the plan's
    #[arg(long)]
    seed: Option<u64>,
    /// Cases that run at the same time; all cores by default
    #[arg(long)]
    jobs: Option<usize>,
}

/// Show the plans and machine profiles that come with weft
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft sim list\n  weft sim list --show creates > my-plan.toml")]
struct ListArgs {
    /// Print this plan or profile
    #[arg(long, value_name = "NAME")]
    show: Option<String>,
    /// Print JSON: an array with an object for each
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Run(args) => args.run(),
            Command::List(args) => args.run(),
        }
    }
}

impl RunArgs {
    fn run(self) -> Result<ExitCode> {
        let plan = plan::Plan::open(&self.plan, self.seed)?;
        let rows = cases::run(&plan, self.jobs)?;
        if let Some(path) = &self.csv {
            std::fs::write(path, csv(&rows)).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.json {
            print_json(&rows)?;
        } else {
            print(&format!("{}\n\n{}", plan.about(), table(&rows)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ListArgs {
    fn run(self) -> Result<ExitCode> {
        if let Some(name) = &self.show {
            let found = library::all().find(|file| file.name == name).with_context(|| format!("there is no plan or profile `{name}`"))?;
            print(found.text)?;
        } else if self.json {
            print_json(&library::all().map(|file| file.listed()).collect::<Vec<_>>())?;
        } else {
            let mut table = Table::new(&["name", "what", "about"]);
            for file in library::all() {
                let listed = file.listed();
                table.row(vec![listed.name.into(), listed.what.into(), listed.about]);
            }
            print(&table.render())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
