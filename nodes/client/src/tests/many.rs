//! Many files read in few messages: how many, and what is exact.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, ROOT_HANDLE, ServerId, Status};
use weft_call::both;
use weft_rt::{Bulk, Runtime};
use weft_wire::{Op, Request};

use super::world::{Fate, LATENCY, LIFETIME, META0, META1, ROOT, TestRt, World, create};
use crate::{Client, CreateOptions, OpenFile, Result, SetAttr, WholeFile};

/// A file with these bytes, made by another client.
fn put(world: &World, dir: Handle, name: &str, data: &[u8]) -> Handle {
    let options = CreateOptions::default();
    world.run(async {
        let (attr, file, _) = world.hand.create(&ROOT, dir, name.as_bytes(), &options).await.expect("a new name");
        write(&world.hand, &file, 0, data).await;
        world.hand.close(file).await.expect("it closes");
        attr.handle
    })
}

async fn write(client: &Client<TestRt>, file: &Arc<OpenFile>, offset: u64, data: &[u8]) {
    client.write(file, offset, Bulk::Slices(vec![data])).await.expect("it is written");
}

fn named(dir: Handle, names: &[&str]) -> Vec<(Handle, Bytes)> {
    names.iter().map(|name| (dir, Bytes::copy_from_slice(name.as_bytes()))).collect()
}

fn plain(results: Vec<Result<WholeFile>>) -> Vec<std::result::Result<Bytes, Status>> {
    results.into_iter().map(|result| result.map(|file| file.data.to_bytes()).map_err(|error| error.status)).collect()
}

fn read(world: &World, client: &Client<TestRt>, files: &[(Handle, Bytes)]) -> Vec<std::result::Result<Bytes, Status>> {
    plain(world.run(client.read_many(&ROOT, files)))
}

/// Messages by operation.
fn counted(sent: Vec<(ServerId, Op)>) -> BTreeMap<Op, usize> {
    let mut counts = BTreeMap::new();
    sent.into_iter().for_each(|(_, op)| *counts.entry(op).or_default() += 1);
    counts
}

#[test]
fn a_list_of_files_is_a_message_for_each_server() {
    let world = World::new(2, 4, 1 << 20);
    let client = world.client(1);
    let far = world.add(ROOT_HANDLE, "far", 1, FileKind::Directory, "");
    let data: Vec<Vec<u8>> = (0..256usize).map(|i| vec![i as u8; 100 + 37 * i]).collect();
    let name = |i: usize| format!("{i}");
    let mut files = Vec::new();
    for (i, data) in data.iter().enumerate() {
        let dir = if i % 2 == 0 { ROOT_HANDLE } else { far };
        put(&world, dir, &name(i), data);
        files.push((dir, Bytes::from(name(i))));
    }
    assert_eq!((ROOT_HANDLE.server(), far.server()), (META0, META1));
    // In an order of their own, one of them twice.
    files.sort_by_key(|(_, name)| name.iter().rev().copied().collect::<Vec<u8>>());
    files.push(files[17].clone());
    let results = read(&world, &client, &files);
    for ((_, name), result) in files.iter().zip(results) {
        let number: usize = std::str::from_utf8(name).expect("a number").parse().expect("a number");
        assert_eq!(result.expect("it is there"), data[number]);
    }
    let sent = world.take_sent();
    assert_eq!(counted(sent.clone()), BTreeMap::from([(Op::LookupMany, 2), (Op::ReadMany, 4)]));
    let servers: std::collections::BTreeSet<ServerId> = sent.into_iter().map(|(server, _)| server).collect();
    assert_eq!(servers.len(), 6, "each server once");

    // One directory: its names are with one server.
    let one: Vec<_> = files.into_iter().filter(|(dir, _)| *dir == ROOT_HANDLE).collect();
    assert!(read(&world, &client, &one).iter().all(|result| result.is_ok()));
    assert_eq!(counted(world.take_sent()), BTreeMap::from([(Op::LookupMany, 1), (Op::ReadMany, 4)]));
    assert!(read(&world, &client, &[]).is_empty() && world.take_sent().is_empty());
}

