//! Processes that share the cores of a machine, sleep and are woken, against closed forms.

mod common;

use common::{SERVER, ask, ask_bulk};
use weft_base::SECOND;
use weft_rt::{Arrival, Runtime, ServerRuntime, Work, join_all};
use weft_rt_sim::models::ProcessProfile;
use weft_rt_sim::{NodeConfig, NodeId, Profile, Sim, SimRt};
use weft_wire::Frame;

/// Sums of these are all different.
const COSTS: ProcessProfile = ProcessProfile {
    send_ns: 700,
    receive_ns: 500,
    wake_ns: 100_000,
    waker_ns: 3_000,
    woken_ns: 2_000,
    client_request_ns: 11_000,
    untold_change_ns: 1_300,
    untold_removal_ns: 800,
    told_record_ns: 300,
    known_record_ns: 200,
    copy_bytes_per_s: 0,
};
const REQUEST_NS: u64 = 40_000;
const LOCAL_NS: u64 = 9;

fn profile(process: Option<ProcessProfile>) -> Profile {
    let mut profile = Profile { process, ..Profile::ethernet_10g() };
    (profile.cpu.request_ns, profile.net.loopback_ns) = (REQUEST_NS, LOCAL_NS);
    profile
}

/// Answers all requests of a batch together, as Weft's servers do.
async fn serve(rt: SimRt) {
    let mut arrivals = Vec::new();
    loop {
        rt.receive(&mut arrivals).await;
        let mut answers = Vec::new();
        for arrival in arrivals.drain(..) {
            if let Arrival::Request { peer, frame } = arrival {
                rt.cpu(Work::Request).await;
                answers.push((peer, Frame::reply(&frame.header, Ok(frame.body), frame.bulk)));
            }
        }
        answers.into_iter().for_each(|(peer, frame)| rt.reply(peer, frame));
    }
}

/// Such a server and clients on a machine with so many cores, connected.
fn machine(profile: Profile, cores: usize, clients: usize) -> (Sim, Vec<NodeId>) {
    let sim = Sim::new(1, profile);
    let machine = Some(sim.add_machine(cores));
    let server = sim.add_node(NodeConfig { machine, ..NodeConfig::server(SERVER) });
    sim.start(server, serve);
    let clients = (0..clients).map(|index| sim.add_node(NodeConfig { machine, ..NodeConfig::client(format!("client{index}")) }));
    let clients: Vec<NodeId> = clients.collect();
    for (index, client) in clients.iter().enumerate() {
        let connected = sim.block_on(*client, SECOND, move |rt| async move { ask(&rt, index as u64 + 1, 1, b"").await });
        connected.expect("an end").expect("an answer");
    }
    sim.run_for(SECOND);
    (sim, clients)
}

/// How long a client takes for so many requests at once, in nanoseconds.
fn takes(sim: &Sim, client: NodeId, window: u64) -> u64 {
    let flow = move |rt: SimRt| async move {
        let (began, rt) = (rt.now(), &rt);
        let asked = (0..window).map(|index| async move {
            // As the client library does.
            rt.cpu(Work::Request).await;
            ask(rt, 1, 10 + index, b"").await
        });
        join_all(asked).await.into_iter().for_each(|answer| drop(answer.expect("an answer")));
        rt.now().since(began)
    };
    sim.block_on(client, SECOND, flow).expect("an end")
}

#[test]
fn who_sleeps_is_woken_by_the_sender_and_runs_later() {
    let (sim, clients) = machine(profile(Some(COSTS)), 2, 1);
    let each_way = COSTS.send_ns + COSTS.waker_ns + LOCAL_NS + COSTS.wake_ns + COSTS.woken_ns + COSTS.receive_ns;
    assert_eq!(takes(&sim, clients[0], 1), COSTS.client_request_ns + REQUEST_NS + 2 * each_way);
}

#[test]
fn on_one_core_nobody_waits_for_an_idle_one() {
    let (sim, clients) = machine(profile(Some(COSTS)), 1, 1);
    let each_way = COSTS.send_ns + COSTS.waker_ns + LOCAL_NS + COSTS.woken_ns + COSTS.receive_ns;
    assert_eq!(takes(&sim, clients[0], 1), COSTS.client_request_ns + REQUEST_NS + 2 * each_way);
}

#[test]
fn what_leaves_together_is_one_send_and_one_wake_up() {
    let (sim, clients) = machine(profile(Some(COSTS)), 2, 1);
    let each_way = COSTS.send_ns + COSTS.waker_ns + LOCAL_NS + COSTS.wake_ns + COSTS.woken_ns + COSTS.receive_ns;
    assert_eq!(takes(&sim, clients[0], 64), 64 * (COSTS.client_request_ns + REQUEST_NS) + 2 * each_way);
}

