//! What a plan says of this machine: file systems, and the work on them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};
use toml::de::DeValue;
use weft_analysis::results::Spread;
use weft_host::config::{Durability, Engine, LayerKind};
use weft_plan::document::{Choices, Table, text, truth};
use weft_plan::files::Plan;
use weft_plan::units::{above_zero, bytes, name, number, seconds, up_to};
use weft_plan::workload;

use crate::stats::{SURE_MIN, median_interval};
use weft_workload::{Dirs, Protocol, Steps, WorkStep, Workload};

/// Keys of a plan that say something to models only.
const OF_MODELS: [&str; 11] = [
    "profile",
    "system",
    "behaviour",
    "striping",
    "collective",
    "collective_buffer",
    "exchange",
    "ties",
    "tie_seeds",
    "seed",
    "cluster_model",
];

/// Sections that say something to models and virtual time only; others are no part of a plan here.
const SECTIONS_OF_MODELS: [&str; 5] = ["node", "network", "disk", "process", "dnfsp"];
/// Sections of modelled clusters that have no counterpart on this machine.
const NOT_HERE: [&str; 5] = ["nodes", "switch", "link", "scale", "scale_tasks"];
/// What else `[server]` says to models and virtual time.
const SERVER_OF_MODELS: [&str; 15] = [
    "memory",
    "memory_latency",
    "memory_bandwidth",
    "read_cache",
    "arrivals",
    "arrival_window",
    "rules",
    "answers",
    "granularity",
    "delayed_bytes",
    "delayed_pause",
    "pick_rule",
    "read_deadline",
    "write_deadline",
    "read_reserve",
];
/// What else `[weft]` says to virtual time.
const WEFT_OF_MODELS: [&str; 14] = [
    "change_durability",
    "strips",
    "flush_each",
    "access_spread",
    "request",
    "record",
    "send",
    "call",
    "checksum_bandwidth",
    "copy_bandwidth",
    "page_cache_bandwidth",
    "page_cache_write_bandwidth",
    "reads_cached",
    "shared_cores",
];

/// Says of keys (with their tables before them) which of them change nothing on this machine.
pub fn unread<'k>(keys: impl Iterator<Item = &'k str>) -> Vec<String> {
    let is_of_models = |key: &&str| match key.split_once('.') {
        None => OF_MODELS.contains(key),
        Some(("server", key)) => SERVER_OF_MODELS.contains(&key),
        Some(("weft", key)) => WEFT_OF_MODELS.contains(&key),
        Some((section, _)) => SECTIONS_OF_MODELS.contains(&section),
    };
    keys.filter(is_of_models).map(|key| format!("{key} changes nothing here: it is for models and virtual time")).collect()
}

/// The end of a section of which models read more.
fn finish(table: &Table<'_>, of_models: &[&str]) -> Result<()> {
    of_models.iter().try_for_each(|key| table.all(key, |_| Ok(())).map(drop))?;
    table.finish()
}

/// A file system of an experiment, and what is recorded of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Data servers.
    pub servers: u32,
    /// Bytes of a stripe.
    pub stripe_bytes: u64,
    /// Metadata servers.
    pub meta: u32,
    /// What keeps metadata and data.
    pub engine: Engine,
    /// When an acknowledged change is safe.
    pub durability: Durability,
    /// What decides about the order of accesses to the disks, if the plan says it.
    pub layer: Option<LayerKind>,
    /// Data servers go to their disks past the page cache.
    pub direct_io: bool,
    /// Events that are recorded, if any.
    pub record: Option<String>,
    /// Repetitions that do not count, before the others.
    pub warm_up: u32,
    /// Each repetition has a file system of its own, made just before.
    pub restart: bool,
    /// How files are made, listed and removed.
    pub protocol: Protocol,
    /// In directories with the hint `no_metafile`.
    pub no_metafile: bool,
}

/// A file system of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The values that make it another one than the others.
    pub values: Map<String, Value>,
    /// What a plan says of it.
    pub setup: Setup,
    /// Where it is.
    pub place: Place,
}

/// Where a file system of an experiment is.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// Made for the experiment, as its setup says.
    Temporary,
    /// The same by this program: servers and clients of another build of Weft.
    Build(PathBuf),
    /// Whatever is mounted there, by system calls.
    Directory(PathBuf),
    /// One of Weft that serves already, by the library.
    FileSystem(OsString),
    /// What only the commands of a plan know how to reach.
    Word(OsString),
}

