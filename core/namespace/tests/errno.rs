//! Who may do what, and which refusal each attempt gets: the table that POSIX and the file system
//! test suites expect.

mod common;

use bytes::Bytes;
use common::*;
use weft_base::{Credentials, FileKind, Handle, MODE_SETGID, MODE_STICKY, Status, WallTime};
use weft_namespace::{Record, SizePlan};
use weft_wire::Rights;
use weft_wire::ops::*;

#[test]
fn names_are_checked_everywhere() {
    let mut m = Machine::new();
    let long = "x".repeat(256);
    assert_eq!(m.create(TOP, &long), Err(Status::NameTooLong));
    assert_eq!(m.mkdir(TOP, &long), Err(Status::NameTooLong));
    assert_eq!(m.lookup(TOP, &long), Err(Status::NameTooLong));
    assert_eq!(m.unlink(TOP, &long), Err(Status::NameTooLong));
    assert_eq!(m.rmdir(TOP, &long), Err(Status::NameTooLong));
    m.create(TOP, "f").unwrap();
    assert_eq!(m.rename(TOP, "f", TOP, &long), Err(Status::NameTooLong));
    for bad in ["", ".", "..", "a/b", "a\0"] {
        assert_eq!(m.create(TOP, bad), Err(Status::Invalid), "{bad:?}");
        assert_eq!(m.mkdir(TOP, bad), Err(Status::Invalid), "{bad:?}");
        assert_eq!(m.rename(TOP, "f", TOP, bad), Err(Status::Invalid), "{bad:?}");
    }
    m.create(TOP, &"x".repeat(255)).unwrap();
    let odd = Bytes::from_static(b"new\nline \xff\xfe");
    let request = CreateRequest { name: odd.clone(), ..create(TOP, "") };
    m.change(|state, cx, record| state.prepare_create(cx, &request, record)).unwrap();
    m.look(|state, cx| state.lookup(cx, &LookupRequest { at: at(TOP), name: odd, who: ROOT })).unwrap();
}

#[test]
fn kinds_that_do_not_fit_are_refused() {
    let mut m = Machine::new();
    let (file, dir) = (m.create(TOP, "f").unwrap(), m.mkdir(TOP, "d").unwrap());
    assert_eq!(m.create(TOP, "f"), Err(Status::Exists));
    assert_eq!(m.create(TOP, "d"), Err(Status::Exists));
    assert_eq!(m.mkdir(TOP, "f"), Err(Status::Exists));
    assert_eq!(m.create(file, "x"), Err(Status::NotDirectory));
    assert_eq!(m.lookup(file, "x"), Err(Status::NotDirectory));
    assert_eq!(m.lookup(TOP, "x"), Err(Status::NotFound));
    assert_eq!(m.unlink(TOP, "x"), Err(Status::NotFound));
    assert_eq!(m.unlink(TOP, "d"), Err(Status::IsDirectory));
    assert_eq!(m.rmdir(TOP, "f"), Err(Status::NotDirectory));
    assert_eq!(m.rmdir(TOP, "x"), Err(Status::NotFound));
    assert_eq!(m.link(dir, TOP, "x"), Err(Status::NotPermitted));
    assert_eq!(m.link(file, TOP, "d"), Err(Status::Exists));
    assert_eq!(m.open(dir, Rights::READ, 1).unwrap_err(), Status::IsDirectory);
    assert_eq!(m.look(|state, _| state.readlink(file)), Err(Status::Invalid));
    assert_eq!(m.setattr(&SetAttrRequest { size: Some(0), ..setattr(dir, &ROOT) }), Err(Status::IsDirectory));
    assert_eq!(m.setattr(&SetAttrRequest { size: Some(1 << 63), ..setattr(file, &ROOT) }), Err(Status::FileTooBig));
    m.create(dir, "inside").unwrap();
    assert_eq!(m.rmdir(TOP, "d"), Err(Status::NotEmpty));
    m.unlink(dir, "inside").unwrap();
    m.rmdir(TOP, "d").unwrap();
    assert_eq!(m.create(dir, "late"), Err(Status::NotFound), "nothing is below a removed directory");
    assert_eq!(m.mkdir(dir, "late"), Err(Status::NotFound));
    assert_eq!(m.lookup(Handle(77), "x"), Err(Status::NotFound));
    assert_eq!((m.attr(dir).nlink, m.attr(dir).kind), (0, FileKind::Directory), "but who holds it still sees what it was");
    assert_eq!(m.lookup(Handle(7 << 48), "x"), Err(Status::WrongServer));
}

