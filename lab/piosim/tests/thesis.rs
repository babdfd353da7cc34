//! Printed results of Appendix C of the thesis that take few events, to the last digit. All of
//! them: `weft sim thesis`.

use weft_piosim::thesis::cases;

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

/// Also where the order of files matters: it was chosen by mean and deviation together, and both
/// have all their digits.
#[test]
fn means_and_deviations_of_ten_random_databases_with_ten_blocks_at_a_time() {
    compare("C.4.2", &[512]);
    for case in cases("C.4.2") {
        let runs: Vec<f64> = (0..case.runs()).map(|seed| case.run(seed).expect("every case runs to its end").nanos as f64 / 1e9).collect();
        let mean = runs.iter().sum::<f64>() / runs.len() as f64;
        let deviation = (runs.iter().map(|run| (run - mean).powi(2)).sum::<f64>() / runs.len() as f64).sqrt();
        let printed = case.printed_deviation().expect("means have one");
        assert!((deviation - printed).abs() < 1e-12, "{}: {deviation} {printed}", case.name());
    }
}

#[test]
fn the_event_counts_are_those_of_the_original() {
    // Kuhn's program executed 406231 events for this case.
    let case = cases("C.2.1").into_iter().find(|case| case.name() == "none 524288 write").expect("a line of the appendix");
    assert_eq!(case.run(0).expect("it runs to its end").events, 406_231);
}
