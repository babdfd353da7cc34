//! Mounting and, whatever happened, unmounting.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fuser::{BackgroundSession, Config, MountOption};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::NullFuseConfig;
use super::filesystem::NullFilesystem;

/// How long the kernel gets to let go of a mount.
const PATIENCE: Duration = Duration::from_secs(5);

/// Mounts the null file system; it is served by threads of this process.
pub(crate) fn mount(mount_point: &Path, config: &NullFuseConfig) -> Result<BackgroundSession> {
    let owner = mount_point.metadata().with_context(|| format!("cannot mount on {}", mount_point.display()))?;
    let mut session = Config::default();
    session.mount_options = vec![MountOption::FSName("weft-null".into()), MountOption::NoAtime];
    if config.asks.is_some() {
        session.mount_options.push(MountOption::DefaultPermissions);
    }
    session.n_threads = Some(config.threads);
    session.clone_fd = config.clone_fd;
    let filesystem = NullFilesystem::new(config.clone(), owner.uid(), owner.gid());
    fuser::spawn_mount(filesystem, mount_point, &session).with_context(|| format!("cannot mount on {}", mount_point.display()))
}

/// Unmounts and waits for the threads that served.
pub(crate) fn unmount(session: BackgroundSession, mount_point: &Path) -> Result<()> {
    // Lazily, because the session's own unmount refuses while a file is open below. The threads end
    // when the last user has let go; only then may the session look at its mount, or it would take
    // the lazy one for a failure.
    ensure_unmounted(mount_point)?;
    session.join().context("the null file system did not end cleanly")
}

/// Makes sure that nothing is mounted there any more, also after the server was killed.
pub(crate) fn ensure_unmounted(mount_point: &Path) -> Result<()> {
    let start = Instant::now();
    while is_mounted(mount_point)? {
        unmount_lazily(mount_point)?;
        if start.elapsed() > PATIENCE {
            bail!("{} is still mounted", mount_point.display());
        }
    }
    Ok(())
}

/// Unmounts directly where that is allowed, else through the setuid helper that every FUSE
/// installation has.
fn unmount_lazily(mount_point: &Path) -> Result<()> {
    match rustix::mount::unmount(mount_point, UnmountFlags::DETACH) {
        Ok(()) => return Ok(()),
        // Not a mount point any more: somebody else was faster.
        Err(Errno::INVAL) => return Ok(()),
        Err(Errno::PERM | Errno::ACCESS) => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot unmount {}", mount_point.display()));
        }
    }
    let output = Command::new("fusermount3")
        .args(["-u", "-z", "--"])
        .arg(mount_point)
        .stdin(Stdio::null())
        .output()
        .context("cannot run fusermount3 to unmount")?;
    if !output.status.success() && is_mounted(mount_point)? {
        bail!("fusermount3 cannot unmount {}: {}", mount_point.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// A mount point lies on another device than its parent; one whose server is gone cannot even be
/// asked.
fn is_mounted(path: &Path) -> Result<bool> {
    let here = match path.symlink_metadata() {
        Ok(here) => here,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) if is_dead_mount(&error) => return Ok(true),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot look at {}", path.display()));
        }
    };
    let parent = path.parent().context("the root directory is no mount point of ours")?.metadata()?;
    Ok(here.dev() != parent.dev())
}

fn is_dead_mount(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EIO))
}
