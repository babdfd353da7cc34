//! Names, listings, batches and paths.

use bytes::Bytes;
use weft_base::{ClientId, Credentials, FileKind, Handle, ROOT_HANDLE, SECOND, ServerEntry, ServerId, Status};
use weft_rt::Runtime;
use weft_wire::ops::{Op, Partition, PartitionMap};

use crate::fake::{FakeRt, Fate, LATENCY, NAME_KEY};
use crate::{Client, ClientOptions, CreateOptions, SetAttr};

const META0: ServerId = ServerId(0);
const META1: ServerId = ServerId(1);
static ROOT: Credentials = Credentials { uid: 0, gid: 0, groups: Vec::new(), checked_by_kernel: false };

#[test]
fn attributes_cost_a_second_request_only_if_the_inode_is_elsewhere() {
    let rt = FakeRt::new(2, 1, 1 << 20);
    let client = rt.client(1);
    let (near, far) = {
        let mut world = rt.0.borrow_mut();
        (world.add(ROOT_HANDLE, "near", 0, FileKind::File, ""), world.add(ROOT_HANDLE, "far", 1, FileKind::Directory, ""))
    };
    assert_eq!(rt.run(client.lookup(&ROOT, ROOT_HANDLE, b"near")).expect("it is there").handle, near);
    assert_eq!(rt.take_sent(), [(META0, Op::Lookup)]);
    assert_eq!(rt.run(client.lookup(&ROOT, ROOT_HANDLE, b"far")).expect("it is there").handle, far);
    assert_eq!(rt.take_sent(), [(META0, Op::Lookup), (META1, Op::GetAttr)]);
    assert_eq!(rt.run(client.lookup_handle(&ROOT, ROOT_HANDLE, b"far")), Ok((far, FileKind::Directory)));
    assert_eq!(rt.take_sent(), [(META0, Op::Lookup)]);
}

#[test]
fn a_name_that_was_replaced_between_the_two_requests_is_looked_up_again() {
    let rt = FakeRt::new(2, 1, 1 << 20);
    let client = rt.client(1);
    let old = rt.0.borrow_mut().add(ROOT_HANDLE, "x", 1, FileKind::Directory, "");
    let new = rt.0.borrow_mut().new_handle(META1);
    let world = rt.0.clone();
    let mut done = false;
    rt.fates(move |sent| {
        // Between the two requests another client moves another directory over the name.
        if sent.request.op() == Op::GetAttr && !std::mem::replace(&mut done, true) {
            let mut world = world.borrow_mut();
            world.inodes.remove(&old);
            world.add_inode(new, FileKind::Directory, Bytes::new());
            world.names.insert((ROOT_HANDLE, Bytes::from_static(b"x")), (new, FileKind::Directory));
        }
        Fate::Arrives
    });
    assert_eq!(rt.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).expect("the name always existed").handle, new);
}

#[test]
fn a_listing_with_attributes_asks_every_other_server_once() {
    let rt = FakeRt::new(3, 1, 1 << 20);
    let client = rt.client(1);
    let handles: Vec<Handle> = {
        let mut world = rt.0.borrow_mut();
        (0..30).map(|i| world.add(ROOT_HANDLE, &format!("{i:02}"), i % 3, FileKind::File, "")).collect()
    };
    let page = rt.run(client.readdir(&ROOT, ROOT_HANDLE, 0, 1 << 20, true)).expect("the servers answer");
    assert!(page.end);
    assert_eq!(page.entries.iter().map(|entry| entry.handle).collect::<Vec<_>>(), handles);
    assert!(page.entries.iter().all(|entry| entry.attr.is_some_and(|attr| attr.handle == entry.handle)));
    assert_eq!(rt.take_sent(), [(META0, Op::ReadDir), (META1, Op::GetAttrMany), (ServerId(2), Op::GetAttrMany)]);

    // One is removed between the listing and the question: it has no attributes, the others have.
    rt.0.borrow_mut().inodes.remove(&handles[1]);
    let page = rt.run(client.readdir(&ROOT, ROOT_HANDLE, 0, 1 << 20, true)).expect("the servers answer");
    assert_eq!(page.entries.iter().filter(|entry| entry.attr.is_none()).map(|entry| entry.handle).collect::<Vec<_>>(), [handles[1]]);

    rt.take_sent();
    rt.run(client.readdir(&ROOT, ROOT_HANDLE, 0, 1 << 20, false)).expect("the server answers");
    assert_eq!(rt.take_sent(), [(META0, Op::ReadDir)]);
    let page = rt.run(client.readdir(&ROOT, ROOT_HANDLE, 12, 1000, false)).expect("the server answers");
    assert_eq!((page.entries.len(), page.end, page.entries[0].cookie), (10, false, 13));
}

