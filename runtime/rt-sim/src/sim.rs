//! The handle that tests hold: nodes, processes, faults, running, and looking at what happened.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::rc::Rc;

use weft_base::{Nanos, ServerId};
use weft_rt::FaultPoint;

use crate::Random;
use crate::disk::DiskFaultKind;
use crate::faults::{FOREVER, Fault, FaultPlan, MessageFaults};
use crate::ids::{Flow, MachineId, NodeId};
use crate::joined::Joined;
use crate::models::Profile;
use crate::node::{Node, NodeConfig, NodeUsage};
use crate::process::Machine;
use crate::runtime::SimRt;
use crate::tracing::Tracing;
use crate::world::{Halt, State, World};

/// A simulated cluster. Dropping it ends all its tasks.
pub struct Sim {
    control: Control,
}

/// Everything about a simulation except running it. Cheap to clone, so that flows inside the
/// simulation can cause faults and look at other nodes.
#[derive(Clone)]
pub struct Control {
    pub(crate) world: Rc<World>,
}

/// A simulation that did not reach what it was run for.
#[derive(Clone, PartialEq, Eq)]
pub struct Stuck {
    /// Why it ended.
    pub why: Why,
    /// When, in virtual time.
    pub at: Nanos,
    /// The seed.
    pub seed: u64,
    /// What every task waits for, and the kept lines of the trace.
    pub report: String,
}

/// Why a run ended too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing can happen any more: a deadlock, unless all that wait are servers without requests.
    Deadlock,
    /// The limit in virtual time has come.
    TimeLimit,
    /// Tasks wake each other without end while time stands still.
    Circles,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Why::Deadlock => "deadlock",
            Why::TimeLimit => "time limit reached",
            Why::Circles => "tasks go in circles",
        };
        writeln!(f, "{why} at {:?}, seed {}", self.at, self.seed)?;
        f.write_str(&self.report)
    }
}

impl fmt::Debug for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Stuck {}

impl Sim {
    /// An empty world at time 0. The same seed and the same calls give the same run.
    pub fn new(seed: u64, profile: Profile) -> Sim {
        Sim { control: Control { world: World::new(seed, profile) } }
    }

    /// A handle for flows inside the simulation.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Runs until virtual time `at`; afterwards it is that time, whatever happened. Panics if tasks
    /// go in circles.
    pub fn run_until(&self, at: Nanos) {
        if self.world.run(at.0, || false) == Halt::Circles {
            panic!("{}", self.stuck(Why::Circles));
        }
        let mut state = self.world.state.borrow_mut();
        state.clock.now = state.clock.now.max(at.0);
    }

    /// Runs for `ns` nanoseconds of virtual time.
    pub fn run_for(&self, ns: u64) {
        self.run_until(self.now() + ns);
    }

    /// Runs until nothing is planned any more. Servers that wait for requests do not keep it going,
    /// timers do.
    ///
    /// # Errors
    /// [`Why::TimeLimit`] or [`Why::Circles`].
    pub fn run_until_idle(&self, limit: Nanos) -> Result<(), Stuck> {
        match self.world.run(limit.0, || false) {
            Halt::NothingPlanned | Halt::Reached => Ok(()),
            Halt::Limit => Err(self.stuck(Why::TimeLimit)),
            Halt::Circles => Err(self.stuck(Why::Circles)),
        }
    }

    /// Runs until `condition` holds; it is looked at whenever time is about to move on.
    ///
    /// # Errors
    /// [`Stuck`] if nothing can happen any more or virtual time `limit` comes first.
    pub fn run_until_true(&self, limit: Nanos, condition: impl FnMut() -> bool) -> Result<(), Stuck> {
        match self.world.run(limit.0, condition) {
            Halt::Reached => Ok(()),
            Halt::NothingPlanned => Err(self.stuck(Why::Deadlock)),
            Halt::Limit => Err(self.stuck(Why::TimeLimit)),
            Halt::Circles => Err(self.stuck(Why::Circles)),
        }
    }

