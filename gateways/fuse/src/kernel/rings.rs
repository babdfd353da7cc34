//! The threads that serve requests over io_uring ([`super::ring`]): some for each queue of the
//! kernel, one entry each.
//!
//! A request that finds no free entry waits in its queue until one of the entries there is
//! answered. So when all threads of a queue are busy and some of them wait for servers, more are
//! started, at first one, then as many as wait already. The kernel gives them what waits only with
//! a new request of that queue: a thread that is new there therefore makes the kernel send one that
//! asks for nothing. Threads that are not needed any more sleep: an entry can be given up without
//! the danger of losing a request only with the mount.
//!
//! What asks for nothing is a question for none of the pages of a regular file (`NOTIFY_RETRIEVE`),
//! of one that the kernel knows: one for which somebody waits, or of which it was told lately.
//! Kernels of 2026 refuse the question for directories, so for the root, too.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::time::Duration;

use super::answer::{ServingThread, Way};
use super::dispatch::dispatch;
use super::filesystem::Filesystem;
use super::notify::Notifier;
use super::ring::{self, COMMAND_COMMIT_AND_FETCH, COMMAND_REGISTER, Place, RingAnswer, Spare, View};
use super::session::{KernelSession, STACK_BYTES};
use super::types::{Errno, INodeNo};
use super::uring::{Command, Uring};
use crate::threads::{AT_HAND_MAX, WAITING_SAMPLES};

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Over io_uring if the kernel offers it, else over the device.
    #[default]
    Auto,
    /// Over the device.
    Device,
    /// Over io_uring, or not at all.
    Uring,
}

impl Transport {
    /// True if requests may come over io_uring.
    ///
    /// # Errors
    /// If they must and cannot; why, and what to do.
    pub fn may_use_rings(self) -> io::Result<bool> {
        match (self, ring::check()) {
            (Transport::Device, _) | (Transport::Auto, Err(_)) => Ok(false),
            (Transport::Uring, Err(error)) => Err(error),
            (_, Ok(())) => Ok(true),
        }
    }
}

/// The root of every mount.
const ROOT: INodeNo = INodeNo(1);

/// Threads of a queue at first: one that serves, and one for what comes meanwhile.
const THREADS_AT_FIRST: usize = 2;

/// All threads that serve entries.
#[derive(Debug)]
pub struct Rings {
    /// For each queue, threads that have been started and have no entry yet.
    starting: Vec<AtomicU32>,
    threads: Mutex<Vec<RingThread>>,
    changed: Condvar,
    pokes: AtomicU32,
}

#[derive(Clone, Debug)]
struct RingThread {
    queue: u16,
    place: Arc<Place>,
    service: Arc<ServingThread>,
    /// What the kernel calls the request in service.
    commit: Arc<AtomicU64>,
}

/// How a thread begins.
enum Begin {
    /// With an entry of its own; with `true`, requests wait already.
    New(bool),
    /// With the entry of another thread, whose request it answers.
    TakeOver(RingThread, u64),
}

impl Rings {
    /// For so many queues; no threads yet.
    pub fn new(queues: u16) -> Rings {
        let starting = (0..queues).map(|_| AtomicU32::new(0)).collect();
        Rings { starting, threads: Mutex::default(), changed: Condvar::new(), pokes: AtomicU32::new(0) }
    }

    /// What they serve.
    pub fn services(&self) -> Vec<Arc<ServingThread>> {
        self.locked().iter().map(|thread| thread.service.clone()).collect()
    }

    /// Waits until all have ended; false if some have not in time.
    pub fn wait_for_end(&self, patience: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.locked(), patience, |threads| !threads.is_empty());
        waited.expect("no code panics while it holds this lock").0.is_empty()
    }

    fn locked(&self) -> MutexGuard<'_, Vec<RingThread>> {
        self.threads.lock().expect("no code panics while it holds this lock")
    }

    fn remove(&self, service: &Arc<ServingThread>) {
        self.locked().retain(|thread| !Arc::ptr_eq(&thread.service, service));
        self.changed.notify_all();
    }
}

/// The threads of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QueueLoad {
    threads: usize,
    busy: usize,
    waiting: usize,
}

impl QueueLoad {
    /// How many more it needs; `base`: as many as shall serve while no server keeps them waiting.
    fn lacks(self, base: usize) -> usize {
        match self {
            QueueLoad { threads, busy, .. } if busy < threads => 0,
            QueueLoad { waiting: 0, threads, .. } => usize::from(threads < base),
            QueueLoad { waiting, .. } => waiting.min(AT_HAND_MAX),
        }
    }
}

