//! `fallocate` through mounts: space reserved, zeroed and given back.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use weft_system_tests::{FileSystem, Mapping, Need, as_user, available, ok, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;
const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("it can be opened")
}

fn used(fs: &FileSystem) -> u64 {
    fs.total("data", "used_bytes")
}

#[test]
fn promise_holes_give_space_back() {
    if !available("promise_holes_give_space_back", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "3", "--stripe-size", "64KiB"]);
    let other = fs.mount("other", "");
    let (path, seen) = (fs.mnt().join("file"), other.join("file"));
    let content: Vec<u8> = (0..8u32 << 20).map(|n| (n / 1000 % 255 + 1) as u8).collect();
    fs::write(&path, &content).unwrap();
    let file = open(&path);
    // Pages of it are in the caches of both mounts.
    assert!(fs::read(&path).unwrap() == content && fs::read(&seen).unwrap() == content);
    let (before, time) = (used(&fs), fs::metadata(&path).unwrap().modified().unwrap());
    let (from, len) = (100_001, 6_000_000);
    fallocate(&file, PUNCH, from as u64, len as u64).unwrap();
    let mut expected = content.clone();
    expected[from..from + len].fill(0);
    assert!(fs::read(&path).unwrap() == expected, "own pages are those of before");
    let mut direct = vec![1; content.len()];
    file.read_exact_at(&mut direct, 0).unwrap();
    assert!(direct == expected);
    assert!(fs::metadata(&path).unwrap().modified().unwrap() > time, "it is a change");
    drop(file);
    assert!(fs::read(&seen).unwrap() == expected, "another mount shows what was before");
    let freed = before - used(&fs);
    assert!((len as u64 - 4 * 4096..=len as u64).contains(&freed), "{freed} bytes are free of {len}");
    fs.kill("data1");
    fs.start(&[]);
    assert!(fs::read(&seen).unwrap() == expected, "a server brings it back");
    // All of it, and far beyond; the size stays.
    let file = open(&path);
    fallocate(&file, PUNCH, 0, i64::MAX as u64).unwrap();
    assert_eq!((file.metadata().unwrap().len(), used(&fs)), (content.len() as u64, 0));
    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn promise_reserved_space_is_there() {
    if !available("promise_reserved_space_is_there", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::prepare();
    let dir = fs.server_dir("data0");
    fs::create_dir_all(&dir).unwrap();
    ok(Command::new("mount").args(["-t", "tmpfs", "-o", "size=300m,mode=0700", "weft-test"]).arg(&dir));
    fs.start_mounted(&["--data", "1"]);
    let reserved = open(&fs.mnt().join("reserved"));
    fallocate(&reserved, FallocateFlags::empty(), 0, 32 << 20).unwrap();
    assert_eq!((reserved.metadata().unwrap().len(), used(&fs)), (32 << 20, 32 << 20));
    // What cannot fit is refused at once, and changes nothing.
    let large = open(&fs.mnt().join("large"));
    assert_eq!(fallocate(&large, FallocateFlags::empty(), 0, 1 << 40), Err(Errno::NOSPC));
    assert_eq!(large.metadata().unwrap().len(), 0);
    // The rest is taken, down to what the journal keeps for itself.
    let mut taken = 0;
    for step in [16 << 20, 1 << 20, 64 << 10, 4 << 10] {
        while fallocate(&large, FallocateFlags::empty(), taken, step) == Ok(()) {
            taken += step;
        }
    }
    assert!(taken > 64 << 20, "{taken}");
    assert_eq!(large.write_at(b"x", 1 << 30).unwrap_err().raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    let bytes = vec![7; 1 << 20];
    for piece in 0..32 {
        reserved.write_all_at(&bytes, piece << 20).unwrap();
    }
    reserved.sync_all().unwrap();
    // A hole is made on a full disk, and makes room.
    fallocate(&large, PUNCH, 0, taken).unwrap();
    wait_until("the space is there", PATIENCE, || large.write_at(b"x", 1 << 30).is_ok());
    drop((reserved, large));
    ok(Command::new("umount").arg("-l").arg(&dir));
}

#[test]
fn ranges_and_modes_are_those_of_other_file_systems() {
    if !available("ranges_and_modes_are_those_of_other_file_systems", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "2", "--stripe-size", "4KiB"]);
    let path = fs.mnt().join("file");
    let file = open(&path);
    file.write_all_at(b"begin", 0).unwrap();
    let size = || file.metadata().unwrap().len();
    for mode in [FallocateFlags::empty(), PUNCH, ZERO, ZERO | KEEP] {
        assert_eq!(fallocate(&file, mode, 0, 0), Err(Errno::INVAL), "{mode:?}");
        assert_eq!(fallocate(&file, mode, i64::MAX as u64, 1), Err(Errno::FBIG), "{mode:?}");
        assert_eq!(fallocate(&file, mode, u64::MAX, 1), Err(Errno::INVAL), "{mode:?}");
        assert_eq!(fallocate(File::open(&path).unwrap(), mode, 0, 1), Err(Errno::BADF), "{mode:?}");
        assert_eq!(fallocate(File::open(fs.mnt()).unwrap(), mode, 0, 1), Err(Errno::BADF), "{mode:?}");
    }
    assert_eq!(fallocate(&file, FallocateFlags::PUNCH_HOLE, 0, 1), Err(Errno::OPNOTSUPP), "without keeping the size");
    assert_eq!(size(), 5);
    fallocate(&file, KEEP, 0, 5).unwrap();
    fallocate(&file, ZERO | KEEP, 2, 1 << 40).unwrap();
    assert_eq!((size(), fs::read(&path).unwrap()), (5, b"be\0\0\0".to_vec()));
    fallocate(&file, ZERO, 1, 9999).unwrap();
    assert_eq!(size(), 10_000);
    fallocate(&file, FallocateFlags::empty(), 20_000, 1).unwrap();
    assert_eq!((size(), fs::read(&path).unwrap()), (20_001, [&b"b"[..], &[0; 20_000]].concat()));
    // The end of a descriptor that appends is where the reservation ends.
    let mut append = OpenOptions::new().append(true).open(&path).unwrap();
    fallocate(&append, FallocateFlags::empty(), 0, 30_000).unwrap();
    std::io::Write::write_all(&mut append, b"more").unwrap();
    assert_eq!(size(), 30_004);
}

#[test]
fn a_hole_changes_times_and_set_id_bits_as_a_write_does() {
    if !available("a_hole_changes_times_and_set_id_bits_as_a_write_does", &[Need::Fuse, Need::Root]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "2"]);
    let path = fs.mnt().join("file");
    for mode in [FallocateFlags::empty(), PUNCH, ZERO] {
        fs::write(&path, [7; 10_000]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        let before = fs::metadata(&path).unwrap();
        as_user(1000, &[1000], || fallocate(open(&path), mode, 0, 20_000)).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(after.mode() & 0o7777, 0o777, "{mode:?}");
        assert!((after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec()), "{mode:?}");
    }
    // Also where no data server has anything.
    let sparse = open(&fs.mnt().join("sparse"));
    sparse.set_len(1 << 40).unwrap();
    let before = sparse.metadata().unwrap().modified().unwrap();
    fallocate(&sparse, PUNCH, 1 << 20, 1 << 39).unwrap();
    assert!(sparse.metadata().unwrap().modified().unwrap() > before);
}

#[test]
fn promise_holes_are_found() {
    if !available("promise_holes_are_found", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "3", "--stripe-size", "4KiB"]);
    let other = fs.mount("other", "");
    let path = fs.mnt().join("file");
    let mut model = vec![false; 100_000];
    let written = [(0, 10), (4000, 200), (12_288, 4096), (20_000, 30_000), (99_990, 10)];
    let writer = OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
    for (offset, len) in written {
        writer.write_all_at(&vec![7; len], offset as u64).unwrap();
        model[offset..offset + len].fill(true);
    }
    fallocate(&writer, PUNCH, 30_000, 9000).unwrap();
    model[30_000..39_000].fill(false);
    fallocate(&writer, FallocateFlags::empty(), 60_000, 500).unwrap();
    model[60_000..60_500].fill(true);
    writer.set_len(110_000).unwrap();
    model.resize(110_000, false);
    let check = |file: &File, what: &str| {
        for at in (0..model.len()).step_by(997).chain([9, 10, 3999, 4200, 12_287, 29_999, 39_000, 99_999]) {
            let next = |is_data| (at..model.len()).find(|byte| model[*byte] == is_data).map(|byte| byte as u64);
            assert_eq!(seek(file, SeekFrom::Data(at as u64)), next(true).ok_or(Errno::NXIO), "{what}: data from {at}");
            assert_eq!(seek(file, SeekFrom::Hole(at as u64)), Ok(next(false).unwrap_or(model.len() as u64)), "{what}: hole from {at}");
        }
        for past in [model.len() as u64, i64::MAX as u64] {
            assert_eq!(seek(file, SeekFrom::Data(past)), Err(Errno::NXIO));
            assert_eq!(seek(file, SeekFrom::Hole(past)), Err(Errno::NXIO));
        }
    };
    check(&writer, "who writes");
    drop(writer);
    check(&File::open(&path).unwrap(), "who reads");
    check(&File::open(other.join("file")).unwrap(), "another mount");
    // What is in a mapping, and not at its servers yet, must not be taken for a hole.
    let mapped = open(&path);
    let reader = File::open(&path).unwrap();
    let mapping = Mapping::shared(&mapped, model.len(), true).unwrap();
    mapping.write(70_000, b"late");
    drop(mapped);
    assert_eq!(seek(&reader, SeekFrom::Data(61_000)), Ok(61_000));
    mapping.sync().unwrap();
    drop(mapping);
    wait_until("nobody may change it", PATIENCE, || seek(&reader, SeekFrom::Data(61_000)) != Ok(61_000));
    let data = seek(&reader, SeekFrom::Data(61_000)).unwrap();
    assert!((65_536..=70_000).contains(&data), "{data}");
}

/// A reservation for which there is no room may have made the file longer: its mount shows the size
/// that others see.
#[test]
fn a_reservation_that_fails_shows_what_it_has_left() {
    if !available("a_reservation_that_fails_shows_what_it_has_left", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "1", "--capacity", "40MiB", "-o", "cache_ms=3600000"]);
    let leased = fs.mount("leased", "");
    for (mnt, other) in [(fs.mnt(), &leased), (leased.clone(), &fs.mnt())] {
        let path = mnt.join("file");
        fs::write(&path, [1; 20_000]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 20_000);
        let file = open(&path);
        assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 60 << 20), Err(Errno::NOSPC));
        let read = fs::read(&path).unwrap().len() as u64;
        let shown = [file.metadata().unwrap().len(), fs::metadata(&path).unwrap().len(), fs::metadata(other.join("file")).unwrap().len()];
        assert!(read > 20_000 && shown == [read; 3], "{read} bytes are read, {shown:?} are shown");
        drop(file);
        fs::remove_file(&path).unwrap();
        wait_until("its space", PATIENCE, || used(&fs) == 0);
    }
}
