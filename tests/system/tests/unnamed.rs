//! `O_TMPFILE` through a mount: files that nobody sees until they get a name.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, XattrFlags, linkat, setxattr};
use rustix::io::Errno;
use weft_system_tests::{FileSystem, Need, available, wait_until};

/// `O_TMPFILE` with `O_DIRECTORY`, as `open` takes it.
const O_TMPFILE: i32 = 0o20_200_000;
const O_EXCL: i32 = 0o200;

fn unnamed(dir: &Path, more: i32) -> File {
    OpenOptions::new().read(true).write(true).mode(0o640).custom_flags(O_TMPFILE | more).open(dir).expect("a file without a name")
}

fn publish(file: &File, to: &Path) -> Result<(), Errno> {
    linkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), CWD, to, AtFlags::SYMLINK_FOLLOW)
}

/// Inodes and datafiles of all servers.
fn objects(fs: &FileSystem) -> (u64, u64) {
    (fs.total("meta", "objects"), fs.total("data", "objects"))
}

#[test]
fn promise_unnamed_files() {
    if !available("promise_unnamed_files", &[Need::Fuse, Need::Kernel(6, 1)]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2"]);
    let (mnt, other) = (fs.mnt(), fs.mount("second", ""));
    setxattr(&mnt, "user.weft.presplit", b"2", XattrFlags::empty()).unwrap();
    let dir = mnt.join("split");
    fs::create_dir(&dir).unwrap();
    let before = objects(&fs);
    for place in [&mnt, &dir] {
        let mut file = unnamed(place, 0);
        file.write_all(&[7; 300_000]).unwrap();
        file.rewind().unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert!(read == [7; 300_000]);
        let meta = file.metadata().unwrap();
        assert_eq!((meta.nlink(), meta.size(), meta.permissions().mode() & 0o7777), (0, 300_000, 0o640));
        let listed = |at: &Path| fs::read_dir(at).unwrap().filter(|entry| entry.as_ref().unwrap().file_name() != "split").count();
        assert_eq!((listed(place), listed(&other)), (0, 0), "nobody sees it");

        // Temporary files are made with few rights and get their own before they get a name.
        file.set_permissions(fs::Permissions::from_mode(0o604)).unwrap();
        let name = place.join("published");
        publish(&file, &name).unwrap();
        assert_eq!(fs::metadata(&name).unwrap().permissions().mode() & 0o7777, 0o604);
        assert_eq!(publish(&file, &name), Err(Errno::EXIST));
        let theirs = other.join(name.strip_prefix(&mnt).unwrap());
        assert!(fs::read(&theirs).unwrap() == [7; 300_000]);
        assert_eq!(fs::metadata(&theirs).unwrap().nlink(), 1);
        fs::remove_file(&theirs).unwrap();
        assert_eq!(publish(&file, &name), Err(Errno::NOENT), "what had a name gets none again");
    }
    // What never gets a name goes with its last descriptor. (That of a mount that is killed goes as
    // what was removed while it was open: `kill.rs`.)
    let gone = unnamed(&dir, O_EXCL);
    (&gone).write_all(b"for nobody").unwrap();
    assert!(publish(&gone, &mnt.join("never")).is_err());
    drop(gone);
    wait_until("files without names to go", Duration::from_secs(60), || objects(&fs) == before);
}

/// The open of a file without a name is told again to a server that restarts.
#[test]
fn a_file_without_a_name_outlives_a_restart_of_its_server() {
    if !available("a_file_without_a_name_outlives_a_restart", &[Need::Fuse, Need::Kernel(6, 1)]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let mut file = unnamed(&fs.mnt(), 0);
    file.write_all(b"before").unwrap();
    fs.kill("meta0");
    fs.start(&[]);
    file.write_all(b" and after").unwrap();
    publish(&file, &fs.mnt().join("published")).unwrap();
    drop(file);
    assert_eq!(fs::read(fs.mnt().join("published")).unwrap(), b"before and after");
}