#[test]
fn rename_follows_its_table() {
    let mut m = Machine::new();
    let (d, e) = (m.mkdir(TOP, "d").unwrap(), m.mkdir(TOP, "e").unwrap());
    let f = m.create(TOP, "f").unwrap();
    assert_eq!(m.rename(TOP, "x", TOP, "y"), Err(Status::NotFound));
    assert_eq!(m.rename(TOP, "f", TOP, "d"), Err(Status::IsDirectory));
    assert_eq!(m.rename(TOP, "d", TOP, "f"), Err(Status::NotDirectory));
    assert_eq!(m.rename(TOP, "d", d, "x"), Err(Status::Invalid));
    let deep = m.mkdir(d, "deep").unwrap();
    assert_eq!(m.rename(TOP, "d", deep, "x"), Err(Status::Invalid));
    assert_eq!(m.rename(TOP, "e", TOP, "d"), Err(Status::NotEmpty));
    m.rename(TOP, "f", TOP, "f").unwrap();
    m.link(f, TOP, "g").unwrap();
    m.rename(TOP, "f", TOP, "g").unwrap();
    assert_eq!((m.lookup(TOP, "f"), m.lookup(TOP, "g")), (Ok(f), Ok(f)), "two names of one object: nothing happens");
    m.rename(d, "deep", e, "deep").unwrap();
    assert_eq!((m.attr(d).nlink, m.attr(e).nlink), (2, 3));
    m.rename(TOP, "d", e, "deep").unwrap();
    assert_eq!(m.lookup(e, "deep"), Ok(d), "an empty directory is replaced");
    assert_eq!((m.attr(e).nlink, m.attr(TOP).nlink), (3, 3));
    let no_replace = RenameRequest { no_replace: true, ..rename(TOP, "f", e, "deep") };
    assert_eq!(m.rename_with(&no_replace), Err(Status::Exists));
    let exchange = RenameRequest { exchange: true, ..rename(TOP, "f", e, "deep") };
    m.rename_with(&exchange).unwrap();
    assert_eq!((m.lookup(TOP, "f"), m.lookup(e, "deep")), (Ok(d), Ok(f)));
    assert_eq!((m.attr(e).nlink, m.attr(TOP).nlink, m.state.parent(d)), (2, 4, Ok(TOP)));
    let nothing = RenameRequest { exchange: true, ..rename(TOP, "f", e, "none") };
    assert_eq!(m.rename_with(&nothing), Err(Status::NotFound));
    let both = RenameRequest { exchange: true, no_replace: true, ..rename(TOP, "f", e, "deep") };
    assert_eq!(m.rename_with(&both), Err(Status::Invalid));
    let below = m.mkdir(d, "below").unwrap();
    m.create(below, "leaf").unwrap();
    let upside_down = RenameRequest { exchange: true, ..rename(TOP, "f", below, "leaf") };
    assert_eq!(m.rename_with(&upside_down), Err(Status::Invalid));
}

