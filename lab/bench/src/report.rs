//! What was measured, for people and for programs.

use weft_analysis::results::{Phase, PhaseCeiling, Spread};
use weft_host::output::Table;

use crate::crew::Outcome;
use crate::stats::Latencies;
use crate::usage::Usage;
use crate::yardstick::Ceiling;
use weft_workload::{Every, WorkStep, Workload};

const MIB: f64 = (1u64 << 20) as f64;

/// One repetition of one step.
#[derive(Debug)]
pub struct Repetition {
    /// What the clients did.
    pub outcome: Outcome,
    /// What servers and mount spent, if they could be asked.
    pub usage: Option<Usage>,
    /// The ceiling, if it was measured just before.
    pub ceiling: Option<Ceiling>,
}

/// All repetitions of one step.
#[derive(Debug)]
pub struct Measurement {
    /// Its name: that of the step, or a special one.
    pub phase: String,
    /// The step; none: a command.
    pub step: Option<WorkStep>,
    /// How it was done.
    pub work: Workload,
    /// At least one.
    pub repetitions: Vec<Repetition>,
}

impl Repetition {
    /// Operations per second.
    pub fn ops_per_s(&self) -> f64 {
        self.outcome.tally.ops as f64 / self.outcome.seconds
    }

    fn mib_per_s(&self) -> f64 {
        self.outcome.tally.bytes as f64 / MIB / self.outcome.seconds
    }

    fn ratio(&self) -> Option<f64> {
        let ceiling = self.ceiling.as_ref()?;
        Some(if ceiling.unit == "MiB/s" { self.mib_per_s() } else { self.ops_per_s() } / ceiling.rate)
    }
}

impl Measurement {
    /// One for each step of a workload that is told, with nothing measured yet.
    pub fn of(work: &Workload) -> Vec<Measurement> {
        let of = |phase, step| Measurement { phase, step, work: work.clone(), repetitions: Vec::new() };
        let told = work.steps.cycle.iter().filter(|(_, is_told)| *is_told);
        let commands = work.steps.commands.iter().flat_map(|commands| &commands.timed);
        told.map(|(step, _)| of(work.steps.phase(*step), Some(*step)))
            .chain(commands.map(|command| of(command.name.clone(), None)))
            .collect()
    }

    /// Sums up. `None` if nothing was done in it: then there is no rate.
    pub fn summary(&self) -> Option<Phase> {
        let all = &self.repetitions;
        let ops: u64 = all.iter().map(|one| one.outcome.tally.ops).sum();
        if ops == 0 {
            return None;
        }
        let per_op = |sum: u64| sum as f64 / ops as f64;
        let summed = |of: fn(&Repetition) -> Option<u64>| all.iter().map(of).sum::<Option<u64>>().map(per_op);
        // The library's own counters are exact; those of the servers count what anybody sends.
        let traffic = |one: &Repetition| one.outcome.traffic.or(one.usage.map(|usage| usage.traffic));
        let mut latencies = Latencies::default();
        all.iter().for_each(|one| latencies.absorb(&one.outcome.tally.latencies));
        let ceiling = || {
            let first = all.first()?.ceiling.as_ref()?;
            let rate = Spread::of(all.iter().filter_map(|one| Some(one.ceiling.as_ref()?.rate)))?;
            Some(PhaseCeiling { name: first.name.clone(), unit: first.unit.to_string(), rate })
        };
        let moved = all.iter().any(|one| one.outcome.tally.bytes > 0);
        let requests = all.iter().map(|one| Some(traffic(one)?.requests)).sum::<Option<u64>>();
        let bytes = all.iter().map(|one| Some(traffic(one)?.bytes)).sum::<Option<u64>>();
        Some(Phase {
            phase: self.phase.clone(),
            repetitions: all.len(),
            procs: self.work.procs,
            clients: self.work.clients,
            depth: self.work.depth,
            ops: all[0].outcome.tally.ops,
            size_bytes: self.work.size,
            block_bytes: self.work.block,
            seconds: Some(Spread::of(all.iter().map(|one| one.outcome.seconds))?),
            ops_per_s: Spread::of(all.iter().map(Repetition::ops_per_s))?,
            ops_per_s_mean: Some(mean_and_deviation(all.iter().map(Repetition::ops_per_s)).0),
            ops_per_s_deviation: Some(mean_and_deviation(all.iter().map(Repetition::ops_per_s)).1),
            mib_per_s: moved.then(|| Spread::of(all.iter().map(Repetition::mib_per_s))).flatten(),
            messages_per_op: requests.map(per_op),
            bytes_per_op: bytes.map(per_op),
            client_cpu_us_per_op: per_op(all.iter().map(|one| one.outcome.cpu_us).sum()),
            gateway_cpu_us_per_op: summed(|one| one.usage?.gateway_us),
            server_cpu_us_per_op: summed(|one| Some(one.usage?.servers_us)),
            latency_us: latencies.summary(),
            ceiling: ceiling(),
            ratio_to_ceiling: all.iter().map(Repetition::ratio).collect::<Option<Vec<f64>>>().and_then(Spread::of),
            progress: matches!(self.work.progress, Some(Every::Nanos(_))).then(|| self.processes()),
            case: Vec::new(),
        })
    }
}

