//! `xtask`: the project's own tools: simulation runs and checks of the source tree.
//!
//! It never becomes part of what users install.

mod book;
mod circles;
mod counts;
mod fields;
mod operations;
mod sim;
mod size;
mod tests;
mod tidy;
mod words;

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
    /// Counts the instructions of the hottest paths and compares them with the recorded counts.
    ///
    /// Example: cargo xtask counts
    /// More than 3 % above the record is a failure. If that is what the change is worth:
    /// cargo xtask counts --record
    #[command(verbatim_doc_comment)]
    Counts(counts::Arguments),
    /// Prints lines of product, comments and tests by crate and group.
    ///
    /// Example: cargo xtask size
    #[command(verbatim_doc_comment)]
    Size,
    /// Builds and runs all tests, several programs of tests at the same time.
    ///
    /// Example: cargo xtask tests
    #[command(verbatim_doc_comment)]
    Tests(tests::Arguments),
    /// Checks what the compiler does not: ranks of crates, circles of imports, long files,
    /// documents against code, blobs.
    Tidy {
        /// First writes what documents say of the code: the table of operations
        #[arg(long)]
        write: bool,
    },
}

fn main() -> ExitCode {
    let good = match Cli::parse().command {
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Counts(arguments) => counts::run(&arguments),
        Command::Size => {
            size::print(&tidy::root());
            true
        }
        Command::Tests(arguments) => tests::run(&arguments),
        Command::Tidy { write } => {
            let root = tidy::root();
            let written = if write { operations::write(&root) } else { Ok(()) };
            let problems: Vec<String> = written.err().into_iter().chain(tidy::check(&root)).collect();
            problems.iter().for_each(|problem| eprintln!("tidy: {problem}"));
            if problems.is_empty() {
                println!("tidy: all is in order");
            }
            problems.is_empty()
        }
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
