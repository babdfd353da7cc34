//! Directory hints and files without a metafile (Kuhn 2007) as programs see them: on two mounts,
//! after renames and restarts.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use serde_json::Value;
use weft_system_tests::{FileSystem, Need, as_user, available, fails, ok, run, weft};

fn set(path: &Path, name: &str, value: &str) -> rustix::io::Result<()> {
    setxattr(path, name, value.as_bytes(), XattrFlags::empty())
}

fn get(path: &Path, name: &str) -> rustix::io::Result<String> {
    let mut value = [0; 100];
    let len = getxattr(path, name, &mut value[..])?;
    Ok(String::from_utf8(value[..len].to_vec()).expect("text"))
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

/// Stripe size and number of datafiles.
fn layout(fs: &FileSystem, path: &str) -> (u64, usize) {
    let stat: Value = serde_json::from_str(&ok(weft().args(["stat", "--json"]).arg(fs.at(path)))).expect("JSON");
    let row = if stat.is_array() { stat[0].clone() } else { stat };
    (row["stripe_bytes"].as_u64().expect("a size"), row["data_servers"].as_array().expect("names").len())
}

/// A mount again over everything that the servers have written down.
fn restart(fs: &FileSystem) {
    fs.down();
    fs.start_mounted(&["-o", "cache_ms=0"]);
}

#[test]
fn promise_directory_hints() {
    if !available("promise_directory_hints", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "4", "-o", "cache_ms=0"]);
    let (a, b) = (fs.mnt(), fs.mount("second", "cache_ms=0"));
    fs::create_dir(a.join("d")).unwrap();
    set(&a.join("d"), "user.pvfs2.num_dfiles", "2").unwrap();
    ok(weft().args(["hint", "set", "stripe_size", "64KiB"]).arg(fs.at("/d")));
    // Directories below lie on both metadata servers; all of them inherit, through any mount.
    for number in 0..8 {
        fs::create_dir(b.join(format!("d/{number}"))).unwrap();
        fs::write(b.join(format!("d/{number}/file")), b"x").unwrap();
        assert_eq!(layout(&fs, &format!("/d/{number}/file")), (65536, 2));
        assert_eq!(get(&a.join(format!("d/{number}")), "user.pvfs2.stripe_size"), Ok("65536".into()));
    }
    for (name, value) in [("user.weft.stripe_size", "nonsense"), ("user.pvfs2.num_dfiles", "0"), ("user.weft.unheard_of", "1")] {
        assert_eq!(set(&a.join("d"), name, value), Err(Errno::INVAL), "{name}={value}");
    }
    let log = |server: &str| fs::read_to_string(fs.state().join(format!("run/{server}.log"))).unwrap_or_default();
    let logs = log("meta0") + &log("meta1");
    assert!(logs.contains("stripe_size is a power of two from 4096 to 67108864"), "the server's log names the values: {logs}");
    let words = fails(weft().args(["hint", "set", "num_dfiles", "none"]).arg(fs.at("/d")));
    assert!(words.contains("num_dfiles is a number from 1 to 4096"), "{words}");
    let words = fails(weft().args(["xattr", "set", "user.pvfs2.dist_name", "twodee"]).arg(fs.at("/d")));
    assert!(words.contains("hint user.pvfs2.dist_name"), "{words}");

    fs::rename(a.join("d"), a.join("e")).unwrap();
    restart(&fs);
    fs::write(a.join("e/later"), b"x").unwrap();
    assert_eq!(layout(&fs, "/e/later"), (65536, 2), "after a rename and a restart");
    let shown: Value = serde_json::from_str(&ok(weft().args(["hint", "show", "--json"]).arg(fs.at("/e")))).expect("JSON");
    assert_eq!((&shown["hints"]["num_dfiles"], &shown["stripe_bytes"]), (&"2".into(), &65536.into()));
    ok(weft().args(["hint", "clear"]).arg(fs.at("/e")).arg("num_dfiles"));
    fs::write(a.join("e/wide"), b"x").unwrap();
    assert_eq!(layout(&fs, "/e/wide"), (65536, 4));
    ok(weft().args(["hint", "clear"]).arg(fs.at("/e")));
    let mut names = [0; 100];
    assert_eq!(listxattr(a.join("e"), &mut names[..]), Ok(0));
}