#[test]
fn mode_bits_rule_names() {
    let mut m = Machine::new();
    let (owner, other) = (user(10, 10), user(11, 11));
    let dir = m.mkdir_as(&owner, TOP, "d", 0o755).unwrap();
    m.create_as(&owner, dir, "f", 0o600).unwrap();
    assert_eq!(m.create_as(&other, dir, "g", 0o600), Err(Status::AccessDenied));
    assert_eq!(m.create_as(&other, dir, "f", 0o600), Err(Status::Exists), "existence comes first");
    assert_eq!(m.mkdir_as(&other, dir, "g", 0o700), Err(Status::AccessDenied));
    assert_eq!(m.unlink_as(&other, dir, "f"), Err(Status::AccessDenied));
    assert_eq!(m.unlink_as(&other, dir, "none"), Err(Status::NotFound));
    assert_eq!(m.rename_as(&other, dir, "f", TOP, "f"), Err(Status::AccessDenied));
    assert_eq!(m.rename_as(&other, TOP, "d", dir, "x"), Err(Status::Invalid));
    let closed = m.mkdir_as(&owner, TOP, "closed", 0o600).unwrap();
    let lookup = |who: &Credentials| LookupRequest { at: at(closed), name: name("x"), who: who.clone() };
    assert_eq!(m.look(|state, cx| state.lookup(cx, &lookup(&owner))).unwrap_err(), Status::AccessDenied);
    assert_eq!(m.look(|state, cx| state.lookup(cx, &lookup(&ROOT))).unwrap_err(), Status::NotFound);
    let trusted = Credentials { checked_by_kernel: true, ..other.clone() };
    assert_eq!(m.look(|state, cx| state.lookup(cx, &lookup(&trusted))).unwrap_err(), Status::NotFound);
    let list = |who: &Credentials| ReadDirRequest { at: at(closed), cookie: 0, bytes_max: 100, with_state: true, who: who.clone() };
    assert!(m.look(|state, cx| state.readdir(cx, &list(&owner))).is_ok());
    assert_eq!(m.look(|state, cx| state.readdir(cx, &list(&other))), Err(Status::AccessDenied));
    let file = m.lookup(dir, "f").unwrap();
    let open = |rights| OpenRequest::of(file, rights, 1, other.clone());
    m.client = weft_base::ClientId(2);
    for rights in [Rights::READ, Rights::WRITE] {
        let refused = m.change(|state, cx, record| state.prepare_open(cx, &open(rights), record));
        assert_eq!(refused.unwrap_err(), Status::AccessDenied);
    }
    // Moving a directory to another parent changes its entry "..".
    let a = m.mkdir_as(&owner, TOP, "a", 0o777).unwrap();
    m.mkdir_as(&owner, a, "sub", 0o755).unwrap();
    assert_eq!(m.rename_as(&other, a, "sub", TOP, "sub"), Err(Status::AccessDenied));
    m.rename_as(&other, a, "sub", a, "sub2").unwrap();
}

#[test]
fn sticky_directories_protect_their_entries() {
    let mut m = Machine::new();
    let (owner, other, dir_owner) = (user(10, 10), user(11, 11), user(12, 12));
    let dir = m.mkdir_as(&dir_owner, TOP, "tmp", 0o777 | MODE_STICKY).unwrap();
    for file in ["a", "b", "c"] {
        m.create_as(&owner, dir, file, 0o666).unwrap();
    }
    m.mkdir_as(&owner, dir, "sub", 0o777).unwrap();
    m.create_as(&other, dir, "mine", 0o666).unwrap();
    assert_eq!(m.unlink_as(&other, dir, "a"), Err(Status::NotPermitted));
    assert_eq!(m.rmdir_as(&other, dir, "sub"), Err(Status::NotPermitted));
    assert_eq!(m.rename_as(&other, dir, "a", TOP, "a"), Err(Status::NotPermitted));
    assert_eq!(m.rename_as(&other, dir, "mine", dir, "a"), Err(Status::NotPermitted), "replacing is removing");
    let trusted = Credentials { checked_by_kernel: true, ..other.clone() };
    assert_eq!(m.unlink_as(&trusted, dir, "a"), Err(Status::NotPermitted), "ownership is always checked");
    m.unlink_as(&owner, dir, "a").unwrap();
    m.unlink_as(&dir_owner, dir, "b").unwrap();
    m.unlink_as(&ROOT, dir, "c").unwrap();
    m.rename_as(&other, dir, "mine", dir, "yours").unwrap();
}

