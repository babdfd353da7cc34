//! Each procedure, as a client sees it.

use weft_base::{SECOND, ServerId};

use super::world::{World, args, mode, read_after, read_change, size};
use crate::calls::{MOUNT_PROGRAM, NFS_PROGRAM};
use crate::rpc::{Refusal, refused};
use crate::types::NfsStatus;

const EXISTS: u32 = NfsStatus::EXISTS.0;
const STALE: u32 = NfsStatus::STALE.0;
const NOT_FOUND: u32 = 2;

/// A file system with one gateway that trusts root.
fn one() -> (World, super::world::Gate) {
    let world = World::new(2, 3);
    let gate = world.gateway(&["/:no_root_squash"]);
    (world, gate)
}

#[test]
fn a_client_mounts_and_learns_what_there_is() {
    let (world, gate) = one();
    let root = world.user(&gate, 0);
    let fh = root.mount("/").unwrap();
    assert_eq!(fh.len(), 44);
    let attr = root.getattr(&fh).unwrap();
    assert_eq!((attr.kind, attr.number), (2, 1));
    let mut info = root.nfs(19, |out| out.opaque(&fh)).unwrap();
    assert!(read_after(&mut info).is_some());
    assert_eq!((0..7).map(|_| info.u32().unwrap()).collect::<Vec<_>>(), [1 << 20, 1 << 20, 4096, 1 << 20, 1 << 20, 4096, 64 << 10]);
    assert_eq!(info.u64(), Ok(weft_layout::FILE_BYTES_MAX));
    assert_eq!((info.u32(), info.u32(), info.u32()), (Ok(0), Ok(1), Ok(27)));
    let mut stat = root.nfs(18, |out| out.opaque(&fh)).unwrap();
    read_after(&mut stat);
    let (total, free) = (stat.u64().unwrap(), stat.u64().unwrap());
    assert!(total > 0 && free <= total);
    let mut conf = root.nfs(20, |out| out.opaque(&fh)).unwrap();
    read_after(&mut conf);
    assert_eq!((conf.u32(), conf.u32()), (Ok(u32::MAX), Ok(255)));
    // MOUNT tells who has mounted what, and what there is.
    let mut dump = root.call(MOUNT_PROGRAM, 2, &args(|out| out));
    assert_eq!((dump.bool(), dump.opaque(64).unwrap(), dump.opaque(64).unwrap()), (Ok(true), "127.0.0.1".into(), "/".into()));
    assert_eq!(dump.bool(), Ok(false));
    let mut exports = root.call(MOUNT_PROGRAM, 5, &args(|out| out));
    assert_eq!((exports.bool(), exports.opaque(64).unwrap()), (Ok(true), "/".into()));
    assert_eq!(
        (exports.bool(), exports.opaque(64).unwrap(), exports.bool(), exports.bool()),
        (Ok(true), "localhost".into(), Ok(false), Ok(false))
    );
    root.call(MOUNT_PROGRAM, 3, &args(|out| out.opaque(b"/")));
    assert_eq!(root.call(MOUNT_PROGRAM, 2, &args(|out| out)).bool(), Ok(false));
    assert_eq!(root.mount("/none"), Err(NOT_FOUND));
}

#[test]
fn what_is_not_served_is_said() {
    let (world, gate) = one();
    let user = world.user(&gate, 1);
    let answer = |program, procedure| user.send(user.record(5, program, procedure, &args(|out| out)));
    assert_eq!(answer(100_227, 0), Some(refused(5, Refusal::NoProgram)), "access control lists");
    assert_eq!(answer(NFS_PROGRAM, 22), Some(refused(5, Refusal::NoProcedure)));
    assert_eq!(answer(MOUNT_PROGRAM, 6), Some(refused(5, Refusal::NoProcedure)));
    assert_eq!(answer(NFS_PROGRAM, 1), Some(refused(5, Refusal::Arguments)));
    let mut old = user.record(5, NFS_PROGRAM, 0, &args(|out| out)).to_vec();
    old[19] = 2;
    assert_eq!(user.send(old.into()), Some(refused(5, Refusal::NoVersion(3, 3))));
    assert_eq!(user.send(b"GET / HTTP/1.0\r\n\r\n"[..].into()), None);
    assert!(user.nfs(1, |out| out.opaque(&[1; 44])).is_err_and(|status| status == NfsStatus::BAD_HANDLE.0));
}

