//! Times and removed objects as programs on one and on several mounts see them: order decides, not
//! the larger value.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, fallocate, fstat, mkdirat, mkfifoat, open, renameat_with};
use rustix::io::Errno;
use weft_system_tests::{FileSystem, Need, as_user, available, fails, wait_until, weft};

const FUTURE: Duration = Duration::from_secs(1_893_456_000);
const PAST: Duration = Duration::from_secs(1_000_000_000);
/// Servers and tests have one clock here; this is for its granularity.
const GRAIN: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

fn two_mounts() -> (FileSystem, PathBuf, PathBuf) {
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2", "--stripe-size", "64KiB", "-o", "cache_ms=0"]);
    let (first, second) = (fs.mnt(), fs.mount("second", "cache_ms=0"));
    (fs, first, second)
}

fn mtime(path: &Path) -> SystemTime {
    fs::metadata(path).expect("the file is there").modified().expect("it has a time")
}

fn set_mtime(path: &Path, since_1970: Duration) {
    File::open(path).and_then(|file| file.set_modified(UNIX_EPOCH + since_1970)).expect("the time can be set");
}

/// Does something after which the time of the file must be that of the clock.
fn brings_now(path: &Path, what: &str, act: impl FnOnce()) {
    let before = SystemTime::now() - GRAIN;
    act();
    let (shown, after) = (mtime(path), SystemTime::now() + GRAIN);
    assert!((before..=after).contains(&shown), "{what}: {shown:?}, not between {before:?} and {after:?}");
}

