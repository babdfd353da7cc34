//! `[[workload]]` tables as workloads.

use anyhow::Result;
use toml::de::DeValue;
use weft_workload::{
    BlockOrder, Commands, Dirs, Items, ItemsKind, Naming, Protocol, Rate, Sharing, Steps, TimedCommand, WorkStep, Workload,
};

use crate::document::{Choices, Table, integer, show, text, truth};
use crate::units::{FILES_MAX, bytes, count, name, names, up_to};

/// Workloads of files and blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Files made, looked at, read if they have bytes, and removed.
    Names,
    /// Small files, each client's own, read as a whole in a drawn order.
    Files,
    /// A given number of bytes in a given number of files of each client, timed as a whole.
    Split,
    /// One file, block after block the next client's.
    Interleaved,
    /// One file, a part for each client.
    Segmented,
    /// A file for each client.
    Own,
    /// As `Interleaved`, all clients together in one operation.
    Collective,
    /// As `Interleaved`, in an order that is drawn.
    Random,
}

/// Kinds that real clients can do, with their names.
pub const KINDS: [(&str, Kind); 6] = [
    ("names", Kind::Names),
    ("files", Kind::Files),
    ("split", Kind::Split),
    ("interleaved", Kind::Interleaved),
    ("own", Kind::Own),
    ("segmented", Kind::Segmented),
];
const ACCESSES: [(&str, WorkStep); 2] = [("read", WorkStep::Read), ("write", WorkStep::Write)];

/// Clients of one workload.
pub const RANKS_MAX: u32 = 1_000_000;
/// Threads of a client.
pub const THREADS_MAX: u32 = 1024;
/// Blocks that one workload may name: a program with more would fill the memory.
pub const BLOCKS_MAX: u64 = 50_000_000;

/// Reads what a kind needs; each of `clients` is a process unless the plan says otherwise.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn read(table: &Table<'_>, kind: Kind, clients: u32, choices: &mut Choices) -> Result<Workload> {
    let files = |value: &DeValue<'_>| up_to(value, FILES_MAX);
    match kind {
        Kind::Names => {
            let files = match table.swept("files_in_all", choices, files)? {
                // As near to it as all clients with the same number come.
                Some(all) => u64::from(all.div_ceil(clients)),
                None => u64::from(table.swept("files", choices, files)?.unwrap_or(1000)),
            };
            let dirs = table.swept("directories", choices, |value| name(value, &Dirs::ALL))?.unwrap_or(Dirs::Shared);
            let told = table.value("measure", |value| names(value, &WorkStep::ALL))?;
            if told.as_ref().is_some_and(Vec::is_empty) {
                return Err(table.error("measure", "names nothing to measure"));
            }
            let protocol = table.swept("protocol", choices, |value| name(value, &Protocol::ALL))?.unwrap_or(Protocol::Weft);
            let items = items(table, choices)?;
            let size = table.swept("size", choices, bytes)?.unwrap_or(0);
            if size > 0 && (items.kind != ItemsKind::Files || protocol == Protocol::Classic) {
                return Err(table.error("size", "is for files, not made by the protocol classic"));
            }
            let no_metafile = table.swept("no_metafile", choices, truth)?.unwrap_or(false);
            let steps = [WorkStep::Create, WorkStep::Stat, WorkStep::Readdir, WorkStep::Read, WorkStep::Remove];
            // Lists only if that is said.
            let is_told = |step| told.as_ref().map_or(step != WorkStep::Readdir, |told| told.contains(&step));
            let mut cycle: Vec<(WorkStep, bool)> = steps.into_iter().map(|step| (step, is_told(step))).collect();
            cycle.retain(|(step, is_told)| match step {
                WorkStep::Create | WorkStep::Remove => true,
                WorkStep::Read => *is_told && size > 0,
                _ => *is_told,
            });
            let attrs = is_told(WorkStep::Readdir);
            let work = Workload { procs: clients, dirs, protocol, no_metafile, attrs, items, size, ..Workload::empty_files(files) };
            Ok(Workload { steps: Steps { cycle, ..Steps::default() }, ..work })
        }
        Kind::Files => {
            let files = u64::from(table.swept("files", choices, files)?.unwrap_or(1000));
            let size = table.swept("size", choices, bytes)?.unwrap_or(112 << 10);
            let per_call = u64::from(table.swept("files_per_call", choices, count)?.unwrap_or(256));
            let dirs = table.swept("directories", choices, |value| name(value, &Dirs::ALL))?.unwrap_or(Dirs::Shared);
            let steps = Steps::of(WorkStep::ReadMany);
            Ok(Workload { procs: clients, dirs, size, per_call, steps, ..Workload::empty_files(files) })
        }
        Kind::Split => {
            let files = u64::from(table.swept("files", choices, |value| up_to(value, 1_000_000))?.unwrap_or(1));
            let total = table.swept("bytes", choices, bytes)?.unwrap_or(50 << 20);
            if total < files {
                return Err(table.error("bytes", &format!("{total} bytes cannot be written in {files} files")));
            }
            let steps = Steps::of(WorkStep::Create).named("split");
            let (size, longer) = (total / files, total % files);
            Ok(Workload { procs: clients, dirs: Dirs::Own, size, longer, steps, ..Workload::empty_files(files) })
        }
        kind => blocks(table, kind, clients, choices),
    }
}

