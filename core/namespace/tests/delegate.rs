//! Delegated directories: who gets one, who waits for it, and what is taken in of what its client
//! tells.

mod common;

use bytes::Bytes;
use common::*;
use weft_base::{ClientId, Credentials, FileKind, Handle, Layout, MODE_PROJECT, ROOT_HANDLE, Result, ServerId, Status, WallTime};
use weft_namespace::{Account, Change, Record, Resource, State, put_loan};
use weft_wire::Rights;
use weft_wire::ops::{
    CreateReply, CreateRequest, Delegation, HANDLES_FEW, HANDLES_GIVEN, HandleRange, NewAttributes, NewFile, NewFiles, QuotaId,
    SetAttrRequest,
};

const OTHER: ClientId = ClientId(2);

/// A create by a client that has so many handles left.
fn made(m: &mut Machine, dir: Handle, file: &str, handles_left: u32) -> CreateReply {
    let request = CreateRequest { open: Rights::WRITE, open_sequence: 7, can_hold: Some(handles_left), ..create(dir, file) };
    m.change(|state, cx, record| state.prepare_create(cx, &request, record)).unwrap()
}

/// A machine with a directory that is delegated to its client, and the handles for it.
fn delegated() -> (Machine, Handle, HandleRange) {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    let delegation = made(&mut m, dir, "first", 0).delegation.expect("nobody else knows it");
    let handles = delegation.handles.expect("it had none");
    (m, dir, handles)
}

fn file(state: &State, of: Handle, number: u64, handle: Handle) -> NewFiles {
    let layout = Layout { stripe_bytes: 4096, width: 1, first: 0, generation: state.placement().generation };
    let open = Rights::READ.with(Rights::WRITE);
    let (made_at, named_at) = (WallTime(i64::MAX), WallTime(i64::MAX));
    let name = name(&format!("f{number}"));
    let file = NewFile { name, handle, mode: 0o640, open, open_sequence: number, delays: false, made_at, named_at, layout };
    NewFiles { dir: of, who: Credentials::ROOT, files: vec![file] }
}

fn absorb(m: &mut Machine, group: &NewFiles) -> Result<()> {
    m.change(|state, cx, record| state.prepare_absorbed(cx, group, &group.files[0], FileKind::File, record))
}

#[test]
fn files_are_taken_in_once_however_often_they_are_told() {
    let (mut m, dir, handles) = delegated();
    let group = file(&m.state, dir, 1, handles.first);
    for _ in 0..2 {
        absorb(&mut m, &group).unwrap();
        assert_eq!(m.lookup(dir, "f1").unwrap(), handles.first);
        let attr = m.attr(handles.first);
        assert_eq!((attr.mode, attr.nlink, attr.version), (0o640, 1, 1));
        // Its time is none that the clock of the server has not shown.
        assert!(attr.mtime < WallTime(i64::MAX) && m.attr(dir).mtime == attr.mtime);
        assert_eq!((m.attr(dir).size, m.attr(dir).version), (2, 3));
    }
    assert!(m.state.opened_by(m.client, handles.first).is_some_and(|(rights, _)| rights.contains(Rights::WRITE)));
    // Nobody else gets one of the handles.
    let next = m.create(ROOT_HANDLE, "other").unwrap();
    assert!(next.counter() >= handles.first.counter() + u64::from(handles.count), "{next}");
}

