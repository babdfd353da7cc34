//! What everything in a simulation is called.

use std::future::Future;
use std::pin::Pin;

/// Names a node of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names a machine that several nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub(crate) u32);

impl MachineId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names a task. The generation tells it from a later one in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl TaskId {
    /// Nobody: what is done from outside all tasks.
    pub(crate) const NONE: TaskId = TaskId { index: u32::MAX, generation: 0 };
}

/// Names a wait. The generation tells a wait from a later one in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

/// A flow as the executor holds it.
pub(crate) type Flow = Pin<Box<dyn Future<Output = ()>>>;
