//! Perfetto's trace protobuf (`protos/perfetto/trace` of that project; field numbers below), one
//! packet for each begin, end, instant and counter value, names interned.
//!
//! Three things that its viewer wants otherwise than one would think:
//! 1. Slices of a track must nest, or their ends are silently exchanged: every lane is a track of
//!    its own.
//! 2. An arrow goes from the *end* of its first slice to the beginning of its second. A server
//!    works while the client's call lasts, so the call gets two pieces inside, the way there and
//!    the way back, and each has its own arrow.
//! 3. Tracks of processes are sorted by the viewer. These are plain tracks below a root with
//!    explicit order.

use std::collections::BTreeMap;
use std::io::{self, Write};

use weft_analysis::sublane::nodes_in_order;
use weft_trace::EventKind;
use weft_trace::merge::Event;
use weft_trace::record::Body;

use crate::proto::Message;
use crate::source::{Fact, Lane, Source};

mod trace {
    pub const PACKET: u32 = 1;
}
mod packet {
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    /// Values of the flags: the interned names begin here; the packet needs them.
    pub const CLEARED: u64 = 1;
    pub const NEEDS: u64 = 2;
}
mod descriptor {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PARENT: u32 = 5;
    pub const COUNTER: u32 = 8;
    pub const CHILD_ORDERING: u32 = 11;
    pub const RANK: u32 = 12;
    pub const EXPLICIT: u64 = 3;
}
mod track_event {
    pub const CATEGORY: u32 = 3;
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME: u32 = 10;
    pub const TRACK: u32 = 11;
    pub const COUNTER_VALUE: u32 = 30;
    pub const FLOW: u32 = 47;
    pub const TERMINATING_FLOW: u32 = 48;
    pub const BEGIN: u64 = 1;
    pub const END: u64 = 2;
    pub const INSTANT: u64 = 3;
    pub const COUNTER: u64 = 4;
}
mod interned {
    pub const CATEGORIES: u32 = 1;
    pub const EVENTS: u32 = 2;
    pub const ANNOTATIONS: u32 = 3;
    pub const ID: u32 = 1;
    pub const NAME: u32 = 2;
}
mod annotation {
    pub const NAME: u32 = 1;
    pub const NUMBER: u32 = 3;
    pub const TEXT: u32 = 6;
}

/// The only writer of packets.
const SEQUENCE: u64 = 1;

/// Writes everything that was chosen; says what it was.
///
/// # Errors
/// Of the writer.
pub fn write(source: &Source, out: &mut dyn Write) -> io::Result<String> {
    let mut file =
        Writer { source, out, names: BTreeMap::new(), fresh: Message::default(), begun: false, tracks: 0, slices: 0, flows: 0, marks: 0 };
    let root = file.track(None, "", 0, true, false)?;
    let clients = file.track(Some(root), "Clients", 0, true, false)?;
    let servers = file.track(Some(root), "Servers", 1, true, false)?;
    let mut nodes = BTreeMap::new();
    for (rank, node) in nodes_in_order(&source.merged).into_iter().enumerate() {
        let of = &source.merged.nodes[node];
        let group = if of.server.is_some() { servers } else { clients };
        nodes.insert(node, file.track(Some(group), &of.name, rank as u64, true, false)?);
    }
    for (rank, lane) in source.lanes().iter().enumerate() {
        let track = file.track(Some(nodes[&lane.node]), &Source::lane_name(lane), rank as u64, false, false)?;
        file.lane(track, lane)?;
    }
    file.points(&nodes)?;
    Ok(format!("{} slices, {} arrows, {} marks, {} tracks", file.slices, file.flows, file.marks, file.tracks))
}

struct Writer<'a> {
    source: &'a Source,
    out: &'a mut dyn Write,
    /// Interned names by list and text.
    names: BTreeMap<(u32, String), u64>,
    /// Names that the next packet brings.
    fresh: Message,
    begun: bool,
    tracks: u64,
    slices: u64,
    flows: u64,
    marks: u64,
}

