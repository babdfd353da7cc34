//! `weft`: the one program of Weft: starts file systems, mounts them, works in them and looks after
//! them. Every subcommand is thin: it reads its arguments, calls the servers, the client or the
//! FUSE gateway, and prints.
//!
//! It never holds file system logic: what a gateway or another program could want too is in the
//! libraries below.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod commands;
mod copy;
mod mount_helper;

use std::process::ExitCode;

use clap::Parser;
use commands::Cli;

/// Names and inodes of a metadata server may be more than its memory holds.
#[global_allocator]
static HEAP: weft_rt_real::PagedHeap = weft_rt_real::PagedHeap;

/// How the operating system says that a process may open no more.
const TOO_FEW: &str = "Too many open files (os error 24)";
/// What helps.
const MORE: &str = "this process needs more: raise the limit (`ulimit -n`)";

fn main() -> ExitCode {
    weft_rt_real::outlive_the_file_size_limit();
    weft_rt_real::do_with_few_addresses();
    let line = mount_helper::command_line(std::env::args_os().collect());
    let cli = line.and_then(|line| Cli::try_parse_from(&line).map_err(|error| Ok(Cli::refuse(&line, &error))));
    let outcome = cli.map(|cli| {
        if !cli.may_record() {
            return cli.run();
        }
        weft_recording::Recording::begin().and_then(|recording| {
            let outcome = cli.run();
            recording.end().and(outcome)
        })
    });
    match outcome.unwrap_or_else(|ended| ended) {
        Ok(code) => code,
        Err(error) if reader_has_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            weft_host::output::tell_at(weft_rt_real::Level::Error, "weft", &error_text(&error));
            ExitCode::FAILURE
        }
    }
}

/// True if the error is only that nobody reads our output any more (`weft ls ... | head`).
fn reader_has_gone(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe))
}

/// An error with its causes, for people. What the client library says is part of the sentence above
/// it already.
fn error_text(error: &anyhow::Error) -> String {
    let causes = error.chain().skip(1).filter(|cause| cause.downcast_ref::<weft_client::Error>().is_none());
    let text = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
    // Also where it is the reason that no server can be reached. A process that was started for
    // this one has said it already.
    if text.contains(TOO_FEW) && !text.contains(MORE) { format!("{text}; {MORE}") } else { text }
}

/// The same in one line, for a process that waits for one. Logs and helpers have several.
fn error_line(error: &anyhow::Error) -> String {
    let text = error_text(error);
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}
