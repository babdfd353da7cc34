//! Packets at stations: who is served next, whom flow control holds back, where a packet goes.

use super::{Delivery, Kind, List, NONE, Network, NetworkEvent, NetworkHost, Packet, Speed, bandwidths};
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
            self.forward(queue, packet, self.config.nodes + index, 0);
        } else {
            let switch = self.first_switch() + self.config.topology.rack(self.node_of(state.from));
            self.forward(queue, packet, switch, self.latency);
        }
    }

    pub(super) fn first_switch(&self) -> u32 {
        3 * self.config.nodes
    }

    pub(super) fn rack_of_target(&self, packet: u32) -> u32 {
        let target = self.messages[self.packets[packet as usize].message as usize].to;
        self.config.topology.rack(self.node_of(target))
    }

    /// Where a packet goes from a switch: to its target's port, or up to the core if that is in
    /// another rack.
    pub(super) fn after_switch(&self, switch: u32, packet: u32) -> u32 {
        let target = self.messages[self.packets[packet as usize].message as usize].to;
        if switch - self.first_switch() == self.rack_of_target(packet) {
            2 * self.config.nodes + self.node_of(target)
        } else {
            switch + self.racks
        }
    }

    pub(super) fn delivered<E, H>(&mut self, queue: &mut EventQueue<E>, host: &mut H, packet: u32)
    where
        E: Copy + PartialEq + From<NetworkEvent>,
        H: NetworkHost<E>,
    {
        let Packet { message, bytes, last, .. } = self.packets[packet as usize];
        self.free_packets.push(packet);
        self.delivered_bytes += bytes;
        let state = &mut self.messages[message as usize];
        state.received += bytes;
        let delivery = Delivery { bytes, first: state.received == bytes, last, complete: state.received == state.bytes };
        host.packet_delivered(self, queue, message, delivery);
        if delivery.complete {
            self.free_messages.push(message);
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
            let (flow, window, service) = match kind {
                Kind::Upload if self.node_of(from) == self.node_of(to) => (to, self.link_window, self.service(bytes, Speed::Internal)),
                Kind::Upload => (to, self.link_window, self.service(bytes, Speed::Link)),
                Kind::Switch => (to, self.switch_window, self.service(bytes, Speed::Switch)),
                Kind::Ascent | Kind::Descent => (to, self.uplink_window, self.service(bytes, Speed::Uplink)),
                Kind::Port => (self.local[to as usize], self.link_window, self.service(bytes, Speed::Link)),
                Kind::Download => (self.local[to as usize], 0, 0),
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
        let (flow, window) = match station.kind {
            Kind::Upload => (target, self.link_window),
            Kind::Switch => (target, self.switch_window),
            Kind::Ascent | Kind::Descent => (target, self.uplink_window),
            Kind::Port | Kind::Download => (self.local[target as usize], self.link_window),
        };
        let state = &mut station.flows[flow as usize];
        state.used -= charge;
        if state.blocked.head != NONE && state.used < window {
            let held = self.pop_blocked(creditor, flow as usize);
            self.push_waiting(creditor, held);
            self.try_start(queue, creditor);
        }
    }

    pub(super) fn service(&self, bytes: u64, speed: Speed) -> u64 {
        if bytes == self.config.packet_bytes {
            return self.full[speed as usize];
        }
        transfer_nanos(bytes, bandwidths(&self.config)[speed as usize])
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
