//! `weft bench logp`: what messages between nodes cost, as the parameters of LogP (Culler et al.
//! 1993) and LogGP (Alexandrov et al. 1995), between all pairs of a file system's servers.
//!
//! A process stands beside each server of this machine and sends pings to each of the others, with
//! data of the wanted size beside the request, through the connections that file operations use.
//! `probe` measures, `fit` draws straight lines, `picture` draws.

mod fit;
mod picture;
mod probe;

use std::ffi::OsString;
use std::net::{ToSocketAddrs, UdpSocket};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use weft_base::ServerEntry;
use weft_host::connect::{Common, Fs};
use weft_host::output::{Table, print_as};
use weft_host::units::{ByteSize, seconds};
use weft_wire::BULK_BYTES_MAX;

use crate::crew::{Crew, Stop};
use crate::run::temporary_dir;
use crate::system::System;
use fit::Fit;
use probe::{Answer, Order, Point, median};

pub use probe::Args as WorkerArgs;

/// MiB.
const MIB: f64 = (1u64 << 20) as f64;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
o_s is how long a message keeps its sender, o_r how long it keeps its receiver, g(m) the time between messages of m bytes that follow each
other, G that of each further byte, L half a round trip without g(0) (Kielmann et al. 2000). What more bytes cost a receiver is told by the
processor time of the server. Lines are least squares of relative differences. Transfers are timed between the ends of two that follow each other, by all pairs of the first 2, 3
and more nodes at once.

A process of this machine can only stand beside a server of this machine. Where servers are on several, run the command on each.

Examples:
  weft bench logp ~/fs --plot logp.svg       between the servers of a file system
  weft bench logp --nodes 4 --json           between four servers on the loopback interface, started for this")]
pub struct Args {
    /// The file system whose servers are the nodes [default: one that is started for this]
    fs: Option<OsString>,
    /// Only these servers of it, by name
    #[arg(long, value_name = "SERVER", value_delimiter = ',', requires = "fs")]
    only: Vec<String>,
    /// Servers of the file system that is started for this
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=32), conflicts_with = "fs")]
    nodes: u16,
    /// How they are reached
    #[arg(long, value_name = "HOW", default_value = "tcp", value_parser = ["tcp", "unix"], conflicts_with = "fs")]
    listen: String,
    /// Bytes of messages, 8 MiB at most
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "0,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB")]
    sizes: Vec<ByteSize>,
    /// Bytes of a transfer, as messages of 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "50000000")]
    transfer: ByteSize,
    /// Transfers of each pair
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// Seconds for each pair and size
    #[arg(long, value_name = "S", default_value_t = 0.1, value_parser = seconds(0.000_001, 60.0))]
    seconds: f64,
    /// Write a picture of it (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON: an object for each pair (`messages`), then for each pair and number of nodes
    /// (`transfers`), and the means of both
    #[arg(long)]
    json: bool,
}

/// The parameters of one pair.
#[derive(Debug, Serialize)]
struct Messages {
    what: &'static str,
    from: String,
    to: String,
    /// `L` in microseconds.
    latency_us: f64,
    /// `o_s` over the size of messages.
    send: Option<Fit>,
    /// `o_r` over the size of messages.
    receive: Option<Fit>,
    /// `g(m)`; its slope is `G`.
    gap: Option<Fit>,
    points: Vec<Point>,
}

/// Transfers of one pair while all pairs of so many nodes had some.
#[derive(Debug, Serialize)]
struct Transfers {
    what: &'static str,
    nodes: usize,
    from: String,
    to: String,
    bytes: u64,
    /// The median.
    gap_us: f64,
    mib_per_s: f64,
}

/// Means over all pairs.
#[derive(Debug, Serialize)]
struct Means {
    what: &'static str,
    nodes: usize,
    pairs: usize,
    /// Of all pairs, each alone.
    #[serde(flatten)]
    parameters: Option<Parameters>,
    /// Of transfers.
    #[serde(skip_serializing_if = "Option::is_none")]
    transfer_gap_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transfer_mib_per_s: Option<f64>,
}

/// LogP's letters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Parameters {
    latency_us: f64,
    o_s_us: f64,
    o_r_us: f64,
    gap_us: f64,
    gap_per_byte_ns: f64,
}

