//! Runs of MPI programs: which library records them, and the project of HDTrace that is made of
//! what their ranks have written.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use weft_hdtrace::{Communicator, Member, Project, RankTypes, TopologyNode, Trace};

/// Parts and traces that are larger are not read.
const BYTES_MAX: u64 = 4 << 30;
/// A rank that is missing at a communicator calls it by this number: no trace does.
const NOBODYS: i64 = -1;

/// What became of a run.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The project file.
    pub project: PathBuf,
    /// Ranks that were recorded.
    pub ranks: usize,
    /// States in their traces.
    pub states: usize,
    /// What is missing, in sentences.
    pub problems: Vec<String>,
}

/// The library for the MPI of that name, or for the only one that there is, beside this program or
/// where `make install-mpiio` puts it.
///
/// # Errors
/// A sentence: there is none, or it cannot be told which one is meant.
pub fn library(launcher: &OsStr, wanted: Option<&str>) -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let found = |family: &str| {
        let places = [folder.join("../lib"), folder.join("../lib/weft"), folder.to_path_buf()];
        let given = std::env::var_os("WEFT_MPITRACE_LIB").map(PathBuf::from);
        let mut paths = given.into_iter().chain(places).map(|place| place.join(format!("libweft-mpitrace-{family}.so")));
        paths.find(|path| path.is_file()).and_then(|path| path.canonicalize().ok())
    };
    Ok(match wanted {
        Some(family) => {
            found(family).with_context(|| format!("there is no libweft-mpitrace-{family}.so beside this program or in ../lib"))?
        }
        None => match (found("mpich"), found("openmpi")) {
            (Some(one), None) | (None, Some(one)) => one,
            (Some(mpich), Some(openmpi)) => match family_of(launcher) {
                Some("mpich") => mpich,
                Some(_) => openmpi,
                None => bail!("{} does not say of which MPI it is: give --mpi", launcher.display()),
            },
            (None, None) => bail!(
                "there is no libweft-mpitrace-mpich.so or -openmpi.so beside this program or in ../lib: `make install-mpiio` puts it there"
            ),
        },
    })
}

/// Of which MPI a launcher is, by what it says of itself.
fn family_of(launcher: &OsStr) -> Option<&'static str> {
    let said = Command::new(launcher).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).to_lowercase();
    let of = [("hydra", "mpich"), ("mpich", "mpich"), ("open mpi", "openmpi"), ("openrte", "openmpi")];
    of.into_iter().find(|(word, _)| said.contains(word)).map(|(_, family)| family)
}

/// Makes one project of what the ranks have written into a folder, and completes the traces of
/// those that have not come to their end.
///
/// # Errors
/// The folder cannot be read or written, or no rank has written into it.
pub fn complete(folder: &Path) -> Result<Recorded> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut names: Vec<OsString> = entries.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    names.sort();
    let mut recorded = Recorded { project: folder.join("run.proj"), ..Recorded::default() };
    let mut parts = Vec::new();
    let mut of_parts = Vec::new();
    for name in names.iter().filter(|name| is_part(name)) {
        let path = folder.join(name);
        let part = Project::read(&read(&path)?);
        let rank = part.value.topology.first().and_then(|host| host.children.first()).and_then(|rank| rank.name.parse::<u32>().ok());
        let Some(rank) = rank else {
            recorded.problems.push(format!("{}: does not say of which rank it is; left out", path.display()));
            continue;
        };
        if part.error.is_some() {
            recorded.problems.push(format!("rank {rank} did not come to MPI_Finalize: what it did last is missing"));
        }
        let lost = part.value.other.iter().filter(|element| element.name == "Lost").filter_map(|lost| lost.attribute("states"));
        recorded.problems.extend(lost.map(|lost| format!("rank {rank}: {lost} calls were not recorded")));
        parts.push((rank, part.value));
        of_parts.push(path);
    }
    if parts.is_empty() && !recorded.problems.is_empty() {
        bail!("no rank was recorded: what the ranks have written says nothing. Is there room in {}?", folder.display());
    }
    if parts.is_empty() {
        bail!("no rank was recorded: is the program linked with the MPI library of this launcher, dynamically?");
    }
    let mut missing = Vec::new();
    for (rank, part) in &mut parts {
        let Some(node) = part.topology.first_mut() else { continue };
        let start = format!("run_{}_{rank}_", node.name);
        let threads = names.iter().filter_map(|name| name.to_str()?.strip_prefix(&start)?.strip_suffix(".trc"));
        let mut threads: Vec<&str> = threads.collect();
        threads.sort_by_key(|thread| thread.parse::<u32>().unwrap_or(u32::MAX));
        for thread in &threads {
            recorded.states += complete_trace(&folder.join(format!("{start}{thread}.trc")))?;
        }
        if threads.is_empty() {
            missing.push(*rank);
        }
        let named = threads.into_iter().map(|thread| TopologyNode { name: thread.to_string(), ..TopologyNode::default() });
        node.children[0].children = named.collect();
    }
    parts.retain(|(rank, _)| !missing.contains(rank));
    recorded.problems.extend(missing.iter().map(|rank| format!("rank {rank} has no trace")));
    recorded.ranks = parts.len();
    let mut project = join(parts);
    project.description = recorded.problems.join("; ");
    if let Some(ranks) = project.process_count.filter(|ranks| *ranks as usize > recorded.ranks) {
        recorded.problems.push(format!("{} of {ranks} ranks are here: their folder must be one that all machines share", recorded.ranks));
    }
    fs::write(&recorded.project, project.write()).with_context(|| recorded.project.display().to_string())?;
    for path in of_parts {
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
    }
    Ok(recorded)
}

