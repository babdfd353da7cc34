//! Locks of programs (`flock`, `fcntl`). Those of one mount are decided here, by a table for each file. That no other mount has locks on the
//! file, its metadata server says: as long as there are any, this mount holds the right to lock it (`Rights::LOCK`), which one client has at a
//! time. Another mount's programs are refused meanwhile (ENOLCK): a lock is granted truly or not at all.
//!
//! The kernel says when a descriptor is closed only for files opened for update; for the others, `fcntl` locks end with the open file or the
//! process, whichever is first. So a lock may outlive a `close` that POSIX lets end it, never the other way round.

mod cycles;
mod table;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use weft_base::{Credentials, FastMap, Handle};
use weft_client::{Error, OpenFile};
use weft_wire::Rights;

use cycles::Cycles;
use table::Table;
pub use table::{Family, Kind, Lock, Owner};

use crate::{SharedClient, SharedCloser};

/// A file that was just closed by its last user may be released a moment later: so long is the lock on it waited for.
const RELEASE_PATIENCE: Duration = Duration::from_millis(20);
/// Between two looks at whether a waiting program still waits, and whether the holder still lives.
const LOOK: Duration = Duration::from_millis(50);

/// The kernel has let the program open the file.
const ALLOWED: Credentials = Credentials { uid: 0, gid: 0, groups: Vec::new(), checked_by_kernel: true };

/// The locks of one mount.
pub struct Locks {
    client: SharedClient,
    closer: SharedCloser,
    files: Mutex<FastMap<Handle, Arc<FileLocks>>>,
    /// How many files there are, so that nobody else pays for them.
    count: AtomicUsize,
    /// Taken while the locks of a file are held, never the other way round.
    cycles: Mutex<Cycles>,
}

#[derive(Debug, Default)]
struct FileLocks {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    table: Table,
    /// While it is open, no other client has locks.
    right: Option<Arc<OpenFile>>,
}

impl FileLocks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

/// Why there is no lock.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// Somebody has it.
    Taken,
    /// The program does not wait any more.
    Interrupted,
    /// Whoever has it waits for this program.
    Deadlock,
    /// It cannot be had.
    Failed(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Failed(error)
    }
}

impl Locks {
    pub fn new(client: SharedClient, closer: SharedCloser) -> Locks {
        Locks { client, closer, files: Mutex::default(), count: AtomicUsize::new(0), cycles: Mutex::default() }
    }

    /// Takes a lock. With `is_awaited` it waits for others until that says no.
    ///
    /// # Errors
    /// The [`Refusal`].
    pub fn lock(&self, file: Handle, wanted: Lock, is_awaited: Option<&dyn Fn() -> bool>) -> Result<(), Refusal> {
        let locks = self.of(file);
        let mut wait = None;
        let outcome = self.lock_in(file, &locks, wanted, is_awaited, &mut wait);
        wait.into_iter().for_each(|number| self.cycles().ends(number));
        self.tidy(file, locks);
        outcome
    }

    /// `wait` is set to the number of the wait once there is one.
    fn lock_in(
        &self,
        file: Handle,
        locks: &FileLocks,
        wanted: Lock,
        is_awaited: Option<&dyn Fn() -> bool>,
        wait: &mut Option<u64>,
    ) -> Result<(), Refusal> {
        let begun = Instant::now();
        let mut state = locks.lock();
        loop {
            self.acquire(file, &mut state)?;
            let taken = state.table.lock(wanted) || {
                state.table.drop_where(is_of_gone_process);
                state.table.lock(wanted)
            };
            if taken {
                // It may be less than its owner had before.
                self.cycles().changed(file);
                locks.changed.notify_all();
                return Ok(());
            }
            let patience = match is_awaited {
                None => RELEASE_PATIENCE.saturating_sub(begun.elapsed()),
                Some(is_awaited) if is_awaited() => LOOK,
                Some(_) => return Err(Refusal::Interrupted),
            };
            if patience.is_zero() {
                return Err(Refusal::Taken);
            }
            if is_awaited.is_some() && wanted.family == Family::Fcntl {
                let holders = state.table.in_the_way(&wanted).map(|held| held.owner).collect();
                let mut cycles = self.cycles();
                let number = *wait.get_or_insert_with(|| cycles.number());
                if !cycles.goes_on(number, file, wanted.owner, holders) {
                    return Err(Refusal::Deadlock);
                }
            }
            state = locks.changed.wait_timeout(state, patience).expect("no code panics while it holds this lock").0;
        }
    }

