//! One file for each subcommand: its arguments, what it does, what it prints.

mod cat;
mod completion;
mod course;
mod cp;
mod create;
mod df;
mod down;
mod du;
mod enter;
mod explain;
mod genconfig;
mod hint;
mod hold;
mod inspect;
mod key;
mod layout;
mod ln;
mod ls;
mod man;
mod metrics;
mod mkdir;
pub mod mount;
mod mv;
mod nfs;
mod node;
mod ping;
mod preload;
mod quota;
mod rm;
mod run;
mod seal;
pub mod serve;
mod set;
mod split;
mod stat;
mod status;
mod sweep;
pub mod top;
mod trace;
mod trash;
mod umount;
mod up;
mod watch;
mod xattr;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use weft_host::connect::Common;

/// Weft: a parallel file system.
#[derive(Debug, Parser)]
#[command(version, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

const AFTER_HELP: &str = "\
FS is a state directory (weft up --state DIR), a config file, weft://HOST:PORT/NAME, or where this user mounted it; --state DIR means the same.
FS:/PATH is an object in it; FS alone is its root.

Example: a file system with 2 metadata and 4 data servers, mounted, used and stopped:
  weft up --state ~/fs --meta 2 --data 4 --mount ~/mnt
  cp -r /usr/include ~/mnt/
  weft status --state ~/fs
  weft down --state ~/fs";

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Down(down::Args),
    Status(status::Args),
    Mount(mount::Args),
    Umount(umount::Args),
    Run(run::Args),
    #[command(hide = true)]
    Enter(enter::Args),
    #[command(hide = true)]
    Sweep(sweep::Args),
    #[command(hide = true)]
    Hold(hold::Args),
    #[command(hide = true)]
    Node(node::Args),
    Nfs(nfs::Args),
    Ls(ls::Args),
    Stat(stat::Args),
    Cat(cat::Args),
    Cp(cp::Args),
    Mkdir(mkdir::Args),
    Create(create::Args),
    Rm(rm::Args),
    Trash(trash::Args),
    Mv(mv::Args),
    Ln(ln::Args),
    Xattr(xattr::Args),
    Hint(hint::Args),
    Split(split::Args),
    Seal(seal::Args),
    Set(set::Args),
    Quota(quota::Args),
    Df(df::Args),
    Du(du::Args),
    Watch(watch::Args),
    Ping(ping::Args),
    Preload(preload::Args),
    Top(top::Args),
    Metrics(metrics::Args),
    Plot(weft_report::plot::Args),
    Trace(trace::Args),
    Explain(explain::Args),
    Export(weft_export::Args),
    Bench(weft_bench::Args),
    Sim(weft_lab_sim::Args),
    Papers(weft_papers::Args),
    Predict(weft_predict::Args),
    Lab(weft_turns::Args),
    Genconfig(genconfig::Args),
    Inspect(inspect::Args),
    Key(key::Args),
    Completion(completion::Args),
    Man(man::Args),
    Serve(serve::Args),
    View(weft_view::Args),
    Report(weft_report::Args),
}

impl Cli {
    /// True if the environment may ask for a recording of this process. One that becomes another
    /// program has none, and may have no thread for it.
    pub fn may_record(&self) -> bool {
        !matches!(self.command, Command::Enter(_) | Command::Sweep(_))
    }

    /// Does what the command line says.
    ///
    /// # Errors
    /// Whatever a person must know.
    pub fn run(self) -> Result<ExitCode> {
        let common = &self.common;
        match self.command {
            Command::Up(args) => args.run(common),
            Command::Down(args) => args.run(common),
            Command::Status(args) => args.run(common),
            Command::Mount(args) => args.run(common),
            Command::Umount(args) => args.run(),
            Command::Run(args) => args.run(common),
            Command::Enter(args) => args.run(),
            Command::Sweep(args) => args.run(),
            Command::Hold(args) => args.run(common),
            Command::Node(args) => args.run(common),
            Command::Nfs(args) => args.run(common),
            Command::Ls(args) => args.run(common),
            Command::Stat(args) => args.run(common),
            Command::Cat(args) => args.run(common),
            Command::Cp(args) => args.run(common),
            Command::Mkdir(args) => args.run(common),
            Command::Create(args) => args.run(common),
            Command::Rm(args) => args.run(common),
            Command::Trash(args) => args.run(common),
            Command::Mv(args) => args.run(common),
            Command::Ln(args) => args.run(common),
            Command::Xattr(args) => args.run(common),
            Command::Hint(args) => args.run(common),
            Command::Split(args) => args.run(common),
            Command::Seal(args) => args.run(common),
            Command::Set(args) => args.run(common),
            Command::Quota(args) => args.run(common),
            Command::Df(args) => args.run(common),
            Command::Du(args) => args.run(common),
            Command::Watch(args) => args.run(common),
            Command::Ping(args) => args.run(common),
            Command::Preload(args) => args.run(common),
            Command::Top(args) => args.run(common),
            Command::Metrics(args) => args.run(common),
            Command::Plot(args) => args.run(),
            Command::Trace(args) => args.run(common),
            Command::Explain(args) => args.run(common),
            Command::Export(args) => args.run(),
            Command::Bench(args) => args.run(common),
            Command::Sim(args) => args.run(),
            Command::Papers(args) => args.run(),
            Command::Predict(args) => args.run(common),
            Command::Lab(args) => args.run(common),
            Command::Genconfig(args) => args.run(),
            Command::Inspect(args) => args.run(),
            Command::Key(args) => args.run(common),
            Command::Completion(args) => args.run(),
            Command::Man(args) => args.run(),
            Command::Serve(args) => args.run(),
            Command::View(args) => args.run(common),
            Command::Report(args) => args.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_an_example() {
        let mut cli = Cli::command();
        cli.clone().debug_assert();
        for command in cli.get_subcommands_mut() {
            if command.get_subcommands().next().is_some() || command.is_hide_set() {
                continue;
            }
            let help = command.render_long_help().to_string();
            assert!(help.contains("Example"), "weft {} --help has no example:\n{help}", command.get_name());
        }
    }
}
