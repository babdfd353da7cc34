//! `weft trace` and `weft explain` with real servers and a real mount.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use weft_system_tests::{FileSystem, Need, available, fails, ok, signal, wait_until, weft};
use weft_trace::file::TraceFile;

const PATIENCE: Duration = Duration::from_secs(30);

/// With a mount that asks for each file that it makes.
fn asking(args: &[&str]) -> FileSystem {
    let fs = FileSystem::up(args);
    fs.mount("mnt", "noabsorb");
    fs
}

/// `weft trace COMMAND`, the report.
#[track_caller]
fn trace(fs: &FileSystem, words: &[&str]) -> Value {
    let report = ok(weft().arg("trace").arg(words[0]).arg(fs.state()).args(&words[1..]).arg("--json"));
    serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}"))
}

fn node<'a>(report: &'a Value, name: &str) -> &'a Value {
    let nodes = report["nodes"].as_array().unwrap_or_else(|| panic!("{report}"));
    nodes.iter().find(|node| node["node"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

fn number(report: &Value, name: &str, field: &str) -> u64 {
    node(report, name)[field].as_u64().unwrap_or_else(|| panic!("{report}"))
}

/// Names of the events in all files of a folder that begin with `node`, with how many there are.
fn recorded(folder: &Path, node: &str) -> std::collections::BTreeMap<String, usize> {
    let mut found = std::collections::BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder of traces").flatten() {
        if entry.file_name().to_string_lossy().starts_with(node) {
            let file = TraceFile::read(&fs::read(entry.path()).expect("a file")).expect("a trace");
            for one in file.records.iter() {
                *found.entry(file.header.events.name(one.record.event)).or_default() += 1;
            }
        }
    }
    found
}

fn make_files(dir: &Path, prefix: &str, count: usize) {
    for number in 0..count {
        let path = dir.join(format!("{prefix}{number}"));
        fs::write(&path, vec![7; 100_000]).expect("a file is written");
        assert_eq!(fs::read(&path).expect("a file is read").len(), 100_000);
        fs::remove_file(&path).expect("a file is removed");
    }
}

/// What README.md says: the folder has everything that `weft explain` and `weft view` need.
#[test]
fn one_folder_gets_the_files_of_servers_and_mounts() {
    if !available("one_folder_gets_the_files_of_servers_and_mounts", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let folder = fs.path("t");
    trace(&fs, &["on"]);
    make_files(&fs.mnt(), "file", 3);
    for _ in 0..2 {
        // A second time nothing is copied twice.
        trace(&fs, &["off", "--into", folder.to_str().expect("a short path")]);
        let entries = fs::read_dir(&folder).expect("it was made").flatten();
        let traces = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "wtrace"));
        assert_eq!(traces.count(), 3, "two servers and a mount");
    }
    assert!(recorded(&folder, "mount").get("fuse.create").is_some_and(|count| *count >= 3));
    let words = ok(weft().arg("explain").arg(&folder));
    assert!(words.contains("fuse.create: 3 times"), "{words}");
    // Another recording in this folder would be read with the first one.
    let off = |into: &Path| {
        trace(&fs, &["on"]);
        weft_system_tests::run(weft().args(["trace", "off"]).arg(fs.state()).arg("--into").arg(into), PATIENCE)
    };
    let (second, alone) = (off(&folder), off(&fs.path("alone")));
    assert!(second.is_success() && second.words().contains("has 3 more trace files"), "{}", second.words());
    assert!(alone.is_success() && !alone.words().contains("more trace files"), "{}", alone.words());
}

