//! A file system that a program has opened: its client, who asks, and the two threads beside the
//! calls.

use std::fmt;
use std::future::Future;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use weft_base::{Credentials, FsId, Handle, SECOND, Status};
use weft_client::{Client, FsStats};
use weft_posix::{Callers, InodeNumber, Options, Posix};
use weft_rt::ThreadRuntime;

use crate::error::{Error, Result};

/// At the end servers get so many nanoseconds to hear what is closed.
const CLOSE_PATIENCE: u64 = 10 * SECOND;

/// The layer below.
pub type PosixLayer<R> = Posix<R, Callers>;

/// How a file system is used.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// From so many calls on what servers tell under leases is believed until others change it; a
    /// thread for each metadata server hears of that. `None`: every call asks.
    pub leases_after: Option<u32>,
    /// Files of directories that only this program knows are made without asking, and what is
    /// written to small new ones stays here until they are closed: what is of the last milliseconds
    /// is lost with a program that is killed. Needs leases from the first call on.
    pub absorbs: bool,
    /// Called first on each thread beside the calls.
    pub thread_begins: fn(),
}

impl Habits {
    /// So many calls a short program makes, to which leases give little.
    pub const FEW_CALLS: u32 = 16;
}

impl Default for Habits {
    fn default() -> Habits {
        Habits { leases_after: Some(Habits::FEW_CALLS), absorbs: false, thread_begins: || {} }
    }
}

/// A file system that this process has opened. Its end waits until everything is closed.
pub struct FileSystem<R: ThreadRuntime> {
    posix: Arc<PosixLayer<R>>,
    pub(crate) who: Credentials,
    pub(crate) umask: u32,
    id: FsId,
    process: u32,
    threads: Arc<Threads>,
    /// So many more calls until leases are kept; negative: no more are counted.
    calls_left: AtomicI64,
}

/// The threads beside the calls.
#[derive(Debug)]
struct Threads {
    begins: fn(),
    all: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    fn all(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives a flow on a thread of its own.
    fn beside<R: ThreadRuntime>(
        &self,
        name: &str,
        posix: &Arc<PosixLayer<R>>,
        flow: impl AsyncFnOnce(&PosixLayer<R>) + Send + 'static,
    ) -> io::Result<()> {
        let (posix, begins) = (posix.clone(), self.begins);
        let drive = move || {
            begins();
            posix.rt().block_on(flow(&posix));
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(drive)?;
        self.all().push(thread);
        Ok(())
    }
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
        FileSystem::open_with(client, who, umask, Habits::default())
    }

    /// [`FileSystem::open`] with other habits.
    ///
    /// # Errors
    /// As [`FileSystem::open`].
    pub fn open_with(client: Client<R>, who: Credentials, umask: u32, habits: Habits) -> Result<FileSystem<R>> {
        let id = client.map().fs_id;
        let posix = Arc::new(Posix::new(client, Callers, Options::for_callers(habits.absorbs)));
        let threads = Arc::new(Threads { begins: habits.thread_begins, all: Mutex::default() });
        let fs = FileSystem { posix, who, umask, id, process: std::process::id(), threads, calls_left: AtomicI64::new(-1) };
        fs.stat(b"/", true)?;
        fs.begin_threads(habits.leases_after).map_err(|error| Error::new(Status::Busy, format!("open: no thread: {error}")))?;
        Ok(fs)
    }

    fn begin_threads(&self, leases_after: Option<u32>) -> io::Result<()> {
        let (threads, posix) = (&self.threads, &self.posix);
        threads.beside("weft-closer", posix, async |posix| posix.close_in_background().await)?;
        threads.beside("weft-keeper", posix, async |posix| posix.keep_alive().await)?;
        threads.beside("weft-mover", posix, async |posix| posix.move_in_background().await)?;
        let Some(calls) = leases_after else { return Ok(()) };
        let (beside, hearing) = (threads.clone(), posix.clone());
        let hear = move |server| beside.beside("weft-notices", &hearing, async move |posix| posix.hear_notices(server).await);
        threads.beside("weft-notices", posix, async |posix| {
            posix.leases_begin().await;
            posix.hear_all(hear).await;
        })?;
        self.calls_left.store(calls.into(), Ordering::Relaxed);
        self.count_call();
        Ok(())
    }

    /// A call begins.
    fn count_call(&self) {
        if self.calls_left.load(Ordering::Relaxed) >= 0 && self.calls_left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.posix.keep_leases_below();
        }
    }

    /// Who asks.
    pub fn who(&self) -> &Credentials {
        &self.who
    }

    /// Which file system it is.
    pub fn id(&self) -> FsId {
        self.id
    }

    /// Bits that new files and directories do not get.
    pub fn umask(&self) -> u32 {
        self.umask
    }

    /// Closes everything and tells the servers; nothing can be done here afterwards. For a process
    /// that ends without waiting for the threads beside the calls.
    pub fn leave(&self) {
        if self.is_own() {
            self.drive(self.posix.end(CLOSE_PATIENCE));
        }
    }

    /// For a process that ends and may not close it: nothing that servers told is believed any
    /// more, and they hear of that. Later calls ask each time.
    pub fn leave_leases(&self) {
        if self.is_own() {
            self.calls_left.store(-1, Ordering::Relaxed);
            self.drive(self.posix.leave_leases());
        }
    }

    /// How full it is, or the project that this object counts for.
    ///
    /// # Errors
    /// Servers that do not answer.
    pub fn statfs(&self, at: Handle) -> Result<FsStats> {
        self.run("statfs", b"/", async |posix| posix.statfs(&self.who, InodeNumber::of(at)).await)
    }

    /// Drives an operation to its end on this thread; an error is told with its path.
    ///
    /// # Errors
    /// Those of the operation; [`Status::Invalid`] in a child of the process that opened it.
    pub fn run<T>(&self, what: &str, path: &[u8], flow: impl AsyncFnOnce(&PosixLayer<R>) -> weft_client::Result<T>) -> Result<T> {
        self.check_process(what)?;
        self.count_call();
        self.drive(flow(&self.posix)).map_err(|error| self.told(what, path, &error))
    }

    pub(crate) fn drive<F: Future>(&self, flow: F) -> F::Output {
        self.posix.rt().block_on(flow)
    }

    /// The layer below, for what needs no wait.
    pub fn posix(&self) -> &PosixLayer<R> {
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
    pub fn is_own(&self) -> bool {
        std::process::id() == self.process
    }
}

impl<R: ThreadRuntime> Drop for FileSystem<R> {
    fn drop(&mut self) {
        if !self.is_own() {
            // What is behind them is the parent's.
            mem::forget(self.threads.clone());
            return mem::forget(self.posix.clone());
        }
        self.drive(self.posix.end(CLOSE_PATIENCE));
        // One of them may begin another.
        while let Some(thread) = { self.threads.all().pop() } {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}
