//! Clusters of different nodes, servers on the nodes of clients, and free topologies, against
//! formulas.

use weft_model::units::{KIB, MIB, transfer_nanos};
use weft_model::{Card, DiskModel, Link, NetworkModel, Switches, Topology};
use weft_piosim::program::{Access, Application, Command, WORLD};
use weft_piosim::{ClusterConfig, Report, ServerConfig, Simulation};
use weft_sched::LayerKind;

/// Step time of the processor of the thesis.
const STEP: u64 = 1_000;
const BOTH: [NetworkModel; 2] = [NetworkModel::Packets, NetworkModel::Messages];
const LATENCY: u64 = 200_000;

fn cluster(layer: LayerKind) -> ClusterConfig {
    ClusterConfig::thesis(4, 3, layer).natural()
}

fn run(config: &ClusterConfig, app: &Application) -> Report {
    let report = Simulation::new(config, app).and_then(Simulation::run).expect("the program is sound");
    assert_eq!(report.unreceived_messages, 0);
    report
}

/// The last rank's end of one message from rank 0 to rank 1.
fn sent(config: &ClusterConfig, bytes: u64) -> u64 {
    let mut app = Application::new("message", 2);
    app.push(0, Command::Send { comm: WORLD, to: 1, tag: 0, bytes, request: None });
    app.push(1, Command::Recv { comm: WORLD, from: Some(0), tag: 0, request: None });
    run(config, &app).ranks_end_nanos()
}

#[test]
fn each_node_has_the_link_and_the_processors_of_its_own() {
    for network in BOTH {
        let mut config = ClusterConfig { eager_bytes: u64::MAX, network, ..cluster(LayerKind::None) };
        let mut slow = config.node;
        slow.card = Card { link_bandwidth: 10 * MIB, link_latency: 1e-3, ..slow.card };
        slow.cpu.instructions_per_second = 100_000;
        config.exceptions.clients.insert(1, slow);
        let bytes = 50 * KIB;
        let path =
            transfer_nanos(bytes, 100 * MIB) + LATENCY + transfer_nanos(bytes, 1000 * MIB) + transfer_nanos(bytes, 10 * MIB) + 1_000_000;
        // The step after the receive is ten times as long on the slow processor.
        assert_eq!(sent(&config, bytes), STEP + path + 10 * STEP, "{network:?}");
        // A long message moves at the pace of the slower link.
        let found = sent(&config, 10 * MIB);
        let expected = transfer_nanos(10 * MIB, 10 * MIB);
        assert!((expected..expected + 30_000_000).contains(&found), "{network:?}: {found} {expected}");
    }
}

#[test]
fn free_topologies_cost_the_links_on_the_way() {
    // Clients 0 and 1 at the ends of a chain of three switches, everyone else at the first.
    let link = |one, other, bandwidth| Link { ends: [one, other], bandwidth, latency: 50_000 };
    let switches = Switches {
        bandwidths: vec![Some(1000 * MIB), Some(500 * MIB), Some(1000 * MIB)],
        links: vec![link(0, 1, 200 * MIB), link(2, 1, 400 * MIB)],
        node_switch: vec![0, 2, 0, 0, 0, 0, 0],
    };
    for network in BOTH {
        let topology = Topology::Free(switches.clone());
        let config = ClusterConfig { eager_bytes: u64::MAX, network, topology, ..cluster(LayerKind::None) };
        let bytes = 100 * KIB;
        let stations = [100, 1000, 200, 500, 400, 1000, 100].map(|bandwidth| transfer_nanos(bytes, bandwidth * MIB));
        let path = stations.iter().sum::<u64>() + 2 * LATENCY + 2 * 50_000;
        assert_eq!(sent(&config, bytes), 2 * STEP + path, "{network:?}");
        let near = ClusterConfig { topology: Topology::OneSwitch, ..config.clone() };
        let both = sent(&near, bytes);
        assert!(both < sent(&config, bytes));
        // The racks of the simulator are such a topology.
        let racks = Topology::Racks { nodes_per_rack: 1, uplink_bandwidth: 100 * MIB };
        let star = Switches {
            bandwidths: [vec![Some(1000 * MIB); 7], vec![None]].concat(),
            links: (0..7).map(|rack| Link { ends: [rack, 7], bandwidth: 100 * MIB, latency: LATENCY }).collect(),
            node_switch: (0..7).collect(),
        };
        let [racks, star] = [racks, Topology::Free(star)].map(|topology| sent(&ClusterConfig { topology, ..config.clone() }, 3 * MIB));
        assert_eq!(racks, star);
    }
}

