//! `weft split`: over how many metadata servers the names of a directory are spread, while it is
//! used.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use serde_json::json;
use weft_base::{FileKind, Status};
use weft_client::Error;
use weft_host::connect::{Common, FsPlace};
use weft_host::output::{print_as, shell_word, tell_plainly};
use weft_wire::ops::SplitReply;

/// How often is asked how far it is.
const LOOK: Duration = Duration::from_millis(200);

/// Spread the names of a directory over more or fewer metadata servers, while it is used
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft split ~/fs:/scratch/job-17 all
  weft split ~/fs:/scratch/job-17

Names move slice by slice; files stay where they are. 1: all names with the server of the directory.
Directories with more names than split_names of the configuration are spread by their server itself,
and so are those that several clients keep it busy with; these go back after a minute of calm. What
was said here stays.")]
pub struct Args {
    /// The directory
    #[arg(value_name = "FS:/PATH")]
    place: OsString,
    /// Over so many servers, or all; without it: only say how it is
    #[arg(value_name = "N|all", value_parser = parse_servers)]
    servers: Option<u16>,
    /// Do not wait until all names have moved
    #[arg(long, requires = "servers")]
    no_wait: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_servers(text: &str) -> Result<u16, String> {
    match text {
        "all" => Ok(u16::MAX),
        _ => text.parse().ok().filter(|servers| *servers > 0).ok_or_else(|| "give a number from 1 on, or all".to_string()),
    }
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let at = FsPlace::open(&self.place, common)?;
        let (fs, shown) = (&at.fs, at.fs.shown(&at.path));
        let attr = fs.stat(&at.path, true)?;
        if attr.kind != FileKind::Directory {
            bail!("{shown} is no directory");
        }
        let ask = |servers: u16| fs.run(fs.client.split_directory(&fs.who, attr.handle, servers));
        let why = |error: Error| match error.status {
            Status::Stale => anyhow!("{shown} has been removed meanwhile"),
            _ => fs.explain(&at.path, error),
        };
        let mut state = match ask(self.servers.unwrap_or(0)) {
            Err(error) if error.status == Status::NotPermitted => bail!("{shown}: only its owner says where its names are"),
            state => state.map_err(why)?,
        };
        let mut goal = state.goal.clone();
        let (mut told, mut told_why) = (state.moved_names, 0);
        let progress = |state: &SplitReply| (state.map.epoch(), state.moved_names);
        let (mut last, mut good_until) = (progress(&state), Instant::now() + common.timeout());
        while self.servers.is_some() && !self.no_wait && state.goal.is_some() {
            std::thread::sleep(LOOK);
            state = ask(0).map_err(why)?;
            if progress(&state) != last {
                (last, good_until) = (progress(&state), Instant::now() + common.timeout());
            }
            // Somebody may have said something else.
            goal = state.goal.clone().or(goal);
            if state.moved_names > told && !self.json {
                told = state.moved_names;
                tell_plainly(&format!("{told} names have moved"));
            }
            if state.why != told_why && state.why != 0 {
                told_why = state.why;
                tell_plainly(&format!("{shown}: {}", failed_step(told_why)));
            }
            if state.goal.is_some() && Instant::now() >= good_until {
                let (seconds, shown) = (common.timeout().as_secs(), shell_word(&self.place));
                bail!(
                    "no names have moved for {seconds} s (--timeout); their server goes on for a while: weft split {shown} says how it is"
                );
            }
        }
        print_as(self.json, &json(&state), || text(&state))?;
        if self.servers.is_some() && !self.no_wait {
            if state.why != 0 {
                bail!("{shown}: not all names could move: {}", Status::from_code(state.why));
            }
            if goal.is_some_and(|goal| state.map.first_move(&goal).is_some()) {
                bail!("{shown}: not all names have moved: its server has restarted, or gave up; the same command goes on");
            }
        }
        Ok(())
    }
}

fn names_on(state: &SplitReply) -> Vec<String> {
    state.map.servers().iter().map(ToString::to_string).collect()
}

fn json(state: &SplitReply) -> serde_json::Value {
    json!({
        "names_on": names_on(state),
        "map_epoch": state.map.epoch(),
        "is_under_way": state.goal.is_some(),
        "moved_names": state.moved_names,
        "spread_from": state.spread_from,
    })
}

fn text(state: &SplitReply) -> String {
    let mut text = format!("names on {}\n", names_on(state).join(", "));
    if let Some(servers) = state.spread_from {
        text += &format!("spread by its server itself; it goes back to {} when it is calm and small\n", in_words(servers));
    }
    if let Some(goal) = &state.goal {
        let servers: Vec<String> = goal.servers().iter().map(ToString::to_string).collect();
        text += &format!("on their way to {}; {} have moved\n", servers.join(", "), state.moved_names);
        if state.why != 0 {
            text += &(failed_step(state.why) + "\n");
        }
    }
    text
}

fn failed_step(why: u16) -> String {
    format!("the last step failed: {}; it is tried again", Status::from_code(why))
}

fn in_words(servers: u16) -> String {
    if servers == 1 { "one server".into() } else { format!("{servers} servers") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_servers() {
        assert_eq!((parse_servers("all"), parse_servers("3")), (Ok(u16::MAX), Ok(3)));
        for wrong in ["0", "-1", "many", "99999999"] {
            assert!(parse_servers(wrong).unwrap_err().contains("or all"));
        }
    }
}
