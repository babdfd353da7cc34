//! `weft mv`: renames within one file system, without a mount.

use std::ffi::OsString;
use std::sync::Arc;

use anyhow::{Result, bail};
use bytes::Bytes;
use weft_base::{FileKind, Status};
use weft_client::RenameFlags;
use weft_host::connect::{Common, open_all};

/// Rename or move within one file system, without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weft mv ~/fs:/a ~/fs:/b\n  weft mv ~/fs:/x ~/fs:/y ~/fs:/directory")]
pub struct Args {
    /// What to move, and last where to: a new name or an existing directory
    #[arg(required = true, value_name = "FS:/PATH")]
    places: Vec<OsString>,
    /// Fail if the new name exists
    #[arg(short, long, conflicts_with = "exchange")]
    no_clobber: bool,
    /// Swap both names
    #[arg(long)]
    exchange: bool,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let mut places = open_all(&self.places, common)?;
        let (fs, target) = super::last_of_two(&mut places)?;
        if places.iter().any(|(other, _)| !Arc::ptr_eq(other, &fs)) {
            bail!("both names must be in one file system (named the same way); use `weft cp -r` and `weft rm -r` between two");
        }
        let into = fs.find(&target, true)?.filter(|attr| attr.kind == FileKind::Directory && !self.exchange);
        if into.is_none() && places.len() > 1 {
            bail!("{} is no directory: several things cannot be moved there", fs.shown(&target));
        }
        for (_, source) in &places {
            let is_directory = || fs.stat(source, false).map(|attr| attr.kind == FileKind::Directory);
            let parent = |path: &[u8]| match path.ends_with(b"/") && is_directory()? {
                true => fs.parent(path),
                false => fs.parent_of_file(path),
            };
            let (from_dir, from_name) = parent(source)?;
            let (to_dir, to_name): (_, Bytes) = match &into {
                Some(dir) => (dir.handle, from_name.clone()),
                None => parent(&target)?,
            };
            let flags = RenameFlags { no_replace: self.no_clobber, exchange: self.exchange };
            let renamed = fs.run(fs.client.rename(&fs.who, from_dir, &from_name, to_dir, &to_name, flags));
            renamed.map_err(|error| {
                let is_about_target = match error.status {
                    Status::Exists | Status::NotEmpty => true,
                    Status::NotFound if self.exchange => fs.find(source, false).is_ok_and(|found| found.is_some()),
                    _ => false,
                };
                let taken = match &into {
                    Some(_) => [&target[..], b"/", &from_name].concat(),
                    None => target.to_vec(),
                };
                fs.explain(if is_about_target { &taken } else { source }, error)
            })?;
        }
        Ok(())
    }
}
