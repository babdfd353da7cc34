//! Renames through a mount whose kernel still remembers a name that another mount has moved. To a
//! kernel, two names of one file need no rename: it answers 0 and asks nobody.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
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

/// The kernel of the first mount has a directory in the place from which the second one has moved
/// it. It finds that out within a rename, in which it may not move the directory itself: it said
/// ESTALE each time.
#[test]
fn a_directory_that_another_mount_has_moved_is_moved_on() {
    let Some(fs) = mounted("a_directory_that_another_mount_has_moved_is_moved_on") else { return };
    let (first, second) = (fs.mnt(), fs.mount("second", ""));
    for top in ["p", "q", "r"] {
        fs::create_dir(first.join(top)).unwrap();
    }
    for round in 0..ROUNDS {
        let dir = |top: &str| format!("{top}/d{round}");
        fs::create_dir(first.join(dir("p"))).unwrap();
        if round % 2 == 1 {
            fs::write(first.join(dir("p")).join("file"), "x").unwrap();
        }
        fs::metadata(first.join(dir("p"))).unwrap();
        fs::rename(second.join(dir("p")), second.join(dir("q"))).unwrap();
        // To a third place, or back, where the rename itself holds the lock of the old parent.
        let to = dir(if round % 4 < 2 { "r" } else { "p" });
        fs::rename(first.join(dir("q")), first.join(&to)).unwrap();
        for mount in [&first, &second] {
            assert!(fs::metadata(mount.join(&to)).unwrap().is_dir(), "round {round}");
            assert_eq!(fs::metadata(mount.join(dir("q"))).unwrap_err().kind(), ErrorKind::NotFound, "round {round}");
            assert_eq!(fs::read_dir(mount.join(&to)).unwrap().count(), round % 2, "round {round}");
        }
        fs::create_dir(first.join(&to).join("new")).unwrap();
        assert!(second.join(&to).join("new").exists(), "round {round}");
    }
}

/// While a program waits for a server, the kernel holds locks of the directories of its rename:
/// others look for a directory that has been moved meanwhile.
#[test]
fn a_moved_directory_is_found_while_a_rename_waits_for_a_server() {
    let Some(fs) = mounted("a_moved_directory_is_found_while_a_rename_waits_for_a_server") else { return };
    let (first, second) = (fs.mnt(), fs.mount("second", ""));
    // Directories go to any server.
    let made = |parent: &str, is_here: bool| {
        let names = (0..).map(|number| format!("{parent}{}{number}", if is_here { "here" } else { "there" }));
        let mut made = names.inspect(|name| fs::create_dir(first.join(name)).unwrap());
        made.find(|name| (fs.server_of(&first.join(name)) == "meta0") == is_here).unwrap()
    };
    let (here, other, there) = (made("", true), made("other", true), made("", false));
    let moved = made(&format!("{here}/"), true);
    fs::write(first.join(&here).join("waits"), "x").unwrap();
    // The kernel gets as far as to the new name without a server.
    (0..3).for_each(|_| _ = fs::metadata(first.join(&there).join("waits")));
    fs::metadata(first.join(&moved)).unwrap();
    fs::metadata(second.join(&other)).unwrap();
    fs.signal("meta1", Signal::STOP);
    let (from, to) = (first.join(&here).join("waits"), first.join(&there).join("waits"));
    let renames = std::thread::spawn(move || fs::rename(from, to));
    std::thread::sleep(Duration::from_millis(300));
    let place = format!("{other}/moved");
    let is_moved = fs::rename(second.join(&moved), second.join(&place));
    let found = fs::metadata(first.join(&place));
    fs.signal("meta1", Signal::CONT);
    is_moved.unwrap();
    assert!(found.unwrap().is_dir());
    renames.join().unwrap().unwrap();
    assert!(fs::metadata(first.join(&place)).unwrap().is_dir());
}
