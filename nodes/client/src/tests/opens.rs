//! Opens and closes, also when they race, servers restart and messages are lost.

use std::sync::Arc;

use weft_base::{Credentials, FileKind, Handle, ROOT_HANDLE, SECOND, ServerId, Status, WallTime};
use weft_call::{both, run_window};
use weft_rt::{Bulk, Runtime};
use weft_wire::ops::{Op, SetTime};
use weft_wire::{Flags, Request, Rights};

use crate::fake::{FakeRt, Fate, LATENCY, LIFETIME};
use crate::{Client, CreateOptions, OpenFile, SetAttr};

const META0: ServerId = ServerId(0);
const META1: ServerId = ServerId(1);
static ROOT: Credentials = Credentials { uid: 0, gid: 0, groups: Vec::new(), checked_by_kernel: false };
const BOTH: Rights = Rights(Rights::READ.0 | Rights::WRITE.0);

fn create(rt: &FakeRt, client: &Client<FakeRt>, name: &str) -> Arc<OpenFile> {
    rt.run(client.create(&ROOT, ROOT_HANDLE, name.as_bytes(), &CreateOptions::default())).expect("the server makes it").1
}

fn held(rt: &FakeRt, handle: Handle) -> Vec<Rights> {
    rt.0.borrow().opens.iter().filter(|((_, open), _)| *open == handle).map(|(_, (rights, _))| *rights).collect()
}

#[test]
fn several_opens_of_a_process_are_one_at_the_server() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let first = create(&rt, &client, "a");
    let handle = first.handle();
    let (_, second) = rt.run(client.open(&ROOT, handle, BOTH, false)).expect("it opens");
    let (_, reader) = rt.run(client.open(&ROOT, handle, Rights::READ, false)).expect("it opens");
    rt.take_sent();
    rt.run(client.close(first)).expect("nothing to say");
    assert!(rt.take_sent().is_empty());
    rt.run(client.close(second)).expect("the last writer goes");
    assert_eq!(rt.take_sent(), [(META0, Op::Close)]);
    assert_eq!(held(&rt, handle), [Rights::READ]);
    rt.run(client.close(reader)).expect("the last reader goes");
    assert_eq!(rt.take_sent(), [(META0, Op::Close)]);
    assert!(held(&rt, handle).is_empty());
    assert!(client.inner.opens.at_server(META0).is_empty());
}

#[test]
fn many_files_are_closed_with_one_request_for_each_server() {
    let rt = FakeRt::new(2, 1, 1 << 20);
    let client = rt.client(1);
    let open = |name: &str, server: u16| {
        let handle = rt.0.borrow_mut().add(ROOT_HANDLE, name, server, FileKind::File, "");
        rt.run(client.open(&ROOT, handle, BOTH, false)).expect("it opens").1
    };
    let files = [open("a", 0), open("b", 1), open("c", 0), open("d", 0)];
    let handle = files[0].handle();
    let (_, kept) = rt.run(client.open(&ROOT, files[3].handle(), BOTH, false)).expect("it opens");
    rt.run(client.write(&files[0], 0, Bulk::Slices(vec![b"words"]))).expect("it is written");
    rt.take_sent();
    assert!(rt.run(client.close_many(&files)).iter().all(Result::is_ok));
    assert_eq!(rt.take_sent(), [(META0, Op::CloseMany), (META1, Op::CloseMany)]);
    assert_eq!(rt.0.borrow().opens.len(), 1, "only what is still open here");
    assert_eq!(rt.run(client.getattr(handle)).expect("it exists").size, 5);
    let rest: Vec<_> = (0..300).map(|number| create(&rt, &client, &format!("f{number}"))).chain([kept]).collect();
    rt.take_sent();
    assert!(rt.run(client.close_many(&rest)).iter().all(Result::is_ok));
    assert_eq!(rt.take_sent(), [(META0, Op::CloseMany); 3], "128 at once at most");
    assert!(rt.0.borrow().opens.is_empty() && client.inner.opens.at_server(META0).is_empty());
    assert!(rt.run(client.close_many(&rest)).iter().all(Result::is_ok), "once is enough");
    assert!(rt.take_sent().is_empty());
}

