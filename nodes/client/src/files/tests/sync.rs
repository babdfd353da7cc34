//! What reaches stable storage and the inode and when, and listings beside a data server that does
//! not answer.

use weft_base::{ROOT_HANDLE, SECOND, WallTime};
use weft_rt::{Bulk, Runtime};
use weft_wire::ops::{Op, SetTime};
use weft_wire::{Request, Rights};

use crate::tests::world::{Fate, META0, ROOT, World, create};
use crate::{CreateOptions, SetAttr};

#[test]
fn a_synced_write_is_a_flush_of_data_and_of_attributes_that_are_needed() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let (_, file, _) = world.run(client.create(&ROOT, ROOT_HANDLE, b"file", &CreateOptions::default())).expect("it is made");
    let write = |data_only| {
        world.take_sent();
        world.run(client.write_synced(&file, 0, Bulk::Slices(vec![&[7; 100]]), data_only)).expect("it is written");
        let sent = world.take_messages();
        let synced = sent.iter().filter_map(|sent| if let Request::Write(write) = &sent.request { Some(write.sync) } else { None });
        assert!(synced.into_iter().all(|sync| sync), "the data is on stable storage");
        sent.iter().map(|sent| sent.request.op()).collect::<Vec<Op>>()
    };
    assert_eq!(write(true), [Op::Write, Op::Close, Op::SyncMeta], "the size is new");
    assert_eq!(write(true), [Op::Write], "the size is the same");
    assert_eq!(write(false), [Op::Write, Op::Close, Op::SyncMeta], "O_SYNC wants the times, too");
}

#[test]
fn a_listing_does_not_wait_for_a_silent_data_server() {
    let world = World::new(1, 2, 1 << 20);
    let (writer, reader) = (world.client(1), world.client(2));
    let mut open = Vec::new();
    for number in 0..20u8 {
        let name = [b'f', b'a' + number];
        let (_, file, _) = world.run(writer.create(&ROOT, ROOT_HANDLE, &name, &CreateOptions::default())).expect("it is made");
        world.run(writer.write(&file, 0, Bulk::Slices(vec![&[1; 10]]))).expect("it is written");
        open.push(file);
    }
    let page = world.run(reader.readdir_soon(&ROOT, ROOT_HANDLE, 0, 1 << 16)).expect("it is listed");
    assert!(page.entries.iter().all(|entry| entry.is_exact && entry.attr.is_some_and(|attr| attr.size == 10)));
    world.fates(|sent| if sent.request.op() == Op::ObjectStat { Fate::Lost } else { Fate::Arrives });
    let begun = world.now();
    let page = world.run(reader.readdir_soon(&ROOT, ROOT_HANDLE, 0, 1 << 16)).expect("it is listed");
    assert_eq!(page.entries.len(), 20);
    assert!(page.entries.iter().all(|entry| !entry.is_exact && entry.attr.is_some_and(|attr| attr.size == 0)), "as known last");
    let seen = world.run(reader.lookup_soon(&ROOT, ROOT_HANDLE, b"fa")).expect("the name is there");
    assert!(!seen.is_exact);
    assert!(world.now().since(begun) < 2 * SECOND, "once for all: {} ns", world.now().since(begun));
    let error = world.run(reader.getattr(open[0].handle())).expect_err("who wants it exactly waits");
    assert!(error.server.is_some() && world.now().since(begun) > 10 * SECOND);
}

#[test]
fn sync_goes_to_where_data_is_and_reports_the_size_first() {
    let world = World::new(1, 4, 1 << 12);
    let client = world.client(1);
    let file = create(&world, &client, "a");
    world.run(client.write(&file, 0, Bulk::Slices(vec![&[1; 5000]]))).expect("it is written");
    world.take_sent();
    world.run(client.fsync(&file, true)).expect("it is stable");
    let sent: Vec<Op> = world.take_sent().into_iter().map(|(_, op)| op).collect();
    assert_eq!(sent.iter().filter(|op| **op == Op::ObjectSync).count(), 2);
    let meta: Vec<Op> = sent.into_iter().filter(|op| *op != Op::ObjectSync).collect();
    assert_eq!(meta, [Op::Close, Op::SyncMeta]);
    // Overwriting does not change the size, so the metadata need not follow.
    world.run(client.write(&file, 0, Bulk::Slices(vec![&[2; 100]]))).expect("it is written");
    world.take_sent();
    world.run(client.fsync(&file, true)).expect("it is stable");
    assert!(world.take_sent().iter().all(|(_, op)| *op == Op::ObjectSync));
    world.run(client.fsync(&file, false)).expect("it is stable");
    assert!(world.take_sent().contains(&(META0, Op::SyncMeta)));
    // A flush has nothing left to report, a close only that the file is closed.
    world.run(client.flush(&file)).expect("nothing to say");
    assert!(world.take_sent().is_empty());
    world.run(client.close(file)).expect("it closes");
    let sent = world.take_messages();
    let Request::Close(last) = &sent.last().expect("the close was sent").request else { panic!("a close comes last") };
    assert_eq!((last.keeps, last.written.is_some()), (Rights::default(), false));
}

#[test]
fn a_time_that_is_set_is_not_overwritten_by_earlier_writes() {
    let world = World::new(1, 1, 1 << 20);
    let client = world.client(1);
    let file = create(&world, &client, "a");
    world.run(client.write(&file, 0, Bulk::Slices(vec![b"hello"]))).expect("it is written");
    world.take_sent();
    let past = SetAttr { mtime: Some(SetTime { at: Some(WallTime(-5)) }), ..SetAttr::default() };
    let attr = world.run(client.setattr(&ROOT, file.handle(), &past)).expect("the server sets it");
    assert_eq!((attr.mtime, attr.size), (WallTime(-5), 5));
    assert_eq!(world.take_sent(), [(META0, Op::SetAttr)], "no report before it");
    let handle = file.handle();
    world.run(client.close(file)).expect("it closes");
    let attr = world.run(client.getattr(handle)).expect("the server answers");
    assert_eq!((attr.mtime, attr.size), (WallTime(-5), 5), "the report at the close is of an earlier write");
    let (_, file) = world.run(client.open(&ROOT, handle, Rights::WRITE, false)).expect("it opens");
    world.run(client.write(&file, 0, Bulk::Slices(vec![b"again"]))).expect("it is written");
    let written = world.run(client.getattr(handle)).expect("the server answers").mtime;
    assert!(written > WallTime(0), "a later write");
    let future = SetAttr { mtime: Some(SetTime { at: Some(WallTime(i64::MAX)) }), ..SetAttr::default() };
    world.run(client.setattr(&ROOT, handle, &future)).expect("the server sets it");
    world.run(client.write(&file, 0, Bulk::Slices(vec![b"again"]))).expect("it is written");
    let other = world.client(2);
    let seen = world.run(other.getattr(handle)).expect("the server answers").mtime;
    assert!(seen > written && seen < WallTime(i64::MAX), "another client asks the data servers, and the later write wins: {seen:?}");
    world.run(client.close(file)).expect("it closes");
    assert_eq!(world.run(other.getattr(handle)).expect("the server answers").mtime, seen);
}