#[test]
fn what_a_client_has_not_been_given_is_refused() {
    let (mut m, dir, handles) = delegated();
    let outside = m.mkdir(ROOT_HANDLE, "other").unwrap();
    let refused = |m: &mut Machine, group: NewFiles, why| assert_eq!(absorb(m, &group), Err(why), "{group:?}");
    let good = file(&m.state, dir, 1, handles.first);
    let with = |change: &dyn Fn(&mut NewFile)| {
        let mut group = good.clone();
        change(&mut group.files[0]);
        group
    };
    refused(&mut m, NewFiles { dir: outside, ..good.clone() }, Status::CapabilityRefused);
    let behind = Handle(handles.first.0 + u64::from(handles.count));
    refused(&mut m, with(&|file| file.handle = behind), Status::CapabilityRefused);
    let first = m.lookup(dir, "first").unwrap();
    refused(&mut m, with(&|file| file.handle = first), Status::CapabilityRefused);
    refused(&mut m, with(&|file| file.name = name("first")), Status::Exists);
    refused(&mut m, with(&|file| file.name = name("a/b")), Status::Invalid);
    refused(&mut m, with(&|file| file.mode = 0o10_0644), Status::Invalid);
    refused(&mut m, with(&|file| file.open = Rights::default()), Status::Invalid);
    refused(&mut m, with(&|file| file.layout.generation = 0), Status::Invalid);
    // Servers may have joined of which this one does not know yet.
    refused(&mut m, with(&|file| file.layout.generation = 99), Status::Busy);
    refused(&mut m, with(&|file| file.layout.first = u16::MAX), Status::Invalid);
    m.client = OTHER;
    refused(&mut m, good.clone(), Status::CapabilityRefused);
    m.client = ME;
    absorb(&mut m, &good).unwrap();
    // A handle is one file's, whatever becomes of it.
    refused(&mut m, with(&|file| file.name = name("again")), Status::CapabilityRefused);
}

#[test]
fn who_asks_waits_until_it_is_given_back() {
    let (mut m, dir, handles) = delegated();
    let unknown = Handle(handles.first.0 + 5);
    assert!(!m.state.is_delegated_elsewhere(Some(ME), dir) && !m.state.is_untold_elsewhere(Some(ME), unknown));
    assert!(m.state.take_delegations_asked_back().is_empty());
    assert!(m.state.is_delegated_elsewhere(Some(OTHER), dir) && m.state.is_delegated_elsewhere(None, dir));
    assert_eq!(m.state.take_delegations_asked_back(), [(ME, dir)]);
    // A file that nobody knows may be in any of its directories.
    assert!(m.state.is_untold_elsewhere(Some(OTHER), unknown) && !m.state.is_untold_elsewhere(Some(OTHER), Handle(1 << 40)));
    assert_eq!(m.state.take_delegations_asked_back(), [(ME, dir)]);
    m.client = OTHER;
    assert_eq!(m.look(|state, cx| state.getattr(cx, dir)).map(drop), Err(Status::Busy));
    m.client = ME;
    m.look(|state, cx| state.getattr(cx, dir)).unwrap();
    let mut record = Record::default();
    m.state.prepare_end_of_delegation(OTHER, dir, &mut record);
    assert!(record.is_volatile(), "it is not that one's to give back");
    m.state.prepare_end_of_delegation(ME, dir, &mut record);
    m.commit(record);
    assert!(!m.state.has_delegations() && !m.state.is_untold_elsewhere(Some(OTHER), unknown));
    let group = file(&m.state, dir, 1, handles.first);
    assert_eq!(absorb(&mut m, &group), Err(Status::CapabilityRefused));
}

#[test]
fn a_directory_that_is_not_as_others_is_not_delegated() {
    let mut m = Machine::new();
    let asks = |m: &mut Machine, dir: Handle, file: &str| made(m, dir, file, HANDLES_GIVEN).delegation;
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    assert_eq!(asks(&mut m, dir, "a"), Some(Delegation { handles: None, delay_bytes: 0 }), "it has handles enough");
    let plain = made(&mut m, dir, "b", HANDLES_FEW - 1).delegation.expect("it is its own already");
    assert_eq!(plain.handles.map(|handles| handles.count), Some(HANDLES_GIVEN));
    let lend = |m: &mut Machine, id: QuotaId| {
        let account = Account { id, of: Resource::Inodes };
        m.commit(Record { changes: vec![put_loan(account, ServerId(0), 50)], open: None });
    };
    let [project, other, limited] = ["project", "other", "limited"].map(|name| m.mkdir(ROOT_HANDLE, name).unwrap());
    m.set_project(project, 3).unwrap();
    lend(&mut m, QuotaId::project(3));
    assert_eq!(asks(&mut m, project, "a"), None, "what is made there may be refused");
    assert!(asks(&mut m, other, "a").is_some(), "nothing counts for the project here");
    lend(&mut m, QuotaId::user(7));
    assert_eq!(asks(&mut m, limited, "a"), None, "what he makes may be refused");
}