#[test]
fn each_file_has_its_own_result() {
    let world = World::new(2, 3, 4096);
    let client = world.client(1);
    put(&world, ROOT_HANDLE, "small", b"some bytes");
    let long: Vec<u8> = (0..50_000u32).map(|i| (i / 7) as u8).collect();
    put(&world, ROOT_HANDLE, "striped", &long);
    put(&world, ROOT_HANDLE, "empty", b"");
    let secret = put(&world, ROOT_HANDLE, "secret", b"for its owner");
    world.run(world.hand.setattr(&ROOT, secret, &SetAttr { mode: Some(0o600), ..SetAttr::default() })).expect("its mode is set");
    let sparse = put(&world, ROOT_HANDLE, "sparse", b"x");
    world.run(world.hand.setattr(&ROOT, sparse, &SetAttr { size: Some(9000), ..SetAttr::default() })).expect("it is extended");
    world.add(ROOT_HANDLE, "dir", 0, FileKind::Directory, "");
    world.add(ROOT_HANDLE, "link", 0, FileKind::Symlink, "small");
    world.add(ROOT_HANDLE, "pipe", 0, FileKind::Fifo, "");
    world.add(ROOT_HANDLE, "elsewhere", 1, FileKind::File, "");
    let names = ["small", "no", "striped", "dir", "link", "pipe", "empty", "secret", "sparse", "elsewhere", "a/b", ".."];
    let user = Credentials { uid: 7, gid: 7, groups: Vec::new(), checked_by_kernel: false };
    let mut files = named(ROOT_HANDLE, &names);
    files.push((secret, Bytes::from_static(b"x")));
    let results = plain(world.run(client.read_many(&user, &files)));
    let mut zeros = vec![0; 9000];
    zeros[0] = b'x';
    let expected = [
        Ok(Bytes::from_static(b"some bytes")),
        Err(Status::NotFound),
        Ok(long.into()),
        Err(Status::IsDirectory),
        Err(Status::TooManySymlinks),
        Err(Status::Invalid),
        Ok(Bytes::new()),
        Err(Status::AccessDenied),
        Ok(zeros.into()),
        Ok(Bytes::new()),
        Err(Status::Invalid),
        Err(Status::Invalid),
        Err(Status::NotDirectory),
    ];
    assert_eq!(results, expected);
}

#[test]
fn a_file_that_others_write_is_exact() {
    let world = World::new(1, 2, 1 << 20);
    let (reader, writer) = (world.client(1), world.client(2));
    for name in ["a", "b", "c"] {
        put(&world, ROOT_HANDLE, name, b"old");
    }
    let files = named(ROOT_HANDLE, &["a", "b", "c"]);
    let handle = world.run(writer.lookup(&ROOT, ROOT_HANDLE, b"b")).expect("it is there").handle;
    let (_, file) = world.run(writer.open(&ROOT, handle, super::world::BOTH, false)).expect("it opens");
    world.run(write(&writer, &file, 3, b" and new"));
    let expected = [Ok(Bytes::from("old")), Ok(Bytes::from("old and new")), Ok(Bytes::from("old"))];
    world.take_sent();
    assert_eq!(read(&world, &reader, &files), expected);
    let counts = counted(world.take_sent());
    assert_eq!((counts[&Op::LookupMany], counts[&Op::Open]), (1, 1), "only that file is read alone: {counts:?}");
    // Its writer knows what it has written.
    assert_eq!(read(&world, &writer, &files), expected);
    world.run(writer.close(file)).expect("it closes");
    world.take_sent();
    assert_eq!(read(&world, &reader, &files), expected);
    assert!(!counted(world.take_sent()).contains_key(&Op::Open));
}

