//! Parallel programs and their I/O servers on modelled hardware: MPI commands, collective I/O, the
//! experiments of the PIOsimHD thesis (2009). It never touches a real network or disk.

mod collective;
pub mod config;
pub mod event;
pub mod from_hdtrace;
mod io;
pub mod mailbox;
mod mpi;
pub mod order;
pub mod program;
pub mod record;
pub mod report;
pub mod request;
pub mod server;
pub mod simulation;
pub mod stripe;
mod task;
pub mod thesis;
pub mod to_hdtrace;
pub mod workloads;
mod world;

pub use config::{
    Allreduce, Bcast, CacheLayerConfig, ClusterConfig, Collective, Commands, Exceptions, Exchange, NodeConfig, PartyOrder, Reduce,
    ServerConfig,
};
pub use program::{Access, Application, Command, Extent, Program};
pub use record::{FullSpan, MessageSpan, Recording, RequestSpan, Taken, TransferSpan};
pub use report::Report;
pub use simulation::{Placed, Simulation};
pub use stripe::Striping;
