//! The sections of plans and profiles that say what nodes, network, disks and servers are.

use std::mem::discriminant;

use anyhow::Result;
use toml::de::DeValue;
use weft_model::{CpuModel, DiskModel, NetworkModel, SWITCHES_MAX, Topology};
use weft_piosim::server::Ram;
use weft_piosim::{CacheLayerConfig, ClusterConfig, NodeConfig, ServerConfig};
use weft_plan::document::integer;
use weft_plan::units::{above_zero, bytes, count, name, number, seconds};
use weft_sched::LayerKind;
use weft_sched::classic::{ClassicConfig, DelayedWrites, PickRule};
use weft_sched::improved::{Delay, ImprovedConfig};

use super::{LayerRules, Layered, nanos};

const RULES: [(&str, PickRule); 2] = [("lowest", PickRule::Lowest), ("continue", PickRule::Continue)];
const LAYER_RULES: [(&str, LayerRules); 2] = [("2009", LayerRules::Of2009), ("today", LayerRules::Today)];
/// When a write is confirmed.
const ANSWERS: [(&str, bool); 2] = [("accepted", false), ("written", true)];
/// Whether servers ask for the data of writes in the order of their disks.
const ARRIVALS: [(&str, bool); 2] = [("as_sent", false), ("ordered", true)];
/// What a server asks for beyond what it has on disk, unless a plan says otherwise, bytes.
const ARRIVAL_WINDOW: u64 = 8 << 20;
const NETWORKS: [(&str, NetworkModel); 2] = [("packets", NetworkModel::Packets), ("messages", NetworkModel::Messages)];
/// Kinds of disks, and what they are without their parameters.
const DISKS: [(&str, usize); 4] = [("refined", 0), ("simple", 1), ("ssd", 2), ("ram", 3)];
const WITHOUT_PARAMETERS: [DiskModel; 4] = [
    DiskModel::Refined { rpm: 0.0, average_seek: 0.0, track_seek: 0.0, bandwidth: 0, close_bytes: 0 },
    DiskModel::Simple { access: 0.0, bandwidth: 0 },
    DiskModel::Ssd {
        page_bytes: 0,
        block_pages: 0,
        channels: 0,
        page_read: 0.0,
        page_program: 0.0,
        block_erase: 0.0,
        erased_bytes: 0,
        spare: 0.0,
        bandwidth: 0,
    },
    DiskModel::Ram { latency: 0.0, bandwidth: 0 },
];

/// Values that a section must have, or may change.
struct Fill<'f, 'p, 'a> {
    section: &'f mut Layered<'p, 'a>,
    must: bool,
}

impl Fill<'_, '_, '_> {
    fn value<T>(&mut self, key: &str, place: &mut T, read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Result<()> {
        if self.must {
            *place = self.section.required(key, read)?;
            return Ok(());
        }
        self.section.set(key, place, read)
    }
}

/// Revolutions a minute: from one a second to more than disks could stand.
fn revolutions(value: &DeValue<'_>) -> Result<f64, String> {
    number(value).and_then(|rpm| if (60.0..=1e6).contains(&rpm) { Ok(rpm) } else { Err(format!("{rpm} is not between 60 and 1000000")) })
}

/// A share above 0, at most 1.
fn share(value: &DeValue<'_>) -> Result<f64, String> {
    number(value)
        .and_then(|share| if share > 0.0 && share <= 1.0 { Ok(share) } else { Err(format!("{share} is not above 0 and at most 1")) })
}

/// The size of a packet.
fn packet(value: &DeValue<'_>) -> Result<u64, String> {
    above_zero(bytes)(value).and_then(|packet| if packet < 4 << 30 { Ok(packet) } else { Err("must be below 4 GiB".to_string()) })
}

/// `[node]`.
pub fn node(mut section: Layered<'_, '_>, node: &mut NodeConfig) -> Result<()> {
    let CpuModel { cpus, instructions_per_second } = &mut node.cpu;
    section.set("cpus", cpus, count)?;
    section.set("instructions_per_second", instructions_per_second, above_zero(integer))?;
    section.set("internal_bandwidth", &mut node.card.internal_bandwidth, above_zero(bytes))?;
    section.finish()
}

