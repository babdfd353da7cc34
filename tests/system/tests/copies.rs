//! `copy_file_range`, which `cp` uses: the mount copies, and no data goes through the kernel.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags, copy_file_range, fallocate};
use weft_system_tests::{FileSystem, Need, available, ok, run, weft};

/// Not a multiple of anything, and more than one request of the kernel may copy.
const BYTES: usize = (20 << 20) + 4711;

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at * 2_654_435_761) >> 13) as u8).collect()
}

/// Copies until the end of the source; gives the number of bytes.
fn copy(from: &File, mut from_offset: u64, to: &File, mut to_offset: u64, bytes: usize) -> usize {
    let mut copied = 0;
    while copied < bytes {
        match copy_file_range(from, Some(&mut from_offset), to, Some(&mut to_offset), bytes - copied).expect("it can be copied") {
            0 => break,
            more => copied += more,
        }
    }
    copied
}

#[test]
fn a_copied_range_does_not_go_through_the_kernel() {
    if !available("a_copied_range_does_not_go_through_the_kernel", &[Need::Fuse, Need::Programs(&["cp"])]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "2", "--stripe-size", "64KiB"]);
    let (mnt, second) = (fs.mnt(), fs.mount("second", "cache_ms=0"));
    let data = noise(BYTES);
    fs::write(mnt.join("source"), &data).unwrap();
    let source = File::open(mnt.join("source")).unwrap();
    let target = OpenOptions::new().read(true).write(true).create_new(true).open(mnt.join("target")).unwrap();

    let before = fs.answered_of(&["Read", "Write"]);
    assert_eq!(copy(&source, 0, &target, 0, BYTES), BYTES);
    let asked = fs.answered_of(&["Read", "Write"]) - before;
    // Pieces of 4 MiB, each read from and written to both servers. The kernel's own way would be
    // requests of 1 MiB at most, and so four times as many.
    assert!((4..=2 * 2 * 6).contains(&asked), "{asked} requests for a copy of {BYTES} bytes");
    assert!(fs::read(second.join("target")).unwrap() == data, "another mount sees the copy at once");

    // Within a file, to beyond its end: the hole between reads as zeros.
    let far = BYTES as u64 + 100_000;
    assert_eq!(copy(&target, 5, &target, far, 300_000), 300_000);
    let mut wanted = data.clone();
    wanted.resize(far as usize, 0);
    wanted.extend_from_slice(&data[5..300_005]);
    assert!(fs::read(second.join("target")).unwrap() == wanted);
    // At and behind the end there is nothing, and a range that passes it is cut.
    assert_eq!(copy(&source, BYTES as u64, &target, 0, 10), 0);
    assert_eq!(copy(&source, BYTES as u64 - 3, &target, 0, 10), 3);
    // A program reads through its own descriptor what was copied.
    let mut start = [0; 3];
    target.read_exact_at(&mut start, 0).unwrap();
    assert_eq!(start, data[BYTES - 3..]);

    ok(Command::new("cp").arg(mnt.join("source")).arg(mnt.join("by cp")));
    assert!(fs::read(mnt.join("by cp")).unwrap() == data);
}

#[test]
fn a_copy_is_a_write() {
    if !available("a_copy_is_a_write", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "1"]);
    let mnt = fs.mnt();
    fs::write(mnt.join("source"), b"source").unwrap();
    fs::write(mnt.join("target"), b"target").unwrap();
    let target = OpenOptions::new().write(true).open(mnt.join("target")).unwrap();
    let before = fs::metadata(mnt.join("target")).unwrap();
    let source = File::open(mnt.join("source")).unwrap();
    assert_eq!(copy(&source, 0, &target, 3, 3), 3);
    let after = fs::metadata(mnt.join("target")).unwrap();
    assert_eq!(fs::read(mnt.join("target")).unwrap(), b"tarsou");
    assert!((after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec()));
    // Only for reading, or only for writing: the wrong way round.
    assert!(copy_file_range(&target, None, &source, None, 3).is_err());
}

/// The kernel tells the mount of `O_SYNC` with the open only.
#[test]
fn a_copy_and_a_reservation_are_synced_for_who_opened_so() {
    if !available("a_copy_and_a_reservation_are_synced_for_who_opened_so", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "1"]);
    let mnt = fs.mnt();
    fs::write(mnt.join("source"), noise(5000)).unwrap();
    let source = File::open(mnt.join("source")).unwrap();
    for (flags, syncs) in [(OFlags::empty(), 0), (OFlags::SYNC, 1)] {
        let mut options = OpenOptions::new();
        let target = options.write(true).create(true).truncate(false).custom_flags(flags.bits() as i32).open(mnt.join("target")).unwrap();
        let counted = |work: &dyn Fn()| {
            let before = fs.answered_of(&["SyncMeta"]);
            work();
            fs.answered_of(&["SyncMeta"]) - before
        };
        assert_eq!(counted(&|| assert_eq!(copy(&source, 0, &target, 0, 5000), 5000)), syncs, "{flags:?}");
        assert_eq!(counted(&|| fallocate(&target, FallocateFlags::empty(), 0, 1 << 20).unwrap()), syncs, "{flags:?}");
    }
}

/// As `weft` is started with few descriptors.
fn weft_with_descriptors(most: usize) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {most}; exec \"$0\" \"$@\"")]).arg(weft().get_program());
    command
}