#[test]
fn chmod_and_chown_follow_ownership() {
    let mut m = Machine::new();
    let (owner, other) = (Credentials { groups: vec![20], ..user(10, 10) }, user(11, 11));
    let file = m.create_as(&owner, TOP, "f", 0o644).unwrap();
    let chmod = |who: &Credentials, mode| SetAttrRequest { mode: Some(mode), ..setattr(file, who) };
    let chown = |who: &Credentials, uid, gid| SetAttrRequest { uid, gid, ..setattr(file, who) };
    assert_eq!(m.setattr(&chmod(&other, 0o777)), Err(Status::NotPermitted));
    m.setattr(&chmod(&owner, 0o6711)).unwrap();
    assert_eq!(m.attr(file).mode, 0o6711);
    assert_eq!(m.setattr(&chown(&other, None, Some(11))), Err(Status::NotPermitted));
    assert_eq!(m.setattr(&chown(&owner, Some(11), None)), Err(Status::NotPermitted), "nobody gives files away");
    assert_eq!(m.setattr(&chown(&owner, None, Some(99))), Err(Status::NotPermitted), "not a member");
    m.setattr(&chown(&owner, Some(10), Some(20))).unwrap();
    assert_eq!((m.attr(file).gid, m.attr(file).mode), (20, 0o711), "set-id bits are cleared");
    m.setattr(&chmod(&ROOT, 0o6744)).unwrap();
    m.setattr(&chown(&ROOT, Some(11), Some(11))).unwrap();
    let attr = m.attr(file);
    assert_eq!((attr.uid, attr.gid, attr.mode), (11, 11, 0o2744), "set-group-id without execute permission means locking");
    // A program of a group that the caller is not in does not become set-group-id.
    let foreign = m.create_as(&ROOT, TOP, "g", 0o755).unwrap();
    m.setattr(&SetAttrRequest { uid: Some(10), gid: Some(99), ..setattr(foreign, &ROOT) }).unwrap();
    m.setattr(&SetAttrRequest { mode: Some(0o2755), ..setattr(foreign, &owner) }).unwrap();
    assert_eq!(m.attr(foreign).mode, 0o755);
}

#[test]
fn set_group_id_directories_hand_their_group_down() {
    let mut m = Machine::new();
    let user = user(10, 10);
    let dir = m.mkdir_as(&ROOT, TOP, "d", 0o777).unwrap();
    let request = SetAttrRequest { mode: Some(0o2777), gid: Some(50), ..setattr(dir, &ROOT) };
    m.setattr(&request).unwrap();
    let file = m.create_as(&user, dir, "f", 0o2755).unwrap();
    let sub = m.mkdir_as(&user, dir, "s", 0o755).unwrap();
    assert_eq!((m.attr(file).gid, m.attr(file).mode), (50, 0o755), "not a member of that group");
    let judged = Credentials { checked_by_kernel: true, ..user.clone() };
    let file = m.create_as(&judged, dir, "member", 0o2755).unwrap();
    assert_eq!(m.attr(file).mode, 0o2755, "a kernel knows all groups of its users");
    assert_eq!((m.attr(sub).gid, m.attr(sub).mode), (50, 0o755 | MODE_SETGID));
}