    /// A lock that is in the way of this one.
    ///
    /// # Errors
    /// If another mount has locks, or the server does not answer.
    pub fn in_the_way(&self, file: Handle, wanted: &Lock) -> Result<Option<Lock>, Error> {
        let locks = self.of(file);
        let outcome = {
            let mut state = locks.lock();
            self.acquire(file, &mut state).map(|()| {
                state.table.drop_where(is_of_gone_process);
                state.table.conflict(wanted)
            })
        };
        self.tidy(file, locks);
        outcome
    }

    /// Gives a range back.
    pub fn unlock(&self, file: Handle, family: Family, owner: Owner, start: u64, end: u64) {
        self.change(file, |table| table.unlock(family, owner, start, end));
    }

    /// A process has closed a descriptor of the file: its `fcntl` locks end.
    pub fn closed(&self, file: Handle, owner: Owner) {
        self.change(file, |table| table.drop_owner(Family::Fcntl, owner));
    }

    /// An open file has been closed for good.
    pub fn released(&self, file: Handle, open: u64) {
        self.change(file, |table| table.drop_file(open));
    }

    fn change(&self, file: Handle, change: impl FnOnce(&mut Table)) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(locks) = self.files().get(&file).cloned() else { return };
        {
            let mut state = locks.lock();
            change(&mut state.table);
            self.cycles().changed(file);
        }
        locks.changed.notify_all();
        self.tidy(file, locks);
    }

    /// Sees to it that no other client has locks on the file.
    fn acquire(&self, file: Handle, state: &mut State) -> Result<(), Error> {
        if state.right.is_none() {
            let rights = Rights::READ.with(Rights::LOCK);
            let (_, open) = self.client.rt().block_on(self.client.open(&ALLOWED, file, rights, false))?;
            state.right = Some(open);
        }
        Ok(())
    }

    fn of(&self, file: Handle) -> Arc<FileLocks> {
        let mut files = self.files();
        let locks = files.entry(file).or_default().clone();
        self.count.store(files.len(), Ordering::Relaxed);
        locks
    }

    /// Where there are no locks any more, others may have theirs.
    fn tidy(&self, file: Handle, locks: Arc<FileLocks>) {
        let mut files = self.files();
        // The map's reference and ours: nobody works or waits on it.
        let is_last = Arc::strong_count(&locks) == 2;
        let unused = if is_last {
            locks.state.try_lock().ok().filter(|state| state.table.is_empty()).map(|mut state| state.right.take())
        } else {
            None
        };
        if unused.is_some() {
            files.remove(&file);
            self.count.store(files.len(), Ordering::Relaxed);
        }
        // Before somebody else looks how many there are.
        drop(locks);
        drop(files);
        unused.flatten().into_iter().for_each(|right| self.closer.close(right));
    }

    fn cycles(&self) -> MutexGuard<'_, Cycles> {
        self.cycles.lock().expect("no code panics while it holds this lock")
    }

    fn files(&self) -> MutexGuard<'_, FastMap<Handle, Arc<FileLocks>>> {
        self.files.lock().expect("no code panics while it holds this lock")
    }
}

/// Processes that have ended hold no locks, although somebody may have inherited their open files.
fn is_of_gone_process(held: &Lock) -> bool {
    if held.family == Family::Flock {
        return false;
    }
    match std::fs::read_to_string(format!("/proc/{}/stat", held.process)) {
        // The state follows the name, which ends with the last parenthesis.
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