/// Work with the values that make it another one than the others.
pub type Load = (Map<String, Value>, Workload);

/// One of the values that the command line knows too.
fn value_of<T: FromStr<Err = String>>(value: &DeValue<'_>) -> Result<T, String> {
    text(value)?.parse()
}

/// Reads a case of a plan.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn read(plan: &Plan, choices: &mut Choices) -> Result<(Setup, Workload)> {
    let root = plan.root()?;
    root.value("description", text)?;
    for key in OF_MODELS {
        root.all(key, |_| Ok(()))?;
    }
    for section in SECTIONS_OF_MODELS {
        root.table(section)?;
    }
    if let Some(section) = NOT_HERE.into_iter().find(|section| root.has(section)) {
        return Err(root.error(section, "is for `weft sim run`: machines here are as they are"));
    }
    let clients = root.swept("clients", choices, |value| up_to(value, 256))?.unwrap_or(1);
    let servers = root.swept("servers", choices, |value| up_to(value, 64))?.unwrap_or(1);
    let stripe_bytes = root.swept("stripe", choices, above_zero(bytes))?.unwrap_or(1 << 20);
    let server = root.table("server")?;
    let layer = server.swept("cache_layer", choices, value_of::<LayerKind>)?;
    finish(&server, &SERVER_OF_MODELS)?;
    let weft = root.table("weft")?;
    let meta = weft.swept("metadata_servers", choices, |value| up_to(value, 16))?.unwrap_or(1);
    let engine = weft.swept("engine", choices, value_of::<Engine>)?.unwrap_or(Engine::Journal);
    let durability = match engine {
        Engine::Memory => Durability::None,
        Engine::Journal | Engine::Db | Engine::Dbpf => {
            weft.swept("durability", choices, value_of::<Durability>)?.unwrap_or(Durability::Batch)
        }
    };
    if engine == Engine::Memory {
        weft.all("durability", |_| Ok(()))?;
    }
    finish(&weft, &WEFT_OF_MODELS)?;
    let local = root.table("local")?;
    let direct_io = local.swept("direct_io", choices, truth)?.unwrap_or(false);
    let threads = local.swept("threads", choices, |value| up_to(value, workload::THREADS_MAX))?.unwrap_or(1);
    let record = local.swept("record", choices, text)?.filter(|events| events != "none");
    let restart = local.value("restart", truth)?.unwrap_or(false);
    // The same for all: see `processors` and `Pace`.
    local.value("processors", |value| up_to(value, 4096))?;
    let (direct, cold) = (local.value("o_direct", truth)?.unwrap_or(false), local.value("cold", truth)?.unwrap_or(false));
    let full_paths = local.value("full_paths", truth)?.unwrap_or(false);
    let warm_up = local.value("warm_up", |value| up_to(value, 1000))?.unwrap_or(0);
    let repetitions = Pace::read(&local)?.least;
    local.finish()?;
    let tables = root.tables("workload")?;
    let [table] = &tables[..] else { return Err(root.error("workload", "one workload at a time runs on this machine")) };
    let kinds: Vec<(&str, Option<workload::Kind>)> =
        workload::KINDS.iter().map(|(name, kind)| (*name, Some(*kind))).chain([("commands", None)]).collect();
    let kind = table.swept("kind", choices, |value| name(value, &kinds))?.ok_or_else(|| table.error("kind", "is missing"))?;
    let depth = table.swept("window", choices, |value| up_to(value, 4096))?.unwrap_or(1);
    let work = match kind {
        Some(kind) => workload::read(table, kind, clients * threads, choices)?,
        None => {
            let steps = Steps { commands: Some(workload::commands(table, choices)?), ..Steps::default() };
            Workload { procs: clients * threads, steps, ..Workload::empty_files(0) }
        }
    };
    let work = Workload { fsync: table.swept("fsync", choices, truth)?.unwrap_or(false), ..work };
    if work.procs != clients * threads {
        return Err(table.error("ranks", "clients and threads say how many there are: leave this away"));
    }
    table.finish()?;
    root.finish()?;
    let Workload { protocol, no_metafile, .. } = work;
    let setup =
        Setup { servers, stripe_bytes, meta, engine, durability, layer, direct_io, record, warm_up, restart, protocol, no_metafile };
    let work = Workload { procs: clients, clients: threads, depth, repetitions, protocol: Protocol::Weft, no_metafile: false, ..work };
    Ok((setup, Workload { direct, cold, full_paths, ..work }))
}

