//! Which space files take, as programs see it (`st_blocks`), and when they were made (`statx`).

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use weft_system_tests::{FileSystem, Need, available, ok};

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
const MIB: u64 = 1 << 20;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("it can be opened")
}

/// What both mounts say of a file, in bytes: they say the same.
#[track_caller]
fn allocated(paths: &[&Path; 2]) -> u64 {
    let [here, there] = paths.map(|path| fs::metadata(path).expect("it is there").blocks() * 512);
    assert_eq!(here, there, "both mounts say the same of {}", paths[0].display());
    here
}

#[test]
fn promise_blocks_are_those_of_the_data_servers() {
    if !available("promise_blocks_are_those_of_the_data_servers", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "3", "--stripe-size", "64KiB"]);
    let other = fs.mount("other", "");
    let (path, seen) = (fs.mnt().join("file"), other.join("file"));
    let both = [path.as_path(), seen.as_path()];
    let used = || fs.total("data", "used_bytes");

    fs::write(&path, vec![1; 10_000]).unwrap();
    assert_eq!((allocated(&both), used()), (12_288, 12_288), "whole blocks");
    // Longer without data, then data with a gap before it, while it is open and afterwards.
    let file = open(&path);
    file.set_len(300 * MIB).unwrap();
    assert_eq!(allocated(&both), 12_288);
    file.write_all_at(&vec![2; MIB as usize], 100 * MIB).unwrap();
    assert_eq!((allocated(&both), used()), (12_288 + MIB, 12_288 + MIB));
    file.write_all_at(&vec![2; MIB as usize], 400 * MIB + 1).unwrap();
    let blocks_of_both = 2 * MIB + 4096;
    assert_eq!(allocated(&both), 12_288 + blocks_of_both);
    file.sync_all().unwrap();
    assert_eq!(allocated(&both), 12_288 + blocks_of_both);
    drop(file);
    assert_eq!(allocated(&both), 12_288 + blocks_of_both);
    // A hole, a hole that is filled in part, and two ways to cut holes off.
    let file = open(&path);
    fallocate(&file, PUNCH, 100 * MIB, MIB / 2).unwrap();
    drop(file);
    assert_eq!(allocated(&both), 12_288 + blocks_of_both - MIB / 2);
    open(&path).write_all_at(&[3; 8192], 100 * MIB).unwrap();
    assert_eq!(allocated(&both), 12_288 + blocks_of_both - MIB / 2 + 8192);
    open(&path).set_len(100 * MIB + 4096).unwrap();
    assert_eq!((allocated(&both), used()), (12_288 + 4096, 12_288 + 4096), "by a descriptor");
    ok(Command::new("truncate").args(["-s", "50M"]).arg(&path));
    assert_eq!((allocated(&both), used()), (12_288, 12_288), "by its path");
    // Full again: through one mount and the other.
    fs::write(&path, vec![4; 5 * MIB as usize]).unwrap();
    assert_eq!((allocated(&both), used()), (5 * MIB, 5 * MIB));
    open(&path).write_all_at(b"x", 9 * MIB - 1).unwrap();
    assert_eq!(allocated(&both), 5 * MIB + 4096);
    open(&seen).write_all_at(&vec![5; 4 * MIB as usize], 5 * MIB).unwrap();
    assert_eq!((allocated(&both), used()), (9 * MIB, 9 * MIB));
    // Programs go by it.
    let (sparse, copy) = (fs.mnt().join("sparse"), fs.path("copy"));
    open(&sparse).write_all_at(b"end", 200 * MIB).unwrap();
    ok(Command::new("cp").arg("--sparse=auto").arg(&sparse).arg(&copy));
    assert!(fs::metadata(&copy).unwrap().blocks() * 512 < MIB, "cp has looked for holes");
    let said = ok(Command::new("du").args(["-k", "-s"]).arg(&sparse));
    assert_eq!(said.split_whitespace().next(), Some("4"), "{said}");
    // All servers come back with what they have said.
    let before = allocated(&both);
    fs.kill("meta0");
    fs.start(&[]);
    assert_eq!(allocated(&both), before);
    assert_eq!(fs::metadata(&sparse).unwrap().blocks() * 512, 4096);
}

#[test]
fn blocks_of_a_file_whose_writer_was_lost_are_counted() {
    if !available("blocks_of_a_file_whose_writer_was_lost_are_counted", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "2", "--stripe-size", "64KiB"]);
    let lost = fs.mount("lost", "");
    let path = fs.mnt().join("file");
    // Past all caches, so that it is at data servers, and its metadata server does not know.
    let direct =
        OpenOptions::new().write(true).create(true).truncate(false).custom_flags(OFlags::DIRECT.bits() as i32).open(lost.join("file"));
    let file = direct.expect("it can be made");
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.write_all_at(&[1; 4096], 10 * MIB).unwrap();
    fs.kill_mount(&lost);
    assert_eq!(fs::metadata(&path).unwrap().blocks() * 512, 8192, "its data servers are asked");
    drop(file);
}

/// When an object was made, in nanoseconds since 1970, through one mount.
fn born(path: &Path) -> i128 {
    let stat = rustix::fs::statx(
        rustix::fs::CWD,
        path,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        rustix::fs::StatxFlags::BTIME | rustix::fs::StatxFlags::BASIC_STATS,
    )
    .expect("it is there");
    assert!(stat.stx_mask & rustix::fs::StatxFlags::BTIME.bits() != 0, "{} has a time of birth", path.display());
    i128::from(stat.stx_btime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_btime.tv_nsec)
}

#[test]
fn promise_time_of_birth() {
    if !available("promise_time_of_birth", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2"]);
    let other = fs.mount("other", "");
    let dir = fs.mnt().join("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "content").unwrap();
    std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
    let names = ["", "file", "link"];
    let before: Vec<i128> = names.iter().map(|name| born(&dir.join(name))).collect();
    assert!(before.windows(2).all(|pair| pair[0] <= pair[1]), "{before:?}");
    // Nothing that happens to them later changes it.
    std::thread::sleep(Duration::from_millis(20));
    fs::write(dir.join("file"), "other content").unwrap();
    ok(Command::new("touch").args(["-d", "1999-01-01"]).arg(dir.join("file")));
    ok(Command::new("chmod").arg("600").arg(dir.join("file")));
    ok(Command::new("ln").arg(dir.join("file")).arg(fs.mnt().join("second")));
    fs::rename(&dir, fs.mnt().join("moved")).unwrap();
    for server in ["meta0", "meta1"] {
        fs.kill(server);
    }
    fs.start(&[]);
    for mount in [fs.mnt(), other] {
        let after: Vec<i128> = names.iter().map(|name| born(&mount.join("moved").join(name))).collect();
        assert_eq!(after, before, "through {}", mount.display());
        assert_eq!(born(&mount.join("second")), before[1]);
    }
    fs::write(fs.mnt().join("file"), "new").unwrap();
    assert!(born(&fs.mnt().join("file")) > before[2]);
}
