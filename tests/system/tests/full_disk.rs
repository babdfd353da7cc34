//! Full disks: changes are refused with ENOSPC, nothing is lost, reads go on, removing works, and
//! service resumes with the space.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use weft_system_tests::load::content;
use weft_system_tests::{FileSystem, Need, available, ok, wait_until, weft};

const PATIENCE: Duration = Duration::from_secs(60);
const FILE_BYTES: u64 = 3_000_000;

/// Puts a small disk of its own under the folder of a server that has not been started yet.
fn small_disk(fs: &FileSystem, server: &str, mib: u64) -> PathBuf {
    let dir = fs.server_dir(server);
    fs::create_dir_all(&dir).unwrap();
    ok(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={mib}m,mode=0700"), "weft-test"]).arg(&dir));
    dir
}

#[track_caller]
fn assert_full(error: &io::Error) {
    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{error}");
}

fn write_until_full(dir: &Path, from: u64) -> Vec<(PathBuf, u64)> {
    let mut written = Vec::new();
    for seed in from..from + 1000 {
        let path = dir.join(format!("file{seed}"));
        match fs::write(&path, content((seed, FILE_BYTES))) {
            Ok(()) => written.push((path, seed)),
            Err(error) => {
                assert_full(&error);
                // The file that did not fit.
                fs::remove_file(&path).unwrap();
                return written;
            }
        }
    }
    panic!("the disk is never full");
}

#[track_caller]
fn verify(files: &[(PathBuf, u64)]) {
    for (path, seed) in files {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(bytes == content((*seed, FILE_BYTES)), "{} ({} bytes) is damaged", path.display(), bytes.len());
    }
}

fn free_bytes(disk: &Path) -> u64 {
    let space = rustix::fs::statvfs(disk).unwrap();
    space.f_bavail * space.f_frsize
}

fn fill_empty_and_fill_again(fs: &FileSystem) {
    let mnt = fs.mnt();
    let mut files = write_until_full(&mnt, 0);
    assert!(files.len() > 5, "{} files", files.len());
    eprintln!("{} files of {FILE_BYTES} bytes fit", files.len());
    // Full: reads, names and attributes go on.
    verify(&files);
    fs::rename(&files[0].0, mnt.join("renamed")).unwrap();
    files[0].0 = mnt.join("renamed");
    assert!(fs.status().1["servers"].as_array().unwrap().iter().all(|row| row["pid"].is_u64()), "all servers live");
    // A restart of a server whose disk is full.
    fs.kill("data0");
    fs.start(&[]);
    verify(&files);
    // Removing makes room.
    let half = files.len() / 2;
    for (path, _) in files.drain(half..) {
        fs::remove_file(path).unwrap();
    }
    let mut more = Vec::new();
    wait_until("room after removing files", PATIENCE, || {
        let path = mnt.join("probe");
        let fits = fs::write(&path, content((5000, FILE_BYTES))).is_ok();
        fs::remove_file(&path).unwrap();
        fits
    });
    // Reservations and the journal may have taken some of it.
    wait_until("some of the room", PATIENCE, || {
        more.extend(write_until_full(&mnt, 100 + more.len() as u64));
        more.len() * 5 >= half
    });
    verify(&files);
    verify(&more);
    for (path, _) in files.iter().chain(&more) {
        fs::remove_file(path).unwrap();
    }
    wait_until("an empty file system", PATIENCE, || fs.total("data", "objects") == 0);
}

#[test]
fn promise_full_disk() {
    if !available("promise_full_disk", &[Need::Fuse, Need::Root]) {
        return;
    }
    let fs = FileSystem::prepare();
    small_disk(&fs, "data0", 300);
    fs.start_mounted(&["--data", "2", "--stripe-size", "64KiB"]);
    fill_empty_and_fill_again(&fs);
}

/// The same with a configured bound, which needs no root.
#[test]
fn a_capacity_is_a_full_disk() {
    if !available("a_capacity_is_a_full_disk", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "2", "--stripe-size", "64KiB", "--capacity", "40MiB"]);
    fill_empty_and_fill_again(&fs);
}

