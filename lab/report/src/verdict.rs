//! What a report concludes: first in a sentence or two, later with all stages.

use weft_analysis::run::Run;
use weft_charts::{Frame, Table, Unit, views};
use weft_trace::explain::Finding;

use crate::document::Block;
use crate::{count, per_second, section, time, titled};

/// What is the matter with a run, and what it reached, before any table.
pub(super) fn verdict(run: &Run, several: bool, blocks: &mut Vec<Block>) {
    let mut said: Vec<String> = Vec::new();
    if run.has_trace() {
        said.extend(run.explain(0, u64::MAX).verdict.iter().map(Finding::said));
    }
    for phase in &run.results.phases {
        let reached = phase.ratio_to_ceiling.map(|ratio| format!(", {} of its ceiling", Unit::Share.format(ratio.median)));
        said.push(format!("{}: {}{}.", phase.title(), per_second(phase.ops_per_s.median), reached.unwrap_or_default()));
    }
    if !said.is_empty() {
        section(blocks, titled("Verdict", run, several));
        blocks.push(Block::List(said));
    }
}

/// Where the time of the operations of a run goes, and the places that stand out.
pub(super) fn stages(run: &Run, several: bool, blocks: &mut Vec<Block>) {
    let explained = run.explain(0, u64::MAX);
    section(blocks, titled("Where the time goes", run, several));
    let covered = Unit::Share.format(explained.covered);
    let subtitle = format!("{} operations; records explain {covered} of their time", count(explained.operations));
    let chart = views::where_time_goes(Frame::new("Where the time goes", &subtitle), &explained);
    blocks.push(Block::Picture(chart.svg(), chart.table()));
    let mut table =
        Table::new("Seconds and share of the time by stage", ["operation", "stage", "share", "usual", "tail", "seconds", "p50", "p99"]);
    for kind in &explained.kinds {
        for stage in &kind.stages {
            let title = weft_trace::Stage::from_name(stage.stage).map_or(stage.stage, weft_trace::Stage::title);
            let shares = [stage.share, stage.median_share, stage.tail_share].map(|share| Unit::Share.format(share));
            let first = [kind.operation.clone(), title.to_string()];
            let last = [format!("{:.4}", stage.seconds), time(stage.p50_us * 1e3), time(stage.p99_us * 1e3)];
            table.row(first.into_iter().chain(shares).chain(last));
        }
    }
    blocks.push(Block::Table(table));
    if !explained.suspects.is_empty() {
        blocks.push(Block::Heading(3, "Places that stand out".into()));
        let line = |suspect: &weft_trace::explain::Suspect| suspect.evidence.clone();
        blocks.push(Block::List(explained.suspects.iter().map(line).collect()));
    }
    blocks.extend(explained.missing.iter().map(|sentence| Block::Warning(sentence.clone())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, merged};
    use weft_analysis::results::Results;

    #[test]
    fn the_verdict_of_a_trace_and_of_a_benchmark_is_said_in_sentences() {
        let mut run = Run::of("run", merged(&Sample { operations: 300, ..Sample::default() }), Vec::new(), Results::default());
        run.results.add_json(br#"[{"phase":"create","repetitions":2,"ops_per_s":{"median":75.0,"min":50.0,"max":100.0}}]"#).unwrap();
        let mut blocks = Vec::new();
        verdict(&run, false, &mut blocks);
        let [Block::Heading(2, title), Block::List(said)] = &blocks[..] else { panic!("{blocks:?}") };
        assert_eq!(title, "Verdict");
        let explained = run.explain(0, u64::MAX);
        assert_eq!(said.len(), explained.verdict.len() + 1);
        assert!(said[0].contains(&explained.suspects[0].place) && said[0].contains("Look at: "), "{said:?}");
        assert!(said.last().unwrap().starts_with("create: 75"), "{said:?}");
        assert!(said.iter().all(|sentence| sentence.ends_with('.') && !sentence.ends_with("..")), "{said:?}");
    }
}
