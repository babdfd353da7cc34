//! Slices of a directory that are removed as one change: as the same names removed one by one.

mod common;

use common::*;
use weft_base::{Credentials, FileKind, Handle, ROOT_HANDLE, Result, ServerId, Status, WallTime};
use weft_namespace::*;
use weft_wire::Rights;
use weft_wire::ops::*;

fn remove_as(m: &mut Machine, who: &Credentials, dir: Handle, cookie: u64, entries_max: u32) -> Result<RemoveEntriesReply> {
    let request = RemoveEntriesRequest { at: at(dir), cookie, entries_max, who: who.clone() };
    m.change(|state, cx, record| state.prepare_remove_entries(cx, &request, record))
}

fn remove(m: &mut Machine, dir: Handle, cookie: u64) -> RemoveEntriesReply {
    remove_as(m, &ROOT, dir, cookie, u32::MAX).expect("root may")
}

fn counts(reply: &RemoveEntriesReply) -> (u32, u32, Vec<(&[u8], Status)>) {
    let mut left: Vec<_> = reply.left.iter().map(|left| (&left.name[..], left.status())).collect();
    left.sort_unstable_by_key(|(name, _)| *name);
    (reply.files, reply.directories, left)
}

#[test]
fn files_and_empty_directories_go_and_the_rest_is_told() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    let file = m.create(dir, "file").unwrap();
    let (empty, full) = (m.mkdir(dir, "empty").unwrap(), m.mkdir(dir, "full").unwrap());
    m.create(full, "inside").unwrap();
    let far = Handle::new(ServerId(1), 77);
    let entry = |name_of: &str, kind| Change::PutEntry { dir, name: name(name_of), handle: far, kind };
    m.commit(Record { changes: vec![entry("far", FileKind::Directory), entry("linked", FileKind::File)], open: None });
    let before = m.attr(dir);
    let reply = remove(&mut m, dir, 0);
    let left = vec![(&b"far"[..], Status::WrongServer), (b"full", Status::NotEmpty), (b"linked", Status::WrongServer)];
    assert_eq!(counts(&reply), (1, 1, left));
    assert_eq!((reply.until, reply.dir.version), (u64::MAX, before.version + 1), "one change of the directory");
    let after = m.attr(dir);
    assert_eq!((after.size, after.nlink, after.version, after.mtime), (3, 4, before.version + 1, reply.dir.time));
    assert!(m.state.peek(file).is_none() && m.state.peek(empty).is_none());
    // Nothing to do is no change.
    let (log, again) = (m.log.len(), remove(&mut m, dir, 0));
    assert_eq!((again.files, again.dir, m.log.len()), (0, DirChange::NONE, log));
    assert_eq!(dump(&replay(m.log.iter().map(|record| record.clone().into()))), dump(&m.state), "a restart finds the same");
}

#[test]
fn a_slice_is_bounded_whatever_is_asked_for() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    let files = 2 * REMOVALS_MAX + 10;
    for file in 0..files {
        m.create(dir, &format!("f{file}")).unwrap();
    }
    let one = remove_as(&mut m, &ROOT, dir, 0, 0).unwrap();
    assert_eq!(one.files, 1, "at least one, so that it ends");
    let (mut cookie, mut slices) = (one.until, vec![]);
    while cookie < u64::MAX {
        let reply = remove(&mut m, dir, cookie);
        assert!(reply.until > cookie);
        (cookie, slices) = (reply.until, [slices, vec![reply.files as usize]].concat());
    }
    assert_eq!(slices, [REMOVALS_MAX, REMOVALS_MAX, 9]);
    assert_eq!(m.attr(dir).size, 0);
    m.rmdir(ROOT_HANDLE, "d").unwrap();
}

#[test]
fn several_names_of_one_object_count_each() {
    let mut m = Machine::new();
    let (dir, other) = (m.mkdir(ROOT_HANDLE, "d").unwrap(), m.mkdir(ROOT_HANDLE, "o").unwrap());
    let (kept, gone) = (m.create(dir, "kept").unwrap(), m.create(dir, "gone").unwrap());
    m.link(kept, dir, "kept2").unwrap();
    m.link(kept, other, "outside").unwrap();
    m.link(gone, dir, "gone2").unwrap();
    m.link(gone, dir, "gone3").unwrap();
    assert_eq!(counts(&remove(&mut m, dir, 0)), (5, 0, vec![]));
    assert_eq!(m.attr(kept).nlink, 1);
    assert_eq!(m.lookup(other, "outside"), Ok(kept));
    assert!(m.state.peek(gone).is_none());
}

