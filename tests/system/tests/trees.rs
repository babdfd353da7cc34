//! Whole trees through real processes: sums, and removal by the servers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use weft_system_tests::{FileSystem, Need, available, fails, ok, run, wait_until, weft};

/// Directories of the tree with files in them.
const DIRECTORIES: u64 = 5;
const FILES_EACH: u64 = 200;
/// Longer than a server takes to follow the list of keys: a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// A tree with files of different sizes, second names, a symlink and a pipe.
fn make_tree(top: &Path) {
    for dir in 0..DIRECTORIES {
        let at = top.join(["a", "a/b", "c", "a/b/d", "c/e"][dir as usize]);
        fs::create_dir_all(&at).unwrap();
        for file in 0..FILES_EACH {
            fs::write(at.join(format!("f{file}")), vec![b'x'; (dir * 100 + file) as usize]).unwrap();
        }
    }
    for name in ["c/second", "third"] {
        fs::hard_link(top.join("a/f7"), top.join(name)).unwrap();
    }
    std::os::unix::fs::symlink("somewhere", top.join("symlink")).unwrap();
    ok(Command::new("mkfifo").arg(top.join("pipe")));
}

/// How often these were asked while something was done.
fn asked(fs: &FileSystem, ops: &[&str], work: impl FnOnce()) -> u64 {
    let before = fs.answered_of(ops);
    work();
    fs.answered_of(ops) - before
}

fn du(fs: &FileSystem, path: &str) -> Value {
    let rows: Value = serde_json::from_str(&ok(weft().args(["du", "-s", "--json"]).arg(fs.at(path)))).expect("JSON");
    rows[0].clone()
}

/// What a walk through the mount sees: bytes of directories.
fn bytes_of_directories(dir: &Path) -> u64 {
    let below = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let below = below.filter(|entry| entry.file_type().unwrap().is_dir()).map(|entry| bytes_of_directories(&entry.path()));
    fs::symlink_metadata(dir).unwrap().size() + below.sum::<u64>()
}

#[test]
fn promise_sums_of_trees_are_those_of_du() {
    if !available("promise_sums_of_trees_are_those_of_du", &[Need::Fuse, Need::Programs(&["du", "mkfifo"])]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2"]);
    let tree = fs.mnt().join("tree");
    make_tree(&tree);
    let bytes = |dir: &Path| -> u64 {
        let text = ok(Command::new("du").args(["--apparent-size", "--block-size=1", "-s"]).arg(dir));
        text.split('\t').next().unwrap().parse().unwrap()
    };
    // Some versions count directories, some do not.
    let nothing = fs.mnt().join("nothing");
    fs::create_dir(&nothing).unwrap();
    let directories = if bytes(&nothing) > 0 { bytes_of_directories(&tree) } else { 0 };
    let sums = du(&fs, "/tree");
    assert_eq!(sums["bytes"].as_u64().unwrap() + directories, bytes(&tree));
    assert_eq!((sums["files"].as_u64(), sums["directories"].as_u64()), (Some(DIRECTORIES * FILES_EACH), Some(DIRECTORIES + 1)));
    assert_eq!(sums["others"], 2);
    // A file that a program is writing is as large as stat says.
    use std::io::Write;
    let mut open = fs::File::create(tree.join("open")).unwrap();
    open.write_all(&[1; 100_000]).unwrap();
    assert_eq!(du(&fs, "/tree")["bytes"].as_u64().unwrap(), sums["bytes"].as_u64().unwrap() + 100_000);
    // Directories one by one, and what is no directory.
    let rows: Value = serde_json::from_str(&ok(weft().args(["du", "--max-depth", "1", "--json"]).arg(fs.at("/tree")))).unwrap();
    let paths: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["path"].as_str().unwrap()).collect();
    assert_eq!((paths.len(), paths[2]), (3, "/tree"));
    assert!(ok(weft().args(["du", "-b"]).arg(fs.at("/tree/c/f9"))).contains("         209 "));
    let text = ok(weft().args(["du", "-s"]).arg(fs.at("/tree")));
    assert!(text.contains("KiB") && text.contains("1003 files"), "{text}");
    // A message for each directory, not for each file.
    let messages = asked(&fs, &["ReadDir", "GetAttr", "GetAttrMany", "Lookup"], || drop(du(&fs, "/tree")));
    println!("{messages} messages for {} files", DIRECTORIES * FILES_EACH);
    assert!(messages <= 2 * DIRECTORIES + 10, "{messages}");
}

