//! The world: all state of a simulation, and the loop that moves it on.
//!
//! Time stands still while tasks run. When none is ready, the replies of the turn leave, and then
//! everything that is planned for the next moment happens at once. All code of the simulator that
//! runs between two polls of tasks holds the one borrow of [`State`]; code of tasks (polls, drops,
//! the start of a process) never runs under it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use weft_base::{SECOND, WallTime};

use crate::Random;
use crate::clock::Clock;
use crate::executor::ReadyQueue;
use crate::faults::Fault;
use crate::ids::{NodeId, SlotId, TaskId};
use crate::models::Profile;
use crate::net::Net;
use crate::node::Node;
use crate::process::Machine;
use crate::queue::Event;
use crate::slots::{Outcome, Reason, Removed};
use crate::trace::Trace;
use crate::tracing::Tracing;

/// The wall clock at the start of every simulation: 2026-01-01 00:00 UTC.
const WALL_EPOCH_NS: i64 = 1_767_225_600 * SECOND as i64;
/// More polls than this at one moment of virtual time: the program goes in circles.
const POLLS_PER_MOMENT_MAX: u64 = 2_000_000;

pub(crate) struct World {
    pub(crate) me: Weak<World>,
    pub(crate) state: RefCell<State>,
    pub(crate) seed: u64,
    ready: Arc<ReadyQueue>,
    is_running: Cell<bool>,
}

pub(crate) struct State {
    pub(crate) clock: Clock,
    pub(crate) profile: Profile,
    pub(crate) nodes: Vec<Node>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) net: Net,
    pub(crate) planned_faults: Vec<Fault>,
    /// What tasks draw.
    pub(crate) task_random: Random,
    /// Jitter of the models.
    pub(crate) model_random: Random,
    /// Choices of faults.
    pub(crate) fault_random: Random,
    pub(crate) trace: Trace,
    /// Records of what nodes do, if somebody wants them.
    pub(crate) tracing: Option<Tracing>,
    pub(crate) steps: Steps,
    /// Processes to be started as soon as nothing is borrowed.
    pub(crate) starts: Vec<NodeId>,
}

/// What the simulator itself has done.
#[derive(Clone, Copy, Default)]
pub(crate) struct Steps {
    pub(crate) events: u64,
    pub(crate) polls: u64,
}

/// Why a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The condition holds.
    Reached,
    /// The limit in time has come.
    Limit,
    /// Nothing is planned any more.
    NothingPlanned,
    /// Tasks wake each other without end and time stands still.
    Circles,
}

impl World {
    pub(crate) fn new(seed: u64, profile: Profile) -> Rc<World> {
        let mut random = Random::new(seed);
        let clock = Clock::default();
        let ready = clock.tasks.ready();
        let state = State {
            clock,
            profile,
            nodes: Vec::new(),
            machines: Vec::new(),
            net: Net::default(),
            planned_faults: Vec::new(),
            task_random: random.fork(),
            model_random: random.fork(),
            fault_random: random.fork(),
            trace: Trace::default(),
            tracing: None,
            steps: Steps::default(),
            starts: Vec::new(),
        };
        Rc::new_cyclic(|me| World { me: me.clone(), state: RefCell::new(state), seed, ready, is_running: Cell::new(false) })
    }

    /// Moves the world on until `reached` says so, nothing is planned, or virtual time `limit` has
    /// passed.
    pub(crate) fn run(&self, limit: u64, mut reached: impl FnMut() -> bool) -> Halt {
        assert!(!self.is_running.replace(true), "a task must not run the simulation that runs it");
        let _guard = Running(self);
        loop {
            if !self.settle() {
                return Halt::Circles;
            }
            if reached() {
                return Halt::Reached;
            }
            if let Some(halt) = self.advance(limit) {
                return halt;
            }
        }
    }

    /// Runs tasks until none is ready. False if that does not end.
    fn settle(&self) -> bool {
        let mut polls = 0;
        loop {
            self.clean_up();
            while let Some(task) = self.ready.pop() {
                self.poll(task);
                polls += 1;
                if polls > POLLS_PER_MOMENT_MAX {
                    return false;
                }
            }
            {
                let mut state = self.state.borrow_mut();
                state.send_replies();
                state.serve_clients();
            }
            if !self.clean_up() {
                return true;
            }
        }
    }

    /// Does what was put off until nothing is borrowed: wakes, drops, starts. True if there was
    /// anything.
    pub(crate) fn clean_up(&self) -> bool {
        let (wakers, flows, starts) = {
            let mut state = self.state.borrow_mut();
            if state.clock.to_wake.is_empty() && state.clock.to_drop.is_empty() && state.starts.is_empty() {
                return false;
            }
            (std::mem::take(&mut state.clock.to_wake), std::mem::take(&mut state.clock.to_drop), std::mem::take(&mut state.starts))
        };
        wakers.into_iter().for_each(Waker::wake);
        drop(flows);
        for node in starts {
            self.start_process(node);
        }
        true
    }

