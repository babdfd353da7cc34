//! What POSIX and Linux ask of a file system, call by call: results, errors, modes, owners and
//! times. Every check runs in a directory of its own, on a mount;
//! `the_table_holds_on_a_local_file_system` runs the same on the disk of the machine, to keep the
//! table honest.

mod permissions;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags, chownat,
    getxattr, linkat, listxattr, lsetxattr, mkdir, mkfifoat, mknodat, open, removexattr, rename, renameat_with, rmdir, setxattr, statvfs,
    unlink, utimensat,
};
use rustix::io::{Errno, Result};
use weft_system_tests::{FileSystem, Need, as_user, available};

/// A check: runs in an empty directory of its own, owned by root, mode 0755.
type Check = fn(&Path);

const USER: u32 = 12345;
const OTHER: u32 = 12346;
const GROUP: u32 = 23456;

fn chmod(path: &Path, mode: u32) -> Result<()> {
    rustix::fs::chmod(path, Mode::from_raw_mode(mode))
}

fn chown(path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    chownat(CWD, path, uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::SYMLINK_NOFOLLOW)
}

fn make(path: &Path, mode: u32) -> Result<()> {
    open(path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, Mode::from_raw_mode(mode)).map(drop)
}

fn opened(path: &Path, flags: OFlags) -> Result<()> {
    open(path, flags, Mode::from_raw_mode(0o644)).map(drop)
}

fn truncate(path: &Path, size: u64) -> Result<()> {
    rustix::fs::ftruncate(open(path, OFlags::WRONLY, Mode::empty())?, size)
}

