//! The report: stages of each kind of operation, together and for the slowest.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_base::FastMap;

use super::asked::{AskedFor, asked};
use super::finding::{Finding, Known};
use super::suspect::{Suspect, suspects};
use super::tally::{Stages, Tally, micros, quantile, rank, ratio, seconds};
use super::unfinished::{Open, Silent, Unfinished};
use super::verdict::verdicts;
use super::wall::{Wall, Wanted, waits};
use super::{Analysis, ClientOperation};
use crate::merge::{Each, gathered_of};
use crate::{EventId, Stage};

/// Where the time of all operations went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// Operations in the trace.
    pub operations: u64,
    /// Their time, in seconds; of operations that ran at the same time each counts.
    pub seconds: f64,
    /// Share of the time that the stages explain, 0 to 1; 0 without operations.
    pub covered: f64,
    /// How much was recorded, and how much of it operations were under way.
    #[serde(flatten)]
    pub wall: Wall,
    /// What was asked of how much.
    pub asked: AskedFor,
    /// What limits, the most important first.
    pub verdict: Vec<Finding>,
    /// Operations that were not over when the recording ended.
    pub unfinished_count: u64,
    /// Those that had run longest.
    pub unfinished: Vec<Unfinished>,
    /// Servers that owe answers.
    pub silent: Vec<Silent>,
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
    /// The median over all these operations of the time that one spent here, in microseconds; 0 if
    /// less than half of them came here.
    pub p50_us: f64,
    /// The 99th percentile of the same, in microseconds.
    pub p99_us: f64,
    /// Operations that came here.
    pub operations: u64,
}

/// Unfinished operations that are listed.
const UNFINISHED_MAX: usize = 10;
/// Places that the verdict is made from.
const LOOKED_AT: usize = 32;

/// The report on the operations that begin in a window; kinds are looked at one after the other or
/// at the same time, as `each` does it.
pub(super) fn explain(analysis: &Analysis<'_>, (from_ns, to_ns): (i64, i64), suspects_max: usize, each: Each<'_>) -> Explanation {
    let operations = analysis.between(from_ns, to_ns);
    // Names are looked up once for each event of a node.
    let mut names: FastMap<(usize, EventId), usize> = FastMap::default();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut by_kind: Vec<Vec<&ClientOperation>> = Vec::new();
    for operation in operations {
        let number = *names.entry((operation.node, operation.event)).or_insert_with(|| {
            by_kind.push(Vec::new());
            *numbers.entry(analysis.name(operation.node, operation.event)).or_insert(by_kind.len() - 1)
        });
        by_kind[number].push(operation);
    }
    let named = numbers.into_iter().map(|(name, number)| (name, std::mem::take(&mut by_kind[number]))).collect();
    let (mut kinds, tallies): (Vec<KindReport>, Vec<Tally<'_>>) = gathered_of(each, named, |_, (name, operations)| {
        let mut tally = Tally::new(&analysis.paths, operations);
        (kind(analysis, name, &mut tally, suspects_max), tally)
    })
    .into_iter()
    .unzip();
    kinds.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let dur_ns = tallies.iter().map(|tally| tally.dur_ns).sum();
    let covered = covered(tallies.iter().map(|tally| tally.stages[Stage::Unseen as usize]).sum(), dur_ns);
    let mut unfinished: Vec<&Open> = analysis.open.iter().filter(|open| open.start_ns >= from_ns && open.start_ns < to_ns).collect();
    unfinished.sort_by(|a, b| b.row.seconds.total_cmp(&a.row.seconds));
    let recorded = (analysis.recorded_of_clients.0.max(from_ns), analysis.recorded_of_clients.1.min(to_ns));
    let of_operations =
        operations.iter().map(|operation| (operation.start_ns, operation.start_ns.saturating_add_unsigned(operation.dur_ns)));
    let wall = Wall::new(recorded, of_operations.chain(unfinished.iter().map(|open| (open.start_ns, open.end_ns))));
    let named = suspects(analysis, &tallies.iter().collect::<Vec<_>>(), suspects_max.max(LOOKED_AT));
    let mut explanation = Explanation {
        operations: operations.len() as u64,
        seconds: seconds(dur_ns),
        covered: if operations.is_empty() { 0.0 } else { covered },
        wall,
        asked: AskedFor::default(),
        verdict: Vec::new(),
        unfinished_count: unfinished.len() as u64,
        unfinished: unfinished.into_iter().take(UNFINISHED_MAX).map(|open| analysis.unfinished(open)).collect(),
        silent: analysis.silent(from_ns, to_ns),
        kinds,
        suspects: named.iter().take(suspects_max).map(|named| named.suspect.clone()).collect(),
        missing: missing(analysis, covered),
    };
    if let Some(silent) = explanation.silent.iter().find(|silent| !silent.answers_others && silent.behind.is_none()) {
        explanation.suspects.insert(0, Suspect::silent(silent, explanation.seconds));
        explanation.suspects.truncate(suspects_max.max(1));
    }
    let servers: Vec<usize> = (0..analysis.merged.nodes.len()).filter(|node| analysis.merged.nodes[*node].server.is_some()).collect();
    let of_places = named.iter().map(|named| Wanted::Stage(named.stage, named.place));
    let wanted: Vec<Wanted> = of_places.chain(servers.iter().copied().map(Wanted::Work)).collect();
    let mut waits = waits(&analysis.paths, operations, &wanted);
    let work: Vec<(usize, f64)> = servers.into_iter().zip(waits.split_off(named.len())).collect();
    explanation.asked = asked(analysis, operations, &work);
    let known = Known { analysis, operations, window: (from_ns, to_ns), named: &named, waits, work };
    explanation.verdict = verdicts(&explanation, &known);
    explanation
}

