//! What programs on one and on several mounts see of each other.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_system_tests::{FileSystem, Mapping, Need, Random, available, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

/// Two mounts that keep nothing.
fn two_mounts() -> (FileSystem, std::path::PathBuf, std::path::PathBuf) {
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "3", "--stripe-size", "64KiB", "-o", "cache_ms=0"]);
    let (first, second) = (fs.mnt(), fs.mount("second", "cache_ms=0"));
    (fs, first, second)
}

#[test]
fn promise_two_mounts() {
    if !available("promise_two_mounts", &[Need::Fuse]) {
        return;
    }
    let (fs, a, b) = two_mounts();
    for round in 0..20 {
        let (a, b) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let name = format!("file{round}");
        assert!(fs::metadata(b.join(&name)).is_err(), "a name that is not there yet is not remembered");
        fs::write(a.join(&name), b"one").unwrap();
        assert_eq!(fs::read(b.join(&name)).unwrap(), b"one");
        fs::write(b.join(&name), b"two, longer").unwrap();
        assert_eq!(fs::read(a.join(&name)).unwrap(), b"two, longer");
        fs::rename(a.join(&name), a.join("renamed")).unwrap();
        assert!(fs::metadata(b.join(&name)).is_err());
        assert_eq!(fs::metadata(b.join("renamed")).unwrap().len(), 11);
        fs::set_permissions(b.join("renamed"), std::os::unix::fs::PermissionsExt::from_mode(0o604)).unwrap();
        assert_eq!(fs::metadata(a.join("renamed")).unwrap().mode() & 0o7777, 0o604);
        fs::create_dir(b.join("dir")).unwrap();
        fs::rename(a.join("renamed"), a.join("dir/inside")).unwrap();
        assert_eq!(names(&b.join("dir")), ["inside"]);
        fs::remove_file(b.join("dir/inside")).unwrap();
        assert_eq!(names(&a.join("dir")), [""; 0]);
        fs::remove_dir(a.join("dir")).unwrap();
        assert!(fs::metadata(b.join("dir")).is_err());
    }

    // With the default, a second is the bound, and whoever opens sees the newest at once.
    let c = fs.mount("third", "");
    fs::write(a.join("shared"), b"old").unwrap();
    assert_eq!(fs::read(c.join("shared")).unwrap(), b"old");
    fs::write(a.join("shared"), b"newer").unwrap();
    assert_eq!(fs::read(c.join("shared")).unwrap(), b"newer", "an open after the change");
    assert_eq!(fs::metadata(c.join("shared")).unwrap().len(), 5);
    fs::remove_file(a.join("shared")).unwrap();
    wait_until("the end of a remembered name", PATIENCE, || fs::metadata(c.join("shared")).is_err());
    fs::write(c.join("own"), b"x").unwrap();
    assert_eq!(fs::metadata(c.join("own")).unwrap().len(), 1, "own changes at once");
    fs::remove_file(c.join("own")).unwrap();
    assert!(fs::metadata(c.join("own")).is_err());
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn promise_write_is_visible() {
    if !available("promise_write_is_visible", &[Need::Fuse]) {
        return;
    }
    let (_fs, a, b) = two_mounts();
    let writer = OpenOptions::new().read(true).write(true).create_new(true).open(a.join("file")).unwrap();
    // Open for writing too: reads bypass the page cache of the second mount.
    let reader = OpenOptions::new().read(true).write(true).open(b.join("file")).unwrap();
    let mut random = Random::new(11);
    for round in 0..500 {
        let (offset, len) = (random.below(300_000), 1 + random.below(90_000) as usize);
        let bytes = random.bytes(len);
        let (from, to) = if round % 3 == 0 { (&reader, &writer) } else { (&writer, &reader) };
        from.write_all_at(&bytes, offset).unwrap();
        let mut seen = vec![0; len];
        to.read_exact_at(&mut seen, offset).unwrap();
        assert!(seen == bytes, "round {round}: {len} bytes at {offset} are not seen by the other mount");
    }
}

#[test]
fn promise_exact_size() {
    if !available("promise_exact_size", &[Need::Fuse]) {
        return;
    }
    let (_fs, a, b) = two_mounts();
    let path = b.join("growing");
    let mut writer = File::create_new(a.join("growing")).unwrap();
    let mut random = Random::new(3);
    let mut size = 0;
    for _ in 0..200 {
        let piece = random.bytes(1 + random.clone().below(50_000) as usize);
        writer.write_all(&piece).unwrap();
        size += piece.len() as u64;
        assert_eq!(fs::metadata(&path).unwrap().len(), size, "while the writer has it open");
    }
    // Far behind the end: a hole.
    writer.seek(SeekFrom::Current(10_000_000)).unwrap();
    writer.write_all(b"end").unwrap();
    size += 10_000_003;
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    let cut = OpenOptions::new().write(true).open(&path).unwrap();
    cut.set_len(size - 5_000_000).unwrap();
    assert_eq!(writer.metadata().unwrap().len(), size - 5_000_000, "the writer sees the cut of the other mount");
    writer.write_all_at(b"x", size).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), size + 1);
    drop((writer, cut));
    assert_eq!(fs::metadata(&path).unwrap().len(), size + 1);

    // A writer at full speed: the size that is seen never goes back and never lies behind what was
    // acknowledged.
    let (done, end) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::create_new(a.join("fast")).unwrap();
            for _ in 0..300 {
                file.write_all(&[5; 40_000]).unwrap();
                end.fetch_add(40_000, Ordering::SeqCst);
            }
            done.store(true, Ordering::SeqCst);
        });
        wait_until("the file", PATIENCE, || b.join("fast").exists());
        let mut last = 0;
        while !done.load(Ordering::SeqCst) {
            let acknowledged = end.load(Ordering::SeqCst);
            let seen = fs::metadata(b.join("fast")).unwrap().len();
            assert!(seen >= acknowledged && seen >= last, "size {seen} after {acknowledged} acknowledged bytes, {last} seen before");
            last = seen;
        }
    });
    assert_eq!(fs::metadata(b.join("fast")).unwrap().len(), 300 * 40_000);
}

