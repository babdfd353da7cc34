//! Running performance: what each process did in each interval, as Vef's modified mdtest prints it
//! (thesis of 2016, section 3.2.2), but recorded in memory and told at the end. As lines of a CSV
//! file, and in the JSON report together with the latencies in the 50 bins.

use std::fmt::Write as _;

use weft_analysis::results::{Bin, Process};
use weft_trace::latency::{Latency, slot_bounds_ns};

use crate::meter::INTERVAL;
use crate::report::Measurement;
use weft_workload::Every;

/// First line of the progress file: `proc` numbers the processes of a phase, `node` is its machine,
/// `t_s` the end of the interval (the last one of a process ends with it) in seconds since the
/// first client of all processes began, `count` and `bytes` are what ended in the interval.
pub const HEADING: &str = "phase,repetition,proc,node,t_s,count,bytes\n";

impl Measurement {
    /// Nanoseconds of an interval, where they are of time.
    fn interval_ns(&self) -> u64 {
        match self.work.progress {
            Some(Every::Nanos(length_ns)) => length_ns,
            Some(Every::Operations(_)) | None => INTERVAL.as_nanos() as u64,
        }
    }

    /// Lines of the progress file, see [`HEADING`].
    pub fn progress_csv(&self) -> String {
        let mut text = String::new();
        for (repetition, one) in self.repetitions.iter().enumerate() {
            for (process, progress) in one.outcome.progress.iter().enumerate() {
                // Names of machines have no commas by any standard, but they come from outside.
                let node = progress.node.replace([',', '"', '\n', '\r'], "_");
                let at = |ns: u64| ((progress.late_ns + ns) as f64 / 1e9).min(progress.end_ns as f64 / 1e9);
                let ends = (1u64..).map(|number| number * self.interval_ns());
                let intervals = ends.zip(&progress.intervals).map(|(end_ns, (ops, bytes))| (at(end_ns), *ops, *bytes));
                let marks = progress.marks.iter().map(|(end_ns, ops, bytes)| (at(*end_ns), *ops, *bytes));
                for (end_s, ops, bytes) in intervals.chain(marks) {
                    let _ = writeln!(text, "{},{repetition},{process},{node},{end_s:.4},{ops},{bytes}", self.phase);
                }
            }
        }
        text
    }

    /// The same for the JSON report, with latencies.
    pub fn processes(&self) -> Vec<Process> {
        let repetitions = self.repetitions.iter().enumerate();
        let processes =
            repetitions.flat_map(|(repetition, one)| one.outcome.progress.iter().enumerate().map(move |(p, of)| (repetition, p, of)));
        let report = |(repetition, proc, progress): (usize, usize, &crate::crew::Progress)| Process {
            repetition: repetition as u32,
            proc: proc as u32,
            node: progress.node.clone(),
            interval_s: self.interval_ns() as f64 / 1e9,
            begin_s: progress.late_ns as f64 / 1e9,
            end_s: progress.end_ns as f64 / 1e9,
            counts: progress.intervals.iter().map(|(ops, _)| *ops).collect(),
            latency_bins: bins(&progress.latency),
        };
        processes.map(report).collect()
    }
}

fn bins(latency: &Latency) -> Vec<Bin> {
    let used = latency.slots().iter().enumerate().filter(|(_, slot)| slot.count > 0);
    used.map(|(slot, of)| Bin { slot, from_ns: slot_bounds_ns(slot).0, count: of.count, sum_ns: of.sum_ns }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::{Outcome, Progress};
    use crate::meter::Tally;
    use crate::report::Repetition;
    use weft_workload::{WorkStep, Workload};

    fn measurement() -> Measurement {
        let mut latency = Latency::default();
        latency.record(70_000);
        latency.record(71_000);
        let process =
            |late_ns, intervals| Progress { node: "boron".into(), late_ns, end_ns: 180_000_000, intervals, marks: vec![], latency };
        let progress = vec![process(0, vec![(3, 30)]), process(2_500_000, vec![(1, 10), (4, 40)])];
        let outcome = Outcome { seconds: 1.0, tally: Tally::default(), progress, cpu_us: 0, traffic: None };
        let repetitions = vec![Repetition { outcome, usage: None, ceiling: None }];
        Measurement { phase: "create".into(), step: Some(WorkStep::Create), work: Workload::empty_files(5), repetitions }
    }

    #[test]
    fn lines_have_the_columns_of_the_heading_and_one_time_for_all_processes() {
        let lines = measurement().progress_csv();
        assert_eq!(lines, "create,0,0,boron,0.1000,3,30\ncreate,0,1,boron,0.1025,1,10\ncreate,0,1,boron,0.1800,4,40\n");
        let columns = HEADING.trim_end().split(',').count();
        assert!(lines.lines().all(|line| line.split(',').count() == columns));
    }

    #[test]
    fn the_report_holds_counts_and_bins_of_every_process() {
        let processes = measurement().processes();
        assert_eq!((processes.len(), &processes[1].counts), (2, &vec![1, 4]));
        let bin = &processes[0].latency_bins[0];
        assert_eq!((bin.count, bin.sum_ns, bin.from_ns), (2, 141_000, 65_000));
    }
}
