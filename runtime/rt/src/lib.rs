//! `weft-rt`: the seam between Weft and the world. Everything that a server or client does to the
//! world goes through the traits here: time, messages, disk, tasks, randomness, and a declaration
//! of processor work. `weft-rt-real` implements them with sockets, files and threads, `weft-rt-sim`
//! in virtual time with modelled hardware and faults. Code above the seam runs unmodified on both.
//!
//! It never grows a method that only one caller uses, and it never contains an implementation.
//!
//! # House rules for code above the seam
//! - Flows run to their end; nobody drops a future halfway, except the loser of a [`race`] that has
//!   had no effect.
//! - No borrow of shared state is held across an await.
//! - Every wait has a deadline.

mod combine;
mod fault;
mod sync;

use std::future::Future;

use bytes::Bytes;
use weft_base::{ClientId, ClusterMap, Nanos, Payload, ServerId, Status, WallTime};
use weft_wire::{Frame, Header, KeyId, KeyRights};

pub use combine::{Either, join_all, race};
pub use fault::{DELAY_NS_MAX, Delays, FaultPoint};
pub use sync::Signal;

/// A request on its way out. Bulk data is borrowed, so that a write goes from the caller's buffer
/// to the network without a copy.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// Header; lengths and checksums are filled in by the runtime.
    pub header: Header,
    /// The encoded operation.
    pub body: Bytes,
    /// Bulk data.
    pub bulk: Bulk<'a>,
}

/// Borrowed bulk data.
#[derive(Clone, Debug)]
pub enum Bulk<'a> {
    /// None.
    None,
    /// None, but the reply is expected to bring so many bytes at most: a runtime may make ready
    /// where they will go.
    Expected(u64),
    /// Pieces that are sent one after another.
    Slices(Vec<&'a [u8]>),
    /// Synthetic data of a simulation.
    Synthetic {
        /// Length in bytes.
        len: u64,
        /// Identity of the content.
        tag: u64,
    },
}

impl Bulk<'_> {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Bulk::None | Bulk::Expected(_) => 0,
            Bulk::Slices(slices) => slices.iter().map(|slice| slice.len() as u64).sum(),
            Bulk::Synthetic { len, .. } => *len,
        }
    }

    /// True if there is no data.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Work of a processor, declared where it happens. The real runtime ignores it; virtual time makes
/// code free, so the simulator charges it to a modelled core. The costs per unit belong to the
/// machine profile of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Decode, dispatch and answer one request.
    Request,
    /// Look at or change one record of the metadata state.
    Record,
    /// Change it at a client, which tells its server later.
    UntoldChange,
    /// Remove it at a client, which tells its server later.
    UntoldRemoval,
    /// Change it at the server, when that is told of many.
    ToldRecord,
    /// Look at what a client has been told of it, and asks nobody.
    KnownRecord,
    /// Checksum so many bytes.
    Checksum(u64),
    /// Copy so many bytes.
    Copy(u64),
}

/// What every program above the seam may do. Cheap to clone: a handle to the runtime.
pub trait Runtime: Clone + 'static {
    /// The monotonic clock.
    fn now(&self) -> Nanos;

    /// The wall clock, for time stamps.
    fn wall(&self) -> WallTime;

    /// A random number; in a simulation from its seed.
    fn random(&self) -> u64;

    /// Waits until the monotonic clock shows `at`.
    fn sleep_until(&self, at: Nanos) -> impl Future<Output = ()>;

    /// Declares work; in a simulation it takes time.
    fn cpu(&self, work: Work) -> impl Future<Output = ()>;

    /// How long a laboratory holds up whoever passes this point now, in nanoseconds; 0, unless
    /// somebody has asked for it.
    fn delay_ns(&self, _point: FaultPoint) -> u64 {
        0
    }

    /// Passes a fault point: waits if a laboratory wants that.
    fn pass(&self, point: FaultPoint) -> impl Future<Output = ()> {
        async move {
            let ns = self.delay_ns(point);
            if ns > 0 {
                self.sleep_until(self.now() + ns).await;
            }
        }
    }

    /// Takes in where servers are. What was configured is tried first; a server that is not where
    /// it should be, or was not known, is looked for where this map has it. Not in a simulation,
    /// where a number is enough.
    fn learn_servers(&self, _map: &ClusterMap) {}

    /// Sends one request and waits for its reply; one attempt. The connection is made when needed
    /// and shared by everybody in this process; requests are pipelined. The reply is matched by the
    /// sequence number in the header, so no two unfinished requests to one server may share it.
    /// Checksums of the reply have been verified.
    ///
    /// # Errors
    /// [`Status::TimedOut`] at the deadline, [`Status::Unreachable`] if there is no connection or
    /// it broke; the request may have been executed all the same. [`Status::AuthenticationFailed`],
    /// [`Status::VersionMismatch`], [`Status::WrongFileSystem`] and [`Status::WrongServer`] as the
    /// handshake says. Errors of the operation itself are in the reply's header, not here.
    fn request<'a>(&'a self, server: ServerId, request: Outgoing<'a>, deadline: Nanos) -> impl Future<Output = Result<Frame, Status>> + 'a;
}

