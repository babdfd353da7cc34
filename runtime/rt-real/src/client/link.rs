//! The way to one server: the present connection, made again when it is gone.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};

use weft_base::{Nanos, Status};

use super::Counters;
use super::conn::Conn;
use super::context::ThreadContext;
use crate::address::Address;
use crate::handshake::{DialError, Introduction, dial};
use crate::sys;

/// One server as seen by the whole process.
#[derive(Debug)]
pub(crate) struct Link {
    address: Address,
    introduction: Introduction,
    counters: Arc<Counters>,
    current: Mutex<Option<Arc<Conn>>>,
    /// Held by the thread that connects.
    connecting: Mutex<()>,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    count: u64,
    last: Option<DialError>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds this lock")
}

impl Link {
    pub(crate) fn new(address: Address, introduction: Introduction, counters: Arc<Counters>) -> Link {
        Link { address, introduction, counters, current: Mutex::default(), connecting: Mutex::default(), failures: Mutex::default() }
    }

    /// The words of the last attempt to connect, if it failed.
    pub(crate) fn last_error(&self) -> Option<String> {
        locked(&self.failures).last.as_ref().map(|error| error.reason.clone())
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
        let seen = locked(&self.failures).count;
        // We may have to wait here: what others wait for must not wait with us.
        thread.flush();
        thread.release(None);
        let _connecting = locked(&self.connecting);
        if let Some(conn) = self.living() {
            return Ok(conn);
        }
        // Many threads find the connection gone at the same time. Those who waited for the one that tried take its outcome.
        if let Failures { count, last: Some(error) } = &*locked(&self.failures)
            && *count != seen
        {
            return Err(error.status);
        }
        let dialed = dial(&self.address, &self.introduction, deadline).and_then(|fd| {
            sys::limit_receive_wait(fd.as_fd()).map_err(|error| DialError { status: Status::Unreachable, reason: error.to_string() })?;
            Ok(fd)
        });
        match dialed {
            Ok(fd) => {
                Counters::add(&self.counters.connects, 1);
                let conn = Arc::new(Conn::new(fd, self.counters.clone()));
                *locked(&self.current) = Some(conn.clone());
                locked(&self.failures).last = None;
                Ok(conn)
            }
            Err(error) => {
                let status = error.status;
                let mut failures = locked(&self.failures);
                failures.count += 1;
                failures.last = Some(error);
                Err(status)
            }
        }
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
