//! Which NFS gateways of a file system this user runs on this machine: each holds a pid file, as a
//! mount does, that names its file system and the address where it listens.

use std::path::{Path, PathBuf};

use anyhow::Result;
use weft_base::FsId;

use crate::mount_list::{dirs_of, noted};
use crate::process::PidFile;
use crate::state::StateDir;

/// The beginning of the names of pid files.
const KIND: &str = "nfs-";

/// A gateway that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGateway {
    /// Its pid file.
    pub pid_file: PathBuf,
    /// Where it listens.
    pub address: String,
    /// The process.
    pub pid: i32,
}

/// The name of the gateway that listens at `address`, in traces and of its files.
pub fn trace_name(address: &str) -> String {
    let plain = address.replace(|character: char| !character.is_ascii_alphanumeric() && character != '.', "-");
    format!("{KIND}{}", plain.trim_matches('-'))
}

/// Takes the pid file of a gateway in the folder `dir`; gives its path, too.
///
/// # Errors
/// As [`PidFile::take`].
pub fn take_pid_file(dir: &Path, fs_id: FsId, address: &str) -> Result<(PidFile, PathBuf)> {
    let path = dir.join(format!("{}.pid", trace_name(address)));
    Ok((PidFile::take(&path, &format!("{fs_id}\n{address}"))?, path))
}

/// All gateways of a file system that this user runs for this state directory, or without one.
///
/// # Errors
/// If a pid file cannot be read.
pub fn of(fs_id: FsId, state: Option<&StateDir>) -> Result<Vec<ListedGateway>> {
    let noted = noted(dirs_of(state), KIND, fs_id)?.into_iter();
    let running = noted.filter_map(|noted| {
        let address = noted.lines.into_iter().next()?;
        Some(ListedGateway { pid_file: noted.pid_file, address, pid: noted.pid? })
    });
    let mut listed: Vec<ListedGateway> = running.collect();
    listed.sort_by(|a, b| a.address.cmp(&b.address));
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_that_run_are_found_by_their_pid_files() {
        let dir = tempfile::tempdir().unwrap();
        let (state, _) = StateDir::existing_or_new(&dir.path().join("s")).unwrap();
        let id = FsId(0xabc_0003);
        let (alive, path) = take_pid_file(&state.run_dir(), id, "127.0.0.1:2049").unwrap();
        let (gone, _) = take_pid_file(&state.run_dir(), id, "[::1]:2049").unwrap();
        let (other, _) = take_pid_file(&state.run_dir(), FsId(0xabc_0004), "127.0.0.1:2050").unwrap();
        gone.release();
        let expected = ListedGateway { pid_file: path, address: "127.0.0.1:2049".into(), pid: std::process::id() as i32 };
        assert_eq!(of(id, Some(&state)).unwrap(), [expected]);
        assert_eq!((trace_name("127.0.0.1:2049").as_str(), trace_name("[::1]:2049").as_str()), ("nfs-127.0.0.1-2049", "nfs-1--2049"));
        alive.release();
        other.release();
    }
}