/// A runtime whose flows any thread may drive, for gateways whose callers are threads.
pub trait ThreadRuntime: Runtime + Send + Sync {
    /// Drives a flow to its end on the calling thread. Any number of threads may do so at once.
    fn block_on<F: Future>(&self, flow: F) -> F::Output;
}

/// Where a request came from, for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u64);

/// What reaches a server.
#[derive(Debug)]
pub enum Arrival {
    /// A request. Its checksums have been verified, its header's client and incarnation are those
    /// that the handshake proved.
    Request {
        /// Where the reply goes.
        peer: PeerId,
        /// The request.
        frame: Frame,
    },
    /// A client has connected (again).
    Connected {
        /// The connection.
        peer: PeerId,
        /// Who.
        client: ClientId,
        /// Its life.
        incarnation: u32,
        /// The key that it has proved,
        key: KeyId,
        /// its generation,
        generation: u32,
        /// and what it allows.
        access: KeyRights,
    },
    /// A connection is gone. Requests of it that are not answered yet may go on; their replies are
    /// dropped.
    Disconnected {
        /// The connection.
        peer: PeerId,
        /// Who.
        client: ClientId,
        /// Its life.
        incarnation: u32,
    },
}

/// What a server may do beyond that.
pub trait ServerRuntime: Runtime {
    /// Its disk (a directory).
    type Disk: Disk;

    /// Runs a flow of its own beside the caller, on the same core.
    fn spawn(&self, flow: impl Future<Output = ()> + 'static);

    /// Waits until something has arrived, then moves everything that is ready into `into`: the
    /// batch of one turn.
    fn receive(&self, into: &mut Vec<Arrival>) -> impl Future<Output = ()>;

    /// Reads ranges (byte offset, number of bytes) of a file one after another into the place that
    /// the client has made ready for the bulk data of the reply to `request`, which saves the reply
    /// its way through a socket. Fewer bytes only at the end of the file. `None` if there is no
    /// such place: then they are to be read as ever. Not a matter of [`Disk`], which knows no
    /// peers.
    fn read_for_reply(
        &self,
        _peer: PeerId,
        _request: &Header,
        _file: FileId,
        _ranges: &[(u64, u64)],
    ) -> impl Future<Output = Result<Option<Payload>, DiskError>> {
        std::future::ready(Ok(None))
    }

    /// Where the other end of a connection is, for people: a process of this machine (`pid 123`) or
    /// a network address. `None` if that is not known, as in a simulation.
    fn peer_name(&self, _peer: PeerId) -> Option<String> {
        None
    }

    /// Queues a reply. Replies of one turn leave together, one send for each connection, when all
    /// flows of this server wait.
    fn reply(&self, peer: PeerId, reply: Frame);

    /// The disk.
    fn disk(&self) -> &Self::Disk;

    /// Counters since the start: received bytes, sent bytes, processor time in microseconds.
    fn usage(&self) -> Usage;

    /// Waits until somebody asks the server to stop. A server that waits for this is not ended at
    /// once: it may bring to stable storage what a later power cut must not take, and then end by
    /// itself. Never, where nobody asks.
    fn stop_requested(&self) -> impl Future<Output = ()> {
        std::future::pending()
    }
}

/// Counters of a runtime since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Messages received.
    pub received_messages: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Messages sent.
    pub sent_messages: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Processor time in microseconds.
    pub cpu_us: u64,
}

