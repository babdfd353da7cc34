//! `cargo run --release -p weft-piosim --example thesis -- [SECTION]
//! [TEXT]`: runs the cases of Appendix C whose section starts with SECTION and whose name contains
//! TEXT, on all cores, and prints each beside the printed number. `natural` as third argument: with
//! natural orders instead of those of 2009; `improved`: with the improved cache layers as well;
//! `double`, `direct`: with double-buffered or direct collective I/O; `messages`: with the network
//! message by message.
#![allow(clippy::disallowed_methods)] // a tool: threads and a clock

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use weft_model::NetworkModel;
use weft_piosim::thesis::{Case, RunResult, cases};
use weft_piosim::{CacheLayerConfig, Collective, Simulation};

fn run(case: &Case, seed: u64, mode: &str) -> Result<RunResult, String> {
    if mode.is_empty() {
        return case.run(seed);
    }
    let mut config = case.config().natural();
    match mode {
        "double" => config.collective = Collective::DoubleBuffered,
        "direct" => config.collective = Collective::Direct,
        "messages" => config.network = NetworkModel::Messages,
        _ => {}
    }
    if mode == "improved" {
        config.cache_layer = CacheLayerConfig::improved(case.layer(), &config.disk);
    }
    let application = case.application(seed);
    let report = Simulation::new(&config, &application)?.run()?;
    Ok(RunResult { nanos: report.end_nanos, events: report.events })
}

fn main() {
    let prefix = std::env::args().nth(1).unwrap_or_default();
    let text = std::env::args().nth(2).unwrap_or_default();
    let mode = std::env::args().nth(3).unwrap_or_default();
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let cases: Vec<_> = cases(&prefix).into_iter().filter(|case| case.name().contains(&text)).collect();
    let runs: Vec<(usize, u64)> =
        cases.iter().enumerate().flat_map(|(index, case)| (0..case.runs()).map(move |seed| (index, seed))).collect();
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Vec<(u64, RunResult, f64)>>> = Mutex::new(vec![Vec::new(); cases.len()]);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&(index, seed)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begin = Instant::now();
                    match run(&cases[index], seed, &mode) {
                        Ok(result) => {
                            let mut results = results.lock().expect("no thread panics while it holds the lock");
                            results[index].push((seed, result, begin.elapsed().as_secs_f64()));
                        }
                        Err(problem) => eprintln!("{} {}: {problem}", cases[index].table(), cases[index].name()),
                    }
                }
            });
        }
    });
    let (mut equal, mut events, mut busy) = (0, 0, 0.0);
    let mut results = results.into_inner().expect("all threads have ended");
    for (case, runs) in cases.iter().zip(&mut results) {
        runs.sort_by_key(|run| run.0);
        let wall: f64 = runs.iter().map(|run| run.2).sum();
        let cell = case.compare(&runs.iter().map(|run| run.1).collect::<Vec<_>>());
        let mark = if cell.fitted {
            "= (fitted)"
        } else if cell.equal {
            "="
        } else if cell.within_deviation {
            "~"
        } else {
            "DIFFERENT"
        };
        println!(
            "{:6} {:34} {:>22} {:>20} {mark} {:+.9} {} events {:.2} s {:.2} M/s",
            cell.table,
            cell.case,
            cell.printed,
            cell.simulated,
            cell.difference,
            cell.events,
            wall,
            cell.events as f64 / wall / 1e6
        );
        equal += usize::from(cell.equal);
        events += cell.events;
        busy += wall;
    }
    let wall = start.elapsed().as_secs_f64();
    println!(
        "{equal} of {} equal; {events} events, {busy:.1} s of work in {wall:.1} s, {:.2} M events/s and core",
        cases.len(),
        events as f64 / busy / 1e6
    );
}
