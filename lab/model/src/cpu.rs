//! Processors. A node has some processors of equal speed; jobs are instructions to execute. As many
//! jobs as processors run at full speed, more of them share the processors equally (processor
//! sharing; thesis section 4.3).
//!
//! Every step of every MPI command costs a job here, so the common case, one job on the node, is
//! kept short.

use crate::engine::{EventQueue, TieOrder};
use crate::network::{NodeId, ProcessId};
use crate::units::nanos;

/// The processors of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuModel {
    /// Processors.
    pub cpus: u32,
    /// Instructions that each executes in a second.
    pub instructions_per_second: u64,
}

impl CpuModel {
    /// Instructions that a step costs in which a command only decides what to send: those of a
    /// nanosecond, at least one.
    pub fn step_instructions(&self) -> u64 {
        ((self.instructions_per_second as f64 * 1e-9) as u64).max(1)
    }
}

/// The timer of a node's processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuEvent(pub NodeId);

struct Job {
    process: ProcessId,
    left: u64,
}

#[derive(Default)]
struct Node {
    jobs: Vec<Job>,
    last_change: u64,
    /// When the timer is due; timers at other times are leftovers of a plan that changed.
    timer: Option<u64>,
}

/// The processors of all nodes.
pub struct Cpus {
    models: Vec<CpuModel>,
    nodes: Vec<Node>,
    busy_nanos: u64,
}

impl Cpus {
    /// Processors of nodes 0, 1, ...
    pub fn new(models: Vec<CpuModel>) -> Cpus {
        let nodes = models.iter().map(|_| Node::default()).collect();
        Cpus { models, nodes, busy_nanos: 0 }
    }

    /// The model of a node.
    pub fn model(&self, node: NodeId) -> CpuModel {
        self.models[node as usize]
    }

    /// Time in which nodes had at least one job, summed over nodes, nanoseconds.
    pub fn busy_nanos(&self) -> u64 {
        self.busy_nanos
    }

    /// Starts a job of `instructions` (at least 1) for a process.
    pub fn start<E: Copy + PartialEq + From<CpuEvent>>(
        &mut self,
        queue: &mut EventQueue<E>,
        node: NodeId,
        process: ProcessId,
        instructions: u64,
    ) {
        self.progress(queue.now(), node);
        self.nodes[node as usize].jobs.push(Job { process, left: instructions.max(1) });
        self.set_timer(queue, node);
    }

    /// To be called with the timer's event: takes out the job that is done. The owner then lets the
    /// process go on and calls [`Cpus::rearm`]. `None`: the timer was a leftover.
    pub fn finish<E: Copy + PartialEq + From<CpuEvent>>(&mut self, queue: &mut EventQueue<E>, event: CpuEvent) -> Option<ProcessId> {
        let now = queue.now();
        if self.nodes[event.0 as usize].timer != Some(now) {
            return None;
        }
        self.progress(now, event.0);
        let node = &mut self.nodes[event.0 as usize];
        node.timer = None;
        // Several jobs may end at once: the next one has its own timer at the same time.
        let first = (0..node.jobs.len()).min_by_key(|&index| node.jobs[index].left)?;
        let job = node.jobs.remove(first);
        if !node.jobs.is_empty() {
            self.set_timer(queue, event.0);
        }
        Some(job.process)
    }

    /// In the thesis order: after the process of a finished job went on, the node takes its
    /// (possibly new) timer out of the event list and puts it in again. That changes the order of
    /// ties and nothing else.
    pub fn rearm<E: Copy + PartialEq + From<CpuEvent>>(&mut self, queue: &mut EventQueue<E>, node: NodeId) {
        if queue.order() == TieOrder::Thesis
            && let Some(at) = self.nodes[node as usize].timer
        {
            queue.reinsert(at, CpuEvent(node).into());
        }
    }

