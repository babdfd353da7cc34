//! The parameters of all models in one place.

use weft_base::{MILLISECOND, SECOND};
use weft_rt::Work;

use super::transfer_ns;

/// What the modelled machines and their network are like. The same for all nodes of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Network.
    pub net: NetProfile,
    /// Processors.
    pub cpu: CpuProfile,
    /// Disks.
    pub disk: DiskProfile,
    /// What processes pay for messages and sleep; `None`: nothing, they are always awake.
    pub process: Option<ProcessProfile>,
}

/// What it costs a process to send, to receive, to sleep and to be woken. A process sleeps when it
/// has nothing to do; while it works, whatever arrives waits until it looks at its sockets, and is
/// then taken at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessProfile {
    /// One send, whatever leaves with it: time of a core of the sender, in nanoseconds.
    pub send_ns: u64,
    /// One receive, whatever has arrived: time of a core of the receiver, in nanoseconds.
    pub receive_ns: u64,
    /// From the arrival at a sleeping process until it runs, if a core of its machine is idle, in
    /// nanoseconds; no core is busy with it.
    pub wake_ns: u64,
    /// What a send costs more if it wakes the receiver: time of a core of the sender, in
    /// nanoseconds.
    pub waker_ns: u64,
    /// What the first receive after sleep costs more: time of a core of the receiver, in
    /// nanoseconds.
    pub woken_ns: u64,
    /// [`Work::Request`] of a client, in nanoseconds.
    pub client_request_ns: u64,
    /// [`Work::UntoldChange`], in nanoseconds: all that it costs a client until its server knows.
    pub untold_change_ns: u64,
    /// [`Work::UntoldRemoval`], in nanoseconds, in the same way.
    pub untold_removal_ns: u64,
    /// [`Work::ToldRecord`], in nanoseconds: a server's part of it.
    pub told_record_ns: u64,
    /// [`Work::KnownRecord`], in nanoseconds.
    pub known_record_ns: u64,
    /// Rate at which a client copies bulk data into and out of messages, in bytes per second; 0
    /// means that it is free. Between machines the server does so too.
    pub copy_bytes_per_s: u64,
}

/// The network: every node has a card with one queue in each direction, all cards are joined by a
/// switch that is never the bottleneck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetProfile {
    /// Rate of a card in each direction, in bytes per second; 0 means infinite.
    pub bytes_per_s: u64,
    /// What one send costs the card; everything that leaves on one connection at one instant is one
    /// send. In nanoseconds.
    pub send_ns: u64,
    /// From card to card through the switch, in nanoseconds.
    pub latency_ns: u64,
    /// A send takes up to so much longer (uniformly), in nanoseconds.
    pub jitter_ns: u64,
    /// Between two processes of one node, in nanoseconds.
    pub loopback_ns: u64,
    /// A connection that is not answered is given up after so long, in nanoseconds.
    pub connect_timeout_ns: u64,
    /// The peer of a machine that lost power notices after at least so long, in nanoseconds.
    pub dead_peer_min_ns: u64,
    /// And after at most so long, in nanoseconds.
    pub dead_peer_max_ns: u64,
    /// When a link heals, what was held back arrives after at most so long, in nanoseconds.
    pub retransmit_max_ns: u64,
}

/// Processors: what declared [`Work`] costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuProfile {
    /// [`Work::Request`], in nanoseconds.
    pub request_ns: u64,
    /// [`Work::Record`], in nanoseconds.
    pub record_ns: u64,
    /// Rate of [`Work::Checksum`] in bytes per second; 0 means that it is free.
    pub checksum_bytes_per_s: u64,
    /// Rate of [`Work::Copy`] in bytes per second; 0 means that it is free.
    pub copy_bytes_per_s: u64,
}

/// A disk behind an unlimited page cache: calls that touch only memory take time of a core, the
/// others queue at the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskProfile {
    /// One call into the operating system, on a core, in nanoseconds.
    pub call_ns: u64,
    /// Rate of copying out of the page cache, on a core, in bytes per second; 0 means that it is
    /// free.
    pub memory_bytes_per_s: u64,
    /// The same into the page cache, which must find room for what it has not held before.
    pub memory_write_bytes_per_s: u64,
    /// Reads find their data in the page cache.
    pub reads_cached: bool,
    /// Latency of a read that goes to the disk, in nanoseconds.
    pub read_ns: u64,
    /// Latency of a sync, and of a durable change of the directory, in nanoseconds.
    pub sync_ns: u64,
    /// Rate of reads in bytes per second; 0 means infinite.
    pub read_bytes_per_s: u64,
    /// Rate at which a sync writes what is dirty, in bytes per second; 0 means infinite.
    pub write_bytes_per_s: u64,
    /// Every operation takes up to so much longer (uniformly), in nanoseconds; a sync up to ten
    /// times that.
    pub jitter_ns: u64,
    /// An access to the disk itself takes up to so much longer (uniformly), in nanoseconds: where
    /// the head and the platter happen to be, when nothing is known of places.
    pub access_spread_ns: u64,
    /// What moving the head costs, for disks that have one: on top of the above, once for each
    /// contiguous range.
    pub seek: Option<SeekProfile>,
}

