//! A run that is looked at: its files on one time line, its lanes, and what is found out in the background once the page can be shown.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use weft_base::FastMap;
use weft_trace::explain::{Analysis, Explanation};
use weft_trace::file::TraceFile;
use weft_trace::merge::{Event, Merged, merge};
use weft_trace::record::Body;

use super::lanes::{Lanes, SubLane};

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
    /// Reads files and puts them on one time line; `progress` is told bytes read and bytes in all.
    ///
    /// # Errors
    /// If none of them is a trace file that can be read.
    pub fn load(paths: &[PathBuf], progress: impl Fn(u64, u64)) -> Result<Run> {
        let paths = trace_files(paths)?;
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |data| data.len());
        let total: u64 = paths.iter().map(size).sum();
        let (mut done, mut files, mut sources) = (0, Vec::new(), Vec::new());
        for path in paths {
            progress(done, total);
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            done += bytes.len() as u64;
            let file = TraceFile::read(&bytes);
            let refused = file.as_ref().err().map(ToString::to_string);
            sources.push(Source { path, bytes: bytes.len() as u64, refused });
            files.extend(file.ok());
        }
        progress(done, total);
        if files.is_empty() {
            let reasons = sources.iter().map(|source| format!("{}: {}", source.path.display(), source.refused.as_deref().unwrap_or("")));
            bail!("there is no trace that could be read: {}", reasons.collect::<Vec<_>>().join("; "));
        }
        Ok(Run::new(merge(files), sources))
    }

    /// A run of merged files.
    pub fn new(merged: Merged, sources: Vec<Source>) -> Run {
        let merged: &'static Merged = Box::leak(Box::new(merged));
        // Marks and gauges count as well; the recorder's own records about clocks and losses do not stretch the time line.
        let in_time =
            || merged.events.iter().filter(|event| !matches!(event.record.body, Body::Sync(_) | Body::Lost { .. } | Body::Text(_)));
        let origin_ns = in_time().map(|event| event.start_ns).min().unwrap_or(0);
        let end_ns = in_time().map(Event::end_ns).max().unwrap_or(origin_ns);
        let lanes = Lanes::new(merged, origin_ns);
        Run { merged, lanes, origin_ns, duration_ns: end_ns.abs_diff(origin_ns).max(1), sources, analysed: OnceLock::new() }
    }

    /// Does what takes longer; the first call does the work, others wait for it.
    pub fn analyse(&self) -> &Analysed {
        self.analysed.get_or_init(|| Analysed::new(self.merged))
    }

    /// The analysis if it is there already.
    pub fn analysed(&self) -> Option<&Analysed> {
        self.analysed.get()
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

/// The files that are named, and of directories those that begin as trace files do.
fn trace_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let data = fs::metadata(path).with_context(|| format!("cannot open {}", path.display()))?;
        if !data.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| is_trace(path)).collect();
        if found.is_empty() {
            bail!("{} holds no trace file of Weft", path.display());
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

fn is_trace(path: &Path) -> bool {
    let mut first = [0; 8];
    path.is_file() && fs::File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok() && first == *b"WEFTTRC\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::sample::{Sample, write};

    #[test]
    fn a_directory_gives_its_traces_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        write(&Sample { operations: 50, ..Sample::default() }, dir.path()).unwrap();
        fs::write(dir.path().join("notes.txt"), "no trace").unwrap();
        let run = Run::load(&[dir.path().to_path_buf()], |_, _| {}).unwrap();
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
        let run = Run::load(&[dir.path().to_path_buf(), foreign], |_, _| {}).unwrap();
        let meta0 = run.merged.nodes.iter().find(|node| node.name == "meta0").unwrap();
        assert!(meta0.problems.iter().any(|problem| problem.contains("no end")), "{:?}", meta0.problems);
        let refused: Vec<_> = run.sources.iter().filter_map(|source| source.refused.as_deref()).collect();
        assert_eq!(refused, ["this is not a trace file of Weft"]);
    }

    #[test]
    fn nothing_to_see_is_an_error_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let error = Run::load(&[dir.path().to_path_buf()], |_, _| {}).unwrap_err().to_string();
        assert!(error.contains("holds no trace file"), "{error}");
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
