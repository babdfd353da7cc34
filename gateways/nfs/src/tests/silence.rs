//! Beside servers that do not answer. How large a file is that others are writing, only its data
//! servers know.

use weft_base::{Credentials, Handle, ROOT_HANDLE, SECOND, ServerId};
use weft_client::CreateOptions;
use weft_rt::Bulk;

use super::world::{Call, Fh, User, World, mode, read_after};
use crate::types::NfsStatus;

const LATER: u32 = NfsStatus::LATER.0;
const BYTES: usize = 10_000;

/// The root, and a file that a client of the file system has open and has just written.
fn written_by_others(world: &World, user: &User<'_>) -> (Fh, Fh) {
    let client = world.client();
    let root = user.mount("/").unwrap();
    world.run(async move {
        let who = Credentials::ROOT;
        let (_, open, _) = client.create(&who, ROOT_HANDLE, b"file", &CreateOptions::default()).await.unwrap();
        client.write(&open, 0, Bulk::Slices(vec![&[7; BYTES]])).await.unwrap();
        // It stays open, and so do those who may write to it.
        std::mem::forget((client, open));
    });
    let file = user.lookup(&root, "file").unwrap();
    assert_eq!(user.getattr(&file).unwrap().size, BYTES as u64);
    (root, file)
}

/// Both data servers stand still for so long.
fn silence(world: &World, ns: u64) {
    (0..2).for_each(|number| world.pause(ServerId::data(number), 0, ns));
}

#[test]
fn sizes_are_exact_or_not_told() {
    let world = World::new(1, 2);
    let gate = world.gateway_that_warns(&["/:no_root_squash"], Box::new(|_| {}));
    let user = world.user(&gate, 0);
    let (root, file) = written_by_others(&world, &user);
    silence(&world, 10 * SECOND);
    // Whoever appends writes where these say that the file ends.
    assert_eq!(user.getattr(&file).unwrap().size, BYTES as u64, "the servers are waited for");
    silence(&world, 1000 * SECOND);
    assert_eq!(user.getattr(&file), Err(LATER));
    let mut found = user.nfs(3, |out| out.opaque(&root).opaque(b"file")).unwrap();
    assert_eq!((found.opaque(64), read_after(&mut found)), (Ok(file.clone()), None), "a name needs no size");
    let mut allowed = user.nfs(4, |out| out.opaque(&file).u32(63)).unwrap();
    assert_eq!((read_after(&mut allowed), allowed.u32()), (None, Ok(1 | 4 | 8)));
    let (names, _) = user.list(&root, 4000, true).unwrap();
    assert!(names.iter().any(|(name, fh)| name == "file" && fh.as_ref() == Some(&file)));
    // An open that changes nothing tells no size either.
    let mut made = user
        .nfs(8, |out| {
            out.opaque(&root).opaque(b"file").u32(0);
            mode(out, 0o600)
        })
        .unwrap();
    assert_eq!((made.bool(), made.opaque(64), read_after(&mut made)), (Ok(true), Ok(file), None));
}

#[test]
fn a_file_that_goes_while_its_size_is_waited_for_is_stale() {
    let world = World::new(1, 2);
    let gate = world.gateway_that_warns(&["/:no_root_squash"], Box::new(|_| {}));
    let user = world.user(&gate, 0);
    let (root, file) = written_by_others(&world, &user);
    silence(&world, 10 * SECOND);
    let looks: Call<u32> = Box::new(move |user| user.getattr(&file).map(|seen| seen.links));
    let removes: Call<u32> = Box::new(move |user| user.remove(&root, "file").map(|()| 0));
    let done = world.at_once(vec![(user.clone(), 0, looks), (user, 5 * SECOND, removes)]);
    let outcomes: Vec<_> = done.into_iter().map(|done| done.outcome).collect();
    assert_eq!(outcomes, [Err(NfsStatus::STALE.0), Ok(0)]);
}

#[test]
fn a_change_of_something_else_waits_for_no_size() {
    let world = World::new(1, 2);
    let gate = world.gateway_that_warns(&["/:no_root_squash"], Box::new(|_| {}));
    let user = world.user(&gate, 0);
    let (root, file) = written_by_others(&world, &user);
    let before = user.getattr(&file).unwrap();
    silence(&world, 1000 * SECOND);
    assert_eq!(user.setattr(&file, |out| mode(out, 0o604), None), Ok((false, None)));
    let mut linked = user.nfs(15, |out| out.opaque(&file).opaque(&root).opaque(b"second")).unwrap();
    assert_eq!(read_after(&mut linked), None, "nor is a name given with one");
    // A guard is about a time that the data servers may know better.
    assert_eq!(user.setattr(&file, |out| mode(out, 0o600), Some(before.ctime)), Err(LATER));
    world.go_on();
    let after = user.getattr(&file).unwrap();
    assert_eq!((after.mode, after.links, after.size), (0o604, 2, BYTES as u64));
    assert_eq!(user.setattr(&file, |out| mode(out, 0o600), Some(before.ctime)), Err(NfsStatus::NOT_SYNC.0));
    assert!(user.setattr(&file, |out| mode(out, 0o600), Some(after.ctime)).is_ok());
}

#[test]
fn a_file_is_looked_at_once() {
    let world = World::new(1, 2);
    let gate = world.gateway(&["/:no_root_squash"]);
    let user = world.user(&gate, 0);
    let (_, file) = written_by_others(&world, &user);
    let cost = |call: &dyn Fn() -> bool| {
        let before = user.messages();
        assert!(call());
        user.messages() - before
    };
    let of_getattr = cost(&|| user.getattr(&file).is_ok());
    assert!(of_getattr > 0, "others write");
    assert_eq!(cost(&|| user.access(&file).is_ok()), of_getattr);
}

#[test]
fn what_is_above_is_not_shown_as_gone() {
    let world = World::new(2, 2);
    let gate = world.gateway_that_warns(&["/:no_root_squash"], Box::new(|_| {}));
    let user = world.user(&gate, 0);
    let top = user.mount("/").unwrap();
    let server = |dir: &Fh| Handle(user.getattr(dir).unwrap().number).server();
    // One directory at each server, and one in the other.
    let outer = user.mkdir(&top, "outer", 0o755).unwrap();
    let inner = (0..).map(|number| user.mkdir(&outer, &format!("inner{number}"), 0o755).unwrap());
    let inner = inner.take(100).find(|inner| server(inner) != server(&outer)).expect("directories are spread");
    let parent = || user.list(&inner, 4000, true).map(|(names, _)| names.into_iter().find(|(name, _)| name == "..").unwrap().1);
    assert_eq!(parent(), Ok(Some(outer.clone())));
    world.pause(server(&outer), 0, 100 * SECOND);
    assert_eq!(parent(), Err(LATER));
    assert_eq!(user.lookup(&inner, ".."), Err(LATER));
    world.go_on();
    assert_eq!((parent(), user.lookup(&inner, "..")), (Ok(Some(outer.clone())), Ok(outer.clone())));
}
