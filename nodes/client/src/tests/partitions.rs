//! Directories whose names are spread over servers: what is asked of whom. Maps that change, which
//! no server makes yet, are played with what a test gives them.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{FileKind, Handle, ROOT_HANDLE, ServerId, Status};
use weft_call::run_window;
use weft_rt::Runtime;
use weft_wire::ops::{DirEntry, FileState, LookupReply, Op, Partition, PartitionMap, ReadDirReply};
use weft_wire::{Request, Wire};

use super::world::{Fate, META0, META1, ROOT, Sent, World};
use crate::{Client, SetAttr, XattrFlags};

/// A name and its hash.
type Name = (String, u64);

fn map(epoch: u32, ranges: &[(u64, ServerId)]) -> PartitionMap {
    PartitionMap::new(epoch, ranges.iter().map(|(first, server)| Partition { first: *first, server: *server }).collect()).unwrap()
}

/// What a server says of names in the root directory if this is its map. All lead to one file.
fn answer(sent: &Sent, map: &PartitionMap, names: &[Name], root: &FileState, file: &FileState) -> Fate {
    let handle = file.attr.handle;
    let refused = |hash| (map.server(hash) != sent.server).then_some(Status::StaleMap);
    let says = |reply: &dyn Fn() -> Bytes, hash| Fate::Answered(refused(hash).map_or_else(|| Ok(reply()), Err));
    match &sent.request {
        Request::GetAttr(request) if request.handle == ROOT_HANDLE => {
            Fate::Answered(Ok(FileState { partitions: Some(map.clone()), ..root.clone() }.to_bytes()))
        }
        Request::Lookup(request) => {
            let (_, hash) = names.iter().find(|(name, _)| name.as_bytes() == request.name).expect("tests ask for what there is");
            says(&|| LookupReply { handle, kind: FileKind::File, state: Some(file.clone()) }.to_bytes(), *hash)
        }
        Request::ReadDir(request) => {
            let last = map.last_of_range(request.cookie + 1);
            let here = names.iter().filter(|(_, hash)| *hash > request.cookie && *hash <= last);
            let entry = |(name, hash): &Name| DirEntry {
                name: Bytes::from(name.clone()),
                handle,
                kind: FileKind::File,
                cookie: *hash,
                state: None,
            };
            let mut entries: Vec<DirEntry> = here.map(entry).collect();
            entries.sort_by_key(|entry| entry.cookie);
            let page = request.bytes_max as usize / 100;
            let until = if entries.len() <= page { last } else { entries[page - 1].cookie };
            entries.truncate(page);
            says(&|| ReadDirReply { entries: entries.clone(), until, parent: ROOT_HANDLE }.to_bytes(), request.cookie + 1)
        }
        _ => Fate::Arrives,
    }
}