#[test]
fn utimes_needs_ownership_or_for_now_write_permission() {
    let mut m = Machine::new();
    let (owner, writer, reader) = (user(10, 10), user(11, 20), user(12, 30));
    let file = m.create_as(&owner, TOP, "f", 0o664).unwrap();
    m.setattr(&SetAttrRequest { gid: Some(20), ..setattr(file, &ROOT) }).unwrap();
    let at = |who: &Credentials, at| SetAttrRequest { atime: Some(SetTime { at }), mtime: Some(SetTime { at }), ..setattr(file, who) };
    let fixed = Some(WallTime(5));
    m.setattr(&at(&owner, fixed)).unwrap();
    assert_eq!((m.attr(file).atime, m.attr(file).mtime), (WallTime(5), WallTime(5)));
    assert!(m.attr(file).ctime > WallTime(5));
    assert_eq!(m.setattr(&at(&writer, fixed)), Err(Status::NotPermitted));
    assert_eq!(m.setattr(&at(&reader, None)), Err(Status::AccessDenied));
    m.setattr(&at(&writer, None)).unwrap();
    assert_eq!(m.attr(file).mtime, WallTime(m.now));
}

#[test]
fn size_changes_need_write_permission_or_an_open_file() {
    let mut m = Machine::new();
    let (owner, other) = (user(10, 10), user(11, 11));
    let file = m.create_as(&owner, TOP, "f", 0o444).unwrap();
    let size = |who: &Credentials| SetAttrRequest { size: Some(10), ..setattr(file, who) };
    assert_eq!(m.setattr(&size(&other)), Err(Status::AccessDenied));
    assert_eq!(m.setattr(&size(&owner)), Err(Status::AccessDenied));
    let opened = SetAttrRequest { opened_for_write: true, ..size(&owner) };
    assert!(matches!(m.setattr(&opened), Ok(SizePlan::Done(_))));
    assert_eq!(m.attr(file).size, 10);
}

#[test]
fn parents_show_when_their_entries_change() {
    let mut m = Machine::new();
    let (a, b) = (m.mkdir(TOP, "a").unwrap(), m.mkdir(TOP, "b").unwrap());
    type Step<'a> = (&'a str, &'a [Handle], &'a dyn Fn(&mut Machine));
    let steps: [Step<'_>; 8] = [
        ("create", &[a], &|m| assert!(m.create(a, "f").is_ok())),
        ("mkdir", &[a], &|m| assert!(m.mkdir(a, "d").is_ok())),
        ("link", &[b], &|m| m.link(m.lookup(a, "f").unwrap(), b, "l").unwrap()),
        ("rename", &[a, b], &|m| m.rename(a, "f", b, "f").unwrap()),
        ("rename of a directory", &[a, b], &|m| m.rename(a, "d", b, "d").unwrap()),
        ("rename here", &[b], &|m| m.rename(b, "f", b, "g").unwrap()),
        ("rmdir", &[b], &|m| m.rmdir(b, "d").unwrap()),
        ("unlink", &[b], &|m| m.unlink(b, "g").unwrap()),
    ];
    for (what, changed, step) in steps {
        let before = [a, b].map(|dir| m.attr(dir));
        step(&mut m);
        for before in before {
            let after = m.attr(before.handle);
            let moved = (after.mtime > before.mtime, after.ctime > before.ctime, after.version > before.version);
            let expected = changed.contains(&before.handle);
            assert_eq!(moved, (expected, expected, expected), "{what}: {:?}", before.handle);
        }
    }
}

#[test]
fn objects_show_when_they_are_renamed_linked_and_unlinked() {
    let mut m = Machine::new();
    let file = m.create(TOP, "f").unwrap();
    let dir = m.mkdir(TOP, "d").unwrap();
    let mut ctime = m.attr(file).ctime;
    let mut expect_newer = |m: &Machine, what: &str| {
        let attr = m.attr(file);
        assert!(attr.ctime > ctime, "{what}");
        assert!(attr.mtime < attr.ctime, "{what}: the data did not change");
        ctime = attr.ctime;
    };
    m.link(file, TOP, "g").unwrap();
    expect_newer(&m, "link");
    m.rename(TOP, "g", TOP, "h").unwrap();
    expect_newer(&m, "rename");
    m.unlink(TOP, "h").unwrap();
    expect_newer(&m, "unlink");
    m.setattr(&SetAttrRequest { mode: Some(0o600), ..setattr(file, &ROOT) }).unwrap();
    expect_newer(&m, "chmod");
    let before = m.attr(dir).ctime;
    m.rename(TOP, "d", TOP, "e").unwrap();
    assert!(m.attr(dir).ctime > before, "rename of a directory");
}

