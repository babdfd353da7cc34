//! Single records: what one says, the whole request it belongs to across all nodes, arrows between
//! clients and servers, and search.

use serde_json::{Value, json};
use weft_trace::event::NET_CALL;
use weft_trace::events::{Event, before};
use weft_trace::explain::{Step, Waterfall};
use weft_trace::messages;
use weft_trace::record::{Body, fine, flags};

use crate::lanes::{Spans, is_span};
use crate::run::{Analysed, Run};
use crate::sublane::SubLane;
use crate::tiles::{Bar, Track};
use crate::tracks::Tracks;

/// Records of one request that are shown at most.
const STEPS_MAX: usize = 500;
/// Spans around spans that are followed at most: a damaged trace may go round in circles.
const DEPTH_MAX: usize = 32;

/// Everything that a record says.
pub fn event(run: &Run, tracks: &Tracks, position: u32) -> Option<Value> {
    let event = &run.merged.events.get(position).filter(is_span)?;
    let record = &event.record;
    let node = &run.merged.nodes[event.node];
    let clock = &run.merged.clocks[event.node];
    let mut fields = json!({
        "event": position,
        "name": node.events.name(record.event),
        "node": node.name,
        "kind": run.lanes.kind(&run.merged.events, position),
        "lane": tracks.lane_of(run, position),
        "start": run.since_origin(event.start_ns),
        "dur": event.dur_ns,
        "request": if record.req == 0 { Value::Null } else { json!(format!("{:x}", record.req)) },
        "result": record.res,
        "class": record.class,
        "flags": flag_names(record.flags),
        "clock_error_ns": clock.error_ns,
    });
    match &record.body {
        Body::Span(span) => {
            fields["peer"] = if record.event.layer() == NET_LAYER { peer(run, span.peer) } else { Value::Null };
            fields["object"] = if span.obj == 0 { Value::Null } else { json!(format!("{:x}", span.obj)) };
            fields["file"] = json!(file_of(run, event));
            let is_message = messages::is_message(record.event);
            fields["offset"] = if is_message { Value::Null } else { json!(span.off) };
            fields["process"] = if is_message { json!(span.off) } else { Value::Null };
            fields["bytes"] = json!(span.len);
            fields["wait"] = json!(wait_ns(event));
            fields["given"] = json!(crate::calls::given(run, event));
        }
        Body::StagedSpan(_) => fields["phases"] = json!(phases(run, event)),
        _ => {}
    }
    Some(fields)
}

/// The name of the object of a span, if anybody knows it.
pub fn file_of<'a>(run: &'a Run, event: &Event) -> Option<&'a str> {
    match &event.record.body {
        Body::Span(span) if span.obj != 0 => run.names.get(span.obj),
        _ => None,
    }
}

/// Flags by their names.
const FLAGS: [(u16, &str); 9] = [
    (flags::SERVER, "server"),
    (flags::SIMULATED, "simulated"),
    (flags::ERROR, "failed"),
    (flags::RETRY, "retry"),
    (flags::SAMPLED, "sampled"),
    (flags::SYNC, "sync"),
    (flags::HIT, "cached"),
    (flags::SHARED, "shared"),
    (flags::OPEN, "running"),
];

/// Names of the flags that are set.
pub fn flag_names(bits: u16) -> Vec<&'static str> {
    FLAGS.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name).collect()
}

/// The flag of this name; 0 if there is none.
pub fn flag(name: &str) -> u16 {
    FLAGS.into_iter().find(|(_, known)| *known == name).map_or(0, |(bit, _)| bit)
}

/// The layer of messages: only there the peer is filled in, and 0 is the first metadata server.
const NET_LAYER: usize = 3;

fn peer(run: &Run, number: u16) -> Value {
    run.merged.nodes.iter().find(|node| node.server == Some(number)).map_or(Value::Null, |node| json!(node.name))
}

/// The first part of a span, spent in a queue, in nanoseconds.
pub(crate) fn wait_ns(event: &Event) -> u64 {
    match &event.record.body {
        Body::Span(span) if span.dur > 0 => {
            (u128::from(fine(span.wait).min(span.dur)) * u128::from(event.dur_ns) / u128::from(span.dur)) as u64
        }
        _ => 0,
    }
}