#[test]
fn a_server_corrects_a_client_that_has_an_old_partition_map() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let file = world.add(ROOT_HANDLE, "x", 0, FileKind::File, "");
    let (root, file) = world.run(async { (world.state(ROOT_HANDLE).await.expect("always"), world.state(file).await.expect("just made")) });
    let key = world.run(world.hand.name_key(world.hand.flow("ask", ROOT_HANDLE), META0)).expect("the server answers");
    let names: Vec<Name> =
        (0..40).map(|i| format!("n{i}")).chain(["x".into()]).map(|name| (name.clone(), key.hash(name.as_bytes()))).collect();
    let now = Rc::new(RefCell::new(map(2, &[(0, META1)])));
    let (servers, played) = (now.clone(), names.clone());
    world.fates(move |sent| answer(sent, &servers.borrow(), &played, &root, &file));

    world.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).expect("found where the map says");
    assert_eq!(world.take_sent(), [(META0, Op::Lookup), (META0, Op::GetAttr), (META1, Op::Lookup)]);
    world.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).expect("found at once");
    assert_eq!(world.take_sent(), [(META1, Op::Lookup)]);

    // The directory is split: half of the names of one server, a quarter of the other, in turns.
    let ranges = [(0, META1), (1 << 61, META0), (1 << 62, META1), (3 << 61, META0)];
    *now.borrow_mut() = map(3, &ranges);
    for (name, _) in &names {
        world.run(client.lookup(&ROOT, ROOT_HANDLE, name.as_bytes())).expect("found where the map says");
    }
    assert_eq!(world.take_sent().iter().filter(|sent| **sent == (META0, Op::GetAttr)).count(), 1, "one refusal, and the map is known");
    for (name, _) in &names {
        world.run(client.lookup(&ROOT, ROOT_HANDLE, name.as_bytes())).expect("found at once");
    }
    let expected = names.iter().map(|(_, hash)| (map(3, &ranges).server(*hash), Op::Lookup));
    assert_eq!(world.take_sent(), expected.collect::<Vec<_>>());

    let (mut listed, mut cookie) = (Vec::new(), 0);
    loop {
        let page = world.run(client.readdir(&ROOT, ROOT_HANDLE, cookie, 300, false)).expect("a page");
        assert!(page.end || !page.entries.is_empty(), "an empty range is not the end, and no page is empty for it");
        listed.extend(page.entries.iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()));
        match page.entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => break,
        }
    }
    let mut in_order = names;
    in_order.sort_by_key(|(_, hash)| *hash);
    assert_eq!(
        listed,
        in_order.into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "ranges follow each other in the order of a listing"
    );
}

/// A directory of three servers, in one that `client` has given the hint.
fn split_directory<R: Runtime>(world: &World, client: &Client<R>) -> Handle {
    let flags = XattrFlags { create_only: false, replace_only: false };
    world.run(client.set_xattr(&ROOT, ROOT_HANDLE, b"user.weft.presplit", b"3", flags)).expect("a hint");
    let dir = world.run(client.mkdir(&ROOT, ROOT_HANDLE, b"split", 0o755)).expect("mkdir").handle;
    world.take_sent();
    dir
}

fn all_of(op: Op) -> Vec<(ServerId, Op)> {
    (0..3).map(|server| (ServerId(server), op)).collect()
}

#[test]
fn many_that_begin_in_a_split_directory_ask_for_its_key_once() {
    let world = World::new(3, 1, 1 << 20);
    let (client, other) = (world.client(1), world.client(2));
    let dir = split_directory(&world, &client);
    world.run(other.lookup(&ROOT, ROOT_HANDLE, b"split")).expect("it is there");
    world.take_sent();
    let names: Vec<String> = (0..16).map(|number| format!("n{number}")).collect();
    let made = names.iter().map(|name| other.mknod(&ROOT, dir, name.as_bytes(), FileKind::Fifo, 0o600, 0));
    world.run(run_window(made, 16)).into_iter().for_each(|made| assert_eq!(made.expect("made").kind, FileKind::Fifo));
    let count = |sent: &[(ServerId, Op)], op| sent.iter().filter(|(_, sent)| *sent == op).count();
    let sent = world.take_sent();
    assert_eq!((count(&sent, Op::GetMap), count(&sent, Op::Create), sent.len()), (1, 16, 17), "{sent:?}");
}

