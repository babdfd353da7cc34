//! Connections, messages, and how the network models compare with closed forms.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::{SERVER, ask, ask_bulk, at, echo_cluster, header, server_and_client, sleep};
use weft_base::{ClientId, MILLISECOND, SECOND, ServerId, Status};
use weft_rt::{Arrival, Bulk, Outgoing, Runtime, ServerRuntime, join_all};
use weft_rt_sim::{FOREVER, Fault, MessageFaults, NodeConfig, Profile, Sim};
use weft_wire::{Frame, HEADER_BYTES};

const HEADER: u64 = HEADER_BYTES as u64;

#[test]
fn a_request_is_answered_and_counted() {
    let sim = Sim::new(1, Profile::instant());
    let (server, clients) = echo_cluster(&sim, 1);
    let reply = sim.block_on(clients[0], SECOND, |rt| async move { ask(&rt, 7, 1, b"hello").await }).unwrap().unwrap();
    assert_eq!(&reply.body[..], b"hello");
    assert_eq!(reply.header.body_bytes, 5);
    assert_eq!(reply.header.body_crc, weft_wire::crc32c(b"hello"));
    let usage = sim.usage(server).runtime;
    assert_eq!((usage.received_messages, usage.sent_messages), (1, 1));
    assert_eq!((usage.received_bytes, usage.sent_bytes), (HEADER + 5, HEADER + 5));
    assert_eq!(sim.usage(clients[0]).runtime.received_bytes, HEADER + 5);
}

#[test]
fn bulk_slices_arrive_joined() {
    let sim = Sim::new(1, Profile::instant());
    let (_, clients) = echo_cluster(&sim, 1);
    let bulk = sim.block_on(clients[0], SECOND, |rt| async move {
        let (one, two) = (vec![1u8; 3], vec![2u8; 2]);
        let request = Outgoing { header: header(1, 1), body: Default::default(), bulk: Bulk::Slices(vec![&one, &two]) };
        rt.request(SERVER, request, at(SECOND)).await.unwrap().bulk
    });
    assert_eq!(&bulk.unwrap().to_bytes()[..], [1, 1, 1, 2, 2]);
}

#[test]
fn requests_of_one_connection_arrive_in_order() {
    for seed in 0..20 {
        let sim = Sim::new(seed, Profile::instant());
        sim.message_faults(MessageFaults { delay: 200_000, delay_ns: MILLISECOND, delay_max_ns: SECOND, ..MessageFaults::NONE }, FOREVER);
        let seen = Rc::new(RefCell::new(Vec::new()));
        let seen_by_server = Rc::clone(&seen);
        let client = server_and_client(&sim, move |_, arrival| {
            if let Arrival::Request { frame, .. } = arrival {
                seen_by_server.borrow_mut().push(frame.header.request.sequence);
            }
        });
        for sequence in 1..=100 {
            sim.spawn_on(client, move |rt| async move {
                sleep(&rt, sequence * 1000).await;
                let _ = ask(&rt, 7, sequence, b"").await;
            });
        }
        sim.run_until(at(100 * SECOND));
        assert_eq!(*seen.borrow(), (1..=100).collect::<Vec<u64>>(), "seed {seed}");
    }
}

#[test]
fn what_leaves_together_arrives_in_one_turn() {
    let sim = Sim::new(3, Profile::instant());
    let server = sim.add_node(NodeConfig::server(SERVER));
    let client = sim.add_node(NodeConfig::client("client0"));
    let turns = Rc::new(RefCell::new(Vec::new()));
    let turns_of_server = Rc::clone(&turns);
    sim.start(server, move |rt| {
        let turns = Rc::clone(&turns_of_server);
        async move {
            let mut arrivals = Vec::new();
            loop {
                rt.receive(&mut arrivals).await;
                turns.borrow_mut().push(arrivals.len());
                for arrival in arrivals.drain(..) {
                    if let Arrival::Request { peer, frame } = arrival {
                        rt.reply(peer, Frame::reply(&frame.header, Ok(frame.body), frame.bulk));
                    }
                }
            }
        }
    });
    sim.block_on(client, SECOND, |rt| async move {
        let rt = &rt;
        join_all((1..=64).map(|sequence| ask(rt, 7, sequence, b"x"))).await
    })
    .unwrap();
    assert_eq!(*turns.borrow(), [1, 64], "the connection, then all requests at once");
}

