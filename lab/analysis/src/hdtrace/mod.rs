//! Projects of HDTrace and PIOsimHD (2009) as records of Weft: states become spans, nested ones
//! inside of others, events become marks, statistics gauges, sends with their receives messages,
//! and relations between processes calls with what was done for them. `docs/viewer.md`, "Projects
//! of HDTrace".
//!
//! A process is a node of the level `Rank`, or of the outermost level where there is none; what
//! lies below (threads, lanes) are its threads. Statistics of a host are a node of their own. All
//! times of a project count from its earliest one, on one clock: the tools of 2009 have adjusted
//! them already.

mod events;
mod gauges;
mod messages;
mod process;
mod relations;
mod states;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use weft_hdtrace::{Error, Partial, Project, Relations, Statistics, Time, Trace, project_stem, relation_file, topology_paths, trace_file};
use weft_trace::EventTable;
use weft_trace::file::TraceFile;

use events::Events;
use process::Process;

/// What the files beside a project say about one node of its topology.
#[derive(Debug, Default)]
struct Told {
    /// Names from the outermost level down to this node.
    path: Vec<String>,
    /// The name of its trace, its bytes and what it says.
    trace: Option<(String, Vec<u8>, Trace)>,
    relations: Option<(String, Relations)>,
    statistics: Vec<(String, Statistics)>,
}

/// The traces of a project, one for each process and each host with statistics.
///
/// # Errors
/// A sentence: a file is missing, damaged or cut (with its name, line and byte), or says what
/// cannot be.
pub fn read(path: &Path) -> Result<Vec<TraceFile>, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let project = Project::read(&bytes).complete().map_err(|error| error.to_string())?;
    let told = beside(path, &project)?;
    let Some(base) = earliest(&told) else { return Err("none of its files says that anything happened".to_string()) };
    let level = project.levels.iter().position(|level| level == "Rank").unwrap_or(0);
    let mut processes: Vec<Process> = Vec::new();
    let spans = Rc::new(Cell::new(0));
    let mut place: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    let of_node: Vec<usize> = told
        .iter()
        .map(|told| {
            let own = told.path[..told.path.len().min(level + 1)].to_vec();
            *place.entry(own).or_insert_with_key(|own| {
                processes.push(Process::new(own, base, &spans));
                processes.len() - 1
            })
        })
        .collect();
    let mut events = Events::of(&told);
    states::put(&told, &of_node, &mut processes, &mut events, (&project, level))?;
    for (told, node) in told.iter().zip(&of_node) {
        for (file, statistics) in &told.statistics {
            gauges::put(statistics, &mut processes[*node], &mut events).map_err(|reason| format!("{file}: {reason}"))?;
        }
    }
    relations::put(&told, &of_node, &mut processes, &mut events)?;
    let has_messages = messages::put(&told, &of_node, &mut processes, level, &project);
    let mut infos = events.table();
    if has_messages {
        infos = EventTable::from_infos(infos.iter().cloned().chain(weft_trace::messages::events()));
    }
    let domain = format!("project {}", path.display());
    Ok(processes.into_iter().filter(|process| !process.is_empty()).map(|process| process.file(&infos, &domain)).collect())
}

/// Bytes of a project and of the files beside it.
pub fn bytes(path: &Path) -> u64 {
    let stem = format!("{}_", stem(path));
    let beside = path.parent().map(directory).and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let belongs = beside.filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with(&stem) && [".trc", ".stat", ".rel"].iter().any(|end| name.ends_with(end))
    });
    let own = fs::metadata(path).map_or(0, |data| data.len());
    own + belongs.filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum::<u64>()
}

/// A folder that may have no name.
fn directory(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// The beginning of the names of a project's files.
fn stem(path: &Path) -> String {
    project_stem(&path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())).to_string()
}

/// What the files beside a project say, by nodes of the topology.
fn beside(path: &Path, project: &Project) -> Result<Vec<Told>, String> {
    let folder = directory(path.parent().unwrap_or(Path::new("")));
    let names = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let names: Vec<String> = names.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let stem = stem(path);
    let read = |name: &str| fs::read(folder.join(name)).map_err(|error| format!("{name}: {error}"));
    let paths = topology_paths(project);
    let mut all = Vec::new();
    for path in &paths {
        let mut told = Told { path: path.iter().map(|name| (*name).to_string()).collect(), ..Told::default() };
        if let Some(name) = written(&names, &trace_file(&stem, path)) {
            let bytes = read(name)?;
            let trace = sound(name, Trace::read(&bytes))?;
            told.trace = Some((name.to_string(), bytes, trace));
        }
        if let Some(name) = written(&names, &relation_file(&stem, path)) {
            told.relations = Some((name.to_string(), sound(name, Relations::read(&read(name)?))?));
        }
        all.push(told);
    }
    // The name of a statistics file ends with that of its group: it belongs to the node whose name
    // takes most of the rest.
    for name in names.iter().filter(|name| name.ends_with(".stat")) {
        let begins = |path: &Vec<&str>| name.starts_with(trace_file(&stem, path).trim_end_matches("trc").replace(".", "_").as_str());
        let owner = (0..paths.len()).filter(|number| begins(&paths[*number])).max_by_key(|number| trace_file(&stem, &paths[*number]).len());
        if let Some(owner) = owner {
            all[owner].statistics.push((name.clone(), sound(name, Statistics::read(&read(name)?))?));
        }
    }
    let leaves = |path: &Vec<String>| !paths.iter().any(|other| other.len() > path.len() && other.iter().zip(path).all(|(a, b)| a == b));
    let says_something = |told: &Told| told.trace.is_some() || told.relations.is_some() || !told.statistics.is_empty();
    let silent = all.iter().find(|told| leaves(&told.path) && !says_something(told));
    match silent {
        Some(told) => {
            Err(format!("{} is missing: the project names the node {}", trace_file(&stem, &borrowed(&told.path)), told.path.join("/")))
        }
        None => Ok(all.into_iter().filter(says_something).collect()),
    }
}

/// The file of this name; the oldest tools wrote names of nodes in small letters without spaces.
fn written<'a>(names: &'a [String], wanted: &str) -> Option<&'a str> {
    let plain = wanted.replace(' ', "").to_lowercase();
    let exact = names.iter().find(|name| *name == wanted);
    exact.or_else(|| names.iter().find(|name| wanted.contains(' ') && **name == plain)).map(String::as_str)
}

fn borrowed(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

fn sound<T>(name: &str, read: Partial<T>) -> Result<T, String> {
    read.complete().map_err(|error: Error| format!("{name}: {error}"))
}

/// The earliest time of all files, adjusted.
fn earliest(told: &[Told]) -> Option<Time> {
    let times = |told: &Told| {
        let trace = told.trace.iter().filter_map(|(.., trace)| states::first(&trace.entries).map(|time| time + trace.time_adjustment));
        let statistics = told.statistics.iter().map(|(_, statistics)| statistics.start + statistics.group.time_adjustment);
        let relations = told.relations.iter().flat_map(|(_, relations)| {
            let entries = relations.entries.iter();
            entries.map(|entry| relations::time(entry) + relations.header.time_adjustment)
        });
        trace.chain(statistics).chain(relations).min()
    };
    told.iter().filter_map(times).min()
}
