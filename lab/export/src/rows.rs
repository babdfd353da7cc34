//! Records as rows of one table, for CSV and Parquet alike: a row for each record, a column for
//! each field. Phases of staged spans and gauges have columns of their own with the names that the
//! trace says.

use std::collections::BTreeSet;

use weft_analysis::details::flag_names;
use weft_analysis::sublane::{SubLane, class_name};
use weft_trace::EventKind;
use weft_trace::merge::Event;
use weft_trace::record::{Body, fine};

use crate::source::Source;

/// A value; every column may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Nothing to say.
    Empty,
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Numbers.
    Number,
    /// Texts.
    Text,
}

/// The columns that every file has; `docs/export.md` explains them.
const FIXED: [(&str, Type); 21] = [
    ("start_ns", Type::Number),
    ("duration_ns", Type::Number),
    ("node", Type::Text),
    ("node_server", Type::Number),
    ("ring", Type::Number),
    ("lane", Type::Number),
    ("part", Type::Text),
    ("event", Type::Text),
    ("request", Type::Text),
    ("span", Type::Number),
    ("parent", Type::Number),
    ("server", Type::Number),
    ("operation", Type::Number),
    ("object", Type::Text),
    ("offset", Type::Number),
    ("length", Type::Number),
    ("wait_ns", Type::Number),
    ("class", Type::Text),
    ("result", Type::Number),
    ("flags", Type::Text),
    ("label", Type::Text),
];

/// The columns of a trace.
pub struct Table {
    columns: Vec<(String, Type)>,
    phases: Vec<String>,
    gauges: Vec<String>,
}

impl Table {
    /// The columns that this trace needs.
    pub fn new(source: &Source) -> Table {
        let names = |kind: EventKind| -> Vec<String> {
            let infos = source.merged.nodes.iter().flat_map(|node| node.events.iter()).filter(|info| info.kind == kind);
            let names: BTreeSet<&str> = infos.flat_map(|info| &info.parts).map(|part| part.name.as_str()).collect();
            names.into_iter().map(str::to_string).collect()
        };
        let (phases, gauges) = (names(EventKind::StagedSpan), names(EventKind::Counter));
        let fixed = FIXED.into_iter().map(|(name, kind)| (name.to_string(), kind));
        let more = phases.iter().map(|name| format!("phase_{name}_ns")).chain(gauges.iter().map(|name| format!("gauge_{name}")));
        let columns = fixed.chain(more.map(|name| (name, Type::Number))).collect();
        Table { columns, phases, gauges }
    }

    /// Names and types, from left to right.
    pub fn columns(&self) -> &[(String, Type)] {
        &self.columns
    }

    /// The row of a record: a cell for each column.
    pub fn row(&self, source: &Source, event: &Event) -> Vec<Cell> {
        let record = &event.record;
        let node = &source.merged.nodes[event.node];
        let number = |value: u64| if value == 0 { Cell::Empty } else { Cell::Number(value) };
        let hex = |value: u64| if value == 0 { Cell::Empty } else { Cell::Text(format!("{value:x}")) };
        let text = |text: String| if text.is_empty() { Cell::Empty } else { Cell::Text(text) };
        let is_span = matches!(record.kind(), EventKind::Span | EventKind::StagedSpan);
        let span = if let Body::Span(span) = &record.body { Some(span) } else { None };
        let staged_span = if let Body::StagedSpan(staged_span) = &record.body { Some(staged_span) } else { None };
        let ns = |ticks: u64| (u128::from(ticks) * u128::from(event.dur_ns) / u128::from(record.duration().max(1))) as u64;
        let of_span = |value: fn(&weft_trace::record::Span) -> u64| span.map_or(Cell::Empty, |span| number(value(span)));
        let mut row = vec![
            Cell::Number(source.start_ns(event)),
            if is_span { Cell::Number(event.dur_ns) } else { Cell::Empty },
            text(node.name.clone()),
            node.server.map_or(Cell::Empty, |server| Cell::Number(u64::from(server))),
            Cell::Number(u64::from(event.ring)),
            Cell::Number(u64::from(record.lane)),
            if is_span { text(SubLane::of(record.event).name().to_string()) } else { Cell::Empty },
            text(source.name(event)),
            hex(record.req),
            number(u64::from(span.map_or(staged_span.map_or(0, |staged_span| staged_span.span), |span| span.span))),
            of_span(|span| u64::from(span.parent)),
            span.map(|span| span.peer)
                .or(staged_span.map(|staged_span| staged_span.peer))
                .map_or(Cell::Empty, |peer| Cell::Number(u64::from(peer))),
            staged_span.map_or(Cell::Empty, |staged_span| number(u64::from(staged_span.code))),
            span.map_or(Cell::Empty, |span| hex(span.obj)),
            span.map_or(Cell::Empty, |span| Cell::Number(span.off)),
            of_span(|span| u64::from(span.len)),
            span.map_or(Cell::Empty, |span| number(ns(fine(span.wait).min(span.dur)))),
            text(class_name(record.event, record.class).to_string()),
            number(u64::from(record.res)),
            text(flag_names(record.flags).join(" ")),
            if record.kind() == EventKind::Mark { text(record.text()) } else { Cell::Empty },
        ];
        let parts = node.events.get(record.event).map_or(&[][..], |info| &info.parts);
        let place = |name: &String| parts.iter().position(|part| part.name == *name);
        row.extend(self.phases.iter().map(|name| match (staged_span, place(name)) {
            (Some(staged_span), Some(place)) => staged_span.phases.get(place).map_or(Cell::Empty, |phase| Cell::Number(ns(fine(*phase)))),
            _ => Cell::Empty,
        }));
        row.extend(self.gauges.iter().map(|name| match (&record.body, place(name)) {
            (Body::Counter(gauges), Some(place)) => gauges.get(place).map_or(Cell::Empty, |gauge| Cell::Number(*gauge)),
            _ => Cell::Empty,
        }));
        row
    }
}
