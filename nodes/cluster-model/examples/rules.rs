//! The rules of today beside those of 2009 on the cluster of 2009, both in natural order: seconds of every case of Appendix C.2 under
//! `server_directed`. `cargo run --release -p weft-cluster-model --example rules`

use weft_cluster_model::thesis::cases;
use weft_cluster_model::{CacheLayerConfig, Simulation};
use weft_sched::LayerKind;

fn main() {
    println!("{:<8} {:<32} {:>12} {:>12}", "case", "", "2009", "today");
    for case in cases("C.2").into_iter().filter(|case| case.layer() == LayerKind::ServerDirected) {
        let natural = case.config().natural();
        let mut layer = CacheLayerConfig::improved(LayerKind::ServerDirected, &natural.disk);
        if let (Ok(ns), CacheLayerConfig::Improved { config, .. }) = (std::env::var("NS"), &mut layer) {
            config.disk.access_ns = ns.parse().unwrap();
        }
        let today = weft_cluster_model::ClusterConfig { cache_layer: layer, ..natural.clone() };
        let seconds = [natural, today].map(|config| {
            let report = Simulation::new(&config, &case.application(0)).and_then(Simulation::run).expect("the thesis runs");
            let d = report.disks();
            let sieved: u64 = report.servers.iter().map(|s| s.layer.sieved_bytes).sum();
            if std::env::var("V").is_ok() {
                println!(
                    "   ops {} bytes {} noseek {} fast {} slow {} busy {:.1} sieved {}",
                    d.operations,
                    d.bytes,
                    d.no_seek,
                    d.fast,
                    d.slow,
                    d.busy_nanos as f64 / 1e9,
                    sieved
                );
            }
            report.end_nanos as f64 / 1e9
        });
        println!("{:<8} {:<32} {:>12.3} {:>12.3}", case.table(), case.name(), seconds[0], seconds[1]);
    }
}
