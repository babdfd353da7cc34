//! The stores of a file system: which servers it was made with, that each is the one that it was, how much room they take, and where
//! their journals end.

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

#[test]
fn promise_a_list_of_servers_that_changed_is_refused() {
    let fs = FileSystem::up(&["--data", "2"]);
    put_files(&fs);
    let made = fs::read_to_string(config(&fs)).unwrap();
    let (shorter, second) = without(&made, "data1");
    let (only_meta, first) = without(&shorter, "data0");
    let grown = format!("{made}{}", entry("data2", "data"));
    let cases = [
        (grown.clone(), "data2 is new: take the entry of data2 out again"),
        (format!("{made}{}", entry("meta1", "meta")), "meta1 is new"),
        (shorter, "data1 is missing: put the entry of data1 back"),
        (made.replace("name = \"data1\"", "name = \"store\""), "data1 is called store now"),
        (format!("{only_meta}{second}\n{first}"), "data1 stands where data0 was"),
    ];
    for (changed, words) in &cases {
        fs::write(config(&fs), changed).unwrap();
        // Servers that run know better than a client with this config.
        for command in [weft().arg("ls").arg(fs.at("/kept")), weft().args(["up", "--state"]).arg(fs.state())] {
            let said = fails(command);
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    // A config elsewhere, as on another machine, whose folders hold nothing: the running servers are asked.
    let elsewhere = fs.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let run = fs.state().join("run");
    let moved = grown
        .replace("unix:run", &format!("unix:{}", run.display()))
        .replace("key_file = \"key\"", &format!("key_file = \"{}\"", fs.state().join("key").display()));
    fs::write(elsewhere.join("weft.toml"), moved).unwrap();
    let said = fails(weft().args(["serve", "--create", "--server", "data2", "--config"]).arg(elsewhere.join("weft.toml")));
    assert!(said.contains("data2 is new"), "{said}");
    assert!(!elsewhere.join("servers/data2/superblock").exists());

    fs::write(config(&fs), &made).unwrap();
    fs.down();
    for (changed, words) in &cases {
        fs::write(config(&fs), changed).unwrap();
        let said = fails(weft().args(["up", "--state"]).arg(fs.state()));
        assert!(said.contains(words), "{words}: {said}");
    }
    fs::write(config(&fs), &grown).unwrap();
    let said = fails(weft().args(["serve", "--create", "--server", "data2", "--config"]).arg(config(&fs)));
    assert!(said.contains("data2 is new"), "{said}");
    assert!(!fs.server_dir("data2").exists(), "nothing was made");

    fs::write(config(&fs), &made).unwrap();
    fs.start(&[]);
    check_files(&fs);
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
        ok(Command::new("cp").arg("-a").arg(fs.server_dir(server)).arg(&kept));
        make_again(&fs, server);
        let said = fails(weft().args(["up", "--state"]).arg(fs.state()));
        assert!(said.contains(&format!("the store of {server} is not the one that the file system knows")), "{server}: {said}");
        // With the old folder everything is there.
        fs::remove_dir_all(fs.server_dir(server)).unwrap();
        ok(Command::new("cp").arg("-a").arg(&kept).arg(fs.server_dir(server)));
        fs.start(&[]);
        check_files(&fs);
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