impl Messages {
    fn new(from: &str, to: &str, points: Vec<Point>) -> Messages {
        let least = points.iter().min_by_key(|point| point.bytes).copied();
        // What more bytes cost the receiver is told by the server's processor time; what a message
        // costs who receives it at all, by the answers.
        let received = |point: &Point| least.map_or(0.0, |least| least.receive_us + (point.server_us - least.server_us).max(0.0));
        // RTT(0) = 2 (L + g(0)): Kielmann, Bal, Verstoep, "Fast measurement of LogP parameters",
        // 2000.
        let latency = |least: Point| least.round_trip_us / 2.0 - least.gap_us;
        let fit =
            |of: &dyn Fn(&Point) -> f64| Fit::through(&points.iter().map(|point| (point.bytes as f64, of(point))).collect::<Vec<_>>());
        Messages {
            what: "messages",
            from: from.to_string(),
            to: to.to_string(),
            latency_us: least.map_or(0.0, latency),
            send: fit(&|point| point.send_us),
            receive: fit(&received),
            gap: fit(&|point| point.gap_us),
            points,
        }
    }

    fn parameters(&self) -> Option<Parameters> {
        let (send, receive, gap) = (self.send?, self.receive?, self.gap?);
        Some(Parameters {
            latency_us: self.latency_us,
            o_s_us: send.fixed_us,
            o_r_us: receive.fixed_us,
            gap_us: gap.fixed_us,
            gap_per_byte_ns: gap.per_byte_ns,
        })
    }
}

/// All that was measured.
#[derive(Debug, Default)]
struct Found {
    messages: Vec<Messages>,
    transfers: Vec<Transfers>,
}

/// Between whom: processes, each with the server beside it if there is one, and all servers.
struct Nodes {
    servers: Vec<ServerEntry>,
    /// Names of the nodes with a process; the positions of their servers in `servers`.
    beside: Vec<(String, Option<usize>)>,
}

impl Args {
    /// Measures and prints.
    ///
    /// # Errors
    /// If a server does not answer; it says which.
    pub fn run(self, common: &Common) -> Result<()> {
        ensure!(self.sizes.iter().all(|size| size.0 <= BULK_BYTES_MAX as u64), "a message has 8 MiB at most");
        let mut sizes: Vec<u64> = self.sizes.iter().map(|size| size.0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        ensure!(sizes.len() > 1, "a line needs two sizes of messages at least");
        ensure!(self.transfer.0 > 0, "a transfer has a byte at least");
        let stop = Stop::at_signals()?;
        let place = temporary_dir(None)?;
        let mut started = None;
        let fs = match &self.fs {
            Some(fs) => fs.clone(),
            None => {
                let up = ["--meta", "1", "--data", &(self.nodes - 1).to_string(), "--listen", &self.listen, "--engine", "memory"];
                let system = System::start(place.path().join("fs"), &up.map(str::to_string), None)?;
                started.insert(system).state.clone().into_os_string()
            }
        };
        let nodes = Nodes::of(&Fs::open(&fs, common)?, &self.only)?;
        let mut crew = Crew::start(common, nodes.beside.len() as u32, |_| WorkerArgs::words(&fs), &stop)?;
        let found = Found { messages: nodes.messages(&mut crew, &sizes, self.seconds)?, transfers: nodes.transfers(&mut crew, &self)? };
        drop(crew);
        drop(started);
        let write =
            |path: &PathBuf| std::fs::write(path, picture::draw(&found)).with_context(|| format!("cannot write {}", path.display()));
        // What was measured is told whatever becomes of its picture.
        let drawn = self.plot.as_ref().map_or(Ok(()), write);
        print_as(self.json, &found.json()?, || found.table(nodes.left_out()))?;
        drawn?;
        Ok(())
    }
}

impl Nodes {
    fn of(fs: &Fs, only: &[String]) -> Result<Nodes> {
        // Every server is asked before anything is measured: who does not answer is named.
        let mut servers = Vec::new();
        for (server, answer) in fs.ping_all() {
            if only.is_empty() || only.contains(&server.name) {
                answer.map_err(|error| anyhow::anyhow!("{} does not answer: {}", server.name, fs.why(&error)))?;
                servers.push(server);
            }
        }
        if let Some(unknown) = only.iter().find(|name| !servers.iter().any(|server| server.name == **name)) {
            bail!("{} has no server {unknown}", fs.name);
        }
        let is_here = |server: &ServerEntry| is_of_this_machine(&server.address);
        let mut beside: Vec<(String, Option<usize>)> =
            (0..servers.len()).filter(|at| is_here(&servers[*at])).map(|at| (servers[at].name.clone(), Some(at))).collect();
        if beside.is_empty() {
            beside.push(("here".to_string(), None));
        }
        ensure!(servers.len() > 1 || beside[0].1.is_none(), "{}: a pair needs two nodes", fs.name);
        Ok(Nodes { servers, beside })
    }

    /// Servers whose own messages cannot be measured from here.
    fn left_out(&self) -> Vec<&str> {
        let names = self.servers.iter().enumerate();
        let others = names.filter(|(at, _)| !self.beside.iter().any(|(_, beside)| *beside == Some(*at)));
        others.map(|(_, server)| &server.name[..]).collect()
    }

