//! Running performance: what each process did in each interval and up to it, and all of them
//! together (Vef 2016, section 3.3.1), from a trace or from the progress that `weft bench`
//! recorded. The x axis says the time and how many operations were done by then (figure 4.5).

use serde_json::{Value, json};
use weft_charts::{Axis, Frame, Line, Lines, Mark, Style, Unit, categorical};
use weft_host::in_order::once_each;
use weft_host::parallel::at_once;
use weft_trace::merge::gathered;
use weft_trace::record::{Body, flags};

use crate::formula::{Formula, INTERVAL_NAMES};
use crate::latency;
use crate::results;
use crate::run::Run;

/// Intervals of a chart, about.
const INTERVALS: u64 = 120;
/// Marks of the trace that are drawn at most.
const MARKS_MAX: usize = 24;
/// Process lines of one chart at most: more are a thicket.
const LINES_MAX: usize = 64;

/// What is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningOptions {
    /// Empty for the trace (or the first phase, if there is none); `PHASE:REPETITION` for progress.
    pub source: String,
    /// Kinds of spans; none: the usual ones.
    pub kinds: Vec<u64>,
    /// Nanoseconds of an interval; 0: as many as are read well.
    pub interval_ns: u64,
    /// The metric; empty: `count / time`.
    pub formula: String,
}

/// Which chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// A line for each process, or one for all together.
    pub each: bool,
    /// Sums since the beginning, or the value of each interval.
    pub accumulated: bool,
}

/// One process over time.
#[derive(Debug, Default)]
struct Process {
    name: String,
    node: String,
    /// By interval.
    cells: Vec<Cell>,
    /// Nanoseconds at which its last operation ended.
    end_ns: u64,
}

/// What ended in one interval.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    count: u64,
    bytes: u64,
    busy_ns: u64,
    failed: u64,
}

impl Cell {
    fn add(&mut self, other: Cell) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.busy_ns += other.busy_ns;
        self.failed += other.failed;
    }

    fn values(self, seconds: f64) -> [f64; INTERVAL_NAMES.len()] {
        [self.count as f64, self.bytes as f64, seconds, self.busy_ns as f64 / 1e9, self.failed as f64]
    }
}

/// All processes over time.
#[derive(Debug, Default)]
struct Running {
    interval_ns: u64,
    duration_ns: u64,
    processes: Vec<Process>,
}

/// What can be looked at, and the processes as numbers.
pub fn describe(run: &Run, asked: &RunningOptions) -> Value {
    let running = Running::new(run, asked);
    let all: u64 = running.processes.iter().map(|process| process.count()).sum();
    let last_ns = running.processes.iter().map(|process| process.end_ns).max().unwrap_or(0);
    let idle_ns: u64 = running.processes.iter().map(|process| last_ns - process.end_ns).sum();
    let whole_ns = last_ns as f64 * running.processes.len() as f64;
    let processes = running.processes.iter().map(|process| {
        let rates: Vec<f64> = process.rates(running.interval_ns).collect();
        let (least, most) = rates.iter().fold((f64::INFINITY, 0.0f64), |(least, most), rate| (least.min(*rate), most.max(*rate)));
        let mean = process.count() as f64 * 1e9 / process.end_ns.max(1) as f64;
        let bytes: u64 = process.cells.iter().map(|cell| cell.bytes).sum();
        json!({
            "name": process.name, "node": process.node, "count": process.count(), "bytes": bytes, "end": process.end_ns,
            "mean": mean, "least": if least.is_finite() { least } else { 0.0 }, "most": most,
        })
    });
    let formula = Formula::of_interval(&asked.formula);
    json!({
        "sources": sources(run), "source": source(run, asked), "interval": running.interval_ns, "duration": running.duration_ns,
        "count": all, "end": last_ns, "idle_share": if whole_ns > 0.0 { idle_ns as f64 / whole_ns } else { 0.0 },
        "processes": processes.collect::<Vec<_>>(),
        "formula_error": formula.err().filter(|_| !asked.formula.trim().is_empty()).map(|error| error.to_string()),
    })
}

