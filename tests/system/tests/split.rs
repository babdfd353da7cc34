//! Directories whose names are spread over metadata servers, as programs see them on two mounts:
//! nothing shows that they are, through restarts and the end of a server.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use serde_json::Value;
use weft_system_tests::{FileSystem, Need, Signal, available, fails, ok, wait_until, weft};

const NAMES: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(60);
/// A mount believes attributes of such a directory for two ticks of its kernel; much longer.
const BELIEVED: Duration = Duration::from_millis(50);

fn presplit(path: &Path, value: &str) -> rustix::io::Result<()> {
    setxattr(path, "user.weft.presplit", value.as_bytes(), XattrFlags::empty())
}

fn listed(dir: &Path) -> BTreeSet<String> {
    let names: Vec<String> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let once: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(once.len(), names.len(), "a name is listed once");
    once
}

/// What a directory is like, when what a mount may believe of it is over.
fn seen(dir: &Path) -> Metadata {
    std::thread::sleep(BELIEVED);
    dir.metadata().unwrap()
}

/// The metadata servers that hold names of a directory.
fn names_on(fs: &FileSystem, path: &str) -> usize {
    let shown: Value = serde_json::from_str(&ok(weft().args(["hint", "show", "--json"]).arg(fs.at(path)))).expect("JSON");
    shown["names_on"].as_array().expect("servers").len()
}

#[test]
fn promise_split_directories() {
    if !available("promise_split_directories", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "3", "--data", "2"]);
    let (a, b) = (fs.mnt(), fs.mount("second", ""));
    fs::create_dir(a.join("top")).unwrap();
    assert_eq!(presplit(&a.join("top"), "0"), Err(Errno::INVAL));
    let why = fails(weft().args(["hint", "set", "presplit", "many"]).arg(fs.at("/top")));
    assert!(why.contains("or all"), "{why}");
    ok(weft().args(["hint", "set", "presplit", "all"]).arg(fs.at("/top")));
    let (dir, there) = (a.join("top/d"), b.join("top/d"));
    fs::create_dir(&dir).unwrap();
    assert_eq!((names_on(&fs, "/top"), names_on(&fs, "/top/d")), (1, 3), "only what is made from then on");
    let mut value = [0; 8];
    let len = getxattr(&there, "user.weft.presplit", &mut value[..]).unwrap();
    assert_eq!(&value[..len], b"all", "inherited");

    // Names from both mounts, seen by both at once.
    let name = |number: usize| format!("file{number}");
    for number in 0..NAMES {
        let (maker, other) = if number % 2 == 0 { (&dir, &there) } else { (&there, &dir) };
        fs::write(maker.join(name(number)), name(number)).unwrap();
        assert_eq!(fs::read_to_string(other.join(name(number))).unwrap(), name(number));
    }
    let all: BTreeSet<String> = (0..NAMES).map(name).collect();
    assert_eq!((listed(&dir), listed(&there)), (all.clone(), all.clone()));
    let (inodes, shards): (BTreeSet<u64>, BTreeSet<u64>) =
        (0..NAMES).map(|number| dir.join(name(number)).metadata().unwrap().ino()).map(|inode| (inode, inode >> 48)).unzip();
    assert_eq!((inodes.len(), shards.len()), (NAMES, 3), "files are made where their names are");

    // Renames in it, into it and out of it, exchanges with what is there, and links.
    fs::rename(dir.join("file0"), dir.join("renamed")).unwrap();
    fs::rename(there.join("file1"), b.join("outside")).unwrap();
    fs::rename(a.join("outside"), dir.join("back")).unwrap();
    fs::rename(there.join("file2"), there.join("file3")).unwrap();
    fs::hard_link(dir.join("file4"), dir.join("linked")).unwrap();
    assert_eq!(fs::read_to_string(there.join("renamed")).unwrap(), "file0");
    assert_eq!(fs::read_to_string(there.join("back")).unwrap(), "file1");
    assert_eq!(fs::read_to_string(dir.join("file3")).unwrap(), "file2");
    assert_eq!(there.join("linked").metadata().unwrap().nlink(), 2);
    for gone in ["file0", "file1", "file2"] {
        assert!(!dir.join(gone).exists() && !there.join(gone).exists(), "{gone}");
    }
    let mut now: BTreeSet<String> = all.iter().filter(|name| !["file0", "file1", "file2"].contains(&name.as_str())).cloned().collect();
    now.extend(["renamed", "back", "linked"].map(String::from));
    assert_eq!((listed(&dir), listed(&there)), (now.clone(), now.clone()));

    // What it is like is the same everywhere, and counts all its names.
    for number in 0..6 {
        fs::create_dir(there.join(format!("sub{number}"))).unwrap();
        assert_eq!(seen(&dir).nlink(), 3 + number, "links of subdirectories");
    }
    fs::rename(dir.join("sub5"), dir.join("sub0")).unwrap();
    assert_eq!(seen(&there).nlink(), 7, "one directory has replaced another");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::open(&dir).unwrap().set_modified(old).unwrap();
    assert_eq!(seen(&there).modified().unwrap(), old);
    File::create(there.join("young")).unwrap();
    assert!(seen(&dir).modified().unwrap() > old);
    fs::set_permissions(&there, Permissions::from_mode(0o2750)).unwrap();
    chown(&dir, Some(1234), Some(4321)).unwrap();
    let meta = seen(&there);
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o2750, 1234, 4321));
    for number in 0..30 {
        let file = dir.join(format!("group{number}"));
        File::create(&file).unwrap();
        assert_eq!(file.metadata().unwrap().gid(), 4321, "every server knows of the set-group-id bit");
        fs::remove_file(file).unwrap();
    }
    let error = fs::remove_dir(&there).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
    now.extend((0..5).map(|number| format!("sub{number}")).chain(["young".into()]));

    // Everything is there after the end of one server, and of all.
    fs.kill("meta1");
    fs.start(&[]);
    assert_eq!(listed(&dir), now);
    fs.down();
    fs.start_mounted(&[]);
    assert_eq!((listed(&dir), names_on(&fs, "/top/d"), names_on(&fs, "/top/d/sub1")), (now.clone(), 3, 3));
    let meta = seen(&dir);
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.nlink()), (0o2750, 1234, 7));
    assert_eq!(fs::read_to_string(dir.join("file999")).unwrap(), "file999");

    // Moved as a whole, counted, removed.
    fs::rename(a.join("top/d"), a.join("elsewhere")).unwrap();
    let moved = a.join("elsewhere");
    assert_eq!(fs::canonicalize(moved.join("sub1/..")).unwrap(), moved);
    assert_eq!(listed(&moved), now);
    let sums: Value = serde_json::from_str(&ok(weft().args(["du", "--json", "-s"]).arg(fs.at("/elsewhere")))).expect("JSON");
    // One of them has two names.
    let files = now.iter().filter(|name| !name.starts_with("sub")).count() - 1;
    let row = if sums.is_array() { &sums[0] } else { &sums };
    assert_eq!((row["files"].as_u64(), row["directories"].as_u64()), (Some(files as u64), Some(6)), "{sums}");
    ok(weft().args(["rm", "-r"]).arg(fs.at("/elsewhere")));
    assert!(!moved.exists());
    fs::create_dir_all(a.join("top/e/f")).unwrap();
    fs::write(a.join("top/e/f/x"), "x").unwrap();
    fs::remove_dir_all(a.join("top")).unwrap();
    assert_eq!(listed(&a), BTreeSet::new());
}

