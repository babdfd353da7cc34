//! What is exported: the chosen records of several files on one time line, their spans in lanes
//! without overlaps, and for each request the staged span of its server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use weft_analysis::details::flag_names;
use weft_analysis::inputs;
use weft_analysis::inputs::Content;
use weft_analysis::lanes::is_span;
use weft_analysis::sublane::{Laid, Layout, SubLane, class_name};
use weft_analysis::traces;
use weft_base::FastMap;
use weft_trace::event::NET_CALL;
use weft_trace::merge::{Event, Merged, merge};
use weft_trace::record::{Body, fine, flags};
use weft_trace::{EventKind, Mask};

/// Which records are wanted.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only what ends after this time, in seconds since the beginning of the trace.
    pub from_s: Option<f64>,
    /// Only what begins before this time.
    pub to_s: Option<f64>,
    /// Names of events as in a mask; empty or `*`: all.
    pub events: String,
}

/// A trace that is exported.
pub struct Source {
    /// Nodes, clocks and records.
    pub merged: Merged,
    /// Nanoseconds of the reference clock at which the first record of the whole trace begins;
    /// exported times count from here.
    pub origin_ns: i64,
    /// All of one program: nothing was left out by a selection, and nothing of others is there.
    pub is_whole: bool,
    /// All records, by beginning.
    all: Vec<Event>,
    /// Which of them are chosen.
    pub chosen: Vec<u32>,
    /// Staged spans of servers among the chosen ones, by the key of the request.
    served: FastMap<u64, Vec<u32>>,
    /// Keys of requests with a call and a staged span that make a pair.
    answers: BTreeSet<u64>,
}

/// Positions of spans of one sub-lane of one node that do not overlap, by beginning.
pub type Lane = Laid<u32>;

/// A piece of a span: a phase, or a stretch on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its name.
    pub name: String,
    /// Nanoseconds since the origin.
    pub from_ns: u64,
    /// Nanoseconds since the origin.
    pub to_ns: u64,
}

impl Source {
    /// Reads files.
    ///
    /// # Errors
    /// If none can be read, or events are named that no file has.
    pub fn load(paths: &[PathBuf], selection: &Selection) -> Result<Source> {
        let mut files = Vec::new();
        let mut found = inputs::files(paths)?;
        found.retain(|(_, content)| !matches!(content, Content::Json | Content::Progress | Content::Names));
        let programs = inputs::programs(found.iter().map(|(path, _)| path.as_path()));
        for (path, content) in found {
            match traces::read(&path, content, |_| {}) {
                Ok(read) => files.extend(read),
                Err(reason) => weft_host::output::tell(&format!("{}: {reason}", path.display())),
            }
        }
        if files.is_empty() {
            bail!("there is no trace file that could be read");
        }
        let source = Source::new(merge(files), selection)?;
        Ok(Source { is_whole: source.is_whole && programs < 2, ..source })
    }

    /// The chosen records of a merged trace.
    ///
    /// # Errors
    /// If events are named that the trace does not have, or no time is chosen.
    pub fn new(merged: Merged, selection: &Selection) -> Result<Source> {
        let masks = masks(&merged, &selection.events)?;
        if let (Some(from), Some(to)) = (selection.from_s, selection.to_s)
            && from >= to
        {
            bail!("nothing lies between --from {from} and --to {to}");
        }
        // The recorder's own records about clocks and losses do not stretch the time line.
        let in_time = |event: &&Event| !matches!(event.record.kind(), EventKind::Sync | EventKind::Lost | EventKind::Text);
        let all: Vec<Event> = merged.events.iter().collect();
        let origin_ns = all.iter().filter(in_time).map(|event| event.start_ns).min().unwrap_or(0);
        let at = |seconds: f64| origin_ns.saturating_add((seconds * 1e9) as i64);
        let (from, to) = (selection.from_s.map(at), selection.to_s.map(at));
        let is_chosen = |event: &Event| {
            in_time(&event)
                && masks.get(event.node).is_none_or(|mask| mask.contains(event.record.event))
                && from.is_none_or(|from| event.end_ns() >= from)
                && to.is_none_or(|to| event.start_ns <= to)
        };
        let chosen: Vec<u32> = (0u32..).zip(&all).filter(|(_, event)| is_chosen(event)).map(|(position, _)| position).collect();
        let mut served: FastMap<u64, Vec<u32>> = FastMap::default();
        for position in &chosen {
            let record = &all[*position as usize].record;
            if record.req != 0 && record.kind() == EventKind::StagedSpan && record.flags & flags::SERVER != 0 {
                served.entry(record.req).or_default().push(*position);
            }
        }
        let mut calls: BTreeMap<u64, u32> = BTreeMap::new();
        let is_call = |event: &&Event| event.record.event == NET_CALL && event.record.req != 0;
        let is_whole = masks.is_empty() && from.is_none() && to.is_none();
        let mut source = Source { merged, origin_ns, is_whole, all, chosen, served, answers: BTreeSet::new() };
        source.events().filter(is_call).for_each(|event| *calls.entry(event.record.req).or_default() += 1);
        source.served.retain(|request, staged_spans| staged_spans.len() == 1 && calls.get(request) == Some(&1));
        source.answers = source.events().filter(|event| source.served(event).is_some()).map(|event| event.record.req).collect();
        Ok(source)
    }