#[test]
fn a_running_file_system_is_traced_and_explained_and_then_left_alone() {
    if !available("a_running_file_system_is_traced", &[Need::Fuse]) {
        return;
    }
    let fs = asking(&["--meta", "1", "--data", "2"]);
    let before = trace(&fs, &["status"]);
    for name in ["meta0", "data0", "data1", "mount-mnt"] {
        assert_eq!((node(&before, name)["mode"].as_str(), number(&before, name, "records")), (Some("off"), 0), "{before}");
    }
    make_files(&fs.mnt(), "before", 3);

    let folder = fs.path("traces");
    let on = trace(&fs, &["on", "--dir", folder.to_str().expect("a path of this test")]);
    assert_eq!(node(&on, "mount-mnt")["mode"], "stream", "{on}");
    make_files(&fs.mnt(), "during", 20);
    let status = trace(&fs, &["status"]);
    for name in ["meta0", "data0", "mount-mnt"] {
        assert!(number(&status, name, "records") > 20, "{status}");
        assert_eq!(number(&status, name, "lost"), 0, "{status}");
    }
    // Files are closed a little later, many at a time: such an operation has no record if it is
    // under way at the end.
    std::thread::sleep(Duration::from_millis(50));
    wait_until("the end of the last operation", PATIENCE, || number(&trace_quietly(&fs), "mount-mnt", "in_flight") == 0);
    let off = trace(&fs, &["off"]);
    assert_eq!((node(&off, "meta0")["mode"].as_str(), node(&off, "meta0")["is_writing"].as_bool()), (Some("off"), Some(false)), "{off}");
    // Off is off.
    make_files(&fs.mnt(), "after", 20);
    let after = trace(&fs, &["status"]);
    for name in ["meta0", "data0", "data1", "mount-mnt"] {
        assert_eq!(number(&after, name, "records"), number(&off, name, "records"), "{name} went on");
    }
    // Only the user of the processes may read what was done.
    let mode = |path: &Path| fs::metadata(path).expect("it was made").permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let explained: Value = serde_json::from_str(&ok(weft().arg("explain").arg(&folder).arg("--json"))).expect("JSON");
    assert!(explained["covered"].as_f64().expect("a share") >= 0.95, "{explained}");
    // What was under way when recording was switched on or off has no beginning or no end; nothing
    // else is missing.
    for missing in explained["missing"].as_array().expect("a list") {
        let words = missing.as_str().expect("a sentence");
        let requests = words.split_once(" requests belong to no recorded operation").and_then(|(count, _)| count.parse().ok());
        assert!(requests.is_some_and(|requests: u32| requests <= 5), "{words}");
    }
    let kind = |name: &str| {
        let kinds = explained["kinds"].as_array().expect("a list");
        kinds.iter().find(|kind| kind["operation"] == name).unwrap_or_else(|| panic!("no {name} in {explained}")).clone()
    };
    assert_eq!(kind("fuse.create")["count"], 20);
    for stage in ["kernel", "send_queue", "network", "cpu", "journal"] {
        let stages = kind("fuse.create")["stages"].as_array().expect("a list").clone();
        // Beside other tests all of a hand-over may be a wait for a processor.
        let may_wait = matches!(stage, "kernel" | "network");
        let is_it = |one: &Value| one["stage"] == stage || may_wait && one["stage"] == "processor";
        assert!(stages.iter().any(|one| is_it(one) && one["seconds"].as_f64() > Some(0.0)), "{stage}: {stages:?}");
    }
    fs.down();
}

#[test]
fn what_the_machine_does_is_recorded_beside_what_processes_do() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    let gauges = ["load.host", "load.memory", "load.devices"];
    let recorded_with = |mask: &str, folder: &Path| {
        trace(&fs, &["on", "--mask", mask]);
        // Shares of the processors' time need two looks.
        std::thread::sleep(Duration::from_millis(1500));
        trace(&fs, &["off", "--into", folder.to_str().expect("a short path")]);
        ["meta0", "data0"].map(|node| recorded(folder, node))
    };
    for events in recorded_with("*", &fs.path("all")) {
        assert!(gauges.iter().all(|gauge| events.contains_key(*gauge)), "{events:?}");
        assert_eq!(events["load.host"] + 1, events["load.memory"], "the first look has nothing to compare with: {events:?}");
    }
    for events in recorded_with("*,-load.host,-load.memory,-load.devices", &fs.path("without")) {
        assert!(events.contains_key("load.processor") && gauges.iter().all(|gauge| !events.contains_key(*gauge)), "{events:?}");
    }
    // Both servers have them, as either could be the one that is there to the end.
    ok(weft().arg("export").arg(fs.path("all")).args(["--format", "csv", "--events", "load.memory", "-o"]).arg(fs.path("memory.csv")));
    let rows = fs::read_to_string(fs.path("memory.csv")).expect("written");
    let nodes = |name: &str| rows.lines().filter(|line| line.split(',').nth(2) == Some(name)).count();
    assert!(nodes("meta0") > 1 && nodes("data0") > 1, "{rows}");
}

