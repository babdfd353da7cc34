//! `weft sim run`: simulates every case of a plan.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Value, json};
use weft_charts::csv_line;
use weft_host::in_order::once_each;
use weft_host::output::{Table, print, print_json, tell};
use weft_model::TieOrder;
use weft_piosim::report::ServerReport;
use weft_piosim::{ClusterConfig, Placed, Recording, Report, Simulation};

use crate::cluster::Ties;
use weft_plan::files::{CaseSource, Lab};

use crate::case;
use crate::case::Case;
use crate::workload::Load;
use crate::{dnfsp_system, picture, pool, scale_system, tasks, trace as files};

/// Simulate a plan
///
/// A plan is a TOML file, or the name of one among `weft sim list`. Each of its keys may stand for
/// several values, as a list or as a range such as { from = 1, to = 64, times = 2 }; all
/// combinations are simulated, on all cores.
///
/// A single result can owe much to the order in which simulated events of the same instant happen
/// to come. With ties = "random" in the plan each case is simulated with tie_seeds = 10 orders
/// drawn from seeds: its row is the run with the median time, seconds_min and seconds_max are the
/// spread.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weft sim run interleaved\n  weft sim run lab/plans/scale.toml --json\n  \
weft sim run my.toml --csv --seed 7 > results.csv\n  weft sim run my.toml --trace traces\n  weft sim run interleaved --plot layers.svg")]
pub struct Args {
    /// Name or file of the plan
    plan: String,
    /// Another value of a key of the plan, with the table before it; commas make a list
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print JSON: an array with one object for each case
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV: a line for each case
    #[arg(long)]
    csv: bool,
    /// Draw the results into this file (.svg), as `weft plot sweep` does: a line or bar for each
    /// cache layer (or other key of words); below them rates over time where a system tells them
    /// (scale)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Seed of random workloads, instead of those in the plan; with ties = "random" also the first
    /// seed of the orders
    #[arg(long)]
    seed: Option<u64>,
    /// Write what every rank, disk and network card did when (virtual time) into this folder: for
    /// each case a folder with trace files (weft view DIR/case0), instead of those of an earlier
    /// run. Of Weft's own servers and clients (`system = "weft"`) those that real ones write
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
}

impl Args {
    pub fn run(self, lab: &Lab, threads: usize) -> Result<()> {
        self.plot.as_deref().map(picture::check).transpose()?;
        let systems = RefCell::new(Vec::new());
        let cases = lab.plan(&self.plan, &self.set, self.seed)?.cases(|plan, choices| {
            let case = case::read(plan, choices)?;
            let (mut systems, system) = (systems.borrow_mut(), case.system());
            if !systems.contains(&system) {
                systems.push(system);
            }
            Ok(case)
        })?;
        let told = self.set.iter().filter_map(|words| Some(words.split_once('=')?.0));
        let listed = cases.iter().flat_map(|case| &case.parameters).map(|(key, _)| key.as_str());
        case::unread(told.chain(listed), &systems.into_inner()).iter().for_each(|sentence| tell(sentence));
        if let Some(folder) = &self.trace {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            (0..cases.len()).try_for_each(|number| forget_traces(&case_folder(folder, number)))?;
        }
        let numbered: Vec<(usize, &CaseSource)> = cases.iter().enumerate().collect();
        let rows = pool::all(&numbered, threads, |(number, case)| rows_of(case, *number, self.trace.as_deref()))?.concat();
        let parameters: Vec<String> = columns(&rows).into_iter().filter(|name| !RESULTS[1..].contains(&name.as_str())).collect();
        // What was simulated is told whatever becomes of its picture.
        let drawn = self.plot.as_ref().map_or(Ok(()), |path| picture::write(path, &self.plan, &rows, &parameters));
        if self.json {
            print_json(&rows)?;
        } else if self.csv {
            print(&delimited(&rows))?;
        } else {
            print(&(aligned(&rows) + &tasks::side_by_side(&rows, |row| picture::name(row, &parameters))))?;
        }
        drawn?;
        Ok(())
    }
}

/// A phase of a case of Weft's own servers and clients.
#[derive(Clone, Debug)]
pub struct VirtualPhase {
    /// The keys of the plan that stand for several values, and the values here.
    pub parameters: Map<String, Value>,
    /// What `weft sim run --json` says of it beside them.
    pub results: Map<String, Value>,
}

