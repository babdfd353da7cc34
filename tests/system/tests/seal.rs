//! Sealed trees, through two mounts and the commands: nothing in them changes, and a mount with
//! `-o dataset` reads them again without asking anybody.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{XattrFlags, setxattr};
use rustix::mount::MountFlags;
use serde_json::Value;
use weft_system_tests::{FileSystem, Need, available, fails, ok, run, weft};

const EPERM: i32 = 1;
const EROFS: i32 = 30;
const FILES: usize = 60;

/// Small files, a large one, an empty one, a symlink, a second name, a directory, and one whose
/// names are with two servers.
fn make_tree(root: &Path) -> Vec<PathBuf> {
    let (dir, split) = (root.join("set"), root.join("set/split"));
    fs::create_dir_all(dir.join("inner")).unwrap();
    setxattr(&dir, "user.weft.presplit", b"2", XattrFlags::empty()).unwrap();
    fs::create_dir(&split).unwrap();
    let mut files = Vec::new();
    for number in 0..FILES {
        let file = [&dir.join("inner"), &split][number % 2].join(format!("{number}"));
        fs::write(&file, vec![number as u8; 3_901]).unwrap();
        files.push(file);
    }
    let large = dir.join("large");
    fs::write(&large, vec![7; 3 << 20]).unwrap();
    fs::write(dir.join("empty"), b"").unwrap();
    symlink("large", dir.join("link")).unwrap();
    fs::hard_link(&large, dir.join("second")).unwrap();
    files.extend([large, dir.join("empty"), dir.join("link"), dir.join("second")]);
    files
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

fn seal(fs: &FileSystem, more: &[&str]) -> Value {
    serde_json::from_str(&ok(weft().arg("seal").args(more).arg("--json").arg(fs.at("/set")))).expect("JSON")
}

fn up() -> FileSystem {
    FileSystem::mounted(&["--meta", "2", "--data", "2"])
}

#[test]
fn promise_sealed_trees_do_not_change() {
    if !available("promise_sealed_trees_do_not_change", &[Need::Fuse]) {
        return;
    }
    let fs = up();
    let (a, b) = (fs.mnt(), fs.mount("second", ""));
    let files = make_tree(&a);
    // What the other mount knows from before counts no longer.
    files.iter().for_each(|file| assert!(fs::metadata(b.join(file.strip_prefix(&a).unwrap())).is_ok()));
    let sealed = seal(&fs, &[]);
    // Directories: set, inner, split. The file with two names is sealed by one of them.
    assert_eq!((&sealed["changed"], &sealed["failed"]), (&Value::from(FILES + 3 + 3), &Value::from(0)), "{sealed}");
    assert_eq!((&seal(&fs, &[])["changed"]), &Value::from(0), "once more is nothing new");
    assert!(ok(weft().arg("stat").arg(fs.at("/set/large"))).contains("sealed:"));

    let refuses = |mnt: &Path| {
        let (dir, file) = (mnt.join("set"), mnt.join("set/inner/0"));
        let all = [
            errno(fs::write(&file, b"other")),
            errno(OpenOptions::new().append(true).open(&file)),
            errno(OpenOptions::new().read(true).write(true).open(&file)),
            errno(File::options().write(true).truncate(true).open(dir.join("large"))),
            errno(fs::remove_file(&file)),
            errno(fs::remove_file(dir.join("link"))),
            errno(fs::rename(&file, mnt.join("away"))),
            errno(fs::rename(&dir, mnt.join("elsewhere"))),
            errno(fs::write(dir.join("new"), b"")),
            errno(fs::write(dir.join("split/new"), b"")),
            errno(fs::create_dir(dir.join("split/new"))),
            errno(fs::hard_link(&file, mnt.join("more"))),
            errno(fs::set_permissions(&file, PermissionsExt::from_mode(0o600))),
            errno(fs::set_permissions(dir.join("split"), PermissionsExt::from_mode(0o700))),
            errno(File::open(&file).unwrap().set_times(FileTimes::new().set_modified(SystemTime::now()))),
            errno(setxattr(&file, "user.a", b"b", XattrFlags::empty()).map_err(std::io::Error::from)),
            errno(fs::remove_dir_all(dir.join("inner"))),
        ];
        assert_eq!(all, [Some(EPERM); 17]);
        assert_eq!(fs::read(&file).unwrap(), [0; 3_901]);
    };
    refuses(&a);
    refuses(&b);
    let words = fails(weft().args(["rm", "-r"]).arg(fs.at("/set")));
    let line = words.lines().find(|line| line.contains("is sealed")).unwrap_or_else(|| panic!("{words}"));
    assert!(line.contains(":/set: ") && line.matches("is sealed").count() == 1, "it is said once: {line}");
    fs.down();
    fs.start_mounted(&[]);
    refuses(&a);

    assert_eq!(seal(&fs, &["--undo"])["changed"], FILES + 6);
    fs::write(a.join("set/inner/0"), b"other").unwrap();
    fs::write(a.join("set/split/new"), b"").unwrap();
    fs::remove_dir_all(a.join("set")).unwrap();
}

#[test]
fn promise_a_dataset_is_read_again_without_a_message() {
    if !available("promise_a_dataset_is_read_again_without_a_message", &[Need::Fuse]) {
        return;
    }
    let fs = up();
    let files = make_tree(&fs.mnt());
    seal(&fs, &[]);
    let data = fs.mount("data", "dataset");
    // From the sealed directory on: the root above it is not sealed, and the kernel asks for it
    // again when what it was told is too old.
    let set = File::open(data.join("set")).expect("it is there");
    let root = PathBuf::from(format!("/proc/self/fd/{}", set.as_raw_fd()));
    let mine: Vec<PathBuf> = files.iter().map(|file| root.join(file.strip_prefix(fs.mnt().join("set")).unwrap())).collect();
    // A file with its attributes; names and contents are those that the other mount has written.
    let look = || -> Vec<(u64, Vec<u8>)> {
        mine.iter().map(|file| (fs::metadata(file).expect("it is there").ino(), fs::read(file).expect("it is sealed"))).collect()
    };
    let first = look();
    for (file, (_, content)) in files.iter().zip(&first) {
        assert!(*content == fs::read(file).unwrap(), "{}", file.display());
    }
    // Nothing that the kernel asks for, and so no message either. Commands of other tests look at
    // all mounts of the machine: one time of three nobody did.
    let trace = |words: &[&str]| ok(weft().arg("trace").arg(words[0]).arg(fs.state()).args(&words[1..]).arg("--json"));
    let records = |time: usize| {
        let folder = fs.path(&format!("traces{time}"));
        trace(&["on", "--mask", "fuse.*", "--nodes", "mount-data*", "--dir", folder.to_str().unwrap()]);
        assert!(look() == first);
        let report: Value = serde_json::from_str(&trace(&["off"])).expect("JSON");
        let node = report["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "mount-data").expect("it is recorded");
        node["records"].as_u64().expect("a number")
    };
    let records: Vec<u64> = (0..3).map(records).collect();
    assert!(records.contains(&0), "{records:?}");

    // The mount hears of listings: the kernel opens directories. It does not list them again.
    let listed = |dir: &str| fs::read_dir(data.join(dir)).unwrap().count();
    assert_eq!((listed("set"), listed("set/inner"), listed("set/split")), (6, FILES / 2, FILES / 2));
    let before = fs.answered();
    assert_eq!((listed("set"), listed("set/inner"), listed("set/split")), (6, FILES / 2, FILES / 2));
    assert_eq!(fs.answered_of(&["ReadDir"]), before.get("ReadDir").copied().unwrap_or(0), "listings are kept");

    // A file in pieces, from the middle, and behind its end.
    let mut large = File::open(data.join("set/large")).unwrap();
    let mut piece = vec![0; 100_000];
    std::io::Seek::seek(&mut large, std::io::SeekFrom::Start((3 << 20) - 50_000)).unwrap();
    assert_eq!((large.read(&mut piece).unwrap(), large.read(&mut piece).unwrap()), (50_000, 0));
}

#[test]
fn a_mount_of_a_dataset_changes_nothing_and_reads_only_what_is_sealed() {
    if !available("a_mount_of_a_dataset_changes_nothing", &[Need::Fuse]) {
        return;
    }
    let fs = up();
    make_tree(&fs.mnt());
    fs::write(fs.mnt().join("loose"), b"it may change").unwrap();
    seal(&fs, &[]);
    let data = fs.mount("data", "dataset");
    assert_eq!(errno(fs::read(data.join("loose"))), Some(EPERM));
    assert_eq!(errno(fs::write(data.join("new"), b"")), Some(EROFS));
    assert_eq!(errno(fs::write(data.join("set/large"), b"")), Some(EROFS));
    assert_eq!(fs::read(data.join("set/inner/0")).unwrap(), [0; 3_901]);
    fs::create_dir(fs.path("mnt2")).unwrap();
    let words = fails(weft().arg("mount").arg(fs.state()).arg(fs.path("mnt2")).args(["-o", "dataset,rw"]));
    assert!(words.contains("read-only"), "{words}");
    // A restart of the servers is not noticed.
    for server in ["meta0", "meta1", "data0", "data1"] {
        fs.kill(server);
    }
    fs.start(&[]);
    assert_eq!(fs::read(data.join("set/inner/2")).unwrap(), [2; 3_901]);
}

#[test]
fn what_is_being_written_is_named_and_left() {
    if !available("what_is_being_written_is_named", &[Need::Fuse]) {
        return;
    }
    let fs = up();
    make_tree(&fs.mnt());
    let mut open = OpenOptions::new().append(true).open(fs.mnt().join("set/inner/0")).unwrap();
    open.write_all(b"more").unwrap();
    let finished = run(weft().arg("seal").arg(fs.at("/set")), std::time::Duration::from_secs(60));
    assert!(!finished.is_success() && finished.words().contains("/set/inner/0"), "{}", finished.words());
    assert!(finished.words().contains("open for writing"), "{}", finished.words());
    open.write_all(b"and more").expect("it is not sealed");
    drop(open);
    assert_eq!(seal(&fs, &[])["changed"], 1, "the rest is sealed already");
}

/// A kernel that is told that it may write, after the mount was made (`mount -o remount,rw`), is
/// refused all the same: what such a mount keeps would not be true any more.
#[test]
fn a_mount_of_a_dataset_stays_read_only() {
    if !available("a_mount_of_a_dataset_stays_read_only", &[Need::Fuse, Need::Root]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    fs::create_dir(fs.mnt().join("set")).unwrap();
    fs::write(fs.mnt().join("set/file"), "text").unwrap();
    fs::write(fs.mnt().join("other"), "text").unwrap();
    ok(weft().arg("seal").arg(fs.at("/set")));
    let data = fs.mount("data", "dataset");
    rustix::mount::mount_remount(&data, MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME, c"").unwrap();
    let in_data = |name: &str| data.join(name);
    let outcomes = [
        fs::create_dir(in_data("dir")),
        fs::remove_file(in_data("other")),
        fs::rename(in_data("other"), in_data("moved")),
        fs::hard_link(in_data("other"), in_data("link")),
        symlink("other", in_data("symlink")),
        fs::set_permissions(in_data("other"), fs::Permissions::from_mode(0o600)),
        fs::write(in_data("new"), "text"),
        fs::write(in_data("set/file"), "more"),
        setxattr(in_data("other"), "user.name", b"value", XattrFlags::empty()).map_err(std::io::Error::from),
    ];
    for (number, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(outcome.map_err(|error| error.raw_os_error()), Err(Some(EROFS)), "change {number}");
    }
    let mut names: Vec<_> = fs::read_dir(fs.mnt()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["other", "set"]);
    assert_eq!(fs::read_to_string(in_data("set/file")).unwrap(), "text");
    fs.down();
}