#[test]
fn masks_and_names_choose_what_is_recorded_and_nonsense_is_refused() {
    if !available("masks_choose", &[Need::Fuse]) {
        return;
    }
    let fs = asking(&["--meta", "1", "--data", "1"]);
    let folder = fs.path("traces");
    let dir = folder.to_str().expect("a path of this test");
    // What a server has of an earlier recording is not brought with those that are chosen now.
    trace(&fs, &["on"]);
    trace(&fs, &["off"]);
    trace(&fs, &["on", "--mask", "meta.*,-meta.turn,client.create", "--nodes", "meta*,mount*", "--mode", "bench", "--dir", dir]);
    make_files(&fs.mnt(), "file", 5);
    trace(&fs, &["off"]);
    let meta = recorded(&folder, "meta0");
    assert_eq!(meta.get("meta.create"), Some(&5), "{meta:?}");
    assert!(meta.keys().all(|name| (name.starts_with("meta.") && name != "meta.turn") || name == "trace.sync"), "{meta:?}");
    let mount = recorded(&folder, "mount-mnt");
    assert_eq!(mount.get("client.create"), Some(&5), "{mount:?}");
    assert!(mount.keys().all(|name| name == "client.create" || name == "trace.sync"), "{mount:?}");
    assert!(recorded(&folder, "data0").is_empty());

    // One operation of 4 and everything below it.
    trace(&fs, &["on", "--mask", "fuse.*,client.*,net.call", "--sample", "1/4", "--nodes", "mount*", "--dir", dir]);
    make_files(&fs.mnt(), "sampled", 100);
    let status = trace(&fs, &["off"]);
    assert!((300..1800).contains(&number(&status, "mount-mnt", "records")), "of some 3700: {status}");

    let words = fails(weft().args(["trace", "on"]).arg(fs.state()).args(["--mask", "meta.craete"]));
    assert!(words.contains("meta.craete"), "{words}");
    for nothing in ["", "-meta.*"] {
        let words = fails(weft().args(["trace", "on"]).arg(fs.state()).args(["--mask", nothing]));
        assert!(words.contains("no event to record"), "{words}");
    }
    let words = fails(weft().args(["trace", "status"]).arg(fs.state()).args(["--nodes", "meta7"]));
    assert!(words.contains("meta7"), "{words}");
    let words = fails(weft().args(["trace", "dump"]).arg(fs.state()));
    assert!(words.contains("no flight recorder"), "{words}");
    fs.down();
}

