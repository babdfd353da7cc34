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