#[test]
fn files_are_made_in_three_ways() {
    let (world, gate) = one();
    let user = world.user(&gate, 5);
    let root = world.user(&gate, 0).mount("/").unwrap();
    world.user(&gate, 0).chmod(&root, 0o777).unwrap();
    let a = user.create(&root, "a", 1, 0o640).unwrap();
    let attr = user.getattr(&a).unwrap();
    assert_eq!((attr.kind, attr.mode, attr.uid, attr.gid, attr.size), (1, 0o640, 5, 5, 0));
    assert_eq!(user.create(&root, "a", 1, 0o640), Err(EXISTS));
    user.write(&a, 0, b"data", 0).unwrap();
    assert_eq!(user.create(&root, "a", 0, 0o600).unwrap(), a, "it is there, and stays as it is");
    assert_eq!((user.getattr(&a).unwrap().size, user.getattr(&a).unwrap().mode), (4, 0o640));
    let cut = user.make(8, |out| {
        out.opaque(&root).opaque(b"a").u32(0);
        size(out, 0)
    });
    assert_eq!((cut, user.getattr(&a).unwrap().size), (Ok(a.clone()), 0));
    user.mkdir(&root, "dir", 0o755).unwrap();
    assert_eq!(user.create(&root, "dir", 0, 0o600), Err(EXISTS));
    // The same create again, as by a client that has missed the answer at another gateway.
    let b = user.create_exclusive(&root, "b", *b"verifier").unwrap();
    let other = world.gateway(&["/"]);
    assert_eq!(world.user(&other, 5).create_exclusive(&root, "b", *b"verifier"), Ok(b.clone()));
    assert_eq!(user.create_exclusive(&root, "b", *b"Verifier"), Err(EXISTS));
    assert_eq!(user.create_exclusive(&root, "a", *b"verifier"), Err(EXISTS));
    // Clients set the times next.
    user.setattr(&b, |out| out.bool(true).u32(0o604).bool(false).bool(false).bool(false).u32(1).u32(1), None).unwrap();
    assert_eq!(user.getattr(&b).unwrap().mode, 0o604);
    assert_eq!(user.create_exclusive(&root, "b", *b"verifier"), Err(EXISTS));
}

#[test]
fn data_is_written_and_read() {
    let (world, gate) = one();
    let user = world.user(&gate, 0);
    let root = user.mount("/").unwrap();
    let file = user.create(&root, "file", 1, 0o644).unwrap();
    let (how, verifier) = user.write(&file, 0, b"0123456789", 0).unwrap();
    assert_eq!(how, 0);
    assert_eq!(user.write(&file, 8, b"ab", 1).unwrap(), (1, verifier));
    assert_eq!(user.write(&file, 20_000, b"far", 2).unwrap(), (2, verifier));
    assert_eq!(user.commit(&file), Ok(verifier));
    assert_eq!(user.getattr(&file).unwrap().size, 20_003);
    assert_eq!(user.read(&file, 0, 10).unwrap(), ("01234567ab".into(), false));
    assert_eq!(user.read(&file, 19_999, 100).unwrap(), ("\0far".into(), true));
    assert_eq!(user.read(&file, 19_999, 4).unwrap(), ("\0far".into(), true), "the end is told with the last byte");
    assert_eq!(user.read(&file, 30_000, 4).unwrap(), ("".into(), true));
    assert_eq!(user.read(&file, u64::MAX, 4).unwrap(), ("".into(), true));
    assert_eq!(user.write(&file, u64::MAX - 1, b"xyz", 0), Err(27));
    assert_eq!(user.write(&file, 3, b"", 0).unwrap(), (0, verifier));
    assert_eq!(user.read(&root, 0, 4), Err(NfsStatus::IS_DIRECTORY.0));
    let short = user.nfs(7, |out| out.opaque(&file).u64(0).u32(5).u32(0).opaque(b"1234"));
    assert!(short.is_err_and(|status| status == NfsStatus::INVALID.0));
    // A size is set, with a guard and without.
    let ctime = user.getattr(&file).unwrap().ctime;
    assert_eq!(user.setattr(&file, |out| size(out, 5), Some(ctime - 1)).unwrap_err(), NfsStatus::NOT_SYNC.0);
    let (_, after) = user.setattr(&file, |out| size(out, 5), Some(ctime)).unwrap();
    assert_eq!(after.map(|after| after.size), Some(5));
    assert_eq!(user.read(&file, 0, 100).unwrap(), ("01234".into(), true));
    assert_eq!(user.setattr(&root, |out| size(out, 5), None).unwrap_err(), NfsStatus::INVALID.0);
}