#[test]
fn an_open_file_lives_on_without_its_name() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    let file = m.create(dir, "f").unwrap();
    m.open(file, Rights::READ, 1).unwrap();
    assert_eq!(remove(&mut m, dir, 0).files, 1);
    assert_eq!((m.attr(file).nlink, m.state.reapable(Handle(0), 9)), (0, vec![]));
    assert_eq!(m.lookup(dir, "f"), Err(Status::NotFound));
}

#[test]
fn it_takes_what_listing_and_removing_take() {
    let mut m = Machine::new();
    let (owner, other) = (user(10, 10), user(11, 11));
    let open = m.mkdir_as(&ROOT, ROOT_HANDLE, "open", 0o777).unwrap();
    // Each bit that is missing.
    for (name, mode) in [("unread", 0o773), ("unwritten", 0o775), ("unsearched", 0o776)] {
        let dir = m.mkdir_as(&owner, open, name, mode).unwrap();
        m.create_as(&owner, dir, "f", 0o666).unwrap();
        assert_eq!(remove_as(&mut m, &other, dir, 0, 9), Err(Status::AccessDenied), "{name}");
        assert_eq!(remove_as(&mut m, &owner, dir, 0, 9).map(|reply| reply.files), Ok(1), "{name}");
    }
    // In a sticky directory what one owns, and the directory's owner everything.
    let sticky = m.mkdir_as(&owner, open, "sticky", 0o777).unwrap();
    m.setattr(&SetAttrRequest { mode: Some(0o1777), ..setattr(sticky, &owner) }).unwrap();
    m.create_as(&owner, sticky, "his", 0o666).unwrap();
    m.create_as(&other, sticky, "mine", 0o666).unwrap();
    m.mkdir_as(&owner, sticky, "dir", 0o777).unwrap();
    let reply = remove_as(&mut m, &other, sticky, 0, 9).unwrap();
    assert_eq!(counts(&reply), (1, 0, vec![(&b"dir"[..], Status::NotPermitted), (b"his", Status::NotPermitted)]));
    assert_eq!(counts(&remove_as(&mut m, &owner, sticky, 0, 9).unwrap()), (1, 1, vec![]));
    // No directory, and none any more.
    let file = m.create(open, "file").unwrap();
    assert_eq!(remove_as(&mut m, &ROOT, file, 0, 9), Err(Status::NotDirectory));
    m.rmdir(open, "sticky").unwrap();
    assert_eq!(remove_as(&mut m, &ROOT, sticky, 0, 9), Err(Status::NotFound));
}

#[test]
fn what_a_transaction_holds_is_left() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    let (held, _) = (m.create(dir, "held").unwrap(), m.create(dir, "free").unwrap());
    let tx = TxId { coordinator: ServerId(1), number: 5 };
    let prepare = |m: &mut Machine, part| {
        let prepared = Prepared { parts: vec![part], handles: vec![held], time: WallTime(5) };
        m.commit(Record { changes: vec![Change::PutPrepared { tx, prepared }], open: None });
    };
    // A name that is perhaps decided elsewhere: as for a listing.
    prepare(&mut m, TxPart::RemoveEntry { dir, name: name("held"), handle: held });
    assert_eq!(remove_as(&mut m, &ROOT, dir, 0, 9), Err(Status::Busy));
    m.commit(Record { changes: vec![Change::DeletePrepared { tx }], open: None });
    // An object.
    prepare(&mut m, TxPart::ChangeLinks { handle: held, kind: FileKind::File, delta: 1, must_own: false });
    assert_eq!(counts(&remove(&mut m, dir, 0)), (1, 0, vec![(&b"held"[..], Status::Busy)]));
    m.commit(Record { changes: vec![Change::DeletePrepared { tx }], open: None });
    assert_eq!(counts(&remove(&mut m, dir, 0)), (1, 0, vec![]));
}
