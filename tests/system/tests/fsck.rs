//! `weft fsck`: what it finds, what it removes, and who may ask.

use std::fs::{self, File};
use std::io::Read;
use std::time::Duration;

use serde_json::Value;
use weft_base::{ClientId, Handle, WallTime};
use weft_system_tests::socket::{Peer, read_key};
use weft_system_tests::{FileSystem, Need, available, fails, ok, run, weft};
use weft_wire::ops::{ListDatafilesRequest, Piece, WriteRequest};
use weft_wire::{Capability, Rights};

const PATIENCE: Duration = Duration::from_secs(60);
const FILES: usize = 40;

/// What `weft fsck --json` prints, and whether all was right.
fn check(fs: &FileSystem, args: &[&str]) -> (bool, Value) {
    let done = run(weft().args(["fsck", "--json", "--state"]).arg(fs.state()).args(args), PATIENCE);
    let report = serde_json::from_slice(&done.out).unwrap_or_else(|error| panic!("{error}: {}", done.words()));
    (done.is_success(), report)
}

fn strays(report: &Value) -> Vec<&Value> {
    let servers = report["servers"].as_array().expect("servers").iter();
    servers.flat_map(|server| server["strays"].as_array().expect("strays")).collect()
}

fn number(fs: &FileSystem, path: &str) -> Handle {
    let stat: Value = serde_json::from_str(&ok(weft().args(["stat", "--json"]).arg(fs.at(path)))).expect("JSON");
    Handle(stat[0]["inode"].as_u64().expect("the number of an inode"))
}

/// A file system with a tree of files on both data servers, hard links and symlinks.
fn with_a_tree() -> FileSystem {
    let fs = FileSystem::up(&["--meta", "2", "--data", "2", "--stripe-size", "64KiB"]);
    fs::create_dir_all(fs.path("tree/below")).unwrap();
    for file in 0..FILES {
        fs::write(fs.path(&format!("tree/below/{file}")), vec![file as u8; 3_000 * file]).unwrap();
    }
    fs::hard_link(fs.path("tree/below/7"), fs.path("tree/seven")).unwrap();
    std::os::unix::fs::symlink("below/7", fs.path("tree/symlink")).unwrap();
    ok(weft().args(["cp", "-r"]).arg(fs.path("tree")).arg(fs.at("/")));
    ok(weft().arg("ln").arg(fs.at("/tree/below/9")).arg(fs.at("/nine")));
    fs
}

/// What a power cut leaves: bytes of a file of which the metadata server knows nothing any more.
fn leave_a_datafile(fs: &FileSystem) -> Handle {
    ok(weft().args(["ln", "-s", "nothing"]).arg(fs.at("/short")));
    let handle = number(fs, "/short");
    ok(weft().arg("rm").arg(fs.at("/short")));
    let client = ClientId(4711);
    let key = read_key(&fs.state().join("server.key"));
    let capability = Capability::sign(&key, handle, client, Rights::WRITE, WallTime(i64::MAX));
    let address = fs.server("data1", "address");
    let mut peer = Peer::join(address.as_str().expect("an address"), &key, client).expect("welcome");
    let pieces = vec![Piece { offset: 0, bytes: 10_000 }];
    let request = WriteRequest { handle, index: 0, capability, pieces, mtime_epoch: 0, sync: true, ceiling: None };
    peer.ask(&request, &[7; 10_000]).expect("an answer").expect("the data server knows no files");
    handle
}

/// The datafiles of a data server, as it tells them three at a time.
fn listed(fs: &FileSystem, server: &str) -> Vec<(Handle, u32)> {
    let key = read_key(&fs.state().join("server.key"));
    let address = fs.server(server, "address");
    let mut peer = Peer::join(address.as_str().expect("an address"), &key, ClientId(4712)).expect("welcome");
    let (mut all, mut behind) = (Vec::new(), (Handle(0), 0));
    loop {
        let request = ListDatafilesRequest { handle: behind.0, index: behind.1, datafiles_max: 3 };
        let (page, _) = peer.ask(&request, &[]).expect("an answer").expect("datafiles");
        assert!(page.datafiles.len() <= 3 && (page.is_end || page.datafiles.len() == 3), "{page:?}");
        all.extend(page.datafiles.iter().map(|datafile| (datafile.handle, datafile.index)));
        match all.last() {
            Some(last) if !page.is_end => behind = *last,
            _ => return all,
        }
    }
}

