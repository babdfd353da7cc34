//! Tasks, time, events and the ways to run a simulation.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use common::{at, sleep};
use weft_base::{MILLISECOND, SECOND};
use weft_rt::{Either, Runtime, ServerRuntime, Signal, Work, join_all, race};
use weft_rt_sim::{NodeConfig, NodeId, Profile, Sim, Why};

fn one_node(profile: Profile) -> (Sim, NodeId) {
    let sim = Sim::new(1, profile);
    let node = sim.add_node(NodeConfig::client("client0"));
    (sim, node)
}

#[test]
fn time_passes_only_in_sleep() {
    let (sim, node) = one_node(Profile::instant());
    let times = sim
        .block_on(node, SECOND, |rt| async move {
            let begin = rt.now();
            rt.sleep_until(at(0)).await;
            let still = rt.now();
            rt.sleep_until(at(7)).await;
            (begin, still, rt.now(), rt.wall())
        })
        .unwrap();
    assert_eq!((times.0, times.1, times.2), (at(0), at(0), at(7)));
    assert_eq!(times.3.parts(), (1_767_225_600, 7));
}

#[test]
fn sleepers_wake_in_order_of_time_then_of_planning() {
    let (sim, node) = one_node(Profile::instant());
    let woken = Rc::new(RefCell::new(Vec::new()));
    for (name, ns) in [("a", 5), ("b", 3), ("c", 5), ("d", 3), ("e", 4)] {
        let woken = Rc::clone(&woken);
        sim.spawn_on(node, |rt| async move {
            rt.sleep_until(at(ns)).await;
            woken.borrow_mut().push(name);
        });
    }
    sim.run_until_idle(at(SECOND)).unwrap();
    assert_eq!(*woken.borrow(), ["b", "d", "e", "a", "c"]);
    assert_eq!(sim.now(), at(5));
    assert_eq!(sim.tasks(), 0);
}

#[test]
fn events_wake_every_waiter_once() {
    let (sim, node) = one_node(Profile::instant());
    let event = Signal::new();
    let count = Rc::new(Cell::new(0));
    for _ in 0..10 {
        let (event, count) = (event.clone(), Rc::clone(&count));
        sim.spawn_on(node, |_| async move {
            event.wait().await;
            count.set(count.get() + 1);
        });
    }
    sim.run_until(at(10));
    assert_eq!(count.get(), 0);
    event.notify();
    sim.run_until(at(11));
    assert_eq!(count.get(), 10);
}

#[test]
fn what_happens_between_wait_and_poll_is_not_missed() {
    let (sim, node) = one_node(Profile::instant());
    let event = Signal::new();
    let waiting = event.wait();
    event.notify();
    sim.block_on(node, SECOND, |_| waiting).unwrap();
}

#[test]
fn join_all_takes_as_long_as_the_longest() {
    let (sim, node) = one_node(Profile::instant());
    let results = sim.block_on(node, SECOND, |rt| async move {
        let rt = &rt;
        let results = join_all((0..50u64).map(|index| async move {
            rt.sleep_until(at((50 - index) * MILLISECOND)).await;
            index
        }))
        .await;
        (results, rt.now())
    });
    assert_eq!(results.unwrap(), ((0..50).collect(), at(50 * MILLISECOND)));
}

#[test]
fn race_drops_the_loser_and_its_timer() {
    let (sim, node) = one_node(Profile::instant());
    let (winner, now) = sim
        .block_on(node, SECOND, |rt| async move {
            let winner = race(rt.sleep_until(at(5)), rt.sleep_until(at(500 * MILLISECOND))).await;
            (winner, rt.now())
        })
        .unwrap();
    assert_eq!((winner, now), (Either::First(()), at(5)));
    sim.run_until_idle(at(SECOND)).unwrap();
    assert_eq!(sim.now(), at(5), "the timer of the loser must not move time");
}

#[test]
fn ten_thousand_cancelled_timers_are_swept_out() {
    let (sim, node) = one_node(Profile::instant());
    sim.block_on(node, SECOND, |rt| async move {
        for _ in 0..10_000 {
            race(sleep(&rt, 10), sleep(&rt, SECOND)).await;
        }
    })
    .unwrap();
    sim.run_until_idle(at(2 * SECOND)).unwrap();
    assert_eq!(sim.now(), at(100_000));
}

#[test]
fn work_occupies_the_cores() {
    let mut profile = Profile::ethernet_10g();
    profile.cpu.request_ns = 1000;
    let sim = Sim::new(1, profile);
    let node = sim.add_node(NodeConfig { cores: 2, ..NodeConfig::client("client0") });
    let ends = sim.block_on(node, SECOND, |rt| async move {
        let rt = &rt;
        join_all((0..5).map(|_| async move {
            rt.cpu(Work::Request).await;
            rt.now().0
        }))
        .await
    });
    assert_eq!(ends.unwrap(), [1000, 1000, 2000, 2000, 3000]);
    assert_eq!(sim.usage(node).runtime.cpu_us, 5);
}

