//! `weft-virtual-cluster`: Weft itself as the simulated system. The real metadata servers, data
//! servers and clients run in virtual time on modelled machines ([`ClusterShape`]), do a
//! [`Workload`], and the result ([`PhaseReport`]) says how long that took, and which part of which
//! machine it waited for.
//!
//! [`Servers`] starts just the servers of such a cluster, for whoever brings clients and faults
//! (`tests/sim`).
//!
//! It never injects faults itself and never reads a real clock: one seed, one result.
//!
//! ```
//! use weft_virtual_cluster::{ClusterShape, run};
//! use weft_workload::{Steps, WorkStep, Workload};
//!
//! let steps = Steps::of(WorkStep::Create);
//! let work = Workload { procs: 4, depth: 16, steps, ..Workload::empty_files(100) };
//! let phases = run(&ClusterShape::default(), &work).expect("nothing fails here");
//! assert_eq!(phases[0].name, "create");
//! assert_eq!(phases[0].operations, 400);
//! assert_eq!(phases[0].messages, 400, "a create is one request");
//! ```

mod cluster;
mod report;
mod servers;
mod steps;

pub use cluster::{ClusterShape, Contracts};
pub use report::{PhaseReport, Share};
pub use servers::{Exit, Servers, cluster_map};
pub use steps::check;
use weft_base::Status;
pub use weft_meta_server::{Durability, Engine};
use weft_trace::Mask;
use weft_workload::Workload;

use cluster::Cluster;

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

/// Runs a workload on a cluster of this shape: every process of the workload is a node of it. A
/// report for each step that the workload wants to be told.
///
/// # Errors
/// [`VirtualError`]: a shape without servers or clients, a workload without work, or what went
/// wrong in virtual time.
pub fn run(shape: &ClusterShape, work: &Workload) -> Result<Vec<PhaseReport>, VirtualError> {
    steps::run(&Cluster::start(shape, work)?, work)
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
    let cluster = Cluster::start(shape, work)?;
    cluster.sim.start_tracing(Mask::ALL, RING_RECORDS);
    let phases = steps::run(&cluster, work)?;
    Ok(TracedRun { phases, files: cluster.sim.take_trace_files() })
}

/// Room for the records of one node until the simulator looks after them: some hundred for each
/// time that it runs.
const RING_RECORDS: usize = 1 << 14;
