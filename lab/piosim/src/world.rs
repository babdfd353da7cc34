//! All that a simulation holds beside network and event list. What moves it on stands where it
//! belongs: [`crate::simulation`] and the modules of commands, servers and collective operations.

use weft_model::{Card, Cpus, EventQueue, Network, Pool};

use crate::collective::group::Groups;
use crate::config::ClusterConfig;
use crate::event::Event;
use crate::mailbox::Mailbox;
use crate::program::Application;
use crate::record::Log;
use crate::request::Requests;
use crate::server::Server;
use crate::stripe::Splitter;
use crate::task::Task;

/// The event list of a cluster.
pub type Queue = EventQueue<Event>;

pub(crate) struct AppState<'a> {
    pub application: &'a Application,
    /// Process of rank 0; the others follow.
    pub first_process: u32,
    /// Number of its communicator 0 among those of all applications.
    pub first_comm: u32,
    /// Number of its file 0 among those of all applications.
    pub first_file: u32,
}

/// What steps need beside the world.
pub(crate) struct Outside<'o> {
    pub network: &'o mut Network,
    pub queue: &'o mut Queue,
}

/// Everything but network and event list.
pub struct World<'a> {
    pub(crate) config: ClusterConfig,
    pub(crate) cpus: Cpus,
    /// What a step costs on each client node.
    pub(crate) step_instructions: Vec<u64>,
    pub(crate) apps: Vec<AppState<'a>>,
    pub(crate) tasks: Pool<Task<'a>>,
    /// Node of each process.
    pub(crate) node_of: Vec<u32>,
    /// Card of each node.
    pub(crate) cards: Vec<Card>,
    pub(crate) servers: Vec<Server>,
    /// Servers in the order in which an operation turns to them.
    pub(crate) server_order: Vec<u32>,
    /// Current size of each file, bytes.
    pub(crate) file_bytes: Vec<u64>,
    /// Bytes that the programs have read and written.
    pub(crate) program_bytes: u64,
    pub(crate) mailbox: Mailbox,
    pub(crate) requests: Requests,
    pub(crate) splitter: Splitter,
    /// Tasks that wait in the barrier of each communicator, in the order of arrival.
    pub(crate) barriers: Vec<Vec<u32>>,
    pub(crate) groups: Groups<'a>,
    /// What happens, if it is recorded.
    pub(crate) log: Option<Box<Log>>,
    /// When each command of each rank began, if that is recorded; else empty.
    pub(crate) starts: Vec<Vec<u64>>,
}