/// What is made, how it is called, and in which tree.
fn items(table: &Table<'_>, choices: &mut Choices) -> Result<Items> {
    let kind = table.swept("items", choices, |value| name(value, &ItemsKind::ALL))?.unwrap_or_default();
    let naming = table.swept("naming", choices, |value| name(value, &Naming::ALL))?.unwrap_or_default();
    let depth = table.swept("tree_depth", choices, integer)?.unwrap_or(0);
    let branching = table.swept("tree_branching", choices, |value| up_to(value, 1000))?.unwrap_or(1);
    let depth = u32::try_from(depth).unwrap_or(u32::MAX);
    let subdirs = table.swept("subdirs", choices, integer)?.unwrap_or(0);
    if subdirs > 100_000 || (subdirs > 0 && depth > 0) {
        return Err(table.error("subdirs", "are 100,000 at most, without a tree"));
    }
    let branching = if depth > 0 { branching } else { 0 };
    let items = Items { kind, naming, subdirs: subdirs as u32, depth: depth.min(16), branching };
    if depth > 16 || items.folders() > 100_000 {
        return Err(table.error("tree_depth", "gives a tree of more than 16 levels or 100,000 directories"));
    }
    Ok(items)
}

fn blocks(table: &Table<'_>, kind: Kind, clients: u32, choices: &mut Choices) -> Result<Workload> {
    let (sharing, order) = match kind {
        Kind::Own => (Sharing::Own, BlockOrder::Ascending),
        Kind::Segmented => (Sharing::Parts, BlockOrder::Ascending),
        Kind::Collective => (Sharing::Interleaved, BlockOrder::Together),
        Kind::Random => (Sharing::Interleaved, BlockOrder::Drawn),
        Kind::Interleaved | Kind::Names | Kind::Files | Kind::Split => (Sharing::Interleaved, BlockOrder::Ascending),
    };
    let per_call = match order {
        BlockOrder::Ascending => table.swept("per_operation", choices, per_operation)?.unwrap_or(1),
        BlockOrder::Together | BlockOrder::Drawn => 1,
    };
    let ranks = table.swept("ranks", choices, |value| up_to(value, RANKS_MAX))?.unwrap_or(clients);
    let file_bytes = table.swept("file", choices, bytes)?.unwrap_or(1000 << 20);
    let block = table.swept("block", choices, bytes)?.unwrap_or(64 << 10);
    let access = table.swept("access", choices, |value| name(value, &ACCESSES))?.unwrap_or(WorkStep::Write);
    if block == 0 || file_bytes / block / u64::from(ranks) == 0 {
        let problem = format!("a file of {file_bytes} bytes has no block of {block} bytes for each of {ranks} ranks");
        return Err(table.error("block", &problem));
    }
    let blocks = file_bytes / block;
    if blocks > BLOCKS_MAX {
        return Err(table.error("block", &format!("{blocks} blocks are more than the {BLOCKS_MAX} that can be simulated")));
    }
    Ok(Workload { per_call, order, steps: Steps::of(access), ..Workload::sharing(sharing, ranks, file_bytes, block) })
}

/// Commands of the shell; what they find in their environment are the plan's `values`.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn commands(table: &Table<'_>, choices: &mut Choices) -> Result<Commands> {
    let (given, mut values) = (table.table("values")?, Vec::new());
    for key in given.keys() {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if !key.chars().all(is_part) || key.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(given.error(&key, "is no name of a variable of the shell"));
        }
        values.extend(given.swept(&key, choices, |value| Ok(show(value)))?.map(|value| (key, value)));
    }
    let number = |value: &DeValue<'_>| {
        let named = text(value).ok().and_then(|name| values.iter().find(|(key, _)| *key == name)).map(|(_, value)| value.parse().ok());
        named
            .unwrap_or_else(|| count(value).map(u64::from).ok())
            .ok_or("is neither a count nor the name of a value that is one".to_string())
    };
    let mut timed = Vec::new();
    for command in table.tables("command")? {
        let needed = |key| command.value(key, text)?.ok_or_else(|| command.error(key, "is missing"));
        let behind = |key, is_mib| Ok::<_, anyhow::Error>(command.value(key, text)?.map(|behind| Rate { behind, is_mib }));
        let (rate, mib) = (behind("rate", false)?, behind("mib_rate", true)?);
        if rate.is_some() && mib.is_some() {
            return Err(command.error("mib_rate", "a command has one rate"));
        }
        timed.push(TimedCommand {
            name: needed("name")?,
            run: needed("run")?,
            rests: command.value("rests", truth)?.unwrap_or(true),
            operations: command.value("operations", number)?.unwrap_or(1),
            rate: rate.or(mib),
        });
        command.finish()?;
    }
    if timed.is_empty() {
        return Err(table.error("command", "is missing"));
    }
    Ok(Commands { prepare: table.value("prepare", text)?, before: table.value("before", text)?, values, timed })
}

/// A number of blocks, or `"all"` (0).
fn per_operation(value: &DeValue<'_>) -> Result<u64, String> {
    if text(value).is_ok_and(|text| text == "all") {
        return Ok(0);
    }
    count(value).map(u64::from).map_err(|problem| format!("{problem}, nor is it \"all\""))
}