#[test]
fn a_recording_that_one_of_them_refuses_or_cannot_write_is_on_nowhere() {
    if !available("a_recording_that_one_of_them_refuses", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    // A recording before: its files are none of those that are refused.
    trace(&fs, &["on"]);
    trace(&fs, &["off"]);
    let is_off = || {
        let status = trace_quietly(&fs);
        ["meta0", "data0", "mount-mnt"].iter().all(|name| node(&status, name)["mode"] == "off")
    };
    let refused = |options: &[&str]| {
        let words = fails(weft().args(["trace", "on"]).arg(fs.state()).args(options));
        assert!(!words.contains(".wtrace"), "{words}");
        assert!(is_off(), "after {options:?}: {}", trace_quietly(&fs));
        words
    };
    assert!(refused(&["--ring", "1TiB"]).contains("between 64 KiB and 1 GiB"));
    assert!(refused(&["--ring", "512MiB"]).contains("at most 128 MiB"));
    let in_the_way = fs.path("file");
    fs::write(&in_the_way, "").expect("a file");
    for folder in ["/proc/x", in_the_way.to_str().expect("a path of this test")] {
        for mode in ["stream", "bench", "flight"] {
            let words = refused(&["--dir", folder, "--mode", mode]);
            assert!(words.contains("nothing is recorded: mounts cannot write into --dir") && words.contains(folder), "{words}");
        }
    }
    let words = fails(weft().args(["trace", "dump"]).arg(fs.state()));
    assert!(words.contains("no flight recorder") && !words.contains(".wtrace"), "{words}");
    // For mounts only a large ring is allowed.
    trace(&fs, &["on", "--ring", "256MiB", "--nodes", "mount*"]);
    trace(&fs, &["off"]);
    fs.down();
}

#[test]
fn a_silent_server_is_named_with_what_to_do() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "2"]);
    fs.kill("data1");
    let words = fails(weft().args(["trace", "status"]).arg(fs.state()));
    let line = words.lines().find(|line| line.contains("problem:")).unwrap_or_else(|| panic!("{words}"));
    assert!(line.contains("data1: does not answer: trace at data1 (") && line.contains("weft status"), "{words}");
    assert!(!line.contains("h0.0"), "{words}");
    fs.down();
}

#[test]
fn every_dump_of_a_flight_recorder_is_brought() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    trace(&fs, &["on", "--mode", "flight"]);
    for number in 0..3 {
        let folder = fs.path(&format!("dump{number}"));
        let report = trace(&fs, &["dump", "--into", folder.to_str().expect("a path of this test")]);
        for name in ["meta0", "data0"] {
            let files = node(&report, name)["files"].as_array().expect("a list").clone();
            assert!(files.len() == 1 && Path::new(files[0].as_str().expect("a path")).starts_with(&folder), "{report}");
        }
    }
    trace(&fs, &["off"]);
    fs.down();
}

#[test]
fn a_flight_recorder_is_written_after_an_error_a_slow_operation_and_a_signal() {
    if !available("a_flight_recorder_is_written", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "1"]);
    let folder = fs.path("traces");
    let flight = |words: &[&str]| {
        let dir = folder.to_str().expect("a path of this test");
        trace(&fs, &[&["on", "--mode", "flight", "--ring", "64KiB", "--dir", dir], words].concat())
    };
    flight(&[]);
    // More than five rings of 1024 records hold.
    make_files(&fs.mnt(), "quiet", 200);
    let status = trace(&fs, &["status"]);
    assert_eq!((number(&status, "mount-mnt", "dumps"), number(&status, "meta0", "dumps")), (0, 0), "nothing happened: {status}");
    assert!(number(&status, "mount-mnt", "forgotten") > 0, "a small ring: {status}");
    assert!(!folder.exists());

    // A missing name is an answer, no trouble; a server that is gone is.
    assert!(fs::metadata(fs.mnt().join("nothing")).is_err());
    let open = fs::File::create(fs.mnt().join("file")).expect("a new file");
    fs.kill("data0");
    let writer = std::thread::spawn(move || std::os::unix::fs::FileExt::write_all_at(&open, &[1; 100_000], 0));
    wait_until("the dump of the mount", PATIENCE, || number(&trace_quietly(&fs), "mount-mnt", "dumps") >= 1);
    // It asks the servers for theirs.
    wait_until("the dump of the server", PATIENCE, || number(&trace_quietly(&fs), "meta0", "dumps") >= 1);
    fs.start(&[]);
    writer.join().expect("no panic").expect("the server is back");
    let mount = recorded(&folder, "mount-mnt");
    assert!(mount.get("net.call").is_some_and(|calls| *calls > 0) && mount.contains_key("trace.lost"), "{mount:?}");

    // The server was started anew and records nothing; the signal reaches the metadata server.
    let files = |name: &str| node(&trace_quietly(&fs), name)["files"].as_array().map_or(0, Vec::len);
    let before = files("meta0");
    signal(fs.pid("meta0").expect("it runs"), Signal::USR1).expect("it lives");
    wait_until("the dump after the signal", PATIENCE, || files("meta0") > before);

    trace(&fs, &["off", "--nodes", "mount*"]);
    flight(&["--slower-than", "20ms", "--nodes", "mount*"]);
    make_files(&fs.mnt(), "fast", 2);
    let stopped = fs.pid("meta0").expect("it runs");
    signal(stopped, Signal::STOP).expect("it lives");
    let path = fs.mnt().join("slow");
    let (begins, begun) = std::sync::mpsc::channel();
    let maker = std::thread::spawn(move || {
        begins.send(()).expect("somebody waits for it");
        // Making it may need no server, keeping it does.
        fs::File::create(path)?.sync_all()
    });
    begun.recv().expect("no panic");
    std::thread::sleep(Duration::from_millis(200));
    signal(stopped, Signal::CONT).expect("it lives");
    maker.join().expect("no panic").expect("the server goes on");
    wait_until("the dump after a slow operation", PATIENCE, || number(&trace_quietly(&fs), "mount-mnt", "dumps") >= 1);
    fs.down();
}

