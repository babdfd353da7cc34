//! Tasks: a slab of flows, a queue of those that are ready, and wakers. Each task belongs to one
//! life of one node.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use crate::ids::{Flow, NodeId, TaskId};

/// Tasks that can go on, in the order in which they were woken. Behind a mutex only because a
/// [`Waker`] must be `Send`.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueue(Mutex<VecDeque<TaskId>>);

impl ReadyQueue {
    pub(crate) fn push(&self, task: TaskId) {
        self.0.lock().expect("no code panics while it holds this lock").push_back(task);
    }

    pub(crate) fn pop(&self) -> Option<TaskId> {
        self.0.lock().expect("no code panics while it holds this lock").pop_front()
    }
}

/// What wakes one task.
#[derive(Debug)]
struct TaskWaker {
    task: TaskId,
    /// It is in the ready queue already.
    queued: AtomicBool,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.push(self.task);
        }
    }
}

/// One place of the slab.
struct Place {
    generation: u32,
    task: Option<Task>,
}

struct Task {
    node: NodeId,
    life: u32,
    is_main: bool,
    /// `None` while it is being polled.
    flow: Option<Flow>,
    wake: Arc<TaskWaker>,
    waker: Waker,
}

/// All tasks of a simulation.
#[derive(Default)]
pub(crate) struct Tasks {
    places: Vec<Place>,
    free: Vec<u32>,
    ready: Arc<ReadyQueue>,
    alive: usize,
}

/// A task that is about to be polled.
pub(crate) struct Taken {
    pub(crate) node: NodeId,
    pub(crate) flow: Flow,
    pub(crate) waker: Waker,
}

/// What became of a task that finished.
pub(crate) struct Finished {
    pub(crate) node: NodeId,
    pub(crate) is_main: bool,
}

impl Tasks {
    pub(crate) fn ready(&self) -> Arc<ReadyQueue> {
        Arc::clone(&self.ready)
    }

    /// Adds a task; it is ready at once. `is_main`: when it ends, its process ends.
    pub(crate) fn add(&mut self, node: NodeId, life: u32, is_main: bool, flow: Flow) -> TaskId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, task: None });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        let id = TaskId { index, generation: place.generation };
        let wake = Arc::new(TaskWaker { task: id, queued: AtomicBool::new(true), ready: Arc::clone(&self.ready) });
        let waker = Waker::from(Arc::clone(&wake));
        place.task = Some(Task { node, life, is_main, flow: Some(flow), wake, waker });
        self.ready.push(id);
        self.alive += 1;
        id
    }

    /// Takes a task out to poll it. `None` if it is gone.
    pub(crate) fn take(&mut self, id: TaskId) -> Option<Taken> {
        let task = self.get(id)?;
        task.wake.queued.store(false, Ordering::Relaxed);
        let flow = task.flow.take()?;
        Some(Taken { node: task.node, flow, waker: task.waker.clone() })
    }

    /// Gives a task back that waits now. If it was killed meanwhile, the flow is returned for
    /// dropping.
    pub(crate) fn put_back(&mut self, id: TaskId, flow: Flow) -> Option<Flow> {
        match self.get(id) {
            Some(task) => {
                task.flow = Some(flow);
                None
            }
            None => Some(flow),
        }
    }

    /// Removes a task that has come to its end. `None` if it was killed meanwhile.
    pub(crate) fn finish(&mut self, id: TaskId) -> Option<Finished> {
        self.get(id)?;
        let task = self.vacate(id.index)?;
        Some(Finished { node: task.node, is_main: task.is_main })
    }

    /// Removes all tasks of a node and gives their flows for dropping.
    pub(crate) fn kill(&mut self, node: NodeId) -> Vec<Flow> {
        let of_node = |place: &Place| place.task.as_ref().is_some_and(|task| task.node == node);
        let doomed: Vec<u32> = (0..self.places.len()).filter(|index| of_node(&self.places[*index])).map(|index| index as u32).collect();
        doomed.into_iter().filter_map(|index| self.vacate(index)?.flow).collect()
    }

    /// Removes all tasks.
    pub(crate) fn kill_all(&mut self) -> Vec<Flow> {
        (0..self.places.len() as u32).filter_map(|index| self.vacate(index)?.flow).collect()
    }

    /// The node of a task and the life it belongs to.
    pub(crate) fn owner(&mut self, id: TaskId) -> Option<(NodeId, u32)> {
        self.get(id).map(|task| (task.node, task.life))
    }

    /// Living tasks as (identity, node, whether it is a main task).
    pub(crate) fn list(&self) -> impl Iterator<Item = (TaskId, NodeId, bool)> {
        self.places.iter().enumerate().filter_map(|(index, place)| {
            let id = TaskId { index: index as u32, generation: place.generation };
            place.task.as_ref().map(|task| (id, task.node, task.is_main))
        })
    }

    /// Number of living tasks.
    pub(crate) fn alive(&self) -> usize {
        self.alive
    }

    fn get(&mut self, id: TaskId) -> Option<&mut Task> {
        self.places.get_mut(id.index as usize).filter(|place| place.generation == id.generation)?.task.as_mut()
    }

    fn vacate(&mut self, index: u32) -> Option<Task> {
        let place = &mut self.places[index as usize];
        let task = place.task.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index);
        self.alive -= 1;
        Some(task)
    }
}
