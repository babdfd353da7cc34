//! The trash: whose it is, what comes back from it, and what is left of what is emptied.

use std::collections::BTreeSet;

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, ROOT_HANDLE, SECOND, Status};
use weft_rt::Runtime;

use super::world::{Fate, ROOT, TestRt, World};
use crate::{Client, CreateOptions, Discarded, Error, SetAttr, TRASH, TrashFault, TreeNews, TreeRemoved, TreeSetting};

/// A world lasts for hours only.
const DAY_NS: u64 = 1000 * SECOND;

fn user(uid: u32) -> Credentials {
    Credentials { uid, gid: uid, groups: Vec::new(), checked_by_kernel: false }
}

fn trash(world: &World, client: &Client<TestRt>, who: &Credentials) -> Handle {
    world.run(client.trash(who, true)).unwrap().expect("it is made")
}

fn discard(world: &World, client: &Client<TestRt>, who: &Credentials, path: &str) -> crate::Result<()> {
    let trash = trash(world, client, who);
    let (dir, name) = world.run(client.resolve_parent(who, path.as_bytes())).unwrap();
    world.run(client.discard(who, trash, (dir, &name), path.as_bytes()))
}

fn found(world: &World, client: &Client<TestRt>, who: &Credentials) -> Vec<Discarded> {
    world.run(client.discarded(who, trash(world, client, who))).unwrap()
}

fn restore(world: &World, client: &Client<TestRt>, who: &Credentials, what: &Discarded) -> crate::Result<bool> {
    let path = what.path.clone().unwrap();
    let (dir, name) = world.run(client.resolve_parent(who, &path)).unwrap();
    world.run(client.restore(who, trash(world, client, who), what, (dir, &name)))
}

fn empty(world: &World, client: &Client<TestRt>, who: &Credentials, older_ns: Option<u64>) -> ((u64, TreeRemoved), Vec<(String, Status)>) {
    let mut failed = Vec::new();
    let emptied = client.empty_trash(who, trash(world, client, who), older_ns, |news| {
        if let TreeNews::Failed { path, error } = news {
            failed.push((String::from_utf8_lossy(path).into(), error.status));
        }
    });
    let emptied = world.run(emptied).unwrap();
    (emptied, failed)
}

/// A directory in the root that this user owns, with so many files.
fn tree(world: &World, who: &Credentials, name: &str, server: u16, files: usize) -> Handle {
    let dir = world.add(ROOT_HANDLE, name, server, FileKind::Directory, "");
    let own = SetAttr { uid: Some(who.uid), gid: Some(who.gid), ..SetAttr::default() };
    world.run(world.hand.setattr(&ROOT, dir, &own)).unwrap();
    let names: Vec<Bytes> = (0..files).map(|file| format!("file{file}").into()).collect();
    assert!(world.run(world.hand.create_many(who, dir, &names, &CreateOptions::default())).iter().all(Result::is_ok));
    dir
}

fn exists(world: &World, path: &str) -> bool {
    world.run(world.hand.resolve(&ROOT, path.as_bytes(), false)).is_ok()
}

#[test]
fn what_is_in_the_trash_comes_back_as_it_was() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let dir = tree(&world, &ROOT, "dir", 1, 3);
    let long = "n".repeat(255);
    world.run(client.symlink(&ROOT, dir, long.as_bytes(), b"nowhere")).unwrap();
    // A hint stays where it was set, and new directories of the root get none.
    world.run(client.set_xattr(&ROOT, dir, b"user.weft.stripe_size", b"65536", crate::XattrFlags::default())).unwrap();
    assert_eq!(found(&world, &client, &ROOT), []);
    world.take_sent();
    discard(&world, &client, &ROOT, &format!("/dir/{long}")).unwrap();
    discard(&world, &client, &ROOT, "/dir").unwrap();
    assert!(!exists(&world, "/dir"));
    let all = found(&world, &client, &ROOT);
    let paths: Vec<_> = all.iter().map(|found| (found.path.as_deref().unwrap(), found.kind)).collect();
    let link = format!("/dir/{long}");
    assert_eq!(paths, [(link.as_bytes(), FileKind::Symlink), (&b"/dir"[..], FileKind::Directory)]);
    assert!(all[0].at < all[1].at, "the oldest is the first");

    // Nothing is overwritten.
    tree(&world, &ROOT, "dir", 0, 0);
    assert_eq!(restore(&world, &client, &ROOT, &all[1]).map_err(|error| error.status), Err(Status::Exists));
    world.run(client.rmdir(&ROOT, ROOT_HANDLE, b"dir")).unwrap();
    assert_eq!(restore(&world, &client, &ROOT, &all[1]), Ok(true));
    assert_eq!(restore(&world, &client, &ROOT, &all[0]), Ok(true));
    assert_eq!(world.run(client.resolve(&ROOT, b"/dir", false)).unwrap().handle, dir);
    assert_eq!(world.run(client.get_xattr(&ROOT, dir, b"user.weft.stripe_size")).unwrap(), "65536");
    assert!(exists(&world, "/dir/file2") && exists(&world, &link));
    assert_eq!(found(&world, &client, &ROOT), [], "nothing is left of it");
    assert!(restore(&world, &client, &ROOT, &all[0]).is_err());
}

