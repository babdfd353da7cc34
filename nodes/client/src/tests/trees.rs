//! Whole trees: what they cost in messages, and what is left of them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, Payload, ROOT_HANDLE, Status};
use weft_rt::Bulk;
use weft_wire::{Op, Rights};

use super::world::{Fate, ROOT, World, create};
use crate::{Client, CreateOptions, RenameFlags, SetAttr, SumNews, TreeNews, TreeRemoved, TreeSetting, TreeSums};

fn counted(sent: Vec<(weft_base::ServerId, Op)>) -> BTreeMap<Op, usize> {
    sent.into_iter().fold(BTreeMap::new(), |mut counts, (_, op)| {
        *counts.entry(op).or_default() += 1;
        counts
    })
}

/// Directories with so many files each, on all servers in turn; every second one in the one before.
fn tree(world: &World, dirs: usize, files: usize) -> Handle {
    let servers = world.map().meta.len() as u16;
    let top = world.add(ROOT_HANDLE, "top", 0, FileKind::Directory, "");
    let mut above = top;
    for dir in 0..dirs {
        let at = world.add(above, &format!("dir{dir}"), dir as u16 % servers, FileKind::Directory, "");
        let names: Vec<Bytes> = (0..files).map(|file| format!("file{file}").into()).collect();
        let made = world.run(world.hand.create_many(&ROOT, at, &names, &CreateOptions::default()));
        assert!(made.iter().all(Result::is_ok));
        above = if dir % 2 == 0 { at } else { top };
    }
    top
}

fn sum(world: &World, client: &Client<super::world::TestRt>, dir: Handle) -> (TreeSums, Vec<(String, usize, u64)>) {
    let mut told = Vec::new();
    let sums = world.run(client.sum_tree(&ROOT, dir, |news| match news {
        SumNews::Directory { path, depth, sums } => told.push((String::from_utf8_lossy(path).into(), depth, sums.files)),
        SumNews::Failed { path, error } => panic!("{path:?}: {error:?}"),
    }));
    (sums, told)
}

fn remove(world: &World, client: &Client<super::world::TestRt>, who: &Credentials, dir: Handle) -> (TreeRemoved, Vec<(String, Status)>) {
    let (mut failed, mut last) = (Vec::new(), TreeRemoved::default());
    let removed = world.run(client.remove_tree(who, ROOT_HANDLE, &Bytes::from_static(b"top"), dir, |news| match news {
        TreeNews::Failed { path, error } => failed.push((String::from_utf8_lossy(path).into(), error.status)),
        TreeNews::Progress(removed) => last = *removed,
    }));
    assert_eq!(last, removed, "the last thing told is the end");
    (removed, failed)
}

#[test]
fn sums_cost_few_messages() {
    let world = World::new(2, 2, 1 << 20);
    let client = world.client(1);
    let top = tree(&world, 4, 1000);
    let file = create(&world, &world.hand, "linked");
    world.run(world.hand.write(&file, 0, Bulk::Slices(vec![b"twelve bytes"]))).unwrap();
    let handle = file.handle();
    world.run(world.hand.close(file)).unwrap();
    for name in [&b"one"[..], b"two"] {
        world.run(world.hand.link(&ROOT, handle, top, name)).unwrap();
    }
    world.run(world.hand.symlink(&ROOT, top, b"symlink", b"target")).unwrap();
    world.take_sent();
    let (sums, told) = sum(&world, &client, top);
    assert_eq!(sums, TreeSums { bytes: 12 + 6, files: 4001, directories: 5, others: 1, inexact: 0 });
    // A message for a directory, while its names fit one; 4,001 files.
    let counts = counted(world.take_sent());
    assert_eq!(counts, BTreeMap::from([(Op::ReadDir, 5)]), "1.25 messages for 1,000 files");
    let expected = [("dir0/dir1", 2, 1000), ("dir0", 1, 2000), ("dir2/dir3", 2, 1000), ("dir2", 1, 2000), ("", 0, 4001)];
    let mut told: Vec<_> = told.iter().map(|(path, depth, files)| (path.as_str(), *depth, *files)).collect();
    assert_eq!(told.pop(), Some(("", 0, 4001)), "the root is the last");
    expected[..4].iter().for_each(|expected| assert!(told.contains(expected), "{expected:?} in {told:?}"));
    assert_eq!(told.len(), 4);
}

