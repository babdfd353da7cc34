//! Suspects: places with much time, those first that stand out from their like.
//!
//! A place is a stage at a client, at a server, or on the way to one of them. It is ranked by its
//! seconds plus its excess: what would be saved if each visit took as long as it does, on the mean,
//! at the median of the other places of the same kind. So a disk that is as slow as all others is
//! ranked by its time alone, and the one slow link among four comes before a busy processor that is
//! as busy everywhere. Waits behind other work of a server count for that work
//! ([`super::blocking`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::means::Means;
use super::paths::{Spot, StorageNs};
use super::tally::{Tally, micros, quantile, ratio, seconds};
use super::unfinished::Silent;
use super::{Analysis, Storage};
use crate::{EventId, Stage};

/// A place where time goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspect {
    /// [`Stage::name`].
    pub stage: &'static str,
    /// The node, for example `meta0`; of messages the end that stands out, or both with ` - `
    /// between them if only messages from the first to the second do.
    pub place: String,
    /// Share of the time of all operations looked at, 0 to 1.
    pub share: f64,
    /// Seconds spent here on critical paths.
    pub seconds: f64,
    /// Of these, seconds beyond what the same visits cost at comparable places; 0 if there are
    /// none.
    pub excess_seconds: f64,
    /// Seconds that other operations waited meanwhile in the queue of the same server, or for the
    /// end of a turn; theirs are `seconds` of the server queue or journal.
    pub blocking_seconds: f64,
    /// Seconds here that were spent behind other work of the same server, and count for its rank
    /// instead.
    pub blocked_seconds: f64,
    /// Visits.
    pub visits: u64,
    /// Median of a visit in microseconds.
    pub p50_us: f64,
    /// 99th percentile of a visit in microseconds.
    pub p99_us: f64,
    /// The same as sentences for people.
    pub evidence: String,
}

impl Suspect {
    /// A server that owes answers; all operations that ended took `seconds`.
    pub(super) fn silent(silent: &Silent, seconds: f64) -> Suspect {
        Suspect {
            stage: Stage::NoAnswer.name(),
            place: silent.server.clone(),
            share: silent.seconds / (silent.seconds + seconds).max(f64::MIN_POSITIVE),
            seconds: silent.seconds,
            excess_seconds: silent.seconds,
            blocking_seconds: 0.0,
            blocked_seconds: 0.0,
            visits: silent.requests,
            p50_us: silent.seconds * 1e6 / silent.requests.max(1) as f64,
            p99_us: silent.longest_seconds * 1e6,
            evidence: silent.sentence(),
        }
    }
}

/// Where a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// A node, by position: something inside it, or the ways of messages to and from it as one who
    /// asks.
    TracedNode(usize),
    /// The ways of messages to and from this server as one who answers.
    Server(u16),
    /// The ways of messages between one who asks and one who answers.
    Link(usize, u16),
}

impl Place {
    /// True if a message of this link passes the place.
    fn holds(self, node: usize, server: u16) -> bool {
        match self {
            Place::TracedNode(own) => own == node,
            Place::Server(own) => own == server,
            Place::Link(own_node, own_server) => (own_node, own_server) == (node, server),
        }
    }
}

/// Visits of one kind at one place.
#[derive(Default)]
struct Visits<'a> {
    count: u64,
    total_ns: u64,
    /// Of these, behind other work.
    blocked_ns: u64,
    storage_ns: StorageNs,
    /// Nanoseconds of each.
    times: Vec<&'a [u64]>,
}

impl Visits<'_> {
    fn own_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.blocked_ns)
    }

    fn mean_ns(&self) -> u64 {
        self.own_ns() / self.count.max(1)
    }
}

pub(super) type Detail = (EventId, Option<u8>);
type Cells<'a> = BTreeMap<(Stage, Place), BTreeMap<Detail, Visits<'a>>>;

/// A place that takes more times as long as comparable ones is beyond comparison.
const TIMES_MAX: f64 = 1000.0;
/// The other links of an end count as usual if a visit takes at most so much of one of its slowest
/// link.
const USUAL: f64 = 0.3;

/// A suspect with what its names stand for.
pub(super) struct Named {
    pub stage: Stage,
    pub place: Place,
    /// What most of its time was spent in.
    pub event: EventId,
    pub suspect: Suspect,
}

