//! Servers that restart, and connections that break: what is open is told again.

use weft_base::{ClientId, ROOT_HANDLE, SECOND};
use weft_call::both;
use weft_rt::Runtime;
use weft_wire::ops::Op;
use weft_wire::{Flags, Request};

use crate::tests::world::{BOTH, Fate, LATENCY, META0, ROOT, World, create};
use crate::{ClientOptions, CreateOptions};

#[test]
fn a_restarted_server_is_told_what_is_open() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let file = create(&world, &client, "a");
    world.restart(META0);
    world.take_sent();
    world.run(client.getattr(ROOT_HANDLE)).expect("the server answers");
    let sent = world.take_messages();
    assert_eq!(sent.iter().map(|sent| sent.request.op()).collect::<Vec<_>>(), [Op::GetAttr, Op::Reclaim]);
    let Request::Reclaim(told) = &sent[1].request else { unreachable!("just seen") };
    assert_eq!(
        told.opens.iter().map(|open| (open.handle, open.rights, open.open_sequence)).collect::<Vec<_>>(),
        [(file.handle(), BOTH, 1)]
    );
    world.grace_is_over();
    assert!(world.is_written(file.handle()));
    // An idle process notices it by keeping alive.
    world.restart(META0);
    world.run(client.keep_alive());
    assert_eq!(world.take_sent(), [(META0, Op::Ping), (META0, Op::Reclaim)]);
    world.grace_is_over();
    assert!(world.is_written(file.handle()));
    world.run(client.close(file)).expect("it closes");
    // Whoever may have had something open is waited for, so it says that there is nothing.
    world.take_sent();
    world.restart(META0);
    world.run(client.getattr(ROOT_HANDLE)).expect("the server answers");
    let sent = world.take_messages();
    assert_eq!(sent.iter().map(|sent| sent.request.op()).collect::<Vec<_>>(), [Op::GetAttr, Op::Reclaim]);
    assert!(matches!(&sent[1].request, Request::Reclaim(told) if told.opens.is_empty() && told.goes_on.is_none()));
}

/// A server that has restarted waits for it before it gives locks to others.
#[test]
fn who_has_closed_what_it_wrote_and_asks_for_nothing_tells_so_by_itself() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let file = create(&world, &client, "a");
    world.run(client.close(file)).expect("it closes");
    for _ in 0..2 {
        world.restart(META0);
        world.take_sent();
        world.run(client.keep_alive());
        assert_eq!(world.take_sent(), [(META0, Op::Ping), (META0, Op::Reclaim)]);
    }
    // A while later no server waits for it.
    let asks = |after: u64| {
        world.run(world.sleep_until(world.now() + after));
        world.run(client.keep_alive());
        world.take_sent().len()
    };
    assert_eq!((asks(5 * SECOND), asks(80 * SECOND), asks(10 * SECOND), asks(5 * SECOND)), (1, 1, 0, 0));
}

#[test]
fn an_open_that_a_restart_made_the_server_forget_is_done_again() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    world.run(client.getattr(ROOT_HANDLE)).expect("the client knows the server");
    let mut restart = Some(world.restarter(META0));
    world.fates(move |sent| {
        // The create is executed, and the server restarts before it can answer. The retry is
        // answered from the reply table.
        let retry = sent.header.flags.contains(Flags::RETRY);
        if sent.request.op() == Op::Create
            && retry
            && let Some(restart) = restart.take()
        {
            restart();
        }
        if sent.request.op() == Op::Create && !retry { Fate::ReplyLost } else { Fate::Arrives }
    });
    let options = CreateOptions { exclusive: true, ..CreateOptions::default() };
    let (_, file, created) = world.run(client.create(&ROOT, ROOT_HANDLE, b"a", &options)).expect("the server made it");
    assert!(created);
    let ops: Vec<Op> = world.take_sent().into_iter().map(|(_, op)| op).collect();
    // The connection broke under the second attempt, and until the grace is over others may write.
    assert_eq!(ops, [Op::GetAttr, Op::Create, Op::Create, Op::Create, Op::Reclaim, Op::Open, Op::ObjectStat]);
    world.grace_is_over();
    assert!(world.is_written(file.handle()));
}

#[test]
fn a_close_that_overtakes_the_message_after_a_restart_is_repeated() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let (file, other) = (create(&world, &client, "a"), create(&world, &client, "b"));
    world.restart(META0);
    world.fates(|sent| if sent.request.op() == Op::Reclaim { Fate::Late(20 * LATENCY) } else { Fate::Arrives });
    let close_soon = async {
        world.sleep_until(world.now() + 4 * LATENCY).await;
        client.close(file).await
    };
    let (attr, closed) = world.run(both(client.getattr(ROOT_HANDLE), close_soon));
    attr.expect("the server answers");
    closed.expect("it closes");
    world.grace_is_over();
    assert!(world.is_written(other.handle()));
    assert!(world.is_closed(ROOT_HANDLE, "a") && !world.is_closed(ROOT_HANDLE, "b"));
}

#[test]
fn after_a_broken_connection_the_server_is_told_as_well() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let file = create(&world, &client, "a");
    world.take_sent();
    let mut times = 0;
    world.fates(move |_| {
        times += 1;
        if times == 1 { Fate::NoConnection } else { Fate::Arrives }
    });
    world.run(client.getattr(ROOT_HANDLE)).expect("the server answers");
    assert_eq!(world.take_sent(), [(META0, Op::GetAttr), (META0, Op::GetAttr), (META0, Op::Reclaim)]);
    world.run(client.close(file)).expect("it closes");
}

#[test]
fn telling_a_restarted_server_what_is_open_takes_no_longer_than_the_operation() {
    let world = World::new(1, 1, 1 << 20);
    let options = ClientOptions { deadline_ns: 4 * SECOND, ..ClientOptions::new(ClientId(1), 1) };
    let client = world.client_with(options);
    let (_, file, _) = world.run(client.create(&ROOT, ROOT_HANDLE, b"file", &CreateOptions::default())).expect("it is made");
    world.restart(META0);
    let begin = world.now();
    let mut times = 0;
    world.fates(move |sent| {
        times += 1;
        let is_lost = times == 1 || sent.request.op() == Op::Reclaim;
        if is_lost { Fate::Lost } else { Fate::Arrives }
    });
    world.run(client.getattr(ROOT_HANDLE)).expect("it answers in time");
    assert!(world.now().since(begin) <= 4 * SECOND, "{} ns", world.now().since(begin));
    // It is told with the next answer.
    world.no_faults();
    world.grace_is_over();
    assert!(!world.is_written(file.handle()));
    world.run(client.getattr(ROOT_HANDLE)).expect("it answers");
    assert!(world.is_written(file.handle()));
}
