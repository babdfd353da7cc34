//! The way to one server: the present connection, made again when it is gone.

use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use weft_base::{Nanos, Status};

use super::Counters;
use super::conn::Conn;
use super::context::ThreadContext;
use crate::address::Address;
use crate::handshake::{DialError, Introduction, dial_any};
use crate::{clock, locked, sys};

/// A wait for another thread's attempt looks around after this time at the latest.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// One server as seen by the whole process.
#[derive(Debug)]
pub(crate) struct Link {
    /// Where it may be; the one to try first comes first.
    addresses: Mutex<Vec<Address>>,
    introduction: Introduction,
    counters: Arc<Counters>,
    current: Mutex<Option<Arc<Conn>>>,
    attempts: Mutex<Attempts>,
    /// An attempt to connect has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Attempts {
    /// A thread connects at this moment.
    running: bool,
    /// Attempts that failed although their threads had patience left.
    failed: u64,
    last_error: Option<DialError>,
}

impl Link {
    pub(crate) fn new(address: Address, introduction: Introduction, counters: Arc<Counters>) -> Link {
        let (current, attempts, ended) = (Mutex::default(), Mutex::default(), Condvar::new());
        Link { addresses: Mutex::new(vec![address]), introduction, counters, current, attempts, ended }
    }

    /// The server may be here, too.
    pub(crate) fn learn(&self, address: Address) {
        let mut addresses = locked(&self.addresses);
        if !addresses.contains(&address) {
            addresses.truncate(1);
            addresses.push(address);
        }
    }

    /// The words of the last attempt to connect, if it failed.
    pub(crate) fn last_error(&self) -> Option<String> {
        locked(&self.attempts).last_error.as_ref().map(|error| error.reason.clone())
    }

    /// The present connection, or a new one.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn connected(&self, thread: &ThreadContext, deadline: Nanos) -> Result<Arc<Conn>, Status> {
        if let Some(conn) = self.living() {
            return Ok(conn);
        }
        thread.assert_driving();
        // We may have to wait here: what others wait for must not wait with us.
        thread.flush();
        thread.release(None);
        self.begin_attempt(deadline)?;
        let outcome = match self.living() {
            Some(conn) => Ok(conn),
            None => self.attempt(deadline),
        };
        let mut attempts = locked(&self.attempts);
        attempts.running = false;
        let outcome = outcome.map_err(|error| {
            let status = error.status;
            // An attempt that its own thread cut short says nothing to those with more patience.
            attempts.failed += u64::from(clock::now() < deadline);
            attempts.last_error = Some(error);
            status
        });
        drop(attempts);
        self.ended.notify_all();
        outcome
    }

    /// Waits until no other thread connects, and takes its failure if it failed meanwhile: many
    /// threads find a connection gone at the same time, and should not try one after another.
    fn begin_attempt(&self, deadline: Nanos) -> Result<(), Status> {
        let mut attempts = locked(&self.attempts);
        let seen = attempts.failed;
        while attempts.running {
            let left = Duration::from_nanos(deadline.since(clock::now()));
            let waited = self.ended.wait_timeout(attempts, left.min(WAIT_MAX));
            attempts = waited.expect("no code panics while it holds this lock").0;
            if attempts.failed != seen {
                return Err(attempts.last_error.as_ref().map_or(Status::Unreachable, |error| error.status));
            }
            if clock::now() >= deadline {
                return Err(Status::TimedOut);
            }
        }
        attempts.running = true;
        Ok(())
    }

    fn attempt(&self, deadline: Nanos) -> Result<Arc<Conn>, DialError> {
        let mut addresses = locked(&self.addresses).clone();
        let outcome = dial_any(&mut addresses, &self.introduction, deadline);
        let mut known = locked(&self.addresses);
        // Unless another one was learned meanwhile.
        if known.iter().all(|address| addresses.contains(address)) {
            *known = addresses;
        }
        drop(known);
        let dialed = outcome?;
        sys::limit_receive_wait(dialed.fd.as_fd()).map_err(|error| DialError { status: Status::Unreachable, reason: error.to_string() })?;
        Counters::add(&self.counters.connects, 1);
        let conn = Arc::new(Conn::new(dialed, self.counters.clone()));
        *locked(&self.current) = Some(conn.clone());
        locked(&self.attempts).last_error = None;
        Ok(conn)
    }

    fn living(&self) -> Option<Arc<Conn>> {
        let mut current = locked(&self.current);
        match &*current {
            Some(conn) if conn.is_alive() => Some(conn.clone()),
            _ => {
                *current = None;
                None
            }
        }
    }
}
