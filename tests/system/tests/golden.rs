//! What released versions have written is read by this one: for each version a small state as it
//! lay on the disks, and every message and record (`tests/system/golden/VERSION`,
//! `docs/formats.md`). What a newer version has written is refused by name.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::Value;
use weft_namespace::Record;
use weft_store::checkpoint::CheckpointReader;
use weft_store::journal::{EndReason, scan};
use weft_store::objects::ObjectRecord;
use weft_system_tests::fuzzing::{TARGETS, samples};
use weft_system_tests::{FileSystem, Random, fails, ok, weft};
use weft_wire::{Op, Request};

/// Contents of the state: never changed, or the states of older versions would not fit.
const STRIPED_BYTES: usize = (2 << 20) + 777;

/// Two stripes of zeros between bytes that do not repeat.
fn striped() -> Vec<u8> {
    let mut bytes = vec![0; STRIPED_BYTES];
    let noise = Random::new(9).bytes(5000);
    bytes[..5000].copy_from_slice(&noise);
    bytes[STRIPED_BYTES - 5000..].copy_from_slice(&noise);
    bytes
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn versions() -> Vec<PathBuf> {
    let entries = fs::read_dir(golden()).expect("there is a folder for each version");
    let mut versions: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).filter(|path| path.is_dir()).collect();
    versions.sort();
    assert!(versions.contains(&current()), "no golden files of this version: {HOW}");
    versions
}

fn current() -> PathBuf {
    golden().join(env!("CARGO_PKG_VERSION"))
}

const HOW: &str = "run WEFT_BLESS=1 cargo test -p weft-system-tests --test golden, and only before the version is released";

fn is_blessed() -> bool {
    std::env::var_os("WEFT_BLESS").is_some()
}

/// Every message and record by the fuzz target that reads it.
fn messages() -> String {
    let mut text = String::new();
    for target in TARGETS.iter().filter(|target| target.name != "inspect") {
        for (name, bytes) in (target.valid)() {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(text, "{} {name} {}", target.name, squeezed(&hex)).expect("a string takes everything");
        }
    }
    text
}

/// Runs of zeros are long in header blocks: `(n)` stands for n zero bytes.
fn squeezed(hex: &str) -> String {
    let mut out = String::new();
    let mut rest = hex;
    while !rest.is_empty() {
        let zeros = rest.as_bytes().chunks(2).take_while(|byte| *byte == b"00").count();
        if zeros >= 16 {
            write!(out, "({zeros})").expect("a string takes everything");
            rest = &rest[zeros * 2..];
        } else {
            out.push_str(&rest[..2]);
            rest = &rest[2..];
        }
    }
    out
}

fn expanded(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('(') {
            let (zeros, behind) = behind.split_once(')').expect("a count ends");
            out.resize(out.len() + zeros.parse::<usize>().expect("a number"), 0);
            rest = behind;
        } else {
            out.push(u8::from_str_radix(&rest[..2], 16).expect("two digits"));
            rest = &rest[2..];
        }
    }
    out
}

/// Is it read as what it was written?
fn accepts(target: &str, name: &str, bytes: &[u8]) -> bool {
    let operation = || (u16::from_le_bytes([bytes[0], bytes[1]]), Bytes::copy_from_slice(&bytes[2..]));
    match target {
        "request" => Request::decode(operation().0, operation().1).is_ok(),
        "reply" => Op::from_code(operation().0).is_some_and(|op| op.check_reply(operation().1).is_ok()),
        "journal" => scan(bytes).is_ok_and(|found| found.end == EndReason::Clean),
        "checkpoint" => {
            let mut reader = CheckpointReader::new();
            reader.push(&bytes[1..]);
            while let Ok(Some(_)) = reader.next_chunk() {}
            reader.finish().is_ok()
        }
        "record" if name.starts_with("meta-") => Record::decode(Bytes::copy_from_slice(bytes)).is_ok(),
        "record" => ObjectRecord::decode(bytes).is_ok(),
        "handshake" => samples::accepts_handshake(bytes[0], Bytes::copy_from_slice(&bytes[1..])),
        "frame" => weft_wire::Header::decode(bytes.first_chunk().expect("a frame has a header")).is_ok(),
        other => panic!("no reader for {other}"),
    }
}

