//! The JSON of `chrome://tracing` ("Trace Event Format"): nodes as processes, lanes as threads,
//! complete events with times in microseconds, flows from a call to its server and back, counters
//! and instants. Viewers read such a file as one text, so it is for small traces.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value, json};
use weft_analysis::sublane::nodes_in_order;
use weft_trace::EventKind;
use weft_trace::merge::Event;
use weft_trace::record::Body;

use crate::source::{Fact, Source};

/// Threads with marks have this number, beyond all lanes.
const MARKS: usize = 1_000_000;

/// Writes everything that was chosen; says what it was.
///
/// # Errors
/// Of the writer.
pub fn write(source: &Source, out: &mut dyn Write) -> io::Result<String> {
    let mut file = Writer { source, out, written: 0, requests: BTreeMap::new() };
    file.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    for (order, node) in nodes_in_order(&source.merged).into_iter().enumerate() {
        file.meta(node, None, "process_name", json!({ "name": source.merged.nodes[node].name }))?;
        file.meta(node, None, "process_sort_index", json!({ "sort_index": order }))?;
    }
    for (number, lane) in source.lanes().iter().enumerate() {
        let thread = number + 1;
        file.meta(lane.node, Some(thread), "thread_name", json!({ "name": Source::lane_name(lane) }))?;
        file.meta(lane.node, Some(thread), "thread_sort_index", json!({ "sort_index": thread }))?;
        for position in &lane.items {
            file.span(source.event(*position), thread)?;
        }
    }
    for event in source.events() {
        file.point(event)?;
    }
    file.out.write_all(b"\n]}\n")?;
    Ok(format!("{} events", file.written))
}

struct Writer<'a> {
    source: &'a Source,
    out: &'a mut dyn Write,
    written: u64,
    /// Small numbers for requests: Perfetto takes arrows with other names for errors, and no JSON
    /// number holds 64 bits.
    requests: BTreeMap<u64, u64>,
}

impl Writer<'_> {
    fn span(&mut self, event: &Event, thread: usize) -> io::Result<()> {
        let start = self.source.start_ns(event);
        let name = self.source.name(event);
        let category = name.split('.').next().unwrap_or_default();
        let facts: Map<String, Value> = self.source.facts(event).into_iter().map(|(name, fact)| (name.to_string(), value(fact))).collect();
        let place = |from: u64| json!({ "cat": category, "ts": us(from), "pid": event.node + 1, "tid": thread });
        let slice = |name: &str, from: u64, length: u64| with(place(from), json!({ "ph": "X", "name": name, "dur": us(length) }));
        self.put(&with(slice(&name, start, event.dur_ns), json!({ "args": facts })))?;
        let is_answer = event.record.kind() == EventKind::StagedSpan && self.source.is_answer(event);
        let is_paired = self.source.served(event).is_some();
        let next = self.requests.len() as u64;
        let request = if is_paired || is_answer { *self.requests.entry(event.record.req).or_insert(next) } else { 0 };
        let flow = |phase: &str, from: u64, back: u64| {
            // Bound to the slice that holds its time; both ends of an arrow have the same category,
            // name and number.
            with(place(from), json!({ "ph": phase, "bp": "e", "cat": "request", "name": "request", "id": 2 * request + back }))
        };
        for (number, piece) in self.source.pieces(event).into_iter().enumerate() {
            self.put(&slice(&piece.name, piece.from_ns, piece.to_ns - piece.from_ns))?;
            match number {
                0 if is_paired => self.put(&flow("s", piece.from_ns, 0))?,
                1 if is_paired => self.put(&flow("f", piece.from_ns, 1))?,
                _ => {}
            }
        }
        if is_answer {
            self.put(&flow("f", start, 0))?;
            // At its very end the slice would be over already.
            self.put(&flow("s", start + event.dur_ns.saturating_sub(1), 1))?;
        }
        Ok(())
    }

    fn point(&mut self, event: &Event) -> io::Result<()> {
        let (time, process) = (us(self.source.start_ns(event)), event.node + 1);
        match &event.record.body {
            Body::Mark { value, .. } => {
                let label = event.record.text();
                let name = if label.is_empty() { self.source.name(event) } else { label };
                self.put(
                    &json!({ "ph": "i", "s": "g", "name": name, "ts": time, "pid": process, "tid": MARKS, "args": { "value": value } }),
                )
            }
            Body::Counter(gauges) => {
                let info = self.source.merged.nodes[event.node].events.get(event.record.event);
                for (part, gauge) in info.map_or(&[][..], |info| &info.parts).iter().zip(gauges) {
                    let name = &part.name;
                    self.put(&json!({ "ph": "C", "name": name, "ts": time, "pid": process, "args": { name: gauge } }))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn meta(&mut self, node: usize, thread: Option<usize>, name: &str, args: Value) -> io::Result<()> {
        self.put(&json!({ "ph": "M", "name": name, "pid": node + 1, "tid": thread.unwrap_or(0), "args": args }))
    }

    fn put(&mut self, event: &Value) -> io::Result<()> {
        if self.written > 0 {
            self.out.write_all(b",\n")?;
        }
        self.written += 1;
        write!(self.out, "{event}")
    }
}

fn value(fact: Fact) -> Value {
    match fact {
        Fact::Number(number) => Value::from(number),
        Fact::Text(text) => Value::from(text),
    }
}

fn with(mut base: Value, more: Value) -> Value {
    if let (Value::Object(base), Value::Object(more)) = (&mut base, more) {
        base.extend(more);
    }
    base
}

/// Microseconds with their thousandths; a 64-bit float holds them exactly enough for a hundred
/// days.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn every_arrow_has_two_ends_inside_slices_and_texts_are_escaped() {
        let mut bytes = Vec::new();
        let source = samples::two_creates();
        write(&source, &mut bytes).expect("memory");
        let file: Value = serde_json::from_slice(&bytes).expect("JSON");
        let events = file["traceEvents"].as_array().expect("a list");
        let of = |phase: &str| -> Vec<&Value> { events.iter().filter(|event| event["ph"] == phase).collect() };
        let time = |event: &Value| (event["ts"].as_f64().unwrap() * 1e3).round() as u64;
        assert_eq!((of("X").len(), of("C").len(), of("i").len()), (11, 10, 1));
        assert_eq!(of("i")[0]["name"], "create, \"phase\" <1>");
        for start in of("s") {
            let ends: Vec<&Value> =
                of("f").into_iter().filter(|end| ["id", "cat", "name"].iter().all(|key| end[key] == start[key])).collect();
            assert!(ends.len() == 1 && time(ends[0]) >= time(start), "{start}");
            for point in [start, ends[0]] {
                let holds = |slice: &&Value| {
                    let end = time(slice) + (slice["dur"].as_f64().unwrap() * 1e3).round() as u64;
                    slice["tid"] == point["tid"] && slice["pid"] == point["pid"] && (time(slice)..=end).contains(&time(point))
                };
                assert!(of("X").iter().any(holds), "{point} is on no slice");
            }
        }
        assert_eq!(of("s").len(), 2);
        let failed = of("X").into_iter().find(|slice| slice["args"]["flags"] == "failed").expect("one create fails");
        assert_eq!(failed["args"]["result"], 17);
    }
}
