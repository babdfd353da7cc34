//! What a plan says of this machine: file systems, and the work on them.

use std::str::FromStr;

use anyhow::Result;
use serde_json::{Map, Value};
use toml::de::DeValue;
use weft_host::config::{Durability, Engine, LayerKind};
use weft_plan::document::{Choices, text, truth};
use weft_plan::files::Plan;
use weft_plan::units::{bytes, name, up_to};
use weft_plan::workload;
use weft_workload::{Protocol, Workload};

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

/// A file system with the values that make it another one than the others.
pub type Variant = (Map<String, Value>, Setup);
/// The same of the work.
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
    for section in ["node", "network", "disk", "process"] {
        root.table(section)?;
    }
    let clients = root.swept("clients", choices, |value| up_to(value, 256))?.unwrap_or(1);
    let servers = root.swept("servers", choices, |value| up_to(value, 64))?.unwrap_or(1);
    let stripe_bytes = root.swept("stripe", choices, bytes)?.unwrap_or(1 << 20);
    // What else these two hold is for models, too.
    let layer = root.table("server")?.swept("cache_layer", choices, value_of::<LayerKind>)?;
    let weft = root.table("weft")?;
    let meta = weft.swept("metadata_servers", choices, |value| up_to(value, 16))?.unwrap_or(1);
    let engine = weft.swept("engine", choices, value_of::<Engine>)?.unwrap_or(Engine::Journal);
    let durability = match engine {
        Engine::Memory => Durability::None,
        Engine::Journal | Engine::Db | Engine::Dbpf => {
            weft.swept("durability", choices, value_of::<Durability>)?.unwrap_or(Durability::Batch)
        }
    };
    let local = root.table("local")?;
    let direct_io = local.swept("direct_io", choices, truth)?.unwrap_or(false);
    let threads = local.swept("threads", choices, |value| up_to(value, 1024))?.unwrap_or(1);
    let record = local.swept("record", choices, text)?.filter(|events| events != "none");
    let restart = local.value("restart", truth)?.unwrap_or(false);
    // The same for all: see `processors`.
    local.value("processors", |value| up_to(value, 4096))?;
    let warm_up = local.value("warm_up", |value| up_to(value, 1000))?.unwrap_or(0);
    let repetitions = local.value("repetitions", |value| up_to(value, 1000))?.unwrap_or(3);
    local.finish()?;
    let tables = root.tables("workload")?;
    let [table] = &tables[..] else { return Err(root.error("workload", "one workload at a time runs on this machine")) };
    let kind = table.swept("kind", choices, |value| name(value, &workload::KINDS))?.ok_or_else(|| table.error("kind", "is missing"))?;
    let depth = table.swept("window", choices, |value| up_to(value, 4096))?.unwrap_or(1);
    let work = workload::read(table, kind, clients * threads, choices)?;
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
    Ok((setup, work))
}

/// The processors of this machine on which a plan runs, if not on all.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn processors(plan: &Plan) -> Result<Option<u32>> {
    plan.root()?.table("local")?.value("processors", |value| up_to(value, 4096))
}

impl Setup {
    /// The work as it is done here: protocols and hints take turns as file systems do.
    pub fn by(&self, work: &Workload) -> Workload {
        Workload { protocol: self.protocol, no_metafile: self.no_metafile, ..work.clone() }
    }

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