#[test]
fn special_objects() {
    let mut m = Machine::new();
    let of = |kind, who: Credentials, file| CreateRequest { kind, who, rdev: 259, ..create(TOP, file) };
    let mut make = |request: &CreateRequest| m.change(|state, cx, record| state.prepare_create(cx, request, record));
    assert_eq!(make(&of(FileKind::Directory, ROOT, "d")).unwrap_err(), Status::Invalid);
    assert_eq!(make(&of(FileKind::CharDevice, user(1, 1), "c")).unwrap_err(), Status::NotPermitted);
    let device = make(&of(FileKind::BlockDevice, ROOT, "b")).unwrap().state.unwrap().attr;
    assert_eq!((device.kind, device.rdev), (FileKind::BlockDevice, 259));
    for (kind, file) in [(FileKind::Fifo, "p"), (FileKind::Socket, "s")] {
        assert_eq!(make(&of(kind, user(1, 1), file)).unwrap().state.unwrap().attr.rdev, 0);
    }
    let link = |target: &[u8], file| CreateRequest { target: Bytes::copy_from_slice(target), ..of(FileKind::Symlink, ROOT, file) };
    assert_eq!(make(&link(b"", "l")).unwrap_err(), Status::Invalid);
    assert_eq!(make(&link(&[b'x'; 4096], "l")).unwrap_err(), Status::NameTooLong);
    let made = make(&link(b"to/here", "l")).unwrap();
    assert_eq!((made.state.as_ref().unwrap().attr.size, made.state.unwrap().attr.mode), (7, 0o777));
    assert_eq!(m.look(|state, _| state.readlink(made.handle)).unwrap().target, name("to/here"));
    let odd = CreateRequest { stripe_bytes: 5000, ..create(TOP, "odd") };
    assert_eq!(m.change(|state, cx, record| state.prepare_create(cx, &odd, record)).unwrap_err(), Status::Invalid);
}

#[test]
fn create_without_exclusive_opens_what_is_there() {
    let mut m = Machine::new();
    let file = m.create_as(&user(10, 10), TOP, "f", 0o600).unwrap();
    let request = |who: &Credentials| CreateRequest { exclusive: false, open: Rights::WRITE, who: who.clone(), ..create(TOP, "f") };
    let refused = m.change(|state, cx, record| state.prepare_create(cx, &request(&user(11, 11)), record));
    assert_eq!(refused.unwrap_err(), Status::AccessDenied);
    let reply = m.change(|state, cx, record| state.prepare_create(cx, &request(&user(10, 10)), record)).unwrap();
    assert_eq!((reply.created, reply.handle, reply.capability.is_some()), (false, file, true));
    assert_eq!(m.state.opened_by(ME, file), Some((Rights::WRITE, 1)));
}