/// Does something when the first read of data is on its way.
fn between(
    world: &World,
    client: &Client<TestRt>,
    files: &[(Handle, Bytes)],
    change: impl Future<Output = ()>,
) -> Vec<std::result::Result<Bytes, Status>> {
    let waits = Rc::new(Cell::new(true));
    world.fates(move |sent| {
        let is_late = matches!(sent.request, Request::ReadMany(_)) && waits.take();
        if is_late { Fate::Late(1000 * LATENCY) } else { Fate::Arrives }
    });
    let changed = async {
        world.sleep_until(world.now() + 100 * LATENCY).await;
        change.await;
    };
    let (results, ()) = world.run(both(client.read_many(&ROOT, files), changed));
    world.no_faults();
    plain(results)
}

#[test]
fn promise_read_many() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let files = named(ROOT_HANDLE, &["a", "b", "c"]);
    let fresh = || {
        for name in ["a", "b", "c", "d"] {
            let _ = world.run(world.hand.unlink(&ROOT, ROOT_HANDLE, name.as_bytes()));
            put(&world, ROOT_HANDLE, name, name.repeat(5).as_bytes());
        }
    };
    let (a, c) = (Ok(Bytes::from("aaaaa")), Ok(Bytes::from("ccccc")));
    let hand = &world.hand;

    fresh();
    let removed = async { hand.unlink(&ROOT, ROOT_HANDLE, b"b").await.expect("the name goes") };
    // As long as its datafile lasts it is as it was.
    let results = between(&world, &client, &files, removed);
    assert!(results[1] == Err(Status::NotFound) || results[1] == Ok(Bytes::from("bbbbb")), "{results:?}");
    assert_eq!((&results[0], &results[2]), (&a, &c));

    fresh();
    let replaced = async { hand.rename(&ROOT, ROOT_HANDLE, b"d", ROOT_HANDLE, b"b", Default::default()).await.expect("it is renamed") };
    let results = between(&world, &client, &files, replaced);
    assert!([Ok(Bytes::from("ddddd")), Ok(Bytes::from("bbbbb"))].contains(&results[1]), "{results:?}");
    assert_eq!((&results[0], &results[2]), (&a, &c));

    for (size, expected) in [(2, Ok(Bytes::from("bb"))), (7, Ok(Bytes::from("bbbbb")))] {
        fresh();
        let handle = world.run(hand.lookup(&ROOT, ROOT_HANDLE, b"b")).expect("it is there").handle;
        let resized = async {
            let resized = hand.setattr(&ROOT, handle, &SetAttr { size: Some(size), ..SetAttr::default() }).await;
            assert_eq!(resized.expect("it is resized").size, size);
        };
        let results = between(&world, &client, &files, resized);
        assert_eq!(results, [a.clone(), expected, c.clone()]);
    }

    fresh();
    let longer = async {
        let handle = hand.lookup(&ROOT, ROOT_HANDLE, b"b").await.expect("it is there").handle;
        let (_, file) = hand.open(&ROOT, handle, super::world::BOTH, true).await.expect("it opens");
        write(hand, &file, 0, b"another text").await;
        hand.close(file).await.expect("it closes");
    };
    let results = between(&world, &client, &files, longer);
    assert_eq!(results, [a, Ok(Bytes::from("another text")), c], "never the first bytes of another text");
}