/// A restart changes nothing of it, and with its client, or the directory, it goes.
#[test]
fn it_is_kept_in_the_journal_and_in_checkpoints() {
    let (mut m, dir, handles) = delegated();
    let log = m.log.iter().map(|record| Bytes::copy_from_slice(record));
    for mut state in [replay(dump(&m.state)), replay(log)] {
        state.place(m.state.placement().clone());
        assert!(state.is_delegated_elsewhere(None, dir) && state.next_handle() == m.state.next_handle());
        m.state = state;
        let group = file(&m.state, dir, 1, handles.first);
        absorb(&mut m, &group).unwrap();
    }
    m.unlink(dir, "f1").unwrap();
    m.commit(Record { changes: vec![Change::ForgetClient { client: ME }], open: None });
    assert!(!m.state.has_delegations());
    let (mut m, dir, _) = delegated();
    m.unlink(dir, "first").unwrap();
    m.rmdir(ROOT_HANDLE, "d").unwrap();
    assert!(!m.state.has_delegations());
}

fn directory(of: Handle, called: &str, handle: Handle) -> NewFiles {
    let (made_at, named_at, layout) = (WallTime(i64::MAX), WallTime(i64::MAX), LAYOUT);
    let (open, open_sequence, delays) = (Rights::default(), 0, false);
    let file = NewFile { name: name(called), handle, mode: 0o750, open, open_sequence, delays, made_at, named_at, layout };
    NewFiles { dir: of, who: Credentials::ROOT, files: vec![file] }
}

fn absorb_directory(m: &mut Machine, group: &NewFiles) -> Result<()> {
    m.change(|state, cx, record| state.prepare_absorbed(cx, group, &group.files[0], FileKind::Directory, record))
}

fn set(m: &mut Machine, told: &NewAttributes) -> Result<()> {
    m.change(|state, cx, record| state.prepare_absorbed_attributes(cx, told, record))
}

/// A directory that was made without asking is as its parent: delegated, with its hints, group and
/// project.
#[test]
fn directories_are_taken_in_once_and_are_their_clients() {
    let (mut m, dir, handles) = delegated();
    let (inner, innermost) = (handles.first, Handle(handles.first.0 + 1));
    let group = directory(dir, "inner", inner);
    for _ in 0..2 {
        absorb_directory(&mut m, &group).unwrap();
        assert_eq!(m.lookup(dir, "inner").unwrap(), inner);
        let (attr, parent) = (m.attr(inner), m.attr(dir));
        assert_eq!((attr.kind, attr.mode, attr.nlink, attr.size, attr.version), (FileKind::Directory, 0o750, 2, 0, 1));
        assert_eq!((parent.nlink, parent.size, parent.version), (3, 2, 3));
    }
    assert!(m.state.is_delegated_elsewhere(Some(OTHER), inner) && !m.state.is_delegated_elsewhere(Some(ME), inner));
    // It is as good as any.
    absorb_directory(&mut m, &directory(inner, "innermost", innermost)).unwrap();
    let inside = file(&m.state, innermost, 1, Handle(handles.first.0 + 2));
    absorb(&mut m, &inside).unwrap();
    assert_eq!(m.attr(innermost).size, 1);
    m.unlink(innermost, "f1").unwrap();
    m.rmdir(inner, "innermost").unwrap();
    m.rmdir(dir, "inner").unwrap();
    assert!(!m.state.is_delegated_elsewhere(Some(OTHER), inner));
    // What it inherits.
    m.set_project(dir, 3).unwrap();
    m.setattr(&SetAttrRequest { mode: Some(0o2755), gid: Some(77), ..setattr(dir, &ROOT) }).unwrap();
    let group = directory(dir, "heir", Handle(handles.first.0 + 3));
    absorb_directory(&mut m, &group).unwrap();
    let attr = m.attr(group.files[0].handle);
    assert_eq!((attr.mode, attr.gid, attr.bare), (0o2750 | MODE_PROJECT, 77, false));
}