#[test]
fn free_work_does_not_wait() {
    let (sim, node) = one_node(Profile::instant());
    sim.block_on(node, SECOND, |rt| async move {
        rt.cpu(Work::Request).await;
        rt.cpu(Work::Checksum(1 << 30)).await;
        assert_eq!(rt.now(), at(0));
    })
    .unwrap();
}

#[test]
fn a_deadlock_is_reported() {
    let (sim, node) = one_node(Profile::instant());
    sim.keep_trace(10);
    let stuck = sim.block_on(node, SECOND, |_| async move { Signal::new().wait().await }).unwrap_err();
    assert_eq!(stuck.why, Why::Deadlock);
    assert!(stuck.to_string().contains("client0 flow 0: waits for arrivals or other flows"), "{stuck}");
}

#[test]
fn the_time_limit_is_reported_with_what_is_waited_for() {
    let (sim, node) = one_node(Profile::instant());
    let stuck = sim.block_on(node, SECOND, |rt| async move { rt.sleep_until(at(5 * SECOND)).await }).unwrap_err();
    assert_eq!((stuck.why, stuck.at), (Why::TimeLimit, at(SECOND)));
    assert!(stuck.to_string().contains("waits for time to pass"), "{stuck}");
}

#[test]
fn tasks_that_go_in_circles_are_reported() {
    let (sim, node) = one_node(Profile::instant());
    let stuck = sim.block_on(node, SECOND, |_| {
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            std::task::Poll::<()>::Pending
        })
    });
    assert_eq!(stuck.unwrap_err().why, Why::Circles);
}

#[test]
fn spawned_flows_run_beside_their_parent_and_die_with_the_process() {
    let (sim, node) = one_node(Profile::instant());
    let count = Rc::new(Cell::new(0));
    let counter = Rc::clone(&count);
    let parent = sim.spawn_on(node, |rt| async move {
        let inner = rt.clone();
        rt.spawn(async move {
            loop {
                counter.set(counter.get() + 1);
                sleep(&inner, MILLISECOND).await;
            }
        });
        sleep(&rt, SECOND).await;
    });
    sim.run_until(at(10 * MILLISECOND + 1));
    assert_eq!(count.get(), 11);
    sim.crash(node);
    assert_eq!(sim.tasks(), 0);
    assert!(parent.is_over());
    assert_eq!(parent.take(), None);
    assert_eq!(Rc::strong_count(&count), 1, "the flow and what it held are dropped");
    sim.run_until_idle(at(SECOND)).unwrap();
    assert_eq!(count.get(), 11);
}

#[test]
fn a_process_that_ends_its_main_flow_exits() {
    let (sim, node) = one_node(Profile::instant());
    sim.start(node, |rt| async move { sleep(&rt, 100).await });
    let other = sim.spawn_on(node, |rt| async move { sleep(&rt, SECOND).await });
    assert!(sim.is_running(node));
    sim.run_until(at(200));
    assert!(!sim.is_running(node));
    assert!(other.is_over());
    sim.restart(node);
    assert!(sim.is_running(node));
    sim.run_until(at(400));
    assert!(!sim.is_running(node));
}

#[test]
fn a_dropped_simulation_frees_everything() {
    let held = Rc::new(());
    {
        let (sim, node) = one_node(Profile::instant());
        let (in_flow, in_main, control) = (Rc::clone(&held), Rc::clone(&held), sim.control());
        sim.spawn_on(node, |rt| async move {
            sleep(&rt, SECOND).await;
            drop((in_flow, control));
        });
        sim.set_main(node, move |_| {
            let held = Rc::clone(&in_main);
            async move { drop(held) }
        });
        sim.run_until(at(5));
    }
    assert_eq!(Rc::strong_count(&held), 1);
}

#[test]
fn a_flow_inside_the_simulation_can_cause_faults() {
    let (sim, node) = one_node(Profile::instant());
    let victim = sim.add_node(NodeConfig::client("victim"));
    let doomed = sim.spawn_on(victim, |rt| async move { sleep(&rt, SECOND).await });
    let control = sim.control();
    let seen = sim.block_on(node, SECOND, |rt| async move {
        sleep(&rt, 100).await;
        control.crash(victim);
        // Its own process as well: the flow is dropped at its next wait.
        let result = doomed.await;
        (result, control.is_running(victim), rt.now())
    });
    assert_eq!(seen.unwrap(), (None, false, at(100)));
}
