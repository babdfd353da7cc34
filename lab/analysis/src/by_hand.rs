//! Bounds as numbers, as a person works them out by hand (Kunkel 2006, section 4.2): creates, large
//! requests, small requests of one client and of many, each under every bound that is known.

use serde_json::{Value, json};

use crate::bounds::Facts;

/// The request of many clients that figure 4.6 is about, in bytes.
const SMALL: f64 = 1024.0;

/// A bound of something.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundRow {
    /// What is bounded.
    pub of: &'static str,
    /// What bounds it.
    pub bound: &'static str,
    /// Clients at once.
    pub clients: f64,
    /// Bytes of a request; of creates none.
    pub block: Option<f64>,
    /// Creates, or bytes, per second.
    pub rate: f64,
}

/// What is bounded, in the order of the thesis.
pub const KINDS: [&str; 4] = ["creates", "large requests", "requests of one client", "requests of 1 KiB"];

/// Every bound that is known: of creates and requests by so many clients, and of requests of so
/// many bytes.
pub fn by_hand(facts: &Facts, clients: &[f64], blocks: &[f64]) -> Vec<BoundRow> {
    let mut rows = Vec::new();
    let mut put = |of, bound, clients, block, rate: Option<f64>| rows.extend(rate.map(|rate| BoundRow { of, bound, clients, block, rate }));
    let [creates, large, one, many] = KINDS;
    for c in clients.iter().copied() {
        put(creates, "network", c, None, facts.create_network(c));
        put(creates, "processor", c, None, facts.create_cpu());
        put(creates, "disk, each create", c, None, facts.create_synchronous(c));
        put(creates, "the same on the worst disk", c, None, facts.create_worst(c));
        put(creates, "the same on the best disk", c, None, facts.create_optimistic(c));
        put(creates, "disk shared by those that wait", c, None, facts.create_group(c));
    }
    for c in clients.iter().copied() {
        put(large, "network", c, None, facts.large_network(c));
        put(large, "disks", c, None, facts.large_disk());
    }
    for s in blocks.iter().copied() {
        put(one, "network", 1.0, Some(s), facts.small_network(s));
        put(one, "with a disk access each", 1.0, Some(s), facts.small_synchronous(s));
    }
    for c in clients.iter().copied() {
        put(many, "network", c, Some(SMALL), facts.many_network(c, SMALL));
        put(many, "disks, an access each", c, Some(SMALL), facts.many_disks(SMALL, facts.access_s));
        put(many, "the same on the worst disks", c, Some(SMALL), facts.many_disks(SMALL, facts.worst_access_s));
        put(many, "the same on the best disks", c, Some(SMALL), facts.many_disks(SMALL, facts.best_access_s));
    }
    rows
}

impl BoundRow {
    /// For programs.
    pub fn json(&self) -> Value {
        let unit = if self.of == KINDS[0] { "1/s" } else { "bytes/s" };
        json!({ "of": self.of, "bound": self.bound, "clients": self.clients, "block": self.block, "rate": self.rate, "unit": unit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::CLUSTER_2006;

    #[test]
    fn the_numbers_of_chapter_4_stand_in_the_table() {
        let rows = by_hand(&CLUSTER_2006, &[1.0, 5.0, 25.0], &[1000.0, 1e6]);
        let rate = |of: &str, bound: &str, clients: f64, block: Option<f64>| {
            let found = rows
                .iter()
                .filter(|row| (row.of, row.bound, row.clients) == (of, bound, clients) && (block.is_none() || row.block == block));
            let rates: Vec<f64> = found.map(|row| row.rate).collect();
            assert_eq!(rates.len(), 1, "{of}, {bound}");
            (rates[0] * 10.0).round() / 10.0
        };
        assert_eq!(rate("creates", "network", 1.0, None), 480.8);
        assert_eq!(rate("creates", "the same on the worst disk", 1.0, None), 6.6);
        assert_eq!(rate("creates", "the same on the best disk", 1.0, None), 76.5);
        assert_eq!((rate("large requests", "network", 5.0, None), rate("large requests", "disks", 25.0, None)), (535e6, 200e6));
        assert!((rate("requests of one client", "network", 1.0, Some(1e6)) - 101.3e6).abs() < 0.2e6);
        // Requests of many clients add up until the links of the servers are full.
        let one = rate("requests of 1 KiB", "network", 1.0, None);
        assert!((rate("requests of 1 KiB", "network", 25.0, None) / one - 25.0).abs() < 1e-3);
        // Five disks of 8.5 ms for each KiB.
        assert!((rate("requests of 1 KiB", "disks, an access each", 1.0, None) - 600_600.0).abs() < 500.0);
        assert_eq!(rows.iter().filter(|row| row.of == "creates").count(), 18);
        let nothing = by_hand(&Facts::default(), &[1.0], &[1000.0]);
        assert_eq!(nothing, []);
    }
}