    /// Everything that is planned for the next moment happens.
    fn advance(&self, limit: u64) -> Option<Halt> {
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        let Some(moment) = state.clock.next_moment() else {
            return Some(Halt::NothingPlanned);
        };
        if moment > limit {
            state.clock.now = state.clock.now.max(limit);
            return Some(Halt::Limit);
        }
        state.clock.now = moment;
        while state.clock.events.next_at() == Some(moment) {
            let Some((_, event)) = state.clock.events.pop() else { break };
            state.handle(event);
        }
        let wakers = std::mem::take(&mut state.clock.to_wake);
        drop(guard);
        // Give the buffer back, so that waking allocates nothing.
        let mut wakers = wakers;
        wakers.drain(..).for_each(Waker::wake);
        let mut state = self.state.borrow_mut();
        if state.clock.to_wake.is_empty() {
            state.clock.to_wake = wakers;
        }
        None
    }

    fn poll(&self, id: TaskId) {
        let mut taken = {
            let mut state = self.state.borrow_mut();
            if state.hold_back(id) {
                return;
            }
            let Some(taken) = state.clock.tasks.take(id) else { return };
            state.clock.current_task = id;
            state.steps.polls += 1;
            state.trace.mix(u64::from(id.index) | 1 << 63);
            let now = state.clock.now;
            if let Some(tracing) = &mut state.tracing {
                tracing.enter(taken.node, id, now);
            }
            taken
        };
        let poll = {
            let _guard = PanicReport { world: self, node: taken.node };
            taken.flow.as_mut().poll(&mut Context::from_waker(&taken.waker))
        };
        let dropped = {
            let mut state = self.state.borrow_mut();
            state.clock.current_task = TaskId::NONE;
            if let Some(tracing) = &mut state.tracing {
                tracing.leave(id, poll.is_ready());
            }
            let dropped = match poll {
                Poll::Pending => state.clock.tasks.put_back(id, taken.flow),
                Poll::Ready(()) => {
                    match state.clock.tasks.finish(id) {
                        Some(finished) if finished.is_main => state.exit(finished.node),
                        _ => {}
                    }
                    Some(taken.flow)
                }
            };
            state.count_poll(taken.node);
            dropped
        };
        drop(dropped);
    }

    /// Boots the process of a node.
    fn start_process(&self, id: NodeId) {
        {
            let mut state = self.state.borrow_mut();
            let state = &mut *state;
            let node = &mut state.nodes[id.index()];
            if node.is_running {
                return;
            }
            node.is_running = true;
            node.has_power = true;
            node.life += 1;
            node.epoch += 1;
            node.usage_at_start = node.total_usage();
            let life = node.life;
            state.trace.mix(10 << 56 | u64::from(id.0));
            state.note(id, format_args!("starts, life {life}"));
        }
        self.start_main(id);
    }

    /// Runs the main flow of a process, if it has one.
    pub(crate) fn start_main(&self, id: NodeId) {
        let (main, life) = {
            let state = self.state.borrow();
            let node = &state.nodes[id.index()];
            (node.main.clone(), node.life)
        };
        if let Some(main) = main {
            let flow = main(life);
            self.state.borrow_mut().clock.tasks.add(id, life, true, flow);
        }
    }

    /// Ends all tasks, so that nothing holds the world any more.
    pub(crate) fn shut_down(&self) {
        let (flows, mains) = {
            let mut state = self.state.borrow_mut();
            let mut flows = state.clock.tasks.kill_all();
            flows.append(&mut state.clock.to_drop);
            let mains: Vec<_> = state.nodes.iter_mut().map(|node| node.main.take()).collect();
            (flows, mains)
        };
        drop(flows);
        drop(mains);
        self.clean_up();
    }
}

impl State {
    fn handle(&mut self, event: Event) {
        if let Event::Timer(slot) = event
            && !self.clock.slots.is_live(slot)
        {
            self.clock.events.uncount_dead();
            return;
        }
        self.steps.events += 1;
        self.trace.mix(self.clock.now);
        self.trace.mix(event.code());
        match event {
            Event::Timer(slot) => self.fire_timer(slot),
            Event::Disk { node, operation } => self.end_disk(node, operation),
            Event::Arrive(message) => self.arrive(message),
            Event::Deliver(message) => self.deliver(message),
            Event::Notice { connection, end } => self.notice(connection, end),
            Event::ConnectTimeout(connection) => self.connect_timeout(connection),
            Event::Fault(index) => {
                let fault = self.planned_faults[index as usize].clone();
                self.strike(&fault);
            }
            Event::Restart { node, epoch } => self.restart_planned(node, epoch),
            Event::Resume(node) => self.resume(node),
            Event::SpaceBack(node) => self.space_back(node),
            Event::Look(node) => self.look(node),
            Event::Taken(node) => self.taken(node),
        }
    }

