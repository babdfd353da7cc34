//! A file system that a program has opened: its client, who asks, and the two threads beside the
//! calls.

use std::fmt;
use std::future::Future;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use weft_base::{Credentials, Handle, SECOND, Status};
use weft_client::{Client, FsStats};
use weft_posix::{Gateway, Options, Posix};
use weft_rt::ThreadRuntime;

use crate::error::{Error, Result};

/// At the end servers get so many nanoseconds to hear what is closed.
const CLOSE_PATIENCE: u64 = 10 * SECOND;

/// Nothing is cached above, and every caller gets its error itself.
pub(crate) struct Callers;

impl Gateway for Callers {
    fn forget_attributes(&self, _file: Handle) {}

    fn forget_names(&self) {}

    fn warn(&self, _line: &str) {}
}

/// The layer below.
pub(crate) type Layer<R> = Posix<R, Callers>;

/// A file system that this process has opened. Its end waits until everything is closed.
pub struct FileSystem<R: ThreadRuntime> {
    posix: Arc<Layer<R>>,
    pub(crate) who: Credentials,
    pub(crate) umask: u32,
    process: u32,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<R: ThreadRuntime> fmt::Debug for FileSystem<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSystem").field("who", &self.who).field("process", &self.process).finish_non_exhaustive()
    }
}

impl<R: ThreadRuntime> FileSystem<R> {
    /// Opens the file system of a client that has no other user, for these credentials; new files
    /// and directories do not get the permission bits of `umask`. The root is looked at, so that an
    /// error is one of this call.
    ///
    /// # Errors
    /// If there is no thread to be had, or the servers do not answer.
    pub fn open(client: Client<R>, who: Credentials, umask: u32) -> Result<FileSystem<R>> {
        let options = Options { ttl_ns: 0, keeps_leases: false, direct_from_bytes: 0, keeps_locks: false, appends_alone: false };
        let posix = Arc::new(Posix::new(client, Callers, options));
        let fs = FileSystem { posix, who, umask, process: std::process::id(), threads: Mutex::default() };
        fs.stat(b"/", true)?;
        let begun = fs.beside("weft-closer", async |posix| posix.close_in_background().await);
        begun
            .and_then(|()| fs.beside("weft-keeper", async |posix| posix.keep_alive().await))
            .map_err(|error| Error::new(Status::Busy, format!("open: no thread: {error}")))?;
        Ok(fs)
    }

    /// Drives a flow beside the calls, on a thread of its own.
    fn beside(&self, name: &str, flow: impl AsyncFnOnce(&Layer<R>) + Send + 'static) -> io::Result<()> {
        let posix = self.posix.clone();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || posix.rt().block_on(flow(&posix)))?;
        self.threads().push(thread);
        Ok(())
    }

    /// How full it is.
    ///
    /// # Errors
    /// Servers that do not answer.
    pub fn statfs(&self) -> Result<FsStats> {
        self.run("statfs", b"/", async |posix| posix.statfs().await)
    }

    /// Drives an operation to its end on this thread; an error is told with its path.
    pub(crate) fn run<T>(&self, what: &str, path: &[u8], flow: impl AsyncFnOnce(&Layer<R>) -> weft_client::Result<T>) -> Result<T> {
        self.check_process(what)?;
        self.drive(flow(&self.posix)).map_err(|error| self.told(what, path, &error))
    }

    pub(crate) fn drive<F: Future>(&self, flow: F) -> F::Output {
        self.posix.rt().block_on(flow)
    }

    pub(crate) fn posix(&self) -> &Layer<R> {
        &self.posix
    }

    /// An error for people.
    pub(crate) fn told(&self, what: &str, path: &[u8], error: &weft_client::Error) -> Error {
        let path = String::from_utf8_lossy(path);
        // If no server is to blame the path says it all.
        let why = match error.status {
            Status::TimedOut | Status::Unreachable | Status::Io | Status::NoSpace | Status::ReadOnly => self.posix.explain(error),
            status if status.errno() == Status::Io.errno() => self.posix.explain(error),
            status => status.to_string(),
        };
        Error::new(error.status, format!("{what} {path}: {why}"))
    }

    /// Connections and threads belong to the process that made them.
    pub(crate) fn check_process(&self, what: &str) -> Result<()> {
        match self.is_own() {
            true => Ok(()),
            false => Err(Error::new(
                Status::Invalid,
                format!("{what}: the file system was opened before a fork; the child has to open it itself"),
            )),
        }
    }

    /// False in a child process, which has none of the threads.
    pub(crate) fn is_own(&self) -> bool {
        std::process::id() == self.process
    }

    fn threads(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: ThreadRuntime> Drop for FileSystem<R> {
    fn drop(&mut self) {
        let threads = mem::take(&mut *self.threads());
        if !self.is_own() {
            // What is behind them is the parent's.
            mem::forget(threads);
            return mem::forget(self.posix.clone());
        }
        self.drive(self.posix.end(CLOSE_PATIENCE));
        for thread in threads {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}