/// A chart of running performance; with a second run, its line beside that of the first.
pub fn chart(run: &Run, other: Option<&Run>, asked: &RunningOptions, view: View, width: u32) -> Lines {
    let running = Running::new(run, asked);
    let typed = asked.formula.trim();
    let formula = Formula::of_interval(typed).ok();
    let usual = formula.is_none();
    let metric = formula.unwrap_or_else(|| Formula::of_interval("count / time").expect("it is a formula"));
    let mut lines = running.lines(&metric, view, "");
    let mut duration_ns = running.duration_ns.max(1);
    let marks = if running.is_trace(run, asked) { marks(run) } else { Vec::new() };
    if let Some(other) = other.filter(|_| !view.each) {
        let asked = RunningOptions { kinds: Vec::new(), interval_ns: running.interval_ns, ..asked.clone() };
        let second = Running::new(other, &asked);
        duration_ns = duration_ns.max(second.duration_ns);
        let mut second = second.lines(&metric, view, &format!("B: {}", other.name));
        for line in &mut second {
            (line.color, line.style) = (categorical(1).color, Style::Dashed);
        }
        if let Some(first) = lines.first_mut() {
            first.name = format!("A: {}", run.name);
        }
        lines.extend(second);
    }
    let what = if view.each { "each process" } else { "all processes together" };
    let title = match (usual, view.accumulated) {
        (true, false) => format!("Operations a second, {what}"),
        (true, true) => format!("Operations so far, {what}"),
        (false, false) => format!("{typed}, {what}"),
        (false, true) => format!("{typed}, added up over time, {what}"),
    };
    let unit = match (usual, view.accumulated) {
        (true, false) => Unit::PerSecond,
        (true, true) => Unit::Count,
        _ => Unit::Number,
    };
    let colours = if view.each { "a colour for each node; " } else { "" };
    let subtitle = format!("{colours}intervals of {}", Unit::Seconds.format(running.interval_ns as f64 / 1e9));
    Lines {
        frame: Frame::new(&title, &subtitle).sized(width, 330),
        x: Axis::linear("time (operations done by then)", Unit::Seconds).ranging(0.0, duration_ns as f64 / 1e9).counting(running.done()),
        y: Axis::linear(if view.accumulated { "so far" } else { "per interval" }, unit),
        lines,
        marks,
    }
}

/// The marks of a run, if they are few enough to be read.
pub fn marks(run: &Run) -> Vec<Mark> {
    let found = run.marks().map(|(event, value)| {
        let x = run.since_origin(event.start_ns) as f64 / 1e9;
        Mark { x, text: format!("#{value} {}", event.record.text()) }
    });
    let found: Vec<Mark> = found.take(MARKS_MAX + 1).collect();
    if found.len() > MARKS_MAX { Vec::new() } else { found }
}

/// The trace, and every repetition of every phase: what to ask for, and its title.
fn sources(run: &Run) -> Vec<(String, String)> {
    let trace = run.has_trace().then(|| ("trace".to_string(), "trace".to_string()));
    let source = |one: &results::Progress| {
        (format!("{}:{}", one.phase, one.repetition), format!("{}, repetition {}", one.phase, one.repetition + 1))
    };
    once_each(trace.into_iter().chain(run.results.progress.iter().map(source)))
}

/// What is shown: what was asked for, or the first there is.
fn source(run: &Run, asked: &RunningOptions) -> String {
    let mut sources = sources(run).into_iter().map(|(source, _)| source);
    let known = sources.clone().find(|source| *source == asked.source);
    known.or_else(|| sources.next()).unwrap_or_default()
}

impl Process {
    fn count(&self) -> u64 {
        self.cells.iter().map(|cell| cell.count).sum()
    }

