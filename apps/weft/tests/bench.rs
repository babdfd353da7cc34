//! `weft bench` as a person uses it: real processes that measure a temporary directory, and a small
//! file system by the library.

mod program;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use program::{fails, ok, weft, words};

/// Runs a benchmark with `--json`; gives its phases.
fn phases(command: &mut Command) -> Vec<Value> {
    let text = ok(command.arg("--json"));
    serde_json::from_str::<Vec<Value>>(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn names(phases: &[Value]) -> Vec<&str> {
    phases.iter().map(|phase| phase["phase"].as_str().unwrap()).collect()
}

fn assert_spread(spread: &Value) {
    let part = |name: &str| spread[name].as_f64().unwrap_or_else(|| panic!("no {name} in {spread}"));
    assert!(part("min") > 0.0 && part("min") <= part("median") && part("median") <= part("max"), "{spread}");
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

/// A file system that is stopped when the test ends.
struct Demo(TempDir);

impl Demo {
    fn up() -> Demo {
        let demo = Demo(tempfile::tempdir().unwrap());
        ok(weft(["up", "--state", &demo.state(), "--meta", "2", "--data", "2"]).stdout(Stdio::null()));
        demo
    }

    fn state(&self) -> String {
        self.0.path().join("state").display().to_string()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = weft(["down", "--state", &self.state()]).output();
    }
}

#[test]
fn a_path_is_measured_by_several_processes_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let progress = tempfile::NamedTempFile::new().unwrap();
    let mut command =
        weft(["bench", "all", "--path", path, "--files", "20", "--size", "3901", "--stream-size", "1MiB", "--block", "64KiB"]);
    command.args(["--procs", "2", "--clients", "2", "--reps", "2", "--progress"]).arg(progress.path());
    let phases = phases(&mut command);
    assert_eq!(names(&phases), ["create", "stat", "readdir", "read", "remove", "stream-write", "stream-read"]);
    for phase in &phases {
        assert_spread(&phase["ops_per_s"]);
        assert_eq!(phase["repetitions"], 2);
        assert!(phase["client_cpu_us_per_op"].is_f64() && phase["messages_per_op"].is_null() && phase["server_cpu_us_per_op"].is_null());
    }
    assert_eq!(phases[0]["ops"], 80, "20 files of 4 clients");
    assert_eq!(phases[2]["ops"], 320, "each of them sees all");
    assert_eq!(phases[5]["ops"], 64, "16 blocks of 4 clients");
    assert_spread(&phases[5]["mib_per_s"]);
    assert!(phases[1]["mib_per_s"].is_null());
    let csv = std::fs::read_to_string(progress.path()).unwrap();
    assert_eq!(csv.lines().next(), Some("phase,repetition,proc,node,t_s,count,bytes"));
    let created: u64 =
        csv.lines().filter(|line| line.starts_with("create,0,")).map(|line| line.split(',').nth(5).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(created, 80, "{csv}");
    let processes = phases[0]["progress"].as_array().unwrap();
    assert_eq!(processes.len(), 4, "two processes, two repetitions");
    let sum = |of: &Value, key: &str| -> u64 {
        of.as_array().unwrap().iter().map(|part| if key.is_empty() { part } else { &part[key] }.as_u64().unwrap()).sum()
    };
    for process in processes {
        assert_eq!((sum(&process["counts"], ""), sum(&process["latency_bins"], "count")), (40, 40), "{process}");
    }
    assert!(is_empty(dir.path()));
}

#[test]
fn special_workloads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let interleaved = ["--procs", "2", "--interleaved", "--block", "1000", "--size", "10000", "--reps", "1"];
    let streams = phases(weft(["bench", "streams", "--path", path]).args(interleaved));
    assert_eq!(names(&streams), ["write", "read"]);
    assert_eq!(streams[1]["ops"], 20);
    assert!(is_empty(dir.path()));
}

#[test]
fn mistakes_are_told_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let wrong = weft(["bench", "create", "--path", path, "--depth", "4"]).output().unwrap();
    assert!(!wrong.status.success() && words(&wrong).contains("--depth: only with the library"), "{}", words(&wrong));
    let nowhere = words(&weft(["bench", "create"]).output().unwrap());
    assert!(nowhere.contains("<--fs <FS>|--path <DIR>>"), "{nowhere}");
    let missing = weft(["bench", "create", "--path", "/no/such/place"]).output().unwrap();
    assert!(!missing.status.success() && words(&missing).contains("/no/such/place"), "{}", words(&missing));
    // Direct I/O of a length that no disk has: fails in the middle of a step.
    let odd = weft(["bench", "write", "--path", path, "--size", "1001", "--direct"]).output().unwrap();
    assert!(odd.status.success() || words(&odd).contains("the step write failed"), "{}", words(&odd));
    assert!(is_empty(dir.path()));
}

#[test]
fn a_signal_stops_it_and_it_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mut command = weft(["bench", "create", "--path", path, "--files", "10000000"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    let some_file = || {
        let site = std::fs::read_dir(dir.path()).unwrap().next()?.unwrap().path();
        std::fs::read_dir(site.join("shared")).ok()?.next()
    };
    while some_file().is_none() {
        assert!(Instant::now() < end, "nothing was made");
        std::thread::sleep(Duration::from_millis(5));
    }
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGTERM).unwrap();
    while child.try_wait().unwrap().is_none() {
        if Instant::now() >= end {
            child.kill().unwrap();
            panic!("it does not stop");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success() && words(&output).contains("stopped"), "{}", words(&output));
    assert!(is_empty(dir.path()), "what was made is removed");
}

#[test]
fn ceilings_that_are_stopped_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    for group in ["disk", "fuse"] {
        let mut command = weft(["bench", "ceiling", "--only", group, "--dir", path, "--seconds", "0.5"]);
        let child = command.env("TMPDIR", path).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // Where there is no FUSE nothing is made for it.
        let end = Instant::now() + Duration::from_secs(5);
        while is_empty(dir.path()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGTERM);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() || words(&output).contains("stopped; what the benchmark had made"), "{}", words(&output));
        assert!(is_empty(dir.path()), "{group}: what was made is removed");
    }
}

