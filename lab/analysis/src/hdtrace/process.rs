//! The records of one process while they are put together.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weft_base::ServerId;
use weft_hdtrace::Time;
use weft_trace::file::{FileHeader, FileWriter, TraceFile};
use weft_trace::record::{DURATION_MAX, TraceRecord};
use weft_trace::{Anchor, EventTable};

/// The ring of gauges and names; threads are numbered from 0.
pub const OWN_RING: u32 = 1 << 30;

/// A process, or a host with statistics.
#[derive(Debug)]
pub struct Process {
    /// Names of the topology, joined by `/`.
    pub name: String,
    /// The outermost of them.
    pub host: String,
    /// Its number, if it does something for other processes.
    pub server: Option<u16>,
    /// What happened, each with its thread.
    pub records: Vec<(u32, TraceRecord)>,
    /// Positions of states in `records`, by beginning and name.
    pub states: BTreeMap<(u64, String), usize>,
    /// Threads so far.
    pub threads: u32,
    /// The earliest time of the project.
    base: Time,
    /// Spans of the whole project.
    spans: Rc<Cell<u32>>,
}

impl Process {
    /// A process at this place of the topology; times count from `base`, and its spans are numbered
    /// together with those of others.
    pub fn new(path: &[String], base: Time, spans: &Rc<Cell<u32>>) -> Process {
        let (name, host) = (path.join("/"), path.first().cloned().unwrap_or_default());
        let (server, spans) = (server_number(&name), Rc::clone(spans));
        Process { server, name, host, records: Vec::new(), states: BTreeMap::new(), threads: 0, base, spans }
    }

    /// True if nothing is known about it.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Nanoseconds since the earliest time of the project.
    pub fn at(&self, time: Time) -> u64 {
        u64::try_from((time - self.base).0).unwrap_or(0)
    }

    /// Nanoseconds from one time to another.
    ///
    /// # Errors
    /// A part of a sentence.
    pub fn duration(begin: Time, end: Time) -> Result<u64, String> {
        let ns = u64::try_from((end - begin).0).map_err(|_| format!("ends at {end}, before it begins at {begin}"))?;
        if ns > DURATION_MAX { Err("takes longer than three days".to_string()) } else { Ok(ns) }
    }

    /// The identity of a new span.
    pub fn next_span(&mut self) -> u32 {
        self.spans.set(self.spans.get() + 1);
        self.spans.get()
    }

    /// Adds a record; gives its position among those of the process.
    pub fn put(&mut self, ring: u32, record: TraceRecord) -> usize {
        self.records.push((ring, record));
        self.records.len() - 1
    }

    /// Adds the name of an object.
    pub fn put_name(&mut self, object: u64, name: &str) {
        for record in weft_trace::names::records(object, name) {
            self.put(OWN_RING, record);
        }
    }

    /// Adds the record of a state of this name.
    pub fn put_state(&mut self, ring: u32, name: &str, record: TraceRecord) {
        let begin = record.t0;
        let position = self.put(ring, record);
        self.states.insert((begin, name.to_string()), position);
    }

    /// All of it, as if Weft had recorded it.
    pub fn file(self, events: &EventTable, domain: &str) -> TraceFile {
        let header = FileHeader {
            node: self.name,
            server: self.server,
            process: 1,
            clock: "monotonic".into(),
            clock_domain: domain.to_string(),
            anchor: Anchor { ticks: 0, mono_ns: 0, wall_ns: self.base.0 },
            events: events.clone(),
            machine: self.host,
        };
        let mut rings: BTreeMap<u32, Vec<TraceRecord>> = BTreeMap::new();
        self.records.into_iter().for_each(|(ring, record)| rings.entry(ring).or_default().push(record));
        TraceFile::read(&FileWriter::whole(&header, rings)).expect("written just now")
    }
}

/// The number of a server of Weft by its name, `meta0`, `data3` or `server3`; exports of Weft have
/// such nodes.
fn server_number(name: &str) -> Option<u16> {
    let index = |role: &str| name.strip_prefix(role)?.parse::<u16>().ok().filter(|index| *index < ServerId::FIRST_DATA);
    index("meta").or_else(|| index("data").or_else(|| index("server")).map(|index| ServerId::data(index).0))
}
