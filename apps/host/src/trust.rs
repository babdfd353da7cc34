//! Whom a file or folder of this machine is from. What lies in a state directory decides which
//! processes are ended, where file systems are mounted and who may use them, so all of it must
//! belong to this user or to root, and nobody else may be able to change it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::output::shell_word;

/// Permission bits that let others write.
const WRITE_BY_OTHERS: u32 = 0o022;
/// Permission bits of others at all.
const OTHERS: u32 = 0o077;

/// Refuses a folder that others made or may write to.
///
/// # Errors
/// Says whose it is, or which command mends its mode.
pub fn check_folder(folder: &Path) -> Result<()> {
    let meta = std::fs::metadata(folder).with_context(|| format!("cannot look at {}", folder.display()))?;
    if !meta.is_dir() {
        bail!("{} is no directory", folder.display());
    }
    check(folder, &meta)
}

/// True if a folder is there, of this user or root, and nobody else may write to it.
pub fn is_own_folder(folder: &Path) -> bool {
    check_folder(folder).is_ok()
}

/// Refuses an open file that others own or may write to.
///
/// # Errors
/// As [`check_folder`].
pub fn check_file(path: &Path, file: &File) -> Result<()> {
    check(path, &file.metadata().with_context(|| format!("cannot look at {}", path.display()))?)
}

/// Refuses an open file with a secret that others may read.
///
/// # Errors
/// As [`check_folder`].
pub fn check_secret(path: &Path, file: &File) -> Result<()> {
    let meta = file.metadata().with_context(|| format!("cannot look at {}", path.display()))?;
    check(path, &meta)?;
    if meta.mode() & OTHERS != 0 {
        bail!(
            "the cluster key {} has mode {:04o}, so others may read it and use the file system as any user: chmod 600 {} (a key that \
             somebody may have read is to be replaced: SECURITY.md)",
            path.display(),
            meta.mode() & 0o7777,
            shell_word(path)
        );
    }
    Ok(())
}

/// How files are opened that only this program writes: a symlink in their place is not followed.
pub fn own_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK);
    options
}

/// Reads a file that only this program writes; `None` if it is not there.
///
/// # Errors
/// As [`check_folder`], and of the disk.
pub fn read_own_file(path: &Path) -> Result<Option<String>> {
    let mut file = match own_file().read(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(|| format!("cannot read {}", path.display()))?,
    };
    check_file(path, &file)?;
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(text))
}

fn check(path: &Path, meta: &Metadata) -> Result<()> {
    let own = nix::unistd::geteuid().as_raw();
    refusal(path, meta.uid(), meta.mode(), own).map_or(Ok(()), |reason| Err(anyhow::anyhow!(reason)))
}

fn refusal(path: &Path, owner: u32, mode: u32, own: u32) -> Option<String> {
    let (path, word) = (path.display(), shell_word(path));
    if owner != own && owner != 0 {
        return Some(format!(
            "{path} belongs to user {owner}, who could make this command, run by user {own}, do anything; run it as user {owner}, or \
             take over what is there only if you trust it (chown -R {own})"
        ));
    }
    if mode & WRITE_BY_OTHERS != 0 {
        return Some(format!("{path} has mode {:04o}, so others may change it: chmod go-w {word}", mode & 0o7777));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_what_is_ours_or_roots_is_trusted() {
        let refused = |owner, mode, own| refusal(Path::new("/x"), owner, mode, own);
        assert_eq!([refused(7, 0o40755, 7), refused(0, 0o40755, 7), refused(0, 0o100600, 0)], [None, None, None]);
        assert!(refused(8, 0o40700, 7).unwrap().contains("belongs to user 8"));
        assert!(refused(7, 0o40700, 0).unwrap().contains("run it as user 7"), "root does not trust a user's folder");
        for mode in [0o40775, 0o40757, 0o41777] {
            assert!(refused(0, mode, 0).unwrap().contains("chmod go-w"));
        }
    }

    #[test]
    fn secrets_are_private_and_symlinks_are_no_own_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        fs::write(&path, "x").unwrap();
        for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o622, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_secret(&path, &File::open(&path).unwrap()).is_ok(), good, "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read_own_file(&path).unwrap().as_deref(), Some("x"));
        assert_eq!(read_own_file(&dir.path().join("none")).unwrap(), None);
        std::os::unix::fs::symlink(&path, dir.path().join("link")).unwrap();
        assert!(read_own_file(&dir.path().join("link")).is_err());
    }
}