#[test]
fn a_trash_that_others_could_have_planted_is_refused() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let (alice, mallory) = (user(10), user(20));
    let fault = |who: &Credentials| world.run(client.trash(who, true)).unwrap_err();
    let chmod = |dir, mode| world.run(world.hand.setattr(&ROOT, dir, &SetAttr { mode: Some(mode), ..SetAttr::default() })).unwrap();
    // Who may not make it says so, and to look makes nothing.
    assert!(matches!(fault(&alice), TrashFault::All(Error { status: Status::AccessDenied, .. })));
    assert_eq!(world.run(client.trash(&ROOT, false)), Ok(None));
    assert!(!exists(&world, "/.trash"));

    // In a root that all may write to.
    chmod(ROOT_HANDLE, 0o1777);
    assert!(matches!(fault(&alice), TrashFault::All(Error { status: Status::AccessDenied, .. })));
    assert!(!exists(&world, "/.trash"), "it would be in everybody's way");
    let planted = world.run(client.mkdir(&mallory, ROOT_HANDLE, TRASH.as_bytes(), 0o1777)).unwrap().handle;
    for who in [&alice, &mallory] {
        assert_eq!(fault(who), TrashFault::Planted(20));
    }
    world.run(client.rmdir(&mallory, ROOT_HANDLE, TRASH.as_bytes())).unwrap();
    let elsewhere = tree(&world, &mallory, "elsewhere", 0, 0);
    world.run(client.symlink(&ROOT, ROOT_HANDLE, TRASH.as_bytes(), b"elsewhere")).unwrap();
    assert_eq!(fault(&alice), TrashFault::Planted(0));
    world.run(client.unlink(&ROOT, ROOT_HANDLE, TRASH.as_bytes())).unwrap();
    assert_ne!(planted, elsewhere);

    // Of the root's owner, but somebody was there first; or all may move what is in it away.
    trash(&world, &client, &ROOT);
    let all = world.run(client.lookup(&ROOT, ROOT_HANDLE, TRASH.as_bytes())).unwrap();
    assert_eq!(all.mode & 0o7777, 0o1777);
    world.run(client.mkdir(&mallory, all.handle, b"10", 0o777)).unwrap();
    assert_eq!(fault(&alice), TrashFault::Planted(20));
    world.run(client.rmdir(&mallory, all.handle, b"10")).unwrap();
    let own = trash(&world, &client, &alice);
    assert_eq!(world.run(client.getattr(own)).unwrap().mode & 0o7777, 0o700);
    chmod(own, 0o770);
    assert_eq!(fault(&alice), TrashFault::Planted(10));
    chmod(own, 0o700);
    chmod(all.handle, 0o777);
    assert_eq!(fault(&alice), TrashFault::Planted(0));
    chmod(all.handle, 0o1777);

    // One sees and empties one's own.
    tree(&world, &alice, "hers", 1, 2);
    assert_eq!(discard(&world, &client, &mallory, "/hers").unwrap_err().status, Status::NotPermitted);
    discard(&world, &client, &alice, "/hers").unwrap();
    assert_eq!((found(&world, &client, &alice).len(), found(&world, &client, &mallory).len()), (1, 0));
    assert_eq!(world.run(client.discarded(&mallory, own)).unwrap_err().status, Status::AccessDenied);
    assert_eq!(empty(&world, &client, &mallory, None), ((0, TreeRemoved::default()), vec![]));
    assert_eq!(empty(&world, &client, &alice, None), ((1, TreeRemoved { files: 2, directories: 1, failed: 0 }), vec![]));
}

