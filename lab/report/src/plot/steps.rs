//! Operations step by step, as chapter 6 of Kuhn's thesis (2007) shows what a server does for one
//! file: the calls of the client, at the servers the phases of each request, journal and disk, with
//! arrows there and back.

use std::path::Path;

use anyhow::{Result, bail};
use weft_analysis::sublane::SubLane;
use weft_charts::{Arrow, Axis, Block, Fill, Frame, Lane, Timeline, Unit, stacked};
use weft_export::source;
use weft_export::source::{Selection, Source};
use weft_trace::EventKind;
use weft_trace::merge::Event;

use crate::plot::Common;

#[cfg(test)]
#[path = "../../../export/tests/samples/mod.rs"]
mod samples;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// Of each of these operations of the client the last one, as client.create; without names all
    /// operations, or, if they are more than can be read, the last of each kind
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    operations: Vec<String>,
}

/// Classes of blocks: name and look.
const CLASSES: [(&str, Fill); 9] = [
    ("operation", Fill::plain(0x0072B2)),
    ("call", Fill::plain(0x56B4E9)),
    ("queue", Fill::plain(0x666666)),
    ("lock", Fill::plain(0xF0E442)),
    ("cpu", Fill::plain(0xCC79A7)),
    ("journal", Fill::plain(0x009E73)),
    ("send", Fill::plain(0xE69F00)),
    ("disk", Fill::plain(0xD55E00)),
    ("other", Fill::plain(0xBBBBBB)),
];

/// More operations than this are a black picture of megabytes.
const OPERATIONS_MAX: usize = 40;

impl Args {
    pub fn run(self) -> Result<()> {
        let panels = self.common.panels()?;
        let mut timelines =
            panels.into_iter().map(|(input, label)| picture(input, &label, &self.operations)).collect::<Result<Vec<_>>>()?;
        // One scale for all, or what looks long would not be.
        let longest = timelines.iter().filter_map(|timeline| timeline.x.range).map(|range| range.1).fold(0.0, f64::max);
        timelines.iter_mut().for_each(|timeline| timeline.x.range = Some((0.0, longest)));
        let pictures: Vec<String> = timelines.iter().map(Timeline::svg).collect();
        self.common.write(&stacked(&self.common.title("Step by step"), &pictures))
    }
}

fn picture(input: &Path, label: &str, names: &[String]) -> Result<Timeline> {
    let source = Source::load(&[input.to_path_buf()], &Selection::default())?;
    match draw(&source, label, names) {
        Some(timeline) => Ok(timeline),
        None => bail!("{}: no client has recorded such an operation", input.display()),
    }
}

/// The steps between the beginning of the first chosen operation and the end of the last one.
fn draw(source: &Source, label: &str, names: &[String]) -> Option<Timeline> {
    let is_client = |event: &Event| source.merged.nodes[event.node].server.is_none();
    let mut chosen: Vec<&Event> =
        source.events().filter(|event| is_client(event) && SubLane::of(event.record.event) == SubLane::Operation).collect();
    // More than a picture can show: the last of each kind.
    let mut kinds: Vec<String> = names.to_vec();
    if names.is_empty() && chosen.len() > OPERATIONS_MAX {
        kinds = chosen.iter().map(|event| source.name(event)).collect();
        kinds.sort();
        kinds.dedup();
    }
    if !kinds.is_empty() {
        let names = &kinds;
        chosen = names.iter().filter_map(|name| chosen.iter().rev().find(|event| source.name(event) == *name).copied()).collect();
        chosen.sort_by_key(|event| event.start_ns);
    }
    let last = chosen.iter().map(|event| event.start_ns).max()?;
    if names.is_empty() && !kinds.is_empty() {
        // Kinds whose last one was long before would bring everything between along.
        let close = |event: &&Event| last.abs_diff(event.start_ns) <= 20 * event.dur_ns.max(1);
        chosen.retain(close);
    }
    let (from, to) = (chosen.iter().map(|event| event.start_ns).min()?, chosen.iter().map(|event| event.end_ns()).max()?);
    let at = |ns: u64| (ns as f64 + source.origin_ns as f64 - from as f64) / 1e9;
    let inside = |event: &Event| event.start_ns >= from && event.end_ns() <= to;
    let wanted = |lane: &source::Lane| {
        matches!(
            lane.sub_lane,
            SubLane::Application
                | SubLane::Gateway
                | SubLane::Operation
                | SubLane::Calls
                | SubLane::Wait
                | SubLane::Journal
                | SubLane::Disk
        )
    };
    let mut timeline = Timeline {
        frame: Frame::new(label, &said(source, &chosen, inside)).sized(1100, 0),
        x: Axis::linear("since the call", Unit::Seconds).ranging(0.0, (to - from).max(1) as f64 / 1e9),
        classes: CLASSES.iter().map(|(name, fill)| (name.to_string(), *fill)).collect(),
        lanes: Vec::new(),
        arrows: Vec::new(),
        marks: Vec::new(),
    };
    // Calls and staged spans by request, as (lane, begin, end).
    let mut calls: Vec<(u64, usize, f64, f64)> = Vec::new();
    let mut served: Vec<(u64, usize, f64, f64)> = Vec::new();
    for lane in source.lanes().iter().filter(|lane| wanted(lane)) {
        let spans: Vec<&Event> = lane.items.iter().map(|position| source.event(*position)).filter(|event| inside(event)).collect();
        if spans.is_empty() {
            continue;
        }
        let number = timeline.lanes.len();
        let mut blocks = Vec::new();
        for event in spans {
            let name = source.name(event);
            let (begin, end) = (at(source.start_ns(event)), at(source.start_ns(event) + event.dur_ns));
            match (lane.sub_lane, event.record.kind()) {
                (_, EventKind::StagedSpan) => {
                    for piece in source.pieces(event) {
                        let text = if piece.name == "cpu" { name.clone() } else { piece.name.clone() };
                        blocks.push(Block { from: at(piece.from_ns), to: at(piece.to_ns), class: class(&piece.name), text });
                    }
                    served.extend(source.is_answer(event).then_some((event.record.req, number, begin, end)));
                }
                (SubLane::Calls, _) => {
                    blocks.push(Block { from: begin, to: end, class: class("call"), text: name });
                    calls.extend(source.served(event).map(|_| (event.record.req, number, begin, end)));
                }
                (part, _) => {
                    let kind = match part {
                        SubLane::Journal => "journal",
                        SubLane::Disk => "disk",
                        SubLane::Wait => "lock",
                        _ => "operation",
                    };
                    blocks.push(Block { from: begin, to: end, class: class(kind), text: name });
                }
            }
        }
        let group = source.merged.nodes[lane.node].name.clone();
        timeline.lanes.push(Lane { group, name: Source::lane_name(lane), blocks });
    }
    for (request, lane, begin, end) in &calls {
        for (_, other, first, last) in served.iter().filter(|served| served.0 == *request) {
            timeline.arrows.push(Arrow { from: (*lane, *begin), to: (*other, *first), text: format!("request {request:x}") });
            timeline.arrows.push(Arrow { from: (*other, *last), to: (*lane, *end), text: format!("reply {request:x}") });
        }
    }
    timeline.keep_used_classes();
    Some(timeline)
}

