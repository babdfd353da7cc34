//! `cargo xtask sim`: many seeds on all cores. Each seed is a simulation of its own, so threads
//! share nothing but the next number.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use weft_sim_tests::plan::Plan;
use weft_sim_tests::{Report, run_plan};

/// A seed that takes longer than this is named while it runs.
const SLOW: Duration = Duration::from_secs(20);
/// How often progress is told where it cannot be shown in place.
const TELL_EVERY: Duration = Duration::from_secs(30);
/// Of so many seeds one is run twice, and the hashes of both runs are compared.
const TWICE_EVERY: u64 = 40;

#[derive(Args)]
pub struct Arguments {
    /// First seed and the one behind the last: 0..2000; or a single one.
    #[arg(long, value_parser = parse_seeds, default_value = "0..2000")]
    seeds: Range<u64>,
    /// Simulations at the same time; all cores by default.
    #[arg(long)]
    jobs: Option<usize>,
    /// Prints plan, history and trace of every seed.
    #[arg(long)]
    verbose: bool,
    /// Operations in each history; drawn from the seed by default.
    #[arg(long)]
    ops: Option<usize>,
    /// Mostly renames between servers, with transactions held up.
    #[arg(long)]
    renames: bool,
    /// Servers join while clients work.
    #[arg(long, conflicts_with = "renames")]
    growing: bool,
    /// Most clients keep what they are told under leases.
    #[arg(long, conflicts_with_all = ["renames", "growing"])]
    leases: bool,
    /// The names of directories are spread over servers; every second seed with leases.
    #[arg(long, conflicts_with_all = ["renames", "growing", "leases"])]
    split: bool,
    /// Whole contents are put under names, and small ones lie on metadata servers.
    #[arg(long, conflicts_with_all = ["renames", "growing", "leases", "split"])]
    puts: bool,
    /// Small files lie on metadata servers, as in new file systems: beside any of the kinds above.
    #[arg(long, conflicts_with_all = ["renames", "puts"])]
    inline: bool,
    /// Datafiles that belong to no file are looked for and removed all the time.
    #[arg(long)]
    repairs: bool,
    /// Ends after so many seeds that failed.
    #[arg(long, default_value_t = 5)]
    failures: u64,
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    match text.split_once("..") {
        Some((first, end)) => {
            let range = number(first)?..number(end)?;
            if range.is_empty() { Err("no seed lies in this range".into()) } else { Ok(range) }
        }
        None => number(text).map(|seed| seed..seed + 1),
    }
}

/// What all workers together have seen.
#[derive(Default)]
struct Totals {
    seeds: u64,
    failed: Vec<u64>,
    undecided: Vec<u64>,
    operations: u64,
    unanswered: u64,
    by_fault_profile: BTreeMap<String, u64>,
    slowest: Option<(Duration, u64)>,
    virtual_s: f64,
    /// Of all trace hashes, in any order: two programs that behave alike show the same.
    hash: u64,
}

thread_local! {
    static SEED: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Runs all seeds. True if nothing is wrong.
pub fn run(arguments: &Arguments) -> bool {
    name_the_seed_of_a_panic();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let jobs = arguments.jobs.unwrap_or(cores).max(1);
    let next = AtomicU64::new(arguments.seeds.start);
    let stop = AtomicBool::new(false);
    let totals = Mutex::new(Totals::default());
    let running = Mutex::new(BTreeMap::new());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs)
            .map(|_| {
                let work = || {
                    while !stop.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= arguments.seeds.end {
                            break;
                        }
                        running.lock().expect("no panic under the lock").insert(seed, (Instant::now(), false));
                        let begun = Instant::now();
                        let report = run_one(seed, arguments);
                        let took = begun.elapsed();
                        running.lock().expect("no panic under the lock").remove(&seed);
                        let mut totals = totals.lock().expect("no panic under the lock");
                        totals.add(&report, took);
                        if arguments.verbose || !report.is_good() {
                            println!("{report}");
                        }
                        if totals.failed.len() as u64 >= arguments.failures {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                };
                scope.spawn(work)
            })
            .collect();
        let is_terminal = std::io::stderr().is_terminal();
        let mut told_at = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
            for (seed, (since, told)) in running.lock().expect("no panic under the lock").iter_mut() {
                if since.elapsed() > SLOW && !*told {
                    *told = true;
                    eprintln!("seed {seed} has been running for {} s", SLOW.as_secs());
                }
            }
            if is_terminal || told_at.elapsed() > TELL_EVERY {
                told_at = Instant::now();
                let totals = totals.lock().expect("no panic under the lock");
                let all = arguments.seeds.end - arguments.seeds.start;
                let (begin, end) = if is_terminal { ("\r", " ") } else { ("", "\n") };
                eprint!("{begin}{} of {all} seeds, {} failed{end}", totals.seeds, totals.failed.len());
                let _ = std::io::stderr().flush();
            }
        }
    });
    let totals = totals.into_inner().expect("no panic under the lock");
    print!("{}{}", if std::io::stderr().is_terminal() { "\n" } else { "" }, totals.summary(begun.elapsed()));
    totals.failed.is_empty()
}

