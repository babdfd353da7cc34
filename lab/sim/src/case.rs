//! Cases of a plan: the machines, and what runs on them.

use anyhow::Result;
use weft_model::{NetworkModel, Topology};
use weft_piosim::{ClusterConfig, Exceptions};
use weft_plan::document::{Choices, Table, text};
use weft_plan::files::Plan;
use weft_plan::units::name;
use weft_yardsticks::dnfsp::DnfspConfig;
use weft_yardsticks::scale::ScaleConfig;

use crate::cluster::{self, Ties};
use crate::weft_system::{self, WeftCase};
use crate::workload::{self, Load};
use crate::{dnfsp_system, scale_system};

/// Pairs of a node and a process for which a network, packet by packet, counts what is under way:
/// some 5 GB.
const PAIRS_MAX: u64 = 200_000_000;

/// A case, ready to be simulated.
pub enum Case {
    /// Programs and I/O servers as models.
    Model { config: Box<ClusterConfig>, workloads: Vec<Load>, ties: Ties },
    /// Weft's own servers and clients.
    Weft(Box<WeftCase>),
    /// Spectrum Scale of 2016.
    Scale(Box<ScaleConfig>),
    /// dNFSp's metadata servers.
    Dnfsp(Box<DnfspConfig>),
}

/// What runs on the machines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum System {
    Model,
    Weft,
    Scale,
    Dnfsp,
}

/// Sections of a plan, and the systems that they are for; other sections are for all.
const SECTIONS: [(&str, &[&str]); 8] = [
    ("disk", &["model", "weft"]),
    ("server", &["model", "weft"]),
    ("node", &["model"]),
    ("weft", &["weft"]),
    ("process", &["weft"]),
    ("scale", &["scale"]),
    ("scale_tasks", &["scale"]),
    ("dnfsp", &["dnfsp"]),
];

impl Case {
    /// The name of the system in a plan.
    pub fn system(&self) -> &'static str {
        match self {
            Case::Model { .. } => "model",
            Case::Weft(_) => "weft",
            Case::Scale(_) => "scale",
            Case::Dnfsp(_) => "dnfsp",
        }
    }
}

/// Says of keys (with their tables before them) which none of these systems reads: another value of
/// one changes nothing.
pub fn unread<'k>(keys: impl Iterator<Item = &'k str>, systems: &[&str]) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for key in keys {
        let section = key.split('.').next().unwrap_or_default();
        let readers = SECTIONS.iter().find(|(name, _)| *name == section).map(|(_, readers)| *readers);
        let Some(readers) = readers.filter(|readers| !readers.iter().any(|reader| systems.contains(reader))) else { continue };
        let (systems, readers) = (systems.join(", "), readers.join(" or "));
        let sentence = format!("{key} changes nothing here: the plan simulates the system {systems}, and [{section}] is for {readers}");
        if !said.contains(&sentence) {
            said.push(sentence);
        }
    }
    said
}

const SYSTEMS: [(&str, System); 4] = [("model", System::Model), ("weft", System::Weft), ("scale", System::Scale), ("dnfsp", System::Dnfsp)];

/// Reads a case of a plan.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn read(plan: &Plan, choices: &mut Choices) -> Result<Case> {
    let root = plan.root()?;
    root.value("description", text)?;
    check_machines(&root)?;
    let profile = plan.profile(&root, choices)?;
    let model = root.swept("cluster_model", choices, text)?.map(|path| workload::read_model(&plan.folder.join(&path)));
    let model = model.transpose().map_err(|error| root.error("cluster_model", &format!("{error:#}")))?;
    let config = cluster::read(plan, (&root, profile.as_ref()), model, choices)?;
    let tables = root.tables("workload")?;
    if tables.is_empty() {
        return Err(root.error("workload", "is missing: a plan needs at least one [[workload]]"));
    }
    let ties = cluster::ties(&root, plan.seed, choices)?;
    let system = root.swept("system", choices, |value| name(value, &SYSTEMS))?.unwrap_or(System::Model);
    let of_models = [
        (ties != Ties::AsConfigured, "ties", "the order of other systems is fixed or follows from `seed`"),
        (config.exceptions != Exceptions::default(), "nodes", "the machines of other systems are all alike"),
        (matches!(config.topology, Topology::Free(_)), "switch", "other systems have one switch"),
    ];
    if let Some((_, key, why)) = of_models.into_iter().find(|(is_said, ..)| *is_said && system != System::Model) {
        return Err(root.error(key, &format!("is for modelled servers; {why}")));
    }
    let case = match system {
        System::Weft => Case::Weft(Box::new(weft_system::read(&root, profile.as_ref(), &tables, &config, plan.seed, choices)?)),
        System::Dnfsp => Case::Dnfsp(Box::new(dnfsp_system::read(&root, profile.as_ref(), &tables, &config, choices)?)),
        System::Scale => Case::Scale(Box::new(scale_system::read(&root, profile.as_ref(), &tables, &config, choices)?)),
        System::Model => {
            let read = |table: &Table<'_>| workload::read(table, &config, &plan.folder, plan.seed, choices);
            let workloads = tables.iter().map(read).collect::<Result<Vec<Load>>>()?;
            let processes = workloads.iter().map(|load| load.nodes.len() as u64).sum::<u64>() + u64::from(config.servers);
            let pairs = processes * (u64::from(config.clients) + u64::from(config.servers));
            if config.network == NetworkModel::Packets && pairs > PAIRS_MAX {
                let message =
                    format!("`packets` counts for {PAIRS_MAX} pairs of nodes and processes at most, not {pairs}: take `messages`");
                return Err(root.table("network")?.error("model", &message));
            }
            Case::Model { workloads, config: Box::new(config), ties }
        }
    };
    // What other systems and `weft bench run` want to know means nothing here.
    for section in ["weft", "process", "scale", "scale_tasks", "dnfsp", "local"] {
        root.table(section)?;
        profile.as_ref().map(|profile| profile.table(section)).transpose()?;
    }
    // How good predictions by it were so far is for `weft explain`.
    profile.as_ref().map(|profile| profile.table("seen")).transpose()?;
    profile.iter().try_for_each(Table::finish)?;
    root.finish()?;
    Ok(case)
}

/// A plan has a profile or a cluster model, not both and not neither.
fn check_machines(root: &Table<'_>) -> Result<()> {
    let profiles = root.all("profile", text)?;
    let models = root.all("cluster_model", text)?;
    match (profiles.is_empty(), models.is_empty()) {
        (false, false) => Err(root.error("cluster_model", "a plan has a profile or a cluster model, not both")),
        (true, true) => Err(root.error("profile", "is missing: the name of a machine profile, such as \"pvs-2009\"")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_no_system_of_a_plan_reads_are_told_once() {
        let said = unread(["disk.rpm", "disk.rpm", "dnfsp.meta_servers", "clients"].into_iter(), &["dnfsp"]);
        assert_eq!(said, ["disk.rpm changes nothing here: the plan simulates the system dnfsp, and [disk] is for model or weft"]);
        assert!(unread(["disk.rpm", "dnfsp.meta_servers"].into_iter(), &["dnfsp", "weft"]).is_empty());
    }
}