#[test]
fn a_close_that_does_not_go_with_others_goes_alone() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let files: Vec<_> = ["a", "b", "c"].map(|name| create(&rt, &client, name)).into();
    rt.take_sent();
    rt.0.borrow_mut().busy_closes = vec![files[1].handle()];
    // Somebody is about to report on the third: nobody waits for him while others wait.
    let passage = files[2].inode().gate.try_enter().expect("nobody is inside");
    let both = both(client.close_many(&files), async {
        rt.sleep_until(rt.now() + 10 * LATENCY).await;
        drop(passage);
    });
    let (results, ()) = rt.run(both);
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(rt.take_sent(), [(META0, Op::CloseMany), (META0, Op::Close), (META0, Op::Close)]);
    assert!(rt.0.borrow().opens.is_empty());
}

#[test]
fn closes_that_did_not_arrive_are_made_up_for() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let files: Vec<_> = ["a", "b"].map(|name| create(&rt, &client, name)).into();
    rt.run(client.write(&files[1], 0, Bulk::Slices(vec![b"words"]))).expect("it is written");
    rt.fates(|_| Fate::NoConnection);
    assert!(rt.run(client.close_many(&files)).iter().all(Result::is_err));
    assert_eq!(rt.0.borrow().opens.len(), 2);
    rt.fates(|_| Fate::Arrives);
    rt.run(client.keep_alive());
    assert!(rt.0.borrow().opens.is_empty());
    assert_eq!(rt.0.borrow().inodes[&files[1].handle()].attr.size, 5);
}

#[test]
fn an_existing_file_whose_inode_is_elsewhere_is_opened_there() {
    let rt = FakeRt::new(2, 1, 1 << 20);
    let client = rt.client(1);
    let handle = rt.0.borrow_mut().add(ROOT_HANDLE, "moved", 1, FileKind::File, "");
    let options = CreateOptions { truncate: true, ..CreateOptions::default() };
    let (attr, file, created) = rt.run(client.create(&ROOT, ROOT_HANDLE, b"moved", &options)).expect("it opens");
    assert_eq!((attr.handle, attr.truncate_epoch, created), (handle, 1, false));
    assert_eq!(rt.take_sent(), [(META0, Op::Create), (META1, Op::Open)]);
    rt.run(client.close(file)).expect("it closes");
    assert_eq!(rt.take_sent(), [(META1, Op::Close)]);

    rt.0.borrow_mut().add(ROOT_HANDLE, "dir", 1, FileKind::Directory, "");
    rt.0.borrow_mut().add(ROOT_HANDLE, "link", 0, FileKind::Symlink, "moved");
    for (name, status) in [("dir", Status::IsDirectory), ("link", Status::Exists)] {
        let error = rt.run(client.create(&ROOT, ROOT_HANDLE, name.as_bytes(), &options)).expect_err("no file");
        assert_eq!(error.status, status);
    }
    assert!(rt.0.borrow().opens.is_empty());
}

#[test]
fn an_open_overtaken_by_a_close_is_done_again() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let handle = rt.0.borrow_mut().add(ROOT_HANDLE, "x", 0, FileKind::File, "");
    // The reply to the first open dawdles while the same file is opened and closed.
    let slow = client.open(&ROOT, handle, Rights::READ, false);
    let quick = async {
        let (_, file) = client.open(&ROOT, handle, Rights::WRITE, false).await.expect("it opens");
        client.close(file).await.expect("it closes");
    };
    let mut times = 0;
    rt.fates(move |_| {
        times += 1;
        // Executed in order, but the first one is answered only when it is asked for again after 2
        // s.
        if times == 1 { Fate::ReplyLost } else { Fate::Arrives }
    });
    let (opened, ()) = rt.run(both(slow, quick));
    let (_, file) = opened.expect("it opens in the end");
    assert_eq!(held(&rt, handle), [Rights::READ]);
    let opens = rt.take_sent().iter().filter(|(_, op)| *op == Op::Open).count();
    assert_eq!(opens, 4, "the slow one twice, the quick one, and the slow one again under a new number");
    rt.run(client.close(file)).expect("it closes");
    assert!(held(&rt, handle).is_empty());
}

