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
mod fsck;
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

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser, Subcommand};
use weft_host::connect::Common;
use weft_host::ended::Ended;
use weft_host::output::tell_at;
use weft_rt_real::Level;

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

/// The commands in the order of the help, each with what it is called with.
macro_rules! commands {
    ($common:ident; $( $(#[$meta:meta])* $name:ident($args:ty).run($($given:ident)?), )*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $( $(#[$meta])* $name($args), )*
        }

        impl Command {
            fn run(self, $common: &Common) -> Result<ExitCode> {
                match self {
                    $( Command::$name(args) => args.run($($given)?).map(Ended::code), )*
                }
            }
        }
    };
}

commands! {
    common;
    Up(up::Args).run(common),
    Down(down::Args).run(common),
    Status(status::Args).run(common),
    Mount(mount::Args).run(common),
    Umount(umount::Args).run(),
    Run(run::Args).run(common),
    #[command(hide = true)]
    Enter(enter::Args).run(),
    #[command(hide = true)]
    Sweep(sweep::Args).run(),
    #[command(hide = true)]
    Hold(hold::Args).run(common),
    #[command(hide = true)]
    Node(node::Args).run(common),
    Nfs(nfs::Args).run(common),
    Ls(ls::Args).run(common),
    Stat(stat::Args).run(common),
    Cat(cat::Args).run(common),
    Cp(cp::Args).run(common),
    Mkdir(mkdir::Args).run(common),
    Create(create::Args).run(common),
    Rm(rm::Args).run(common),
    Trash(trash::Args).run(common),
    Mv(mv::Args).run(common),
    Ln(ln::Args).run(common),
    Xattr(xattr::Args).run(common),
    Hint(hint::Args).run(common),
    Split(split::Args).run(common),
    Seal(seal::Args).run(common),
    Set(set::Args).run(common),
    Quota(quota::Args).run(common),
    Df(df::Args).run(common),
    Du(du::Args).run(common),
    Fsck(fsck::Args).run(common),
    Watch(watch::Args).run(common),
    Ping(ping::Args).run(common),
    Preload(preload::Args).run(common),
    Top(top::Args).run(common),
    Metrics(metrics::Args).run(common),
    Plot(weft_report::plot::Args).run(),
    Trace(trace::Args).run(common),
    Explain(explain::Args).run(common),
    Export(weft_export::Args).run(),
    Bench(weft_bench::Args).run(common),
    Sim(weft_lab_sim::Args).run(),
    Papers(weft_papers::Args).run(),
    Predict(weft_predict::Args).run(common),
    Lab(weft_places::Args).run(common),
    Genconfig(genconfig::Args).run(),
    Inspect(inspect::Args).run(),
    Key(key::Args).run(common),
    Completion(completion::Args).run(),
    Man(man::Args).run(),
    Serve(serve::Args).run(),
    View(weft_view::Args).run(common),
    Report(weft_report::Args).run(),
}

impl Cli {
    /// Says why this command line is none, or the help that it asks for; gives the code to end
    /// with. What commands that run a program end with must not look like the end of that.
    pub fn refuse(line: &[OsString], error: &clap::Error) -> ExitCode {
        // Nobody may read it any more.
        let _ = error.print();
        let runs_program = || {
            let matches = Cli::command().ignore_errors(true).try_get_matches_from(line);
            matches.is_ok_and(|matches| matches!(matches.subcommand_name(), Some("run" | "preload")))
        };
        match error.exit_code() {
            0 => ExitCode::SUCCESS,
            _ if runs_program() => ExitCode::from(weft_host::job::FAILED),
            code => ExitCode::from(code as u8),
        }
    }

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
        self.command.run(&self.common)
    }
}

/// What a command ends with that runs a program. If it could not, it says so as itself: all that
/// the program says goes the same way.
fn ended_as(who: &str, ended: Result<ExitCode>) -> Result<ExitCode> {
    ended.or_else(|error| {
        tell_at(Level::Error, who, &crate::error_text(&error));
        Ok(ExitCode::from(weft_host::job::FAILED))
    })
}

/// Takes where to, which stands behind what.
///
/// # Errors
/// If there is nothing in front of it.
fn last_of_two<T>(places: &mut Vec<T>) -> Result<T> {
    match places.pop() {
        Some(last) if !places.is_empty() => Ok(last),
        _ => bail!("name what, and behind it where to"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_may_stand_between_what_and_where_to() {
        for line in [&["weft", "cp", "a", "-r", "fs:/b"][..], &["weft", "mv", "fs:/a", "-n", "fs:/b"]] {
            Cli::try_parse_from(line).unwrap();
        }
        assert_eq!(last_of_two(&mut vec![1, 2]).unwrap(), 2);
        assert!(last_of_two(&mut vec![1]).is_err());
    }

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