    /// Operations a second of each interval up to its end.
    fn rates(&self, interval_ns: u64) -> impl Iterator<Item = f64> {
        let used = self.end_ns.div_ceil(interval_ns.max(1)).max(1) as usize;
        self.cells.iter().take(used).map(move |cell| cell.count as f64 * 1e9 / interval_ns as f64)
    }
}

impl Running {
    fn new(run: &Run, asked: &RunningOptions) -> Running {
        let source = source(run, asked);
        if source == "trace" || source.is_empty() { Running::of_trace(run, asked) } else { Running::of_progress(run, asked, &source) }
    }

    fn is_trace(&self, run: &Run, asked: &RunningOptions) -> bool {
        source(run, asked) == "trace"
    }

    fn of_trace(run: &Run, asked: &RunningOptions) -> Running {
        let interval_ns = interval(asked.interval_ns, run.duration_ns, 0);
        let kinds = latency::chosen_kinds(run, &asked.kinds);
        let processes = gathered(&at_once, run.merged.nodes.len(), |node| {
            let lanes = run.lanes.lanes.iter().filter(|lane| lane.node == node);
            let mut tracks = lanes.flat_map(|lane| &lane.tracks).filter(|(kind, _)| kinds.contains(kind)).peekable();
            tracks.peek()?;
            let name = &run.merged.nodes[node].name;
            let mut process = Process { name: name.clone(), node: name.clone(), ..Process::default() };
            let all = run.spans_of(node);
            for bar in tracks.flat_map(|(_, track)| track.bars(&all)) {
                let record = all.times.record(bar.event);
                let bytes = if let Body::Span(span) = &record.body { u64::from(span.len) } else { 0 };
                let failed = u64::from(record.res != 0 || record.flags & flags::ERROR != 0);
                process.put(bar.end, interval_ns, Cell { count: 1, bytes, busy_ns: bar.end - bar.start, failed });
            }
            Some(process)
        });
        let processes = processes.into_iter().flatten().collect();
        Running { interval_ns, duration_ns: run.duration_ns, processes }.squared()
    }

    fn of_progress(run: &Run, asked: &RunningOptions, source: &str) -> Running {
        let ours = || run.results.progress.iter().filter(|one| format!("{}:{}", one.phase, one.repetition) == source);
        let duration_ns = ours().flat_map(|one| &one.steps).map(|step| step.0).max().unwrap_or(0);
        // Shorter than it was recorded an interval cannot be.
        let recorded =
            ours().flat_map(|one| one.steps.windows(2)).map(|pair| pair[1].0.saturating_sub(pair[0].0)).filter(|ns| *ns > 0).min();
        let interval_ns = interval(asked.interval_ns, duration_ns, recorded.unwrap_or(0));
        // On one machine it is the processes that are told apart.
        let mut machines: Vec<&str> = ours().map(|one| one.node.as_str()).collect();
        machines.dedup();
        let process = |one: &crate::results::Progress| {
            let node = if machines.len() < 2 { format!("process {}", one.process) } else { one.node.clone() };
            let mut process = Process { name: format!("{node}, process {}", one.process), node, ..Process::default() };
            for (end_ns, count, bytes) in one.steps.iter().filter(|step| step.1 > 0) {
                process.put(*end_ns, interval_ns, Cell { count: *count, bytes: *bytes, ..Cell::default() });
            }
            process
        };
        Running { interval_ns, duration_ns, processes: ours().map(process).collect() }.squared()
    }

    /// All processes get as many intervals.
    fn squared(mut self) -> Running {
        let longest = self.processes.iter().map(|process| process.cells.len()).max().unwrap_or(0);
        self.processes.iter_mut().for_each(|process| process.cells.resize(longest, Cell::default()));
        self
    }

    fn sum(&self) -> Process {
        let mut all = Process { name: "all".into(), ..Process::default() };
        for process in &self.processes {
            all.cells.resize(all.cells.len().max(process.cells.len()), Cell::default());
            all.cells.iter_mut().zip(&process.cells).for_each(|(cell, more)| cell.add(*more));
            all.end_ns = all.end_ns.max(process.end_ns);
        }
        all
    }

