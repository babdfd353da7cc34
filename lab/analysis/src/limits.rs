//! Measurements beside bounds: the creates and streams of a run, the lines that bound them, and how
//! much of the bound was reached.

use serde_json::{Value, json};
use weft_charts::{Axis, Frame, Line, Lines, Style, Unit, categorical};

pub use crate::bounds::{CLUSTER_2006, Facts};
use crate::results::Ceiling;
use crate::run::Run;

const MIB: f64 = (1u64 << 20) as f64;
/// Bytes from which on a block is a large request.
pub const LARGE: f64 = MIB;
const KIB: f64 = 1024.0;
/// A fact that a person may type in: its name, what it is, how many of its units make the unit of
/// [`Facts`], and where it stands there.
type Typed = (&'static str, &'static str, f64, fn(&mut Facts) -> &mut Option<f64>);

const TYPED: [Typed; 9] = [
    ("rtt_us", "round trip, µs", 1e-6, |facts| &mut facts.rtt_s),
    ("net_mib", "network of one client, MiB/s", MIB, |facts| &mut facts.net_bytes_s),
    ("access_us", "synchronous disk access, µs", 1e-6, |facts| &mut facts.access_s),
    ("disk_mib", "disk of one server, MiB/s", MIB, |facts| &mut facts.disk_bytes_s),
    ("cpu_ops", "requests/s of one metadata server's processor", 1.0, |facts| &mut facts.cpu_ops_s),
    ("meta", "metadata servers", 1.0, |facts| &mut facts.meta),
    ("data", "data servers", 1.0, |facts| &mut facts.data),
    ("messages", "messages of a create, one after another", 1.0, |facts| &mut facts.messages),
    ("accesses", "disk accesses of a synchronous create", 1.0, |facts| &mut facts.accesses),
];

/// What was measured: the number at work at once or the size of a block, and the rate.
struct Point {
    name: String,
    at: f64,
    /// Clients that work on their own, each with a connection.
    clients: f64,
    /// For dots of different looks: creates, writes, reads.
    writes: bool,
    /// Median, smallest, largest.
    rates: [f64; 3],
}

/// Facts for a run: typed in where `typed` says so, else those of 2006 if these are asked for, else
/// measured.
pub fn facts(run: &Run, rows: &[Ceiling], typed: impl Fn(&str) -> Option<f64>, transport: &str) -> Facts {
    let servers = |data: bool| {
        let numbers = run.merged.nodes.iter().filter_map(|node| node.server);
        numbers.filter(|number| (*number >= weft_base::ServerId::data(0).0) == data).count()
    };
    let mut facts = if transport == "2006" { CLUSTER_2006 } else { Facts::measured(rows, transport, servers(false), servers(true)) };
    for (name, _, unit, fact) in TYPED {
        if let Some(value) = typed(name).filter(|value| value.is_finite() && *value > 0.0) {
            *fact(&mut facts) = Some(value * unit);
        }
    }
    facts
}

/// The names of facts that may be typed in, with what they are.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    TYPED.iter().map(|(name, title, ..)| (*name, *title))
}

/// The facts, and each measurement with its bounds.
pub fn describe(run: &Run, facts: &Facts) -> Value {
    let mut all = facts.clone();
    let listed =
        TYPED.map(|(name, title, unit, fact)| json!({ "name": name, "title": title, "value": fact(&mut all).map(|value| value / unit) }));
    let mut rows = Vec::new();
    for point in creates(run) {
        let bounds = create_bounds(facts, point.at);
        rows.push(row("creates", &point, &bounds, "/s", 1.0));
    }
    for point in blocks(run) {
        rows.push(row("streams", &point, &stream_bounds(facts, &point), "MiB/s", MIB));
    }
    json!({ "facts": listed, "rows": rows })
}

