//! A simulated cluster as a whole: it is built from a configuration and applications, runs until
//! nothing is left to happen, and reports.

use weft_model::network::NetworkHost;
use weft_model::{Cpus, Delivery, Message, MessageId, Network, NetworkConfig, Pool};

use crate::collective::Groups;
use crate::config::{ClusterConfig, PartyOrder};
use crate::event::{Event, Tag};
use crate::mailbox::{Envelope, Mailbox};
use crate::order::hashed;
use crate::program::{Application, Rank};
use crate::record::{CommandSpan, Recording};
use crate::report::{ApplicationReport, Report, ServerReport};
use crate::request::{Request, Requests};
use crate::server::{DataPacket, Server};
use crate::stripe::Splitter;
use crate::task::Task;
use crate::world::{AppState, Outside, Queue, World};

/// An application and the client nodes of its ranks.
#[derive(Clone, Debug)]
pub struct Placed<'a> {
    /// The application.
    pub application: &'a Application,
    /// The client node of each rank.
    pub nodes: Vec<u32>,
}

/// A cluster with its applications, ready to run.
pub struct Simulation<'a> {
    queue: Queue,
    network: Network,
    world: World<'a>,
}

impl<'a> Simulation<'a> {
    /// One application; rank `r` runs on client node `r mod clients`.
    ///
    /// # Errors
    /// A sentence if the configuration or the application cannot be simulated.
    pub fn new(config: &ClusterConfig, application: &'a Application) -> Result<Simulation<'a>, String> {
        let nodes = (0..application.ranks()).map(|rank| rank % config.clients.max(1)).collect();
        Simulation::with_applications(config, vec![Placed { application, nodes }])
    }

    /// Several applications, which share servers and network (and client nodes, if they are placed
    /// so). Files are their own.
    ///
    /// # Errors
    /// As [`Simulation::new`].
    pub fn with_applications(config: &ClusterConfig, placed: Vec<Placed<'a>>) -> Result<Simulation<'a>, String> {
        config.check()?;
        let mut processes = Vec::new();
        let mut apps = Vec::new();
        let mut tasks = Vec::new();
        let (mut comms, mut files) = (0, Vec::new());
        for Placed { application, nodes } in placed {
            check_application(application)?;
            if nodes.len() != application.programs.len() || nodes.iter().any(|&node| node >= config.clients) {
                return Err(format!("{}: each rank needs one of the {} client nodes", application.name, config.clients));
            }
            let first_process = processes.len() as u32;
            for (rank, program) in application.programs.iter().enumerate() {
                tasks.push(Task::new(apps.len() as u32, rank as Rank, first_process + rank as u32, &program.commands));
            }
            processes.extend(nodes);
            apps.push(AppState { application, first_process, first_comm: comms, first_file: files.len() as u32 });
            comms += application.communicators.len() as u32;
            files.extend(application.files.iter().map(|file| file.initial_bytes));
        }
        let first_server = processes.len() as u32;
        processes.extend(config.nodes_of_servers());
        let nodes = config.nodes();
        let network = Network::new(NetworkConfig {
            model: config.network,
            topology: config.topology.clone(),
            cards: nodes.iter().map(|node| node.card).collect(),
            processes: processes.clone(),
            packet_bytes: config.packet_bytes,
            link_latency: config.node.card.link_latency,
            switch_bandwidth: config.switch_bandwidth,
        });
        let servers = (0..config.servers).map(|server| Server::new(first_server + server, config.server(server))).collect();
        let server_order = match &config.party_order {
            PartyOrder::Natural => (0..config.servers).collect(),
            PartyOrder::Hashed { servers, .. } => hashed(servers),
        };
        let world = World {
            step_instructions: nodes.iter().map(|node| node.cpu.step_instructions()).collect(),
            cpus: Cpus::new(nodes.iter().take(config.clients as usize).map(|node| node.cpu).collect()),
            apps,
            tasks: Pool::new(tasks),
            node_of: processes,
            cards: nodes.iter().map(|node| node.card).collect(),
            servers,
            server_order,
            file_bytes: files,
            program_bytes: 0,
            mailbox: Mailbox::default(),
            requests: Requests::default(),
            splitter: Splitter::new(config.striping, config.stripe_bytes, config.servers),
            barriers: vec![Vec::new(); comms as usize],
            groups: Groups::new(comms as usize),
            log: None,
            starts: Vec::new(),
            config: config.clone(),
        };
        let mut simulation = Simulation { queue: Queue::new(config.tie_order), network, world };
        for task in 0..simulation.world.tasks.len() as u32 {
            simulation.world.next_command(&mut simulation.queue, task);
        }
        Ok(simulation)
    }

    /// Runs to the end and reports.
    ///
    /// # Errors
    /// A sentence naming the first rank that waits for ever, if nothing is left to happen before
    /// all programs are done.
    pub fn run(mut self) -> Result<Report, String> {
        while self.step() {}
        self.finish()
    }

    /// As [`Simulation::run`], and records what happened when.
    ///
    /// # Errors
    /// As [`Simulation::run`].
    pub fn run_recorded(mut self) -> Result<(Report, Recording), String> {
        self.record_commands();
        self.world.log = Some(Box::default());
        while self.step() {}
        let report = self.finish()?;
        let mut recording = self.world.log.take().map(|log| log.all).unwrap_or_default();
        // The tasks of programs come first, and their times are in the same order.
        for (task, starts) in self.world.tasks.iter().zip(&self.world.starts) {
            for (position, span) in (0..).zip(starts.windows(2)) {
                recording.commands.push(CommandSpan { app: task.app, rank: task.rank, position, start: span[0], end: span[1] });
            }
        }
        Ok((report, recording))
    }

    /// Executes the next event. `false`: nothing is left.
    pub fn step(&mut self) -> bool {
        let Some(event) = self.queue.pop() else { return false };
        let Simulation { queue, network, world } = self;
        match event {
            Event::Network(event) => network.handle(queue, world, event),
            Event::Cpu(event) => {
                if let Some(task) = world.cpus.finish(queue, event) {
                    world.advance(&mut Outside { network, queue }, task);
                    world.cpus.rearm(queue, event.0);
                }
            }
            Event::Disk(server) => world.disk_done(&mut Outside { network, queue }, server),
            Event::Copied(server) => world.copied(&mut Outside { network, queue }, server),
            Event::Wake(server) => world.wake(queue, server),
        }
        true
    }

    /// A server whose disk idles although its cache layer has something for it; none in a working
    /// simulation, unless writes are delayed or memory is short.
    pub fn idling_server(&self) -> Option<usize> {
        self.world.servers.iter().position(|server| server.idles_with_work())
    }

    /// Records from now on (call it before the first event) when each command begins.
    pub fn record_commands(&mut self) {
        let ranks = self.world.apps.iter().map(|app| app.application.programs.len()).sum();
        self.world.starts = vec![vec![0]; ranks];
    }

    /// Virtual time, nanoseconds.
    pub fn now(&self) -> u64 {
        self.queue.now()
    }

    /// Events executed so far.
    pub fn events(&self) -> u64 {
        self.queue.processed()
    }

    /// Number of the application, rank and number of the command (from 0 on) that waits for ever,
    /// now that nothing is left to happen.
    pub fn stuck(&self) -> Option<(usize, Rank, usize)> {
        let first = self.world.tasks.iter().find(|task| task.finished.is_none() && task.is_program())?;
        Some((first.app as usize, first.rank, first.position.saturating_sub(1)))
    }

    /// The report after the last event.
    ///
    /// # Errors
    /// As [`Simulation::run`].
    pub fn finish(&self) -> Result<Report, String> {
        let world = &self.world;
        if let Some(problem) = world.deadlock() {
            return Err(problem);
        }
        if let Some(server) = world.servers.iter().position(|server| !server.is_idle()) {
            return Err(format!("server {server} has unfinished work"));
        }
        let applications = world
            .apps
            .iter()
            .map(|app| {
                let ranks = app.application.programs.len();
                let tasks = &world.tasks[app.first_process as usize..app.first_process as usize + ranks];
                let rank_end_nanos = tasks.iter().map(|task| task.finished.unwrap_or(0)).collect();
                ApplicationReport { name: app.application.name.clone(), rank_end_nanos }
            })
            .collect();
        let servers = world
            .servers
            .iter()
            .map(|server| ServerReport {
                disk: server.disk.statistics(),
                layer: weft_sched::CacheLayer::stats(&server.layer),
                memory_max: server.memory_max(),
                cached_bytes: server.cached_bytes(),
            })
            .collect();
        Ok(Report {
            end_nanos: self.queue.now(),
            events: self.queue.processed(),
            program_bytes: world.program_bytes,
            messages: self.network.delivered_messages(),
            network_bytes: self.network.delivered_bytes(),
            applications,
            servers,
            unreceived_messages: world.mailbox.leftovers() as u64,
        })
    }
}

impl World<'_> {
    /// Who waits for ever and for what, now that nothing is left to happen; `None` if all programs
    /// are done.
    fn deadlock(&self) -> Option<String> {
        let waiting = || self.tasks.iter().filter(|task| task.finished.is_none() && task.is_program());
        let first = waiting().next()?;
        let application = self.apps[first.app as usize].application;
        let command = first.position.checked_sub(1).and_then(|position| first.commands.get(position));
        let what = command.map_or_else(|| "its start".to_string(), |command| application.describe(command));
        let all = self.tasks.iter().filter(|task| task.is_program()).count();
        Some(format!(
            "{}: rank {} waits for ever in its command {}, {what}; {} of {all} ranks wait for ever",
            application.name,
            first.rank,
            first.position,
            waiting().count()
        ))
    }

    fn record_transfer(&mut self, message: &Message, end: u64, bytes: u64, sent: bool) {
        let Some(log) = &mut self.log else { return };
        let [from, to] = [message.from, message.to].map(|process| self.node_of[process as usize]);
        let card = self.cards[if sent { from } else { to } as usize];
        let bandwidth = if from == to { card.internal_bandwidth } else { card.link_bandwidth };
        let time = (u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth.max(1))) as u64;
        let request = match Tag::unpack(message.tag) {
            Tag::Request(index) | Tag::ReadData(index) | Tag::WriteData(index) => Some(self.requests.get(index).number),
            Tag::Mpi(_) | Tag::WriteDone(_) | Tag::Ask(_) => None,
        };
        log.transfer(message, (end, time), bytes, sent, request);
    }
}

