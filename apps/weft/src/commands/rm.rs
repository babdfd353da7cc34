//! `weft rm`: removes names, and with `-r` whole trees, without a mount.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};
use bytes::Bytes;
use weft_base::{FileKind, Handle, Status};
use weft_host::connect::{Common, Fs, open_all};
use weft_host::output::show_name;

/// Remove files and directories without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weft rm ~/fs:/results/old.h5\n  weft rm -r ~/fs:/results/2023")]
pub struct Args {
    /// What to remove, as FS:/PATH
    #[arg(required = true, value_name = "FS:/PATH")]
    places: Vec<OsString>,
    /// Directories with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// No error if it does not exist
    #[arg(short, long)]
    force: bool,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        let (systems, places) = open_all(&self.places, common)?;
        for (system, path) in &places {
            let fs = &systems[*system];
            let Some(attr) = fs.find(path, false)? else {
                if self.force {
                    continue;
                }
                bail!("{}:{}: no such file or directory", fs.name, show_name(path));
            };
            if attr.kind == FileKind::Directory && !self.recursive {
                bail!("{}:{} is a directory; remove it with -r", fs.name, show_name(path));
            }
            let (dir, name) = fs.parent(path)?;
            if attr.kind == FileKind::Directory {
                remove_tree(fs, path, dir, &name, attr.handle)?;
            } else {
                fs.run_at(path, fs.client.unlink(&fs.who, dir, &name))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Removes a directory with all below it, deepest first. What others remove meanwhile is no error;
/// what they add makes it fail.
fn remove_tree(fs: &Fs, path: &[u8], parent: Handle, name: &Bytes, handle: Handle) -> Result<()> {
    let below = |name: &[u8]| [path, b"/", name].concat();
    let (dirs, files): (Vec<_>, Vec<_>) = fs.list(path, handle, false)?.into_iter().partition(|item| item.kind == FileKind::Directory);
    for dir in dirs {
        remove_tree(fs, &below(&dir.name), handle, &dir.name, dir.handle)?;
    }
    let names: Vec<Bytes> = files.into_iter().map(|item| item.name).collect();
    for (name, result) in names.iter().zip(fs.run(fs.client.unlink_many(&fs.who, handle, &names))) {
        match result {
            Err(error) if error.status != Status::NotFound => return Err(fs.explain(&below(name), error)),
            _ => {}
        }
    }
    match fs.run(fs.client.rmdir(&fs.who, parent, name)) {
        Err(error) if error.status != Status::NotFound => Err(fs.explain(path, error)),
        _ => Ok(()),
    }
}
