//! Estimated upper bounds: what the hardware would allow if nothing but it cost time. The formulas
//! are those of Kunkel, *Performance Analysis of the PVFS2 Persistency Layer* (2006), chapter 4;
//! hardware facts come from `weft bench ceiling`, or from a person.
//!
//! As there, processing is left out (section 4.2.2), so a bound is *estimated*: a batch that serves
//! several requests with one message or one disk access may lie above it.

use crate::results::Ceiling;

/// What the hardware does. A fact that is not known bounds nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Seconds from a small request to its reply (section 4.1.2).
    pub rtt_s: Option<f64>,
    /// Bytes per second between one client and one server.
    pub net_bytes_s: Option<f64>,
    /// Seconds of one synchronous disk access (section 4.1.1).
    pub access_s: Option<f64>,
    /// The same where the disk does its worst (there: the longest seek), in seconds.
    pub worst_access_s: Option<f64>,
    /// The same where it does its best (there: to the next track), in seconds.
    pub best_access_s: Option<f64>,
    /// Bytes per second of one server's disk.
    pub disk_bytes_s: Option<f64>,
    /// Requests per second that the processor of one metadata server can do (section 4.1.3).
    pub cpu_ops_s: Option<f64>,
    /// Metadata servers.
    pub meta: Option<f64>,
    /// Data servers.
    pub data: Option<f64>,
    /// Messages with replies of one create, one after another: 4 in PVFS2 (section 4.2.2), 1 in
    /// Weft.
    pub messages: Option<f64>,
    /// Disk accesses of one synchronous create, one after another: up to 10 in PVFS2 (section
    /// 4.2.2), 1 in Weft (the journal).
    pub accesses: Option<f64>,
}

/// The cluster of section 4.2.1: Gigabit Ethernet, one disk in each server, PVFS2's messages and
/// accesses.
pub const CLUSTER_2006: Facts = Facts {
    rtt_s: Some(0.52e-3),
    net_bytes_s: Some(107e6),
    access_s: Some(8.5e-3),
    worst_access_s: Some(15e-3),
    best_access_s: Some(1.1e-3),
    disk_bytes_s: Some(40e6),
    // "2800 creates/sec" of four messages each.
    cpu_ops_s: Some(4.0 * 2800.0),
    meta: Some(1.0),
    data: Some(5.0),
    messages: Some(4.0),
    accesses: Some(10.0),
};

impl Facts {
    /// What `weft bench ceiling` says about this machine and sockets of one kind (`unix` or `tcp`),
    /// with as many servers as a run has.
    pub fn measured(rows: &[Ceiling], transport: &str, meta: usize, data: usize) -> Facts {
        let row = |name: &str| rows.iter().find(|row| row.name == name).map(|row| row.median).filter(|value| *value > 0.0);
        let gib = |name: &str| row(name).map(|value| value * (1u64 << 30) as f64);
        let rtt = row(&format!("rpc.{transport}.1x1.p50")).map(|us| us / 1e6);
        let access = |of: &str| row(&format!("disk.append.dsync.4KiB.{of}")).or_else(|| row(&format!("disk.append.fdatasync.4KiB.{of}")));
        let access = |of: &str| access(of).map(|us| us / 1e6);
        Facts {
            rtt_s: rtt.or_else(|| row(&format!("rpc.{transport}.1x1")).map(|rate| 1.0 / rate)),
            net_bytes_s: gib(&format!("bulk.{transport}.upload.1c")),
            access_s: access("p50"),
            worst_access_s: access("p99"),
            best_access_s: None,
            disk_bytes_s: gib("disk.write.durable"),
            // Bare requests in batches, with nothing behind them: no server does more.
            cpu_ops_s: row(&format!("rpc.{transport}.1x32.onecpu")).or_else(|| row(&format!("rpc.{transport}.1x32"))),
            meta: Some(meta.max(1) as f64),
            data: Some(data.max(1) as f64),
            messages: Some(1.0),
            accesses: Some(1.0),
        }
    }

    /// Creates per second of `clients` that wait for the network alone: c / (m RTT) (section 4.2.2,
    /// non-synchronous).
    pub fn create_network(&self, clients: f64) -> Option<f64> {
        Some(clients / (self.messages? * self.rtt_s?)).filter(|rate| rate.is_finite())
    }

    /// Creates per second if each needs disk accesses of its own: c / (m RTT + k a), at most M / (k
    /// a), as more clients hide the network and never the disk (section 4.2.2, synchronous).
    pub fn create_synchronous(&self, clients: f64) -> Option<f64> {
        let disk = self.accesses? * self.access_s?;
        Some((clients / (self.messages? * self.rtt_s? + disk)).min(self.meta? / disk)).filter(|rate| rate.is_finite())
    }

    /// The same if one access serves all creates that wait for it (group commit): c / (m RTT + k
    /// a). Not in the thesis, whose servers wrote for each create apart; its section 4.2.2 is this
    /// with one client.
    pub fn create_group(&self, clients: f64) -> Option<f64> {
        Some(clients / (self.messages? * self.rtt_s? + self.accesses? * self.access_s?)).filter(|rate| rate.is_finite())
    }

    /// [`Facts::create_synchronous`] on the worst disk.
    pub fn create_worst(&self, clients: f64) -> Option<f64> {
        Facts { access_s: self.worst_access_s, ..self.clone() }.create_synchronous(clients)
    }

    /// [`Facts::create_synchronous`] on the best disk: the optimistic bound.
    pub fn create_optimistic(&self, clients: f64) -> Option<f64> {
        Facts { access_s: self.best_access_s, ..self.clone() }.create_synchronous(clients)
    }

