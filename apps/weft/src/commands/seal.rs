//! `weft seal`: a tree that does not change any more.

use std::ffi::OsString;

use anyhow::Result;
use serde::Serialize;
use weft_client::{TreeOutcome, TreeSetting};
use weft_host::connect::{Common, open_all};
use weft_host::output::print_as;

use super::course::Course;

/// Seal a tree: nothing in it changes any more, and mounts with -o dataset read it without asking
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft seal ~/fs:/datasets/images
  weft mount ~/fs -o dataset /mnt/images
  weft seal --undo ~/fs:/datasets/images

Servers refuse every change of what is sealed: contents, names, attributes. Only the owner of an object, or root,
seals it or takes the seal away. A file that somebody has open for writing is waited for, then told and left.
Take seals away only when no mount with -o dataset reads the tree: such a mount does not hear of changes.")]
pub struct Args {
    /// What to seal, as FS:/PATH
    #[arg(required = true, value_name = "FS:/PATH")]
    places: Vec<OsString>,
    /// Take the seals away
    #[arg(long)]
    undo: bool,
    /// Tell how far it is, also if nobody watches the terminal
    #[arg(long)]
    progress: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    changed: u64,
    as_before: u64,
    failed: u64,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        let places = open_all(&self.places, common)?;
        let done = if self.undo { "not sealed any more" } else { "sealed" };
        let say = |so_far: &TreeOutcome| format!("{} objects {done}", so_far.changed);
        let mut all = TreeOutcome::default();
        for (fs, path) in &places {
            let attr = fs.stat(path, path.ends_with(b"/"))?;
            let mut course = Course::new(fs, path, self.progress);
            let root = (attr.handle, attr.kind);
            let TreeOutcome { changed, as_before, failed } =
                fs.run(fs.client.set_tree(&fs.who, root, TreeSetting::Seal(!self.undo), |news| course.take(&news, say)));
            all.changed += changed;
            all.as_before += as_before;
            all.failed += failed;
        }
        let TreeOutcome { changed, as_before, failed } = all;
        print_as(self.json, &Report { changed, as_before, failed }, || {
            let before = if as_before > 0 { format!(", {as_before} were so before") } else { String::new() };
            let left = if failed > 0 { format!(", {failed} are left as they were") } else { String::new() };
            format!("{}{before}{left}\n", say(&all))
        })?;
        Ok(failed == 0)
    }
}
