//! States and events of traces as spans and marks.

use std::collections::BTreeMap;

use weft_hdtrace::{CALL, Element, Entry, PROJECT_OBJECT, Project, State, Time, call_object, ranges};
use weft_trace::EventKind;
use weft_trace::event;
use weft_trace::record::{Body, Span, StagedSpan, TraceRecord, class, coarse, fine, flags, padded};

use super::Told;
use super::events::{Events, Use};
use super::process::Process;

/// Names of pieces of a span that an export of Weft writes as nested states.
const PIECES: [&str; 3] = ["wait", "to_server", "from_server"];

/// The earliest beginning among entries, before the time adjustment.
pub fn first(entries: &[Entry]) -> Option<Time> {
    let begin = |entry: &Entry| match entry {
        Entry::State(state) => first(&state.nested).map_or(state.begin, |inner| inner.min(state.begin)),
        Entry::Event(event) => event.time,
    };
    entries.iter().map(begin).min()
}

/// Ranges of one call that are counted.
const RANGES_MAX: u64 = 1 << 20;

/// Adds what the traces say. `of_node` is the process of each of them; the project is given with
/// the place of the rank in paths of its topology.
///
/// # Errors
/// A sentence with file, line and byte: a state ends before it begins.
pub(super) fn put(
    told: &[Told],
    of_node: &[usize],
    processes: &mut [Process],
    events: &mut Events,
    (project, level): (&Project, usize),
) -> Result<(), String> {
    let mut objects = Objects::of(project);
    for (told, node) in told.iter().zip(of_node) {
        let Some((file, bytes, trace)) = &told.trace else { continue };
        let process = &mut processes[*node];
        let mut reader = Reader {
            ring: process.threads,
            adjustment: trace.time_adjustment,
            rank: told.path.get(level).and_then(|name| name.parse().ok()),
            process,
            events,
            objects: &mut objects,
            open: BTreeMap::new(),
        };
        reader.entries(&trace.entries, 0).map_err(|(offset, reason)| {
            let end = (offset as usize).min(bytes.len());
            let line = 1 + bytes[..end].iter().filter(|byte| **byte == b'\n').count();
            format!("{file}: line {line} (byte {offset}): {reason}")
        })?;
        process.threads += 1;
    }
    if let Some(process) = processes.iter_mut().find(|process| process.threads > 0) {
        for (name, object) in &objects.0 {
            process.put_name(*object, name);
        }
        // What calls name by numbers. Where things happened the records say.
        let named = Project { topology: Vec::new(), levels: Vec::new(), ..project.clone() };
        process.put_name(PROJECT_OBJECT, &named.write());
    }
    Ok(())
}

/// Files by name, numbered from 1.
struct Objects(BTreeMap<String, u64>);

impl Objects {
    fn of(project: &Project) -> Objects {
        let mut objects = Objects(BTreeMap::new());
        for file in &project.files {
            objects.number(&file.name);
        }
        objects
    }

    fn number(&mut self, name: &str) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry(name.to_string()).or_insert(next)
    }
}

/// The trace of one thread.
struct Reader<'a> {
    ring: u32,
    adjustment: Time,
    /// The number of the rank, if the node is one.
    rank: Option<u32>,
    process: &'a mut Process,
    events: &'a mut Events,
    objects: &'a mut Objects,
    /// The file behind each number that the trace uses.
    open: BTreeMap<String, u64>,
}

/// A byte of the trace, and what is wrong there.
type Fault = (u64, String);