/// The `count_max` places with most time among these operations.
pub(super) fn suspects(analysis: &Analysis<'_>, tallies: &[&Tally<'_>], count_max: usize) -> Vec<Named> {
    let total_ns: u64 = tallies.iter().map(|tally| tally.dur_ns).sum();
    let mut cells = Cells::new();
    let spots = || tallies.iter().flat_map(|tally| analysis.paths.spots().iter().zip(&tally.spots));
    for (spot, more) in spots().filter(|(_, visits)| !visits.times.is_empty()) {
        for place in places(spot) {
            let visits = cells.entry((spot.stage, place)).or_default().entry((spot.event, spot.phase)).or_default();
            visits.count += more.times.len() as u64;
            visits.total_ns += more.total_ns;
            visits.storage_ns.iter_mut().zip(more.storage_ns).for_each(|(sum, ns)| *sum += ns);
            visits.times.push(&more.times);
        }
    }
    let mut blocking: BTreeMap<(Stage, Place), u64> = BTreeMap::new();
    for ((spot, by), ns) in tallies.iter().flat_map(|tally| &tally.blocked) {
        let spot = &analysis.paths.spots()[*spot as usize];
        let place = Place::TracedNode(spot.node);
        // Who blocked may be on no critical path itself.
        if cells.contains_key(&(*by, place))
            && let Some(visits) = cells.get_mut(&(spot.stage, place)).and_then(|details| details.get_mut(&(spot.event, spot.phase)))
        {
            visits.blocked_ns += ns;
            *blocking.entry((*by, place)).or_default() += ns;
        }
    }
    // What ranks a place first; the words about it only for those that are named.
    let mut found: Vec<Ranked<'_>> = Vec::new();
    let messages = Messages::new(&cells);
    for ((stage, place), details) in cells.iter().filter(|((stage, place), _)| messages.name(&cells, *stage, *place)) {
        let excess_ns: u64 =
            details.iter().map(|(detail, visits)| excess(&analysis.means, &cells, &messages, *stage, *place, *detail, visits)).sum();
        let blocking_ns = blocking.get(&(*stage, *place)).copied().unwrap_or(0);
        let sum = |of: fn(&Visits<'_>) -> u64| seconds(details.values().map(of).sum());
        let own = (sum(|visits| visits.total_ns) - sum(|visits| visits.blocked_ns)).max(1e-9);
        // Whoever takes longer than usual holds up others in the same proportion longer.
        let rank = (own + seconds(excess_ns)) * (1.0 + seconds(blocking_ns) / own);
        found.push(Ranked { rank, stage: *stage, place: *place, name: name(analysis, *place), details, excess_ns, blocking_ns });
    }
    found.sort_by(|a, b| b.rank.total_cmp(&a.rank).then_with(|| a.name.cmp(&b.name)));
    found.into_iter().take(count_max).map(|ranked| suspect(analysis, ranked, total_ns)).collect()
}

/// A place before it is put into words.
struct Ranked<'a> {
    rank: f64,
    stage: Stage,
    place: Place,
    name: String,
    details: &'a BTreeMap<Detail, Visits<'a>>,
    excess_ns: u64,
    blocking_ns: u64,
}

fn name(analysis: &Analysis<'_>, place: Place) -> String {
    match place {
        Place::TracedNode(node) => analysis.merged.nodes[node].name.clone(),
        Place::Server(server) => analysis.server_name(server),
        Place::Link(node, server) => format!("{} - {}", analysis.merged.nodes[node].name, analysis.server_name(server)),
    }
}

/// A message is looked at from both ends, and as one of a link.
pub(super) fn places(segment: &Spot) -> impl Iterator<Item = Place> + use<> {
    let server = segment.peer.filter(|_| is_message(segment.stage) && segment.phase.is_none());
    // What nobody saw happened at the server, or on the way to it.
    let node = (!matches!(segment.stage, Stage::Unseen | Stage::NoAnswer) || server.is_none()).then_some(segment.node);
    let link = node.zip(server).map(|(node, server)| Place::Link(node, server));
    node.map(Place::TracedNode).into_iter().chain(server.map(Place::Server)).chain(link)
}

fn is_message(stage: Stage) -> bool {
    matches!(stage, Stage::Network | Stage::SendQueue | Stage::Unseen | Stage::NoAnswer)
}

/// Who sends messages to whom, and what stands out among them.
struct Messages {
    links: BTreeSet<(usize, u16)>,
    /// By stage and end: the one link whose messages take far longer than those of all other links
    /// of the end together.
    slow: BTreeMap<(Stage, Place), (usize, u16)>,
}

/// Time and visits of an end, and its slowest link with the same.
#[derive(Default)]
struct OfEnd {
    ns: u64,
    visits: u64,
    links: usize,
    slowest: Option<((usize, u16), u64, u64)>,
}

