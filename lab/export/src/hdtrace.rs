//! Files of HDTrace, the format of the tools around PIOsimHD (2009): a project, a trace for each
//! lane with a state for each span (pieces of a span as states nested in it), the marks of a node
//! as events, its gauges as a statistics group, and which record was made on behalf of which
//! ([`crate::relations`]). Ranks of parallel programs have traces of their own with what they
//! called ([`crate::calls`]). Written and read by `lab/hdtrace`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use weft_analysis::sublane::nodes_in_order;
use weft_hdtrace::{
    Entry, Event, Project, Row, State, Statistics, StatisticsGroup, Time, TopologyNode, Trace, project_stem, relation_file,
    statistics_file, trace_file,
};
use weft_trace::EventKind;
use weft_trace::record::Body;

use crate::calls::{Calls, inside};
use crate::relations::relations;
use crate::source::{Fact, Source};

const MARKS: &str = "marks";

/// Writes a project and its files beside it; says what it was.
///
/// # Errors
/// If the name does not end in `.proj`, or a file cannot be written.
pub fn write(source: &Source, output: &Path) -> Result<String> {
    let name = output.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = project_stem(name);
    if stem == name || stem.is_empty() {
        bail!("the name of an HDTrace project ends in .proj");
    }
    let put = |file: String, bytes: &[u8]| {
        let path = output.with_file_name(file);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
    };
    let names = node_names(source);
    let mut children: Vec<Vec<TopologyNode>> = vec![Vec::new(); names.len()];
    let (mut states, mut files) = (0, 0);
    let calls = Calls::of(source).unwrap_or_else(|problem| {
        weft_host::output::tell(&problem);
        Calls::default()
    });
    for (rank, (node, of_rank)) in calls.ranks {
        let child = format!("rank{rank}");
        states += of_rank.len();
        files += 1;
        let call = |(position, call)| Entry::State(State { data: vec![inside(call)], ..state(source, position) });
        let trace = Trace { entries: of_rank.into_iter().map(call).collect(), ..Trace::default() };
        put(trace_file(stem, &[&names[node], &child]), trace.write().as_bytes())?;
        children[node].push(TopologyNode { name: child, kind: Some("Rank".to_string()), children: Vec::new() });
    }
    for lane in source.lanes() {
        let child = Source::lane_name(&lane).replace(' ', "");
        let own = lane.items.iter().filter(|position| !calls.positions.contains(position));
        let entries: Vec<Entry> = own.map(|position| Entry::State(state(source, *position))).collect();
        if entries.is_empty() {
            continue;
        }
        states += entries.len();
        files += 1;
        let trace = Trace { entries, ..Trace::default() };
        put(trace_file(stem, &[&names[lane.node], &child]), trace.write().as_bytes())?;
        children[lane.node].push(TopologyNode { name: child, ..TopologyNode::default() });
    }
    for (node, trace) in marks(source) {
        put(trace_file(stem, &[&names[node], MARKS]), trace.write().as_bytes())?;
        children[node].push(TopologyNode { name: MARKS.to_string(), ..TopologyNode::default() });
        files += 1;
    }
    for (node, statistics) in gauges(source, &names) {
        let bytes = statistics.write().map_err(anyhow::Error::msg)?;
        put(statistics_file(stem, &[&names[node]], &statistics.group.name), &bytes)?;
        files += 1;
    }
    for (node, relations) in relations(source, &names) {
        put(relation_file(stem, &[&names[node]]), relations.write().as_bytes())?;
        files += 1;
    }
    let topology = nodes_in_order(&source.merged).into_iter().map(|node| TopologyNode {
        name: names[node].clone(),
        kind: None,
        children: std::mem::take(&mut children[node]),
    });
    let project = Project {
        name: stem.to_string(),
        description: "exported from a trace of Weft".to_string(),
        levels: ["Node", "Lane"].map(str::to_string).to_vec(),
        topology: topology.collect(),
        ..calls.project
    };
    put(name.to_string(), project.write().as_bytes())?;
    Ok(format!("{states} states in {files} files beside it"))
}

/// Names that can be parts of file names, each once.
fn node_names(source: &Source) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for node in &source.merged.nodes {
        let allowed = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '-' };
        let base: String = node.name.chars().map(allowed).collect();
        let mut name = base.clone();
        for number in 2.. {
            if !names.contains(&name) {
                break;
            }
            name = format!("{base}-{number}");
        }
        names.push(name);
    }
    names
}

/// Nanoseconds since the origin.
pub fn time(ns: u64) -> Time {
    Time(i64::try_from(ns).unwrap_or(i64::MAX))
}

fn state(source: &Source, position: u32) -> State {
    let event = source.event(position);
    let start = source.start_ns(event);
    let text = |fact| match fact {
        Fact::Number(number) => number.to_string(),
        Fact::Text(text) => text,
    };
    let piece = |piece: crate::source::Piece| {
        Entry::State(State { name: xml_name(&piece.name), begin: time(piece.from_ns), end: time(piece.to_ns), ..State::default() })
    };
    State {
        name: xml_name(&source.name(event)),
        begin: time(start),
        end: time(start + event.dur_ns),
        attributes: source.facts(event).into_iter().map(|(name, fact)| (name.to_string(), text(fact))).collect(),
        nested: source.pieces(event).into_iter().map(piece).collect(),
        ..State::default()
    }
}

