//! What records say to those who watch.

mod common;

use bytes::Bytes;
use common::*;
use weft_base::{ClientId, FileKind, Handle, ROOT_HANDLE, RequestId, ServerId};
use weft_namespace::*;
use weft_wire::ops::ChangeKind::{Changed, Created, Removed, Renamed, Written as WrittenTo};
use weft_wire::ops::*;
use weft_wire::{Rights, Wire};

/// What the newest record says, after it was read from its bytes.
fn newest(m: &Machine) -> Vec<ToldChange> {
    told(&Record::decode(m.log.last().expect("a record").clone().into()).expect("own bytes").changes)
}

/// The same, if the record has this answer.
fn answered(m: &Machine, body: Bytes) -> Vec<ToldChange> {
    let mut changes = Record::decode(m.log.last().expect("a record").clone().into()).expect("own bytes").changes;
    changes.push(Change::reply(RequestId { client: ClientId(1), incarnation: 1, sequence: 1 }, 1, body));
    told(&changes)
}

fn names(told: &[ToldChange]) -> Vec<(ChangeKind, Handle, &[u8])> {
    told.iter().map(|told| (told.what, told.dir, &told.name[..])).collect()
}

#[test]
fn names_are_told_with_what_they_lead_to() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    let told = newest(&m);
    assert_eq!(names(&told), [(Created, ROOT_HANDLE, &b"d"[..])]);
    assert_eq!((told[0].handle, told[0].kind, told[0].tx), (dir, Some(FileKind::Directory), None));
    assert_eq!(told[0].time, m.attr(ROOT_HANDLE).mtime);
    let file = m.create(dir, "f").unwrap();
    assert_eq!((names(&newest(&m)), newest(&m)[0].handle), (vec![(Created, dir, &b"f"[..])], file));
    m.link(file, dir, "g").unwrap();
    assert_eq!((names(&newest(&m)), newest(&m)[0].handle), (vec![(Created, dir, &b"g"[..])], file));
    m.rename(dir, "g", ROOT_HANDLE, "h").unwrap();
    let told = newest(&m);
    assert_eq!((names(&told), told[0].to_dir, &told[0].to_name[..]), (vec![(Renamed, dir, &b"g"[..])], ROOT_HANDLE, &b"h"[..]));
    // Over a name that is there, and an exchange.
    m.create(dir, "over").unwrap();
    m.rename(ROOT_HANDLE, "h", dir, "over").unwrap();
    assert_eq!(names(&newest(&m)), [(Renamed, ROOT_HANDLE, &b"h"[..])]);
    m.create(dir, "other").unwrap();
    m.rename_with(&RenameRequest { exchange: true, ..rename(dir, "other", dir, "over") }).unwrap();
    assert_eq!(names(&newest(&m)), [(Created, dir, &b"other"[..]), (Created, dir, b"over")]);
    m.unlink(dir, "over").unwrap();
    assert_eq!(names(&newest(&m)), [(Removed, dir, &b"over"[..])]);
    let request = RemoveEntriesRequest { at: at(dir), cookie: 0, entries_max: 99, who: ROOT };
    m.change(|state, cx, record| state.prepare_remove_entries(cx, &request, record)).unwrap();
    let mut told: Vec<Bytes> = newest(&m).into_iter().filter(|told| told.what == Removed).map(|told| told.name).collect();
    told.sort();
    assert_eq!(told, [&b"f"[..], b"other"]);
    m.rmdir(ROOT_HANDLE, "d").unwrap();
    assert_eq!(names(&newest(&m)), [(Removed, ROOT_HANDLE, &b"d"[..])]);
}

#[test]
fn files_are_told_when_nobody_writes_to_them_any_more() {
    let mut m = Machine::new();
    let file = m.create(TOP, "f").unwrap();
    let opened = m.open(file, Rights::READ.with(Rights::WRITE), 1).unwrap();
    assert_eq!(answered(&m, opened.to_bytes()), [], "nothing has happened to it");
    let close = |m: &mut Machine, sequence, keeps| {
        let written = Some(Written { end_bytes: 5, mtime: m.attr(file).data_time(), truncate_epoch: 0 });
        let request = CloseRequest { handle: file, open_sequence: sequence, keeps, written };
        m.change(|state, cx, record| state.prepare_close(cx, &request, None, record)).unwrap();
    };
    close(&mut m, 1, Rights::WRITE);
    assert_eq!(answered(&m, ().to_bytes()).iter().map(|told| (told.what, told.handle)).collect::<Vec<_>>(), [(Changed, file)]);
    close(&mut m, 1, Rights::default());
    for told in [newest(&m), answered(&m, ().to_bytes())] {
        assert_eq!(
            told.iter().map(|told| (told.what, told.handle, told.kind)).collect::<Vec<_>>(),
            [(WrittenTo, file, Some(FileKind::File))]
        );
    }
    m.setattr(&SetAttrRequest { mode: Some(0o600), ..setattr(file, &ROOT) }).unwrap();
    let state = m.look(|state, cx| state.getattr(cx, file)).unwrap();
    assert_eq!(answered(&m, state.to_bytes())[0].what, Changed);
    let value = Bytes::from_static(b"v");
    let request = SetXattrRequest { handle: file, name: name("user.a"), value, create_only: false, replace_only: false, who: ROOT };
    m.change(|state, cx, record| state.prepare_set_xattr(cx, &request, record)).unwrap();
    assert_eq!(answered(&m, ().to_bytes()).iter().map(|told| told.what).collect::<Vec<_>>(), [Changed]);
}

#[test]
fn a_file_that_is_made_with_its_content_is_told_as_written() {
    let mut m = Machine::with(Settings { inline_limit: 4096, ..settings() });
    m.state.keep_contents(4).unwrap();
    let content = Some(Bytes::from_static(b"all of it"));
    let request = CreateRequest { exclusive: false, open: Rights::WRITE, content, ..create(TOP, "f") };
    let made = m.change(|state, cx, record| state.prepare_create(cx, &request, record)).unwrap();
    let told = newest(&m);
    assert_eq!(names(&told), [(Created, TOP, &b"f"[..]), (WrittenTo, Handle(0), b"")]);
    assert_eq!((told[1].handle, told[1].kind, told[1].time), (made.handle, Some(FileKind::File), m.attr(made.handle).ctime));
}

#[test]
fn parts_of_transactions_name_it() {
    let mut m = Machine::new();
    let (dir, far) = (m.mkdir(TOP, "d").unwrap(), Handle::new(ServerId(1), 77));
    let tx = TxId { coordinator: ServerId(1), number: 5 };
    let entry = Change::PutEntry { dir, name: name("far"), handle: far, kind: FileKind::Directory };
    let told_of = |changes: &[Change]| told(changes);
    let told = told_of(&[entry, Change::DeletePrepared { tx }]);
    assert_eq!((names(&told), told[0].tx), (vec![(Created, dir, &b"far"[..])], Some(tx)));
    let inode = m.state.peek(dir).unwrap().clone();
    // The object of a name on another server: told with the name, there.
    assert_eq!(told_of(&[Change::PutInode { handle: dir, inode }, Change::DeletePrepared { tx }]), []);
    for nothing in [Change::ForgetClient { client: ClientId(1) }, Change::PutCounter { next: 5 }, Change::DeleteDecided { tx }] {
        assert_eq!(told_of(&[nothing]), []);
    }
}
