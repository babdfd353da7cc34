//! Tests of copies between places of this machine.

use super::*;
use crate::copy::{Copier, CopyOptions};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use weft_base::FileKind;

fn options(jobs: usize) -> CopyOptions {
    let file = CreateOptions::default();
    CopyOptions { recursive: true, preserve: true, dereference: false, force: false, jobs, progress: false, umask: 0o22, file }
}

fn copy(from: &std::path::Path, to: &std::path::Path, stop: bool) -> Copied {
    let mut copier = Copier::start(options(4), Arc::new(AtomicBool::new(stop))).unwrap();
    copier.copy(&Place::local(from), &Place::local(to)).unwrap();
    copier.finish()
}

#[test]
fn a_tree_arrives_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(from.join("a/b")).unwrap();
    for index in 0..50u32 {
        fs::write(from.join(format!("a/f{index}")), vec![index as u8; index as usize * 1000]).unwrap();
    }
    // Larger than one chunk, so that several workers share it; sparse, so that it is cheap.
    fs::File::create(from.join("big")).unwrap().set_len(CHUNK_BYTES + 12345).unwrap();
    std::os::unix::fs::symlink("../big", from.join("a/link")).unwrap();
    fs::set_permissions(from.join("a/b"), fs::Permissions::from_mode(0o500)).unwrap();
    let counts = copy(&from, &to, false);
    assert_eq!((counts.files, counts.directories, counts.symlinks, counts.failures), (51, 3, 1, 0));
    for index in 0..50u32 {
        assert_eq!(fs::read(to.join(format!("a/f{index}"))).unwrap(), vec![index as u8; index as usize * 1000]);
    }
    assert_eq!(fs::metadata(to.join("big")).unwrap().len(), CHUNK_BYTES + 12345);
    assert_eq!(fs::read_link(to.join("a/link")).unwrap().to_str(), Some("../big"));
    assert_eq!(fs::metadata(to.join("a/b")).unwrap().permissions().mode() & 0o7777, 0o500);
    let mtime = |path: &std::path::Path| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(mtime(&to.join("a")), mtime(&from.join("a")));
    assert_eq!(mtime(&to.join("a/f7")), mtime(&from.join("a/f7")));
}

#[test]
fn pipes_and_sockets_are_copied_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(&from).unwrap();
    Place::local(from.join("pipe")).make_node(FileKind::Fifo, 0o600).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
    fs::set_permissions(from.join("pipe"), fs::Permissions::from_mode(0o622)).unwrap();
    for _ in 0..2 {
        let counts = copy(&from, &to, false);
        assert_eq!((counts.nodes, counts.directories, counts.failures), (2, 1, 0), "also where they are already");
    }
    for name in ["pipe", "socket"] {
        let [meta, wanted] = [to.join(name), from.join(name)].map(|path| fs::metadata(path).unwrap());
        assert_eq!((meta.file_type(), meta.permissions()), (wanted.file_type(), wanted.permissions()), "{name}");
        assert_eq!(meta.modified().unwrap(), wanted.modified().unwrap(), "{name}");
    }
}

#[test]
fn set_user_and_set_group_bits_are_not_copied() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::write(from.join("program"), "#!").unwrap();
    for (name, mode) in [("program", 0o6755), ("sub", 0o7775), ("", 0o2755)] {
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(copy(&from, &to, false).failures, 0);
    let mode = |path: std::path::PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode(to.join("program")), mode(to.join("sub")), mode(to)], [0o755, 0o1775, 0o755]);
}

#[test]
fn a_second_copy_stays_inside_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to, outside) = (dir.path().join("from"), dir.path().join("to"), dir.path().join("outside"));
    for made in [&from, &from.join("sub"), &outside] {
        fs::create_dir(made).unwrap();
    }
    fs::write(from.join("sub/f"), "new").unwrap();
    fs::write(from.join("g"), "new").unwrap();
    fs::write(outside.join("g"), "precious").unwrap();
    assert_eq!(copy(&from, &to, false).failures, 0);
    // Somebody who may write to the copy plants symlinks in it.
    fs::remove_dir_all(to.join("sub")).unwrap();
    fs::remove_file(to.join("g")).unwrap();
    std::os::unix::fs::symlink(&outside, to.join("sub")).unwrap();
    std::os::unix::fs::symlink(outside.join("g"), to.join("g")).unwrap();
    let counts = copy(&from, &to, false);
    assert_eq!((counts.files, counts.failures), (1, 1), "the symlink to a directory is refused, that to a file replaced");
    assert!(!outside.join("f").exists());
    assert_eq!(fs::read(outside.join("g")).unwrap(), b"precious");
    assert_eq!(fs::read(to.join("g")).unwrap(), b"new");
}

#[test]
fn a_stopped_copy_leaves_nothing_half_done() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("f"), "content").unwrap();
    assert_eq!(copy(&from, &to, true).files, 0);
    assert!(!to.join("f").exists());
}

#[test]
fn a_target_that_was_there_before_is_named_if_it_is_incomplete() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    // Two chunks of one worker: nothing is copied once somebody has stopped it.
    fs::File::create(&from).unwrap().set_len(CHUNK_BYTES + 1).unwrap();
    for (is_there, left) in [(true, vec![to.display().to_string()]), (false, vec![])] {
        let stop = Arc::new(AtomicBool::new(false));
        let workers = Workers::start(&options(1), ProgressBar::hidden(), stop.clone()).unwrap();
        if is_there {
            fs::write(&to, "precious").unwrap();
        }
        let source = Place::local(&from);
        let meta = Meta { has_holes: false, ..source.meta(false).unwrap() };
        let file = Named { meta, source, target: Place::local(&to) };
        workers.shared.copy_file(file, &mut [0; 1]).unwrap();
        stop.store(true, Ordering::Relaxed);
        let copied = workers.finish();
        assert_eq!((copied.files, copied.incomplete), (0, left));
        assert_eq!(to.exists(), is_there);
        let _ = fs::remove_file(&to);
    }
}

#[test]
fn copying_into_itself_ends() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("f"), "content").unwrap();
    let counts = copy(&from, &from.join("inside"), false);
    assert_eq!((counts.files, counts.failures), (1, 1));
    assert!(from.join("inside/f").exists() && !from.join("inside/inside").exists());
}

#[test]
fn a_symlink_to_what_is_above_it_is_not_followed_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::write(from.join("sub/f"), "content").unwrap();
    std::os::unix::fs::symlink("..", from.join("sub/up")).unwrap();
    std::os::unix::fs::symlink("sub", from.join("twice")).unwrap();
    let options = CopyOptions { dereference: true, ..options(2) };
    let mut copier = Copier::start(options, Arc::new(AtomicBool::new(false))).unwrap();
    copier.copy(&Place::local(&from), &Place::local(&to)).unwrap();
    let counts = copier.finish();
    assert_eq!((counts.files, counts.failures), (2, 2), "a directory that is led to twice is copied twice");
    assert!(to.join("twice/f").exists() && !to.join("sub/up").exists());
}
