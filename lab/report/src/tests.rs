use super::*;
use crate::sample::{Sample, merged};
use weft_analysis::results::Results;

fn sample(name: &str, data: u16) -> Run {
    Run::of(name, merged(&Sample { operations: 300, data, ..Sample::default() }), Vec::new(), Results::default())
}

fn headings(document: &Document) -> Vec<&str> {
    document.blocks.iter().filter_map(|block| if let Block::Heading(2, text) = block { Some(text.as_str()) } else { None }).collect()
}

#[test]
fn a_report_about_two_runs_holds_all_its_sections_and_nothing_from_outside() {
    let (mut one, other) = (sample("one", 4), sample("two", 1));
    let rows = "phase,repetition,proc,node,t_s,count,bytes\ncreate,0,0,a,0.1,10,0\ncreate,1,0,a,0.2,10,0\n";
    one.results.add_progress(rows).unwrap();
    one.results.add_json(br#"[{"phase":"create","repetitions":2,"ops_per_s":{"median":75.0,"min":50.0,"max":100.0}}]"#).unwrap();
    let document = report(&[&one, &other], &["three could not be read: why".into()], "2006");
    let expected = [
        "Verdict: one",
        "Verdict: two",
        "Results",
        "one (A) against two (B)",
        "Latency: one",
        "Latency: two",
        "Running performance: one",
        "Running performance: two",
        "Timeline: one",
        "Timeline: two",
        "Where the time goes: one",
        "Where the time goes: two",
        "Bounds: one",
        "Bounds: two",
        "Environment",
    ];
    assert_eq!(headings(&document), expected);
    let html = document.html();
    assert!(html.contains("three could not be read: why") && html.contains("2 runs: median"));
    // Both repetitions are dots: 10 operations in 0.1 and in 0.2 s.
    let dots = document.blocks.iter().find_map(|block| match block {
        Block::Picture(_, table) if table.title == "one: every repetition" => Some(table.rows.clone()),
        _ => None,
    });
    let rates: Vec<f64> = dots.unwrap().iter().map(|row| row[2].parse().unwrap()).collect();
    assert_eq!(rates, [100.0, 50.0]);
    for outside in ["src=", "<script", "url(http", "@import", "NaN"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
}

#[test]
fn the_median_of_several_values() {
    assert_eq!((spread(&[3.0, 1.0, 2.0]), spread(&[4.0, 1.0]), spread(&[])), (Some((2.0, 1.0, 3.0)), Some((2.5, 1.0, 4.0)), None));
}
