//! The files of a recording, piece by piece, for whoever has no other way to this machine. Files
//! are named by their number in the list of the recording, so that nothing else can be read or
//! removed.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weft_base::{Result, Status};
use weft_wire::ops::{TRACE_PIECE_BYTES, TraceReadReply, TraceReadRequest};

/// A piece of a file of the current recording of this process, or of its last one.
///
/// # Errors
/// [`Status::NotFound`] if there is none of that number, [`Status::Io`] if it cannot be read or
/// removed.
pub fn read(request: &TraceReadRequest) -> Result<TraceReadReply> {
    let path = nth_file(request.file).ok_or(Status::NotFound)?;
    let name = path.to_string_lossy().into_owned();
    if request.remove {
        return match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Status::Io),
            _ => {
                // The folder was made for the recording; with its last file it goes.
                let _ = path.parent().map(std::fs::remove_dir);
                Ok(TraceReadReply { path: name, file_bytes: 0, data: Bytes::new() })
            }
        };
    }
    let (file_bytes, data) = piece(&path, request.offset).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Status::NotFound,
        _ => Status::Io,
    })?;
    Ok(TraceReadReply { path: name, file_bytes, data })
}

fn nth_file(number: u32) -> Option<PathBuf> {
    crate::state().as_ref()?.keeper.progress().files.get(number as usize).cloned()
}

/// How long the file is, and its bytes from `offset` on.
///
/// # Errors
/// Of the operating system.
pub fn piece(path: &Path, offset: u64) -> std::io::Result<(u64, Bytes)> {
    // Whatever somebody has put in its place: the recorder wrote a file.
    let file: File = OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK).open(path)?;
    let file_bytes = file.metadata()?.len();
    let mut data = vec![0; TRACE_PIECE_BYTES.min(file_bytes.saturating_sub(offset) as usize)];
    file.read_exact_at(&mut data, offset)?;
    Ok((file_bytes, data.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_file_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.wtrace");
        let content: Vec<u8> = (0..TRACE_PIECE_BYTES + 100).map(|number| number as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let (bytes, first) = piece(&path, 0).unwrap();
        let (_, second) = piece(&path, first.len() as u64).unwrap();
        assert_eq!((bytes, second.len()), (content.len() as u64, 100));
        assert_eq!([first, second].concat(), content);
        assert_eq!(piece(&path, bytes).unwrap().1, "");
        assert_eq!(piece(&path, u64::MAX).unwrap().1, "");
        std::os::unix::fs::symlink(&path, dir.path().join("link")).unwrap();
        assert!(piece(&dir.path().join("link"), 0).is_err());
        // Nothing was recorded, so there is nothing to read.
        assert_eq!(read(&TraceReadRequest { file: 0, offset: 0, remove: true }), Err(Status::NotFound));
    }
}
