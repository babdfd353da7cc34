//! What operations cost in messages, and what errors say.

use std::collections::BTreeMap;

use bytes::Bytes;
use weft_base::{Handle, Payload, ROOT_HANDLE, SECOND, ServerId, Status};
use weft_rt::{Bulk, Runtime};
use weft_wire::Rights;
use weft_wire::ops::{Family, Lock, LockKind, LockOutcome, Op, ServerInfo};

use super::world::{BOTH, Fate, META0, META1, ROOT, World, create};
use crate::{Client, CreateOptions, OpenFile};

#[test]
fn a_dead_server_is_an_error_with_its_name_at_the_deadline() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    world.fates(|_| Fate::Lost);
    let begin = world.now();
    let error = world.run(client.getattr(ROOT_HANDLE)).expect_err("nobody answers");
    assert_eq!(error.status, Status::TimedOut);
    assert!(error.explain(client.map()).starts_with("getattr of h0.1 at meta0 (sim:meta0): no answer before the deadline; is the"));
    assert!(world.now().since(begin) <= 30 * SECOND);
    assert!(world.now().since(begin) > 27 * SECOND, "it did try");

    world.fates(|_| Fate::NoConnection);
    let error = world.run(client.ping(META0)).expect_err("nobody is there");
    assert_eq!((error.status, error.server), (Status::Unreachable, Some(META0)));
}

#[test]
fn errors_of_the_operation_are_not_retried() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let error = world.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).expect_err("no such name");
    assert_eq!((error.status, world.take_sent().len()), (Status::NotFound, 1));
    let error = world.run(client.mkdir(&ROOT, ROOT_HANDLE, &[b'x'; 256], 0o755)).expect_err("too long");
    assert_eq!((error.status, world.take_sent().len()), (Status::NameTooLong, 0));
    let error = world.run(client.getattr(Handle::new(ServerId(9), 1))).expect_err("no such server");
    assert_eq!((error.status, world.take_sent().len()), (Status::Stale, 1), "the map is asked for");
}

#[test]
fn df_names_the_server_that_does_not_answer() {
    let world = World::new(2, 3, 1 << 20);
    let client = world.client(1);
    let file = create(&world, &client, "file");
    world.run(client.write(&file, 0, Bulk::Slices(vec![&[7; 3 << 20]]))).expect("it is written");
    let infos: BTreeMap<_, _> = world.run(client.ping_all()).into_iter().map(|(id, info)| (id, info.expect("it answers"))).collect();
    world.fates(|sent| if sent.server == ServerId::data(1) { Fate::NoConnection } else { Fate::Arrives });
    let stats = world.run(client.statfs()).expect("the others answer");
    let data = [0, 2].map(|number| infos[&ServerId::data(number)].clone());
    let sum = |bytes: fn(&ServerInfo) -> u64| data.iter().map(bytes).sum::<u64>();
    assert!(stats.capacity_bytes > 0 && stats.used_bytes > 0 && stats.inodes > 0);
    assert_eq!((stats.capacity_bytes, stats.used_bytes), (sum(|info| info.capacity_bytes), sum(|info| info.used_bytes)));
    assert_eq!(stats.free_bytes, sum(|info| info.free_bytes));
    assert_eq!(stats.inodes, infos[&META0].objects + infos[&META1].objects);
    assert_eq!(stats.unanswered.iter().map(|error| error.server).collect::<Vec<_>>(), [Some(ServerId::data(1))]);
}

