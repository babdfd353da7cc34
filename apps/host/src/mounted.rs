//! Which file system is behind a mount point. The kernel knows only its name, so each mount process
//! leaves a note in the folder of its user: what it was told, and its key file. A note counts only
//! while the kernel shows a mount of Weft at its place.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::connect::Common;
use crate::{config, fs_arg, mount_list, mounts, state};

/// A file system as its mount process was told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// An absolute path of a config, or an address.
    pub fs: OsString,
    /// The key file that was named on the command line.
    pub key_file: Option<PathBuf>,
}

impl Note {
    /// Leaves the note for the mount at `place`.
    ///
    /// # Errors
    /// If this user has no folder for it, or it cannot be written.
    pub fn leave(&self, place: &Path) -> Result<()> {
        let key_file = self.key_file.as_deref().map_or(&[][..], |file| file.as_os_str().as_bytes());
        config::write_in_one_step(&file_for(place)?, &[self.fs.as_bytes(), b"\n", key_file, b"\n"].concat(), 0o600)
    }

    /// The note that the mount process at `place` left.
    fn find(place: &Path) -> Option<Note> {
        let text = fs::read(file_for(place).ok()?).ok()?;
        let mut lines = text.split(|byte| *byte == b'\n').map(|line| OsString::from_vec(line.to_vec()));
        let fs = lines.next().filter(|fs| !fs.is_empty())?;
        Some(Note { fs, key_file: lines.next().filter(|file| !file.is_empty()).map(PathBuf::from) })
    }
}

/// Takes back the note for the mount at `place`.
pub fn forget(place: &Path) {
    // A note that stays is overwritten by the next mount there, and counts for nothing before.
    let _ = file_for(place).map(fs::remove_file);
}

fn file_for(place: &Path) -> Result<PathBuf> {
    Ok(state::user_run_dir()?.join(format!("{}.fs", mount_list::file_stem(place))))
}

/// What `fs` means if it is the place of a mount of Weft, with the connection options that its
/// mount process had; else `fs` itself.
///
/// # Errors
/// If it is one and nobody knows of which file system.
pub fn behind(fs: &OsStr, common: &Common) -> Result<(OsString, Common)> {
    let itself = || (fs.to_owned(), common.clone());
    if fs_arg::is_url(fs) {
        return Ok(itself());
    }
    let Some((place, rest)) = mounts::containing(Path::new(fs))? else { return Ok(itself()) };
    if !rest.as_os_str().is_empty() {
        return Ok(itself());
    }
    let Some(note) = Note::find(&place) else {
        let source = mounts::at(&place)?.map(|mount| mount.source).unwrap_or_default();
        bail!(
            "{} is a mount of {source}, but this user did not mount it and cannot tell where that file system is: name its state directory, \
             its config file or weft://HOST:PORT/NAME instead",
            place.display()
        );
    };
    Ok((note.fs, common.or_key_file(note.key_file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_as_it_was_left() {
        let place = PathBuf::from(format!("/no/such/place/{}", std::process::id()));
        assert_eq!(Note::find(&place), None);
        for key_file in [None, Some(PathBuf::from("/etc/weft/key"))] {
            let note = Note { fs: "weft://node1:7000/demo".into(), key_file };
            note.leave(&place).unwrap();
            assert_eq!(Note::find(&place), Some(note));
        }
        forget(&place);
        assert_eq!(Note::find(&place), None);
    }
}
