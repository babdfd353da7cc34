//! One seed from its plan to its verdict.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use weft_base::{MILLISECOND, Nanos, ROOT_HANDLE, SECOND};
use weft_rt_sim::{FaultPlan, Joined, NodeId};
use weft_wire::Op;

use crate::audit;
use crate::cluster::BATCH_NS;
use crate::history::{Action, Answer, Name, Outcome};
use crate::plan::{FaultProfile, OperationMix, Plan};
use crate::stage::{Stage, Tolerance};
use crate::workload::{Choices, SETTLE_NS, Worker};

/// Kept lines of the trace when somebody wants to see it.
const TRACE_LINES: usize = 3000;

/// How long what was told under a lease may be believed without another word, in nanoseconds.
const LEASE_TERM_NS: u64 = 5 * SECOND;

/// How long clients keep what they write to files that they have open, in nanoseconds.
const DELAYED_NS: u64 = 10 * SECOND;

/// What a run has shown.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What its clients do most.
    pub mix: OperationMix,
    /// What it stands for.
    pub fault_profile: FaultProfile,
    /// Servers have joined meanwhile.
    pub grows: bool,
    /// Clients have kept what they were told under leases.
    pub leases: bool,
    /// The names of directories were spread over servers.
    pub splits: bool,
    /// Whole contents were put under names.
    pub puts: bool,
    /// Small files lie beside their inodes.
    pub inline: bool,
    /// Datafiles that belong to no file were removed all the time.
    pub repairs: bool,
    /// Operations of the clients.
    pub operations: usize,
    /// What servers were asked in their last lives; empty if something is wrong.
    pub asked: BTreeSet<Op>,
    /// Operations without an answer.
    pub unanswered: usize,
    /// The search for a linearization was given up.
    pub undecided: bool,
    /// What is wrong; empty if nothing is.
    pub problems: Vec<String>,
    /// Hash over everything that happened.
    pub trace_hash: u64,
    /// Virtual time at the end.
    pub ended_at: Nanos,
    /// Plan, history and trace for people; filled if something is wrong or the run was verbose.
    pub story: String,
}

impl Report {
    /// True if nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.problems.is_empty()
    }

    /// The command that repeats this run.
    pub fn command(&self) -> String {
        let kind = if self.mix == OperationMix::Renames { " --renames" } else { "" };
        let kind = if self.grows { " --growing" } else { kind };
        let kind = if self.leases { " --leases" } else { kind };
        let kind = if self.splits { " --split" } else { kind };
        let kind = if self.puts { " --puts" } else { kind };
        let inline = if self.inline { " --inline" } else { "" };
        let repairs = if self.repairs { " --repairs" } else { "" };
        format!("cargo xtask sim{kind}{inline}{repairs} --seeds {}..{} --verbose", self.seed, self.seed + 1)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.story)?;
        for problem in &self.problems {
            writeln!(f, "seed {} ({:?}): {problem}", self.seed, self.fault_profile)?;
        }
        if !self.is_good() {
            writeln!(f, "again: {}", self.command())?;
        }
        Ok(())
    }
}

/// Runs one seed. `operations`: length of the history; `None` leaves it to the seed. `verbose`
/// keeps the story in any case, and with it the last lines of the simulator's trace.
pub fn run_seed(seed: u64, operations: Option<usize>, verbose: bool) -> Report {
    run_plan(&Plan::new(seed, operations), verbose)
}

/// Runs a plan.
pub fn run_plan(plan: &Plan, verbose: bool) -> Report {
    let mut run = Run::new(plan, verbose);
    let mut problems: Vec<String> = run.go().err().into_iter().collect();
    let (wrong, undecided) = run.stage.judge(run.tolerance);
    problems.extend(wrong);
    let history = &run.stage.shared.borrow().history;
    let mut story = String::new();
    if verbose || !problems.is_empty() {
        let _ = writeln!(story, "{plan:#?}\n{:#?}\n{history}", run.faults);
        for line in run.stage.sim.trace() {
            let _ = writeln!(story, "  | {line}");
        }
    }
    let events = history.events();
    Report {
        seed: plan.seed,
        mix: plan.mix,
        fault_profile: plan.fault_profile,
        grows: !plan.joins.is_empty(),
        leases: plan.leases,
        splits: plan.presplit.is_some() || plan.moves,
        puts: plan.puts,
        inline: plan.cluster.inline_limit > 0,
        repairs: plan.repairs,
        operations: events.iter().filter(|event| event.client != 0).count(),
        unanswered: events.iter().filter(|event| event.end == u64::MAX).count(),
        asked: run.stage.asked.clone(),
        undecided,
        problems,
        trace_hash: run.stage.sim.trace_hash(),
        ended_at: run.stage.sim.now(),
        story,
    }
}

