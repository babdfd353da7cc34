//! A run that is looked at: its files on one time line, its lanes, and what is found out in the
//! background once the page can be shown.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use weft_host::parallel::at_once;
use weft_trace::EventKind;
use weft_trace::explain::{Analysis, Explanation};
use weft_trace::file::TraceFile;
use weft_trace::merge::{Event, Merged, gathered, merge_by};
use weft_trace::names::Names;
use weft_trace::record::Body;
use weft_trace::record::flags;

use crate::inputs;
use crate::inputs::{Content, Input};
use crate::lanes::{Lanes, Spans};
use crate::results::Results;
use crate::room;
use crate::sublane::SubLane;
use crate::traces;

/// Suspects that are listed for each kind of operation.
const SUSPECTS: usize = 5;

/// A file that was given, and what became of it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
    /// Why it could not be read at all.
    pub refused: Option<String>,
}

/// Everything about one run.
#[derive(Debug)]
pub struct Run {
    /// What the page calls it.
    pub name: String,
    /// Nodes, clocks and records. It lives until the program ends, as the server's threads and the
    /// analysis borrow from it.
    pub merged: &'static Merged,
    /// Rows and kinds.
    pub lanes: Lanes,
    /// Nanoseconds of the reference clock at which the first record begins; all times of the page
    /// count from here.
    pub origin_ns: i64,
    /// Nanoseconds from there to the end of the last record.
    pub duration_ns: u64,
    /// The files.
    pub sources: Vec<Source>,
    /// What `weft bench` measured.
    pub results: Results,
    /// What formulas asked for.
    pub metrics: crate::kept::ForFormulas,
    /// Names of objects.
    pub names: Names,
    /// What a filter shows.
    pub filtered: crate::kept::Filtered,
    /// Tracks of a level.
    pub arranged: crate::kept::Arranged,
    analysed: OnceLock<Analysed>,
}

/// What takes longer than a reader wants to wait for the first picture.
#[derive(Debug)]
pub struct Analysed {
    /// The critical path of every operation.
    pub analysis: Analysis<'static>,
    /// Where the time goes.
    pub explanation: Explanation,
    merged: &'static Merged,
    nodes: Vec<OfNode>,
    covered: OnceLock<Vec<Covered>>,
}

/// By position: nanoseconds of spans of one node in which others ran inside of them.
type Covered = Vec<(u32, u64)>;

/// What of one node is asked for by a number.
#[derive(Debug, Default)]
struct OfNode {
    /// Records by the request they belong to.
    by_request: Vec<(u64, u32)>,
    /// Spans by identity.
    by_span: Vec<(u32, u32)>,
    /// Spans by the identity of the span around them.
    by_parent: Vec<(u32, u32)>,
}

impl Run {
    /// Clocks that nobody could fit, files that were refused, problems inside of files; violations
    /// of causality once the analysis knows them.
    pub fn problem_count(&self) -> usize {
        let clocks = self.merged.clocks.iter().filter(|clock| clock.error_ns.is_none()).count();
        let refused = self.sources.iter().filter(|source| source.refused.is_some()).count();
        // The analysis looks for them; the page asks again when it is there.
        let violations = usize::from(self.merged.known_violations().is_some_and(|count| count > 0));
        self.merged.nodes.iter().map(|node| node.problems.len()).sum::<usize>() + clocks + refused + violations
    }

    /// True if the records come from the simulator.
    pub fn is_simulated(&self) -> bool {
        let first = |node: usize| self.merged.events.of_node(node).take(100).map(|position| self.merged.events.event(position));
        (0..self.merged.nodes.len()).flat_map(first).any(|event| event.record.flags & flags::SIMULATED != 0)
    }

