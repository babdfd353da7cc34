//! What servers do wrong, as a gateway sees it: programs get no more than an errno, so the words go
//! to the log of the gateway, and the numbers to whoever asks (`weft status`, `weft metrics`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use weft_base::{ClusterMap, FastMap, Handle, Nanos, SECOND, ServerId, Status};
use weft_client::Error;

/// The same error with the same object is written down again only after so long, in nanoseconds.
const AGAIN: u64 = 600 * SECOND;
/// So many are remembered; then all are forgotten, which costs a few lines that are there already.
const REMEMBERED_MAX: usize = 4096;

/// Errors of servers since the gateway began.
#[derive(Debug, Default)]
pub struct ErrorCounts {
    state: Mutex<State>,
}

/// Where the error is (`None`: nobody knows), and what.
type ErrorKind = (Option<ServerId>, Status);

#[derive(Debug, Default)]
struct State {
    written: FastMap<(ErrorKind, Handle), Nanos>,
    counts: BTreeMap<ErrorKind, u64>,
}

/// How often something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCount {
    /// The server that answered so, or did not answer.
    pub server: Option<ServerId>,
    /// What it was.
    pub status: Status,
    /// Operations that failed for this reason.
    pub count: u64,
}

impl ErrorCounts {
    /// An operation failed so at `now`, when this was the map. Answers that programs expect are
    /// none of this. What has not been said lately is given to `warn`.
    pub(crate) fn note(&self, error: &Error, map: &ClusterMap, now: Nanos, warn: impl FnOnce(&str)) {
        if !is_noted(error.status) {
            return;
        }
        let mut state = self.state();
        let kind = (error.server, error.status);
        *state.counts.entry(kind).or_default() += 1;
        if state.written.len() >= REMEMBERED_MAX {
            state.written.clear();
        }
        let is_new = state.written.get(&(kind, error.handle)).is_none_or(|before| now.since(*before) >= AGAIN);
        if is_new {
            state.written.insert((kind, error.handle), now);
            drop(state);
            warn(&error.explain(map));
        }
    }

    /// All of them, by server.
    pub fn list(&self) -> Vec<ErrorCount> {
        self.state().counts.iter().map(|((server, status), count)| ErrorCount { server: *server, status: *status, count: *count }).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

/// Something is broken, full or gone, or the client and a server do not belong together.
fn is_noted(status: Status) -> bool {
    status.is_server_error()
        || matches!(
            status,
            Status::NotReady | Status::ReadOnly | Status::AuthenticationFailed | Status::WrongFileSystem | Status::VersionMismatch
        )
}

#[cfg(test)]
mod tests {
    use weft_base::{FsId, ServerEntry};

    use super::*;

    #[test]
    fn each_trouble_is_told_once_for_each_object_and_always_counted() {
        let entry = |id: ServerId| ServerEntry { id, name: id.to_string(), address: format!("unix:/{id}") };
        let map = ClusterMap::of(FsId(1), "demo", [ServerId(0), ServerId::data(0)].map(entry), 4096).founded(1);
        let lines = Mutex::new(Vec::new());
        let error_counts = ErrorCounts::default();
        let note = |status, handle, now| {
            let error = Error { status, operation: "read", handle: Handle(handle), server: Some(ServerId::data(0)) };
            error_counts.note(&error, &map, Nanos(now), |line| lines.lock().expect("no panic").push(line.to_string()));
        };
        for _ in 0..5 {
            note(Status::TimedOut, 1, 0);
            note(Status::TimedOut, 2, 0);
            note(Status::Io, 1, 0);
            note(Status::NotFound, 1, 0);
        }
        note(Status::Io, 1, AGAIN - 1);
        let lines_now = || lines.lock().expect("no panic").clone();
        assert_eq!(lines_now().len(), 3, "{:?}", lines_now());
        assert!(lines_now()[0].contains("data0 (unix:/data0)") && lines_now()[0].contains("weft status"), "{:?}", lines_now());
        note(Status::Io, 1, AGAIN);
        assert_eq!(lines_now().len(), 4);
        let counts: Vec<_> = error_counts.list().iter().map(|error_count| (error_count.status, error_count.count)).collect();
        assert_eq!(counts, [(Status::Io, 7), (Status::TimedOut, 10)]);
        for handle in 10..10_000 {
            note(Status::Io, handle, AGAIN);
        }
        assert!(error_counts.state().written.len() <= REMEMBERED_MAX, "a crowd of them does not fill the memory");
    }
}