/// A file on the disk of a server, open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Why the disk refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// No such file.
    NotFound,
    /// Full.
    NoSpace,
    /// Anything else, with the words of the operating system.
    Failed(String),
}

impl std::fmt::Display for DiskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DiskError::NotFound => f.write_str("no such file"),
            DiskError::NoSpace => f.write_str("no space left on the disk"),
            DiskError::Failed(text) => f.write_str(text),
        }
    }
}

impl From<DiskError> for Status {
    fn from(error: DiskError) -> Status {
        match error {
            DiskError::NoSpace => Status::NoSpace,
            _ => Status::Io,
        }
    }
}

/// A directory of files on the disk of one server; names have no slashes. What was written survives
/// the death of the process; what was written before a [`Disk::sync`] of the same file returned
/// survives a power cut, anything later may be lost, torn or reordered. [`Disk::remove`] and
/// [`Disk::rename`] are durable when they return.
pub trait Disk: Clone + 'static {
    /// Opens a file for reading and writing; creates it (durably) if `create` and it is not there.
    fn open(&self, name: &str, create: bool) -> impl Future<Output = Result<FileId, DiskError>>;

    /// Reads up to `len` bytes at `offset`; fewer only at the end of the file.
    fn read(&self, file: FileId, offset: u64, len: u64) -> impl Future<Output = Result<Payload, DiskError>>;

    /// Writes all of `data` at `offset`.
    fn write(&self, file: FileId, offset: u64, data: Payload) -> impl Future<Output = Result<(), DiskError>>;

    /// Writes the parts one after another from `offset` on. One operation where the disk can; else
    /// one for each part, so that an error may leave some of them written.
    fn write_parts(&self, file: FileId, offset: u64, parts: Vec<Payload>) -> impl Future<Output = Result<(), DiskError>> {
        async move {
            let mut at = offset;
            for part in parts {
                let len = part.len();
                self.write(file, at, part).await?;
                at += len;
            }
            Ok(())
        }
    }

    /// Brings what was written to this file, and its length, to stable storage.
    fn sync(&self, file: FileId) -> impl Future<Output = Result<(), DiskError>>;

    /// Length of the file in bytes.
    fn len(&self, file: FileId) -> impl Future<Output = Result<u64, DiskError>>;

    /// Cuts or extends the file (with zeros).
    fn set_len(&self, file: FileId, len: u64) -> impl Future<Output = Result<(), DiskError>>;

    /// Reserves space for a range, so that later writes to it do not fail for want of it, and
    /// extends the file to its end.
    fn allocate(&self, file: FileId, offset: u64, len: u64) -> impl Future<Output = Result<(), DiskError>>;

    /// Gives the space of a range back; it then reads as zeros.
    fn punch(&self, file: FileId, offset: u64, len: u64) -> impl Future<Output = Result<(), DiskError>>;

    /// Closes the file.
    fn close(&self, file: FileId);

    /// Removes a file by name.
    fn remove(&self, name: &str) -> impl Future<Output = Result<(), DiskError>>;

    /// Gives a file another name, replacing what had it, in one step.
    fn rename(&self, from: &str, to: &str) -> impl Future<Output = Result<(), DiskError>>;

    /// Passes a fault point of code that has a disk and no runtime, see [`Runtime::pass`].
    fn pass(&self, _point: FaultPoint) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Names of all files, sorted.
    fn list(&self) -> impl Future<Output = Result<Vec<String>, DiskError>>;

    /// Bytes of the disk that a file takes: those of holes in it are not its own.
    fn backed(&self, file: FileId) -> impl Future<Output = Result<u64, DiskError>>;

    /// Total and free bytes of the disk.
    fn space(&self) -> impl Future<Output = Result<(u64, u64), DiskError>>;

    /// Which disk of which machine it is: the same number for directories that share their space, 0
    /// if that is not known.
    fn device(&self) -> u64 {
        0
    }

    /// Changes with every start of the machine: if it differs from what a server remembers, power
    /// may have been cut since.
    fn boot_id(&self) -> u64;
}