    /// Reads the files of a run and puts their records on one time line; `progress` is told bytes
    /// read and bytes in all.
    ///
    /// # Errors
    /// If none of them can be read, or they need more memory than there is.
    pub fn load(input: &Input, progress: impl Fn(u64, u64) + Sync) -> Result<Run> {
        let mut files = inputs::files(&input.paths)?;
        let size = |path: &Path, content: Content| match content {
            Content::HdTrace => crate::hdtrace::bytes(path),
            _ => fs::metadata(path).map_or(0, |data| data.len()),
        };
        // The largest first: who has done a small one takes the next.
        files.sort_by_cached_key(|(path, content)| std::cmp::Reverse(size(path, *content)));
        let total: u64 = files.iter().map(|(path, content)| size(path, *content)).sum();
        room::check(total)?;
        progress(0, total);
        let done = AtomicU64::new(0);
        let mut read = gathered(&at_once, files.len(), |number| {
            let (path, content) = &files[number];
            let mut before = 0;
            let part = Part::read(path, *content, |len| {
                let more = std::mem::replace(&mut before, len as u64);
                let more = len as u64 - more;
                progress(done.fetch_add(more, Ordering::Relaxed) + more, total);
            });
            (path.clone(), size(path, *content), part)
        });
        // In the order of the names, whoever was read first.
        read.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        let (mut traces, mut sources, mut results) = (Vec::new(), Vec::new(), Results::default());
        let mut lists = Vec::new();
        for (path, bytes, part) in read {
            let refused = match part {
                Ok(Part::Traces(files)) => {
                    traces.extend(files);
                    None
                }
                Ok(Part::Json(bytes)) => results.add_json(&bytes).err(),
                Ok(Part::Names(text)) => {
                    lists.push((path.clone(), text));
                    None
                }
                Ok(Part::Progress(text)) => results.add_progress(&text).err(),
                Err(reason) => Some(reason),
            };
            sources.push(Source { path, bytes, refused });
        }
        if traces.is_empty() && results == Results::default() {
            let reasons =
                sources.iter().map(|source| format!("{}: {}", source.path.display(), source.refused.as_deref().unwrap_or("it is empty")));
            bail!("there is nothing that could be read: {}", reasons.collect::<Vec<_>>().join("; "));
        }
        let mut run = Run::of(&input.name, merge_by(traces, &at_once), sources, results);
        for (path, text) in lists {
            if let Err(reason) = run.names.add_list(&text) {
                let refused = run.sources.iter_mut().find(|source| source.path == path);
                refused.into_iter().for_each(|source| source.refused = Some(reason.clone()));
            }
        }
        Ok(run)
    }

    /// A run of merged files.
    pub fn new(merged: Merged, sources: Vec<Source>) -> Run {
        Run::of("sample", merged, sources, Results::default())
    }

    /// A run of merged files, and of what was measured beside them.
    pub fn of(name: &str, merged: Merged, sources: Vec<Source>, results: Results) -> Run {
        let merged: &'static Merged = Box::leak(Box::new(merged));
        // Marks and gauges count as well; the recorder's own records about clocks and losses do not
        // stretch the time line.
        let begin = |node: usize| {
            let times = merged.events.node_times(node);
            let is_in_time = |sort: u32| !matches!(times.sorts()[sort as usize].kind, EventKind::Sync | EventKind::Lost | EventKind::Text);
            times.iter().find(|time| is_in_time(time.sort)).map(|time| time.start_ns)
        };
        let origin_ns = (0..merged.nodes.len()).filter_map(begin).min().unwrap_or(0);
        let lanes = Lanes::new(merged, origin_ns, &at_once);
        let duration_ns = if merged.events.is_empty() { results.duration_ns() } else { lanes.end_ns }.max(1);
        Run {
            name: name.to_string(),
            merged,
            lanes,
            origin_ns,
            duration_ns,
            sources,
            results,
            metrics: Default::default(),
            names: Names::new(merged),
            filtered: Default::default(),
            arranged: Default::default(),
            analysed: OnceLock::new(),
        }
    }

    /// True if there are records to look at.
    pub fn has_trace(&self) -> bool {
        !self.merged.nodes.is_empty()
    }

    /// Nanoseconds of the reference clock of a window of the run; one that begins with the run or
    /// before it, or ends with it or after it, is open there.
    pub fn absolute(&self, from: u64, to: u64) -> (i64, i64) {
        let begin = if from == 0 { i64::MIN } else { self.origin_ns.saturating_add_unsigned(from) };
        let end = if to >= self.duration_ns { i64::MAX } else { self.origin_ns.saturating_add_unsigned(to) };
        (begin, end)
    }

    /// Where the time of the operations goes that begin in a window; the whole run is known
    /// already.
    pub fn explain(&self, from: u64, to: u64) -> Explanation {
        let analysed = self.analyse();
        match self.absolute(from, to) {
            (i64::MIN, i64::MAX) => analysed.explanation.clone(),
            (begin, end) => analysed.analysis.explain_by(SUSPECTS, begin, end, &at_once),
        }
    }

    /// Does what takes longer; the first call does the work, others wait for it.
    pub fn analyse(&self) -> &Analysed {
        self.analysed.get_or_init(|| Analysed::new(self.merged))
    }

    /// The analysis if it is there already.
    pub fn analysed(&self) -> Option<&Analysed> {
        self.analysed.get()
    }

    /// Marks with their values, by time.
    pub fn marks(&self) -> impl Iterator<Item = (Event, u64)> {
        self.lanes.marks.iter().filter_map(|position| {
            let event = self.merged.events.event(*position);
            let value = if let Body::Mark { value, .. } = &event.record.body { Some(*value) } else { None };
            value.map(|value| (event, value))
        })
    }

