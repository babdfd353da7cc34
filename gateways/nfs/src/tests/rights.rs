//! Who may do what.

use weft_base::{ACL_ACCESS, Credentials};
use weft_client::XattrFlags;

use super::world::{User, World, size};
use crate::calls::NFS_PROGRAM;
use crate::rpc::{Refusal, refused};
use crate::types::NfsStatus;

const DENIED: u32 = 13;
const NOT_PERMITTED: u32 = 1;
const READ_ONLY: u32 = NfsStatus::READ_ONLY.0;

#[test]
fn an_open_of_one_user_admits_no_other() {
    let world = World::new(1, 2);
    let gate = world.gateway(&["/:no_root_squash"]);
    let (root, owner, other) = (world.user(&gate, 0), world.user(&gate, 5), world.user(&gate, 6));
    let dir = root.mount("/").unwrap();
    root.chmod(&dir, 0o777).unwrap();
    let file = owner.create(&dir, "file", 1, 0o600).unwrap();
    owner.write(&file, 0, b"secret", 0).unwrap();
    owner.read(&file, 0, 10).unwrap();
    assert_eq!(other.read(&file, 0, 10), Err(DENIED), "although it is open for its owner");
    assert_eq!(other.write(&file, 0, b"x", 0), Err(DENIED));
    assert_eq!((owner.access(&file), other.access(&file)), (Ok(1 | 4 | 8), Ok(0)));
    // Rights follow a chmod at once, also those of whoever has just read.
    owner.chmod(&file, 0o604).unwrap();
    assert_eq!(other.read(&file, 0, 10).unwrap().0, "secret");
    assert_eq!(other.write(&file, 0, b"x", 0), Err(DENIED));
    owner.chmod(&file, 0o600).unwrap();
    assert_eq!(other.read(&file, 0, 10), Err(DENIED));
    // Through another gateway as well.
    let elsewhere = world.gateway(&["/:no_root_squash"]);
    owner.chmod(&file, 0o644).unwrap();
    assert_eq!(other.read(&file, 0, 10).unwrap().0, "secret");
    world.user(&elsewhere, 5).chmod(&file, 0o600).unwrap();
    assert_eq!(other.read(&file, 0, 10), Err(DENIED));
    // A group is as good as the owner's.
    owner.chmod(&file, 0o640).unwrap();
    assert_eq!(User { groups: vec![9, 5], ..other.clone() }.read(&file, 0, 10).unwrap().0, "secret");
    assert_eq!(other.read(&file, 0, 10), Err(DENIED), "the same user without it");
    assert_eq!(other.chmod(&file, 0o666), Err(NOT_PERMITTED));
    assert_eq!(other.setattr(&file, |out| size(out, 0), None).unwrap_err(), DENIED);
}

#[test]
fn an_owner_goes_on_whatever_the_mode_says() {
    let world = World::new(1, 2);
    let gate = world.gateway(&["/:no_root_squash"]);
    let (root, owner, other) = (world.user(&gate, 0), world.user(&gate, 5), world.user(&gate, 6));
    let dir = root.mount("/").unwrap();
    root.chmod(&dir, 0o777).unwrap();
    // As git makes its objects: read-only, and written then.
    let file = owner.create(&dir, "file", 1, 0o444).unwrap();
    owner.write(&file, 0, b"data", 0).unwrap();
    owner.chmod(&file, 0).unwrap();
    owner.write(&file, 4, b" more", 0).unwrap();
    assert_eq!(owner.read(&file, 0, 100).unwrap().0, "data more");
    owner.setattr(&file, |out| size(out, 4), None).unwrap();
    assert_eq!(other.read(&file, 0, 100), Err(DENIED));
    // What may be executed is read by the client for whoever executes it.
    owner.chmod(&file, 0o711).unwrap();
    assert_eq!(other.read(&file, 0, 100).unwrap().0, "data");
    assert_eq!(other.write(&file, 0, b"x", 0), Err(DENIED));
    // A program that others change runs with its owner's rights no more.
    owner.chmod(&file, 0o4777).unwrap();
    other.write(&file, 0, b"x", 0).unwrap();
    assert_eq!(owner.getattr(&file).unwrap().mode, 0o777);
}