#[test]
fn many_stats_are_few_messages_and_answers_keep_their_order() {
    let rt = FakeRt::new(2, 1, 1 << 20);
    let client = rt.client(1);
    let mut handles: Vec<Handle> = {
        let mut world = rt.0.borrow_mut();
        (0..3000).map(|i| world.add(ROOT_HANDLE, &format!("{i}"), i % 2, FileKind::File, "")).collect()
    };
    handles[7] = Handle::new(META1, 999_999);
    let results = rt.run(client.stat_many(&handles));
    assert_eq!(rt.take_sent().len(), 4);
    for (position, (handle, result)) in handles.iter().zip(results).enumerate() {
        match result {
            Ok(attr) => assert_eq!(attr.handle, *handle),
            Err(error) => assert_eq!((position, error.status, error.handle), (7, Status::Stale, *handle)),
        }
    }
}

#[test]
fn many_creates_are_one_message_each_in_a_bounded_window() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    rt.0.borrow_mut().add(ROOT_HANDLE, "5", 0, FileKind::File, "");
    let names: Vec<Bytes> = (0..1000).map(|i| Bytes::from(format!("{i}"))).collect();
    let begin = rt.now();
    let options = CreateOptions { exclusive: true, ..CreateOptions::default() };
    let results = rt.run(client.create_many(&ROOT, ROOT_HANDLE, &names, &options));
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    assert_eq!(results[5].map_err(|error| error.status), Err(Status::Exists));
    let sent = std::mem::take(&mut rt.0.borrow_mut().sent);
    assert_eq!(sent.len(), 1000);
    assert!(sent.iter().all(|sent| sent.header.unfinished_span < 256));
    assert_eq!(rt.now().since(begin), 4 * 2 * LATENCY, "1000 requests in windows of 256");

    assert!(rt.run(client.unlink_many(&ROOT, ROOT_HANDLE, &names)).iter().all(Result::is_ok));
    assert_eq!(rt.take_sent().len(), 1000);
    assert!(rt.0.borrow().names.is_empty());
}

#[test]
fn a_server_corrects_a_client_that_has_an_old_partition_map() {
    let rt = FakeRt::new(2, 1, 1 << 20);
    let client = rt.client(1);
    let map = |epoch, ranges: &[(u64, ServerId)]| {
        PartitionMap::new(epoch, ranges.iter().map(|(first, server)| Partition { first: *first, server: *server }).collect()).unwrap()
    };
    rt.0.borrow_mut().partitions.insert(ROOT_HANDLE, map(2, &[(0, META1)]));
    rt.0.borrow_mut().add(ROOT_HANDLE, "x", 1, FileKind::File, "");
    rt.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).expect("found where the map says");
    assert_eq!(rt.take_sent(), [(META0, Op::Lookup), (META0, Op::GetAttr), (META1, Op::Lookup)]);
    rt.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).expect("found at once");
    assert_eq!(rt.take_sent(), [(META1, Op::Lookup)]);

    // The directory is split: half of the names of one server, a quarter of the other, in turns.
    let names: Vec<String> = (0..40).map(|i| format!("n{i}")).collect();
    let ranges = [(0, META1), (1 << 61, META0), (1 << 62, META1), (3 << 61, META0)];
    rt.0.borrow_mut().partitions.insert(ROOT_HANDLE, map(3, &ranges));
    for name in &names {
        rt.0.borrow_mut().add(ROOT_HANDLE, name, 1, FileKind::File, "");
    }
    for name in &names {
        rt.run(client.lookup(&ROOT, ROOT_HANDLE, name.as_bytes())).expect("found where the map says");
    }
    // Inodes are at META1, and are asked for there.
    assert_eq!(rt.take_sent().iter().filter(|sent| **sent == (META0, Op::GetAttr)).count(), 1, "one refusal, and the map is known");
    for name in &names {
        rt.run(client.lookup(&ROOT, ROOT_HANDLE, name.as_bytes())).expect("found at once");
    }
    let sent: Vec<_> = rt.take_sent().into_iter().filter(|(_, op)| *op == Op::Lookup).collect();
    let expected = names.iter().map(|name| map(3, &ranges).server(NAME_KEY.hash(name.as_bytes()))).map(|server| (server, Op::Lookup));
    assert_eq!(sent, expected.collect::<Vec<_>>());

    let (mut listed, mut cookie) = (Vec::new(), 0);
    loop {
        let page = rt.run(client.readdir(&ROOT, ROOT_HANDLE, cookie, 300, false)).expect("a page");
        assert!(page.end || !page.entries.is_empty(), "an empty range is not the end, and no page is empty for it");
        listed.extend(page.entries.iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()));
        match page.entries.last() {
            Some(last) if !page.end => cookie = last.cookie,
            _ => break,
        }
    }
    let mut in_order = [names, vec!["x".to_string()]].concat();
    in_order.sort_by_key(|name| NAME_KEY.hash(name.as_bytes()));
    assert_eq!(listed, in_order, "ranges follow each other in the order of a listing");
}