    fn rate(&self, node: NodeId) -> u64 {
        let model = &self.models[node as usize];
        let jobs = self.nodes[node as usize].jobs.len() as u64;
        if jobs <= u64::from(model.cpus) {
            model.instructions_per_second
        } else {
            (model.instructions_per_second * u64::from(model.cpus) / jobs).max(1)
        }
    }

    /// Brings the instructions left up to date before the number of jobs changes.
    fn progress(&mut self, now: u64, index: NodeId) {
        let rate = self.rate(index);
        let node = &mut self.nodes[index as usize];
        let elapsed = now - node.last_change;
        node.last_change = now;
        if node.jobs.is_empty() {
            return;
        }
        self.busy_nanos += elapsed;
        if elapsed > 0 {
            let done = (elapsed as f64 / 1e9 * rate as f64) as u64 + 1;
            for job in &mut node.jobs {
                job.left = job.left.saturating_sub(done);
            }
        }
    }

    fn set_timer<E: Copy + PartialEq + From<CpuEvent>>(&mut self, queue: &mut EventQueue<E>, index: NodeId) {
        let rate = self.rate(index);
        let node = &mut self.nodes[index as usize];
        let Some(left) = node.jobs.iter().map(|job| job.left).min() else { return };
        let at = queue.now() + nanos(left as f64 / rate as f64);
        if node.timer != Some(at) {
            node.timer = Some(at);
            queue.push(at, CpuEvent(index).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cpus: u32, jobs: &[(u64, u64)]) -> Vec<(u64, ProcessId)> {
        let mut queue: EventQueue<CpuEvent> = EventQueue::new(TieOrder::Natural);
        let mut model = Cpus::new(vec![CpuModel { cpus, instructions_per_second: 1_000_000 }]);
        let mut ends = Vec::new();
        for (process, &(start, instructions)) in jobs.iter().enumerate() {
            while queue.now() < start {
                // Timers of an idle node move the clock to the start of the next job.
                queue.push(start, CpuEvent(0));
                while queue.now() < start {
                    let Some(event) = queue.pop() else { break };
                    ends.extend(model.finish(&mut queue, event).map(|process| (queue.now(), process)));
                }
            }
            model.start(&mut queue, 0, process as ProcessId, instructions);
        }
        while let Some(event) = queue.pop() {
            ends.extend(model.finish(&mut queue, event).map(|process| (queue.now(), process)));
        }
        ends
    }

    #[test]
    fn one_job_takes_its_instructions() {
        assert_eq!(run(1, &[(0, 1)]), [(1000, 0)]);
        assert_eq!(run(1, &[(0, 5000)]), [(5_000_000, 0)]);
    }

    #[test]
    fn two_jobs_share_one_processor_and_do_not_share_two() {
        // Both at half speed until the first ends at 2 ms; progress is counted in whole
        // instructions, so an error of some remains.
        let ends = run(1, &[(0, 1000), (0, 3000)]);
        assert_eq!(ends[0], (2_000_000, 0));
        assert!(ends[1].0.abs_diff(4_000_000) <= 2_000, "{ends:?}");
        assert_eq!(run(2, &[(0, 1000), (0, 3000)])[0], (1_000_000, 0));
    }

    #[test]
    fn a_job_that_arrives_later_slows_the_running_one_down() {
        let ends = run(1, &[(0, 1000), (500_000, 1000)]);
        // 500 instructions alone, then half speed.
        assert!(ends[0].0.abs_diff(1_500_000) <= 4_000, "{ends:?}");
        assert!(ends[1].0.abs_diff(2_000_000) <= 4_000, "{ends:?}");
    }

    #[test]
    fn a_step_costs_at_least_one_instruction() {
        assert_eq!(CpuModel { cpus: 1, instructions_per_second: 1_000_000 }.step_instructions(), 1);
        assert_eq!(CpuModel { cpus: 1, instructions_per_second: 3_000_000_000 }.step_instructions(), 3);
    }
}