    /// Each pair after the other, with nobody else on the way.
    fn messages(&self, crew: &mut Crew, sizes: &[u64], seconds: f64) -> Result<Vec<Messages>> {
        let mut found = Vec::new();
        for (process, (from, own)) in self.beside.iter().enumerate() {
            for (_, to) in self.servers.iter().enumerate().filter(|(at, _)| Some(*at) != *own) {
                let mut orders = vec![Order::Rest; self.beside.len()];
                orders[process] = Order::Messages { server: to.id.0, sizes: sizes.to_vec(), seconds };
                match crew.ask(&orders)?.swap_remove(process) {
                    Answer::Messages(points) => found.push(Messages::new(from, &to.name, points)),
                    Answer::Failed(why) => bail!("{from} to {}: {why}", to.name),
                    Answer::Transfers(_) => bail!("{from} has answered something else"),
                }
            }
        }
        Ok(found)
    }

    /// All pairs of the first two nodes at once, then of three, and so on.
    fn transfers(&self, crew: &mut Crew, args: &Args) -> Result<Vec<Transfers>> {
        let mut found = Vec::new();
        for nodes in self.servers.len().min(2)..=self.servers.len() {
            let targets = |own: Option<usize>| (0..nodes).filter(move |at| Some(*at) != own).map(|at| &self.servers[at]);
            let order = |(_, own): &(String, Option<usize>)| match own {
                Some(own) if *own >= nodes => Order::Rest,
                _ => {
                    let servers = targets(*own).map(|server| server.id.0).collect();
                    Order::Transfers { servers, bytes: args.transfer.0, times: args.reps }
                }
            };
            let orders: Vec<Order> = self.beside.iter().map(order).collect();
            for ((from, own), answer) in self.beside.iter().zip(crew.ask(&orders)?) {
                let gaps = match answer {
                    Answer::Transfers(gaps) => gaps,
                    Answer::Failed(why) => bail!("{from}: {why}"),
                    Answer::Messages(_) => bail!("{from} has answered something else"),
                };
                for (to, mut gaps) in targets(*own).zip(gaps) {
                    let gap_s = median(&mut gaps);
                    let mib_per_s = args.transfer.0 as f64 / MIB / gap_s.max(1e-9);
                    let (from, to) = (from.clone(), to.name.clone());
                    found.push(Transfers { what: "transfers", nodes, from, to, bytes: args.transfer.0, gap_us: gap_s * 1e6, mib_per_s });
                }
            }
        }
        Ok(found)
    }
}

/// True if a process here is as near to the server as one on its machine.
fn is_of_this_machine(address: &str) -> bool {
    let Some(place) = address.strip_prefix("tcp:") else { return address.starts_with("unix:") };
    // Only addresses of this machine can be bound to.
    place.to_socket_addrs().is_ok_and(|mut all| all.all(|address| UdpSocket::bind((address.ip(), 0)).is_ok()))
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    sum / f64::max(count, 1.0)
}

impl Found {
    /// Numbers of nodes of transfers.
    fn nodes(&self) -> Vec<usize> {
        let mut nodes: Vec<usize> = self.transfers.iter().map(|one| one.nodes).collect();
        nodes.dedup();
        nodes
    }

    fn of(&self, nodes: usize) -> impl Iterator<Item = &Transfers> {
        self.transfers.iter().filter(move |one| one.nodes == nodes)
    }

    fn parameters(&self) -> Option<Parameters> {
        let all: Vec<Parameters> = self.messages.iter().filter_map(Messages::parameters).collect();
        let of = |value: fn(&Parameters) -> f64| mean(all.iter().map(value));
        (!all.is_empty()).then(|| Parameters {
            latency_us: of(|one| one.latency_us),
            o_s_us: of(|one| one.o_s_us),
            o_r_us: of(|one| one.o_r_us),
            gap_us: of(|one| one.gap_us),
            gap_per_byte_ns: of(|one| one.gap_per_byte_ns),
        })
    }

    fn means(&self) -> Vec<Means> {
        let what = "means";
        let largest = self.nodes().last().copied().unwrap_or(0);
        let of_messages = Means {
            what,
            nodes: largest,
            pairs: self.messages.len(),
            parameters: self.parameters(),
            transfer_gap_us: None,
            transfer_mib_per_s: None,
        };
        let of_transfers = self.nodes().into_iter().map(|nodes| Means {
            what: "transfer means",
            nodes,
            pairs: self.of(nodes).count(),
            parameters: None,
            transfer_gap_us: Some(mean(self.of(nodes).map(|one| one.gap_us))),
            transfer_mib_per_s: Some(mean(self.of(nodes).map(|one| one.mib_per_s))),
        });
        std::iter::once(of_messages).chain(of_transfers).collect()
    }

