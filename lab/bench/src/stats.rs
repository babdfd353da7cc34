//! How sure a median is, and latencies of single operations.

use serde::{Deserialize, Serialize};
use weft_analysis::ecdf::{bin, edge};
use weft_analysis::results::Latency;

/// So many samples are needed for an interval of their median.
pub const SURE_MIN: u32 = 6;

/// Between these two samples the median of what they were taken from lies with at least 95 %,
/// whatever its distribution: order statistics (Conover: Practical nonparametric statistics,
/// section 3.2). `None` if there are fewer than six, of which even smallest and greatest have the
/// median between them less often, or one of them is no number.
pub fn median_interval(samples: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = samples.into_iter().collect();
    if sorted.len() < SURE_MIN as usize || sorted.iter().any(|sample| !sample.is_finite()) {
        return None;
    }
    sorted.sort_by(f64::total_cmp);
    // As many samples are left out at each end as stay below a probability of 2.5 % to have the
    // median behind them.
    let count = sorted.len();
    let (mut left_out, mut chance, mut sum) = (0, 0.5f64.powi(count as i32), 0.0);
    loop {
        sum += chance;
        if sum > 0.025 || 2 * (left_out + 1) >= count {
            break;
        }
        left_out += 1;
        chance *= (count - left_out + 1) as f64 / left_out as f64;
    }
    Some((sorted[left_out - 1], sorted[count - left_out]))
}

/// Bits of a latency behind its first one that are kept: it is known to 1/16 of itself.
const BITS: u32 = 4;

/// How often which latency occurred, in steps that grow with the latency; merges without losing
/// anything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// By step.
    counts: Vec<u64>,
    max_ns: u64,
}

impl Latencies {
    /// Counts one operation.
    pub fn record(&mut self, ns: u64) {
        let step = bin(ns, BITS);
        self.reach(step + 1);
        self.counts[step] += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds what others counted.
    pub fn absorb(&mut self, other: &Latencies) {
        self.reach(other.counts.len());
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Percentiles; `None` if nothing was counted.
    pub fn summary(&self) -> Option<Latency> {
        let max = us(self.max_ns);
        Some(Latency { p50: us(self.at(0.5)?).min(max), p99: us(self.at(0.99)?).min(max), max })
    }

    /// Upper end of the step that holds this fraction of all operations.
    fn at(&self, fraction: f64) -> Option<u64> {
        let total: u64 = self.counts.iter().sum();
        let rank = ((total as f64 * fraction).ceil() as u64).max(1);
        let mut seen = 0;
        let step = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        step.map(|step| edge(step + 1, BITS) - 1)
    }

    fn reach(&mut self, steps: usize) {
        if self.counts.len() < steps {
            self.counts.resize(steps, 0);
        }
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_survive_merging() {
        let mut all = Latencies::default();
        let mut parts = [Latencies::default(), Latencies::default()];
        for ns in 1..=1000u64 {
            all.record(ns * 1000);
            parts[(ns % 2) as usize].record(ns * 1000);
        }
        let [mut first, second] = parts;
        first.absorb(&second);
        assert_eq!(first, all);
        let summary = all.summary().expect("1000 operations");
        assert!((500.0..540.0).contains(&summary.p50), "{summary:?}");
        assert!((990.0..=1000.0).contains(&summary.p99), "{summary:?}");
        assert_eq!(summary.max, 1000.0);
        assert_eq!(Latencies::default().summary(), None);
    }

    #[test]
    fn the_interval_of_the_median_leaves_out_what_order_statistics_allow() {
        let of = |count: u32| median_interval((1..=count).map(f64::from));
        // Table A3 of Conover's book: of 12 the 3rd and the 10th, of 24 the 7th and the 18th.
        assert_eq!([of(6), of(12), of(24)], [(1., 6.), (3., 10.), (7., 18.)].map(Some));
        // The smallest and the greatest of 5 have the median between them in 94 of 100 cases.
        assert_eq!([of(0), of(1), of(5), median_interval([f64::NAN; 6])], [None; 4]);
    }
}
