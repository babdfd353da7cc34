//! Levels by which rows are put together: hosts, processes, threads, or the clients for whom
//! something was done. On each level a *track* is what the page draws under one name; tracks of one
//! heading stand below one another.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use weft_trace::event::NET_CALL;
use weft_trace::events::Event;

use crate::details;
use crate::lanes::{KindShelf, Lane, lanes_of_shelf, put};
use crate::run::Run;
use crate::sublane::{SubLane, node_order, nodes_in_order};
use crate::tiles::Bars;
pub use crate::tracks::{Level, Track, Tracks};

impl Tracks {
    /// The lanes, of this run.
    pub fn lanes<'a>(&'a self, run: &'a Run) -> &'a [Lane] {
        self.lanes.as_deref().unwrap_or(&run.lanes.lanes)
    }

    /// Which level it is.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The lane that shows a record.
    pub fn lane_of(&self, run: &Run, position: u32) -> Option<usize> {
        let node = (position < run.merged.events.len() as u32).then(|| run.merged.events.node(position))?;
        self.lanes(run).iter().position(|lane| lane.node == node && lane.tracks.iter().any(|(_, track)| track.holds(position)))
    }

    /// What a profile calls the track with this number.
    pub fn profiled_as(&self, track: usize) -> &str {
        let track = &self.tracks[track];
        if self.level == Level::Host { &track.heading } else { &track.name }
    }

    /// The order in which tracks are drawn: place by number.
    pub fn order(&self, run: &Run) -> Vec<usize> {
        if matches!(self.level, Level::Thread | Level::Relation) {
            return (0..self.tracks.len()).collect();
        }
        let mut numbers = nodes_in_order(run.merged);
        if self.level == Level::Host {
            let first = |node: &usize| {
                nodes_in_order(run.merged).iter().position(|other| self.tracks[*other].heading == self.tracks[*node].heading)
            };
            numbers.sort_by_cached_key(first);
        }
        let mut order = vec![0; numbers.len()];
        numbers.into_iter().enumerate().for_each(|(place, number)| order[number] = place);
        order
    }
}

/// The tracks of a run on a level. Those for which spans were divided last are kept.
pub fn tracks(run: &Run, level: Level) -> Arc<Tracks> {
    if matches!(level, Level::Host | Level::Rank) {
        return Arc::new(of_processes(run, level));
    }
    let mut kept = run.arranged.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(tracks) = kept.as_ref().filter(|tracks| tracks.level == level) {
        return Arc::clone(tracks);
    }
    let of_thread = |event: &Event, _: bool| (event.node, u64::from(event.ring));
    let thread = |(node, ring): Key| {
        let name = &run.merged.nodes[node].name;
        Track { name: format!("{name}, thread {ring}"), heading: name.clone(), node }
    };
    let tracks = Arc::new(if level == Level::Thread { divided(run, level, &of_thread, &thread) } else { for_clients(run) });
    *kept = Some(Arc::clone(&tracks));
    tracks
}

/// The machine of a process: where a trace does not say it, the beginning of a name with parts.
pub(crate) fn host(run: &Run, node: usize) -> &str {
    let node = &run.merged.nodes[node];
    if node.machine.is_empty() { node.name.split('/').next().unwrap_or(&node.name) } else { &node.machine }
}

fn role(run: &Run, node: usize) -> &'static str {
    match run.merged.nodes[node].server {
        None => "Clients",
        Some(number) if weft_base::ServerId(number).role() == weft_base::ServerRole::Meta => "Metadata servers",
        Some(_) => "Data servers",
    }
}

fn of_processes(run: &Run, level: Level) -> Tracks {
    let heading = |node: usize| if level == Level::Host { host(run, node) } else { role(run, node) };
    let track = |(node, about): (usize, &weft_trace::merge::TracedNode)| Track {
        name: about.name.clone(),
        heading: heading(node).to_string(),
        node,
    };
    let tracks = run.merged.nodes.iter().enumerate().map(track).collect();
    Tracks { level, tracks, of_lane: run.lanes.lanes.iter().map(|lane| lane.node).collect(), lanes: None }
}

/// For whom: the client that sent the request which a record belongs to.
fn for_clients(run: &Run) -> Tracks {
    let events = &run.merged.events;
    let calls = |node: usize| {
        let times = events.node_times(node);
        let is_call = move |sort: u32| times.sorts()[sort as usize].event == NET_CALL;
        let calls = times.iter().filter(move |time| is_call(time.sort)).map(|time| events.request(time.position));
        calls.filter(|request| *request != 0).map(move |request| (request, node))
    };
    let mut senders: Vec<(u64, usize)> = (0..run.merged.nodes.len()).flat_map(calls).collect();
    senders.sort_unstable();
    let (order, nodes) = (node_order(run.merged), nodes_in_order(run.merged));
    // Tracks are in the order of the clients; behind them is what was done for nobody known.
    let nobody = nodes.len();
    let key = |event: &Event, is_message: bool| {
        let sender = || {
            let found =
                senders.binary_search_by_key(&event.record.req, |sender| sender.0).ok().filter(|_| is_message && event.record.req != 0);
            found.map(|at| senders[at].1)
        };
        let is_client = run.merged.nodes[event.node].server.is_none();
        let client = if is_client { Some(event.node) } else { sender() };
        (client.map_or(nobody, |client| order[client]), order[event.node] as u64)
    };
    divided(run, Level::Relation, &key, &|(client, place)| {
        let node = nodes[place as usize];
        let name = &run.merged.nodes[node].name;
        match nodes.get(client) {
            Some(client) if *client == node => Track { name: name.clone(), heading: format!("For {name}"), node },
            Some(client) => {
                let client = &run.merged.nodes[*client].name;
                Track { name: format!("{name} for {client}"), heading: format!("For {client}"), node }
            }
            None => Track { name: format!("{name} for nobody known"), heading: "For nobody known".to_string(), node },
        }
    })
}

