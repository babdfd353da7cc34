//! A sealed object refuses every change; reading goes on.

mod common;

use common::*;
use weft_base::{Credentials, FileKind, Handle, MODE_SEALED, ROOT_HANDLE, Result, ServerId, Status, WallTime};
use weft_namespace::*;
use weft_wire::Rights;
use weft_wire::ops::*;

fn seal_as(m: &mut Machine, who: &Credentials, handle: Handle, seals: bool) -> Result<()> {
    m.setattr(&SetAttrRequest { seal: Some(seals), ..setattr(handle, who) }).map(drop)
}

fn seal(m: &mut Machine, handle: Handle, seals: bool) {
    seal_as(m, &ROOT, handle, seals).expect("root may");
}

/// A sealed directory with a sealed file, directory and symlink in it, and a directory beside it.
struct Sealed {
    m: Machine,
    dir: Handle,
    file: Handle,
    inner: Handle,
    link: Handle,
}

fn sealed() -> Sealed {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    let (file, inner) = (m.create(dir, "f").unwrap(), m.mkdir(dir, "inner").unwrap());
    let link = CreateRequest { kind: FileKind::Symlink, target: name("f"), ..create(dir, "l") };
    let link = m.change(|state, cx, record| state.prepare_create(cx, &link, record)).unwrap().handle;
    m.create(ROOT_HANDLE, "loose").unwrap();
    [dir, file, inner, link].into_iter().for_each(|handle| seal(&mut m, handle, true));
    Sealed { m, dir, file, inner, link }
}

#[test]
fn nothing_of_a_sealed_tree_changes() {
    let Sealed { mut m, dir, file, inner, link } = sealed();
    let (before, log) = (dump(&m.state), m.log.len());
    let refused = Err(Status::Sealed);
    // Names.
    assert_eq!(m.create(dir, "new").map(drop), refused);
    assert_eq!(m.mkdir(dir, "new").map(drop), refused);
    assert_eq!(m.unlink(dir, "f"), refused);
    assert_eq!(m.rmdir(dir, "inner"), refused);
    assert_eq!(m.rename(dir, "f", dir, "g"), refused);
    assert_eq!(m.rename(dir, "f", ROOT_HANDLE, "g"), refused);
    assert_eq!(m.rename(ROOT_HANDLE, "loose", dir, "f"), refused);
    assert_eq!(m.link(file, ROOT_HANDLE, "other"), refused);
    let loose = m.lookup(ROOT_HANDLE, "loose").unwrap();
    assert_eq!(m.link(loose, dir, "other"), refused);
    // The sealed directory itself, whose name is in one that is not.
    assert_eq!(m.rename(ROOT_HANDLE, "d", ROOT_HANDLE, "e"), refused);
    assert_eq!(m.rmdir(ROOT_HANDLE, "d"), refused);
    let slice = RemoveEntriesRequest { at: at(dir), cookie: 0, entries_max: 10, who: ROOT };
    assert_eq!(m.change(|state, cx, record| state.prepare_remove_entries(cx, &slice, record)).map(drop), refused);
    // Attributes and contents.
    for handle in [dir, file, inner, link] {
        for request in [
            SetAttrRequest { uid: Some(5), ..setattr(handle, &ROOT) },
            SetAttrRequest { mtime: Some(SetTime { at: None }), ..setattr(handle, &ROOT) },
            SetAttrRequest { size: Some(0), opened_for_write: true, ..setattr(handle, &ROOT) },
            SetAttrRequest { mode: Some(0o600), ..setattr(handle, &ROOT) },
        ] {
            assert_eq!(m.setattr(&request).map(drop), refused, "{request:?}");
        }
        let set = SetXattrRequest { handle, name: name("trusted.a"), value: name("b"), create_only: false, replace_only: false, who: ROOT };
        assert_eq!(m.change(|state, cx, record| state.prepare_set_xattr(cx, &set, record)), refused);
    }
    for rights in [Rights::WRITE, Rights::READ.with(Rights::WRITE)] {
        assert_eq!(m.open(file, rights, 1).map(drop), refused);
    }
    let cut = OpenRequest { truncate: true, ..OpenRequest::of(file, Rights::READ, 1, ROOT) };
    assert!(m.change(|state, cx, record| state.prepare_open_truncate(cx, &cut, record)).is_err_and(|status| status == Status::Sealed));
    let again = CreateRequest { exclusive: false, open: Rights::WRITE, ..create(dir, "f") };
    assert_eq!(m.change(|state, cx, record| state.prepare_create(cx, &again, record)).map(drop), refused);
    // What replaces the whole tree in one step is a change of it.
    assert_eq!(m.rename_with(&RenameRequest { exchange: true, ..rename(ROOT_HANDLE, "loose", ROOT_HANDLE, "d") }), refused);

    assert_eq!((dump(&m.state), m.log.len()), (before, log));
    // Reading is as ever.
    assert_eq!(m.lookup(dir, "f"), Ok(file));
    m.open(file, Rights::READ, 1).expect("a sealed file is read");
    assert_eq!(m.attr(file).mode, 0o644 | MODE_SEALED);
}

