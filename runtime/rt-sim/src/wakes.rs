//! Processes that share machines, sleep and are woken ([`ProcessProfile`]).
//!
//! A process that has nothing to do sleeps: who sends to it pays for waking it, and it runs a while
//! later, if a core is idle; if none is, it waits for one and needs no wake-up beyond that. A
//! process that works finds what has arrived when it looks at its sockets. A client looks when it
//! has done everything that it can do, and before that its requests leave together, one send for
//! each connection; a server looks when its flow calls `receive`.
//!
//! Without a profile of processes and without shared machines nothing here takes time or plans an
//! event.

use weft_rt::Work;
use weft_wire::Frame;

use crate::ids::{NodeId, SlotId};
use crate::models::{ProcessProfile, transfer_ns};
use crate::net::Parcel;
use crate::queue::Event;
use crate::slots::Outcome;
use crate::world::State;

/// Cores and disks.
impl State {
    /// When declared work that begins now is done; `None` if it costs nothing.
    pub(crate) fn begin_work(&mut self, node: NodeId, work: Work) -> Option<u64> {
        let process = self.profile.process.as_ref();
        let of_client = process.filter(|_| self.nodes[node.index()].process.is_client);
        let cost = match (work, of_client) {
            (Work::ToldRecord, _) => process.map_or(self.profile.cpu.record_ns, |process| process.told_record_ns),
            (Work::Request, Some(process)) => process.client_request_ns,
            (Work::UntoldChange, Some(process)) => process.untold_change_ns,
            (Work::UntoldRemoval, Some(process)) => process.untold_removal_ns,
            (Work::KnownRecord, Some(process)) => process.known_record_ns,
            _ => self.profile.cpu.cost_ns(work),
        };
        (cost > 0).then(|| self.use_core(node, cost))
    }

    /// Occupies a core for `cost` nanoseconds for the process of the node; gives when that ends.
    pub(crate) fn use_core(&mut self, id: NodeId, cost: u64) -> u64 {
        let cost = self.slowed(id, cost);
        let now = self.clock.now;
        let node = &mut self.nodes[id.index()];
        let end = match node.process.machine {
            None => node.cores.serve(now, cost),
            Some(machine) => node.cores.serve_on(&mut self.machines[machine.index()].cores, now, cost),
        };
        node.process.busy_until = node.process.busy_until.max(end);
        end
    }

    /// An access to the disk of the node that comes at `at`; gives when it ends.
    pub(crate) fn serve_disk(&mut self, id: NodeId, at: u64, service: u64) -> u64 {
        let node = &mut self.nodes[id.index()];
        match node.process.machine {
            None => node.disk.station.serve(at, service).1,
            Some(machine) => {
                node.disk.station.count(service);
                self.machines[machine.index()].disk.serve(at, service).1
            }
        }
    }

    /// True if messages between the two pass no card.
    pub(crate) fn is_local(&self, one: NodeId, other: NodeId) -> bool {
        let machine = |node: NodeId| self.nodes[node.index()].process.machine;
        one == other || (machine(one).is_some() && machine(one) == machine(other))
    }

    fn has_idle_core(&self, id: NodeId) -> bool {
        let node = &self.nodes[id.index()];
        let cores = node.process.machine.map_or(&node.cores, |machine| &self.machines[machine.index()].cores);
        cores.is_any_idle(self.clock.now)
    }
}

/// Messages.
impl State {
    /// True if the process has nothing to do and waits for messages.
    fn sleeps(&self, id: NodeId) -> bool {
        let node = &self.nodes[id.index()];
        let process = &node.process;
        let waits = if process.is_client { process.taking.is_empty() } else { node.receiver.is_some() };
        waits && process.busy_until <= self.clock.now
    }

    /// When a message leaves its sender, whose core has to do with it before.
    pub(crate) fn core_of_send(&mut self, from: NodeId, to: NodeId, is_same_send: bool, parcel: &Parcel) -> u64 {
        let (Some(process), Parcel::Frame(frame)) = (&self.profile.process, parcel) else { return self.clock.now };
        let copies = self.nodes[from.index()].process.is_client || !self.is_local(from, to);
        let copy_ns = if copies { transfer_ns(frame.bulk.len(), process.copy_bytes_per_s) } else { 0 };
        let wakes = self.sleeps(to) && !self.nodes[to.index()].process.look_is_planned;
        let send_ns = match is_same_send {
            true => 0,
            false => process.send_ns + if wakes { process.waker_ns } else { 0 },
        };
        let leaves = self.use_core(from, send_ns + copy_ns);
        if wakes && self.is_local(from, to) {
            // The sender is on its core: with a single one, nobody is woken before it sleeps.
            let idle = self.has_idle_core(to);
            self.nodes[to.index()].process.found_idle_core.get_or_insert(idle);
        }
        leaves
    }

    /// A request leaves, or waits until its client has nothing else to do.
    pub(crate) fn send_in_turn(&mut self, connection: u32, slot: SlotId, frame: Frame) {
        let id = self.net.connections[connection as usize].client();
        let process = &mut self.nodes[id.index()].process;
        if self.profile.process.is_none() || !process.is_client {
            return self.send_request(connection, slot, frame);
        }
        process.outbox.push((connection, slot, frame));
        self.take_turn(id);
    }