#[test]
fn a_copy_of_many_files_needs_few_descriptors() {
    let fs = FileSystem::prepare();
    fs.start(&["--data", "2"]);
    let (from, back) = (fs.path("from"), fs.path("back"));
    fs::create_dir(&from).unwrap();
    for index in 0..500 {
        fs::write(from.join(format!("f{index}")), noise(index)).unwrap();
    }
    let there = format!("{}:/there", fs.state().display());
    ok(weft_with_descriptors(64).args(["cp", "-r"]).arg(&from).arg(&there));
    ok(weft_with_descriptors(64).args(["cp", "-r", &there]).arg(&back));
    for index in 0..500 {
        assert_eq!(fs::read(back.join(format!("f{index}"))).unwrap(), noise(index));
    }
    // With too few it says so and ends.
    for most in [6, 8, 10, 12, 14, 16, 18, 20, 24, 28] {
        let there = format!("{there}{most}");
        for paths in [[from.as_os_str(), there.as_ref()], [there.as_ref(), fs.path(&format!("back{most}")).as_os_str()]] {
            let ended = run(weft_with_descriptors(most).args(["cp", "-r"]).args(paths), Duration::from_secs(60));
            assert!(ended.status.is_some() && !ended.words().contains("panicked"), "with {most} descriptors: {}", ended.words());
        }
    }
}

#[test]
fn holes_stay_holes() {
    let fs = FileSystem::prepare();
    fs.start(&["--data", "3"]);
    let (from, back) = (fs.path("from"), fs.path("back"));
    fs::create_dir(&from).unwrap();
    // Data at both sides of a chunk, a hole at the end; nothing else than one; one that is small.
    let make = |name: &str, bytes: u64, data: &[(u64, usize)]| {
        let file = File::create(from.join(name)).unwrap();
        file.set_len(bytes).unwrap();
        for (at, count) in data {
            file.write_all_at(&noise(*count), *at).unwrap();
        }
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    };
    make("data", 300 << 20, &[(0, 5), ((64 << 20) - 100_000, 200_000), (200 << 20, 1 << 20)]);
    make("hole", 200 << 20, &[]);
    make("end", 100 << 20, &[((100 << 20) - 1, 1)]);
    make("one chunk", 5 << 20, &[(3 << 20, 10)]);
    make("small", 100_000, &[(5, 10)]);
    ok(weft().args(["cp", "-r"]).arg(&from).arg(fs.at("/there")));
    let used = fs.total("data", "used_bytes");
    assert!(used < 3 << 20, "{used} bytes are in use");
    ok(weft().args(["cp", "-r"]).arg(fs.at("/there")).arg(fs.at("/again")));
    ok(weft().args(["cp", "-r"]).arg(fs.at("/again")).arg(&back));
    assert!(fs.total("data", "used_bytes") < 7 << 20);
    for name in ["data", "hole", "end", "one chunk", "small"] {
        ok(Command::new("cmp").arg(from.join(name)).arg(back.join(name)));
        let (meta, wanted) = (fs::metadata(back.join(name)).unwrap(), fs::metadata(from.join(name)).unwrap());
        assert_eq!((meta.len(), meta.modified().unwrap()), (wanted.len(), wanted.modified().unwrap()), "{name}");
        assert!(meta.blocks() * 512 < 3 << 20, "{name} takes {} blocks", meta.blocks());
    }
}

/// Network file systems may say only when a file is closed that its bytes have no room.
#[test]
fn a_file_that_cannot_be_closed_well_is_not_copied() {
    if !available("a_file_that_cannot_be_closed_well_is_not_copied", &[Need::Programs(&["cc"])]) {
        return;
    }
    const CLOSE: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <errno.h>
        #include <fcntl.h>
        #include <stdio.h>
        #include <string.h>
        #include <unistd.h>
        int close(int fd)
        {
            char link[64], path[4096] = "";
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            (void)!readlink(link, path, sizeof path - 1);
            int is_full = strstr(path, "/full") && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
            int done = ((int (*)(int))dlsym(RTLD_NEXT, "close"))(fd);
            if (is_full) { errno = EDQUOT; return -1; }
            return done;
        }"#;
    let fs = FileSystem::prepare();
    fs.start(&["--data", "1"]);
    let (source, library) = (fs.path("close.c"), fs.path("close.so"));
    fs::write(&source, CLOSE).unwrap();
    ok(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl"));
    for (name, bytes) in [("full-1", 100), ("full-2", 3 << 20), ("fine", 5000)] {
        fs::write(fs.path(name), noise(bytes)).unwrap();
    }
    ok(weft().args(["cp"]).args(["full-1", "full-2", "fine"].map(|name| fs.path(name))).arg(fs.at("/")));
    let out = fs.path("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("full-1"), "before").unwrap();
    let from = ["/full-1", "/full-2", "/fine"].map(|name| fs.at(name));
    let copied = run(weft().env("LD_PRELOAD", &library).arg("cp").args(&from).arg(&out), Duration::from_secs(60));
    let said = copied.words();
    assert!(!copied.is_success() && said.contains("closing: Disk quota exceeded"), "{said}");
    assert!(said.contains("full-1, which was there before and is incomplete now"), "{said}");
    assert!(!out.join("full-2").exists() && fs::read(out.join("fine")).unwrap() == noise(5000), "{said}");
}
