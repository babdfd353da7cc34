//! A server: one thread that owns everything it has.
//!
//! A turn: read what is ready on all sockets, run tasks until none is ready, send what they have
//! queued with one call for each connection, sleep until something happens.

mod executor;
pub(crate) use executor::Timers;
mod log;
mod net;
mod peers;
mod rt;

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_base::{FsId, Nanos, SECOND, ServerId};
use weft_wire::KeyRing;
use weft_wire::handshake::ServerHandshake;

pub use log::{LimitedLog, Log};
pub use rt::ShardRt;

use crate::Keys;
use crate::address::Address;
use crate::disk::{DirDisk, MemDisk, RealDisk};
use crate::sys::EventFd;
use crate::{OPEN_KEY, clock};
use executor::Executor;
use net::{Net, TOKEN_STOP, TOKEN_WAKE};
use peers::Peer;

/// After a stop was asked for, replies and flushes under way get so long, in nanoseconds.
const DRAIN_NS_MAX: u64 = SECOND;
/// A server that ends by itself when it is asked to gets so long, in nanoseconds.
const END_NS_MAX: u64 = 30 * SECOND;

/// Where a server keeps its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskConfig {
    /// In this directory, which must exist.
    Directory(PathBuf),
    /// The same, with one file that is accessed past the page cache.
    Direct {
        /// The directory.
        directory: PathBuf,
        /// Name of the file.
        file: String,
    },
    /// In memory, at most so many bytes.
    Memory {
        /// Capacity in bytes.
        capacity_bytes: u64,
    },
}

/// What a server is and where.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Its number.
    pub server: ServerId,
    /// Its file system.
    pub fs_id: FsId,
    /// Name of the file system.
    pub fs_name: String,
    /// The keys that are accepted. Without them the server listens only where nobody outside this
    /// machine can reach it.
    pub keys: Option<Keys>,
    /// Where it listens.
    pub listen: Vec<Address>,
    /// Its files.
    pub disk: DiskConfig,
    /// Where the servers of the file system are, for requests from server to server.
    pub servers: Vec<(ServerId, Address)>,
    /// Accept memory that clients on this machine offer to share for bulk data.
    pub share_memory: bool,
    /// Everything over TCP is encrypted; clients and servers that cannot are refused. Without keys
    /// nothing is.
    pub encrypt_tcp: bool,
    /// Ends it.
    pub stop: StopHandle,
    /// Where it reports what happens to connections.
    pub log: Log,
}

/// Ends servers from another thread or from a signal handler.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<Stop>);

#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    event: EventFd,
}

impl StopHandle {
    /// For any number of servers of this process.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<StopHandle> {
        Ok(StopHandle(Arc::new(Stop { asked: AtomicBool::new(false), event: EventFd::new()? })))
    }

    /// Asks the servers to end: they accept no more requests, finish their turn and return.
    pub fn stop(&self) {
        self.0.asked.store(true, Ordering::SeqCst);
        self.0.event.signal();
    }

    /// True once [`StopHandle::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.0.asked.load(Ordering::SeqCst)
    }
}

/// Why a server does not start or run on.
#[derive(Debug)]
pub enum ServeError {
    /// It cannot listen there.
    Listen {
        /// Where.
        address: Address,
        /// Why.
        error: io::Error,
    },
    /// It has no key, and others than programs of this machine could connect to it.
    Unprotected {
        /// Where it should listen.
        address: Address,
    },
    /// It cannot use its directory.
    Disk {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The system refuses what every server needs.
    System(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Listen { address, error } if error.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "cannot listen on {address}: another process listens there (`ss -lp` shows which): end it, or give another address"
                )
            }
            ServeError::Listen { address, error } => write!(f, "cannot listen on {address}: {error}"),
            ServeError::Unprotected { address } => write!(
                f,
                "will not listen on {address} without a key: anybody in the network could use the file system; \
                 give it a key, a loopback address or a unix socket"
            ),
            ServeError::Disk { path, error } => write!(f, "cannot use the directory {}: {error}", path.display()),
            ServeError::System(error) => write!(f, "the system refuses: {error}"),
        }
    }
}

/// The text has the reason already: a source beside it would be told twice.
impl std::error::Error for ServeError {}

impl From<io::Error> for ServeError {
    fn from(error: io::Error) -> ServeError {
        ServeError::System(error)
    }
}

/// Runs a server on the calling thread until `main` ends (its output is returned) or a stop is
/// asked for (`None`). At a stop `main` is dropped at one of its awaits, after everything that it
/// queued was sent and every flush that it began has ended; but a `main` that waits for
/// [`weft_rt::ServerRuntime::stop_requested`] ends by itself (within 30 s), and its output is
/// returned.
///
/// # Errors
/// When it cannot listen or use its directory, and when the system takes its descriptors away.
pub fn serve<F>(config: ShardConfig, main: impl FnOnce(ShardRt) -> F) -> Result<Option<F::Output>, ServeError>
where
    F: Future + 'static,
{
    Shard::bind(config)?.run(main)
}

/// A server that listens and does not run yet: clients may connect and wait for it.
#[derive(Debug)]
pub struct Shard {
    config: ShardConfig,
    listeners: Vec<(OwnedFd, Address)>,
}

