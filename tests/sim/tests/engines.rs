//! The yardsticks `db` and `dbpf` under the same histories and faults as the journal: crashes,
//! power cuts, full disks, lost messages, judged by the same models.

use std::collections::BTreeMap;

use weft_sim_tests::cluster::{ClusterConfig, Engine};
use weft_sim_tests::plan::{FaultProfile, Plan};
use weft_sim_tests::run_plan;

/// Seeds of each fault profile that run here.
const EACH: usize = 4;

/// What a seed stands for, on this engine.
fn plan(seed: u64, storage: Engine) -> Plan {
    let plan = Plan::new(seed, None);
    Plan { cluster: ClusterConfig { storage, ..plan.cluster }, ..plan }
}

fn histories_are_good(storage: Engine, from: u64) {
    let mut counts: BTreeMap<FaultProfile, usize> = BTreeMap::new();
    for seed in from..from + 150 {
        let plan = plan(seed, storage);
        let count = counts.entry(plan.fault_profile).or_default();
        if *count < EACH {
            *count += 1;
            let report = run_plan(&plan, false);
            assert!(report.is_good(), "{storage}: {report}");
        }
    }
    assert!(counts.len() == 6 && counts.values().all(|count| *count == EACH), "{counts:?}");
}

#[test]
fn histories_on_one_database_are_good() {
    histories_are_good(Engine::Db, 500);
}

#[test]
fn histories_on_a_database_for_each_object_are_good() {
    histories_are_good(Engine::Dbpf, 700);
}

#[test]
fn the_same_seed_is_the_same_run_on_databases() {
    for (seed, storage) in [(300, Engine::Db), (301, Engine::Dbpf), (302, Engine::Db), (303, Engine::Dbpf)] {
        let (first, again) = (run_plan(&plan(seed, storage), false), run_plan(&plan(seed, storage), true));
        assert_eq!(first.trace_hash, again.trace_hash, "seed {seed} on {storage}");
        assert_ne!(first.trace_hash, run_plan(&plan(seed, Engine::Journal), false).trace_hash, "seed {seed}: it is another engine");
    }
}