fn run_one(seed: u64, arguments: &Arguments) -> Report {
    SEED.set(Some(seed));
    let plan = match arguments {
        Arguments { renames: true, .. } => Plan::renames(seed, arguments.ops),
        Arguments { growing: true, .. } => Plan::growing(seed, arguments.ops),
        Arguments { leases: true, .. } => Plan::leased(seed, arguments.ops),
        Arguments { split: true, .. } => Plan::split(seed, arguments.ops),
        Arguments { puts: true, .. } => Plan::putting(seed, arguments.ops),
        _ => Plan::new(seed, arguments.ops),
    };
    let plan = if arguments.inline { plan.with_small_files() } else { plan };
    let plan = Plan { repairs: arguments.repairs, ..plan };
    let mut report = run_plan(&plan, arguments.verbose);
    if seed.is_multiple_of(TWICE_EVERY) || arguments.verbose {
        // The second run keeps no trace, so this also shows that looking changes nothing.
        let again = run_plan(&plan, false);
        if again.trace_hash != report.trace_hash {
            report.problems.push(format!("two runs differ: trace hashes {:016x} and {:016x}", report.trace_hash, again.trace_hash));
        }
    }
    SEED.set(None);
    report
}

/// The release build aborts on a panic; at least it says which seed it was.
fn name_the_seed_of_a_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let Some(seed) = SEED.get() {
            eprintln!("seed {seed} panics; again: the same command with --seeds {seed}..{} --verbose", seed + 1);
        }
        usual(info);
    }));
}

impl Totals {
    fn add(&mut self, report: &Report, took: Duration) {
        self.seeds += 1;
        self.hash = self.hash.wrapping_add(report.trace_hash);
        self.operations += report.operations as u64;
        self.unanswered += report.unanswered as u64;
        self.virtual_s += report.ended_at.0 as f64 / 1e9;
        *self.by_fault_profile.entry(format!("{:?}", report.fault_profile)).or_insert(0) += 1;
        if !report.is_good() {
            self.failed.push(report.seed);
        }
        if report.undecided {
            self.undecided.push(report.seed);
        }
        if self.slowest.is_none_or(|(slowest, _)| took > slowest) {
            self.slowest = Some((took, report.seed));
        }
    }

    fn summary(&self, took: Duration) -> String {
        let fault_profiles: Vec<String> =
            self.by_fault_profile.iter().map(|(fault_profile, count)| format!("{fault_profile} {count}")).collect();
        let mut text = format!(
            "{} seeds in {:.1} s: {} operations ({} unanswered), {:.0} s of virtual time; {}; hash of all traces {:016x}\n",
            self.seeds,
            took.as_secs_f64(),
            self.operations,
            self.unanswered,
            self.virtual_s,
            fault_profiles.join(", "),
            self.hash
        );
        if let Some((took, seed)) = self.slowest {
            text += &format!("slowest: seed {seed} with {:.2} s\n", took.as_secs_f64());
        }
        if !self.undecided.is_empty() {
            text += &format!("no verdict on linearizability within the limit: seeds {:?}\n", self.undecided);
        }
        match self.failed.as_slice() {
            [] => text += "nothing wrong\n",
            failed => text += &format!("FAILED: {failed:?}\n"),
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_seeds() {
        assert_eq!(parse_seeds("3..7"), Ok(3..7));
        assert_eq!(parse_seeds("8123"), Ok(8123..8124));
        assert!(parse_seeds("7..3").is_err());
        assert!(parse_seeds("a..b").is_err());
    }
}