impl Shard {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`ServeError::Listen`] and [`ServeError::Unprotected`].
    pub fn bind(config: ShardConfig) -> Result<Shard, ServeError> {
        let mut listeners = Vec::new();
        for address in &config.listen {
            let failed = |error| ServeError::Listen { address: address.clone(), error };
            if config.keys.is_none() && !address.is_local().map_err(failed)? {
                return Err(ServeError::Unprotected { address: address.clone() });
            }
            listeners.extend(address.listen().map_err(failed)?);
        }
        Ok(Shard { config, listeners })
    }

    /// Where it listens; port 0 is replaced by the port that the system chose.
    pub fn addresses(&self) -> Vec<Address> {
        self.listeners.iter().map(|(_, address)| address.clone()).collect()
    }

    /// Runs the server, as [`serve`] does.
    ///
    /// # Errors
    /// [`ServeError::Disk`] and [`ServeError::System`].
    pub fn run<F>(self, main: impl FnOnce(ShardRt) -> F) -> Result<Option<F::Output>, ServeError>
    where
        F: Future + 'static,
    {
        let Shard { config, listeners } = self;
        let disk = match &config.disk {
            DiskConfig::Directory(path) => {
                RealDisk::Directory(DirDisk::open(path).map_err(|error| ServeError::Disk { path: path.clone(), error })?)
            }
            DiskConfig::Direct { directory, file } => RealDisk::Directory(
                DirDisk::open_with(directory, Some(file)).map_err(|error| ServeError::Disk { path: directory.clone(), error })?,
            ),
            DiskConfig::Memory { capacity_bytes } => RealDisk::Memory(MemDisk::new(*capacity_bytes)),
        };
        let keys = config.keys.clone().unwrap_or_else(|| Keys::new(KeyRing::open(OPEN_KEY)));
        let greeting = ServerHandshake::new(keys.ring(), config.fs_id, &config.fs_name, config.server).with_exchange(clock::key_pair);
        let mut net = Net::new(greeting, keys, listeners, LimitedLog::new(config.log.clone()))?;
        net.peers = config.servers.iter().map(|(server, address)| (*server, Peer::new(address.clone()))).collect();
        net.share_memory = config.share_memory;
        net.encrypt_tcp = config.encrypt_tcp && config.keys.is_some();
        let executor = Executor::new()?;
        net.epoll.add(executor.event().as_fd(), TOKEN_WAKE)?;
        net.epoll.add(config.stop.0.event.as_fd(), TOKEN_STOP)?;
        let rt = ShardRt::new(executor, Timers::default(), net, disk, config);
        let output = Rc::new(std::cell::Cell::new(None));
        let (flow, theirs) = (main(rt.clone()), output.clone());
        rt.parts().executor.spawn(async move { theirs.set(Some(flow.await)) });
        let outcome = run_loop(&rt, || {
            let ended = output.take();
            let done = ended.is_some();
            output.set(ended);
            done
        });
        rt.parts().executor.close();
        rt.parts().net.borrow_mut().stop_listening();
        outcome.map(|()| output.take())
    }
}

fn run_loop(rt: &ShardRt, has_ended: impl Fn() -> bool) -> Result<(), ServeError> {
    let parts = rt.parts();
    let mut happened = Vec::new();
    let mut drain_until = None;
    loop {
        let busy = parts.executor.run();
        parts.net.borrow_mut().flush();
        let ending = has_ended() || parts.config.stop.is_stopping();
        if ending && drain_until.is_none() {
            drain_until = Some(clock::now() + if parts.ends_itself.get() { END_NS_MAX } else { DRAIN_NS_MAX });
            let mut net = parts.net.borrow_mut();
            net.stop_listening();
            net.epoll.remove(parts.config.stop.0.event.as_fd())?;
            drop(net);
            parts.stopping.notify();
            continue;
        }
        let is_busy = || (parts.ends_itself.get() && !has_ended()) || parts.net.borrow().has_unsent() || parts.disk.unfinished() > 0;
        let mut until = match drain_until {
            Some(limit) if clock::now() >= limit || !is_busy() => return Ok(()),
            Some(limit) => limit,
            None => Nanos::NEVER,
        };
        if busy || !parts.executor.may_sleep() {
            until = Nanos(0);
        } else {
            until = until
                .min(parts.timers.next().unwrap_or(Nanos::NEVER))
                .min(parts.net.borrow().sweep_at())
                .min(parts.net.borrow().held_until());
        }
        let waited = parts.net.borrow().epoll.wait(until, &mut happened);
        parts.executor.awake();
        waited?;
        let now = clock::now();
        let mut net = parts.net.borrow_mut();
        net.look_at_keys();
        for one in happened.drain(..) {
            match one.token {
                TOKEN_WAKE => parts.executor.event().clear(),
                TOKEN_STOP => {}
                _ if drain_until.is_some() && !one.writable => net.ignore(one),
                _ => net.handle(one, now),
            }
        }
        if net.sweep_at() <= now {
            net.sweep(now);
        }
        net.release(now);
        drop(net);
        parts.timers.fire(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_told_once_and_with_what_to_do() {
        let error = ServeError::Listen { address: Address::Unix(PathBuf::from("s")), error: io::Error::from(io::ErrorKind::AddrInUse) };
        assert!(error.to_string().contains("another process listens"), "{error}");
        assert!(std::error::Error::source(&error).is_none());
    }
}
