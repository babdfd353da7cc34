//! Renames through a mount whose kernel still remembers a name that another mount has moved. To a
//! kernel, two names of one file need no rename: it answers 0 and asks nobody.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use weft_system_tests::{FileSystem, Need, available};

/// So many times, because what the kernel remembers ends at some moment.
const ROUNDS: usize = 20;

/// Makes `old` through the first mount and lets its kernel remember the name; then the second moves
/// it to `new`.
fn moved_elsewhere(first: &Path, second: &Path, make: impl Fn(&Path), round: usize) -> (String, String) {
    let (old, new) = (format!("old{round}"), format!("new{round}"));
    make(&first.join(&old));
    fs::metadata(first.join(&old)).unwrap();
    fs::rename(second.join(&old), second.join(&new)).unwrap();
    (old, new)
}

fn mounted(test: &str) -> Option<FileSystem> {
    if !available(test, &[Need::Fuse]) {
        return None;
    }
    Some(FileSystem::mounted(&["--meta", "2", "--data", "1"]))
}

#[test]
fn a_name_that_another_mount_has_moved_is_not_moved_again() {
    let Some(fs) = mounted("a_name_that_another_mount_has_moved_is_not_moved_again") else { return };
    let (first, second) = (fs.mnt(), fs.mount("second", ""));
    let kinds: [fn(&Path); 2] = [|path| fs::write(path, "file").unwrap(), |path| fs::create_dir(path).unwrap()];
    for round in 0..ROUNDS {
        let (old, new) = moved_elsewhere(&first, &second, kinds[round % 2], round);
        // Sometimes the kernel has looked at the new name before.
        if round % 4 >= 2 {
            fs::metadata(first.join(&new)).unwrap();
        }
        let error = fs::rename(first.join(&old), first.join(&new)).expect_err("there is nothing to rename");
        assert_eq!(error.kind(), ErrorKind::NotFound, "round {round}");
    }
}

#[test]
fn a_new_file_under_the_old_name_is_moved() {
    let Some(fs) = mounted("a_new_file_under_the_old_name_is_moved") else { return };
    let (first, second) = (fs.mnt(), fs.mount("second", ""));
    for round in 0..ROUNDS {
        let (old, new) = moved_elsewhere(&first, &second, |path| fs::write(path, "first").unwrap(), round);
        fs::write(second.join(&old), "second").unwrap();
        // Whoever opens the file by its new name has nothing to do with it.
        if round % 2 == 1 {
            assert_eq!(fs::read(first.join(&new)).unwrap(), b"first");
        }
        fs::rename(first.join(&old), first.join(&new)).unwrap();
        for mount in [&first, &second] {
            assert_eq!(fs::read(mount.join(&new)).unwrap(), b"second", "round {round}");
        }
        assert_eq!(fs::metadata(first.join(&old)).unwrap_err().kind(), ErrorKind::NotFound, "round {round}");
    }
}

/// Two names of one file stay two names of one file.
#[test]
fn a_rename_of_a_link_to_the_same_file_does_nothing() {
    use std::os::unix::fs::MetadataExt;
    let Some(fs) = mounted("a_rename_of_a_link_to_the_same_file_does_nothing") else { return };
    let (first, second) = (fs.mnt(), fs.mount("second", ""));
    let (one, two) = (first.join("one"), first.join("two"));
    fs::write(&one, "x").unwrap();
    fs::metadata(&one).unwrap();
    fs::hard_link(second.join("one"), second.join("two")).unwrap();
    assert_eq!(fs::metadata(&one).unwrap().ino(), fs::metadata(&two).unwrap().ino());
    fs::rename(&one, &two).unwrap();
    for name in [&one, &two] {
        assert_eq!(fs::read(name).unwrap(), b"x");
        assert_eq!(fs::metadata(name).unwrap().nlink(), 2);
    }
    fs::write(&two, "more").unwrap();
    assert_eq!(fs::read(&one).unwrap(), b"more");
}
