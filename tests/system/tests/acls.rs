//! Access control lists through two mounts, set and read by the programs of the machine.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_system_tests::{FileSystem, Need, as_user, available, ok, run};

const USER: u32 = 1001;
const OTHER: u32 = 1002;
const GROUP: u32 = 2001;

fn two_mounts(test: &'static str, options: &str) -> Option<(FileSystem, PathBuf, PathBuf)> {
    let release = if options == "leases" { Need::Kernel(6, 16) } else { Need::Fuse };
    if !available(test, &[Need::Fuse, Need::Root, Need::Programs(&["setfacl", "getfacl"]), release]) {
        return None;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1", "-o", options]);
    let (a, b) = (fs.mnt(), fs.mount("second", options));
    fs::set_permissions(fs.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    Some((fs, a, b))
}

fn setfacl(entries: &[&str], path: &Path) {
    ok(Command::new("setfacl").args(entries).arg(path));
}

/// The entries of an object, without their effective rights, in one line.
fn getfacl(path: &Path) -> String {
    let text = ok(Command::new("getfacl").args(["--omit-header", "--no-effective", "--absolute-names", "--numeric"]).arg(path));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").mode() & 0o7777
}

fn reads(uid: u32, groups: &[u32], path: &Path) -> bool {
    as_user(uid, groups, || fs::read(path).is_ok())
}

fn writes(uid: u32, groups: &[u32], path: &Path) -> bool {
    as_user(uid, groups, || OpenOptions::new().write(true).open(path).is_ok())
}

#[test]
fn promise_acl() {
    let Some((_fs, a, b)) = two_mounts("promise_acl", "leases") else { return };
    let (dir, file) = (a.join("dir"), a.join("dir/file"));
    fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    let theirs = b.join("dir/file");
    assert!(!reads(USER, &[1], &theirs));
    // One mount changes a list, the other follows it at once, each time.
    for round in 0..8 {
        // Not so often that the directory is a busy one, of which nobody holds leases.
        std::thread::sleep(std::time::Duration::from_millis(400));
        let (one, other) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let seen = other.join("dir/file");
        setfacl(&["-m", &format!("u:{USER}:x,g:{GROUP}:x")], &one.join("dir"));
        setfacl(&["-m", &format!("u:{USER}:r,g:{GROUP}:rw")], &one.join("dir/file"));
        assert!(reads(USER, &[1], &seen) && !writes(USER, &[1], &seen), "round {round}: a named user");
        assert!(!writes(USER, &[1, GROUP], &seen), "round {round}: a named user is none of a group");
        assert!(writes(OTHER, &[1, GROUP], &seen) && !reads(OTHER, &[1], &seen), "round {round}: a named group");
        fs::set_permissions(one.join("dir/file"), PermissionsExt::from_mode(0o640)).unwrap();
        assert!(!writes(OTHER, &[GROUP], &seen) && reads(OTHER, &[GROUP], &seen), "round {round}: the mode's group is the mask");
        setfacl(&["-m", &format!("u:{USER}:-")], &one.join("dir/file"));
        assert!(!reads(USER, &[1], &seen), "round {round}: nothing any more");
        setfacl(&["-b"], &one.join("dir"));
        assert!(!reads(OTHER, &[GROUP], &seen), "round {round}: the directory");
        setfacl(&["-b"], &one.join("dir/file"));
    }
    assert_eq!((getfacl(&file), mode(&file)), ("user::rw- group::r-- other::---".to_string(), 0o640));

    // What is made in a directory with a default list: by the umask only without one.
    let default = format!("d:u:{USER}:rwx,d:g:{GROUP}:rx,d:o::-");
    setfacl(&["-m", &default], &dir);
    let umasked = |command: &str, at: &Path| ok(Command::new("sh").args(["-c", &format!("umask 077; {command}")]).current_dir(at));
    umasked("echo x > new; mkdir sub; mkfifo pipe; ln -s new link", &b.join("dir"));
    let made = |name: &str| getfacl(&dir.join(name));
    assert_eq!(made("new"), format!("user::rw- user:{USER}:rwx group::--- group:{GROUP}:r-x mask::rw- other::---"));
    assert_eq!((made("pipe"), mode(&dir.join("new"))), (made("new"), 0o660));
    let of_dir = format!("user::rwx user:{USER}:rwx group::--- group:{GROUP}:r-x mask::rwx other::---");
    assert_eq!(
        made("sub"),
        format!("{of_dir} {}", of_dir.split(' ').map(|entry| format!("default:{entry}")).collect::<Vec<_>>().join(" "))
    );
    umasked("echo x > new; mkdir sub", &a);
    assert_eq!((mode(&b.join("new")), mode(&b.join("sub"))), (0o600, 0o700), "without a default list");

    // Programs that copy.
    ok(Command::new("cp").arg("-a").arg(&dir).arg(b.join("copy")));
    ok(Command::new("tar").args(["--acls", "-cf"]).arg(a.join("tar")).arg("-C").arg(&a).arg("dir"));
    fs::create_dir(a.join("out")).unwrap();
    ok(Command::new("tar").args(["--acls", "-xpf"]).arg(a.join("tar")).arg("-C").arg(b.join("out")));
    for name in ["", "new", "sub", "pipe"] {
        for copy in ["copy", "out/dir"] {
            assert_eq!(getfacl(&a.join(copy).join(name)), made(name), "{copy}/{name}");
        }
    }
    // Only the owner gives rights, and a program is not of a group that its owner is not in.
    let refused = as_user(USER, &[1], || {
        run(Command::new("setfacl").args(["-m", "o::rwx"]).arg(b.join("dir/new")), std::time::Duration::from_secs(20))
    });
    assert!(!refused.is_success());
    let program = a.join("program");
    fs::write(&program, "x").unwrap();
    std::os::unix::fs::chown(&program, Some(USER), Some(GROUP)).unwrap();
    for (groups, expected) in [(&[1, GROUP][..], 0o2775), (&[1], 0o775)] {
        fs::set_permissions(&program, PermissionsExt::from_mode(0o2755)).unwrap();
        as_user(USER, groups, || ok(Command::new("setfacl").args(["-m", &format!("u:{OTHER}:rwx")]).arg(&program)));
        assert_eq!(mode(&program), expected, "{groups:?}");
    }
}

/// Whoever is no owner of what he walks through and opens makes the kernel ask for lists: servers
/// are asked for none where there is none, with leases and without.
#[test]
fn files_without_a_list_cost_no_message() {
    for options in ["leases", "cache_ms=1000"] {
        let Some((fs, a, b)) = two_mounts("files_without_a_list_cost_no_message", options) else { return };
        fs::create_dir_all(a.join("one/two")).unwrap();
        let names: Vec<String> = (0..50).map(|number| format!("one/two/{number}")).collect();
        names.iter().for_each(|name| fs::write(a.join(name), b"x").unwrap());
        for mount in [&a, &b] {
            as_user(USER, &[1], || names.iter().for_each(|name| assert_eq!(fs::read(mount.join(name)).unwrap(), b"x")));
        }
        assert_eq!(fs.answered_of(&["GetXattr"]), 0, "{options}");
    }
}
