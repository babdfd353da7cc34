//! The cluster of a plan: hardware from a machine profile (or from a cluster model of PIOsimHD), with whatever the plan says otherwise.

use anyhow::{Context, Result};
use toml::de::DeValue;
use weft_cluster_model::{CacheLayerConfig, ClusterConfig, Collective, Exchange, Striping};
use weft_model::{CpuModel, DiskModel, TieOrder};
use weft_sched::LayerKind;
use weft_sched::classic::{ClassicConfig, DelayedWrites, PickRule};

use super::document::{Choices, Table, integer};
use super::units::{bytes, count, name, number, seconds};

/// Rotations a minute, bytes and the like of a disk, before it is known which keys its model has.
type Read<T> = fn(&DeValue<'_>) -> Result<T, String>;

const LAYERS: [(&str, LayerKind); 4] = [
    ("none", LayerKind::None),
    ("write_behind", LayerKind::WriteBehind),
    ("aggregation", LayerKind::Aggregation),
    ("server_directed", LayerKind::ServerDirected),
];
const STRIPING: [(&str, Striping); 2] = [("simple", Striping::Simple), ("slipped", Striping::Slipped)];
const RULES: [(&str, PickRule); 2] = [("lowest", PickRule::Lowest), ("continue", PickRule::Continue)];
/// Whether the accidents of the program of 2009 are repeated: order of simultaneous events, of servers and ranks, and the like.
const BEHAVIOURS: [(&str, TieOrder); 2] = [("natural", TieOrder::Natural), ("2009", TieOrder::Thesis)];
const EXCHANGES: [(&str, Exchange); 2] = [("bytes", Exchange::Bytes), ("extents", Exchange::Extents)];
const DISKS: [(&str, DiskKind); 4] =
    [("refined", DiskKind::Refined), ("simple", DiskKind::Simple), ("ssd", DiskKind::Ssd), ("ram", DiskKind::Ram)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum DiskKind {
    Refined,
    Simple,
    Ssd,
    Ram,
}

/// A section of a plan over the same section of a profile.
struct Layered<'p, 'a> {
    plan: Table<'a>,
    profile: Option<Table<'a>>,
    choices: &'p mut Choices,
}

impl<'p, 'a> Layered<'p, 'a> {
    fn open(plan: &Table<'a>, profile: Option<&Table<'a>>, section: &str, choices: &'p mut Choices) -> Result<Layered<'p, 'a>> {
        let profile = profile.map(|profile| profile.table(section)).transpose()?;
        Ok(Layered { plan: plan.table(section)?, profile, choices })
    }

    /// The plan's value, else the profile's, else `None`. Profiles may not sweep.
    fn get<T>(&mut self, key: &str, read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Result<Option<T>> {
        if let Some(value) = self.plan.swept(key, self.choices, &read)? {
            if let Some(profile) = &self.profile {
                profile.value(key, &read)?;
            }
            return Ok(Some(value));
        }
        match &self.profile {
            Some(profile) => profile.value(key, &read),
            None => Ok(None),
        }
    }

    /// Puts a value where it belongs, if there is one.
    fn set<T>(&mut self, key: &str, place: &mut T, read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Result<()> {
        if let Some(value) = self.get(key, read)? {
            *place = value;
        }
        Ok(())
    }

    /// A value that must be in one of them.
    fn required<T>(&mut self, key: &str, read: Read<T>) -> Result<T> {
        match self.get(key, read)? {
            Some(value) => Ok(value),
            None => Err(self.plan.error(key, "is missing, in the plan and in its profile")),
        }
    }

    fn finish(self) -> Result<()> {
        self.profile.iter().try_for_each(Table::finish)?;
        self.plan.finish()
    }
}

/// Reads the cluster from a plan's outermost table and a profile's, over `model` if the plan names a cluster model.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn read<'a>(
    plan: &Table<'a>,
    profile: Option<&Table<'a>>,
    model: Option<ClusterConfig>,
    choices: &mut Choices,
) -> Result<ClusterConfig> {
    let has_model = model.is_some();
    let clients = plan.swept("clients", choices, count)?;
    let servers = plan.swept("servers", choices, count)?;
    let mut config = model.unwrap_or_else(|| {
        let (clients, servers) = (clients.unwrap_or(10), servers.unwrap_or(10));
        ClusterConfig::thesis(clients, servers, LayerKind::None)
    });
    if has_model && (clients.is_some() || servers.is_some()) {
        let key = if clients.is_some() { "clients" } else { "servers" };
        return Err(plan.error(key, "comes from the cluster model that the plan names"));
    }
    let behaviour = plan.swept("behaviour", choices, |value| name(value, &BEHAVIOURS))?.unwrap_or_default();
    if behaviour == TieOrder::Natural {
        config = config.natural();
    }
    if let Some(stripe) = plan.swept("stripe", choices, bytes)? {
        config.stripe_bytes = stripe;
    }
    if let Some(striping) = plan.swept("striping", choices, |value| name(value, &STRIPING))? {
        config.striping = striping;
    }
    if let Some(collective) = plan.swept("collective", choices, |value| name(value, &Collective::ALL))? {
        config.collective = collective;
    }
    if let Some(buffer) = plan.swept("collective_buffer", choices, bytes)? {
        config.collective_buffer_bytes = buffer;
    }
    if let Some(exchange) = plan.swept("exchange", choices, |value| name(value, &EXCHANGES))? {
        config.exchange = exchange;
    }
    node(Layered::open(plan, profile, "node", choices)?, &mut config)?;
    network(Layered::open(plan, profile, "network", choices)?, &mut config)?;
    disk(Layered::open(plan, profile, "disk", choices)?, &mut config, has_model)?;
    server(Layered::open(plan, profile, "server", choices)?, &mut config)?;
    config.check().map_err(anyhow::Error::msg).context("this cluster cannot be simulated")?;
    Ok(config)
}

fn node(mut section: Layered<'_, '_>, config: &mut ClusterConfig) -> Result<()> {
    let CpuModel { cpus, instructions_per_second } = &mut config.cpu;
    section.set("cpus", cpus, count)?;
    section.set("instructions_per_second", instructions_per_second, integer)?;
    section.set("internal_bandwidth", &mut config.internal_bandwidth, bytes)?;
    section.finish()
}

fn network(mut section: Layered<'_, '_>, config: &mut ClusterConfig) -> Result<()> {
    section.set("link_bandwidth", &mut config.link_bandwidth, bytes)?;
    section.set("link_latency", &mut config.link_latency, seconds)?;
    section.set("switch_bandwidth", &mut config.switch_bandwidth, bytes)?;
    section.set("packet", &mut config.packet_bytes, bytes)?;
    section.set("eager", &mut config.eager_bytes, bytes)?;
    section.finish()
}

fn disk(mut section: Layered<'_, '_>, config: &mut ClusterConfig, has_model: bool) -> Result<()> {
    section.set("at_once", &mut config.disk_concurrency, count)?;
    let kind = section.get("model", |value| name(value, &DISKS))?;
    let Some(kind) = kind else {
        if !has_model {
            return Err(section.plan.error("model", "is missing, in the plan and in its profile"));
        }
        return section.finish();
    };
    config.disk = match kind {
        DiskKind::Refined => DiskModel::Refined {
            rpm: section.required("rpm", number)?,
            average_seek: section.required("average_seek", seconds)?,
            track_seek: section.required("track_seek", seconds)?,
            bandwidth: section.required("bandwidth", bytes)?,
            close_bytes: section.required("near", bytes)?,
        },
        DiskKind::Simple => {
            DiskModel::Simple { access: section.required("access", seconds)?, bandwidth: section.required("bandwidth", bytes)? }
        }
        DiskKind::Ssd => DiskModel::Ssd {
            page_bytes: section.required("page", bytes)?,
            block_pages: section.required("block_pages", integer)?,
            channels: section.required("channels", integer)?,
            page_read: section.required("page_read", seconds)?,
            page_program: section.required("page_program", seconds)?,
            block_erase: section.required("block_erase", seconds)?,
            erased_bytes: section.required("erased", bytes)?,
            spare: section.required("spare", number)?,
            bandwidth: section.required("bandwidth", bytes)?,
        },
        DiskKind::Ram => {
            DiskModel::Ram { latency: section.required("latency", seconds)?, bandwidth: section.required("bandwidth", bytes)? }
        }
    };
    section.finish()
}

fn server(mut section: Layered<'_, '_>, config: &mut ClusterConfig) -> Result<()> {
    section.set("memory", &mut config.memory_bytes, bytes)?;
    let kind = section.get("cache_layer", |value| name(value, &LAYERS))?.unwrap_or_default();
    let mut rules = ClassicConfig { granularity: config.cache_layer.granularity(), ..ClassicConfig::default() };
    section.set("granularity", &mut rules.granularity, bytes)?;
    section.set("pick_rule", &mut rules.rule, |value| name(value, &RULES))?;
    let delayed_bytes = section.get("delayed_bytes", bytes)?;
    let delayed_pause = section.get("delayed_pause", seconds)?;
    if delayed_bytes.is_some() || delayed_pause.is_some() {
        let usual = DelayedWrites::default();
        let pause_ns = delayed_pause.map_or(usual.pause_ns, |seconds| (seconds * 1e9) as u64);
        rules.delayed = Some(DelayedWrites { bytes_min: delayed_bytes.unwrap_or(usual.bytes_min), pause_ns });
    }
    config.cache_layer = CacheLayerConfig::Classic { kind, config: rules };
    section.finish()
}