fn dir(path: &Path) -> Result<()> {
    mkdir(path, Mode::from_raw_mode(0o755))
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Owner and group.
fn owner(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

fn nlink(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().nlink()
}

/// Times of a change: (data, inode), in nanoseconds.
fn changed(path: &Path) -> (i128, i128) {
    let meta = fs::symlink_metadata(path).unwrap();
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    (nanos(meta.mtime(), meta.mtime_nsec()), nanos(meta.ctime(), meta.ctime_nsec()))
}

/// A moment that every clock of a file system can tell from the next one.
fn a_moment() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

/// Checks what of (data, inode) times `action` changes.
#[track_caller]
fn assert_times(path: &Path, data: bool, inode: bool, action: impl FnOnce()) {
    let before = changed(path);
    a_moment();
    action();
    let after = changed(path);
    assert_eq!((after.0 > before.0, after.1 > before.1), (data, inode), "{}: mtime, ctime changed", path.display());
}

const CHECKS: &[(&str, Check)] = &[
    ("open_and_create", |at| {
        let file = at.join("file");
        assert_eq!(opened(&file, OFlags::RDONLY), Err(Errno::NOENT));
        make(&file, 0o640).unwrap();
        assert_eq!(make(&file, 0o640), Err(Errno::EXIST));
        assert_eq!(opened(&file, OFlags::RDONLY | OFlags::DIRECTORY), Err(Errno::NOTDIR));
        assert_eq!(opened(at, OFlags::WRONLY), Err(Errno::ISDIR));
        assert_eq!(opened(&file.join("below"), OFlags::RDONLY), Err(Errno::NOTDIR));
        assert_eq!(opened(&at.join("missing/file"), OFlags::CREATE | OFlags::RDWR), Err(Errno::NOENT));
        assert_eq!(opened(&at.join("x".repeat(255)), OFlags::CREATE | OFlags::RDWR), Ok(()));
        assert_eq!(opened(&at.join("x".repeat(256)), OFlags::CREATE | OFlags::RDWR), Err(Errno::NAMETOOLONG));
        symlink("file", at.join("link")).unwrap();
        assert_eq!(opened(&at.join("link"), OFlags::RDONLY | OFlags::NOFOLLOW), Err(Errno::LOOP));
        assert_eq!(make(&at.join("link"), 0o600), Err(Errno::EXIST));
        symlink("nowhere", at.join("dangling")).unwrap();
        assert_eq!(make(&at.join("dangling"), 0o600), Err(Errno::EXIST));
        opened(&at.join("dangling"), OFlags::CREATE | OFlags::WRONLY).unwrap();
        assert!(at.join("nowhere").exists());
        fs::write(&file, "content").unwrap();
        opened(&file, OFlags::WRONLY | OFlags::TRUNC).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().len(), 0);
    }),
    ("umask_and_modes", |at| {
        let file = at.join("file");
        for bits in [0o000, 0o111, 0o444, 0o751, 0o777] {
            make(&file, 0o600).unwrap();
            chmod(&file, bits).unwrap();
            assert_eq!(mode(&file), bits);
            unlink(&file).unwrap();
        }
        make(&file, 0o7777 & !0o6000).unwrap();
        assert_eq!(mode(&file) & !0o022, 0o1755 & !0o022, "nothing beyond the umask is cut");
        mkdir(at.join("dir"), Mode::from_raw_mode(0o700)).unwrap();
        assert_eq!(mode(&at.join("dir")), 0o700);
    }),
    ("unlink_errors", |at| {
        dir(&at.join("dir")).unwrap();
        make(&at.join("file"), 0o644).unwrap();
        assert_eq!(unlink(at.join("missing")), Err(Errno::NOENT));
        assert_eq!(unlink(at.join("dir")), Err(Errno::ISDIR));
        assert_eq!(unlink(at.join("file/below")), Err(Errno::NOTDIR));
        assert_eq!(unlink(at.join("x".repeat(256))), Err(Errno::NAMETOOLONG));
        unlink(at.join("file")).unwrap();
        assert_eq!(unlink(at.join("file")), Err(Errno::NOENT));
        assert_eq!(fs::remove_file(at.join("file/")).unwrap_err().raw_os_error(), Some(Errno::NOENT.raw_os_error()));
    }),
    ("directories", |at| {
        let one = at.join("one");
        dir(&one).unwrap();
        assert_eq!(dir(&one), Err(Errno::EXIST));
        assert_eq!(dir(&at.join("missing/dir")), Err(Errno::NOENT));
        make(&one.join("file"), 0o644).unwrap();
        assert_eq!(dir(&one.join("file")), Err(Errno::EXIST));
        assert_eq!(dir(&one.join("file/dir")), Err(Errno::NOTDIR));
        assert_eq!(rmdir(&one), Err(Errno::NOTEMPTY));
        assert_eq!(rmdir(one.join("file")), Err(Errno::NOTDIR));
        assert_eq!(rmdir(at.join("missing")), Err(Errno::NOENT));
        assert_eq!(rmdir(one.join(".")), Err(Errno::INVAL));
        unlink(one.join("file")).unwrap();
        let links = nlink(at);
        dir(&one.join("sub")).unwrap();
        assert_eq!((nlink(&one), nlink(at)), (3, links), "a directory counts its subdirectories");
        rmdir(one.join("sub")).unwrap();
        assert_eq!(nlink(&one), 2);
        rmdir(&one).unwrap();
        assert_eq!(nlink(at), links - 1);
        assert_eq!(fs::read_dir(at).unwrap().count(), 0);
    }),
    ("a_removed_directory_takes_no_entries", |at| {
        let gone = at.join("gone");
        dir(&gone).unwrap();
        let held = open(&gone, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        rmdir(&gone).unwrap();
        let created = rustix::fs::openat(&held, "file", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o644)).map(drop);
        assert_eq!(created, Err(Errno::NOENT));
        assert_eq!(rustix::fs::mkdirat(&held, "dir", Mode::from_raw_mode(0o755)), Err(Errno::NOENT));
    }),
    ("links", |at| {
        let (a, b) = (at.join("a"), at.join("b"));
        fs::write(&a, "content").unwrap();
        assert_times(&a, false, true, || fs::hard_link(&a, &b).unwrap());
        assert_eq!((nlink(&a), fs::metadata(&a).unwrap().ino()), (2, fs::metadata(&b).unwrap().ino()));
        let link = |from: &Path, to: &Path| linkat(CWD, from, CWD, to, AtFlags::empty());
        assert_eq!(link(&a, &b), Err(Errno::EXIST));
        assert_eq!(link(&at.join("missing"), &at.join("c")), Err(Errno::NOENT));
        dir(&at.join("dir")).unwrap();
        assert_eq!(link(&at.join("dir"), &at.join("c")), Err(Errno::PERM));
        assert_eq!(link(&a, &at.join("missing/c")), Err(Errno::NOENT));
        // Into another directory, and away with the first name.
        link(&a, &at.join("dir/c")).unwrap();
        assert_times(&a, false, true, || unlink(&b).unwrap());
        unlink(&a).unwrap();
        assert_eq!((fs::read(at.join("dir/c")).unwrap(), nlink(&at.join("dir/c"))), (b"content".to_vec(), 1));
        symlink("dir/c", at.join("symlink")).unwrap();
        link(&at.join("symlink"), &at.join("second")).unwrap();
        assert!(fs::symlink_metadata(at.join("second")).unwrap().is_symlink());
        assert_eq!(nlink(&at.join("symlink")), 2);
    }),
    ("symlinks", |at| {
        for target in ["plain", "/absolute", "../up", "with space\nand newline", &"x".repeat(4095)] {
            let link = at.join("link");
            symlink(target, &link).unwrap();
            assert_eq!(fs::read_link(&link).unwrap().as_os_str(), target);
            let meta = fs::symlink_metadata(&link).unwrap();
            assert_eq!((meta.len(), meta.mode() & 0o7777), (target.len() as u64, 0o777));
            fs::remove_file(&link).unwrap();
        }
        let (a, b) = (at.join("a"), at.join("b"));
        symlink("b", &a).unwrap();
        symlink("a", &b).unwrap();
        assert_eq!(opened(&a, OFlags::RDONLY), Err(Errno::LOOP));
        make(&at.join("file"), 0o644).unwrap();
        assert_eq!(fs::read_link(at.join("file")).unwrap_err().raw_os_error(), Some(Errno::INVAL.raw_os_error()));
        assert_eq!(rustix::fs::symlink("x", at.join("file")), Err(Errno::EXIST));
        dir(&at.join("dir")).unwrap();
        symlink("dir", at.join("to-dir")).unwrap();
        assert_eq!(rmdir(at.join("to-dir")), Err(Errno::NOTDIR));
        make(&at.join("to-dir/inside"), 0o644).unwrap();
        assert!(at.join("dir/inside").exists());
    }),
    ("rename_of_files", |at| {
        let (a, b) = (at.join("a"), at.join("b"));
        fs::write(&a, "a").unwrap();
        let inode = fs::metadata(&a).unwrap().ino();
        rename(&a, &b).unwrap();
        assert_eq!((a.exists(), fs::metadata(&b).unwrap().ino()), (false, inode));
        fs::write(&a, "new").unwrap();
        let held = File::open(&b).unwrap();
        rename(&a, &b).unwrap();
        assert_eq!(fs::read(&b).unwrap(), b"new");
        assert_eq!(held.metadata().unwrap().nlink(), 0, "the replaced file lives while it is open");
        assert_eq!(rename(&a, &b), Err(Errno::NOENT));
        dir(&at.join("dir")).unwrap();
        assert_eq!(rename(&b, at.join("dir")), Err(Errno::ISDIR));
        assert_eq!(rename(at.join("dir"), &b), Err(Errno::NOTDIR));
        assert_eq!(rename(&b, b.join("below")), Err(Errno::NOTDIR));
        assert_eq!(rename(&b, at.join("missing/b")), Err(Errno::NOENT));
        assert_eq!(rename(&b, at.join("x".repeat(256))), Err(Errno::NAMETOOLONG));
        // Both names of one file: nothing happens.
        fs::hard_link(&b, &a).unwrap();
        rename(&a, &b).unwrap();
        assert!(a.exists() && b.exists());
        rename(&b, &b).unwrap();
        assert_eq!(nlink(&b), 2);
    }),
    ("rename_of_directories", |at| {
        let (a, b) = (at.join("a"), at.join("b"));
        dir(&a).unwrap();
        dir(&b).unwrap();
        make(&a.join("file"), 0o644).unwrap();
        rename(&a, &b).unwrap();
        assert!(b.join("file").exists() && !a.exists(), "an empty directory is replaced");
        dir(&a).unwrap();
        assert_eq!(rename(&a, &b), Err(Errno::NOTEMPTY));
        rename(&b, a.join("inside")).unwrap();
        assert_eq!((nlink(&a), a.join("inside/file").exists()), (3, true));
        assert_eq!(rename(&a, a.join("inside/deeper")), Err(Errno::INVAL), "not below itself");
        assert_eq!(rename(&a, a.join("itself")), Err(Errno::INVAL));
        assert_eq!(rename(a.join("inside"), &a), Err(Errno::NOTEMPTY), "not over its parent");
        assert_eq!(fs::canonicalize(a.join("inside/..")).unwrap(), fs::canonicalize(&a).unwrap());
        dir(&at.join("other")).unwrap();
        rename(a.join("inside"), at.join("other/moved")).unwrap();
        assert_eq!(fs::canonicalize(at.join("other/moved/..")).unwrap(), fs::canonicalize(at.join("other")).unwrap());
        assert_eq!((nlink(&a), nlink(&at.join("other"))), (2, 3));
    }),
    ("rename_flags", |at| {
        let (a, b) = (at.join("a"), at.join("b"));
        fs::write(&a, "a").unwrap();
        fs::write(&b, "b").unwrap();
        let with = |from: &Path, to: &Path, flags| renameat_with(CWD, from, CWD, to, flags);
        assert_eq!(with(&a, &b, RenameFlags::NOREPLACE), Err(Errno::EXIST));
        with(&a, &at.join("c"), RenameFlags::NOREPLACE).unwrap();
        with(&at.join("c"), &a, RenameFlags::NOREPLACE).unwrap();
        with(&a, &b, RenameFlags::EXCHANGE).unwrap();
        assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (b"b".to_vec(), b"a".to_vec()));
        assert_eq!(with(&a, &at.join("missing"), RenameFlags::EXCHANGE), Err(Errno::NOENT));
        // A file and a directory with content, in different directories.
        for name in ["dir", "place"] {
            dir(&at.join(name)).unwrap();
        }
        make(&at.join("dir/inside"), 0o644).unwrap();
        rename(&a, at.join("place/a")).unwrap();
        with(&at.join("dir"), &at.join("place/a"), RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read(at.join("dir")).unwrap(), b"b");
        assert!(at.join("place/a/inside").exists());
        assert_eq!(nlink(&at.join("place")), 3);
    }),
    ("truncate", |at| {
        let file = at.join("file");
        fs::write(&file, "0123456789").unwrap();
        assert_times(&file, true, true, || truncate(&file, 4).unwrap());
        assert_eq!(fs::read(&file).unwrap(), b"0123");
        truncate(&file, 8).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"0123\0\0\0\0");
        assert_eq!(truncate(at, 0), Err(Errno::ISDIR));
        assert_eq!(truncate(&at.join("missing"), 0), Err(Errno::NOENT));
        truncate(&file, 5 << 30).unwrap();
        let sparse = File::open(&file).unwrap();
        let mut bytes = [1; 8];
        sparse.read_exact_at(&mut bytes, (5 << 30) - 8).unwrap();
        assert_eq!((bytes, fs::metadata(&file).unwrap().len()), ([0; 8], 5 << 30));
        assert_eq!(rustix::fs::ftruncate(&sparse, 0), Err(Errno::INVAL), "not opened for writing");
    }),
    ("reads_and_writes", |at| {
        let path = at.join("file");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(b"end", 1_000_000).unwrap();
        let mut bytes = [7; 6];
        assert_eq!(file.read_at(&mut bytes, 999_997).unwrap(), 6);
        assert_eq!(&bytes, b"\0\0\0end");
        assert_eq!(file.read_at(&mut bytes, 1_000_003).unwrap(), 0);
        assert_eq!(file.read_at(&mut bytes, 1 << 40).unwrap(), 0);
        assert_times(&path, true, true, || file.write_all_at(b"x", 0).unwrap());
        assert_times(&path, false, false, || assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 6));
        let reader = File::open(&path).unwrap();
        assert_eq!(reader.write_at(b"x", 0).unwrap_err().raw_os_error(), Some(Errno::BADF.raw_os_error()));
        let mut append = OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut append, b"more").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1_000_007);
        // Two descriptors that append in turn.
        let mut second = OpenOptions::new().append(true).open(&path).unwrap();
        for round in 0..10 {
            std::io::Write::write_all(if round % 2 == 0 { &mut append } else { &mut second }, &[round]).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap()[1_000_007..], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        drop(File::open(at).unwrap().read_at(&mut bytes, 0).unwrap_err());
    }),
    ("times", |at| {
        let file = at.join("file");
        fs::write(&file, "x").unwrap();
        let set = |atime: Timespec, mtime: Timespec| {
            utimensat(CWD, &file, &Timestamps { last_access: atime, last_modification: mtime }, AtFlags::empty())
        };
        let at_time = |tv_sec: i64, tv_nsec: i64| Timespec { tv_sec, tv_nsec: tv_nsec as _ };
        for (seconds, nanos) in [(0, 1), (1_700_000_000, 123_456_789), (-1_000, 999_999_999), (5_000_000_000, 5)] {
            set(at_time(seconds, nanos), at_time(seconds + 1, nanos)).unwrap();
            let meta = fs::metadata(&file).unwrap();
            assert_eq!((meta.atime(), meta.atime_nsec(), meta.mtime(), meta.mtime_nsec()), (seconds, nanos, seconds + 1, nanos));
        }
        set(at_time(77, 0), at_time(0, UTIME_OMIT)).unwrap();
        let meta = fs::metadata(&file).unwrap();
        assert_eq!((meta.atime(), meta.mtime()), (77, 5_000_000_001));
        a_moment();
        set(at_time(0, UTIME_OMIT), at_time(0, UTIME_NOW)).unwrap();
        let meta = fs::metadata(&file).unwrap();
        assert!(meta.atime() == 77 && meta.mtime() > 1_700_000_000 && meta.mtime() < 5_000_000_000);
        let link = at.join("link");
        symlink("file", &link).unwrap();
        let times = Timestamps { last_access: at_time(5, 0), last_modification: at_time(6, 0) };
        utimensat(CWD, &link, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        assert_eq!(fs::symlink_metadata(&link).unwrap().mtime(), 6);
        assert!(fs::metadata(&file).unwrap().mtime() != 6);
    }),
    ("what_changes_which_time", |at| {
        let file = at.join("file");
        assert_times(at, true, true, || make(&file, 0o644).unwrap());
        assert_times(&file, false, true, || chmod(&file, 0o600).unwrap());
        assert_times(&file, false, true, || chown(&file, Some(USER), None).unwrap());
        assert_times(&file, false, true, || setxattr(&file, "user.x", b"1", XattrFlags::empty()).unwrap());
        assert_times(at, false, false, || fs::write(&file, "data").unwrap());
        assert_times(at, true, true, || rename(&file, at.join("new")).unwrap());
        let before = changed(&at.join("new"));
        a_moment();
        rename(at.join("new"), &file).unwrap();
        let after = changed(&file);
        assert!(after.0 == before.0 && after.1 > before.1, "a renamed file has a new ctime");
        assert_times(at, true, true, || dir(&at.join("dir")).unwrap());
        let sub = at.join("dir");
        assert_times(&sub, true, true, || rename(&file, sub.join("file")).unwrap());
        assert_times(&sub, true, true, || unlink(sub.join("file")).unwrap());
        assert_times(at, true, true, || rmdir(&sub).unwrap());
        assert_times(at, true, true, || symlink("x", at.join("link")).unwrap());
        assert_times(at, false, false, || assert_eq!(fs::read_dir(at).unwrap().count(), 1));
    }),
    ("extended_attributes", |at| {
        let file = at.join("file");
        make(&file, 0o644).unwrap();
        let get = |name: &str| {
            let mut value = vec![0; 65536];
            getxattr(&file, name, &mut value[..]).map(|len| value[..len].to_vec())
        };
        assert_eq!(get("user.x"), Err(Errno::NODATA));
        setxattr(&file, "user.x", b"one", XattrFlags::CREATE).unwrap();
        assert_eq!(setxattr(&file, "user.x", b"two", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(setxattr(&file, "user.y", b"two", XattrFlags::REPLACE), Err(Errno::NODATA));
        setxattr(&file, "user.x", b"two", XattrFlags::REPLACE).unwrap();
        setxattr(&file, "user.empty", b"", XattrFlags::empty()).unwrap();
        assert_eq!((get("user.x"), get("user.empty")), (Ok(b"two".to_vec()), Ok(vec![])));
        let mut small = [0; 2];
        assert_eq!(getxattr(&file, "user.x", &mut small[..]), Err(Errno::RANGE));
        let mut names = vec![0; 1000];
        let len = listxattr(&file, &mut names[..]).unwrap();
        let mut listed: Vec<_> = names[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")).collect();
        listed.sort();
        assert_eq!(listed, [&b"user.empty"[..], b"user.x"]);
        assert_eq!(listxattr(&file, &mut small[..]), Err(Errno::RANGE));
        removexattr(&file, "user.x").unwrap();
        assert_eq!(removexattr(&file, "user.x"), Err(Errno::NODATA));
        assert_eq!(setxattr(&file, format!("user.{}", "x".repeat(251)), b"", XattrFlags::empty()), Err(Errno::RANGE));
        symlink("file", at.join("link")).unwrap();
        assert_eq!(lsetxattr(at.join("link"), "user.x", b"", XattrFlags::empty()), Err(Errno::PERM));
        dir(&at.join("dir")).unwrap();
        setxattr(at.join("dir"), "user.dir", b"value", XattrFlags::empty()).unwrap();
        // They go with the file.
        rename(&file, at.join("dir/file")).unwrap();
        let mut value = [9; 4];
        assert_eq!(getxattr(at.join("dir/file"), "user.empty", &mut value[..]), Ok(0));
    }),
    ("special_files", |at| {
        mkfifoat(CWD, at.join("pipe"), Mode::from_raw_mode(0o640)).unwrap();
        let meta = fs::metadata(at.join("pipe")).unwrap();
        assert_eq!((FileType::from_raw_mode(meta.mode()), meta.mode() & 0o777), (FileType::Fifo, 0o640));
        mknodat(CWD, at.join("device"), FileType::CharacterDevice, Mode::from_raw_mode(0o600), rustix::fs::makedev(1, 3)).unwrap();
        let meta = fs::metadata(at.join("device")).unwrap();
        assert_eq!((FileType::from_raw_mode(meta.mode()), meta.rdev()), (FileType::CharacterDevice, rustix::fs::makedev(1, 3)));
        let socket = std::os::unix::net::UnixListener::bind(at.join("s")).unwrap();
        assert!(FileType::from_raw_mode(fs::metadata(at.join("s")).unwrap().mode()) == FileType::Socket);
        drop(std::os::unix::net::UnixStream::connect(at.join("s")).unwrap());
        drop(socket);
        let (pipe, writer) = (at.join("pipe"), at.join("pipe"));
        let thread = std::thread::spawn(move || fs::write(writer, "through the pipe"));
        assert_eq!(fs::read(pipe).unwrap(), b"through the pipe");
        thread.join().unwrap().unwrap();
        let stat = statvfs(at).unwrap();
        assert!(stat.f_blocks > 0 && stat.f_namemax == 255);
    }),
    ("readdir_types_and_dots", |at| {
        dir(&at.join("dir")).unwrap();
        make(&at.join("file"), 0o644).unwrap();
        symlink("x", at.join("link")).unwrap();
        let listing = rustix::fs::Dir::read_from(open(at, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()).unwrap();
        let found: BTreeMap<String, (FileType, u64)> = listing
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), (entry.file_type(), entry.ino())))
            .collect();
        assert_eq!(found.keys().collect::<Vec<_>>(), [".", "..", "dir", "file", "link"]);
        for (name, kind) in
            [(".", FileType::Directory), ("dir", FileType::Directory), ("file", FileType::RegularFile), ("link", FileType::Symlink)]
        {
            assert_eq!(found[name], (kind, fs::symlink_metadata(at.join(name)).unwrap().ino()), "{name}");
        }
    }),
    ("deep_paths", |at| {
        let mut path = at.to_path_buf();
        for depth in 0..60 {
            path = path.join(format!("{depth:040}"));
            dir(&path).unwrap();
        }
        fs::write(path.join("file"), "deep").unwrap();
        assert_eq!(fs::read(path.join("file")).unwrap(), b"deep");
        let long = at.join("x/".repeat(2100));
        assert_eq!(opened(&long, OFlags::RDONLY), Err(Errno::NAMETOOLONG));
        fs::remove_dir_all(at.join(format!("{:040}", 0))).unwrap();
    }),
    ("locks_among_processes_of_one_mount", |at| {
        let path = at.join("file");
        let (a, b) = (File::create(&path).unwrap(), File::open(&path).unwrap());
        a.lock().unwrap();
        assert!(b.try_lock_shared().is_err());
        a.unlock().unwrap();
        b.lock_shared().unwrap();
        assert!(a.try_lock().is_err());
    }),
];

/// Runs every check; tells all that fail, not only the first.
fn run_all(root: &Path) {
    let mut failed = Vec::new();
    let checks = || CHECKS.iter().chain(permissions::CHECKS);
    for (name, check) in checks() {
        let at = root.join(name);
        fs::create_dir(&at).unwrap();
        fs::set_permissions(&at, Permissions::from_mode(0o755)).unwrap();
        if std::panic::catch_unwind(|| check(&at)).is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "{} of {} checks failed: {failed:?}", failed.len(), checks().count());
}

#[test]
fn posix_table() {
    if !available("posix_table", &[Need::Fuse, Need::Root]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2"]);
    // Other users must be able to reach the mount.
    fs::set_permissions(fs.path(""), Permissions::from_mode(0o755)).unwrap();
    run_all(&fs.mnt());
}

#[test]
#[ignore = "checks the table, not Weft"]
fn the_table_holds_on_a_local_file_system() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    run_all(dir.path());
}