/// Asks for a file in one of the ways that tell its size and mtime.
async fn ask_about(client: &Client<FakeRt>, handle: Handle, name: &str, way: u64) -> (u64, WallTime) {
    let attr = match way % 6 {
        0 => client.getattr(handle).await.expect("it exists"),
        1 => client.lookup(&ROOT, ROOT_HANDLE, name.as_bytes()).await.expect("it exists"),
        2 => client.stat_many(&[handle]).await.remove(0).expect("it exists"),
        3 => {
            let page = client.readdir(&ROOT, ROOT_HANDLE, 0, 1 << 16, true).await.expect("it can be listed");
            page.entries.iter().find(|entry| entry.handle == handle).expect("it is listed").attr.expect("it exists")
        }
        way => {
            let opened = match way {
                4 => client.open(&ROOT, handle, Rights::READ, false).await.expect("it opens"),
                _ => {
                    let options = CreateOptions { rights: Rights::READ, ..CreateOptions::default() };
                    let (attr, file, _) = client.create(&ROOT, ROOT_HANDLE, name.as_bytes(), &options).await.expect("it opens");
                    (attr, file)
                }
            };
            let (attr, file) = opened;
            assert!(file.size_known() >= attr.size, "reading stops at the size known");
            client.close(file).await.expect("it closes");
            attr
        }
    };
    (attr.size, attr.mtime)
}

#[test]
fn an_answer_from_before_a_close_does_not_hide_what_was_written() {
    for way in 0..6 {
        let rt = FakeRt::new(1, 1, 1 << 20);
        let client = rt.client(1);
        let file = create(&rt, &client, "x");
        let handle = file.handle();
        rt.run(client.write(&file, 0, Bulk::Slices(vec![b"words"]))).expect("it is written");
        // The server answers before the file is closed, but the answer is read after that.
        let mut first = true;
        rt.fates(move |_| if std::mem::take(&mut first) { Fate::ReplyLate(10 * LATENCY) } else { Fate::Arrives });
        let asked = ask_about(&client, handle, "x", way);
        let close = async {
            rt.sleep_until(rt.now() + LATENCY / 2).await;
            client.close(file).await.expect("it closes");
        };
        let ((size, mtime), ()) = rt.run(both(asked, close));
        assert_eq!(size, 5, "way {way}");
        assert!(mtime > WallTime(0), "way {way}");
    }
}

#[test]
fn a_file_that_was_forgotten_and_opened_anew_is_asked_for_again() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let file = create(&rt, &client, "x");
    let handle = file.handle();
    rt.run(client.write(&file, 0, Bulk::Slices(vec![b"words"]))).expect("it is written");
    let mut first = true;
    rt.fates(move |_| if std::mem::take(&mut first) { Fate::ReplyLate(20 * LATENCY) } else { Fate::Arrives });
    let asked = client.getattr(handle);
    let meanwhile = async {
        rt.sleep_until(rt.now() + LATENCY / 2).await;
        client.close(file).await.expect("it closes");
        // As after a thousand other closes.
        client.inner.opens.begin_reclaim();
        client.open(&ROOT, handle, Rights::READ, false).await.expect("it opens").1
    };
    let (attr, file) = rt.run(both(asked, meanwhile));
    assert_eq!(attr.expect("it exists").size, 5);
    rt.run(client.close(file)).expect("it closes");
}

#[test]
fn what_was_written_is_seen_by_whatever_is_asked_later() {
    for seed in 0..400u64 {
        let rt = FakeRt::new(1, 2, 4096);
        let client = rt.client(1);
        let handle = create(&rt, &client, "x").handle();
        let mut random = seed;
        rt.fates(move |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match (random >> 33) % 20 {
                0 => Fate::ReplyLost,
                other if other % 2 == 0 => Fate::Late(other * LATENCY / 3),
                other => Fate::ReplyLate(other * LATENCY / 3),
            }
        });
        // The end of what is written for certain, and the time of the newest write.
        let written = std::cell::Cell::new((0u64, WallTime(0)));
        let flows = (0..16u64).map(|task| {
            let (rt, client, written) = (&rt, &client, &written);
            async move {
                rt.sleep_until(rt.now() + rt.random() % (60 * LATENCY)).await;
                if task % 4 == 0 {
                    let (_, file) = client.open(&ROOT, handle, Rights::WRITE, false).await.expect("it opens");
                    let (offset, begun) = (task * 1000, rt.wall());
                    client.write(&file, offset, Bulk::Slices(vec![&[1; 100]])).await.expect("it is written");
                    let (end, mtime) = written.get();
                    written.set((end.max(offset + 100), mtime.max(begun)));
                    client.close(file).await.expect("it closes");
                } else {
                    let (end, mtime) = written.get();
                    let way = rt.random();
                    let seen = ask_about(client, handle, "x", way).await;
                    assert!(seen.0 >= end, "seed {seed}, way {}: {} bytes seen of {end}", way % 6, seen.0);
                    assert!(seen.1 >= mtime, "seed {seed}, way {}: mtime {:?} before {mtime:?}", way % 6, seen.1);
                }
            }
        });
        rt.run(run_window(flows, 16));
    }
}

