//! A mount point is a name of its file system, for every command.

use std::fs;

use weft_system_tests::{FileSystem, Need, available, fails, ok, weft};

#[test]
fn commands_take_a_mount_point_for_its_file_system() {
    if !available("commands_take_a_mount_point_for_its_file_system", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--data", "1"]);
    let mnt = fs.mnt();
    let place = mnt.to_str().unwrap();
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::write(mnt.join("dir/file"), b"hello").unwrap();
    for command in [&["ping"][..], &["df"], &["top", "--once"], &["metrics", "--once"], &["status"], &["trace", "status"]] {
        let text = ok(weft().args(command).arg(place));
        assert!(text.contains("meta0"), "weft {command:?} {place}: {text}");
    }
    assert_eq!(ok(weft().arg("ls").arg(place)), "dir\n");
    assert_eq!(ok(weft().arg("ls").arg(format!("{place}:/dir"))), "file\n");
    assert_eq!(ok(weft().arg("ls").arg(mnt.join("dir"))), "file\n", "a path below it is the path there");
    assert_eq!(ok(weft().arg("cat").arg(mnt.join("dir/file"))), "hello");
    assert!(ok(weft().arg("df").arg(mnt.join("dir"))).contains("data0"), "like df(1)");
    assert!(ok(weft().args(["explain", "--seconds", "0.1"]).arg(place)).contains("perations"));
    ok(weft().args(["bench", "create", "--files", "10", "--reps", "1", "--fs"]).arg(place));
    // Copies go there without `:/`, and out of it.
    let local = fs.path("local");
    fs::write(&local, b"local").unwrap();
    ok(weft().arg("cp").arg(&local).arg(place));
    ok(weft().arg("cp").arg(&local).arg(mnt.join("dir/new")));
    assert_eq!((fs::read(mnt.join("local")).unwrap(), fs::read(mnt.join("dir/new")).unwrap()), (b"local".to_vec(), b"local".to_vec()));
    ok(weft().args(["cp", "-r"]).arg(mnt.join("dir")).arg(fs.path("copy")));
    assert_eq!(fs::read(fs.path("copy/file")).unwrap(), b"hello");
    fs::remove_file(mnt.join("local")).unwrap();
    // Another mount of the same file system, from the first one.
    let second = fs.path("second");
    fs::create_dir(&second).unwrap();
    ok(weft().arg("mount").arg(place).arg(&second));
    assert_eq!(fs::read(second.join("dir/file")).unwrap(), b"hello");
    ok(weft().arg("umount").arg(&second));
    assert!(!fails(weft().arg("ls").arg(&second)).is_empty(), "nothing is mounted there any more");
    // And from its state directory by option.
    ok(weft().arg("mount").arg("--state").arg(fs.state()).arg(&second));
    assert!(second.join("dir/file").exists());
    ok(weft().arg("down").arg(&second));
    assert!(!mnt.join("dir").exists() && !second.join("dir").exists());
}

#[test]
fn a_mount_hides_nothing_unless_asked_to() {
    if !available("a_mount_hides_nothing_unless_asked_to", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::up(&["--data", "1"]);
    let place = fs.path("place");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("theirs"), b"precious").unwrap();
    let words = fails(weft().arg("mount").arg(fs.state()).arg(&place));
    assert!(words.contains("is not empty (it has `theirs`)") && words.contains("-o nonempty"), "{words}");
    ok(weft().arg("mount").arg(fs.state()).arg(&place).args(["-o", "nonempty"]));
    assert!(!place.join("theirs").exists());
    ok(weft().arg("umount").arg(&place));
    assert_eq!(fs::read(place.join("theirs")).unwrap(), b"precious");
}