#[test]
fn the_size_of_a_file_that_is_written_is_that_of_stat() {
    let world = World::new(1, 2, 4096);
    let client = world.client(1);
    let file = create(&world, &world.hand, "written");
    world.run(world.hand.write(&file, 0, Bulk::Slices(vec![&[7; 10_000]]))).unwrap();
    assert_eq!(world.run(client.getattr(file.handle())).unwrap().size, 10_000);
    let (sums, _) = sum(&world, &client, ROOT_HANDLE);
    assert_eq!((sums.bytes, sums.inexact), (10_000, 0));
}

#[test]
fn a_tree_is_sealed_with_a_message_for_each_object() {
    let world = World::new(2, 2, 1 << 20);
    let (client, other) = (world.client(1), world.client(2));
    let top = tree(&world, 4, 300);
    let seal = |seals| {
        let mut failed = Vec::new();
        let sealed = world.run(client.set_tree(&ROOT, (top, FileKind::Directory), TreeSetting::Seal(seals), |news| {
            if let TreeNews::Failed { path, error } = news {
                failed.push((String::from_utf8_lossy(path).into_owned(), error.status));
            }
        }));
        ((sealed.changed, sealed.as_before, sealed.failed), failed)
    };
    let dir = world.run(other.lookup(&ROOT, top, b"dir0")).unwrap().handle;
    let handle = world.run(other.lookup(&ROOT, dir, b"file7")).unwrap().handle;
    let (_, open) = world.run(other.open(&ROOT, handle, Rights::WRITE, false)).unwrap();
    world.take_sent();
    assert_eq!(seal(true), ((1204, 0, 1), vec![("dir0/file7".to_string(), Status::BeingWritten)]));
    let counts = counted(world.take_sent());
    assert!(counts[&Op::SetAttr] < 1204 + 300, "the file that is open was tried for a while: {counts:?}");
    assert!(counts[&Op::ReadDir] <= 5 * 3, "{counts:?}");
    assert_eq!(world.run(other.unlink(&ROOT, dir, b"file8")).unwrap_err().status, Status::Sealed);
    world.run(other.close(open)).unwrap();
    assert_eq!(seal(true), ((1, 1204, 0), vec![]));
    assert_eq!(seal(false), ((1205, 0, 0), vec![]));
    world.run(other.unlink(&ROOT, dir, b"file8")).unwrap();
}

/// As files that are removed meanwhile, directories are nobody's concern any more.
#[test]
fn what_is_removed_meanwhile_needs_no_project() {
    type Flow<'a> = std::pin::Pin<Box<dyn Future<Output = u64> + 'a>>;
    let world = World::new(2, 2, 1 << 20);
    let (client, other) = (world.client(1), world.client(2));
    let top = tree(&world, 0, 0);
    let names: Vec<Bytes> = (0..40).map(|number| format!("dir{number}").into()).collect();
    names.iter().enumerate().for_each(|(at, name)| {
        world.add(top, std::str::from_utf8(name).unwrap(), at as u16 % 2, FileKind::Directory, "");
    });
    let sets: Flow<'_> =
        Box::pin(async { client.set_tree(&ROOT, (top, FileKind::Directory), TreeSetting::Project(7), |_| {}).await.failed });
    let removes: Flow<'_> = Box::pin(async {
        for name in &names {
            other.rmdir(&ROOT, top, name).await.unwrap();
        }
        0
    });
    assert_eq!(world.run(weft_rt::join_all([sets, removes])), [0, 0]);
}

#[test]
fn a_tree_goes_with_few_messages() {
    let world = World::new(2, 2, 1 << 20);
    let client = world.client(1);
    let top = tree(&world, 6, 1000);
    world.take_sent();
    assert_eq!(remove(&world, &client, &ROOT, top), (TreeRemoved { files: 6000, directories: 7, failed: 0 }, vec![]));
    let counts = counted(world.take_sent());
    // Two slices for each directory, one more for those with directories beside them, and a
    // transaction for a directory whose name is on another server.
    assert!(counts[&Op::RemoveEntries] <= 2 * 6 + 2 + 3, "{counts:?}");
    assert_eq!(counts.values().sum::<usize>(), counts[&Op::RemoveEntries] + counts[&Op::Rmdir], "{counts:?}");
    assert!(counts[&Op::Rmdir] <= 6, "{counts:?}");
    let listed = world.run(client.readdir(&ROOT, ROOT_HANDLE, 0, 1 << 20, false)).unwrap();
    assert!(listed.entries.is_empty());
}

