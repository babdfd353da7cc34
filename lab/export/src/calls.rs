//! What ranks of parallel programs called, where a trace knows it: from that `weft sim` makes their
//! programs again. Each rank has a trace of its own, in which the call stands inside of the state.

use std::collections::{BTreeMap, BTreeSet};

use weft_hdtrace::{CALL, Element, PROJECT_OBJECT, Project, call_object};
use weft_trace::names::Names;
use weft_trace::record::Body;

use crate::source::Source;

/// The calls of all ranks.
#[derive(Default)]
pub struct Calls {
    /// Communicators, datatypes and files.
    pub project: Project,
    /// Node of each rank, and its calls in their order: where they stand, and what they were given.
    pub ranks: BTreeMap<u32, (usize, Vec<(u32, Element)>)>,
    /// Where they all stand.
    pub positions: BTreeSet<u32>,
}

impl Calls {
    /// Those of a trace that is exported whole; else nothing.
    ///
    /// # Errors
    /// A sentence: some of the calls are not known.
    pub fn of(source: &Source) -> Result<Calls, String> {
        let names = Names::new(&source.merged);
        let Some(project) = names.get(PROJECT_OBJECT).filter(|_| source.is_whole) else { return Ok(Calls::default()) };
        let project = Project::read(project.as_bytes()).complete().map_err(|error| format!("what its calls name is damaged: {error}"))?;
        // By rank and thread. Calls that lie inside of others are theirs.
        let mut threads: BTreeMap<(u32, usize, u32), Vec<(u32, Element)>> = BTreeMap::new();
        let mut unknown = 0;
        for position in &source.chosen {
            let event = source.event(*position);
            let Body::Span(span) = &event.record.body else { continue };
            let Some(text) = names.get(call_object(span.span)).filter(|_| span.span != 0 && span.parent == 0) else { continue };
            let call = Element::from_text(text);
            match call.as_ref().and_then(|call| call.attribute("rank")?.parse::<u32>().ok()).zip(call) {
                Some((rank, call)) => threads.entry((rank, event.node, event.ring)).or_default().push((*position, call)),
                None => unknown += 1,
            }
        }
        if unknown > 0 {
            return Err(format!("{unknown} calls of its ranks are too long for a trace: it cannot be simulated again"));
        }
        let mut calls = Calls { project, ..Calls::default() };
        // Of a rank with several threads the first one is done again.
        for ((rank, node, _), of_thread) in threads {
            calls.ranks.entry(rank).or_insert((node, of_thread));
        }
        calls.positions = calls.ranks.values().flat_map(|(_, calls)| calls.iter().map(|(position, _)| *position)).collect();
        Ok(calls)
    }
}

/// A call as data of a state.
pub fn inside(call: Element) -> Element {
    Element::new(CALL).around(vec![call])
}