/// Phases of a staged span: name, stage, nanoseconds.
pub fn phases(run: &Run, event: &Event) -> Vec<(String, &'static str, u64)> {
    let Body::StagedSpan(staged_span) = &event.record.body else { return Vec::new() };
    let total: u64 = staged_span.phases.iter().map(|phase| u64::from(*phase)).sum();
    let info = run.merged.nodes[event.node].events.get(event.record.event);
    let parts = info.map_or(&[][..], |info| &info.parts);
    let phase = |(number, length): (usize, &u32)| {
        let ns = (u128::from(event.dur_ns) * u128::from(*length) / u128::from(total.max(1))) as u64;
        let (name, stage) = parts.get(number).map_or(("?", "unseen"), |part| (part.name.as_str(), part.stage.name()));
        (name.to_string(), stage, ns)
    };
    staged_span.phases.iter().enumerate().filter(|(_, length)| **length > 0).map(phase).collect()
}

/// The outermost record that this one belongs to.
fn root_of(run: &Run, analysed: &Analysed, position: u32) -> u32 {
    let mut at = position;
    for _ in 0..DEPTH_MAX {
        let event = run.merged.events.event(at);
        let around = match &event.record.body {
            Body::Span(span) if span.parent != 0 => analysed.span(event.node, span.parent),
            _ if event.record.req != 0 && event.record.event != NET_CALL && !names_a_thread(&event) => {
                analysed.of_request(event.record.req).find(|other| run.merged.events.sort(*other).event == NET_CALL)
            }
            _ => around_in_thread(run, analysed, at),
        };
        match around.filter(|around| *around != at) {
            Some(around) => at = around,
            None => break,
        }
    }
    at
}

/// The layers of applications and gateways hold the id of the thread where others hold the request.
pub(crate) fn names_a_thread(event: &Event) -> bool {
    event.record.event.layer() <= 1
}

/// For a request of the kernel: the call of the application around it.
fn around_in_thread(run: &Run, analysed: &Analysed, position: u32) -> Option<u32> {
    let events = &run.merged.events;
    let event = events.event(position);
    if !names_a_thread(&event) || event.record.req == 0 {
        return None;
    }
    let order = events.order(position);
    let encloses = |other: &u32| {
        let outer = events.event(*other);
        events.order(*other) < order
            && outer.record.event.layer() < event.record.event.layer()
            && outer.start_ns <= event.start_ns
            && outer.end_ns() >= event.end_ns()
    };
    analysed.of_request(event.record.req).take_while(|other| events.order(*other) <= order).filter(encloses).last()
}

/// The records of the operation around a record, over all nodes, each with its depth, in the order
/// of a waterfall.
pub fn request(run: &Run, position: u32) -> Option<Value> {
    run.merged.events.get(position).filter(is_span)?;
    let analysed = run.analyse();
    let (root, steps) = records_of(run, position);
    let first = &run.merged.events.event(root);
    let rows = steps.iter().map(|(step, depth)| {
        let event = &run.merged.events.event(*step);
        json!({
            "event": step, "depth": depth, "node": run.merged.nodes[event.node].name, "is_server": run.merged.nodes[event.node].server.is_some(),
            "name": run.merged.nodes[event.node].events.name(event.record.event), "kind": run.lanes.kind(&run.merged.events, *step),
            "at": event.start_ns - first.start_ns, "dur": event.dur_ns, "wait": wait_ns(event), "phases": phases(run, event),
            "class": event.record.class, "result": event.record.res, "file": file_of(run, event),
        })
    });
    let same = analysed.analysis.operations().iter().filter(|other| other.event == first.record.event);
    let (count, faster) = same.fold((0u64, 0u64), |(count, faster), other| (count + 1, faster + u64::from(other.dur_ns < first.dur_ns)));
    // The same operation as the analysis splits it.
    let operations = analysed.analysis.operations();
    let from = operations.partition_point(|operation| operation.start_ns < first.start_ns);
    let mine = operations[from..].iter().take_while(|operation| operation.start_ns == first.start_ns);
    let mine =
        mine.filter(|operation| operation.node == first.node && operation.dur_ns == first.dur_ns && operation.event == first.record.event);
    let path = mine.take(1).flat_map(|operation| analysed.analysis.path(operation));
    let path = path.map(|piece| {
        json!({ "stage": piece.stage.name(), "title": piece.stage.title(), "at": piece.start_ns - first.start_ns, "dur": piece.dur_ns })
    });
    Some(json!({
        "root": root, "asked": position, "start": run.since_origin(first.start_ns), "dur": first.dur_ns,
        "name": run.merged.nodes[first.node].events.name(first.record.event), "node": run.merged.nodes[first.node].name,
        "slower_than": if count == 0 { Value::Null } else { json!(faster as f64 / count as f64) }, "of": count,
        "steps": rows.collect::<Vec<_>>(), "path": path.collect::<Vec<_>>(), "cut": steps.len() >= STEPS_MAX,
    }))
}

