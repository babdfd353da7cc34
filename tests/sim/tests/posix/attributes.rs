//! What unpacks an archive sets times, owner and mode of each file that it has made. A mount that
//! keeps the bytes of a small file until it is closed keeps these, too, and nobody sees the
//! difference.

use weft_base::{ACL_ACCESS, ACL_DEFAULT, Attr, MILLISECOND, MODE_ACL, SECOND, Status, WallTime};
use weft_client::{SetAttr, XattrFlags};
use weft_sim_tests::mount::{Mount, Open, caller, how};
use weft_wire::Rights;
use weft_wire::ops::SetTime;

use super::delayed::{made, rest, seen, world};
use super::delegated::made_dir;
use super::{ROOT, World, content};

/// Long ago.
const THEN: WallTime = WallTime(1_000_000_000_000_000_000);

fn times(at: Option<WallTime>) -> SetAttr {
    SetAttr { atime: Some(SetTime { at }), mtime: Some(SetTime { at }), ..SetAttr::default() }
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

fn owner(uid: u32) -> SetAttr {
    SetAttr { uid: Some(uid), gid: Some(uid), ..SetAttr::default() }
}

async fn set(mount: &Mount, file: Open, change: SetAttr) -> Attr {
    mount.posix.setattr(&caller(1, 0).who, file.node, &change).await.expect("it is set").attr
}

/// An entry of a list of access without a name.
fn entry(tag: u8, may: u8) -> [u8; 8] {
    [tag, 0, may, 0, 255, 255, 255, 255]
}

/// Requests of the first mount for this.
fn requests<F: Future<Output = ()> + 'static>(world: &World, program: impl FnOnce(Mount) -> F + 'static) -> u64 {
    world.alone(0, |mount| async move {
        let before = mount.posix.stats().requests;
        program(mount.clone()).await;
        rest(&mount, 100 * MILLISECOND).await;
        mount.posix.stats().requests - before
    })
}

/// What both mounts see.
fn attr_of(world: &World, name: &'static str) -> Attr {
    let [first, second] = [1, 0].map(|number| world.alone(number, move |mount| async move { seen(&mount, name).await.0 }));
    assert_eq!((first.mode, first.atime, first.mtime, first.ctime), (second.mode, second.atime, second.mtime, second.ctime));
    first
}

#[test]
fn a_file_of_an_archive_is_one_message_and_a_share_of_one() {
    let world = World::asking();
    let requests = requests(&world, |mount| async move {
        for number in 0..30 {
            let file = made(&mount, &format!("f{number}"), &content(1)).await;
            set(&mount, file, times(Some(THEN))).await;
            set(&mount, file, owner(0)).await;
            let attr = set(&mount, file, mode(0o600)).await;
            assert_eq!((attr.permissions(), attr.mtime, attr.size), (0o600, THEN, content(1).len() as u64));
            mount.release(file.opened.number).await;
        }
    });
    assert!((31..=40).contains(&requests), "{requests} requests");
    let attr = attr_of(&world, "f17");
    assert_eq!((attr.permissions(), attr.mtime, attr.atime, attr.is_inline()), (0o600, THEN, THEN, true));
    assert!(attr.ctime > THEN);
}

#[test]
fn a_touched_file_is_one_message_and_a_share_of_one() {
    let world = World::asking();
    let requests = requests(&world, |mount| async move {
        for number in 0..30 {
            let file = mount.create(&caller(1, 0), ROOT, &format!("f{number}"), 0o644).await.expect("a new file");
            set(&mount, file, times(None)).await;
            mount.release(file.opened.number).await;
        }
    });
    assert!((31..=40).contains(&requests), "{requests} requests");
    let attr = attr_of(&world, "f17");
    assert!(attr.mtime >= attr.born && attr.atime == attr.mtime && attr.ctime >= attr.mtime, "{attr:?}");
}

/// `cp -a` gives each file the list of access of the source, which mostly says what the mode says.
#[test]
fn a_list_of_access_that_is_a_mode_is_kept_as_that() {
    let world = World::asking();
    let list = |group: u8| [[2, 0, 0, 0].as_slice(), &entry(1, 6), &entry(4, group), &entry(0x20, 0)].concat();
    let requests = requests(&world, move |mount| async move {
        for number in 0..30 {
            let file = made(&mount, &format!("f{number}"), &content(1)).await;
            let name = ACL_ACCESS.as_bytes();
            mount.posix.set_xattr(&caller(1, 0).who, file.node, name, &list(4), XattrFlags::default()).await.expect("it is set");
            let attr = mount.stat(file.node).await.expect("it is there");
            assert_eq!((attr.permissions(), attr.mode & MODE_ACL), (0o640, 0));
            mount.release(file.opened.number).await;
        }
    });
    assert!((31..=40).contains(&requests), "{requests} requests");
    assert_eq!(attr_of(&world, "f17").permissions(), 0o640);
}

