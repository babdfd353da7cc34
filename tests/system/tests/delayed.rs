//! Small files written through a mount: it keeps their bytes until they are closed, and programs
//! see no difference, on no mount.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use weft_system_tests::{FileSystem, Need, Signal, available, ok, signal, wait_until, weft};

/// A file system whose root takes small files, and two mounts of it.
fn two_mounts() -> (FileSystem, PathBuf, PathBuf) {
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "2", "--inline-limit", "16KiB"]);
    let (first, second) = (fs.mnt(), fs.mount("second", ""));
    assert!(ok(weft().args(["hint", "show"]).arg(fs.at("/"))).contains("up to 16384 bytes"));
    // The room for small files is made in the background.
    fs::write(first.join("first"), b"x").unwrap();
    wait_until("small files are kept", Duration::from_secs(20), || {
        fs::write(first.join("small"), b"x").unwrap();
        let stays = ok(weft().arg("stat").arg(fs.at("/small"))).contains("beside its inode");
        fs::remove_file(first.join("small")).unwrap();
        stays
    });
    (fs, first, second)
}

fn content(round: usize) -> Vec<u8> {
    let bytes = [0, 1, 100, 3901, 4096, 16_384, 16_385, 40_000][round % 8];
    (0..bytes).map(|at| ((at * 7 + round) % 251) as u8).collect()
}

fn written(path: &Path, bytes: &[u8]) -> File {
    let mut file = File::create_new(path).unwrap();
    let (one, rest) = bytes.split_at(bytes.len() / 3);
    file.write_all(one).unwrap();
    file.write_all(rest).unwrap();
    file
}

#[test]
fn promise_delayed_writes_are_seen() {
    if !available("promise_delayed_writes_are_seen", &[Need::Fuse]) {
        return;
    }
    let (fs, first, second) = two_mounts();
    for round in 0..120 {
        let (writer, reader) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
        let (name, bytes) = (format!("f{round}"), content(round / 2));
        let file = written(&writer.join(&name), &bytes);
        // Of every third one the program goes on.
        let held = Some(file).filter(|_| round % 3 == 0);
        let about = fs::metadata(reader.join(&name)).unwrap();
        assert_eq!((about.len(), about.blocks() * 512), (bytes.len() as u64, bytes.len().next_multiple_of(4096) as u64), "round {round}");
        assert!(fs::read(reader.join(&name)).unwrap() == bytes, "round {round}");
        assert!(fs::read(writer.join(&name)).unwrap() == bytes, "round {round}, by the mount that wrote it");
        drop(held);
    }
    drop(fs);
}

/// How many requests of each kind servers have answered while this was done, and soon after it.
fn answered(fs: &FileSystem, work: impl FnOnce()) -> BTreeMap<String, u64> {
    let before = fs.answered();
    work();
    std::thread::sleep(Duration::from_millis(500));
    let counted = fs.answered().into_iter().map(|(op, count)| (op.clone(), count - before.get(&op).copied().unwrap_or(0)));
    counted.filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_small_file_of_a_mount_is_a_share_of_two_requests() {
    if !available("a_small_file_of_a_mount_is_a_share_of_two_requests", &[Need::Fuse]) {
        return;
    }
    let (fs, first, _) = two_mounts();
    let dir = first.join("dir");
    fs::create_dir(&dir).unwrap();
    let counts = answered(&fs, || (0..200).for_each(|number| fs::write(dir.join(format!("f{number}")), [7; 3901]).unwrap()));
    let count = |op: &str| counts.get(op).copied().unwrap_or(0);
    let of_each = ["Lookup", "Write", "Open", "Close"].map(count);
    assert_eq!(of_each, [0; 4], "{counts:?}");
    // The first one or two are asked for.
    assert!((1..=5).contains(&count("Create")), "{counts:?}");
    // Some 20 each on an idle machine; a slow one gathers fewer in the 3 ms that a close waits.
    assert!((1..=150).contains(&count("CreateMany")) && (1..=150).contains(&count("CloseMany")), "{counts:?}");
}

#[test]
fn promise_a_dead_mount_holds_nobody_up() {
    if !available("promise_a_dead_mount_holds_nobody_up", &[Need::Fuse]) {
        return;
    }
    let (fs, first, second) = two_mounts();
    let _open = written(&second.join("open"), b"kept by the mount");
    fs.kill_mount(&second);
    assert_eq!(fs::read(first.join("open")).unwrap(), b"", "it went with its mount");
    fs::write(first.join("open"), b"theirs").unwrap();
    assert_eq!(fs::read(first.join("open")).unwrap(), b"theirs");
}

/// A mount that is stopped for longer than servers wait for it.
#[test]
fn a_mount_that_was_away_does_not_overwrite() {
    if !available("a_mount_that_was_away_does_not_overwrite", &[Need::Fuse]) {
        return;
    }
    let (fs, first, second) = two_mounts();
    let mut open = written(&second.join("open"), b"kept by the mount");
    let pid = fs.mount_pid(&second);
    signal(pid, Signal::STOP).unwrap();
    fs::write(first.join("open"), b"theirs, written since").unwrap();
    signal(pid, Signal::CONT).unwrap();
    let (sender, synced) = mpsc::channel();
    std::thread::spawn(move || sender.send(open.write_all(&[1; 20_000]).and_then(|()| open.sync_all()).is_err()));
    assert!(synced.recv_timeout(Duration::from_secs(60)).unwrap(), "what was kept is lost, and its program hears of it");
    assert_eq!(fs::read(first.join("open")).unwrap(), b"theirs, written since");
}
