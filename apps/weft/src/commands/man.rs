//! `weft man`: the manual pages, made from what `--help` says.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::CommandFactory;
use weft_host::output::print;

use crate::commands::Cli;

/// Write the manual pages, one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft man ~/.local/share/man/man1 && man weft-mount")]
pub struct Args {
    /// Folder for them; made if it is missing
    dir: PathBuf,
}

impl Args {
    pub fn run(self) -> Result<()> {
        std::fs::create_dir_all(&self.dir).with_context(|| format!("cannot make {}", self.dir.display()))?;
        // Pages for `weft help X` would only say the same again.
        let cli = Cli::command().disable_help_subcommand(true);
        clap_mangen::generate_to(cli, &self.dir).with_context(|| format!("cannot write into {}", self.dir.display()))?;
        Ok(print(&format!("wrote the manual pages into {}\n", self.dir.display()))?)
    }
}
