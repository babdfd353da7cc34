//! Room for a start on a full disk. A server that starts makes a socket in the state directory, and
//! so does a mount. XFS makes no file at all when its disk is full to the last block, and data
//! servers may have filled it: they could not be started again, so nothing could be removed. So a
//! file beside the sockets holds some room, which a start is given where it needs it.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

use crate::trust::own_file;

/// The room that is held, in bytes. XFS wants some 50 blocks of 4096 bytes before it makes a file,
/// though it takes fewer.
const ROOM_BYTES: u64 = 1 << 20;

/// A start is under way: what it needs is free. When this ends the room is held again, as far as
/// there is any.
#[derive(Debug)]
pub struct StartRoom {
    file: PathBuf,
}

impl StartRoom {
    /// Gives the room in this folder away, if no file can be made there otherwise.
    pub fn take(run_dir: &Path) -> StartRoom {
        let room = StartRoom { file: run_dir.join("room") };
        if makes_no_file(&run_dir.join("room.new"))
            && let Ok(file) = own_file().write(true).open(&room.file)
        {
            // If it fails, so does the start, which says why.
            let _ = file.set_len(0);
        }
        room
    }
}

impl Drop for StartRoom {
    /// Where that is not possible, a start does as well as it can without.
    fn drop(&mut self) {
        if let Ok(file) = own_file().write(true).create(true).truncate(false).mode(0o600).open(&self.file)
            && file.metadata().is_ok_and(|meta| meta.len() < ROOM_BYTES)
        {
            let held = |bytes: u64| fallocate(&file, FallocateFlags::empty(), 0, bytes).is_ok();
            let _ = [ROOM_BYTES, ROOM_BYTES / 2, ROOM_BYTES / 4].into_iter().any(held);
        }
    }
}

fn makes_no_file(probe: &Path) -> bool {
    // What a start that was killed has left.
    let _ = std::fs::remove_file(probe);
    let made = own_file().write(true).create_new(true).mode(0o600).open(probe);
    let _ = std::fs::remove_file(probe);
    made.is_err_and(|error| error.kind() == io::ErrorKind::StorageFull)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn room_is_held_between_starts() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            drop(StartRoom::take(dir.path()));
            let held = dir.path().join("room").metadata().unwrap();
            assert!(held.blocks() * 512 >= ROOM_BYTES, "{} blocks", held.blocks());
            assert_eq!(dir.path().read_dir().unwrap().count(), 1);
        }
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run");
        std::fs::create_dir(&run_dir).unwrap();
        std::fs::write(dir.path().join("other"), "abc").unwrap();
        for name in ["room", "room.new"] {
            std::os::unix::fs::symlink("../other", run_dir.join(name)).unwrap();
        }
        drop(StartRoom::take(&run_dir));
        assert_eq!(std::fs::read(dir.path().join("other")).unwrap(), b"abc");
    }

    #[test]
    fn a_folder_that_is_not_there_holds_none() {
        drop(StartRoom::take(Path::new("/nonexistent/run")));
    }
}
