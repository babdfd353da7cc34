//! `cargo xtask counts`: instructions of the hottest paths, counted by callgrind, against those
//! that the tree records. A count is the same on a busy machine as on an idle one, so a change of a
//! few percent is one.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::tidy::root;

/// Where the counts of this commit are.
const RECORD: &str = "tests/sim/hot_paths.toml";
/// Operations of the shorter and of the longer run of a path: the difference is free of start and
/// end.
const TIMES: [u64; 2] = [100, 600];
/// More than this above the record is a regression.
const GROWTH_MAX: f64 = 0.03;
/// Functions of the simulator and of the driver: no user runs them.
const NOT_COUNTED: [&str; 2] = ["weft_rt_sim", "hot_paths"];

#[derive(Args)]
pub struct Arguments {
    /// Writes the counts into the tree; the commit says why they changed.
    #[arg(long)]
    record: bool,
}

/// Counts, prints and compares. True if no path became more expensive.
pub fn run(arguments: &Arguments) -> bool {
    if !works("valgrind") {
        println!("counts: skipped, valgrind is not installed (apt-get install valgrind)");
        return true;
    }
    match counted() {
        Ok(counts) if arguments.record => record(&counts),
        Ok(counts) => compare(&counts),
        Err(problem) => {
            eprintln!("counts: {problem}");
            false
        }
    }
}

fn works(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn record(counts: &BTreeMap<String, u64>) -> bool {
    let mut text = format!(
        "# Instructions of client and server for one operation, simulator taken out: cargo xtask counts --record\nrustc = \"{}\"\n\n[instructions]\n",
        rustc()
    );
    counts.iter().for_each(|(path, count)| text.push_str(&format!("{path} = {count}\n")));
    fs::write(root().join(RECORD), text).inspect_err(|error| eprintln!("counts: {RECORD}: {error}")).is_ok()
}

fn compare(counts: &BTreeMap<String, u64>) -> bool {
    let recorded = fs::read_to_string(root().join(RECORD)).ok().and_then(|text| text.parse::<toml::Table>().ok()).unwrap_or_default();
    let before = |path: &str| recorded.get("instructions")?.get(path)?.as_integer();
    let same_compiler = recorded.get("rustc").and_then(|value| value.as_str()) == Some(rustc().as_str());
    let mut good = true;
    for (path, &count) in counts {
        let Some(before) = before(path) else {
            println!("{path:>10} {count:>9}  not recorded: cargo xtask counts --record");
            good = false;
            continue;
        };
        let growth = count as f64 / before as f64 - 1.0;
        let verdict = if growth <= GROWTH_MAX { "" } else { "  more than 3 % above the record" };
        println!("{path:>10} {count:>9}  {:+.1} %{verdict}", 100.0 * growth);
        good &= growth <= GROWTH_MAX;
    }
    if !same_compiler {
        println!("counts: recorded with another compiler, so nothing follows from them");
    }
    good || !same_compiler
}

fn rustc() -> String {
    let output = Command::new("rustc").arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).split_whitespace().nth(1).unwrap_or("unknown").to_owned()
}

/// Instructions of one operation of each path.
fn counted() -> Result<BTreeMap<String, u64>, String> {
    let program = build()?;
    let list = Command::new(&program).output().map_err(|error| error.to_string())?;
    let mut counts = BTreeMap::new();
    for path in String::from_utf8_lossy(&list.stdout).lines() {
        let [short, long] = [instructions(&program, path, TIMES[0])?, instructions(&program, path, TIMES[1])?];
        counts.insert(path.to_owned(), (long - short) / (TIMES[1] - TIMES[0]));
    }
    Ok(counts)
}

fn build() -> Result<PathBuf, String> {
    let arguments = ["build", "--locked", "--release", "-p", "weft-sim-tests", "--example", "hot_paths"];
    let built = weft_system_tests::cargo().current_dir(root()).args(arguments).status().map_err(|error| error.to_string())?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    if built.success() { Ok(target.join("release/examples/hot_paths")) } else { Err("the build failed".into()) }
}

fn instructions(program: &Path, path: &str, times: u64) -> Result<u64, String> {
    let profile = std::env::temp_dir().join(format!("weft-counts-{}-{path}", std::process::id()));
    let out = format!("--callgrind-out-file={}", profile.display());
    let output = Command::new("valgrind").args(["--tool=callgrind", &out]).arg(program).args([path, &times.to_string()]).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = fs::read_to_string(&profile).map_err(|error| format!("{path}: {error}"));
    let _ = fs::remove_file(&profile);
    if output.status.success() { Ok(own_instructions(&text?)) } else { Err(format!("{path}: {}", String::from_utf8_lossy(&output.stderr))) }
}

/// The instructions that the functions of a profile ran themselves, those not to be counted left
/// out. The format: valgrind's manual, "Callgrind Format Specification".
fn own_instructions(profile: &str) -> u64 {
    let mut names: HashMap<&str, bool> = HashMap::new();
    let (mut counts, mut is_call, mut sum) = (false, false, 0);
    for line in profile.lines() {
        if let Some(function) = line.strip_prefix("fn=") {
            let (id, name) = function.split_once(' ').unwrap_or((function, ""));
            counts = *names.entry(id).or_insert_with(|| !NOT_COUNTED.iter().any(|part| name.contains(part)));
        } else if let Some(function) = line.strip_prefix("cfn=") {
            if let Some((id, name)) = function.split_once(' ') {
                names.insert(id, !NOT_COUNTED.iter().any(|part| name.contains(part)));
            }
        } else if line.starts_with("calls=") {
            // The next line holds what the called function costs, which stands at that function as
            // well.
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let own = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
            sum += if counts && !is_call { own } else { 0 };
            is_call = false;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::own_instructions;

    #[test]
    fn calls_and_the_simulator_are_not_counted_twice_or_at_all() {
        let profile =
            "fn=(1) weft_client::create\n0 10\ncfn=(2) weft_rt_sim::send\ncalls=1 0\n0 500\n+1 5\nfn=(2)\n0 400\nfn=(3) memcpy\n* 7\n";
        assert_eq!(own_instructions(profile), 22);
    }
}
