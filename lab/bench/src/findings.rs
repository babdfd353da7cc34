//! What came out of an experiment: a row for each step and file system.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value};
use weft_analysis::results::{Phase, Spread};
use weft_host::config::{LayerKind, cache_config};
use weft_host::output::Table;
use weft_host::units::human_bytes;
use weft_piosim::workloads::Transfer;
use weft_workload::{WorkStep, Workload};

use crate::experiment::{Done, Records, Used};
use crate::prediction::Predicting;
use crate::report::{Measurement, number, range};
use crate::setup::{Setup, Variant};
use crate::stats::median_interval;

/// Operations that the simulator predicts.
#[derive(Clone, Copy, Debug, Serialize)]
struct Predicted {
    /// For clients that take no time between their calls.
    eager: u64,
    /// For clients as slow as they were with the layer `none`.
    paced: u64,
}

/// A result: a step on a file system.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Keys of the plan that stand for several values, and the values here.
    #[serde(flatten)]
    pub parameters: Map<String, Value>,
    /// Of each repetition with the one of the first file system beside it; nothing for that one.
    ratio_to_first: Option<Spread>,
    /// Its median lies between these with 95 %.
    ratio_interval: Option<(f64, f64)>,
    /// The median of all rates lies between these with 95 %.
    ops_interval: Option<(f64, f64)>,
    /// The rate of each repetition, in their order.
    samples: Vec<f64>,
    /// Of the median repetition by operations.
    disk: Used,
    /// Only with direct I/O.
    predicted: Option<Predicted>,
    /// Of all repetitions, if something is recorded.
    records: Option<Records>,
    /// What was measured.
    #[serde(flatten)]
    pub phase: Phase,
}

/// What a row is made of, where it was measured before.
pub struct Found {
    /// Keys of the plan that stand for several values, and the values here.
    pub parameters: Map<String, Value>,
    /// What was measured.
    pub phase: Phase,
    /// The rate of each repetition.
    pub samples: Vec<f64>,
    /// Rates as parts of those of the first file system in the same repetitions; none for that one.
    pub ratios: Vec<f64>,
    /// What the disks did in each repetition.
    pub disks: Vec<Used>,
}

impl Row {
    /// A row of this.
    pub fn of(found: Found) -> Row {
        let Found { parameters, phase, samples, ratios, mut disks } = found;
        disks.sort_by_key(|disk| disk.operations);
        Row {
            parameters,
            ratio_to_first: Spread::of(ratios.iter().copied()),
            ratio_interval: median_interval(ratios),
            ops_interval: median_interval(samples.iter().copied()),
            disk: disks.get(disks.len() / 2).copied().unwrap_or_default(),
            predicted: None,
            records: None,
            samples,
            phase,
        }
    }

    /// The row as one object. Where a key of the plan has the name of a measured one (`clients`,
    /// which are processes in a plan), it says what the plan says.
    ///
    /// # Errors
    /// None: all keys are strings.
    pub fn json(&self) -> serde_json::Result<Value> {
        let mut row = serde_json::to_value(self)?;
        for (key, value) in &self.parameters {
            row[key] = value.clone();
        }
        Ok(row)
    }
}

/// A row for each step and file system.
///
/// # Errors
/// If the simulator refuses what it shall predict, which it should not.
pub fn rows(variants: &[Variant], parameters: &Map<String, Value>, work: &Workload, done: &[Done]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for step in 0..done.first().map_or(0, |first| first.steps.len()) {
        let first = done[0].steps[step].0.rates();
        for (number, (one, Variant { values, setup, .. })) in done.iter().zip(variants).enumerate() {
            let (measurement, disks) = &one.steps[step];
            let Some(phase) = measurement.summary() else { continue };
            let samples = measurement.rates();
            let ratios = samples.iter().zip(&first).map(|(rate, first)| rate / first).filter(|_| number > 0).collect();
            let parameters = values.iter().chain(parameters).map(|(key, value)| (key.clone(), value.clone())).collect();
            let all: Vec<&Measurement> = done.iter().map(|done| &done.steps[step].0).collect();
            rows.push(Row {
                predicted: predict(variants, work, setup, measurement.step, &all)?,
                records: setup.record.as_ref().map(|_| one.records),
                ..Row::of(Found { parameters, phase, samples, ratios, disks: disks.clone() })
            });
        }
    }
    Ok(rows)
}

