//! What users take, through a mount and `weft quota`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use weft_system_tests::{FileSystem, Need, as_user, available, fails, ok, wait_until, weft};

const PATIENCE: Duration = Duration::from_secs(20);
/// Inodes and bytes of a user.
type Taken = (u64, u64);

/// What everybody takes, as the servers say.
fn told(fs: &FileSystem) -> BTreeMap<u64, Taken> {
    let rows: Value = serde_json::from_str(&ok(weft().args(["quota", "list", "--json"]).arg(fs.state()))).expect("JSON");
    let number = |row: &Value, key: &str| row[key].as_u64().expect("a number");
    rows.as_array().expect("a list").iter().map(|row| (number(row, "user"), (number(row, "inodes"), number(row, "bytes")))).collect()
}

/// What everybody takes, by a walk.
fn walked(root: &Path) -> BTreeMap<u64, Taken> {
    let (mut users, mut dirs, mut seen) = (BTreeMap::<u64, Taken>::new(), vec![root.to_path_buf()], BTreeSet::new());
    let mut count = |of: &fs::Metadata| {
        // A file with two names is one.
        if !seen.insert(of.ino()) {
            return;
        }
        let user = users.entry(u64::from(of.uid())).or_default();
        *user = (user.0 + 1, user.1 + of.blocks() * 512);
    };
    count(&fs::metadata(root).unwrap());
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let of = entry.metadata().unwrap();
            count(&of);
            if of.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    users
}

#[test]
fn sums_by_user_are_those_of_a_walk() {
    if !available("sums_by_user_are_those_of_a_walk", &[Need::Root, Need::Fuse]) {
        return;
    }
    let system = FileSystem::mounted(&["--meta", "2", "--data", "2"]);
    let mnt = system.mnt();
    fs::set_permissions(&mnt, PermissionsExt::from_mode(0o777)).unwrap();
    for uid in [1001, 1002] {
        as_user(uid, &[uid], || {
            let dir = mnt.join(format!("of {uid}"));
            for number in 0..8 {
                fs::create_dir_all(dir.join(format!("{number}"))).unwrap();
                fs::write(dir.join(format!("{number}/file")), vec![1; 3000 * number]).unwrap();
            }
            symlink("0", dir.join("link")).unwrap();
            fs::hard_link(dir.join("1/file"), dir.join("second")).unwrap();
            // A hole takes nothing.
            File::create(dir.join("hole")).unwrap().set_len(1 << 30).unwrap();
            fs::remove_file(dir.join("7/file")).unwrap();
            File::options().write(true).open(dir.join("6/file")).unwrap().set_len(100).unwrap();
        });
    }
    chown(mnt.join("of 1001/5/file"), Some(1003), None).unwrap();
    let same = || told(&system) == walked(&mnt);
    wait_until("the sums are those of a walk", PATIENCE, same);
    assert_eq!(walked(&mnt)[&1003], (1, 16384));

    // A file without a name counts as long as somebody has it open.
    let open = as_user(1002, &[1002], || File::open(mnt.join("of 1002/4/file")).unwrap());
    fs::remove_file(mnt.join("of 1002/4/file")).unwrap();
    let (all, named) = (told(&system)[&1002], walked(&mnt)[&1002]);
    assert_eq!(all, (named.0 + 1, named.1 + 12288));
    drop(open);
    wait_until("it is removed", PATIENCE, same);

    // Sums follow from the inodes, so every start builds them anew.
    for server in ["meta0", "meta1"] {
        system.kill(server);
    }
    system.start(&[]);
    wait_until("the sums are those of a walk after a restart", PATIENCE, same);

    as_user(1001, &[1001], || assert!(fs::metadata(&mnt).is_ok()));
    let row: Value = serde_json::from_str(&ok(weft().args(["quota", "show", "--user", "1001", "--json"]).arg(system.state()))).unwrap();
    assert_eq!(row["inodes"], told(&system)[&1001].0);
    let nobody: Value = serde_json::from_str(&ok(weft().args(["quota", "show", "--user", "77", "--json"]).arg(system.state()))).unwrap();
    assert_eq!((&nobody["inodes"], &nobody["bytes"]), (&Value::from(0), &Value::from(0)));
    // A key for others is told nothing.
    let key = system.path("others.key");
    ok(weft().args(["key", "add", "others", "--users", "2000-2999", "--output"]).arg(&key).arg("--state").arg(system.state()));
    fails(weft().args(["quota", "list"]).arg(system.state()).arg("--key-file").arg(&key));
}