impl Messages {
    fn new(cells: &Cells<'_>) -> Messages {
        let link = |(_, place): &(Stage, Place)| if let Place::Link(node, server) = place { Some((*node, *server)) } else { None };
        let links: BTreeSet<(usize, u16)> = cells.keys().filter_map(link).collect();
        let mut slow = BTreeMap::new();
        for stage in [Stage::Network, Stage::SendQueue] {
            let mut ends: BTreeMap<Place, OfEnd> = BTreeMap::new();
            for (node, server) in &links {
                let (ns, visits) = time_of_link(cells, stage, Place::Link(*node, *server));
                for end in [Place::TracedNode(*node), Place::Server(*server)] {
                    let of_end = ends.entry(end).or_default();
                    (of_end.ns, of_end.visits, of_end.links) = (of_end.ns + ns, of_end.visits + visits, of_end.links + 1);
                    if of_end.slowest.is_none_or(|(_, most, of_most)| mean(ns, visits) > mean(most, of_most)) {
                        of_end.slowest = Some(((*node, *server), ns, visits));
                    }
                }
            }
            let mut only = Vec::new();
            for (end, of_end) in ends {
                if of_end.links == 1
                    && let Some((link, ..)) = of_end.slowest
                {
                    only.push((end, link));
                }
                if let Some((link, ns, visits)) = of_end.slowest
                    && of_end.links > 1
                    && mean(of_end.ns - ns, of_end.visits - visits) <= USUAL * mean(ns, visits)
                {
                    slow.insert((stage, end), link);
                }
            }
            // An end with one link is slow because of that, if the other end says so.
            only.retain(|(_, (node, server))| {
                [Place::TracedNode(*node), Place::Server(*server)].iter().any(|end| slow.get(&(stage, *end)) == Some(&(*node, *server)))
            });
            slow.extend(only.into_iter().map(|(end, link)| ((stage, end), link)));
        }
        Messages { links, slow }
    }

    /// True for messages between one who asks and one who answers; those between processes of a
    /// program have no such ends.
    fn has(&self, cells: &Cells<'_>, stage: Stage, detail: Detail) -> bool {
        let on =
            |(node, server): &(usize, u16)| cells.get(&(stage, Place::Link(*node, *server))).is_some_and(|all| all.contains_key(&detail));
        is_message(stage) && detail.1.is_none() && self.links.iter().any(on)
    }

    /// Messages belong to three places. Named is the end whose links all differ from others; or the
    /// one link that differs from all others of both its ends.
    fn name(&self, cells: &Cells<'_>, stage: Stage, place: Place) -> bool {
        match place {
            Place::Link(node, server) => {
                let slow = |end| self.slow.get(&(stage, end)) == Some(&(node, server));
                slow(Place::TracedNode(node)) && slow(Place::Server(server))
            }
            // Who did not answer, or did not record, is a server.
            Place::Server(_) if matches!(stage, Stage::Unseen | Stage::NoAnswer) => true,
            // With one client and several servers only a server can stand out, and the other way
            // round.
            end if is_message(stage) && is_alone(cells, end) && !is_alone(cells, other_end(cells, end)) => false,
            end => !self.slow.contains_key(&(stage, end)),
        }
    }
}

/// Nanoseconds and visits of a stage on a link. Messages that did not come there took no time
/// there.
fn time_of_link(cells: &Cells<'_>, stage: Stage, link: Place) -> (u64, u64) {
    let sum = |stage: Stage| {
        let visits = || cells.get(&(stage, link)).into_iter().flat_map(|details| details.values());
        (visits().map(Visits::own_ns).sum::<u64>(), visits().map(|visits| visits.count).sum::<u64>())
    };
    if cells.contains_key(&(stage, link)) { sum(stage) } else { (0, sum(Stage::Network).1) }
}

fn mean(ns: u64, visits: u64) -> f64 {
    ns as f64 / visits.max(1) as f64
}

fn is_same_kind(a: Place, b: Place) -> bool {
    std::mem::discriminant(&a) == std::mem::discriminant(&b)
}

/// No other place of this kind sends or gets messages.
fn is_alone(cells: &Cells<'_>, place: Place) -> bool {
    !cells.keys().any(|(stage, other)| is_message(*stage) && *other != place && is_same_kind(*other, place))
}

/// Some place of the other end of these messages, or the place itself if there is none.
fn other_end(cells: &Cells<'_>, place: Place) -> Place {
    let ends = cells.keys().filter(|(stage, other)| is_message(*stage) && !matches!(other, Place::Link(..)));
    ends.map(|(_, other)| *other).find(|other| !is_same_kind(*other, place)).unwrap_or(place)
}

