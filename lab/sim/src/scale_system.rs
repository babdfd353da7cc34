//! Spectrum Scale of 2016 as the simulated system (`system = "scale"`): the sections `[scale]` and
//! `[scale_tasks]` of a plan or its profile become the parameters of `lab/yardsticks`, the network
//! is the plan's.

use anyhow::Result;
use serde_json::{Value, json};
use toml::de::DeValue;
use weft_model::TieOrder;
use weft_piosim::ClusterConfig;
use weft_plan::document::{Choices, Table, integer, truth};
use weft_plan::units::{bytes, count, name, up_to};
use weft_plan::workload;
use weft_workload::{Dirs, WorkStep};
use weft_yardsticks::scale::{
    BINS, CREATE_TASKS, Creates, DirectoryRules, InodeRules, LOOKUP_TASKS, Messages, Names, Report, ScaleConfig, Storage, TaskTimes,
    TokenRules, bin_nanos, run,
};

use crate::cluster::{Layered, nanos};

/// Splits in one interval from which on a dip can be seen.
const MANY_SPLITS: u64 = 20;
const NAMES: [(&str, Names); 2] = [("growing", Names::Growing), ("fixed", Names::Fixed)];

/// Reads what a plan says of Spectrum Scale and the one `[[workload]]`. `config` has the machines.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn read<'a>(
    root: &Table<'a>,
    profile: Option<&Table<'a>>,
    workloads: &[Table<'_>],
    config: &ClusterConfig,
    choices: &mut Choices,
) -> Result<ScaleConfig> {
    if config.clients > Creates::CLIENTS_MAX {
        return Err(root.error("clients", &format!("the model of Spectrum Scale has 1 to {} clients", Creates::CLIENTS_MAX)));
    }
    let mut section = Layered::open(root, profile, "scale", choices)?;
    let names = section.required("names", |value| name(value, &NAMES))?;
    let interval = section.required("interval", nanos)?;
    let messages = Messages {
        // A path has two links, as for Weft's own servers on these machines.
        latency: 2 * (config.node.card.link_latency * 1e9).round() as u64,
        bandwidth: config.node.card.link_bandwidth,
        wakeup: section.required("wakeup", nanos)?,
        answer: section.required("answer", nanos)?,
        threads: section.required("threads", count)?,
    };
    let directory = DirectoryRules {
        block_bytes: section.required("block", bytes)?,
        directory_block_bytes: section.required("directory_block", bytes)?,
        fragments: section.required("fragments", truth)?,
        entry_overhead: section.required("entry_overhead", bytes)?,
        split: section.required("split", nanos)?,
        scan: section.required("scan", nanos)?,
        entry_merge: section.required("entry_merge", nanos)?,
        metanodes: section.required("metanodes", count)?,
        metanode_grace: section.required("metanode_grace", nanos)?,
    };
    let tokens = TokenRules {
        leave_threshold: section.required("leave_threshold", integer)?,
        enter_conflicts: section.required("enter_conflicts", integer)?,
        create_intents: section.required("create_intents", truth)?,
    };
    let inodes = InodeRules {
        preallocated: section.required("preallocated", integer)?,
        limit: section.required("inode_limit", integer)?,
        expansion: u64::from(section.required("expansion", count)?),
        expand_at: f64::from(section.required("expand_at_percent", |value| up_to(value, 100))?) / 100.0,
        format: section.required("format", nanos)?,
        segments: section.required("segments", count)?,
    };
    let storage = Storage {
        inode_write: section.required("inode_write", nanos)?,
        block_write: section.required("block_write", nanos)?,
        block_read: section.required("block_read", nanos)?,
        log_write: section.required("log_write", nanos)?,
        writes_at_once: section.required("writes_at_once", count)?,
        log_bytes: section.required("log", bytes)?,
        log_buffer_bytes: section.required("log_buffer", bytes)?,
        record_bytes: section.required("log_record", bytes)?,
        sync_interval: section.required("sync_interval", nanos)?,
    };
    section.finish()?;
    let tasks = tasks(Layered::open(root, profile, "scale_tasks", choices)?)?;
    let creates = creates(root, workloads, config, (names, interval), choices)?;
    let config = ScaleConfig { creates, messages, tasks, storage, directory, tokens, inodes };
    if let Some((key, problem)) = config.problem() {
        return Err(root.table("scale")?.error(key, &problem));
    }
    Ok(config)
}

fn tasks(mut section: Layered<'_, '_>) -> Result<TaskTimes> {
    let mut time = |key: &str| section.required(key, nanos);
    let lookup = [
        time("lookup_fast")?,
        time("lookup_lock_directory")?,
        time("lookup_permissions")?,
        time("lookup_token")?,
        time("lookup_lock_block")?,
        time("lookup_search")?,
        time("lookup_release")?,
    ];
    let create = [
        time("create_inode")?,
        time("create_lock")?,
        time("create_directory_inode")?,
        time("create_token")?,
        time("create_search")?,
        time("create_verify")?,
        time("create_metadata")?,
        time("create_reserve")?,
        0,
        time("create_finish")?,
        time("create_insert")?,
        time("create_release")?,
    ];
    let (lookup_rest, create_rest) = (time("lookup_rest")?, time("create_rest")?);
    let (open, between) = (time("open")?, time("between")?);
    section.finish()?;
    Ok(TaskTimes { lookup, lookup_rest, create, create_rest, open, between })
}

