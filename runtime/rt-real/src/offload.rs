//! Calls that may take long (a flush of a disk, a connect), made by helper threads while the thread
//! of a server goes on.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};

use crate::locked;

type Job = Box<dyn FnOnce() + Send>;

/// A few helper threads, started when needed. They end when the last clone is dropped and all jobs
/// are done.
#[derive(Clone, Debug)]
pub(crate) struct Offload(Arc<Handle>);

#[derive(Debug)]
struct Handle(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    threads_max: usize,
    /// Jobs that are not finished.
    unfinished: AtomicUsize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offload").field("threads_max", &self.threads_max).field("unfinished", &self.unfinished).finish()
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    closed: bool,
}

/// Where a job leaves its result.
struct Slot<T> {
    result: Option<T>,
    waker: Option<Waker>,
}

impl Offload {
    /// At most so many jobs run at once.
    pub(crate) fn new(threads_max: usize) -> Offload {
        let shared = Shared { queue: Mutex::default(), wake: Condvar::new(), threads_max, unfinished: AtomicUsize::new(0) };
        Offload(Arc::new(Handle(Arc::new(shared))))
    }

    /// Jobs that are not finished.
    pub(crate) fn unfinished(&self) -> usize {
        self.0.0.unfinished.load(Ordering::Acquire)
    }

    /// Starts the job now; the future waits for its result. Dropping the future does not stop the
    /// job.
    pub(crate) fn run<T: Send + 'static, J: FnOnce() -> T + Send + 'static>(&self, job: J) -> impl Future<Output = T> + use<T, J> {
        let slot = Arc::new(Mutex::new(Slot { result: None, waker: None }));
        let shared = self.0.0.clone();
        let theirs = slot.clone();
        shared.unfinished.fetch_add(1, Ordering::AcqRel);
        let finished = shared.clone();
        self.submit(Box::new(move || {
            let result = job();
            // Counted down before the wake-up: whoever is woken by the last job sees none.
            finished.unfinished.fetch_sub(1, Ordering::AcqRel);
            let waker = {
                let mut slot = locked(&theirs);
                slot.result = Some(result);
                slot.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }));
        poll_fn(move |context| {
            let mut slot = locked(&slot);
            match slot.result.take() {
                Some(result) => Poll::Ready(result),
                None => {
                    slot.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
    }

    fn submit(&self, job: Job) {
        let shared = &self.0.0;
        let start = {
            let mut queue = locked(&shared.queue);
            queue.jobs.push_back(job);
            let start = queue.idle < queue.jobs.len() && queue.threads < shared.threads_max;
            queue.threads += usize::from(start);
            start
        };
        shared.wake.notify_one();
        if start {
            let theirs = shared.clone();
            let started = std::thread::Builder::new().name("weft-helper".into()).spawn(move || work(&theirs));
            if started.is_err() {
                // No thread to be had: do the work here, late but done.
                locked(&shared.queue).threads -= 1;
                run_queued(shared);
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        locked(&self.0.queue).closed = true;
        self.0.wake.notify_all();
    }
}

fn run_queued(shared: &Shared) {
    loop {
        let Some(job) = locked(&shared.queue).jobs.pop_front() else { return };
        job();
    }
}

fn work(shared: &Shared) {
    let mut queue = locked(&shared.queue);
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            drop(queue);
            job();
            queue = locked(&shared.queue);
        } else if queue.closed {
            return;
        } else {
            queue.idle += 1;
            queue = shared.wake.wait(queue).expect("no code panics while it holds this lock");
            queue.idle -= 1;
        }
    }
}
