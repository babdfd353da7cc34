//! Projects: a directory gives its own to all that is made in it, and what does not count for it
//! gets no name there; sums and limits are those of users.

mod common;

use bytes::Bytes;
use common::*;
use weft_base::{Credentials, FileKind, Handle, MODE_PROJECT, ROOT_HANDLE, Result, ServerId, Status};
use weft_namespace::*;
use weft_wire::Rights;
use weft_wire::ops::*;

const PROJECT: u32 = 7;

fn somebody() -> Credentials {
    Credentials { uid: 1000, gid: 1000, groups: Vec::new(), checked_by_kernel: false }
}

/// A directory in which everybody may make something.
fn common(m: &mut Machine, dir: Handle, file: &str) -> Handle {
    let made = m.mkdir(dir, file).unwrap();
    m.setattr(&SetAttrRequest { mode: Some(0o777), ..setattr(made, &ROOT) }).unwrap();
    made
}

fn taken(m: &Machine, id: QuotaId) -> (u64, u64) {
    sums(&m.state).into_iter().find(|(other, ..)| *other == id).map_or((0, 0), |(_, inodes, bytes)| (inodes, bytes))
}

fn lend(m: &mut Machine, of: Resource, most: u64) {
    let account = Account { id: QuotaId::project(PROJECT), of };
    m.commit(Record { changes: vec![put_loan(account, ServerId(0), most)], open: None });
}

fn make(m: &mut Machine, who: &Credentials, dir: Handle, file: &str, change: impl FnOnce(&mut CreateRequest)) -> Result<Handle> {
    let mut request = CreateRequest { who: who.clone(), ..create(dir, file) };
    change(&mut request);
    m.change(|state, cx, record| state.prepare_create(cx, &request, record)).map(|reply| reply.handle)
}

fn symlink(request: &mut CreateRequest) {
    (request.kind, request.target) = (FileKind::Symlink, Bytes::from_static(b"to"));
}

#[test]
fn what_is_made_in_a_directory_counts_for_its_project() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    let before = m.create(dir, "before").unwrap();
    m.set_project(dir, PROJECT).unwrap();
    assert_eq!(taken(&m, QuotaId::project(PROJECT)), (1, 0), "itself; what is in it already does not");
    let below = common(&mut m, dir, "below");
    let file = make(&mut m, &somebody(), below, "file", |_| {}).unwrap();
    let link = make(&mut m, &somebody(), below, "link", symlink).unwrap();
    let unnamed = |request: &mut CreateRequest| (request.unnamed, request.open) = (Some(true), Rights::WRITE);
    let unnamed = make(&mut m, &somebody(), below, "unnamed", unnamed).unwrap();
    for made in [below, file, link, unnamed] {
        assert_eq!(m.project(made), PROJECT);
        assert_ne!(m.attr(made).mode & MODE_PROJECT, 0);
    }
    assert_eq!((m.project(before), m.attr(before).mode & MODE_PROJECT), (0, 0));
    assert_eq!(taken(&m, QuotaId::project(PROJECT)).0, 5);
    // Each object has its own, also those that have no other attributes.
    m.set_project(before, PROJECT).unwrap();
    m.set_project(link, PROJECT + 1).unwrap();
    assert_eq!((m.project(before), m.project(link)), (PROJECT, PROJECT + 1));
    m.set_project(dir, 0).unwrap();
    assert_eq!(m.set_project(dir, 0), Err(Status::NoAttribute));
    let after = m.create(dir, "after").unwrap();
    assert_eq!(m.project(after), 0);
    assert_eq!(sums(&m.state), walked(&m.state));
    assert_eq!(sums(&replay(m.log.iter().cloned().map(Bytes::from))), walked(&m.state));
}