    /// Runs `flow` as a task of `node` to its end, and everything else meanwhile, for at most
    /// `limit_ns` nanoseconds.
    ///
    /// # Errors
    /// [`Stuck`] if it does not come to its end. Panics if its node dies.
    pub fn block_on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: NodeId,
        limit_ns: u64,
        flow: impl FnOnce(SimRt) -> F,
    ) -> Result<T, Stuck> {
        let joined = self.spawn_on(node, flow);
        self.run_until_true(self.now() + limit_ns, || joined.is_over())?;
        Ok(joined.take().expect("the node of the flow that is waited for has died"))
    }

    /// What everybody waits for, and the kept trace, as an error.
    fn stuck(&self, why: Why) -> Stuck {
        let state = self.world.state.borrow();
        let mut report = state.report();
        for line in state.trace.kept() {
            report.push_str("  | ");
            report.push_str(&line);
            report.push('\n');
        }
        Stuck { why, at: Nanos(state.clock.now), seed: self.world.seed, report }
    }
}

impl Deref for Sim {
    type Target = Control;
    fn deref(&self) -> &Control {
        &self.control
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.control.world.shut_down();
    }
}

/// Trace records.
impl Control {
    /// Records these events from now on. Every node has room for so many records between two looks
    /// of the simulator, which come each 64 times that tasks of it have run; more are counted as
    /// lost.
    pub fn start_tracing(&self, mask: weft_trace::Mask, records: usize) {
        self.world.state.borrow_mut().tracing = Some(Tracing::new(mask, records));
    }

    /// What has been recorded: the name and the bytes of a trace file of each node that has run.
    /// Ends the recording.
    pub fn take_trace_files(&self) -> Vec<(String, Vec<u8>)> {
        let mut state = self.world.state.borrow_mut();
        let tracing = state.tracing.take();
        let server_of = |id: NodeId| state.net.servers.iter().find(|(_, node)| **node == id).map(|(server, _)| *server);
        tracing.map_or_else(Vec::new, |mut tracing| tracing.files(|id| (state.nodes[id.index()].name.clone(), server_of(id))))
    }
}

/// Nodes and processes.
impl Control {
    /// Adds a machine with so many cores, and one disk, for nodes that name it.
    pub fn add_machine(&self, cores: usize) -> MachineId {
        let mut state = self.world.state.borrow_mut();
        let id = MachineId(state.machines.len() as u32);
        state.machines.push(Machine::new(cores));
        id
    }

    /// How long all cores of a machine together were busy, and its disk, in nanoseconds.
    pub fn machine_busy(&self, machine: MachineId) -> (u64, u64) {
        self.world.state.borrow().machines[machine.index()].busy()
    }

    /// Adds a node. A client's process runs at once (with nothing in it), a server's when it is
    /// started.
    pub fn add_node(&self, config: NodeConfig) -> NodeId {
        let mut state = self.world.state.borrow_mut();
        let id = NodeId(state.nodes.len() as u32);
        let boot_id = state.fault_random.draw();
        match config.server {
            Some(server) => {
                let before = state.net.servers.insert(server, id);
                assert!(before.is_none(), "two nodes for server {server}");
            }
            None => state.starts.push(id),
        }
        state.nodes.push(Node::new(config, boot_id));
        drop(state);
        self.world.clean_up();
        id
    }

