//! The same seed gives the same run, with every fault there is; and faults do what their names say.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::{SERVER, ask, at, echo_cluster, sleep};
use weft_base::{MILLISECOND, Nanos, Payload, SECOND};
use weft_rt::{Arrival, Disk, Runtime, ServerRuntime};
use weft_rt_sim::{DiskFaultKind, FOREVER, Fault, FaultPlan, FaultSettings, MessageFaults, NodeConfig, Profile, Sim, SimRt};
use weft_wire::Frame;

/// Writes every request to a log and syncs now and then.
async fn logging_server(rt: SimRt) {
    let Ok(log) = rt.disk().open("log", true).await else { return };
    let Ok(mut end) = rt.disk().len(log).await else { return };
    let mut arrivals = Vec::new();
    loop {
        rt.receive(&mut arrivals).await;
        for arrival in arrivals.drain(..) {
            let Arrival::Request { peer, frame } = arrival else { continue };
            let len = frame.body.len() as u64;
            if rt.disk().write(log, end, Payload::Real(frame.body.clone())).await.is_err() {
                continue;
            }
            end += len;
            if rt.random().is_multiple_of(8) && rt.disk().sync(log).await.is_err() {
                return;
            }
            rt.reply(peer, Frame::reply(&frame.header, Ok(frame.body), frame.bulk));
        }
    }
}

/// A run with all faults; gives its hash and its last lines.
fn run(seed: u64, trace_lines: usize) -> (u64, Vec<String>, u64) {
    let sim = Sim::new(seed, Profile::instant());
    sim.keep_trace(trace_lines);
    let servers = [sim.add_node(NodeConfig::server(SERVER))];
    sim.start(servers[0], logging_server);
    let clients: Vec<_> = (0..3).map(|index| sim.add_node(NodeConfig::client(format!("client{index}")))).collect();
    let answered = Rc::new(RefCell::new(0));
    for node in &clients {
        let (id, answered) = (u64::from(node.0), Rc::clone(&answered));
        sim.start(*node, move |rt| {
            let answered = Rc::clone(&answered);
            async move {
                let client = id << 32 | rt.random() >> 40;
                for sequence in 1.. {
                    *answered.borrow_mut() += u64::from(ask(&rt, client, sequence, b"0123456789").await.is_ok());
                    sleep(&rt, rt.random() % MILLISECOND).await;
                }
            }
        });
    }
    let settings = FaultSettings { client_crashes: 2, disk_full: 1, disk_errors: 1, ..FaultSettings::power_cuts(2 * SECOND) };
    let plan = FaultPlan::draw(&settings, &servers, &clients, &mut sim.random());
    sim.schedule(&plan);
    sim.run_until(at(4 * SECOND));
    let answered = *answered.borrow();
    (sim.trace_hash(), sim.trace(), answered)
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let mut hashes = std::collections::BTreeSet::new();
    let mut answered = 0;
    for seed in 0..12 {
        let (first, second) = (run(seed, 200), run(seed, 200));
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(first.0, run(seed, 0).0, "seed {seed}: tracing changes the run");
        hashes.insert(first.0);
        answered += first.2;
    }
    assert_eq!(hashes.len(), 12, "different seeds give different runs");
    assert!(answered > 10_000, "the workload makes progress between the faults: {answered}");
}

#[test]
fn plans_end_in_time_and_strike_only_who_they_may() {
    let sim = Sim::new(1, Profile::instant());
    let servers: Vec<_> = (0..3).map(|index| sim.add_node(NodeConfig::server(weft_base::ServerId(index)))).collect();
    let clients = [sim.add_node(NodeConfig::client("client0"))];
    let settings = FaultSettings { client_crashes: 1, disk_full: 2, disk_errors: 2, ..FaultSettings::power_cuts(SECOND) };
    let mut random = sim.random();
    let mut kinds = std::collections::BTreeSet::new();
    for _ in 0..300 {
        let plan = FaultPlan::draw(&settings, &servers, &clients, &mut random);
        assert!(plan.faults.is_sorted_by_key(|(at, _)| *at));
        for (at, fault) in &plan.faults {
            let ns = match fault {
                Fault::Crash { down_ns, .. } => {
                    assert!(*down_ns <= settings.down_max_ns);
                    0
                }
                Fault::PowerCut { node, .. } | Fault::DiskError { node, .. } => {
                    assert!(servers.contains(node));
                    0
                }
                Fault::DiskFull { node, ns } | Fault::Pause { node, ns } => {
                    assert!(servers.contains(node));
                    *ns
                }
                Fault::Partition { ns, .. } | Fault::OneWay { ns, .. } | Fault::Isolate { ns, .. } => *ns,
                Fault::Slow { ns, .. } | Fault::Messages { ns, .. } => *ns,
                Fault::BreakConnections { .. } => 0,
            };
            assert!(*at + ns <= Nanos(SECOND), "{at:?} {fault:?}");
            kinds.insert(format!("{fault:?}").split_whitespace().next().unwrap().to_string());
        }
    }
    assert_eq!(kinds.len(), 11, "every kind of fault is drawn: {kinds:?}");
}

#[test]
fn a_planned_restart_gives_way_to_what_came_later() {
    let sim = Sim::new(1, Profile::instant());
    let (server, _) = echo_cluster(&sim, 0);
    sim.strike(&Fault::Crash { node: server, down_ns: 100 });
    sim.run_for(50);
    sim.strike(&Fault::PowerCut { node: server, down_ns: 1000 });
    sim.run_for(500);
    assert!(!sim.is_running(server), "the machine has no power when the first restart is due");
    sim.run_for(600);
    assert!(sim.is_running(server));
    sim.strike(&Fault::Crash { node: server, down_ns: FOREVER });
    sim.run_until_idle(at(SECOND)).unwrap();
    assert!(!sim.is_running(server));
}

