//! Names, listings, batches and paths.

use bytes::Bytes;
use weft_base::{ClientId, FileKind, Handle, ROOT_HANDLE, SECOND, ServerEntry, ServerId, Status};
use weft_call::both;
use weft_rt::Runtime;
use weft_wire::ops::Op;

use super::world::{Fate, LATENCY, META0, META1, ROOT, World};
use crate::{Client, ClientOptions, CreateOptions, Purpose, RenameFlags, WalkEnd};

#[test]
fn attributes_cost_a_second_request_only_if_the_inode_is_elsewhere() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let near = world.add(ROOT_HANDLE, "near", 0, FileKind::File, "");
    let far = world.add(ROOT_HANDLE, "far", 1, FileKind::Directory, "");
    assert_eq!(world.run(client.lookup(&ROOT, ROOT_HANDLE, b"near")).expect("it is there").handle, near);
    assert_eq!(world.take_sent(), [(META0, Op::Lookup)]);
    assert_eq!(world.run(client.lookup(&ROOT, ROOT_HANDLE, b"far")).expect("it is there").handle, far);
    assert_eq!(world.take_sent(), [(META0, Op::Lookup), (META1, Op::GetAttr)]);
    assert_eq!(world.run(client.lookup_handle(&ROOT, ROOT_HANDLE, b"far")), Ok((far, FileKind::Directory)));
    assert_eq!(world.take_sent(), [(META0, Op::Lookup)]);
}

#[test]
fn a_name_that_was_replaced_between_the_two_requests_is_looked_up_again() {
    for kind in [FileKind::Directory, FileKind::File] {
        let world = World::new(2, 1, 1 << 20);
        let client = world.client(1);
        let old = world.add(ROOT_HANDLE, "x", 1, kind, "");
        let new = world.add(ROOT_HANDLE, "new", 1, kind, "");
        let mut first = true;
        world.fates(move |sent| {
            let waits = sent.request.op() == Op::GetAttr && std::mem::take(&mut first);
            if waits { Fate::Late(100 * LATENCY) } else { Fate::Arrives }
        });
        // Between the two requests another client moves another object over the name.
        let replaced = async {
            world.sleep_until(world.now() + 10 * LATENCY).await;
            world.hand.rename(&ROOT, ROOT_HANDLE, b"new", ROOT_HANDLE, b"x", RenameFlags::default()).await.expect("it may go");
            world.sleep_until(world.now() + 70 * LATENCY).await;
            // A directory is kept for those who are in it.
            let links = world.state(old).await.map(|state| state.attr.nlink);
            assert_eq!(links, if kind == FileKind::Directory { Ok(0) } else { Err(Status::Stale) });
        };
        let (found, ()) = world.run(both(client.lookup(&ROOT, ROOT_HANDLE, b"x"), replaced));
        assert_eq!(found.expect("the name always existed").handle, new);
        let sent = [(META0, Op::Lookup), (META1, Op::GetAttr), (META0, Op::Lookup), (META1, Op::GetAttr)];
        assert_eq!(world.take_sent(), sent);
    }
}

