//! How many operations of their disks data servers should need for a pass of `weft bench layers`:
//! the same blocks, calls, clients and servers in the simulator (`docs/simulator.md`), with the
//! cache layer told what the real one is told.
//!
//! The model knows the disk as the layer does (an access of 30 us, 1 GiB/s). It does not know how
//! long clients take for everything else, and that decides how many requests wait at the same time
//! and can be gathered. So there are two predictions: for clients that take no time at all (the
//! fewest operations), and for clients that compute between their calls as long as makes the layer
//! `none` take the time that was measured with `none`. The truth is between them: a part of what
//! was measured is a slower disk, and that gathers.

use anyhow::{Result, anyhow};
use weft_data_server::CacheConfig;
use weft_model::DiskModel;
use weft_model::units::{GIB, MIB, seconds};
use weft_piosim::program::{WORLD, push_merged};
use weft_piosim::{Access, Application, CacheLayerConfig, ClusterConfig, Command, Extent, Simulation};
use weft_sched::LayerKind;

/// Instructions a second of a modelled processor: a cycle is a nanosecond.
const CYCLES_PER_S: u64 = 1_000_000_000;
/// Steps of the search for the time between calls.
const STEPS: u32 = 8;

/// One pass over a file that all clients share, block by block in turn.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Clients.
    pub clients: u64,
    /// Data servers.
    pub servers: u16,
    /// Bytes of a stripe.
    pub stripe_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of each client.
    pub blocks: u64,
    /// Blocks in one call.
    pub per_call: u64,
    /// Whether the pass writes.
    pub writes: bool,
}

impl Case {
    /// What a pass moves, in MiB.
    pub fn mib(&self) -> f64 {
        (self.block_bytes * self.blocks * self.clients) as f64 / MIB as f64
    }

    /// Operations of all disks with this layer, the clients computing `between_ns` nanoseconds
    /// before each call.
    ///
    /// # Errors
    /// If the simulator refuses the case, which it should not.
    pub fn operations(&self, cache: &CacheConfig, between_ns: u64) -> Result<u64> {
        self.simulate(cache, between_ns).map(|(operations, _)| operations)
    }

    /// How long the clients compute before each call if a pass with the layer `none` takes
    /// `measured_s` seconds, in nanoseconds.
    ///
    /// # Errors
    /// As [`Case::operations`].
    pub fn between_calls(&self, none: &CacheConfig, measured_s: f64) -> Result<u64> {
        let calls = self.blocks.div_ceil(self.per_call);
        let (mut low, mut high): (u64, u64) = (0, (measured_s * 1e9) as u64 / calls);
        for _ in 0..STEPS {
            let middle = low.midpoint(high);
            if self.simulate(none, middle)?.1 < measured_s { low = middle } else { high = middle }
        }
        Ok(low)
    }

    /// Operations and seconds.
    fn simulate(&self, cache: &CacheConfig, between_ns: u64) -> Result<(u64, f64)> {
        let clients = u32::try_from(self.clients)?;
        let config = self.config(clients, cache);
        let report =
            Simulation::new(&config, &self.application(clients, between_ns)).and_then(Simulation::run).map_err(|why| anyhow!(why))?;
        Ok((report.disks().operations, seconds(report.ranks_end_nanos())))
    }

    /// One machine: a network that costs next to nothing.
    fn config(&self, clients: u32, cache: &CacheConfig) -> ClusterConfig {
        let disk = DiskModel::Simple { access: cache.disk.access_ns as f64 / 1e9, bandwidth: cache.disk.bytes_per_s };
        let usual = ClusterConfig::thesis(clients, u32::from(self.servers), LayerKind::None).natural();
        let mut cpu = usual.cpu;
        cpu.instructions_per_second = CYCLES_PER_S;
        ClusterConfig {
            cpu,
            disk,
            cache_layer: CacheLayerConfig::Improved { kind: cache.layer, config: cache.rules() },
            memory_bytes: cache.write_back.map_or(64 * GIB, |back| back.bytes_max),
            answers_written: cache.write_back.is_none(),
            link_bandwidth: 10 * GIB,
            internal_bandwidth: 10 * GIB,
            switch_bandwidth: 1000 * GIB,
            link_latency: 1e-6,
            packet_bytes: MIB,
            eager_bytes: MIB,
            stripe_bytes: self.stripe_bytes,
            ..usual
        }
    }

    fn application(&self, clients: u32, between_ns: u64) -> Application {
        let mut app = Application::new("layers", clients);
        let file = app.file("file", if self.writes { 0 } else { self.block_bytes * self.blocks * self.clients });
        app.push_all(Command::FileOpen { comm: WORLD, file, truncate: self.writes });
        for rank in 0..clients {
            for first in (0..self.blocks).step_by(self.per_call as usize) {
                if between_ns > 0 {
                    app.push(rank, Command::Compute { cycles: between_ns });
                }
                let mut list = Vec::new();
                for block in first..(first + self.per_call).min(self.blocks) {
                    let offset = (block * self.clients + u64::from(rank)) * self.block_bytes;
                    push_merged(&mut list, Extent { offset, bytes: self.block_bytes });
                }
                let access = Access::List(list);
                app.push(rank, if self.writes { Command::FileWrite { file, access } } else { Command::FileRead { file, access } });
            }
        }
        app.push_all(Command::FileClose { comm: WORLD, file });
        app
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_data_server::WriteBack;
    use weft_sched::improved::DiskCost;

    fn case(per_call: u64, writes: bool) -> Case {
        Case { clients: 10, servers: 2, stripe_bytes: 65536, block_bytes: 5120, blocks: 64, per_call, writes }
    }

    fn cache(layer: LayerKind) -> CacheConfig {
        CacheConfig { layer, disk: DiskCost::SSD, takes_all: true, ..CacheConfig::default() }
    }

    #[test]
    fn every_piece_is_an_operation_without_a_layer_and_few_are_with_one() {
        // 640 blocks of 5 KiB; 40 of the 49 borders of stripes lie within one.
        for writes in [false, true] {
            assert_eq!(case(1, writes).operations(&cache(LayerKind::None), 0).expect("a good case"), 680);
            let single = case(1, writes).operations(&cache(LayerKind::ServerDirected), 0).expect("a good case");
            let all = case(64, writes).operations(&cache(LayerKind::ServerDirected), 0).expect("a good case");
            assert!((10..30).contains(&all) && all < single && single < 400, "{all} and {single}");
        }
        let early = CacheConfig { write_back: Some(WriteBack::default()), ..cache(LayerKind::ServerDirected) };
        let early = case(1, true).operations(&early, 0).expect("a good case");
        assert!(early <= 20, "{early} if writes are answered when they are accepted");
    }

    #[test]
    fn slow_clients_leave_little_to_gather() {
        let (none, directed) = (cache(LayerKind::None), cache(LayerKind::ServerDirected));
        let case = case(1, false);
        let (_, fast) = case.simulate(&none, 0).expect("a good case");
        assert_eq!(case.between_calls(&none, fast).expect("a good case"), 0, "nobody computes");
        let between = case.between_calls(&none, 20.0 * fast).expect("a good case");
        let (_, slow) = case.simulate(&none, between).expect("a good case");
        assert!((slow / fast - 20.0).abs() < 1.0, "{slow} s and {fast} s");
        let operations = |between| case.operations(&directed, between).expect("a good case");
        assert!(operations(between) > operations(0));
    }
}
