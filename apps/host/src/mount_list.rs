//! Which mounts of a file system this user has on this machine: each mount process holds a pid file
//! that names its file system and its place, in the state directory it was mounted from or in the
//! user's run directory.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use weft_base::{ClusterMap, FsId, Status};
use weft_wire::ops::MountErrorRow;

use crate::command_socket;
use crate::mounts;
use crate::output::shell_word;
use crate::process;
use crate::process::{Ended, Held, PidFile};
use crate::state;
use crate::state::StateDir;
use crate::trust;

/// How long a mount process has for closing its files after the unmount.
const MOUNT_PATIENCE: Duration = Duration::from_secs(15);
/// How long a program that uses the mount has to leave it. Short: the mount is out of sight
/// already, and its process brings what was written to servers when it is asked to end.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);

/// One mount, alive or left behind by a killed process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedMount {
    /// Its pid file.
    pub pid_file: PathBuf,
    /// Where it is.
    pub place: PathBuf,
    /// The process, if it lives.
    pub pid: Option<i32>,
    /// The kernel's number of the mount, if it came so far.
    pub device: Option<String>,
}

/// What ending a mount came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// There was nothing left but a pid file.
    Nothing,
    /// It is gone.
    Done,
    /// It was in use: out of sight, its process was ended.
    WasBusy,
}

/// The folder for the pid file and log of a mount of this file system.
///
/// # Errors
/// If there is neither a usable state directory nor a run directory of the user.
pub fn dir_for(config: Option<&Path>) -> Result<PathBuf> {
    if let Some(config) = config {
        let state = StateDir::of_config(config);
        let run = state.run_dir();
        // In a folder of somebody else, or open to others, what this process writes could be led
        // elsewhere.
        let usable = trust::is_own_folder(state.root()) && state::make_private_dir(&run).is_ok() && trust::is_own_folder(&run);
        if usable && nix::unistd::access(&run, nix::unistd::AccessFlags::W_OK).is_ok() {
            return Ok(run);
        }
    }
    state::user_run_dir()
}

/// Base name of the files of the mount at `place`: the same for the same place, and readable.
pub fn file_stem(place: &Path) -> String {
    let bytes = place.as_os_str().as_bytes();
    // FNV-1a: only to tell places apart whose names end alike.
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let name: String =
        place.file_name().unwrap_or_default().to_string_lossy().chars().filter(char::is_ascii_alphanumeric).take(24).collect();
    format!("mount-{name}-{hash:016x}")
}

/// The name of the mount at `place` in traces.
pub fn trace_name(place: &Path) -> String {
    let name: String = place.file_name().unwrap_or_default().to_string_lossy().chars().filter(char::is_ascii_alphanumeric).collect();
    format!("mount-{name}")
}

/// What the pid file of a mount says behind the pid.
pub fn note(fs_id: FsId, place: &Path) -> String {
    format!("{fs_id}\n{}", place.display())
}

/// Added to the note when the mount is there, before its device: without it the process is only
/// about to mount.
const MOUNTED: &str = "\nmounted ";
/// Most processes of one place. Such a process lives on after its mount has gone from the tree, for
/// programs or containers that still use it.
const PROCESSES_MAX: u32 = 16;

/// Takes the pid file of a mount at `place`, or, if the mount of the process that holds it has gone
/// from the tree, one beside it. Gives the path, too.
///
/// # Errors
/// As [`PidFile::take`].
pub fn take_pid_file(dir: &Path, fs_id: FsId, place: &Path) -> Result<(PidFile, PathBuf)> {
    let stem = file_stem(place);
    let mut number = 1;
    loop {
        let path = dir.join(if number == 1 { format!("{stem}.pid") } else { format!("{stem}-{number}.pid") });
        match PidFile::take(&path, &note(fs_id, place)) {
            Err(error) if error.is::<Held>() && number < PROCESSES_MAX => {
                let was_mounted = process::holder(&path)?.is_some_and(|holder| holder.note.contains(MOUNTED));
                if !was_mounted || mounts::at(place)?.is_some_and(|mount| mounts::is_weft(&mount)) {
                    return Err(error);
                }
                number += 1;
            }
            taken => return Ok((taken?, path)),
        }
    }
}

/// Notes in the pid file that the mount is there, and which one it is.
///
/// # Errors
/// Of the disk.
pub fn note_mounted(pid_file: &PidFile, fs_id: FsId, place: &Path, device: &str) -> io::Result<()> {
    pid_file.set_note(&(note(fs_id, place) + MOUNTED + device))
}

