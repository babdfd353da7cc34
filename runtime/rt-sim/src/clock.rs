//! The clock of a simulation: the moment, what is planned, who waits, and the tasks that go on when
//! it does.

use std::task::Waker;

use crate::executor::Tasks;
use crate::ids::{Flow, SlotId, TaskId};
use crate::queue::{Event, EventQueue};
use crate::slots::{Outcome, Reason, Removed, Slots};

/// Time and everything that waits for it.
pub(crate) struct Clock {
    /// Nanoseconds since the start.
    pub(crate) now: u64,
    pub(crate) events: EventQueue,
    pub(crate) slots: Slots,
    pub(crate) tasks: Tasks,
    pub(crate) current_task: TaskId,
    /// Who is to be woken, and what is to be dropped, as soon as nothing is borrowed.
    pub(crate) to_wake: Vec<Waker>,
    pub(crate) to_drop: Vec<Flow>,
}

impl Default for Clock {
    fn default() -> Clock {
        let (events, slots, tasks) = Default::default();
        Clock { now: 0, events, slots, tasks, current_task: TaskId::NONE, to_wake: Vec::new(), to_drop: Vec::new() }
    }
}

impl Clock {
    /// The time of the next event that is not dead.
    pub(crate) fn next_moment(&mut self) -> Option<u64> {
        while let Some(event) = self.events.peek() {
            match event {
                Event::Timer(slot) if !self.slots.is_live(slot) => {
                    self.events.pop();
                    self.events.uncount_dead();
                }
                _ => return self.events.next_at(),
            }
        }
        None
    }

    /// The running task waits from now on.
    pub(crate) fn begin_wait(&mut self, reason: Reason) -> SlotId {
        self.slots.add(self.current_task, reason)
    }

    pub(crate) fn plan_timer(&mut self, slot: SlotId, at: u64) {
        if at == u64::MAX {
            return;
        }
        self.slots.get(slot).expect("the caller has just made it").has_timer = true;
        self.events.plan(at, Event::Timer(slot));
    }

    /// Gives a wait its outcome and wakes its task.
    pub(crate) fn finish_wait(&mut self, slot: SlotId, outcome: Outcome) {
        if let Some(waker) = self.slots.finish(slot, outcome) {
            self.to_wake.push(waker);
        }
    }

    /// The future of a wait has its outcome or is dropped.
    pub(crate) fn end_wait(&mut self, slot: SlotId) -> Option<Removed> {
        let removed = self.slots.remove(slot)?;
        if removed.had_timer && self.events.count_dead() {
            let slots = &self.slots;
            self.events.sweep(|event| matches!(event, Event::Timer(slot) if !slots.is_live(slot)));
        }
        Some(removed)
    }

    pub(crate) fn wake_later(&mut self, waker: Option<Waker>) {
        self.to_wake.extend(waker);
    }

    pub(crate) fn drop_later(&mut self, flows: Vec<Flow>) {
        self.to_drop.extend(flows);
    }
}
