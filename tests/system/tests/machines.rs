//! Servers on one machine and a mount on another, with clocks of their own that are seconds apart:
//! namespaces of this machine, joined by a cable. What is known about them is the truth that traces
//! are compared with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use weft_system_tests::{Machine, Need, Pair, available, ok, wait_until};
use weft_trace::file::TraceFile;
use weft_trace::merge::{Merged, merge};

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Machine::NEEDS];
const PATIENCE: Duration = Duration::from_secs(30);
const SECOND_NS: i64 = 1_000_000_000;

/// Programs use the mount while `what` happens.
fn while_used<T>(pair: &Pair, what: impl FnOnce() -> T) -> T {
    let script = r#"cd "$1"; while [ ! -e ../stop ]; do printf %9000s text > f; cat f > ../text; mv f g; rm g; echo >> ../rounds; done; rm ../stop; : > ../stopped"#;
    ok(pair.client.on("sh").args(["-uc", &format!("( {script} ) > /dev/null 2>&1 &"), "sh"]).arg(pair.client.path("mnt")));
    let outcome = what();
    std::fs::write(pair.client.from_outside("stop"), "").expect("a mark");
    wait_until("the end of the programs", PATIENCE, || std::fs::remove_file(pair.client.from_outside("stopped")).is_ok());
    outcome
}

/// Traces in a folder of the client's machine.
fn merged(pair: &Pair, folder: &str) -> Merged {
    let entries = std::fs::read_dir(pair.client.from_outside(folder)).expect("a folder with traces");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| is_trace(file));
    files.sort();
    let read = |file: &PathBuf| TraceFile::read(&std::fs::read(file).expect("it can be read")).expect("a trace");
    merge(files.iter().map(read).collect())
}

/// Beside the traces lie names of what they are about.
fn is_trace(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "wtrace")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry"));
    let entries = entries.filter(|entry| is_trace(&entry.path()));
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The error of the mount's clock against that of the servers, after a look whether it is the
/// truth.
fn checked_error(merged: &Merged) -> u64 {
    let nodes: Vec<(&str, &str)> = merged.nodes.iter().map(|node| (node.name.as_str(), node.machine.as_str())).collect();
    assert_eq!(nodes, [("data0", "chlorine"), ("data1", "chlorine"), ("meta0", "chlorine"), ("mount-mnt", "boron")]);
    assert!(merged.clocks[..3].iter().all(|clock| clock.offset_ns == 0 && clock.error_ns == Some(0)), "{:?}", merged.clocks);
    let clock = &merged.clocks[3];
    let error = clock.error_ns.expect("requests tie it");
    let own = merged.events.iter().filter(|event| event.node == 3);
    let (first, last) = own.fold((i64::MAX, i64::MIN), |(first, last), event| (first.min(event.start_ns), last.max(event.end_ns())));
    let ahead_ns = i64::from(Pair::SERVERS_AHEAD_S - Pair::CLIENT_AHEAD_S) * SECOND_NS;
    for at in [clock.at_ns, clock.at_ns + (last - first)] {
        let wrong = (clock.common(at) - at - ahead_ns).unsigned_abs();
        assert!(wrong <= error, "{wrong} ns wrong: {clock:?}");
    }
    assert!(last - first > SECOND_NS / 10 && clock.samples > 10, "{clock:?}");
    assert_eq!(merged.causality_violations(), 0);
    error
}

#[test]
fn clocks_and_files_of_two_machines_are_brought_together() {
    if !available("clocks_and_files_of_two_machines", &NEEDS) {
        return;
    }
    let pair = Pair::start("");
    let keep = pair.client.path("kept");
    let explain = || ok(pair.weft(&["explain"], &["--seconds", "2", "--json", "--keep"]).arg(&keep));
    let explained: Value = serde_json::from_str(&while_used(&pair, explain)).expect("JSON");
    assert!(explained["covered"].as_f64() >= Some(0.95) && explained["operations"].as_u64() > Some(10), "{explained}");
    let row = |at: usize| explained["nodes"][at].clone();
    assert_eq!((row(0)["machine"].as_str(), row(3)["machine"].as_str()), (Some("chlorine"), Some("boron")), "{explained}");
    let error = checked_error(&merged(&pair, "kept"));
    assert!(row(3)["clock_error_ns"].as_u64() == Some(error) && error < 100_000_000, "{explained}");
    assert_eq!(names(&pair.servers.from_outside("trace")), [""; 0], "nothing is left behind");
    pair.end();
}

/// A message to a server takes 5 ms longer than the answer. Nobody can know that from the times
/// alone, so the error must say it.
#[test]
fn a_way_that_is_longer_in_one_direction_makes_the_error_larger() {
    if !available("a_way_that_is_longer", &NEEDS) {
        return;
    }
    let pair = Pair::start("net-request:5ms");
    while_used(&pair, || {
        ok(&mut pair.weft(&["trace", "on"], &[]));
        let rounds = || std::fs::metadata(pair.client.from_outside("rounds")).map_or(0, |file| file.len());
        let before = rounds();
        wait_until("some rounds of the programs", PATIENCE, || rounds() >= before + 10);
        let off = ok(&mut pair.weft(&["trace", "off"], &["--json"]));
        let off: Value = serde_json::from_str(&off).expect("JSON");
        let files = off["nodes"].as_array().into_iter().flatten().flat_map(|node| node["files"].as_array().cloned().unwrap_or_default());
        let folder = pair.client.path("trace");
        let is_here = |file: &Value| Path::new(file.as_str().unwrap_or_default()).parent() == Some(&folder);
        assert!(files.clone().count() == 4 && files.clone().all(|file| is_here(&file)), "all are where the mount has its own: {off}");
    });
    assert_eq!(names(&pair.servers.from_outside("trace")).len(), 3, "they stay where they were written, too");
    assert!(checked_error(&merged(&pair, "trace")) > 2_400_000);
    // Who asks again gets no second copy.
    ok(&mut pair.weft(&["trace", "off"], &[]));
    assert_eq!(names(&pair.client.from_outside("trace")).len(), 4);
    pair.end();
}
