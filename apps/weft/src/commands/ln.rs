//! `weft ln`: makes hard links and symlinks without a mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use anyhow::{Result, bail};
use weft_host::connect::{Common, FsPlace, open_all};
use weft_host::fs_arg::FsPath;

/// Make links without a mount
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft ln ~/fs:/data ~/fs:/second-name           a hard link
  weft ln -s ../data ~/fs:/dir/link              a symlink; its target is written as it is given")]
pub struct Args {
    /// What the link leads to: FS:/PATH, or with -s any text
    target: OsString,
    /// The new name, as FS:/PATH
    name: OsString,
    /// A symlink
    #[arg(short, long)]
    symbolic: bool,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        if self.symbolic { self.symlink(common) } else { self.link(common) }
    }

    fn symlink(&self, common: &Common) -> Result<()> {
        let FsPlace { fs, path } = FsPlace::open(&self.name, common)?;
        // `FS:/PATH` as a target means the path: the name of a state directory means nothing inside
        // the file system.
        let same_fs = FsPath::split(&self.target).filter(|target| target.fs == OsStr::new(&fs.name));
        let target = same_fs.map_or_else(|| self.target.as_bytes().to_vec(), |target| target.path);
        let (dir, name) = fs.parent_of_file(&path)?;
        fs.run_at(&path, fs.client.symlink(&fs.who, dir, &name, &target))?;
        Ok(())
    }

    fn link(&self, common: &Common) -> Result<()> {
        let places = open_all([&self.target, &self.name], common)?;
        let [(fs, target), (other, path)] = &places[..] else { unreachable!("two places were opened") };
        if !Arc::ptr_eq(fs, other) {
            bail!("both names must be in one file system (named the same way): a hard link cannot lead elsewhere; use -s");
        }
        let attr = fs.stat(target, false)?;
        let (dir, name) = fs.parent_of_file(path)?;
        fs.run_at(path, fs.client.link(&fs.who, attr.handle, dir, &name))?;
        Ok(())
    }
}
