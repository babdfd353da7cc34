//! What the kernel has open: numbers for files and directory listings, and closes that go to the servers in groups.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::{Duration, Instant};

use weft_base::{FastMap, Handle, Nanos};
use weft_client::{Client, DirPage, OpenFile};
use weft_rt::Runtime;
use weft_rt_real::ClientRt;

use crate::troubles::Troubles;
use crate::walks::Walks;

/// How long a close may wait for company.
const GATHER: Duration = Duration::from_millis(3);
/// With more closes waiting than this, the closing thread does its own.
const WAITING_MAX: usize = 4096;
/// How often servers are asked whether they have restarted: well within the time for which they keep the sessions of clients.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Objects by the number that the kernel repeats in every request on them.
#[derive(Debug)]
pub struct Table<T> {
    next: AtomicU64,
    items: RwLock<FastMap<u64, Arc<T>>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { next: AtomicU64::new(1), items: RwLock::default() }
    }
}

impl<T> Table<T> {
    /// Adds an object; the number is new.
    pub fn add(&self, item: Arc<T>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.items.write().expect("no code panics while it holds this lock").insert(number, item);
        number
    }

    /// The object with this number.
    pub fn get(&self, number: u64) -> Option<Arc<T>> {
        self.items.read().expect("no code panics while it holds this lock").get(&number).cloned()
    }

    /// The numbers of all objects of which this is true.
    pub fn numbers(&self, is_wanted: impl Fn(&T) -> bool) -> Vec<u64> {
        let items = self.items.read().expect("no code panics while it holds this lock");
        items.iter().filter(|(_, item)| is_wanted(item)).map(|(number, _)| *number).collect()
    }

    /// Takes it out.
    pub fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.items.write().expect("no code panics while it holds this lock").remove(&number)
    }

    /// Takes everything out.
    pub fn drain(&self) -> Vec<Arc<T>> {
        self.items.write().expect("no code panics while it holds this lock").drain().map(|(_, item)| item).collect()
    }
}

/// A directory that is being listed: the page last read, so that the kernel's small buffers do not cost a request each.
#[derive(Debug)]
pub struct Listing {
    /// Which directory.
    pub dir: Handle,
    /// The page.
    pub page: Mutex<Option<KeptPage>>,
}

/// A page of a listing.
#[derive(Clone, Debug)]
pub struct KeptPage {
    /// The cookie it begins after.
    pub after: u64,
    /// When it was read.
    pub read_at: Nanos,
    /// Own changes of extended attributes before that.
    pub xattr_changes: u64,
    /// Its entries.
    pub page: Arc<DirPage>,
}

/// Closes files in the background, many at a time. `close()` of a program does not wait for the servers (the kernel's RELEASE has no
/// answer), so a close may wait a moment for others: the servers keep treating this client as a writer until it arrives, and
/// therefore ask the data servers for the size. Nothing is stale meanwhile.
pub struct Closer {
    client: Client<ClientRt>,
    troubles: Arc<Troubles>,
    walks: Arc<Walks>,
    state: Mutex<CloserState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct CloserState {
    waiting: VecDeque<Arc<OpenFile>>,
    working: bool,
    stop: bool,
}

impl Closer {
    /// Starts the background thread.
    pub fn start(client: Client<ClientRt>, troubles: Arc<Troubles>, walks: Arc<Walks>) -> Arc<Closer> {
        let closer = Arc::new(Closer { client, troubles, walks, state: Mutex::default(), changed: Condvar::new() });
        let worker = closer.clone();
        std::thread::Builder::new()
            .name("weft-closer".into())
            .spawn(move || worker.run())
            .expect("the system gives a process that mounts one more thread");
        let keeper = closer.clone();
        std::thread::Builder::new()
            .name("weft-keeper".into())
            .spawn(move || keeper.keep_alive())
            .expect("the system gives a process that mounts one more thread");
        closer
    }

    /// Closes `file` soon.
    pub fn close(&self, file: Arc<OpenFile>) {
        let mut state = self.lock();
        if state.stop || state.waiting.len() >= WAITING_MAX {
            drop(state);
            self.close_all(vec![file]);
            return;
        }
        state.waiting.push_back(file);
        if state.waiting.len() == 1 {
            self.changed.notify_all();
        }
    }

    /// Closes everything that waits, and stops; at the latest after `patience`.
    pub fn stop(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let mut state = self.lock();
        state.stop = true;
        self.changed.notify_all();
        while state.working || !state.waiting.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                crate::warn(&format!("gave up closing {} files: the servers do not answer", state.waiting.len()));
                return;
            }
            state = self.changed.wait_timeout(state, left).expect("no code panics while it holds this lock").0;
        }
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            while state.waiting.is_empty() {
                if state.stop {
                    return;
                }
                state = self.changed.wait(state).expect("no code panics while it holds this lock");
            }
            if !state.stop {
                drop(state);
                std::thread::sleep(GATHER);
                state = self.lock();
            }
            let files: Vec<_> = state.waiting.drain(..).collect();
            state.working = true;
            drop(state);
            self.close_all(files);
            state = self.lock();
            state.working = false;
            self.changed.notify_all();
        }
    }

    /// Lets servers that have restarted know what is open here.
    fn keep_alive(&self) {
        let mut state = self.lock();
        while !state.stop {
            let (held, timeout) = self.changed.wait_timeout(state, KEEP_ALIVE).expect("no code panics while it holds this lock");
            state = held;
            if timeout.timed_out() && !state.stop {
                drop(state);
                self.client.rt().block_on(self.client.keep_alive());
                self.close_all(self.walks.expire(self.client.rt().now()));
                state = self.lock();
            }
        }
    }

    fn close_all(&self, files: Vec<Arc<OpenFile>>) {
        let rt = self.client.rt();
        let results = rt.block_on(self.client.close_many(&files));
        results.iter().filter_map(|result| result.as_ref().err()).for_each(|error| self.troubles.note(error, rt.now()));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CloserState> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}
