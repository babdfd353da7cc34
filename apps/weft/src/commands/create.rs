//! `weft create`: makes empty files without a mount, with a layout of their own.

use std::ffi::OsString;

use anyhow::Result;
use weft_client::CreateOptions;
use weft_host::connect::{Common, open_all, umask};

use super::layout::LayoutArgs;
use super::mkdir::parse_mode;

/// Make empty files, with stripes or a distribution of their own
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft create --num-dfiles 1 ~/fs:/log                                         all of it on one data server
  weft create --dist varstrip --dist-params 'strips:0:64K;1:256K' ~/fs:/big    the second data server gets four times as much

Whoever writes a file later, through a mount for instance, uses the layout that it was made with; weft stat shows it.")]
pub struct Args {
    /// The files, as FS:/PATH; an error if one exists
    #[arg(required = true, value_name = "FS:/PATH")]
    places: Vec<OsString>,
    /// Permission bits in octal, instead of 666 less the umask
    #[arg(short, long, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<u32>,
    #[command(flatten)]
    layout: LayoutArgs,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let mode = self.mode.unwrap_or(0o666 & !umask());
        let places = open_all(&self.places, common)?;
        for (fs, path) in &places {
            let options = CreateOptions { mode, exclusive: true, ..self.layout.of_file(fs)? };
            let (dir, name) = fs.parent_of_file(path)?;
            let (_, file, _) = fs.run_at(path, fs.client.create(&fs.who, dir, &name, &options))?;
            fs.run_at(path, fs.client.close(file))?;
        }
        Ok(())
    }
}
