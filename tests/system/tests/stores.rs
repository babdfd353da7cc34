//! The stores of a file system: which servers it was made with, that each is the one that it was,
//! how much room they take, and where their journals end.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use weft_store::journal::{SEGMENT_HEADER_BYTES, scan};
use weft_system_tests::load::content;
use weft_system_tests::{FileSystem, Need, available, fails, ok, wait_until, weft};

const PATIENCE: Duration = Duration::from_secs(60);
const FILE_BYTES: u64 = 3_000_000;

fn put_files(fs: &FileSystem) {
    let source = fs.path("source");
    fs::create_dir(&source).unwrap();
    for seed in 0..4 {
        fs::write(source.join(seed.to_string()), content((seed, FILE_BYTES))).unwrap();
    }
    ok(weft().arg("cp").arg("-r").arg(&source).arg(fs.at("/kept")));
}

#[track_caller]
fn check_files(fs: &FileSystem) {
    let back = fs.path("back");
    ok(weft().arg("cp").arg("-r").arg(fs.at("/kept")).arg(&back));
    ok(Command::new("diff").arg("-r").arg(fs.path("source")).arg(&back));
    fs::remove_dir_all(back).unwrap();
}

fn config(fs: &FileSystem) -> PathBuf {
    fs.state().join("weft.toml")
}

fn entry(name: &str, role: &str) -> String {
    format!("\n[[server]]\nname = \"{name}\"\nrole = \"{role}\"\naddress = \"unix:run/{name}.sock\"\ndir = \"servers/{name}\"\n")
}

/// The text of a config with the entry of a server taken out, and that entry.
fn without(text: &str, name: &str) -> (String, String) {
    let at = text.find(&format!("name = \"{name}\"")).expect("the server is there");
    let begin = text[..at].rfind("[[server]]").expect("an entry begins so");
    let end = text[at..].find("[[server]]").map_or(text.len(), |next| at + next);
    (format!("{}{}", &text[..begin], &text[end..]), text[begin..end].to_string())
}

/// Files that are made now, and the data servers on which they are, by name.
fn place_files(fs: &FileSystem, dir: &str) -> BTreeSet<String> {
    ok(weft().arg("cp").arg("-r").arg(fs.path("source")).arg(fs.at(dir)));
    let mut servers = BTreeSet::new();
    for seed in 0..4 {
        let stat: Value = serde_json::from_str(&ok(weft().args(["stat", "--json"]).arg(fs.at(&format!("{dir}/{seed}"))))).unwrap();
        servers.extend(stat[0]["data_servers"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_string()));
    }
    servers
}

#[track_caller]
fn check_tree(fs: &FileSystem, config: &Path, dir: &str) {
    let (back, mut from) = (fs.path("back"), config.as_os_str().to_owned());
    from.push(format!(":{dir}"));
    ok(weft().arg("cp").arg("-r").arg(from).arg(&back));
    ok(Command::new("diff").arg("-r").arg(fs.path("source")).arg(&back));
    fs::remove_dir_all(back).unwrap();
}

