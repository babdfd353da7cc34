//! Trace records of simulated nodes, in virtual time: the same records as real processes write, see
//! `weft-trace`.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_base::ServerId;
use weft_trace::event::served;
use weft_trace::file::{FileHeader, FileWriter};
use weft_trace::record::flags;
use weft_trace::{
    Anchor, Batch, Clock, Context, Drain, EventTable, Mask, Mode, OpenStagedSpan, Recorder, Tracer, TracerConfig, set_context, set_recorder,
};

use crate::ids::{NodeId, TaskId};

/// The recorders of all nodes.
pub(crate) struct Tracing {
    mask: Mask,
    records: usize,
    now: Arc<AtomicU64>,
    nodes: BTreeMap<NodeId, NodeTrace>,
    /// The running operation of each task that has one.
    contexts: BTreeMap<(u32, u32), Context>,
}

struct NodeTrace {
    recorder: Option<Rc<Recorder>>,
    /// What was taken from the ring.
    drain: Drain,
    batches: Vec<Batch>,
    /// Tasks of the node have run so often.
    entries: u64,
}

/// Rings are emptied whenever tasks of their node have run so often: then a run may have any
/// length.
const ENTRIES: u64 = 64;

impl Tracing {
    pub(crate) fn new(mask: Mask, records: usize) -> Tracing {
        Tracing { mask, records, now: Arc::default(), nodes: BTreeMap::new(), contexts: BTreeMap::new() }
    }

    /// A task of this node is about to run.
    pub(crate) fn enter(&mut self, node: NodeId, task: TaskId, now: u64) {
        self.now.store(now, Ordering::Relaxed);
        let (mask, records, clock) = (self.mask, self.records, &self.now);
        let trace = self.nodes.entry(node).or_insert_with(|| {
            let config = TracerConfig::new(Mode::Bench, Clock::Virtual(clock.clone()));
            let tracer = Tracer::new(TracerConfig { ring_records: records, flags: flags::SIMULATED, ..config });
            tracer.set_mask(mask);
            NodeTrace { recorder: tracer.recorder().map(Rc::new), drain: Drain::new(&tracer), batches: Vec::new(), entries: 0 }
        });
        trace.entries += 1;
        if trace.entries.is_multiple_of(ENTRIES) {
            trace.batches.extend(trace.drain.fetch());
        }
        set_recorder(trace.recorder.clone());
        set_context(self.contexts.get(&key(task)).copied().unwrap_or_default());
    }

    /// It has run.
    pub(crate) fn leave(&mut self, task: TaskId, has_ended: bool) {
        let context = set_context(Context::default());
        if has_ended || context == Context::default() {
            self.contexts.remove(&key(task));
        } else {
            self.contexts.insert(key(task), context);
        }
        set_recorder(None);
    }

    /// The card of a node begins with a reply at `at`: the record of its request is complete.
    pub(crate) fn reply_leaves(&self, node: NodeId, traced: OpenStagedSpan, at: u64) {
        let before = set_recorder(self.nodes.get(&node).and_then(|trace| trace.recorder.clone()));
        traced.end_with(served::SEND, at);
        set_recorder(before);
    }

    /// A trace file for each node that ran; `name_of` tells its name and server.
    pub(crate) fn files(&mut self, name_of: impl Fn(NodeId) -> (String, Option<ServerId>)) -> Vec<(String, Vec<u8>)> {
        let file = |(node, trace): (&NodeId, &mut NodeTrace)| {
            let (name, server) = name_of(*node);
            let header = FileHeader {
                node: name.clone(),
                server: server.map(|server| server.0),
                process: node.0,
                clock: "virtual".into(),
                clock_domain: "simulation".into(),
                anchor: Anchor::default(),
                events: EventTable::builtin(),
                machine: String::new(),
            };
            let (mut writer, mut bytes) = FileWriter::begin(&header);
            trace.batches.extend(trace.drain.fetch());
            trace.batches.iter().for_each(|batch| writer.batch(batch, &mut bytes));
            writer.end(&mut bytes);
            (name, bytes)
        };
        self.nodes.iter_mut().map(file).collect()
    }
}

fn key(task: TaskId) -> (u32, u32) {
    (task.index, task.generation)
}
