//! Runs on one time axis, as the figures of chapter 7 of Kuhn's thesis (2009): clients by what
//! their program does, servers by the seeks of their disks; with the sub-lanes received and sent if
//! asked for.

use std::path::Path;

use anyhow::{Result, bail};
use weft_analysis::sublane::{SubLane, nodes_in_order};
use weft_charts::{Axis, CallClass, Fill, Frame, Mark, Panel, Strip, StripLane, Strips, Unit, categorical, seek};
use weft_export::source::{Selection, Source};
use weft_host::units::seconds;
use weft_trace::EventKind;
use weft_trace::event::DISK_SYNC;
use weft_trace::merge::Event;
use weft_trace::record::{Body, Span, flags};

use crate::plot::Common;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// Show what each node received and sent below it
    #[arg(long)]
    network: bool,
    /// Begin here, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.0, 1e9))]
    from: Option<f64>,
    /// End here, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.0, 1e9))]
    to: Option<f64>,
    /// Dashed lines where the disks of all servers have moved so many MiB, twice and three times as
    /// many: the ends of iterations
    #[arg(long, value_name = "MIB")]
    iteration: Option<u64>,
}

/// Classes of blocks, in the order of the legend.
const CLASSES: [&str; 11] = [
    "compute",
    "communication",
    "I/O",
    "metadata",
    "disk: no seek",
    "near seek",
    "far seek",
    "received",
    "sent",
    "flush",
    "disk: seek not known",
];
/// The classes of accesses that have no seek of their own.
const FLUSH: usize = 9;
const NOT_KNOWN: usize = 10;

fn fill(class: usize) -> Fill {
    match class {
        0 => Fill::plain(0xDDDDDD),
        1 => categorical(2),
        2 => categorical(0),
        3 => categorical(3),
        4..=6 => seek(class as u8 - 3),
        7 => Fill::plain(0x666666),
        FLUSH => Fill::plain(0xF2A0C0),
        NOT_KNOWN => Fill::plain(0xA8A49C),
        _ => categorical(1),
    }
}

impl Args {
    pub fn run(self) -> Result<()> {
        let mut panels = Vec::new();
        let mut longest: f64 = 0.0;
        for (input, label) in self.common.panels()? {
            let selection = Selection { from_s: self.from, to_s: self.to, events: String::new() };
            let (panel, end_s) = self.panel(input, &label, &selection)?;
            longest = longest.max(end_s);
            panels.push(panel);
        }
        let (from, to) = (self.from.unwrap_or(0.0), self.to.unwrap_or(longest));
        let mut chart = Strips {
            frame: Frame::new(
                &self.common.title("Who did what when"),
                "What lies within half a pixel has the colour of what took most of it.",
            )
            .sized(1100, 0),
            x: Axis::linear("time", Unit::Seconds).ranging(from, to.max(from + 1e-9)),
            classes: CLASSES.iter().enumerate().map(|(class, name)| (name.to_string(), fill(class))).collect(),
            panels,
        };
        chart.keep_used_classes();
        self.common.write(&chart.svg())
    }

    /// A run, and the end of its last record in seconds.
    fn panel(&self, input: &Path, label: &str, selection: &Selection) -> Result<(Panel, f64)> {
        let source = Source::load(&[input.to_path_buf()], selection)?;
        let mut panel = Panel::default();
        let last_s = source.events().map(|event| end_s(&source, event)).fold(0.0, f64::max);
        for node in nodes_in_order(&source.merged) {
            let name = &source.merged.nodes[node].name;
            let is_client = source.merged.nodes[node].server.is_none();
            let sorts = source.merged.events.node_times(node);
            if !sorts.sorts().iter().any(|sort| matches!(sort.kind, EventKind::Span | EventKind::StagedSpan)) && !sorts.sorts().is_empty() {
                // A host of which only gauges are known.
                continue;
            }
            let lane = |name: &str, is_minor, wanted: &dyn Fn(&Event) -> Option<usize>| {
                let strip = |event: &Event| {
                    let class = wanted(event)?;
                    Some(Strip { from: source.start_ns(event) as f64 / 1e9, to: end_s(&source, event), class })
                };
                let strips = source.events().filter(|event| event.node == node).filter_map(strip).collect();
                StripLane { name: name.to_string(), is_minor, strips }
            };
            panel.lanes.push(lane(name, false, &|event| main_class(&source, event, is_client)));
            if self.network {
                panel.lanes.push(lane("", true, &|event| (SubLane::of(event.record.event) == SubLane::Received).then_some(7)));
                panel.lanes.push(lane("", true, &|event| (SubLane::of(event.record.event) == SubLane::Sent).then_some(8)));
            }
        }
        if panel.lanes.iter().all(|lane| lane.strips.is_empty()) {
            bail!("{}: there is nothing to draw in this trace", input.display());
        }
        panel.title = format!("{label}: {}", said(&source, last_s));
        panel.marks = self.iteration.map_or_else(Vec::new, |mib| iterations(&source, mib << 20));
        Ok((panel, last_s))
    }
}