/// Streams of several clients add up until the servers carry no more.
fn stream_bounds(facts: &Facts, point: &Point) -> [(&'static str, Option<f64>); 3] {
    let many = |one: Option<f64>| one.map(|rate| rate * point.clients.max(1.0));
    let least = |a: Option<f64>, b: Option<f64>| Some(a?.min(b?));
    [
        ("network", least(many(facts.small_network(point.at)), facts.large_network(point.clients.max(1.0)))),
        ("network and disk, each block", many(facts.small_synchronous(point.at))),
        ("disks of all servers", facts.large_disk()),
    ]
}

fn create_bounds(facts: &Facts, clients: f64) -> [(&'static str, Option<f64>); 4] {
    [
        ("network", facts.create_network(clients)),
        ("processor", facts.create_cpu()),
        ("disk shared by those that wait", facts.create_group(clients)),
        ("disk, each create", facts.create_synchronous(clients)),
    ]
}

fn row(kind: &str, point: &Point, bounds: &[(&'static str, Option<f64>)], unit: &str, scale: f64) -> Value {
    let bound = |(name, bound): &(&'static str, Option<f64>)| {
        bound.map(|bound| json!({ "name": name, "bound": bound / scale, "efficiency": point.rates[0] / bound }))
    };
    let rates = point.rates.map(|rate| rate / scale);
    json!({ "kind": kind, "name": point.name, "at": point.at, "rates": rates, "unit": unit, "bounds": bounds.iter().filter_map(bound).collect::<Vec<_>>() })
}

/// Rates of creates: those of the benchmark over requests in flight, that of the trace over the
/// number that ran at once on average (Little's law: time of all of them over the duration).
fn creates(run: &Run) -> Vec<Point> {
    let phases = run.results.phases.iter().filter(|phase| phase.phase.starts_with("create"));
    let mut points: Vec<Point> = phases
        .map(|phase| Point {
            name: format!("{}, {} processes of {} threads, depth {}", phase.title(), phase.procs, phase.clients, phase.depth),
            at: f64::from(phase.procs) * f64::from(phase.clients) * f64::from(phase.depth),
            clients: f64::from(phase.procs) * f64::from(phase.clients),
            writes: true,
            rates: [phase.ops_per_s.median, phase.ops_per_s.min, phase.ops_per_s.max],
        })
        .collect();
    let seconds = run.duration_ns as f64 / 1e9;
    let (mut count, mut busy) = (0u64, 0u64);
    for lane in run.lanes.lanes.iter().filter(|lane| run.merged.nodes[lane.node].server.is_none()) {
        for (kind, track) in &lane.tracks {
            let kind = &run.lanes.kinds[usize::from(*kind)];
            if kind.name == "client.create" {
                let (spans, ns) = track.total(&run.spans_of(lane.node), 0, u64::MAX);
                (count, busy) = (count + spans, busy + ns);
            }
        }
    }
    if count > 0 {
        // While creates ran: other operations of the same threads took the rest of the time.
        let all: u64 = run
            .lanes_of(crate::sublane::SubLane::Operation)
            .filter(|(_, lane)| run.merged.nodes[lane.node].server.is_none())
            .flat_map(|(_, lane)| lane.tracks.iter().map(move |(_, track)| track.total(&run.spans_of(lane.node), 0, u64::MAX).1))
            .sum();
        let share = busy as f64 / all.max(1) as f64;
        let rate = count as f64 / (seconds * share);
        points.push(Point {
            name: "client.create of the trace, in the time given to creates".into(),
            at: busy as f64 / 1e9 / (seconds * share),
            clients: 1.0,
            writes: true,
            rates: [rate; 3],
        });
    }
    points
}

/// Rates of streams, of all their clients together, over the size of a block.
fn blocks(run: &Run) -> Vec<Point> {
    let phases = run.results.phases.iter().filter(|phase| phase.block_bytes > 0);
    phases
        .filter_map(|phase| {
            let rates = phase.mib_per_s.as_ref()?;
            let block = Unit::Bytes.format(phase.block_bytes as f64);
            let name = format!(
                "{}, blocks of {block}, {} processes of {} threads, depth {}",
                phase.title(),
                phase.procs,
                phase.clients,
                phase.depth
            );
            let (clients, writes) = (f64::from(phase.procs) * f64::from(phase.clients), !phase.phase.contains("read"));
            Some(Point {
                name,
                at: phase.block_bytes as f64,
                clients,
                writes,
                rates: [rates.median, rates.min, rates.max].map(|rate| rate * MIB),
            })
        })
        .collect()
}

/// One of the charts: `create`, `large`, `small` or `many`.
pub fn chart(run: &Run, facts: &Facts, which: &str, clients_max: u64, width: u32) -> Lines {
    let clients_max = clients_max.clamp(2, 100_000) as f64;
    let by_clients = |wanted: fn(&Point) -> bool| -> Vec<Point> {
        blocks(run).into_iter().filter(wanted).map(|point| Point { at: point.clients, ..point }).collect()
    };
    let (title, subtitle, x, y, bounds, points) = match which {
        "large" => {
            let at: Vec<f64> = steps(clients_max);
            let bounds = vec![
                bound(0, format!("network: min(c, {}) × {}", known(facts.data), rate(facts.net_bytes_s)), &at, |c| facts.large_network(c)),
                bound(1, format!("disks: {} × {}", known(facts.data), rate(facts.disk_bytes_s)), &at, |_| facts.large_disk()),
            ];
            let (x, y) = (Axis::linear("clients", Unit::Count), Axis::linear("all clients", Unit::BytesPerSecond));
            ("Large requests", "section 4.2.3", x, y, bounds, by_clients(|point| point.at >= LARGE))
        }
        "many" => {
            let at: Vec<f64> = steps(clients_max);
            let disks = |name: &str, access_s: Option<f64>| {
                format!("{name}: {} × s / (s / {} + {})", known(facts.data), rate(facts.disk_bytes_s), seconds(access_s))
            };
            let of_disks = |colour, name: &str, access_s| bound(colour, disks(name, access_s), &at, |_| facts.many_disks(KIB, access_s));
            let bounds = vec![
                bound(0, format!("network: c × s / (s / {} + {})", rate(facts.net_bytes_s), seconds(facts.rtt_s)), &at, |c| {
                    facts.many_network(c, KIB)
                }),
                of_disks(1, "disks, an access each", facts.access_s),
                of_disks(5, "the same on the worst disks", facts.worst_access_s),
                of_disks(6, "and on the best", facts.best_access_s),
            ];
            let (x, y) = (Axis::linear("clients c", Unit::Count), Axis::log("all clients", Unit::BytesPerSecond));
            let tiny = by_clients(|point| point.at == KIB);
            ("Requests of 1 KiB by many clients", "section 4.2.4, multiple clients", x, y, bounds, tiny)
        }
        "small" => {
            let at: Vec<f64> = (36..=96).map(|quarter| 2f64.powf(f64::from(quarter) / 4.0)).collect();
            let latency = seconds(facts.rtt_s);
            let both = seconds(facts.rtt_s.zip(facts.access_s).map(|(rtt, access)| rtt + access));
            let slower = rate(facts.net_bytes_s.zip(facts.disk_bytes_s).map(|(net, disk)| net.min(disk)));
            let bounds = vec![
                bound(0, format!("network: s / (s / {} + {latency})", rate(facts.net_bytes_s)), &at, |s| facts.small_network(s)),
                bound(1, format!("with a disk access each: s / (s / {slower} + {both})"), &at, |s| facts.small_synchronous(s)),
            ];
            let (x, y) = (Axis::log("block size s", Unit::Bytes), Axis::log("bandwidth", Unit::BytesPerSecond));
            let one = |point: Point| Point { rates: point.rates.map(|rate| rate / point.clients.max(1.0)), ..point };
            let points = blocks(run).into_iter().map(one).collect();
            ("One client, by size of a block", "section 4.2.4: t = s / (s / n + l)", x, y, bounds, points)
        }
        _ => {
            let points = creates(run);
            let farthest = points.iter().map(|point| point.at).fold(clients_max, f64::max);
            let at: Vec<f64> = steps(farthest);
            let (m, k, servers) = (known(facts.messages), known(facts.accesses), known(facts.meta));
            let (rtt, access) = (seconds(facts.rtt_s), seconds(facts.access_s));
            let processor =
                format!("processors: {servers} × {} / {m}", facts.cpu_ops_s.map_or_else(String::new, |rate| Unit::PerSecond.format(rate)));
            let bounds = vec![
                bound(0, format!("network: c / ({m} × {rtt})"), &at, |c| facts.create_network(c)),
                bound(3, processor, &at, |_| facts.create_cpu()),
                bound(4, format!("disk shared by those that wait: c / ({m} × {rtt} + {k} × {access})"), &at, |c| facts.create_group(c)),
                bound(
                    1,
                    format!("disk, each create: min(c / ({m} × {rtt} + {k} × {access}), {servers} / ({k} × {access}))"),
                    &at,
                    |c| facts.create_synchronous(c),
                ),
                bound(5, format!("the same on the worst disk: {}", seconds(facts.worst_access_s)), &at, |c| facts.create_worst(c)),
                bound(6, format!("and on the best: {}", seconds(facts.best_access_s)), &at, |c| facts.create_optimistic(c)),
            ];
            let (x, y) = (Axis::log("clients c (requests under way at once)", Unit::Count), Axis::log("creates", Unit::PerSecond));
            ("Creates", "section 4.2.2", x, y, bounds, points)
        }
    };
    let lines: Vec<Line> = bounds.into_iter().flatten().chain(dots(&points)).collect();
    let note = match lines.is_empty() {
        false => "Dashed: estimated upper bounds (Kunkel 2006, chapter 4). Dots: measured.",
        true => {
            "Nothing to draw: no fact about the hardware is known (give the file of `weft bench ceiling --json`, choose the cluster of 2006, \
             or type facts in), and nothing was measured"
        }
    };
    Lines { frame: Frame::new(title, subtitle).sized(width, 380).with_note(note), x, y, lines, marks: Vec::new() }
}

fn steps(to: f64) -> Vec<f64> {
    (0..=60).map(|step| to.powf(f64::from(step) / 60.0)).collect()
}

fn bound(colour: usize, name: String, at: &[f64], value: impl Fn(f64) -> Option<f64>) -> Option<Line> {
    let points: Option<Vec<(f64, f64)>> = at.iter().map(|x| Some((*x, value(*x)?))).collect();
    points.map(|points| Line { name, color: categorical(colour).color, style: Style::Bound, points })
}

/// Writes (and creates) dark, reads in a colour that no bound has.
fn dots(points: &[Point]) -> Vec<Line> {
    let of = |(writes, what, color): (bool, &str, u32)| {
        let chosen = points.iter().filter(|point| point.writes == writes);
        let points: Vec<(f64, f64)> = chosen.flat_map(|point| point.rates.map(|rate| (point.at, rate))).collect();
        (!points.is_empty()).then(|| Line { name: format!("{what}: median, smallest, largest"), color, style: Style::Dots, points })
    };
    let written = if points.iter().all(|point| point.writes) { "measured" } else { "measured, written" };
    [(true, written, 0x22_22_22), (false, "measured, read", 0xB0_00_20)].into_iter().filter_map(of).collect()
}

/// A count of a formula.
fn known(value: Option<f64>) -> f64 {
    value.unwrap_or(1.0)
}

fn seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "?".into(), |value| Unit::Seconds.format(value))
}

fn rate(value: Option<f64>) -> String {
    value.map_or_else(|| "?".into(), |value| Unit::BytesPerSecond.format(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Results;
    use crate::sample::{Sample, merged};

    fn bench() -> Run {
        let mut results = Results::default();
        let spread = r#"{"median":240.4,"min":200.0,"max":250.0}"#;
        let json = format!(
            r#"[{{"phase":"create","procs":1,"clients":1,"ops_per_s":{spread}}},{{"phase":"write","block_bytes":1048576,"ops_per_s":{spread},"mib_per_s":{spread}}}]"#
        );
        results.add_json(json.as_bytes()).unwrap();
        Run::of("bench", weft_trace::merge::merge(Vec::new()), Vec::new(), results)
    }

    #[test]
    fn a_measurement_is_held_against_every_bound_that_is_known() {
        let run = bench();
        let facts = facts(&run, &[], |_| None, "2006");
        let told = describe(&run, &facts);
        let create = &told["rows"][0];
        assert_eq!(create["bounds"][0]["name"], "network");
        assert!((create["bounds"][0]["efficiency"].as_f64().unwrap() - 0.5).abs() < 1e-3, "240.4 of 480.8");
        assert_eq!((create["bounds"].as_array().unwrap().len(), told["rows"][1]["unit"].as_str()), (4, Some("MiB/s")));
        let none = describe(&run, &super::facts(&run, &[], |_| None, "unix"));
        assert_eq!(none["rows"][0]["bounds"].as_array().unwrap().len(), 0);
        for which in ["create", "large", "small", "many"] {
            assert!(chart(&run, &facts, which, 64, 900).lines.len() >= 2);
            assert!(!chart(&run, &facts, which, 64, 900).svg().contains("NaN"));
        }
    }

    #[test]
    fn streams_of_several_clients_are_held_against_what_several_may_do() {
        let phase = |name: &str, procs: u32| {
            let spread = r#"{"median":300.0,"min":290.0,"max":310.0}"#;
            format!(r#"{{"phase":"{name}","procs":{procs},"clients":1,"block_bytes":1048576,"ops_per_s":{spread},"mib_per_s":{spread}}}"#)
        };
        let mut results = Results::default();
        results.add_json(format!("[{},{}]", phase("write", 4), phase("read", 4)).as_bytes()).unwrap();
        let run = Run::of("bench", weft_trace::merge::merge(Vec::new()), Vec::new(), results);
        let facts = facts(&run, &[], |_| None, "2006");
        let row = &describe(&run, &facts)["rows"][0];
        // 4 x 101 MB/s of one client over the network.
        let network = row["bounds"][0]["efficiency"].as_f64().unwrap();
        assert!((0.7..0.85).contains(&network), "{row}");
        assert!(row["name"].as_str().unwrap().contains("blocks of 1 MiB"), "{row}");
        for which in ["large", "small"] {
            let chart = chart(&run, &facts, which, 64, 900);
            let measured: Vec<&Line> = chart.lines.iter().filter(|line| line.style == Style::Dots).collect();
            assert_eq!(measured.len(), 2, "{which}");
            assert_ne!(measured[0].color, measured[1].color);
        }
        let nothing = Run::of("empty", weft_trace::merge::merge(Vec::new()), Vec::new(), Results::default());
        let empty = chart(&nothing, &super::facts(&nothing, &[], |_| None, "unix"), "large", 64, 900).svg();
        assert!(empty.contains("Nothing to draw"), "{empty}");
    }

    #[test]
    fn typed_facts_go_before_measured_ones_and_nonsense_is_left_out() {
        let run = bench();
        let typed = |name: &str| match name {
            "rtt_us" => Some(100.0),
            "access_us" => Some(-1.0),
            "meta" => Some(3.0),
            _ => None,
        };
        let facts = facts(&run, &[], typed, "2006");
        assert_eq!((facts.rtt_s.map(|s| (s * 1e6).round()), facts.access_s, facts.meta), (Some(100.0), Some(8.5e-3), Some(3.0)));
    }

    #[test]
    fn the_creates_of_a_trace_are_a_point_within_its_clients() {
        let run = Run::new(merged(&Sample { operations: 800, ..Sample::default() }), Vec::new());
        let points = creates(&run);
        assert_eq!(points.len(), 1);
        assert!(points[0].at > 4.0 && points[0].at <= 8.0, "two clients of four threads: {}", points[0].at);
    }
}
