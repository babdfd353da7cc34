//! `weft plot` as a person uses it: pictures of simulated runs, of benchmarks and of traces.

#[path = "../../../lab/analysis/tests/sample/mod.rs"]
mod sample;

use std::fs;
use std::path::Path;
use std::process::Command;

fn weft(words: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_weft")).args(words).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The picture, after what every picture must keep: closed elements, and numbers that are numbers.
fn picture(path: &Path) -> String {
    let svg = fs::read_to_string(path).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<svg ").count(), svg.matches("</svg>").count());
    assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
    svg
}

#[test]
fn simulated_runs_are_traces_for_every_tool() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, traces) = (dir.path().join("small.toml"), dir.path().join("traces"));
    let lines = "profile = \"pvs-2009\"\nclients = 3\nservers = 2\n[server]\ncache_layer = [\"none\", \"aggregation\"]\n\
                 [[workload]]\nkind = \"interleaved\"\nfile = \"12MiB\"\nblock = \"64KiB\"\nper_operation = 4\naccess = \"write\"\n";
    fs::write(&plan, lines).unwrap();
    let rows = weft(&["sim", "run", text(&plan), "--trace", text(&traces), "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
    let (none, aggregated) = (traces.join("case0"), traces.join("case1"));
    let svg = dir.path().join("disks.svg");
    let labels = ["--label", "no <cache>", "--label", "aggregation"];
    weft(&[&["plot", "timeline", text(&none), text(&aggregated), "-o", text(&svg), "--network", "--iteration", "4"], &labels[..]].concat());
    let svg = picture(&svg);
    for (row, label) in [(0, "no &lt;cache&gt;"), (1, "aggregation")] {
        let accesses = format!("{label}: {:.2} s, {} disk accesses", rows[row]["seconds"].as_f64().unwrap(), rows[row]["disk_operations"]);
        assert!(svg.contains(&accesses), "{accesses} in {svg}");
    }
    assert!(["client0", "client2", "server1", "far seek", "received", ">#3<"].iter().all(|word| svg.contains(word)), "{svg}");
    let csv = dir.path().join("disks.csv");
    weft(&["export", text(&none), "--format", "csv", "--events", "disk.*", "-o", text(&csv)]);
    let csv = fs::read_to_string(csv).unwrap();
    assert_eq!(csv.lines().count() as u64, rows[0]["disk_operations"].as_u64().unwrap() + 1);
    let far = csv.lines().filter(|line| line.contains("far seek")).count() as u64;
    assert_eq!(far, rows[0]["slow"].as_u64().unwrap());
}

#[test]
fn benchmarks_are_drawn_by_process() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("files")).unwrap();
    let (progress, report) = (at("progress.csv"), at("report.json"));
    let bench =
        ["bench", "create", "--path", text(&at("files")), "--files", "500", "--procs", "2", "--reps", "1", "--json"].map(str::to_string);
    let words: Vec<&str> = bench.iter().map(String::as_str).chain(["--progress", text(&progress)]).collect();
    fs::write(&report, weft(&words)).unwrap();
    let (running, latency) = (at("running.svg"), at("latency.svg"));
    weft(&["plot", "running", text(&progress), "-o", text(&running), "--label", "two processes"]);
    let svg = picture(&running);
    assert!(svg.contains("1k operations in ") && svg.contains("process 1"), "{svg}");
    weft(&["plot", "running", text(&report), "-o", text(&running)]);
    assert!(picture(&running).contains("process 1"), "the report has the same in it");
    weft(&["plot", "latency", text(&report), "-o", text(&latency)]);
    let svg = picture(&latency);
    assert!(svg.contains("1k operations; median ") && svg.contains("share of the total time"), "{svg}");
    let wrong = Command::new(env!("CARGO_BIN_EXE_weft")).args(["plot", "latency", text(&progress), "-o", "/dev/null"]).output().unwrap();
    assert!(!wrong.status.success() && String::from_utf8_lossy(&wrong.stderr).contains("no phase `create`"));
}

#[test]
fn a_synthetic_trace_is_drawn_step_by_step() {
    let dir = tempfile::tempdir().unwrap();
    sample::write_spans(100, 4, dir.path());
    let svg = dir.path().join("steps.svg");
    weft(&["plot", "steps", text(dir.path()), "--operations", "client.create", "-o", text(&svg)]);
    let svg = picture(&svg);
    assert!(svg.contains("client.create") && svg.contains("meta.create") && svg.contains("reply "), "{svg}");
}

/// What `weft sim run` found of a plan is drawn into a folder, a picture for each combination.
#[test]
fn results_of_a_simulated_plan_are_a_family_of_pictures() {
    let folder = tempfile::tempdir().expect("a directory");
    let set = ["--set", "workload.file=4MiB", "--set", "workload.block=64KiB,128KiB", "--set", "workload.per_operation=1"];
    let results = folder.path().join("results.json");
    std::fs::write(&results, weft(&[&["sim", "run", "interleaved", "--json"], &set[..]].concat())).expect("written");
    let pictures = |options: &[&str]| {
        let out = folder.path().join(options.join(""));
        let words = [results.to_str().expect("UTF-8"), "--out", out.to_str().expect("UTF-8")];
        weft(&[&["plot", "sweep"], &words[..], options].concat());
        let files = std::fs::read_dir(out).expect("made").map(|file| file.expect("a file").path());
        let mut found: Vec<(String, String)> = files
            .map(|path| (path.file_name().expect("a name").to_string_lossy().into_owned(), std::fs::read_to_string(&path).expect("text")))
            .collect();
        found.sort();
        found
    };
    let found = pictures(&["--x", "block", "--lines", "cache_layer"]);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["mib_per_second-access-read.svg", "mib_per_second-access-write.svg"]);
    for word in ["server_directed", "aggregation", "128 KiB", "MB/s"] {
        assert!(found.iter().all(|(_, text)| text.contains(word)), "{word}");
    }
    let bars = pictures(&["--x", "cache_layer", "--y", "disk_operations"]);
    assert!(bars.iter().all(|(name, text)| name.starts_with("disk_operations-block-") && text.contains("server_directed")), "{bars:?}");
}