#[test]
fn a_client_learns_of_a_newer_cluster_map_from_any_reply() {
    let rt = FakeRt::new(1, 2, 1 << 20);
    let config = rt.0.borrow().map.unagreed();
    let client = Client::new(rt.clone(), config, ClientOptions::new(ClientId(5), 1));
    let file = rt.0.borrow_mut().add(ROOT_HANDLE, "x", 0, FileKind::File, "");
    rt.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).expect("found");
    assert_eq!(rt.take_sent(), [(META0, Op::Lookup), (META0, Op::GetMap)]);
    let layout = rt.run(client.getattr(file)).expect("it is there").layout;
    let before: Vec<_> = (0..4).map(|index| client.map().data_server(&layout, index)).collect();
    rt.take_sent();

    let joins = ServerEntry { id: ServerId::data(9), name: "data9".into(), address: String::new() };
    let grown = rt.0.borrow().map.with_server(&joins).expect("it is new");
    rt.0.borrow_mut().map = grown.clone();
    rt.run(client.lookup(&ROOT, ROOT_HANDLE, b"none")).expect_err("there is no such name");
    assert_eq!(rt.take_sent(), [(META0, Op::Lookup), (META0, Op::GetMap)]);
    assert_eq!(client.map(), &grown);
    let now: Vec<_> = (0..4).map(|index| client.map().data_server(&layout, index)).collect();
    assert_eq!(now, before, "a file stays where it is");
    rt.run(client.lookup(&ROOT, ROOT_HANDLE, b"none")).expect_err("there is no such name");
    assert_eq!(rt.take_sent(), [(META0, Op::Lookup)], "once is enough");
}

#[test]
fn paths_mean_what_they_mean_everywhere() {
    let rt = FakeRt::new(2, 1, 1 << 20);
    let client = rt.client(1);
    let (dir, file) = {
        let mut world = rt.0.borrow_mut();
        let dir = world.add(ROOT_HANDLE, "dir", 1, FileKind::Directory, "");
        let file = world.add(dir, "file", 1, FileKind::File, "");
        world.add(dir, "up", 1, FileKind::Symlink, "../dir/./file");
        world.add(dir, "root", 1, FileKind::Symlink, "/dir");
        world.add(dir, "dangling", 1, FileKind::Symlink, "nowhere");
        world.add(ROOT_HANDLE, "loop", 0, FileKind::Symlink, "loop");
        (dir, file)
    };
    let handle = |path: &str, follow| rt.run(client.resolve(&ROOT, path.as_bytes(), follow)).map(|attr| attr.handle).map_err(|e| e.status);
    assert_eq!(handle("/", true), Ok(ROOT_HANDLE));
    assert_eq!(handle("", true), Ok(ROOT_HANDLE));
    assert_eq!(handle("../..", true), Ok(ROOT_HANDLE));
    assert_eq!(handle("/dir", true), Ok(dir));
    assert_eq!(handle("dir//./file", true), Ok(file));
    assert_eq!(handle("/dir/up", true), Ok(file));
    assert_ne!(handle("/dir/up", false), Ok(file));
    assert_eq!(handle("/dir/root/root/file", false), Ok(file));
    assert_eq!(handle("/dir/root/..", true), Ok(ROOT_HANDLE));
    assert_eq!(handle("/dir/", false), Ok(dir));
    assert_eq!(handle("/dir/root/", false), Ok(dir));
    assert_eq!(handle("/dir/file/", true), Err(Status::NotDirectory));
    assert_eq!(handle("/dir/file/x", true), Err(Status::NotDirectory));
    assert_eq!(handle("/dir/dangling", true), Err(Status::NotFound));
    assert_eq!(handle("/nowhere/x", true), Err(Status::NotFound));
    assert_eq!(handle("/loop", true), Err(Status::TooManySymlinks));
    assert_eq!(handle(&format!("/{}", "x".repeat(256)), true), Err(Status::NameTooLong));

    let parent = |path: &str| rt.run(client.resolve_parent(&ROOT, path.as_bytes())).map_err(|error| error.status);
    assert_eq!(parent("/dir/new"), Ok((dir, Bytes::from_static(b"new"))));
    assert_eq!(parent("/dir/root/up"), Ok((dir, Bytes::from_static(b"up"))));
    assert_eq!(parent("/new/"), Ok((ROOT_HANDLE, Bytes::from_static(b"new"))));
    assert_eq!(parent("/"), Err(Status::Invalid));
}

