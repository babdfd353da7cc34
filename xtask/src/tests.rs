//! `cargo xtask tests`: all tests of the workspace, several test programs at the same time.
//!
//! `cargo test` runs one program after the other, and most programs of the system tests wait: for a
//! deadline, a term, a server that starts. What a program prints is shown when it has ended.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use crate::tidy::root;

/// Programs that measure this machine: nothing runs beside them.
const ALONE: [&str; 4] = ["bench", "delays", "predict", "verdicts"];
/// The longest, whether they wait or compute, begin first.
const FIRST: [&str; 9] = ["fsx", "power", "crashes", "posix", "view", "papers", "mpiio", "deadline", "nfs_locks"];
/// A program that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(900);
/// So many of the slowest are named at the end.
const SLOWEST: usize = 10;

#[derive(Args)]
pub struct Arguments {
    /// Test programs at the same time; by default two more than there are processors, since most
    /// of them wait.
    #[arg(long)]
    jobs: Option<usize>,
    /// Only test programs with this in their names, as `tests/system delayed`.
    #[arg(long)]
    only: Option<String>,
    /// Each of them so often. What fails is not tried again then.
    #[arg(long, default_value_t = 1)]
    times: usize,
    /// Threads that compute beside them all the time: some things go wrong only where a machine has
    /// too much to do.
    #[arg(long, default_value_t = 0)]
    busy: usize,
}

/// A program of tests.
struct Program {
    name: String,
    executable: PathBuf,
    /// The folder of its package, where cargo would start it.
    folder: PathBuf,
}

/// How a program did.
#[derive(Clone)]
struct Finished<'a> {
    program: &'a Program,
    good: bool,
    took: Duration,
    /// Tests that passed.
    passed: usize,
}

/// Builds and runs everything; true if all tests passed. What failed is run once more, alone: if it
/// passes then, it is named as unsteady, and is no failure.
pub fn run(arguments: &Arguments) -> bool {
    let begun = Instant::now();
    let programs = match build() {
        Ok(programs) => programs,
        Err(why) => {
            eprintln!("xtask: {why}");
            return false;
        }
    };
    println!("built in {} s: {} programs of tests", begun.elapsed().as_secs(), programs.len());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..arguments.busy {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let is_good = run_programs(arguments, &programs);
        is_over.store(true, Ordering::Relaxed);
        is_good
    })
}

fn run_programs(arguments: &Arguments, programs: &[Program]) -> bool {
    let is_chosen = |program: &&Program| arguments.only.as_ref().is_none_or(|only| program.name.contains(only));
    let chosen: Vec<&Program> = programs.iter().filter(is_chosen).collect();
    let runs = std::iter::repeat_n(chosen, arguments.times).flatten();
    let (alone, together): (Vec<&Program>, Vec<&Program>) = runs.partition(|program| ALONE.contains(&program.target()));
    let jobs = arguments.jobs.unwrap_or_else(|| 2 + thread::available_parallelism().map_or(1, usize::from));
    let mut finished = run_all(&together, jobs);
    finished.extend(run_all(&alone, 1));
    let runs = finished.len();
    let mut failed: Vec<Finished<'_>> = finished.iter().filter(|finished| !finished.good).cloned().collect();
    let mut steady = Vec::new();
    if arguments.times == 1 {
        let again: Vec<&Program> = failed.iter().map(|finished| finished.program).collect();
        (steady, failed) = run_all(&again, 1).into_iter().partition(|finished| finished.good);
    }

    finished.sort_by_key(|finished| std::cmp::Reverse(finished.took));
    println!("\nthe slowest:");
    finished.iter().take(SLOWEST).for_each(|finished| println!("  {:>4} s  {}", finished.took.as_secs(), finished.program.name));
    for finished in &steady {
        println!("unsteady: {} failed beside others and passed alone", finished.program.name);
    }
    for finished in &failed {
        eprintln!("FAILED: {}", finished.program.name);
    }
    let passed: usize = finished.iter().filter(|finished| finished.good).chain(&steady).map(|finished| finished.passed).sum();
    println!("programs of tests: {} passed, {} failed; {passed} tests passed", runs - failed.len(), failed.len());
    failed.is_empty() && (arguments.only.is_some() || run_doc_tests())
}

impl Program {
    /// Its name without its package.
    fn target(&self) -> &str {
        self.name.rsplit(' ').next().unwrap_or(&self.name)
    }
}

/// Compiles all tests; what is to run first comes first.
fn build() -> Result<Vec<Program>, String> {
    let arguments = ["test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics"];
    let output = cargo().args(arguments).stderr(Stdio::inherit()).output().map_err(|error| format!("cargo does not start: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not compile".into());
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs: Vec<Program> = messages.filter_map(|message| program(&message)).collect();
    programs.sort_by_cached_key(|program| {
        let place = FIRST.iter().position(|first| *first == program.target()).unwrap_or(FIRST.len());
        // Then what waits most.
        (place, !program.folder.ends_with("tests/system"), program.name.clone())
    });
    Ok(programs)
}

fn cargo() -> Command {
    let mut cargo = weft_system_tests::cargo();
    cargo.current_dir(root());
    cargo
}

/// The program that a message of cargo tells of.
fn program(message: &Value) -> Option<Program> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let executable = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.strip_prefix(root()).unwrap_or(&folder).display().to_string();
    Some(Program { name: format!("{package} {}", message["target"]["name"].as_str()?), executable, folder })
}

/// Runs `programs` in their order, `jobs` at the same time.
fn run_all<'a>(programs: &[&'a Program], jobs: usize) -> Vec<Finished<'a>> {
    let (next, finished) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..jobs.min(programs.len()) {
            scope.spawn(|| {
                while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (result, words) = run_one(program);
                    let mut finished = finished.lock().expect("nothing panics with the lock");
                    println!("\n     Running {} ({} s)\n{}", program.name, result.took.as_secs(), words.trim());
                    finished.push(result);
                }
            });
        }
    });
    finished.into_inner().expect("nothing panics with the lock")
}

/// Runs one program to its end, or kills it after [`PATIENCE`]; gives what it printed, too.
fn run_one(program: &Program) -> (Finished<'_>, String) {
    let begun = Instant::now();
    let mut command = Command::new(&program.executable);
    let done = weft_system_tests::run(command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder), PATIENCE);
    let mut words = done.words();
    let passed = words.lines().filter_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse::<usize>().ok()).sum();
    match done.status {
        Some(status) if status.success() => {}
        Some(status) => words += &format!("\n{}: {status}", program.name),
        None => words += &format!("\n{}: killed after {} s", program.name, PATIENCE.as_secs()),
    }
    (Finished { program, good: done.is_success(), took: begun.elapsed(), passed }, words)
}

fn run_doc_tests() -> bool {
    let status = cargo().args(["test", "--locked", "--workspace", "--doc"]).status();
    status.is_ok_and(|status| status.success())
}
