//! The synthetic trace of the tests is a sound one.

mod sample;

use sample::{SPANS_PER_OPERATION, Sample, files, merged};
use weft_trace::EventKind;
use weft_trace::explain::Analysis;

#[test]
fn a_sample_is_a_sound_trace_whose_time_is_explained() {
    let merged = merged(&Sample { operations: 2_000, ..Sample::default() });
    assert!(merged.nodes.iter().all(|node| node.problems.is_empty() && node.lost == 0));
    assert_eq!(merged.causality_violations(), 0);
    let explanation = Analysis::new(&merged).explain(3);
    assert_eq!(explanation.operations, 2_000);
    assert!(explanation.covered > 0.99, "{}", explanation.covered);
    let spans = merged.events.iter().filter(|event| matches!(event.record.kind(), EventKind::Span | EventKind::StagedSpan)).count() as f64;
    assert!((spans / 2_000.0 - SPANS_PER_OPERATION).abs() < 1.5, "{}", spans / 2_000.0);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let sample = Sample { operations: 200, ..Sample::default() };
    assert_eq!(files(&sample), files(&sample));
    assert_ne!(files(&sample), files(&Sample { seed: 2, ..sample }));
}