#[test]
fn lost_answers_remove_nothing_twice_and_leave_nothing() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let top = tree(&world, 3, 700);
    // Each is sent twice, and executed once or twice.
    let mut seen = BTreeSet::new();
    world.fates(move |sent| match seen.insert((sent.server, sent.header.request.sequence)) {
        true => [Fate::ReplyLost, Fate::Lost][seen.len() % 2].clone(),
        false => Fate::Arrives,
    });
    let (removed, failed) = remove(&world, &client, &ROOT, top);
    assert_eq!((removed, failed), (TreeRemoved { files: 2100, directories: 4, failed: 0 }, vec![]));
}

#[test]
fn what_may_not_go_is_told_and_left_and_the_rest_goes() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let user = Credentials { uid: 10, gid: 10, groups: Vec::new(), checked_by_kernel: false };
    let chmod = |dir, mode| world.run(world.hand.setattr(&ROOT, dir, &SetAttr { mode: Some(mode), ..SetAttr::default() })).unwrap();
    chmod(ROOT_HANDLE, 0o777);
    let top = tree(&world, 4, 3);
    let dir = |path: &[u8]| world.run(world.hand.resolve(&ROOT, path, false)).unwrap().handle;
    let closed = dir(b"/top/dir2/dir3");
    for path in [&b"/top"[..], b"/top/dir0", b"/top/dir0/dir1", b"/top/dir2"] {
        chmod(dir(path), 0o777);
    }
    // Closed to the user, and one that is closed but empty.
    chmod(closed, 0o700);
    let empty = world.add(dir(b"/top/dir0"), "closed", 1, FileKind::Directory, "");
    chmod(empty, 0);
    let (removed, failed) = remove(&world, &client, &user, top);
    assert_eq!(failed, [("dir2/dir3".to_string(), Status::AccessDenied)]);
    assert_eq!(removed, TreeRemoved { files: 9, directories: 3, failed: 1 });
    let left = |dir| world.run(client.readdir(&ROOT, dir, 0, 1 << 20, false)).unwrap().entries.len();
    assert_eq!((left(top), left(dir(b"/top/dir2")), left(closed)), (1, 1, 3));
    // Begun again by somebody who may.
    assert_eq!(remove(&world, &client, &ROOT, top).0, TreeRemoved { files: 3, directories: 3, failed: 0 });
}

#[test]
fn files_that_are_elsewhere_and_open_files() {
    let world = World::new(2, 1, 1 << 20);
    let client = world.client(1);
    let top = tree(&world, 2, 10);
    // Its inode stays where it was made.
    let file = create(&world, &client, "open");
    world.run(client.write(&file, 0, Bulk::Slices(vec![b"still here"]))).unwrap();
    let far = world.run(world.hand.resolve(&ROOT, b"/top/dir0/dir1", false)).unwrap().handle;
    world.run(world.hand.rename(&ROOT, ROOT_HANDLE, b"open", far, b"open", RenameFlags::default())).unwrap();
    assert_ne!(far.server(), file.handle().server());
    assert_eq!(remove(&world, &client, &ROOT, top), (TreeRemoved { files: 21, directories: 3, failed: 0 }, vec![]));
    let read = Payload::concat(&world.run(client.read(&file, 0, 10)).unwrap());
    assert_eq!(read, b"still here");
    let handle = file.handle();
    world.run(client.close(file)).unwrap();
    assert!(world.run(world.is_gone(handle)));
}

#[test]
fn a_look_at_all_names_costs_two_messages_for_a_directory() {
    let world = World::new(2, 2, 1 << 20);
    let client = world.client(1);
    let top = tree(&world, 4, 1000);
    let linked = world.run(world.hand.lookup(&ROOT, top, b"dir0")).unwrap().handle;
    let file = world.run(world.hand.lookup(&ROOT, linked, b"file1")).unwrap().handle;
    world.run(world.hand.link(&ROOT, file, top, b"second")).unwrap();
    world.take_sent();
    let sums = world.run(client.check_names(|fault| panic!("{fault:?}")));
    assert_eq!((sums.names, sums.directories, sums.files, sums.others), (4006, 6, 4000, 0));
    assert_eq!(sums.inodes.values().sum::<u64>(), 4006);
    let counts = counted(world.take_sent());
    assert_eq!(counts, BTreeMap::from([(Op::ReadDir, 6), (Op::GetAttr, 6)]));
}
