//! Prints what additions and jobs cost in queues of 10^4, 10^5 and 10^6 pieces.
//!
//! `cargo run --release -p weft-sched-bench --example queue_cost`

use weft_sched_bench::{Pattern, layers, measure};

fn main() {
    println!("{:22} {:10} {:>8} {:>8} {:>8} {:>8} {:>8}", "layer", "pattern", "pieces", "add ns", "next ns", "jobs", "tree ns");
    for pattern in [Pattern::Scattered, Pattern::Dense] {
        for (name, layer) in layers() {
            let mut adds = Vec::new();
            for pieces in [10_000, 100_000, 1_000_000] {
                // The best of several: everything else on the machine only adds.
                let runs = (2_000_000 / pieces).clamp(3, 50);
                let rows: Vec<_> = (0..runs).map(|_| measure(layer.clone(), pattern, pieces)).collect();
                let best = |of: fn(&weft_sched_bench::Row) -> f64| rows.iter().map(of).fold(f64::INFINITY, f64::min);
                let (add, next, tree) = (best(|row| row.add_ns), best(|row| row.next_ns), best(|row| row.tree_ns));
                let jobs = rows[0].jobs;
                println!("{name:22} {:10} {pieces:>8} {add:>8.0} {next:>8.0} {jobs:>8} {tree:>8.0}", format!("{pattern:?}"));
                adds.push((add, tree));
            }
            println!("{:22} ratio of additions 10^6 / 10^4: {:.2} (bare tree {:.2})", "", adds[2].0 / adds[0].0, adds[2].1 / adds[0].1);
        }
    }
}