#[test]
fn random_races_of_opens_and_closes_leave_the_server_with_what_is_open() {
    for seed in 0..200u64 {
        let rt = FakeRt::new(1, 1, 1 << 20);
        let client = rt.client(1);
        let handle = rt.0.borrow_mut().add(ROOT_HANDLE, "x", 0, FileKind::File, "");
        let mut random = seed;
        rt.fates(move |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match (random >> 33) % 20 {
                0 => Fate::ReplyLost,
                1 => Fate::Lost,
                other => Fate::Late(other * LATENCY / 3),
            }
        });
        let keep = |task: u64| (seed + task).is_multiple_of(4);
        let flows = (0..12u64).map(|task| {
            let (rt, client) = (&rt, &client);
            async move {
                let rights = [Rights::READ, Rights::WRITE, BOTH][((seed + task) % 3) as usize];
                rt.sleep_until(rt.now() + rt.random() % (10 * LATENCY)).await;
                let file = if task % 2 == 0 {
                    client.open(&ROOT, handle, rights, false).await.expect("it opens").1
                } else {
                    let options = CreateOptions { rights, ..CreateOptions::default() };
                    client.create(&ROOT, ROOT_HANDLE, b"x", &options).await.expect("it opens").1
                };
                rt.sleep_until(rt.now() + rt.random() % (10 * LATENCY)).await;
                let server_has = held(rt, handle).into_iter().fold(Rights::default(), Rights::with);
                assert!(server_has.contains(rights), "seed {seed}: {rights:?} is open but the server has {server_has:?}");
                if keep(task) {
                    return Some(file);
                }
                client.close(file).await.expect("it closes");
                None
            }
        });
        let kept: Vec<_> = rt.run(run_window(flows, 12)).into_iter().flatten().collect();
        let needed = kept.iter().fold(Rights::default(), |all, file| all.with(file.rights()));
        let server_has = held(&rt, handle).into_iter().fold(Rights::default(), Rights::with);
        assert!(server_has.contains(needed), "seed {seed}: {needed:?} is open but the server has {server_has:?}");
        for file in kept {
            rt.run(client.close(file)).expect("it closes");
        }
        assert!(held(&rt, handle).is_empty(), "seed {seed}: all is closed");
        assert!(client.inner.opens.at_server(META0).is_empty(), "seed {seed}: nothing is remembered");
    }
}

#[test]
fn a_restarted_server_is_told_what_is_open() {
    let rt = FakeRt::new(2, 1, 1 << 20);
    let client = rt.client(1);
    let file = create(&rt, &client, "a");
    rt.restart(META0);
    rt.take_sent();
    rt.run(client.getattr(ROOT_HANDLE)).expect("the server answers");
    assert_eq!(rt.take_sent(), [(META0, Op::GetAttr), (META0, Op::Reclaim)]);
    assert_eq!(held(&rt, file.handle()), [BOTH]);
    let sequence = rt.0.borrow().reclaimed[0].open_sequence;
    assert_eq!(sequence, 1);
    // An idle process notices it by keeping alive.
    rt.restart(META0);
    rt.run(client.keep_alive());
    assert_eq!(rt.take_sent(), [(META0, Op::Ping), (META0, Op::Reclaim)]);
    assert_eq!(held(&rt, file.handle()), [BOTH]);
    rt.run(client.close(file)).expect("it closes");
    // With nothing open there is nothing to say.
    rt.take_sent();
    rt.restart(META0);
    rt.run(client.getattr(ROOT_HANDLE)).expect("the server answers");
    assert_eq!(rt.take_sent(), [(META0, Op::GetAttr)]);
}