/// All mounts of a file system that this user's processes made from this state directory or without
/// one.
///
/// # Errors
/// If a pid file cannot be read.
pub fn of(fs_id: FsId, state: &StateDir) -> Result<Vec<ListedMount>> {
    in_dirs(fs_id, dirs_of(Some(state)))
}

/// All mounts of a file system that this user's processes made without a state directory.
///
/// # Errors
/// If a pid file cannot be read.
pub fn of_user(fs_id: FsId) -> Result<Vec<ListedMount>> {
    in_dirs(fs_id, dirs_of(None))
}

/// Where processes of this user that serve a file system leave their pid files.
pub(crate) fn dirs_of(state: Option<&StateDir>) -> Vec<PathBuf> {
    state.map(StateDir::run_dir).into_iter().chain(state::user_run_dirs()).collect()
}

/// A pid file, and what it says.
pub(crate) struct Noted {
    pub pid_file: PathBuf,
    /// The process, if it lives.
    pub pid: Option<i32>,
    /// What it notes behind the file system.
    pub lines: Vec<String>,
}

/// The pid files whose names begin with `kind`, of processes of a file system.
pub(crate) fn noted(dirs: Vec<PathBuf>, kind: &str, fs_id: FsId) -> Result<Vec<Noted>> {
    let mut found = Vec::new();
    for dir in dirs.into_iter().filter(|dir| trust::is_own_folder(dir)) {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if !name.as_bytes().starts_with(kind.as_bytes()) || !name.as_bytes().ends_with(b".pid") {
                continue;
            }
            let pid_file = entry.path();
            let Ok(Some(text)) = trust::read_own_file(&pid_file) else { continue };
            let mut lines = text.split('\n').skip(1).map(str::to_string);
            if lines.next() == Some(fs_id.to_string()) {
                let pid = process::holder(&pid_file)?.map(|holder| holder.pid);
                found.push(Noted { pid, lines: lines.collect(), pid_file });
            }
        }
    }
    Ok(found)
}

fn in_dirs(fs_id: FsId, dirs: Vec<PathBuf>) -> Result<Vec<ListedMount>> {
    let mut listed: Vec<ListedMount> = noted(dirs, "mount-", fs_id)?.into_iter().filter_map(read).collect();
    // A file that was left behind says nothing about a place that a living process serves.
    let served: Vec<PathBuf> = listed.iter().filter(|mount| mount.pid.is_some()).map(|mount| mount.place.clone()).collect();
    listed.retain(|mount| mount.pid.is_some() || !served.contains(&mount.place));
    listed.sort_by(|a, b| a.place.cmp(&b.place));
    Ok(listed)
}

fn read(Noted { pid_file, pid, lines }: Noted) -> Option<ListedMount> {
    let mut lines = lines.into_iter();
    let place = PathBuf::from(lines.next()?);
    let device = lines.next().and_then(|line| line.strip_prefix(MOUNTED.trim_start()).map(str::to_string));
    Some(ListedMount { pid_file, place, pid, device })
}

/// Errors that a mount has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeenErrors {
    /// Of this server; empty if nobody knows of which.
    pub server: String,
    /// In words.
    pub reason: String,
    /// Operations that failed so since the mount began.
    pub count: u64,
}

impl ListedMount {
    /// The errors of servers that the mount has seen; none if it does not answer.
    pub fn errors(&self, map: &ClusterMap) -> Vec<SeenErrors> {
        let seen = |row: MountErrorRow| SeenErrors {
            server: row.server.map(|server| map.name(server)).unwrap_or_default(),
            reason: Status::from_code(row.status).text().to_string(),
            count: row.count,
        };
        let errors = self.pid.and_then(|_| command_socket::errors(&command_socket::path_for(&self.pid_file)).ok());
        errors.map_or_else(Vec::new, |errors| errors.rows.into_iter().map(seen).collect())
    }

    /// True if the kernel shows this mount there.
    ///
    /// # Errors
    /// If the kernel lists no mounts.
    pub fn is_mounted(&self) -> Result<bool> {
        let is_this = |mount: &mounts::Mount| mounts::is_weft(mount) && self.device.as_ref().is_none_or(|device| *device == mount.device);
        Ok(mounts::at(&self.place)?.as_ref().is_some_and(is_this))
    }

