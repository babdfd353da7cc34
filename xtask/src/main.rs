//! `xtask`: the project's own tools: simulation runs and checks of the source tree.
//!
//! It never becomes part of what users install.

mod sim;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tools for working on Weft.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs clusters in virtual time, one for each seed, and judges them.
    ///
    /// Example: cargo xtask sim --seeds 0..2000
    /// A failure prints the command that repeats it: cargo xtask sim --seeds 8123..8124 --verbose
    #[command(verbatim_doc_comment)]
    Sim(sim::Arguments),
    /// Checks what the compiler does not: ranks of crates, documents against code, blobs.
    Tidy,
}

fn main() -> ExitCode {
    let good = match Cli::parse().command {
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Tidy => {
            let problems = tidy::check(&tidy::root());
            problems.iter().for_each(|problem| eprintln!("tidy: {problem}"));
            if problems.is_empty() {
                println!("tidy: all is in order");
            }
            problems.is_empty()
        }
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