/// The state of all nodes; some may be away.
fn trace_quietly(fs: &FileSystem) -> Value {
    let finished = weft_system_tests::run(weft().args(["trace", "status", "--json"]).arg(fs.state()), PATIENCE);
    serde_json::from_slice(&finished.out).unwrap_or_else(|error| panic!("{error}: {}", finished.words()))
}

#[test]
fn explain_records_a_running_file_system_by_itself() {
    if !available("explain_records", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "1", "--data", "2"]);
    let (stop, mnt) = (std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)), fs.mnt());
    let ended = stop.clone();
    let work = std::thread::spawn(move || {
        while !ended.load(std::sync::atomic::Ordering::Relaxed) {
            make_files(&mnt, "work", 1);
        }
    });
    let explain = |seconds: &&str| -> Value {
        let text = ok(weft().arg("explain").arg(fs.state()).args(["--seconds", seconds, "--json"]));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    // On a busy machine the program may not get a processor for half a second.
    let explained = ["0.5", "3", "20"].iter().map(explain).find(|explained| explained["operations"].as_u64() > Some(10));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    work.join().expect("no panic");
    let explained = explained.expect("the program works all the time");
    assert!(explained["covered"].as_f64().expect("a share") >= 0.95, "{explained}");
    assert!(!fs.state().join("trace").exists(), "nothing is left behind");
    // Where the mount has its files still, those of servers are no others.
    let kept = fs.path("kept");
    ok(weft().arg("explain").arg(fs.state()).args(["--seconds", "0.1", "--keep"]).arg(&kept));
    let off = weft_system_tests::run(weft().args(["trace", "off"]).arg(fs.state()), PATIENCE);
    assert!(off.is_success() && off.words().contains("nothing was being recorded") && !off.words().contains("earlier"), "{}", off.words());
    fs.down();
}

