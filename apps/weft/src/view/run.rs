//! A run that is looked at: its files on one time line, its lanes, and what is found out in the background once the page can be shown.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use anyhow::{Result, bail};
use weft_base::FastMap;
use weft_trace::explain::{Analysis, Explanation};
use weft_trace::file::TraceFile;
use weft_trace::merge::{Event, Merged, merge};
use weft_trace::record::Body;

use super::inputs::{self, Content, Input};
use super::lanes::Lanes;
use super::results::Results;
use super::sublane::SubLane;

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
    /// Nodes, clocks and records. It lives until the program ends, as the server's threads and the analysis borrow from it.
    pub merged: &'static Merged,
    /// Rows and kinds.
    pub lanes: Lanes,
    /// Nanoseconds of the reference clock at which the first record begins; all times of the page count from here.
    pub origin_ns: i64,
    /// Nanoseconds from there to the end of the last record.
    pub duration_ns: u64,
    /// The files.
    pub sources: Vec<Source>,
    /// What `weft bench` measured.
    pub results: Results,
    /// What formulas asked for.
    pub metrics: super::metrics::Store,
    analysed: OnceLock<Analysed>,
}

/// What takes longer than a reader wants to wait for the first picture.
#[derive(Debug)]
pub struct Analysed {
    /// The critical path of every operation.
    pub analysis: Analysis<'static>,
    /// Where the time goes.
    pub explanation: Explanation,
    /// Records by the request they belong to.
    by_request: Vec<(u64, u32)>,
    /// Spans by node and identity.
    by_span: FastMap<(u32, u32), u32>,
    /// Spans by node and the identity of the span around them.
    by_parent: Vec<(u32, u32, u32)>,
}

