//! Whether two-phase I/O is expected to pay for a collective command: an estimate from the access
//! pattern, the disks, the cache layers and the network (the thesis asks for one in section 8.2).
//!
//! Each rank on its own: every server serves the extents of all ranks. A layer that orders and
//! merges makes as many accesses as there are runs of bytes without a hole; others make one for
//! each extent. Disks and network work at the same time.
//!
//! Interleaved two-phase: in each round every rank accesses one part for all, and the data crosses
//! the network once more between ranks. Reads wait for that exchange in each round; writes do not,
//! if a layer takes their data while the disk works.

use crate::config::{ClusterConfig, disk_cost};
use crate::program::Extent;
use crate::stripe::Splitter;

use super::group::Plan;

/// What must be gained, as a share: rounds have latencies that the estimate leaves out.
const WORTH: f64 = 0.1;

/// What one server would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    accesses: u64,
    bytes: u64,
}

/// A collective command for the estimate.
pub(super) struct Pattern<'a> {
    /// What each rank accesses.
    pub lists: Vec<&'a [Extent]>,
    pub plan: Plan,
    pub writes: bool,
}

impl Pattern<'_> {
    /// Whether two-phase I/O is expected to take less time.
    pub fn two_phase_pays(&self, config: &ClusterConfig, splitter: &mut Splitter) -> bool {
        let bytes: u64 = self.lists.iter().map(|list| bytes_of(list)).sum();
        if bytes == 0 {
            return false;
        }
        let slowest_card = config.nodes().iter().map(|node| node.card.link_bandwidth).min().unwrap_or(1).max(1) as f64;
        let links = self.lists.len().min(config.clients as usize).min(config.servers as usize).max(1) as f64;
        let through_links = bytes as f64 / links / slowest_card;
        let alone = self.disks(config, |server| self.alone(config, server, splitter)).max(through_links);
        let ranks = self.lists.len() as f64;
        // Each rank gives away all but its own share, while it gets as much.
        let exchange = bytes as f64 / ranks * (1.0 - 1.0 / ranks) / slowest_card;
        // Parts are written extent by extent in the order of ranks, which helps only a layer that
        // orders them.
        let scattered = |server| self.writes && !config.server(server).cache_layer.orders();
        let work = |server| if scattered(server) { self.alone(config, server, splitter) } else { self.together(config) };
        let disks = self.disks(config, work).max(through_links);
        let is_overlapped = self.writes && (0..config.servers).all(|server| config.server(server).cache_layer.orders());
        let together = if is_overlapped { disks.max(exchange + through_links) } else { disks + exchange };
        together < alone * (1.0 - WORTH)
    }

    /// Seconds of the disk that works longest.
    fn disks(&self, config: &ClusterConfig, mut work: impl FnMut(u32) -> Work) -> f64 {
        let seconds = (0..config.servers).map(|server| {
            let Work { accesses, bytes } = work(server);
            let cost = disk_cost(&config.server(server).disk);
            accesses as f64 * cost.access_ns as f64 / 1e9 + bytes as f64 / cost.bytes_per_s as f64
        });
        seconds.fold(0.0, f64::max)
    }

    /// The work of a server if each rank is on its own.
    fn alone(&self, config: &ClusterConfig, server: u32, splitter: &mut Splitter) -> Work {
        let mut all = Vec::new();
        for list in &self.lists {
            splitter.split(list);
            all.extend_from_slice(splitter.list(server));
        }
        let layer = &config.server(server).cache_layer;
        if layer.orders() {
            all.sort_unstable_by_key(|extent| extent.offset);
        }
        let bytes = bytes_of(&all);
        let breaks = all.windows(2).filter(|pair| pair[0].end() != pair[1].offset).count() as u64;
        let runs = if all.is_empty() { 0 } else { breaks + 1 };
        Work { accesses: runs.max(bytes.div_ceil(layer.granularity())), bytes }
    }

    /// The work of each server if ranks access parts for all.
    fn together(&self, config: &ClusterConfig) -> Work {
        // Reads fetch holes too.
        let bytes = if self.writes { self.lists.iter().map(|list| bytes_of(list)).sum() } else { self.plan.span() };
        let orders = (0..config.servers).all(|server| config.server(server).cache_layer.orders());
        // The parts of a round follow each other on a server; a layer that orders sees one run.
        let accesses = self.plan.rounds * if orders { 1 } else { self.lists.len() as u64 };
        Work { accesses, bytes: bytes / u64::from(config.servers) }
    }
}

fn bytes_of(list: &[Extent]) -> u64 {
    list.iter().map(|extent| extent.bytes).sum()
}
