//! The trash through real processes: what comes back, what goes, and what other users and keys with
//! limits get of it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use weft_system_tests::{FileSystem, Need, as_user, available, fails, ok, run, wait_until, weft, weft_for_others};

/// Longer than a server takes to follow the list of keys: a second.
const PATIENCE: Duration = Duration::from_secs(20);

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&ok(command)).expect("JSON")
}

fn trash(words: &[&str], place: &str) -> Command {
    let mut command = weft();
    command.arg("trash").args(words).arg(place);
    command
}

#[test]
fn promise_what_is_in_the_trash_comes_back() {
    if !available("promise_what_is_in_the_trash_comes_back", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1"]);
    let (mnt, system) = (fs.mnt(), fs.state().display().to_string());
    let list = || json(&mut trash(&["list", "--json"], &system));
    let tree = mnt.join("results/run");
    fs::create_dir_all(tree.join("deep")).unwrap();
    for number in 0..600 {
        fs::write(tree.join(format!("deep/{number}")), b"12345").unwrap();
    }
    symlink("run", mnt.join("results/link")).unwrap();
    let inode = fs::metadata(&tree).unwrap().ino();
    assert_eq!(list(), Value::Array(vec![]), "to look makes nothing");
    assert!(!mnt.join(".trash").exists());

    // A name is removed, and not what a link or a dot at its end leads to.
    for (end, why) in [("link/", "symlink"), ("link//", "symlink"), ("run/.", "without a name"), ("run/deep/..", "without a name")] {
        for how in ["-r", "--trash"] {
            assert!(fails(weft().args(["rm", how]).arg(fs.at(&format!("/results/{end}")))).contains(why));
        }
    }
    assert_eq!(fs::read_dir(tree.join("deep")).unwrap().count(), 600);

    // The mount sees it at once, and one rename is all that happens to what is moved.
    let report = json(weft().args(["rm", "--trash", "--json"]).args([fs.at("/results//run"), fs.at("/results/link")]));
    assert_eq!((&report["trashed"], &report["files"]), (&Value::from(2), &Value::from(0)));
    assert!(!tree.exists() && fs::symlink_metadata(mnt.join("results/link")).is_err());
    let rows = list();
    assert_eq!((&rows[0]["path"], &rows[0]["kind"]), (&Value::from("/results/run"), &Value::from("directory")), "{rows}");
    assert_eq!((&rows[1]["path"], &rows[1]["kind"]), (&Value::from("/results/link"), &Value::from("symlink")));
    assert!(ok(&mut trash(&["list"], &system)).contains("directory  /results/run"));
    // It takes its room, and stands where one can see it.
    let uid = rustix::process::geteuid().as_raw();
    let held = mnt.join(format!(".trash/{uid}/{}/run", rows[0]["entry"]));
    assert_eq!(fs::metadata(&held).unwrap().ino(), inode);
    assert_eq!(fs::metadata(mnt.join(format!(".trash/{uid}"))).unwrap().permissions().mode() & 0o7777, 0o700);
    let sums = json(weft().args(["du", "-s", "--json"]).arg(fs.at("/.trash")));
    assert_eq!(sums[0]["bytes"], 600 * 5 + "run".len());
    assert!(fails(weft().args(["rm", "--trash"]).arg(fs.at(&format!("/.trash/{uid}")))).contains("is in the trash"));

    // It comes back over a restart, and over nothing.
    fs.down();
    fs.start_mounted(&[]);
    fs::create_dir(&tree).unwrap();
    assert!(fails(&mut trash(&["restore"], &fs.at("/results/run"))).contains("exists"));
    fs::remove_dir(&tree).unwrap();
    ok(&mut trash(&["restore"], &fs.at("/results/run")));
    assert_eq!((fs::metadata(&tree).unwrap().ino(), fs::read_dir(tree.join("deep")).unwrap().count()), (inode, 600));
    let elsewhere = fails(trash(&["restore"], &fs.at("/results/link")).args(["--to", "fs:/other"]));
    assert!(elsewhere.contains("--to fs:/other: give a path in"), "{elsewhere}");
    ok(trash(&["restore"], &fs.at("/results/link")).args(["--to", "/other"]));
    assert_eq!(fs::read_link(mnt.join("other")).unwrap(), Path::new("run"));
    assert!(fails(&mut trash(&["restore"], &fs.at("/results/link"))).contains("not in the trash"));
    assert_eq!(list(), Value::Array(vec![]));

    // For good: by the servers, not one by one.
    ok(weft().args(["rm", "--trash"]).arg(fs.at("/results/run")));
    let nothing = json(&mut trash(&["empty", "--json", "--older", "1h"], &system));
    assert_eq!((&nothing["entries"], &nothing["files"]), (&Value::from(0), &Value::from(0)));
    let before = fs.answered_of(&["RemoveEntries", "Unlink", "Rmdir"]);
    let emptied = json(&mut trash(&["empty", "--json"], &system));
    assert_eq!((&emptied["entries"], &emptied["files"]), (&Value::from(1), &Value::from(600)), "{emptied}");
    assert_eq!((&emptied["directories"], &emptied["failed"]), (&Value::from(2), &Value::from(0)));
    let messages = fs.answered_of(&["RemoveEntries", "Unlink", "Rmdir"]) - before;
    assert!(messages <= 12, "{messages} messages for 600 files");
    assert_eq!(fs::read_dir(mnt.join(format!(".trash/{uid}"))).unwrap().count(), 0);
    assert!(fails(trash(&["empty", "--older", "7"], &system).arg("--json")).contains("7d"));
}

/// A key of this name with these rights, known to the servers, in a file that this user may read.
fn key(fs: &FileSystem, address: &str, name: &str, rights: &[&str], uid: u32) -> PathBuf {
    let file = fs.path(&format!("{name}.key"));
    ok(weft().args(["key", "add", name, "--state"]).arg(fs.state()).args(rights).arg("--output").arg(&file));
    let knows = || run(weft().args(["--key-file"]).arg(&file).args(["ls", &format!("{address}:/")]), PATIENCE).is_success();
    wait_until("a new key", PATIENCE, knows);
    chown(&file, Some(uid), Some(uid)).unwrap();
    file
}

#[test]
fn users_have_a_trash_each_and_a_key_of_a_subtree_has_its_own() {
    if !available("users_have_a_trash_each_and_a_key_of_a_subtree_has_its_own", &[Need::Root, Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1", "--listen", "tcp"]);
    let mnt = fs.mnt();
    fs::set_permissions(fs.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let (_, report) = fs.status();
    let address = format!("weft://{}/weft", report["servers"][0]["address"].as_str().unwrap().strip_prefix("tcp:").unwrap());
    let at = |path: &str| format!("{address}:{path}");
    const ALICE: u32 = 12345;
    const BOB: u32 = 54321;
    for (name, uid) in [("alice", ALICE), ("bob", BOB)] {
        fs::create_dir(mnt.join(name)).unwrap();
        chown(mnt.join(name), Some(uid), Some(uid)).unwrap();
        for work in ["work", "more"] {
            fs::create_dir(mnt.join(name).join(work)).unwrap();
            fs::write(mnt.join(name).join(work).join("file"), name).unwrap();
            chown(mnt.join(name).join(work), Some(uid), Some(uid)).unwrap();
        }
    }
    let keys: Vec<PathBuf> = [("alice", ALICE), ("bob", BOB)].map(|(name, uid)| key(&fs, &address, name, &[], uid)).into();
    let home = fs.path("homes");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o1777)).unwrap();
    // Found while this is root.
    weft_for_others();
    let with = |key: &Path, words: &[&str]| {
        let mut command = weft_for_others();
        command.env("HOME", &home).env_remove("XDG_RUNTIME_DIR").current_dir(&home).arg("--key-file").arg(key).args(words);
        command
    };
    let of = |uid: u32, words: &[&str]| with(&keys[usize::from(uid == BOB)], words);
    let does = |uid, words: &[&str]| as_user(uid, &[uid], || ok(&mut of(uid, words)));
    let cannot = |uid, words: &[&str]| as_user(uid, &[uid], || fails(&mut of(uid, words)));

    // The root is not theirs: the one whose it is makes the trash.
    let refused = cannot(ALICE, &["rm", "--trash", &at("/alice/work")]);
    assert!(refused.contains("there is no trash yet") && refused.contains("weft mkdir -m 1777"), "{refused}");
    ok(weft().args(["mkdir", "-m", "1777"]).arg(fs.at("/.trash")));
    does(ALICE, &["rm", "--trash", &at("/alice/work")]);
    assert!(!mnt.join("alice/work").exists());
    // Somebody else neither sees it nor takes it, nor takes what he might not remove.
    assert_eq!(does(BOB, &["trash", "list", "--json", &address]).trim(), "[]");
    cannot(BOB, &["trash", "restore", &at("/alice/work")]);
    cannot(BOB, &["ls", &at(&format!("/.trash/{ALICE}"))]);
    cannot(BOB, &["rm", "--trash", &at("/alice/more")]);
    assert_eq!(does(BOB, &["trash", "empty", &address]).trim(), "0 files and 0 directories removed");
    // Nor does it help to be first, or to lead elsewhere.
    fs::remove_dir(mnt.join(format!(".trash/{BOB}"))).unwrap();
    as_user(ALICE, &[ALICE], || symlink(mnt.join("alice"), mnt.join(format!(".trash/{BOB}"))).unwrap());
    let planted = cannot(BOB, &["rm", "--trash", &at("/bob/work")]);
    assert!(planted.contains(&format!("belongs to user {ALICE}")), "{planted}");
    assert!(mnt.join("bob/work/file").exists());
    fs::remove_file(mnt.join(format!(".trash/{BOB}"))).unwrap();
    does(BOB, &["rm", "--trash", &at("/bob/work")]);
    does(ALICE, &["trash", "empty", &address]);
    does(BOB, &["trash", "restore", &at("/bob/work")]);
    assert_eq!(fs::read(mnt.join("bob/work/file")).unwrap(), b"bob");
    cannot(ALICE, &["trash", "restore", &at("/alice/work")]);

    // The root of this key is a directory: so is the place of its trash.
    let guest = key(&fs, &address, "guest", &["--subtree", "/alice"], ALICE);
    as_user(ALICE, &[ALICE], || ok(&mut with(&guest, &["rm", "--trash", &at("/more")])));
    assert!(mnt.join(format!("alice/.trash/{ALICE}")).exists() && !mnt.join("alice/more").exists());
    as_user(ALICE, &[ALICE], || ok(&mut with(&guest, &["trash", "restore", &at("/more")])));
    assert_eq!(fs::read(mnt.join("alice/more/file")).unwrap(), b"alice");
    let reader = key(&fs, &address, "reader", &["--read-only"], ALICE);
    let refused = as_user(ALICE, &[ALICE], || fails(&mut with(&reader, &["rm", "--trash", &at("/alice/more")])));
    assert!(refused.contains("allows no changes"), "{refused}");
}