    /// Operations of all processes up to the end of each interval.
    fn done(&self) -> Vec<(f64, f64)> {
        let mut sum = 0;
        let points = self.sum().cells.into_iter().enumerate().map(|(number, cell)| {
            sum += cell.count;
            (self.end_s(number), sum as f64)
        });
        std::iter::once((0.0, 0.0)).chain(points).collect()
    }

    fn end_s(&self, interval: usize) -> f64 {
        ((interval as u64 + 1) * self.interval_ns).min(self.duration_ns.max(1)) as f64 / 1e9
    }

    fn lines(&self, metric: &Formula, view: View, name: &str) -> Vec<Line> {
        if !view.each {
            let all = self.sum();
            let name = if name.is_empty() { "all processes" } else { name };
            return vec![self.line(&all, metric, view, name, categorical(0).color)];
        }
        let mut nodes: Vec<&str> = Vec::new();
        let (mut lines, mut ends) = (Vec::new(), Vec::new());
        for process in self.processes.iter().take(LINES_MAX) {
            let node = nodes.iter().position(|node| *node == process.node).unwrap_or_else(|| {
                nodes.push(&process.node);
                nodes.len() - 1
            });
            let line = self.line(process, metric, view, &process.node, categorical(node).color);
            // Where a process had nothing more to do, others may have worked on.
            let end = line.points.last().copied();
            lines.push(line);
            ends.extend(end);
        }
        lines.push(Line { name: "end of a process".into(), color: 0x22_22_22, style: Style::Dots, points: ends });
        lines
    }

    fn line(&self, process: &Process, metric: &Formula, view: View, name: &str, color: u32) -> Line {
        let used = process.end_ns.div_ceil(self.interval_ns.max(1)).max(1) as usize;
        let mut sum = 0.0;
        let mut points = if view.accumulated { vec![(0.0, 0.0)] } else { Vec::new() };
        for (number, cell) in process.cells.iter().take(used).enumerate() {
            let begin = (number as u64 * self.interval_ns) as f64 / 1e9;
            let end = self.end_s(number);
            // The last interval may end early; it counts as a whole one, as what is left of it may
            // be as short as one operation.
            let length = self.interval_ns as f64 / 1e9;
            let value = metric.value(&cell.values(length));
            sum += value.unwrap_or(0.0) * length;
            match (view.accumulated, value) {
                (true, _) => points.push((end, sum)),
                (false, Some(value)) => points.push((((begin + end) * 5e8).round() / 1e9, value)),
                (false, None) => {}
            }
        }
        Line { name: name.to_string(), color, style: Style::Line, points }
    }
}

impl Process {
    fn put(&mut self, end_ns: u64, interval_ns: u64, cell: Cell) {
        // What ends with an interval belongs to it.
        let interval = (end_ns.saturating_sub(1) / interval_ns) as usize;
        if self.cells.len() <= interval {
            self.cells.resize(interval + 1, Cell::default());
        }
        self.cells[interval].add(cell);
        self.end_ns = self.end_ns.max(end_ns);
    }
}