impl<F: Filesystem> KernelSession<F> {
    /// Starts the first threads of all queues. If a queue gets none, the kernel is told to do
    /// without.
    pub(super) fn start_rings(self: &Arc<Self>) {
        let Some(rings) = &self.rings else { return };
        for queue in 0..rings.starting.len() as u16 {
            let (told, hears) = mpsc::channel();
            for _ in 0..THREADS_AT_FIRST {
                self.start_ring(queue, Begin::New(false), Some(told.clone()));
            }
            drop(told);
            // One entry is enough for the kernel; it sends nothing before all queues have one.
            let outcomes: Vec<io::Result<()>> = hears.iter().collect();
            if let Some(Err(error)) = outcomes.into_iter().reduce(|one, other| if one.is_ok() { one } else { other }) {
                self.filesystem.warn(&format!("no FUSE over io_uring: {error}; requests come over the device"));
                self.give_rings_up();
                return;
            }
        }
    }

    /// A registration that the kernel refuses makes it use the device.
    fn give_rings_up(&self) {
        let refused = Command { code: COMMAND_REGISTER, queue: u16::MAX, commit: 0, pieces: 0 };
        let told = Uring::new().and_then(|mut uring| {
            uring.push(&self.device, &refused);
            uring.enter(true)
        });
        if let Err(error) = told {
            self.filesystem.warn(&format!("the kernel cannot be told to use the device: {error}"));
        }
    }

    /// More threads where all are busy and some wait for servers; gives how many are busy.
    pub(super) fn grow_rings(self: &Arc<Self>) -> usize {
        let Some(rings) = &self.rings else { return 0 };
        let now = self.threads.now();
        // Those on their way count as free: on a busy machine they take longer than a sample, and
        // would be started again and again.
        let starting = |count: &AtomicU32| QueueLoad { threads: count.load(Ordering::Acquire) as usize, ..QueueLoad::default() };
        let mut loads: Vec<QueueLoad> = rings.starting.iter().map(starting).collect();
        for thread in rings.locked().iter() {
            let load = &mut loads[usize::from(thread.queue)];
            load.threads += 1;
            if let Some(began) = thread.service.began() {
                load.busy += 1;
                load.waiting += usize::from(now.wrapping_sub(began) >= WAITING_SAMPLES);
            }
        }
        let mut total: usize = loads.iter().map(|load| load.threads).sum();
        for (queue, load) in loads.iter().enumerate() {
            for _ in 0..load.lacks(self.threads.base()).min(self.threads.max().saturating_sub(total)) {
                self.start_ring(queue as u16, Begin::New(true), None);
                total += 1;
            }
        }
        loads.iter().map(|load| load.busy).sum()
    }

    /// Ends the wait for a request in an entry: another thread answers and has the entry from then
    /// on.
    pub(super) fn take_over(self: &Arc<Self>, service: &Arc<ServingThread>, unique: u64) {
        let Some(rings) = &self.rings else { return };
        let found = rings.locked().iter().find(|thread| Arc::ptr_eq(&thread.service, service)).cloned();
        if let Some(thread) = found {
            self.start_ring(thread.queue, Begin::TakeOver(thread, unique), None);
        }
    }

    fn start_ring(self: &Arc<Self>, queue: u16, begin: Begin, told: Option<mpsc::Sender<io::Result<()>>>) {
        let Some(rings) = &self.rings else { return };
        let session = self.clone();
        let mut of_thread = told.clone();
        rings.starting[usize::from(queue)].fetch_add(1, Ordering::Relaxed);
        let starts = Starting(self.clone(), queue);
        let run = move || {
            if let Err(error) = session.run_ring(starts, begin, &mut of_thread) {
                match of_thread {
                    // Nobody listens any more once all have told.
                    Some(told) => drop(told.send(Err(error))),
                    None => session.filesystem.warn(&format!("a thread for FUSE over io_uring: {error}")),
                }
            }
        };
        let started = std::thread::Builder::new().name("weft-ring".into()).stack_size(STACK_BYTES).spawn(run);
        if let (Err(error), Some(told)) = (started, told) {
            drop(told.send(Err(error)));
        }
    }