#[test]
fn a_listing_with_attributes_asks_every_other_server_once() {
    let world = World::new(3, 1, 1 << 20);
    let client = world.client(1);
    let mut handles: Vec<Handle> = (0..30).map(|i| world.add(ROOT_HANDLE, &format!("{i:02}"), i % 3, FileKind::File, "")).collect();
    let page = world.run(client.readdir(&ROOT, ROOT_HANDLE, 0, 1 << 20, true)).expect("the servers answer");
    assert!(page.end);
    assert!(page.entries.is_sorted_by_key(|entry| entry.cookie));
    assert!(page.entries.iter().all(|entry| entry.attr.is_some_and(|attr| attr.handle == entry.handle)));
    let mut listed: Vec<Handle> = page.entries.iter().map(|entry| entry.handle).collect();
    handles.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, handles);
    assert_eq!(world.take_sent(), [(META0, Op::ReadDir), (META1, Op::GetAttrMany), (ServerId(2), Op::GetAttrMany)]);

    // One is removed between the listing and the question: it has no attributes, the others have.
    let gone = page.entries.iter().find(|entry| entry.handle.server() == META1).expect("ten are there").clone();
    let mut first = true;
    world.fates(move |sent| {
        let waits = sent.request.op() == Op::GetAttrMany && std::mem::take(&mut first);
        if waits { Fate::Late(100 * LATENCY) } else { Fate::Arrives }
    });
    let removed = async {
        world.sleep_until(world.now() + 10 * LATENCY).await;
        world.hand.unlink(&ROOT, ROOT_HANDLE, &gone.name).await.expect("the name goes");
    };
    let (page, ()) = world.run(both(client.readdir(&ROOT, ROOT_HANDLE, 0, 1 << 20, true), removed));
    let page = page.expect("the servers answer");
    assert_eq!(page.entries.len(), 30);
    assert_eq!(page.entries.iter().filter(|entry| entry.attr.is_none()).map(|entry| entry.handle).collect::<Vec<_>>(), [gone.handle]);

    world.no_faults();
    world.take_sent();
    let whole = world.run(client.readdir(&ROOT, ROOT_HANDLE, 0, 1 << 20, false)).expect("the server answers");
    assert_eq!(world.take_sent(), [(META0, Op::ReadDir)]);
    assert!(whole.entries.iter().all(|entry| entry.attr.is_none()));
    let page = world.run(client.readdir(&ROOT, ROOT_HANDLE, whole.entries[9].cookie, 300, false)).expect("the server answers");
    assert!(!page.end && page.entries.len() < 19, "{} entries in 300 bytes", page.entries.len());
    assert_eq!(page.entries[..], whole.entries[10..10 + page.entries.len()]);
}

#[test]
fn many_stats_are_few_messages_and_answers_keep_their_order() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let names: Vec<Bytes> = (0..1500).map(|i| Bytes::from(format!("{i}"))).collect();
    let far = world.add(ROOT_HANDLE, "far", 1, FileKind::Directory, "");
    let made = [ROOT_HANDLE, far].map(|dir| world.run(world.hand.create_many(&ROOT, dir, &names, &CreateOptions::default())));
    let handles = made.map(|made| made.into_iter().map(|attr| attr.expect("a new name").handle));
    let [near, far] = handles;
    let mut handles: Vec<Handle> = near.zip(far).flat_map(|(near, far)| [near, far]).collect();
    handles[7] = Handle::new(META1, 999_999);
    let results = world.run(client.stat_many(&handles));
    assert_eq!(world.take_sent().len(), 4);
    for (position, (handle, result)) in handles.iter().zip(results).enumerate() {
        match result {
            Ok(attr) => assert_eq!(attr.handle, *handle),
            Err(error) => assert_eq!((position, error.status, error.handle), (7, Status::Stale, *handle)),
        }
    }
}

#[test]
fn many_creates_are_one_message_each_in_a_bounded_window() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    world.add(ROOT_HANDLE, "5", 0, FileKind::File, "");
    let names: Vec<Bytes> = (0..1000).map(|i| Bytes::from(format!("{i}"))).collect();
    let begin = world.now();
    let options = CreateOptions { exclusive: true, ..CreateOptions::default() };
    let results = world.run(client.create_many(&ROOT, ROOT_HANDLE, &names, &options));
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    assert_eq!(results[5].map_err(|error| error.status), Err(Status::Exists));
    let sent = world.take_messages();
    assert_eq!(sent.len(), 1000);
    assert!(sent.iter().all(|sent| sent.header.unfinished_span < 256));
    assert_eq!(world.now().since(begin), 4 * 2 * LATENCY, "1000 requests in windows of 256");

    assert!(world.run(client.unlink_many(&ROOT, ROOT_HANDLE, &names)).iter().all(Result::is_ok));
    assert_eq!(world.take_sent().len(), 1000);
    assert!(world.run(world.hand.readdir(&ROOT, ROOT_HANDLE, 0, 1 << 20, false)).expect("the server answers").entries.is_empty());
}