/// How often a plan is repeated on this machine, and how it rests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Repetitions at least.
    pub least: u32,
    /// Repetitions at most.
    pub most: u32,
    /// Enough once every median is known to so much of itself.
    pub within: Option<f64>,
    /// Before each step.
    pub rest: Rest,
}

/// What lies between two steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rest {
    /// So long.
    pub pause: Duration,
    /// Without what the kernel keeps of files, names and attributes.
    pub drop_caches: bool,
}

/// Forgets what it is told to forget.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

impl Rest {
    /// Whether it can be taken here.
    ///
    /// # Errors
    /// The kernel's caches cannot be dropped.
    pub fn check(&self) -> Result<()> {
        let is_allowed = !self.drop_caches || std::fs::OpenOptions::new().write(true).open(DROP_CACHES).is_ok();
        ensure!(is_allowed, "only root drops the kernel's caches ({DROP_CACHES}): without that, --set local.drop_caches=false");
        Ok(())
    }

    /// Takes it.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn take(&self) -> Result<()> {
        std::thread::sleep(self.pause);
        if self.drop_caches {
            // What is not on the disks stays.
            nix::unistd::sync();
            std::fs::write(DROP_CACHES, "3").with_context(|| format!("cannot write {DROP_CACHES}"))?;
        }
        Ok(())
    }
}

impl Pace {
    /// Of a plan.
    ///
    /// # Errors
    /// Names file, line and key of what is wrong.
    pub fn of(plan: &Plan) -> Result<Pace> {
        Pace::read(&plan.root()?.table("local")?)
    }

    /// Whether so many repetitions will do. `rates` has those of each step of each file system: the
    /// first one's medians must be known well enough, and of the others the medians of what they
    /// are of the first in pairs.
    pub fn is_enough(&self, repetitions: u32, rates: &[Vec<Vec<f64>>]) -> bool {
        let is_known = |within: f64, samples: Vec<f64>| {
            let median = Spread::of(samples.iter().copied()).map(|spread| spread.median);
            let interval = median_interval(samples).zip(median);
            interval.is_some_and(|((low, high), median)| (high - median).max(median - low) <= within * median)
        };
        let all_known = |within: f64| {
            rates.iter().enumerate().all(|(number, steps)| {
                steps.iter().zip(&rates[0]).all(|(own, first)| match number {
                    0 => is_known(within, own.clone()),
                    _ => is_known(within, own.iter().zip(first).map(|(rate, first)| rate / first).collect()),
                })
            })
        };
        repetitions >= self.most || repetitions >= self.least && self.within.is_none_or(all_known)
    }

    fn read(local: &Table<'_>) -> Result<Pace> {
        let least = local.value("repetitions", |value| up_to(value, 1000))?;
        let within = local.value("within", |value| {
            let share = number(value)?;
            if share > 0.0 && share < 1.0 { Ok(share) } else { Err("is a share, such as 0.05".to_string()) }
        })?;
        // Fewer than six say nothing about a median.
        let usual = if within.is_some() { SURE_MIN } else { 3 };
        let least = least.unwrap_or(usual);
        let most = local.value("repetitions_max", |value| up_to(value, 1000))?;
        let most = most.unwrap_or(if within.is_some() { least.max(REPETITIONS_MAX) } else { least });
        if most < least {
            return Err(local.error("repetitions_max", &format!("is less than the {least} repetitions that are made at least")));
        }
        let pause = local.value("pause", seconds)?.unwrap_or(0.0);
        if pause > PAUSE_MAX_S {
            return Err(local.error("pause", &format!("is longer than {PAUSE_MAX_S} s")));
        }
        let drop_caches = local.value("drop_caches", truth)?.unwrap_or(false);
        Ok(Pace { least, most, within, rest: Rest { pause: Duration::from_secs_f64(pause), drop_caches } })
    }
}

/// Repetitions at most where a plan wants medians that are known well and says no other limit.
const REPETITIONS_MAX: u32 = 30;
/// Longest rest before a step in seconds.
const PAUSE_MAX_S: f64 = 3600.0;

