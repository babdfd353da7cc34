//! Plans with mistakes and with questions that have no single answer: what `weft sim run` makes of
//! them.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn run(plan: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("p.toml"), plan).expect("writable");
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(["sim", "--lab"]).arg(lab).args(["run", "p.toml"]).args(arguments).current_dir(folder.path());
    command.output().expect("weft starts")
}

fn rows(plan: &str) -> Vec<Value> {
    let output = run(plan, &["--json"]);
    assert!(output.status.success(), "{plan}\n{}", said(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn refusal(plan: &str) -> String {
    let output = run(plan, &[]);
    assert!(!output.status.success(), "{plan}");
    said(&output)
}

fn interleaved(head: &str, load: &str) -> String {
    format!("clients = 4\nservers = 2\n{head}\n[[workload]]\nkind = \"interleaved\"\n{load}\n")
}

fn program(steps: &[&str]) -> String {
    let steps: String = steps.iter().map(|step| format!("[[workload.step]]\n{}\n", step.replace("; ", "\n"))).collect();
    format!(
        "profile = \"pvs-2009\"\nclients = 2\nservers = 2\n[[workload]]\nkind = \"program\"\n\
         [[workload.file]]\nname = \"f\"\nsize = \"1MiB\"\n{steps}"
    )
}

#[test]
fn bytes_beyond_the_end_of_the_file_make_no_rate() {
    let load = "file = \"4MiB\"\nblock = \"64KiB\"\nper_operation = 100\naccess = [\"read\", \"write\"]";
    for behaviour in ["natural", "2009"] {
        let plan = interleaved(&format!("profile = \"pvs-2009\"\nbehaviour = \"{behaviour}\""), load);
        let found = rows(&plan);
        assert_eq!(found[0]["bytes"], 4 << 20, "{behaviour}: what lies behind the end of a file cannot be read");
        // Two disks of 50 MiB/s each.
        assert!(found[0]["mib_per_second"].as_f64() < Some(100.0), "{}", found[0]);
    }
    let natural = &rows(&interleaved("profile = \"pvs-2009\"", load))[1];
    assert_eq!((&natural["bytes"], &natural["disk_bytes"]), (&(4 << 20).into(), &(4 << 20).into()), "the file that the plan asks for");
}

#[test]
fn results_have_a_spread_when_ties_are_random() {
    let load = "file = \"4MiB\"\nblock = 5120\naccess = \"read\"";
    let head = "profile = \"pvs-2009\"\nserver.rules = \"2009\"\nserver.cache_layer = \"server_directed\"";
    let fixed = &rows(&interleaved(head, load))[0];
    assert!(fixed["seconds_min"].is_null() && fixed["tie_seeds"].is_null(), "{fixed}");
    let random = interleaved(&format!("{head}\nties = \"random\"\ntie_seeds = 7"), load);
    let spread = &rows(&random)[0];
    let time = |key: &str| spread[key].as_f64().expect("a time");
    assert_eq!(spread["tie_seeds"], 7);
    assert!(time("seconds_min") <= time("seconds") && time("seconds") <= time("seconds_max"), "{spread}");
    assert!(time("seconds_min") < time("seconds_max"), "seven orders and one result: {spread}");
    assert_eq!((&spread["bytes"], &rows(&random)[0]["seconds"]), (&fixed["bytes"], &spread["seconds"]), "the same seeds, the same results");
    let text = String::from_utf8(run(&random, &[]).stdout).expect("text");
    assert!(text.contains("seconds_min") && text.contains("seconds_max"), "{text}");
    let message = refusal(&interleaved(&format!("{head}\ntie_seeds = 7"), load));
    assert!(message.contains("p.toml:6: tie_seeds: needs ties = \"random\""), "{message}");
    let weft = refusal(&interleaved("profile = \"modern\"\nsystem = \"weft\"\nties = \"random\"", "file = \"4MiB\""));
    assert!(weft.contains("p.toml:5: ties: is for modelled servers"), "{weft}");
}

#[test]
fn profiles_may_be_a_list() {
    let found = rows(&interleaved("profile = [\"pvs-2009\", \"modern\"]", "file = \"4MiB\""));
    let names: Vec<&str> = found.iter().filter_map(|row| row["profile"].as_str()).collect();
    assert_eq!(names, ["pvs-2009", "modern"]);
    assert!(found[0]["seconds"].as_f64() > found[1]["seconds"].as_f64(), "{found:?}");
    let message = refusal(&interleaved("profile = [\"pvs-2009\", \"nonsense\"]", "file = \"4MiB\""));
    assert!(message.contains("there is no nonsense among the profiles"), "{message}");
}

#[test]
fn a_disk_model_that_is_the_profiles_own_keeps_its_parameters() {
    let plain = &rows(&interleaved("profile = \"pvs-2009\"", "file = \"4MiB\""))[0];
    let named = &rows(&interleaved("profile = \"pvs-2009\"\ndisk.model = \"refined\"", "file = \"4MiB\""))[0];
    assert_eq!(plain["seconds"], named["seconds"]);
    let slower = &rows(&interleaved("profile = \"pvs-2009\"\n[disk]\nmodel = \"refined\"\nbandwidth = \"5MiB\"", "file = \"4MiB\""))[0];
    assert!(slower["seconds"].as_f64() > plain["seconds"].as_f64(), "{slower}");
}

#[test]
fn a_deadlock_is_told_in_words_with_the_plan_and_the_case() {
    let message = refusal(&program(&["do = \"recv\"; from = 0; rank = 1; tag = 5", "do = \"barrier\""]));
    let expected = "p.toml:15: workload.step.do: program: rank 0 waits for ever in its command 1, a barrier; 2 of 2 ranks wait for ever";
    assert!(message.contains(expected), "{message}");
    let swept = program(&["do = \"recv\"; from = 0; rank = 1; tag = [5, 6]"]);
    let message = refusal(&swept);
    let expected = "p.toml:10: workload.step.do: with workload.step.tag = 5: program: rank 1 waits for ever in its command 1, a receive from rank 0 (tag 5)";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_file_is_opened_before_it_is_used() {
    for (what, verb) in [("read", "reads"), ("write", "writes"), ("read_all", "reads"), ("write_all", "writes")] {
        let message = refusal(&program(&[&format!("do = \"{what}\"; file = \"f\"; bytes = 10")]));
        let expected = format!("p.toml:11: workload.step.file: f is not open when rank 0 {verb} it: an `open` step must come before");
        assert!(message.contains(&expected), "{message}");
    }
    let closed = ["do = \"open\"; file = \"f\"", "do = \"close\"; file = \"f\"", "do = \"close\"; file = \"f\""];
    assert!(refusal(&program(&closed)).contains("f is not open when rank 0 closes it"));
    let sound = ["do = \"open\"; file = \"f\"", "do = \"read\"; file = \"f\"; bytes = 10", "do = \"close\"; file = \"f\""];
    assert_eq!(rows(&program(&sound))[0]["bytes"], 20);
}

#[test]
fn what_no_memory_could_hold_is_refused() {
    let start = std::time::Instant::now();
    for (head, load, expected) in [
        ("clients = 4_000_000_000\nservers = 2", "file = \"1MiB\"", "p.toml:2: clients: 4000000000 is not between 1 and 100000"),
        ("clients = 2\nservers = 4_000_000_000", "file = \"1MiB\"", "p.toml:3: servers: 4000000000 is not between 1 and 100000"),
        ("clients = 2\nservers = 2", "ranks = 4_000_000_000", "workload.ranks: 4000000000 is not between 1 and 1000000"),
        ("clients = 2\nservers = 2", "file = \"1TiB\"\nblock = 1", "workload.block: 1099511627776 blocks are more than the 50000000"),
    ] {
        let message = refusal(&format!("profile = \"pvs-2009\"\n{head}\n[[workload]]\nkind = \"interleaved\"\n{load}\n"));
        assert!(message.contains(expected), "{message}");
    }
    for (step, said) in [
        ("do = \"send\"; bytes = 8; to = 9", "workload.step.to: there is no rank 9: there are "),
        ("do = \"recv\"; from = 9", "workload.step.from: there is no rank 9: there are "),
        ("do = \"bcast\"; bytes = 8; root = 9", "workload.step.root: there is no rank 9: there are "),
        ("do = \"barrier\"; rank = 9", "workload.step.rank: there is no rank 9: there are "),
    ] {
        let said_there = refusal(&program(&[step]));
        assert!(said_there.contains(said), "{said_there}");
    }
    let steps = ["do = \"open\"; file = \"f\"", "do = \"write\"; file = \"f\"; bytes = 1; blocks = 4_000_000_000; stride = 2"];
    assert!(refusal(&program(&steps)).contains("the program names more than 50000000 blocks"));
    let database = "profile = \"pvs-2009\"\n[[workload]]\nkind = \"database\"\nturns = 4_000_000_000_000\n";
    assert!(refusal(database).contains("the program has more than 50000000 accesses"));
    assert!(start.elapsed().as_secs() < 60, "a refusal does not simulate first");
}