/// What a slice carries besides its name.
#[derive(Default)]
struct Extras {
    facts: Vec<(&'static str, Fact)>,
    starts: Option<u64>,
    ends: Option<u64>,
}

impl Writer<'_> {
    fn lane(&mut self, track: u64, lane: &Lane) -> io::Result<()> {
        for position in &lane.items {
            let event = self.source.event(*position);
            let (start, end) = (self.source.start_ns(event), self.source.start_ns(event) + event.dur_ns);
            let name = self.source.name(event);
            let category = name.split('.').next().unwrap_or_default().to_string();
            let is_paired = self.source.served(event).is_some();
            let request = event.record.req;
            let mut extras = Extras { facts: self.source.facts(event), ..Extras::default() };
            if event.record.kind() == EventKind::StagedSpan && self.is_answer(event) {
                (extras.ends, extras.starts) = (Some(there(request)), Some(back(request)));
            }
            self.begin(track, start, (&name, &category), extras)?;
            for (number, piece) in self.source.pieces(event).into_iter().enumerate() {
                let mut extras = Extras::default();
                match number {
                    0 if is_paired => extras.starts = Some(there(request)),
                    1 if is_paired => extras.ends = Some(back(request)),
                    _ => {}
                }
                self.flows += u64::from(is_paired);
                self.begin(track, piece.from_ns, (&piece.name, &category), extras)?;
                self.end(track, piece.to_ns)?;
            }
            self.end(track, end)?;
        }
        Ok(())
    }

    /// True if a chosen call found this staged span.
    fn is_answer(&self, staged_span: &Event) -> bool {
        self.source.is_answer(staged_span)
    }