    /// The life of a thread.
    fn run_ring(self: &Arc<Self>, starts: Starting<F>, begin: Begin, told: &mut Option<mpsc::Sender<io::Result<()>>>) -> io::Result<()> {
        let Some(rings) = &self.rings else { return Ok(()) };
        let queue = starts.1;
        ring::bind_to(queue);
        let mut uring = Uring::new()?;
        let (place, view, answered) = match begin {
            Begin::New(_) => {
                let (place, view) = Place::new()?;
                (place, view, None)
            }
            Begin::TakeOver(ref thread, unique) => {
                let spare = Spare::new()?;
                if !thread.service.take_over(unique) {
                    return Ok(());
                }
                let commit = thread.commit.load(Ordering::Acquire);
                (thread.place.clone(), thread.place.renew(spare)?, Some((unique, commit)))
            }
        };
        let view = Arc::new(view);
        let service = Arc::new(ServingThread::new(Way::Ring(Mutex::new(RingAnswer::new(view.clone())))));
        let thread = RingThread { queue, place: place.clone(), service, commit: Arc::default() };
        rings.locked().push(thread.clone());
        drop(starts);
        let _leaves = Leaves(rings, &thread.service);
        let pieces = place.pieces();
        let command = match answered {
            None => Command { code: COMMAND_REGISTER, queue, commit: 0, pieces: pieces.as_ptr() as u64 },
            Some((unique, commit)) => {
                view.write_header(unique, Errno::EINTR.code(), 0);
                Command { code: COMMAND_COMMIT_AND_FETCH, queue, commit, pieces: 0 }
            }
        };
        uring.push(&self.device, &command);
        uring.enter(false)?;
        if let Some(result) = uring.completion()
            && result < 0
        {
            return Err(io::Error::from_raw_os_error(-result));
        }
        if let Some(told) = told.take() {
            drop(told.send(Ok(())));
        }
        if matches!(begin, Begin::New(true)) {
            self.poke(rings);
        }
        self.serve_ring(&mut uring, &thread, &view)
    }

    /// Makes the kernel send a request to the queue of the calling thread. None may come as long as
    /// the kernel knows no regular file; then what waits there waits for the next request of a
    /// program on this processor.
    fn poke(&self, rings: &Rings) {
        let notifier = Notifier::new(self.device.clone());
        let files = rings.services().into_iter().rev().filter_map(|service| service.regular_file());
        // The last resort is the root, which older kernels take as well.
        for file in files.chain([ROOT]) {
            match notifier.poke(file, rings.pokes.fetch_add(1, Ordering::Relaxed)) {
                // The kernel has forgotten this one.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                // Done, or the connection has ended.
                _ => return,
            }
        }
    }

    /// Serves the requests of an entry until the connection ends or another thread has taken the
    /// entry over.
    fn serve_ring(&self, uring: &mut Uring, thread: &RingThread, view: &View) -> io::Result<()> {
        let service = &thread.service;
        loop {
            let result = loop {
                match uring.completion() {
                    Some(result) => break result,
                    None => uring.enter(true)?,
                }
            };
            match -result {
                0 => {}
                // The mount has ended.
                libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV | libc::ECANCELED => return Ok(()),
                error => return Err(io::Error::from_raw_os_error(error)),
            }
            let malformed = |_| io::Error::new(io::ErrorKind::InvalidData, "the kernel sent a request that is not understood");
            let headers = view.headers().map_err(malformed)?;
            let pieces = view.request(&headers).map_err(malformed)?;
            let unique = pieces.header.unique;
            service.ring_answer().expect("a service of a ring").begin(headers.has_no_payload());
            thread.commit.store(headers.commit, Ordering::Release);
            service.begin(unique, pieces.header.pid, self.threads.now());
            // A panic is an error of this request (EIO); the entry lives on.
            let served = std::panic::catch_unwind(AssertUnwindSafe(|| dispatch(&self.filesystem, service, pieces)));
            drop(served);
            service.end();
            if !service.ring_answer().expect("a service of a ring").finish(unique) {
                return Ok(());
            }
            uring.push(&self.device, &Command { code: COMMAND_COMMIT_AND_FETCH, queue: thread.queue, commit: headers.commit, pieces: 0 });
        }
    }
}

/// A thread that has no entry yet, until it has one or has failed.
struct Starting<F: Filesystem>(Arc<KernelSession<F>>, u16);

impl<F: Filesystem> Drop for Starting<F> {
    fn drop(&mut self) {
        if let Some(rings) = &self.0.rings {
            rings.starting[usize::from(self.1)].fetch_sub(1, Ordering::Release);
        }
    }
}

/// Tells the others that a thread has ended, however it did.
struct Leaves<'a>(&'a Rings, &'a Arc<ServingThread>);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.remove(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_gets_threads_when_all_of_its_own_wait() {
        let load = |threads, busy, waiting| QueueLoad { threads, busy, waiting };
        assert_eq!(load(2, 1, 1).lacks(4), 0, "one is free");
        assert_eq!(load(2, 2, 0).lacks(4), 1, "busy, but they work");
        assert_eq!(load(4, 4, 0).lacks(4), 0, "enough of them");
        assert_eq!(load(4, 4, 1).lacks(4), 1);
        assert_eq!(load(40, 40, 40).lacks(4), 40);
        assert_eq!(load(1000, 1000, 1000).lacks(4), AT_HAND_MAX);
    }
}