/// The operation around a record, and all its records with their depths, in the order of a
/// waterfall.
pub fn records_of(run: &Run, position: u32) -> (u32, Vec<(u32, usize)>) {
    let analysed = run.analyse();
    let root = root_of(run, analysed, position);
    let mut records = Vec::new();
    collect(run, analysed, root, 0, &mut records);
    (root, records)
}

fn collect(run: &Run, analysed: &Analysed, position: u32, depth: usize, out: &mut Vec<(u32, usize)>) {
    if out.len() >= STEPS_MAX || depth > DEPTH_MAX || out.iter().any(|(known, _)| *known == position) {
        return;
    }
    out.push((position, depth));
    let events = &run.merged.events;
    let event = &events.event(position);
    let mut inside: Vec<u32> = Vec::new();
    if let Body::Span(span) = &event.record.body
        && span.span != 0
    {
        inside.extend(analysed.inside(event.node, span.span));
    }
    if event.record.event == NET_CALL && event.record.req != 0 {
        inside.extend(analysed.of_request(event.record.req).filter(|other| *other != position));
    }
    if names_a_thread(event) && event.record.req != 0 {
        let is_inside = |other: &u32| around_in_thread(run, analysed, *other) == Some(position);
        inside.extend(
            analysed
                .of_request(event.record.req)
                .skip_while(|other| events.order(*other) <= events.order(position))
                .take(STEPS_MAX)
                .filter(is_inside),
        );
    }
    inside.sort_by_key(|other| events.order(*other));
    inside.dedup();
    inside.into_iter().for_each(|other| collect(run, analysed, other, depth + 1, out));
}