    /// Nanoseconds from the beginning of the run.
    pub fn since_origin(&self, ns: i64) -> i64 {
        ns - self.origin_ns
    }

    /// The spans of a node by their positions.
    pub fn spans_of(&self, node: usize) -> Spans<'_> {
        Spans { times: self.merged.events.node_times(node), origin: self.origin_ns }
    }

    /// Clients and servers that did something: of a host of which only statistics were recorded
    /// there is no span.
    pub fn clients_and_servers(&self) -> (usize, usize) {
        let nodes: BTreeSet<usize> = self.lanes.lanes.iter().map(|lane| lane.node).collect();
        let servers = self.merged.nodes.iter().filter(|node| node.server.is_some()).count();
        (nodes.into_iter().filter(|node| self.merged.nodes[*node].server.is_none()).count(), servers)
    }

    /// Spans of the whole run.
    pub fn spans(&self) -> u64 {
        self.lanes.lanes.iter().flat_map(|lane| &lane.tracks).map(|(_, track)| track.len() as u64).sum()
    }

    /// Lanes of a part of the nodes.
    pub fn lanes_of(&self, sub_lane: SubLane) -> impl Iterator<Item = (usize, &crate::lanes::Lane)> {
        self.lanes.lanes.iter().enumerate().filter(move |(_, lane)| lane.sub_lane == sub_lane)
    }
}

impl Analysed {
    fn new(merged: &'static Merged) -> Analysed {
        let analysis = Analysis::by(merged, &at_once);
        merged.causality_violations();
        let explanation = analysis.explain_by(SUSPECTS, i64::MIN, i64::MAX, &at_once);
        // What is known of each node is found out for all at the same time.
        let nodes = gathered(&at_once, merged.nodes.len(), |node| OfNode::new(merged, node));
        Analysed { analysis, explanation, merged, nodes, covered: OnceLock::new() }
    }

    /// Positions of the records of a request, by time.
    pub fn of_request(&self, request: u64) -> impl Iterator<Item = u32> {
        let mut found: Vec<u32> = self.nodes.iter().flat_map(|node| having(&node.by_request, request)).collect();
        found.sort_by_key(|position| self.merged.events.order(*position));
        found.into_iter()
    }

    /// The span with this identity in a process.
    pub fn span(&self, node: usize, span: u32) -> Option<u32> {
        having(&self.nodes[node].by_span, span).last()
    }

    /// The spans inside one.
    pub fn inside(&self, node: usize, span: u32) -> impl Iterator<Item = u32> {
        having(&self.nodes[node].by_parent, span)
    }

    /// Nanoseconds of a span in which others ran inside of it, in the same process; those that run
    /// at once count once.
    pub fn covered_ns(&self, node: usize, position: u32) -> u64 {
        let of_node = |node: usize| self.nodes[node].covered(self.merged, node);
        let all = self.covered.get_or_init(|| gathered(&at_once, self.nodes.len(), of_node));
        all[node].binary_search_by_key(&position, |entry| entry.0).map_or(0, |at| all[node][at].1)
    }
}

impl OfNode {
    fn new(merged: &Merged, node: usize) -> OfNode {
        let times = merged.events.node_times(node);
        let mut found = OfNode::default();
        for time in times.iter().filter(|time| matches!(times.sorts()[time.sort as usize].kind, EventKind::Span | EventKind::StagedSpan)) {
            let record = times.record(time.position);
            if record.req != 0 {
                found.by_request.push((record.req, time.position));
            }
            if let Body::Span(span) = &record.body {
                found.by_span.extend((span.span != 0).then_some((span.span, time.position)));
                found.by_parent.extend((span.parent != 0).then_some((span.parent, time.position)));
            }
        }
        found.by_request.sort_unstable();
        found.by_span.sort_unstable();
        found.by_parent.sort_unstable();
        found
    }

    fn covered(&self, merged: &Merged, node: usize) -> Covered {
        let times = merged.events.node_times(node);
        let interval = |position: u32| {
            let (start, dur) = times.at(position);
            (start, start.saturating_add_unsigned(dur))
        };
        let around = |inside: &[(u32, u32)]| {
            let parent = having(&self.by_span, inside[0].0).last()?;
            let (mut at, end) = interval(parent);
            let mut covered_ns = 0;
            // Positions rise with time.
            for (from, to) in inside.iter().filter(|(_, position)| *position != parent).map(|(_, position)| interval(*position)) {
                let (from, to) = (from.max(at), to.min(end));
                if to > from {
                    covered_ns += from.abs_diff(to);
                    at = to;
                }
            }
            Some((parent, covered_ns))
        };
        let mut found: Covered = self.by_parent.chunk_by(|a, b| a.0 == b.0).filter_map(around).collect();
        found.sort_unstable();
        found
    }
}