fn kind(analysis: &Analysis<'_>, operation: String, tally: &mut Tally<'_>, suspects_max: usize) -> KindReport {
    let count = tally.operations.len();
    let mut order = tally.order();
    let middle = tally.part(&analysis.paths, &mut order, count / 4, count - count / 4);
    let tail = tally.part(&analysis.paths, &mut order, rank(count, 0.99), count);
    let suspects = suspects(analysis, &[tally], suspects_max).into_iter().map(|named| named.suspect).collect();
    let mut report = |stage: Stage| {
        let number = stage as usize;
        let share = |(dur_ns, stages): (u64, Stages)| ratio(stages[number], dur_ns);
        let times = &mut tally.stage_times[number];
        StageReport {
            stage: stage.name(),
            share: share((tally.dur_ns, tally.stages)),
            median_share: share(middle),
            tail_share: share(tail),
            seconds: seconds(tally.stages[number]),
            p50_us: micros(quantile(times, count, 0.5)),
            p99_us: micros(quantile(times, count, 0.99)),
            operations: times.len() as u64,
        }
    };
    let stages = Stage::ALL.into_iter().map(&mut report).filter(|report| report.operations > 0).collect();
    KindReport {
        operation,
        count: count as u64,
        failed: tally.failed,
        seconds: seconds(tally.dur_ns),
        p50_us: micros(order.quantile_ns(0.5)),
        p99_us: micros(order.quantile_ns(0.99)),
        covered: covered(tally.stages[Stage::Unseen as usize], tally.dur_ns),
        stages,
        suspects,
    }
}

fn covered(unseen_ns: u64, dur_ns: u64) -> f64 {
    1.0 - ratio(unseen_ns, dur_ns)
}

/// Requests whose sender has no record are told if they are more than one of so many.
const UNCALLED_PART: u64 = 10;

fn missing(analysis: &Analysis<'_>, covered: f64) -> Vec<String> {
    let mut sentences = Vec::new();
    if analysis.unseen_requests > 0 {
        let servers: Vec<String> = analysis.unrecorded.iter().map(|server| analysis.server_name(*server)).collect();
        sentences.push(format!(
            "{} requests have no record of their server ({}), {:.1} % of all time: trace these servers too, with meta.* and data.* in the mask",
            analysis.unseen_requests,
            servers.join(", "),
            (1.0 - covered) * 100.0
        ));
    }
    if analysis.orphans > 0 {
        sentences.push(format!(
            "{} requests belong to no recorded operation: theirs had begun before the recording, or is not in the mask (app.*, fuse.*, \
             client.*), or its record was lost",
            analysis.orphans
        ));
    }
    // When a recording begins, servers know of it before their clients.
    if let (uncalled, served) = analysis.uncalled
        && uncalled * UNCALLED_PART > served
    {
        sentences.push(format!(
            "{uncalled} of {served} requests at servers were sent by somebody who has no record of them: a mount or program that was not \
             recorded (net.call in its mask), is on another machine, or has died meanwhile"
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