    /// Instants and counters.
    fn points(&mut self, nodes: &BTreeMap<usize, u64>) -> io::Result<()> {
        let mut tracks: BTreeMap<(usize, String), u64> = BTreeMap::new();
        let source = self.source;
        for event in source.events() {
            let parent = nodes[&event.node];
            let name = source.name(event);
            let time = source.start_ns(event);
            match &event.record.body {
                Body::Mark { value, .. } => {
                    let track = self.track_once(&mut tracks, (event.node, "marks".to_string()), parent, false)?;
                    self.marks += 1;
                    let label = event.record.text();
                    let text = if label.is_empty() { name.clone() } else { label };
                    let name = self.intern(interned::EVENTS, &text);
                    let facts = vec![("value", Fact::Number(*value))];
                    self.event(time, |message, writer| {
                        message.varint(track_event::TYPE, track_event::INSTANT);
                        message.varint(track_event::TRACK, track);
                        message.varint(track_event::NAME, name);
                        writer.annotations(message, &facts);
                    })?;
                }
                Body::Counter(gauges) => {
                    let parts = source.merged.nodes[event.node].events.get(event.record.event).map_or(&[][..], |info| &info.parts);
                    for (part, value) in parts.iter().zip(gauges) {
                        let track = self.track_once(&mut tracks, (event.node, part.name.clone()), parent, true)?;
                        self.event(time, |message, _| {
                            message.varint(track_event::TYPE, track_event::COUNTER);
                            message.varint(track_event::TRACK, track);
                            message.varint(track_event::COUNTER_VALUE, *value);
                        })?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn track_once(
        &mut self,
        tracks: &mut BTreeMap<(usize, String), u64>,
        key: (usize, String),
        parent: u64,
        counts: bool,
    ) -> io::Result<u64> {
        if let Some(track) = tracks.get(&key) {
            return Ok(*track);
        }
        // Below the lanes of the node, whose ranks are smaller.
        let rank = 1_000_000 + tracks.len() as u64;
        let track = self.track(Some(parent), &key.1, rank, false, counts)?;
        tracks.insert(key, track);
        Ok(track)
    }

    /// Describes a track; the root is the first.
    fn track(&mut self, parent: Option<u64>, name: &str, rank: u64, orders: bool, counts: bool) -> io::Result<u64> {
        let uuid = self.tracks;
        self.tracks += 1;
        let mut packet = Message::default();
        packet.message(packet::TRACK_DESCRIPTOR, |track| {
            track.varint(descriptor::UUID, uuid);
            if let Some(parent) = parent {
                track.text(descriptor::NAME, name);
                track.varint(descriptor::PARENT, parent);
                track.varint(descriptor::RANK, rank);
            }
            if orders {
                track.varint(descriptor::CHILD_ORDERING, descriptor::EXPLICIT);
            }
            if counts {
                track.message(descriptor::COUNTER, |_| {});
            }
        });
        self.packet(packet)?;
        Ok(uuid)
    }

    fn begin(&mut self, track: u64, time: u64, (name, category): (&str, &str), extras: Extras) -> io::Result<()> {
        self.slices += 1;
        let (name, category) = (self.intern(interned::EVENTS, name), self.intern(interned::CATEGORIES, category));
        self.event(time, |message, writer| {
            message.varint(track_event::TYPE, track_event::BEGIN);
            message.varint(track_event::TRACK, track);
            message.varint(track_event::NAME, name);
            message.varint(track_event::CATEGORY, category);
            extras.starts.iter().for_each(|flow| message.fixed64(track_event::FLOW, *flow));
            extras.ends.iter().for_each(|flow| message.fixed64(track_event::TERMINATING_FLOW, *flow));
            writer.annotations(message, &extras.facts);
        })
    }

    fn end(&mut self, track: u64, time: u64) -> io::Result<()> {
        self.event(time, |message, _| {
            message.varint(track_event::TYPE, track_event::END);
            message.varint(track_event::TRACK, track);
        })
    }

    fn annotations(&mut self, message: &mut Message, facts: &[(&'static str, Fact)]) {
        for (name, fact) in facts {
            let name = self.intern(interned::ANNOTATIONS, name);
            message.message(track_event::ANNOTATION, |inner| {
                inner.varint(annotation::NAME, name);
                match fact {
                    Fact::Number(value) => inner.varint(annotation::NUMBER, *value),
                    Fact::Text(text) => inner.text(annotation::TEXT, text),
                }
            });
        }
    }

    /// The number of a name; it is told with the next packet.
    fn intern(&mut self, list: u32, name: &str) -> u64 {
        if let Some(id) = self.names.get(&(list, name.to_string())) {
            return *id;
        }
        let id = self.names.len() as u64 + 1;
        self.names.insert((list, name.to_string()), id);
        self.fresh.message(list, |entry| {
            entry.varint(interned::ID, id);
            entry.text(interned::NAME, name);
        });
        id
    }

    fn event(&mut self, time: u64, fill: impl FnOnce(&mut Message, &mut Self)) -> io::Result<()> {
        let mut event = Message::default();
        fill(&mut event, self);
        let mut packet = Message::default();
        packet.varint(packet::TIMESTAMP, time);
        packet.message(packet::TRACK_EVENT, |message| *message = event);
        self.packet(packet)
    }

    fn packet(&mut self, mut packet: Message) -> io::Result<()> {
        packet.varint(packet::SEQUENCE, SEQUENCE);
        let flags = if self.begun { packet::NEEDS } else { packet::CLEARED | packet::NEEDS };
        self.begun = true;
        packet.varint(packet::SEQUENCE_FLAGS, flags);
        if !self.fresh.0.is_empty() {
            let fresh = std::mem::take(&mut self.fresh);
            packet.message(packet::INTERNED, |message| *message = fresh);
        }
        let mut whole = Message::default();
        whole.message(trace::PACKET, |message| *message = packet);
        self.out.write_all(&whole.0)
    }
}

/// The arrow from a call to its server.
pub fn there(request: u64) -> u64 {
    request << 1
}

/// The arrow from the server back.
pub fn back(request: u64) -> u64 {
    request << 1 | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::read::{Value, fields};
    use crate::samples;

    fn all(fields: &[(u32, Value)], number: u32) -> Vec<Value> {
        fields.iter().filter(|(field, _)| *field == number).map(|(_, value)| value.clone()).collect()
    }

    fn number(fields: &[(u32, Value)], field: u32) -> Option<u64> {
        all(fields, field).first().map(|value| match value {
            Value::Number(number) => *number,
            Value::Bytes(_) => panic!("field {field} is no number"),
        })
    }

    fn message(value: &Value) -> Vec<(u32, Value)> {
        match value {
            Value::Bytes(bytes) => fields(bytes),
            Value::Number(_) => panic!("no message"),
        }
    }

    /// Decodes what was written as the format's own reader would: known names, tracks that exist,
    /// slices that nest, arrows with two ends.
    #[test]
    fn slices_nest_names_are_known_and_arrows_go_forward() {
        let mut bytes = Vec::new();
        let said = write(&samples::two_creates(), &mut bytes).expect("memory");
        let mut names: BTreeMap<(u32, u64), String> = BTreeMap::new();
        let mut tracks: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        let mut open: BTreeMap<u64, Vec<(u64, String)>> = BTreeMap::new();
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        let mut arrows: BTreeMap<u64, [Vec<u64>; 2]> = BTreeMap::new();
        let mut seen: Vec<String> = Vec::new();
        let mut counted = Vec::new();
        for (position, (field, packet)) in fields(&bytes).into_iter().enumerate() {
            assert_eq!(field, trace::PACKET);
            let packet = message(&packet);
            assert_eq!(number(&packet, packet::SEQUENCE_FLAGS), Some(if position == 0 { 3 } else { 2 }));
            for list in all(&packet, packet::INTERNED).iter().flat_map(message) {
                let entry = message(&list.1);
                let Value::Bytes(text) = &all(&entry, interned::NAME)[0] else { panic!("a name is a text") };
                let id = number(&entry, interned::ID).expect("has an id");
                assert!(names.insert((list.0, id), String::from_utf8(text.clone()).expect("UTF-8")).is_none());
            }
            for track in all(&packet, packet::TRACK_DESCRIPTOR).iter().map(message) {
                let parent = number(&track, descriptor::PARENT);
                assert!(parent.is_none_or(|parent| tracks.contains_key(&parent)), "a parent comes first");
                tracks.insert(number(&track, descriptor::UUID).expect("has a number"), parent);
            }
            for event in all(&packet, packet::TRACK_EVENT).iter().map(message) {
                let time = number(&packet, packet::TIMESTAMP).expect("has a time");
                let track = number(&event, track_event::TRACK).expect("has a track");
                assert!(tracks.contains_key(&track));
                for (field, list) in [(track_event::NAME, interned::EVENTS), (track_event::CATEGORY, interned::CATEGORIES)] {
                    assert!(number(&event, field).is_none_or(|id| names.contains_key(&(list, id))), "unknown name");
                }
                for (field, side) in [(track_event::FLOW, 0), (track_event::TERMINATING_FLOW, 1)] {
                    number(&event, field).into_iter().for_each(|flow| arrows.entry(flow).or_default()[side].push(time));
                }
                let kind = number(&event, track_event::TYPE).expect("has a type");
                if kind == track_event::COUNTER {
                    counted.extend(number(&event, track_event::COUNTER_VALUE));
                    continue;
                }
                let stack = open.entry(track).or_default();
                assert!(last.insert(track, time).is_none_or(|last| last <= time), "time goes on within a track");
                match kind {
                    track_event::BEGIN => {
                        let name = names[&(interned::EVENTS, number(&event, track_event::NAME).expect("named"))].clone();
                        seen.push(name.clone());
                        stack.push((time, name));
                    }
                    track_event::END => drop(stack.pop().expect("ends what began")),
                    _ => seen.push(names[&(interned::EVENTS, number(&event, track_event::NAME).expect("named"))].clone()),
                }
            }
        }
        assert!(open.values().all(Vec::is_empty), "{open:?}");
        assert_eq!(arrows.len(), 2);
        assert!(arrows.values().all(|[from, to]| from.len() == 1 && to.len() == 1 && from[0] <= to[0]), "{arrows:?}");
        for name in
            ["client.create", "net.call", "to server", "from server", "meta.create", "journal", "disk.write", "create, \"phase\" <1>"]
        {
            assert!(seen.iter().any(|seen| seen == name), "{name} in {seen:?}");
        }
        assert_eq!(counted, [2, 1, 0, 4096, 0, 0, 1, 0, 4096, 0]);
        assert_eq!(said, "11 slices, 2 arrows, 1 marks, 16 tracks");
    }
}
