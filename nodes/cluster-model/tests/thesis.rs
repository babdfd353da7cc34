//! Printed results of Appendix C of the thesis that take few events, to the last digit. All of them: `cargo xtask thesis`.

use weft_cluster_model::thesis::cases;

fn compare(section: &str, block_bytes: &[u64]) {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for case in cases(section).into_iter().filter(|case| block_bytes.contains(&case.block_bytes())) {
        let runs: Result<Vec<_>, String> = (0..case.runs()).map(|seed| case.run(seed)).collect();
        let cell = case.compare(&runs.expect("every case runs to its end"));
        compared += 1;
        if !cell.equal {
            wrong.push(format!("{} {}: printed {}, simulated {}", cell.table, cell.case, cell.printed, cell.simulated));
        }
    }
    assert!(compared > 0 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn individual_accesses_with_one_block_each() {
    compare("C.2.1", &[524_288]);
}

#[test]
fn individual_accesses_with_a_hundred_blocks_each() {
    compare("C.2.2", &[51_200, 524_288]);
}

#[test]
fn individual_accesses_with_all_blocks() {
    compare("C.2.3", &[51_200, 524_288]);
}

#[test]
fn two_phase() {
    compare("C.3.1", &[51_200, 524_288]);
}

#[test]
fn interleaved_two_phase() {
    compare("C.3.2", &[51_200, 524_288]);
}

#[test]
fn means_of_ten_random_databases() {
    compare("C.4.3", &[512]);
}

#[test]
fn means_that_depend_on_hash_values_of_objects_lie_within_the_printed_deviation() {
    // Which of two files with equally many queued bytes comes first was decided by addresses in the original (server-directed only).
    for case in cases("C.4.2") {
        let runs: Vec<_> = (0..case.runs()).map(|seed| case.run(seed).expect("every case runs to its end")).collect();
        let cell = case.compare(&runs);
        assert!(cell.within_deviation, "{cell:?}");
        assert!(cell.equal || case.layer() == weft_sched::LayerKind::ServerDirected, "{cell:?}");
    }
}

#[test]
fn the_event_counts_are_those_of_the_original() {
    // Kuhn's program executed 406231 events for this case.
    let case = cases("C.2.1").into_iter().find(|case| case.name() == "none 524288 write").expect("a line of the appendix");
    assert_eq!(case.run(0).expect("it runs to its end").events, 406_231);
}
