//! The list of runs: what each is, and its most telling numbers.

use serde_json::{Value, json};
use weft_analysis::latency;
use weft_analysis::run::Run;

use crate::site::Site;

/// All runs, those too that could not be read.
pub fn runs(site: &Site) -> Value {
    let describe = |(number, (name, refused)): (usize, (&str, Option<&str>))| match site.run(number as u64) {
        Some(run) => one(number, &run),
        None => json!({ "number": number, "name": name, "refused": refused.unwrap_or("it is still being read") }),
    };
    json!(site.names().enumerate().map(describe).collect::<Vec<_>>())
}

fn one(number: usize, run: &Run) -> Value {
    let total = latency::chosen(run, 0, u64::MAX, &[]).stacked.total();
    let (clients, servers) = run.clients_and_servers();
    let phases = run.results.phases.iter().map(|phase| {
        json!({
            "phase": phase.title(), "procs": phase.procs, "clients": phase.clients, "repetitions": phase.repetitions,
            "ops_per_s": phase.ops_per_s, "mib_per_s": phase.mib_per_s, "latency_us": phase.latency_us,
            "ceiling": phase.ceiling, "ratio_to_ceiling": phase.ratio_to_ceiling,
        })
    });
    json!({
        "number": number, "name": run.name, "refused": Value::Null, "has_trace": run.has_trace(), "simulated": run.is_simulated(),
        "duration": run.duration_ns, "clients": clients, "servers": servers, "spans": run.spans(),
        "operations": total.count(), "rate": total.count() as f64 / (run.duration_ns as f64 / 1e9),
        "p50_ns": total.quantile_ns(0.5), "p99_ns": total.quantile_ns(0.99), "lost": run.merged.nodes.iter().map(|node| node.lost).sum::<u64>(),
        "problems": run.problem_count(), "phases": phases.collect::<Vec<_>>(), "progress": run.results.progress.len(),
        "ceilings": run.results.ceilings.len(), "sources": run.sources.iter().map(|source| source.path.display().to_string()).collect::<Vec<_>>(),
    })
}