fn creates(
    root: &Table<'_>,
    workloads: &[Table<'_>],
    config: &ClusterConfig,
    (names, interval): (Names, u64),
    choices: &mut Choices,
) -> Result<Creates> {
    let [table] = workloads else {
        return Err(root.error("workload", "the model of Spectrum Scale runs one workload at a time"));
    };
    let kind = |value: &DeValue<'_>| name(value, &[("names", workload::Kind::Names)]);
    let kind = table.swept("kind", choices, kind)?.ok_or_else(|| table.error("kind", "is missing"))?;
    let processes = table.swept("window", choices, |value| up_to(value, 1000))?.unwrap_or(16);
    let work = workload::read(table, kind, config.clients, choices)?;
    if work.steps.cycle.iter().any(|(step, is_told)| *is_told && *step != WorkStep::Create) {
        return Err(table.error("measure", "the model of Spectrum Scale only creates: write measure = [\"create\"]"));
    }
    if work.dirs == Dirs::Split {
        return Err(table.error("directories", "the model of Spectrum Scale has no such directory: write shared or own"));
    }
    table.finish()?;
    let own_directories = work.dirs == Dirs::Own;
    Ok(Creates { clients: config.clients, processes, files: work.files, own_directories, names, interval })
}

fn seconds(nanos: u64) -> f64 {
    (nanos as f64 / 1e6).round() / 1e3
}

/// The mean rate of intervals in which many directory blocks were split by that of those in which
/// none was; the first and the last interval do not count.
fn split_dip(report: &Report) -> Option<f64> {
    let whole = 1..report.rates.len().saturating_sub(1);
    let splits = |point: &usize| report.splits.get(*point).copied().unwrap_or(0);
    let mean = |is_meant: &dyn Fn(u64) -> bool| {
        let files: Vec<u64> = whole.clone().filter(|point| is_meant(splits(point))).map(|point| report.rates[point].iter().sum()).collect();
        (!files.is_empty()).then(|| files.iter().sum::<u64>() as f64 / files.len() as f64)
    };
    Some(mean(&|splits| splits > MANY_SPLITS)? / mean(&|splits| splits == 0)?)
}

/// Names of tasks with their seconds, in their order.
fn by_task(names: &[&str], nanos: &[u64]) -> Vec<Value> {
    names.iter().zip(nanos).map(|(name, nanos)| json!({"task": name, "seconds": seconds(*nanos)})).collect()
}

/// The row of results of a case.
///
/// # Errors
/// The model was given what it cannot run.
pub fn row(config: &ScaleConfig) -> Result<Value> {
    let report = &run(config, TieOrder::Natural).map_err(anyhow::Error::msg)?;
    let all: u64 = report.functions.iter().sum();
    let percent = |nanos: u64| (nanos as f64 * 1000.0 / all.max(1) as f64).round() / 10.0;
    let [lookup, create, open] = report.functions;
    let bins = (0..BINS).map(|bin| {
        let (files, nanos): (Vec<u64>, Vec<u64>) = report.bins.iter().map(|bins| bins[bin]).unzip();
        json!({"us": bin_nanos(bin) / 1000, "files": files.iter().sum::<u64>(), "seconds": seconds(nanos.iter().sum()),
            "files_by_client": files, "seconds_by_client": nanos.into_iter().map(seconds).collect::<Vec<_>>()})
    });
    let interval = config.creates.interval as f64 / 1e9;
    let rates = report.rates.iter().enumerate().map(|(point, clients)| {
        let rates: Vec<f64> = clients.iter().map(|files| *files as f64 / interval).collect();
        let splits = report.splits.get(point).copied().unwrap_or(0);
        json!({"until_s": (point + 1) as f64 * interval, "creates_per_second": rates, "splits": splits})
    });
    let (counts, before, outliers) = (&report.counts, &report.before_fine, report.outliers());
    Ok(json!({
        "phase": "create",
        "seconds": report.nanos as f64 / 1e9,
        "operations": report.creates,
        "operations_per_second": report.creates_per_second(),
        "fine_after_files": report.fine_from.map(|(_, files)| files),
        "fine_after_s": report.fine_from.map(|(nanos, _)| seconds(nanos)),
        "lookup_percent": percent(lookup),
        "create_percent": percent(create),
        "open_percent": percent(open),
        "splits": counts.splits,
        "split_dip": split_dip(report),
        "leaves": counts.leaves,
        "metanode_changes": counts.metanode_changes,
        "expansions": counts.expansions,
        "messages": counts.messages,
        "disk_operations": counts.inode_writes + counts.block_writes + counts.block_reads + counts.log_writes,
        "outliers": { "files_percent": outliers.0 * 100.0, "time_percent": outliers.1 * 100.0 },
        "accesses": {
            "inode_writes": counts.inode_writes,
            "block_writes": counts.block_writes,
            "log_writes": counts.log_writes,
            "block_reads": counts.block_reads,
            "log_writes_since_fgdl": counts.log_writes - before.log_writes,
            "block_reads_since_fgdl": counts.block_reads - before.block_reads,
            "revocations": counts.revocations,
            "log_waits": counts.log_waits,
            "entry_bytes": counts.entry_bytes,
        },
        "functions": by_task(&["lookup", "create", "open"], &report.functions),
        "lookup_tasks": by_task(&LOOKUP_TASKS, &report.lookup_tasks),
        "create_tasks": by_task(&CREATE_TASKS, &report.create_tasks),
        "latencies": bins.collect::<Vec<_>>(),
        "rates": rates.collect::<Vec<_>>(),
        "events": report.events,
    }))
}
