//! Waits: what a flow waits for, who is to be woken, and the outcome until the flow takes it.

mod wait;

pub(crate) use wait::Wait;

use std::task::Waker;

use weft_base::Status;
use weft_rt::DiskError;
use weft_wire::Frame;

use crate::disk::DiskValue;
use crate::ids::{SlotId, TaskId};

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Sleep,
    Cpu,
    Request { connection: u32, sequence: u64, op: u16 },
    Disk { operation: &'static str },
}

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    Reply(Result<Frame, Status>),
    Disk(Result<DiskValue, DiskError>),
}

/// One wait.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) reason: Option<Reason>,
    pub(crate) task: TaskId,
    /// The queue holds a timer for it.
    pub(crate) has_timer: bool,
    /// When the card began to send the request; 0: it did not.
    pub(crate) sent_at: u64,
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

/// All waits.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    /// A new wait of `task`.
    pub(crate) fn add(&mut self, task: TaskId, reason: Reason) -> SlotId {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.reason = Some(reason);
            slot.task = task;
            slot.sent_at = 0;
            return SlotId { index, generation: slot.generation };
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, reason: Some(reason), task, has_timer: false, sent_at: 0, outcome: None, waker: None });
        SlotId { index, generation: 0 }
    }

    /// The wait, unless it is over.
    pub(crate) fn get(&mut self, id: SlotId) -> Option<&mut Slot> {
        self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)
    }

    pub(crate) fn is_live(&self, id: SlotId) -> bool {
        self.slots.get(id.index as usize).is_some_and(|slot| slot.generation == id.generation)
    }

    /// Sets the outcome and gives the waker of who waits. Without effect if the wait is over or has
    /// an outcome.
    pub(crate) fn finish(&mut self, id: SlotId, outcome: Outcome) -> Option<Waker> {
        let slot = self.get(id)?;
        if slot.outcome.is_some() {
            return None;
        }
        slot.outcome = Some(outcome);
        slot.waker.take()
    }

    /// All waits without an outcome, for reports.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.reason.is_some() && slot.outcome.is_none())
    }

    /// Ends a wait; what it held is given back so that it is dropped where nothing is borrowed.
    pub(crate) fn remove(&mut self, id: SlotId) -> Option<Removed> {
        let slot = self.get(id)?;
        slot.generation = slot.generation.wrapping_add(1);
        let removed = Removed {
            reason: slot.reason.take(),
            had_timer: std::mem::take(&mut slot.has_timer),
            outcome: slot.outcome.take(),
            sent_at: slot.sent_at,
            _waker: slot.waker.take(),
        };
        self.free.push(id.index);
        Some(removed)
    }
}

/// What is left of a wait.
pub(crate) struct Removed {
    pub(crate) reason: Option<Reason>,
    pub(crate) had_timer: bool,
    pub(crate) outcome: Option<Outcome>,
    sent_at: u64,
    _waker: Option<Waker>,
}