#[test]
fn promise_order_of_times() {
    if !available("promise_order_of_times", &[Need::Fuse]) {
        return;
    }
    let (_fs, a, b) = two_mounts();
    let (at_a, at_b) = (a.join("file"), b.join("file"));
    let append = |path: &Path| OpenOptions::new().append(true).open(path).unwrap().write_all(b"x").unwrap();
    fs::write(&at_a, vec![1; 200_000]).unwrap();
    for (time, what) in [(FUTURE, "an append after a time in the future"), (PAST, "an append after one in the past")] {
        set_mtime(&at_a, time);
        assert_eq!((mtime(&at_a), mtime(&at_b)), (UNIX_EPOCH + time, UNIX_EPOCH + time));
        brings_now(&at_b, what, || append(&at_a));
        brings_now(&at_a, what, || append(&at_b));
        set_mtime(&at_a, time);
        brings_now(&at_b, "a truncation", || File::options().write(true).open(&at_a).unwrap().set_len(100_000).unwrap());
    }
    set_mtime(&a, FUTURE);
    brings_now(&b, "a name in a directory of the future", || fs::write(a.join("name"), b"").unwrap());

    // The other mount sets the time while this one has the file open and has written.
    for round in 0..10 {
        let writer = OpenOptions::new().write(true).open(&at_a).unwrap();
        writer.write_all_at(b"before", round * 30_000).unwrap();
        let time = if round % 2 == 0 { FUTURE } else { PAST };
        set_mtime(&at_b, time);
        assert_eq!((mtime(&at_a), mtime(&at_b)), (UNIX_EPOCH + time, UNIX_EPOCH + time), "round {round}");
        if round % 3 == 0 {
            // Within and behind the file, so that both data servers see one.
            for offset in [0, 70_000, 400_000] {
                set_mtime(&at_b, time);
                brings_now(&at_b, "a write after it", || writer.write_all_at(b"after", offset).unwrap());
                brings_now(&at_a, "a write after it, seen by the writer", || writer.write_all_at(b"after", offset).unwrap());
            }
            set_mtime(&at_b, time);
        }
        drop(writer);
        for _ in 0..20 {
            assert_eq!((mtime(&at_a), mtime(&at_b)), (UNIX_EPOCH + time, UNIX_EPOCH + time), "round {round}, after the close");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    // As cp -p, tar and rsync do it.
    for (number, closes_first) in [false, true].into_iter().enumerate() {
        let (copy, name) = (a.join("copy"), a.join(format!("name{number}")));
        let mut file = File::create(&copy).unwrap();
        file.write_all(&[2; 10_000]).unwrap();
        if closes_first {
            drop(file);
            set_mtime(&copy, PAST);
        } else {
            file.set_modified(UNIX_EPOCH + PAST).unwrap();
            drop(file);
        }
        fs::rename(&copy, &name).unwrap();
        for _ in 0..20 {
            assert_eq!(mtime(&b.join(format!("name{number}"))), UNIX_EPOCH + PAST);
            assert_eq!(mtime(&name), UNIX_EPOCH + PAST);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(fs::metadata(&name).unwrap().len(), 10_000);
    }
}

#[test]
fn a_renamed_object_has_changed_at_once() {
    if !available("a_renamed_object_has_changed_at_once", &[Need::Fuse]) {
        return;
    }
    // Default options: what this mount knows of its own directories is believed.
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1"]);
    let mnt = fs.mnt();
    let ctime = |path: &Path| fs::symlink_metadata(path).map(|found| (found.ctime(), found.ctime_nsec())).expect("it is there");
    // Directories are made on both servers, in turns.
    for round in 0..4 {
        for kind in ["directory", "file"] {
            let (old, new) = (mnt.join(format!("{kind}{round}")), mnt.join(format!("renamed {kind}{round}")));
            if kind == "directory" {
                fs::create_dir(&old).unwrap()
            } else {
                fs::write(&old, b"x").unwrap()
            }
            let before = ctime(&old);
            fs::rename(&old, &new).unwrap();
            assert!(ctime(&new) > before, "the {kind} of round {round}: {:?} after {before:?}", ctime(&new));
        }
    }
}

#[test]
fn removed_objects_are_known_to_who_holds_them() {
    if !available("removed_objects_are_known_to_who_holds_them", &[Need::Fuse]) {
        return;
    }
    let (_fs, a, b) = two_mounts();
    for remover in [&a, &b] {
        fs::create_dir(a.join("dir")).unwrap();
        std::os::unix::fs::symlink("target", a.join("link")).unwrap();
        mkfifoat(rustix::fs::CWD, a.join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        let dir = open(a.join("dir"), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let link = open(a.join("link"), OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap();
        let pipe = open(a.join("pipe"), OFlags::RDWR, Mode::empty()).unwrap();
        fs::remove_dir(remover.join("dir")).unwrap();
        fs::remove_file(remover.join("link")).unwrap();
        fs::remove_file(remover.join("pipe")).unwrap();
        for (fd, kind) in [(&dir, 0o040_000), (&link, 0o120_000), (&pipe, 0o010_000)] {
            let seen = fstat(fd).expect("who holds it can ask");
            assert_eq!((seen.st_nlink, seen.st_mode & 0o170_000), (0, kind));
        }
        assert_eq!(mkdirat(&dir, "below", Mode::from_raw_mode(0o700)), Err(Errno::NOENT));
        assert_eq!(open(a.join("dir"), OFlags::DIRECTORY, Mode::empty()).unwrap_err(), Errno::NOENT);
    }
}

#[test]
fn what_is_not_there_says_so() {
    if !available("what_is_not_there_says_so", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1", "-o", "cache_ms=0"]);
    let file = fs.mnt().join("file");
    fs::write(&file, b"some bytes").unwrap();
    let opened = OpenOptions::new().read(true).write(true).open(&file).unwrap();
    for mode in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE, FallocateFlags::UNSHARE_RANGE] {
        assert_eq!(fallocate(&opened, mode, 0, 4096), Err(Errno::OPNOTSUPP), "{mode:?}");
    }
    assert_eq!(fallocate(&opened, FallocateFlags::KEEP_SIZE, 0, 4096), Err(Errno::OPNOTSUPP), "behind the end nothing is held");
    let whiteout = renameat_with(rustix::fs::CWD, &file, rustix::fs::CWD, fs.mnt().join("other"), RenameFlags::WHITEOUT);
    assert!(matches!(whiteout, Err(Errno::INVAL | Errno::PERM)), "{whiteout:?}");
    assert!(file.exists());
    // A file that may be written through a mapping has no holes, as far as anybody can see.
    opened.set_len(1 << 20).unwrap();
    assert_eq!(rustix::fs::seek(&opened, SeekFrom::Data(100)), Ok(100));
    assert_eq!(rustix::fs::seek(&opened, SeekFrom::Hole(100)), Ok(1 << 20));
    assert_eq!(rustix::fs::seek(&opened, SeekFrom::Data(1 << 20)), Err(Errno::NXIO));
    assert_eq!(fs::metadata(&file).unwrap().blocks(), 8, "what it takes is known all the same");
    let words = fails(weft().args(["xattr", "set", "user.pvfs2.no_metafile", "1", &fs.at("/file")]));
    assert!(words.contains("hint user.pvfs2.no_metafile"), "a hint stands at a directory: {words}");
    let far = OpenOptions::new().write(true).open(&file).unwrap().write_at(b"x", 1 << 62).unwrap_err();
    assert_eq!(far.raw_os_error(), Some(Errno::FBIG.raw_os_error()));
    let beyond = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 1 << 40, tv_nsec: 0 },
        last_modification: rustix::fs::Timespec { tv_sec: -(1 << 40), tv_nsec: 0 },
    };
    rustix::fs::utimensat(rustix::fs::CWD, &file, &beyond, AtFlags::empty()).unwrap();
    wait_until("the ends of the range of times", PATIENCE, || {
        let seen = fs::metadata(&file).unwrap();
        seen.atime() == i64::MAX / 1_000_000_000 && seen.mtime() < -9_000_000_000
    });
}

/// A program that another mount writes to is not set-id afterwards, whichever mount made it so and
/// whenever; and making it so is no change of its data.
#[test]
fn set_id_bits_end_with_a_write_through_another_mount() {
    let test = "set_id_bits_end_with_a_write_through_another_mount";
    if !available(test, &[Need::Fuse, Need::Root]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2", "--stripe-size", "64KiB"]);
    let (first, second) = (fs.mnt().join("program"), fs.mount("second", "").join("program"));
    fs::write(&first, vec![1; 200_000]).unwrap();
    let set_mode = |mode| fs::set_permissions(&first, Permissions::from_mode(mode)).unwrap();
    let mode = || fs::metadata(&first).unwrap().mode() & 0o7777;
    set_mode(0o777);
    let held = as_user(12345, &[12345], || OpenOptions::new().write(true).open(&second).unwrap());
    let write = |at| as_user(12345, &[12345], || held.write_all_at(b"changed", at).unwrap());
    for (round, bits) in [0o4777, 0o2777, 0o6777, 0o4755].into_iter().enumerate() {
        // On one data server or the other.
        let at = round as u64 * 64 * 1024;
        write(at);
        // The data servers know it exactly while the file is open.
        let written = File::open(&first).unwrap().metadata().unwrap().modified().unwrap();
        set_mode(bits);
        assert_eq!(mode(), bits);
        assert_eq!(fs::metadata(&first).unwrap().modified().unwrap(), written, "round {round}");
        write(at);
        let about = File::open(&first).unwrap().metadata().unwrap();
        assert_eq!(about.mode() & 0o6000, 0, "round {round}");
        assert!(about.modified().unwrap() > written, "round {round}");
    }
    // The superuser may change programs.
    set_mode(0o4777);
    let by_root = OpenOptions::new().write(true).open(&second).unwrap();
    by_root.write_all_at(b"changed", 0).unwrap();
    assert_eq!(mode(), 0o4777);
}

fn atime(path: &Path) -> SystemTime {
    fs::metadata(path).expect("the file is there").accessed().expect("it has a time")
}

#[test]
fn promise_relatime_costs_no_message() {
    if !available("promise_relatime_costs_no_message", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1"]);
    let (writer, reader) = (fs.mnt(), fs.mount("reader", "relatime,cache_ms=0"));
    // Two files that are read, one that is not, and a sealed one.
    let files = ["one", "two", "unread", "sealed/file"];
    fs::create_dir(writer.join("sealed")).unwrap();
    for file in files {
        fs::write(writer.join(file), b"content").unwrap();
    }
    assert!(weft().arg("seal").arg(fs.at("/sealed")).status().unwrap().success());
    let times = |mnt: &Path| files.map(|file| atime(&mnt.join(file)));
    let all = |mnt: &Path| files.map(|file| fs::metadata(mnt.join(file)).map(|meta| (meta.ctime(), meta.ctime_nsec())).unwrap());
    let (before, changed) = (times(&reader), all(&reader));
    // To look and to open is not to read, and a mount without the option sets nothing.
    drop(File::open(reader.join("unread")).unwrap());
    assert_eq!(files.map(|file| fs::read(writer.join(file)).unwrap().len()), [7; 4]);
    assert_eq!(times(&writer), before);
    let read = |file: &str| assert_eq!(fs::read(reader.join(file)).unwrap(), b"content");
    let cursor = String::from_utf8(weft().args(["watch", "--once"]).arg(fs.at("/")).output().unwrap().stdout).unwrap();
    let ops: Vec<String> = fs.answered().into_keys().filter(|op| !matches!(op.as_str(), "Ping" | "Live" | "Notices")).collect();
    let asked = |work: &dyn Fn()| {
        let now = || ops.iter().map(|op| (op.clone(), fs.answered_of(&[op]))).collect::<Vec<_>>();
        let before = now();
        work();
        std::thread::sleep(Duration::from_millis(200));
        now().into_iter().zip(before).map(|((op, now), (_, before))| (op, now - before)).collect::<std::collections::BTreeMap<_, _>>()
    };
    let first = asked(&|| ["one", "two", "sealed/file"].into_iter().for_each(read));
    wait_until("the times of access", PATIENCE, || atime(&reader.join("one")) > before[0] && atime(&reader.join("two")) > before[1]);
    let after = times(&reader);
    assert_eq!((after[2], after[3]), (before[2], before[3]));
    assert!(after[0] < SystemTime::now() + GRAIN);
    assert_eq!(all(&reader), changed, "that is no change of the file");
    let kinds: Vec<&str> = first.iter().filter(|(_, count)| **count > 0).map(|(op, _)| op.as_str()).collect();
    assert!(!kinds.contains(&"SetAttr"), "{first:?}");
    // Until it is changed it is not set again: what the next reading costs, the first one did.
    let second = asked(&|| ["one", "two", "sealed/file"].into_iter().for_each(read));
    assert_eq!(times(&reader), after);
    for op in ["Open", "Close", "CloseMany", "SetAttr"] {
        let count = |counts: &std::collections::BTreeMap<String, u64>| counts.get(op).copied().unwrap_or(0);
        // On a busy machine each of three closes may go alone.
        let more = if op == "CloseMany" { 2 } else { 1 };
        assert!(count(&first) <= count(&second) + more, "{op}: {first:?} {second:?}");
    }
    // Nobody who watches hears of it.
    let cursor = cursor.lines().rev().find_map(|line| line.strip_prefix("cursor ")).expect("a cursor").to_string();
    let told = String::from_utf8(weft().args(["watch", "--once", "--since", &cursor]).arg(fs.at("/")).output().unwrap().stdout).unwrap();
    assert!(told.lines().all(|line| line.starts_with("cursor ")), "{told}");
    // Over a restart, and anew after a change.
    fs.down();
    fs.start_mounted(&[]);
    assert_eq!(times(&fs.mnt())[..2], after[..2]);
    let reader = fs.mount("reader", "relatime");
    fs::write(fs.mnt().join("one"), b"content").unwrap();
    assert_eq!(fs::read(reader.join("one")).unwrap(), b"content");
    // The mount itself shows it, though nobody tells its kernel of a change.
    wait_until("the time of access", PATIENCE, || atime(&reader.join("one")) > after[0]);
}

#[test]
fn a_time_of_access_ends_no_lease() {
    if !available("a_time_of_access_ends_no_lease", &[Need::Fuse, Need::Kernel(6, 16)]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "1"]);
    let (other, reader) = (fs.mnt(), fs.mount("reader", "relatime"));
    const FILES: usize = 50;
    let file = |mnt: &Path, number: usize| mnt.join(format!("dir/{number}"));
    fs::create_dir(other.join("dir")).unwrap();
    (0..FILES).for_each(|number| fs::write(file(&other, number), b"content").unwrap());
    let look = || (0..FILES).map(|number| atime(&file(&other, number))).collect::<Vec<_>>();
    let asked = || fs.answered_of(&["Lookup", "GetAttr", "GetAttrMany", "ReadDir"]);
    // It is told all of it under leases.
    let holds = || {
        look();
        let before = asked();
        look();
        asked() == before
    };
    wait_until("leases", PATIENCE, holds);
    let before = look();
    (0..FILES).for_each(|number| assert_eq!(fs::read(file(&reader, number)).unwrap(), b"content"));
    wait_until("the times of access", PATIENCE, || (0..FILES).all(|number| atime(&file(&reader, number)) > before[number]));
    let messages = asked();
    assert_eq!((look(), asked()), (before.clone(), messages), "it goes on believing what it was told");
    // A change is told with it.
    fs::write(file(&reader, 0), b"more").unwrap();
    assert!(atime(&file(&other, 0)) > before[0]);
}