    /// Starts the process of a node with `main`, and keeps `main` for restarts. When its flow ends,
    /// the process ends. In a process that runs already (a client's does from the beginning),
    /// `main` begins beside what is there.
    pub fn start<F: Future<Output = ()> + 'static>(&self, node: NodeId, main: impl Fn(SimRt) -> F + 'static) {
        let was_running = self.is_running(node);
        self.set_main(node, main);
        if was_running {
            self.world.start_main(node);
        } else {
            self.restart(node);
        }
    }

    /// Says what the process of a node runs when it starts next.
    pub fn set_main<F: Future<Output = ()> + 'static>(&self, node: NodeId, main: impl Fn(SimRt) -> F + 'static) {
        // The world holds its nodes: held by them, it would never end.
        let world = self.world.me.clone();
        let main = move |life| -> Flow { Box::pin(main(world.upgrade().expect("a world that runs is there").rt(node, life))) };
        let before = self.world.state.borrow_mut().nodes[node.index()].main.replace(Rc::new(main));
        drop(before);
    }

    /// Starts the process of a node again, now; without effect if it runs.
    pub fn restart(&self, node: NodeId) {
        self.world.state.borrow_mut().starts.push(node);
        self.world.clean_up();
    }

    /// Runs a flow on a node that is up, as a task of its process.
    pub fn spawn_on<T: 'static, F: Future<Output = T> + 'static>(&self, node: NodeId, flow: impl FnOnce(SimRt) -> F) -> Joined<T> {
        let rt = self.rt(node);
        let life = rt.life();
        let (joined, finish) = Joined::new();
        // On the heap before it is awaited: what is moved into a flow has its place there twice.
        let flow = Box::pin(flow(rt));
        let flow = Box::pin(async move { finish.with(flow.await) });
        self.world.state.borrow_mut().clock.tasks.add(node, life, false, flow);
        joined
    }

    /// The runtime of the process that runs on a node now. Panics if none does.
    pub fn rt(&self, node: NodeId) -> SimRt {
        let life = {
            let state = self.world.state.borrow();
            let node = &state.nodes[node.index()];
            assert!(node.is_running, "the process of {} is not running", node.name);
            node.life
        };
        self.world.rt(node, life)
    }

    /// True if the process of a node runs.
    pub fn is_running(&self, node: NodeId) -> bool {
        self.world.state.borrow().nodes[node.index()].is_running
    }

    /// The node of a server.
    pub fn node_of(&self, server: ServerId) -> Option<NodeId> {
        self.world.state.borrow().net.servers.get(&server).copied()
    }

    /// All nodes.
    pub fn nodes(&self) -> Vec<NodeId> {
        (0..self.world.state.borrow().nodes.len() as u32).map(NodeId).collect()
    }

    /// The name of a node.
    pub fn name(&self, node: NodeId) -> String {
        self.world.state.borrow().nodes[node.index()].name.clone()
    }
}

/// Faults.
impl Control {
    /// A fault strikes now.
    pub fn strike(&self, fault: &Fault) {
        self.world.state.borrow_mut().strike(fault);
        self.world.clean_up();
    }

    /// Plans all faults of a plan, counted from now.
    pub fn schedule(&self, plan: &FaultPlan) {
        let mut state = self.world.state.borrow_mut();
        let now = state.clock.now;
        for (at, fault) in &plan.faults {
            state.plan_fault(now.saturating_add(at.0), fault.clone());
        }
    }

    /// A fault strikes after `polls` more polls of tasks of `node`: with every number from 1 on, a
    /// crash hits every await point.
    pub fn strike_after_polls(&self, node: NodeId, polls: u64, fault: Fault) {
        self.world.state.borrow_mut().nodes[node.index()].after_polls = Some((polls.max(1), fault));
    }

    /// The process of a node dies and stays down. See [`Fault::Crash`].
    pub fn crash(&self, node: NodeId) {
        self.strike(&Fault::Crash { node, down_ns: FOREVER });
    }

    /// The machine of a node loses power and stays down. See [`Fault::PowerCut`].
    pub fn power_cut(&self, node: NodeId) {
        self.strike(&Fault::PowerCut { node, down_ns: FOREVER });
    }

    /// Cuts the link between two nodes for `ns` nanoseconds.
    pub fn partition(&self, a: NodeId, b: NodeId, ns: u64) {
        self.strike(&Fault::Partition { a, b, ns });
    }

    /// All connections of a node break.
    pub fn break_connections(&self, node: NodeId) {
        self.strike(&Fault::BreakConnections { node });
    }

    /// Fills the disk of a node for `ns` nanoseconds.
    pub fn fill_disk(&self, node: NodeId, ns: u64) {
        self.strike(&Fault::DiskFull { node, ns });
    }

    /// Makes the next `count` disk operations of a kind fail.
    pub fn fail_disk(&self, node: NodeId, kind: DiskFaultKind, count: u32) {
        self.strike(&Fault::DiskError { node, kind, count });
    }