struct Run<'a> {
    plan: &'a Plan,
    stage: Stage,
    /// `None` for a worker whose node has died.
    clients: Vec<(NodeId, Option<Worker>)>,
    /// Their numbers in the history.
    numbers: Vec<usize>,
    faults: Vec<FaultPlan>,
    /// When the last fault strikes, in virtual time.
    last_fault: u64,
    tolerance: Tolerance,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, verbose: bool) -> Run<'a> {
        let mut stage = Stage::new(plan.seed, &plan.cluster_at_start(), if verbose { TRACE_LINES } else { 0 });
        let add = |number| {
            let (node, worker) = stage.add_worker(&format!("client{number}"), plan.deadline_ns);
            if plan.leases && number % 3 != 0 {
                stage.cluster.keep_leases(node, &worker.client);
            }
            (node, Some(worker))
        };
        let clients: Vec<(NodeId, Option<Worker>)> = (1..=plan.clients).map(add).collect();
        let numbers = clients.iter().filter_map(|(_, worker)| worker.as_ref()).map(|worker| worker.number).collect();
        stage.shared.borrow_mut().history.delays = plan.keeps_small_files() && plan.leases;
        let tolerance = Tolerance {
            full_disks: plan.fault_profile == FaultProfile::FullDisks,
            calm: plan.fault_profile == FaultProfile::Calm,
            lost_between: None,
        };
        Run { plan, stage, clients, numbers, faults: Vec::new(), last_fault: 0, tolerance }
    }

    fn go(&mut self) -> Result<(), String> {
        self.set_up()?;
        self.stage.cluster.grow(&self.plan.joins);
        self.last_fault = self.stage.sim.now().0 + self.plan.joins.iter().max().unwrap_or(&0);
        let per_client = self.plan.operations.div_ceil(self.plan.clients);
        if self.plan.fault_profile == FaultProfile::PowerBatch {
            // The history up to here must survive; what is done while power is cut may be lost;
            // afterwards all is well again.
            self.work(per_client / 2)?;
            self.make_safe()?;
            let from = self.stage.shared.borrow().history.now();
            // What follows may be lost even if the run ends here.
            self.tolerance.lost_between = Some((from, u64::MAX));
            self.plan_faults();
            self.work((per_client / 4).clamp(1, 5))?;
            self.recover()?;
            if self.plan.leases {
                // A client may believe so long what the cut has taken (`docs/semantics.md`).
                self.stage.sim.run_for(LEASE_TERM_NS);
            }
            self.tolerance.lost_between = Some((from, self.stage.shared.borrow().history.now() + 1));
            self.work(per_client / 4)?;
        } else {
            self.plan_faults();
            self.work(per_client)?;
            self.recover()?;
        }
        self.for_all_clients(async |worker| worker.close_all().await)?;
        // A client does not know of an open whose answer never came; the server forgets it with the
        // client.
        if self.has_unknown_opens() {
            self.clients.iter().for_each(|(node, _)| self.stage.sim.crash(*node));
        }
        let is_dead = |(node, worker): &(NodeId, Option<Worker>)| worker.is_none() || !self.stage.sim.is_running(*node);
        let dead: Vec<usize> =
            self.clients.iter().zip(&self.numbers).filter(|(client, _)| is_dead(client)).map(|(_, number)| *number).collect();
        if !dead.is_empty() {
            self.stage.bury_the_dead();
        }
        if self.plan.keeps_small_files() {
            dead.iter().for_each(|client| self.stage.shared.borrow_mut().history.loses_all_open(*client));
        }
        self.stage.examine(self.plan.with_data, self.tolerance)
    }

    /// Servers up, first directories made and safe.
    fn set_up(&mut self) -> Result<(), String> {
        let dirs = self.plan.dirs;
        let contract = self.plan.sets_contract().then_some(self.plan.cluster.contract);
        // Files of the first directory have strips in every fourth seed with data.
        let strips = (self.plan.with_data && self.plan.seed.is_multiple_of(4)).then(|| self.plan.cluster.strips());
        let presplit = self.plan.presplit;
        self.stage.shared.borrow_mut().history.splits = presplit.is_some() || self.plan.moves;
        self.stage.wait_for_servers()?;
        self.stage.with_auditor(async move |worker| {
            if let Some(presplit) = presplit {
                worker.give_presplit(presplit).await.map_err(|status| format!("the hint: {status}"))?;
            }
            if let Some(contract) = contract {
                worker.set_contract(contract).await.map_err(|status| format!("the contract: {status}"))?;
            }
            for name in 0..dirs {
                let made = worker.act(Action::Mkdir { dir: ROOT_HANDLE, name: Name(name) }).await;
                let Outcome::Done(Answer::Attr(seen)) = made else { return Err(format!("the first mkdir: {made:?}")) };
                if let (0, Some(strips)) = (name, &strips) {
                    worker.give_strips(seen.handle, strips).await.map_err(|status| format!("the hints: {status}"))?;
                }
            }
            Ok(())
        })?;
        self.stage.sim.run_for(2 * BATCH_NS);
        for (server, point, ns) in &self.plan.delays {
            self.stage.sim.delay(self.stage.cluster.servers()[*server], *point, *ns);
        }
        Ok(())
    }

    fn plan_faults(&mut self) {
        let clients: Vec<NodeId> = self.clients.iter().map(|(node, _)| *node).collect();
        let faults = FaultPlan::draw(&self.plan.faults, self.stage.cluster.servers(), &clients, &mut self.stage.random);
        self.stage.sim.schedule(&faults);
        let last = faults.faults.iter().map(|(at, _)| at.0).max().unwrap_or(0);
        self.last_fault = self.last_fault.max(self.stage.sim.now().0 + last);
        self.faults.push(faults);
    }

    /// All clients work.
    fn work(&mut self, operations: usize) -> Result<(), String> {
        let Plan { mix, names, dirs, with_data, follow, moves, puts, .. } = *self.plan;
        let choices = Choices { mix, names, dirs: usize::from(dirs) + 1, with_data, follow, moves, puts };
        let pause = self.plan.pause_max_ns;
        let repairs = self.plan.repairs.then(|| self.stage.begin_repairs());
        let outcome = self.for_all_clients(async move |worker| worker.work(operations, choices, pause).await);
        if let Some(goes_on) = repairs {
            goes_on.set(false);
        }
        outcome
    }

    /// What was acknowledged is made safe from power cuts: by waiting for the batch interval, or by
    /// saying so.
    fn make_safe(&mut self) -> Result<(), String> {
        if self.plan.with_data || self.stage.random.coin() {
            let delays = self.stage.shared.borrow().history.delays;
            self.stage.sim.run_for(BATCH_NS + 10 * MILLISECOND + if delays { DELAYED_NS } else { 0 });
            return Ok(());
        }
        self.stage.with_auditor(async |worker| match worker.act(Action::SyncAll).await {
            Outcome::Done(_) => Ok(()),
            other => Err(format!("sync: {other:?}")),
        })
    }

    fn has_unknown_opens(&self) -> bool {
        let shared = self.stage.shared.borrow();
        let mut unanswered = shared.history.events().iter().filter(|event| event.end == u64::MAX);
        // Reads of many files open those that are read alone; they stand there as look-ups.
        unanswered.any(|event| matches!(event.action, Action::Create { .. } | Action::Open { .. } | Action::LookupHandle { .. }))
    }

    fn recover(&mut self) -> Result<(), String> {
        let all_struck = self.stage.sim.now().0.max(self.last_fault) + SETTLE_NS;
        self.stage.sim.run_until(Nanos(all_struck));
        self.stage.recover()?;
        let epoch = 1 + self.plan.joins.len() as u32;
        self.stage.with_auditor(async move |worker| audit::wait_for_map(&worker.client, epoch).await)
    }

    fn for_all_clients(&mut self, flow: impl AsyncFn(&mut Worker) + Clone + 'static) -> Result<(), String> {
        let mut indexes = Vec::new();
        let mut running: Vec<Joined<Worker>> = Vec::new();
        for (index, (node, worker)) in self.clients.iter_mut().enumerate() {
            if let Some(worker) = worker.take()
                && !worker.is_dead()
            {
                let flow = flow.clone();
                running.push(self.stage.begin(*node, worker, async move |worker: &mut Worker| flow(worker).await));
                indexes.push(index);
            }
        }
        self.stage.wait(&running)?;
        for (index, joined) in indexes.into_iter().zip(running) {
            self.clients[index].1 = joined.take();
        }
        Ok(())
    }
}
