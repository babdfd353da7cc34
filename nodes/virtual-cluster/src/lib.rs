//! `weft-virtual-cluster`: Weft itself as the simulated system. The real metadata servers, data
//! servers and clients run in virtual time on modelled machines ([`ClusterShape`]), do the work of
//! a benchmark ([`Workload`]), and the result ([`PhaseReport`]) says how long that took, and which
//! part of which machine it waited for.
//!
//! [`Servers`] starts just the servers of such a cluster, for whoever brings clients and faults
//! (`tests/sim`).
//!
//! It never injects faults itself and never reads a real clock: one seed, one result.
//!
//! ```
//! use weft_virtual_cluster::{ClusterShape, Directories, Workload, run};
//!
//! let shape = ClusterShape { clients: 4, ..ClusterShape::default() };
//! let work = Workload::Names { files: 100, window: 16, directories: Directories::Shared };
//! let phases = run(&shape, &work).expect("nothing fails here");
//! assert_eq!(phases[0].name, "create");
//! assert_eq!(phases[0].operations, 400);
//! assert_eq!(phases[0].messages, 400, "a create is one request");
//! ```

mod cluster;
mod names;
mod report;
mod servers;
mod streams;

pub use cluster::ClusterShape;
pub use report::{PhaseReport, Share};
pub use servers::{Exit, Servers, cluster_map};
use weft_base::Status;
pub use weft_meta_server::{Durability, Engine};
use weft_trace::Mask;

use cluster::Cluster;

/// What the clients do, each of them the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Makes empty files, asks for their attributes and removes them: three phases.
    Names {
        /// Files of each client.
        files: u64,
        /// Requests that each client keeps in flight.
        window: usize,
        /// Where.
        directories: Directories,
    },
    /// Writes files and reads them again: two phases.
    Streams {
        /// Bytes of each client.
        bytes: u64,
        /// Bytes of one block.
        block_bytes: u64,
        /// Which blocks are whose.
        layout: FileLayout,
        /// Blocks in one call of the client library (list I/O); 0: all.
        blocks_per_call: u64,
        /// Calls that each client keeps in flight.
        window: usize,
    },
}

/// Where the names of a [`Workload::Names`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directories {
    /// All in one directory.
    Shared,
    /// Each client has a directory of its own.
    Own,
}

/// Which blocks of which file a client of a [`Workload::Streams`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLayout {
    /// Each client has a file of its own.
    Own,
    /// One file; each client has a contiguous part of it.
    Segmented,
    /// One file; block `i` belongs to client `i` modulo their number (Kuhn 2009, section 6.2).
    Interleaved,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VirtualError {
    /// The shape or the workload makes no sense: what is wrong.
    Invalid(String),
    /// An operation failed: which one, on which client, why.
    Failed(String, Status),
    /// The simulation came to no end: where everybody waits.
    Stuck(String),
}

impl std::fmt::Display for VirtualError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            VirtualError::Invalid(what) => f.write_str(what),
            VirtualError::Failed(what, status) => write!(f, "{what} failed: {status:?}"),
            VirtualError::Stuck(report) => write!(f, "the simulation came to no end: {report}"),
        }
    }
}

impl std::error::Error for VirtualError {}

/// Runs a workload on a cluster of this shape.
///
/// # Errors
/// [`VirtualError`]: a shape without servers or clients, a workload without work, or what went
/// wrong in virtual time.
pub fn run(shape: &ClusterShape, work: &Workload) -> Result<Vec<PhaseReport>, VirtualError> {
    run_on(&Cluster::start(shape)?, work)
}

/// A run with a record of everything that was done once the servers served.
#[derive(Clone, Debug)]
pub struct TracedRun {
    /// As without the record, which takes no virtual time.
    pub phases: Vec<PhaseReport>,
    /// The name of each node that did something, and the bytes of its trace file.
    pub files: Vec<(String, Vec<u8>)>,
}

/// The same as [`run`], recorded.
///
/// # Errors
/// As [`run`].
pub fn run_traced(shape: &ClusterShape, work: &Workload) -> Result<TracedRun, VirtualError> {
    let cluster = Cluster::start(shape)?;
    cluster.sim.start_tracing(Mask::ALL, RING_RECORDS);
    let phases = run_on(&cluster, work)?;
    Ok(TracedRun { phases, files: cluster.sim.take_trace_files() })
}

/// Room for the records of one node until the simulator looks after them: some hundred for each
/// time that it runs.
const RING_RECORDS: usize = 1 << 14;

fn run_on(cluster: &Cluster, work: &Workload) -> Result<Vec<PhaseReport>, VirtualError> {
    match work {
        Workload::Names { files, window, directories } => names::run(cluster, *files, *window, *directories),
        Workload::Streams { bytes, block_bytes, layout, blocks_per_call, window } => {
            streams::run(cluster, *bytes, *block_bytes, *layout, *blocks_per_call, *window)
        }
    }
}