fn end_s(source: &Source, event: &Event) -> f64 {
    (source.start_ns(event) + event.dur_ns) as f64 / 1e9
}

/// The run in numbers.
fn said(source: &Source, last_s: f64) -> String {
    let mut classes = [0u64; 4];
    let disks = || source.events().filter(is_access);
    for event in disks().filter(|event| disk_class(event) != FLUSH) {
        classes[usize::from(event.record.class).min(3)] += 1;
    }
    let [_, none, near, far] = classes;
    let accesses: u64 = classes.iter().sum();
    let flushes = disks().filter(|event| disk_class(event) == FLUSH).count();
    if accesses == 0 && flushes == 0 {
        return format!("{last_s:.2} s, no disk recorded");
    }
    let flushes = if flushes == 0 { String::new() } else { format!(", {flushes} flushes") };
    format!("{last_s:.2} s, {accesses} disk accesses: {none} without a seek, {near} near, {far} far{flushes}")
}

/// What the main lane of a node shows: programs on clients (or, without any, operations of the
/// client library), disks on servers.
fn main_class(source: &Source, event: &Event, is_client: bool) -> Option<usize> {
    let part = SubLane::of(event.record.event);
    match (is_client, part) {
        (true, SubLane::Application | SubLane::Operation) => {
            // What a library did inside a call belongs to that call.
            let is_inside = part == SubLane::Application && matches!(event.record.body, Body::Span(Span { parent: 1.., .. }));
            let class = match CallClass::of(&source.name(event)) {
                Some(CallClass::Compute) => 0,
                Some(CallClass::Read | CallClass::Write) => 2,
                Some(CallClass::Metadata) => 3,
                Some(CallClass::Communication) | None => 1,
            };
            (!is_inside).then_some(class)
        }
        (false, SubLane::Disk) => is_access(&event).then(|| disk_class(event)),
        _ => None,
    }
}

/// True for what a disk does; false for a request's part in an access that has a record of its own.
fn is_access(event: &&Event) -> bool {
    SubLane::of(event.record.event) == SubLane::Disk && event.record.flags & flags::SHARED == 0
}

/// A flush moves no head by itself.
fn disk_class(event: &Event) -> usize {
    match event.record.class {
        class @ 1..=3 => 3 + usize::from(class),
        _ if event.record.event == DISK_SYNC => FLUSH,
        _ => NOT_KNOWN,
    }
}

/// Where the disks of all servers together have moved once, twice and three times so many bytes.
fn iterations(source: &Source, bytes: u64) -> Vec<Mark> {
    let mut done: Vec<(f64, u64)> = source
        .events()
        .filter(is_access)
        .map(|event| (end_s(source, event), if let Body::Span(span) = &event.record.body { u64::from(span.len) } else { 0 }))
        .collect();
    done.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut marks, mut moved) = (Vec::new(), 0);
    for (end, length) in done {
        moved += length;
        while marks.len() < 3 && moved >= (marks.len() as u64 + 1) * bytes {
            marks.push(Mark { x: end, text: format!("#{}", marks.len() + 1) });
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use weft_trace::event::DISK_WRITE;
    use weft_trace::record::TraceRecord;

    use super::*;

    #[test]
    fn a_flush_is_no_access_without_a_seek() {
        let of = |event, class| {
            let record = TraceRecord { class, ..TraceRecord::new(1, event, Body::Span(Span::default())) };
            CLASSES[disk_class(&Event { node: 0, ring: 0, start_ns: 0, dur_ns: 1, record })]
        };
        assert_eq!((of(DISK_SYNC, 0), of(DISK_WRITE, 1), of(DISK_WRITE, 3)), ("flush", "disk: no seek", "far seek"));
        assert_eq!(of(DISK_WRITE, 0), "disk: seek not known");
    }
}
