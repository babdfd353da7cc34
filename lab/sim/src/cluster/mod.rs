//! The cluster of a plan: hardware from a machine profile (or from a cluster model of PIOsimHD),
//! with whatever the plan says otherwise.

mod different;
mod sections;
mod switches;
#[cfg(test)]
mod tests;

use anyhow::Result;
use toml::de::DeValue;
use weft_model::TieOrder;
use weft_piosim::{Allreduce, Bcast, ClusterConfig, Collective, Commands, Exchange, Reduce, Striping};
use weft_sched::LayerKind;

use weft_plan::document::{Choices, Table};
use weft_plan::files::Plan;
use weft_plan::units::{above_zero, bytes, name, seconds, up_to};

const STRIPING: [(&str, Striping); 2] = [("simple", Striping::Simple), ("slipped", Striping::Slipped)];
/// Whether the accidents of the program of 2009 are repeated: order of simultaneous events, of
/// servers and ranks, and the like.
const BEHAVIOURS: [(&str, TieOrder); 2] = [("natural", TieOrder::Natural), ("2009", TieOrder::Thesis)];
/// In which order events of the same instant happen.
const TIES: [(&str, bool); 2] = [("fixed", false), ("random", true)];
/// Orders of ties that are drawn unless the plan says how many.
const TIE_SEEDS: u32 = 10;
/// Clients or servers of one cluster: beyond that a plan has a number wrong, and the models would
/// fill the memory.
pub const NODES_MAX: u32 = 100_000;
const EXCHANGES: [(&str, Exchange); 2] = [("bytes", Exchange::Bytes), ("extents", Exchange::Extents)];
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

/// Whose rules a cache layer follows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LayerRules {
    Of2009,
    Today,
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

    /// An error about a key of the plan, or of the profile if only that has it.
    pub fn error(&self, key: &str, message: &str) -> anyhow::Error {
        match &self.profile {
            Some(profile) if profile.has(key) && !self.plan.has(key) => profile.error(key, message),
            _ => self.plan.error(key, message),
        }
    }

    /// Keys of the profile that mean nothing here.
    fn skip(&self, keys: &[&str]) -> Result<()> {
        for (profile, key) in self.profile.iter().flat_map(|profile| keys.iter().map(move |key| (profile, key))) {
            profile.value(key, |_| Ok(()))?;
        }
        Ok(())
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
    file: &'a Plan,
    (plan, profile): (&Table<'a>, Option<&Table<'a>>),
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
    if let Some(stripe) = plan.swept("stripe", choices, above_zero(bytes))? {
        config.stripe_bytes = stripe;
    }
    if let Some(striping) = plan.swept("striping", choices, |value| name(value, &STRIPING))? {
        config.striping = striping;
    }
    let Commands { bcast, reduce, allreduce } = &mut config.commands;
    *bcast = plan.swept("bcast", choices, |value| name(value, &Bcast::ALL))?.unwrap_or_default();
    *reduce = plan.swept("reduce", choices, |value| name(value, &Reduce::ALL))?.unwrap_or_default();
    *allreduce = plan.swept("allreduce", choices, |value| name(value, &Allreduce::ALL))?.unwrap_or_default();
    if let Some(collective) = plan.swept("collective", choices, |value| name(value, &Collective::ALL))? {
        config.collective = collective;
    }
    if let Some(buffer) = plan.swept("collective_buffer", choices, above_zero(bytes))? {
        config.collective_buffer_bytes = buffer;
    }
    if let Some(exchange) = plan.swept("exchange", choices, |value| name(value, &EXCHANGES))? {
        config.exchange = exchange;
    }
    sections::node(Layered::open(plan, profile, "node", choices)?, &mut config.node)?;
    sections::network(Layered::open(plan, profile, "network", choices)?, &mut config)?;
    let known = has_model.then(|| config.server.disk.clone());
    sections::disk(Layered::open(plan, profile, "disk", choices)?, &mut config.server, known.as_ref())?;
    let usual = if config.tie_order == TieOrder::Thesis { LayerRules::Of2009 } else { LayerRules::Today };
    let section = Layered::open(plan, profile, "server", choices)?;
    let others =
        sections::Others { usual: (LayerKind::default(), usual), packet: config.packet_bytes, answers: &mut config.answers_written };
    sections::server(section, &mut config.server, others, true)?;
    config.check().map_err(|problem| plan.error(if has_model { "cluster_model" } else { "profile" }, &problem))?;
    different::read(file, plan, &mut config, choices)?;
    switches::read(plan, &mut config, choices)?;
    Ok(config)
}

/// A time in nanoseconds.
pub fn nanos(value: &DeValue<'_>) -> Result<u64, String> {
    seconds(value).map(|seconds| (seconds * 1e9).round() as u64)
}