#[test]
fn a_client_learns_of_a_newer_cluster_map_from_any_reply() {
    let world = World::new(1, 2, 1 << 20);
    let first = world.run(async { world.hand.map().clone() });
    let client = Client::new((*world).clone(), world.map().unagreed(), ClientOptions::new(ClientId(5), 1));
    let file = world.add(ROOT_HANDLE, "x", 0, FileKind::File, "");
    world.run(client.lookup(&ROOT, ROOT_HANDLE, b"x")).expect("found");
    assert_eq!(world.take_sent(), [(META0, Op::Lookup), (META0, Op::GetMap)]);
    assert_eq!(client.map(), &first);
    let layout = world.run(client.getattr(file)).expect("it is there").layout;
    let before: Vec<_> = (0..4).map(|index| client.map().data_server(&layout, index)).collect();
    world.take_sent();

    world.join(&ServerEntry { id: ServerId::data(9), name: "data9".into(), address: String::new() });
    let refused = world.run(client.lookup(&ROOT, ROOT_HANDLE, b"none")).expect_err("there is no such name");
    assert_eq!((refused.status, world.take_sent()), (Status::NotFound, vec![(META0, Op::Lookup), (META0, Op::GetMap)]));
    assert!(client.map().server(ServerId::data(9)).is_some() && client.map().epoch > first.epoch);
    assert_eq!(client.map(), world.hand.map());
    let now: Vec<_> = (0..4).map(|index| client.map().data_server(&layout, index)).collect();
    assert_eq!(now, before, "a file stays where it is");
    world.run(client.lookup(&ROOT, ROOT_HANDLE, b"none")).expect_err("there is no such name");
    assert_eq!(world.take_sent(), [(META0, Op::Lookup)], "once is enough");
}

#[test]
fn paths_mean_what_they_mean_everywhere() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let dir = world.add(ROOT_HANDLE, "dir", 1, FileKind::Directory, "");
    let file = world.add(dir, "file", 1, FileKind::File, "");
    world.add(dir, "up", 1, FileKind::Symlink, "../dir/./file");
    world.add(dir, "root", 1, FileKind::Symlink, "/dir");
    world.add(dir, "dangling", 1, FileKind::Symlink, "nowhere");
    world.add(ROOT_HANDLE, "loop", 0, FileKind::Symlink, "loop");
    let handle =
        |path: &str, follow| world.run(client.resolve(&ROOT, path.as_bytes(), follow)).map(|attr| attr.handle).map_err(|e| e.status);
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

    let parent = |path: &str| world.run(client.resolve_parent(&ROOT, path.as_bytes())).map_err(|error| error.status);
    assert_eq!(parent("/dir/new"), Ok((dir, Bytes::from_static(b"new"))));
    assert_eq!(parent("/dir/root/up"), Ok((dir, Bytes::from_static(b"up"))));
    assert_eq!(parent("/new/"), Ok((ROOT_HANDLE, Bytes::from_static(b"new"))));
    assert_eq!(parent("/"), Err(Status::Invalid));
    assert_eq!(parent("/dir/root/."), Ok((ROOT_HANDLE, Bytes::from_static(b"dir"))));
}

