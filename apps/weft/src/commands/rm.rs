//! `weft rm`: removes names, and with `-r` whole trees, without a mount.

use std::ffi::OsString;
use std::time::Instant;

use anyhow::{Result, bail};
use serde::Serialize;
use weft_base::FileKind;
use weft_client::TreeRemoved;
use weft_host::connect::{Common, Fs, open_all};
use weft_host::output::print_json;

use super::course::Course;
use super::trash;

/// Remove files and directories without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft rm ~/fs:/results/old.h5
  weft rm -r ~/fs:/results/2023
  weft rm --trash ~/fs:/results/2023    it can come back: weft trash restore ~/fs:/results/2023

A tree is removed by its servers, some hundred names with each request. What may not be removed is told and left.")]
pub struct Args {
    /// What to remove, as FS:/PATH
    #[arg(required = true, value_name = "FS:/PATH")]
    places: Vec<OsString>,
    /// Directories with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// Move it into the trash of its file system, whole and at once (weft trash --help)
    #[arg(long)]
    trash: bool,
    /// No error if it does not exist
    #[arg(short, long)]
    force: bool,
    /// Tell how far it is, also if nobody watches the terminal
    #[arg(long)]
    progress: bool,
    /// Print how much was removed as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    files: u64,
    directories: u64,
    failed: u64,
    trashed: u64,
    seconds: f64,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        let began = Instant::now();
        let places = open_all(&self.places, common)?;
        let (mut all, mut trashed) = (TreeRemoved::default(), 0);
        for (fs, path) in &places {
            check_end(fs, path)?;
            let Some(attr) = fs.find(path, false)? else {
                if self.force {
                    continue;
                }
                bail!("{}: no such file or directory", fs.shown(path));
            };
            if self.trash {
                trash::discard(fs, path)?;
                trashed += 1;
                continue;
            }
            if attr.kind == FileKind::Directory && !self.recursive {
                bail!("{} is a directory; remove it with -r", fs.shown(path));
            }
            let (dir, name) = fs.parent(path)?;
            if attr.kind == FileKind::Directory {
                let mut course = Course::new(fs, path, self.progress);
                let say = |done: &TreeRemoved| format!("{} files and {} directories removed", done.files, done.directories);
                let removed = fs.run(fs.client.remove_tree(&fs.who, dir, &name, attr.handle, |news| course.take(&news, say)));
                all.files += removed.files;
                all.directories += removed.directories;
                all.failed += removed.failed;
            } else {
                fs.run_at(path, fs.client.unlink(&fs.who, dir, &name))?;
                all.files += 1;
            }
        }
        if self.json {
            let TreeRemoved { files, directories, failed } = all;
            print_json(&Report { files, directories, failed, trashed, seconds: began.elapsed().as_secs_f64() })?;
        }
        Ok(all.failed == 0)
    }
}

/// As rm(1): what is removed is the name at the end of the path, and not what lies behind it.
fn check_end(fs: &Fs, path: &[u8]) -> Result<()> {
    let named = &path[..path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1)];
    let shown = fs.shown(path);
    if named.ends_with(b"/.") || named.ends_with(b"/..") {
        bail!("{shown} ends without a name: give the path of what is to be removed");
    }
    if path != named && fs.find(named, false)?.is_some_and(|attr| attr.kind == FileKind::Symlink) {
        bail!("{shown} is what a symlink leads to: without the slash at its end the link is removed");
    }
    Ok(())
}