/// Runs a plan of Weft's own servers and clients: its phases, case by case.
///
/// # Errors
/// A plan that makes no sense, or is one of other systems.
pub fn virtual_phases(lab: &Lab, plan: &str, set: &[String]) -> Result<Vec<VirtualPhase>> {
    let only_weft = |source: &CaseSource, case: &Case| match case {
        Case::Weft(_) => Ok(()),
        _ => bail!("{}: its system is not weft", source.describe()),
    };
    phases(lab, plan, set, only_weft)
}

/// Where the trace files of a case go.
fn case_folder(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("case{number}"))
}

/// All files of one folder are one run: those of an earlier one with more nodes must not stay.
fn forget_traces(folder: &Path) -> Result<()> {
    // Not there yet, or whatever is wrong with it is said when it is written to.
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    let mut traces = entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "wtrace"));
    traces.try_for_each(|path| std::fs::remove_file(&path).with_context(|| format!("cannot replace {}", path.display())))
}

/// Runs a plan of any system: its results, case by case.
///
/// # Errors
/// A plan that makes no sense, or a program that waits for ever.
pub fn simulated(lab: &Lab, plan: &str, set: &[String]) -> Result<Vec<VirtualPhase>> {
    phases(lab, plan, set, |_, _| Ok(()))
}

fn phases(lab: &Lab, plan: &str, set: &[String], check: impl Fn(&CaseSource, &Case) -> Result<()>) -> Result<Vec<VirtualPhase>> {
    let mut phases = Vec::new();
    for source in lab.plan(plan, set, None)?.cases(case::read)? {
        let case = source.build(case::read)?;
        check(&source, &case)?;
        let results = simulate(&source, case, 0, None)?;
        phases.extend(results.into_iter().map(|results| VirtualPhase { parameters: parameters_of(&source), results }));
    }
    Ok(phases)
}

/// The values of a case, as a row has them.
fn parameters_of(source: &CaseSource) -> Map<String, Value> {
    source.parameters.iter().map(|(key, text)| (key.clone(), parameter(text))).collect()
}

/// The results of a case: one, or one for each phase.
fn simulate(source: &CaseSource, case: Case, number: usize, trace: Option<&Path>) -> Result<Vec<Map<String, Value>>> {
    let began = Instant::now();
    let rows = match case {
        Case::Model { config, workloads, ties } => model(source, number, trace, (*config, &workloads, ties)).map(|row| vec![row])?,
        Case::Dnfsp(config) => dnfsp_system::row(&config).map(|row| vec![row]).with_context(|| source.describe())?,
        Case::Scale(config) => scale_system::row(&config).map(|row| vec![row]).with_context(|| source.describe())?,
        Case::Weft(case) => {
            let folder = trace.map(|folder| case_folder(folder, number));
            case.run(folder.as_deref()).with_context(|| source.describe())?
        }
    };
    let wall_s = began.elapsed().as_secs_f64();
    let results = rows.into_iter().filter_map(|row| match row {
        Value::Object(row) => Some(row.into_iter().chain([("wall_s".to_string(), wall_s.into())]).collect()),
        _ => None,
    });
    Ok(results.collect())
}

/// The same behind the keys that stand for several values, with those of this case.
fn rows_of(source: &CaseSource, number: usize, trace: Option<&Path>) -> Result<Vec<Value>> {
    let results = simulate(source, source.build(case::read)?, number, trace)?;
    Ok(results.into_iter().map(|results| Value::Object(parameters_of(source).into_iter().chain(results).collect())).collect())
}

/// A case of modelled servers, once or with several orders of ties. The first run is the one that
/// is traced.
fn model(
    source: &CaseSource,
    number: usize,
    trace: Option<&Path>,
    (config, workloads, ties): (ClusterConfig, &[Load], Ties),
) -> Result<Value> {
    let orders = match ties {
        Ties::AsConfigured => vec![config.tie_order],
        Ties::Random { first, seeds } => (0..u64::from(seeds)).map(|seed| TieOrder::Random(first.wrapping_add(seed))).collect(),
    };
    let mut reports = Vec::with_capacity(orders.len());
    for (run, tie_order) in orders.into_iter().enumerate() {
        let config = ClusterConfig { tie_order, ..config.clone() };
        let placed = workloads.iter().map(|load| Placed { application: &load.application, nodes: load.nodes.clone() }).collect();
        let simulation = Simulation::with_applications(&config, placed).map_err(anyhow::Error::msg).with_context(|| source.describe())?;
        let trace = trace.filter(|_| run == 0);
        let result = match trace {
            Some(_) => simulation.run_recorded(),
            None => simulation.run().map(|report| (report, Recording::default())),
        };
        let (report, recording) = result.map_err(|problem| anyhow!("{}{problem}", place(source, &config, workloads)))?;
        reports.push(report);
        if let Some(folder) = trace {
            files::write(&case_folder(folder, number), workloads, config.servers, &recording)?;
        }
    }
    reports.sort_by_key(|report| report.end_nanos);
    let mut row = row(&reports[reports.len() / 2]);
    if ties != Ties::AsConfigured {
        let seconds = |report: &Report| report.end_nanos as f64 / 1e9;
        row["seconds_min"] = seconds(&reports[0]).into();
        row["seconds_max"] = seconds(&reports[reports.len() - 1]).into();
        row["tie_seeds"] = reports.len().into();
    }
    Ok(row)
}