/// A program that has looked at the time of the last change of its file finds it again.
#[test]
fn nothing_changes_with_the_close() {
    let world = world();
    let before = world.alone(0, |mount| async move {
        let file = made(&mount, "looked at", &content(1)).await;
        rest(&mount, MILLISECOND).await;
        set(&mount, file, mode(0o640)).await;
        rest(&mount, MILLISECOND).await;
        let attr = mount.stat(file.node).await.expect("it is there");
        mount.release(file.opened.number).await;
        attr
    });
    let after = attr_of(&world, "looked at");
    assert_eq!((before.mode & 0o7777, before.ctime, before.mtime), (after.permissions(), after.ctime, after.mtime));
}

/// Writes and times in turns: the last of them counts.
#[test]
fn what_was_done_last_counts() {
    let world = world();
    let file = world.alone(0, |mount| async move {
        let file = made(&mount, "turns", &content(1)).await;
        set(&mount, file, times(Some(THEN))).await;
        mount.write(&caller(1, 0), file, 0, b"more", false).await.expect("it is written");
        file
    });
    let attr = world.alone(0, move |mount| async move { mount.stat(file.node).await.expect("it is there") });
    assert!(attr.mtime > THEN && attr.atime == THEN);
    world.alone(0, move |mount| async move {
        let attr = set(&mount, file, times(Some(WallTime(THEN.0 + 1)))).await;
        assert_eq!(attr.mtime, WallTime(THEN.0 + 1));
        mount.release(file.opened.number).await;
    });
    assert_eq!(attr_of(&world, "turns").mtime, WallTime(THEN.0 + 1));
}

/// Wherever its bytes go, they are found with it.
#[test]
fn they_go_with_the_bytes() {
    let world = world();
    for (name, bytes) in [("small", 0), ("large", 20_000)] {
        let file = world.alone(0, move |mount| async move {
            let file = made(&mount, name, &content(1)).await;
            set(&mount, file, times(Some(THEN))).await;
            set(&mount, file, mode(0o400)).await;
            if bytes > 0 {
                mount.write(&caller(1, 0), file, 0, &vec![1; bytes], false).await.expect("it is written");
            }
            file
        });
        // While it is open, through the other mount first.
        let attr = attr_of(&world, name);
        assert_eq!((attr.permissions(), attr.atime, attr.mtime == THEN), (0o400, THEN, bytes == 0), "{name}");
        world.alone(0, move |mount| async move { mount.release(file.opened.number).await });
        assert_eq!(attr_of(&world, name).permissions(), 0o400);
    }
}

/// What is not kept finds at its server what was kept before it.
#[test]
fn other_changes_come_after_them() {
    let world = world();
    world.alone(0, |mount| async move {
        let who = caller(1, 0).who;
        let file = made(&mount, "given", &content(1)).await;
        set(&mount, file, times(Some(THEN))).await;
        // To another one, who sets it himself.
        set(&mount, file, owner(7)).await;
        let attr = mount.posix.setattr(&caller(2, 7).who, file.node, &mode(0o604)).await.expect("it is his").attr;
        assert_eq!((attr.uid, attr.gid, attr.permissions(), attr.mtime), (7, 7, 0o604, THEN));
        // A set-id bit is for the server to judge.
        assert_eq!(set(&mount, file, mode(0o4755)).await.permissions(), 0o4755);
        mount.posix.set_xattr(&who, file.node, b"user.x", b"y", XattrFlags::default()).await.expect("it is set");
        mount.release(file.opened.number).await;
    });
    let attr = attr_of(&world, "given");
    assert_eq!((attr.uid, attr.permissions(), attr.mtime, attr.is_inline()), (7, 0o4755, THEN, true));
}

/// Others of the same mount are judged by them.
#[test]
fn a_mode_counts_at_once() {
    let world = world();
    let mut other = caller(2, 1000);
    other.who.checked_by_kernel = false;
    world.alone(0, |mount| async move {
        let file = made(&mount, "mine", &content(1)).await;
        set(&mount, file, mode(0o600)).await;
        let refused = mount.posix.open(&other, file.node, how(Rights::READ)).await.expect_err("it is not for him");
        assert_eq!(refused.status, Status::AccessDenied);
        set(&mount, file, mode(0o644)).await;
        mount.posix.open(&other, file.node, how(Rights::READ)).await.expect("it is for everybody");
        let refused = mount.posix.setattr(&other.who, file.node, &mode(0o666)).await.expect_err("it is not his");
        assert_eq!(refused.status, Status::NotPermitted);
    });
}