    /// Unmounts and waits for the end of the process, which has brought everything to servers then.
    ///
    /// # Errors
    /// If programs use it; it goes on to serve them then.
    pub fn end_unused(&self) -> Result<Unmounted> {
        let Some(pid) = self.pid else { return self.end() };
        let place = self.place.display();
        let was_mounted = self.is_mounted()?;
        if was_mounted && let Err(error) = weft_fuse::unmount(&self.place, false) {
            bail!("cannot unmount {place}: {error}; end what uses it (`fuser -vm {}` shows that)", shell_word(&self.place));
        }
        let patience = if was_mounted { MOUNT_PATIENCE } else { BUSY_PATIENCE };
        match process::wait_until(patience, || Ok(process::holder(&self.pid_file)?.is_none()))? {
            true if was_mounted => Ok(Unmounted::Done),
            true => Ok(Unmounted::Nothing),
            false => bail!(
                "process {pid} still serves {place}: a job of `weft run` or a container has it, programs use what was unmounted, or not all \
                 that was written is at servers yet"
            ),
        }
    }

    /// Unmounts and ends the process.
    ///
    /// # Errors
    /// If it stays mounted or the process survives.
    pub fn end(&self) -> Result<Unmounted> {
        if self.pid.is_none() && !self.is_mounted()? {
            return Ok(Unmounted::Nothing);
        }
        let was_mounted = self.is_mounted()?;
        let mut outcome = Unmounted::Done;
        // One that has gone from the tree and still lives is in use elsewhere, or about to end.
        if !was_mounted || !mounts::unmount(&self.place)? {
            outcome = Unmounted::WasBusy;
        }
        let patience = if outcome == Unmounted::Done { MOUNT_PATIENCE } else { BUSY_PATIENCE };
        let gone = process::wait_until(patience, || Ok(process::holder(&self.pid_file)?.is_none()));
        if gone? {
            if !was_mounted {
                return Ok(Unmounted::Nothing);
            }
        } else {
            outcome = match process::end(&self.pid_file, MOUNT_PATIENCE)? {
                Ended::WasNotRunning => outcome,
                Ended::Stopped | Ended::Killed => Unmounted::WasBusy,
            };
        }
        if self.is_mounted()? {
            bail!(
                "{} is still mounted; is something else mounted over it? try `umount -l {}`",
                self.place.display(),
                shell_word(&self.place)
            );
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_pid_files() {
        let dir = tempfile::tempdir().unwrap();
        let (state, _) = StateDir::existing_or_new(&dir.path().join("s")).unwrap();
        let (id, other) = (FsId(0xabc_0001), FsId(0xabc_0002));
        let pid_file = |place: &str| state.run_dir().join(format!("{}.pid", file_stem(Path::new(place))));
        let alive = PidFile::take(&pid_file("/no/such/a"), &note(id, Path::new("/no/such/a"))).unwrap();
        fs::write(pid_file("/no/such/b"), format!("1\n{}", note(id, Path::new("/no/such/b")))).unwrap();
        fs::write(pid_file("/no/such/c"), format!("1\n{}", note(other, Path::new("/no/such/c")))).unwrap();
        let listed = of(id, &state).unwrap();
        let seen: Vec<_> = listed.iter().map(|mount| (mount.place.to_str().unwrap(), mount.pid)).collect();
        assert_eq!(seen, [("/no/such/a", Some(std::process::id() as i32)), ("/no/such/b", None)]);
        assert_eq!(listed[1].end().unwrap(), Unmounted::Nothing, "left behind and not mounted");
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            alive.release();
        });
        assert_eq!(listed[0].end().unwrap(), Unmounted::Nothing, "unmounted already, and nobody uses it");
        ends.join().unwrap();
    }

    #[test]
    fn a_place_whose_mount_has_gone_from_the_tree_can_be_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let (place, id) = (Path::new("/no/such/place"), FsId(1));
        let (first, path) = take_pid_file(dir.path(), id, place).unwrap();
        assert!(take_pid_file(dir.path(), id, place).unwrap_err().is::<Held>(), "it is about to mount");
        note_mounted(&first, id, place, "0:53").unwrap();
        let (_second, other) = take_pid_file(dir.path(), id, place).unwrap();
        assert_ne!(path, other);
        let listed = in_dirs(id, vec![dir.path().to_path_buf()]).unwrap();
        assert_eq!(listed.iter().map(|mount| mount.place.as_path()).collect::<Vec<_>>(), [place; 2]);
        let devices = [listed[0].device.as_deref(), listed[1].device.as_deref()];
        assert!(devices.contains(&Some("0:53")) && devices.contains(&None), "{devices:?}");
    }

    #[test]
    fn places_with_the_same_last_name_have_different_files() {
        assert_ne!(file_stem(Path::new("/a/mnt")), file_stem(Path::new("/b/mnt")));
        assert!(file_stem(Path::new("/a/mnt")).starts_with("mount-mnt-"));
    }
}
