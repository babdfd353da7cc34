//! The nodes, the network between them and the servers that all share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use weft_model::TieOrder;
use weft_model::flow::{Clock, Gate, Lock};

use super::config::ScaleConfig;
use super::directory::Directory;
use super::stats::{BINS, Counts, Report};
use super::stores::{InodeMap, Log};

/// A node with processes.
pub(crate) struct Node {
    /// What the kernel holds over lookup and create in one directory.
    pub directory_mutex: Lock,
    /// The daemon's threads, for messages of others.
    pub daemon: Lock,
    /// The network card.
    pub card: Lock,
    pub log: Log,
    /// Processes that have files to make.
    pub active: Cell<u32>,
}

/// A directory and what flows wait for in it.
pub(crate) struct Shared {
    pub state: RefCell<Directory>,
    /// Shut while all tokens are taken back.
    pub switching: Gate,
    /// The byte-range token while somebody works under it.
    pub range: Lock,
    /// Blocks that are being split.
    pub splitting: RefCell<BTreeMap<usize, Rc<Gate>>>,
}

/// Everything.
pub(crate) struct World {
    pub clock: Clock,
    pub config: ScaleConfig,
    pub nodes: Vec<Node>,
    /// Token manager and allocation manager, on a node without processes.
    pub manager: Lock,
    pub directories: Vec<Shared>,
    pub inodes: InodeMap,
    pub report: RefCell<Report>,
}

/// Who answers a message.
#[derive(Clone, Copy)]
pub(crate) enum Server {
    Manager,
    Node(u32),
}

impl World {
    pub fn new(config: &ScaleConfig, order: TieOrder) -> Rc<World> {
        let clock = Clock::new(order);
        let creates = &config.creates;
        let node = |_| Node {
            directory_mutex: Lock::new(&clock, 1),
            daemon: Lock::new(&clock, config.messages.threads),
            card: Lock::new(&clock, 1),
            log: Log::new(&clock),
            active: Cell::new(creates.processes),
        };
        let shared = |_| Shared {
            state: RefCell::new(Directory::new(creates.clients)),
            switching: Gate::new(&clock),
            range: Lock::new(&clock, 1),
            splitting: RefCell::default(),
        };
        let report = Report {
            bins: vec![[(0, 0); BINS]; creates.clients as usize],
            at_metanode: vec![0; creates.clients as usize],
            ..Report::default()
        };
        Rc::new(World {
            nodes: (0..creates.clients).map(node).collect(),
            manager: Lock::new(&clock, config.messages.threads),
            directories: (0..if creates.own_directories { creates.clients } else { 1 }).map(shared).collect(),
            inodes: InodeMap::new(&clock, &config.inodes, creates.clients),
            report: RefCell::new(report),
            config: config.clone(),
            clock,
        })
    }

    /// A request and its reply, `service` at the server and a reply of so many bytes.
    pub async fn ask(&self, server: Server, service: u64, reply_bytes: u64) {
        let messages = &self.config.messages;
        self.report.borrow_mut().counts.messages += 2;
        let one_way = messages.latency + messages.wakeup;
        self.clock.pass(one_way).await;
        match server {
            Server::Manager => self.manager.hold(service).await,
            Server::Node(node) => {
                let node = &self.nodes[node as usize];
                node.daemon.hold(service).await;
                if reply_bytes > 0 {
                    node.card
                        .hold(
                            u64::try_from(u128::from(reply_bytes) * 1_000_000_000 / u128::from(messages.bandwidth.max(1)))
                                .unwrap_or(u64::MAX),
                        )
                        .await;
                }
            }
        }
        self.clock.pass(one_way).await;
    }

    /// Changes what is counted.
    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.report.borrow_mut().counts);
    }
}