/// `[network]`.
pub fn network(mut section: Layered<'_, '_>, config: &mut ClusterConfig) -> Result<()> {
    link(&mut section, &mut config.node)?;
    section.set("model", &mut config.network, |value| name(value, &NETWORKS))?;
    section.set("switch_bandwidth", &mut config.switch_bandwidth, above_zero(bytes))?;
    section.set("packet", &mut config.packet_bytes, packet)?;
    section.set("eager", &mut config.eager_bytes, bytes)?;
    if let Some(nodes_per_rack) = section.get("nodes_per_rack", count)? {
        config.topology = Topology::Racks { nodes_per_rack, uplink_bandwidth: section.required("uplink_bandwidth", above_zero(bytes))? };
        if (config.clients + config.servers).div_ceil(nodes_per_rack) >= SWITCHES_MAX {
            return Err(section.error("nodes_per_rack", &format!("makes {SWITCHES_MAX} racks or more")));
        }
    }
    section.finish()
}

/// What of `[network]` one node may have to itself.
pub fn own_link(mut section: Layered<'_, '_>, node: &mut NodeConfig) -> Result<()> {
    link(&mut section, node)?;
    section.skip(&["model", "switch_bandwidth", "packet", "eager", "nodes_per_rack", "uplink_bandwidth"])?;
    section.finish()
}

fn link(section: &mut Layered<'_, '_>, node: &mut NodeConfig) -> Result<()> {
    section.set("link_bandwidth", &mut node.card.link_bandwidth, above_zero(bytes))?;
    section.set("link_latency", &mut node.card.link_latency, seconds)
}

/// `[disk]`. What it does not say is as in `known`, if that is of the same kind.
pub fn disk(mut section: Layered<'_, '_>, server: &mut ServerConfig, known: Option<&DiskModel>) -> Result<()> {
    section.set("at_once", &mut server.disk_concurrency, count)?;
    let model = |value: &DeValue<'_>| name(value, &DISKS);
    let kind = section.get("model", model)?;
    // A plan with a disk of another kind has nothing to do with the parameters of the profile's.
    if let Some(profile) = &section.profile
        && profile.value("model", model)? != kind
    {
        section.profile = None;
    }
    let kind = kind.map(|kind| &WITHOUT_PARAMETERS[kind]);
    let Some(kind) = kind.or(known) else {
        return Err(section.plan.error("model", "is missing, in the plan and in its profile"));
    };
    let known = known.filter(|known| discriminant(*known) == discriminant(kind));
    server.disk = parameters(&mut section, known.unwrap_or(kind).clone(), known.is_none())?;
    section.finish()
}

/// The same disk with what the section says of it.
fn parameters(section: &mut Layered<'_, '_>, mut disk: DiskModel, must: bool) -> Result<DiskModel> {
    let mut fill = Fill { section, must };
    match &mut disk {
        DiskModel::Refined { rpm, average_seek, track_seek, bandwidth, close_bytes } => {
            fill.value("rpm", rpm, revolutions)?;
            fill.value("average_seek", average_seek, seconds)?;
            fill.value("track_seek", track_seek, seconds)?;
            fill.value("bandwidth", bandwidth, above_zero(bytes))?;
            fill.value("near", close_bytes, bytes)?;
        }
        DiskModel::Simple { access, bandwidth } => {
            fill.value("access", access, seconds)?;
            fill.value("bandwidth", bandwidth, above_zero(bytes))?;
        }
        DiskModel::Ssd { page_bytes, block_pages, channels, page_read, page_program, block_erase, erased_bytes, spare, bandwidth } => {
            fill.value("page", page_bytes, above_zero(bytes))?;
            fill.value("block_pages", block_pages, above_zero(integer))?;
            fill.value("channels", channels, above_zero(integer))?;
            fill.value("page_read", page_read, seconds)?;
            fill.value("page_program", page_program, seconds)?;
            fill.value("block_erase", block_erase, seconds)?;
            fill.value("erased", erased_bytes, bytes)?;
            fill.value("spare", spare, share)?;
            fill.value("bandwidth", bandwidth, above_zero(bytes))?;
        }
        DiskModel::Ram { latency, bandwidth } => {
            fill.value("latency", latency, seconds)?;
            fill.value("bandwidth", bandwidth, above_zero(bytes))?;
        }
    }
    Ok(disk)
}

/// What the servers of a section have in common with all others.
pub struct Others<'o> {
    /// The cache layer, if the section does not say.
    pub usual: (LayerKind, LayerRules),
    /// Bytes of a packet.
    pub packet: u64,
    /// Writes are answered when they are on disk.
    pub answers: &'o mut bool,
}