/// Processor time of clients, which models do not have.
pub(crate) fn known(client_us: f64) -> Option<f64> {
    Some(client_us).filter(|us| *us > 0.0)
}

/// The table for people.
pub fn table(phases: &[Phase]) -> String {
    let mut columns = vec!["phase", ">ops/s", "min - max", ">MiB/s", "min - max", ">p50 us", ">p99 us", ">messages/op", ">client us/op"];
    let (gateway, servers) =
        (phases.iter().any(|one| one.gateway_cpu_us_per_op.is_some()), phases.iter().any(|one| one.server_cpu_us_per_op.is_some()));
    let ceiling = phases.iter().any(|one| one.ceiling.is_some());
    columns.extend(gateway.then_some(">mount us/op"));
    columns.extend(servers.then_some(">servers us/op"));
    columns.extend(ceiling.then_some([">ceiling", ">part of it", "min - max", "which"]).into_iter().flatten());
    let mut table = Table::new(&columns);
    let maybe = |value: Option<f64>| value.map(number).unwrap_or_default();
    for one in phases {
        let mib = one.mib_per_s;
        let mut cells = vec![
            one.phase.clone(),
            number(one.ops_per_s.median),
            range(one.ops_per_s),
            maybe(mib.map(|mib| mib.median)),
            mib.map(range).unwrap_or_default(),
            maybe(one.latency_us.map(|latency| latency.p50)),
            maybe(one.latency_us.map(|latency| latency.p99)),
            maybe(one.messages_per_op),
            maybe(known(one.client_cpu_us_per_op)),
        ];
        cells.extend(gateway.then(|| maybe(one.gateway_cpu_us_per_op)));
        cells.extend(servers.then(|| maybe(one.server_cpu_us_per_op)));
        if ceiling {
            cells.push(one.ceiling.as_ref().map(|ceiling| format!("{} {}", number(ceiling.rate.median), ceiling.unit)).unwrap_or_default());
            cells.push(maybe(one.ratio_to_ceiling.map(|ratio| ratio.median)));
            cells.push(one.ratio_to_ceiling.map(range).unwrap_or_default());
            cells.push(one.ceiling.as_ref().map(|ceiling| ceiling.name.clone()).unwrap_or_default());
        }
        table.row(cells);
    }
    table.render()
}

/// The mean of samples and their standard deviation (that of all samples, as mdtest tells it).
fn mean_and_deviation(samples: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = f64::max(samples.clone().count() as f64, 1.0);
    let mean = samples.clone().sum::<f64>() / count;
    (mean, (samples.map(|sample| (sample - mean).powi(2)).sum::<f64>() / count).sqrt())
}

/// The summary that mdtest prints: rates of each operation over all repetitions.
pub fn summary_table(phases: &[Phase]) -> String {
    let mut table = Table::new(&["operation", ">items", ">max /s", ">min /s", ">mean /s", ">std dev"]);
    for one in phases {
        let cells =
            [one.ops_per_s.max, one.ops_per_s.min, one.ops_per_s_mean.unwrap_or(f64::NAN), one.ops_per_s_deviation.unwrap_or(f64::NAN)];
        table.row([one.phase.clone(), grouped(one.ops as i64)].into_iter().chain(cells.map(number)).collect());
    }
    table.render()
}

/// Smallest and greatest.
pub fn range(spread: Spread) -> String {
    format!("{} - {}", number(spread.min), number(spread.max))
}

