//! What a simulation found.

use weft_model::DiskStatistics;
use weft_sched::LayerStats;

/// One application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationReport {
    /// Its name.
    pub name: String,
    /// When each rank was done, nanoseconds.
    pub rank_end_nanos: Vec<u64>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    /// What its disk did.
    pub disk: DiskStatistics,
    /// What its cache layer did.
    pub layer: LayerStats,
    /// The most memory that requests took at a time, bytes.
    pub memory_max: u64,
    /// Bytes that reads got from the read cache.
    pub cached_bytes: u64,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Virtual time of the last event, nanoseconds: servers may still write after the last rank is
    /// done.
    pub end_nanos: u64,
    /// Events executed.
    pub events: u64,
    /// Bytes that the programs read and wrote: reads end with the file, whatever they asked for.
    pub program_bytes: u64,
    /// Messages that the network delivered.
    pub messages: u64,
    /// Bytes that the network delivered, requests and completions included.
    pub network_bytes: u64,
    /// The applications.
    pub applications: Vec<ApplicationReport>,
    /// The servers.
    pub servers: Vec<ServerReport>,
    /// Streams in which a message was never received or a receive never answered; 0 in a sound
    /// program.
    pub unreceived_messages: u64,
}

impl Report {
    /// When the last rank was done, nanoseconds.
    pub fn ranks_end_nanos(&self) -> u64 {
        self.applications.iter().flat_map(|app| &app.rank_end_nanos).copied().max().unwrap_or(0)
    }

    /// Sum over all disks.
    pub fn disks(&self) -> DiskStatistics {
        let mut sum = DiskStatistics::default();
        for ServerReport { disk, .. } in &self.servers {
            sum.operations += disk.operations;
            sum.reads += disk.reads;
            sum.bytes += disk.bytes;
            sum.no_seek += disk.no_seek;
            sum.fast += disk.fast;
            sum.slow += disk.slow;
            sum.busy_nanos += disk.busy_nanos;
        }
        sum
    }
}