/// What the simulator says, with direct I/O and for what it can do.
fn predict(
    variants: &[Variant],
    work: &Workload,
    setup: &Setup,
    step: Option<WorkStep>,
    measured: &[&Measurement],
) -> Result<Option<Predicted>> {
    let Some(step) = step.filter(|step| setup.direct_io && step.is_stream()) else { return Ok(None) };
    let Some(layer) = setup.layer else { return Ok(None) };
    let transfer = Transfer { work, writes: step == WorkStep::Write };
    let predicting = Predicting { transfer, servers: setup.servers, stripe_bytes: setup.stripe_bytes };
    let cache = |layer| cache_config(layer, true, setup.durability);
    let is_plain = |other: &&Variant| other.setup == Setup { layer: Some(LayerKind::None), ..setup.clone() };
    let plain = variants.iter().zip(measured).find(|(other, _)| is_plain(other)).and_then(|(_, one)| one.summary());
    let between_ns = match plain {
        Some(phase) => predicting.between_calls(&cache(LayerKind::None), phase.seconds.map_or(0.0, |seconds| seconds.median))?,
        None => 0,
    };
    let (eager, paced) = (predicting.operations(&cache(layer), 0)?, predicting.operations(&cache(layer), between_ns)?);
    Ok(Some(Predicted { eager, paced }))
}

/// True if no key has two values: one of the two may know keys that the other does not.
pub fn agree(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    one.iter().all(|(key, value)| other.get(key).is_none_or(|same| same == value))
}