/// Three digits and more are whole and grouped; smaller numbers keep three digits.
pub fn number(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 100.0 => return grouped(value.round() as i64),
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.places$}")
}

fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Tally;
    use crate::target::Traffic;

    fn repetition(ops: u64, seconds: f64, ceiling: Option<f64>) -> Repetition {
        let tally = Tally { ops, bytes: ops << 20, intervals: vec![(ops, 0)], ..Tally::default() };
        let traffic = Some(Traffic { requests: 2 * ops, bytes: 300 * ops });
        let outcome = Outcome { seconds, tally, progress: vec![], cpu_us: 5 * ops, traffic };
        let ceiling = ceiling.map(|rate| Ceiling { name: "rpc.unix.1x1".into(), rate, unit: "ops/s" });
        Repetition { outcome, usage: Some(Usage { servers_us: 7 * ops, ..Usage::default() }), ceiling }
    }

    fn measurement(repetitions: Vec<Repetition>) -> Measurement {
        Measurement { phase: "create".into(), step: Some(WorkStep::Create), work: Workload::empty_files(5), repetitions }
    }

    #[test]
    fn rates_are_per_repetition_and_costs_over_all() {
        let phase =
            measurement(vec![repetition(100, 1.0, Some(200.0)), repetition(100, 2.0, Some(50.0)), repetition(100, 0.5, Some(400.0))]);
        let phase = phase.summary().unwrap();
        assert_eq!(phase.ops_per_s, Spread { median: 100.0, min: 50.0, max: 200.0 });
        assert_eq!(phase.mib_per_s, Some(Spread { median: 100.0, min: 50.0, max: 200.0 }));
        assert_eq!((phase.messages_per_op, phase.bytes_per_op), (Some(2.0), Some(300.0)));
        assert_eq!((phase.client_cpu_us_per_op, phase.server_cpu_us_per_op, phase.gateway_cpu_us_per_op), (5.0, Some(7.0), None));
        assert_eq!(phase.ratio_to_ceiling, Some(Spread { median: 0.5, min: 0.5, max: 1.0 }), "each repetition by its own ceiling");
        assert_eq!(phase.ceiling.as_ref().unwrap().rate.median, 200.0);
    }

    #[test]
    fn the_summary_of_mdtest_has_mean_and_deviation() {
        let phase = measurement(vec![repetition(100, 1.0, None), repetition(100, 0.5, None)]).summary().unwrap();
        assert_eq!((phase.ops_per_s_mean, phase.ops_per_s_deviation), (Some(150.0), Some(50.0)));
        let text = summary_table(&[phase]);
        assert!(text.contains("std dev") && text.contains("150") && text.contains("50.0"), "{text}");
    }

    #[test]
    fn json_has_the_documented_keys() {
        let phase = measurement(vec![repetition(10, 1.0, None)]).summary().unwrap();
        let json = serde_json::to_value([phase]).unwrap();
        let object = &json.as_array().unwrap()[0];
        for key in ["phase", "messages_per_op", "bytes_per_op", "client_cpu_us_per_op", "server_cpu_us_per_op"] {
            assert!(!object[key].is_null(), "{key}");
        }
        for key in ["ops_per_s", "mib_per_s"] {
            assert!(["median", "min", "max"].iter().all(|part| object[key][part].is_f64()), "{key}");
        }
        assert!(object["ceiling"].is_null() && object.get("ratio_to_ceiling").is_some());
    }

    #[test]
    fn nothing_done_is_no_result() {
        assert!(measurement(vec![repetition(0, 1.0, None)]).summary().is_none());
    }

    #[test]
    fn the_table_shows_only_columns_that_have_something() {
        let plain = measurement(vec![repetition(1_234_567, 1.0, None)]).summary().unwrap();
        let text = table(&[plain]);
        assert!(known(0.0).is_none() && known(0.5) == Some(0.5), "models have no such time");
        assert!(
            text.contains("1,234,567") && text.contains("servers us/op") && !text.contains("ceiling") && !text.contains("mount us"),
            "{text}"
        );
        let bound = measurement(vec![repetition(100, 1.0, Some(200.0))]).summary().unwrap();
        assert!(table(&[bound]).contains("0.500"));
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in
            [(0.1234, "0.123"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (1234.5, "1,235"), (-1234567.0, "-1,234,567")]
        {
            assert_eq!(number(value), text);
        }
    }
}
