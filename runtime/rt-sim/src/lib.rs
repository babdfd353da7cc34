//! `weft-rt-sim`: the seam in virtual time. A [`Sim`] is a cluster of nodes with modelled
//! processors, network cards, a switch and disks; programs above the seam run on it unmodified
//! through [`SimRt`], and a seed decides everything that is left to chance: jitter, faults, what a
//! power cut leaves on a disk. The same seed gives the same run, down to [`Control::trace_hash`].
//!
//! It never reads a real clock, never starts a thread, and never knows what the programs that run
//! on it do.
//!
//! ```
//! use weft_base::{MILLISECOND, Nanos, SECOND};
//! use weft_rt::Runtime;
//! use weft_rt_sim::{NodeConfig, Profile, Sim};
//!
//! let sim = Sim::new(42, Profile::instant());
//! let node = sim.add_node(NodeConfig::client("client0"));
//! let woken_at = sim.block_on(node, SECOND, |rt| async move {
//!     rt.sleep_until(Nanos(5 * MILLISECOND)).await;
//!     rt.now()
//! });
//! assert_eq!(woken_at, Ok(Nanos(5 * MILLISECOND)));
//! ```

mod clock;
mod disk;
mod executor;
mod faults;
mod ids;
mod joined;
pub mod models;
mod net;
mod node;
mod process;
mod queue;
mod random;
mod runtime;
mod sim;
mod slab;
mod slots;
mod trace;
mod tracing;
mod wakes;
mod world;

pub use disk::{DiskCopy, DiskCounts, DiskFaultKind, SimDisk};
pub use faults::{FOREVER, Fault, FaultPlan, FaultSettings, MessageFaults};
pub use ids::{MachineId, NodeId};
pub use joined::Joined;
pub use models::Profile;
pub use node::{BusyTimes, NodeConfig, NodeUsage};
pub use random::Random;
pub use runtime::SimRt;
pub use sim::{Control, Sim, Stuck, Why};