#[test]
fn a_create_in_a_split_directory_is_one_request_to_the_server_of_the_name() {
    let world = World::new(3, 1, 1 << 20);
    let (client, other) = (world.client(1), world.client(2));
    let dir = split_directory(&world, &client);
    let key = world.run(world.hand.name_key(world.hand.flow("ask", ROOT_HANDLE), META0)).expect("the server answers");
    let map = world.run(world.state(dir)).expect("just made").partitions.expect("a directory");
    // The key of the hash is asked for once.
    world.run(client.mknod(&ROOT, dir, b"first", FileKind::Fifo, 0o600, 0)).expect("made");
    world.take_sent();
    let mut servers = std::collections::BTreeSet::new();
    for number in 0..30 {
        let name = format!("n{number}");
        let made = world.run(client.mknod(&ROOT, dir, name.as_bytes(), FileKind::Fifo, 0o600, 0)).expect("made");
        let server = map.server(key.hash(name.as_bytes()));
        assert_eq!((made.handle.server(), world.take_sent()), (server, vec![(server, Op::Create)]), "{name}");
        servers.insert(server);
        world.run(client.lookup(&ROOT, dir, name.as_bytes())).expect("it is there");
        assert_eq!(world.take_sent(), [(server, Op::Lookup)]);
    }
    assert_eq!(servers.len(), 3);

    // Who finds the directory learns its map with it, whether its inode is beside its name or not.
    let found = world.run(other.lookup(&ROOT, ROOT_HANDLE, b"split")).expect("it is there");
    assert_eq!((found.size, found.nlink), (31, 2));
    let mut sent = world.take_sent();
    sent.retain(|(_, op)| *op == Op::GetAttr);
    assert!(sent.len() == 3 || dir.server() == META0 && sent.len() == 2, "{sent:?}");
    world.run(other.unlink(&ROOT, dir, b"n0")).expect("it is there");
    assert_eq!(world.take_sent().iter().filter(|(_, op)| *op == Op::Unlink).count(), 1, "and asks the right server at once");
}

#[test]
fn what_a_split_directory_is_like_is_asked_at_all_its_servers_at_once() {
    let world = World::new(3, 1, 1 << 20);
    let (client, other) = (world.client(1), world.client(2));
    let dir = split_directory(&world, &client);
    for number in 0..20 {
        world.run(client.mkdir(&ROOT, dir, format!("d{number}").as_bytes(), 0o755)).expect("made");
    }
    world.take_sent();
    let begun = world.now();
    let attr = world.run(other.getattr(dir)).expect("it is there");
    assert_eq!((attr.size, attr.nlink), (20, 22));
    let mut sent = world.take_sent();
    sent.sort_unstable();
    assert_eq!(sent, all_of(Op::GetAttr));
    let took = world.now().since(begun);

    // Two rounds: the owner, then all others.
    let begun = world.now();
    world.run(other.parent(dir)).expect("it is there");
    let one_round = world.now().since(begun);
    assert!(took < 3 * one_round, "{took} ns, and {one_round} ns for one");
    world.take_sent();

    world.run(client.fsync_dir(dir)).expect("safe");
    let mut sent = world.take_sent();
    sent.sort_unstable();
    assert_eq!(sent, all_of(Op::SyncMeta));

    // The owner changes it, and everybody knows.
    let changes = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    let changed = world.run(client.setattr(&ROOT, dir, &changes)).expect("chmod");
    assert_eq!((changed.mode, changed.size, changed.nlink), (0o700, 20, 22));
    let (mut cookie, mut listed) = (0, 0);
    loop {
        let page = world.run(client.readdir(&ROOT, dir, cookie, 200, true)).expect("a page");
        assert!(page.entries.iter().all(|entry| entry.attr.is_some_and(|attr| attr.nlink == 2)));
        listed += page.entries.len();
        match page.entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => break,
        }
    }
    assert_eq!(listed, 20);
    let parent = world.run(client.readdir(&ROOT, dir, 0, 200, false)).expect("a page").parent;
    assert_eq!(parent, ROOT_HANDLE, "its owner has the first names");

    // A client that has an old map learns that the directory is gone.
    let removed = world.run(client.remove_tree(&ROOT, ROOT_HANDLE, &"split".into(), dir, |_| {}));
    assert_eq!((removed.directories, removed.failed), (21, 0));
    let gone = world.run(other.lookup(&ROOT, dir, b"d0")).unwrap_err();
    assert_eq!(gone.status, Status::NotFound);
    assert_eq!(world.run(other.getattr(dir)).expect("it may still be held").nlink, 0);
}