/// `[server]`: `rules = "2009"` (the default with `behaviour = "2009"`) or `"today"`, those of the
/// real data server. Some keys belong to one of them. `answers` is for all servers or for none: a
/// section that is not `is_for_all` is that of some.
pub fn server(mut section: Layered<'_, '_>, server: &mut ServerConfig, others: Others<'_>, is_for_all: bool) -> Result<()> {
    let Others { usual: (usual_kind, usual_rules), packet, answers } = others;
    section.set("memory", &mut server.memory_bytes, above_zero(bytes))?;
    if server.memory_bytes <= packet {
        return Err(section.error("memory", &format!("must be more than a packet of {packet} bytes, or no write could be accepted")));
    }
    if is_for_all {
        section.set("answers", answers, |value| name(value, &ANSWERS))?;
    } else {
        section.skip(&["answers"])?;
    }
    memory(&mut section, server)?;
    if server.read_cache_bytes >= server.memory_bytes - packet {
        return Err(section.error("read_cache", "must leave more than a packet of the memory"));
    }
    let kind = section.get("cache_layer", |value| name(value, &LayerKind::ALL.map(|kind| (kind.name(), kind))))?.unwrap_or(usual_kind);
    let rules = section.get("rules", |value| name(value, &LAYER_RULES))?.unwrap_or(usual_rules);
    if *answers && rules == LayerRules::Of2009 {
        let key = if is_for_all { "answers" } else { "rules" };
        return Err(section.error(key, "writes are answered when they are on disk only with rules = \"today\""));
    }
    let granularity = section.get("granularity", above_zero(bytes))?;
    let delayed_bytes = section.get("delayed_bytes", bytes)?;
    let delayed_pause = section.get("delayed_pause", nanos)?;
    let is_delayed = delayed_bytes.is_some() || delayed_pause.is_some();
    let usual_delay = DelayedWrites::default();
    let bytes_min = delayed_bytes.unwrap_or(usual_delay.bytes_min);
    let pause_ns = delayed_pause.unwrap_or(usual_delay.pause_ns);
    server.cache_layer = match rules {
        LayerRules::Of2009 => {
            let mut classic = match &server.cache_layer {
                CacheLayerConfig::Classic { config, .. } => *config,
                layer => ClassicConfig { granularity: layer.granularity(), ..ClassicConfig::default() },
            };
            classic.granularity = granularity.unwrap_or(classic.granularity);
            section.set("pick_rule", &mut classic.rule, |value| name(value, &RULES))?;
            classic.delayed = is_delayed.then_some(DelayedWrites { bytes_min, pause_ns }).or(classic.delayed);
            CacheLayerConfig::Classic { kind, config: classic }
        }
        LayerRules::Today => {
            let mut improved = match &server.cache_layer {
                CacheLayerConfig::Classic { .. } => ImprovedConfig::default(),
                CacheLayerConfig::Improved { config, .. } => *config,
            };
            improved.granularity = granularity.unwrap_or(improved.granularity);
            improved.delay = is_delayed.then_some(Delay { age_ns: pause_ns, bytes: bytes_min }).or(improved.delay);
            section.set("read_deadline", &mut improved.read_deadline_ns, nanos)?;
            section.set("write_deadline", &mut improved.write_deadline_ns, nanos)?;
            section.set("read_reserve", &mut improved.read_reserve, bytes)?;
            if kind != LayerKind::None && server.memory_bytes - packet <= improved.read_reserve {
                let problem = format!("{} bytes of the memory for reads leave no packet for writes", improved.read_reserve);
                return Err(section.error("read_reserve", &problem));
            }
            CacheLayerConfig::improved(kind, &server.disk, improved)
        }
    };
    section.finish()
}

/// What of `[server]` is about memory and the data that comes into it.
fn memory(section: &mut Layered<'_, '_>, server: &mut ServerConfig) -> Result<()> {
    section.set("read_cache", &mut server.read_cache_bytes, bytes)?;
    let latency = section.get("memory_latency", seconds)?;
    let bandwidth = section.get("memory_bandwidth", above_zero(bytes))?;
    match (latency, bandwidth) {
        (Some(latency), Some(bandwidth)) => server.ram = Some(Ram { latency, bandwidth }),
        (None, None) => {}
        (Some(_), None) => return Err(section.plan.error("memory_bandwidth", "is missing: memory_latency needs it")),
        (None, Some(_)) => return Err(section.plan.error("memory_latency", "is missing: memory_bandwidth needs it")),
    }
    let window = section.get("arrival_window", above_zero(bytes))?;
    match section.get("arrivals", |value| name(value, &ARRIVALS))? {
        Some(true) => server.arrival_window = Some(window.or(server.arrival_window).unwrap_or(ARRIVAL_WINDOW)),
        Some(false) => server.arrival_window = None,
        None if window.is_some() && server.arrival_window.is_none() => {
            return Err(section.plan.error("arrival_window", "needs arrivals = \"ordered\""));
        }
        None => server.arrival_window = window.or(server.arrival_window),
    }
    Ok(())
}
