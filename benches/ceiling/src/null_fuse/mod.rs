//! A FUSE file system that does nothing: what the kernel's FUSE interface and this machine allow
//! any file system that is mounted through it.
//!
//! Nothing is cached by the kernel (all timeouts are 0, data is direct I/O), so every operation
//! that is counted has really gone to the server and back. Requests are up to 1 MiB.
//!
//! What it shows, below its root and below every directory:
//! - `d<k>`: a directory, for any number k;
//! - `f<k>`: a file of [`NullFuseConfig::file_bytes`] zeros, for any k; writes to it are accepted
//!   and dropped;
//! - `list`: a directory with the entries `f0` to `f<n-1>`;
//! - every other name does not exist until it is created, and is forgotten at once.

mod filesystem;
mod mount;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use crate::child::{Server, ServerRole, ServerSpawner};

pub(crate) use mount::{ensure_unmounted, mount, unmount};

/// Greatest size of one read or write request in bytes, as asked of the kernel.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// How the null file system is served and what it shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NullFuseConfig {
    /// Threads that read requests.
    pub threads: usize,
    /// Gives each thread its own descriptor of the FUSE device.
    pub clone_fd: bool,
    /// Lets the kernel ask for attributes together with directory entries.
    pub readdirplus: bool,
    /// Entries of the directory `list`.
    pub list_entries: u64,
    /// Size of every `f<k>` in bytes.
    pub file_bytes: u64,
    /// Socket of a bare server ([`crate::rpc`]) that is asked once for each change; the kernel then
    /// checks permissions, too. Both is what any file system needs whose truth is in another
    /// process.
    pub asks: Option<PathBuf>,
}

impl Default for NullFuseConfig {
    /// Two threads with their own descriptors, readdirplus, 10 000 entries, files of 1 GiB, nobody
    /// who is asked.
    fn default() -> Self {
        Self { threads: 2, clone_fd: true, readdirplus: true, list_entries: 10_000, file_bytes: 1 << 30, asks: None }
    }
}

impl NullFuseConfig {
    pub(crate) fn to_words(&self) -> Vec<OsString> {
        let words = [
            self.threads.to_string(),
            self.clone_fd.to_string(),
            self.readdirplus.to_string(),
            self.list_entries.to_string(),
            self.file_bytes.to_string(),
        ];
        words.into_iter().map(OsString::from).chain(self.asks.iter().map(|path| path.clone().into_os_string())).collect()
    }

    pub(crate) fn from_words(words: &[OsString]) -> Result<Self> {
        let [threads, clone_fd, readdirplus, list_entries, file_bytes, rest @ ..] = words else {
            bail!("a null file system is described by five words");
        };
        let word = |word: &OsString| word.to_str().map(String::from).with_context(|| format!("{word:?} is not a word"));
        let asks = match rest {
            [] => None,
            [path] => Some(path.into()),
            _ => bail!("a null file system asks one server"),
        };
        let config = Self {
            threads: word(threads)?.parse()?,
            clone_fd: word(clone_fd)?.parse()?,
            readdirplus: word(readdirplus)?.parse()?,
            list_entries: word(list_entries)?.parse()?,
            file_bytes: word(file_bytes)?.parse()?,
            asks,
        };
        ensure!(config.threads > 0, "a file system needs a thread");
        Ok(config)
    }
}

/// A mounted null file system; dropping it unmounts it and ends its server.
#[derive(Debug)]
pub struct NullFuse {
    // Ended and unmounted before the directory below it is removed: fields are dropped in this
    // order.
    server: Option<Server>,
    mount_point: Option<tempfile::TempDir>,
}

impl NullFuse {
    /// Mounts a null file system on a new temporary directory, its server started by `spawner`.
    ///
    /// # Errors
    /// When FUSE cannot be used here; the error says what stands in the way.
    pub fn start(spawner: &ServerSpawner, config: NullFuseConfig) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("weft-null-fuse-").tempdir().context("cannot make a directory to mount on")?;
        let role = ServerRole::NullFuse { mount_point: directory.path().to_path_buf(), config };
        let server = spawner.start(&role).context("cannot mount a FUSE file system here")?;
        Ok(Self { server: Some(server), mount_point: Some(directory) })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.mount_point.as_ref().expect("the directory is only taken when the value is dropped").path()
    }

    /// The server process; `None` when it is a thread.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().and_then(Server::pid)
    }

    /// `count` directories, one for each thread that works in its own.
    pub fn dirs(&self, count: usize) -> Vec<PathBuf> {
        (0..count).map(|k| self.path().join(format!("d{k}"))).collect()
    }

    /// `count` files, one for each thread that works on its own.
    pub fn files(&self, count: usize) -> Vec<PathBuf> {
        (0..count).map(|k| self.path().join(format!("f{k}"))).collect()
    }

    /// The directory with many entries.
    pub fn list(&self) -> PathBuf {
        self.path().join("list")
    }
}

impl Drop for NullFuse {
    fn drop(&mut self) {
        // How the server ended does not matter any more, only whether its mount is gone.
        drop(self.server.take());
        if ensure_unmounted(self.path()).is_err() {
            // Removing the directory's contents would go into the mount: leave it.
            if let Some(directory) = self.mount_point.take() {
                let _ = directory.keep();
            }
        }
    }
}

#[cfg(test)]
mod tests;
