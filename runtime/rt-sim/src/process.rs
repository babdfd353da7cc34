//! What a process and a machine that processes share are, in a simulation that models them; what
//! happens to them is in `wakes.rs`.

use std::collections::VecDeque;

use weft_base::ServerId;
use weft_wire::Frame;

use crate::ids::{MachineId, SlotId};
use crate::models::{Cores, Station};

/// What the nodes of one machine share.
pub(crate) struct Machine {
    pub(crate) cores: Cores,
    pub(crate) disk: Station,
}

impl Machine {
    pub(crate) fn new(cores: usize) -> Machine {
        Machine { cores: Cores::new(cores), disk: Station::default() }
    }

    pub(crate) fn busy(&self) -> (u64, u64) {
        (self.cores.busy_ns(), self.disk.busy_ns())
    }
}

/// The process of a node, as the model of processes sees it.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) is_client: bool,
    /// The machine that it shares with others; `None`: its node is one.
    pub(crate) machine: Option<MachineId>,
    /// The end of its last work on a core: after it, the process sleeps.
    pub(crate) busy_until: u64,
    /// The next receive follows sleep.
    pub(crate) slept: bool,
    pub(crate) look_is_planned: bool,
    /// It is among the clients that may send and receive at the end of this moment.
    pub(crate) has_turn: bool,
    /// Whether a core was idle when a process of the same machine sent what wakes this one.
    pub(crate) found_idle_core: Option<bool>,
    /// Requests that leave when the client has done what it can do, with their connections.
    pub(crate) outbox: Vec<(u32, SlotId, Frame)>,
    /// Replies at the sockets of a client.
    pub(crate) inbox: Vec<(SlotId, Frame)>,
    /// Replies that a client is receiving, receive by receive.
    pub(crate) taking: VecDeque<Vec<(SlotId, Frame)>>,
}

impl Process {
    pub(crate) fn of(server: Option<ServerId>, machine: Option<MachineId>) -> Process {
        Process { is_client: server.is_none(), machine, ..Process::default() }
    }

    /// Forgets everything, as a process does that dies.
    pub(crate) fn clear(&mut self) {
        let Process { is_client, machine, look_is_planned, has_turn, .. } = *self;
        *self = Process { is_client, machine, look_is_planned, has_turn, ..Process::default() };
    }
}
