//! A cluster, the record of what its clients do, and one auditor: what every run has, drawn from a
//! seed or written by hand.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use weft_base::{MILLISECOND, SECOND, Status};
use weft_rt::Runtime;
use weft_rt_sim::{Joined, NodeId, Profile, Random, Sim};
use weft_virtual_cluster::Exit;
use weft_wire::Op;

use crate::audit;
use crate::cluster::{Cluster, ClusterConfig, GRACE_NS};
use crate::history::{Action, Answer, Event, History, Outcome};
use crate::linear::{self, Allowances, Verdict};
use crate::model::Statuses;
use crate::registers;
use crate::statuses::is_internal;
use crate::times;
use crate::workload::{LATE_NS, SETTLE_NS, Shared, Worker};

/// The pause between two repairs, in nanoseconds.
const REPAIR_NS: u64 = 5 * MILLISECOND;
/// Longest wait for any part of a run, in virtual nanoseconds.
const LIMIT_NS: u64 = 4000 * SECOND;

/// What a run allows beyond a perfect file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerance {
    /// Disks may be full.
    pub full_disks: bool,
    /// Nothing goes wrong, so no operation has a reason to give up.
    pub calm: bool,
    /// Positions in the history between which changes may have been lost.
    pub lost_between: Option<(u64, u64)>,
}

/// A cluster with its auditor.
pub struct Stage {
    /// The world.
    pub sim: Sim,
    /// The servers.
    pub cluster: Cluster,
    /// History and common knowledge of all clients.
    pub shared: Rc<RefCell<Shared>>,
    /// For the choices of the run.
    pub random: Random,
    /// What servers were asked in their last lives.
    pub asked: BTreeSet<Op>,
    auditor: Option<(NodeId, Worker)>,
    workers: usize,
}

impl Stage {
    /// Starts a cluster; it is not waited for.
    pub fn new(seed: u64, config: &ClusterConfig, trace_lines: usize) -> Stage {
        let sim = Sim::new(seed, Profile::instant());
        if trace_lines > 0 {
            sim.keep_trace(trace_lines);
        }
        let cluster = Cluster::start(&sim, config);
        let random = sim.random();
        let mut stage = Stage { sim, cluster, shared: Shared::new(), random, asked: BTreeSet::new(), auditor: None, workers: 0 };
        stage.auditor = Some(stage.add_worker("auditor", 30 * SECOND));
        stage
    }

    /// Adds a client. The first one (the auditor) has number 0.
    pub fn add_worker(&mut self, name: &str, deadline_ns: u64) -> (NodeId, Worker) {
        let (node, client) = self.cluster.add_client(name, deadline_ns);
        let number = self.workers;
        self.workers += 1;
        (node, Worker::new(number, &self.sim, node, client, self.shared.clone(), self.random.fork()))
    }

    /// Waits until every server serves.
    ///
    /// # Errors
    /// Who does not.
    pub fn wait_for_servers(&mut self) -> Result<(), String> {
        let outcome = self.with_auditor(async |worker| audit::wait_for_servers(&worker.client).await);
        // Why it does not serve is the better news.
        self.check_exits().and(outcome)
    }