#[test]
fn what_is_old_goes_and_what_cannot_go_is_told() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
        tree(&world, &ROOT, name, number as u16 % 2, 600);
        discard(&world, &client, &ROOT, &format!("/{name}")).unwrap();
        world.run(world.sleep_until(world.now() + DAY_NS));
    }
    let ages = |days: u64| Some(days * DAY_NS + SECOND);
    assert_eq!(empty(&world, &client, &ROOT, ages(3)).0, (0, TreeRemoved::default()));
    assert_eq!(empty(&world, &client, &ROOT, ages(2)).0, (1, TreeRemoved { files: 600, directories: 1, failed: 0 }));
    let left = found(&world, &client, &ROOT);
    assert_eq!(left.iter().map(|found| found.path.as_deref().unwrap()).collect::<Vec<_>>(), [b"/b", b"/c"]);

    // Something sealed in it stays, and what has lost a part is not offered any more.
    let c = world.run(world.hand.lookup(&ROOT, ROOT_HANDLE, TRASH.as_bytes())).unwrap().handle;
    let own = trash(&world, &client, &ROOT);
    assert_ne!(c, own);
    let path = format!("/.trash/0/{:019}/b/file7", left[0].at.0);
    let sealed = world.run(world.hand.resolve(&ROOT, path.as_bytes(), false)).unwrap();
    let seal = |seal| world.run(world.hand.set_tree(&ROOT, (sealed.handle, sealed.kind), TreeSetting::Seal(seal), |_| {}));
    seal(true);
    let ((entries, removed), failed) = empty(&world, &client, &ROOT, ages(1));
    assert_eq!((entries, removed), (0, TreeRemoved { files: 599, directories: 0, failed: 1 }));
    assert_eq!(failed, [(format!("emptying.{:019}/b/file7", left[0].at.0), Status::Sealed)]);
    assert_eq!(found(&world, &client, &ROOT), left[1..]);
    assert!(restore(&world, &client, &ROOT, &left[0]).is_ok_and(|is_whole| !is_whole), "by who has looked before");
    seal(false);
    assert_eq!(empty(&world, &client, &ROOT, ages(3)).0.0, 1, "what was begun goes on");
    assert_eq!(empty(&world, &client, &ROOT, None).0, (1, TreeRemoved { files: 600, directories: 1, failed: 0 }));
    let names = world.run(client.readdir(&ROOT, own, 0, 1 << 20, false)).unwrap();
    assert!(names.entries.is_empty());
}

#[test]
fn what_may_not_be_moved_stays_and_lost_answers_move_nothing_twice() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let dir = tree(&world, &ROOT, "dir", 1, 2);
    let file = world.run(client.resolve(&ROOT, b"/dir/file0", false)).unwrap();
    let seal = |seal| world.run(world.hand.set_tree(&ROOT, (file.handle, file.kind), TreeSetting::Seal(seal), |_| {}));
    seal(true);
    assert_eq!(discard(&world, &client, &ROOT, "/dir/file0").unwrap_err().status, Status::Sealed);
    let own = trash(&world, &client, &ROOT);
    assert_eq!(discard(&world, &client, &ROOT, "/.trash").unwrap_err().status, Status::Invalid);
    assert!(world.run(client.readdir(&ROOT, own, 0, 1 << 20, false)).unwrap().entries.is_empty(), "nothing is left of the attempts");

    let mut seen = BTreeSet::new();
    world.fates(move |sent| match seen.insert((sent.server, sent.header.request.sequence)) {
        true => [Fate::ReplyLost, Fate::Lost][seen.len() % 2].clone(),
        false => Fate::Arrives,
    });
    discard(&world, &client, &ROOT, "/dir").unwrap();
    let all = found(&world, &client, &ROOT);
    assert_eq!(all.len(), 1);
    assert_eq!(restore(&world, &client, &ROOT, &all[0]), Ok(true));
    assert_eq!(world.run(client.resolve(&ROOT, b"/dir", false)).unwrap().handle, dir);
    assert_eq!(found(&world, &client, &ROOT), []);
}