/// A process and a number by which it is divided.
type Key = (usize, u64);

/// The spans of each process divided by a key; `key` is told the record and whether its request is
/// one of messages, and not a thread.
fn divided(run: &Run, level: Level, key: &dyn Fn(&Event, bool) -> Key, track: &dyn Fn(Key) -> Track) -> Tracks {
    let events = &run.merged.events;
    let mut shelves: BTreeMap<(Key, usize, SubLane), KindShelf> = BTreeMap::new();
    for node in 0..run.merged.nodes.len() {
        let spans = run.spans_of(node);
        for time in spans.times.iter() {
            let Some(kind) = run.lanes.kind(events, time.position) else { continue };
            let event = events.event(time.position);
            let sub_lane = run.lanes.kinds[usize::from(kind)].sub_lane;
            let key = key(&event, !details::names_a_thread(&event));
            put(shelves.entry((key, node, sub_lane)).or_default(), kind, spans.bar(time.position));
        }
    }
    let mut tracks = Tracks { level, tracks: Vec::new(), of_lane: Vec::new(), lanes: None };
    let (mut lanes, mut last) = (Vec::new(), None);
    for ((key, node, sub_lane), shelf) in shelves {
        if last != Some(key) {
            tracks.tracks.push(track(key));
            last = Some(key);
        }
        lanes.extend(lanes_of_shelf(node, sub_lane, shelf));
        tracks.of_lane.resize(lanes.len(), tracks.tracks.len() - 1);
    }
    tracks.lanes = Some(lanes);
    tracks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, merged};

    fn run() -> Run {
        Run::new(merged(&Sample { operations: 300, ..Sample::default() }), Vec::new())
    }

    #[test]
    fn every_level_shows_every_span_once_and_finds_it_again() {
        let run = run();
        for level in [Level::Host, Level::Rank, Level::Thread, Level::Relation] {
            let tracks = tracks(&run, level);
            let lanes = tracks.lanes(&run);
            assert_eq!(tracks.of_lane.len(), lanes.len());
            let spans: usize = lanes.iter().flat_map(|lane| &lane.tracks).map(|(_, track)| track.len()).sum();
            assert_eq!(spans as u64, run.spans(), "{level:?}");
            for lane in lanes {
                let all = run.spans_of(lane.node);
                let mut bars: Vec<_> = lane.tracks.iter().flat_map(|(_, track)| track.bars(&all)).collect();
                bars.sort_by_key(|bar| bar.start);
                assert!(lane.overlaps || bars.is_sorted_by(|a, b| a.end <= b.start), "{level:?}");
                let found = tracks.lane_of(&run, bars[0].event).map(|lane| tracks.of_lane[lane]);
                assert_eq!(found.map(|track| tracks.tracks[track].node), Some(lane.node));
            }
            let mut order = tracks.order(&run);
            order.sort_unstable();
            assert_eq!(order, (0..tracks.tracks.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_relation_holds_what_servers_did_for_a_client() {
        let run = run();
        let tracks = tracks(&run, Level::Relation);
        let served = tracks.tracks.iter().position(|track| track.name == "meta0 for client1").expect("the sample has such requests");
        assert_eq!(tracks.tracks[served].heading, "For client1");
        let client1 = run.merged.nodes.iter().position(|node| node.name == "client1").unwrap();
        let mut seen = 0;
        for (lane, _) in tracks.lanes(&run).iter().zip(&tracks.of_lane).filter(|(_, track)| **track == served) {
            let all = run.spans_of(lane.node);
            for bar in lane.tracks.iter().flat_map(|(_, track)| track.bars(&all)) {
                let request = run.merged.events.request(bar.event);
                let events = run.merged.events.iter();
                let sent = events.filter(|event| event.record.event == NET_CALL && event.record.req == request).map(|event| event.node);
                assert_eq!(sent.collect::<Vec<_>>(), [client1]);
                seen += 1;
            }
        }
        assert!(seen > 10);
    }

    #[test]
    fn processes_of_a_host_stand_under_its_name() {
        let run = run();
        let hosts = tracks(&run, Level::Host);
        assert!(hosts.tracks.iter().all(|track| !track.heading.is_empty() && hosts.profiled_as(track.node) == track.heading));
        assert_eq!(Level::of("nonsense"), Level::Rank);
    }
}