#[test]
fn ceilings_are_measured() {
    let text = ok(&mut weft(["bench", "ceiling", "--only", "rpc", "--seconds", "0.01", "--reps", "1", "--json"]));
    let all: Value = serde_json::from_str(&text).unwrap();
    let rows = all["rows"].as_array().unwrap();
    let sync = rows.iter().find(|row| row["name"] == "rpc.unix.1x1").expect("bare requests over a Unix socket");
    assert!(sync["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_file_system_is_measured_by_the_library() {
    let demo = Demo::up();
    let state = demo.state();
    for depth in ["1", "16"] {
        let mut command = weft(["bench", "all", "--fs", &state, "--files", "50", "--depth", depth, "--stream-size", "2MiB", "--reps", "1"]);
        let phases = phases(command.args(["--procs", "2", "--ceiling"]));
        assert_eq!(names(&phases), ["create", "stat", "readdir", "remove", "write", "read"]);
        for phase in &phases {
            assert_spread(&phase["ops_per_s"]);
            assert!(phase["messages_per_op"].as_f64().unwrap() > 0.0 && phase["server_cpu_us_per_op"].is_f64(), "{phase}");
        }
        let messages = phases[0]["messages_per_op"].as_f64().unwrap();
        assert!((1.0..1.1).contains(&messages), "a create is one request and one reply, not {messages}");
        assert_spread(&phases[0]["ratio_to_ceiling"]);
        assert!(phases[2]["ratio_to_ceiling"].is_null(), "a listing has no ceiling of this kind");
    }
    let small = phases(
        weft(["bench", "create", "--fs", &state, "--files", "20"]).args(["--size", "3901", "--reps", "1", "--fsync", "--depth", "4"]),
    );
    assert_spread(&small[0]["mib_per_s"]);
    let interleaved = ["--procs", "2", "--interleaved", "--block", "47008", "--size", "940160", "--reps", "1", "--depth", "4"];
    let streams = phases(weft(["bench", "streams", "--fs", &state]).args(interleaved));
    assert_eq!(streams[1]["ops"], 40);
    ok(weft(["bench", "create", "--fs", &state]).args(["--subdirs", "2", "--files", "5", "--reps", "1"]));
    assert_eq!(ok(&mut weft(["ls", &format!("{state}:/")])).trim(), "", "nothing is left behind");
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    for step in ["write", "read", "streams", "create"] {
        let output = weft(["bench", step, "--path", path, "--size", "4194304TiB", "--files", "1"]).output().unwrap();
        let said = words(&output);
        assert!(!output.status.success() && said.contains("free: give a smaller --size"), "{said}");
        assert!(is_empty(dir.path()));
    }
    let demo = Demo::up();
    let output = weft(["bench", "write", "--fs", &demo.state(), "--size", "1023TiB"]).output().unwrap();
    assert!(!output.status.success() && words(&output).contains("free: give a smaller --size"), "{}", words(&output));
}

#[test]
fn plans_run_on_this_machine() {
    let rows = |plan: &str, more: &[&str]| {
        let mut command = weft(["bench", "run", plan, "--reps", "2"]);
        phases(more.iter().fold(&mut command, |command, set| command.args(["--set", set])))
    };
    let engines = rows("engines", &["workload.files=200"]);
    let stores: Vec<_> = engines.iter().map(|row| (row["weft.engine"].as_str().unwrap(), row["weft.durability"].as_str())).collect();
    let kept = ["journal", "db"].into_iter().flat_map(|engine| ["none", "batch", "sync"].map(|contract| (engine, Some(contract))));
    assert_eq!(stores, [("memory", None)].into_iter().chain(kept).collect::<Vec<_>>());
    assert_eq!((names(&engines), &engines[1]["ops"]), (vec!["create"; 7], &Value::from(200)));
    assert!(engines[0]["ratio_to_first"].is_null());
    assert_spread(&engines[3]["ratio_to_first"]);

    let tracing = rows("tracing", &["workload.files=200"]);
    assert!(tracing[0]["records"].is_null() && tracing[1]["records"]["taken"].as_u64() > Some(400), "{}", tracing[1]);
    assert_eq!(tracing[1]["records"]["lost"], 0);

    let small =
        ["clients=2", "workload.file=1MiB", "workload.block=64KiB", "workload.per_operation=1,all", "server.cache_layer=none,aggregation"];
    let layers = rows("layers", &small);
    let of = |row: &Value| {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
        (text("workload.access"), row["workload.per_operation"].clone(), text("server.cache_layer"), row["ops"].as_u64().unwrap())
    };
    assert_eq!(layers.len(), 8);
    assert_eq!(of(&layers[0]), ("write".into(), Value::from(1), "none".into(), 16));
    assert_eq!(of(&layers[7]), ("read".into(), Value::from("all"), "aggregation".into(), 2));
    assert!(layers[0]["disk"]["operations"].as_u64() >= Some(16), "{}", layers[0]);

    let wrong = weft(["bench", "run", "layers", "--set", "local.nonsense=1"]).output().unwrap();
    assert!(!wrong.status.success() && words(&wrong).contains("local.nonsense: no such key"), "{}", words(&wrong));
    let model = weft(["bench", "run", "checkpoints"]).output().unwrap();
    assert!(!model.status.success() && words(&model).contains("\"program\" is not one of"), "{}", words(&model));
}

#[test]
fn mdtest_makes_directories_and_files_in_a_tree_and_leaves_nothing() {
    let (demo, dir) = (Demo::up(), tempfile::tempdir().unwrap());
    let marks = tempfile::NamedTempFile::new().unwrap();
    let tree = ["--files", "6", "--procs", "2", "--tree-depth", "1", "--tree-branching", "2", "--reps", "2"];
    for place in [["--path", dir.path().to_str().unwrap()], ["--fs", &demo.state()]] {
        let mut command = weft(["bench", "mdtest", "--warm-up", "1"]);
        let progress = tempfile::NamedTempFile::new().unwrap();
        command.args(place).args(tree).args(["--progress-every", "5", "--progress"]).arg(progress.path());
        command.arg("--before-each").arg(format!("echo x >> {}", marks.path().display()));
        let phases = phases(&mut command);
        let steps = ["create", "stat", "remove"];
        let expected: Vec<String> = [("directory", steps), ("file", steps)]
            .iter()
            .flat_map(|(kind, steps)| steps.map(|step| format!("{kind}-{step}")))
            .chain(["tree-create".to_string(), "tree-remove".to_string()])
            .collect();
        let mut found: Vec<String> = names(&phases).into_iter().map(String::from).collect();
        found.sort_by_key(|name| (name.starts_with("tree"), expected.iter().position(|known| known == name)));
        assert_eq!(found, expected);
        for phase in phases.iter().filter(|phase| !phase["phase"].as_str().unwrap().starts_with("tree")) {
            assert_eq!((&phase["ops"], &phase["repetitions"]), (&(6 * 2 * 3).into(), &2.into()), "three directories, two processes");
            assert!(phase["ops_per_s_mean"].as_f64() > Some(0.0) && phase["ops_per_s_deviation"].as_f64() >= Some(0.0), "{phase}");
        }
        let csv = std::fs::read_to_string(progress.path()).unwrap();
        let counts: Vec<u64> = csv
            .lines()
            .filter(|line| line.starts_with("file-create,1,0,"))
            .map(|line| line.split(',').nth(5).unwrap().parse().unwrap())
            .collect();
        assert_eq!(counts, [5, 5, 5, 3], "18 files of a process, every 5: {csv}");
    }
    // Two kinds of items, a warm-up and two repetitions, two places.
    assert_eq!(std::fs::read_to_string(marks.path()).unwrap().lines().count(), 2 * 3 * 2);
    assert!(is_empty(dir.path()));
    let said = fails(&mut weft(["bench", "mdtest", "--fs", &demo.state(), "--before-each", "exit 3", "--files", "1"]));
    assert!(said.contains("exit 3"), "{said}");
}

#[test]
fn messages_between_all_pairs_of_servers_have_parameters_and_a_picture() {
    let demo = Demo::up();
    let picture = demo.0.path().join("logp.svg");
    let few = ["--seconds", "0.005", "--reps", "1", "--transfer", "1MiB", "--sizes", "0,4KiB,64KiB"];
    let mut command = weft(["bench", "logp", &demo.state()]);
    let rows = phases(command.args(few).arg("--plot").arg(&picture));
    let of = |what: &str| rows.iter().filter(|row| row["what"] == what).collect::<Vec<_>>();
    assert_eq!(of("messages").len(), 4 * 3, "all pairs of four servers, both ways");
    for pair in of("messages") {
        assert_ne!(pair["from"], pair["to"]);
        assert!(pair["gap"]["fixed_us"].is_f64() && pair["points"].as_array().unwrap().len() == 3, "{pair}");
        for point in pair["points"].as_array().unwrap() {
            for key in ["send_us", "receive_us", "round_trip_us", "gap_us"] {
                assert!(point[key].as_f64() > Some(0.0), "{key}: {point}");
            }
        }
    }
    let nodes: Vec<(u64, u64)> =
        of("transfer means").iter().map(|row| (row["nodes"].as_u64().unwrap(), row["pairs"].as_u64().unwrap())).collect();
    assert_eq!(nodes, [(2, 2), (3, 6), (4, 12)]);
    let [means] = of("means")[..] else { panic!("one row of means") };
    assert!(means["o_s_us"].as_f64() > Some(0.0) && means["pairs"] == 12, "{means}");
    let svg = std::fs::read_to_string(picture).unwrap();
    assert!(svg.contains("Bandwidth") && svg.contains("g(m)"));

    let two = phases(weft(["bench", "logp", &demo.state(), "--only", "meta1,data0"]).args(few));
    assert!(two.iter().all(|row| row["from"].is_null() || row["from"] == "meta1" || row["from"] == "data0"));
    // What was measured is told all the same.
    let mut nowhere = weft(["bench", "logp", &demo.state(), "--only", "meta1,data0", "--plot", "/no/such/folder/a.svg"]);
    let said = fails(nowhere.args(few));
    assert!(said.contains("cannot write /no/such/folder/a.svg") && said.contains("MiB/s of a pair"), "{said}");
    let said = fails(&mut weft(["bench", "logp", &demo.state(), "--only", "data9"]));
    assert!(said.contains("data9"), "{said}");
    ok(weft(["down", "--state", &demo.state()]).stdout(Stdio::null()));
    let said = fails(&mut weft(["bench", "logp", &demo.state()]));
    assert!(said.contains("does not answer") && said.contains("meta0"), "{said}");
}
