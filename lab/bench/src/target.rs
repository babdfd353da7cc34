//! What a process of a benchmark needs of the file system that it measures. There are two: a
//! directory, by system calls, and a Weft file system, by the client library.

use anyhow::Result;

use crate::meter::Meter;
use weft_workload::{WorkStep, Workload};

/// A file system under measurement, as one process sees it; its threads share it.
pub trait Target: Sync {
    /// What one client keeps from one step to the next.
    type Client: Send;

    /// A client, by its number among the clients of all processes.
    fn client(&self, number: u64) -> Self::Client;

    /// What must be there before the clock starts.
    ///
    /// # Errors
    /// Of the file system.
    fn prepare(&self, client: &mut Self::Client, step: WorkStep, work: &Workload) -> Result<()>;

    /// One client's part of a step.
    ///
    /// # Errors
    /// Of the file system, and if data is not what was written.
    fn run(&self, client: &mut Self::Client, step: WorkStep, work: &Workload, meter: &mut Meter) -> Result<()>;

    /// Requests sent and bytes sent and received by this process so far; `None` where nobody can
    /// tell.
    fn traffic(&self) -> Option<Traffic>;
}

/// Counters of a client library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Traffic {
    /// Requests; each has one reply.
    pub requests: u64,
    /// Bytes of requests and replies.
    pub bytes: u64,
}

impl Traffic {
    /// What came after `earlier`.
    pub fn since(self, earlier: Traffic) -> Traffic {
        Traffic { requests: self.requests.saturating_sub(earlier.requests), bytes: self.bytes.saturating_sub(earlier.bytes) }
    }
}