fn class(name: &str) -> usize {
    CLASSES.iter().position(|(known, _)| *known == name).unwrap_or(CLASSES.len() - 1)
}

/// The steps in words: operations, and how many requests, journal writes and disk accesses they
/// made.
fn said(source: &Source, operations: &[&Event], inside: impl Fn(&Event) -> bool) -> String {
    let names: Vec<String> = operations.iter().map(|event| source.name(event)).collect();
    let count = |part: SubLane, on_server: bool| {
        let of = |event: &&Event| {
            inside(event) && SubLane::of(event.record.event) == part && source.merged.nodes[event.node].server.is_some() == on_server
        };
        source.events().filter(of).count()
    };
    let (requests, disk) = (count(SubLane::Calls, false), count(SubLane::Disk, true));
    let plural = |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let us = operations.iter().map(|event| Unit::Seconds.format(event.dur_ns as f64 / 1e9));
    let timed: Vec<String> = names.iter().zip(us).map(|(name, time)| format!("{name} {time}")).collect();
    format!("{}; {}, {}", timed.join(", "), plural(requests, "request", "requests"), plural(disk, "disk access", "disk accesses"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_two_arrows_and_phases_lie_on_its_server() {
        let source = samples::two_creates();
        let timeline = draw(&source, "create", &[]).expect("a client");
        let names: Vec<String> = timeline.lanes.iter().map(|lane| format!("{} {}", lane.group, lane.name)).collect();
        assert_eq!(names, ["client0 operation", "client0 operation 2", "client0 calls", "meta0 operation", "meta0 disk"]);
        assert_eq!(timeline.arrows.len(), 2);
        let (there, back) = (&timeline.arrows[0], &timeline.arrows[1]);
        assert_eq!((there.from.0, there.to.0, back.from.0, back.to.0), (2, 3, 3, 2));
        assert!(there.from.1 <= there.to.1 && there.to.1 < back.from.1 && back.from.1 <= back.to.1);
        let phases: Vec<&str> = timeline.lanes[3].blocks.iter().map(|block| timeline.classes[block.class].0.as_str()).collect();
        assert_eq!(phases, ["queue", "cpu", "journal", "send"]);
        assert_eq!(timeline.frame.subtitle, "client.create 8 µs, client.create 9 µs; 1 request, 1 disk access");
        let named = |name: &str| draw(&source, "create", &[name.to_string()]);
        let one = named("client.create").expect("a client");
        assert_eq!(one.lanes.iter().map(|lane| lane.blocks.len()).sum::<usize>(), 6, "the last operation, which began later");
        assert!(named("client.unlink").is_none());
    }
}