/// Nanoseconds of an interval: what is asked for, or a round number that makes about [`INTERVALS`];
/// never so short that there are too many.
fn interval(asked_ns: u64, duration_ns: u64, least_ns: u64) -> u64 {
    let wanted = if asked_ns > 0 { asked_ns.max(duration_ns / 5_000) } else { duration_ns / INTERVALS };
    let wanted = wanted.max(least_ns).max(1);
    if asked_ns > 0 {
        return wanted;
    }
    let power = 10u64.pow(wanted.ilog10());
    let round = [1, 2, 5, 10].into_iter().map(|factor| factor * power).find(|round| *round >= wanted).unwrap_or(wanted);
    // Recorded intervals are kept whole.
    if least_ns > 1 { round.div_ceil(least_ns) * least_ns } else { round }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Results;
    use crate::sample::{Sample, merged};

    fn all(view: View, run: &Run, asked: &RunningOptions) -> Vec<Line> {
        chart(run, None, asked, view, 900).lines
    }

    const SUM: View = View { each: false, accumulated: true };

    #[test]
    fn every_operation_is_counted_once_whatever_the_interval_and_the_view() {
        let run = Run::new(merged(&Sample { operations: 900, ..Sample::default() }), Vec::new());
        for interval_ns in [0, 100_000, 7_777_777, u64::MAX / 4] {
            let asked = RunningOptions { interval_ns, ..RunningOptions::default() };
            let line = &all(SUM, &run, &asked)[0];
            assert!((line.points.last().unwrap().1 - 900.0).abs() < 1e-6, "{interval_ns}");
            assert!(line.points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
            let each = all(View { each: true, accumulated: true }, &run, &asked);
            let sums = each.iter().filter(|line| line.style == Style::Line).map(|line| line.points.last().unwrap().1);
            assert!((sums.sum::<f64>() - 900.0).abs() < 1e-6);
        }
        let told = describe(&run, &RunningOptions::default());
        assert_eq!((told["count"].as_u64(), told["processes"].as_array().unwrap().len()), (Some(900), 2));
    }

    #[test]
    fn progress_keeps_its_intervals_and_its_nodes_their_colours() {
        let mut results = Results::default();
        let rows = "phase,repetition,proc,node,t_s,count,bytes\n";
        let body = "create,0,0,a,0.1,10,100\ncreate,0,0,a,0.2,20,200\ncreate,0,1,a,0.1,5,50\ncreate,0,2,b,0.1,7,70\ncreate,1,0,a,0.1,1,0\n";
        results.add_progress(&format!("{rows}{body}")).unwrap();
        let run = Run::of("bench", weft_trace::merge::merge(Vec::new()), Vec::new(), results);
        let asked = RunningOptions { source: "create:0".into(), ..RunningOptions::default() };
        let rates = all(View { each: true, accumulated: false }, &run, &asked);
        let rates: Vec<&Line> = rates.iter().filter(|line| line.style == Style::Line).collect();
        assert_eq!(rates[0].points, [(0.05, 100.0), (0.15, 200.0)]);
        assert_eq!((rates[1].points.len(), rates[0].color, rates[0].color == rates[2].color), (1, rates[1].color, false));
        assert_eq!(all(SUM, &run, &asked)[0].points, [(0.0, 0.0), (0.1, 22.0), (0.2, 42.0)]);
        let other = RunningOptions { source: "create:1".into(), ..RunningOptions::default() };
        assert_eq!(all(SUM, &run, &other)[0].points.last().unwrap().1, 1.0);
        // Process 1 and 2 were done at half of the time: a third of all was idle.
        assert!((describe(&run, &asked)["idle_share"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-9);
        let bytes = RunningOptions { formula: "bytes / time".into(), ..asked.clone() };
        assert!((all(SUM, &run, &bytes)[0].points.last().unwrap().1 - 420.0).abs() < 1e-6);
        let wrong = RunningOptions { formula: "bytes / tim".into(), ..asked };
        assert!(describe(&run, &wrong)["formula_error"].as_str().unwrap().contains("tim is unknown"));
    }

    #[test]
    fn the_line_of_the_second_run_is_told_apart() {
        let one = Run::new(merged(&Sample { operations: 300, ..Sample::default() }), Vec::new());
        let other = Run::new(merged(&Sample { operations: 500, ..Sample::default() }), Vec::new());
        let lines = chart(&one, Some(&other), &RunningOptions::default(), SUM, 900).lines;
        let ends: Vec<f64> = lines.iter().map(|line| line.points.last().unwrap().1.round()).collect();
        assert_eq!((ends, lines[1].style), (vec![300.0, 500.0], Style::Dashed));
    }
}
