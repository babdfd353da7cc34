//! `weft completion`: what a shell needs to complete commands and options of `weft`.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;
use weft_host::output::print;

use crate::commands::Cli;

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft completion bash > ~/.local/share/bash-completion/completions/weft
  weft completion zsh > ~/.zfunc/_weft             # with fpath+=~/.zfunc before compinit in ~/.zshrc
  weft completion fish > ~/.config/fish/completions/weft.fish")]
pub struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    pub fn run(self) -> Result<()> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "weft", &mut text);
        Ok(print(&String::from_utf8_lossy(&text))?)
    }
}