/// Whichever gateway made a program set-id, and whichever it was opened through: the write of a
/// plain user clears the bits.
#[test]
fn set_id_bits_do_not_survive_a_write_of_a_plain_user() {
    const PLAIN: u32 = 1000;
    for (chmods, writes, opens_first) in [(0, 0, true), (0, 0, false), (0, 1, true), (0, 1, false)] {
        let world = World::new(7, Some(SECOND));
        let file = world.alone(writes, |mount| async move {
            let file = mount.create(&caller(1, 0), ROOT, "program", 0o777).await.expect("a new file");
            mount.release(file.opened.number).await;
            mount.open(&caller(2, PLAIN), ROOT, "program", how(Rights::WRITE)).await.expect("it opens")
        });
        if !opens_first {
            world.alone(writes, |mount| async move { mount.release(file.opened.number).await });
        }
        world.alone(chmods, |mount| async move {
            let node = mount.walk(&caller(1, 0), ROOT, "program", true).await.expect("it is there");
            mount.chmod(&caller(1, 0), node, 0o6777).await.expect("it becomes set-id");
        });
        let mode = world.alone(writes, move |mount| async move {
            let who = caller(2, PLAIN);
            let file = match opens_first {
                true => file,
                false => mount.open(&who, ROOT, "program", how(Rights::WRITE)).await.expect("it opens"),
            };
            mount.write(&caller(2, 0), file, 0, b"by root", false).await.expect("it is written");
            mount.write(&who, file, 0, b"by anybody", false).await.expect("it is written");
            mount.stat(file.node).await.expect("it is there").mode
        });
        assert_eq!(mode, 0o777, "set by {chmods}, written through {writes}, opened before: {opens_first}");
    }
}

/// `cp -a` and `rsync` do so with each directory.
#[test]
fn a_list_that_is_not_there_is_removed_without_a_question() {
    let world = World::new(77, None);
    world.alone(0, |mount| async move {
        let (who, stranger) = (caller(1, 0).who, caller(2, 7).who);
        let dir = made_dir(&mount, false).await;
        let before = mount.posix.stats().requests;
        for name in [ACL_DEFAULT, ACL_ACCESS] {
            mount.posix.remove_xattr(&who, dir, name.as_bytes()).await.expect("there is none");
        }
        assert!(mount.posix.list_xattr(&who, dir).await.expect("it is there").is_empty());
        assert_eq!(mount.posix.stats().requests - before, 0);
        let refused = mount.posix.remove_xattr(&stranger, dir, ACL_DEFAULT.as_bytes()).await;
        assert_eq!(refused.map_err(|error| error.status), Err(Status::NotPermitted));
        let list = [&[2, 0, 0, 0][..], &entry(1, 7), &entry(4, 5), &entry(32, 5)].concat();
        mount.posix.set_xattr(&who, dir, ACL_DEFAULT.as_bytes(), &list, XattrFlags::default()).await.expect("it is set");
        assert_eq!(mount.posix.list_xattr(&who, dir).await.expect("it is there"), [ACL_DEFAULT]);
        mount.posix.remove_xattr(&who, dir, ACL_DEFAULT.as_bytes()).await.expect("it is there");
        let left = mount.posix.get_xattr(&who, dir, ACL_DEFAULT.as_bytes()).await;
        assert_eq!(left.map_err(|error| error.status), Err(Status::NoAttribute));
    });
}

/// A kernel drops an answer if it hears meanwhile that the attributes have changed, and judges by
/// what it knew before.
#[test]
fn a_directory_that_others_fill_is_told_for_the_moment_before_it_is_believed() {
    let world = World::new(11, None);
    let look = || {
        world.alone(0, |mount| async move {
            let shown = match mount.posix.known_attr(ROOT) {
                Some(shown) => shown,
                None => mount.posix.getattr(ROOT).await.expect("it is there"),
            };
            (shown.attr_ttl_ns > 0, mount.attributes_forgotten())
        })
    };
    let fill = |name: &'static str| {
        world.alone(1, move |mount| async move {
            mount.posix.mkdir(&caller(1, 0).who, ROOT, name.as_bytes(), 0o755).await.expect("a new directory");
        });
    };
    for name in ["a", "b"] {
        let (is_believed, forgotten) = look();
        assert!(!is_believed, "what was known before may be of long ago");
        fill(name);
        let (is_believed, since) = look();
        assert_eq!((is_believed, since), (false, forgotten), "nothing was believed");
        let (is_believed, forgotten) = look();
        assert!(is_believed);
        fill(if name == "a" { "c" } else { "d" });
        assert!(world.alone(0, |mount| async move { mount.attributes_forgotten() }) > forgotten);
    }
}
