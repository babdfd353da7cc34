//! The metadata servers of dNFSp (Hermann et al., "Performance Evaluation of Meta-Data Transfer and
//! Storage in Clusters"): plain NFS clients, each with a metadata server of its own, which keep
//! each other informed in one of two ways. Lazy release consistency (dNFSp1, section 2): what a
//! server does not know it asks of all others, one after the other. Hash and token (dNFSp2, section
//! 3): the hash of a name tells its server, and a token who has the newest metadata (figure 2).
//!
//! The work is the split test of section 4.1: each client writes the same bytes, in one file or in
//! many. Data goes from client to metadata server to data server in turns, which answers the
//! client. The paper prints neither times of parts nor values of figure 3, so only shapes can be
//! compared. The numbers here that it does not give (what a search costs, above all) are in the
//! profile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use weft_model::TieOrder;
use weft_model::flow::{Clock, Lock};

/// How metadata servers find what others know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Lazy release consistency: metadata stays at its home, the server that made it, and is copied
    /// at the first access elsewhere (dNFSp1).
    Lrc,
    /// Hash server and token (dNFSp2).
    Token,
}

/// A run. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct DnfspConfig {
    /// How they find it.
    pub scheme: Scheme,
    /// Clients; client `c` asks metadata server `c` modulo their number.
    pub clients: u32,
    /// Metadata servers.
    pub meta_servers: u32,
    /// Data servers.
    pub data_servers: u32,
    /// Files of each client.
    pub files: u32,
    /// Bytes of each client, in all its files.
    pub bytes: u64,
    /// Bytes that a client has under way at once.
    pub chunk_bytes: u64,
    /// One way through the network.
    pub latency: u64,
    /// Bytes a second of a network card.
    pub bandwidth: u64,
    /// What a server needs for a request.
    pub service: u64,
    /// Looking on a disk for metadata that is not in memory.
    pub search: u64,
    /// Bytes a second of a data server's disk.
    pub disk_bandwidth: u64,
}

/// What a run gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DnfspReport {
    /// When the last byte was written.
    pub nanos: u64,
    /// Files made.
    pub files: u64,
    /// Messages between metadata servers, requests and replies.
    pub meta_messages: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Events of the simulation.
    pub events: u64,
}

/// What metadata servers know of a file's name.
#[derive(Debug, Default)]
struct File {
    /// LRC: servers with a copy, the home among them.
    copies: Vec<u32>,
    /// Token: the server that has it.
    token: Option<u32>,
}

struct Server {
    card: Lock,
    /// The one process that serves.
    process: Lock,
}

struct World {
    clock: Clock,
    config: DnfspConfig,
    clients: Vec<Lock>,
    meta: Vec<Server>,
    data: Vec<Server>,
    files: RefCell<BTreeMap<u64, File>>,
    messages: Cell<u64>,
    bytes: Cell<u64>,
}

/// Makes the run; `order` is that of events of one instant.
///
/// # Errors
/// There are no clients or servers, no files, or no byte for each file.
pub fn run(config: &DnfspConfig, order: TieOrder) -> Result<DnfspReport, String> {
    if config.clients == 0 || config.meta_servers == 0 || config.data_servers == 0 || config.files == 0 {
        return Err("a run needs clients, metadata servers, data servers and files".to_string());
    }
    if config.bytes < u64::from(config.files) || config.chunk_bytes == 0 {
        return Err(format!("{} bytes are too few for {} files", config.bytes, config.files));
    }
    let clock = Clock::new(order);
    let server = |_| Server { card: Lock::new(&clock, 1), process: Lock::new(&clock, 1) };
    let world = Rc::new(World {
        clients: (0..config.clients).map(|_| Lock::new(&clock, 1)).collect(),
        meta: (0..config.meta_servers).map(server).collect(),
        data: (0..config.data_servers).map(server).collect(),
        files: RefCell::default(),
        messages: Cell::new(0),
        bytes: Cell::new(0),
        config: config.clone(),
        clock: clock.clone(),
    });
    for client in 0..config.clients {
        let world = world.clone();
        clock.spawn(async move {
            for number in 0..world.config.files {
                write_file(&world, client, number).await;
            }
        });
    }
    let nanos = clock.run().map_err(|stuck| format!("{} flows wait for ever", stuck.flows))?;
    let files = u64::from(config.clients) * u64::from(config.files);
    Ok(DnfspReport { nanos, files, meta_messages: world.messages.get(), bytes: world.bytes.get(), events: clock.events() })
}

/// A file: look-up (there is none yet), create, look-up by the kernel's open, and the data.
async fn write_file(world: &Rc<World>, client: u32, number: u32) {
    let config = &world.config;
    let (name, meta) = (u64::from(client) << 32 | u64::from(number), client % config.meta_servers);
    for step in [Step::LookUp, Step::Create, Step::LookUp] {
        world.clock.pass(config.latency).await;
        world.meta[meta as usize].process.hold(config.service).await;
        match (config.scheme, step) {
            (Scheme::Lrc, step) => world.lazily(meta, name, step).await,
            (Scheme::Token, step) => world.by_token(meta, name, step).await,
        }
        world.clock.pass(config.latency).await;
    }
    // The last file has what is left over.
    let (share, rest) = (config.bytes / u64::from(config.files), config.bytes % u64::from(config.files));
    let mut left = share + if number + 1 == config.files { rest } else { 0 };
    let mut server = name as usize;
    while left > 0 {
        let bytes = left.min(config.chunk_bytes);
        world.write(client, meta, server % world.data.len(), bytes).await;
        (left, server) = (left - bytes, server + 1);
    }
}