/// The answers are those of Linux.
#[test]
fn what_stands_behind_a_name_says_what_it_has_to_be() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let dir = world.add(ROOT_HANDLE, "dir", 1, FileKind::Directory, "");
    world.add(ROOT_HANDLE, "file", 1, FileKind::File, "");
    world.add(ROOT_HANDLE, "link", 1, FileKind::Symlink, "dir/.");
    world.add(ROOT_HANDLE, "wrong", 1, FileKind::Symlink, "file/");
    let at = |path: &str| world.run(client.resolve(&ROOT, path.as_bytes(), true)).map(|attr| attr.handle).map_err(|error| error.status);
    for path in ["/dir/", "/dir/.", "/link/", "/link/.", "/link", "/./dir/./"] {
        assert_eq!(at(path), Ok(dir), "{path}");
    }
    for path in ["/file/", "/file/.", "/file/..", "/file/./", "/wrong", "/wrong/"] {
        assert_eq!(at(path), Err(Status::NotDirectory), "{path}");
    }
    let name = |path: &str, purpose| match world.run(client.resolve_name(&ROOT, path.as_bytes(), purpose)) {
        Ok((dir, name)) => Ok((dir, String::from_utf8(name.to_vec()).expect("text"))),
        Err(error) => Err(error.status),
    };
    let here = |name: &str| Ok((ROOT_HANDLE, name.to_owned()));
    assert_eq!((name("/new/", Purpose::Make), name("/dir/", Purpose::Make)), (Err(Status::NotFound), Err(Status::Exists)));
    assert_eq!((name("/new/", Purpose::MakeDirectory), name("/dir/.", Purpose::MakeDirectory)), (here("new"), Err(Status::Exists)));
    assert_eq!((name("/dir/", Purpose::Remove), name("/file/", Purpose::Remove)), (Err(Status::IsDirectory), Err(Status::NotDirectory)));
    assert_eq!((name("/link/", Purpose::Remove), name("/link", Purpose::Remove)), (Err(Status::NotDirectory), here("link")));
    assert_eq!((name("/link/", Purpose::RemoveDirectory), name("/dir/.", Purpose::RemoveDirectory)), (here("link"), Err(Status::Invalid)));
    assert_eq!((name("/dir/", Purpose::Move), name("/dir/..", Purpose::Move)), (here("dir"), Err(Status::Busy)));
    let rename = |from: &str, to: &str, flags| {
        let (old, new) = (from.trim_end_matches('/').as_bytes(), to.trim_end_matches('/').as_bytes());
        let (old, new) = ((ROOT_HANDLE, old, from.ends_with('/')), (ROOT_HANDLE, new, to.ends_with('/')));
        world.run(client.check_slashes(&ROOT, old, new, flags)).map_err(|error| error.status)
    };
    let (plain, exchange) = (RenameFlags::default(), RenameFlags { exchange: true, ..RenameFlags::default() });
    let no_replace = RenameFlags { no_replace: true, ..RenameFlags::default() };
    assert_eq!((rename("dir/", "new/", plain), rename("file", "new", plain)), (Ok(()), Ok(())));
    assert_eq!((rename("file", "new/", plain), rename("link/", "new", plain)), (Err(Status::NotDirectory), Err(Status::NotDirectory)));
    assert_eq!((rename("file", "dir/", exchange), rename("dir", "file/", exchange)), (Ok(()), Err(Status::NotDirectory)));
    assert_eq!((rename("file", "new/", exchange), rename("file/", "dir", no_replace)), (Err(Status::NotFound), Err(Status::Exists)));
}

/// A program that makes files in a directory that it has made does not pay for the kernel's
/// question whether the name is free.
#[test]
fn names_of_an_own_directory_are_known_without_asking() {
    let world = World::new(2, 2, 65536);
    let client = world.client_with(ClientOptions::new(ClientId(1), 1));
    client.follow_directories(SECOND);
    let other = world.client_with(ClientOptions::new(ClientId(2), 1));
    let who = &ROOT;
    world.run(async {
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

#[test]
fn a_walk_from_a_directory_may_end_outside() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let dir = world.add(ROOT_HANDLE, "dir", 0, FileKind::Directory, "");
    let sub = world.add(dir, "sub", 1, FileKind::Directory, "");
    world.add(sub, "far", 1, FileKind::Symlink, "/else/where");
    world.add(sub, "up", 1, FileKind::Symlink, "../../../x");
    let walk = |from, path: &str| world.run(client.walk_from(&ROOT, from, path.as_bytes(), true)).expect("there is a way");
    let name = |dir, name: &'static str| WalkEnd::Name(dir, Bytes::from_static(name.as_bytes()));
    let outside = |path: &str| WalkEnd::Outside(path.as_bytes().to_vec());
    assert_eq!(walk(sub, "new"), name(sub, "new"));
    assert_eq!(walk(sub, "../new"), name(dir, "new"), "the parent is asked for");
    assert_eq!(walk(sub, "../.."), WalkEnd::Directory(ROOT_HANDLE));
    assert_eq!(walk(sub, "../../../a/b"), outside("./a/b"));
    assert_eq!(walk(dir, "sub/far/on"), outside("/else/where/on"));
    assert_eq!(walk(dir, "sub/far/on/"), outside("/else/where/on/"));
    assert_eq!(walk(dir, "sub/up"), outside("./x"));
    // Who has no outside stays inside.
    assert_eq!(world.run(client.resolve(&ROOT, b"/../../dir/../..", true)).expect("the root").handle, ROOT_HANDLE);
}
