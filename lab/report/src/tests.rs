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
fn bounds_have_a_picture_of_large_requests_where_some_were_measured() {
    let pictures = |block: u64| -> Vec<String> {
        let mut results = Results::default();
        let spread = r#"{"median":300.0,"min":290.0,"max":310.0}"#;
        let phase = format!(r#"[{{"phase":"write","procs":4,"block_bytes":{block},"ops_per_s":{spread},"mib_per_s":{spread}}}]"#);
        results.add_json(phase.as_bytes()).unwrap();
        let run = Run::of("bench", weft_trace::merge::merge(Vec::new()), Vec::new(), results);
        let document = report(&[&run], &[], "2006");
        let title = |block: &Block| if let Block::Picture(_, table) = block { Some(table.title.clone()) } else { None };
        document.blocks.iter().filter_map(title).collect()
    };
    assert_eq!(pictures(1 << 20), ["Large requests", "One client, by size of a block"]);
    assert_eq!(pictures(1 << 10), ["One client, by size of a block"]);
}