#[test]
fn messages_and_records_of_every_version_are_read() {
    let file = current().join("messages.txt");
    if is_blessed() {
        fs::create_dir_all(current()).unwrap();
        fs::write(&file, messages()).unwrap();
    }
    for version in versions() {
        let text = fs::read_to_string(version.join("messages.txt")).expect("each version has its messages");
        assert!(text.lines().count() > 60, "too few in {}", version.display());
        for line in text.lines() {
            let [target, name, bytes] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("three words: {line}") };
            assert!(accepts(target, name, &expanded(bytes)), "{} of {} is not read: docs/formats.md", name, version.display());
        }
    }
    assert!(fs::read_to_string(&file).unwrap() == messages(), "messages or records are written differently: {HOW}");
}

/// Copies a state into a folder of its version: of each file only the blocks that are not zero,
/// with their places in `MANIFEST`.
fn shrink(state: &Path, to: &Path) {
    const BLOCK: usize = 512;
    let mut manifest = String::new();
    let mut packed = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let mut names: Vec<_> = fs::read_dir(state.join(&folder)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in names {
            let path = folder.join(&name);
            let kind = fs::symlink_metadata(state.join(&path)).unwrap();
            let is_left_out = name
                .to_str()
                .is_some_and(|name| name == "run" || name == "trace" || name.starts_with("spare.") || name.ends_with(".reserve"));
            if is_left_out || (!kind.is_dir() && !kind.is_file()) {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(state.join(&path)).unwrap();
            let mut places = String::new();
            for (number, block) in bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0)) {
                write!(places, " {number}").unwrap();
                packed.extend_from_slice(block);
                packed.resize(packed.len().next_multiple_of(BLOCK), 0);
            }
            writeln!(manifest, "{} {}{places}", path.display(), bytes.len()).unwrap();
        }
    }
    fs::create_dir_all(to).unwrap();
    fs::write(to.join("MANIFEST"), manifest).unwrap();
    fs::write(to.join("blocks"), packed).unwrap();
}

/// Makes the state of a version again.
fn grow(from: &Path, state: &Path) {
    const BLOCK: usize = 512;
    let packed = fs::read(from.join("blocks")).unwrap();
    let mut blocks = packed.chunks(BLOCK);
    let private = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    fs::create_dir_all(state.join("run")).unwrap();
    for line in fs::read_to_string(from.join("MANIFEST")).unwrap().lines() {
        let mut words = line.split(' ');
        let path = state.join(words.next().expect("a path"));
        let len: usize = words.next().expect("a size").parse().expect("a number");
        let mut bytes = vec![0; len];
        for number in words {
            let at = number.parse::<usize>().expect("a number") * BLOCK;
            let end = len.min(at + BLOCK);
            bytes[at..end].copy_from_slice(&blocks.next().expect("a block for each place")[..end - at]);
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        private(&path, 0o600);
    }
    for folder in ["", "run", "servers"] {
        private(&state.join(folder), 0o700);
    }
}

fn make_state(fs: &FileSystem) {
    let source = fs.path("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("hello"), "hello\n").unwrap();
    fs::write(source.join("striped"), striped()).unwrap();
    fs::write(source.join("removed"), "soon").unwrap();
    std::os::unix::fs::symlink("hello", source.join("link")).unwrap();
    ok(weft().arg("cp").arg("-r").arg(&source).arg(fs.at("/dir")));
    ok(weft().arg("ln").arg(fs.at("/dir/hello")).arg(fs.at("/dir/second")));
    ok(weft().args(["xattr", "set", "user.color", "blue"]).arg(fs.at("/dir/hello")));
    ok(weft().arg("rm").arg(fs.at("/dir/removed")));
    ok(weft().arg("mkdir").arg(fs.at("/empty")));
    ok(weft().arg("mv").arg(fs.at("/empty")).arg(fs.at("/moved")));
}

#[track_caller]
fn check_state(fs: &FileSystem) {
    let listed = ok(weft().arg("ls").arg(fs.at("/dir")));
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), ["hello", "link", "second", "striped"]);
    assert_eq!(ok(weft().arg("cat").arg(fs.at("/dir/link"))), "hello\n");
    let back = fs.path("back");
    ok(weft().arg("cp").arg(fs.at("/dir/striped")).arg(&back));
    assert!(fs::read(&back).unwrap() == striped(), "the content of a striped file");
    fs::remove_file(&back).unwrap();
    assert!(ok(weft().args(["xattr", "get", "user.color"]).arg(fs.at("/dir/hello"))).contains("blue"));
    let stat: Value = serde_json::from_str(&ok(weft().args(["stat", "--json"]).arg(fs.at("/dir/hello")))).unwrap();
    let stat = stat.get(0).unwrap_or(&stat);
    assert_eq!(stat["nlink"], 2, "{stat}");
    assert!(ok(weft().arg("ls").arg(fs.at("/"))).contains("moved"));
}