#[test]
fn exports_have_their_rules() {
    let world = World::new(1, 2);
    let trusting = world.gateway(&["/:no_root_squash"]);
    let root = world.user(&trusting, 0);
    let top = root.mount("/").unwrap();
    let data = root.mkdir(&top, "data", 0o755).unwrap();
    let inner = root.mkdir(&data, "inner", 0o777).unwrap();
    let secret = root.create(&top, "secret", 1, 0o666).unwrap();
    let gate = world.gateway(&["/data", "/data/inner:ro,10.0.0.0/8"]);
    let squashed = world.user(&gate, 0);
    let dir = squashed.mount("/data").unwrap();
    assert_eq!(squashed.mkdir(&dir, "x", 0o755), Err(DENIED), "root is nobody");
    assert_eq!(squashed.mount("/data/inner/"), Err(DENIED), "that export is for others");
    assert_eq!(squashed.mount("/"), Err(2));
    // Handles of the other gateway name another export, which this one does not have.
    assert_eq!(squashed.getattr(&secret), Err(NfsStatus::STALE.0));
    assert_eq!(squashed.getattr(&inner), Err(NfsStatus::STALE.0));
    assert_eq!(squashed.lookup(&dir, ".."), Ok(dir.clone()), "nothing is above");
    // The client of the read-only export.
    let reader = User { address: [10, 1, 2, 3].into(), ..world.user(&gate, 5) };
    let shown = reader.mount("/data/inner").unwrap();
    assert_eq!(reader.create(&shown, "x", 1, 0o600), Err(READ_ONLY));
    assert_eq!(reader.remove(&shown, "x"), Err(READ_ONLY));
    assert_eq!(reader.access(&shown), Ok(1 | 2));
    let getattr = reader.record(3, NFS_PROGRAM, 1, &super::world::args(|out| out.opaque(&dir)));
    assert_eq!(reader.send(getattr), Some(refused(3, Refusal::Rejected)), "a handle is no ticket");
    assert_eq!(reader.mount("/data"), Err(DENIED));
}

#[test]
fn without_a_key_all_is_exported_to_the_own_machine_only() {
    let world = World::new(1, 2);
    let open = |exports: &[&str]| world.gateway_by(None, exports, Box::new(|line| panic!("{line}")));
    let top = world.user(&world.gateway(&["/:no_root_squash"]), 0);
    top.mkdir(&top.mount("/").unwrap(), "data", 0o755).unwrap();
    // Anybody makes a handle of anything: these would keep nobody out of the rest.
    for exports in [&["/:*"][..], &["/:10.0.0.0/8"], &["/:127.0.0.1"], &["/data"], &["/data:ro,*"], &["/", "/data"]] {
        assert!(open(exports).is_err_and(|words| words.contains("no key")), "{exports:?}");
    }
    let gate = open(&["/:no_root_squash"]).expect("it is for this machine");
    let user = world.user(&gate, 0);
    let root = user.mount("/").unwrap();
    let file = user.create(&root, "file", 1, 0o600).unwrap();
    let stranger = User { address: [10, 0, 0, 1].into(), ..user.clone() };
    assert_eq!(stranger.mount("/"), Err(DENIED));
    let getattr = stranger.record(3, NFS_PROGRAM, 1, &super::world::args(|out| out.opaque(&file)));
    assert_eq!(stranger.send(getattr), Some(refused(3, Refusal::Rejected)));
}