#[test]
fn nobody_there_is_unreachable_and_silence_runs_into_the_deadline() {
    let sim = Sim::new(1, Profile::instant());
    let server = sim.add_node(NodeConfig::server(SERVER));
    let client = sim.add_node(NodeConfig::client("client0"));
    let try_it = || {
        sim.block_on(client, 10 * SECOND, |rt| async move {
            let begin = rt.now();
            let status = ask(&rt, 7, 1, b"").await.unwrap_err();
            (status, rt.now().since(begin))
        })
        .unwrap()
    };
    // Down: refused at once.
    let (status, ns) = try_it();
    assert_eq!(status, Status::Unreachable);
    assert!(ns < MILLISECOND, "{ns}");
    // No power: only the connection attempt's own limit ends it.
    sim.power_cut(server);
    let (status, ns) = try_it();
    assert_eq!((status, ns), (Status::Unreachable, Profile::instant().net.connect_timeout_ns));
    // Up but silent: the deadline.
    sim.start(server, |rt| async move { sleep(&rt, 1000 * SECOND).await });
    let (status, ns) = try_it();
    assert_eq!((status, ns), (Status::TimedOut, 2 * SECOND));
    // A server that does not exist, and a deadline that has passed.
    let statuses = sim.block_on(client, SECOND, |rt| async move {
        let request = || Outgoing { header: header(7, 2), body: Default::default(), bulk: Bulk::None };
        let nowhere = rt.request(ServerId(9), request(), rt.now() + SECOND).await.map(drop);
        let late = rt.request(SERVER, request(), rt.now()).await.map(drop);
        (nowhere, late)
    });
    assert_eq!(statuses.unwrap(), (Err(Status::Unreachable), Err(Status::TimedOut)));
}

#[test]
fn a_server_sees_connections_come_and_go() {
    let sim = Sim::new(1, Profile::instant());
    let log = Rc::new(RefCell::new(Vec::new()));
    let log_of_server = Rc::clone(&log);
    let client = server_and_client(&sim, move |rt, arrival| {
        log_of_server.borrow_mut().push(match arrival {
            Arrival::Request { peer, frame } => {
                rt.reply(peer, Frame::reply(&frame.header, Ok(frame.body), frame.bulk));
                "request".to_string()
            }
            Arrival::Connected { client, incarnation, .. } => format!("connected {client:?} {incarnation}"),
            Arrival::Disconnected { client, .. } => format!("disconnected {client:?}"),
        });
    });
    sim.block_on(client, SECOND, |rt| async move { ask(&rt, 7, 1, b"").await }).unwrap().unwrap();
    sim.crash(client);
    sim.run_for(SECOND);
    sim.restart(client);
    sim.block_on(client, SECOND, |rt| async move { ask(&rt, 8, 1, b"").await }).unwrap().unwrap();
    sim.break_connections(client);
    sim.run_for(SECOND);
    let expected = ["connected c7 1", "request", "disconnected c7", "connected c8 1", "request", "disconnected c8"];
    assert_eq!(*log.borrow(), expected);
}