#[test]
fn what_a_server_refuses_is_read_alone_and_what_makes_no_sense_is_an_error() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    put(&world, ROOT_HANDLE, "a", b"data");
    let files = named(ROOT_HANDLE, &["a", "a"]);
    // Late enough for the capability to end.
    world.fates(|sent| if sent.request.op() == Op::ReadMany { Fate::Late(LIFETIME) } else { Fate::Arrives });
    assert_eq!(read(&world, &client, &files), [Err(Status::TimedOut), Err(Status::TimedOut)]);
    for op in [Op::LookupMany, Op::ReadMany] {
        let empty = Bytes::from_static(&[0; 4]);
        world.fates(move |sent| if sent.request.op() == op { Fate::Answered(Ok(empty.clone())) } else { Fate::Arrives });
        assert_eq!(read(&world, &client, &files), [Err(Status::BadMessage), Err(Status::BadMessage)], "{op:?}");
    }
    world.no_faults();
    assert_eq!(read(&world, &client, &files), [Ok(Bytes::from("data")), Ok(Bytes::from("data"))]);
}

#[test]
fn lists_beyond_the_limits_are_cut() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let data = vec![7; 1 << 20];
    for name in ["a", "b", "c"] {
        put(&world, ROOT_HANDLE, name, &data);
    }
    put(&world, ROOT_HANDLE, "longer", &[&data[..], b"x"].concat());
    let mut files = Vec::new();
    (0..7).for_each(|_| files.extend(named(ROOT_HANDLE, &["a", "b", "c"])));
    files.extend(named(ROOT_HANDLE, &["longer"]));
    let results = read(&world, &client, &files);
    assert_eq!(
        results.iter().map(|result| result.as_ref().map_or(0, Bytes::len)).collect::<Vec<_>>(),
        [vec![1 << 20; 21], vec![(1 << 20) + 1]].concat()
    );
    let counts = counted(world.take_sent());
    assert_eq!((counts[&Op::ReadMany], counts[&Op::Open]), (3, 1), "8 MiB at a time, and the long one alone");
    put(&world, ROOT_HANDLE, "tiny", b"t");
    let many: Vec<_> = (0..2500).map(|_| (ROOT_HANDLE, Bytes::from_static(b"tiny"))).collect();
    assert!(read(&world, &client, &many).iter().all(|result| *result == Ok(Bytes::from("t"))));
    assert_eq!(counted(world.take_sent()), BTreeMap::from([(Op::LookupMany, 3), (Op::ReadMany, 3)]));
}

#[test]
fn paths_are_walked_once_for_each_directory() {
    let world = World::new(2, 2, 1 << 20);
    let client = world.client(1);
    let sub = world.add(ROOT_HANDLE, "sub", 1, FileKind::Directory, "");
    let top = put(&world, ROOT_HANDLE, "top", b"at the top");
    assert_ne!(top, Handle(0));
    for i in 0..20 {
        put(&world, sub, &format!("{i}"), format!("file {i}").as_bytes());
    }
    world.add(sub, "up", 1, FileKind::Symlink, "../top");
    world.add(sub, "round", 1, FileKind::Symlink, "round");
    let mut paths: Vec<Bytes> = (0..20).map(|i| Bytes::from(format!("/sub/{i}"))).collect();
    let others = ["top", "/sub/up", "/sub/round", "/no/file", "/top/file", "/sub/", "/sub/..", "//sub//3"];
    paths.extend(others.iter().map(|path| Bytes::from_static(path.as_bytes())));
    let results = plain(world.run(client.read_paths(&ROOT, &paths)));
    for (i, result) in results[..20].iter().enumerate() {
        assert_eq!(*result, Ok(Bytes::from(format!("file {i}"))));
    }
    let expected = [
        Ok(Bytes::from("at the top")),
        Ok(Bytes::from("at the top")),
        Err(Status::TooManySymlinks),
        Err(Status::NotFound),
        Err(Status::NotDirectory),
        Err(Status::IsDirectory),
        Err(Status::IsDirectory),
        Ok(Bytes::from("file 3")),
    ];
    assert_eq!(results[20..], expected);
    let file = create(&world, &client, "mine");
    world.run(write(&client, &file, 0, b"not closed"));
    let mine = world.run(client.read_paths(&ROOT, &[Bytes::from_static(b"mine")]));
    assert_eq!(plain(mine), [Ok(Bytes::from("not closed"))]);
}
