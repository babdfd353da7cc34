//! Damaged stores: a server that finds one says so and does not serve; with the damage undone
//! everything is there.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use weft_store::journal::{SEGMENT_HEADER_BYTES, scan};
use weft_system_tests::{FileSystem, fails, ok, weft};

/// The files of a server whose name begins so, the newest last.
fn files(fs: &FileSystem, server: &str, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(fs.server_dir(server)).unwrap();
    let mut found: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
        .collect();
    found.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    found
}

/// Bytes of a segment that are in use.
fn end_of(segment: &Path) -> u64 {
    let bytes = fs::read(segment).unwrap();
    scan(&bytes).unwrap_or_else(|error| panic!("{}: {error:?}", segment.display())).end_offset as u64
}

fn flip(file: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

/// The server must refuse, with the name of the file in its message; whoever starts it sees that.
#[track_caller]
fn assert_noticed(fs: &FileSystem, server: &str, file: &Path, with_offset: bool) {
    let words = fails(weft().args(["up", "--state"]).arg(fs.state()));
    let name = file.file_name().unwrap().to_string_lossy();
    assert!(words.contains(server) && words.contains(&*name), "{server}, {name}: {words}");
    assert!(!with_offset || words.contains("at byte "), "{words}");
    ok(weft().args(["down", "--state"]).arg(fs.state()));
}

#[test]
fn promise_damage_is_noticed() {
    let fs = FileSystem::up(&["--data", "1"]);
    let source = fs.path("source");
    fs::create_dir(&source).unwrap();
    for number in 0..50 {
        fs::write(source.join(format!("file{number}")), vec![number as u8; 9000]).unwrap();
    }
    let check = |name: &str| {
        ok(weft().arg("cp").arg("-r").arg(fs.at(name)).arg(fs.path("back")));
        ok(std::process::Command::new("diff").arg("-r").arg(&source).arg(fs.path("back")));
        fs::remove_dir_all(fs.path("back")).unwrap();
    };
    ok(weft().arg("cp").arg("-r").arg(&source).arg(fs.at("/one")));
    ok(weft().arg("cp").arg("-r").arg(&source).arg(fs.at("/two")));
    for server in ["meta0", "data0"] {
        // Killed: everything is in the journal. It is read up to its end, so damage anywhere before
        // it must be found.
        fs.kill("meta0");
        fs.kill("data0");
        // The segment with the most in it.
        let journals = files(&fs, server, "journal").into_iter().map(|file| (end_of(&file), file));
        let (end, journal) = journals.max().expect("a server has a journal");
        assert!(end > SEGMENT_HEADER_BYTES as u64 + 1000, "{server}: the journal has only {end} bytes");
        let bytes = fs::read(&journal).unwrap();
        // What is damaged in the last frame counts as not written. Half of it is of the second
        // copy, which takes several.
        let header = SEGMENT_HEADER_BYTES as u64;
        for offset in [20, header + 10, header + (end - header) / 3, header + (end - header) / 2] {
            // Padding up to a multiple of 8 bytes means nothing.
            let offset = offset / 8 * 8;
            flip(&journal, offset);
            assert_noticed(&fs, server, &journal, offset > header);
            flip(&journal, offset);
            // A server that refused has changed nothing.
            assert!(fs::read(&journal).unwrap() == bytes, "{server} has changed its journal");
        }
        fs.start(&[]);
        check("/one");
        check("/two");
        // What holds the state besides the journal.
        fs.down();
        for file in files(&fs, server, "checkpoint").into_iter().chain([fs.server_dir(server).join("superblock")]) {
            let len = fs::metadata(&file).unwrap().len();
            if len == 0 {
                continue;
            }
            flip(&file, len / 2);
            assert_noticed(&fs, server, &file, false);
            flip(&file, len / 2);
            let good = fs::read(&file).unwrap();
            fs::write(&file, &good[..good.len() * 3 / 4]).unwrap();
            assert_noticed(&fs, server, &file, false);
            fs::write(&file, good).unwrap();
        }
        // Where the bytes of files are. Those of a small one are beside its inode.
        fs.start(&[]);
        fs::write(fs.path("small"), [7; 900]).unwrap();
        ok(weft().arg("cp").arg(fs.path("small")).arg(fs.at(&format!("/small-{server}"))));
        fs.down();
        let (container, far) = if server == "data0" { ("objects", 20_000) } else { ("contents", 4096) };
        let container = fs.server_dir(server).join(container);
        let good = fs::read(&container).unwrap();
        for bytes in [0, 4096 + 100, far] {
            fs::write(&container, &good[..bytes]).unwrap();
            assert_noticed(&fs, server, &container, false);
            fails(weft().arg("inspect").arg(fs.server_dir(server)));
        }
        fs::remove_file(&container).unwrap();
        assert_noticed(&fs, server, &container, false);
        fs::write(&container, &good).unwrap();
        flip(&container, 20);
        assert_noticed(&fs, server, &container, false);
        flip(&container, 20);
        // A segment that was cut is none that was never begun.
        let journal = files(&fs, server, "journal").pop().unwrap();
        let good = fs::read(&journal).unwrap();
        let end = end_of(&journal) as usize;
        // Nor is one that was cut within its frames a shorter journal.
        for bytes in [0, end / 2] {
            fs::write(&journal, &good[..bytes]).unwrap();
            assert_noticed(&fs, server, &journal, false);
            fails(weft().arg("inspect").arg(fs.server_dir(server)));
        }
        fs::write(&journal, good).unwrap();
        fs.start(&[]);
        check("/two");
    }
}

/// A store that belongs to another server or file system, or is gone, is not taken for one's own.
#[test]
fn foreign_stores_are_refused() {
    let (one, two) = (FileSystem::up(&["--data", "2"]), FileSystem::up(&["--data", "2"]));
    one.down();
    two.down();
    let swap = |a: &Path, b: &Path| {
        let aside = a.with_extension("aside");
        fs::rename(a, &aside).unwrap();
        fs::rename(b, a).unwrap();
        fs::rename(&aside, b).unwrap();
    };
    let refused = |fs: &FileSystem, server: &str| {
        let words = fails(weft().args(["up", "--state"]).arg(fs.state()));
        assert!(words.contains(server), "{words}");
        words
    };
    for (ours, theirs) in [
        (one.server_dir("data0"), one.server_dir("data1")),
        (one.server_dir("meta0"), one.server_dir("data0")),
        (one.server_dir("data0"), two.server_dir("data0")),
        (one.server_dir("meta0"), two.server_dir("meta0")),
    ] {
        swap(&ours, &theirs);
        refused(&one, ours.file_name().unwrap().to_str().unwrap());
        swap(&ours, &theirs);
    }
    fs::rename(one.server_dir("data1"), one.path("aside")).unwrap();
    fs::create_dir(one.server_dir("data1")).unwrap();
    let words = refused(&one, "data1");
    assert!(words.contains("empty"), "an unmounted disk is not formatted silently: {words}");
    fs::remove_dir(one.server_dir("data1")).unwrap();
    fs::rename(one.path("aside"), one.server_dir("data1")).unwrap();
    one.start(&[]);
    two.start(&[]);
    assert!(one.status().0 && two.status().0);
}