#[test]
fn names_are_made_moved_and_removed() {
    let (world, gate) = one();
    let user = world.user(&gate, 0);
    let root = user.mount("/").unwrap();
    let dir = user.mkdir(&root, "dir", 0o755).unwrap();
    assert_eq!(user.lookup(&root, "dir"), Ok(dir.clone()));
    assert_eq!(
        (user.lookup(&dir, "."), user.lookup(&dir, ".."), user.lookup(&root, "..")),
        (Ok(dir.clone()), Ok(root.clone()), Ok(root.clone()))
    );
    let link = user.make(10, |out| {
        out.opaque(&dir).opaque(b"link");
        mode(out, 0o777);
        out.opaque(b"../target")
    });
    let link = link.unwrap();
    let mut target = user.nfs(5, |out| out.opaque(&link)).unwrap();
    read_after(&mut target);
    assert_eq!(target.opaque(100).unwrap(), "../target");
    assert_eq!(user.nfs(5, |out| out.opaque(&dir)).map(drop), Err(NfsStatus::INVALID.0));
    let device = user.make(11, |out| {
        out.opaque(&dir).opaque(b"null").u32(4);
        mode(out, 0o666);
        out.u32(1).u32(300)
    });
    let attr = user.getattr(&device.unwrap()).unwrap();
    assert_eq!((attr.kind, attr.device), (4, (1, 300)));
    for (kind, name) in [(6, "socket"), (7, "pipe")] {
        let made = user.make(11, |out| {
            out.opaque(&dir).opaque(name.as_bytes()).u32(kind);
            mode(out, 0o600)
        });
        assert_eq!(user.getattr(&made.unwrap()).unwrap().kind, kind);
    }
    assert_eq!(user.nfs(11, |out| out.opaque(&dir).opaque(b"x").u32(1)).map(drop), Err(NfsStatus::BAD_TYPE.0));
    let file = user.create(&dir, "file", 1, 0o600).unwrap();
    let mut linked = user.nfs(15, |out| out.opaque(&file).opaque(&root).opaque(b"second")).unwrap();
    assert_eq!(read_after(&mut linked).map(|attr| attr.links), Some(2));
    read_change(&mut linked);
    user.rename((&dir, "file"), (&root, "third")).unwrap();
    assert_eq!((user.lookup(&dir, "file"), user.lookup(&root, "third")), (Err(NOT_FOUND), Ok(file.clone())));
    user.remove(&root, "second").unwrap();
    assert_eq!(user.getattr(&file).unwrap().links, 1);
    user.remove(&root, "third").unwrap();
    assert_eq!(user.getattr(&file), Err(STALE), "at once, although it was open a moment ago");
    assert_eq!(user.remove(&root, "third"), Err(NOT_FOUND));
    let rmdir = |name: &str| user.rmdir(&root, name);
    assert_eq!((rmdir("dir"), rmdir("."), rmdir("..")), (Err(66), Err(NfsStatus::INVALID.0), Err(EXISTS)));
    for name in ["link", "null", "socket", "pipe"] {
        user.remove(&dir, name).unwrap();
    }
    assert_eq!(rmdir("dir"), Ok(()));
    assert_eq!(user.getattr(&dir), Err(STALE));
    // A directory that is replaced is as good as removed.
    let (old, new) = (user.mkdir(&root, "old", 0o755).unwrap(), user.mkdir(&root, "new", 0o755).unwrap());
    assert!(user.getattr(&new).is_ok());
    user.rename((&root, "old"), (&root, "new")).unwrap();
    assert_eq!((user.getattr(&new), user.lookup(&root, "new")), (Err(STALE), Ok(old.clone())));
    assert!(user.getattr(&old).is_ok());
    let elsewhere = world.user(&world.gateway(&["/:no_root_squash"]), 0);
    elsewhere.rmdir(&root, "new").unwrap();
    assert_eq!(user.getattr(&old), Err(STALE), "removed by another gateway");
    assert_eq!(user.lookup(&root, &"x".repeat(256)), Err(63));
    assert_eq!(user.create(&root, "a/b", 1, 0o600), Err(NfsStatus::INVALID.0));
}