#[test]
fn a_crashed_server_fails_waiting_requests_and_serves_again_after_restart() {
    for power_cut in [false, true] {
        let sim = Sim::new(5, Profile::instant());
        let (server, clients) = echo_cluster(&sim, 1);
        sim.block_on(clients[0], SECOND, |rt| async move { ask(&rt, 7, 1, b"").await }).unwrap().unwrap();
        let waiting = sim.spawn_on(clients[0], |rt| async move {
            let request = Outgoing { header: header(7, 2), body: Default::default(), bulk: Bulk::None };
            let result = rt.request(SERVER, request, rt.now() + 10 * SECOND).await;
            (result.map(drop), rt.now())
        });
        // The request leaves, the server dies before it arrives.
        sim.run_for(1);
        let begin = sim.now();
        if power_cut {
            sim.power_cut(server)
        } else {
            sim.crash(server)
        }
        sim.run_until_true(at(20 * SECOND), || waiting.is_over()).unwrap();
        let (result, end) = waiting.take().unwrap();
        assert_eq!(result, Err(Status::Unreachable));
        let told_after = end.since(begin);
        let net = Profile::instant().net;
        if power_cut {
            assert!((net.dead_peer_min_ns..=net.dead_peer_max_ns + MILLISECOND).contains(&told_after), "{told_after}");
        } else {
            assert!(told_after < MILLISECOND, "{told_after}");
        }
        sim.restart(server);
        sim.block_on(clients[0], SECOND, |rt| async move { ask(&rt, 7, 2, b"").await }).unwrap().unwrap();
    }
}

#[test]
fn what_a_partition_holds_up_arrives_when_it_heals() {
    let sim = Sim::new(1, Profile::instant());
    let (server, clients) = echo_cluster(&sim, 1);
    sim.block_on(clients[0], SECOND, |rt| async move { ask(&rt, 7, 1, b"").await }).unwrap().unwrap();
    let begin = sim.now();
    let mut survived = 0;
    for round in 0..20u64 {
        sim.partition(clients[0], server, 300 * MILLISECOND);
        let cut = sim.now();
        let result = sim
            .block_on(clients[0], 10 * SECOND, |rt| async move {
                let result = ask(&rt, 7, 2 + round, b"").await;
                (result.map(drop), rt.now())
            })
            .unwrap();
        if result.0 == Ok(()) {
            survived += 1;
            assert!(result.1.since(cut) >= 300 * MILLISECOND);
        }
        sim.heal();
        sim.run_for(3 * SECOND);
    }
    assert!(sim.now() > begin);
    assert!((5..=20).contains(&survived), "{survived}");
}

#[test]
fn lost_messages_end_in_errors_and_duplicates_reach_the_server() {
    let sim = Sim::new(9, Profile::instant());
    let (server, clients) = echo_cluster(&sim, 1);
    let faults = MessageFaults { lose: 100_000, duplicate: 100_000, delay_ns: MILLISECOND, delay_max_ns: SECOND, ..MessageFaults::NONE };
    sim.message_faults(faults, FOREVER);
    let (mut good, mut timed_out, mut unreachable) = (0u64, 0, 0);
    for sequence in 1..=300 {
        match sim.block_on(clients[0], 10 * SECOND, move |rt| async move { ask(&rt, 7, sequence, b"x").await }).unwrap() {
            Ok(reply) => {
                assert_eq!(reply.header.request.sequence, sequence);
                good += 1;
            }
            Err(Status::TimedOut) => timed_out += 1,
            Err(Status::Unreachable) => unreachable += 1,
            Err(other) => panic!("{other}"),
        }
    }
    sim.run_for(10 * SECOND);
    assert!(good > 150 && timed_out > 5 && unreachable > 5, "{good} {timed_out} {unreachable}");
    let usage = sim.usage(server).runtime;
    assert!(usage.received_messages > good + 5, "duplicates and requests whose reply was lost: {usage:?}");
}