    /// Runs a flow of the auditor to its end.
    ///
    /// # Errors
    /// Those of the flow, or that it does not come to its end.
    pub fn with_auditor<T: 'static>(&mut self, flow: impl AsyncFnOnce(&mut Worker) -> Result<T, String> + 'static) -> Result<T, String> {
        let (node, mut worker) = self.auditor.take().ok_or("the auditor did not come back")?;
        let outcome = self.sim.block_on(node, LIMIT_NS, |_| async move {
            let outcome = flow(&mut worker).await;
            (worker, outcome)
        });
        let (worker, outcome) = outcome.map_err(|stuck| stuck.to_string())?;
        self.auditor = Some((node, worker));
        outcome
    }

    /// Starts a flow of a client. Its node must be up.
    pub fn begin(&self, node: NodeId, mut worker: Worker, flow: impl AsyncFnOnce(&mut Worker) + 'static) -> Joined<Worker> {
        self.sim.spawn_on(node, |_| async move {
            flow(&mut worker).await;
            worker
        })
    }

    /// From now on datafiles that belong to no file are removed, as long as the result says `true`.
    pub fn begin_repairs(&self) -> Rc<Cell<bool>> {
        let goes_on = Rc::new(Cell::new(true));
        if let Some((node, auditor)) = &self.auditor {
            let (client, flag) = (auditor.client.clone(), Rc::clone(&goes_on));
            drop(self.sim.spawn_on(*node, |_| async move {
                while flag.get() {
                    // Servers are away now and then.
                    let _ = audit::repair(&client).await;
                    client.rt().sleep_until(client.rt().now() + REPAIR_NS).await;
                }
            }));
        }
        goes_on
    }

    /// Waits until flows are over, or their nodes dead.
    ///
    /// # Errors
    /// What everybody waits for, if they do not come to their ends.
    pub fn wait(&self, running: &[Joined<Worker>]) -> Result<(), String> {
        let limit = self.sim.now() + LIMIT_NS;
        let all_over = || running.iter().all(Joined::is_over);
        self.sim.run_until_true(limit, all_over).map_err(|stuck| stuck.to_string())
    }

    /// All faults end; every server comes back.
    ///
    /// # Errors
    /// Servers that ended by themselves, or that do not serve again.
    pub fn recover(&mut self) -> Result<(), String> {
        self.sim.heal();
        self.cluster.restart_all();
        self.sim.run_for(SETTLE_NS);
        self.check_exits()?;
        self.cluster.restart_all();
        self.wait_for_servers()
    }

    /// The final examination: scan, count, remove everything, count again.
    ///
    /// # Errors
    /// What is wrong.
    pub fn examine(&mut self, with_data: bool, tolerance: Tolerance) -> Result<(), String> {
        self.sim.run_for(LATE_NS);
        // A power cut may take a file whose first bytes a data server has kept.
        let may_leave_data = tolerance.lost_between.is_some() && with_data;
        self.asked = self.with_auditor(async move |worker| {
            let scan = audit::scan(worker, with_data).await?;
            audit::no_orphans(&worker.client, &scan, may_leave_data).await?;
            let empty = audit::sweep(&worker.client, &scan).await?;
            audit::no_orphans(&worker.client, &empty, may_leave_data).await?;
            audit::asked(&worker.client).await
        })?;
        self.check_exits()
    }

    /// Lets the sessions of dead clients end.
    pub fn bury_the_dead(&self) {
        self.sim.run_for(GRACE_NS + SECOND);
    }

    fn check_exits(&self) -> Result<(), String> {
        match self.cluster.first_exit() {
            Some(Exit { server, at, why }) => Err(format!("{server} ended at {at:?}: {why}")),
            None => Ok(()),
        }
    }

    /// What the history shows. The second value is true if the search for a linearization was given
    /// up.
    pub fn judge(&self, tolerance: Tolerance) -> (Vec<String>, bool) {
        let history = &self.shared.borrow().history;
        let events = history.events().iter().enumerate();
        let mut problems: Vec<String> = events.filter_map(|(number, event)| wrong_ending(number, event, tolerance)).collect();
        problems.extend(used_twice(history));
        problems.extend(registers::check(history, tolerance.lost_between, &self.cluster.data_starts()).err());
        if tolerance.lost_between.is_none() {
            problems.extend(times::check(history).err());
        }
        let refusals = if tolerance.full_disks { Statuses::of(&[Status::NoSpace]) } else { Statuses::default() };
        let allowances = Allowances { refusals, lost_between: tolerance.lost_between };
        let verdict = linear::check(history, allowances);
        let undecided = matches!(verdict, Verdict::Undecided(_));
        if let Verdict::Violation(text) = verdict {
            problems.push(text);
        }
        (problems, undecided)
    }
}

/// Endings that no history makes right.
fn wrong_ending(number: usize, event: &Event, tolerance: Tolerance) -> Option<String> {
    let Event { action, outcome, .. } = event;
    let (Outcome::Failed(status) | Outcome::Unknown(status)) = outcome else { return None };
    let is_data =
        matches!(action, Action::Close { .. } | Action::Write { .. } | Action::Read { .. } | Action::Fsync { .. } | Action::SyncAll);
    let may_be_lost = tolerance.lost_between.is_some_and(|(from, _)| event.begin > from);
    let wrong = match outcome {
        _ if is_internal(*status) => true,
        Outcome::Unknown(_) => tolerance.calm,
        Outcome::Failed(Status::NoSpace) => !tolerance.full_disks,
        // What is open stays usable.
        Outcome::Failed(_) => is_data && !may_be_lost,
        _ => false,
    };
    wrong.then(|| format!("#{number} {action:?} must not end with {status:?}"))
}

/// A handle names one object for ever, even if the object was lost in a power cut.
fn used_twice(history: &History) -> Option<String> {
    let mut made = BTreeSet::new();
    history.events().iter().enumerate().find_map(|(number, event)| {
        let handle = match (&event.action, &event.outcome) {
            (_, Outcome::Done(Answer::Created(seen, true))) => seen.handle,
            (Action::Mkdir { .. } | Action::Mknod { .. } | Action::Symlink { .. }, Outcome::Done(Answer::Attr(seen))) => seen.handle,
            _ => return None,
        };
        (!made.insert(handle)).then(|| format!("#{number} gives the handle {handle} a second time"))
    })
}
