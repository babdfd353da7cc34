//! Prints the ceilings of this machine:
//! `cargo run --release -p weft-ceiling --example ceiling [--quick] [--fuse-thread] [DIR
//! [GROUP...]]`.
//!
//! `--fuse-thread` serves the null file system by one thread. DIR (default: the directory for
//! temporary files) is where the disk is measured; GROUP is `cpu`, `rpc`, `bulk`, `fuse` or `disk`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use weft_ceiling::{Options, Reps, ServerSpawner, run_all_with, serve_child};

/// The hidden subcommand with which this program starts its own servers.
const CHILD: &str = "ceiling-child";

fn main() -> Result<()> {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|first| first == CHILD) {
        return serve_child(&args[1..]);
    }
    let mut options = Options::new(ServerSpawner::current_exe([CHILD])?);
    if args.first().is_some_and(|first| first == "--quick") {
        options.reps = Reps::quick();
        args.remove(0);
    }
    if args.first().is_some_and(|first| first == "--fuse-thread") {
        options.null_fuse.threads = 1;
        args.remove(0);
    }
    let mut args = args.into_iter();
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    options.only = args.map(|group| group.to_string_lossy().into_owned()).collect();
    let all = run_all_with(&dir, &options, |row| eprintln!("{row}"))?;
    println!("{all}");
    Ok(())
}