/// Positions that belong to a number, in their order.
fn having<N: Ord + Copy>(sorted: &[(N, u32)], number: N) -> impl Iterator<Item = u32> {
    let first = sorted.partition_point(|(other, _)| *other < number);
    sorted[first..].iter().take_while(move |(other, _)| *other == number).map(|(_, position)| *position)
}

/// What one file says.
enum Part {
    Traces(Vec<TraceFile>),
    Json(Vec<u8>),
    Progress(String),
    Names(String),
}

impl Part {
    fn read(path: &Path, content: Content, progress: impl FnMut(usize)) -> Result<Part, String> {
        let text = |error: std::io::Error| error.to_string();
        match content {
            Content::Json => fs::read(path).map(Part::Json).map_err(text),
            Content::Progress => fs::read(path).map(|bytes| Part::Progress(String::from_utf8_lossy(&bytes).into_owned())).map_err(text),
            Content::Names => fs::read(path).map(|bytes| Part::Names(String::from_utf8_lossy(&bytes).into_owned())).map_err(text),
            Content::Trace | Content::HdTrace | Content::HdTracePart | Content::Unknown => {
                traces::read(path, content, progress).map(Part::Traces)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, write};

    fn load(paths: &[&Path]) -> Result<Run> {
        let paths = paths.iter().map(|path| path.to_path_buf()).collect();
        Run::load(&Input { name: "run".into(), paths }, |_, _| {})
    }

    #[test]
    fn a_directory_gives_its_traces_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        write(&Sample { operations: 50, ..Sample::default() }, dir.path()).unwrap();
        fs::write(dir.path().join("notes.txt"), "no trace").unwrap();
        let run = load(&[dir.path()]).unwrap();
        assert_eq!((run.merged.nodes.len(), run.sources.len()), (8, 8));
        assert!(run.spans() > 50);
        // One that a full disk has left without anything in it is missed.
        fs::write(dir.path().join("cut.wtrace"), "").unwrap();
        let refused: Vec<_> = load(&[dir.path()]).unwrap().sources.into_iter().filter_map(|source| source.refused).collect();
        assert_eq!(refused, ["this is not a trace file of Weft"]);
    }

    #[test]
    fn a_cut_file_opens_and_says_so_and_a_foreign_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        write(&Sample { operations: 3_000, ..Sample::default() }, dir.path()).unwrap();
        let cut = dir.path().join("meta0.trace");
        let bytes = fs::read(&cut).unwrap();
        fs::write(&cut, &bytes[..bytes.len() - 100]).unwrap();
        let foreign = dir.path().join("notes.txt");
        fs::write(&foreign, "no trace").unwrap();
        let run = load(&[dir.path(), &foreign]).unwrap();
        let meta0 = run.merged.nodes.iter().find(|node| node.name == "meta0").unwrap();
        assert!(meta0.problems.iter().any(|problem| problem.contains("no end")), "{:?}", meta0.problems);
        let refused: Vec<_> = run.sources.iter().filter_map(|source| source.refused.as_deref()).collect();
        assert_eq!(refused, ["this is not a trace file of Weft"]);
    }

    #[test]
    fn nothing_to_see_is_an_error_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let error = load(&[dir.path()]).unwrap_err().to_string();
        assert!(error.contains("holds no trace file"), "{error}");
    }

    #[test]
    fn results_of_a_benchmark_are_a_run_without_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("bench.json"), r#"[{"phase":"create","ops_per_s":{"median":10.0,"min":9.0,"max":11.0}}]"#).unwrap();
        fs::write(dir.path().join("progress.csv"), "proc,node,t_s,count\n0,a,0.5,4\n0,a,1.5,5\n").unwrap();
        fs::write(dir.path().join("broken.json"), "[{}]").unwrap();
        let run = load(&[dir.path()]).unwrap();
        assert_eq!((run.has_trace(), run.duration_ns, run.results.phases.len(), run.spans()), (false, 1_500_000_000, 1, 0));
        let refused: Vec<bool> = run.sources.iter().map(|source| source.refused.is_some()).collect();
        assert_eq!(refused, [false, true, false], "bench.json, broken.json, progress.csv");
    }

    #[test]
    fn two_windows_explain_what_the_whole_run_does() {
        let run = Run::new(crate::sample::merged(&Sample { operations: 400, ..Sample::default() }), Vec::new());
        let middle = run.duration_ns / 2;
        let (whole, first, second) = (run.explain(0, u64::MAX), run.explain(0, middle), run.explain(middle, u64::MAX));
        assert!(first.operations > 50 && second.operations > 50);
        assert_eq!(first.operations + second.operations, whole.operations);
        assert!((first.seconds + second.seconds - whole.seconds).abs() < 1e-6);
        assert_eq!(run.explain(1, 2).operations, 0);
    }
}