/// The processors of this machine on which a plan runs, if not on all.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn processors(plan: &Plan) -> Result<Option<u32>> {
    plan.root()?.table("local")?.value("processors", |value| up_to(value, 4096))
}

impl Place {
    /// The program of its servers and clients, if not this one.
    pub(crate) fn program(&self) -> Option<&Path> {
        match self {
            Place::Build(program) => Some(program),
            Place::Temporary | Place::Directory(_) | Place::FileSystem(_) | Place::Word(_) => None,
        }
    }
}

/// A value of a plan as people read it.
pub fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

impl Variant {
    /// That which was given to its place, or the values that make it another one.
    pub fn name(&self) -> String {
        let words: Vec<String> = self.values.values().map(word).collect();
        if words.is_empty() { "here".into() } else { words.join(" ") }
    }

    /// The work as it is done here: protocols and hints take turns as file systems do.
    ///
    /// # Errors
    /// It cannot be done here.
    pub fn by(&self, work: &Workload) -> Result<Workload> {
        let Setup { protocol, no_metafile, .. } = self.setup;
        let steps = || work.steps.before.iter().chain(work.steps.cycle.iter().map(|(step, _)| step));
        if let Place::Directory(path) = &self.place {
            let path = path.display();
            ensure!(work.depth == 1, "{path}: system calls are made one after the other: give --set workload.window=1");
            ensure!(!steps().any(|step| *step == WorkStep::ReadMany), "{path}: many files in one call are for the library");
            ensure!(work.dirs != Dirs::Split, "{path}: directories that are split from the beginning are for the library");
            ensure!(protocol == Protocol::Weft && !no_metafile, "{path}: workload.protocol and no_metafile are for the library");
        }
        match (&work.steps.commands, &self.place) {
            (Some(_), Place::Directory(_) | Place::Word(_)) => ensure!(work.clients_in_all() == 1, "commands are run by one client"),
            (Some(_), _) => bail!("commands are for places of `weft lab run`: --path NAME=DIR, or --word NAME=WORD"),
            (None, Place::Word(word)) => bail!("{}: only the commands of a plan can reach it", word.display()),
            _ => {}
        }
        if matches!(self.place, Place::Directory(_) | Place::FileSystem(_) | Place::Word(_)) {
            ensure!(
                !self.setup.restart,
                "local.restart is for temporary file systems: give --set local.restart=false, and --before-each COMMAND if it is needed"
            );
            ensure!(self.setup.record.is_none(), "local.record is for temporary file systems: use `weft trace`");
        }
        Ok(Workload { protocol, no_metafile, ..work.clone() })
    }
}

impl Setup {
    /// Arguments of `weft up`.
    pub fn up(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        option("meta", self.meta.to_string());
        option("data", self.servers.to_string());
        option("engine", self.engine.to_string());
        option("durability", self.durability.to_string());
        option("stripe-size", self.stripe_bytes.to_string());
        if let Some(layer) = self.layer {
            option("cache-layer", layer.to_string());
        }
        words.extend(self.direct_io.then(|| "--direct-io".to_string()));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_go_on_until_medians_are_known() {
        let pace = |within| Pace { least: 6, most: 8, within, rest: Rest { pause: Duration::ZERO, drop_caches: false } };
        let steady: Vec<f64> = vec![100.0, 101.0, 99.0, 100.0, 102.0, 98.0];
        let unsteady: Vec<f64> = vec![100.0, 150.0, 60.0, 100.0, 102.0, 98.0];
        // The second file system is always twice as fast, however unsteady the machine is.
        let double = |rates: &[f64]| rates.iter().map(|rate| 2.0 * rate).collect::<Vec<f64>>();
        let enough = |within, count, rates: &[Vec<Vec<f64>>]| pace(within).is_enough(count, rates);
        assert!(!enough(None, 5, &[]) && enough(None, 6, &[]));
        assert!(enough(Some(0.05), 6, &[vec![steady.clone()], vec![double(&steady)]]));
        assert!(!enough(Some(0.05), 6, &[vec![unsteady.clone()]]) && enough(Some(0.05), 8, &[vec![unsteady.clone()]]));
        assert!(!enough(Some(0.05), 6, &[vec![steady.clone()], vec![unsteady.clone()]]), "the ratios are not known");
    }
}
