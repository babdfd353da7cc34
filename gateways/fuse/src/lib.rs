//! `weft-fuse`: a mount of a Weft file system through FUSE. It translates the kernel's requests
//! into calls of `weft-posix` and errors into errnos; every request runs to its end on the thread
//! that read it.
//!
//! It never holds file system state, and never names the runtime that drives it: whoever mounts
//! hands a client over.
// A full disk or a reader who has gone must not end a process, and these macros panic then: lines
// go to the log that a mount is given.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![allow(unsafe_code)] // `mount.rs`, `kernel`: descriptors and system calls on them; `waits.rs`: poll; `threads.rs`: the limit of descriptors

mod convert;
mod filesystem;
mod gateway;
mod kernel;
mod looks;
mod mount;
mod places;
mod served;
mod threads;
mod waits;
mod writers;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use weft_client::Client;
use weft_posix::{Options, Posix};
use weft_rt::ThreadRuntime;

use filesystem::WeftFilesystem;
use gateway::Above;
use threads::Threads;

pub use gateway::MountLog;
pub use kernel::Transport;
pub use mount::{KernelFlags, REQUEST_BYTES_MAX, clear_dead_mount, mount_directly, unmount};
pub use weft_posix::{ErrorCount, ErrorCounts};

/// How a mount behaves.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What the kernel sees to. Other users may use the mount by default of root; a plain user
    /// needs `user_allow_other` in `/etc/fuse.conf`.
    pub kernel: KernelFlags,
    /// Threads that serve requests while servers answer; those that are not needed rest. Requests
    /// that wait for servers have threads of their own.
    pub threads: usize,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// For how long the kernel may answer for attributes and names from its own memory.
    pub remembers: Remembers,
    /// Files of at least this many bytes that are opened for reading bypass the kernel's page
    /// cache.
    pub direct_from_bytes: u64,
    /// Locks of programs are left to the kernel: those of other mounts are not seen. For files that
    /// one mount uses.
    pub local_locks: bool,
    /// Files of directories that nobody else knows are made without asking their server: those of
    /// the last milliseconds are lost with a mount that is killed.
    pub absorbs: bool,
    /// Reading a file sets the time of its last access where that is due (`relatime`).
    pub sets_atime: bool,
    /// Read-only, for sealed trees: the kernel opens files without asking, and remembers what is
    /// sealed for ever. Files that are not sealed are not read.
    pub is_dataset: bool,
    /// At unmount, wait at most this long for open files to be closed at the servers.
    pub close_patience: Duration,
}

impl Default for MountOptions {
    fn default() -> Self {
        // SAFETY: geteuid has no preconditions.
        let root = unsafe { libc::geteuid() } == 0;
        MountOptions {
            kernel: KernelFlags { allow_other: root, ..KernelFlags::default() },
            threads: 4,
            transport: Transport::Auto,
            remembers: Remembers::Default,
            direct_from_bytes: 1 << 20,
            local_locks: false,
            absorbs: true,
            sets_atime: false,
            is_dataset: false,
            close_patience: Duration::from_secs(10),
        }
    }
}

/// For how long the kernel may answer for attributes and names from its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembers {
    /// As long as nobody changes them if the kernel can be told of changes (Linux 6.16), otherwise
    /// for a second.
    Default,
    /// As long as nobody changes them; on older kernels the mount fails.
    UntilChanged,
    /// For this long: the bound on staleness between mounts.
    For(Duration),
}

impl Remembers {
    /// For how long without leases; `None`: as long as leases are held.
    fn limit(self) -> io::Result<Option<Duration>> {
        match self {
            Remembers::For(time) => Ok(Some(time)),
            _ if kernel::forgets_names() => Ok(None),
            Remembers::Default => Ok(Some(OLD_KERNELS)),
            Remembers::UntilChanged => Err(io::Error::new(io::ErrorKind::Unsupported, "leases need Linux 6.16; mount without -o leases")),
        }
    }
}

/// For how long kernels remember names and attributes that cannot be told of changes, or while a
/// server knows no leases.
const OLD_KERNELS: Duration = Duration::from_secs(1);

/// A file system that is mounted. Dropping it leaves it mounted; call [`MountedFs::unmounter`] or
/// wait for somebody to unmount it.
#[derive(Debug)]
pub struct MountedFs {
    thread: JoinHandle<io::Result<()>>,
    error_counts: Arc<ErrorCounts>,
    unmounter: Unmounter,
}

/// What is answered without asking anybody has its answer within this time.
const ANSWERS_UNDER_WAY: Duration = Duration::from_millis(50);

/// Mounts the file system at `mountpoint`, an existing directory. When this returns the mount is
/// usable. What goes wrong is told to `log`, line by line.
///
/// # Errors
/// What the kernel or `fusermount3` says, with the mount point.
pub fn mount<R: ThreadRuntime>(client: Client<R>, mountpoint: &Path, options: MountOptions, log: MountLog) -> io::Result<MountedFs> {
    let asked = options.kernel;
    begin(client, mountpoint, options, log, |fs_name| mount::attach(mountpoint, fs_name, asked))
}

/// Serves a connection that somebody else has attached ([`mount_directly`]), at `mountpoint` as he
/// sees it: perhaps in a mount namespace where this process cannot unmount.
///
/// # Errors
/// What the kernel says, with the mount point.
pub fn serve<R: ThreadRuntime>(
    client: Client<R>,
    device: OwnedFd,
    mountpoint: &Path,
    options: MountOptions,
    log: MountLog,
) -> io::Result<MountedFs> {
    begin(client, mountpoint, options, log, |_| Ok(device))
}

