//! Two mounts that keep leases: what one changes the other sees at once, and what nobody
//! changes costs nothing.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use weft_system_tests::{FileSystem, Need, Signal, available, ok, signal, weft};

/// How often each case is tried.
const ROUNDS: usize = 200;

fn two_mounts(test: &'static str) -> Option<(FileSystem, PathBuf, PathBuf)> {
    if !available(test, &[Need::Fuse, Need::Kernel(6, 16)]) {
        return None;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2", "-o", "leases"]);
    let (a, b) = (fs.mnt(), fs.mount("second", "leases"));
    Some((fs, a, b))
}

/// Questions about names and attributes that servers have answered so far.
fn asked(fs: &FileSystem) -> u64 {
    fs.answered_of(&["Lookup", "GetAttr", "GetAttrMany", "ReadDir"])
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).expect("it is there").len()
}

/// A pause between two looks at something; false.
fn rest() -> bool {
    thread::sleep(Duration::from_millis(1));
    false
}

#[test]
fn promise_leases() {
    let Some((_fs, a, b)) = two_mounts("promise_leases") else { return };
    for dir in ["near", "far"] {
        fs::create_dir(a.join(dir)).unwrap();
    }
    for round in 0..ROUNDS {
        let (one, other) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let name = format!("near/file{round}");
        let (mine, theirs) = (one.join(&name), other.join(&name));
        assert!(fs::metadata(&theirs).is_err());
        fs::write(&mine, [b'A'; 100]).unwrap();
        assert_eq!(size(&theirs), 100, "round {round}: made");
        OpenOptions::new().append(true).open(&mine).unwrap().write_all(&[b'B'; 100]).unwrap();
        assert_eq!(size(&theirs), 200, "round {round}: appended");
        fs::set_permissions(&mine, PermissionsExt::from_mode(0o604)).unwrap();
        assert_eq!(fs::metadata(&theirs).unwrap().mode() & 0o7777, 0o604, "round {round}: another mode");
        fs::write(one.join("near/tmp"), b"new").unwrap();
        fs::rename(one.join("near/tmp"), &mine).unwrap();
        assert_eq!((size(&theirs), fs::read(&theirs).unwrap()), (3, b"new".to_vec()), "round {round}: replaced");
        assert!(fs::metadata(other.join("near/tmp")).is_err());
        fs::rename(&mine, one.join("far/moved")).unwrap();
        assert!(fs::metadata(&theirs).is_err() && size(&other.join("far/moved")) == 3, "round {round}: moved");
        let links = fs::metadata(other.join("far")).unwrap().nlink();
        fs::create_dir(one.join("far/dir")).unwrap();
        // Many rounds in a second make this a busy directory, whose own attributes may be two ticks
        // of the kernel's clock old.
        let is_seen = || fs::metadata(other.join("far")).unwrap().nlink() == links + 1;
        assert!((0..100).any(|_| is_seen() || rest()), "round {round}: a directory in it");
        fs::remove_dir(one.join("far/dir")).unwrap();
        fs::remove_file(one.join("far/moved")).unwrap();
        assert!(fs::metadata(other.join("far/moved")).is_err(), "round {round}: removed");
    }
}

/// For longer than the kernel was ever told to believe anything without leases.
#[test]
fn what_nobody_changes_is_asked_for_once() {
    let Some((fs, a, b)) = two_mounts("what_nobody_changes_is_asked_for_once") else { return };
    fs::create_dir(a.join("dir")).unwrap();
    let names: Vec<String> = (0..50).map(|number| format!("dir/{number}")).collect();
    names.iter().for_each(|name| fs::write(a.join(name), b"x").unwrap());
    let look = |mount: &Path| {
        for name in &names {
            assert_eq!(size(&mount.join(name)), 1);
            assert_eq!(fs::read(mount.join(name)).unwrap(), b"x");
        }
    };
    // Reports of what was written may come a moment later.
    std::thread::sleep(Duration::from_secs(2));
    for _ in 0..2 {
        look(&a);
        look(&b);
    }
    let counts = || (asked(&fs), fs.answered_of(&["Open"]));
    let before = counts();
    for _ in 0..7 {
        std::thread::sleep(Duration::from_secs(1));
        look(&a);
        look(&b);
    }
    let after = counts();
    assert_eq!(after.0, before.0, "questions for {} names in two mounts over seven seconds", names.len());
    // A kernel that is short of memory drops pages; who reads those anew opens a file, or many.
    let opens = after.1 - before.1;
    assert!(opens <= names.len() as u64, "{opens} opens for {} reads", 14 * names.len());
}

