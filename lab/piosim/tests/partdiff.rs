//! Tables 6.1 to 6.5 of the thesis from the traced application, if the trace is at hand.

use std::path::Path;

use weft_hdtrace::{ClusterModel, Project, Trace};
use weft_piosim::from_hdtrace::{cluster, import, rank_traces};
use weft_piosim::thesis::partdiff;
use weft_piosim::{ClusterConfig, ServerConfig, Simulation, Striping};

fn inputs() -> Option<(ClusterConfig, weft_piosim::Application)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/partdiff-mpi-io-synced");
    if !folder.is_dir() {
        println!("skipped: {} is absent", folder.display());
        return None;
    }
    let read = |name: &str| std::fs::read(folder.join(name)).expect("the folder is complete");
    let project = Project::read(&read("partdiff-par.proj")).complete().expect("sound");
    let files = rank_traces(&project, "partdiff-par").expect("five ranks");
    let traces: Vec<Trace> = files.iter().map(|file| Trace::read(&read(file)).complete().expect("sound")).collect();
    let model = ClusterModel::read(&read("pvs-cluster-model.xml")).complete().expect("sound");
    Some((cluster(&model).expect("has counterparts"), import(&project, &traces).expect("sound").application))
}

#[test]
fn every_cell_of_the_five_tables_comes_out() {
    let Some((model, application)) = inputs() else { return };
    let known = [8_035_519_585, 4_919_366_460, 2_998_881_750, 3_001_883_856, 3_003_881_532];
    let mut slips = Vec::new();
    for (table, nanos) in partdiff().zip(known) {
        let report = Simulation::new(&table.config(&model), &application).expect("valid").run().expect("ends");
        assert_eq!(report.end_nanos, nanos, "{}", table.number);
        for cell in table.compare(&report) {
            assert!(cell.within_deviation, "{cell:?}");
            if !cell.equal {
                slips.push(format!("{} {}", cell.table, cell.case));
            }
        }
    }
    let slip = |table: &str, server: u32, sum: u32| format!("{table} server {server} accesses (slip: the printed parts sum to {sum})");
    assert_eq!(slips, [slip("6.2", 2, 605), slip("6.2", 3, 585), slip("6.2", 5, 624), slip("6.3", 4, 122)]);
}

/// What the simulator after the fix of the striping gives (simulator model, section 10.4).
#[test]
fn correct_striping_and_the_later_rule_give_the_known_times() {
    let Some((model, application)) = inputs() else { return };
    let known = [8_086_565_207, 4_755_096_819, 3_005_514_152, 3_012_156_240];
    for (table, nanos) in partdiff().zip(known) {
        let layer = weft_piosim::CacheLayerConfig::Classic {
            kind: table.layer,
            config: weft_sched::classic::ClassicConfig { granularity: 10_000_000, ..Default::default() },
        };
        let server = ServerConfig { cache_layer: layer, ..model.server.clone() };
        let config = ClusterConfig { server, striping: Striping::Simple, ..model.clone() };
        let report = Simulation::new(&config, &application).expect("valid").run().expect("ends");
        assert_eq!(report.end_nanos, nanos, "{}", table.number);
    }
}