#[test]
fn what_is_of_no_project_gets_no_name_in_one() {
    let mut m = Machine::new();
    let (dir, other) = (m.mkdir(ROOT_HANDLE, "d").unwrap(), m.mkdir(ROOT_HANDLE, "other").unwrap());
    m.set_project(dir, PROJECT).unwrap();
    let (inside, outside) = (m.create(dir, "inside").unwrap(), m.create(other, "outside").unwrap());
    let tree = m.mkdir(other, "tree").unwrap();
    assert_eq!(m.rename_with(&rename(other, "outside", dir, "in")), Err(Status::CrossDevice));
    assert_eq!(m.rename_with(&rename(other, "tree", dir, "in")), Err(Status::CrossDevice));
    assert_eq!(m.link(outside, dir, "in"), Err(Status::CrossDevice));
    let exchange = RenameRequest { exchange: true, ..rename(dir, "inside", other, "outside") };
    assert_eq!(m.rename_with(&exchange), Err(Status::CrossDevice), "the other one would come in");
    let exchange = RenameRequest { exchange: true, ..rename(other, "outside", dir, "inside") };
    assert_eq!(m.rename_with(&exchange), Err(Status::CrossDevice));
    // Within it, and out of it: it counts as before.
    let below = m.mkdir(dir, "below").unwrap();
    m.rename_with(&rename(dir, "inside", below, "inside")).unwrap();
    m.link(inside, dir, "second").unwrap();
    m.rename_with(&rename(below, "inside", other, "gone out")).unwrap();
    assert_eq!(m.project(inside), PROJECT);
    m.rename_with(&rename(other, "gone out", below, "back")).unwrap();
    // A name that changes where it is.
    m.rename_with(&rename(other, "outside", other, "as before")).unwrap();
    m.set_project(outside, PROJECT).unwrap();
    m.set_project(tree, PROJECT).unwrap();
    m.rename_with(&rename(other, "as before", dir, "in")).unwrap();
    m.rename_with(&rename(other, "tree", dir, "tree")).unwrap();
}

#[test]
fn only_root_says_what_counts_for_a_project() {
    let mut m = Machine::new();
    let who = somebody();
    let file = make(&mut m, &who, ROOT_HANDLE, "file", |_| {}).unwrap();
    assert_eq!(m.set_project_as(&who, file, PROJECT), Err(Status::NotPermitted), "although it is his");
    m.set_project(file, PROJECT).unwrap();
    assert_eq!(m.set_project_as(&who, file, 0), Err(Status::NotPermitted));
    let shown = m.state.get_xattr(file, &name("user.pvfs2.project"), &who).unwrap().value;
    assert_eq!(shown, Bytes::from_static(b"7"), "everybody may know, by either name");
    let of_one = UsageRequest { from: PROJECT, to: PROJECT, who: who.clone(), of_project: Some(true) };
    assert_eq!(m.state.usage(&of_one).unwrap().users[0].inodes, 1);
    let of_all = UsageRequest { from: 0, to: u32::MAX, who, of_project: Some(true) };
    assert_eq!(m.state.usage(&of_all), Err(Status::NotPermitted));
    for value in ["0", "x", "4294967296", ""] {
        let value = Bytes::copy_from_slice(value.as_bytes());
        let who = ROOT;
        let request =
            SetXattrRequest { handle: file, name: name("user.weft.project"), value, create_only: false, replace_only: false, who };
        let refused = m.change(|state, cx, record| state.prepare_set_xattr(cx, &request, record));
        assert_eq!(refused, Err(Status::Invalid));
        assert!(m.state.why_no_hint(&request).is_some_and(|why| why.contains("from 1 to")));
    }
}

#[test]
fn a_project_is_limited_whoever_makes_something() {
    let mut m = Machine::new();
    let dir = common(&mut m, ROOT_HANDLE, "d");
    m.set_project(dir, PROJECT).unwrap();
    lend(&mut m, Resource::Inodes, 3);
    make(&mut m, &somebody(), dir, "one", |_| {}).unwrap();
    m.mkdir(dir, "two").unwrap();
    assert_eq!(m.create(dir, "of root"), Err(Status::QuotaExceeded));
    assert_eq!(m.mkdir(dir, "dir of root"), Err(Status::QuotaExceeded));
    assert_eq!(make(&mut m, &somebody(), dir, "link", symlink), Err(Status::QuotaExceeded));
    m.create(ROOT_HANDLE, "elsewhere").unwrap();
    // Those of a user and of a project both count.
    let of_user = Account { id: QuotaId::user(1000), of: Resource::Inodes };
    m.commit(Record { changes: vec![put_loan(of_user, ServerId(0), 1)], open: None });
    lend(&mut m, Resource::Inodes, 30);
    assert_eq!(make(&mut m, &somebody(), dir, "more", |_| {}), Err(Status::QuotaExceeded));
    m.create(dir, "more").unwrap();

    // Bytes, of which files that are written to reserve some.
    lend(&mut m, Resource::Bytes, 1 << 20);
    let file = m.create(dir, "file").unwrap();
    let reply = m.change(|state, cx, record| state.prepare_open(cx, &open(file, Rights::WRITE, 1), record)).unwrap();
    assert!(reply.ceiling.is_some(), "although nobody limits root");
    let (has, allowance) = m.state.allowance(Account { id: QuotaId::project(PROJECT), of: Resource::Bytes });
    assert!(has <= 1 << 20 && allowance == Some(1 << 20), "{has}");
}