/// The head of a rotating disk: an access that continues where the last one of the same file ended
/// costs nothing, one that begins near it costs a short move, all others a long one; each waits for
/// half a rotation (Kuhn 2009, section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekProfile {
    /// A move within `near_bytes`, with half a rotation, in nanoseconds.
    pub near_ns: u64,
    /// Any other move, with half a rotation, in nanoseconds.
    pub far_ns: u64,
    /// Distance in bytes in the same file below which a move is short.
    pub near_bytes: u64,
}

impl Profile {
    /// Servers with 10 Gbit/s Ethernet and an NVMe disk. Rounded figures of hardware in wide use,
    /// not a measurement of any machine.
    pub fn ethernet_10g() -> Profile {
        Profile {
            net: NetProfile {
                bytes_per_s: 1_250_000_000,
                send_ns: 1_500,
                latency_ns: 10_000,
                jitter_ns: 0,
                loopback_ns: 5_000,
                connect_timeout_ns: SECOND,
                dead_peer_min_ns: 10 * MILLISECOND,
                dead_peer_max_ns: 3 * SECOND,
                retransmit_max_ns: 400 * MILLISECOND,
            },
            cpu: CpuProfile { request_ns: 4_000, record_ns: 1_000, checksum_bytes_per_s: 15_000_000_000, copy_bytes_per_s: 8_000_000_000 },
            disk: DiskProfile {
                call_ns: 1_500,
                memory_bytes_per_s: 6_000_000_000,
                memory_write_bytes_per_s: 6_000_000_000,
                reads_cached: true,
                read_ns: 90_000,
                sync_ns: 60_000,
                read_bytes_per_s: 3_000_000_000,
                write_bytes_per_s: 2_000_000_000,
                jitter_ns: 0,
                access_spread_ns: 0,
                seek: None,
            },
            process: None,
        }
    }

    /// For finding bugs as fast as possible: code is free, bandwidth is infinite, messages and disk
    /// operations take short random times so that everything that may overtake does.
    pub fn instant() -> Profile {
        Profile {
            net: NetProfile {
                bytes_per_s: 0,
                send_ns: 0,
                latency_ns: 2_000,
                jitter_ns: 20_000,
                loopback_ns: 1_000,
                connect_timeout_ns: SECOND,
                dead_peer_min_ns: MILLISECOND,
                dead_peer_max_ns: 3 * SECOND,
                retransmit_max_ns: 400 * MILLISECOND,
            },
            cpu: CpuProfile { request_ns: 0, record_ns: 0, checksum_bytes_per_s: 0, copy_bytes_per_s: 0 },
            disk: DiskProfile {
                call_ns: 500,
                memory_bytes_per_s: 0,
                memory_write_bytes_per_s: 0,
                reads_cached: true,
                read_ns: 2_000,
                sync_ns: 10_000,
                read_bytes_per_s: 0,
                write_bytes_per_s: 0,
                jitter_ns: 5_000,
                access_spread_ns: 0,
                seek: None,
            },
            process: None,
        }
    }
}

impl Default for Profile {
    fn default() -> Profile {
        Profile::ethernet_10g()
    }
}

impl NetProfile {
    /// True if cards never queue, so that a message needs one event instead of two.
    pub(crate) fn has_infinite_cards(&self) -> bool {
        self.bytes_per_s == 0 && self.send_ns == 0
    }
}

impl CpuProfile {
    /// What `work` costs on one core, in nanoseconds.
    pub fn cost_ns(&self, work: Work) -> u64 {
        match work {
            Work::Request => self.request_ns,
            Work::Record | Work::ToldRecord | Work::UntoldChange | Work::UntoldRemoval | Work::KnownRecord => self.record_ns,
            Work::Checksum(bytes) => transfer_ns(bytes, self.checksum_bytes_per_s),
            Work::Copy(bytes) => transfer_ns(bytes, self.copy_bytes_per_s),
        }
    }
}