#[test]
fn rights_follow_access_control_lists() {
    let world = World::new(1, 2);
    let gate = world.gateway(&["/:no_root_squash"]);
    let (root, owner, other) = (world.user(&gate, 0), world.user(&gate, 5), world.user(&gate, 6));
    let top = root.mount("/").unwrap();
    root.chmod(&top, 0o777).unwrap();
    let dir = owner.mkdir(&top, "dir", 0o700).unwrap();
    let file = owner.create(&dir, "file", 1, 0o600).unwrap();
    owner.write(&file, 0, b"secret", 0).unwrap();
    // Everything for the owner, this for user 6, nothing for others.
    let set = |path: &'static [u8], may: u8| {
        let entry = |tag: u8, may: u8, id: [u8; 4]| [[tag, 0, may, 0], id].concat();
        let entries = [entry(1, 7, [255; 4]), entry(2, may, [6, 0, 0, 0]), entry(4, 0, [255; 4]), entry(16, 7, [255; 4])];
        let list = [vec![2, 0, 0, 0], entries.concat(), entry(32, 0, [255; 4])].concat();
        let client = world.client();
        world.run(async move {
            let who = Credentials::ROOT;
            let attr = client.resolve(&who, path, true).await.expect("it is there");
            client.set_xattr(&who, attr.handle, ACL_ACCESS.as_bytes(), &list, XattrFlags::default()).await.expect("a list");
        });
    };
    assert_eq!((other.access(&dir), other.lookup(&dir, "file")), (Ok(0), Err(DENIED)));
    set(b"/dir", 1);
    assert_eq!((other.access(&dir), other.lookup(&dir, "file")), (Ok(2), Ok(file.clone())));
    assert_eq!(other.create(&dir, "new", 1, 0o600), Err(DENIED));
    set(b"/dir/file", 6);
    assert_eq!((owner.access(&file), other.access(&file)), (Ok(1 | 4 | 8 | 32), Ok(1 | 4 | 8)));
    assert_eq!(other.read(&file, 0, 10).unwrap().0, "secret");
    other.write(&file, 0, b"S", 0).unwrap();
    // The mode stays the same; what was open a moment ago admits nobody any more.
    set(b"/dir/file", 4);
    assert_eq!((other.read(&file, 0, 10).unwrap().0.as_ref(), other.write(&file, 0, b"x", 0)), (&b"Secret"[..], Err(DENIED)));
    set(b"/dir/file", 0);
    assert_eq!(other.read(&file, 0, 10), Err(DENIED));
}

#[test]
fn a_subtree_shows_nothing_beside_itself() {
    let world = World::new(1, 2);
    let trusting = world.gateway(&["/:no_root_squash"]);
    let root = world.user(&trusting, 0);
    let top = root.mount("/").unwrap();
    let data = root.mkdir(&top, "data", 0o777).unwrap();
    root.mkdir(&data, "deep", 0o777).unwrap();
    root.make(10, |out| {
        out.opaque(&data).opaque(b"out");
        super::world::mode(out, 0o777);
        out.opaque(b"/")
    })
    .unwrap();
    let gate = world.gateway(&["/data"]);
    let user = world.user(&gate, 5);
    assert_eq!(user.mount("/data/out"), Err(20), "symlinks are not followed below an export");
    assert_eq!(user.mount("/data/../data"), Err(22));
    let dir = user.mount("/data").unwrap();
    let deep = user.lookup(&dir, "deep").unwrap();
    assert_eq!(user.lookup(&deep, ".."), Ok(dir.clone()));
    let parents: Vec<_> = user.list(&dir, 4000, true).unwrap().0.into_iter().filter(|(name, _)| name == "..").collect();
    assert_eq!(parents[0].1.as_ref(), Some(&dir));
    // Moved out of it, a directory has nothing above.
    root.rename((&data, "deep"), (&top, "deep")).unwrap();
    assert_eq!(user.lookup(&deep, ".."), Err(NfsStatus::STALE.0));
    let parents: Vec<_> = user.list(&deep, 4000, true).unwrap().0.into_iter().filter(|(name, _)| name == "..").collect();
    assert!(parents.len() == 1 && parents[0].1.is_none(), "nor a handle of what is above: {parents:?}");
}