#[test]
fn extended_attributes_follow_their_name_spaces() {
    let mut m = Machine::new();
    let (owner, other) = (user(10, 10), user(11, 11));
    let file = m.create_as(&owner, TOP, "f", 0o640).unwrap();
    let set = |who: &Credentials, attribute: &str, value: &[u8], create_only, replace_only| SetXattrRequest {
        handle: file,
        name: name(attribute),
        value: Bytes::copy_from_slice(value),
        create_only,
        replace_only,
        who: who.clone(),
    };
    let mut put = |request: SetXattrRequest| m.change(|state, cx, record| state.prepare_set_xattr(cx, &request, record));
    assert_eq!(put(set(&owner, "user.a", b"1", false, true)), Err(Status::NoAttribute));
    assert_eq!(put(set(&owner, "user.a", b"1", true, false)), Ok(()));
    assert_eq!(put(set(&owner, "user.a", b"1", true, false)), Err(Status::Exists));
    assert_eq!(put(set(&owner, "user.a", b"22", false, true)), Ok(()));
    assert_eq!(put(set(&other, "user.b", b"", false, false)), Err(Status::AccessDenied));
    assert_eq!(put(set(&owner, "trusted.a", b"", false, false)), Err(Status::NotPermitted));
    assert_eq!(put(set(&ROOT, "trusted.a", b"", false, false)), Ok(()));
    assert_eq!(put(set(&owner, "system.other", b"", false, false)), Err(Status::NotSupported));
    assert_eq!(put(set(&owner, "nospace", b"", false, false)), Err(Status::NotSupported));
    assert_eq!(put(set(&owner, "user.a\0b", b"", false, false)), Err(Status::Invalid));
    assert_eq!(put(set(&owner, &format!("user.{}", "x".repeat(251)), b"", false, false)), Err(Status::Range));
    assert_eq!(put(set(&owner, "user.big", &[0; (64 << 10) + 1], false, false)), Err(Status::TooBig));
    assert_eq!(put(set(&owner, "user.big", &[0; 64 << 10], false, false)), Ok(()));
    assert_eq!(put(set(&owner, "user.last", &[0; 8 << 10], false, false)), Err(Status::NoSpace));
    let get = |m: &Machine, who: &Credentials, attribute| m.look(|state, _| state.get_xattr(file, &name(attribute), who));
    assert_eq!(get(&m, &owner, "user.a").unwrap().value, name("22"));
    assert_eq!(get(&m, &other, "user.a"), Err(Status::AccessDenied));
    assert_eq!(get(&m, &owner, "trusted.a"), Err(Status::NoAttribute));
    let names = m.look(|state, _| state.list_xattr(file, &owner)).unwrap().names;
    assert_eq!((names.len(), names.is_sorted(), names.contains(&name("trusted.a"))), (2, true, false));
    let remove = RemoveXattrRequest { handle: file, name: name("user.a"), who: owner };
    m.change(|state, cx, record| state.prepare_remove_xattr(cx, &remove, record)).unwrap();
    assert_eq!(m.change(|state, cx, record| state.prepare_remove_xattr(cx, &remove, record)), Err(Status::NoAttribute));
    m.unlink(TOP, "f").unwrap();
    assert_eq!(replay(dump(&m.state)).inode_count(), 1, "attributes go with their inode");
}

#[test]
fn attributes_say_that_there_are_no_extended_ones() {
    let mut m = Machine::new();
    let (file, other) = (m.create_as(&ROOT, TOP, "f", 0o640).unwrap(), m.create_as(&ROOT, TOP, "g", 0o640).unwrap());
    assert!(m.attr(file).bare && m.attr(other).bare);
    let (one, value) = (name("user.a"), Bytes::from_static(b"1"));
    let set = SetXattrRequest { handle: file, name: one.clone(), value, create_only: false, replace_only: false, who: ROOT };
    m.change(|state, cx, record| state.prepare_set_xattr(cx, &set, record)).unwrap();
    assert!(!m.attr(file).bare && m.attr(other).bare);
    let restarted = replay(dump(&m.state));
    assert!(!restarted.attr(file, restarted.inode(file).unwrap()).bare, "after a restart, too");
    let remove = RemoveXattrRequest { handle: file, name: one, who: ROOT };
    m.change(|state, cx, record| state.prepare_remove_xattr(cx, &remove, record)).unwrap();
    assert!(m.attr(file).bare);
}

