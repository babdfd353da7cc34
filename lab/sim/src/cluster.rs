//! The cluster of a plan: hardware from a machine profile (or from a cluster model of PIOsimHD),
//! with whatever the plan says otherwise.

use anyhow::{Context, Result};
use toml::de::DeValue;
use weft_model::{CpuModel, DiskModel, NetworkModel, TieOrder, Topology};
use weft_piosim::{CacheLayerConfig, ClusterConfig, Collective, Exchange, Striping};
use weft_sched::LayerKind;
use weft_sched::classic::{ClassicConfig, DelayedWrites, PickRule};
use weft_sched::improved::Delay;

use weft_plan::document::{Choices, Table, integer};
use weft_plan::units::{bytes, count, name, number, seconds, up_to};

const LAYERS: [(&str, LayerKind); 4] = [
    ("none", LayerKind::None),
    ("write_behind", LayerKind::WriteBehind),
    ("aggregation", LayerKind::Aggregation),
    ("server_directed", LayerKind::ServerDirected),
];
const STRIPING: [(&str, Striping); 2] = [("simple", Striping::Simple), ("slipped", Striping::Slipped)];
const RULES: [(&str, PickRule); 2] = [("lowest", PickRule::Lowest), ("continue", PickRule::Continue)];
/// Whether the accidents of the program of 2009 are repeated: order of simultaneous events, of
/// servers and ranks, and the like.
const BEHAVIOURS: [(&str, TieOrder); 2] = [("natural", TieOrder::Natural), ("2009", TieOrder::Thesis)];
const LAYER_RULES: [(&str, LayerRules); 2] = [("2009", LayerRules::Of2009), ("today", LayerRules::Today)];
/// In which order events of the same instant happen.
const TIES: [(&str, bool); 2] = [("fixed", false), ("random", true)];
/// Orders of ties that are drawn unless the plan says how many.
const TIE_SEEDS: u32 = 10;
/// Clients or servers of one cluster: beyond that a plan has a number wrong, and the models would
/// fill the memory.
pub const NODES_MAX: u32 = 100_000;
/// When a write is confirmed.
const ANSWERS: [(&str, bool); 2] = [("accepted", false), ("written", true)];
const NETWORKS: [(&str, NetworkModel); 2] = [("packets", NetworkModel::Packets), ("messages", NetworkModel::Messages)];
const EXCHANGES: [(&str, Exchange); 2] = [("bytes", Exchange::Bytes), ("extents", Exchange::Extents)];
const DISKS: [(&str, DiskKind); 4] =
    [("refined", DiskKind::Refined), ("simple", DiskKind::Simple), ("ssd", DiskKind::Ssd), ("ram", DiskKind::Ram)];

/// Whose rules a cache layer follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LayerRules {
    Of2009,
    Today,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskKind {
    Refined,
    Simple,
    Ssd,
    Ram,
}

/// The order of events of the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// The one of the configuration: a single result.
    AsConfigured,
    /// Drawn, from `seeds` seeds: as many results.
    Random { first: u64, seeds: u32 },
}

/// `ties = "random"` with `tie_seeds`; a seed from the command line is the first one.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn ties(plan: &Table<'_>, seed: Option<u64>, choices: &mut Choices) -> Result<Ties> {
    let random = plan.swept("ties", choices, |value| name(value, &TIES))?;
    let seeds = plan.swept("tie_seeds", choices, |value| up_to(value, 10_000))?;
    match (random, seeds) {
        (None, Some(_)) => Err(plan.error("tie_seeds", "needs ties = \"random\"")),
        (None | Some(false), _) => Ok(Ties::AsConfigured),
        (Some(true), seeds) => Ok(Ties::Random { first: seed.unwrap_or(0), seeds: seeds.unwrap_or(TIE_SEEDS) }),
    }
}

/// A section of a plan over the same section of a profile.
pub struct Layered<'p, 'a> {
    plan: Table<'a>,
    profile: Option<Table<'a>>,
    choices: &'p mut Choices,
}

impl<'p, 'a> Layered<'p, 'a> {
    pub fn open(plan: &Table<'a>, profile: Option<&Table<'a>>, section: &str, choices: &'p mut Choices) -> Result<Layered<'p, 'a>> {
        let profile = profile.map(|profile| profile.table(section)).transpose()?;
        Ok(Layered { plan: plan.table(section)?, profile, choices })
    }

