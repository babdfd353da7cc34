//! `O_SYNC`, and listings beside a data server that does not answer.

use weft_base::{Credentials, ROOT_HANDLE, SECOND};
use weft_rt::{Bulk, Runtime};
use weft_wire::Request;
use weft_wire::ops::Op;

use crate::CreateOptions;
use crate::fake::{FakeRt, Fate};

static ROOT: Credentials = Credentials { uid: 0, gid: 0, groups: Vec::new(), checked_by_kernel: false };

#[test]
fn a_synced_write_is_a_flush_of_data_and_of_attributes_that_are_needed() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let (_, file, _) = rt.run(client.create(&ROOT, ROOT_HANDLE, b"file", &CreateOptions::default())).expect("it is made");
    let write = |data_only| {
        rt.0.borrow_mut().sent.clear();
        rt.run(client.write_synced(&file, 0, Bulk::Slices(vec![&[7; 100]]), data_only)).expect("it is written");
        let sent = rt.0.borrow().sent.clone();
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
    let rt = FakeRt::new(1, 2, 1 << 20);
    let (writer, reader) = (rt.client(1), rt.client(2));
    let mut open = Vec::new();
    for number in 0..20u8 {
        let name = [b'f', b'a' + number];
        let (_, file, _) = rt.run(writer.create(&ROOT, ROOT_HANDLE, &name, &CreateOptions::default())).expect("it is made");
        rt.run(writer.write(&file, 0, Bulk::Slices(vec![&[1; 10]]))).expect("it is written");
        open.push(file);
    }
    let page = rt.run(reader.readdir_soon(&ROOT, ROOT_HANDLE, 0, 1 << 16)).expect("it is listed");
    assert!(page.entries.iter().all(|entry| entry.is_exact && entry.attr.is_some_and(|attr| attr.size == 10)));
    rt.fates(|sent| if sent.request.op() == Op::ObjectStat { Fate::Lost } else { Fate::Arrives });
    let begun = rt.now();
    let page = rt.run(reader.readdir_soon(&ROOT, ROOT_HANDLE, 0, 1 << 16)).expect("it is listed");
    assert_eq!(page.entries.len(), 20);
    assert!(page.entries.iter().all(|entry| !entry.is_exact && entry.attr.is_some_and(|attr| attr.size == 0)), "as known last");
    let seen = rt.run(reader.lookup_soon(&ROOT, ROOT_HANDLE, b"fa")).expect("the name is there");
    assert!(!seen.is_exact);
    assert!(rt.now().since(begun) < 2 * SECOND, "once for all: {} ns", rt.now().since(begun));
    let error = rt.run(reader.getattr(open[0].handle())).expect_err("who wants it exactly waits");
    assert!(error.server.is_some() && rt.now().since(begun) > 10 * SECOND);
}