    /// A reply is at the client's socket.
    pub(crate) fn keep_reply(&mut self, id: NodeId, slot: SlotId, frame: Frame) {
        if !self.nodes[id.index()].process.is_client {
            return self.clock.finish_wait(slot, Outcome::Reply(Ok(frame)));
        }
        self.nodes[id.index()].process.inbox.push((slot, frame));
        self.plan_look(id);
    }

    /// Something has arrived: when does the process look? A server that works looks by itself.
    pub(crate) fn plan_look(&mut self, id: NodeId) {
        let sleeps = self.sleeps(id);
        let found = self.nodes[id.index()].process.found_idle_core.take();
        let wake_ns = match &self.profile.process {
            Some(process) if sleeps && found.unwrap_or_else(|| self.has_idle_core(id)) => process.wake_ns,
            _ => 0,
        };
        let now = self.clock.now;
        let node = &mut self.nodes[id.index()];
        if node.process.look_is_planned || (!node.process.is_client && node.receiver.is_none()) {
            return;
        }
        node.process.look_is_planned = true;
        node.process.slept |= sleeps;
        let at = node.process.busy_until.max(now.saturating_add(wake_ns));
        self.clock.events.plan(at, Event::Look(id));
    }

    /// A process looks at its sockets.
    pub(crate) fn look(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.index()];
        node.process.look_is_planned = false;
        if node.process.is_client {
            self.take_turn(id);
        } else {
            let receiver = node.receiver.take();
            self.clock.wake_later(receiver);
        }
    }

    fn take_turn(&mut self, id: NodeId) {
        if !std::mem::replace(&mut self.nodes[id.index()].process.has_turn, true) {
            self.net.client_turns.push(id);
        }
    }

    /// When a server has received what is there; `None` if that costs nothing.
    pub(crate) fn begin_receive(&mut self, id: NodeId) -> Option<u64> {
        let process = self.profile.process.as_ref()?;
        let slept = std::mem::take(&mut self.nodes[id.index()].process.slept);
        let cost = process.receive_ns + if slept { process.woken_ns } else { 0 };
        let copied: u64 = if process.copy_bytes_per_s == 0 { 0 } else { self.arrived_from_afar(id) };
        let cost = cost + transfer_ns(copied, self.profile.process.as_ref()?.copy_bytes_per_s);
        (cost > 0).then(|| self.use_core(id, cost))
    }

    /// Bulk data at the sockets of a server that came through its card, in bytes.
    fn arrived_from_afar(&self, id: NodeId) -> u64 {
        let afar = |arrival: &weft_rt::Arrival| match arrival {
            weft_rt::Arrival::Request { peer, frame } => {
                let client = self.net.connections.get(peer.0 as usize).map(|connection| connection.client());
                if client.is_some_and(|client| !self.is_local(client, id)) { frame.bulk.len() } else { 0 }
            }
            _ => 0,
        };
        self.nodes[id.index()].arrivals.iter().map(afar).sum()
    }

    /// All flows wait: clients that have done what they can do send, and then receive.
    pub(crate) fn serve_clients(&mut self) {
        if self.net.client_turns.is_empty() {
            return;
        }
        let now = self.clock.now;
        for id in std::mem::take(&mut self.net.client_turns) {
            let process = &mut self.nodes[id.index()].process;
            process.has_turn = false;
            if process.busy_until > now {
                self.plan_look(id);
                continue;
            }
            for (connection, slot, frame) in std::mem::take(&mut self.nodes[id.index()].process.outbox) {
                if self.clock.slots.is_live(slot) {
                    self.send_request(connection, slot, frame);
                }
            }
            self.receive_replies(id);
        }
    }

    /// A client receives what is there, or does so later if it is still sending.
    fn receive_replies(&mut self, id: NodeId) {
        let process = &mut self.nodes[id.index()].process;
        if process.inbox.is_empty() {
            return;
        }
        if process.busy_until > self.clock.now {
            return self.plan_look(id);
        }
        let replies = std::mem::take(&mut process.inbox);
        let slept = std::mem::take(&mut process.slept);
        let Some(ProcessProfile { receive_ns, woken_ns, copy_bytes_per_s, .. }) = self.profile.process else { return };
        let copied = replies.iter().map(|(_, frame)| frame.bulk.len()).sum();
        let cost = receive_ns + if slept { woken_ns } else { 0 } + transfer_ns(copied, copy_bytes_per_s);
        let end = self.use_core(id, cost);
        self.nodes[id.index()].process.taking.push_back(replies);
        self.clock.events.plan(end, Event::Taken(id));
    }

    /// A client has received replies: their flows go on.
    pub(crate) fn taken(&mut self, id: NodeId) {
        for (slot, frame) in self.nodes[id.index()].process.taking.pop_front().unwrap_or_default() {
            self.clock.finish_wait(slot, Outcome::Reply(Ok(frame)));
        }
        if !self.nodes[id.index()].process.inbox.is_empty() {
            self.plan_look(id);
        }
    }
}
