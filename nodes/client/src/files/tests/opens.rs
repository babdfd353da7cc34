//! Opens and closes of one client, and what becomes of them when messages are lost.

use std::sync::Arc;

use weft_base::{ClientId, FileKind, ROOT_HANDLE, SECOND, Status};
use weft_call::both;
use weft_rt::{Bulk, Runtime, race};
use weft_wire::Rights;
use weft_wire::ops::Op;

use crate::tests::world::{BOTH, Fate, LATENCY, LIFETIME, META0, META1, ROOT, TestRt, World, create};
use crate::{Client, ClientOptions, CreateOptions, OpenFile, SetAttr};

#[test]
fn several_opens_of_a_process_are_one_at_the_server() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let first = create(&world, &client, "a");
    let handle = first.handle();
    let (_, second) = world.run(client.open(&ROOT, handle, BOTH, false)).expect("it opens");
    let (_, reader) = world.run(client.open(&ROOT, handle, Rights::READ.with(Rights::LOCK), false)).expect("it opens");
    world.take_sent();
    world.run(client.close(first)).expect("nothing to say");
    assert!(world.take_sent().is_empty());
    world.run(client.close(second)).expect("the last writer goes");
    assert_eq!(world.take_sent(), [(META0, Op::Close)]);
    assert!(world.run(world.is_held(handle, Rights::LOCK)) && !world.is_written(handle));
    world.run(client.close(reader)).expect("the last reader goes");
    assert_eq!(world.take_sent(), [(META0, Op::Close)]);
    assert!(world.is_closed(ROOT_HANDLE, "a"));
    assert!(client.inner.opens.at_server(META0).is_empty());
}

#[test]
fn many_files_are_closed_with_one_request_for_each_server() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let open = |name: &str, server: u16| {
        let handle = world.add(ROOT_HANDLE, name, server, FileKind::File, "");
        world.run(client.open(&ROOT, handle, BOTH, false)).expect("it opens").1
    };
    let files = [open("a", 0), open("b", 1), open("c", 0), open("d", 0)];
    let handle = files[0].handle();
    let (_, kept) = world.run(client.open(&ROOT, files[3].handle(), BOTH, false)).expect("it opens");
    world.run(client.write(&files[0], 0, Bulk::Slices(vec![b"words"]))).expect("it is written");
    world.take_sent();
    assert!(world.run(client.close_many(&files)).iter().all(Result::is_ok));
    assert_eq!(world.take_sent(), [(META0, Op::CloseMany), (META1, Op::CloseMany)]);
    assert_eq!(files.each_ref().map(|file| world.is_written(file.handle())), [false, false, false, true], "only what is still open here");
    assert_eq!(world.run(client.getattr(handle)).expect("it exists").size, 5);
    let rest: Vec<_> = (0..300).map(|number| create(&world, &client, &format!("f{number}"))).chain([kept]).collect();
    world.take_sent();
    assert!(world.run(client.close_many(&rest)).iter().all(Result::is_ok));
    assert_eq!(world.take_sent(), [(META0, Op::CloseMany); 3], "128 at once at most");
    assert!(client.inner.opens.at_server(META0).is_empty());
    assert!(rest.iter().all(|file| !world.is_written(file.handle())));
    assert!(world.run(client.close_many(&rest)).iter().all(Result::is_ok), "once is enough");
    assert!(world.take_sent().is_empty());
    assert!(["a", "b", "c", "d", "f0", "f127", "f128", "f299"].iter().all(|name| world.is_closed(ROOT_HANDLE, name)));
}

#[test]
fn a_close_that_does_not_go_with_others_goes_alone() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let files: Vec<_> = ["a", "b", "c"].map(|name| create(&world, &client, name)).into();
    // What was written to the second is from before a truncation: its server has to ask first.
    world.run(client.write(&files[1], 0, Bulk::Slices(vec![b"words"]))).expect("it is written");
    let cut = SetAttr { size: Some(2), ..SetAttr::default() };
    world.run(world.hand.setattr(&ROOT, files[1].handle(), &cut)).expect("it is cut");
    world.take_sent();
    // Somebody is about to report on the third: nobody waits for him while others wait.
    let passage = files[2].inode().gate.try_enter().expect("nobody is inside");
    let both = both(client.close_many(&files), async {
        world.sleep_until(world.now() + 10 * LATENCY).await;
        drop(passage);
    });
    let (results, ()) = world.run(both);
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(world.take_sent(), [(META0, Op::CloseMany), (META0, Op::Close), (META0, Op::Close)]);
    assert_eq!(world.size_of(files[1].handle()), 2);
    assert!(["a", "b", "c"].iter().all(|name| world.is_closed(ROOT_HANDLE, name)));
}