#[test]
fn an_open_that_a_restart_made_the_server_forget_is_done_again() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    rt.run(client.getattr(ROOT_HANDLE)).expect("the client knows the server");
    let world = rt.clone();
    rt.fates(move |sent| {
        // The create is executed, and the server restarts before it can answer. The retry is
        // answered from the reply table.
        let retry = sent.header.flags.contains(Flags::RETRY);
        if sent.request.op() == Op::Create && retry {
            world.restart(META0);
        }
        if sent.request.op() == Op::Create && !retry { Fate::ReplyLost } else { Fate::Arrives }
    });
    let options = CreateOptions { exclusive: true, ..CreateOptions::default() };
    let (_, file, created) = rt.run(client.create(&ROOT, ROOT_HANDLE, b"a", &options)).expect("the server made it");
    assert!(created);
    assert_eq!(held(&rt, file.handle()), [BOTH]);
    let ops: Vec<Op> = rt.take_sent().into_iter().map(|(_, op)| op).collect();
    assert_eq!(ops, [Op::GetAttr, Op::Create, Op::Create, Op::Open]);
}

#[test]
fn a_close_that_overtakes_the_message_after_a_restart_is_repeated() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let (file, other) = (create(&rt, &client, "a"), create(&rt, &client, "b"));
    rt.restart(META0);
    rt.fates(|sent| if sent.request.op() == Op::Reclaim { Fate::Late(20 * LATENCY) } else { Fate::Arrives });
    let close_soon = async {
        rt.sleep_until(rt.now() + 4 * LATENCY).await;
        client.close(file).await
    };
    let (attr, closed) = rt.run(both(client.getattr(ROOT_HANDLE), close_soon));
    attr.expect("the server answers");
    closed.expect("it closes");
    let open: Vec<Handle> = rt.0.borrow().opens.keys().map(|(_, handle)| *handle).collect();
    assert_eq!(open, [other.handle()]);
}

#[test]
fn after_a_broken_connection_the_server_is_told_as_well() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let file = create(&rt, &client, "a");
    rt.take_sent();
    let mut times = 0;
    rt.fates(move |_| {
        times += 1;
        if times == 1 { Fate::NoConnection } else { Fate::Arrives }
    });
    rt.run(client.getattr(ROOT_HANDLE)).expect("the server answers");
    assert_eq!(rt.take_sent(), [(META0, Op::GetAttr), (META0, Op::GetAttr), (META0, Op::Reclaim)]);
    rt.run(client.close(file)).expect("it closes");
}

#[test]
fn a_close_that_did_not_arrive_is_made_up_for_and_so_is_a_dropped_file() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let file = create(&rt, &client, "a");
    let handle = file.handle();
    rt.run(client.write(&file, 0, Bulk::Slices(vec![b"hello"]))).expect("it is written");
    rt.fates(|_| Fate::NoConnection);
    assert_eq!(rt.run(client.close(file)).map_err(|error| error.status), Err(Status::Unreachable));
    drop(create_dropped(&rt, &client));
    rt.no_faults();
    assert_eq!(held(&rt, handle), [BOTH]);
    rt.run(client.keep_alive());
    assert!(rt.0.borrow().opens.is_empty());
    assert_eq!(rt.0.borrow().inodes[&handle].attr.size, 5, "what was written is reported as well");
    assert!(client.inner.opens.at_server(META0).is_empty());
}

fn create_dropped(rt: &FakeRt, client: &Client<FakeRt>) -> Arc<OpenFile> {
    rt.no_faults();
    let file = create(rt, client, "dropped");
    rt.fates(|_| Fate::NoConnection);
    file
}

