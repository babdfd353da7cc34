//! Suspects: places with much time, those first that stand out from their like.
//!
//! A place is a stage at a client, at a server, or on the way to one of them. It is ranked by its seconds plus its excess: what would be
//! saved if each visit took as long as it does, on the mean, at the median of the other places of the same kind. So a disk that is as slow
//! as all others is ranked by its time alone, and the one slow link among four comes before a busy processor that is as busy everywhere.

use std::collections::BTreeMap;

use serde::Serialize;

use super::report::{quantile_us, ratio, seconds};
use super::{Analysis, Operation, Segment};
use crate::{EventId, Stage};

/// A place where time goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspect {
    /// [`Stage::name`].
    pub stage: &'static str,
    /// The node, for example `meta0`; of messages the end that stands out.
    pub place: String,
    /// Share of the time of all operations looked at, 0 to 1.
    pub share: f64,
    /// Seconds spent here on critical paths.
    pub seconds: f64,
    /// Of these, seconds beyond what the same visits cost at comparable places; 0 if there are none.
    pub excess_seconds: f64,
    /// Visits.
    pub visits: u64,
    /// Median of a visit in microseconds.
    pub p50_us: f64,
    /// 99th percentile of a visit in microseconds.
    pub p99_us: f64,
    /// The same as sentences for people.
    pub evidence: String,
}

/// Which end of a message is looked at: each is a place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// A node, by position: something inside it, or the ways of messages to and from this client.
    Node(usize),
    /// The ways of messages to and from this server.
    Server(u16),
}

/// Visits of one kind at one place.
#[derive(Default)]
struct Visits {
    total_ns: u64,
    shared_disk_ns: u64,
    times: Vec<u64>,
}

type Detail = (EventId, Option<u8>);

pub(super) fn suspects(analysis: &Analysis<'_>, operations: &[&Operation], count_max: usize) -> Vec<Suspect> {
    let total_ns: u64 = operations.iter().map(|operation| operation.dur_ns).sum();
    let mut cells: BTreeMap<(Stage, Place), BTreeMap<Detail, Visits>> = BTreeMap::new();
    for segment in operations.iter().flat_map(|operation| &operation.path) {
        for place in places(segment) {
            let visits = cells.entry((segment.stage, place)).or_default().entry((segment.event, segment.phase)).or_default();
            visits.total_ns += segment.dur_ns;
            visits.shared_disk_ns += segment.shared_disk_ns;
            visits.times.push(segment.dur_ns);
        }
    }
    let mut found: Vec<(f64, Suspect)> = Vec::new();
    for ((stage, place), details) in &cells {
        // With one client and several servers, or the other way round, only the end of which there are several can stand out.
        if is_message(*stage) && is_alone(&cells, *stage, *place) && !is_alone(&cells, *stage, other_end(&cells, *stage, *place)) {
            continue;
        }
        let excess_ns: u64 = details.iter().map(|(detail, visits)| excess(&cells, *stage, *place, *detail, visits)).sum();
        let suspect = suspect(analysis, *stage, *place, details, excess_ns, total_ns);
        found.push((suspect.seconds + suspect.excess_seconds, suspect));
    }
    found.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.place.cmp(&other.place)));
    found.into_iter().take(count_max).map(|(_, suspect)| suspect).collect()
}

/// A message is looked at from both ends.
fn places(segment: &Segment) -> impl Iterator<Item = Place> + use<> {
    let server = segment.peer.filter(|_| is_message(segment.stage) && segment.phase.is_none()).map(Place::Server);
    // What nobody saw happened at the server, or on the way to it.
    let node = (segment.stage != Stage::Unseen || server.is_none()).then_some(Place::Node(segment.node));
    node.into_iter().chain(server)
}

fn is_message(stage: Stage) -> bool {
    matches!(stage, Stage::Network | Stage::SendQueue | Stage::Unseen)
}

type Cells = BTreeMap<(Stage, Place), BTreeMap<Detail, Visits>>;

fn is_same_kind(a: Place, b: Place) -> bool {
    std::mem::discriminant(&a) == std::mem::discriminant(&b)
}

/// No other place of this kind has this stage.
fn is_alone(cells: &Cells, stage: Stage, place: Place) -> bool {
    !cells.keys().any(|(other_stage, other)| *other_stage == stage && *other != place && is_same_kind(*other, place))
}

/// Some place of the other end of this stage's messages, or the place itself if there is none.
fn other_end(cells: &Cells, stage: Stage, place: Place) -> Place {
    let others = cells.keys().filter(|(other_stage, other)| *other_stage == stage && !is_same_kind(*other, place));
    others.map(|(_, other)| *other).next().unwrap_or(place)
}

/// Nanoseconds that these visits took beyond the median of the means of the other places of the same kind.
fn excess(cells: &Cells, stage: Stage, place: Place, detail: Detail, visits: &Visits) -> u64 {
    let others = cells.iter().filter(|((other_stage, other), _)| *other_stage == stage && *other != place && is_same_kind(*other, place));
    let mut means: Vec<u64> =
        others.filter_map(|(_, details)| details.get(&detail)).map(|other| other.total_ns / (other.times.len() as u64).max(1)).collect();
    means.sort_unstable();
    let Some(usual) = means.get(means.len().saturating_sub(1) / 2) else { return 0 };
    visits.total_ns.saturating_sub(usual * visits.times.len() as u64)
}

fn suspect(
    analysis: &Analysis<'_>,
    stage: Stage,
    place: Place,
    details: &BTreeMap<Detail, Visits>,
    excess_ns: u64,
    total_ns: u64,
) -> Suspect {
    let name = match place {
        Place::Node(node) => analysis.merged.nodes[node].name.clone(),
        Place::Server(server) => analysis.server_name(server),
    };
    let mut times: Vec<u64> = details.values().flat_map(|visits| &visits.times).copied().collect();
    times.sort_unstable();
    let spent_ns: u64 = times.iter().sum();
    let (p50_us, p99_us) = (quantile_us(&times, 0.5), quantile_us(&times, 0.99));
    let share = ratio(spent_ns, total_ns);
    let mut evidence = format!(
        "{} at {name}: {:.1} % of the time in {} visits, {p50_us:.0} us in the median, {p99_us:.0} us at the 99th percentile",
        stage.title(),
        share * 100.0,
        times.len(),
    );
    let most = details.iter().max_by_key(|(_, visits)| visits.total_ns);
    if let Some(((event, _), visits)) = most
        && details.len() > 1
    {
        let part = ratio(visits.total_ns, spent_ns) * 100.0;
        let node = if let Place::Node(node) = place { node } else { 0 };
        evidence += &format!("; {part:.0} % of it in {}", analysis.name(node, *event));
    }
    if excess_ns > 0 {
        let usual = spent_ns - excess_ns;
        evidence += &format!("; {:.1} times what comparable places need", spent_ns as f64 / usual.max(1) as f64);
    }
    let shared_disk_ns: u64 = details.values().map(|visits| visits.shared_disk_ns).sum();
    if shared_disk_ns > 0 {
        evidence += &format!("; {:.0} % of it while the journal's disk was at work", ratio(shared_disk_ns, spent_ns) * 100.0);
    }
    if stage == Stage::Unseen {
        evidence += "; nothing was recorded there";
    }
    Suspect {
        stage: stage.name(),
        place: name,
        share,
        seconds: seconds(spent_ns),
        excess_seconds: seconds(excess_ns),
        visits: times.len() as u64,
        p50_us,
        p99_us,
        evidence,
    }
}
