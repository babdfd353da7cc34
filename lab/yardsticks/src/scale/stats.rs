//! What is measured: times by task, latencies in the thesis's 50 bins, creates over time, accesses.

/// Tasks of `gpfs_i_lookup()` (section 4.3.1).
pub const LOOKUP_TASKS: [&str; 7] = [
    "fast lookup",
    "lock the directory file",
    "verify permissions",
    "acquire FGDL token and directory entries",
    "lock the directory block",
    "search for the filename in the directory block",
    "release locks",
];

/// Tasks of `gpfs_i_create()` (section 4.3.2).
pub const CREATE_TASKS: [&str; 12] = [
    "allocate inode",
    "lock file and directory file",
    "get the inode of the directory",
    "acquire FGDL token and directory entries",
    "search for the filename in the directory block",
    "various verifications",
    "create metadata of the new file",
    "reserve space in the directory block (metanode only)",
    "ask metanode to reserve space in the directory block (non-metanode only)",
    "finish file create and finalize log",
    "insert entry into the directory block",
    "release locks",
];

/// Latency bins, from 1 us to 500 ms (section 3.3.2).
pub const BINS: usize = 50;

/// The value of a bin in nanoseconds: 1 to 9 us, 10 to 90 us, ... 100 to 500 ms.
pub const fn bin_nanos(bin: usize) -> u64 {
    (bin as u64 % 9 + 1) * 1000 * 10_u64.pow((bin / 9) as u32)
}

/// From which latency on each bin but the first one is nearer than the one before, in nanoseconds.
const NEARER: [u64; BINS - 1] = {
    let mut from = [0; BINS - 1];
    let mut bin = 1;
    while bin < BINS {
        from[bin - 1] = (bin_nanos(bin - 1) + bin_nanos(bin)) / 2;
        bin += 1;
    }
    from
};

/// The bin of a latency that is rounded to its first digit.
fn bin_of(nanos: u64) -> usize {
    NEARER.partition_point(|from| *from <= nanos)
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Inodes written, 4 KiB each.
    pub inode_writes: u64,
    /// Directory blocks written.
    pub block_writes: u64,
    /// Directory blocks read.
    pub block_reads: u64,
    /// Pieces of the log written.
    pub log_writes: u64,
    /// Messages, requests and replies.
    pub messages: u64,
    /// Bytes of directory blocks sent.
    pub entry_bytes: u64,
    /// Tokens that the token manager asked a node to give back.
    pub revocations: u64,
    /// Directory blocks that split.
    pub splits: u64,
    /// Times that a directory left FGDL.
    pub leaves: u64,
    /// Times that a metanode gave its role to another node.
    pub metanode_changes: u64,
    /// Times that inodes were allocated ahead.
    pub expansions: u64,
    /// Times that creates waited for room in a log.
    pub log_waits: u64,
}

/// What a run gave. Times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// When the last file was there.
    pub nanos: u64,
    /// Files.
    pub creates: u64,
    /// When FGDL was entered first, and how many files there were then.
    pub fine_from: Option<(u64, u64)>,
    /// What had been counted then.
    pub before_fine: Counts,
    /// The sum of each task of lookups, in creates begun since then.
    pub lookup_tasks: [u64; 7],
    /// The same of creates.
    pub create_tasks: [u64; 12],
    /// Lookup, create, open: whole.
    pub functions: [u64; 3],
    /// Files of each client by the time from lookup to open, and the sums of these times.
    pub bins: Vec<[(u64, u64); BINS]>,
    /// Files of each client in each interval.
    pub rates: Vec<Vec<u64>>,
    /// Blocks that split in each interval.
    pub splits: Vec<u64>,
    /// Files that each client made while it was a metanode.
    pub at_metanode: Vec<u64>,
    /// The rest.
    pub counts: Counts,
    /// Events of the simulation.
    pub events: u64,
}

impl Report {
    /// Creates a second over the whole run.
    pub fn creates_per_second(&self) -> f64 {
        self.creates as f64 * 1e9 / self.nanos.max(1) as f64
    }

    /// Files in the bins from 1 ms on (the outliers of section 4.4.2) and their times, both as
    /// shares of all.
    pub fn outliers(&self) -> (f64, f64) {
        let sum = |from: usize| self.bins.iter().flat_map(|bins| &bins[from..]).fold((0, 0), |sum, bin| (sum.0 + bin.0, sum.1 + bin.1));
        let (slow, all) = (sum(bin_of(1_000_000)), sum(0));
        (slow.0 as f64 / all.0.max(1) as f64, slow.1 as f64 / all.1.max(1) as f64)
    }

    pub(crate) fn add_latency(&mut self, node: u32, nanos: u64) {
        let bin = &mut self.bins[node as usize][bin_of(nanos)];
        *bin = (bin.0 + 1, bin.1 + nanos);
    }

    /// Adds `what` in the interval of `now`.
    pub(crate) fn at_interval<T: Clone + Default>(list: &mut Vec<T>, now: u64, interval: u64) -> &mut T {
        let index = (now / interval.max(1)) as usize;
        if list.len() <= index {
            list.resize(index + 1, T::default());
        }
        &mut list[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bins_go_from_a_microsecond_to_half_a_second() {
        assert_eq!((bin_nanos(0), bin_nanos(9), bin_nanos(BINS - 1)), (1000, 10_000, 500_000_000));
        assert_eq!((bin_of(1), bin_of(9_000_000_000)), (0, BINS - 1));
        let values = [149_999, 150_000, 249_999, 94_999, 95_000, 950_000].map(|nanos| bin_nanos(bin_of(nanos)));
        assert_eq!(values, [100_000, 200_000, 200_000, 90_000, 100_000, 1_000_000], "rounded, as in section 4.4.2");
    }
}
