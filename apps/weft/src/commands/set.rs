//! `weft set`: settings of a file system that change while it runs.

use std::ffi::OsString;

use anyhow::{Result, bail};
use weft_base::Status;
use weft_host::config::{Durability, durabilities};
use weft_host::connect::{Common, Fs};
use weft_host::output::print;

/// Change a setting of a file system while it runs
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft set durability sync ~/fs")]
pub struct Args {
    #[command(subcommand)]
    setting: Setting,
}

#[derive(Debug, clap::Subcommand)]
enum Setting {
    /// What an acknowledged change has survived: sync, batch or none
    ///
    /// Every server acknowledges under the new contract from now on and after restarts, whatever
    /// its config says. What was acknowledged before keeps what it was promised, and with a
    /// stricter contract everything of before is on stable storage when this returns.
    #[command(after_help = "\
Example:
  weft set durability sync ~/fs

weft ping shows the contract of each server. A server that does not answer keeps its old one: do it again when it is back.")]
    Durability {
        /// The contract
        #[arg(value_parser = durabilities())]
        durability: Durability,
        /// The file system
        #[arg(value_name = "FS")]
        fs: OsString,
    },
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let Setting::Durability { durability, fs } = self.setting;
        set_durability(&Fs::open(&fs, common)?, durability)
    }
}

fn set_durability(fs: &Fs, durability: Durability) -> Result<()> {
    let map = fs.client.map();
    let mut refused = Vec::new();
    for server in map.servers() {
        if let Err(error) = fs.run(fs.client.set_durability(server.id, durability.name())) {
            let why = match error.status {
                Status::NotSupported => "it keeps nothing (engine memory), or is of an older weft".to_string(),
                _ => fs.why(&error),
            };
            refused.push(format!("{}: {why}", server.name));
        }
    }
    if !refused.is_empty() {
        bail!("{} of {} servers have not taken it:\n  {}", refused.len(), map.servers().count(), refused.join("\n  "));
    }
    Ok(print(&format!("{} servers: {} ({})\n", map.servers().count(), durability, durability.about()))?)
}