#[test]
fn promise_full_disk_of_a_metadata_server() {
    if !available("promise_full_disk_of_a_metadata_server", &[Need::Fuse, Need::Root]) {
        return;
    }
    let fs = FileSystem::prepare();
    let disk = small_disk(&fs, "meta0", 260);
    fs.start_mounted(&["--meta", "1", "--data", "1"]);
    let mnt = fs.mnt();
    // Large attributes fill a journal quickly.
    let value = |number: u64| content((number, 60_000));
    let fill = |from: u64| {
        let mut stored = Vec::new();
        for number in from..from + 20_000 {
            let path = mnt.join(format!("file{number}"));
            let created = fs::write(&path, b"");
            let set = created.and_then(|()| Ok(setxattr(&path, "user.large", &value(number), XattrFlags::empty())?));
            match set {
                Ok(()) => stored.push((path, number)),
                Err(error) => {
                    assert_full(&error);
                    return stored;
                }
            }
        }
        panic!("the disk is never full");
    };
    let verify = |stored: &[(PathBuf, u64)]| {
        for (path, number) in stored {
            let mut bytes = vec![0; 65536];
            let len = getxattr(path, "user.large", &mut bytes[..]).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(bytes[..len] == value(*number), "{}", path.display());
        }
    };
    let mut stored = fill(0);
    eprintln!("{} attributes fit", stored.len());
    assert!(stored.len() > 300, "{} attributes", stored.len());
    verify(&stored);
    assert!(fs::read_dir(&mnt).unwrap().count() >= stored.len());
    // Restarts go on in the segment that is there.
    for _ in 0..3 {
        fs.kill("meta0");
        fs.start(&[]);
        verify(&stored);
    }
    let kept_bytes = stored.len() as u64 * 60_000 + (16 << 20);
    assert!(free_bytes(&disk) < kept_bytes, "only the next checkpoint has room, with all of this in it");
    // A segment that waited may be filled now.
    stored.extend(fill(20_000));
    // Somebody has taken the very last byte as well.
    fs::write(disk.join("foreign"), vec![1; free_bytes(&disk) as usize]).unwrap();
    fs.kill("meta0");
    fs.start(&[]);
    verify(&stored);
    let removed: Vec<_> = stored.drain(stored.len() / 2..).collect();
    for (path, _) in &removed {
        fs::remove_file(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    assert!(removed.iter().all(|(path, _)| !path.exists()));
    verify(&stored);
    // The disk is larger now: service is complete again, by itself.
    ok(Command::new("mount").args(["-o", "remount,size=1000m"]).arg(&disk));
    wait_until("service on the larger disk", PATIENCE, || fs::write(mnt.join("large"), b"x").is_ok());
    let path = mnt.join("large");
    setxattr(&path, "user.large", &value(1), XattrFlags::empty()).unwrap();
    verify(&stored);
    fs.kill("meta0");
    fs.start(&[]);
    verify(&stored);
    assert!(removed.iter().all(|(path, _)| !path.exists()) && path.exists());
}

/// A metadata server whose names fill its disk: it goes on as long as the next checkpoint fits, and
/// what is removed comes back.
#[test]
fn a_small_metadata_disk_is_filled_and_emptied_again() {
    const DIR_FILES: usize = 500;
    if !available("a_small_metadata_disk_is_filled_and_emptied_again", &[Need::Fuse, Need::Root]) {
        return;
    }
    let fs = FileSystem::prepare();
    small_disk(&fs, "meta0", 40);
    fs.start_mounted(&["--meta", "1", "--data", "1"]);
    let fill = || {
        for number in 0..200_000 {
            let dir = fs.mnt().join(format!("dir{}", number / DIR_FILES));
            let made = if number % DIR_FILES == 0 { fs::create_dir(&dir) } else { Ok(()) };
            if let Err(error) = made.and_then(|()| fs::write(dir.join(format!("file{number}")), b"")) {
                assert_full(&error);
                return number;
            }
        }
        panic!("the disk is never full");
    };
    let names = || fs::read_dir(fs.mnt()).unwrap().map(|dir| fs::read_dir(dir.unwrap().path()).unwrap().count()).sum::<usize>();
    let mut most = 0;
    for round in 0..2 {
        let mut made = 0;
        wait_until("most of the room", PATIENCE, || {
            for dir in fs::read_dir(fs.mnt()).unwrap() {
                fs::remove_dir_all(dir.unwrap().path()).unwrap();
            }
            made = fill();
            // There is a checkpoint beside the journal now.
            made > 5_000 && made * 10 > most * 4
        });
        most = most.max(made);
        eprintln!("round {round}: {made} files fit");
        assert_eq!(names(), made);
        if round > 0 {
            fs.kill("meta0");
            fs.start(&[]);
            assert_eq!(names(), made);
        }
    }
}

/// Programs that copy a store (`cp -a`, `tar -S`, `rsync -S`) leave holes where a journal was
/// reserved and not yet written.
#[test]
fn a_copied_store_meets_a_full_disk() {
    if !available("a_copied_store_meets_a_full_disk", &[Need::Fuse, Need::Root]) {
        return;
    }
    let fs = FileSystem::prepare();
    let disk = small_disk(&fs, "meta0", 100);
    fs.start(&["--meta", "1", "--data", "1"]);
    ok(weft().args(["down", "--state"]).arg(fs.state()));
    let [copy, store] = [fs.path("copy"), disk.clone()].map(|path| path.into_os_string().into_string().unwrap());
    ok(Command::new("sh").args([
        "-euc",
        r#"cp -a --sparse=always "$1" "$2"; rm "$1"/*; cp -a --sparse=always "$2"/. "$1""#,
        "sh",
        &store,
        &copy,
    ]));
    fs.start_mounted(&[]);
    let pid = fs.pid("meta0");
    fs::write(disk.join("foreign"), vec![1; free_bytes(&disk) as usize]).unwrap();
    let set = |number: u64| {
        fs::write(fs.mnt().join(format!("file{number}")), b"").and_then(|()| {
            Ok(setxattr(fs.mnt().join(format!("file{number}")), "user.large", &content((number, 60_000)), XattrFlags::empty())?)
        })
    };
    assert_full(&(0..20_000).find_map(|number| set(number).err()).expect("the disk is full"));
    assert_eq!(fs.pid("meta0"), pid, "it lives");
    fs::remove_file(disk.join("foreign")).unwrap();
    wait_until("room", PATIENCE, || set(20_000).is_ok());
}

/// Who opens a small file for writing moves it to data servers by that: if these are full, that is
/// said at once. Such a file is read and removed as before, and opens with room.
#[test]
fn small_files_that_cannot_leave_say_that_the_disks_are_full() {
    const SMALL: u64 = 100;
    const BYTES: u64 = 5000;
    if !available("small_files_that_cannot_leave_say_that_the_disks_are_full", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1", "--capacity", "40MiB"]);
    let other = fs.mount("other", "");
    let small = |number: u64| format!("small{number}");
    for number in 0..SMALL {
        fs::write(fs.mnt().join(small(number)), content((number, BYTES))).unwrap();
    }
    let fill = || {
        for bytes in [1 << 20, 64 << 10, 4096] {
            let mut filler = fs::OpenOptions::new().append(true).create(true).open(fs.mnt().join("filler")).unwrap();
            while let Ok(written) = filler.write(&content((bytes, bytes))) {
                assert!(written > 0);
            }
        }
    };
    fill();
    let append = |dir: &Path, number: u64| fs::OpenOptions::new().append(true).open(dir.join(small(number)))?.write_all(b"more");
    let mut refused = Vec::new();
    for number in 0..SMALL {
        let dir = if number % 2 == 0 { fs.mnt() } else { other.clone() };
        if let Err(error) = append(&dir, number) {
            // Not that they are busy, or that servers do not answer.
            assert_full(&error);
            refused.push(number);
        }
    }
    assert!(refused.len() > 3, "{refused:?}");
    for (mnt, number) in [(&fs.mnt(), refused[0]), (&other, refused[1])] {
        assert!(fs::read(mnt.join(small(number))).unwrap() == content((number, BYTES)));
        fs::remove_file(mnt.join(small(number))).unwrap();
    }
    fs::remove_file(fs.mnt().join("filler")).unwrap();
    for number in &refused[2..] {
        wait_until("room", PATIENCE, || append(&other, *number).is_ok());
        assert!(fs::read(fs.mnt().join(small(*number))).unwrap() == [&content((*number, BYTES))[..], b"more"].concat());
    }
}