/// Names of elements have no spaces.
pub fn xml_name(name: &str) -> String {
    name.replace(' ', "_")
}

fn marks(source: &Source) -> BTreeMap<usize, Trace> {
    let mut traces: BTreeMap<usize, Trace> = BTreeMap::new();
    for event in source.events() {
        let Body::Mark { value, .. } = &event.record.body else { continue };
        let name = Some(event.record.text()).filter(|label| !label.is_empty()).unwrap_or_else(|| source.name(event));
        let mark = Event {
            name,
            time: time(source.start_ns(event)),
            attributes: vec![("value".to_string(), value.to_string())],
            ..Event::default()
        };
        traces.entry(event.node).or_default().entries.push(Entry::Event(mark));
    }
    traces
}

fn gauges(source: &Source, names: &[String]) -> Vec<(usize, Statistics)> {
    let mut groups: BTreeMap<(usize, u16), Statistics> = BTreeMap::new();
    for event in source.events().filter(|event| event.record.kind() == EventKind::Counter) {
        let Body::Counter(gauges) = &event.record.body else { continue };
        let Some(info) = source.merged.nodes[event.node].events.get(event.record.event) else { continue };
        let end = time(source.start_ns(event));
        let statistics = groups.entry((event.node, event.record.event.0)).or_insert_with(|| {
            let columns = info.parts.iter().map(|part| part.name.as_str());
            let group = StatisticsGroup::of_counts(info.name.replace('.', "-"), names[event.node].clone(), columns);
            Statistics { group, start: Time(0), rows: Vec::new() }
        });
        statistics.rows.push(Row::of_counts(end, gauges.iter().copied().take(info.parts.len())));
    }
    groups.into_iter().map(|((node, _), statistics)| (node, statistics)).collect()
}

#[cfg(test)]
mod tests {
    use weft_hdtrace::{Value, topology_paths};

    use super::*;
    use crate::samples;

    #[test]
    fn what_was_exported_opens_as_the_same_run() {
        use weft_trace::explain::Analysis;
        let dir = tempfile::tempdir().expect("a directory");
        let before = samples::two_creates();
        let output = dir.path().join("run.proj");
        write(&before, &output).expect("written");
        let after = Source::load(&[output], &Default::default()).expect("opens");
        let spans = |source: &Source| {
            let of = |event: &weft_trace::merge::Event| {
                let node = source.merged.nodes[event.node].name.clone();
                (node, source.name(event), source.start_ns(event), event.dur_ns / 16, event.record.req, event.record.flags)
            };
            let mut all: Vec<_> = source.events().filter(|event| weft_analysis::lanes::is_span(event)).map(of).collect();
            all.sort();
            all
        };
        assert_eq!(spans(&after), spans(&before));
        let nodes = |source: &Source| source.merged.nodes.iter().map(|node| (node.name.clone(), node.server)).collect::<Vec<_>>();
        assert_eq!(nodes(&after), nodes(&before));
        let gauges = |source: &Source| {
            let of = |event: &weft_trace::merge::Event| match &event.record.body {
                Body::Counter(gauges) => Some((source.start_ns(event), source.name(event), *gauges)),
                _ => None,
            };
            source.events().filter_map(of).collect::<Vec<_>>()
        };
        assert!(!gauges(&before).is_empty());
        assert_eq!(gauges(&after), gauges(&before));
        let explained = |source: &Source| {
            let explained = Analysis::new(&source.merged).explain(0);
            explained.kinds.iter().map(|kind| (kind.operation.clone(), kind.count, (kind.covered * 1e3) as u64)).collect::<Vec<_>>()
        };
        assert_eq!(explained(&after), explained(&before));
    }

    #[test]
    fn our_own_reader_opens_everything_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let source = samples::two_creates();
        let output = dir.path().join("run.proj");
        write(&source, &output).expect("written");
        let read = |name: &str| std::fs::read(dir.path().join(name)).expect("is there");
        let project = Project::read(&read("run.proj")).complete().expect("sound");
        let mut states = Vec::new();
        let mut events = 0;
        for path in topology_paths(&project).into_iter().filter(|path| path.len() == 2) {
            let trace = Trace::read(&read(&trace_file("run", &path))).complete().expect("sound");
            for entry in trace.entries {
                match entry {
                    Entry::State(state) => states.push(state),
                    Entry::Event(event) => {
                        assert_eq!(event.name, "create, \"phase\" <1>");
                        events += 1;
                    }
                }
            }
        }
        assert_eq!((states.len(), events), (5, 1));
        let staged_span = states.iter().find(|state| state.name == "meta.create").expect("recorded");
        assert_eq!((staged_span.begin, staged_span.end, staged_span.attribute("request")), (Time(1_100), Time(5_580), Some("4d")));
        let names: Vec<&str> =
            staged_span.nested.iter().map(|entry| if let Entry::State(state) = entry { state.name.as_str() } else { "" }).collect();
        assert_eq!(names, ["queue", "cpu", "journal", "send"]);
        let load = Statistics::read(&read("run_meta0_load-server.stat")).complete().expect("sound");
        assert_eq!((load.rows.len(), &load.rows[0].values[0]), (2, &Value::Int64(2)));
        assert!(write(&source, &dir.path().join("run.txt")).is_err());
    }
}
