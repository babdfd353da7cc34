//! What runs on the modelled cluster of a plan: one or more `[[workload]]` tables, each an
//! application.

use std::path::Path;

use anyhow::{Context, Result, bail};
use weft_hdtrace::{ClusterModel, Project, Trace, project_stem};
use weft_model::TieOrder;
use weft_model::random::Lcg48;
use weft_piosim::from_hdtrace::{cluster, import, rank_nodes, rank_traces};
use weft_piosim::workloads::{AccessKind, Database, Manner, Transfer};
use weft_piosim::{Application, ClusterConfig};
use weft_plan::document::{Choices, Table, integer, text};
use weft_plan::units::{bytes, count, name, up_to};
use weft_plan::workload;
use weft_plan::workload::{BLOCKS_MAX, RANKS_MAX};
use weft_workload::{BlockOrder, WorkStep, Workload};

use crate::program;

/// What a modelled program may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Blocks(workload::Kind),
    Database,
    HdTrace,
    Program,
}

const KINDS: [(&str, Kind); 8] = [
    ("interleaved", Kind::Blocks(workload::Kind::Interleaved)),
    ("collective", Kind::Blocks(workload::Kind::Collective)),
    ("random", Kind::Blocks(workload::Kind::Random)),
    ("own", Kind::Blocks(workload::Kind::Own)),
    ("segmented", Kind::Blocks(workload::Kind::Segmented)),
    ("database", Kind::Database),
    ("hdtrace", Kind::HdTrace),
    ("program", Kind::Program),
];
const ALL_ACCESSES: [(&str, AccessKind); 3] =
    [("read", AccessKind::Read), ("write", AccessKind::Write), ("read_write", AccessKind::ReadWrite)];

/// An application and where its ranks run.
pub struct Load {
    pub application: Application,
    /// Client node of each rank.
    pub nodes: Vec<u32>,
    /// Where it stands in the plan.
    pub places: Places,
}

/// Files, lines and keys of an application, for errors when it runs.
#[derive(Default)]
pub struct Places {
    /// Of the table.
    pub table: String,
    /// Of each step of a program, with the rank that alone does it and how often it is done in a
    /// turn.
    pub steps: Vec<(Option<u32>, u64, String)>,
}

impl Places {
    /// The step that is command `number` (from 0 on) of a rank; the table if it has no steps.
    pub fn of(&self, rank: u32, number: usize) -> &str {
        let own: Vec<&(Option<u32>, u64, String)> = self.steps.iter().filter(|(only, ..)| only.is_none_or(|only| only == rank)).collect();
        let turn: u64 = own.iter().map(|(_, times, _)| times).sum();
        let mut left = number as u64 % turn.max(1);
        for (_, times, place) in own {
            match left.checked_sub(*times) {
                Some(rest) => left = rest,
                None => return place,
            }
        }
        &self.table
    }
}

/// Reads a `[[workload]]`. Files are looked for beside the plan, in `folder`. A seed given on the
/// command line wins over the plan's.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn read(table: &Table<'_>, config: &ClusterConfig, folder: &Path, seed: Option<u64>, choices: &mut Choices) -> Result<Load> {
    let kind = table.swept("kind", choices, |value| name(value, &KINDS))?.context(table.error("kind", "is missing").to_string())?;
    let told_first = table.swept("first_client", choices, integer)?;
    let first = told_first.unwrap_or(0);
    let mut known = None;
    let planned = table.swept("seed", choices, integer)?;
    let mut random = Lcg48::new(seed.or(planned).unwrap_or(0));
    let mut places = Places { table: table.place("kind"), steps: Vec::new() };
    let application = match kind {
        Kind::HdTrace => {
            let (application, nodes) = traced(table, folder, choices)?;
            known = nodes.filter(|_| told_first.is_none());
            application
        }
        Kind::Program => program::read(table, config.clients, &mut places.steps, choices)?,
        Kind::Database => database(table, config, choices)?.application(&mut random),
        Kind::Blocks(kind) => transfer(&workload::read(table, kind, config.clients, choices)?, config, &mut random),
    };
    table.finish()?;
    let clients = u64::from(config.clients);
    let ranks = u64::from(application.ranks());
    if first + ranks > clients && first > 0 {
        let message = format!("{ranks} ranks from client {first} on need more than the {clients} clients of the cluster");
        return Err(table.error("first_client", &message));
    }
    let node = |number: u64| u32::try_from(number % clients).expect("less than the number of clients");
    let nodes = match known {
        Some(nodes) => nodes.into_iter().map(|number| node(u64::from(number))).collect(),
        None => (0..ranks).map(|rank| node(first + rank)).collect(),
    };
    Ok(Load { application, nodes, places })
}