impl Reader<'_> {
    fn entries(&mut self, entries: &[Entry], parent: u32) -> Result<(), Fault> {
        for entry in entries {
            match entry {
                Entry::State(state) => self.state(state, parent)?,
                Entry::Event(event) => {
                    let value = event.attributes.iter().find(|(key, _)| key == "value").and_then(|(_, value)| value.parse().ok());
                    let body = Body::Mark { value: value.unwrap_or(0), label: padded(&event.name) };
                    let id = self.events.id(Use::Moment, &event.name);
                    self.process.put(self.ring, TraceRecord::new(self.process.at(event.time + self.adjustment), id, body));
                }
            }
        }
        Ok(())
    }

    fn state(&mut self, state: &State, parent: u32) -> Result<(), Fault> {
        let dur = Process::duration(state.begin, state.end).map_err(|reason| (state.offset.0, format!("<{}> {reason}", state.name)))?;
        let own = self.process.next_span();
        let id = self.events.id(Use::Program, &state.name);
        let of_weft = self.events.of_weft(&state.name).cloned();
        if let Some(call) = self.call(state) {
            self.process.put_name(call_object(own), &call.to_text());
        }
        let t0 = self.process.at(state.begin + self.adjustment);
        let mut record = TraceRecord::new(t0, id, Body::Span(Span { dur, span: own, parent, ..Span::default() }));
        match &of_weft {
            None => {
                self.facts(state, &mut record);
                self.process.put_state(self.ring, &state.name, record);
                self.entries(&state.nested, own)
            }
            Some(info) => {
                if info.kind == EventKind::StagedSpan {
                    record.body = Body::StagedSpan(StagedSpan { span: own, phases: phases(state, info), ..StagedSpan::default() });
                    record.flags |= flags::SERVER;
                } else if let Some(Entry::State(wait)) = state.nested.iter().find(|entry| is_named(entry, "wait")) {
                    let waited = Process::duration(wait.begin, wait.end).unwrap_or(0);
                    set(&mut record, |span| span.wait = coarse(waited));
                }
                facts_of_weft(state, &mut record);
                self.facts(state, &mut record);
                self.process.put_state(self.ring, &state.name, record);
                let parts = |entry: &&Entry| {
                    let phase = info.kind == EventKind::StagedSpan && info.parts.iter().any(|part| is_named(entry, &part.name));
                    !phase && !PIECES.iter().any(|piece| is_named(entry, piece))
                };
                let inside: Vec<Entry> = state.nested.iter().filter(parts).cloned().collect();
                self.entries(&inside, own)
            }
        }
    }

    /// What a call was given: the one inside a state that an export has written, or all that a
    /// state of a rank says.
    fn call(&self, state: &State) -> Option<Element> {
        if let Some(inside) = state.data.iter().find(|element| element.name == CALL) {
            return inside.children.first().cloned();
        }
        let mut call = Element::new(&state.name).with("rank", self.rank?).around(state.data.clone());
        call.attributes.extend(state.attributes.iter().cloned());
        Some(call)
    }

    /// File, offset and size, as the wrapper of MPI and PIOsimHD call them.
    fn facts(&mut self, state: &State, record: &mut TraceRecord) {
        let number = |name: &str| state.attribute(name).and_then(|text| text.parse::<u64>().ok());
        let file = state.attribute("fid");
        let opened = state.attribute("name").filter(|_| state.name.to_lowercase().contains("open")).map(|name| self.objects.number(name));
        if let (Some(file), Some(object)) = (file, opened) {
            self.open.insert(file.to_string(), object);
        }
        let object = opened.or_else(|| file.and_then(|file| self.open.get(file).copied()));
        let parts = ranges(&state.data, RANGES_MAX).unwrap_or_default();
        let size = number("size").or_else(|| (!parts.is_empty()).then(|| parts.iter().map(|part| part.1).sum()));
        let offset = number("offset").or_else(|| parts.first().map(|part| part.0));
        set(record, |span| {
            span.obj = object.unwrap_or(span.obj);
            span.off = offset.unwrap_or(span.off);
            span.len = size.map_or(span.len, |size| u32::try_from(size).unwrap_or(u32::MAX));
        });
        // An access of PIOsimHD's disks.
        let seek = match state.attribute("seek") {
            Some("no") => class::NO_SEEK,
            Some("near") => class::NEAR_SEEK,
            Some("far") => class::FAR_SEEK,
            _ => return,
        };
        let id = match state.name.as_str() {
            "Read" => event::DISK_READ,
            "Write" => event::DISK_WRITE,
            _ => return,
        };
        (record.event, record.class) = (id, seek);
    }
}

/// What an export of Weft says of a record.
fn facts_of_weft(state: &State, record: &mut TraceRecord) {
    let hex = |name: &str| state.attribute(name).and_then(|text| u64::from_str_radix(text, 16).ok());
    let number = |name: &str| state.attribute(name).and_then(|text| text.parse::<u64>().ok());
    let peer = number("server").and_then(|number| u16::try_from(number).ok());
    record.req = hex("request").unwrap_or(0);
    record.res = number("result").and_then(|number| u8::try_from(number).ok()).unwrap_or(0);
    record.class = match state.attribute("class") {
        Some("no seek") => class::NO_SEEK,
        Some("near seek") => class::NEAR_SEEK,
        Some("far seek") => class::FAR_SEEK,
        _ => class::UNKNOWN,
    };
    for word in state.attribute("flags").unwrap_or("").split(' ') {
        record.flags |= crate::details::flag(word);
    }
    if let Body::StagedSpan(staged) = &mut record.body {
        staged.code = number("operation").and_then(|number| u16::try_from(number).ok()).unwrap_or(0);
        staged.peer = peer.unwrap_or(0);
    }
    set(record, |span| {
        span.obj = hex("object").unwrap_or(0);
        span.peer = peer.unwrap_or(0);
        span.off = number("offset").unwrap_or(0);
        span.len = number("length").map_or(0, |length| u32::try_from(length).unwrap_or(u32::MAX));
    });
}

fn set(record: &mut TraceRecord, change: impl FnOnce(&mut Span)) {
    if let Body::Span(span) = &mut record.body {
        change(span);
    }
}

fn is_named(entry: &Entry, name: &str) -> bool {
    matches!(entry, Entry::State(state) if state.name.replace('_', " ") == name.replace('_', " "))
}

/// The lengths of a server's phases, which an export writes as nested states.
fn phases(state: &State, info: &event::EventInfo) -> [u32; event::PHASES_MAX] {
    let mut phases = [0; event::PHASES_MAX];
    for (phase, part) in phases.iter_mut().zip(&info.parts) {
        let nested = state.nested.iter().filter(|entry| is_named(entry, &part.name));
        let length =
            |entry: &Entry| if let Entry::State(inner) = entry { Process::duration(inner.begin, inner.end).unwrap_or(0) } else { 0 };
        *phase = coarse(nested.map(length).sum());
    }
    if phases.iter().all(|phase| *phase == 0) {
        return lasting(Process::duration(state.begin, state.end).unwrap_or(0));
    }
    phases
}

/// Phases that together last so many nanoseconds, as long as each of them can.
pub fn lasting(ns: u64) -> [u32; event::PHASES_MAX] {
    let mut left = ns;
    std::array::from_fn(|_| {
        let phase = coarse(left);
        left -= fine(phase).min(left);
        phase
    })
}
