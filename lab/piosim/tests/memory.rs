//! Memory of servers that takes time, read caches, servers that order arriving data, and the rule
//! for when two-phase I/O pays.

use weft_model::DiskModel;
use weft_model::units::{KIB, MIB, transfer_nanos};
use weft_piosim::program::{Access, Application, Command, WORLD};
use weft_piosim::server::Ram;
use weft_piosim::workloads::{Manner, Transfer};
use weft_piosim::{CacheLayerConfig, ClusterConfig, Collective, Report, Simulation};
use weft_sched::LayerKind;
use weft_sched::improved::ImprovedConfig;
use weft_workload::{Sharing, Workload};

fn cluster(clients: u32, servers: u32, layer: LayerKind) -> ClusterConfig {
    ClusterConfig::thesis(clients, servers, layer).natural()
}

fn run(config: &ClusterConfig, app: &Application) -> Report {
    let report = Simulation::new(config, app).and_then(Simulation::run).expect("the program is sound");
    assert_eq!(report.unreceived_messages, 0);
    report
}

/// One rank reads these ranges one after the other.
fn reads(ranges: &[(u64, u64)]) -> Application {
    let mut app = Application::new("reads", 1);
    let file = app.file("file", 10 * MIB);
    for &(offset, bytes) in ranges {
        app.push(0, Command::FileRead { file, access: Access::at(offset, bytes) });
    }
    app
}

#[test]
fn each_copy_takes_the_latency_and_the_bandwidth_of_memory() {
    let without = cluster(1, 1, LayerKind::None);
    let mut with = without.clone();
    with.server.ram = Some(Ram { latency: 1e-3, bandwidth: 10 * MIB });
    let app = reads(&[(0, 50 * KIB)]);
    let copy = 1_000_000 + transfer_nanos(50 * KIB, 10 * MIB);
    assert_eq!(run(&with, &app).end_nanos, run(&without, &app).end_nanos + copy);
    // A write is confirmed when its data is in memory; the disk begins then.
    let mut app = Application::new("write", 1);
    let file = app.file("file", 0);
    app.push(0, Command::FileWrite { file, access: Access::at(0, 50 * KIB) });
    let [fast, slow] = [&without, &with].map(|config| run(config, &app));
    assert_eq!(slow.end_nanos, fast.end_nanos + copy);
    assert_eq!(slow.ranks_end_nanos(), fast.ranks_end_nanos() + copy);
}

#[test]
fn what_the_read_cache_has_needs_no_disk() {
    let mut config = cluster(1, 1, LayerKind::ServerDirected);
    config.server.read_cache_bytes = MIB;
    // Again, a part of it, and a range of which half is new.
    let report = run(&config, &reads(&[(0, 512 * KIB), (0, 512 * KIB), (100, 1000), (256 * KIB, 512 * KIB)]));
    assert_eq!(report.disks().bytes, 768 * KIB);
    assert_eq!(report.servers[0].cached_bytes, 512 * KIB + 1000 + 256 * KIB);
    // Two megabytes one after the other do not fit, whoever comes last.
    let twice: Vec<(u64, u64)> = (0..2).flat_map(|_| (0..4).map(|part| (part * 512 * KIB, 512 * KIB))).collect();
    assert_eq!(run(&config, &reads(&twice)).servers[0].cached_bytes, 0);
    config.server.read_cache_bytes = 3 * MIB;
    assert_eq!(run(&config, &reads(&twice)).disks().bytes, 2 * MIB);
    // What was written is there, too.
    let mut app = Application::new("write and read", 1);
    let file = app.file("file", 0);
    app.push(0, Command::FileWrite { file, access: Access::at(0, MIB) });
    app.push(0, Command::FileRead { file, access: Access::at(0, MIB) });
    assert_eq!(run(&config, &app).servers[0].cached_bytes, MIB);
}

#[test]
fn servers_that_order_arriving_data_write_in_order_and_need_little_memory() {
    let work = Workload::sharing(Sharing::Interleaved, 8, 64 * MIB, 64 * KIB);
    let app = Transfer { work: &work, writes: true }.random(&mut weft_model::random::Lcg48::new(1));
    for layer in LayerKind::ALL {
        for today in [false, true] {
            let mut config = cluster(8, 1, layer);
            if today {
                config.server.cache_layer = CacheLayerConfig::improved(layer, &config.server.disk, ImprovedConfig::default());
                config.answers_written = layer == LayerKind::ServerDirected;
            }
            let sent = run(&config, &app);
            config.server.arrival_window = Some(MIB);
            let ordered = run(&config, &app);
            assert_eq!(ordered.disks().bytes, 64 * MIB, "{layer:?}");
            assert_eq!(ordered.messages, sent.messages + 1024, "{layer:?}: one more for each write");
            assert!(ordered.servers[0].memory_max <= 3 * MIB, "{layer:?}: {}", ordered.servers[0].memory_max);
            if matches!(layer, LayerKind::None | LayerKind::WriteBehind) {
                assert!(ordered.disks().fast > sent.disks().fast, "{layer:?} {today}: {:?} {:?}", ordered.disks(), sent.disks());
            }
        }
    }
}

#[test]
fn a_request_larger_than_the_window_comes_alone() {
    let mut config = cluster(4, 2, LayerKind::Aggregation);
    config.server.arrival_window = Some(1);
    let work = Workload { per_call: 8, ..Workload::sharing(Sharing::Interleaved, 4, 32 * MIB, 256 * KIB) };
    let app = Transfer { work: &work, writes: true }.individual(Manner::default());
    let report = run(&config, &app);
    assert_eq!(report.disks().bytes, 32 * MIB);
}

#[test]
fn the_rule_for_two_phase_follows_the_better_of_both() {
    let time = |config: &ClusterConfig, collective, block: u64, writes| {
        let config = ClusterConfig { collective, ..config.clone() };
        let work = Workload::sharing(Sharing::Interleaved, 8, 128 * MIB, block);
        run(&config, &Transfer { work: &work, writes }.collective()).end_nanos as f64
    };
    let mut ram = cluster(8, 8, LayerKind::None);
    ram.server.disk = DiskModel::Ram { latency: 1e-6, bandwidth: 1000 * MIB };
    let clusters = [cluster(8, 8, LayerKind::None), cluster(8, 8, LayerKind::Aggregation), cluster(8, 8, LayerKind::ServerDirected), ram];
    for (number, config) in clusters.iter().enumerate() {
        for (block, writes) in [(5 * KIB, false), (5 * KIB, true), (512 * KIB, false), (512 * KIB, true)] {
            let [auto, direct, two_phase] =
                [Collective::Auto, Collective::Direct, Collective::InterleavedTwoPhase].map(|how| time(config, how, block, writes));
            // Apart from the ranges that ranks tell each other first.
            assert!(auto < direct.min(two_phase) * 1.1 + 10e6, "cluster {number}, {block} {writes}: {auto} {direct} {two_phase}");
        }
    }
    // Accesses that follow each other rank by rank never need it.
    let mut app = Application::new("parts", 4);
    let file = app.file("file", 4 * MIB);
    for rank in 0..4 {
        app.push(rank, Command::FileReadAll { comm: WORLD, file, access: Access::at(u64::from(rank) * MIB, MIB - 1) });
    }
    let messages = |collective| run(&ClusterConfig { collective, ..cluster(4, 2, LayerKind::None) }, &app).messages;
    assert_eq!(messages(Collective::Auto), messages(Collective::Direct) + 4 * 3, "everyone's range to everyone");
}