#[test]
fn files_that_are_copied_lie_beside_their_inodes() {
    if !available("files_that_are_copied_lie_beside_their_inodes", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2"]);
    let dir = fs.mnt().join("d");
    fs::create_dir(&dir).unwrap();
    ok(weft().args(["hint", "set", "inline_limit", "8192"]).arg(fs.at("/d")));
    let source = fs.state().join("source");
    fs::create_dir(&source).unwrap();
    let content = |number: usize| vec![number as u8; 700 * number];
    (0..20).for_each(|number| fs::write(source.join(number.to_string()), content(number)).unwrap());
    ok(weft().args(["cp", "-r"]).arg(&source).arg(fs.at("/d")));
    let dir = dir.join("source");
    for number in 0..20 {
        let file = dir.join(number.to_string());
        assert_eq!(fs::read(&file).unwrap(), content(number), "{number}");
        assert_eq!(fs::metadata(&file).unwrap().blocks(), (700 * number as u64).div_ceil(4096) * 8);
    }
    // Written through a mount, one is a file as any other.
    OpenOptions::new().append(true).open(dir.join("3")).unwrap().write_all(b"more").unwrap();
    fs::rename(dir.join("4"), dir.join("5")).unwrap();
    fs.down();
    let told = ok(weft().arg("inspect").arg(fs.state()));
    assert!(told.contains("contents beside inodes: "), "{told}");
    fs.start_mounted(&[]);
    assert_eq!(fs::read(dir.join("3")).unwrap(), [content(3), b"more".to_vec()].concat());
    assert_eq!((fs::read(dir.join("5")).unwrap(), fs::read(dir.join("11")).unwrap()), (content(4), content(11)));
}

/// Owner, group, mode, link count, times.
fn faked(path: &Path) -> bool {
    let seen = fs::metadata(path).expect("the file is there");
    (seen.uid(), seen.gid(), seen.mode() & 0o7777, seen.nlink()) == (0, 0, 0o666, 1)
        && (seen.atime(), seen.mtime(), seen.ctime(), seen.mtime_nsec()) == (0, 0, 0, 0)
}

#[test]
fn promise_no_metafile() {
    if !available("promise_no_metafile", &[Need::Fuse, Need::Root]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "4", "-o", "cache_ms=0"]);
    let (a, b) = (fs.mnt(), fs.mount("second", "cache_ms=0"));
    let (dir, other) = (a.join("d"), b.join("d"));
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    set(&dir, "user.pvfs2.no_metafile", "1").unwrap();
    fs::create_dir(other.join("below")).unwrap();

    // Made by a plain user with a mode of his own; seen from the other mount while it is written.
    as_user(12345, &[12345], || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.join("file")).unwrap();
        file.write_all(&vec![7; 200_000]).unwrap();
        assert!(faked(&dir.join("file")), "while it is written");
        fs::write(dir.join("file2"), b"two").unwrap();
    });
    let mut writing = OpenOptions::new().append(true).open(dir.join("file")).unwrap();
    writing.write_all(b"more").unwrap();
    assert!(faked(&other.join("file")), "from another mount, while it is written");
    assert_eq!(fs::metadata(other.join("file")).unwrap().len(), 200_004, "the size is exact");
    drop(writing);
    assert_eq!(layout(&fs, "/d/file").1, 1, "one datafile");
    fs::write(dir.join("below/file"), b"x").unwrap();
    assert!(faked(&other.join("below/file")), "inherited");
    // Everybody reads and writes it, behind the permissions of the directory.
    as_user(54321, &[54321], || fs::write(dir.join("file2"), b"three").unwrap());
    assert_eq!(fs::read(other.join("file2")).unwrap(), b"three");

    let file = dir.join("file2");
    let not_supported = Some(Errno::OPNOTSUPP.raw_os_error());
    assert_eq!(errno(fs::set_permissions(&file, Permissions::from_mode(0o600))), not_supported);
    assert_eq!(errno(chown(&file, Some(12345), None)), not_supported);
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    assert_eq!(errno(File::options().write(true).open(&file).unwrap().set_modified(time)), not_supported);
    assert_eq!(set(&file, "user.color", "blue"), Err(Errno::OPNOTSUPP));
    assert_eq!(errno(fs::hard_link(&file, dir.join("second"))), Some(Errno::PERM.raw_os_error()));
    assert!(run(std::process::Command::new("touch").arg(&file), Duration::from_secs(30)).is_success(), "touch is a write");
    File::options().write(true).open(&file).unwrap().set_len(2).unwrap();
    assert_eq!(fs::read(other.join("file2")).unwrap(), b"th");
    assert!(faked(&file), "after all that was refused");

    fs::rename(dir.join("file"), a.join("moved")).unwrap();
    restart(&fs);
    assert!(faked(&a.join("moved")), "renamed, after a restart");
    assert!(faked(&dir.join("file2")) && faked(&dir.join("below/file")), "after a restart");
    set(&dir, "user.weft.no_metafile", "0").unwrap();
    fs::write(dir.join("ordinary"), b"x").unwrap();
    assert!(fs::metadata(dir.join("ordinary")).unwrap().mtime() > 0, "0 is off");
    assert!(faked(&dir.join("file2")), "a file that is there stays as it is");
    removexattr(&dir, "user.pvfs2.no_metafile").unwrap();
    fs::remove_dir_all(&dir).unwrap();
    fs::remove_file(a.join("moved")).unwrap();
}