#[test]
fn a_retry_over_a_new_connection_can_overtake_the_original() {
    let mut overtaken = 0;
    for seed in 0..200 {
        let sim = Sim::new(seed, Profile::instant());
        let seen = Rc::new(RefCell::new(Vec::new()));
        let seen_by_server = Rc::clone(&seen);
        let client = server_and_client(&sim, move |rt, arrival| {
            if let Arrival::Request { peer, frame } = arrival {
                seen_by_server.borrow_mut().push(frame.body[0]);
                rt.reply(peer, Frame::reply(&frame.header, Ok(frame.body), frame.bulk));
            }
        });
        sim.block_on(client, SECOND, |rt| async move { ask(&rt, 7, 1, &[0]).await }).unwrap().unwrap();
        sim.message_faults(
            MessageFaults { delay: 1_000_000, delay_ns: 50 * MILLISECOND, delay_max_ns: SECOND, ..MessageFaults::NONE },
            1000,
        );
        let first = sim.spawn_on(client, |rt| async move { ask(&rt, 7, 2, &[1]).await });
        sim.run_for(2000);
        sim.break_connections(client);
        sim.run_until_true(at(10 * SECOND), || first.is_over()).unwrap();
        if first.take().unwrap().is_err() {
            sim.block_on(client, 10 * SECOND, |rt| async move { ask(&rt, 7, 2, &[2]).await }).unwrap().unwrap();
            sim.run_for(10 * SECOND);
            overtaken += usize::from(*seen.borrow() == [0, 2, 1]);
        }
    }
    assert!(overtaken > 0, "the case must occur among 200 seeds");
}

/// One message of n bytes needs n / rate + latency each way once the connection stands; two senders
/// share the receiver's card.
#[test]
fn transfer_times_follow_the_closed_form() {
    let mut profile = Profile::ethernet_10g();
    profile.cpu.request_ns = 0;
    let net = profile.net.clone();
    let sim = Sim::new(1, profile);
    let (_, clients) = echo_cluster(&sim, 2);
    let elapsed = |nodes: &[weft_rt_sim::NodeId], sequence: u64| {
        let begin = sim.now();
        let flows: Vec<_> = nodes
            .iter()
            .map(|node| {
                let id = u64::from(node.0);
                sim.spawn_on(*node, move |rt| async move { ask_bulk(&rt, id, sequence, 4 << 20).await.unwrap() })
            })
            .collect();
        sim.run_until_true(at(u64::MAX), || flows.iter().all(|flow| flow.is_over())).unwrap();
        sim.now().since(begin)
    };
    elapsed(&clients, 1);
    let transfer = (HEADER + (4 << 20)) * SECOND / net.bytes_per_s;
    let alone = elapsed(&clients[..1], 2);
    assert_eq!(alone, 2 * (transfer + net.latency_ns + net.send_ns));
    // Both directions of the server's card carry two messages; the first reply overlaps with the
    // second request.
    let both = elapsed(&clients, 3);
    let expected = 3 * transfer + 2 * net.latency_ns + 2 * net.send_ns;
    assert!(both.abs_diff(expected) <= 2 * net.send_ns, "{both} instead of {expected}");
}

/// A server with one core answers exactly 1 / cost requests a second when it is saturated.
#[test]
fn a_saturated_server_is_limited_by_its_core() {
    let profile = Profile::ethernet_10g();
    let cost = profile.cpu.request_ns;
    let sim = Sim::new(1, profile);
    let (_, clients) = echo_cluster(&sim, 4);
    for (index, node) in clients.iter().enumerate() {
        for window in 0..16u64 {
            let client = 1 + index as u64 * 16 + window;
            sim.spawn_on(*node, move |rt| async move {
                for sequence in 1.. {
                    ask(&rt, client, sequence, b"").await.unwrap();
                }
            });
        }
    }
    sim.run_until(at(100 * MILLISECOND));
    let answered = sim.usage(sim.node_of(SERVER).unwrap()).runtime.sent_messages;
    let expected = 100 * MILLISECOND / cost;
    assert!(answered.abs_diff(expected) < expected / 100, "{answered} instead of {expected}");
}

#[test]
fn two_identities_of_one_process_have_connections_of_their_own() {
    let sim = Sim::new(1, Profile::instant());
    let (server, clients) = echo_cluster(&sim, 1);
    let connected = sim.block_on(clients[0], SECOND, |rt| async move {
        let (one, two) = (ask(&rt, 7, 1, b"").await, ask(&rt, 8, 1, b"").await);
        (one.unwrap().header.request.client, two.unwrap().header.request.client)
    });
    assert_eq!(connected.unwrap(), (ClientId(7), ClientId(8)));
    sim.strike(&Fault::Crash { node: server, down_ns: MILLISECOND });
    sim.run_for(SECOND);
    assert!(sim.is_running(server));
}
