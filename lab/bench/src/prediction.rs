//! How many operations of their disks data servers should need for a step of an experiment: the
//! same blocks, calls, clients and servers in the simulator (`docs/simulator.md`), with the cache
//! layer told what the real one is told.
//!
//! The model knows the disk as the layer does (an access of 30 us, 1 GiB/s). It does not know how
//! long clients take for everything else, and that decides how many requests wait at the same time
//! and can be gathered. So there are two predictions: for clients that take no time at all (the
//! fewest operations), and for clients that compute between their calls as long as makes the layer
//! `none` take the time that was measured with `none`. The truth is between them: a part of what
//! was measured is a slower disk, and that gathers.

use anyhow::{Result, anyhow};
use weft_data_server::CacheConfig;
use weft_model::units::{GIB, MIB, seconds};
use weft_model::{Card, CpuModel, DiskModel};
use weft_piosim::workloads::{Manner, Transfer};
use weft_piosim::{CacheLayerConfig, ClusterConfig, NodeConfig, ServerConfig, Simulation};
use weft_sched::LayerKind;

/// Instructions a second of a modelled processor: a cycle is a nanosecond.
const CYCLES_PER_S: u64 = 1_000_000_000;
/// Steps of the search for the time between calls.
const STEPS: u32 = 8;

/// A step that writes or reads, on data servers of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Predicting<'a> {
    /// What is written or read.
    pub transfer: Transfer<'a>,
    /// Data servers.
    pub servers: u32,
    /// Bytes of a stripe.
    pub stripe_bytes: u64,
}

impl Predicting<'_> {
    /// Operations of all disks with this layer, the clients computing `between_ns` nanoseconds
    /// before each call.
    ///
    /// # Errors
    /// If the simulator refuses the case, which it should not.
    pub fn operations(&self, cache: &CacheConfig, between_ns: u64) -> Result<u64> {
        self.simulate(cache, between_ns).map(|(operations, _)| operations)
    }

    /// How long the clients compute before each call if the step with the layer `none` takes
    /// `measured_s` seconds, in nanoseconds.
    ///
    /// # Errors
    /// As [`Predicting::operations`].
    pub fn between_calls(&self, none: &CacheConfig, measured_s: f64) -> Result<u64> {
        let work = self.transfer.work;
        let calls = work.blocks_of(0).div_ceil(work.blocks_per_call(0));
        let (mut low, mut high): (u64, u64) = (0, (measured_s * 1e9) as u64 / calls);
        for _ in 0..STEPS {
            let middle = low.midpoint(high);
            if self.simulate(none, middle)?.1 < measured_s { low = middle } else { high = middle }
        }
        Ok(low)
    }

    /// Operations and seconds.
    fn simulate(&self, cache: &CacheConfig, between_ns: u64) -> Result<(u64, f64)> {
        let program = self.transfer.individual(Manner { think_cycles: between_ns, ..Manner::default() });
        let report = Simulation::new(&self.config(cache), &program).and_then(Simulation::run).map_err(|why| anyhow!(why))?;
        Ok((report.disks().operations, seconds(report.ranks_end_nanos())))
    }

    /// One machine: a network that costs next to nothing.
    fn config(&self, cache: &CacheConfig) -> ClusterConfig {
        let disk = DiskModel::Simple { access: cache.disk.access_ns as f64 / 1e9, bandwidth: cache.disk.bytes_per_s };
        let clients = self.transfer.work.clients_in_all() as u32;
        let usual = ClusterConfig::thesis(clients, self.servers, LayerKind::None).natural();
        let cpu = CpuModel { instructions_per_second: CYCLES_PER_S, ..usual.node.cpu };
        let card = Card { link_bandwidth: 10 * GIB, link_latency: 1e-6, internal_bandwidth: 10 * GIB };
        let server = ServerConfig {
            disk,
            cache_layer: CacheLayerConfig::Improved { kind: cache.layer, config: cache.rules() },
            memory_bytes: cache.write_back.map_or(64 * GIB, |back| back.bytes_max),
            ..usual.server
        };
        ClusterConfig {
            node: NodeConfig { cpu, card },
            server,
            answers_written: cache.write_back.is_none(),
            switch_bandwidth: 1000 * GIB,
            packet_bytes: MIB,
            eager_bytes: MIB,
            stripe_bytes: self.stripe_bytes,
            ..usual
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_data_server::WriteBack;
    use weft_sched::improved::DiskCost;
    use weft_workload::{Sharing, Workload};

    fn work(per_call: u64) -> Workload {
        Workload { per_call, ..Workload::sharing(Sharing::Interleaved, 10, 640 * 5120, 5120) }
    }

    fn case(work: &Workload, writes: bool) -> Predicting<'_> {
        Predicting { transfer: Transfer { work, writes }, servers: 2, stripe_bytes: 65536 }
    }

    fn cache(layer: LayerKind) -> CacheConfig {
        CacheConfig { layer, disk: DiskCost::SSD, takes_all: true, ..CacheConfig::default() }
    }

    #[test]
    fn every_piece_is_an_operation_without_a_layer_and_few_are_with_one() {
        // 640 blocks of 5 KiB; 40 of the 49 borders of stripes lie within one.
        for writes in [false, true] {
            assert_eq!(case(&work(1), writes).operations(&cache(LayerKind::None), 0).expect("a good case"), 680);
            let single = case(&work(1), writes).operations(&cache(LayerKind::ServerDirected), 0).expect("a good case");
            let all = case(&work(64), writes).operations(&cache(LayerKind::ServerDirected), 0).expect("a good case");
            assert!((10..30).contains(&all) && all < single && single < 400, "{all} and {single}");
        }
        let early = CacheConfig { write_back: Some(WriteBack::default()), ..cache(LayerKind::ServerDirected) };
        let early = case(&work(1), true).operations(&early, 0).expect("a good case");
        assert!(early <= 20, "{early} if writes are answered when they are accepted");
    }

    #[test]
    fn slow_clients_leave_little_to_gather() {
        let (none, directed) = (cache(LayerKind::None), cache(LayerKind::ServerDirected));
        let work = work(1);
        let case = case(&work, false);
        let (_, fast) = case.simulate(&none, 0).expect("a good case");
        assert_eq!(case.between_calls(&none, fast).expect("a good case"), 0, "nobody computes");
        let between = case.between_calls(&none, 20.0 * fast).expect("a good case");
        let (_, slow) = case.simulate(&none, between).expect("a good case");
        assert!((slow / fast - 20.0).abs() < 1.0, "{slow} s and {fast} s");
        let operations = |between| case.operations(&directed, between).expect("a good case");
        assert!(operations(between) > operations(0));
    }
}
