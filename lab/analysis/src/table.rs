//! The spans of a window as rows: the twin of the timeline for those who cannot see it, and the
//! export.

use serde_json::{Value, json};
use weft_charts::csv_line;
use weft_trace::events::{Event, before};
use weft_trace::record::Body;

use crate::details;
use crate::pattern::Pattern;
use crate::run::Run;
use crate::sublane::class_name;

/// Which rows.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    /// What the spans must be.
    pub filter: Option<&'a Pattern<'a>>,
    /// Spans that begin at or after this nanosecond of the run ...
    pub from: u64,
    /// ... and before this one.
    pub to: u64,
    /// Kinds that are left out.
    pub hidden: Vec<bool>,
    /// Rows that are left out at the beginning.
    pub skip: u64,
    /// Rows at most.
    pub limit: u64,
}

const COLUMNS: [&str; 11] = ["start_ns", "duration_ns", "node", "event", "class", "request", "object", "offset", "bytes", "result", "file"];

fn chosen<'a>(run: &'a Run, rows: &'a Rows<'a>) -> impl Iterator<Item = (u32, Event)> + 'a {
    let absolute = |ns: u64| run.origin_ns.saturating_add_unsigned(ns);
    let (events, end) = (&run.merged.events, absolute(rows.to));
    let is_shown = |kind: u16| !rows.hidden.get(usize::from(kind)).copied().unwrap_or(false);
    let window = events.from(before(absolute(rows.from))).take_while(move |position| events.start_ns(*position) < end);
    let shown = window.filter(move |position| {
        run.lanes.kind(events, *position).is_some_and(is_shown) && rows.filter.is_none_or(|filter| filter.holds(*position))
    });
    shown.skip(rows.skip as usize).map(|position| (position, events.event(position)))
}

/// One page of rows.
pub fn json(run: &Run, rows: &Rows<'_>) -> Value {
    let mut found: Vec<Value> = Vec::new();
    let mut more = false;
    for (position, event) in chosen(run, rows) {
        if found.len() as u64 >= rows.limit {
            more = true;
            break;
        }
        found.push(json!({ "event": position, "cells": cells(run, &event) }));
    }
    json!({ "columns": COLUMNS, "rows": found, "more": more })
}

/// All rows up to the limit as CSV (RFC 4180); a last line says if there would be more.
pub fn csv(run: &Run, rows: &Rows<'_>) -> String {
    let mut text = csv_line(&COLUMNS);
    for (number, (_, event)) in chosen(run, rows).enumerate() {
        if number as u64 >= rows.limit {
            text += &format!("# only the first {} spans of the window: zoom in for the others\r\n", rows.limit);
            break;
        }
        text += &csv_line(&cells(run, &event).iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

fn cells(run: &Run, event: &Event) -> Vec<String> {
    let record = &event.record;
    let node = &run.merged.nodes[event.node];
    let span = if let Body::Span(span) = &record.body { *span } else { Default::default() };
    let number = |value: u64| if value == 0 { String::new() } else { value.to_string() };
    vec![
        run.since_origin(event.start_ns).to_string(),
        event.dur_ns.to_string(),
        node.name.clone(),
        node.events.name(record.event),
        class_name(record.event, record.class).to_string(),
        if record.req == 0 { String::new() } else { format!("{:x}", record.req) },
        if span.obj == 0 { String::new() } else { format!("{:x}", span.obj) },
        number(span.off),
        number(u64::from(span.len)),
        number(u64::from(record.res)),
        details::file_of(run, event).unwrap_or_default().to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, merged};

    fn rows(limit: u64) -> Rows<'static> {
        Rows { filter: None, from: 0, to: u64::MAX >> 1, hidden: Vec::new(), skip: 0, limit }
    }

    #[test]
    fn pages_of_the_table_are_the_whole_table() {
        let run = Run::new(merged(&Sample { operations: 60, ..Sample::default() }), Vec::new());
        let whole = json(&run, &rows(100_000));
        assert_eq!(whole["rows"].as_array().unwrap().len() as u64, run.spans());
        let mut pages = Vec::new();
        for page in 0.. {
            let part = json(&run, &Rows { skip: page * 50, ..rows(50) });
            pages.extend(part["rows"].as_array().unwrap().clone());
            if part["more"] == false {
                break;
            }
        }
        assert_eq!(&pages, whole["rows"].as_array().unwrap());
    }

    #[test]
    fn csv_has_a_line_for_each_span_and_says_when_it_was_cut() {
        let run = Run::new(merged(&Sample { operations: 60, ..Sample::default() }), Vec::new());
        let text = csv(&run, &rows(100_000));
        assert_eq!(text.lines().count() as u64, run.spans() + 1);
        assert!(text.lines().all(|line| line.split(',').count() == COLUMNS.len()));
        assert!(csv(&run, &rows(7)).lines().last().unwrap().starts_with("# only the first 7"));
    }
}