#[test]
fn directories_that_a_client_may_not_make_are_refused() {
    let (mut m, dir, handles) = delegated();
    let outside = m.mkdir(ROOT_HANDLE, "other").unwrap();
    let good = directory(dir, "d", handles.first);
    let refused = |m: &mut Machine, group: NewFiles, why| assert_eq!(absorb_directory(m, &group), Err(why), "{group:?}");
    let with = |change: &dyn Fn(&mut NewFile)| {
        let mut group = good.clone();
        change(&mut group.files[0]);
        group
    };
    refused(&mut m, NewFiles { dir: outside, ..good.clone() }, Status::CapabilityRefused);
    refused(&mut m, with(&|file| file.handle = outside), Status::CapabilityRefused);
    refused(&mut m, with(&|file| file.name = name("first")), Status::Exists);
    refused(&mut m, with(&|file| file.name = name("..")), Status::Invalid);
    refused(&mut m, with(&|file| file.mode = 0o1755), Status::Invalid);
    refused(&mut m, NewFiles { who: user(5, 5), ..good.clone() }, Status::AccessDenied);
    m.client = OTHER;
    refused(&mut m, good.clone(), Status::CapabilityRefused);
    m.client = ME;
    absorb_directory(&mut m, &good).unwrap();
    // The handle of a directory is none of a file.
    let again = file(&m.state, dir, 1, handles.first);
    assert_eq!(absorb(&mut m, &again), Err(Status::CapabilityRefused));
}

#[test]
fn attributes_are_set_once_however_often_they_are_told() {
    let (mut m, dir, handles) = delegated();
    let version = m.attr(dir).version + 1;
    let (mode, atime, mtime, at) = (Some(0o700), None, Some(WallTime(5)), WallTime(i64::MAX));
    let told = NewAttributes { position: 0, dir, who: Credentials::ROOT, mode, atime, mtime, at, version };
    set(&mut m, &told).unwrap();
    let first = m.attr(dir);
    assert_eq!((first.mode, first.mtime, first.version), (0o700, WallTime(5), version));
    assert!(first.ctime < at, "no time that the clock of the server has not shown");
    let inside = file(&m.state, dir, 1, handles.first);
    absorb(&mut m, &inside).unwrap();
    let second = m.attr(dir);
    assert!(second.mtime > WallTime(5) && second.version == version + 1);
    set(&mut m, &told).unwrap();
    assert_eq!(m.attr(dir), second, "it was told before");
    let refused = |m: &mut Machine, told: NewAttributes, why| assert_eq!(set(m, &told), Err(why), "{told:?}");
    let later = NewAttributes { version: version + 2, ..told };
    refused(&mut m, NewAttributes { mode: Some(0o4755), ..later.clone() }, Status::NotPermitted);
    refused(&mut m, NewAttributes { who: user(5, 5), ..later.clone() }, Status::NotPermitted);
    refused(&mut m, NewAttributes { dir: ROOT_HANDLE, ..later.clone() }, Status::CapabilityRefused);
    refused(&mut m, NewAttributes { dir: handles.first, ..later.clone() }, Status::NotDirectory);
    m.client = OTHER;
    refused(&mut m, later, Status::CapabilityRefused);
}

