//! Directories that are listed again: without a message while nothing changes, and never as they
//! were before a change.

use weft_base::{Attr, FileKind, MILLISECOND, SECOND};
use weft_posix::{InodeNumber, Listed};
use weft_rt::Runtime;
use weft_sim_tests::mount::{Mount, caller, how};
use weft_wire::Rights;

use super::delayed::{closed_in, world};
use super::delegated::made_dir;
use super::{ROOT, World, content};

/// How many files there are at first.
const FILES: u32 = 300;

/// Names with what is told of them, as `ls -l` asks for them.
async fn long_list(mount: &Mount, dir: InodeNumber) -> Vec<(String, Attr)> {
    mount.stat(dir).await.expect("it is there");
    let (number, mut cookie, mut found) = (mount.posix.open_dir(dir), 2, Vec::new());
    loop {
        let (mut left, after) = (50, cookie);
        let add = |entry: Listed<'_>| {
            if left > 0 {
                (left, cookie) = (left - 1, entry.cookie);
                found.push((String::from_utf8_lossy(entry.name).into_owned(), entry.node, entry.shown.map(|(attr, _)| *attr)));
            }
            left == 0
        };
        mount.posix.list(number, &caller(2, 0).who, after, true, add).await.expect("it is listed");
        if after == cookie {
            break;
        }
    }
    mount.posix.close_dir(number);
    found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut listed = Vec::new();
    for (name, node, shown) in found {
        let attr = mount.posix.getattr(node).await.expect("it is there").attr;
        // A close in the background may put it beside its inode in between.
        let of = |attr: &Attr| (attr.handle, attr.mode & 0o777, attr.size, attr.mtime);
        assert!(shown.is_none_or(|shown| of(&shown) == of(&attr)), "{name}: {shown:?} was listed, and it is {attr:?}");
        listed.push((name, attr));
    }
    listed
}

#[test]
fn a_directory_that_is_listed_again_costs_no_message() {
    let world = world();
    let dir = world.alone(0, |mount| async move {
        let dir = made_dir(&mount, false).await;
        for number in 0..FILES {
            closed_in(&mount, dir, &format!("f{number}"), &content(number % 4)).await;
        }
        dir
    });
    world.alone(1, move |mount| async move {
        let first = long_list(&mount, dir).await;
        assert_eq!(first.len() as u32, FILES);
        let before = mount.posix.stats().requests;
        for _ in 0..40 {
            mount.posix.rt().sleep_until(mount.posix.rt().now() + 25 * MILLISECOND).await;
            assert!(long_list(&mount, dir).await == first);
        }
        // Notices are asked for, and the session is kept alive: each page would be one more for
        // each listing.
        let requests = mount.posix.stats().requests - before;
        assert!(requests <= 10, "{requests} requests");
    });
}

#[test]
fn a_listing_shows_what_was_changed_before_it() {
    let world = world();
    let dir = world.alone(0, |mount| async move {
        let dir = made_dir(&mount, false).await;
        for number in 0..40 {
            closed_in(&mount, dir, &format!("f{number}"), &content(number % 4)).await;
        }
        dir
    });
    for round in 0..120u32 {
        let (by, looker) = if round % 3 == 0 { (1, 0) } else { (0, 1) };
        let changed = world.alone(by, move |mount| async move {
            let (who, name) = (caller(1, 0), format!("f{}", mount.posix.rt().random() % 50));
            let found = mount.walk(&who, dir, &name, true).await;
            match (found, mount.posix.rt().random() % 3) {
                (Ok(node), 0) => mount.chmod(&who, node, 0o600 + round % 64).await.expect("it is changed"),
                (Ok(_), 1) => mount.posix.unlink(&who.who, dir, name.as_bytes()).await.expect("it goes"),
                (Ok(_), _) => mount.rename(&who, dir, &name, &format!("f{}", round % 50)).await.expect("it is moved"),
                (Err(_), _) => drop(closed_in(&mount, dir, &name, &content(round % 5)).await),
            }
            long_list(&mount, dir).await
        });
        let seen = world.alone(looker, move |mount| async move { long_list(&mount, dir).await });
        let of = |listed: &[(String, Attr)]| -> Vec<_> {
            listed.iter().map(|(name, attr)| (name.clone(), attr.handle, attr.mode & 0o777, attr.size, attr.mtime)).collect()
        };
        assert_eq!(of(&seen), of(&changed), "round {round}");
    }
    // A user who may not list it is not shown what another one has listed.
    world.alone(0, move |mount| async move {
        mount.chmod(&caller(1, 0), dir, 0o711).await.expect("it is changed");
        long_list(&mount, dir).await;
        let mut stranger = caller(3, 1000);
        stranger.who.checked_by_kernel = false;
        assert!(mount.list(&stranger, dir, true, 50).await.is_err());
        assert!(mount.list(&stranger, ROOT, true, 50).await.is_ok());
    });
}