fn is_part(name: &OsStr) -> bool {
    let rank = name.to_str().and_then(|name| name.strip_prefix("rank")?.strip_suffix(".part"));
    rank.is_some_and(|rank| rank.parse::<u32>().is_ok())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::metadata(path).with_context(|| path.display().to_string())?.len();
    if bytes > BYTES_MAX {
        bail!("{}: {bytes} bytes are too many", path.display());
    }
    fs::read(path).with_context(|| path.display().to_string())
}

/// Ends a trace that has no end; gives the number of its entries.
fn complete_trace(path: &Path) -> Result<usize> {
    let found = Trace::read(&read(path)?);
    if found.error.is_some() {
        fs::write(path, found.value.write()).with_context(|| path.display().to_string())?;
    }
    Ok(found.value.entries.len())
}

/// One project of those of the ranks. Communicators with the same members are told apart by their
/// order, in which all members have made them.
fn join(mut parts: Vec<(u32, Project)>) -> Project {
    parts.sort_by_key(|(rank, _)| *rank);
    let mut all = Project { levels: ["Hostname", "Rank", "Thread"].map(str::to_string).to_vec(), ..Project::default() };
    for (rank, part) in parts {
        all.name.clone_from(&part.name);
        all.process_count = part.process_count;
        for host in part.topology {
            match all.topology.iter_mut().find(|known| known.name == host.name) {
                Some(known) => known.children.extend(host.children),
                None => all.topology.push(host),
            }
        }
        for file in part.files {
            if all.files.iter().all(|known| known.name != file.name) {
                all.files.push(file);
            }
        }
        let types = part.datatypes.into_iter().flat_map(|types| types.types).collect();
        all.datatypes.push(RankTypes { rank, thread: "0".to_string(), types });
        for communicator in part.communicators {
            take_in(&mut all.communicators, rank, communicator);
        }
    }
    all
}

fn take_in(all: &mut Vec<Communicator>, rank: u32, one: Communicator) {
    let ranks = |communicator: &Communicator| communicator.members.iter().map(|member| (member.local, member.global)).collect::<Vec<_>>();
    let Some(own) = one.members.iter().position(|member| member.global == rank) else { return };
    let members = ranks(&one);
    // The first of them that this rank has not given its number yet.
    let known = all.iter_mut().find(|known| ranks(known) == members && known.members[own].id == NOBODYS);
    match known {
        Some(known) => known.members[own].id = one.members[own].id,
        None => {
            let id = |member: &Member| if member.global == rank { member.id } else { NOBODYS };
            let members = one.members.iter().map(|member| Member { id: id(member), ..*member }).collect();
            all.push(Communicator { name: one.name, members });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(rank: u32, communicators: &str, end: &str) -> String {
        format!(
            "<Application name=\"p\" processCount=\"2\"><Topology><Level type=\"Hostname\"/><Node name=\"h\"><Node name=\"{rank}\"/></Node></Topology>{communicators}{end}"
        )
    }

    fn communicator(cid: i64) -> String {
        format!(
            "<CommunicatorList><Communicator name=\"\"><Rank global=\"0\" local=\"0\" cid=\"{cid}\"/><Rank global=\"1\" local=\"1\" cid=\"{cid}\"/></Communicator></CommunicatorList>\n"
        )
    }

    #[test]
    fn parts_become_one_project_and_a_rank_that_died_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let trace = "<Program timeAdjustment=\"0.0\">\n<Barrier time=\"0.1\" end=\"0.2\" cid=\"0\"/>\n";
        put("rank0.part", &part(0, &(communicator(0) + &communicator(5)), "<Lost states=\"3\"/></Application>"));
        put("rank1.part", &part(1, &(communicator(0) + &communicator(2)), ""));
        put("run_h_0_0.trc", &format!("{trace}</Program>"));
        put("run_h_1_0.trc", &format!("{trace}<Send time=\"0."));
        let recorded = complete(dir.path()).unwrap();
        assert_eq!((recorded.ranks, recorded.states), (2, 2));
        assert_eq!(
            recorded.problems,
            ["rank 0: 3 calls were not recorded", "rank 1 did not come to MPI_Finalize: what it did last is missing"]
        );
        let project = Project::read(&fs::read(&recorded.project).unwrap()).complete().unwrap();
        let ids: Vec<Vec<i64>> = project.communicators.iter().map(|one| one.members.iter().map(|member| member.id).collect()).collect();
        assert_eq!(ids, [[0, 0], [5, 2]]);
        assert!(Trace::read(&fs::read(dir.path().join("run_h_1_0.trc")).unwrap()).complete().is_ok());
        assert!(!dir.path().join("rank0.part").exists());
        assert!(complete(dir.path()).unwrap_err().to_string().contains("is the program linked"));
        // On a full disk.
        put("rank0.part", "");
        assert!(complete(dir.path()).unwrap_err().to_string().contains("Is there room"));
    }
}
