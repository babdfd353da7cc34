//! The rules of today beside those of 2009 on the cluster of 2009, both in natural order: seconds,
//! accesses and accesses after a seek of every case of Appendix C.2 under `server_directed`.
//! `cargo run --release -p weft-piosim --example rules`

use weft_piosim::thesis::cases;
use weft_piosim::{CacheLayerConfig, Simulation};
use weft_sched::LayerKind;
use weft_sched::improved::ImprovedConfig;

fn main() {
    println!("{:<8} {:<30} {:>10} {:>9} {:>9} {:>10} {:>9} {:>9}", "", "", "2009", "accesses", "seeks", "today", "accesses", "seeks");
    for case in cases("C.2").into_iter().filter(|case| case.layer() == LayerKind::ServerDirected) {
        let natural = case.config().natural();
        let cache_layer = CacheLayerConfig::improved(LayerKind::ServerDirected, &natural.server.disk, ImprovedConfig::default());
        let mut today = natural.clone();
        today.server.cache_layer = cache_layer;
        print!("{:<8} {:<30}", case.table(), case.name());
        for config in [natural, today] {
            let report = Simulation::new(&config, &case.application(0)).and_then(Simulation::run).expect("the thesis runs");
            let disks = report.disks();
            print!(" {:>10.3} {:>9} {:>9}", report.end_nanos as f64 / 1e9, disks.operations, disks.fast + disks.slow);
        }
        println!();
    }
}