impl Run {
    /// Reads the files of a run and puts their records on one time line; `progress` is told bytes read and bytes in all.
    ///
    /// # Errors
    /// If none of them can be read.
    pub fn load(input: &Input, progress: impl Fn(u64, u64) + Sync) -> Result<Run> {
        let files = inputs::files(&input.paths)?;
        let size = |path: &Path| fs::metadata(path).map_or(0, |data| data.len());
        let total: u64 = files.iter().map(|(path, _)| size(path)).sum();
        progress(0, total);
        let (done, next) = (AtomicU64::new(0), AtomicUsize::new(0));
        let read = Mutex::new(Vec::new());
        let reader = || {
            while let Some((path, content)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                let bytes = fs::read(path);
                let len = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
                let part = bytes.map_err(|error| error.to_string()).and_then(|bytes| Part::new(*content, &bytes));
                read.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((path.clone(), len, part));
                progress(done.fetch_add(len, Ordering::Relaxed) + len, total);
            }
        };
        let readers = thread::available_parallelism().map_or(1, usize::from).min(READERS_MAX).min(files.len());
        thread::scope(|scope| (0..readers).for_each(|_| drop(scope.spawn(reader))));
        let mut read = read.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        // In the order of the names, whoever was read first.
        read.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        let (mut traces, mut sources, mut results) = (Vec::new(), Vec::new(), Results::default());
        for (path, bytes, part) in read {
            let refused = match part {
                Ok(Part::Trace(file)) => {
                    traces.push(*file);
                    None
                }
                Ok(Part::Json(bytes)) => results.add_json(&bytes).err(),
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
        Ok(Run::of(&input.name, merge(traces), sources, results))
    }

    /// A run of merged files.
    #[cfg(test)]
    pub fn new(merged: Merged, sources: Vec<Source>) -> Run {
        Run::of("sample", merged, sources, Results::default())
    }

    /// A run of merged files, and of what was measured beside them.
    pub fn of(name: &str, merged: Merged, sources: Vec<Source>, results: Results) -> Run {
        let merged: &'static Merged = Box::leak(Box::new(merged));
        // Marks and gauges count as well; the recorder's own records about clocks and losses do not stretch the time line.
        let in_time =
            || merged.events.iter().filter(|event| !matches!(event.record.body, Body::Sync(_) | Body::Lost { .. } | Body::Text(_)));
        let origin_ns = in_time().map(|event| event.start_ns).min().unwrap_or(0);
        let end_ns = in_time().map(Event::end_ns).max().unwrap_or(origin_ns);
        let lanes = Lanes::new(merged, origin_ns);
        let duration_ns = if merged.events.is_empty() { results.duration_ns() } else { end_ns.abs_diff(origin_ns) }.max(1);
        Run {
            name: name.to_string(),
            merged,
            lanes,
            origin_ns,
            duration_ns,
            sources,
            results,
            metrics: Default::default(),
            analysed: OnceLock::new(),
        }
    }

    /// The record at a position.
    pub fn event(&self, position: u32) -> &Event {
        &self.merged.events[position as usize]
    }

    /// True if there are records to look at.
    pub fn has_trace(&self) -> bool {
        !self.merged.nodes.is_empty()
    }

    /// Nanoseconds of the reference clock of a window of the run; one that begins with the run or before it, or ends with it or after it, is open there.
    pub fn absolute(&self, from: u64, to: u64) -> (i64, i64) {
        let begin = if from == 0 { i64::MIN } else { self.origin_ns.saturating_add_unsigned(from) };
        let end = if to >= self.duration_ns { i64::MAX } else { self.origin_ns.saturating_add_unsigned(to) };
        (begin, end)
    }

    /// Where the time of the operations goes that begin in a window; the whole run is known already.
    pub fn explain(&self, from: u64, to: u64) -> Explanation {
        let analysed = self.analyse();
        match self.absolute(from, to) {
            (i64::MIN, i64::MAX) => analysed.explanation.clone(),
            (begin, end) => analysed.analysis.explain_between(SUSPECTS, begin, end),
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
    pub fn marks(&self) -> impl Iterator<Item = (&Event, u64)> {
        self.merged.events.iter().filter_map(|event| match &event.record.body {
            Body::Mark { value, .. } => Some((event, *value)),
            _ => None,
        })
    }

    /// Nanoseconds from the beginning of the run.
    pub fn since_origin(&self, ns: i64) -> i64 {
        ns - self.origin_ns
    }

    /// The lane that shows an event.
    pub fn lane_of(&self, position: u32) -> Option<usize> {
        let event = self.merged.events.get(position as usize)?;
        let start = self.since_origin(event.start_ns).max(0) as u64;
        self.lanes.lanes.iter().position(|lane| {
            let holds = |bars: &[super::tiles::Bar]| {
                let first = bars.partition_point(|bar| bar.start < start);
                bars[first..].iter().take_while(|bar| bar.start == start).any(|bar| bar.event == position)
            };
            lane.node == event.node && lane.tracks.iter().any(|(_, track)| holds(track.bars()))
        })
    }

    /// Spans of the whole run.
    pub fn spans(&self) -> u64 {
        self.lanes.lanes.iter().flat_map(|lane| &lane.tracks).map(|(_, track)| track.bars().len() as u64).sum()
    }

    /// Lanes of a part of the nodes.
    pub fn lanes_of(&self, sub_lane: SubLane) -> impl Iterator<Item = (usize, &super::lanes::Lane)> {
        self.lanes.lanes.iter().enumerate().filter(move |(_, lane)| lane.sub_lane == sub_lane)
    }
}

impl Analysed {
    fn new(merged: &'static Merged) -> Analysed {
        let analysis = Analysis::new(merged);
        let explanation = analysis.explain(SUSPECTS);
        let (mut by_request, mut by_span, mut by_parent) = (Vec::new(), FastMap::default(), Vec::new());
        for (position, event) in merged.events.iter().enumerate() {
            if event.record.req != 0 && super::lanes::is_span(event) {
                by_request.push((event.record.req, position as u32));
            }
            if let Body::Span(span) = &event.record.body {
                if span.span != 0 {
                    by_span.insert((event.node as u32, span.span), position as u32);
                }
                if span.parent != 0 {
                    by_parent.push((event.node as u32, span.parent, position as u32));
                }
            }
        }
        by_request.sort_unstable();
        by_parent.sort_unstable();
        Analysed { analysis, explanation, by_request, by_span, by_parent }
    }

    /// Positions of the records of a request, by time.
    pub fn of_request(&self, request: u64) -> impl Iterator<Item = u32> {
        let first = self.by_request.partition_point(|(other, _)| *other < request);
        self.by_request[first..].iter().take_while(move |(other, _)| *other == request).map(|(_, position)| *position)
    }

    /// The span with this identity in a process.
    pub fn span(&self, node: usize, span: u32) -> Option<u32> {
        self.by_span.get(&(node as u32, span)).copied()
    }

    /// The spans inside one.
    pub fn inside(&self, node: usize, span: u32) -> impl Iterator<Item = u32> {
        let key = (node as u32, span);
        let first = self.by_parent.partition_point(|(node, parent, _)| (*node, *parent) < key);
        self.by_parent[first..].iter().take_while(move |(node, parent, _)| (*node, *parent) == key).map(|(_, _, position)| *position)
    }
}

/// What one file says.
enum Part {
    Trace(Box<TraceFile>),
    Json(Vec<u8>),
    Progress(String),
}

impl Part {
    fn new(content: Content, bytes: &[u8]) -> Result<Part, String> {
        match content {
            Content::Json => Ok(Part::Json(bytes.to_vec())),
            Content::Progress => Ok(Part::Progress(String::from_utf8_lossy(bytes).into_owned())),
            Content::Trace | Content::Unknown => {
                TraceFile::read(bytes).map(|file| Part::Trace(Box::new(file))).map_err(|error| error.to_string())
            }
        }
    }
}

/// Files that are read at the same time, at most.
const READERS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample::{Sample, write};

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
        let run = Run::new(crate::view::sample::merged(&Sample { operations: 400, ..Sample::default() }), Vec::new());
        let middle = run.duration_ns / 2;
        let (whole, first, second) = (run.explain(0, u64::MAX), run.explain(0, middle), run.explain(middle, u64::MAX));
        assert!(first.operations > 50 && second.operations > 50);
        assert_eq!(first.operations + second.operations, whole.operations);
        assert!((first.seconds + second.seconds - whole.seconds).abs() < 1e-6);
        assert_eq!(run.explain(1, 2).operations, 0);
    }

    #[test]
    fn every_span_has_its_lane() {
        let run = Run::new(crate::view::sample::merged(&Sample { operations: 60, ..Sample::default() }), Vec::new());
        for (position, event) in run.merged.events.iter().enumerate().filter(|(_, event)| crate::view::lanes::is_span(event)) {
            let lane = run.lane_of(position as u32).expect("every span is on a lane");
            assert_eq!(run.lanes.lanes[lane].node, event.node);
        }
    }
}
