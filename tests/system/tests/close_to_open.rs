//! Whoever opens a file after a close has returned sees what was written, through any other mount
//! with default options.
//!
//! `WEFT_ROUNDS` is the number of rounds of each case (100 by default).

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use weft_system_tests::{FileSystem, Need, available};

fn rounds() -> usize {
    std::env::var("WEFT_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(100)
}

/// Two mounts as users have them.
fn two_mounts() -> (FileSystem, PathBuf, PathBuf) {
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2"]);
    let (first, second) = (fs.mnt(), fs.mount("second", ""));
    (fs, first, second)
}

/// What a program that opens a file reads, what `fstat` and `lseek` of the open file say of its
/// size, and its mtime.
fn seen(path: &Path) -> (Vec<u8>, u64, u64, (i64, i64)) {
    let mut file = File::open(path).unwrap();
    // One read with a buffer that is larger than the file, and no look at the size before it.
    let mut bytes = vec![0; 8192];
    let got = file.read(&mut bytes).unwrap();
    bytes.truncate(got);
    let about = file.metadata().unwrap();
    (bytes, about.len(), file.seek(SeekFrom::End(0)).unwrap(), (about.mtime(), about.mtime_nsec()))
}

/// Makes the kernel behind this mount remember everything about a file.
fn warm(path: &Path) {
    let about = fs::metadata(path).unwrap();
    assert_eq!(seen(path).1, about.len());
    assert_eq!(seen(path).1, about.len());
}

/// Runs a case many times in both directions, and counts what is wrong.
fn check(name: &str, prepare: impl Fn(&Path), change: impl Fn(&Path, usize) -> Vec<u8>) {
    if !available(name, &[Need::Fuse]) {
        return;
    }
    let (_fs, first, second) = two_mounts();
    let mut wrong = Vec::new();
    for round in 0..rounds() {
        let (writer, reader) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
        let file = format!("file{round}");
        prepare(&writer.join(&file));
        warm(&reader.join(&file));
        let expected = change(&writer.join(&file), round);
        let (bytes, size, end, mtime) = seen(&reader.join(&file));
        let about = fs::metadata(writer.join(&file)).unwrap();
        let right = (&expected, expected.len() as u64, expected.len() as u64, (about.mtime(), about.mtime_nsec()));
        if (&bytes, size, end, mtime) != right {
            wrong.push(format!(
                "round {round}: {} bytes {:?}..., size {size}, end {end}, mtime {mtime:?} instead of {} bytes {:?}..., mtime {:?}",
                bytes.len(),
                bytes.first(),
                expected.len(),
                expected.first(),
                right.3
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {} wrong, first: {}", wrong.len(), rounds(), wrong[0]);
}

fn put(path: &Path, byte: u8, len: usize) -> Vec<u8> {
    let bytes = vec![byte; len];
    fs::write(path, &bytes).unwrap();
    bytes
}

fn old(path: &Path) {
    put(path, b'A', 100);
}

#[test]
fn promise_close_to_open() {
    check("promise_close_to_open", old, |path, _| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[b'B'; 100], 0).unwrap();
        drop(file);
        vec![b'B'; 100]
    });
}

#[test]
fn appended_bytes_are_there() {
    check("appended_bytes_are_there", old, |path, _| {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(&[b'B'; 100]).unwrap();
        drop(file);
        [vec![b'A'; 100], vec![b'B'; 100]].concat()
    });
}

#[test]
fn a_file_that_replaces_another_is_read() {
    check("a_file_that_replaces_another_is_read", old, |path, _| {
        let new = path.with_extension("new");
        let bytes = put(&new, b'B', 100);
        fs::rename(&new, path).unwrap();
        bytes
    });
}

#[test]
fn files_of_the_future_are_no_exception() {
    let future = |path: &Path| {
        old(path);
        let later = SystemTime::now() + Duration::from_secs(3_000_000);
        File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
    };
    check("files_of_the_future_are_no_exception", future, |path, _| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[b'B'; 100], 0).unwrap();
        drop(file);
        vec![b'B'; 100]
    });
}

#[test]
fn a_file_written_anew_shorter_or_longer() {
    check("a_file_written_anew_shorter_or_longer", old, |path, round| put(path, b'B', if round % 3 == 0 { 10 } else { 1000 }));
}

/// In the middle of the writing, not only after it: whoever opens after a write has returned.
#[test]
fn overwritten_bytes_are_seen_while_the_writer_goes_on() {
    if !available("overwritten_bytes_are_seen_while_the_writer_goes_on", &[Need::Fuse]) {
        return;
    }
    let (_fs, a, b) = two_mounts();
    old(&a.join("file"));
    warm(&b.join("file"));
    let writer = OpenOptions::new().write(true).open(a.join("file")).unwrap();
    for round in 0..rounds() {
        writer.write_all_at(&[round as u8; 100], 0).unwrap();
        assert_eq!(seen(&b.join("file")).0, [round as u8; 100]);
    }
}

/// The rights of a file that were changed through another mount hold for the next open.
#[test]
fn rights_taken_away_hold_at_the_next_open() {
    if !available("rights_taken_away_hold_at_the_next_open", &[Need::Fuse, Need::Root, Need::Programs(&["setpriv"])]) {
        return;
    }
    let (fs, a, b) = two_mounts();
    // The folder of a test is its user's alone.
    fs::set_permissions(fs.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let path = b.join("file");
    let reads = |path: &Path| Command::new("setpriv").args(["--reuid=1000", "--regid=1000", "--clear-groups", "cat"]).arg(path).output();
    old(&a.join("file"));
    for round in 0..10 {
        fs::set_permissions(a.join("file"), PermissionsExt::from_mode(0o644)).unwrap();
        let allowed = reads(&path).unwrap();
        assert!(allowed.status.success(), "round {round}: {}", String::from_utf8_lossy(&allowed.stderr));
        fs::set_permissions(a.join("file"), PermissionsExt::from_mode(0o600)).unwrap();
        let refused = reads(&path).unwrap();
        let words = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && words.contains("Permission denied"), "round {round}: {words}");
    }
    // Through a descriptor of a file without a name it can be opened again all the same.
    let open = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let again = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open))).unwrap();
    assert_eq!(again.metadata().unwrap().len(), 100);
}