#[test]
fn a_state_of_every_version_is_served_and_written() {
    if is_blessed() {
        let fs = FileSystem::up(&["--meta", "2", "--data", "2"]);
        make_state(&fs);
        check_state(&fs);
        fs.down();
        shrink(&fs.state(), &current().join("state"));
    }
    for version in versions() {
        let fs = FileSystem::prepare();
        grow(&version.join("state"), &fs.state());
        // Before any server has touched it.
        ok(weft().arg("inspect").arg(fs.state()));
        fs.start(&[]);
        check_state(&fs);
        fs::write(fs.path("new"), "new").unwrap();
        ok(weft().arg("cp").arg(fs.path("new")).arg(fs.at("/dir/new")));
        ok(weft().arg("rm").arg(fs.at("/dir/new")));
        fs.down();
        fs.start(&[]);
        check_state(&fs);
        fs.down();
        ok(weft().arg("inspect").arg(fs.state()));
    }
}

/// Changes the text of a superblock and closes it with its checksum.
fn edit_superblock(path: &Path, edit: impl FnOnce(&str) -> String) {
    let text = fs::read_to_string(path).unwrap();
    let fields = edit(&text[..text.rfind("crc32c ").expect("the checksum is the last line")]);
    let crc = weft_wire::crc32c(fields.as_bytes());
    fs::write(path, format!("{fields}crc32c {crc:08x}\n")).unwrap();
}

#[test]
fn what_a_newer_version_has_written_is_refused_by_name() {
    let lines = [
        ("data0", "compatible colours", None),
        ("data0", "of_a_newer weft", None),
        ("data0", "incompatible replicas", Some("it needs the feature replicas")),
        ("meta0", "incompatible replicas", Some("it needs the feature replicas")),
        ("meta0", "read_only quotas", Some("the feature quotas")),
    ];
    let fs = FileSystem::up(&["--data", "1"]);
    fs.down();
    for (server, line, refused) in lines {
        let path = fs.server_dir(server).join("superblock");
        let good = fs::read(&path).unwrap();
        edit_superblock(&path, |text| format!("{text}{line}\n"));
        match refused {
            None => {
                fs.start(&[]);
                fs.down();
                let kept = fs::read_to_string(&path).unwrap();
                assert!(kept.lines().any(|kept| kept == line), "a server keeps what it does not know: {kept}");
            }
            Some(words) => {
                let said = fails(weft().args(["up", "--state"]).arg(fs.state()));
                assert!(said.contains(words), "{words}: {said}");
                fs::write(&path, good).unwrap();
            }
        }
    }
    let path = fs.server_dir("meta0").join("superblock");
    edit_superblock(&path, |text| text.replacen("superblock 3", "superblock 4", 1));
    let said = fails(weft().args(["up", "--state"]).arg(fs.state()));
    assert!(said.contains("format 4, and this weft reads format 3"), "{said}");
}