fn check_application(application: &Application) -> Result<(), String> {
    let ranks = application.ranks();
    if ranks == 0 {
        return Err(format!("{}: an application needs ranks", application.name));
    }
    let world: Vec<Rank> = (0..ranks).collect();
    if application.communicators.first() != Some(&world) {
        return Err(format!("{}: communicator 0 must be all ranks in order", application.name));
    }
    application.check().map_err(|problem| format!("{}: {problem}", application.name))
}

impl NetworkHost<Event> for World<'_> {
    fn packet_uploaded(&mut self, network: &mut Network, queue: &mut Queue, message: MessageId, bytes: u64) {
        if let Tag::ReadData(request) = Tag::unpack(network.message(message).tag) {
            self.record_transfer(network.message(message), queue.now(), bytes, true);
            self.reply_uploaded(queue, request, bytes);
        }
    }

    fn message_uploaded(&mut self, network: &mut Network, queue: &mut Queue, message: MessageId) {
        let sent = network.message(message);
        // Replies to reads were recorded packet by packet, as their data comes from the disk.
        if !matches!(Tag::unpack(sent.tag), Tag::ReadData(_)) {
            self.record_transfer(sent, queue.now(), sent.bytes, true);
        }
        match Tag::unpack(network.message(message).tag) {
            Tag::Mpi(envelope) => {
                let Envelope { sender, sent_at, .. } = *self.mailbox.get(envelope);
                self.record_message(queue.now(), sender, sent_at, network.message(message).to, true);
                self.one_done(queue, sender);
            }
            Tag::Request(request) | Tag::WriteData(request) => {
                let task = self.requests.get(request).task;
                self.one_done(queue, task);
            }
            Tag::ReadData(_) | Tag::WriteDone(_) | Tag::Ask(_) => {}
        }
    }

    fn packet_delivered(&mut self, network: &mut Network, queue: &mut Queue, message: MessageId, packet: Delivery) {
        let complete = packet.complete;
        self.record_transfer(network.message(message), queue.now(), packet.bytes, false);
        match Tag::unpack(network.message(message).tag) {
            Tag::Mpi(envelope) => {
                if let Some((task, envelope)) = self.mailbox.arrived(envelope, packet.first, complete) {
                    self.received(queue, task, &envelope);
                }
            }
            Tag::Request(request) if complete => self.request_arrived(&mut Outside { network, queue }, request),
            Tag::WriteData(request) => {
                self.write_data_arrived(&mut Outside { network, queue }, DataPacket { request, bytes: packet.bytes, last: packet.last })
            }
            Tag::ReadData(request) if complete => {
                let Request { task, number, .. } = *self.requests.get(request);
                if let Some(log) = &mut self.log {
                    log.note(number, |span| span.end = queue.now());
                }
                self.requests.remove(request);
                self.one_done(queue, task);
            }
            Tag::WriteDone(task) => {
                let (Message { from, to, .. }, first) = (*network.message(message), self.first_server());
                if let Some(log) = &mut self.log {
                    log.confirmed(queue.now(), to, from - first);
                }
                self.one_done(queue, task);
            }
            Tag::Ask(request) => self.asked_for_data(&mut Outside { network, queue }, request),
            Tag::Request(_) | Tag::ReadData(_) => {}
        }
    }
}