#[test]
fn a_time_that_is_set_is_not_overwritten_by_earlier_writes() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let file = create(&rt, &client, "a");
    rt.run(client.write(&file, 0, Bulk::Slices(vec![b"hello"]))).expect("it is written");
    rt.take_sent();
    let past = SetAttr { mtime: Some(SetTime { at: Some(WallTime(-5)) }), ..SetAttr::default() };
    let attr = rt.run(client.setattr(&ROOT, file.handle(), &past)).expect("the server sets it");
    assert_eq!((attr.mtime, attr.size), (WallTime(-5), 5));
    assert_eq!(rt.take_sent(), [(META0, Op::SetAttr)], "no report before it");
    let handle = file.handle();
    rt.run(client.close(file)).expect("it closes");
    let attr = rt.run(client.getattr(handle)).expect("the server answers");
    assert_eq!((attr.mtime, attr.size), (WallTime(-5), 5), "the report at the close is of an earlier write");
    let (_, file) = rt.run(client.open(&ROOT, handle, Rights::WRITE, false)).expect("it opens");
    rt.run(client.write(&file, 0, Bulk::Slices(vec![b"again"]))).expect("it is written");
    let written = rt.run(client.getattr(handle)).expect("the server answers").mtime;
    assert!(written > WallTime(0), "a later write");
    let future = SetAttr { mtime: Some(SetTime { at: Some(WallTime(i64::MAX)) }), ..SetAttr::default() };
    rt.run(client.setattr(&ROOT, handle, &future)).expect("the server sets it");
    rt.run(client.write(&file, 0, Bulk::Slices(vec![b"again"]))).expect("it is written");
    let other = rt.client(2);
    let seen = rt.run(other.getattr(handle)).expect("the server answers").mtime;
    assert!(seen > written && seen < WallTime(i64::MAX), "another client asks the data servers, and the later write wins: {seen:?}");
    rt.run(client.close(file)).expect("it closes");
    assert_eq!(rt.run(other.getattr(handle)).expect("the server answers").mtime, seen);
}

#[test]
fn capabilities_are_renewed_when_they_expire() {
    let rt = FakeRt::new(1, 2, 1 << 12);
    let client = rt.client(1);
    let file = create(&rt, &client, "a");
    rt.run(client.write(&file, 0, Bulk::Slices(vec![&[1; 8192]]))).expect("it is written");
    rt.run(rt.sleep_until(rt.now() + LIFETIME + SECOND));
    rt.take_sent();
    rt.run(client.write(&file, 0, Bulk::Slices(vec![&[2; 8192]]))).expect("it is written with a new capability");
    let sent = rt.take_sent();
    assert_eq!(sent.iter().filter(|(_, op)| *op == Op::Write).count(), 4, "each part once more: {sent:?}");
    assert_eq!(sent.iter().filter(|(_, op)| *op == Op::Open).count(), 1, "one new capability for all: {sent:?}");
    rt.run(client.close(file)).expect("it closes");
    assert!(rt.0.borrow().opens.is_empty());
}

#[test]
fn sync_goes_to_where_data_is_and_reports_the_size_first() {
    let rt = FakeRt::new(1, 4, 1 << 12);
    let client = rt.client(1);
    let file = create(&rt, &client, "a");
    rt.run(client.write(&file, 0, Bulk::Slices(vec![&[1; 5000]]))).expect("it is written");
    rt.take_sent();
    rt.run(client.fsync(&file, true)).expect("it is stable");
    let sent: Vec<Op> = rt.take_sent().into_iter().map(|(_, op)| op).collect();
    assert_eq!(sent.iter().filter(|op| **op == Op::ObjectSync).count(), 2);
    let meta: Vec<Op> = sent.into_iter().filter(|op| *op != Op::ObjectSync).collect();
    assert_eq!(meta, [Op::Close, Op::SyncMeta]);
    // Overwriting does not change the size, so the metadata need not follow.
    rt.run(client.write(&file, 0, Bulk::Slices(vec![&[2; 100]]))).expect("it is written");
    rt.take_sent();
    rt.run(client.fsync(&file, true)).expect("it is stable");
    assert!(rt.take_sent().iter().all(|(_, op)| *op == Op::ObjectSync));
    rt.run(client.fsync(&file, false)).expect("it is stable");
    assert!(rt.take_sent().contains(&(META0, Op::SyncMeta)));
    // A flush has nothing left to report, a close only that the file is closed.
    rt.run(client.flush(&file)).expect("nothing to say");
    assert!(rt.take_sent().is_empty());
    rt.run(client.close(file)).expect("it closes");
    let world = rt.0.borrow();
    let Request::Close(last) = &world.sent.last().expect("the close was sent").request else { panic!("a close comes last") };
    assert_eq!((last.keeps, last.written.is_some()), (Rights::default(), false));
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let file = create(&rt, &client, "a");
    let handle = file.handle();
    rt.run(client.unlink(&ROOT, ROOT_HANDLE, b"a")).expect("the name goes");
    rt.run(client.write(&file, 0, Bulk::Slices(vec![b"still here"]))).expect("it is written");
    let pieces = rt.run(client.read(&file, 0, 100)).expect("it is read");
    assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<u64>(), 10);
    rt.run(client.close(file)).expect("it closes");
    assert!(!rt.0.borrow().inodes.contains_key(&handle));
}