#[test]
fn explain_ends_its_recording_when_it_is_interrupted_and_begins_no_second_one() {
    let fs = FileSystem::up(&["--data", "1"]);
    let mut explain = weft();
    explain.arg("explain").arg(fs.state()).args(["--seconds", "3000", "--json"]).stdout(Stdio::piped());
    let child = explain.spawn().expect("weft is there");
    wait_until("the recording", PATIENCE, || node(&trace_quietly(&fs), "data0")["mode"] == "stream");
    ok(weft().arg("mkdir").arg(fs.at("/dir")));
    let words = fails(weft().arg("explain").arg(fs.state()).args(["--seconds", "0.01"]));
    assert!(words.contains("is being recorded already") && words.contains("weft trace off"), "{words}");
    let words = fails(weft().args(["trace", "on"]).arg(fs.state()));
    assert!(words.contains("is being recorded already (data0, meta0)"), "{words}");
    assert_eq!(node(&trace(&fs, &["status"]), "data0")["mode"], "stream", "the first one goes on");
    signal(child.id(), Signal::INT).expect("it lives");
    let explained = child.wait_with_output().expect("its output");
    assert!(explained.status.success(), "{explained:?}");
    let explained: Value = serde_json::from_slice(&explained.stdout).expect("JSON");
    assert!(explained["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2), "{explained}");
    // Its files have gone with it.
    for command in ["status", "off"] {
        let report = trace(&fs, &[command]);
        for name in ["meta0", "data0"] {
            assert!(node(&report, name)["mode"] == "off" && node(&report, name)["files"] == Value::Array(Vec::new()), "{report}");
        }
    }
}

#[test]
fn a_recording_that_has_its_time_ends_by_itself_and_is_there_for_off() {
    let fs = FileSystem::up(&["--data", "1"]);
    for mode in ["stream", "bench", "flight"] {
        trace(&fs, &["on", "--seconds", "0.3", "--mode", mode]);
        let is_over = |name: &str| {
            let status = trace_quietly(&fs);
            node(&status, name)["mode"] == "off" && node(&status, name)["files"].as_array().is_some_and(|files| files.len() == 1)
        };
        wait_until("the end of the recording", PATIENCE, || is_over("meta0") && is_over("data0"));
        let into = fs.path(mode);
        trace(&fs, &["off", "--into", into.to_str().expect("a path of this test")]);
        assert!(["meta0", "data0"].iter().all(|name| !recorded(&into, name).is_empty()), "{mode}");
    }
    fs.down();
}

#[test]
fn a_mount_that_died_while_it_recorded_is_named() {
    if !available("a_mount_that_died_while_it_recorded", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::up(&["--data", "1"]);
    let mnt = fs.mount("mnt", "noabsorb");
    trace(&fs, &["on"]);
    fs.kill_mount(&mnt);
    let mut off = weft();
    off.args(["trace", "off"]).arg(fs.state()).arg("--into").arg(fs.path("brought"));
    let off = weft_system_tests::run(&mut off, PATIENCE);
    assert!(off.words().contains("mount-mnt has died"), "{}", off.words());
    fs.down();
}

#[test]
fn files_that_were_used_have_their_names_beside_the_traces() {
    if !available("files_that_were_used_have_their_names", &[Need::Fuse]) {
        return;
    }
    let fs = FileSystem::mounted(&["--meta", "2", "--data", "1"]);
    fs::create_dir_all(fs.mnt().join("some/where")).expect("made");
    let folder = fs.path("traces");
    trace(&fs, &["on", "--dir", folder.to_str().expect("a path of this test")]);
    let kept = fs.mnt().join("some/where/kept\nfile");
    fs::write(&kept, vec![7; 100_000]).expect("written");
    assert_eq!(fs::read(&kept).expect("read").len(), 100_000);
    make_files(&fs.mnt(), "gone", 1);
    trace(&fs, &["off", "--into", folder.to_str().expect("a path of this test")]);
    let names = fs::read_to_string(folder.join("names.weft")).expect("names");
    let paths: Vec<&str> = names.lines().skip(1).filter_map(|line| line.split_once('\t')).map(|(_, path)| path).collect();
    assert_eq!(names.lines().next(), Some("weft-names 1"));
    // A line break in a name does not make a line of its own.
    assert!(paths.contains(&"/some/where/kept\\nfile") && paths.contains(&"/some/where"), "{names}");
    assert!(!names.contains("gone") && paths.len() + 1 == names.lines().count(), "{names}");
    let mode = fs::metadata(folder.join("names.weft")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The table of what was done says them.
    let csv = fs.path("spans.csv");
    ok(weft().arg("export").arg(&folder).args(["--format", "csv", "-o"]).arg(&csv));
    assert!(fs::read_to_string(&csv).expect("exported").lines().count() > 10, "a list of names is no damage for other tools");
}