#[test]
fn cached_answers_are_as_old_as_allowed_and_own_changes_show_at_once() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client_with(ClientOptions { attr_cache_ns: SECOND, ..ClientOptions::new(ClientId(1), 1) });
    let other = rt.client(2);
    let handle = rt.0.borrow_mut().add(ROOT_HANDLE, "x", 0, FileKind::File, "");
    let mode = |bits| SetAttr { mode: Some(bits), ..SetAttr::default() };
    assert_eq!(rt.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).expect("it is there").mode, 0o644);
    rt.run(other.setattr(&ROOT, handle, &mode(0o600))).expect("the server changes it");
    rt.take_sent();
    assert_eq!(rt.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).expect("cached").mode, 0o644);
    assert_eq!(rt.run(client.getattr(handle)).expect("cached").mode, 0o644);
    assert!(rt.take_sent().is_empty());
    rt.run(rt.sleep_until(rt.now() + SECOND));
    assert_eq!(rt.run(client.getattr(handle)).expect("asked again").mode, 0o600);
    rt.run(client.setattr(&ROOT, handle, &mode(0o640))).expect("the server changes it");
    assert_eq!(rt.run(client.getattr(handle)).expect("own change").mode, 0o640);
    rt.run(client.unlink(&ROOT, ROOT_HANDLE, b"x")).expect("the server removes it");
    assert_eq!(rt.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).map_err(|error| error.status), Err(Status::NotFound));
}

/// A program that makes files in a directory that it has made does not pay for the kernel's
/// question whether the name is free.
#[test]
fn names_of_an_own_directory_are_known_without_asking() {
    let rt = FakeRt::new(2, 2, 65536);
    let client = rt.client_with(ClientOptions::new(ClientId(1), 1));
    client.follow_directories(SECOND);
    let other = rt.client_with(ClientOptions::new(ClientId(2), 1));
    let who = &ROOT;
    rt.run(async {
        let dir = client.mkdir(who, ROOT_HANDLE, b"dir", 0o755).await.expect("the servers answer").handle;
        for name in [b"a", b"b", b"c"] {
            let before = client.stats().requests;
            let refusal = client.lookup(who, dir, name).await.expect_err("nobody has made it");
            assert_eq!(refusal.status, Status::NotFound);
            let (_, file, created) = client.create(who, dir, name, &CreateOptions::default()).await.expect("the servers answer");
            assert!(created);
            assert_eq!(client.stats().requests - before, 1, "one create, no lookup");
            client.close(file).await.expect("the servers answer");
        }
        assert_eq!(client.lookup(who, dir, b"a").await.expect("the servers answer").kind, FileKind::File, "what exists is found");
        client.unlink(who, dir, b"a").await.expect("the servers answer");
        let before = client.stats().requests;
        assert!(client.lookup(who, dir, b"a").await.is_err());
        assert_eq!(client.stats().requests, before);
        // Somebody else makes a name: the next own change shows the gap, and the server is asked
        // again.
        other.create(who, dir, b"theirs", &CreateOptions::default()).await.expect("the servers answer");
        client.create(who, dir, b"d", &CreateOptions::default()).await.expect("the servers answer");
        assert!(client.lookup(who, dir, b"theirs").await.is_ok());
    });
}