#[test]
fn promise_trees_are_removed_by_their_servers() {
    if !available("promise_trees_are_removed_by_their_servers", &[Need::Fuse, Need::Programs(&["mkfifo"])]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "2", "-o", "cache_ms=0"]);
    let tree = fs.mnt().join("tree");
    make_tree(&tree);
    fs::hard_link(tree.join("a/f9"), fs.mnt().join("kept")).unwrap();
    let mut open = fs::File::open(tree.join("c/f100")).unwrap();
    assert!(fails(weft().arg("rm").arg(fs.at("/tree"))).contains("remove it with -r"));
    let mut report = Value::Null;
    let messages = asked(&fs, &["RemoveEntries", "Unlink", "Rmdir", "ReadDir", "Lookup", "TxPrepare", "TxDecide"], || {
        report = serde_json::from_str(&ok(weft().args(["rm", "-r", "--json"]).arg(fs.at("/tree")))).unwrap();
    });
    assert_eq!(report["files"].as_u64(), Some(DIRECTORIES * FILES_EACH + 4));
    assert_eq!((report["directories"].as_u64(), report["failed"].as_u64()), (Some(DIRECTORIES + 1), Some(0)));
    println!("{messages} messages for {} files", DIRECTORIES * FILES_EACH);
    // Slices of directories, each directory twice at most, and a transaction for each that is on
    // another server than its name.
    assert!(messages <= 2 * DIRECTORIES + 4 * DIRECTORIES + 8, "{messages}");
    // The other mount sees it; what is open or has another name is there.
    assert!(!tree.exists());
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut open, &mut content).unwrap();
    assert_eq!(content.len(), 300);
    assert_eq!((fs::metadata(fs.mnt().join("kept")).unwrap().nlink(), fs::read(fs.mnt().join("kept")).unwrap().len()), (1, 9));
    fails(weft().args(["rm", "-r"]).arg(fs.at("/tree")));
    ok(weft().args(["rm", "-rf"]).arg(fs.at("/tree")));
}

#[test]
fn limited_keys_remove_what_their_limits_allow() {
    let fs = FileSystem::up(&["--meta", "2", "--data", "1"]);
    fs::create_dir_all(fs.path("tree/a/b")).unwrap();
    for name in ["one", "a/two", "a/b/three"] {
        fs::write(fs.path("tree").join(name), name).unwrap();
    }
    for dir in ["/inside", "/outside"] {
        ok(weft().arg("mkdir").arg(fs.at(dir)));
        ok(weft().args(["cp", "-r"]).arg(fs.path("tree")).arg(fs.at(&format!("{dir}/tree"))));
    }
    let with = |key: &Path, args: &[&str]| {
        let mut command = weft();
        command.args(["--timeout", "10", "--key-file"]).arg(key).args(args);
        command
    };
    let key = |name: &str, rights: &[&str]| {
        let file = fs.path(name);
        ok(weft().args(["key", "add", name, "--state"]).arg(fs.state()).args(rights).arg("--output").arg(&file));
        // Each server learns of it within a second or two.
        let knows = |path| !run(&mut with(&file, &["ls", &fs.at(path)]), PATIENCE).words().contains("list of keys");
        wait_until("a new key", PATIENCE, || ["/", "/tree", "/tree/a", "/tree/a/b"].into_iter().all(knows));
        file
    };
    let (guest, reader) = (key("guest", &["--subtree", "/inside"]), key("reader", &["--subtree", "/inside", "--read-only"]));
    let people = key("people", &["--users", "60000-60001"]);
    assert!(fails(&mut with(&people, &["rm", "-r", &fs.at("/inside")])).contains("does not allow"));
    let sums = ok(&mut with(&guest, &["du", "-s", "--json", &fs.at("/")]));
    assert_eq!(serde_json::from_str::<Value>(&sums).unwrap()[0]["files"], 3);
    assert!(fails(&mut with(&reader, &["rm", "-r", &fs.at("/tree")])).contains("allows no changes"));
    fails(&mut with(&guest, &["rm", "-r", &fs.at("/outside/tree")]));
    ok(&mut with(&guest, &["rm", "-r", &fs.at("/tree")]));
    assert_eq!(ok(weft().arg("ls").arg(fs.at("/inside"))), "");
    assert_eq!(du(&fs, "/outside")["files"], 3);
}