/// A mount believes the attributes of a directory under its lease on the one above.
#[test]
fn names_of_a_directory_move_though_a_mount_knows_it() {
    if !available("names_of_a_directory_move_though_a_mount_knows_it", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1"]);
    let top = fs.mnt().join("top");
    let dirs: Vec<String> = (0..8).map(|number| format!("dir{number}")).collect();
    for dir in &dirs {
        fs::create_dir_all(top.join(dir)).unwrap();
        fs::write(top.join(dir).join("file"), dir).unwrap();
    }
    // After a restart it asks for all of them.
    fs.down();
    fs.start_mounted(&[]);
    for entry in fs::read_dir(&top).unwrap() {
        entry.unwrap().metadata().unwrap();
    }
    for dir in &dirs {
        ok(weft().args(["split", &fs.at(&format!("/top/{dir}")), "2"]));
        assert_eq!(fs::read_to_string(top.join(dir).join("file")).unwrap(), *dir);
    }
}

/// Whoever waits for names to move is told if they do not.
#[test]
fn a_split_that_comes_to_nothing_says_so() {
    let fs = FileSystem::up(&["--meta", "2", "--data", "1"]);
    // Their names are with the server of `/`, which must answer.
    let dirs: Vec<String> = (0..16).map(|number| format!("/dir{number}")).collect();
    ok(weft().arg("mkdir").args(dirs.iter().map(|dir| fs.at(dir))));
    let mut dirs = dirs.iter().filter(|dir| ok(weft().arg("split").arg(fs.at(dir))).contains("meta0"));
    let (gone, kept) = (dirs.next().expect("a directory"), dirs.next().expect("another one"));
    let under_way = |dir: &str| {
        fs.signal("meta1", Signal::STOP);
        let child = weft().arg("split").arg(fs.at(dir)).arg("all").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let asked = || ok(weft().args(["split", "--json"]).arg(fs.at(dir)));
        wait_until("the way", PATIENCE, || asked().contains("\"is_under_way\": true"));
        child
    };
    let said = |child: Child| {
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let child = under_way(gone);
    ok(weft().args(["rm", "-r"]).arg(fs.at(gone)));
    let words = said(child);
    assert!(words.contains("has been removed"), "{words}");
    let words = fails(weft().args(["split", "--timeout", "2"]).arg(fs.at(kept)).arg("all"));
    assert!(words.contains("no names have moved for 2 s"), "{words}");
    fs.signal("meta1", Signal::CONT);
    ok(weft().arg("split").arg(fs.at(kept)).arg("1"));
    let child = under_way(kept);
    fs.kill("meta0");
    fs.signal("meta1", Signal::CONT);
    fs.start(&[]);
    let words = said(child);
    assert!(words.contains("not all names have moved"), "{words}");
    ok(weft().arg("split").arg(fs.at(kept)).arg("all"));
    // Who may change nothing may ask.
    let key = fs.path("key");
    ok(weft().args(["key", "add", "reads", "--read-only", "--state"]).arg(fs.state()).arg("--output").arg(&key));
    let asked = ok(weft().arg("split").arg(fs.at(kept)).arg("--key-file").arg(&key));
    assert!(asked.contains("meta0") && asked.contains("meta1"), "{asked}");
    assert!(fails(weft().arg("split").arg(fs.at(kept)).arg("1").arg("--key-file").arg(&key)).contains("allows no changes"));
}
