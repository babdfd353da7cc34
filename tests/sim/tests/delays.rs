//! A delay of 5 ms at one place of a whole cluster in virtual time: `explain` names that place
//! first, whichever it is. The same with real processes is in `tests/system/tests/delays.rs`.

use std::rc::Rc;

use weft_base::SECOND;
use weft_client::Client;
use weft_rt_sim::{NodeId, Profile, Sim, SimRt};
use weft_sim_tests::cluster::{Cluster, ClusterConfig, Durability};
use weft_sim_tests::delays::{CLIENT, DELAY_NS, PLACES, Place, Told, all_are_named, two_directories, work};
use weft_trace::Mask;
use weft_trace::explain::{Analysis, Explanation};
use weft_trace::file::TraceFile;
use weft_trace::merge::merge;

/// Files of each client.
const FILES: usize = 12;

/// Two clients work on two metadata and three data servers that promise stable storage, one of all
/// these with a delay.
fn explained(seed: u64, delay: Option<&Place>) -> Explanation {
    let mut profile = Profile::ethernet_10g();
    (profile.net.jitter_ns, profile.disk.jitter_ns) = (5_000, 5_000);
    let sim = Sim::new(seed, profile);
    let config = ClusterConfig { meta: 2, data: 3, contract: Durability::Sync, ..ClusterConfig::small() };
    let cluster = Cluster::start(&sim, &config);
    let clients: Vec<(NodeId, Client<SimRt>)> = ["c0", "c1"].into_iter().map(|name| cluster.add_client(name, 60 * SECOND)).collect();
    // Servers make their file system and get to know each other, and clients connect and make
    // directories, before anything is recorded.
    let mut places = Vec::new();
    for (number, (node, client)) in clients.iter().enumerate() {
        let client = client.clone();
        let made = sim.block_on(*node, 60 * SECOND, move |_| async move { two_directories(&client, number).await });
        places.push(made.expect("servers answer"));
    }
    sim.run_for(SECOND);
    if let Some(place) = delay {
        let node = sim.nodes().into_iter().find(|other| sim.name(*other) == node(place.node)).expect("a node of the cluster");
        sim.delay(node, place.point, DELAY_NS);
    }
    sim.start_tracing(Mask::ALL, 1 << 14);
    let flows = clients
        .into_iter()
        .zip(places)
        .map(|((node, client), dirs)| sim.spawn_on(node, move |_| async move { work(&client, dirs, FILES).await }));
    let flows: Rc<Vec<_>> = Rc::new(flows.collect());
    sim.run_until_true(sim.now() + 600 * SECOND, || flows.iter().all(|flow| flow.is_over())).expect("the work ends");
    assert!(flows.iter().all(|flow| flow.take().is_some()), "no client has died");
    let merged = merge(sim.take_trace_files().iter().map(|(_, bytes)| TraceFile::read(bytes).expect("just written")).collect());
    assert_eq!(merged.causality_violations(), 0);
    Analysis::new(&merged).explain(4)
}

/// The client that is held up.
fn node(name: &str) -> String {
    if name == CLIENT { "c1".into() } else { name.into() }
}

fn told(explanation: &Explanation) -> Told {
    let suspects = explanation.suspects.iter();
    Told {
        suspects: suspects.map(|suspect| (suspect.stage.to_string(), suspect.place.to_string(), suspect.evidence.clone())).collect(),
        covered: explanation.covered,
        missing: explanation.missing.clone(),
    }
}

#[test]
fn a_delay_in_any_place_is_named_first() {
    for seed in [7, 8, 9] {
        all_are_named(PLACES, node, |place| told(&explained(seed, Some(place))));
    }
}

#[test]
fn without_a_delay_nothing_is_slow() {
    let explanation = explained(7, None);
    assert!(explanation.suspects.iter().all(|suspect| suspect.p99_us < 1_000.0), "{:#?}", explanation.suspects);
}

/// The table of `docs/trace.md`, with what is said now:
/// `cargo test -p weft-sim-tests --test delays -- --ignored --nocapture`
#[test]
#[ignore = "prints what explain says, for people"]
fn what_is_said_about_each_place() {
    for place in PLACES {
        println!("{} at {}: {}", place.point.name(), node(place.node), explained(7, Some(place)).suspects[0].evidence);
    }
}