#[test]
fn damage_is_shown_with_its_place_and_a_running_server_is_named() {
    let fs = FileSystem::up(&["--data", "1"]);
    fs::write(fs.path("file"), striped()).unwrap();
    ok(weft().arg("cp").arg(fs.path("file")).arg(fs.at("/file")));
    let running = weft_system_tests::run(weft().arg("inspect").arg(fs.state()), std::time::Duration::from_secs(60));
    assert!(running.words().contains("meta0 (pid ") && running.words().contains("may look incomplete"), "{}", running.words());
    fs.down();
    let journal = fs.server_dir("meta0").join("journal.1");
    let told: Value = serde_json::from_str(&ok(weft().args(["inspect", "--json", "--records"]).arg(&journal))).unwrap();
    let report = &told[0]["files"][0];
    assert_eq!((report["kind"].as_str(), told[0]["running"].as_str()), (Some("journal segment"), None), "{told}");
    assert!(report["records"]["PutEntry"].as_u64().is_some_and(|count| count >= 1), "{report}");
    let mut bytes = fs::read(&journal).unwrap();
    bytes[4096 + 50] ^= 4;
    fs::write(&journal, bytes).unwrap();
    let said = fails(weft().arg("inspect").arg(fs.state()));
    assert!(said.contains("DAMAGE at byte 4096"), "{said}");
    assert!(fails(weft().arg("inspect").arg(fs.path("file"))).contains("is no file of a server"));
}

#[test]
fn databases_and_their_tail_are_shown_and_damage_of_them_is_told() {
    for (engine, main) in [("db", "metadata.db"), ("dbpf", "attributes.db")] {
        let fs = FileSystem::up(&["--data", "1", "--engine", engine, "--durability", "batch"]);
        fs::write(fs.path("file"), "a").unwrap();
        for name in ["/one", "/two"] {
            ok(weft().arg("cp").arg(fs.path("file")).arg(fs.at(name)));
        }
        fs.down();
        let told: Value = serde_json::from_str(&ok(weft().args(["inspect", "--json", "--records"]).arg(fs.state()))).unwrap();
        let servers = told.as_array().unwrap();
        let meta = servers.iter().find(|server| server["path"].as_str().is_some_and(|path| path.ends_with("meta0"))).unwrap();
        let of = |file: &str| {
            let files = meta["files"].as_array().unwrap();
            files.iter().find(|report| report["file"] == file).unwrap_or_else(|| panic!("{engine}: no {file} in {meta}"))
        };
        // Root, and the two files.
        assert_eq!(of(main)["records"]["PutInode"], 3, "{engine}: {meta}");
        let names = of(if engine == "db" { main } else { "keyval-0000000000000001.db" });
        assert_eq!(names["records"]["PutEntry"], 2, "{engine}: {meta}");
        assert!(names["listing"].to_string().contains("PutEntry"));
        let next = of("(all files)")["fields"][0].clone();
        assert!(next[0] == "next record" && of("tail")["fields"].to_string().contains(next[1].as_str().unwrap()), "{meta}");

        // A page that makes no sense, half a file, records that are nowhere.
        let at = |name: &str| fs.server_dir("meta0").join(name);
        let (whole, tail) = (fs::read(at(main)).unwrap(), fs::read(at("tail")).unwrap());
        let damaged = |bytes: &[u8], words: &str| {
            fs::write(at(main), bytes).unwrap();
            let said = fails(weft().arg("inspect").arg(at("")));
            assert!(said.contains(words) && !said.contains("panicked"), "{engine}: {said}");
        };
        let mut bytes = whole.clone();
        bytes[4096..].fill(0xA5);
        damaged(&bytes, "DAMAGE");
        damaged(&whole[..whole.len() / 2], "DAMAGE");
        damaged(b"no database", "DAMAGE");
        fs::write(at(main), &whole).unwrap();
        fs::write(at("tail"), vec![0; tail.len()]).unwrap();
        ok(weft().arg("inspect").arg(at("")));
        fs::remove_file(at("tail")).unwrap();
        assert!(fails(weft().arg("inspect").arg(at(""))).contains("tail is missing"));
        fs::remove_file(at(main)).unwrap();
        assert!(fails(weft().arg("inspect").arg(at(""))).contains(&format!("{main} is missing")));
    }
}

#[test]
fn formats_md_names_every_version() {
    let document = include_str!("../../../docs/formats.md");
    let row = |format: &str, version: u32| {
        let row = format!("| {format} | {version} |");
        assert!(document.contains(&row), "docs/formats.md lacks {row}");
    };
    row("journal segment", weft_store::journal::JOURNAL_VERSION);
    row("checkpoint", weft_store::checkpoint::CHECKPOINT_VERSION);
    row("metadata record", u32::from(weft_namespace::RECORD_VERSION));
    row("messages", u32::from(weft_wire::PROTOCOL_VERSION));
}