#[test]
fn promise_unlinked_files_live() {
    if !available("promise_unlinked_files_live", &[Need::Fuse]) {
        return;
    }
    let (fs, a, b) = two_mounts();
    fs::create_dir(a.join("dir")).unwrap();
    let path = a.join("dir/file");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(&vec![3; 1_000_000]).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(names(&a.join("dir")), [""; 0], "no hidden names");
    fs::remove_dir(a.join("dir")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all(b"more").unwrap();
    file.set_len(2_000_000).unwrap();
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    assert!(bytes.len() == 2_000_000 && bytes[..1_000_000].iter().all(|byte| *byte == 3) && &bytes[1_000_000..1_000_004] == b"more");
    assert!(fs.total("data", "objects") > 0);
    drop(file);
    wait_until("the end of the unlinked file", PATIENCE, || fs.total("data", "objects") == 0 && fs.total("meta", "objects") == 1);

    // Removed, and replaced by rename, on the other mount; a restart of all servers in between.
    let mut files = Vec::new();
    for name in ["removed", "replaced"] {
        fs::write(a.join(name), name.repeat(50_000)).unwrap();
        files.push((File::open(a.join(name)).unwrap(), name));
    }
    fs::write(b.join("new"), "new").unwrap();
    fs::remove_file(b.join("removed")).unwrap();
    fs::rename(b.join("new"), b.join("replaced")).unwrap();
    for server in ["meta0", "meta1", "data0", "data1", "data2"] {
        fs.kill(server);
    }
    fs.start(&[]);
    for (mut file, name) in files {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert!(text == name.repeat(50_000), "{name}: {} bytes", text.len());
    }
    assert_eq!(fs::read(a.join("replaced")).unwrap(), b"new");
    fs::remove_file(a.join("replaced")).unwrap();
    wait_until("the end of the other files", PATIENCE, || fs.total("data", "objects") == 0 && fs.total("meta", "objects") == 1);
}

#[test]
fn promise_mmap() {
    if !available("promise_mmap", &[Need::Fuse]) {
        return;
    }
    let (_fs, a, b) = two_mounts();
    let path = a.join("mapped");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(500_000).unwrap();
    let mapping = Mapping::shared(&file, 500_000, true).unwrap();
    assert!(mapping.read(0, 500_000).iter().all(|byte| *byte == 0));
    mapping.write(123_456, b"through the mapping");
    mapping.sync().unwrap();
    let seen = |path: &Path| {
        let mut bytes = [0; 19];
        File::open(path).unwrap().read_exact_at(&mut bytes, 123_456).unwrap();
        bytes
    };
    assert_eq!(&seen(&path), b"through the mapping");
    assert_eq!(&seen(&b.join("mapped")), b"through the mapping", "after msync on the other mount");
    // The other mount changes it; a new mapping of a new open shows it.
    OpenOptions::new().write(true).open(b.join("mapped")).unwrap().write_all_at(b"through the write..", 123_456).unwrap();
    let again = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut bytes = [0; 19];
    again.read_exact_at(&mut bytes, 123_456).unwrap();
    assert_eq!(&bytes, b"through the write..");
    drop(mapping);
    let mapping = Mapping::shared(&again, 500_000, false).unwrap();
    assert_eq!(mapping.read(123_456, 19), b"through the write..");
    // Two mappings of one mount are the same memory.
    let (one, two) = (Mapping::shared(&again, 500_000, true).unwrap(), Mapping::shared(&file, 500_000, true).unwrap());
    one.write(400_000, b"shared");
    assert_eq!(two.read(400_000, 6), b"shared");
    // Read-only, through the page cache.
    let reader = File::open(b.join("mapped")).unwrap();
    let mapping = Mapping::shared(&reader, 500_000, false).unwrap();
    assert_eq!(mapping.read(123_456, 19), b"through the write..");
}

#[test]
fn promise_fsync_is_asked_at_every_server() {
    if !available("promise_fsync_is_asked_at_every_server", &[Need::Fuse]) {
        return;
    }
    // With a server down, fsync cannot promise anything and must not return success.
    let fs = FileSystem::mounted(&["--data", "2", "--stripe-size", "64KiB", "--timeout", "2"]);
    let mut file = File::create_new(fs.mnt().join("file")).unwrap();
    file.write_all(&vec![1; 200_000]).unwrap();
    file.sync_all().unwrap();
    for server in ["data0", "data1", "meta0"] {
        file.write_all(&vec![2; 200_000]).unwrap();
        fs.kill(server);
        assert!(file.sync_all().is_err(), "fsync succeeded without {server}");
        fs.start(&["--timeout", "20"]);
        file.sync_all().unwrap();
    }
}

/// Entries that stay are listed exactly once by every listing, whatever else comes and goes.
#[test]
fn promise_readdir_stable() {
    if !available("promise_readdir_stable", &[Need::Fuse]) {
        return;
    }
    const STABLE: usize = 10_000;
    let fs = FileSystem::mounted(&["--meta", "2"]);
    let dir = fs.mnt().join("dir");
    fs::create_dir(&dir).unwrap();
    for number in 0..STABLE {
        File::create_new(dir.join(format!("stable-{number}"))).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (dir, done) = (&dir, &done);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for round in 0u64.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let (old, new) = (format!("come-{thread}-{round}"), format!("gone-{thread}-{round}"));
                    File::create_new(dir.join(&old)).unwrap();
                    if random.once_in(2) {
                        fs::rename(dir.join(&old), dir.join(&new)).unwrap();
                        fs::remove_file(dir.join(&new)).unwrap();
                    } else if random.once_in(2) {
                        fs::remove_file(dir.join(&old)).unwrap();
                    }
                }
            });
        }
        let begun = Instant::now();
        let mut listings = 0;
        while listings < 5 || begun.elapsed() < Duration::from_secs(3) {
            let mut seen = BTreeMap::<String, u32>::new();
            for entry in fs::read_dir(&dir).unwrap() {
                *seen.entry(entry.unwrap().file_name().into_string().unwrap()).or_default() += 1;
            }
            let twice: Vec<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
            assert!(twice.is_empty(), "listed more than once: {twice:?}");
            let stable = seen.keys().filter(|name| name.starts_with("stable-")).count();
            assert_eq!(stable, STABLE, "entries that were there all the time are missing");
            listings += 1;
        }
        done.store(true, Ordering::Relaxed);
        eprintln!("{listings} listings");
    });
}
