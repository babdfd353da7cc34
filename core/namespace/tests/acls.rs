//! Access control lists: who may do what, what new objects inherit, what a change of the mode does,
//! and the same after a restart.

mod common;

use bytes::Bytes;
use common::*;
use weft_base::{ACL_ACCESS, ACL_DEFAULT, Credentials, FileKind, Handle, MODE_ACL, ROOT_HANDLE, Result, Status, mode_with_umask};
use weft_wire::Rights;
use weft_wire::ops::*;

const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;

/// Entries: tag, permissions, user or group.
fn list(entries: &[(u16, u16, u32)]) -> Bytes {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, may, id) in entries {
        let id = if matches!(*tag, USER | GROUP) { *id } else { u32::MAX };
        value.extend([&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    value.into()
}

/// Everything for the owner, nothing for others; user 5 may `user`, group 30 `group`.
fn named(user: u16, group: u16, mask: u16) -> Bytes {
    list(&[(OWNER, 7, 0), (USER, user, 5), (OWNING_GROUP, 5, 0), (GROUP, group, 30), (MASK, mask, 0), (OTHERS, 0, 0)])
}

fn set_as(m: &mut Machine, who: &Credentials, handle: Handle, attribute: &str, value: &Bytes) -> Result<()> {
    let (name, value, who) = (name(attribute), value.clone(), who.clone());
    let request = SetXattrRequest { handle, name, value, create_only: false, replace_only: false, who };
    m.change(|state, cx, record| state.prepare_set_xattr(cx, &request, record))
}

fn set(m: &mut Machine, handle: Handle, attribute: &str, value: &Bytes) {
    set_as(m, &ROOT, handle, attribute, value).expect("root may");
}

fn get(m: &Machine, handle: Handle, attribute: &str) -> Result<Bytes> {
    Ok(m.state.get_xattr(handle, &name(attribute), &user(77, 77))?.value)
}

fn mode(m: &Machine, handle: Handle) -> u32 {
    m.attr(handle).mode & 0o7777
}

fn open_as(m: &mut Machine, who: &Credentials, handle: Handle, rights: Rights) -> Result<()> {
    let request = OpenRequest::of(handle, rights, 1, who.clone());
    m.change(|state, cx, record| state.prepare_open(cx, &request, record)).map(drop)
}

fn in_group(uid: u32, group: u32) -> Credentials {
    Credentials { groups: vec![group], ..user(uid, 900) }
}

#[test]
fn names_and_opens_follow_the_list() {
    let mut m = Machine::new();
    let dir = m.mkdir_as(&user(1, 20), ROOT_HANDLE, "d", 0o700).unwrap();
    let file = m.create_as(&user(1, 20), dir, "f", 0o600).unwrap();
    let (five, thirty, other) = (user(5, 900), in_group(6, 30), user(7, 900));
    assert_eq!(m.create_as(&five, dir, "new", 0o600).map(drop), Err(Status::AccessDenied));
    set_as(&mut m, &user(1, 20), dir, ACL_ACCESS, &named(7, 5, 7)).unwrap();
    assert_eq!((mode(&m, dir), m.attr(dir).bare), (0o770, false), "the bits of the group are the mask");
    let look = |m: &Machine, who: &Credentials| {
        m.look(|state, cx| state.lookup(cx, &LookupRequest { at: at(dir), name: name("f"), who: who.clone() })).map(drop)
    };
    assert_eq!((look(&m, &five), look(&m, &thirty), look(&m, &other)), (Ok(()), Ok(()), Err(Status::AccessDenied)));
    assert_eq!(m.create_as(&thirty, dir, "new", 0o600).map(drop), Err(Status::AccessDenied), "it may only search");
    m.create_as(&five, dir, "new", 0o600).unwrap();
    assert_eq!(m.mkdir_as(&thirty, dir, "sub", 0o700).map(drop), Err(Status::AccessDenied));
    assert_eq!(m.rename_as(&thirty, dir, "f", dir, "g"), Err(Status::AccessDenied));
    assert_eq!(m.unlink_as(&thirty, dir, "new"), Err(Status::AccessDenied));
    m.rename_as(&five, dir, "new", dir, "newer").unwrap();
    m.unlink_as(&five, dir, "newer").unwrap();

    assert_eq!(open_as(&mut m, &five, file, Rights::READ), Err(Status::AccessDenied));
    set(&mut m, file, ACL_ACCESS, &named(6, 4, 7));
    assert_eq!((open_as(&mut m, &five, file, Rights::WRITE), open_as(&mut m, &thirty, file, Rights::READ)), (Ok(()), Ok(())));
    assert_eq!(open_as(&mut m, &thirty, file, Rights::WRITE), Err(Status::AccessDenied));
    assert_eq!(open_as(&mut m, &in_group(1, 30), file, Rights::WRITE), Ok(()), "the owner");
    let after = replay(dump(&m.state));
    assert_eq!(dump(&after), dump(&m.state));
    assert!(replay(m.log.iter().cloned().map(Bytes::from)).peek(file).is_some_and(|inode| inode.mode & MODE_ACL != 0));
}

#[test]
fn a_change_of_the_mode_changes_owner_mask_and_others() {
    let mut m = Machine::new();
    let file = m.create_as(&user(1, 20), ROOT_HANDLE, "f", 0o600).unwrap();
    set(&mut m, file, ACL_ACCESS, &named(6, 4, 7));
    let five = user(5, 900);
    m.setattr(&SetAttrRequest { mode: Some(0o4), ..setattr(file, &ROOT) }).unwrap();
    assert_eq!(open_as(&mut m, &five, file, Rights::READ), Err(Status::AccessDenied), "the mask");
    assert_eq!(open_as(&mut m, &user(7, 900), file, Rights::READ), Ok(()));
    let shown = [(OWNER, 0, 0), (USER, 6, 5), (OWNING_GROUP, 5, 0), (GROUP, 4, 30), (MASK, 0, 0), (OTHERS, 4, 0)];
    assert_eq!(get(&m, file, ACL_ACCESS), Ok(list(&shown)));
    m.setattr(&SetAttrRequest { mode: Some(0o640), ..setattr(file, &ROOT) }).unwrap();
    assert_eq!(open_as(&mut m, &five, file, Rights::READ), Ok(()), "the entries of before");
    assert_eq!(open_as(&mut m, &five, file, Rights::WRITE), Err(Status::AccessDenied));

    // What says no more than a mode is one.
    set(&mut m, file, ACL_ACCESS, &list(&[(OWNER, 6, 0), (OWNING_GROUP, 4, 0), (OTHERS, 4, 0)]));
    assert_eq!((m.attr(file).mode, get(&m, file, ACL_ACCESS)), (0o644, Err(Status::NoAttribute)));
    set(&mut m, file, ACL_ACCESS, &named(6, 4, 6));
    let remove = RemoveXattrRequest { handle: file, name: name(ACL_ACCESS), who: user(1, 20) };
    m.change(|state, cx, record| state.prepare_remove_xattr(cx, &remove, record)).unwrap();
    assert_eq!((m.attr(file).mode, open_as(&mut m, &five, file, Rights::READ)), (0o760, Err(Status::AccessDenied)));
    assert_eq!(m.change(|state, cx, record| state.prepare_remove_xattr(cx, &remove, record)), Ok(()), "there is none, as wanted");
    assert_eq!(m.attr(file).mode, 0o760);
}

#[test]
fn new_objects_inherit_the_default_list_in_place_of_the_umask() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "d").unwrap();
    let default = named(7, 7, 7);
    let asked = |mode| mode_with_umask(mode, 0o077);
    let plain = m.create_as(&ROOT, dir, "plain", asked(0o666)).unwrap();
    assert_eq!(m.attr(plain).mode, 0o600, "without a default list the umask counts");
    set(&mut m, dir, ACL_DEFAULT, &default);
    assert_eq!((m.attr(dir).mode, get(&m, dir, ACL_DEFAULT)), (0o755, Ok(default.clone())));

    let file = m.create_as(&user(0, 0), dir, "f", asked(0o666)).unwrap();
    assert_eq!(mode(&m, file), 0o660);
    let of_file = [(OWNER, 6, 0), (USER, 7, 5), (OWNING_GROUP, 5, 0), (GROUP, 7, 30), (MASK, 6, 0), (OTHERS, 0, 0)];
    assert_eq!((get(&m, file, ACL_ACCESS), get(&m, file, ACL_DEFAULT)), (Ok(list(&of_file)), Err(Status::NoAttribute)));
    assert_eq!(open_as(&mut m, &user(5, 900), file, Rights::WRITE), Ok(()));

    let below = m.mkdir_as(&ROOT, dir, "below", asked(0o750)).unwrap();
    assert_eq!((mode(&m, below), get(&m, below, ACL_DEFAULT)), (0o750, Ok(default.clone())));
    let deep = m.mkdir_as(&ROOT, below, "deep", asked(0o777)).unwrap();
    assert_eq!((mode(&m, deep), get(&m, deep, ACL_ACCESS), get(&m, deep, ACL_DEFAULT)), (0o770, Ok(default.clone()), Ok(default)));

    let make = |m: &mut Machine, kind, file: &str, target: &str| {
        let request = CreateRequest { kind, target: name(target), mode: asked(0o666), ..create(dir, file) };
        let reply = m.change(|state, cx, record| state.prepare_create(cx, &request, record)).unwrap();
        let attr = reply.state.expect("it was made").attr;
        assert_eq!(attr.bare, kind == FileKind::Symlink, "who makes it is told whether it has attributes");
        attr.mode
    };
    assert_eq!(make(&mut m, FileKind::Fifo, "p", "") & 0o7777, 0o660);
    assert_eq!(make(&mut m, FileKind::Symlink, "l", "f"), 0o777, "symlinks have no list");

    // One that says no more than a mode is inherited by directories only.
    set(&mut m, dir, ACL_DEFAULT, &list(&[(OWNER, 6, 0), (OWNING_GROUP, 6, 0), (OTHERS, 4, 0)]));
    let file = m.create_as(&ROOT, dir, "g", asked(0o666)).unwrap();
    assert_eq!((m.attr(file).mode, get(&m, file, ACL_ACCESS)), (0o664, Err(Status::NoAttribute)));
    set(&mut m, dir, ACL_DEFAULT, &list(&[]));
    assert_eq!(get(&m, dir, ACL_DEFAULT), Err(Status::NoAttribute), "a list without entries is none");
}