/// Whatever room callers have, and whatever others make and remove meanwhile.
#[test]
fn a_listing_has_every_name_once() {
    const FILES: usize = 1000;
    let world = World::new(11, Some(SECOND));
    let name = |number: usize| format!("{number:0>200}");
    world.alone(0, move |mount| async move {
        for number in 0..FILES {
            let made = mount.posix.mknod(&caller(1, 0).who, ROOT, name(number).as_bytes(), FileKind::File, 0o644, 0).await;
            made.expect("a new name");
        }
    });
    for (with_attrs, room) in [(true, 7), (true, 300), (false, 64), (false, 5000)] {
        let (lists, changes) = (world.mounts[0].clone(), world.mounts[1].clone());
        let listed = world.sim.spawn_on(lists.node, move |_| async move { lists.list(&caller(1, 0), ROOT, with_attrs, room).await });
        let changed = world.sim.spawn_on(changes.node, move |_| async move {
            for number in 0..20 {
                let other = format!("other {number}");
                changes.posix.mkdir(&caller(2, 0).who, ROOT, other.as_bytes(), 0o755).await?;
                changes.posix.rmdir(&caller(2, 0).who, ROOT, other.as_bytes()).await?;
            }
            Ok(Vec::new())
        });
        let mut names = world.run(vec![listed, changed]).swap_remove(0).expect("it is listed");
        names.retain(|name| !name.starts_with("other"));
        assert_eq!(names[..2], [".", ".."]);
        names.sort_unstable();
        assert_eq!(names[2..], (0..FILES).map(name).collect::<Vec<_>>(), "room for {room} names");
    }
}

/// What was told of files that this mount has just closed is of before: who asks for some of them
/// is told of those beside them, too, and opens and reads them with a share of a message.
#[test]
fn files_that_were_just_made_are_asked_for_together() {
    let world = world();
    let (stats, reads) = world.alone(0, |mount| async move {
        let dir = made_dir(&mount, false).await;
        let mut files = Vec::new();
        for number in 0..60 {
            files.push(closed_in(&mount, dir, &format!("f{number:02}"), &content(number % 4)).await);
        }
        mount.posix.rt().sleep_until(mount.posix.rt().now() + SECOND).await;
        mount.stat(dir).await.expect("it is there");
        let before = mount.posix.stats().requests;
        for node in &files {
            mount.posix.getattr(*node).await.expect("it is there");
        }
        let stats = mount.posix.stats().requests - before;
        for number in 0..60 {
            let file = mount.open(&caller(1, 0), dir, &format!("f{number:02}"), how(Rights::READ)).await.expect("it opens");
            assert!(mount.read(file).await.expect("it is read") == content(number % 4), "f{number}");
            mount.release(file.opened.number).await;
        }
        (stats, mount.posix.stats().requests - before - stats)
    });
    assert!(stats <= 10 && reads <= 20, "{stats} requests, and {reads}");
}