#[test]
fn a_seal_is_kept_over_restarts_and_its_end_too() {
    let Sealed { mut m, dir, file, .. } = sealed();
    let again = |m: &Machine| replay(m.log.iter().map(|record| record.clone().into()));
    assert_eq!(dump(&again(&m)), dump(&m.state));
    assert!(again(&m).peek(file).is_some_and(Inode::is_sealed) && again(&m).peek(dir).is_some_and(Inode::is_sealed));
    let copy = replay(dump(&m.state));
    assert!(copy.peek(file).is_some_and(Inode::is_sealed), "a checkpoint keeps it");
    seal(&mut m, file, false);
    assert_eq!(m.unlink(dir, "f"), Err(Status::Sealed), "its name still stands in a sealed directory");
    seal(&mut m, dir, false);
    m.unlink(dir, "f").expect("neither is sealed");
    assert_eq!(dump(&again(&m)), dump(&m.state));
}

#[test]
fn only_owners_seal_and_only_what_nobody_writes_to() {
    let mut m = Machine::new();
    let (owner, other) = (user(10, 20), user(11, 20));
    let file = m.create_as(&owner, ROOT_HANDLE, "f", 0o666).unwrap();
    assert_eq!(seal_as(&mut m, &other, file, true), Err(Status::NotPermitted));
    m.open(file, Rights::WRITE, 1).unwrap();
    assert_eq!(seal_as(&mut m, &owner, file, true), Err(Status::BeingWritten));
    let close = CloseRequest { handle: file, open_sequence: 1, keeps: Rights::default(), written: None };
    m.change(|state, cx, record| state.prepare_close(cx, &close, None, record).map(drop)).unwrap();
    seal_as(&mut m, &owner, file, true).unwrap();
    seal_as(&mut m, &owner, file, true).expect("once more is no error");
    assert_eq!(seal_as(&mut m, &other, file, false), Err(Status::NotPermitted));
    // A seal is asked for alone.
    let both = SetAttrRequest { seal: Some(false), mode: Some(0o600), ..setattr(file, &owner) };
    assert_eq!(m.setattr(&both).map(drop), Err(Status::Invalid));
    // A mode has no bit for it.
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    m.setattr(&SetAttrRequest { mode: Some(0o700 | MODE_SEALED), ..setattr(dir, &ROOT) }).unwrap();
    assert_eq!(m.attr(dir).mode, 0o700);
}

/// A name that another server is deciding about would be made in a directory that is sealed.
#[test]
fn a_directory_is_sealed_when_no_change_of_its_names_is_under_way() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    let tx = TxId { coordinator: ServerId(1), number: 1 };
    let far = Handle::new(ServerId(1), 9);
    let part = TxPart::InsertEntry { dir, name: name("new"), handle: far, kind: FileKind::File, replaces: None };
    let handles = m.state.prepare_parts(tx, None, std::slice::from_ref(&part), &ROOT, Status::Conflict).unwrap();
    let prepared = Prepared { parts: vec![part.clone()], handles, time: WallTime(m.now) };
    m.commit(Record { changes: vec![Change::PutPrepared { tx, prepared: prepared.clone() }], open: None });
    assert_eq!(seal_as(&mut m, &ROOT, dir, true), Err(Status::Busy));
    // Of a directory with several servers each looks after its own names.
    let change = |mode| TxPart::ChangePartition { dir, mode, uid: 0, gid: 0, atime: None, mtime: None, attributes: Vec::new() };
    let other = TxId { number: 2, ..tx };
    let prepare = |m: &Machine, mode| m.state.prepare_parts(other, None, &[change(mode)], &ROOT, Status::Conflict).map(drop);
    assert_eq!((prepare(&m, 0o755), prepare(&m, 0o755 | MODE_SEALED)), (Ok(()), Err(Status::Conflict)));
    let mut record = Record::default();
    m.state.commit_parts(&prepared, &mut record);
    record.changes.push(Change::DeletePrepared { tx });
    m.commit(record);
    assert_eq!(m.lookup(dir, "new"), Ok(far));
    seal(&mut m, dir, true);
    assert_eq!(m.state.prepare_parts(other, None, &[part], &ROOT, Status::Conflict).map(drop), Err(Status::Sealed));
}