#[test]
fn clients_on_full_cores_share_them() {
    // Two processes can use two cores, but four clients and their server need them all the time.
    let rate = |cores, clients: usize| {
        let (sim, nodes) = machine(profile(Some(COSTS)), cores, clients);
        let began = sim.now();
        let flows = nodes.iter().enumerate().map(|(index, node)| {
            sim.spawn_on(*node, move |rt| async move {
                for sequence in 2..102 {
                    rt.cpu(Work::Request).await;
                    ask(&rt, index as u64 + 1, sequence, b"").await.expect("an answer");
                }
            })
        });
        let flows: Vec<_> = flows.collect();
        sim.run_until_true(sim.now() + 100 * SECOND, || flows.iter().all(|flow| flow.is_over())).expect("an end");
        clients as f64 * 100.0 * 1e9 / sim.now().since(began) as f64
    };
    let [one, two, eight] = [1, 2, 8].map(|cores| rate(cores, 8));
    // The server is one thread: no number of cores gives more than one core of it.
    assert!(two > 1.1 * one && eight < 1e9 / REQUEST_NS as f64, "{one} {two} {eight}");
    let per_request = COSTS.client_request_ns + REQUEST_NS;
    assert!(one < 1e9 / per_request as f64 && one > 0.5e9 / per_request as f64, "one core does everything: {one}");
}

#[test]
fn bulk_data_between_processes_passes_no_card_and_is_copied_by_the_client() {
    let costs = ProcessProfile { copy_bytes_per_s: 1_000_000_000, ..COSTS };
    let took = |process| {
        let (sim, clients) = machine(profile(process), 2, 1);
        let flow = |rt: SimRt| async move {
            let began = rt.now();
            assert_eq!(ask_bulk(&rt, 1, 10, 1 << 20).await.expect("an answer").len(), 1 << 20);
            rt.now().since(began)
        };
        let took = sim.block_on(clients[0], SECOND, flow).expect("an end");
        let busy = sim.usage(clients[0]).busy;
        assert_eq!((busy.sending_ns, busy.receiving_ns), (0, 0), "no card has to do with it");
        took
    };
    let copied = 2 * weft_rt_sim::models::transfer_ns(1 << 20, 1_000_000_000);
    assert_eq!(took(Some(costs)) - took(Some(COSTS)), copied);
    assert_eq!(took(None), REQUEST_NS + 2 * LOCAL_NS, "without the profile only the request costs something");
}

#[test]
fn processes_of_one_machine_have_one_disk() {
    let busy = |shared: bool| {
        let mut profile = profile(None);
        profile.disk.sync_ns = 1_000_000;
        let sim = Sim::new(1, profile);
        let machine = shared.then(|| sim.add_machine(2));
        let nodes = [0, 1].map(|index| sim.add_node(NodeConfig { machine, ..NodeConfig::client(format!("client{index}")) }));
        let flows = nodes.map(|node| {
            sim.spawn_on(node, |rt| async move {
                use weft_rt::Disk;
                let file = rt.disk().open("file", true).await.expect("a file");
                rt.disk().sync(file).await.expect("it is durable");
            })
        });
        sim.run_until_true(sim.now() + SECOND, || flows.iter().all(|flow| flow.is_over())).expect("an end");
        let both: u64 = nodes.iter().map(|node| sim.usage(*node).busy.disk_ns).sum();
        machine.inspect(|machine| assert_eq!(sim.machine_busy(*machine).1, both));
        sim.now().0
    };
    assert!(busy(true) > 39 * busy(false) / 20, "two disks work side by side");
}

#[test]
fn a_client_that_dies_forgets_what_it_was_about_to_send() {
    let (sim, clients) = machine(profile(Some(COSTS)), 1, 2);
    let dying = clients[0];
    sim.spawn_on(dying, |rt| async move {
        let rt = &rt;
        join_all((0..50).map(|index| ask(rt, 1, 10 + index, b""))).await;
    });
    sim.run_for(REQUEST_NS * 5);
    sim.crash(dying);
    sim.restart(dying);
    let alive = takes_as(&sim, clients[1], 2);
    let again = takes_as(&sim, dying, 1);
    assert!(alive > 0 && again > 0);
}

fn takes_as(sim: &Sim, client: NodeId, identity: u64) -> u64 {
    let flow = move |rt: SimRt| async move {
        let began = rt.now();
        ask(&rt, identity, 1000, b"").await.expect("an answer");
        rt.now().since(began)
    };
    sim.block_on(client, 10 * SECOND, flow).expect("an end")
}