/// Says so when it goes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A file that is replaced again and again can be opened at any time, through any mount. The
/// replacements lie ready, so that most opens meet one between the look-up of the name and the open
/// itself.
#[test]
fn open_never_meets_a_replaced_file() {
    if !available("open_never_meets_a_replaced_file", &[Need::Fuse]) {
        return;
    }
    let (_fs, a, b) = two_mounts();
    old(&a.join("file"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let openers = [&a, &a, &b].map(|opener| {
            scope.spawn(|| {
                let (mut opens, mut wrong) = (0, Vec::new());
                while !done.load(Ordering::Relaxed) {
                    opens += 1;
                    let mut bytes = Vec::new();
                    match File::open(opener.join("file")) {
                        Err(error) => wrong.push(format!("opened: {error}")),
                        Ok(mut file) => match file.read_to_end(&mut bytes) {
                            Ok(100) => {}
                            other => wrong.push(format!("read: {other:?}")),
                        },
                    }
                }
                (opens, wrong)
            })
        });
        // Also if this thread panics: openers end with it.
        let ends = Ends(&done);
        for _ in 0..rounds() / 10 {
            let ready: Vec<PathBuf> = (0..200).map(|number| a.join(format!("new{number}"))).collect();
            ready.iter().for_each(|path| old(path));
            ready.iter().for_each(|path| fs::rename(path, a.join("file")).unwrap());
        }
        drop(ends);
        for opener in openers {
            let (opens, wrong) = opener.join().unwrap();
            assert!(wrong.is_empty(), "{} of {opens} opens, first: {}", wrong.len(), wrong[0]);
        }
    });
}