#[test]
fn what_a_client_asks_of_its_own_node_does_not_pass_the_network() {
    for (network, writes) in BOTH.into_iter().flat_map(|network| [false, true].map(|writes| (network, writes))) {
        let apart = ClusterConfig { network, servers: 1, ..cluster(LayerKind::WriteBehind) };
        let mut shared = apart.clone();
        shared.exceptions.shared.insert(0, 2);
        assert_eq!((apart.nodes().len(), shared.nodes().len(), shared.nodes_of_servers()), (5, 4, vec![2]));
        let end = |config: &ClusterConfig, rank: u32| {
            let mut app = Application::new("one", 4);
            let file = app.file("file", 64 * KIB);
            let access = Access::at(0, 64 * KIB);
            app.push(rank, if writes { Command::FileWrite { file, access } } else { Command::FileRead { file, access } });
            run(config, &app).ranks_end_nanos()
        };
        // Each of two or three messages in a row saves two latencies and more.
        let saved = end(&apart, 2) - end(&shared, 2);
        assert!(saved > 2 * 2 * LATENCY, "{network:?} {writes}: {saved}");
        assert_eq!(end(&apart, 1), end(&shared, 1), "from another node it costs what it did");
    }
}

#[test]
fn servers_with_different_disks_take_their_own_time() {
    let mut config = ClusterConfig { servers: 2, ..cluster(LayerKind::None) };
    let disk = DiskModel::Simple { access: 0.0, bandwidth: 1000 * MIB };
    config.exceptions.servers.insert(1, ServerConfig { disk, ..config.server.clone() });
    let mut app = Application::new("read", 1);
    let file = app.file("file", 20 * MIB);
    app.push(0, Command::FileRead { file, access: Access::at(0, 20 * MIB) });
    let report = run(&config, &app);
    let [hard, fast] = [0, 1].map(|server| report.servers[server].disk);
    assert_eq!((hard.bytes, fast.bytes), (10 * MIB, 10 * MIB));
    assert!(fast.busy_nanos.abs_diff(transfer_nanos(10 * MIB, 1000 * MIB)) <= fast.operations);
    assert!(hard.busy_nanos > transfer_nanos(10 * MIB, 50 * MIB));
}

#[test]
fn exceptions_that_name_nothing_are_refused() {
    let problem = |change: fn(&mut ClusterConfig)| {
        let mut config = cluster(LayerKind::None);
        change(&mut config);
        config.check().expect_err("it cannot be built")
    };
    let shared = problem(|config| {
        config.exceptions.shared.insert(3, 0);
    });
    assert_eq!(shared, "there is no server 3, there are 3");
    let client = problem(|config| {
        config.exceptions.shared.insert(0, 4);
    });
    assert_eq!(client, "there is no client 4, there are 4");
    let both = problem(|config| {
        config.exceptions.server_nodes.insert(0, config.node);
        config.exceptions.shared.insert(0, 1);
    });
    assert_eq!(both, "server 0 is on the node of a client and has no node of its own");
    let cut = Switches { bandwidths: vec![Some(1); 2], links: Vec::new(), node_switch: vec![0, 0, 0, 0, 0, 0, 1] };
    let mut config = ClusterConfig { topology: Topology::Free(cut), ..cluster(LayerKind::None) };
    assert_eq!(config.check(), Err("no links lead from node 0 to node 6".to_string()));
    config.topology = Topology::Free(Switches { bandwidths: vec![None], links: Vec::new(), node_switch: vec![0; 3] });
    assert!(config.check().is_err_and(|problem| problem.contains("one of them for each node")));
}
