//! How each fault strikes.

use weft_base::SECOND;

use super::{FOREVER, Fault};
use crate::ids::NodeId;
use crate::node::Slowness;
use crate::queue::Event;
use crate::world::State;

impl State {
    /// A fault strikes now.
    pub(crate) fn strike(&mut self, fault: &Fault) {
        self.trace.mix(11 << 56 | self.clock.now);
        if self.trace.is_on() {
            self.trace.line(self.clock.now, format_args!("FAULT {fault:?}"));
        }
        let now = self.clock.now;
        match fault {
            Fault::Crash { node, down_ns } => {
                self.end_process(*node, false);
                self.plan_restart(*node, *down_ns);
            }
            Fault::PowerCut { node, down_ns } => {
                self.end_process(*node, true);
                self.plan_restart(*node, *down_ns);
            }
            Fault::Partition { a, b, ns } => {
                self.cut_link(*a, *b, *ns);
                self.cut_link(*b, *a, *ns);
            }
            Fault::OneWay { from, to, ns } => self.cut_link(*from, *to, *ns),
            Fault::Isolate { node, ns } => {
                for other in 0..self.nodes.len() as u32 {
                    self.cut_link(*node, NodeId(other), *ns);
                    self.cut_link(NodeId(other), *node, *ns);
                }
            }
            Fault::BreakConnections { node } => self.break_all(*node),
            Fault::DiskFull { node, ns } => self.fill_disk(*node, now.saturating_add(*ns)),
            Fault::DiskError { node, kind, count } => self.nodes[node.index()].disk.volume.fail_next(*kind, *count),
            Fault::Slow { node, percent, ns } => {
                let node = &mut self.nodes[node.index()];
                node.slow = Slowness { percent: u64::from((*percent).max(100)), until: now.saturating_add(*ns) };
            }
            Fault::Pause { node, ns } => {
                let until = now.saturating_add(*ns);
                let paused = &mut self.nodes[node.index()].paused_until;
                *paused = (*paused).max(until);
                self.clock.events.plan(until, Event::Resume(*node));
            }
            Fault::Messages { faults, ns } => {
                self.net.message_faults = faults.clone();
                self.net.message_faults_until = now.saturating_add(*ns);
            }
        }
    }

    /// Plans a fault for `at` (nanoseconds of virtual time).
    pub(crate) fn plan_fault(&mut self, at: u64, fault: Fault) {
        self.planned_faults.push(fault);
        self.clock.events.plan(at, Event::Fault(self.planned_faults.len() as u32 - 1));
    }

    /// The main task of a process has come to its end: what it has answered still leaves.
    pub(crate) fn exit(&mut self, node: NodeId) {
        self.send_replies();
        self.note(node, format_args!("exits"));
        self.end_process(node, false);
    }

    /// The process dies, and with `power_cut` its machine.
    fn end_process(&mut self, id: NodeId, power_cut: bool) {
        let node = &mut self.nodes[id.index()];
        node.epoch += 1;
        let was_running = std::mem::replace(&mut node.is_running, false);
        if was_running {
            node.receiver = None;
            node.paused_tasks.clear();
            node.paused_until = 0;
            node.cores.clear();
            node.process.clear();
            let flows = self.clock.tasks.kill(id);
            self.clock.drop_later(flows);
            self.abandon_disk(id);
            self.abandon_connections(id, power_cut);
        }
        let node = &mut self.nodes[id.index()];
        if power_cut && node.has_power {
            node.has_power = false;
            node.boot_id = self.fault_random.draw();
            node.sending.clear();
            node.receiving.clear();
            node.disk.station.clear();
            node.disk.volume.power_cut(&mut self.fault_random);
        }
    }

    fn plan_restart(&mut self, node: NodeId, down_ns: u64) {
        if down_ns != FOREVER {
            let epoch = self.nodes[node.index()].epoch;
            self.clock.events.plan(self.clock.now.saturating_add(down_ns), Event::Restart { node, epoch });
        }
    }

    pub(crate) fn restart_planned(&mut self, node: NodeId, epoch: u32) {
        let state = &self.nodes[node.index()];
        if state.epoch == epoch && !state.is_running {
            self.starts.push(node);
        }
    }

    fn cut_link(&mut self, from: NodeId, to: NodeId, ns: u64) {
        if from == to {
            return;
        }
        let until = self.clock.now.saturating_add(ns);
        let known = self.net.cut_links.entry((from, to)).or_insert(until);
        *known = (*known).max(until);
        // A system gives up a connection that is silent for long: the longer, the likelier.
        for id in self.nodes[from.index()].connections.clone() {
            if self.joins(id, from, to) && ns > 0 && self.fault_random.below(2 * SECOND) < ns {
                self.break_connection(id);
            }
        }
    }

    fn fill_disk(&mut self, id: NodeId, until: u64) {
        let node = &mut self.nodes[id.index()];
        node.disk_full_until = node.disk_full_until.max(until);
        node.disk.volume.is_full = true;
        if until != u64::MAX {
            self.clock.events.plan(until, Event::SpaceBack(id));
        }
    }

    /// What had filled the disk may be gone.
    pub(crate) fn space_back(&mut self, node: NodeId) {
        let node = &mut self.nodes[node.index()];
        node.disk.volume.is_full = self.clock.now < node.disk_full_until;
    }
}
