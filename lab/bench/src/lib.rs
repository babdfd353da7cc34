//! `weft bench`: measures Weft by its library, any mounted directory by system calls, and what the
//! machine allows at best.
//!
//! One process leads (`run`), others measure (`worker`): they wait for each other before each step,
//! so that rates are of all clients at once. A [`weft_workload::Workload`] says what is done,
//! `path`, `library` and `commands` do it, `report` tells what came out. `plan` does whole
//! experiments on several file systems, whose `results` are written down as they come. It never
//! changes what it measures: the servers are told nothing but what any client would tell them.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod ceiling;
mod commands;
mod crew;
mod data;
mod environment;
mod experiment;
mod findings;
mod library;
mod logp;
mod meter;
mod options;
mod order;
mod path;
mod plan;
mod prediction;
mod progress;
mod report;
mod results;
mod run;
mod setup;
mod site;
mod stats;
mod summary;
mod system;
mod target;
mod usage;
mod worker;
mod yardstick;

pub use crew::{Gone, Over, Stop};
pub use environment::Environment;
pub use experiment::Culprit;
pub use findings::{Row, agree};
pub use plan::{LocalPlan, Session, told_keys};
pub use results::{Asked, Growing, Line, Results, Run};
pub use setup::{Load, Place, Variant};
pub use summary::Summary;
pub use yardstick::spawner;

use anyhow::Result;
use weft_host::connect::Common;

use options::{Options, Phases};
use weft_workload::WorkStep;

/// Measure a file system, or what this machine allows
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A client is a thread; there are --procs x --clients of them, and each does the work of --files files. All start at once; a rate is over
the time from the first start to the last end. Rates are of files, of entries, or of blocks of a stream. Everything happens in a
directory of its own that is removed afterwards.

Examples:
  weft bench ceiling                                                what this machine allows at best
  weft bench create --fs ~/fs --files 100000 --depth 64             by the library, 64 requests in flight
  weft bench create --path ~/mnt --procs 4 --files 5000             by any mount, from 4 processes
  weft bench all --path ~/mnt --fs ~/fs --ceiling                   with what the servers spend, beside a null FUSE file system
  weft bench create --path ~/mnt --ceiling=served                   beside the least that a file system with a server needs over FUSE
  weft bench write --path ~/mnt --procs 2 --interleaved --block 47008 --size 470080000
  weft bench logp ~/fs --plot logp.svg                              what messages between all pairs of its servers cost
  weft bench run engines                                            the price of durability
  weft bench run tracing                                            what recording costs
  weft bench run layers                                             what the order of accesses to the disk is worth")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// What this machine allows at best: processor, sockets, a null FUSE file system, disk
    #[command(after_help = "Example:\n  weft bench ceiling --only rpc,fuse --reps 5")]
    Ceiling(ceiling::Args),
    /// Make files; with --size write them too
    #[command(
        after_help = "Examples:\n  weft bench create --fs ~/fs --files 100000 --depth 64\n  weft bench create --path ~/mnt --size 3901 --json"
    )]
    Create(Options),
    /// Ask for the attributes of files
    #[command(after_help = "Example:\n  weft bench stat --path ~/mnt --procs 2")]
    Stat(Options),
    /// List directories
    #[command(after_help = "Example:\n  weft bench readdir --path ~/mnt --files 20000 --attrs")]
    Readdir(Options),
    /// Remove files
    #[command(after_help = "Example:\n  weft bench remove --fs ~/fs --depth 64 --files 100000")]
    Remove(Options),
    /// Write files block by block
    #[command(
        after_help = "Examples:\n  weft bench write --path ~/mnt --size 1GiB\n  weft bench write --path ~/mnt --procs 2 --shared-file --block 64KiB"
    )]
    Write(Options),
    /// Read files block by block; each block is checked to be the one that was written
    #[command(after_help = "Example:\n  weft bench read --path ~/mnt --size 1GiB --cold")]
    Read(Options),
    /// Read small files as a whole, in random order, many of them in each call of the library, as
    /// programs that train models do
    #[command(after_help = "Example:\n  weft bench read-many --fs ~/fs --files 20000 --size 112KiB --files-per-call 256")]
    ReadMany(Options),
    /// Write files block by block, then read them
    #[command(after_help = "Example:\n  weft bench streams --path ~/mnt --procs 2 --size 1GiB --ceiling")]
    Streams(Options),
    /// Create, stat, readdir, remove, write and read
    #[command(after_help = "Example:\n  weft bench all --path ~/mnt --ceiling")]
    All(Options),
    /// What messages between nodes cost: the parameters of LogP and LogGP of all pairs of servers
    Logp(logp::Args),
    /// The operations of mdtest: directories made, looked at and removed, then files; rates with
    /// maximum, minimum, mean and standard deviation over repetitions
    #[command(
        after_help = "Examples:\n  weft bench mdtest --path ~/mnt --procs 4 --files 1000 --tree-depth 2 --tree-branching 3 --dir own --warm-up 1\n  \
weft bench mdtest --fs ~/fs --procs 2 --naming growing --progress p.csv --progress-every 1000"
    )]
    Mdtest(Options),
    /// Run a plan on this machine: temporary file systems, which take turns
    Run(plan::Args),
    #[command(hide = true)]
    Worker(worker::Args),
    #[command(hide = true)]
    LogpWorker(logp::WorkerArgs),
    #[command(hide = true)]
    CeilingServer(ceiling::ServerArgs),
}

impl Args {
    /// Does what the command line says.
    ///
    /// # Errors
    /// If options do not fit together or what is measured fails.
    pub fn run(self, common: &Common) -> Result<bool> {
        let one = |options: Options, step| run::run(&options, Phases::One(step), common);
        match self.what {
            What::Ceiling(args) => args.run()?,
            What::Create(options) => one(options, WorkStep::Create)?,
            What::Stat(options) => one(options, WorkStep::Stat)?,
            What::Readdir(options) => one(options, WorkStep::Readdir)?,
            What::Remove(options) => one(options, WorkStep::Remove)?,
            What::Write(options) => one(options, WorkStep::Write)?,
            What::Read(options) => one(options, WorkStep::Read)?,
            What::ReadMany(options) => one(options, WorkStep::ReadMany)?,
            What::Streams(options) => run::run(&options, Phases::Streams, common)?,
            What::All(options) => run::run(&options, Phases::All, common)?,
            What::Mdtest(options) => run::run(&options, Phases::Mdtest, common)?,
            What::Run(args) => args.run(common)?,
            What::Logp(args) => args.run(common)?,
            What::Worker(args) => return args.run(common),
            What::LogpWorker(args) => args.run(common)?,
            What::CeilingServer(args) => args.run()?,
        }
        Ok(true)
    }
}
