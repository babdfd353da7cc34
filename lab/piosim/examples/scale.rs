//! `cargo run --release -p weft-piosim --example scale -- CLIENTS SERVERS FILE_GIB BLOCK_KIB
//! BUFFER_MIB LAYER`: an interleaved collective write on a large cluster with the network message
//! by message; prints virtual time, events and what the simulation itself took. With LAYER `all`
//! and one operation for each block: `scale individual BLOCK_BYTES` runs the cluster of the thesis
//! with that block size, reading and writing.
#![allow(clippy::disallowed_methods)] // a tool: a clock

use std::time::Instant;

use weft_model::units::{GIB, KIB, MIB, seconds};
use weft_model::{Card, NetworkModel};
use weft_piosim::workloads::{Manner, Transfer};
use weft_piosim::{ClusterConfig, Collective, Simulation};
use weft_sched::LayerKind;
use weft_workload::{Sharing, Workload};

fn run(name: &str, config: &ClusterConfig, app: &weft_piosim::Application) {
    let start = Instant::now();
    match Simulation::new(config, app).and_then(Simulation::run) {
        Ok(report) => {
            let wall = start.elapsed().as_secs_f64();
            let disks = report.disks();
            println!(
                "{name}: {:.6} s virtual, {} events, {wall:.1} s, {:.1} M events/s, {} disk operations, {} bytes on disk",
                seconds(report.end_nanos),
                report.events,
                report.events as f64 / wall / 1e6,
                disks.operations,
                disks.bytes
            );
        }
        Err(problem) => eprintln!("{name}: {problem}"),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(default);
    if arguments.first().is_some_and(|first| first == "individual") {
        let work = Workload::sharing(Sharing::Interleaved, 10, 1000 * MIB, number(1, 512));
        for layer in LayerKind::ALL {
            for writes in [false, true] {
                let app = Transfer { work: &work, writes }.individual(Manner::default());
                let name = format!("{} {}", layer.name(), if writes { "write" } else { "read" });
                run(&name, &ClusterConfig::thesis(10, 10, layer), &app);
            }
        }
        return;
    }
    let (clients, servers) = (number(0, 1000) as u32, number(1, 1000) as u32);
    let layer = arguments.get(5).and_then(|name| name.parse().ok()).unwrap_or_default();
    let work = Workload::sharing(Sharing::Interleaved, clients, number(2, 1024) * GIB, number(3, 1024) * KIB);
    let mut config = ClusterConfig {
        network: NetworkModel::Messages,
        switch_bandwidth: u64::from(clients + servers) * 1250 * MIB,
        stripe_bytes: MIB,
        eager_bytes: MIB,
        collective: Collective::InterleavedTwoPhase,
        collective_buffer_bytes: number(4, 8) * MIB,
        ..ClusterConfig::thesis(clients, servers, layer).natural()
    };
    config.node.card = Card { link_bandwidth: 1250 * MIB, link_latency: 5e-6, ..config.node.card };
    config.server.memory_bytes = 16 * GIB;
    let start = Instant::now();
    let app = Transfer { work: &work, writes: true }.collective();
    println!("program built in {:.1} s", start.elapsed().as_secs_f64());
    run(&format!("{clients} clients, {servers} servers, {}", layer.name()), &config, &app);
}