#[test]
fn recovery_ends_all_trouble() {
    let sim = Sim::new(1, Profile::instant());
    let (server, clients) = echo_cluster(&sim, 1);
    sim.strike(&Fault::Isolate { node: server, ns: FOREVER });
    sim.fill_disk(server, FOREVER);
    sim.fail_disk(server, DiskFaultKind::Write, 1000);
    sim.message_faults(MessageFaults { lose: 1_000_000, ..MessageFaults::NONE }, FOREVER);
    sim.strike(&Fault::Pause { node: clients[0], ns: FOREVER });
    sim.power_cut(server);
    sim.run_for(SECOND);
    sim.recover();
    sim.block_on(clients[0], SECOND, |rt| async move { ask(&rt, 7, 1, b"").await }).unwrap().unwrap();
    sim.block_on(server, SECOND, |rt| async move {
        let file = rt.disk().open("a", true).await.unwrap();
        rt.disk().write(file, 0, Payload::from(vec![1])).await.unwrap();
    })
    .unwrap();
}

#[test]
fn a_crash_can_hit_every_await_point() {
    let polls = {
        let sim = Sim::new(1, Profile::instant());
        let node = sim.add_node(NodeConfig::client("client0"));
        sim.block_on(node, SECOND, three_steps).unwrap();
        sim.polls(node)
    };
    let mut outcomes = Vec::new();
    for poll in 1..=polls {
        let sim = Sim::new(1, Profile::instant());
        let node = sim.add_node(NodeConfig::client("client0"));
        sim.strike_after_polls(node, poll, Fault::Crash { node, down_ns: FOREVER });
        let flow = sim.spawn_on(node, three_steps);
        sim.run_until_idle(at(SECOND)).unwrap();
        assert!(!sim.is_running(node));
        outcomes.push((flow.take().is_some(), sim.disk_files(node).len()));
    }
    // The last poll finishes the flow; before each other one, a file may or may not have been
    // created by the step that was cut.
    assert_eq!(outcomes.len(), 4);
    assert_eq!(outcomes[3], (true, 3));
    for (step, (finished, files)) in outcomes[..3].iter().enumerate() {
        assert!(!finished);
        assert!((step..=step + 1).contains(files), "step {step}: {files} files");
    }
}

async fn three_steps(rt: SimRt) {
    for name in ["a", "b", "c"] {
        rt.disk().open(name, true).await.unwrap();
    }
}

#[test]
fn a_paused_process_stands_still_and_a_slow_one_is_slow() {
    let mut profile = Profile::ethernet_10g();
    profile.cpu.request_ns = MILLISECOND;
    let sim = Sim::new(1, profile);
    let (server, clients) = echo_cluster(&sim, 1);
    let round_trip = |sequence| {
        let begin = sim.now();
        sim.block_on(clients[0], 10 * SECOND, move |rt| async move { ask(&rt, 7, sequence, b"").await }).unwrap().unwrap();
        sim.now().since(begin)
    };
    round_trip(1);
    let usual = round_trip(2);
    assert!((MILLISECOND..2 * MILLISECOND).contains(&usual), "{usual}");
    sim.strike(&Fault::Pause { node: server, ns: 500 * MILLISECOND });
    let paused = round_trip(3);
    assert!((500 * MILLISECOND..510 * MILLISECOND).contains(&paused), "{paused}");
    assert_eq!(round_trip(4), usual);
    sim.strike(&Fault::Slow { node: server, percent: 1000, ns: SECOND });
    let slow = round_trip(5);
    assert!((10 * MILLISECOND..11 * MILLISECOND).contains(&slow), "{slow}");
    sim.heal();
    assert_eq!(round_trip(6), usual);
}

#[test]
fn delays_have_a_heavy_tail_and_a_limit() {
    let sim = Sim::new(1, Profile::instant());
    let (_, clients) = echo_cluster(&sim, 1);
    sim.message_faults(
        MessageFaults { delay: 1_000_000, delay_ns: MILLISECOND, delay_max_ns: 100 * MILLISECOND, ..MessageFaults::NONE },
        FOREVER,
    );
    let mut times: Vec<u64> = (1..=500)
        .map(|sequence| {
            let begin = sim.now();
            sim.block_on(clients[0], 10 * SECOND, move |rt| async move { ask(&rt, 7, sequence, b"").await }).unwrap().unwrap();
            sim.now().since(begin)
        })
        .collect();
    times.sort_unstable();
    assert!(times[0] >= MILLISECOND && times[250] < 8 * MILLISECOND, "{} {}", times[0], times[250]);
    assert!(times[499] > 60 * MILLISECOND && times[499] < 201 * MILLISECOND, "{}", times[499]);
}

#[test]
fn notes_of_the_program_appear_in_the_trace() {
    let sim = Sim::new(1, Profile::instant());
    let node = sim.add_node(NodeConfig::client("client0"));
    sim.block_on(node, SECOND, |rt| async move { rt.note(|| unreachable!("nobody reads")) }).unwrap();
    sim.keep_trace(2);
    let lines = Rc::new(RefCell::new(0));
    let counter = Rc::clone(&lines);
    sim.trace_to(move |_| *counter.borrow_mut() += 1);
    sim.block_on(node, SECOND, |rt| async move {
        for index in 0..5 {
            rt.note(|| format!("note {index}"));
        }
    })
    .unwrap();
    assert_eq!(sim.trace(), ["0.000000000s client0: note 3", "0.000000000s client0: note 4"]);
    assert_eq!(*lines.borrow(), 5);
}