#[test]
fn closes_that_did_not_arrive_are_made_up_for() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let files: Vec<_> = ["a", "b"].map(|name| create(&world, &client, name)).into();
    world.run(client.write(&files[1], 0, Bulk::Slices(vec![b"words"]))).expect("it is written");
    world.fates(|_| Fate::NoConnection);
    assert!(world.run(client.close_many(&files)).iter().all(Result::is_err));
    assert!(files.iter().all(|file| world.is_written(file.handle())));
    world.fates(|_| Fate::Arrives);
    world.run(client.keep_alive());
    assert_eq!(world.size_of(files[1].handle()), 5);
    assert!(["a", "b"].iter().all(|name| world.is_closed(ROOT_HANDLE, name)));
}

#[test]
fn a_close_that_did_not_arrive_is_made_up_for_and_so_is_a_dropped_file() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let file = create(&world, &client, "a");
    let handle = file.handle();
    world.run(client.write(&file, 0, Bulk::Slices(vec![b"hello"]))).expect("it is written");
    world.fates(|_| Fate::NoConnection);
    assert_eq!(world.run(client.close(file)).map_err(|error| error.status), Err(Status::Unreachable));
    drop(create_dropped(&world, &client));
    world.no_faults();
    assert!(world.is_written(handle));
    world.run(client.keep_alive());
    assert_eq!(world.size_of(handle), 5, "what was written is reported as well");
    assert!(world.is_closed(ROOT_HANDLE, "a") && world.is_closed(ROOT_HANDLE, "dropped"));
    assert!(client.inner.opens.at_server(META0).is_empty());
}

fn create_dropped(world: &World, client: &Client<TestRt>) -> Arc<OpenFile> {
    world.no_faults();
    let file = create(world, client, "dropped");
    world.fates(|_| Fate::NoConnection);
    file
}

#[test]
fn an_existing_file_whose_inode_is_elsewhere_is_opened_there() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let handle = world.add(ROOT_HANDLE, "moved", 1, FileKind::File, "");
    world.run(async {
        let (_, file) = world.hand.open(&ROOT, handle, BOTH, false).await.expect("it opens");
        world.hand.write(&file, 0, Bulk::Slices(vec![b"words"])).await.expect("it is written");
        world.hand.close(file).await.expect("it closes");
    });
    let options = CreateOptions { truncate: true, ..CreateOptions::default() };
    let (attr, file, created) = world.run(client.create(&ROOT, ROOT_HANDLE, b"moved", &options)).expect("it opens");
    assert_eq!((attr.handle, attr.size, attr.truncate_epoch, created), (handle, 0, 1, false));
    assert_eq!(world.take_sent(), [(META0, Op::Create), (META1, Op::Open)]);
    world.run(client.close(file)).expect("it closes");
    assert_eq!(world.take_sent(), [(META1, Op::Close)]);

    world.add(ROOT_HANDLE, "dir", 1, FileKind::Directory, "");
    world.add(ROOT_HANDLE, "link", 0, FileKind::Symlink, "moved");
    for (name, status) in [("dir", Status::IsDirectory), ("link", Status::Exists)] {
        let error = world.run(client.create(&ROOT, ROOT_HANDLE, name.as_bytes(), &options)).expect_err("no file");
        assert_eq!(error.status, status);
    }
    assert!(world.is_closed(ROOT_HANDLE, "moved"));
}