    /// Sentences about what is missing in the trace.
    pub fn warnings(&self) -> Vec<String> {
        let nodes = self.merged.nodes.iter().zip(&self.merged.clocks);
        let mut warnings = Vec::new();
        for (node, clock) in nodes {
            warnings.extend(node.problems.iter().map(|problem| format!("{}: {problem}", node.name)));
            if clock.error_ns.is_none() {
                warnings.push(format!("{}: nothing ties its clock to the others; its times are not comparable", node.name));
            }
        }
        warnings
    }

    /// The record at a position.
    pub fn event(&self, position: u32) -> &Event {
        &self.all[position as usize]
    }

    /// All chosen records, by beginning.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.chosen.iter().map(|position| self.event(*position))
    }

    /// The beginning in nanoseconds since the origin.
    pub fn start_ns(&self, event: &Event) -> u64 {
        u64::try_from(event.start_ns.saturating_sub(self.origin_ns)).unwrap_or(0)
    }

    /// The name of an event, as its file says it.
    pub fn name(&self, event: &Event) -> String {
        self.merged.nodes[event.node].events.name(event.record.event)
    }

    /// The staged span that a server wrote for a call, if there is exactly one that fits into it:
    /// requests that were sent twice have no clear pair, and clocks may be wrong.
    pub fn served(&self, call: &Event) -> Option<u32> {
        if call.record.event != NET_CALL || call.record.req == 0 {
            return None;
        }
        let position = self.served.get(&call.record.req)?.first()?;
        let staged_span = self.event(*position);
        (staged_span.start_ns >= call.start_ns && staged_span.end_ns() <= call.end_ns()).then_some(*position)
    }

    /// True if a call found this staged span of a server: see [`Source::served`].
    pub fn is_answer(&self, staged_span: &Event) -> bool {
        self.answers.contains(&staged_span.record.req)
    }

    /// All spans in lanes, by node and sub-lane: each span on the lowest row that is free when it
    /// begins.
    pub fn lanes(&self) -> Vec<Lane> {
        let mut layout = Layout::new(&self.merged);
        for position in self.chosen.iter().copied() {
            let event = self.event(position);
            if is_span(event) {
                let start = self.start_ns(event);
                layout.put((event.node, SubLane::of(event.record.event)), (start, start + event.dur_ns), position);
            }
        }
        layout.lanes().collect()
    }

    /// What lies inside a span: the phases of a staged span; the way to the server and back of a
    /// call whose server is known; the wait of anything else. Pieces follow one another and stay
    /// inside the span.
    pub fn pieces(&self, event: &Event) -> Vec<Piece> {
        let (start, end) = (self.start_ns(event), self.start_ns(event) + event.dur_ns);
        let piece = |name: &str, from_ns: u64, to_ns: u64| Piece { name: name.to_string(), from_ns, to_ns };
        match &event.record.body {
            Body::StagedSpan(staged_span) => {
                let info = self.merged.nodes[event.node].events.get(event.record.event);
                let total = event.record.duration().max(1);
                // Ticks and nanoseconds grow alike within one span.
                let at = |ticks: u64| start + (u128::from(ticks) * u128::from(event.dur_ns) / u128::from(total)) as u64;
                let mut ticks = 0;
                let mut pieces = Vec::new();
                for (number, phase) in staged_span.phases.iter().enumerate().filter(|(_, phase)| **phase > 0) {
                    let name = info.and_then(|info| info.parts.get(number)).map_or("phase", |part| part.name.as_str());
                    pieces.push(piece(name, at(ticks), at(ticks + fine(*phase))));
                    ticks += fine(*phase);
                }
                pieces
            }
            Body::Span(span) => match self.served(event).map(|position| self.event(position)) {
                Some(staged_span) => {
                    let from = self.start_ns(staged_span);
                    vec![piece("to server", start, from), piece("from server", from + staged_span.dur_ns, end)]
                }
                None if span.wait > 0 => {
                    let wait = u128::from(fine(span.wait).min(span.dur)) * u128::from(event.dur_ns) / u128::from(span.dur.max(1));
                    vec![piece("wait", start, start + wait as u64)]
                }
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// What is known of a span beyond its name and times: names with values, those that say nothing
    /// left out.
    pub fn facts(&self, event: &Event) -> Vec<(&'static str, Fact)> {
        let record = &event.record;
        let mut facts = Vec::new();
        let mut hex = |name, value: u64| facts.extend((value != 0).then(|| (name, Fact::Text(format!("{value:x}")))));
        hex("request", record.req);
        let numbers = match &record.body {
            Body::Span(span) => {
                hex("object", span.obj);
                [("server", u64::from(span.peer)), ("offset", span.off), ("length", u64::from(span.len)), ("operation", 0)]
            }
            Body::StagedSpan(staged_span) => {
                [("server", u64::from(staged_span.peer)), ("offset", 0), ("length", 0), ("operation", u64::from(staged_span.code))]
            }
            _ => [("server", 0), ("offset", 0), ("length", 0), ("operation", 0)],
        };
        facts.extend(numbers.into_iter().filter(|(_, value)| *value != 0).map(|(name, value)| (name, Fact::Number(value))));
        let class = class_name(record.event, record.class);
        facts.extend((!class.is_empty()).then(|| ("class", Fact::Text(class.to_string()))));
        facts.extend((record.res != 0).then(|| ("result", Fact::Number(u64::from(record.res)))));
        let flags = flag_names(record.flags).join(" ");
        facts.extend((!flags.is_empty()).then_some(("flags", Fact::Text(flags))));
        facts
    }

    /// The name of a lane: `disk`, from the second row on with its number.
    pub fn lane_name(lane: &Lane) -> String {
        let name = lane.sub_lane.name();
        if lane.row == 0 { name.to_string() } else { format!("{name} {}", lane.row + 1) }
    }
}

/// A value of [`Source::facts`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

/// A mask for each node, as files have their own events; none if all are wanted.
fn masks(merged: &Merged, events: &str) -> Result<Vec<Mask>> {
    if events.is_empty() || events == "*" {
        return Ok(Vec::new());
    }
    let parsed: Vec<Result<Mask, String>> = merged.nodes.iter().map(|node| Mask::parse(events, &node.events)).collect();
    // Files of other versions may lack an event; but somebody must know it.
    if let (false, Some(Err(problem))) = (parsed.iter().any(Result::is_ok), parsed.first()) {
        return Err(anyhow!("--events: {problem}"));
    }
    Ok(parsed.into_iter().map(|mask| mask.unwrap_or(Mask::NONE)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn spans_of_a_lane_never_overlap_and_clients_come_first() {
        let source = samples::two_creates();
        let lanes = source.lanes();
        let names: Vec<String> =
            lanes.iter().map(|lane| format!("{} {}", source.merged.nodes[lane.node].name, Source::lane_name(lane))).collect();
        assert_eq!(names, ["client0 operation", "client0 operation 2", "client0 calls", "meta0 operation", "meta0 disk"]);
        for lane in &lanes {
            let spans: Vec<&Event> = lane.items.iter().map(|position| source.event(*position)).collect();
            assert!(spans.windows(2).all(|pair| pair[0].end_ns() <= pair[1].start_ns));
        }
    }

    #[test]
    fn pieces_of_a_call_lead_to_its_server_and_back_and_phases_fill_the_staged_span() {
        let source = samples::two_creates();
        let of = |name: &str| source.events().find(|event| source.name(event) == name).expect("recorded");
        let call = source.pieces(of("net.call"));
        assert_eq!(call.iter().map(|piece| piece.name.as_str()).collect::<Vec<_>>(), ["to server", "from server"]);
        let staged_span = source.pieces(of("meta.create"));
        assert_eq!((call[0].to_ns, call[1].from_ns), (staged_span[0].from_ns, staged_span.last().expect("four").to_ns));
        assert!(staged_span.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
        assert_eq!(staged_span.iter().map(|piece| piece.name.as_str()).collect::<Vec<_>>(), ["queue", "cpu", "journal", "send"]);
    }

    #[test]
    fn a_selection_takes_events_and_times() {
        let chosen = |events| samples::source(events).events().count();
        assert_eq!((chosen("*"), chosen("client.*"), chosen("meta.*,disk.write")), (8, 2, 2));
        let all = samples::two_creates();
        let window = Selection { from_s: Some(7.6e-6), to_s: Some(1.0), events: String::new() };
        let late = Source::new(all.merged, &window).expect("no events named");
        assert_eq!(late.events().map(|event| late.name(event)).collect::<Vec<_>>(), ["client.create", "client.create"]);
        let backwards = Selection { from_s: Some(1.0), to_s: Some(0.5), events: String::new() };
        assert!(Source::new(late.merged.clone(), &backwards).is_err());
        assert!(Source::new(late.merged, &Selection { events: "nonsense".into(), ..Selection::default() }).is_err());
    }
}