fn append(fs: &FileSystem, text: &str) {
    let made = fs::read_to_string(config(fs)).unwrap();
    fs::write(config(fs), made + text).unwrap();
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// What a user does who wants more room: one more entry, and `weft up`.
#[test]
fn promise_a_file_system_grows_and_every_file_stays_where_it_is() {
    let fs = FileSystem::up(&["--data", "2"]);
    put_files(&fs);
    fs.down();
    append(&fs, &entry("data2", "data"));
    let said = fails(weft().args(["serve", "--server", "data2", "--config"]).arg(config(&fs)));
    assert!(said.contains("`data2` has no id: add the line `id = 2`"), "{said}");
    fs.start(&[]);
    assert!(fs::read_to_string(config(&fs)).unwrap().contains("id = 2\nname = \"data2\""), "`weft up` has written its id");
    check_files(&fs);
    assert_eq!(place_files(&fs, "/young"), names(&["data0", "data1", "data2"]), "new files use the new server");
    let status = ok(weft().args(["status", "--state"]).arg(fs.state()));
    assert!(status.contains("data2") && status.contains("epoch 2"), "{status}");
    let report: Value = serde_json::from_str(&ok(weft().args(["df", "--json"]).arg(fs.state()))).unwrap();
    assert!(report["servers"].as_array().unwrap().iter().any(|row| row["name"] == "data2"), "{report}");
    fs.down();
    fs.start(&[]);
    check_tree(&fs, &config(&fs), "/kept");
    check_tree(&fs, &config(&fs), "/young");
}

/// It grows while it runs and is used; a config from before reads everything.
#[test]
fn promise_a_running_file_system_grows() {
    let fs = FileSystem::up(&["--meta", "2", "--data", "1"]);
    put_files(&fs);
    let old = fs.path("old.toml");
    let text = fs::read_to_string(config(&fs)).unwrap().replace("unix:run", &format!("unix:{}", fs.state().join("run").display()));
    let text = text.replace("key_file = \"key\"", &format!("key_file = \"{}\"", fs.state().join("key").display()));
    fs::write(&old, &text).unwrap();
    append(&fs, &format!("{}{}{}", entry("data1", "data"), entry("store", "data"), entry("meta2", "meta")));
    ok(weft().args(["up", "--state"]).arg(fs.state()));
    assert_eq!(place_files(&fs, "/young"), names(&["data0", "data1", "store"]));
    // Directories go to the new metadata server, too: of so many, not all are elsewhere.
    let homes = |dir: &str| {
        ok(weft().arg("mkdir").arg(fs.at(dir)));
        let stat: Value = serde_json::from_str(&ok(weft().args(["stat", "--json"]).arg(fs.at(dir)))).unwrap();
        stat[0]["metadata_server"].as_str().unwrap().to_string()
    };
    let homes: BTreeSet<String> = (0..24).map(|number| homes(&format!("/dir{number}"))).collect();
    assert!(homes.contains("meta2"), "{homes:?}");
    // Names that are moved between servers that have heard of the new one by now.
    ok(weft().arg("mv").arg(fs.at("/young")).arg(fs.at("/dir0/moved")));
    for (tree, config) in [("/kept", config(&fs)), ("/dir0/moved", config(&fs)), ("/kept", old.clone()), ("/dir0/moved", old.clone())] {
        check_tree(&fs, &config, tree);
    }
    // Who writes by the old config writes to where everybody looks.
    let mut to = old.as_os_str().to_owned();
    to.push(":/by-the-old");
    ok(weft().arg("cp").arg("-r").arg(fs.path("source")).arg(to));
    check_tree(&fs, &config(&fs), "/by-the-old");
    // A server with the old config would not find all others.
    fs.kill("meta1");
    let said = fails(weft().args(["serve", "--server", "meta1", "--config"]).arg(elsewhere(&fs, &text)));
    assert!(said.contains("no server has role = \"meta\" and id = 2: that is meta2"), "{said}");
    fs.start(&[]);
    check_files(&fs);
}

/// It grows under a mount with an open file: what is open goes on, and what the mount makes then
/// goes to the new servers, too.
#[test]
fn promise_a_mounted_file_system_grows() {
    if !available("promise_a_mounted_file_system_grows", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let (mnt, source) = (fs.mnt(), content((7, FILE_BYTES)));
    let path = mnt.join("open");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    let (first, second) = source.split_at(source.len() / 2);
    file.write_all_at(first, 0).unwrap();
    append(&fs, &format!("{}{}", entry("data1", "data"), entry("meta1", "meta")));
    ok(weft().args(["up", "--state"]).arg(fs.state()));
    file.write_all_at(second, first.len() as u64).unwrap();
    file.sync_all().unwrap();
    assert!(fs::read(&path).unwrap() == source, "the file that was open");

    // The mount hears of the new map with the answers to what it does.
    let mut made = 0;
    let is_used = |dir: &Path, server: &str| {
        let stat: Value = serde_json::from_str(&ok(weft().args(["stat", "--json"]).arg(fs.at(&format!("/{}", dir.display()))))).unwrap();
        let on_data = stat[0]["data_servers"].as_array().is_some_and(|names| names.iter().any(|name| name == server));
        on_data || stat[0]["metadata_server"] == server
    };
    wait_until("files and directories of the mount on the new servers", PATIENCE, || {
        made += 1;
        let dir = format!("dir{made}");
        fs::create_dir(mnt.join(&dir)).unwrap();
        let name = Path::new(&dir).join("file");
        fs::write(mnt.join(&name), &source).unwrap();
        is_used(&name, "data1") && is_used(Path::new(&dir), "meta1")
    });
    for number in 1..=made {
        assert!(fs::read(mnt.join(format!("dir{number}/file"))).unwrap() == source, "file {number}");
    }
    let other = fs.mount("second", "");
    assert!(fs::read(other.join("open")).unwrap() == source && fs::read_dir(&other).unwrap().count() == made + 1);
}

/// A config in the state directory under another name, so that paths are the same.
fn elsewhere(fs: &FileSystem, text: &str) -> PathBuf {
    let file = fs.state().join("other.toml");
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn promise_order_names_and_addresses_of_servers_move_no_file() {
    let fs = FileSystem::up(&["--meta", "2", "--data", "3"]);
    put_files(&fs);
    fs.down();
    let made = fs::read_to_string(config(&fs)).unwrap();
    let (mut text, mut entries) = (made.clone(), Vec::new());
    for name in ["data0", "data2", "meta0", "data1", "meta1"] {
        let (rest, entry) = without(&text, name);
        text = rest;
        entries.push(format!("\n{}\n", entry.trim()));
    }
    let reordered = text + &entries.concat();
    let renamed = reordered.replace("name = \"data1\"", "name = \"store\"").replace("name = \"meta0\"", "name = \"names\"");
    let moved = renamed.replace("run/data1.sock", "run/elsewhere.sock").replace("run/meta1.sock", "run/m.sock");
    let old = elsewhere(&fs, &made);
    for changed in [&reordered, &renamed, &moved, &made] {
        fs::write(config(&fs), changed).unwrap();
        fs.start(&[]);
        check_files(&fs);
        // The servers tell where they are now.
        check_tree(&fs, &old, "/kept");
        fs.down();
    }
}

#[test]
fn promise_a_config_that_contradicts_the_file_system_is_refused() {
    let fs = FileSystem::up(&["--data", "2"]);
    put_files(&fs);
    let made = fs::read_to_string(config(&fs)).unwrap();
    let (shorter, second) = without(&made, "data1");
    let other_id = second.replace("id = 1", "id = 7");
    let swapped =
        made.replace("servers/data0", "servers/x").replace("servers/data1", "servers/data0").replace("servers/x", "servers/data1");
    let cases = [
        (shorter.clone(), "no server has role = \"data\" and id = 1: that is data1"),
        (format!("{shorter}\n{other_id}"), "holds the store of the server with role = \"data\" and id = 1"),
        (swapped, "holds the store of the server with role = \"data\" and id = "),
        (made.replace("id = 1", "id = 0"), "`data0` has the same role and id"),
    ];
    for (changed, words) in &cases {
        fs::write(config(&fs), changed).unwrap();
        let said = fails(weft().args(["up", "--state"]).arg(fs.state()));
        assert!(said.contains(words), "{words}: {said}");
    }
    // A client is corrected by the servers that run.
    fs::write(config(&fs), &shorter).unwrap();
    check_files(&fs);
    // A config elsewhere, as on another machine, whose folders hold nothing: the running servers
    // are asked.
    let away = fs.path("elsewhere");
    fs::create_dir(&away).unwrap();
    let absolute = |text: &str| {
        let text = text.replace("unix:run", &format!("unix:{}", fs.state().join("run").display()));
        text.replace("key_file = \"key\"", &format!("key_file = \"{}\"", fs.state().join("key").display()))
    };
    let (taken, _) = without(&made, "data1");
    let taken = format!("{taken}{}", entry("mine", "data").replace("role = \"data\"", "role = \"data\"\nid = 1"));
    for (text, server, words) in [
        (taken, "mine", "the id 1 of mine is that of data1"),
        (format!("{shorter}{}", entry("data2", "data").replace("role = \"data\"", "role = \"data\"\nid = 2")), "data2", "that is data1"),
    ] {
        fs::write(away.join("weft.toml"), absolute(&text)).unwrap();
        let said = fails(weft().args(["serve", "--create", "--server", server, "--config"]).arg(away.join("weft.toml")));
        assert!(said.contains(words), "{words}: {said}");
        assert!(!away.join("servers").join(server).join("superblock").exists());
    }
    fs::write(config(&fs), &made).unwrap();
    fs.down();
    for (changed, words) in &cases {
        fs::write(config(&fs), changed).unwrap();
        let said = fails(weft().args(["up", "--state"]).arg(fs.state()));
        assert!(said.contains(words), "{words}: {said}");
    }
    fs::write(config(&fs), &made).unwrap();
    fs.start(&[]);
    check_files(&fs);
}

/// Metadata server 0 must not decide again what it has decided already.
#[test]
fn promise_an_old_copy_of_the_map_is_refused() {
    let fs = FileSystem::up(&["--data", "1"]);
    put_files(&fs);
    fs.down();
    let kept = fs.path("kept-folder");
    copy(&fs.server_dir("meta0"), &kept);
    append(&fs, &entry("data1", "data"));
    fs.start(&[]);
    fs.down();
    copy(&kept, &fs.server_dir("meta0"));
    let said = fails(weft().args(["up", "--state"]).arg(fs.state()));
    // The older data server may have been stopped before it heard of the newer one.
    assert!(said.contains("is an old copy") && said.contains("has seen epoch 2"), "{said}");
}

/// Starts a server alone that makes its store, and kills it as soon as it has.
fn make_again(fs: &FileSystem, server: &str) {
    fs::remove_dir_all(fs.server_dir(server)).unwrap();
    let log = fs::File::create(fs.path("made-again.log")).unwrap();
    let mut command = weft();
    command.args(["serve", "--create", "--server", server, "--config"]).arg(config(fs)).stdout(Stdio::null()).stderr(log);
    let mut child = command.spawn().unwrap();
    wait_until("a new superblock", PATIENCE, || fs.server_dir(server).join("superblock").exists());
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn promise_a_store_that_was_made_again_is_refused() {
    for server in ["data1", "meta0", "meta1"] {
        let fs = FileSystem::up(&["--meta", "2", "--data", "2"]);
        put_files(&fs);
        fs.down();
        let kept = fs.path("kept-folder");
        copy(&fs.server_dir(server), &kept);
        make_again(&fs, server);
        let said = fails(weft().args(["up", "--state"]).arg(fs.state()));
        assert!(said.contains(&format!("the store of {server} is not the one that the file system knows")), "{server}: {said}");
        // With the old folder everything is there.
        copy(&kept, &fs.server_dir(server));
        fs.start(&[]);
        check_files(&fs);
        fs.down();
    }
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    ok(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// A backup of one server among others that have gone on is refused; who has nothing else says so,
/// and keeps what was there then.
#[test]
fn promise_an_older_copy_of_a_store_is_refused() {
    for server in ["data0", "meta0"] {
        let fs = FileSystem::up(&["--meta", "2", "--data", "2"]);
        put_files(&fs);
        fs.down();
        let kept = fs.path("kept-folder");
        copy(&fs.server_dir(server), &kept);
        fs.start(&[]);
        place_files(&fs, "/young");
        (0..16).for_each(|number| drop(ok(weft().arg("mkdir").arg(fs.at(&format!("/dir{number}"))))));
        // The others hear how far it has come when it starts, and every minute.
        fs.down();
        fs.start(&[]);
        fs.down();
        copy(&fs.server_dir(server), &fs.path("newest"));
        copy(&kept, &fs.server_dir(server));
        let said = fails(weft().args(["up", "--state"]).arg(fs.state()));
        assert!(said.contains(&format!("the store of {server} is an older copy of itself")), "{server}: {said}");
        copy(&fs.path("newest"), &fs.server_dir(server));
        fs.start(&[]);
        check_files(&fs);
        check_tree(&fs, &config(&fs), "/young");
        fs.down();
        copy(&kept, &fs.server_dir(server));
        fs.start(&["--accept-older-store", server]);
        check_files(&fs);
        // No new file has a handle of one that was lost.
        place_files(&fs, "/new");
        check_tree(&fs, &config(&fs), "/new");
        fs.down();
        fs.start(&[]);
        check_files(&fs);
        check_tree(&fs, &config(&fs), "/new");
        let said = fails(weft().args(["up", "--accept-older-store", "data7", "--state"]).arg(fs.state()));
        assert!(said.contains("data7"), "{said}");
        fs.down();
    }
}

/// Bytes that a tree takes on the disk.
fn allocated(dir: &Path) -> u64 {
    let about = fs::symlink_metadata(dir).unwrap();
    let inside = if about.is_dir() { fs::read_dir(dir).unwrap().map(|entry| allocated(&entry.unwrap().path())).sum() } else { 0 };
    about.blocks() * 512 + inside
}

/// `WEFT_RESTARTS` is the number of restarts (6 by default).
#[test]
fn an_idle_file_system_is_small_and_stays_so() {
    let fs = FileSystem::up(&["--data", "1"]);
    let first = allocated(&fs.state());
    assert!(first < 150_000_000, "{first} bytes");
    let restarts = std::env::var("WEFT_RESTARTS").ok().map_or(6, |text| text.parse().expect("a number"));
    for round in 0..restarts {
        match round % 2 {
            0 => fs.down(),
            _ => {
                fs.kill("meta0");
                fs.kill("data0");
            }
        }
        fs.start(&[]);
        let now = allocated(&fs.state());
        eprintln!("{now} bytes after {} restarts", round + 1);
        // Logs get some lines.
        assert!(now < first + (1 << 20), "{now} bytes after {round} restarts, {first} before");
    }
}

#[test]
fn too_little_room_is_told_with_numbers_and_leaves_no_half_state() {
    if !available("too_little_room_is_told_with_numbers_and_leaves_no_half_state", &[Need::Root]) {
        return;
    }
    let fs = FileSystem::prepare();
    fs::create_dir_all(fs.state()).unwrap();
    ok(Command::new("mount").args(["-t", "tmpfs", "-o", "size=40m,mode=0700", "weft-test"]).arg(fs.state()));
    let said = fails(weft().args(["up", "--data", "1", "--state"]).arg(fs.state()));
    assert!(said.contains("2 servers need at least 65 MiB"), "{said}");
    assert!(!config(&fs).exists() && fs.processes().is_empty());
    ok(Command::new("mount").args(["-o", "remount,size=80m"]).arg(fs.state()));
    fs.start(&["--data", "1"]);
    ok(weft().args(["down", "--state"]).arg(fs.state()));
    assert!(fs.processes().is_empty());
    ok(Command::new("umount").arg(fs.state()));
}

#[test]
fn a_disk_that_servers_share_is_counted_once() {
    let fs = FileSystem::up(&["--data", "3"]);
    let report: Value = serde_json::from_str(&ok(weft().args(["df", "--json"]).arg(fs.state()))).unwrap();
    let free = |value: &Value| value["free_bytes"].as_u64().unwrap();
    let of_servers: Vec<u64> = report["servers"].as_array().unwrap().iter().filter(|row| row["role"] == "data").map(free).collect();
    let largest = *of_servers.iter().max().unwrap();
    assert_eq!(of_servers.len(), 3);
    // Somebody else may write to the disk between the answers.
    assert!(free(&report) < largest + largest / 2, "{report}");
}

/// The newest segment with frames, and where its last frame ends.
fn newest_frame(dir: &Path) -> (String, u64) {
    let names = fs::read_dir(dir).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let numbers = names.filter_map(|name| name.strip_prefix("journal.")?.parse::<u64>().ok());
    let ends = numbers.map(|number| {
        let name = format!("journal.{number}");
        let end = scan(&fs::read(dir.join(&name)).unwrap()).expect("a segment").end_offset as u64;
        (number, name, end)
    });
    let written = ends.filter(|(_, _, end)| *end > SEGMENT_HEADER_BYTES as u64 + 100);
    let (_, name, end) = written.max().expect("what was done is in a journal");
    (name, end)
}

#[test]
fn a_flipped_byte_in_the_last_frame_is_noticed_after_an_orderly_stop() {
    let fs = FileSystem::up(&["--data", "1"]);
    put_files(&fs);
    ok(weft().arg("mv").arg(fs.at("/kept/0")).arg(fs.at("/kept/zero")));
    fs.down();
    for server in ["meta0", "data0"] {
        let (name, end) = newest_frame(&fs.server_dir(server));
        let journal = fs.server_dir(server).join(&name);
        let file = OpenOptions::new().read(true).write(true).open(&journal).unwrap();
        // In the payload, before the padding.
        let at = end - 12;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
        let said = fails(weft().args(["up", "--state"]).arg(fs.state()));
        assert!(said.contains(server) && said.contains(&name) && said.contains("at byte"), "{said}");
        ok(weft().args(["down", "--state"]).arg(fs.state()));
        file.write_all_at(&byte, at).unwrap();
    }
    fs.start(&[]);
    ok(weft().arg("stat").arg(fs.at("/kept/zero")));
}

/// `weft set durability` (the `pvfs2-set-sync` of PVFS2): at once, over restarts, and shown.
#[test]
fn promise_durability_is_set_while_servers_run() {
    let fs = FileSystem::up(&["--meta", "2", "--data", "2"]);
    let shown = |fs: &FileSystem| -> Vec<String> {
        let ping: Value = serde_json::from_str(&ok(weft().args(["ping", "--json"]).arg(fs.state()))).expect("JSON");
        let servers = ping["servers"].as_array().expect("servers").iter();
        servers.map(|server| server["durability"].as_str().expect("a name").to_string()).collect()
    };
    let flushes = |fs: &FileSystem| -> u64 {
        let metrics = ok(weft().args(["metrics", "--once"]).arg(fs.state()));
        let lines = metrics.lines().filter(|line| line.starts_with("weft_journal_syncs_total"));
        lines.map(|line| line.rsplit(' ').next().expect("a number").parse::<f64>().expect("a number") as u64).sum()
    };
    assert_eq!(shown(&fs), ["batch"; 4]);
    let words = ok(weft().args(["set", "durability", "sync"]).arg(fs.state()));
    assert!(words.contains("4 servers: sync"), "{words}");
    assert_eq!(shown(&fs), ["sync"; 4]);
    let before = flushes(&fs);
    for number in 0..20 {
        ok(weft().arg("mkdir").arg(fs.at(&format!("/{number}"))));
    }
    assert!(flushes(&fs) >= before + 20, "each mkdir is flushed before it is answered");
    fs.down();
    fs.start(&[]);
    assert_eq!(shown(&fs), ["sync"; 4], "after a restart, whatever the config says");
    ok(weft().args(["set", "durability", "none"]).arg(fs.state()));
    assert_eq!(shown(&fs), ["none"; 4]);
    let memory = FileSystem::up(&["--engine", "memory", "--data", "1"]);
    let words = fails(weft().args(["set", "durability", "sync"]).arg(memory.state()));
    assert!(words.contains("2 of 2 servers") && words.contains("it keeps nothing"), "{words}");
}
