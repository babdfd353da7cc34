//! `weft sim` as its users see it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn weft(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft")).arg("sim").args(arguments).current_dir(folder).output().expect("weft starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A small plan; `extra` goes before its workload, `load` into it.
fn plan(extra: &str, load: &str) -> String {
    format!(
        "profile = \"pvs-2009\"\nclients = 2\nservers = 2\n{extra}\n[[workload]]\nkind = \"interleaved\"\nfile = \"1MiB\"\nblock = \"64KiB\"\n{load}\n"
    )
}

fn run(plan: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("p.toml"), plan).expect("writable");
    weft(folder.path(), &[&["run", "p.toml"], arguments].concat())
}

#[test]
fn a_plan_means_every_combination_of_its_values() {
    let plan = plan(
        "server.cache_layer = [\"none\", \"aggregation\"]",
        "access = [\"read\", \"write\"]\nper_operation = { from = 1, to = 4, times = 2 }",
    );
    let rows = json(&run(&plan, &["--json"]));
    let rows = rows.as_array().expect("an array");
    assert_eq!(rows.len(), 2 * 2 * 3);
    for row in rows {
        assert_eq!(row["bytes"], 1 << 20);
        assert!(row["seconds"].as_f64() > Some(0.0) && row["events"].as_u64() > Some(0), "{row}");
    }
    let last = &rows[11];
    assert_eq!(
        (&last["server.cache_layer"], &last["workload.access"], &last["workload.per_operation"]),
        (&"aggregation".into(), &"write".into(), &4.into())
    );
    let csv = text(&run(&plan, &["--csv"]).stdout);
    assert!(csv.starts_with("server.cache_layer,workload.access,workload.per_operation,seconds,"), "{csv}");
    assert_eq!(csv.lines().count(), 1 + rows.len());
}

#[test]
fn the_same_plan_gives_the_same_results_and_seeds_matter() {
    let plan = plan("server.cache_layer = \"none\"", "access = \"read\"").replace("interleaved", "random");
    let seconds = |arguments: &[&str]| json(&run(&plan, &[&["--json"], arguments].concat()))[0]["seconds"].clone();
    let times: Vec<Value> = (0..4).map(|seed| seconds(&["--seed", &seed.to_string()])).collect();
    assert_eq!(seconds(&["--seed", "2", "--threads", "1"]), times[2]);
    assert_eq!(seconds(&[]), times[0]);
    assert!(times.iter().any(|time| *time != times[0]), "{times:?}");
}

#[test]
fn applications_share_a_cluster() {
    let one = plan("clients_are = 4", "").replace("clients_are = 4\n", "").replace("clients = 2", "clients = 4");
    let second = "[[workload]]\nkind = \"collective\"\nranks = 2\nfirst_client = 2\nfile = \"2MiB\"\nblock = \"64KiB\"\n";
    let one = one.replace("kind = \"interleaved\"", "kind = \"interleaved\"\nranks = 2");
    let alone = json(&run(&one, &["--json"]));
    let both = json(&run(&(one.clone() + second), &["--json"]));
    assert_eq!((&alone[0]["bytes"], &both[0]["bytes"]), (&(1 << 20).into(), &(3 << 20).into()));
    assert!(both[0]["seconds"].as_f64() > alone[0]["seconds"].as_f64());
    let wrong = run(&(one + &second.replace("first_client = 2", "first_client = 3")), &[]);
    assert!(text(&wrong.stderr).contains("p.toml:13: workload.first_client: 2 ranks from client 3 on"), "{}", text(&wrong.stderr));
}