/// The bytes of a file from `offset` on: each tells its place.
fn pattern(offset: usize, len: usize) -> Vec<u8> {
    (offset..offset + len).map(|at| (at * 31 + at / 4096) as u8).collect()
}

#[test]
fn promise_varstrip() {
    if !available("promise_varstrip", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "3", "-o", "cache_ms=0"]);
    let (a, b) = (fs.mnt(), fs.mount("second", "cache_ms=0"));
    let strips = "strips:0:4K;2:20K;1:8K;0:12K";
    ok(weft().args(["mkdir", "--dist", "varstrip", "--dist-params", strips]).arg(fs.at("/d")));
    let shown = ok(weft().args(["hint", "show"]).arg(fs.at("/d")));
    assert!(shown.contains("new files: strips:0:4096;2:20480;1:8192;0:12288"), "{shown}");
    fs::create_dir(b.join("d/below")).unwrap();
    let path = "d/below/file";
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(a.join(path)).unwrap();
    file.write_all(&pattern(0, 300_000)).unwrap();
    assert_eq!(fs::metadata(b.join(path)).unwrap().len(), 300_000, "the size, while it is open for writing elsewhere");
    assert_eq!(fs::read(b.join(path)).unwrap(), pattern(0, 300_000));
    // A hole, a cut in the middle of a strip, and what was cut off reads as zeros.
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", 999_999).unwrap();
    file.set_len(123_456).unwrap();
    file.set_len(200_000).unwrap();
    drop(file);
    let expected = [pattern(0, 123_456), vec![0; 200_000 - 123_456]].concat();
    assert_eq!(fs::read(b.join(path)).unwrap(), expected);
    let servers = |path: &str| -> Value {
        let stat: Value = serde_json::from_str(&ok(weft().args(["stat", "--json"]).arg(fs.at(path)))).expect("JSON");
        serde_json::json!([stat[0]["strips"], stat[0]["data_servers"]])
    };
    let canonical = "strips:0:4096;2:20480;1:8192;0:12288";
    assert_eq!(servers("/d/below/file"), serde_json::json!([canonical, ["data0", "data1", "data2"]]));
    restart(&fs);
    assert_eq!(fs::read(a.join(path)).unwrap(), expected, "after a restart");
    // Copies keep bytes, not layouts; a copy may say its own, and so may a create.
    let source = fs.at("/d/below/file");
    ok(weft().arg("cp").arg(&source).arg(fs.at("/copy")));
    ok(weft().args(["cp", "--dist-params", "strips:0:64K;1:4K"]).arg(&source).arg(fs.at("/own")));
    ok(weft().args(["cp", "--dist", "simple_stripe"]).arg(&source).arg(fs.at("/d/plain")));
    ok(weft().args(["create", "--num-dfiles", "1"]).arg(fs.at("/d/empty")));
    for name in ["copy", "own", "d/plain"] {
        assert_eq!(fs::read(a.join(name)).unwrap(), expected, "{name}");
    }
    assert_eq!(servers("/own")[0], "strips:0:65536;1:4096");
    assert_eq!((servers("/copy")[0].clone(), servers("/d/plain")[0].clone()), (Value::Null, Value::Null));
    assert_eq!(layout(&fs, "/d/empty").1, 1);
    let words = fails(weft().args(["create", "--dist-params", "strips:0:64K;1:4K;2:4K;3:4K"]).arg(fs.at("/x")));
    assert!(words.contains("name 4 datafiles") && words.contains("has 3 data servers"), "{words}");
    let words = fails(weft().args(["create", "--dist", "varstrip"]).arg(fs.at("/x")));
    assert!(words.contains("needs --dist-params"), "{words}");
    assert_eq!(set(&a.join("d"), "user.pvfs2.dist_name", "simple_stripe"), Err(Errno::INVAL), "its parameters are strips");
}