#[test]
fn capabilities_are_renewed_when_they_expire() {
    let world = World::new(1, 2, 1 << 12);
    let client = world.client(1);
    let file = create(&world, &client, "a");
    world.run(client.write(&file, 0, Bulk::Slices(vec![&[1; 8192]]))).expect("it is written");
    world.run(world.sleep_until(world.now() + LIFETIME + SECOND));
    world.take_sent();
    world.run(client.write(&file, 0, Bulk::Slices(vec![&[2; 8192]]))).expect("it is written with a new capability");
    let sent = world.take_sent();
    assert_eq!(sent.iter().filter(|(_, op)| *op == Op::Write).count(), 4, "each part once more: {sent:?}");
    assert_eq!(sent.iter().filter(|(_, op)| *op == Op::Open).count(), 1, "one new capability for all: {sent:?}");
    world.run(client.close(file)).expect("it closes");
    assert!(world.is_closed(ROOT_HANDLE, "a"));
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let file = create(&world, &client, "a");
    let handle = file.handle();
    world.run(client.unlink(&ROOT, ROOT_HANDLE, b"a")).expect("the name goes");
    world.run(client.write(&file, 0, Bulk::Slices(vec![b"still here"]))).expect("it is written");
    let pieces = world.run(client.read(&file, 0, 100)).expect("it is read");
    assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<u64>(), 10);
    world.run(client.close(file)).expect("it closes");
    assert!(world.run(world.is_gone(handle)));
}

/// Its caller was told that the server does not answer, so nobody else will ever close it.
#[test]
fn what_was_opened_without_an_answer_is_closed_later() {
    let world = World::new(1, 1, 1 << 20);
    let handle = world.add(ROOT_HANDLE, "there", 0, FileKind::File, "");
    let client = world.client_with(ClientOptions { deadline_ns: 2 * SECOND, ..ClientOptions::new(ClientId(1), 1) });
    world.run(client.getattr(ROOT_HANDLE)).expect("the client knows the server");
    let lose_answers =
        || world.fates(|sent| if matches!(sent.request.op(), Op::Open | Op::Create) { Fate::ReplyLost } else { Fate::Arrives });
    lose_answers();
    let opened = world.run(client.open(&ROOT, handle, BOTH, false));
    assert_eq!(opened.map(drop).map_err(|error| error.status), Err(Status::TimedOut));
    let made = world.run(client.create(&ROOT, ROOT_HANDLE, b"made", &CreateOptions::default()));
    assert_eq!(made.map(drop).map_err(|error| error.status), Err(Status::TimedOut));
    assert!(world.is_written(handle));
    // Its server hears of it when it can.
    world.fates(|_| Fate::Lost);
    world.run(client.keep_alive());
    world.no_faults();
    world.take_sent();
    world.run(client.keep_alive());
    assert_eq!(world.take_sent(), [(META0, Op::Close), (META0, Op::Lookup), (META0, Op::Close)]);
    assert!(!world.is_written(handle) && world.is_closed(ROOT_HANDLE, "there") && world.is_closed(ROOT_HANDLE, "made"));
    world.take_sent();
    world.run(client.keep_alive());
    assert!(world.take_sent().is_empty());

    // Of a file that is open here it goes with the close.
    let file = create(&world, &client, "open");
    lose_answers();
    let opened = world.run(client.open(&ROOT, file.handle(), BOTH.with(Rights::LOCK), false));
    assert_eq!(opened.map(drop).map_err(|error| error.status), Err(Status::TimedOut));
    world.no_faults();
    world.run(client.keep_alive());
    world.run(client.keep_alive());
    assert!(!world.run(world.is_held(file.handle(), Rights::LOCK)) && world.is_written(file.handle()));
    world.run(client.close(file)).expect("it closes");
    assert!(world.is_closed(ROOT_HANDLE, "open") && client.inner.opens.at_server(META0).is_empty());
}

/// As above, where the future of the call is dropped.
#[test]
fn an_open_whose_caller_goes_away_is_closed_later() {
    let world = World::new(1, 1, 1 << 20);
    let handle = world.add(ROOT_HANDLE, "there", 0, FileKind::File, "");
    let client = world.client(1);
    world.fates(|sent| if sent.request.op() == Op::Open { Fate::ReplyLost } else { Fate::Arrives });
    world.run(race(client.open(&ROOT, handle, BOTH, false), world.sleep_until(world.now() + 10 * LATENCY)));
    world.no_faults();
    assert!(world.is_written(handle));
    world.run(client.keep_alive());
    assert!(!world.is_written(handle));
}
