//! Models of hardware in virtual time: an event engine, network cards, switches, disks and
//! processors, as the PIOsimHD thesis (2009) describes them and beyond. It never runs real servers;
//! that is what `runtime/rt-sim` does.
//!
//! A model is a plain structure: it is told of its events, puts new ones into the [`EventQueue`]
//! and tells its owner what happened. Times are nanoseconds since the start of the run.
//! `docs/simulator.md` explains every model, its source and its limits.

pub mod cpu;
pub mod disk;
pub mod engine;
pub mod flow;
pub mod network;
mod pool;
pub mod random;
pub mod units;

pub use cpu::{CpuEvent, CpuModel, Cpus};
pub use disk::{Disk, DiskJob, DiskModel, DiskStatistics, JobKind, Seek};
pub use engine::{EventQueue, TieOrder};
pub use network::{
    Card, Delivery, Link, Message, MessageId, Network, NetworkConfig, NetworkEvent, NetworkHost, NetworkModel, NodeId, ProcessId,
    SWITCHES_MAX, Switches, Topology,
};
pub use pool::Pool;