    /// Requests per second of all metadata servers' processors, for creates of `messages` requests:
    /// M p / m (sections 4.1.3 and 4.2.2).
    pub fn create_cpu(&self) -> Option<f64> {
        Some(self.meta? * self.cpu_ops_s? / self.messages?)
    }

    /// Bytes per second of large requests over the network: min(c, D) n (section 4.2.3).
    pub fn large_network(&self, clients: f64) -> Option<f64> {
        Some(clients.min(self.data?) * self.net_bytes_s?)
    }

    /// Bytes per second of large requests that the disks take: D d (section 4.2.3).
    pub fn large_disk(&self) -> Option<f64> {
        Some(self.data? * self.disk_bytes_s?)
    }

    /// Bytes per second of one client that transfers `block` bytes a request: t(s, l, n) = s / (s /
    /// n + l) with the round trip as latency (section 4.2.4).
    pub fn small_network(&self, block: f64) -> Option<f64> {
        Some(small(block, self.rtt_s?, self.net_bytes_s?))
    }

    /// The same with a disk access in every request: its time adds to the latency, and the slower
    /// of disk and network carries the bytes (section 4.2.4, synchronous).
    pub fn small_synchronous(&self, block: f64) -> Option<f64> {
        Some(small(block, self.rtt_s? + self.access_s?, self.net_bytes_s?.min(self.disk_bytes_s?)))
    }

    /// Bytes per second of many clients that transfer `block` bytes a request each: c t(s, l, n),
    /// until the links of all servers are full (section 4.2.4, multiple clients).
    pub fn many_network(&self, clients: f64, block: f64) -> Option<f64> {
        Some((clients * self.small_network(block)?).min(self.large_network(clients)?))
    }

    /// Bytes per second of all servers' disks if each request of so many bytes needs an access of
    /// its own, of so many seconds: D t(s, a, d) (section 4.2.4, multiple clients).
    pub fn many_disks(&self, block: f64, access_s: Option<f64>) -> Option<f64> {
        Some(self.data? * small(block, access_s?, self.disk_bytes_s?))
    }
}

/// t(s, l, n) = s / (s / n + l) of section 4.2.4: bytes per second of blocks of `block` bytes with
/// `latency_s` seconds each over `bytes_s`.
pub fn small(block: f64, latency_s: f64, bytes_s: f64) -> f64 {
    block / (block / bytes_s + latency_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal to as many digits as the thesis prints.
    fn printed(value: Option<f64>, text: &str) {
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        assert_eq!(format!("{:.decimals$}", value.unwrap()), text);
    }

    #[test]
    fn the_numbers_of_the_thesis_come_out() {
        let average = CLUSTER_2006;
        // The thesis prints 86.08 ms and 11.6; the sum beside it, 10 x 8.5 ms + 4 x 0.52 ms, is
        // 87.08 ms.
        printed(average.create_synchronous(1.0), "11.5");
        printed(average.create_worst(1.0), "6.6");
        printed(average.create_optimistic(1.0), "76.5");
        printed(average.create_network(1.0), "480.8");
        printed(average.create_cpu(), "2800");
        printed(average.small_network(1e3).map(|rate| rate / 1e6), "1.9");
        // Printed as 101.3, from 9.35 ms for the transfer, which is 9.346 ms.
        printed(average.small_network(1e6).map(|rate| rate / 1e6), "101.4");
        printed(average.large_network(9.0).map(|rate| rate / 1e6), "535");
        printed(average.large_disk().map(|rate| rate / 1e6), "200");
        // "one server average rate 11.6, two server rate 23.2": servers add up once clients keep
        // them busy.
        let two = Facts { meta: Some(2.0), ..average.clone() };
        assert_eq!(two.create_synchronous(99.0).unwrap(), 2.0 * average.create_synchronous(99.0).unwrap());
    }

    #[test]
    fn more_clients_hide_the_network_and_not_the_disk() {
        let facts = CLUSTER_2006;
        assert_eq!(facts.create_synchronous(50.0), Some(1.0 / 0.085));
        assert!(facts.create_group(50.0).unwrap() > 40.0 * facts.create_synchronous(50.0).unwrap());
        assert_eq!(facts.create_group(1.0), facts.create_synchronous(1.0));
        assert_eq!((facts.large_network(2.0), facts.large_network(50.0)), (Some(214e6), Some(535e6)));
    }

    #[test]
    fn an_unknown_fact_bounds_nothing_and_measured_ones_are_found() {
        let row = |name: &str, unit: &str, median| Ceiling { name: name.into(), unit: unit.into(), median };
        let rows =
            [row("rpc.unix.1x1", "requests/s", 50_000.0), row("bulk.unix.upload.1c", "GiB/s", 2.0), row("rpc.tcp.1x1.p50", "us", 40.0)];
        let facts = Facts::measured(&rows, "unix", 2, 4);
        assert_eq!((facts.rtt_s, facts.net_bytes_s, facts.access_s), (Some(20e-6), Some((2u64 << 30) as f64), None));
        assert_eq!(Facts::measured(&rows, "tcp", 2, 4).rtt_s, Some(40e-6));
        assert_eq!(
            (facts.create_network(2.0).map(f64::round), facts.create_synchronous(2.0), facts.create_cpu()),
            (Some(100_000.0), None, None)
        );
        assert!(Facts { messages: Some(0.0), ..facts }.create_network(1.0).is_none(), "no infinite rate");
    }
}
