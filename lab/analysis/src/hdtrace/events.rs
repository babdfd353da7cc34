//! Names of states, tokens and gauges as events of a trace: those of Weft keep their numbers,
//! others get free ones.

use std::collections::{BTreeMap, BTreeSet};

use weft_charts::CallClass;
use weft_hdtrace::Entry;
use weft_trace::event::{EventInfo, EventPart};
use weft_trace::{EventId, EventKind, EventTable, Stage};

use super::Told;

/// What a name stands for: the same one may be a state of a program and one of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// A state of a program: an operation.
    Program,
    /// A state inside of what was done for others.
    Inside,
    /// What was done for another process.
    Served,
    /// Columns of a statistics group, by its part of five.
    Gauge(usize),
    /// A moment.
    Moment,
}

/// The events of a project.
#[derive(Debug)]
pub struct Events {
    known: EventTable,
    found: BTreeMap<(Use, String), EventInfo>,
    taken: BTreeSet<EventId>,
}

impl Events {
    /// The events of what was told. Names of the outermost level come first, as those of programs
    /// have only some fifty numbers.
    pub(super) fn of(told: &[Told]) -> Events {
        let known = EventTable::builtin();
        let taken = known.iter().map(|info| info.id).collect();
        let mut events = Events { known, found: BTreeMap::new(), taken };
        let mut level: Vec<&Entry> = told.iter().filter_map(|told| told.trace.as_ref()).flat_map(|(.., trace)| &trace.entries).collect();
        while !level.is_empty() {
            let mut inner = Vec::new();
            for entry in level {
                match entry {
                    Entry::State(state) => {
                        events.id(Use::Program, &state.name);
                        inner.extend(&state.nested);
                    }
                    Entry::Event(event) => {
                        events.id(Use::Moment, &event.name);
                    }
                }
            }
            level = inner;
        }
        events
    }

    /// The event of Weft of this name.
    pub fn of_weft(&self, name: &str) -> Option<&EventInfo> {
        self.known.by_name(name)
    }

    /// The number of a name in this use.
    pub fn id(&mut self, usage: Use, name: &str) -> EventId {
        let kind = match usage {
            Use::Program | Use::Inside => EventKind::Span,
            Use::Served => EventKind::StagedSpan,
            Use::Gauge(_) => EventKind::Counter,
            Use::Moment => EventKind::Mark,
        };
        if let Some(info) = self.known.by_name(name)
            && (info.kind == kind || (usage == Use::Program && info.kind == EventKind::StagedSpan))
        {
            return info.id;
        }
        if let Some(info) = self.found.get(&(usage, name.to_string())) {
            return info.id;
        }
        let layers: &[u8] = match usage {
            Use::Program => &[0, 10, 11, 12, 13, 14],
            Use::Inside => &[12, 13, 14, 11, 10],
            Use::Served => &[5, 4],
            Use::Gauge(_) => &[8],
            Use::Moment => &[9],
        };
        let Some(id) = self.free(layers) else {
            // Hundreds of names: what is left shares the last number.
            return EventId::new(layers[layers.len() - 1], 63);
        };
        self.taken.insert(id);
        let parts = match usage {
            Use::Served => vec![EventPart { name: "served".to_string(), stage: Stage::Unseen }],
            _ => Vec::new(),
        };
        let info = EventInfo { id, name: name.to_string(), kind, stage: stage(usage, name), parts };
        self.found.insert((usage, name.to_string()), info);
        id
    }

    /// The number of five columns of a group, and whether they are gauges of Weft.
    pub fn gauges(&mut self, name: &str, part: usize, columns: &[String]) -> (EventId, bool) {
        let full = if part == 0 { name.to_string() } else { format!("{name}-{}", part + 1) };
        let of_weft = self.known.by_name(&name.replacen('-', ".", 1)).filter(|info| info.kind == EventKind::Counter && part == 0);
        if let Some(info) = of_weft.filter(|info| info.parts.iter().map(|part| &part.name).eq(columns)) {
            return (info.id, true);
        }
        let id = self.id(Use::Gauge(part), &full);
        if let Some(info) = self.found.get_mut(&(Use::Gauge(part), full)) {
            info.parts = columns.iter().map(|name| EventPart { name: name.clone(), stage: Stage::Unseen }).collect();
        }
        (id, false)
    }

    /// All of them.
    pub fn table(self) -> EventTable {
        EventTable::from_infos(self.known.iter().cloned().chain(self.found.into_values()))
    }

    fn free(&self, layers: &[u8]) -> Option<EventId> {
        let all = layers.iter().flat_map(|layer| (0..63).map(|code| EventId::new(*layer, code)));
        all.into_iter().find(|id| !self.taken.contains(id))
    }
}

/// Where time belongs that nothing inside explains. Accesses to files wait for servers that have no
/// records here.
fn stage(usage: Use, name: &str) -> Stage {
    let plain = name.to_lowercase();
    match usage {
        Use::Inside if plain.starts_with("trove") || plain.starts_with("disk") => Stage::DiskNoSeek,
        Use::Inside if plain.starts_with("bmi") || plain.starts_with("flow") => Stage::Network,
        Use::Inside => Stage::Cpu,
        Use::Program => match CallClass::of(name) {
            Some(CallClass::Communication) => Stage::Peers,
            Some(CallClass::Read | CallClass::Write | CallClass::Metadata) => Stage::Unseen,
            Some(CallClass::Compute) | None => Stage::Client,
        },
        Use::Served | Use::Gauge(_) | Use::Moment => Stage::Unseen,
    }
}