#[test]
fn listings_are_complete_in_pages_of_any_size() {
    let mut m = Machine::new();
    let mut expected: Vec<String> = (0..300).map(|i| format!("name-{i}")).collect();
    for file in &expected {
        m.create(TOP, file).unwrap();
    }
    expected.sort();
    for bytes_max in [1, 100, 1000, 1 << 20] {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let request = ReadDirRequest { at: at(TOP), cookie, bytes_max, with_state: bytes_max % 3 == 1, who: ROOT };
            let page = m.look(|state, cx| state.readdir(cx, &request)).unwrap();
            for entry in &page.entries {
                assert!(entry.cookie > cookie, "cookies grow");
                cookie = entry.cookie;
                names.push(String::from_utf8(entry.name.to_vec()).unwrap());
                // Removing what was listed moves nothing behind the cookie.
                assert_eq!(entry.state.is_some(), request.with_state);
            }
            if page.until == u64::MAX {
                break;
            }
            assert!(!page.entries.is_empty(), "a page makes progress");
        }
        names.sort();
        assert_eq!(names, expected);
    }
}

#[test]
fn names_are_found_together_as_alone() {
    let mut m = Machine::new();
    let (owner, other) = (user(10, 20), user(11, 21));
    let open = m.mkdir_as(&owner, TOP, "open", 0o755).unwrap();
    let closed = m.mkdir_as(&owner, TOP, "closed", 0o700).unwrap();
    let mut files = Vec::new();
    for (dir, file, mode) in [(open, "all", 0o644), (open, "mine", 0o600), (closed, "all", 0o644)] {
        files.push(m.create_as(&owner, dir, file, mode).unwrap());
    }
    let names = |dir, names: &[&str]| NamesInDir { at: at(dir), names: names.iter().map(|text| name(text)).collect() };
    let dirs = vec![
        names(open, &["all", "none", "mine", "", "all"]),
        names(closed, &["all"]),
        names(files[0], &["x"]),
        names(TOP, &["open"]),
        names(Handle(7 << 48), &["far"]),
    ];
    let all: Vec<(DirTarget, Bytes)> = dirs.iter().flat_map(|dir| dir.names.iter().map(|name| (dir.at.clone(), name.clone()))).collect();
    for who in [&owner, &other, &ROOT] {
        let request = LookupManyRequest { dirs: dirs.clone(), who: who.clone(), contents: None };
        let found = m.look(|state, cx| state.lookup_many(cx, &request)).unwrap().found;
        assert_eq!(found.len(), all.len());
        for ((at, name), found) in all.iter().zip(found) {
            let alone = LookupRequest { at: at.clone(), name: name.clone(), who: who.clone() };
            let alone = m.look(|state, cx| state.lookup(cx, &alone));
            let read = found.as_ref().ok().and_then(|found| found.read);
            assert_eq!(found.map(|found| LookupReply { handle: found.handle, kind: found.kind, state: found.state }), alone);
            // The right to read is what an open would give, and no more.
            let handle = alone.map_or(Handle(0), |found| found.handle);
            let wanted = OpenRequest::of(handle, Rights::READ, 1, who.clone());
            let opened = m.look(|state, cx| state.prepare_open(cx, &wanted, &mut Record::default()));
            assert_eq!(read, opened.ok().map(|opened| opened.capability), "{name:?}");
        }
    }
    let many = |count: usize| LookupManyRequest { dirs: vec![names(open, &vec!["all"; count])], who: ROOT, contents: None };
    assert!(m.look(|state, cx| state.lookup_many(cx, &many(LOOKUPS_MAX))).is_ok());
    assert_eq!(m.look(|state, cx| state.lookup_many(cx, &many(LOOKUPS_MAX + 1))), Err(Status::TooBig));
    let empty = LookupManyRequest { dirs: vec![names(open, &[]); LOOKUPS_MAX + 1], who: ROOT, contents: None };
    assert_eq!(m.look(|state, cx| state.lookup_many(cx, &empty)), Err(Status::TooBig));
}