/// Where the program that waits for ever stands, and in which case. What failed is run once more:
/// a simulation that ends well has no use for its places.
fn place(source: &CaseSource, config: &ClusterConfig, workloads: &[Load]) -> String {
    let placed = workloads.iter().map(|load| Placed { application: &load.application, nodes: load.nodes.clone() }).collect();
    let stuck = Simulation::with_applications(config, placed).ok().and_then(|mut simulation| {
        while simulation.step() {}
        simulation.stuck()
    });
    let Some((application, rank, command)) = stuck else { return format!("{}: ", source.describe()) };
    let values: Vec<String> = source.parameters.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    let case = if values.is_empty() { String::new() } else { format!("with {}: ", values.join(", ")) };
    format!("{}: {case}", workloads[application].places.of(rank, command))
}

/// The value of a swept key: a number if it looks like one.
fn parameter(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from)
}

/// What a run gave: times in seconds, rates in MiB a second.
fn row(report: &Report) -> Value {
    // Whatever the programs asked for beyond the end of a file does not count.
    let bytes = report.program_bytes;
    let seconds = report.end_nanos as f64 / 1e9;
    let disks = report.disks();
    // A share of the time until the last event.
    let share = |busy: f64| (busy / report.end_nanos.max(1) as f64 * 1e4).round() / 1e4;
    let server = |(server, of): (usize, &ServerReport)| {
        let disk = &of.disk;
        json!({
            "server": server,
            "disk_operations": disk.operations,
            "disk_bytes": disk.bytes,
            "no_seek": disk.no_seek,
            "fast": disk.fast,
            "slow": disk.slow,
            "disk_busy": share(disk.busy_nanos as f64),
            "memory_max": of.memory_max,
            "cached_bytes": of.cached_bytes,
        })
    };
    json!({
        "seconds": seconds,
        "ranks_seconds": report.ranks_end_nanos() as f64 / 1e9,
        "bytes": bytes,
        "mib_per_second": if report.end_nanos == 0 { 0.0 } else { bytes as f64 / seconds / (1 << 20) as f64 },
        "messages": report.messages,
        "network_bytes": report.network_bytes,
        "disk_operations": disks.operations,
        "disk_bytes": disks.bytes,
        "no_seek": disks.no_seek,
        "fast": disks.fast,
        "slow": disks.slow,
        "disk_busy": share(disks.busy_nanos as f64 / report.servers.len().max(1) as f64),
        // The most that requests took at a time at one server.
        "memory_max": report.servers.iter().map(|of| of.memory_max).max().unwrap_or(0),
        "cached_bytes": report.servers.iter().map(|of| of.cached_bytes).sum::<u64>(),
        "events": report.events,
        "per_server": report.servers.iter().enumerate().map(server).collect::<Vec<_>>(),
    })
}

/// The names of all columns; cases of one plan may have different keys.
fn columns(rows: &[Value]) -> Vec<String> {
    // A table has no room for a list.
    let fields = rows.iter().filter_map(Value::as_object).flatten().filter(|(_, value)| !value.is_array());
    // The keys of the plan first: they have dots, or are no numbers of a result.
    let is_result = |name: &String| RESULTS.contains(&name.as_str());
    let (results, parameters): (Vec<String>, Vec<String>) = once_each(fields.map(|(key, _)| key.clone())).into_iter().partition(is_result);
    let ordered = RESULTS.iter().filter(|name| results.iter().any(|found| found == *name));
    parameters.into_iter().chain(ordered.map(|name| name.to_string())).collect()
}