/// What a client asks of its metadata server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    LookUp,
    Create,
}

impl World {
    fn span(bytes: u64, bandwidth: u64) -> u64 {
        u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth.max(1))).unwrap_or(u64::MAX)
    }

    /// A request of one metadata server to another and the reply.
    async fn ask(&self, server: u32, search: u64) {
        self.messages.set(self.messages.get() + 2);
        self.clock.pass(self.config.latency).await;
        self.meta[server as usize].process.hold(self.config.service + search).await;
        self.clock.pass(self.config.latency).await;
    }

    /// dNFSp1: who does not know a name asks every other server until one does (section 2). A file
    /// that is made belongs to its server, and nobody is told.
    async fn lazily(&self, meta: u32, name: u64, step: Step) {
        if step == Step::Create {
            self.files.borrow_mut().entry(name).or_default().copies.push(meta);
            return;
        }
        let knows = |server: u32| self.files.borrow().get(&name).is_some_and(|file| file.copies.contains(&server));
        if knows(meta) {
            return;
        }
        self.clock.pass(self.config.search).await;
        for other in (0..self.config.meta_servers).filter(|other| *other != meta) {
            let found = knows(other);
            self.ask(other, if found { 0 } else { self.config.search }).await;
            if found {
                self.files.borrow_mut().entry(name).or_default().copies.push(meta);
                return;
            }
        }
    }

    /// dNFSp2: the cases of figure 2. (1) the server has the token. (2) It asks the hash server,
    /// which has it or knows that there is no file. (5) Else the hash server names the owner, which
    /// is asked.
    async fn by_token(&self, meta: u32, name: u64, step: Step) {
        let hash = u32::try_from(spread(name) % u64::from(self.config.meta_servers)).unwrap_or(0);
        let owner = self.files.borrow().get(&name).and_then(|file| file.token);
        if owner == Some(meta) {
            return;
        }
        if hash != meta {
            self.ask(hash, 0).await;
        }
        if let Some(owner) = owner.filter(|owner| *owner != hash) {
            self.ask(owner, 0).await;
        }
        if step == Step::Create || owner.is_some() {
            self.files.borrow_mut().entry(name).or_default().token = Some(meta);
        }
    }

    /// Data of a client: through its metadata server to a data server, which answers the client.
    async fn write(&self, client: u32, meta: u32, data: usize, bytes: u64) {
        let (config, wire) = (&self.config, World::span(bytes, self.config.bandwidth));
        self.clients[client as usize].hold(wire).await;
        self.clock.pass(config.latency).await;
        self.meta[meta as usize].process.hold(config.service).await;
        self.meta[meta as usize].card.hold(wire).await;
        self.clock.pass(config.latency).await;
        self.data[data].process.hold(config.service + World::span(bytes, config.disk_bandwidth)).await;
        self.data[data].card.hold(0).await;
        self.clock.pass(config.latency).await;
        self.bytes.set(self.bytes.get() + bytes);
    }
}

/// The hash of a name.
fn spread(name: u64) -> u64 {
    let number = name.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (number ^ (number >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(scheme: Scheme, meta_servers: u32) -> DnfspConfig {
        DnfspConfig {
            scheme,
            clients: 1,
            meta_servers,
            data_servers: 1,
            files: 60,
            bytes: 60,
            chunk_bytes: 1,
            latency: 1000,
            bandwidth: 1 << 30,
            service: 1000,
            search: 0,
            disk_bandwidth: 1 << 30,
        }
    }

    #[test]
    fn a_new_name_costs_a_question_to_every_other_server_or_at_most_two() {
        for meta_servers in 1..9 {
            let messages = |scheme| run(&world(scheme, meta_servers), TieOrder::Natural).expect("runs").meta_messages;
            assert_eq!(messages(Scheme::Lrc), 60 * 2 * u64::from(meta_servers - 1));
            // Look-up and create ask the hash server, unless it is the client's own.
            assert!(messages(Scheme::Token) <= 60 * 4 && messages(Scheme::Token) % 4 == 0);
        }
    }

    #[test]
    fn the_cases_of_figure_2_take_no_two_and_four_messages() {
        let clock = Clock::new(TieOrder::Natural);
        let config = world(Scheme::Token, 4);
        let name = (0..).find(|name| spread(*name) % 4 == 1).expect("a name of server 1");
        let server = |_| Server { card: Lock::new(&clock, 1), process: Lock::new(&clock, 1) };
        let world = Rc::new(World {
            clients: Vec::new(),
            meta: (0..4).map(server).collect(),
            data: Vec::new(),
            files: RefCell::default(),
            messages: Cell::new(0),
            bytes: Cell::new(0),
            config,
            clock: clock.clone(),
        });
        let flow = world.clone();
        clock.spawn(async move {
            for (meta, step, messages) in [
                (0, Step::Create, 2),
                (0, Step::LookUp, 0),
                (2, Step::LookUp, 4),
                (0, Step::LookUp, 4),
                (1, Step::LookUp, 2),
                (3, Step::LookUp, 2),
            ] {
                let before = flow.messages.get();
                flow.by_token(meta, name, step).await;
                assert_eq!(flow.messages.get() - before, messages, "server {meta}");
            }
        });
        assert!(clock.run().is_ok());
    }
}