/// Programs look for a module in every directory of a path.
#[test]
fn what_is_not_there_the_kernel_knows_until_it_is() {
    let Some((fs, a, b)) = two_mounts("what_is_not_there_the_kernel_knows_until_it_is") else { return };
    fs::create_dir(a.join("dir")).unwrap();
    let name = "dir/absent";
    let trace = |words: &[&str]| ok(weft().arg("trace").arg(words[0]).arg(fs.state()).args(&words[1..]).arg("--json"));
    let folder = fs.path("traces");
    trace(&["on", "--mask", "fuse.*", "--nodes", "mount-second*", "--dir", folder.to_str().unwrap()]);
    assert!((0..ROUNDS).all(|_| fs::metadata(b.join(name)).is_err()));
    let report: Value = serde_json::from_str(&trace(&["off"])).expect("JSON");
    let node = report["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "mount-second").expect("it is recorded");
    let records = node["records"].as_u64().expect("a number");
    assert!(records < ROUNDS as u64 / 2, "{records} records of requests for {ROUNDS} looks");
    for round in 0..ROUNDS {
        let [makes, looks] = if round % 2 == 0 { [&a, &b] } else { [&b, &a] };
        assert!((0..2).all(|_| fs::metadata(looks.join(name)).is_err()), "round {round}");
        match round % 3 {
            0 => fs::write(makes.join(name), b"x").unwrap(),
            1 => fs::hard_link(makes.join("one"), makes.join(name)).unwrap(),
            _ => fs::rename(makes.join("one"), makes.join(name)).unwrap(),
        }
        assert_eq!(size(&looks.join(name)), 1, "round {round}");
        drop(fs::remove_file(looks.join("one")));
        fs::rename(looks.join(name), looks.join("one")).unwrap();
        assert!(fs::metadata(makes.join(name)).is_err(), "round {round}");
    }
}

#[test]
fn a_mount_that_hangs_or_dies_holds_others_up_for_a_term() {
    let Some((fs, a, b)) = two_mounts("a_mount_that_hangs_or_dies_holds_others_up_for_a_term") else { return };
    fs::write(a.join("file"), b"one").unwrap();
    assert_eq!(size(&b.join("file")), 3);
    let pid = fs.mount_pid(&b);
    signal(pid, Signal::STOP).unwrap();
    // It may believe what it was told for five seconds; then nobody waits for it any more.
    fs::write(a.join("file"), b"three").unwrap();
    fs::rename(a.join("file"), a.join("moved")).unwrap();
    signal(pid, Signal::CONT).unwrap();
    assert!(fs::metadata(b.join("file")).is_err());
    assert_eq!(fs::read(b.join("moved")).unwrap(), b"three");
    fs.kill_mount(&b);
    fs::write(a.join("moved"), b"fourth").unwrap();
    assert_eq!(fs::read(a.join("moved")).unwrap(), b"fourth");
}

#[test]
fn a_server_that_restarts_knows_who_may_believe_something() {
    let Some((fs, a, b)) = two_mounts("a_server_that_restarts_knows_who_may_believe_something") else { return };
    for round in 0..5 {
        let name = format!("file{round}");
        fs::write(a.join(&name), b"one").unwrap();
        assert_eq!(size(&b.join(&name)), 3);
        ["meta0", "meta1"].into_iter().for_each(|server| fs.kill(server));
        fs.start(&[]);
        fs::write(a.join(&name), b"three").unwrap();
        assert_eq!(size(&b.join(&name)), 5, "round {round}");
        fs::remove_file(a.join(&name)).unwrap();
        assert!(fs::metadata(b.join(&name)).is_err(), "round {round}");
    }
}
