//! Packets at stations: who is served next, whom flow control holds back, where a packet goes.

use super::{Delivery, Kind, List, NONE, Network, NetworkEvent, NetworkHost, Pace, Packet};
use crate::engine::EventQueue;
use crate::units::transfer_nanos;

impl Network {
    pub(super) fn uploaded<E, H>(&mut self, queue: &mut EventQueue<E>, host: &mut H, index: u32, packet: u32)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
        H: NetworkHost<E>,
    {
        let Packet { message, bytes, .. } = self.packets[packet as usize];
        let state = self.messages[message as usize];
        let ready = state.available - state.cut;
        let next = if ready > 0 { self.cut(message, ready.min(self.config.packet_bytes)) } else { NONE };
        if state.growing {
            host.packet_uploaded(self, queue, message, bytes);
        }
        if next != NONE {
            self.push_waiting(index, next);
        } else if state.cut == state.bytes {
            host.message_uploaded(self, queue, message);
        }
        if self.node_of(state.from) == self.node_of(state.to) {
            self.forward(queue, packet, self.nodes + index, 0);
        } else {
            let next = self.at_switch(self.routes.of_node(self.node_of(state.from)), packet);
            self.forward(queue, packet, next, self.stations[index as usize].latency);
        }
    }

    pub(super) fn first_switch(&self) -> u32 {
        3 * self.nodes
    }

    pub(super) fn first_trunk(&self) -> u32 {
        self.first_switch() + self.routes.switches.bandwidths.len() as u32
    }

    /// The station of a packet that comes to a switch.
    pub(super) fn at_switch(&self, switch: u32, packet: u32) -> u32 {
        match self.routes.switches.bandwidths[switch as usize] {
            Some(_) => self.first_switch() + switch,
            None => self.onward(switch, packet),
        }
    }

    /// Where a packet goes from a switch: to its target's port, or over a link to the next switch.
    pub(super) fn onward(&self, switch: u32, packet: u32) -> u32 {
        let target = self.node_of(self.messages[self.packets[packet as usize].message as usize].to);
        match self.routes.next(switch, self.routes.of_node(target)) {
            None => 2 * self.nodes + target,
            Some(direction) => self.first_trunk() + direction,
        }
    }

    pub(super) fn delivered<E, H>(&mut self, queue: &mut EventQueue<E>, host: &mut H, packet: u32)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
        H: NetworkHost<E>,
    {
        let Packet { message, bytes, last, .. } = self.packets[packet as usize];
        self.packets.free(packet);
        self.delivered_bytes += bytes;
        let state = &mut self.messages[message as usize];
        state.received += bytes;
        let delivery = Delivery { bytes, first: state.received == bytes, last, complete: state.received == state.bytes };
        host.packet_delivered(self, queue, message, delivery);
        if delivery.complete {
            self.delivered_messages += 1;
            self.messages.free(message);
        }
    }

    pub(super) fn forward<E>(&mut self, queue: &mut EventQueue<E>, packet: u32, station: u32, delay: u64)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
    {
        self.packets[packet as usize].station = station;
        queue.push_after(delay, NetworkEvent::Arrive(packet).into());
    }

    /// Starts the next packet that flow control allows, if the station is idle.
    pub(super) fn try_start<E>(&mut self, queue: &mut EventQueue<E>, index: u32)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
    {
        if self.stations[index as usize].serving != NONE {
            return;
        }
        let kind = self.stations[index as usize].kind;
        let (packet, flow, service) = loop {
            let packet = self.pop_waiting(index);
            if packet == NONE {
                return;
            }
            let message = &self.messages[self.packets[packet as usize].message as usize];
            let (from, to) = (message.from, message.to);
            let bytes = self.packets[packet as usize].bytes;
            let (pace, window) = (self.stations[index as usize].pace, self.stations[index as usize].window);
            let (flow, service) = match kind {
                Kind::Upload if self.node_of(from) == self.node_of(to) => (to, self.service(bytes, self.internal[index as usize])),
                Kind::Upload | Kind::Switch | Kind::Trunk => (to, self.service(bytes, pace)),
                Kind::Port => (self.local[to as usize], self.service(bytes, pace)),
                Kind::Download => (self.local[to as usize], 0),
            };
            let state = &mut self.stations[index as usize].flows[flow as usize];
            let held = if kind == Kind::Download { state.closed } else { state.used >= window };
            if !held {
                state.used += service;
                break (packet, flow, service);
            }
            let mut blocked = state.blocked;
            self.push_to(&mut blocked, packet);
            self.stations[index as usize].flows[flow as usize].blocked = blocked;
        };
        self.stations[index as usize].serving = packet;
        let creditor = self.packets[packet as usize].creditor;
        if creditor != NONE {
            self.give_back(queue, creditor, packet);
        }
        if kind == Kind::Download {
            let next = self.pop_blocked(index, flow as usize);
            if next != NONE {
                self.push_waiting(index, next);
            }
        }
        let state = &mut self.packets[packet as usize];
        state.creditor = index;
        state.charge = service;
        queue.push_after(service, NetworkEvent::Done(index).into());
    }

    /// Gives the credit of a packet back to the station before, which may go on with a packet that
    /// it held back.
    pub(super) fn give_back<E>(&mut self, queue: &mut EventQueue<E>, creditor: u32, packet: u32)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
    {
        let Packet { message, charge, .. } = self.packets[packet as usize];
        let target = self.messages[message as usize].to;
        let station = &mut self.stations[creditor as usize];
        let window = station.window;
        let flow = match station.kind {
            Kind::Upload | Kind::Switch | Kind::Trunk => target,
            Kind::Port | Kind::Download => self.local[target as usize],
        };
        let state = &mut station.flows[flow as usize];
        state.used -= charge;
        if state.blocked.head != NONE && state.used < window {
            let held = self.pop_blocked(creditor, flow as usize);
            self.push_waiting(creditor, held);
            self.try_start(queue, creditor);
        }
    }

    fn service(&self, bytes: u64, pace: Pace) -> u64 {
        if bytes == self.config.packet_bytes { pace.full } else { transfer_nanos(bytes, pace.bandwidth) }
    }

    pub(super) fn push_to(&mut self, list: &mut List, packet: u32) {
        self.packets[packet as usize].next = NONE;
        if list.head == NONE {
            list.head = packet;
        } else {
            self.packets[list.tail as usize].next = packet;
        }
        list.tail = packet;
    }

    pub(super) fn push_waiting(&mut self, station: u32, packet: u32) {
        let mut list = self.stations[station as usize].waiting;
        self.push_to(&mut list, packet);
        self.stations[station as usize].waiting = list;
    }

    pub(super) fn pop_waiting(&mut self, station: u32) -> u32 {
        let list = &mut self.stations[station as usize].waiting;
        let packet = list.head;
        if packet != NONE {
            list.head = self.packets[packet as usize].next;
        }
        packet
    }

    pub(super) fn pop_blocked(&mut self, station: u32, flow: usize) -> u32 {
        let list = &mut self.stations[station as usize].flows[flow].blocked;
        let packet = list.head;
        if packet != NONE {
            list.head = self.packets[packet as usize].next;
        }
        packet
    }
}