#[test]
fn promise_a_check_finds_what_belongs_to_no_file() {
    let fs = with_a_tree();
    let (right, report) = check(&fs, &[]);
    assert!(right && report["wrong_names"].as_array().expect("names").is_empty(), "{report}");
    let counted = ["names", "directories", "files", "others", "inodes_without_name"].map(|what| report[what].as_u64().expect("a number"));
    // With the root; `seven` is a copy of its own.
    assert_eq!(counted, [FILES as u64 + 5, 3, FILES as u64 + 1, 1, 0]);
    assert!(strays(&report).is_empty() && report["servers"].as_array().expect("servers").len() == 2, "{report}");

    for server in report["servers"].as_array().expect("servers") {
        let listed = listed(&fs, server["name"].as_str().expect("a name"));
        assert!(listed.is_sorted_by(|one, next| one < next) && !listed.is_empty(), "{listed:?}");
        assert_eq!(server["datafiles"], listed.len(), "{report}");
    }

    let handle = leave_a_datafile(&fs);
    let (right, report) = check(&fs, &[]);
    let found: Vec<_> = strays(&report).iter().map(|stray| (stray["handle"].as_str().unwrap(), stray["bytes"].as_u64().unwrap())).collect();
    assert!(!right && found == [(handle.to_string().as_str(), 12_288)], "{report}");
    let said = fails(weft().args(["fsck", "--state"]).arg(fs.state()));
    assert!(said.contains("1 datafiles (12.0 KiB) belong to no file: weft fsck --repair"), "{said}");

    let used = |name: &str| fs.server(name, "used_bytes").as_u64().expect("bytes");
    let before = used("data1");
    let (right, report) = check(&fs, &["--repair"]);
    assert!(right && strays(&report).len() == 1, "{report}");
    assert_eq!(used("data1"), before - 12_288);
    let (right, report) = check(&fs, &[]);
    assert!(right && strays(&report).is_empty(), "{report}");
    ok(weft().args(["cp", "-r"]).arg(fs.at("/tree/below")).arg(fs.path("back")));
    for file in 0..FILES {
        assert!(fs::read(fs.path(&format!("back/{file}"))).unwrap() == vec![file as u8; 3_000 * file], "{file} is as it was");
    }
}

/// A file that is open and has no name is somebody's, and so is one that was made without asking.
#[test]
fn what_somebody_has_open_is_left() {
    if !available("what_somebody_has_open_is_left", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "2", "--stripe-size", "64KiB"]);
    let (path, bytes) = (fs.mnt().join("file"), vec![5; 1_000_000]);
    fs::write(&path, &bytes).unwrap();
    let mut open = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::create_dir(fs.mnt().join("new")).unwrap();
    for file in 0..FILES {
        fs::write(fs.mnt().join(format!("new/{file}")), &bytes[..100_000]).unwrap();
    }
    let (right, report) = check(&fs, &["--repair"]);
    assert!(right && strays(&report).is_empty(), "{report}");
    assert_eq!(report["inodes_without_name"], 1, "{report}");
    let mut read = Vec::new();
    open.read_to_end(&mut read).unwrap();
    assert!(read == bytes, "what was open is whole");
    for file in 0..FILES {
        assert!(fs::read(fs.mnt().join(format!("new/{file}"))).unwrap() == bytes[..100_000], "{file} is whole");
    }
}

#[test]
fn a_limited_key_may_not_ask_and_a_silent_server_is_named() {
    let fs = with_a_tree();
    let key_file = fs.path("people.key");
    ok(weft().args(["key", "add", "people", "--state"]).arg(fs.state()).args(["--users", "1000-1999", "--output"]).arg(&key_file));
    // Servers follow the list of keys within a second.
    std::thread::sleep(Duration::from_secs(2));
    let said = fails(weft().arg("--key-file").arg(&key_file).args(["fsck", "--state"]).arg(fs.state()));
    assert!(said.contains("data0 was not looked at"), "{said}");

    fs.kill("data1");
    let (right, report) = check(&fs, &["--repair"]);
    let failed: Vec<_> = report["servers"].as_array().unwrap().iter().map(|server| server["failed"].is_string()).collect();
    assert!(!right && failed == [false, true], "{report}");
}

/// Nobody answers: that is said at once, and not after a wait for each server in turn.
#[test]
fn a_stopped_file_system_is_not_checked() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    fs.kill("data0");
    let some = weft().args(["fsck", "--timeout", "2"]).arg(fs.state()).output().unwrap();
    assert!(String::from_utf8_lossy(&some.stderr).starts_with("weft: no answer from data0: each question waits"), "{some:?}");
    fs.kill("meta0");
    let none = weft().args(["fsck", "--timeout", "2"]).arg(fs.state()).output().unwrap();
    let words = String::from_utf8_lossy(&none.stderr);
    assert!(none.stdout.is_empty() && words.contains("no server of") && words.contains("weft status"), "{none:?}");
}