    fn json(&self) -> Result<Vec<serde_json::Value>> {
        let messages = self.messages.iter().map(serde_json::to_value);
        let transfers = self.transfers.iter().map(serde_json::to_value);
        let means = self.means();
        let means = means.iter().map(serde_json::to_value);
        Ok(messages.chain(transfers).chain(means).collect::<Result<_, _>>()?)
    }

    fn table(&self, left_out: Vec<&str>) -> String {
        let mut table = Table::new(&["from", "to", "o_s us", "o_r us", "L us", "g us", "G ns/byte", "G off by"]);
        let row = |from: &str, to: &str, one: Parameters, off: String| {
            let numbers = [one.o_s_us, one.o_r_us, one.latency_us, one.gap_us, one.gap_per_byte_ns];
            let cells = [from.to_string(), to.to_string()].into_iter().chain(numbers.map(|number| format!("{number:.2}")));
            cells.chain([off]).collect()
        };
        for one in &self.messages {
            let off = one.gap.map_or_else(String::new, |gap| format!("{:.0} %", gap.off_by * 100.0));
            if let Some(parameters) = one.parameters() {
                table.row(row(&one.from, &one.to, parameters, off));
            }
        }
        if let Some(parameters) = self.parameters() {
            table.row(row("mean", "", parameters, String::new()));
        }
        let mut transfers = Table::new(&["nodes", "pairs at once", "gap ms", "MiB/s of a pair"]);
        for nodes in self.nodes() {
            let of = |value: fn(&Transfers) -> f64| mean(self.of(nodes).map(value));
            let (gap_us, rate) = (of(|one| one.gap_us), of(|one| one.mib_per_s));
            transfers.row(vec![
                nodes.to_string(),
                self.of(nodes).count().to_string(),
                format!("{:.2}", gap_us / 1e3),
                format!("{rate:.1}"),
            ]);
        }
        let bytes = self.transfers.first().map_or(0, |one| one.bytes);
        let rest = match &left_out[..] {
            [] => String::new(),
            names => format!("\nFrom {}: run this on their machines.\n", names.join(", ")),
        };
        format!("{}\nTransfers of {}, means of pairs:\n{}{rest}", table.render(), ByteSize(bytes), transfers.render())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(bytes: u64) -> Point {
        let us = |fixed: f64, per_byte_ns: f64| fixed + bytes as f64 * per_byte_ns / 1e3;
        Point { bytes, send_us: us(2.0, 0.1), receive_us: 3.0, round_trip_us: us(40.0, 2.0), server_us: us(5.0, 0.3), gap_us: us(6.0, 1.0) }
    }

    #[test]
    fn the_letters_follow_from_the_points() {
        let pair = Messages::new("a", "b", [0, 1024, 1 << 20].map(point).into());
        let letters = pair.parameters().expect("three sizes");
        let near = |value: f64, wanted: f64| assert!((value - wanted).abs() < 1e-6, "{letters:?}, {wanted}");
        near(letters.latency_us, 40.0 / 2.0 - 6.0);
        near(letters.o_s_us, 2.0);
        near(letters.o_r_us, 3.0);
        near(letters.gap_us, 6.0);
        near(letters.gap_per_byte_ns, 1.0);
        near(pair.receive.expect("a line").per_byte_ns, 0.3);
    }

    #[test]
    fn means_are_of_all_pairs_with_as_many_nodes() {
        let one = |nodes, gap_us| Transfers {
            what: "transfers",
            nodes,
            from: "a".into(),
            to: "b".into(),
            bytes: 1 << 20,
            gap_us,
            mib_per_s: 1e6 / gap_us,
        };
        let pair = |to: &str| Messages::new("a", to, [0, 1024].map(point).into());
        let found = Found { messages: vec![pair("b"), pair("c")], transfers: vec![one(2, 10.0), one(2, 30.0), one(3, 50.0)] };
        let means = found.means();
        assert_eq!(
            means.iter().map(|one| (one.nodes, one.pairs, one.transfer_gap_us)).collect::<Vec<_>>(),
            [(3, 2, None), (2, 2, Some(20.0)), (3, 1, Some(50.0))]
        );
        assert!(means[0].parameters.is_some_and(|letters| (letters.o_s_us - 2.0).abs() < 1e-6));
        let text = found.table(vec!["data7"]);
        assert!(text.contains("From data7: run this on their machines") && text.contains("mean"), "{text}");
        let picture = picture::draw(&found);
        assert!(picture.contains("g(m)") && picture.contains("Gap") && picture.contains("Bandwidth"));
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        assert!(is_of_this_machine("unix:/run/x") && is_of_this_machine("tcp:127.0.0.1:99"));
        // 192.0.2.0/24 is for documentation (RFC 5737): nobody has it.
        assert!(!is_of_this_machine("tcp:192.0.2.1:99") && !is_of_this_machine("nonsense"));
    }
}