/// The columns that have something to say.
pub fn table(rows: &[Row]) -> String {
    let mut keys: Vec<&String> = Vec::new();
    for key in rows.iter().flat_map(|row| row.parameters.keys()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let short = |key: &str| key.rsplit('.').next().unwrap_or_default().to_string();
    let mut columns: Vec<(String, Vec<String>)> = Vec::new();
    let mut column = |heading: String, cell: &dyn Fn(&Row) -> Option<String>| {
        let cells: Vec<String> = rows.iter().map(|row| cell(row).unwrap_or_default()).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            columns.push((heading, cells));
        }
    };
    for key in keys {
        column(short(key), &|row| Some(row.parameters.get(key)?.to_string().trim_matches('"').to_string()));
    }
    let some = |value: u64| (value > 0).then(|| value.to_string());
    let part = |row: &Row, of: fn(&Predicted) -> u64| row.predicted.map(|all| number(row.disk.operations as f64 / of(&all) as f64));
    column("step".into(), &|row| Some(row.phase.phase.clone()));
    // What is done once is known by its time.
    let once = |row: &Row| row.phase.seconds.filter(|_| row.phase.ops == 1);
    column(">seconds".into(), &|row| Some(number(once(row)?.median)));
    column("min - max".into(), &|row| once(row).map(range));
    column(">ops/s".into(), &|row| (row.phase.ops != 1).then(|| number(row.phase.ops_per_s.median)));
    column("min - max".into(), &|row| (row.phase.ops != 1).then(|| range(row.phase.ops_per_s)));
    column(">MiB/s".into(), &|row| Some(number(row.phase.mib_per_s?.median)));
    column("min - max".into(), &|row| Some(range(row.phase.mib_per_s?)));
    column(">of the first".into(), &|row| Some(number(row.ratio_to_first?.median)));
    column("min - max".into(), &|row| Some(range(row.ratio_to_first?)));
    column("median, 95 %".into(), &|row| row.ratio_interval.map(|(low, high)| format!("{} - {}", number(low), number(high))));
    column(">servers us/op".into(), &|row| Some(number(row.phase.server_cpu_us_per_op?)));
    column(">client us/op".into(), &|row| Some(number(row.phase.client_cpu_us_per_op)));
    column(">disk operations".into(), &|row| some(row.disk.operations));
    column(">of eager clients".into(), &|row| Some(row.predicted?.eager.to_string()));
    column(">real/that".into(), &|row| part(row, |all| all.eager));
    column(">of paced clients".into(), &|row| Some(row.predicted?.paced.to_string()));
    column(">real/that".into(), &|row| part(row, |all| all.paced));
    column(">sequential".into(), &|row| some(row.disk.sequential));
    column(">near".into(), &|row| some(row.disk.near));
    column(">far".into(), &|row| some(row.disk.far));
    column(">read or written".into(), &|row| some(row.disk.bytes).map(|_| human_bytes(row.disk.bytes)));
    let per_op = |row: &Row, records: u64| records as f64 / (row.phase.ops * row.phase.repetitions as u64) as f64;
    column(">records/op".into(), &|row| row.records.map(|records| number(per_op(row, records.taken))));
    column(">records lost".into(), &|row| row.records.map(|records| records.lost.to_string()));
    let headings: Vec<&str> = columns.iter().map(|(heading, _)| heading.as_str()).collect();
    let mut table = Table::new(&headings);
    for row in 0..rows.len() {
        table.row(columns.iter().map(|(_, cells)| cells[row].clone()).collect());
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use weft_host::config::{Durability, Engine};
    use weft_workload::Steps;

    use super::*;
    use crate::crew::Outcome;
    use crate::meter::Tally;
    use crate::report::Repetition;
    use crate::setup::Place;

    #[test]
    fn each_repetition_is_held_against_the_first_file_system() {
        let setup = |layer| Setup {
            servers: 1,
            stripe_bytes: 1 << 20,
            meta: 1,
            engine: Engine::Memory,
            durability: Durability::None,
            layer: Some(layer),
            direct_io: false,
            record: None,
            warm_up: 0,
            protocol: weft_workload::Protocol::Weft,
            no_metafile: false,
            restart: false,
        };
        let named = |name: &str| Map::from_iter([("server.cache_layer".to_string(), Value::from(name))]);
        let variant = |name, layer| Variant { values: named(name), setup: setup(layer), place: Place::Temporary };
        let variants = [variant("none", LayerKind::None), variant("aggregation", LayerKind::Aggregation)];
        let work = &Workload { steps: Steps::of(WorkStep::Write), ..Workload::stream() };
        let done = |seconds: [f64; 3], operations: [u64; 3]| {
            let mut steps = Measurement::of(work);
            let outcome =
                |seconds| Outcome { seconds, tally: Tally { ops: 100, ..Tally::default() }, progress: vec![], cpu_us: 0, traffic: None };
            steps[0].repetitions = seconds.map(|seconds| Repetition { outcome: outcome(seconds), usage: None, ceiling: None }).into();
            let disks = operations.map(|operations| Used { operations, ..Used::default() }).to_vec();
            Done { steps: steps.into_iter().map(|step| (step, disks.clone())).collect(), records: Records::default() }
        };
        // In a plan clients are processes; a phase has one of its own for those of a process.
        let parameters = Map::from_iter([("clients".to_string(), Value::from(25))]);
        let rows =
            rows(&variants, &parameters, work, &[done([1.0, 2.0, 4.0], [10, 12, 11]), done([2.0, 2.0, 2.0], [5, 7, 6])]).expect("rows");
        assert_eq!((rows.len(), rows[0].disk.operations, rows[0].ratio_to_first), (2, 11, None));
        assert_eq!(rows[1].ratio_to_first, Some(Spread { median: 1.0, min: 0.5, max: 2.0 }));
        assert_eq!((rows[1].parameters["server.cache_layer"].as_str(), rows[1].disk.operations), (Some("aggregation"), 6));
        let shown = rows[1].json().expect("an object").to_string();
        assert_eq!((shown.matches("\"clients\":").count(), shown.matches("\"clients\":25").count()), (1, 1), "{shown}");
        let text = table(&rows);
        assert!(text.contains("of the first") && !text.contains("records") && text.lines().count() == 3, "{text}");
    }
}
