//! Tables 6.1 to 6.5 of the thesis (pages 84 to 86): the traced application partdiff-par on the
//! traced cluster, with each cache layer.
//!
//! They were made with the simulator as it was before 10 September 2009, two rules different from
//! Appendix C: the striping function had a slip ([`Striping::Slipped`]), and the server-directed
//! layer picked by [`PickRule::Continue`]. With both, every cell comes out. The trace itself is not
//! part of this repository, so callers bring it.

use weft_sched::LayerKind;
use weft_sched::classic::{ClassicConfig, DelayedWrites, PickRule};

use super::cases::Cell;
use crate::config::{CacheLayerConfig, ClusterConfig, ServerConfig};
use crate::report::Report;
use crate::stripe::Striping;

/// A printed table: its number, the layer, whether writes are delayed, seconds, and for each server
/// accesses, accesses without seek, with a fast one, with a slow one, and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartdiffTable {
    /// Number, such as `6.3`.
    pub number: &'static str,
    /// Cache layer.
    pub layer: LayerKind,
    /// Whether writes are delayed.
    pub delayed: bool,
    /// Virtual time of the last event in seconds, as printed.
    pub seconds: &'static str,
    /// Rows of the servers.
    pub servers: [[u64; 5]; 5],
}

/// All five.
pub fn partdiff() -> impl Iterator<Item = PartdiffTable> {
    include_str!("partdiff.txt").lines().filter_map(read)
}

/// Nothing of a comment.
fn read(line: &'static str) -> Option<PartdiffTable> {
    let mut words = line.split(' ');
    let number = words.next().filter(|word| *word != "#")?;
    let layer = words.next()?.parse().ok()?;
    let (delayed, seconds) = (words.next()?.parse().ok()?, words.next()?);
    let mut servers = [[0; 5]; 5];
    for server in &mut servers {
        for (cell, printed) in server.iter_mut().zip(words.next()?.split(',')) {
            *cell = printed.parse().ok()?;
        }
    }
    Some(PartdiffTable { number, layer, delayed, seconds, servers })
}

impl PartdiffTable {
    /// The cluster of this table, given the one that the model file beside the trace describes.
    pub fn config(&self, model: &ClusterConfig) -> ClusterConfig {
        let delayed = self.delayed.then(DelayedWrites::default);
        let granularity = model.server.cache_layer.granularity();
        let config = ClassicConfig { granularity, rule: PickRule::Continue, delayed, ..ClassicConfig::default() };
        let server = ServerConfig { cache_layer: CacheLayerConfig::Classic { kind: self.layer, config }, ..model.server.clone() };
        ClusterConfig { server, striping: Striping::Slipped, ..model.clone() }
    }

    /// Every printed number beside the simulated one. Four printed sums of accesses are not the
    /// sums of their printed parts (servers 2, 3 and 5 of 6.2, server 4 of 6.3); such a cell is not
    /// `equal`, but counts as `within_deviation` if the simulation has the sum of the parts.
    pub fn compare(&self, report: &Report) -> Vec<Cell> {
        let cell = |case: String, unit, printed: String, simulated: String, difference: f64, equal| Cell {
            table: self.number.to_string(),
            case,
            unit,
            printed,
            simulated,
            difference,
            equal,
            fitted: false,
            within_deviation: equal,
            events: 0,
        };
        let nanos = report.end_nanos;
        let rounded = (nanos + 5_000_000) / 10_000_000;
        let shown = format!("{}.{:02}", rounded / 100, rounded % 100);
        let seconds = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
        let difference = nanos as f64 / 1e9 - self.seconds.parse::<f64>().unwrap_or(f64::NAN);
        let mut time = cell("time".to_string(), "s", self.seconds.to_string(), seconds, difference, shown == self.seconds);
        time.events = report.events;
        let mut cells = vec![time];
        for (number, (row, server)) in (1..).zip(self.servers.iter().zip(&report.servers)) {
            let disk = server.disk;
            let found = [disk.operations, disk.no_seek, disk.fast, disk.slow, disk.bytes];
            let names = ["accesses", "no seek", "fast", "slow", "bytes"];
            for ((name, printed), simulated) in names.into_iter().zip(row).zip(found) {
                let unit = if name == "bytes" { "B" } else { "operations" };
                let difference = simulated as f64 - *printed as f64;
                let case = format!("server {number} {name}");
                let mut compared = cell(case, unit, printed.to_string(), simulated.to_string(), difference, *printed == simulated);
                let parts: u64 = row[1..4].iter().sum();
                if name == "accesses" && *printed != parts {
                    compared.case = format!("server {number} accesses (slip: the printed parts sum to {parts})");
                    compared.within_deviation = simulated == parts;
                }
                cells.push(compared);
            }
        }
        cells
    }
}