/// Names of results, in the order of columns.
pub(crate) const RESULTS: [&str; 43] = [
    "phase",
    "seconds",
    "seconds_min",
    "seconds_max",
    "tie_seeds",
    "ranks_seconds",
    "operations",
    "operations_per_second",
    "bytes",
    "mib_per_second",
    "messages",
    "client_cpu_us_per_op",
    "server_cpu_us_per_op",
    "network_bytes",
    "disk_operations",
    "disk_bytes",
    "no_seek",
    "fast",
    "slow",
    "disk_busy",
    "memory_max",
    "cached_bytes",
    "fine_after_files",
    "fine_after_s",
    "lookup_percent",
    "create_percent",
    "open_percent",
    "splits",
    "split_dip",
    "leaves",
    "metanode_changes",
    "expansions",
    "accesses",
    "outliers",
    "functions",
    "lookup_tasks",
    "create_tasks",
    "latencies",
    "rates",
    "waits_for",
    "busy",
    "events",
    "wall_s",
];

fn cell(row: &Value, column: &str) -> String {
    match &row[column] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A line of CSV for each row, below the names of the columns.
fn delimited(rows: &[Value]) -> String {
    let columns = columns(rows);
    let body = rows.iter().map(|row| csv_line(&columns.iter().map(|column| cell(row, column)).collect::<Vec<_>>()));
    std::iter::once(csv_line(&columns)).chain(body).collect()
}

/// The columns that people look at first.
fn aligned(rows: &[Value]) -> String {
    let hidden = [
        "ranks_seconds",
        "operations",
        "bytes",
        "network_bytes",
        "disk_bytes",
        "disk_syncs",
        "shares",
        "cached_bytes",
        "memory_max",
        "wall_s",
    ];
    // Lists and tables in a cell are for programs.
    let is_shown =
        |name: &String| !hidden.contains(&name.as_str()) && rows.iter().all(|row| !row[name].is_array() && !row[name].is_object());
    let columns: Vec<String> = columns(rows).into_iter().filter(is_shown).collect();
    let shown = |row: &Value, column: &String| match (&row[column.as_str()], column.as_str()) {
        (Value::Number(number), "seconds" | "seconds_min" | "seconds_max") => format!("{:.9}", number.as_f64().unwrap_or_default()),
        (Value::Number(number), "operations_per_second") => format!("{:.0}", number.as_f64().unwrap_or_default()),
        (Value::Number(number), "mib_per_second") => format!("{:.2}", number.as_f64().unwrap_or_default()),
        _ => cell(row, column),
    };
    let headings: Vec<String> = columns.iter().map(|column| format!(">{column}")).collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    rows.iter().for_each(|row| table.row(columns.iter().map(|column| shown(row, column)).collect()));
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disks_of_all_servers_sum_up_to_the_row_and_stay_out_of_tables() {
        let plan = "description = \"d\"\nprofile = \"pvs-2009\"\nclients = 2\nservers = 3\n[server]\nrules = \"2009\"\n\
                    cache_layer = [\"none\", \"aggregation\"]\n[[workload]]\nkind = \"interleaved\"\nfile = \"4MiB\"\nblock = \"64KiB\"\n\
                    per_operation = 1\naccess = \"write\"\n";
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("small.toml");
        std::fs::write(&path, plan).expect("written");
        let lab = Lab { folder: folder.path().to_path_buf() };
        let cases = lab.plan(&path.display().to_string(), &[], None).expect("read").cases(case::read).expect("sound");
        let rows: Vec<Value> = cases.iter().enumerate().flat_map(|(number, case)| rows_of(case, number, None).expect("ends")).collect();
        for row in &rows {
            let servers = row["per_server"].as_array().expect("a list");
            for name in ["disk_operations", "disk_bytes", "no_seek", "fast", "slow"] {
                assert_eq!(
                    servers.iter().filter_map(|server| server[name].as_u64()).sum::<u64>(),
                    row[name].as_u64().expect("a number"),
                    "{name}"
                );
            }
            assert_eq!(servers.len(), 3);
        }
        assert!(!delimited(&rows).contains("per_server") && !aligned(&rows).contains("per_server"));
    }

    #[test]
    fn csv_has_parameters_first_and_quotes_what_needs_it() {
        let rows = [serde_json::json!({"z": "a,b", "seconds": 1.5, "events": 3}), serde_json::json!({"y": 1, "seconds": 2.0, "events": 4})];
        assert_eq!(delimited(&rows), "z,y,seconds,events\r\n\"a,b\",,1.5,3\r\n,1,2.0,4\r\n");
    }
}
