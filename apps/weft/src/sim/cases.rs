//! Runs the cases of a plan on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

use super::plan::{Case, Experiment, Plan};
use super::result::Row;

/// Runs all cases; rows are in the order of the cases. Draws a progress bar where standard error is a terminal.
///
/// # Errors
/// Of the first case that failed.
pub fn run(plan: &Plan, jobs: Option<usize>) -> Result<Vec<Row>> {
    let cases = plan.cases();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let jobs = jobs.unwrap_or(cores).clamp(1, cases.len().max(1));
    let bar = progress_bar(cases.len());
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((number, case)) = cases.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
                    let rows = one(case);
                    if rows.is_err() {
                        // Nobody begins another case.
                        next.store(cases.len(), Ordering::Relaxed);
                    }
                    results.lock().expect("no code panics while it holds this lock").push((number, rows));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut results = results.into_inner().expect("no code panics while it holds this lock");
    results.sort_by_key(|(number, _)| *number);
    let rows: Result<Vec<Vec<Row>>> = results.into_iter().map(|(_, rows)| rows).collect();
    Ok(rows?.concat())
}

fn one(case: &Case) -> Result<Vec<Row>> {
    let phases = match &case.experiment {
        Experiment::Weft(plan) => plan.run(),
    };
    let described = || case.values.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ");
    let phases = phases.with_context(|| if case.values.is_empty() { "the plan".into() } else { format!("case {}", described()) })?;
    Ok(phases.into_iter().map(|phase| Row::new(&case.values, phase)).collect())
}

fn progress_bar(cases: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} cases {eta}").expect("the template is a constant that parses");
    // Hidden by itself where standard error is no terminal.
    ProgressBar::new(cases as u64).with_style(style)
}
