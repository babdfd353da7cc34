//! How fast the simulator itself is, on the machine where it runs: simple waits, request round
//! trips, and journal-like disk writes per second of real time. Run it with
//! `cargo run --release -p weft-rt-sim --example speed`.

use std::time::Instant;

use bytes::Bytes;
use weft_base::{ClientId, Nanos, Payload, RequestId, SECOND, ServerId};
use weft_rt::{Arrival, Bulk, Disk, Outgoing, Runtime, ServerRuntime, Work};
use weft_rt_sim::{NodeConfig, Profile, Sim, SimRt};
use weft_wire::{Frame, Header, Op};

const ROUNDS: usize = 5;

fn main() {
    for tasks in [32u64, 4096] {
        measure(&format!("waits, {tasks} tasks"), 2_000_000, |total| waits(tasks, total));
    }
    for (name, profile) in [("instant", Profile::instant as fn() -> Profile), ("10 GbE", Profile::ethernet_10g)] {
        for clients in [1u64, 64] {
            measure(&format!("round trips, {name}, {clients} clients"), 400_000, |total| round_trips(profile(), clients, total, false));
        }
        measure(&format!("journalled round trips, {name}, 64 clients"), 400_000, |total| round_trips(profile(), 64, total, true));
    }
}

#[allow(clippy::disallowed_methods)] // a measurement of the simulator needs the real clock
fn measure(name: &str, total: u64, run: impl Fn(u64) -> u64) {
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            let done = run(total);
            done as f64 / begin.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("{name:48} {:>10.0}/s (median of {ROUNDS}, {:.0} to {:.0})", rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]);
}

fn waits(tasks: u64, total: u64) -> u64 {
    let sim = Sim::new(1, Profile::instant());
    let node = sim.add_node(NodeConfig::client("client0"));
    for task in 0..tasks {
        sim.spawn_on(node, move |rt| async move {
            for round in 0..total / tasks {
                rt.sleep_until(Nanos((round + 1) * 1000 + (task * 7919 + round * 104_729) % 997)).await;
            }
        });
    }
    sim.run_until_idle(Nanos::NEVER).expect("tasks that only sleep come to their end");
    total / tasks * tasks
}

async fn server(rt: SimRt, writes: bool) {
    let journal = rt.disk().open("journal", true).await.expect("the disk is empty");
    let (mut end, mut arrivals, mut replies) = (0, Vec::new(), Vec::new());
    loop {
        rt.receive(&mut arrivals).await;
        let mut record = 0;
        for arrival in arrivals.drain(..) {
            if let Arrival::Request { peer, frame } = arrival {
                rt.cpu(Work::Request).await;
                record += 100;
                replies.push((peer, Frame::reply(&frame.header, Ok(frame.body), frame.bulk)));
            }
        }
        if writes && record > 0 {
            rt.disk().write(journal, end, Payload::from(vec![1; record])).await.expect("the disk is large");
            end = (end + record as u64) % (1 << 20);
        }
        replies.drain(..).for_each(|(peer, reply)| rt.reply(peer, reply));
    }
}

fn round_trips(profile: Profile, clients: u64, total: u64, writes: bool) -> u64 {
    let sim = Sim::new(1, profile);
    let node = sim.add_node(NodeConfig::server(ServerId(0)));
    sim.start(node, move |rt| server(rt, writes));
    let flows: Vec<_> = (0..clients)
        .map(|index| {
            let node = sim.add_node(NodeConfig::client(format!("client{index}")));
            sim.spawn_on(node, move |rt| async move {
                for sequence in 1..=total / clients {
                    let request = RequestId { client: ClientId(index + 1), incarnation: 1, sequence };
                    let header = Header::request(Op::Ping, ServerId(0), request, 0);
                    let request = Outgoing { header, body: Bytes::from_static(&[7; 80]), bulk: Bulk::None };
                    rt.request(ServerId(0), request, rt.now() + 2 * SECOND).await.expect("there are no faults");
                }
            })
        })
        .collect();
    sim.run_until_true(Nanos::NEVER, || flows.iter().all(|flow| flow.is_over())).expect("all requests are answered");
    total / clients * clients
}
