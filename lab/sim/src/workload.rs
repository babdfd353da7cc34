//! What runs on the cluster of a plan: one or more `[[workload]]` tables, each an application.

use std::path::Path;

use anyhow::{Context, Result, bail};
use toml::de::DeValue;
use weft_hdtrace::{ClusterModel, Project, Trace, project_stem};
use weft_model::TieOrder;
use weft_model::random::Lcg48;
use weft_piosim::from_hdtrace::{cluster, import, rank_traces};
use weft_piosim::workloads::{AccessKind, Database, Interleaved};
use weft_piosim::{Application, ClusterConfig};

use crate::document::{Choices, Table, integer, text};
use crate::program;
use crate::units::{bytes, count, name, up_to};

/// Kinds of workloads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Interleaved,
    Collective,
    Random,
    Database,
    HdTrace,
    Program,
}

const KINDS: [(&str, Kind); 6] = [
    ("interleaved", Kind::Interleaved),
    ("collective", Kind::Collective),
    ("random", Kind::Random),
    ("database", Kind::Database),
    ("hdtrace", Kind::HdTrace),
    ("program", Kind::Program),
];
const ACCESSES: [(&str, AccessKind); 2] = [("read", AccessKind::Read), ("write", AccessKind::Write)];
const ALL_ACCESSES: [(&str, AccessKind); 3] =
    [("read", AccessKind::Read), ("write", AccessKind::Write), ("read_write", AccessKind::ReadWrite)];

/// Ranks of one application.
pub const RANKS_MAX: u32 = 1_000_000;
/// Blocks that the commands of one application may name.
pub const BLOCKS_MAX: u64 = 50_000_000;

/// An application and where its ranks run.
pub struct Workload {
    pub application: Application,
    /// Client node of each rank.
    pub nodes: Vec<u32>,
}

/// Reads a `[[workload]]`. Files are looked for beside the plan, in `folder`. A seed given on the
/// command line wins over the plan's.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn read(table: &Table<'_>, config: &ClusterConfig, folder: &Path, seed: Option<u64>, choices: &mut Choices) -> Result<Workload> {
    let kind = table.swept("kind", choices, |value| name(value, &KINDS))?.context(table.error("kind", "is missing").to_string())?;
    let first = table.swept("first_client", choices, integer)?.unwrap_or(0);
    let planned = table.swept("seed", choices, integer)?;
    let mut random = Lcg48::new(seed.or(planned).unwrap_or(0));
    let application = match kind {
        Kind::HdTrace => traced(table, folder, choices)?,
        Kind::Program => program::read(table, config.clients, choices)?,
        Kind::Database => database(table, config, choices)?.application(&mut random),
        Kind::Interleaved => {
            let per_operation = table.swept("per_operation", choices, blocks)?.unwrap_or(Some(1));
            let file = bounded(table, interleaved(table, config, choices)?)?;
            // The program of 2009 goes beyond the end of the file with its last operation.
            if config.tie_order == TieOrder::Thesis { file.individual_2009(per_operation) } else { file.individual(per_operation) }
        }
        Kind::Collective => bounded(table, interleaved(table, config, choices)?)?.collective(),
        Kind::Random => bounded(table, interleaved(table, config, choices)?)?.random(&mut random),
    };
    table.finish()?;
    let clients = u64::from(config.clients);
    let ranks = u64::from(application.ranks());
    if first + ranks > clients && first > 0 {
        let message = format!("{ranks} ranks from client {first} on need more than the {clients} clients of the cluster");
        return Err(table.error("first_client", &message));
    }
    let nodes = (0..ranks).map(|rank| u32::try_from((first + rank) % clients).expect("less than the number of clients")).collect();
    Ok(Workload { application, nodes })
}

/// A program with so many blocks would fill the memory before it is simulated.
fn bounded(table: &Table<'_>, file: Interleaved) -> Result<Interleaved> {
    let blocks = file.file_bytes / file.block_bytes;
    if blocks > BLOCKS_MAX {
        return Err(table.error("block", &format!("{blocks} blocks are more than the {BLOCKS_MAX} that can be simulated")));
    }
    Ok(file)
}

/// A number of blocks, or `"all"` (`None`).
pub fn blocks(value: &DeValue<'_>) -> Result<Option<u64>, String> {
    if text(value).is_ok_and(|text| text == "all") {
        return Ok(None);
    }
    count(value).map(|count| Some(u64::from(count))).map_err(|problem| format!("{problem}, nor is it \"all\""))
}

/// One file in blocks that the ranks share in turns.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn interleaved(table: &Table<'_>, config: &ClusterConfig, choices: &mut Choices) -> Result<Interleaved> {
    let ranks = table.swept("ranks", choices, |value| up_to(value, RANKS_MAX))?.unwrap_or(config.clients);
    let file_bytes = table.swept("file", choices, bytes)?.unwrap_or(1000 << 20);
    let block_bytes = table.swept("block", choices, bytes)?.unwrap_or(64 << 10);
    let access = table.swept("access", choices, |value| name(value, &ACCESSES))?.unwrap_or(AccessKind::Write);
    if block_bytes == 0 || file_bytes / block_bytes / u64::from(ranks) == 0 {
        return Err(
            table.error("block", &format!("a file of {file_bytes} bytes has no block of {block_bytes} bytes for each of {ranks} ranks"))
        );
    }
    Ok(Interleaved { ranks, file_bytes, block_bytes, writes: access == AccessKind::Write })
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

fn traced(table: &Table<'_>, folder: &Path, choices: &mut Choices) -> Result<Application> {
    let Some(project) = table.swept("project", choices, text)? else {
        return Err(table.error("project", "is missing: the .proj file of the run"));
    };
    read_project(&folder.join(&project)).map_err(|error| table.error("project", &format!("{error:#}")))
}

/// The application that an HDTrace project and the traces beside it describe.
///
/// # Errors
/// A file is absent or broken; the text names file and line.
pub fn read_project(path: &Path) -> Result<Application> {
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
    Ok(imported.application)
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