#[test]
fn a_small_file_is_three_messages_to_write_and_three_to_read() {
    let world = World::new(1, 4, 1 << 20);
    let client = world.client(1);
    let data = [7; 3901];
    let names: Vec<String> = (0..64).map(|number| format!("f{number}")).collect();
    for name in &names {
        let file = create(&world, &client, name);
        world.run(client.write(&file, 0, Bulk::Slices(vec![&data]))).expect("it is written");
        world.run(client.close(file)).expect("the server notes it");
        let ops: Vec<_> = world.take_sent().into_iter().map(|(_, op)| op).collect();
        assert_eq!(ops, [Op::Create, Op::Write, Op::Close], "{name}");
    }
    // Nothing is known to a new client.
    let reader = world.client(2);
    let attr = world.run(reader.lookup(&ROOT, ROOT_HANDLE, b"f0")).expect("it is there");
    world.take_sent();
    let (_, file) = world.run(reader.open(&ROOT, attr.handle, Rights::READ, false)).expect("it may be read");
    let read = world.run(reader.read(&file, 0, data.len() as u64)).expect("its server answers");
    assert_eq!(read.iter().map(Payload::len).sum::<u64>(), data.len() as u64);
    world.run(reader.close(file)).expect("the server notes it");
    let ops: Vec<_> = world.take_sent().into_iter().map(|(_, op)| op).collect();
    assert_eq!(ops, [Op::Open, Op::Read, Op::Close]);
    let files: Vec<_> = names.iter().map(|name| (ROOT_HANDLE, Bytes::from(name.clone()))).collect();
    let read = world.run(reader.read_many(&ROOT, &files));
    assert!(read.iter().all(|file| file.as_ref().is_ok_and(|file| file.data.to_bytes() == data[..])));
    let sent = world.take_sent();
    let lookups = sent.iter().filter(|(_, op)| *op == Op::LookupMany).count();
    let reads = sent.iter().filter(|(_, op)| *op == Op::ReadMany).count();
    assert_eq!((lookups, reads, sent.len()), (1, 4, 5), "one for the names, one for each data server: {sent:?}");
}

#[test]
fn a_create_is_one_request_and_so_is_a_close() {
    let world = World::new(2, 4, 1 << 20);
    let client = world.client(1);
    let options = CreateOptions::default();
    let (attr, file, created) = world.run(client.create(&ROOT, ROOT_HANDLE, b"a", &options)).expect("the server makes it");
    assert!(created);
    assert_eq!(attr.handle, file.handle());
    assert_eq!(world.take_sent(), [(META0, Op::Create)]);
    world.run(client.close(file)).expect("the server notes it");
    assert_eq!(world.take_sent(), [(META0, Op::Close)]);
    assert!(world.is_closed(ROOT_HANDLE, "a"));
}

/// Threads share a client (its caller of `weft-call` with it) and its files, whatever the runtime,
/// if they may share that. Compiling it is the test.
#[allow(dead_code)]
fn threads_share_a_client_and_its_files<R: Runtime + Send + Sync>() {
    fn shared<T: Send + Sync>() {}
    shared::<Client<R>>();
    shared::<OpenFile>();
}

#[test]
fn several_calls_share_the_deadline_of_one_operation() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let begin = world.now();
    let one = client.for_one_operation();
    let mut times = 0;
    world.fates(move |_| {
        times += 1;
        if times <= 2 { Fate::Lost } else { Fate::Arrives }
    });
    world.run(one.getattr(ROOT_HANDLE)).expect("it answers in time");
    world.fates(|_| Fate::Lost);
    world.run(one.getattr(ROOT_HANDLE)).expect_err("nobody answers");
    assert!(world.now().since(begin) <= 30 * SECOND, "{} ns", world.now().since(begin));
    let again = world.now();
    world.run(client.getattr(ROOT_HANDLE)).expect_err("nobody answers");
    assert!(world.now().since(again) > 20 * SECOND, "the next operation has its own");
}

/// A server that has restarted waits for those who had files open for writing, and these may have
/// nothing open by now.
#[test]
fn who_has_closed_what_it_wrote_keeps_nobody_from_locks_after_a_restart() {
    let world = World::new(1, 1, 1 << 20);
    let (writer, other) = (world.client(1), world.client(2));
    let file = create(&world, &writer, "file");
    let handle = file.handle();
    world.run(writer.close(file)).expect("it is closed");
    let (_, file) = world.run(other.open(&ROOT, handle, BOTH, false)).expect("it opens");
    world.restart(META0);
    let begin = world.now();
    world.run(writer.getattr(ROOT_HANDLE)).expect("it answers");
    let lock = Lock { family: Family::Flock, owner: 1, kind: LockKind::Exclusive, start: 0, end: u64::MAX, process: 1, file: 1 };
    let reply = world.run(other.lock(file.handle(), lock, None)).expect("all have told what they have");
    assert_eq!(reply.outcome, LockOutcome::Granted);
    assert!(world.now().since(begin) < SECOND, "{} ns", world.now().since(begin));
}
