//! Histories ask for the operations that `asked.rs` says they do.

use std::collections::BTreeSet;

use weft_sim_tests::asked::ASKED;
use weft_sim_tests::plan::Plan;
use weft_sim_tests::{run_plan, run_seed};

/// So many seeds ask for everything several times.
const SEEDS: u64 = 60;

#[test]
fn histories_ask_for_what_they_are_said_to_ask_for() {
    let mut asked: BTreeSet<_> = (0..SEEDS).flat_map(|seed| run_seed(seed, None, false).asked).collect();
    asked.extend((0..SEEDS / 10).flat_map(|seed| run_plan(&Plan::leased(seed, None), false).asked));
    asked.extend((0..SEEDS / 2).flat_map(|seed| run_plan(&Plan::leased(seed, None).with_small_files(), false).asked));
    asked.extend((0..SEEDS / 10).flat_map(|seed| run_plan(&Plan::split(seed, None), false).asked));
    asked.extend((0..SEEDS / 10).flat_map(|seed| run_plan(&Plan::putting(seed, None), false).asked));
    let missing: Vec<_> = ASKED.iter().filter(|op| !asked.contains(op)).collect();
    assert!(missing.is_empty(), "no history asks for {missing:?}");
}