    /// The plan's value, else the profile's, else `None`. Profiles may not sweep.
    pub fn get<T>(&mut self, key: &str, read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Result<Option<T>> {
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
    pub fn set<T>(&mut self, key: &str, place: &mut T, read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Result<()> {
        if let Some(value) = self.get(key, read)? {
            *place = value;
        }
        Ok(())
    }

    /// A value that must be in one of them.
    pub fn required<T>(&mut self, key: &str, read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Result<T> {
        match self.get(key, read)? {
            Some(value) => Ok(value),
            None => Err(self.plan.error(key, "is missing, in the plan and in its profile")),
        }
    }

    pub fn finish(self) -> Result<()> {
        self.profile.iter().try_for_each(Table::finish)?;
        self.plan.finish()
    }
}

/// Reads the cluster from a plan's outermost table and a profile's, over `model` if the plan names
/// a cluster model.
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
    let nodes = |value: &DeValue<'_>| up_to(value, NODES_MAX);
    let clients = plan.swept("clients", choices, nodes)?;
    let servers = plan.swept("servers", choices, nodes)?;
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
    section.set("model", &mut config.network, |value| name(value, &NETWORKS))?;
    section.set("link_bandwidth", &mut config.link_bandwidth, bytes)?;
    section.set("link_latency", &mut config.link_latency, seconds)?;
    section.set("switch_bandwidth", &mut config.switch_bandwidth, bytes)?;
    section.set("packet", &mut config.packet_bytes, bytes)?;
    section.set("eager", &mut config.eager_bytes, bytes)?;
    if let Some(nodes_per_rack) = section.get("nodes_per_rack", count)? {
        config.topology = Topology::Racks { nodes_per_rack, uplink_bandwidth: section.required("uplink_bandwidth", bytes)? };
    }
    section.finish()
}

fn disk(mut section: Layered<'_, '_>, config: &mut ClusterConfig, has_model: bool) -> Result<()> {
    section.set("at_once", &mut config.disk_concurrency, count)?;
    let model = |value: &DeValue<'_>| name(value, &DISKS);
    let kind = section.get("model", model)?;
    // A plan with a disk of another kind has nothing to do with the parameters of the profile's.
    if let Some(profile) = &section.profile
        && profile.value("model", model)? != kind
    {
        section.profile = None;
    }
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

/// `rules = "2009"` (the default with `behaviour = "2009"`) or `"today"`, those of the real data
/// server. Some keys belong to one of them.
fn server(mut section: Layered<'_, '_>, config: &mut ClusterConfig) -> Result<()> {
    let usual = if config.tie_order == TieOrder::Thesis { LayerRules::Of2009 } else { LayerRules::Today };
    section.set("memory", &mut config.memory_bytes, bytes)?;
    section.set("answers", &mut config.answers_written, |value| name(value, &ANSWERS))?;
    let kind = section.get("cache_layer", |value| name(value, &LAYERS))?.unwrap_or_default();
    let rules = section.get("rules", |value| name(value, &LAYER_RULES))?.unwrap_or(usual);
    let granularity = section.get("granularity", bytes)?;
    let delayed_bytes = section.get("delayed_bytes", bytes)?;
    let delayed_pause = section.get("delayed_pause", nanos)?;
    let is_delayed = delayed_bytes.is_some() || delayed_pause.is_some();
    let usual_delay = DelayedWrites::default();
    let bytes_min = delayed_bytes.unwrap_or(usual_delay.bytes_min);
    let pause_ns = delayed_pause.unwrap_or(usual_delay.pause_ns);
    config.cache_layer = match rules {
        LayerRules::Of2009 => {
            let mut classic = ClassicConfig { granularity: config.cache_layer.granularity(), ..ClassicConfig::default() };
            classic.granularity = granularity.unwrap_or(classic.granularity);
            section.set("pick_rule", &mut classic.rule, |value| name(value, &RULES))?;
            classic.delayed = is_delayed.then_some(DelayedWrites { bytes_min, pause_ns });
            CacheLayerConfig::Classic { kind, config: classic }
        }
        LayerRules::Today => {
            let mut layer = CacheLayerConfig::improved(kind, &config.disk);
            if let CacheLayerConfig::Improved { config, .. } = &mut layer {
                config.granularity = granularity.unwrap_or(config.granularity);
                config.delay = is_delayed.then_some(Delay { age_ns: pause_ns, bytes: bytes_min });
                section.set("read_deadline", &mut config.read_deadline_ns, nanos)?;
                section.set("write_deadline", &mut config.write_deadline_ns, nanos)?;
                section.set("read_reserve", &mut config.read_reserve, bytes)?;
            }
            layer
        }
    };
    section.finish()
}

/// A time in nanoseconds.
pub fn nanos(value: &DeValue<'_>) -> Result<u64, String> {
    seconds(value).map(|seconds| (seconds * 1e9).round() as u64)
}