fn begin<R: ThreadRuntime>(
    client: Client<R>,
    mountpoint: &Path,
    options: MountOptions,
    log: MountLog,
    attach: impl FnOnce(&str) -> io::Result<OwnedFd>,
) -> io::Result<MountedFs> {
    let explain = |error: io::Error| io::Error::new(error.kind(), format!("cannot mount at {}: {error}", mountpoint.display()));
    let limit = options.remembers.limit().map_err(explain)?;
    threads::check_addresses(options.threads).map_err(explain)?;
    let fs_name = client.map().fs_name.clone();
    let nanos = |duration: Duration| duration.as_nanos() as u64;
    let behaviour = Options {
        ttl_ns: nanos(limit.unwrap_or(OLD_KERNELS)),
        keeps_leases: limit.is_none(),
        direct_from_bytes: options.direct_from_bytes,
        keeps_locks: !options.local_locks,
        appends_alone: true,
        hears_closes: false,
        absorbs: options.absorbs,
        sets_atime: options.sets_atime,
        is_dataset: options.is_dataset,
    };
    let posix = Arc::new(Posix::new(client, Above::new(log), behaviour));
    let error_counts = posix.error_counts();
    let no_thread = |error: io::Error| explain(io::Error::new(error.kind(), format!("no thread for it: {error}")));
    beside("weft-closer", &posix, async |posix| posix.close_in_background().await).map_err(no_thread)?;
    beside("weft-keeper", &posix, async |posix| posix.keep_alive().await).map_err(no_thread)?;
    beside("weft-mover", &posix, async |posix| posix.move_in_background().await).map_err(no_thread)?;
    let hearing = posix.clone();
    let hear = move |server| beside("weft-notices", &hearing, async move |posix| posix.hear_notices(server).await);
    beside("weft-notices", &posix, async |posix| posix.hear_all(hear).await).map_err(no_thread)?;
    let threads = Threads::new(options.threads);
    let filesystem = WeftFilesystem::new(posix.clone(), threads.clone());
    options.transport.may_use_rings().map_err(explain)?;
    let device = attach(&fs_name).map_err(explain)?;
    threads.waits().watch(device.try_clone()?);
    let patience = options.close_patience;
    let session =
        kernel::KernelSession::new(filesystem, device, threads.clone(), kernel::SessionOptions { patience, transport: options.transport });
    let nobody_serves = |error| {
        let _ = unmount(mountpoint, true);
        error
    };
    let session = session.map_err(explain).map_err(nobody_serves)?;
    let left = posix.clone();
    let leave = move || {
        threads.refuse();
        std::thread::sleep(ANSWERS_UNDER_WAY);
        left.rt().block_on(left.end(nanos(patience)));
    };
    let unmounter = Unmounter { mountpoint: mountpoint.to_path_buf(), leave: Arc::new(leave) };
    let (told, hears) = std::sync::mpsc::channel();
    let started = std::thread::Builder::new().name("weft-mount".into()).spawn(move || {
        // Whoever began this hears it, or that it is dropped.
        let result = session.run(move || _ = told.send(()));
        posix.rt().block_on(posix.end(nanos(patience)));
        result
    });
    let thread = started.map_err(no_thread).map_err(nobody_serves)?;
    if hears.recv().is_err() {
        let error = thread.join().unwrap_or(Ok(())).err().unwrap_or_else(|| io::Error::other("the thread that serves it panicked"));
        return Err(nobody_serves(no_thread(error)));
    }
    Ok(MountedFs { thread, error_counts, unmounter })
}

/// Drives a flow beside the requests, on a thread of its own.
fn beside<R: ThreadRuntime>(
    name: &str,
    posix: &Arc<Posix<R, Above>>,
    flow: impl AsyncFnOnce(&Posix<R, Above>) + Send + 'static,
) -> io::Result<()> {
    let posix = posix.clone();
    std::thread::Builder::new().name(name.into()).spawn(move || posix.rt().block_on(flow(&posix))).map(drop)
}

impl MountedFs {
    /// Waits until the file system is unmounted, by whomever, and everything is closed.
    ///
    /// # Errors
    /// If the connection to the kernel failed.
    pub fn wait(self) -> io::Result<()> {
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that serves the mount panicked")))
    }

    /// What servers do wrong.
    pub fn error_counts(&self) -> Arc<ErrorCounts> {
        self.error_counts.clone()
    }

    /// A callable that unmounts; usable from a signal thread while another thread is in
    /// [`MountedFs::wait`].
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }
}

/// Unmounts one mount.
#[derive(Clone)]
pub struct Unmounter {
    mountpoint: PathBuf,
    leave: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Unmounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unmounter").field("mountpoint", &self.mountpoint).finish_non_exhaustive()
    }
}

impl Unmounter {
    /// Where it is.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Unmounts; if files are open, lazily: the tree forgets the mount at once and it ends with its
    /// last user.
    ///
    /// # Errors
    /// If even that is refused.
    pub fn unmount(&self) -> io::Result<()> {
        unmount(&self.mountpoint, false).or_else(|_| unmount(&self.mountpoint, true))
    }

    /// For a process that is about to end although programs still use the mount: they are refused
    /// from now on, and what they have written is brought to servers, for at most the patience of
    /// the mount.
    pub fn leave_users(&self) {
        (self.leave)();
    }
}
