//! Relations of HDTrace: which record was made on behalf of which. An operation of a client is a
//! token; its calls come from it, the staged span of a server from the call (a token of another
//! host), and what the server recorded for the request, at its disk for example, from the staged
//! span. A file for each node; a token is the number of its record, a state of it the time of the
//! record.

use std::collections::{BTreeMap, BTreeSet};

use weft_base::FastMap;
use weft_hdtrace::{Parent, Relation, RelationHeader, Relations};
use weft_trace::EventKind;
use weft_trace::event::NET_CALL;
use weft_trace::record::Body;

use crate::hdtrace::{time, xml_name};
use crate::source::Source;

/// Each node has one file, and it is a host of one process.
const PROCESS: &str = "0";
const TOPOLOGY: u64 = 0;

/// The relations of each node that has some; `names` are those of the nodes in the project.
pub fn relations(source: &Source, names: &[String]) -> BTreeMap<usize, Relations> {
    let parents = parents(source);
    let related: BTreeSet<u32> = parents.iter().flat_map(|(child, parent)| [*child, *parent]).collect();
    // Entries of a file stand by time. At one time what begins comes first, as it may come from
    // what ends there.
    type Entry = (u64, bool, u32, Relation);
    let mut entries: BTreeMap<usize, Vec<Entry>> = BTreeMap::new();
    for position in related {
        let event = source.event(position);
        let token = token(position);
        let (start_ns, end_ns) = (source.start_ns(event), source.start_ns(event) + event.dur_ns);
        let parent = parents.get(&position).map(|parent| match source.event(*parent).node {
            node if node == event.node => Parent::Internal(self::token(*parent)),
            node => Parent::Remote {
                host: names[node].clone(),
                process: PROCESS.to_string(),
                topology_number: TOPOLOGY,
                token: self::token(*parent),
            },
        });
        let (begin, end) = (time(start_ns), time(end_ns));
        let name = xml_name(&source.name(event));
        let of_node = entries.entry(event.node).or_default();
        of_node.push((start_ns, false, position, Relation::Create { token, time: begin, parents: parent.into_iter().collect() }));
        of_node.push((start_ns, false, position, Relation::Start { token, time: begin, name, attributes: Vec::new(), data: Vec::new() }));
        of_node.push((end_ns, true, position, Relation::End { token, time: end, attributes: Vec::new(), data: Vec::new() }));
        of_node.push((end_ns, true, position, Relation::Destroy { token, time: end }));
    }
    let file = |(node, mut entries): (usize, Vec<Entry>)| {
        entries.sort_by_key(|(ns, is_end, position, _)| (*ns, *is_end, *position));
        let header =
            RelationHeader { host: names[node].clone(), process: PROCESS.into(), topology_number: TOPOLOGY, ..RelationHeader::default() };
        (node, Relations { header, entries: entries.into_iter().map(|(.., entry)| entry).collect() })
    };
    entries.into_iter().map(file).collect()
}

/// Tokens count from 1.
fn token(position: u32) -> u64 {
    u64::from(position) + 1
}

/// For each record that was made on behalf of another one, that one.
fn parents(source: &Source) -> BTreeMap<u32, u32> {
    let spans = || {
        let is_span = |position: &u32| matches!(source.event(*position).record.kind(), EventKind::Span | EventKind::StagedSpan);
        source.chosen.iter().copied().filter(is_span)
    };
    let mut by_span: FastMap<(usize, u32), u32> = FastMap::default();
    let mut calls: FastMap<(usize, u64), u32> = FastMap::default();
    let mut parents = BTreeMap::new();
    // The staged span that answers a request.
    let mut staged_spans: FastMap<u64, u32> = FastMap::default();
    for position in spans() {
        let event = source.event(position);
        if let Body::Span(span) = &event.record.body
            && span.span != 0
        {
            by_span.insert((event.node, span.span), position);
        }
        if event.record.event == NET_CALL && event.record.req != 0 {
            calls.insert((event.node, event.record.req), position);
        }
        if let Some(served) = source.served(event) {
            parents.insert(served, position);
            staged_spans.insert(event.record.req, served);
        }
    }
    for position in spans() {
        if parents.contains_key(&position) {
            continue;
        }
        let event = source.event(position);
        let around = match &event.record.body {
            Body::Span(span) if span.parent != 0 => by_span.get(&(event.node, span.parent)),
            _ => None,
        };
        // What a server did for a request, or what a client's socket did for its call.
        let staged_span = || staged_spans.get(&event.record.req).filter(|staged_span| source.event(**staged_span).node == event.node);
        let call = || calls.get(&(event.node, event.record.req));
        let for_request = || if event.record.req == 0 { None } else { staged_span().or_else(call) };
        if let Some(parent) = around.or_else(for_request).filter(|parent| **parent != position) {
            parents.insert(position, *parent);
        }
    }
    parents
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_create_leads_to_its_call_its_server_and_its_disk() {
        let source = samples::two_creates();
        let names = ["client0".to_string(), "meta0".to_string()];
        let found = relations(&source, &names);
        let all: Vec<&Relation> = found.values().flat_map(|relations| &relations.entries).collect();
        let token = |wanted: &str| {
            let is = |relation: &&&Relation| matches!(relation, Relation::Start { name, .. } if name == wanted);
            let Some(Relation::Start { token, .. }) = all.iter().find(is) else { panic!("{wanted} has no token") };
            *token
        };
        let parent = |wanted: &str| {
            let token = token(wanted);
            let is = |relation: &&&Relation| matches!(relation, Relation::Create { token: other, .. } if *other == token);
            let Some(Relation::Create { parents, .. }) = all.iter().find(is) else { panic!("{wanted} was not created") };
            parents.clone()
        };
        assert_eq!(parent("client.create"), []);
        assert_eq!(parent("net.call"), [Parent::Internal(token("client.create"))]);
        let call = Parent::Remote { host: "client0".into(), process: PROCESS.into(), topology_number: TOPOLOGY, token: token("net.call") };
        assert_eq!(parent("meta.create"), [call]);
        assert_eq!(parent("disk.write"), [Parent::Internal(token("meta.create"))]);
        // The failed create has no call, so nothing is related to it.
        assert_eq!(all.len(), 4 * 4);
        for (node, relations) in found {
            assert_eq!(relations.header.host, names[node]);
            let read = Relations::read(relations.write().as_bytes()).complete().expect("sound");
            assert_eq!(read, relations);
            let times: Vec<_> = relations.entries.iter().map(at).collect();
            assert!(times.is_sorted());
        }
    }

    fn at(relation: &Relation) -> weft_hdtrace::Time {
        match relation {
            Relation::Create { time, .. } | Relation::Start { time, .. } | Relation::End { time, .. } | Relation::Destroy { time, .. } => {
                *time
            }
        }
    }
}