#[test]
fn lists_are_for_owners_and_within_bounds() {
    let mut m = Machine::new();
    let dir = m.mkdir_as(&user(1, 20), ROOT_HANDLE, "d", 0o755).unwrap();
    let file = m.create_as(&user(1, 20), dir, "f", 0o2755).unwrap();
    let (owner, five) = (user(1, 20), user(5, 900));
    assert_eq!(set_as(&mut m, &five, file, ACL_ACCESS, &named(7, 7, 7)), Err(Status::NotPermitted));
    assert_eq!(set_as(&mut m, &owner, file, ACL_DEFAULT, &named(7, 7, 7)), Err(Status::AccessDenied), "for directories");
    assert_eq!(set_as(&mut m, &owner, file, ACL_ACCESS, &list(&[(OWNER, 7, 0)])), Err(Status::Invalid));
    assert_eq!(set_as(&mut m, &owner, file, "system.other", &named(7, 7, 7)), Err(Status::NotSupported));
    let link = CreateRequest { kind: FileKind::Symlink, target: name("f"), ..create(dir, "l") };
    let link = m.change(|state, cx, record| state.prepare_create(cx, &link, record)).unwrap().handle;
    assert_eq!(set_as(&mut m, &ROOT, link, ACL_ACCESS, &named(7, 7, 7)), Err(Status::NotSupported));
    assert_eq!(m.attr(file).mode, 0o2755);
    set_as(&mut m, &Credentials { gid: 21, ..owner.clone() }, file, ACL_ACCESS, &named(7, 7, 7)).unwrap();
    assert_eq!(mode(&m, file), 0o770, "the program is not of a group that its owner is not in");
    // A mode that a client makes up is not taken for one with a list.
    let made = m.create_as(&owner, ROOT_HANDLE, "g", 0o644 | MODE_ACL).unwrap();
    assert_eq!(m.attr(made).mode, 0o644);

    // Lists that are inherited count against what attributes may take.
    let long: Vec<_> = (0..500).map(|id| (USER, 7, id)).collect();
    let long = [&[(OWNER, 7, 0)], &long[..], &[(OWNING_GROUP, 7, 0), (MASK, 7, 0), (OTHERS, 0, 0)]].concat();
    set_as(&mut m, &owner, dir, ACL_DEFAULT, &list(&long)).unwrap();
    let made = (0..1000).take_while(|number| match number % 2 {
        0 => m.create_as(&owner, dir, &format!("{number}"), 0o644) != Err(Status::NoSpace),
        _ => m.mkdir_as(&owner, dir, &format!("{number}"), 0o755) != Err(Status::NoSpace),
    });
    assert!((150..180).contains(&made.count()), "of {} bytes", settings().xattr_bytes_max);
    assert!(m.create_as(&owner, ROOT_HANDLE, "elsewhere", 0o644).is_ok());
}

#[test]
fn a_removed_directory_has_no_list_for_who_still_holds_it() {
    let mut m = Machine::new();
    let dir = m.mkdir(ROOT_HANDLE, "dir").unwrap();
    set(&mut m, dir, ACL_ACCESS, &named(7, 0, 7));
    m.rmdir(ROOT_HANDLE, "dir").unwrap();
    assert_eq!((m.attr(dir).nlink, get(&m, dir, ACL_ACCESS)), (0, Err(Status::NoAttribute)), "as it has no names");
    // What others may do with a pipe that is held its list says to the end.
    let pipe = CreateRequest { kind: FileKind::Fifo, ..create(ROOT_HANDLE, "pipe") };
    let pipe = m.change(|state, cx, record| state.prepare_create(cx, &pipe, record)).unwrap().handle;
    set(&mut m, pipe, ACL_ACCESS, &named(7, 0, 7));
    m.unlink(ROOT_HANDLE, "pipe").unwrap();
    assert_eq!(get(&m, pipe, ACL_ACCESS), Err(Status::Stale));
}
