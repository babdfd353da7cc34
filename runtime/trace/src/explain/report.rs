//! The report: stages of each kind of operation, together and for the slowest.

use std::collections::BTreeMap;

use serde::Serialize;

use super::suspect::{Suspect, suspects};
use super::{Analysis, Operation};
use crate::Stage;

/// Where the time of all operations went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// Operations in the trace.
    pub operations: u64,
    /// Their time, in seconds; of operations that ran at the same time each counts.
    pub seconds: f64,
    /// Share of the time that the stages explain, 0 to 1.
    pub covered: f64,
    /// Kinds of operations, most time first.
    pub kinds: Vec<KindReport>,
    /// The places with most time, all kinds together.
    pub suspects: Vec<Suspect>,
    /// Sentences about what is missing, for people.
    pub missing: Vec<String>,
}

/// Where the time of one kind of operation went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindReport {
    /// For example `client.create`.
    pub operation: String,
    /// Operations of this kind.
    pub count: u64,
    /// Of these, failed.
    pub failed: u64,
    /// Their time in seconds.
    pub seconds: f64,
    /// The median of their durations in microseconds.
    pub p50_us: f64,
    /// The 99th percentile in microseconds.
    pub p99_us: f64,
    /// Share of their time that the stages explain, 0 to 1.
    pub covered: f64,
    /// Stages with time, in the order of a request's way.
    pub stages: Vec<StageReport>,
    /// The places with most time.
    pub suspects: Vec<Suspect>,
}

/// One stage of one kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// [`Stage::name`].
    pub stage: &'static str,
    /// Share of the time of all these operations, 0 to 1.
    pub share: f64,
    /// Share of the time of the middle half of the operations by duration.
    pub median_share: f64,
    /// Share of the time of the operations that took at least as long as the 99th percentile.
    pub tail_share: f64,
    /// Seconds, all operations together.
    pub seconds: f64,
    /// The median over all these operations of the time that one spent here, in microseconds; 0 if less than half of them came here.
    pub p50_us: f64,
    /// The 99th percentile of the same, in microseconds.
    pub p99_us: f64,
    /// Operations that came here.
    pub operations: u64,
}

const STAGES: usize = Stage::ALL.len();

/// One operation: its duration, and its time by stage, in nanoseconds.
struct Split {
    dur_ns: u64,
    stages: [u64; STAGES],
}

/// The report on some of the operations.
pub(super) fn explain(analysis: &Analysis<'_>, operations: &[Operation], suspects_max: usize) -> Explanation {
    let mut by_kind: BTreeMap<String, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        by_kind.entry(analysis.name(operation.node, operation.event)).or_default().push(operation);
    }
    let mut kinds: Vec<KindReport> =
        by_kind.into_iter().map(|(name, operations)| kind(analysis, name, &operations, suspects_max)).collect();
    kinds.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let all: Vec<&Operation> = operations.iter().collect();
    let splits: Vec<Split> = all.iter().map(|operation| split(operation)).collect();
    Explanation {
        operations: all.len() as u64,
        seconds: seconds(splits.iter().map(|split| split.dur_ns).sum()),
        covered: covered(&splits),
        kinds,
        suspects: suspects(analysis, &all, suspects_max),
        missing: missing(analysis, covered(&splits)),
    }
}

fn kind(analysis: &Analysis<'_>, operation: String, operations: &[&Operation], suspects_max: usize) -> KindReport {
    let mut splits: Vec<Split> = operations.iter().map(|operation| split(operation)).collect();
    splits.sort_by_key(|split| split.dur_ns);
    let count = splits.len();
    let durations: Vec<u64> = splits.iter().map(|split| split.dur_ns).collect();
    let middle = &splits[count / 4..count - count / 4];
    let tail = &splits[rank(count, 0.99)..];
    let sum = |splits: &[Split], stage: usize| splits.iter().map(|split| split.stages[stage]).sum::<u64>();
    let share = |splits: &[Split], stage: usize| ratio(sum(splits, stage), splits.iter().map(|split| split.dur_ns).sum());
    let report = |stage: Stage| {
        let number = stage as usize;
        let mut times: Vec<u64> = splits.iter().map(|split| split.stages[number]).collect();
        times.sort_unstable();
        StageReport {
            stage: stage.name(),
            share: share(&splits, number),
            median_share: share(middle, number),
            tail_share: share(tail, number),
            seconds: seconds(sum(&splits, number)),
            p50_us: quantile_us(&times, 0.5),
            p99_us: quantile_us(&times, 0.99),
            operations: times.iter().filter(|time| **time > 0).count() as u64,
        }
    };
    KindReport {
        operation,
        count: count as u64,
        failed: operations.iter().filter(|operation| operation.result != 0).count() as u64,
        seconds: seconds(durations.iter().sum()),
        p50_us: quantile_us(&durations, 0.5),
        p99_us: quantile_us(&durations, 0.99),
        covered: covered(&splits),
        stages: Stage::ALL.into_iter().map(report).filter(|report| report.operations > 0).collect(),
        suspects: suspects(analysis, operations, suspects_max),
    }
}

fn split(operation: &Operation) -> Split {
    let mut stages = [0; STAGES];
    operation.path.iter().for_each(|segment| stages[segment.stage as usize] += segment.dur_ns);
    Split { dur_ns: operation.dur_ns, stages }
}

fn covered(splits: &[Split]) -> f64 {
    let unseen = splits.iter().map(|split| split.stages[Stage::Unseen as usize]).sum();
    1.0 - ratio(unseen, splits.iter().map(|split| split.dur_ns).sum())
}

fn missing(analysis: &Analysis<'_>, covered: f64) -> Vec<String> {
    let mut sentences = Vec::new();
    if analysis.unseen_requests > 0 {
        let servers: Vec<String> = analysis.unanswered.iter().map(|server| analysis.server_name(*server)).collect();
        sentences.push(format!(
            "{} requests have no record of their server ({}), {:.1} % of all time: trace these servers too, with meta.* and data.* in the mask",
            analysis.unseen_requests,
            servers.join(", "),
            (1.0 - covered) * 100.0
        ));
    }
    if analysis.orphans > 0 {
        sentences.push(format!(
            "{} requests belong to no recorded operation: theirs was not over when the recording ended, or is not in the mask (app.*, fuse.*, \
             client.*), or its record was lost",
            analysis.orphans
        ));
    }
    for (node, clock) in analysis.merged.nodes.iter().zip(&analysis.merged.clocks) {
        if clock.error_ns.is_none() {
            sentences.push(format!("no request ties the clock of {} to the others", node.name));
        }
        sentences.extend(node.problems.iter().map(|problem| format!("{}: {problem}", node.name)));
    }
    if analysis.merged.causality_violations() > 0 {
        sentences.push(format!(
            "{} requests were served before they were sent, or after: clocks are wrong",
            analysis.merged.causality_violations()
        ));
    }
    sentences
}

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// `part / whole`, 0 for nothing of nothing.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The position of the quantile in `count` sorted values: the value of rank ceil(q n).
fn rank(count: usize, q: f64) -> usize {
    ((q * count as f64).ceil() as usize).clamp(1, count.max(1)) - 1
}

/// The quantile of sorted nanoseconds, in microseconds; 0 of nothing.
pub(super) fn quantile_us(sorted: &[u64], q: f64) -> f64 {
    sorted.get(rank(sorted.len(), q)).map_or(0.0, |ns| *ns as f64 / 1e3)
}
