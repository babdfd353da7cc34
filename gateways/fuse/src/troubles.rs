//! What servers do wrong, as a mount sees it: programs get no more than an errno, so the words go to the log of the mount, and the numbers to
//! whoever asks (`weft status`, `weft metrics`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use weft_base::{ClusterMap, FastMap, Handle, Nanos, SECOND, ServerId, Status};
use weft_client::Error;
use weft_rt_real::{LimitedLog, Log};

/// The same trouble with the same object is written down again only after so long, in nanoseconds.
const AGAIN: u64 = 600 * SECOND;
/// So many are remembered; then all are forgotten, which costs a few lines that are there already.
const REMEMBERED_MAX: usize = 4096;

/// Errors of servers since the mount began.
#[derive(Debug)]
pub struct Troubles {
    map: ClusterMap,
    state: Mutex<State>,
}

/// Where the trouble is (`None`: nobody knows), and what.
type Kind = (Option<ServerId>, Status);

#[derive(Debug)]
struct State {
    log: LimitedLog,
    written: FastMap<(Kind, Handle), Nanos>,
    counts: BTreeMap<Kind, u64>,
}

/// How often something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The server that answered so, or did not answer.
    pub server: Option<ServerId>,
    /// What it was.
    pub status: Status,
    /// Operations that failed for this reason.
    pub count: u64,
}

impl Troubles {
    /// None so far, with the servers of `map`.
    pub fn new(map: ClusterMap, log: Log) -> Troubles {
        Troubles { map, state: Mutex::new(State { log: LimitedLog::new(log), written: FastMap::default(), counts: BTreeMap::new() }) }
    }

    /// An operation failed so at `now`. Answers that programs expect are none of this.
    pub fn note(&self, error: &Error, now: Nanos) {
        if !is_noted(error.status) {
            return;
        }
        let mut state = self.state();
        let kind = (error.server, error.status);
        *state.counts.entry(kind).or_default() += 1;
        let State { log, written, .. } = &mut *state;
        if written.len() >= REMEMBERED_MAX {
            written.clear();
        }
        let is_new = written.get(&(kind, error.handle)).is_none_or(|before| now.since(*before) >= AGAIN);
        if is_new {
            written.insert((kind, error.handle), now);
            log.line(&error.explain(&self.map));
        }
    }

    /// All of them, by server.
    pub fn list(&self) -> Vec<Trouble> {
        self.state().counts.iter().map(|((server, status), count)| Trouble { server: *server, status: *status, count: *count }).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

/// Something is broken, full or gone, or the mount and a server do not belong together.
fn is_noted(status: Status) -> bool {
    status.is_trouble()
        || matches!(
            status,
            Status::NotReady | Status::ReadOnly | Status::AuthenticationFailed | Status::WrongFileSystem | Status::VersionMismatch
        )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_base::{FsId, ServerEntry};

    use super::*;

    #[test]
    fn each_trouble_is_told_once_for_each_object_and_always_counted() {
        let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: format!("unix:/{id}") };
        let map = ClusterMap {
            fs_id: FsId(1),
            fs_name: "demo".into(),
            epoch: 1,
            meta: vec![entry(ServerId(0))],
            data: vec![entry(ServerId::data(0))],
            stripe_bytes: 4096,
            stripe_width: 0,
        };
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let log = Log::new(move |line| sink.lock().expect("no panic").push(line.to_string()));
        let troubles = Troubles::new(map, log);
        let error = |status, handle| Error { status, operation: "read", handle: Handle(handle), server: Some(ServerId::data(0)) };
        for _ in 0..5 {
            troubles.note(&error(Status::TimedOut, 1), Nanos(0));
            troubles.note(&error(Status::TimedOut, 2), Nanos(0));
            troubles.note(&error(Status::Io, 1), Nanos(0));
            troubles.note(&error(Status::NotFound, 1), Nanos(0));
        }
        troubles.note(&error(Status::Io, 1), Nanos(AGAIN - 1));
        let lines_now = || lines.lock().expect("no panic").clone();
        assert_eq!(lines_now().len(), 3, "{:?}", lines_now());
        assert!(lines_now()[0].contains("data0 (unix:/data0)") && lines_now()[0].contains("weft status"), "{:?}", lines_now());
        troubles.note(&error(Status::Io, 1), Nanos(AGAIN));
        assert_eq!(lines_now().len(), 4);
        let counts: Vec<_> = troubles.list().iter().map(|trouble| (trouble.status, trouble.count)).collect();
        assert_eq!(counts, [(Status::Io, 7), (Status::TimedOut, 10)]);
        // A crowd of them does not fill the disk.
        for handle in 10..10_000 {
            troubles.note(&error(Status::Io, handle), Nanos(AGAIN));
        }
        assert!(lines_now().len() < 200, "{}", lines_now().len());
    }
}
