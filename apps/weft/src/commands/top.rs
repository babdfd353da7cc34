//! `weft top`: what the servers are doing now, in a terminal.

use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use weft_host::connect::{Common, Fs};
use weft_host::named::NamedFs;
use weft_host::output::{json_for_terminals, print, print_as};
use weft_host::units::seconds;
use weft_watch::watch::Watch;

/// Show what the servers are doing now: rates, queues, space, the busiest clients and files, what
/// waits longest
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft top ~/fs                     # a screen; q leaves it
  weft top weft://node1:7000/demo --interval 5
  weft top ~/fs --once --json       # for a script: one look, rates over one interval
  weft top ~/fs | tee log           # without a terminal: tables, again each interval

BUSY is the processor time of the server, QUEUE the mean number of requests in it, AGE the time since its last answer. FREE is marked - \
below 30 % and ! below 10 %. The busiest are those of the last 10 to 20 s. With --once the exit code is 0 if every server serves, else 1.")]
pub struct Args {
    #[command(flatten)]
    fs: NamedFs,
    /// Seconds between two looks
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds(0.1, 3600.0))]
    interval: f64,
    /// Look once and end
    #[arg(long)]
    once: bool,
    /// Print JSON; without --once a line for each look
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        let fs = Fs::open(self.fs.text(), &common.for_a_look())?;
        let interval = Duration::from_secs_f64(self.interval);
        if self.once {
            let now = Watch::once(fs, interval);
            print_as(self.json, &now, || weft_watch::tables(&now))?;
            return Ok(now.ok);
        }
        let watch = Watch::start(fs, interval)?;
        if !self.json && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
            watch.wait_for_first(Duration::from_secs(2));
            weft_watch::show(interval, || watch.snapshot())?;
            return Ok(true);
        }
        loop {
            thread::sleep(interval);
            let now = watch.snapshot();
            if self.json {
                print(&format!("{}\n", json_for_terminals(&serde_json::to_string(&now)?)))?;
            } else {
                print(&format!("{}\n", weft_watch::tables(&now)))?;
            }
        }
    }
}
