//! Brings the files of a recording from the machines of servers to this one, over the connection
//! that the client has anyway.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use weft_base::ServerId;
use weft_host::connect::Fs;
use weft_host::state::in_file_name;
use weft_wire::ops::{TraceReadReply, TraceReadRequest, TraceReply};

use crate::output::names;
use crate::pieces::piece;

/// A larger file stays where it is: it would fill the disk of whoever asks.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// What is wanted of a file of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// To see it from this machine.
    InSight,
    /// To have it in the folder, as a copy if it is elsewhere.
    Copied,
    /// To have it in the folder and nowhere else.
    Moved,
}

/// A server with files.
pub struct Source<'a> {
    /// The file system.
    pub fs: &'a Fs,
    /// The server.
    pub server: ServerId,
    /// Its name; files are called after it.
    pub name: &'a str,
    /// What it said of its recording.
    pub reply: &'a TraceReply,
    /// So many files of its list come before those of `reply`.
    pub files_before: usize,
}

impl Source<'_> {
    /// The file with this number in the reply, on this machine: where it is, if that is
    /// enough and this is the machine, else in `folder`, which is made if it is missing. A copy
    /// that is there already is not fetched again.
    ///
    /// # Errors
    /// The server does not give it, or it cannot be written; the part that was written is removed.
    pub fn local_copy(&self, number: usize, folder: &Path, want: Want) -> Result<PathBuf> {
        let there = &self.reply.files[number];
        let first = self.read(number, 0)?;
        if is_same(Path::new(there), &first) && (want == Want::InSight || Path::new(there).parent() == Some(folder)) {
            return Ok(PathBuf::from(there));
        }
        if first.file_bytes > FILE_BYTES_MAX {
            bail!("{there} of {} is larger than 4 GiB and stays there", self.name);
        }
        make_folder(folder)?;
        let stem = format!("{}-{}", in_file_name(self.name), self.reply.process);
        let Some((file, path)) = place(folder, &stem, &first)? else {
            bail!("{} holds too many traces of {}", folder.display(), self.name)
        };
        if let Some(file) = file
            && let Err(error) = self.copy(number, first, file)
        {
            // Half a file would be taken for a damaged one.
            let _ = std::fs::remove_file(&path);
            return Err(error.context(format!("cannot copy {there} of {} to {}", self.name, path.display())));
        }
        if want == Want::Moved {
            self.ask(&TraceReadRequest { file: self.in_list(number), offset: 0, remove: true })?;
        }
        Ok(path)
    }

    fn copy(&self, number: usize, first: TraceReadReply, mut file: File) -> Result<()> {
        let (wanted, mut done) = (first.file_bytes, first.data.len() as u64);
        file.write_all(&first.data)?;
        while done < wanted {
            let mut data = self.read(number, done)?.data;
            // A recording that goes on makes its file longer; what was there at the beginning is
            // enough.
            data.truncate((wanted - done) as usize);
            if data.is_empty() {
                bail!("the file became shorter meanwhile");
            }
            file.write_all(&data)?;
            done += data.len() as u64;
        }
        Ok(())
    }

    fn read(&self, number: usize, offset: u64) -> Result<TraceReadReply> {
        let reply = self.ask(&TraceReadRequest { file: self.in_list(number), offset, remove: false })?;
        if reply.path != self.reply.files[number] {
            bail!("{} has begun another recording meanwhile", self.name);
        }
        Ok(reply)
    }

    /// The number by which the server knows a file of the reply.
    fn in_list(&self, number: usize) -> u32 {
        (self.files_before + number) as u32
    }

    fn ask(&self, request: &TraceReadRequest) -> Result<TraceReadReply> {
        let reply = self.fs.trace_read(self.server, request);
        reply.map_err(|error| anyhow::anyhow!("{}", self.fs.why(&error)))
    }
}

/// A file of a recording on this machine, in `folder`, which is made if it is missing; `stem`
/// begins the name of a copy. A copy that is there already is not made again.
///
/// # Errors
/// It cannot be read or written; the part that was written is removed.
pub fn copy_here(there: &Path, folder: &Path, stem: &str) -> Result<PathBuf> {
    if there.parent() == Some(folder) {
        return Ok(there.to_path_buf());
    }
    let (file_bytes, data) = piece(there, 0).with_context(|| format!("cannot read {}", there.display()))?;
    let first = TraceReadReply { path: String::new(), file_bytes, data };
    make_folder(folder)?;
    let Some((file, path)) = place(folder, stem, &first)? else { bail!("{} holds too many traces of {stem}", folder.display()) };
    if let Some(mut file) = file
        && let Err(error) = File::open(there).and_then(|source| std::io::copy(&mut source.take(file_bytes), &mut file))
    {
        // As in `Source::local_copy`.
        let _ = std::fs::remove_file(&path);
        return Err(error).with_context(|| format!("cannot copy {} to {}", there.display(), path.display()));
    }
    Ok(path)
}

fn make_folder(folder: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// True if the file at `path` is as long as the one that begins so, and begins so. Two recordings
/// never do: the header of a file has the moment of its beginning in nanoseconds.
fn is_same(path: &Path, first: &TraceReadReply) -> bool {
    piece(path, 0).is_ok_and(|(bytes, data): (u64, Bytes)| bytes == first.file_bytes && data == first.data)
}

/// A new file for what begins so, or none if it is there already, and where; `None` if there is no
/// free name.
fn place(folder: &Path, stem: &str, first: &TraceReadReply) -> Result<Option<(Option<File>, PathBuf)>> {
    for path in names(folder, stem) {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && is_same(&path, first) => return Ok(Some((None, path))),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return Ok(Some((Some(made.with_context(|| format!("cannot write {}", path.display()))?), path))),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_made_once_and_never_over_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let first = |text: &'static str| TraceReadReply { path: "/x".into(), file_bytes: text.len() as u64, data: text.into() };
        let (file, path) = place(dir.path(), "meta0-7", &first("one")).unwrap().unwrap();
        file.unwrap().write_all(b"one").unwrap();
        let (file, again) = place(dir.path(), "meta0-7", &first("one")).unwrap().unwrap();
        assert!(file.is_none() && again == path);
        let (file, other) = place(dir.path(), "meta0-7", &first("two")).unwrap().unwrap();
        assert!(file.is_some() && other == dir.path().join("meta0-7-1.wtrace"));
        assert_eq!(std::fs::read(path).unwrap(), b"one");
        assert_eq!(in_file_name("../meta 0"), "___meta_0");
    }
}