/// The one step of the workload that is measured: writing or reading.
fn transfer(work: &Workload, config: &ClusterConfig, random: &mut Lcg48) -> Application {
    let writes = work.steps.cycle.iter().any(|(step, is_told)| *is_told && *step == WorkStep::Write);
    let transfer = Transfer { work, writes };
    match work.order {
        // The program of 2009 goes beyond the end of the file with its last operation.
        BlockOrder::Ascending => transfer.individual(Manner { whole_last: config.tie_order == TieOrder::Thesis, ..Manner::default() }),
        BlockOrder::Together => transfer.collective(),
        BlockOrder::Drawn => transfer.random(random),
    }
}

fn database(table: &Table<'_>, config: &ClusterConfig, choices: &mut Choices) -> Result<Database> {
    let database = Database {
        ranks: table.swept("ranks", choices, |value| up_to(value, RANKS_MAX))?.unwrap_or(config.clients),
        file_bytes: table.swept("file", choices, bytes)?.unwrap_or(1_280_000_000),
        element_bytes: table.swept("element", choices, bytes)?.unwrap_or(512),
        turn_bytes: table.swept("turn", choices, bytes)?.unwrap_or(1_280_000),
        turns: table.swept("turns", choices, integer)?.unwrap_or(10),
        per_operation: u64::from(table.swept("per_operation", choices, count)?.unwrap_or(1)),
        access: table.swept("access", choices, |value| name(value, &ALL_ACCESSES))?.unwrap_or(AccessKind::ReadWrite),
    };
    if database.turn_bytes < database.element_bytes {
        return Err(table.error("turn", &format!("has no element of {} bytes", database.element_bytes)));
    }
    if database.element_bytes == 0 || database.file_bytes < database.element_bytes {
        return Err(table.error("element", "must be at least 1 byte and at most the file"));
    }
    // Operations have 50 elements in the mean.
    let elements = u128::from(database.turns) * u128::from(database.turn_bytes) / u128::from(database.element_bytes);
    if u128::from(database.ranks) * elements / 50 > u128::from(BLOCKS_MAX) {
        return Err(table.error("turns", &format!("the program has more than {BLOCKS_MAX} accesses")));
    }
    Ok(database)
}

/// A traced program, and the clients that its ranks were on if it was simulated.
fn traced(table: &Table<'_>, folder: &Path, choices: &mut Choices) -> Result<(Application, Option<Vec<u32>>)> {
    let Some(project) = table.swept("project", choices, text)? else {
        return Err(table.error("project", "is missing: the .proj file of the run"));
    };
    read_project(&folder.join(&project)).map_err(|error| table.error("project", &format!("{error:#}")))
}

/// The application that an HDTrace project and the traces beside it describe, and the clients that
/// its ranks were on if it was simulated.
///
/// # Errors
/// A file is absent or broken; the text names file and line.
pub fn read_project(path: &Path) -> Result<(Application, Option<Vec<u32>>)> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("{}", path.display()));
    let project = Project::read(&read(path)?).complete().with_context(|| format!("{}", path.display()))?;
    let name = path.file_name().and_then(|name| name.to_str()).context("the name of the project file is not UTF-8")?;
    let mut traces = Vec::new();
    for file in rank_traces(&project, project_stem(name))? {
        let path = path.with_file_name(file);
        traces.push(Trace::read(&read(&path)?).complete().with_context(|| format!("{}", path.display()))?);
    }
    let imported = import(&project, &traces).with_context(|| format!("{}", path.display()))?;
    imported.notes.iter().for_each(|note| weft_host::output::tell(&format!("{}: {note}", path.display())));
    Ok((imported.application, rank_nodes(&project)))
}

/// The configuration that a cluster model of PIOsimHD describes.
///
/// # Errors
/// The file is absent or broken, or has what the simulator has not.
pub fn read_model(path: &Path) -> Result<ClusterConfig> {
    let bytes = std::fs::read(path).with_context(|| format!("{}", path.display()))?;
    let model = ClusterModel::read(&bytes).complete().with_context(|| format!("{}", path.display()))?;
    match cluster(&model) {
        Ok(config) => Ok(config),
        Err(error) => bail!("{}: {error}", path.display()),
    }
}