/// That its client has removed what this name leads to.
fn removed(of: Handle, called: &str, handle: Handle) -> NewFiles {
    let mut group = directory(of, called, handle);
    (group.files[0].mode, group.files[0].layout) = (0, Layout { stripe_bytes: 0, width: 0, first: 0, generation: 0 });
    group
}

fn remove(m: &mut Machine, group: &NewFiles) -> Result<()> {
    m.change(|state, cx, record| state.prepare_absorbed_removal(cx, group, &group.files[0], record))
}

#[test]
fn names_are_removed_once_however_often_they_are_told() {
    let (mut m, dir, handles) = delegated();
    let (inner, again) = (Handle(handles.first.0 + 1), Handle(handles.first.0 + 2));
    let first = file(&m.state, dir, 1, handles.first);
    absorb(&mut m, &first).unwrap();
    absorb_directory(&mut m, &directory(dir, "inner", inner)).unwrap();
    m.link(handles.first, dir, "linked").unwrap();
    let version = m.attr(dir).version;
    for _ in 0..2 {
        remove(&mut m, &removed(dir, "f1", handles.first)).unwrap();
        remove(&mut m, &removed(dir, "inner", inner)).unwrap();
        assert_eq!(m.lookup(dir, "f1").map(drop), Err(Status::NotFound));
        let attr = m.attr(dir);
        assert_eq!((attr.size, attr.nlink, attr.version), (2, 2, version + 2));
        assert!(attr.mtime < WallTime(i64::MAX), "no time that the clock of the server has not shown");
        assert_eq!(m.attr(handles.first).nlink, 1);
    }
    // What the name leads to since then stays, and what is told of a directory that is gone is old.
    let second = file(&m.state, dir, 1, again);
    absorb(&mut m, &second).unwrap();
    remove(&mut m, &removed(dir, "f1", handles.first)).unwrap();
    assert_eq!(m.lookup(dir, "f1"), Ok(again));
    remove(&mut m, &removed(inner, "f1", again)).unwrap();
    let (mode, atime, mtime, at) = (Some(0o700), None, None, WallTime(5));
    set(&mut m, &NewAttributes { position: 0, dir: inner, who: Credentials::ROOT, mode, atime, mtime, at, version: 9 }).unwrap();
    assert_eq!(m.lookup(dir, "f1"), Ok(again));
}

#[test]
fn removals_that_a_client_may_not_do_are_refused() {
    let (mut m, dir, handles) = delegated();
    let (outside, inside) = (m.mkdir(ROOT_HANDLE, "other").unwrap(), m.mkdir(dir, "not-its-own").unwrap());
    let (other, first) = (m.create(outside, "file").unwrap(), m.lookup(dir, "first").unwrap());
    let refused = |m: &mut Machine, group: NewFiles, why| {
        assert_eq!(remove(m, &group), Err(why), "{group:?}");
    };
    refused(&mut m, removed(outside, "file", other), Status::CapabilityRefused);
    // Others may make files in it.
    refused(&mut m, removed(dir, "not-its-own", inside), Status::CapabilityRefused);
    refused(&mut m, NewFiles { who: user(5, 5), ..removed(dir, "first", first) }, Status::AccessDenied);
    refused(&mut m, removed(dir, "a/b", first), Status::Invalid);
    absorb_directory(&mut m, &directory(dir, "inner", handles.first)).unwrap();
    let inside = file(&m.state, handles.first, 1, Handle(handles.first.0 + 1));
    absorb(&mut m, &inside).unwrap();
    refused(&mut m, removed(dir, "inner", handles.first), Status::NotEmpty);
    m.client = OTHER;
    refused(&mut m, removed(dir, "first", first), Status::CapabilityRefused);
    m.client = ME;
    remove(&mut m, &removed(dir, "first", first)).unwrap();
}