/// Nanoseconds that these visits took beyond the median of the means of comparable places: of
/// messages all links elsewhere, of anything else the other places of the same kind.
fn excess(of_all: &Means, cells: &Cells<'_>, messages: &Messages, stage: Stage, place: Place, detail: Detail, visits: &Visits<'_>) -> u64 {
    if let Some(times) = times_usual(of_all, cells, messages, stage, place, detail) {
        return (visits.own_ns() as f64 * (1.0 - 1.0 / times).max(0.0)) as u64;
    }
    let mean = |other: Place| cells.get(&(stage, other)).and_then(|details| details.get(&detail)).map(Visits::mean_ns);
    let mut means: Vec<u64> = if messages.has(cells, stage, detail) {
        let elsewhere = messages.links.iter().filter(|(node, server)| !place.holds(*node, *server));
        elsewhere.map(|(node, server)| mean(Place::Link(*node, *server)).unwrap_or(0)).collect()
    } else {
        let others = cells.keys().filter(|(other_stage, other)| *other_stage == stage && *other != place && is_same_kind(*other, place));
        others.filter_map(|(_, other)| mean(*other)).collect()
    };
    means.sort_unstable();
    let Some(usual) = means.get(means.len().saturating_sub(1) / 2) else { return 0 };
    visits.own_ns().saturating_sub(usual * visits.count)
}

/// How many times as long as at comparable places it takes here, of all records; `None` where
/// records do not say it of all of them.
fn times_usual(of_all: &Means, cells: &Cells<'_>, messages: &Messages, stage: Stage, place: Place, detail: Detail) -> Option<f64> {
    let is_here = |(node, server): &&(usize, u16)| place.holds(*node, *server);
    let (own, means): (u64, Option<Vec<u64>>) = if messages.has(cells, stage, detail) {
        let link = |(node, server): &(usize, u16)| Place::Link(*node, *server);
        let elsewhere = messages.links.iter().filter(|link| !is_here(link)).map(link);
        let own = of_all.mean_of(messages.links.iter().filter(is_here).map(link), stage, detail)?;
        (own, elsewhere.map(|link| of_all.mean_ns(stage, link, detail)).collect())
    } else {
        let others = cells.keys().filter(|(other_stage, other)| *other_stage == stage && *other != place && is_same_kind(*other, place));
        let known = others.filter_map(|(_, other)| of_all.mean_ns(stage, *other, detail));
        (of_all.mean_ns(stage, place, detail)?, Some(known.collect()))
    };
    let mut means = means.filter(|means| !means.is_empty())?;
    means.sort_unstable();
    Some(own as f64 / means[(means.len() - 1) / 2].max(1) as f64)
}

fn suspect(analysis: &Analysis<'_>, ranked: Ranked<'_>, total_ns: u64) -> Named {
    let Ranked { stage, place, name, details, excess_ns, blocking_ns, .. } = ranked;
    let mut times: Vec<u64> = details.values().flat_map(|visits| &visits.times).flat_map(|times| times.iter()).copied().collect();
    let count = times.len();
    let (p50_us, p99_us) = (micros(quantile(&mut times, count, 0.5)), micros(quantile(&mut times, count, 0.99)));
    let spent_ns: u64 = details.values().map(|visits| visits.total_ns).sum();
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
        let node = if let Place::TracedNode(node) | Place::Link(node, _) = place { node } else { 0 };
        evidence += &format!("; {part:.0} % of it in {}", analysis.name(node, *event));
    }
    let blocked_ns: u64 = details.values().map(|visits| visits.blocked_ns).sum();
    let own = spent_ns.saturating_sub(blocked_ns) as f64;
    match own / (own - excess_ns as f64).max(1.0) {
        times if times > TIMES_MAX => evidence += "; comparable places need nothing like it",
        times if times > 1.05 => evidence += &format!("; {times:.1} times what comparable places need"),
        _ => {}
    }
    if blocking_ns * 100 > spent_ns {
        evidence += &format!("; others waited {:.3} s behind it", seconds(blocking_ns));
    }
    if blocked_ns * 100 > spent_ns {
        evidence += &format!("; {:.0} % of it behind other work of the server", ratio(blocked_ns, spent_ns) * 100.0);
    }
    for kind in Storage::ALL {
        let ns: u64 = details.values().map(|visits| visits.storage_ns[kind as usize]).sum();
        if ns * 100 > spent_ns {
            evidence += &format!("; {:.0} % of it while {}", ratio(ns, spent_ns) * 100.0, kind.title());
        }
    }
    if stage == Stage::Unseen {
        // A process whose records are there waited for something that has none.
        evidence +=
            if matches!(place, Place::TracedNode(_)) { "; what it waited for was not recorded" } else { "; nothing was recorded there" };
    }
    let event = most.map_or(EventId(0), |((event, _), _)| *event);
    let suspect = Suspect {
        stage: stage.name(),
        place: name,
        share,
        seconds: seconds(spent_ns),
        excess_seconds: seconds(excess_ns),
        blocking_seconds: seconds(blocking_ns),
        blocked_seconds: seconds(blocked_ns),
        visits: times.len() as u64,
        p50_us,
        p99_us,
        evidence,
    };
    Named { stage, place, event, suspect }
}
