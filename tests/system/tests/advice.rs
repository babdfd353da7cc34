//! What `weft explain` advises, and what it would give: recordings of virtual time, of a machine
//! whose profile is written here, so that the twin must agree with itself. No time of this machine
//! is in it.

use std::path::Path;

use serde_json::Value;
use weft_system_tests::{fails, ok, weft};

/// A machine as `weft predict calibrate` writes one.
const PROFILE: &str = r#"
description = "two processors, one disk"
[node]
instructions_per_second = 1_000_000_000
cpus = 2
internal_bandwidth = 8000000000
[network]
link_bandwidth = 1250000000
link_latency = "10000ns"
switch_bandwidth = 1000000000000
packet = 65536
eager = 16384
[disk]
model = "simple"
access = "400000ns"
bandwidth = 1000000000
[server]
granularity = "10MiB"
memory = 64000000000
[weft]
reads_cached = "yes"
shared_cores = 2
request = "4000ns"
record = "500ns"
call = "4000ns"
checksum_bandwidth = 10000000000
copy_bandwidth = 4000000000
page_cache_bandwidth = 4000000000
page_cache_write_bandwidth = 2000000000
[process]
send = "2000ns"
receive = "2000ns"
wake = "20000ns"
waker = "1000ns"
woken = "1000ns"
client_request = "2000ns"
client_copy_bandwidth = 4000000000

[seen]
errors = [0.1, -0.2, 0.3]
"#;

fn set(values: &[&str]) -> Vec<String> {
    values.iter().flat_map(|value| ["--set".to_string(), value.to_string()]).collect()
}

/// The verdict's end about the plan `probes` with these values, recorded and explained on the same
/// machine.
fn advised(folder: &Path, values: &[&str]) -> Value {
    let (profile, traces) = (folder.join("machine.toml"), folder.join("traces"));
    std::fs::write(&profile, PROFILE).expect("a file");
    let machine = format!("profile={}", profile.display());
    let of_machine = ["system=weft", &machine];
    ok(weft().args(["sim", "run", "probes", "--trace"]).arg(&traces).args(set(&of_machine)).args(set(values)));
    let report = ok(weft().args(["explain", "--json", "--machine"]).arg(&profile).arg(traces.join("case0")));
    let report: Value = serde_json::from_str(&report).expect("JSON");
    report["twin"].clone()
}

fn of<'a>(twin: &'a Value, values: &str) -> Option<&'a Value> {
    twin["advice"].as_array().expect("a list").iter().find(|one| one["values"].as_str().is_some_and(|text| text.contains(values)))
}

/// The recorded setting is the calibrated one: the twin is right about it, and says of a change
/// what `weft predict run` says.
#[test]
fn what_a_change_gives_is_what_the_twin_predicts() {
    let folder = tempfile::tempdir().expect("a folder");
    let values = ["clients=2", "workload.window=4", "workload.files=200", "weft.durability=sync", "workload.measure=[\"create\"]"];
    let twin = advised(folder.path(), &values);
    let about = twin["about"].as_str().expect("a text");
    let itself = about.split(" times the creates that were recorded").next().and_then(|begin| begin.rsplit(' ').next());
    let itself: f64 = itself.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{about}"));
    assert!((0.9..1.1).contains(&itself), "{about}");
    assert_eq!(twin["settings"], 4, "three of the profile and this one: {twin:#}");
    let batch = of(&twin, "weft.durability=batch").unwrap_or_else(|| panic!("{twin:#}"));
    let ratio = batch["ratio"].as_f64().expect("a ratio");
    let sentence = batch["sentence"].as_str().expect("a text");
    assert!(sentence.contains(&format!("{ratio:.1} times the creates (0.15 of error in 4 settings")), "{sentence}");
    assert!(of(&twin, "disk.access=100000ns").is_some(), "a faster disk: {twin:#}");
    for one in twin["advice"].as_array().expect("a list") {
        assert!(one["ratio"].as_f64().is_some_and(|ratio| ratio >= 1.05), "{one}");
    }

    let profile = folder.path().join("machine.toml");
    let run = ["predict", "run", "probes", "--json", "--what-if", "weft.durability=batch", "--machine"];
    let rows: Value = serde_json::from_str(&ok(weft().args(run).arg(&profile).args(set(&values)))).expect("JSON");
    let predicted = rows[0]["what_if"][0]["ratio"].as_f64().expect("a ratio");
    // The number of names is another one.
    assert!((predicted / ratio - 1.0).abs() < 0.1, "{predicted} and {ratio}");
}

#[test]
fn small_pieces_are_told_to_be_larger() {
    let folder = tempfile::tempdir().expect("a folder");
    let blocks = ["clients=2", "workload.window=4", "workload.kind=own", "workload.block=8KiB", "workload.file=8MiB", "servers=2"];
    let twin = advised(folder.path(), &blocks);
    let larger = of(&twin, "workload.block=1048576").unwrap_or_else(|| panic!("{twin:#}"));
    assert!(larger["ratio"].as_f64().is_some_and(|ratio| ratio > 2.0), "{twin:#}");
    assert_eq!(twin["advice"][0], *larger, "it gives most: {twin:#}");
}

#[test]
fn nothing_is_told_without_a_profile_but_how_to_get_one() {
    let folder = tempfile::tempdir().expect("a folder");
    advised(folder.path(), &["workload.files=50"]);
    let traces = folder.path().join("traces/case0");
    let explain = |home: &Path| {
        let mut command = weft();
        command.env("HOME", home).env_remove("XDG_CONFIG_HOME").arg("explain").arg(&traces);
        command
    };
    let text = ok(&mut explain(folder.path()));
    assert!(text.contains("there is no profile of this machine. `weft predict calibrate` makes one"), "{text}");
    assert!(!text.contains("of error in"), "{text}");
    let missing = fails(weft().args(["explain", "--machine", "/no/such/machine.toml"]).arg(&traces));
    assert!(missing.contains("/no/such/machine.toml"), "{missing}");

    // A damaged profile that nobody named is told; the verdict is there all the same.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux says it");
    let kept = folder.path().join(format!(".config/weft/machine-{}.toml", host.trim()));
    std::fs::create_dir_all(kept.parent().expect("a folder")).expect("a folder");
    std::fs::write(&kept, "description = \"none\"\n").expect("a file");
    let damaged = ok(&mut explain(folder.path()));
    assert!(damaged.contains("What a change would give is not known: ") && damaged.starts_with("1. "), "{damaged}");
    std::fs::write(&kept, PROFILE).expect("a file");
    let found = ok(&mut explain(folder.path()));
    assert!(found.contains("Asked of the twin") && found.contains("that were recorded"), "{found}");
}
