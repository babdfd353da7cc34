//! What came out of an experiment: a row for each step and file system.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value};
use weft_analysis::results::{Phase, Spread};
use weft_host::config::{LayerKind, cache_config};
use weft_host::in_order::once_each;
use weft_host::output::Table;
use weft_host::units::human_bytes;
use weft_piosim::workloads::Transfer;
use weft_workload::WorkStep;

use crate::prediction::Predicting;
use crate::report::{known, number, range};
use crate::results::Records;
use crate::setup::{Load, Setup, Variant, word};
use crate::usage::Used;

/// Operations that the simulator predicts.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Predicted {
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
    pub(crate) ratio_to_first: Option<Spread>,
    /// Its median lies between these with 95 %, if there are enough repetitions to say so.
    pub(crate) ratio_interval: Option<(f64, f64)>,
    /// The median of all rates lies between these with 95 %, if there are enough.
    pub(crate) ops_interval: Option<(f64, f64)>,
    /// The rate of each repetition, in their order.
    pub(crate) samples: Vec<f64>,
    /// Of the median repetition by operations.
    pub(crate) disk: Used,
    /// Only with direct I/O.
    pub(crate) predicted: Option<Predicted>,
    /// Of all repetitions, if something is recorded.
    pub(crate) records: Option<Records>,
    /// What was measured.
    #[serde(flatten)]
    pub phase: Phase,
}

impl Row {
    /// The row as one object. Where a key of the plan has the name of a measured one (`clients`,
    /// which are processes in a plan), it says what the plan says; `threads` are those of a
    /// process.
    ///
    /// # Errors
    /// None: all keys are strings.
    pub fn json(&self) -> serde_json::Result<Value> {
        let mut row = serde_json::to_value(self)?;
        row["threads"] = self.phase.clients.into();
        for (key, value) in &self.parameters {
            row[key] = value.clone();
        }
        Ok(row)
    }
}

/// Puts what the simulator says beside the disks' operations, where data servers have direct I/O.
///
/// # Errors
/// If the simulator refuses what it shall predict, which it should not.
pub fn predict(rows: &mut [Row], variants: &[Variant], loads: &[Load]) -> Result<()> {
    let is_direct = |variant: &&Variant| variant.setup.direct_io && variant.setup.layer.is_some();
    for (variant, (parameters, work)) in variants.iter().filter(is_direct).flat_map(|one| loads.iter().map(move |load| (one, load))) {
        let streams = work.steps.cycle.iter().filter(|(step, is_told)| *is_told && step.is_stream());
        for step in streams.map(|(step, _)| *step) {
            let phase = work.steps.phase(step);
            let place = |rows: &[Row], of: &Variant| {
                let is_it = |row: &Row| row.phase.phase == phase && [&of.values, parameters].iter().all(|all| agree(all, &row.parameters));
                rows.iter().position(is_it)
            };
            let transfer = Transfer { work, writes: step == WorkStep::Write };
            let predicting = Predicting { transfer, servers: variant.setup.servers, stripe_bytes: variant.setup.stripe_bytes };
            let cache = |layer| cache_config(layer, true, variant.setup.durability);
            let layer = variant.setup.layer.unwrap_or(LayerKind::None);
            let is_plain = |other: &&Variant| other.setup == Setup { layer: Some(LayerKind::None), ..variant.setup.clone() };
            let plain = variants.iter().find(is_plain).and_then(|plain| rows[place(rows, plain)?].phase.seconds);
            let between_ns = plain.map_or(Ok(0), |seconds| predicting.between_calls(&cache(LayerKind::None), seconds.median))?;
            let (eager, paced) = (predicting.operations(&cache(layer), 0)?, predicting.operations(&cache(layer), between_ns)?);
            if let Some(place) = place(rows, variant) {
                rows[place].predicted = Some(Predicted { eager, paced });
            }
        }
    }
    Ok(())
}

/// True if no key has two values: one of the two may know keys that the other does not.
pub fn agree(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    one.iter().all(|(key, value)| other.get(key).is_none_or(|same| same == value))
}

/// The columns that have something to say.
pub fn table(rows: &[Row]) -> String {
    let keys = once_each(rows.iter().flat_map(|row| row.parameters.keys()));
    let short = |key: &str| key.rsplit('.').next().unwrap_or_default().to_string();
    let mut columns: Vec<(String, Vec<String>)> = Vec::new();
    let mut column = |heading: String, cell: &dyn Fn(&Row) -> Option<String>| {
        let cells: Vec<String> = rows.iter().map(|row| cell(row).unwrap_or_default()).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            columns.push((heading, cells));
        }
    };
    for key in keys {
        column(short(key), &|row| row.parameters.get(key).map(word));
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
    column(">client us/op".into(), &|row| known(row.phase.client_cpu_us_per_op).map(number));
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
