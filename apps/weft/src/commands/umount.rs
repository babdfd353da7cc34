//! `weft umount`: ends a mount.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use weft_host::{mounts, output};

/// Unmount a file system
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  weft umount /mnt/weft")]
pub struct Args {
    /// Where it is mounted
    mountpoint: PathBuf,
    /// Also if it is in use: out of sight at once, ended with its last user
    #[arg(short, long)]
    lazy: bool,
}

impl Args {
    pub fn run(self) -> Result<()> {
        let place = mounts::resolve(&self.mountpoint);
        match mounts::at(&place)? {
            None => bail!("nothing is mounted at {}", place.display()),
            Some(mount) if !mounts::is_weft(&mount) => {
                bail!("{} is a mount of {} ({}), not of Weft", place.display(), mount.source, mount.kind)
            }
            Some(_) => {}
        }
        if self.lazy {
            mounts::unmount(&place)?;
        } else if let Err(error) = weft_fuse::unmount(&place, false) {
            bail!("cannot unmount {}: {error}; close what uses it (`fuser -vm {0}` shows that), or add --lazy", place.display());
        }
        if !mounts::wait_gone(&place, Duration::from_secs(5))? {
            bail!("{} is still mounted: something else was mounted over it", place.display());
        }
        Ok(output::print(&format!("unmounted {}\n", place.display()))?)
    }
}
