//! The first seeds of every fault profile, and that a seed is a run: the same one each time.
//! Thousands of seeds: `cargo xtask sim`.

use std::collections::BTreeMap;

use weft_sim_tests::plan::{FaultProfile, Plan};
use weft_sim_tests::{Report, run_plan, run_seed};

/// Seeds of each fault profile that run here.
const EACH: usize = 6;

fn good(report: &Report) {
    assert!(report.is_good(), "{report}");
}

#[test]
fn the_first_seeds_of_every_fault_profile_are_good() {
    let mut counts: BTreeMap<FaultProfile, usize> = BTreeMap::new();
    for seed in 0..150 {
        let count = counts.entry(Plan::new(seed, None).fault_profile).or_default();
        if *count < EACH {
            *count += 1;
            good(&run_seed(seed, None, false));
        }
    }
    assert!(counts.len() == 6 && counts.values().all(|count| *count == EACH), "{counts:?}");
}

#[test]
fn a_cluster_that_grows_in_the_middle_keeps_what_it_has() {
    let mut counts: BTreeMap<FaultProfile, usize> = BTreeMap::new();
    for seed in 0..150 {
        let plan = Plan::growing(seed, None);
        let count = counts.entry(plan.fault_profile).or_default();
        if *count < EACH {
            *count += 1;
            good(&run_plan(&plan, false));
        }
    }
    assert!(counts.len() == 6 && counts.values().all(|count| *count == EACH), "{counts:?}");
}

#[test]
fn what_clients_are_told_under_leases_is_true() {
    let mut counts: BTreeMap<FaultProfile, usize> = BTreeMap::new();
    for seed in 0..150 {
        let plan = Plan::leased(seed, None);
        let count = counts.entry(plan.fault_profile).or_default();
        if *count < EACH {
            *count += 1;
            good(&run_plan(&plan, false));
        }
    }
    assert!(counts.len() == 6 && counts.values().all(|count| *count == EACH), "{counts:?}");
}

#[test]
fn directories_over_servers_are_like_any_other() {
    let mut counts: BTreeMap<FaultProfile, usize> = BTreeMap::new();
    // What is told of a directory that was made is asked for at all its servers at once.
    good(&run_plan(&Plan::split(1578, None), false));
    // A lease ends at the server of an inode when that of the name has restarted.
    good(&run_plan(&Plan::split(14768, None), false));
    for seed in 0..150 {
        let plan = Plan::split(seed, None);
        let count = counts.entry(plan.fault_profile).or_default();
        if *count < EACH {
            *count += 1;
            good(&run_plan(&plan, false));
        }
    }
    assert!(counts.len() == 6 && counts.values().all(|count| *count == EACH), "{counts:?}");
}

#[test]
fn contents_that_are_put_are_there_as_a_whole() {
    let mut counts: BTreeMap<FaultProfile, usize> = BTreeMap::new();
    for seed in 0..150 {
        let plan = Plan::putting(seed, None);
        let count = counts.entry(plan.fault_profile).or_default();
        if *count < EACH {
            *count += 1;
            good(&run_plan(&plan, false));
        }
    }
    assert!(counts.len() == 6 && counts.values().all(|count| *count == EACH), "{counts:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 300..312 {
        let (first, again) = (run_seed(seed, Some(24), false), run_seed(seed, Some(24), true));
        assert_eq!(first.trace_hash, again.trace_hash, "seed {seed}: keeping a trace must not change the run either");
        assert_eq!((first.ended_at, first.operations), (again.ended_at, again.operations), "seed {seed}");
        assert_ne!(first.trace_hash, run_seed(seed + 1000, Some(24), false).trace_hash);
    }
}