/// Requests in a window, from their client's lane to their server's and back, and messages between
/// processes, from where they were sent to where they were taken. Beyond `count_max` only their
/// number.
pub fn arrows(run: &Run, tracks: &Tracks, (from, to): (u64, u64), count_max: usize) -> Value {
    let Some(analysed) = run.analysed() else { return json!({ "arrows": [], "count": Value::Null }) };
    let events = &run.merged.events;
    let has_arrow = |bar: &Bar| matches!(events.sort(bar.event).event, NET_CALL | messages::SENT);
    let lanes = tracks.lanes(run).iter().enumerate().filter(|(_, lane)| lane.sub_lane == SubLane::Calls);
    let calls: Vec<(usize, Spans<'_>, &Track)> =
        lanes.flat_map(|(number, lane)| lane.tracks.iter().map(move |(_, track)| (number, run.spans_of(lane.node), track))).collect();
    // All spans of a track are of one event.
    let first = |all: &Spans<'_>, track: &Track| track.bars(all).next().is_some_and(|bar| has_arrow(&bar));
    let calls: Vec<_> = calls.into_iter().filter(|(_, all, track)| first(all, track)).collect();
    let count: usize = calls.iter().map(|(_, all, track)| track.touching(all, from, to).len()).sum();
    if count > count_max {
        return json!({ "arrows": [], "count": count });
    }
    let mut arrows = Vec::new();
    for (lane, bar) in calls.iter().flat_map(|(lane, all, track)| track.touching(all, from, to).map(move |bar| (lane, bar))) {
        let call = events.event(bar.event);
        if call.record.req == 0 || bar.end < from {
            continue;
        }
        let is_message = call.record.event == messages::SENT;
        let is_other_end = |other: &Event| match is_message {
            true => other.record.event == messages::TAKEN,
            false => matches!(other.record.body, Body::StagedSpan(_)) && other.record.flags & flags::SERVER != 0,
        };
        let others = analysed.of_request(call.record.req).map(|other| (other, events.event(other)));
        if let Some((other, end)) = others.into_iter().find(|(_, other)| is_other_end(other)) {
            let back = (!is_message).then(|| (run.since_origin(end.end_ns()), bar.end));
            arrows.push(json!({
                "from": lane, "to": tracks.lane_of(run, other), "call": bar.event, "served": other,
                "sent": bar.start + wait_ns(&call), "arrived": run.since_origin(end.start_ns), "left": back.map(|back| back.0), "back": back.map(|back| back.1),
            }));
        }
    }
    json!({ "arrows": arrows, "count": count })
}

/// Of the operations that begin in a window those that took longest, each with the record to look
/// at.
pub fn slowest_operations(run: &Run, from: u64, to: u64, count: usize) -> Vec<(Option<u32>, Waterfall)> {
    let (begin, end) = run.absolute(from, to);
    let events = &run.merged.events;
    let record = |waterfall: &Waterfall| {
        let same = |position: &u32| {
            let event = events.event(*position);
            let node = &run.merged.nodes[event.node];
            (event.dur_ns as f64 / 1e3 - waterfall.dur_us).abs() < 1e-6
                && node.name == waterfall.client
                && node.events.name(event.record.event) == waterfall.operation
        };
        let at_once = events.from(before(waterfall.start_ns)).take_while(|position| events.start_ns(*position) == waterfall.start_ns);
        at_once.into_iter().find(same)
    };
    let waterfalls = run.analyse().analysis.slowest_between(count, begin, end);
    waterfalls.into_iter().map(|waterfall| (record(&waterfall), waterfall)).collect()
}

/// The piece of an operation that took longest.
pub fn most_of(waterfall: &Waterfall) -> Option<&Step> {
    waterfall.steps.iter().max_by(|a, b| a.dur_us.total_cmp(&b.dur_us))
}

/// The same for the page.
pub fn slowest(run: &Run, from: u64, to: u64, count: usize) -> Value {
    let row = |(position, waterfall): (Option<u32>, Waterfall)| {
        json!({
            "event": position, "operation": waterfall.operation, "client": waterfall.client, "object": format!("{:x}", waterfall.object), "file": run.names.get(waterfall.object),
            "start": run.since_origin(waterfall.start_ns), "dur_us": waterfall.dur_us, "slower_than": waterfall.slower_than,
            "most": most_of(&waterfall).map(|step| json!({ "stage": step.stage, "place": step.place, "dur_us": step.dur_us })),
        })
    };
    json!(slowest_operations(run, from, to, count).into_iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::levels::{self, Level};
    use crate::sample::{Sample, merged};

    fn run() -> Run {
        Run::new(merged(&Sample { operations: 200, ..Sample::default() }), Vec::new())
    }

    fn position(run: &Run, name: &str) -> u32 {
        let events = &run.merged.events;
        let is = |position: &u32| run.merged.nodes[events.node(*position)].events.name(events.sort(*position).event) == name;
        events.in_order().find(is).expect("the sample has one")
    }

    #[test]
    fn from_any_record_of_a_request_its_whole_operation_is_found() {
        let run = run();
        let whole = request(&run, position(&run, "client.create")).unwrap();
        let names: Vec<&str> = whole["steps"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap()).collect();
        for name in ["client.create", "net.call", "meta.create", "net.send", "net.receive"] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        for step in whole["steps"].as_array().unwrap() {
            let from_there = request(&run, step["event"].as_u64().unwrap() as u32).unwrap();
            assert_eq!(from_there["steps"], whole["steps"], "from {step}");
        }
        let path: u64 = whole["path"].as_array().unwrap().iter().map(|piece| piece["dur"].as_u64().unwrap()).sum();
        assert_eq!(path, whole["dur"].as_u64().unwrap());
    }

    #[test]
    fn only_messages_name_their_server() {
        let run = run();
        let tracks = levels::tracks(&run, Level::Rank);
        assert!(event(&run, &tracks, position(&run, "net.call")).unwrap()["peer"].is_string());
        assert!(event(&run, &tracks, position(&run, "client.create")).unwrap()["peer"].is_null(), "0 is no server there");
    }

    #[test]
    fn arrows_go_forward_in_time_between_the_lanes_of_the_request() {
        let run = run();
        let tracks = levels::tracks(&run, Level::Rank);
        assert!(arrows(&run, &tracks, (0, run.duration_ns), 10_000)["count"].is_null(), "not analysed yet");
        run.analyse();
        let all = arrows(&run, &tracks, (0, run.duration_ns + 1), 10_000);
        let list = all["arrows"].as_array().unwrap();
        assert_eq!(list.len() as u64, all["count"].as_u64().unwrap());
        for arrow in list {
            let at = |name: &str| arrow[name].as_i64().unwrap();
            assert!(at("sent") <= at("arrived") && at("arrived") <= at("left") && at("left") <= at("back"), "{arrow}");
            let node = |name: &str| run.lanes.lanes[at(name) as usize].node;
            assert!(run.merged.nodes[node("from")].server.is_none() && run.merged.nodes[node("to")].server.is_some());
        }
        let few = arrows(&run, &tracks, (0, run.duration_ns + 1), 10);
        assert_eq!((few["arrows"].as_array().unwrap().len(), few["count"].clone()), (0, all["count"].clone()));
    }

    #[test]
    fn the_slowest_operations_lead_to_their_records() {
        let run = run();
        let slowest = slowest(&run, 0, u64::MAX, 5);
        for row in slowest.as_array().unwrap() {
            let dur_ns = run.merged.events.dur_ns(row["event"].as_u64().unwrap() as u32);
            assert_eq!(dur_ns as f64 / 1e3, row["dur_us"].as_f64().unwrap());
        }
    }
}