    /// Faults of messages from now on for `ns` nanoseconds.
    pub fn message_faults(&self, faults: MessageFaults, ns: u64) {
        self.strike(&Fault::Messages { faults, ns });
    }

    /// Ends all faults that last: links heal, disks have space, no message is lost, nobody is slow
    /// or paused. Processes that are down and disk errors that have not struck yet stay.
    pub fn heal(&self) {
        let mut state = self.world.state.borrow_mut();
        let state = &mut *state;
        state.net.cut_links.clear();
        state.net.message_faults_until = 0;
        for (index, node) in state.nodes.iter_mut().enumerate() {
            node.slow.until = 0;
            node.disk_full_until = 0;
            node.disk.volume.is_full = false;
            if node.paused_until > state.clock.now {
                node.paused_until = state.clock.now;
                state.clock.events.plan(state.clock.now, crate::queue::Event::Resume(NodeId(index as u32)));
            }
        }
    }

    /// The end of all trouble, for the final check of a test: [`Control::heal`], disk errors that
    /// have not struck are forgotten, and every node that is down starts again.
    pub fn recover(&self) {
        self.heal();
        {
            let mut state = self.world.state.borrow_mut();
            let state = &mut *state;
            for (index, node) in state.nodes.iter_mut().enumerate() {
                node.disk.volume.fail_none();
                node.after_polls = None;
                if !node.is_running {
                    state.starts.push(NodeId(index as u32));
                }
            }
        }
        self.world.clean_up();
    }

    /// Holds up whatever passes a fault point on a node from now on for `ns` nanoseconds; 0 ends
    /// that.
    pub fn delay(&self, node: NodeId, point: FaultPoint, ns: u64) {
        self.world.state.borrow_mut().nodes[node.index()].delays.set(point, ns);
    }
}

/// What happened.
impl Control {
    /// Virtual time.
    pub fn now(&self) -> Nanos {
        Nanos(self.world.state.borrow().clock.now)
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.world.seed
    }

    /// An independent stream of random numbers from the seed, for the workload of a test.
    pub fn random(&self) -> Random {
        self.world.state.borrow_mut().fault_random.fork()
    }

    /// A hash over everything that happened so far: events, polls, random numbers, faults. Equal
    /// seeds give equal hashes.
    pub fn trace_hash(&self) -> u64 {
        self.world.state.borrow().trace.hash()
    }

    /// Keeps the last `lines` lines of the trace; they appear in [`Stuck`] and after a panic. 0
    /// switches it off.
    pub fn keep_trace(&self, lines: usize) {
        self.world.state.borrow_mut().trace.keep(lines);
    }

    /// Gives every line of the trace to `sink`, which must not use the simulation.
    pub fn trace_to(&self, sink: impl FnMut(&str) + 'static) {
        self.world.state.borrow_mut().trace.set_sink(Box::new(sink));
    }

    /// The kept lines of the trace.
    pub fn trace(&self) -> Vec<String> {
        self.world.state.borrow().trace.kept()
    }

    /// Counters of a node over all lives of its process.
    pub fn usage(&self, node: NodeId) -> NodeUsage {
        let state = self.world.state.borrow();
        let node = &state.nodes[node.index()];
        NodeUsage { runtime: node.total_usage(), disk: node.disk.counts, busy: node.busy() }
    }

    /// How often tasks of a node have been polled, over all lives of its process.
    pub fn polls(&self, node: NodeId) -> u64 {
        self.world.state.borrow().nodes[node.index()].polls
    }

    /// Events handled and polls made so far, for measurements of the simulator itself.
    pub fn steps(&self) -> (u64, u64) {
        let state: &State = &self.world.state.borrow();
        (state.steps.events, state.steps.polls)
    }

    /// Living tasks.
    pub fn tasks(&self) -> usize {
        self.world.state.borrow().clock.tasks.alive()
    }

    /// What every task waits for, one a line.
    pub fn report(&self) -> String {
        self.world.state.borrow().report()
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.control, f)
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "simulation with seed {} at {:?}", self.world.seed, self.now())
    }
}