    fn fire_timer(&mut self, id: SlotId) {
        let Some(slot) = self.clock.slots.get(id) else { return };
        slot.has_timer = false;
        match slot.reason {
            Some(Reason::Request { .. }) => self.request_timed_out(id),
            _ => self.clock.finish_wait(id, Outcome::Done),
        }
    }

    /// Begins a wait that ends at `at`. `None` if that life of the node is over.
    pub(crate) fn begin_timer(&mut self, node: NodeId, life: u32, at: u64, reason: Reason) -> Option<SlotId> {
        if !self.is_alive(node, life) {
            return None;
        }
        let slot = self.clock.begin_wait(reason);
        self.clock.plan_timer(slot, at);
        Some(slot)
    }

    /// The future of a wait has its outcome or is dropped.
    pub(crate) fn end_wait(&mut self, slot: SlotId) -> Option<Removed> {
        let removed = self.clock.end_wait(slot)?;
        if let Some(Reason::Request { connection, sequence, .. }) = removed.reason {
            self.forget_request(connection, sequence, slot);
        }
        Some(removed)
    }

    /// True while this life of the node lasts.
    pub(crate) fn is_alive(&self, node: NodeId, life: u32) -> bool {
        let node = &self.nodes[node.index()];
        node.is_running && node.life == life
    }

    /// What takes `ns` on a healthy node takes so long on this one.
    pub(crate) fn slowed(&self, node: NodeId, ns: u64) -> u64 {
        let node = &self.nodes[node.index()];
        if self.clock.now < node.slow.until { ns.saturating_mul(node.slow.percent) / 100 } else { ns }
    }

    pub(crate) fn wall(&self, node: NodeId) -> WallTime {
        WallTime(WALL_EPOCH_NS + self.clock.now as i64 + self.nodes[node.index()].clock_skew_ns)
    }

    pub(crate) fn draw_for_task(&mut self) -> u64 {
        let drawn = self.task_random.draw();
        self.trace.mix(drawn);
        drawn
    }

    /// A trace line about a node.
    pub(crate) fn note(&mut self, node: NodeId, text: std::fmt::Arguments<'_>) {
        if self.trace.is_on() {
            self.trace.line(self.clock.now, format_args!("{}: {text}", self.nodes[node.index()].name));
        }
    }

    /// True if the task belongs to a paused node: it is kept for later.
    fn hold_back(&mut self, id: TaskId) -> bool {
        let Some((node, _)) = self.clock.tasks.owner(id) else { return false };
        let node = &mut self.nodes[node.index()];
        if self.clock.now >= node.paused_until {
            return false;
        }
        node.paused_tasks.push(id);
        true
    }

    fn resume(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        if self.clock.now < node.paused_until {
            return;
        }
        let ready = self.clock.tasks.ready();
        std::mem::take(&mut node.paused_tasks).into_iter().for_each(|task| ready.push(task));
    }

    fn count_poll(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        node.polls += 1;
        if let Some((left, _)) = &mut node.after_polls {
            *left = left.saturating_sub(1);
            if *left == 0
                && let Some((_, fault)) = node.after_polls.take()
            {
                self.strike(&fault);
            }
        }
    }

    /// What everybody waits for, for people.
    pub(crate) fn report(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for (task, node, is_main) in self.clock.tasks.list() {
            let name = &self.nodes[node.index()].name;
            let kind = if is_main { "main" } else { "flow" };
            let waits: Vec<String> =
                self.clock.slots.open().filter(|slot| slot.task == task).filter_map(|slot| self.wait_text(slot.reason?)).collect();
            let waits = if waits.is_empty() { "arrivals or other flows".to_string() } else { waits.join(", ") };
            let _ = writeln!(text, "  {name} {kind} {}: waits for {waits}", task.index);
        }
        for node in self.nodes.iter().filter(|node| !node.is_running) {
            let power = if node.has_power { "" } else { ", no power" };
            let _ = writeln!(text, "  {} is down{power}", node.name);
        }
        text
    }

    fn wait_text(&self, reason: Reason) -> Option<String> {
        Some(match reason {
            Reason::Sleep => "time to pass".to_string(),
            Reason::Cpu => "a core".to_string(),
            Reason::Disk { operation } => format!("disk {operation}"),
            Reason::Request { connection, sequence, op } => {
                let op = weft_wire::Op::from_code(op).map_or("unknown", |op| op.name());
                format!("{op} #{sequence} at {}", self.net.connections[connection as usize].server)
            }
        })
    }
}

/// Marks the world as running while it lives.
struct Running<'a>(&'a World);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_running.set(false);
    }
}

/// Says where in the simulation a panic happened.
struct PanicReport<'a> {
    world: &'a World,
    node: NodeId,
}

impl Drop for PanicReport<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        if let Ok(state) = self.world.state.try_borrow() {
            let name = state.nodes.get(self.node.index()).map_or("?", |node| node.name.as_str());
            eprintln!("simulation: panic in a task of {name} at {:?}, seed {}", weft_base::Nanos(state.clock.now), self.world.seed);
            for line in state.trace.kept() {
                eprintln!("  {line}");
            }
        }
    }
}