#[test]
fn listings_go_on_where_they_ended_at_any_gateway() {
    let (world, gate) = one();
    let user = world.user(&gate, 0);
    let root = user.mount("/").unwrap();
    let mut made: Vec<String> = (0..120).map(|number| format!("a name that takes some room {number}")).collect();
    for name in &made {
        user.create(&root, name, 1, 0o600).unwrap();
    }
    made.extend([".".into(), "..".into()]);
    made.sort();
    for plus in [false, true] {
        let (names, answers) = user.list(&root, 2000, plus).unwrap();
        let mut sorted: Vec<String> = names.iter().map(|(name, _)| name.clone()).collect();
        sorted.sort();
        assert_eq!(sorted, made);
        assert!(answers > 3, "{answers} answers");
        assert_eq!((names[0].0.as_str(), names[1].0.as_str()), (".", ".."));
        if let Some(fh) = &names[5].1 {
            assert_eq!(user.lookup(&root, &names[5].0).as_ref(), Ok(fh));
        }
        assert_eq!(user.list(&root, 100, plus).unwrap_err(), NfsStatus::TOO_SMALL.0);
    }
    // A cookie leads on elsewhere, and behind a name that is gone.
    let page = |user: &super::world::User<'_>, cookie: u64, verifier: [u8; 8]| {
        let mut reader = user.nfs(16, |out| out.opaque(&root).u64(cookie).fixed(&verifier).u32(600))?;
        read_after(&mut reader);
        let verifier: [u8; 8] = reader.array().unwrap();
        let mut entries = Vec::new();
        while reader.bool().unwrap() {
            reader.u64().unwrap();
            entries.push((reader.opaque(255).unwrap(), reader.u64().unwrap()));
        }
        Ok::<_, u32>((entries, verifier))
    };
    let (first, verifier) = page(&user, 0, [0; 8]).unwrap();
    let (last, cookie) = first.last().unwrap().clone();
    let (second, _) = page(&user, cookie, verifier).unwrap();
    user.remove(&root, std::str::from_utf8(&last).unwrap()).unwrap();
    let other = world.user(&world.gateway(&["/:no_root_squash"]), 0);
    assert_eq!(page(&other, cookie, verifier).unwrap().0, second);
    assert_eq!(page(&user, cookie, [9; 8]).unwrap_err(), NfsStatus::BAD_COOKIE.0);
    assert_eq!(page(&user, 1 << 63, verifier).unwrap_err(), NfsStatus::BAD_COOKIE.0);
    let file = user.lookup(&root, "a name that takes some room 3").unwrap();
    assert_eq!(user.list(&file, 2000, true).unwrap_err(), NfsStatus::NOT_DIRECTORY.0);
}

#[test]
fn a_repeated_change_is_answered_and_not_done_again() {
    let (world, gate) = one();
    let user = world.user(&gate, 0);
    let root = user.mount("/").unwrap();
    user.create(&root, "file", 1, 0o600).unwrap();
    let remove = |xid| user.record(xid, NFS_PROGRAM, 12, &args(|out| out.opaque(&root).opaque(b"file")));
    let first = user.send(remove(9000));
    user.create(&root, "file", 1, 0o600).unwrap();
    assert_eq!(user.send(remove(9000)), first, "the answer of the first");
    assert!(user.lookup(&root, "file").is_ok(), "the second file is still there");
    // Both copies at once: one is carried out, and both are answered alike.
    let (one, two) = (gate.nfs.clone(), gate.nfs.clone());
    let (record, from) = (remove(9001), user.peer());
    let again = record.clone();
    let (first, second) = world.run(async move {
        let answers =
            weft_rt::join_all([(one, record), (two, again)].map(|(nfs, record)| async move { nfs.answer(from, record).await })).await;
        (answers[0].clone(), answers[1].clone())
    });
    assert_eq!(first, second);
    assert_eq!(first.unwrap().head[24..28], [0; 4]);
    // Another client may use the same number.
    let other = super::world::User { address: [127, 0, 0, 2].into(), ..user.clone() };
    assert_eq!(other.send(remove(9001)).unwrap().head[27], 2);
}

#[test]
fn the_verifier_changes_when_a_server_restarts_and_not_when_a_gateway_does() {
    let (world, gate) = one();
    let user = world.user(&gate, 0);
    let root = user.mount("/").unwrap();
    let file = user.create(&root, "file", 1, 0o600).unwrap();
    let (_, verifier) = user.write(&file, 0, &[7; 20_000], 0).unwrap();
    let other = world.gateway(&["/:no_root_squash"]);
    world.kill(&gate);
    let there = world.user(&other, 0);
    assert_eq!(there.commit(&file), Ok(verifier), "another gateway takes over and nothing is lost");
    assert_eq!(there.read(&file, 0, 30_000).unwrap(), (vec![7; 20_000].into(), true));
    let (_, verifier) = there.write(&file, 20_000, &[8], 0).unwrap();
    world.pass(SECOND);
    assert_eq!(there.commit(&file), Ok(verifier));
    let (_, verifier) = there.write(&file, 0, &[8], 0).unwrap();
    world.restart(ServerId::data(2));
    let changed = there.commit(&file).unwrap();
    assert_ne!(changed, verifier, "the commit itself has met the server");
    assert_eq!(there.write(&file, 0, &[8], 0).unwrap().1, changed);
    world.restart(ServerId(0));
    assert_ne!(there.commit(&file).unwrap(), changed);
}