#[test]
fn errors_in_a_plan_name_line_and_key() {
    let cases = [
        ("clienst = 3", "", "p.toml:4: clienst: no such key; here may stand allreduce, bcast, behaviour, clients, "),
        ("stripe = \"64 parsecs\"", "", "p.toml:4: stripe: `parsecs` is not a unit of size"),
        (
            "[server]\ncache_layer = [\n  \"none\",\n  \"fast\"]",
            "",
            "p.toml:7: server.cache_layer: \"fast\" is not one of none, write_behind, aggregation, server_directed",
        ),
        ("[disk]\nmodel = \"ssd\"", "", "disk.page: is missing, in the plan and in its profile"),
        ("[disk]\nmodel = \"ram\"", "", "disk.latency: is missing, in the plan and in its profile"),
        ("", "per_operation = 0", "p.toml:9: workload.per_operation: 0 is not between 1 and 4294967295, nor is it \"all\""),
        ("", "access = \"read_write\"", "p.toml:9: workload.access: \"read_write\" is not one of read, write"),
        ("", "ranks = { from = 0, to = 8, times = 2 }", "p.toml:9: workload.ranks: a range is { from = 1, to = 64, times = 2 }"),
        ("", "ranks = 32", "p.toml:8: workload.block: a file of 1048576 bytes has no block of 65536 bytes for each of 32 ranks"),
        ("", "project = \"x\"", "p.toml:9: workload.project: no such key; here may stand access, block, "),
        ("clients = 3", "", "p.toml:4: duplicate key"),
        ("cluster_model = \"x.xml\"", "", "p.toml:4: cluster_model: a plan has a profile or a cluster model, not both"),
        ("stripe = 0", "", "stripe: must be above 0"),
    ];
    for (extra, load, message) in cases {
        let output = run(&plan(extra, load), &[]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(message), "{message}\nis not in\n{said}");
    }
    let nothing = text(&run("clients = 1", &[]).stderr);
    assert!(nothing.contains("p.toml:1: profile: is missing"), "{nothing}");
    let traced =
        plan("", "project = \"absent.proj\"").replace("interleaved", "hdtrace").replace("file = \"1MiB\"\nblock = \"64KiB\"\n", "");
    let said = text(&run(&traced, &[]).stderr);
    assert!(said.contains("p.toml:7: workload.project: ") && said.contains("absent.proj"), "{said}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let said = text(&weft(folder.path(), &["run", "nonsense"]).stderr);
    assert!(said.contains("there is no nonsense among the plans: `weft sim list` shows them"), "{said}");
}

#[test]
fn a_key_that_the_simulated_system_does_not_read_is_told() {
    let told = |set: &str| {
        let output = run(&plan("", ""), &["--set", set]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let said = told("weft.engine=db,dbpf");
    assert!(said.contains("weft.engine changes nothing here: ") && said.contains("simulates the system model"), "{said}");
    assert_eq!(told("server.cache_layer=none"), "");
    assert_eq!(told("disk.rpm=7200,15000"), "");
}

#[test]
fn a_profile_has_places_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir_all(folder.path().join("lab/profiles")).expect("writable");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("writable");
    write("p.toml", &plan("", "").replace("pvs-2009", "mine"));
    write("lab/profiles/mine.toml", "[disk]\nmodel = \"ram\"\nlatency = \"1us\"\nbandwidth = \"1GiB\"\nrpm = 5400\n");
    let said = text(&weft(folder.path(), &["run", "p.toml"]).stderr);
    let file = Path::new("lab").join("profiles").join("mine.toml");
    assert!(
        said.contains(&format!("{}:5: disk.rpm: no such key; here may stand at_once, bandwidth, latency, model", file.display())),
        "{said}"
    );
    write("lab/profiles/mine.toml", "description = \"quick\"\n[disk]\nmodel = \"ram\"\nlatency = \"1us\"\nbandwidth = \"1GiB\"\n");
    let listed = json(&weft(folder.path(), &["list", "--json"]));
    let mine = listed.as_array().expect("an array").iter().find(|row| row["name"] == "mine").expect("listed");
    assert_eq!((&mine["kind"], &mine["description"]), (&"profile".into(), &"quick".into()));
    assert_eq!(json(&weft(folder.path(), &["run", "p.toml", "--json"]))[0]["bytes"], 1 << 20);
}

#[test]
fn a_section_of_the_thesis_comes_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let rows = json(&weft(folder.path(), &["thesis", "--table", "C.3.2", "--json"]));
    let rows = rows.as_array().expect("an array");
    assert_eq!(rows.len(), 24);
    for row in rows {
        assert_eq!((&row["equal"], &row["unit"], &row["table"]), (&true.into(), &"s".into(), &"C.3.2".into()), "{row}");
        assert!(row["events"].as_u64() > Some(1000) && row["cpu_s"].as_f64() > Some(0.0), "{row}");
    }
    let none = weft(folder.path(), &["thesis", "--table", "C.9"]);
    assert!(!none.status.success() && text(&none.stderr).contains("no such table"));
    let absent = weft(folder.path(), &["thesis", "--table", "6.1"]);
    assert!(!absent.status.success() && text(&absent.stderr).contains("--trace-dir"), "{}", text(&absent.stderr));
}

#[test]
fn a_plan_may_have_a_disk_of_its_own() {
    let disk = "[disk]\nmodel = \"simple\"\naccess = \"1ms\"\nbandwidth = \"100MiB\"";
    let rows = json(&run(&plan(disk, ""), &["--json"]));
    let usual = json(&run(&plan("", ""), &["--json"]));
    assert!(rows[0]["seconds"].as_f64() < usual[0]["seconds"].as_f64(), "{rows} {usual}");
}

#[test]
fn a_program_written_out_is_the_workload_that_it_spells() {
    let built = json(&run(&plan("", "access = [\"write\", \"read\"]\nper_operation = [1, \"all\"]"), &["--json"]));
    let head = "profile = \"pvs-2009\"\nclients = 2\nservers = 2\n";
    for (index, row) in built.as_array().expect("rows").iter().enumerate() {
        let (writes, single) = (row["workload.access"] == "write", row["workload.per_operation"] == 1);
        // Eight blocks for each of two ranks, in turns: one by one, or in one list.
        let step = match single {
            true => "times = 8\nper_turn = \"128KiB\"",
            false => "blocks = 8\nstride = \"128KiB\"",
        };
        let (open, verb, size) = if writes { ("truncate = true", "write", "0") } else { ("", "read", "1MiB") };
        let program = format!(
            "{head}[[workload]]\nkind = \"program\"\n[[workload.file]]\nname = \"f\"\nsize = \"{size}\"\n\
             [[workload.step]]\ndo = \"open\"\nfile = \"f\"\n{open}\n\
             [[workload.step]]\ndo = \"{verb}\"\nfile = \"f\"\nbytes = \"64KiB\"\nper_rank = \"64KiB\"\n{step}\n\
             [[workload.step]]\ndo = \"close\"\nfile = \"f\"\n"
        );
        let written = &json(&run(&program, &["--json"]))[0];
        for key in ["seconds", "events", "bytes", "disk_operations", "network_bytes"] {
            assert_eq!(written[key], row[key], "case {index}, {key}");
        }
    }
}

#[test]
fn all_steps_of_a_program_and_their_mistakes() {
    let head =
        "profile = \"pvs-2009\"\nclients = 3\nservers = 2\n[[workload]]\nkind = \"program\"\nturns = 2\n[[workload.file]]\nname = \"f\"\n";
    let step = |text: &str| format!("[[workload.step]]\n{}\n", text.replace("; ", "\n"));
    let steps = [
        "do = \"compute\"; cycles = 1000",
        "do = \"send\"; to = \"next\"; bytes = 100; request = 1",
        "do = \"recv\"; from = \"previous\"; request = 2",
        "do = \"wait\"; requests = [1, 2]",
        "do = \"sendrecv\"; to = \"previous\"; from = \"next\"; bytes = \"200KiB\"",
        "do = \"barrier\"",
        "do = \"bcast\"; root = 1; bytes = 1000",
        "do = \"reduce\"; root = 2; bytes = 1000",
        "do = \"allreduce\"; bytes = 8",
        "do = \"gather\"; bytes = 10",
        "do = \"allgather\"; bytes = 10",
        "do = \"open\"; file = \"f\"; truncate = true",
        "do = \"write_all\"; file = \"f\"; bytes = \"64KiB\"; per_rank = \"64KiB\"",
        "do = \"write\"; file = \"f\"; rank = 1; bytes = 5000; offset = \"1MiB\"",
        "do = \"read_all\"; file = \"f\"; bytes = \"64KiB\"; per_rank = \"64KiB\"",
        "do = \"read\"; file = \"f\"; bytes = 5000; offset = \"1MiB\"",
        "do = \"close\"; file = \"f\"",
    ];
    let plan = format!("{head}{}", steps.map(step).concat());
    let rows = json(&run(&plan, &["--json"]));
    // Two turns: 3 x 64 KiB written and read together, one write, and 3 reads of 5000 bytes.
    assert_eq!(rows[0]["bytes"], 2 * (2 * 3 * 65_536 + 4 * 5000));
    for (wrong, message) in [
        ("do = \"fly\"", "p.toml:10: workload.step.do: \"fly\" is not one of compute, send"),
        ("do = \"write\"; file = \"g\"; bytes = 1", "p.toml:11: workload.step.file: there is no [[workload.file]] with the name g"),
        ("do = \"write\"; file = \"f\"", "workload.step.bytes: is missing"),
        ("do = \"send\"; bytes = 1", "workload.step.to: is missing"),
        ("do = \"barrier\"; rank = 3", "p.toml:11: workload.step.rank: there is no rank 3: there are 3 ranks, from 0 on"),
        (
            "do = \"open\"; file = \"f\"; [[workload.step]]; do = \"read\"; file = \"f\"; bytes = 1; per_rank = 9223372036854775807; times = 9",
            "leads beyond the largest file",
        ),
        ("do = \"barrier\"; colour = 1", "p.toml:11: workload.step.colour: no such key"),
        ("do = \"barrier\"; times = 4000000000", "more than 50000000 commands"),
    ] {
        let output = run(&format!("{head}{}", step(wrong)), &[]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(message), "{wrong}: {said}");
    }
}

/// Messages of all kinds, collective calls, views of files and lists, on a cluster whose processors
/// are not those of 2009.
const PROGRAM: &str = r#"profile = "modern"
clients = 3
servers = 2
collective = "interleaved_two_phase"

[server]
cache_layer = "aggregation"

[[workload]]
kind = "program"
ranks = 4
turns = 3

[[workload.file]]
name = "in"
size = "4MiB"

[[workload.file]]
name = "out"

[[workload.step]]
do = "open"
file = "in"
[[workload.step]]
do = "open"
file = "out"
truncate = true
[[workload.step]]
do = "compute"
cycles = 7654321
[[workload.step]]
do = "send"
to = "next"
bytes = 300000
tag = 3
request = 1
[[workload.step]]
do = "recv"
from = "any"
tag = 3
[[workload.step]]
do = "wait"
requests = [1]
[[workload.step]]
do = "sendrecv"
to = "next"
from = "previous"
bytes = 4000
[[workload.step]]
do = "bcast"
root = 2
bytes = 1000000
[[workload.step]]
do = "allreduce"
bytes = 8
[[workload.step]]
do = "read_all"
file = "in"
bytes = 1000
per_rank = 1000
stride = 4000
blocks = 200
[[workload.step]]
do = "write"
file = "out"
bytes = 100000
per_rank = 100000
per_turn = 400000
[[workload.step]]
do = "close"
file = "out"
[[workload.step]]
do = "close"
file = "in"
"#;

#[test]
fn traces_of_an_earlier_run_do_not_stay_among_those_of_the_next() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (clients, files) in [("clients=3", 4), ("clients=1", 2)] {
        let done = weft(folder.path(), &["run", "weft-creates", "--set", "workload.files=5", "--set", clients, "--trace", "t"]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let there = std::fs::read_dir(folder.path().join("t/case0")).expect("traces").count();
        assert_eq!(there, files, "{clients}: one of each client and of the server");
    }
}

#[test]
fn what_was_simulated_and_exported_is_simulated_again_in_the_same_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("p.toml"), PROGRAM).expect("writable");
    let before = json(&weft(folder.path(), &["run", "p.toml", "--json", "--trace", "t"]));
    let export = |from: &str, to: &str, more: &[&str]| {
        let arguments = ["export", from, "--format", "hdtrace", "-o", to];
        let done = Command::new(env!("CARGO_BIN_EXE_weft")).args(arguments).args(more).current_dir(folder.path()).output().expect("starts");
        assert!(done.status.success(), "{}", text(&done.stderr));
    };
    let (head, _) = PROGRAM.split_once("[[workload]]").expect("has one");
    let again = |project: &str| {
        let plan = format!("{head}[[workload]]\nkind = \"hdtrace\"\nproject = \"{project}\"\n");
        std::fs::write(file("again.toml"), plan).expect("writable");
        weft(folder.path(), &["run", "again.toml", "--json"])
    };
    export("t/case0", "first.proj", &[]);
    // What an export of an export holds, too.
    export("first.proj", "second.proj", &[]);
    for project in ["first.proj", "second.proj"] {
        let after = json(&again(project));
        for result in ["seconds", "ranks_seconds", "bytes", "messages", "network_bytes", "disk_operations", "events"] {
            assert_eq!(before[0][result], after[0][result], "{result} of {project}");
        }
    }
    // Workloads that share the cluster are one then, on the same clients.
    let shared = "profile = \"pvs-2009\"\nclients = 5\nservers = 3\nserver.cache_layer = \"server_directed\"\n";
    let own = "[[workload]]\nkind = \"database\"\nfile = \"20MiB\"\nper_operation = 10\nturns = 2\nranks = 3\n\
               [[workload]]\nkind = \"random\"\nfirst_client = 3\nranks = 2\nfile = \"4MiB\"\nblock = \"64KiB\"\naccess = \"write\"\n";
    std::fs::write(file("shared.toml"), format!("{shared}{own}")).expect("writable");
    let separate = json(&weft(folder.path(), &["run", "shared.toml", "--json", "--trace", "s"]));
    export("s/case0", "shared.proj", &[]);
    std::fs::write(file("one.toml"), format!("{shared}[[workload]]\nkind = \"hdtrace\"\nproject = \"shared.proj\"\n")).expect("writable");
    let together = json(&weft(folder.path(), &["run", "one.toml", "--json"]));
    assert_eq!((&separate[0]["seconds"], &separate[0]["events"]), (&together[0]["seconds"], &together[0]["events"]));
    // A part of a program may wait for ever: it is none.
    export("t/case0", "part.proj", &["--to", "0.5"]);
    let refused = again("part.proj");
    assert!(!refused.status.success() && text(&refused.stderr).contains("no --from, --to, --events"), "{}", text(&refused.stderr));
}
