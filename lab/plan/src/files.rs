//! Plans: TOML files that say what to run. Every key of a plan may stand for several values; a plan
//! means all combinations.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};

use crate::document::{Choices, Document, Table, text};

/// Plans and profiles that are part of the program: they work without any file.
const BUILT_IN: [(&str, &str); 57] = [
    ("plans/directory-hints.toml", include_str!("../../plans/directory-hints.toml")),
    ("plans/engines.toml", include_str!("../../plans/engines.toml")),
    ("plans/creates-engines.toml", include_str!("../../plans/creates-engines.toml")),
    ("plans/blocks-engines.toml", include_str!("../../plans/blocks-engines.toml")),
    ("plans/builds.toml", include_str!("../../plans/builds.toml")),
    ("plans/layers.toml", include_str!("../../plans/layers.toml")),
    ("plans/probes.toml", include_str!("../../plans/probes.toml")),
    ("plans/tracing.toml", include_str!("../../plans/tracing.toml")),
    ("plans/ties.toml", include_str!("../../plans/ties.toml")),
    ("plans/checkpoints.toml", include_str!("../../plans/checkpoints.toml")),
    ("plans/weft-creates.toml", include_str!("../../plans/weft-creates.toml")),
    ("plans/split-creates.toml", include_str!("../../plans/split-creates.toml")),
    ("plans/crowded-directory.toml", include_str!("../../plans/crowded-directory.toml")),
    ("plans/weft-lists-2009.toml", include_str!("../../plans/weft-lists-2009.toml")),
    ("plans/read-many.toml", include_str!("../../plans/read-many.toml")),
    ("plans/weft-streams.toml", include_str!("../../plans/weft-streams.toml")),
    ("plans/interleaved.toml", include_str!("../../plans/interleaved.toml")),
    ("plans/interleaved-two-phase.toml", include_str!("../../plans/interleaved-two-phase.toml")),
    ("plans/partdiff-layers.toml", include_str!("../../plans/partdiff-layers.toml")),
    ("plans/partdiff-delayed.toml", include_str!("../../plans/partdiff-delayed.toml")),
    ("plans/partdiff.toml", include_str!("../../plans/partdiff.toml")),
    ("plans/thousand.toml", include_str!("../../plans/thousand.toml")),
    ("plans/scale.toml", include_str!("../../plans/scale.toml")),
    ("plans/mixed-disks.toml", include_str!("../../plans/mixed-disks.toml")),
    ("plans/shared-nodes.toml", include_str!("../../plans/shared-nodes.toml")),
    ("plans/switches.toml", include_str!("../../plans/switches.toml")),
    ("plans/broadcasts.toml", include_str!("../../plans/broadcasts.toml")),
    ("plans/reductions.toml", include_str!("../../plans/reductions.toml")),
    ("plans/two-phase-pays.toml", include_str!("../../plans/two-phase-pays.toml")),
    ("plans/arrivals.toml", include_str!("../../plans/arrivals.toml")),
    ("plans/read-cache.toml", include_str!("../../plans/read-cache.toml")),
    ("plans/racks.toml", include_str!("../../plans/racks.toml")),
    ("plans/blocks-2006.toml", include_str!("../../plans/blocks-2006.toml")),
    ("plans/creates-2006.toml", include_str!("../../plans/creates-2006.toml")),
    ("plans/large-2006.toml", include_str!("../../plans/large-2006.toml")),
    ("profiles/pvfs2-2006.toml", include_str!("../../profiles/pvfs2-2006.toml")),
    ("plans/scale-creates.toml", include_str!("../../plans/scale-creates.toml")),
    ("plans/scale-processes.toml", include_str!("../../plans/scale-processes.toml")),
    ("plans/stress.toml", include_str!("../../plans/stress.toml")),
    ("plans/small-trees.toml", include_str!("../../plans/small-trees.toml")),
    ("plans/mounts-files.toml", include_str!("../../plans/mounts-files.toml")),
    ("plans/mounts-streams.toml", include_str!("../../plans/mounts-streams.toml")),
    ("plans/mounts-mpi.toml", include_str!("../../plans/mounts-mpi.toml")),
    ("plans/read-again.toml", include_str!("../../plans/read-again.toml")),
    ("plans/nfs.toml", include_str!("../../plans/nfs.toml")),
    ("plans/doors.toml", include_str!("../../plans/doors.toml")),
    ("plans/mdtest.toml", include_str!("../../plans/mdtest.toml")),
    ("plans/scale-traces.toml", include_str!("../../plans/scale-traces.toml")),
    ("plans/scale-better.toml", include_str!("../../plans/scale-better.toml")),
    ("plans/scale-weft.toml", include_str!("../../plans/scale-weft.toml")),
    ("plans/dnfsp-split.toml", include_str!("../../plans/dnfsp-split.toml")),
    ("plans/transfers.toml", include_str!("../../plans/transfers.toml")),
    ("profiles/i-cluster2.toml", include_str!("../../profiles/i-cluster2.toml")),
    ("profiles/scale-2016.toml", include_str!("../../profiles/scale-2016.toml")),
    ("profiles/pvs-2007.toml", include_str!("../../profiles/pvs-2007.toml")),
    ("profiles/pvs-2009.toml", include_str!("../../profiles/pvs-2009.toml")),
    ("profiles/modern.toml", include_str!("../../profiles/modern.toml")),
];

/// Cases that one plan may have.
const CASES_MAX: usize = 100_000;
const CASES_MAX_WIDE: u128 = CASES_MAX as u128 + 1;

/// Where plans and profiles lie: a folder `lab`, and what is built in.
#[derive(Clone, Debug)]
pub struct Lab {
    /// The folder, with `plans` and `profiles` in it.
    pub folder: PathBuf,
}

/// A plan or profile as it was found.
struct Found {
    name: String,
    folder: PathBuf,
    text: String,
}

impl Lab {
    /// The laboratory in a folder; if there are neither plans nor profiles in it, the one of that
    /// name in a directory above the program, if there is one: a build knows the tree that it was
    /// made in from wherever it is run. Directories above the working directory are not searched:
    /// others may have planted one there.
    pub fn near(folder: PathBuf) -> Lab {
        let has_any = |lab: &PathBuf| lab.join("plans").is_dir() || lab.join("profiles").is_dir();
        if folder.is_absolute() || has_any(&folder) {
            return Lab { folder };
        }
        let program = std::env::current_exe().ok();
        let mut above = program.iter().flat_map(|program| program.ancestors().map(|directory| directory.join(&folder)));
        let found = above.find(has_any);
        Lab { folder: found.unwrap_or(folder) }
    }

    /// What is part of the program, and nothing else.
    pub fn built_in() -> Lab {
        // No folder can be there.
        Lab { folder: PathBuf::from("/dev/null/lab") }
    }

    /// A plan or profile (`kind`) by its name or by the path of its file.
    fn find(&self, kind: &str, name: &str) -> Result<Found> {
        let is_path = name.contains('/') || name.ends_with(".toml");
        let path = if is_path { PathBuf::from(name) } else { self.folder.join(kind).join(format!("{name}.toml")) };
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Found { name: path.display().to_string(), folder: path.parent().unwrap_or(Path::new("")).to_path_buf(), text }),
            Err(error) if !is_path && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                let built_in = BUILT_IN.iter().find(|(file, _)| *file == format!("{kind}/{name}.toml"));
                let (file, text) = built_in.ok_or_else(|| anyhow!("there is no {name} among the {kind}: `weft sim list` shows them"))?;
                Ok(Found { name: format!("built-in {file}"), folder: self.folder.join(kind), text: text.to_string() })
            }
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Kind, name and description of every plan and profile, each once: the one in the folder wins
    /// over the one built in.
    ///
    /// # Errors
    /// A file cannot be read, or is not TOML.
    pub fn list(&self) -> Result<Vec<(String, String, String)>> {
        let mut all = Vec::new();
        for kind in ["plans", "profiles"] {
            let mut names: Vec<String> = std::fs::read_dir(self.folder.join(kind))
                .into_iter()
                .flatten()
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.strip_suffix(".toml").map(str::to_string))
                .collect();
            let built_in = BUILT_IN.iter().filter_map(|(file, _)| file.strip_prefix(kind)?.strip_prefix('/')?.strip_suffix(".toml"));
            names.extend(built_in.map(str::to_string));
            names.sort();
            names.dedup();
            for name in names {
                let found = self.find(kind, &name)?;
                let document = Document::new(&found.name, found.text);
                let description = document.root()?.value("description", text)?.unwrap_or_default();
                all.push((kind.trim_end_matches('s').to_string(), name, description));
            }
        }
        Ok(all)
    }

    /// The text of a plan as it is found.
    ///
    /// # Errors
    /// It is not there.
    pub fn text_of_plan(&self, name: &str) -> Result<String> {
        Ok(self.find("plans", name)?.text)
    }

    /// A plan with the profiles that it names. A `seed` given here wins over the plan's, and so
    /// does each `KEY=VALUE` of `set`.
    ///
    /// # Errors
    /// It is not there, is not TOML, or `set` is not of this form.
    pub fn plan(&self, name: &str, set: &[String], seed: Option<u64>) -> Result<Plan> {
        let found = self.find("plans", name)?;
        let document = Document::new(&found.name, found.text).with(set)?;
        let mut profiles: Vec<(String, Document)> = Vec::new();
        let root = document.root()?;
        let nodes = root.tables("nodes")?;
        for table in std::iter::once(&root).chain(&nodes) {
            for name in table.all("profile", text)? {
                let found = self.find("profiles", &name).map_err(|problem| table.error("profile", &format!("{problem:#}")))?;
                profiles.push((name, Document::new(&found.name, found.text)));
            }
        }
        Ok(Plan { name: found.name, document, profiles, folder: found.folder, seed })
    }
}

/// A plan with its profiles, read anew for every case: a case of a large plan would fill the memory
/// if all were kept.
pub struct Plan {
    /// Its name, for errors.
    pub name: String,
    document: Document,
    profiles: Vec<(String, Document)>,
    /// Where it lies: its paths count from here.
    pub folder: PathBuf,
    /// Given on the command line.
    pub seed: Option<u64>,
}

impl Plan {
    /// The outermost table.
    ///
    /// # Errors
    /// The text is not TOML.
    pub fn root(&self) -> Result<Table<'_>> {
        self.document.root()
    }

    /// The profile that a case names, or nodes of it: `root` is the table with the key.
    ///
    /// # Errors
    /// The plan names none of those that it named first.
    pub fn profile(&self, root: &Table<'_>, choices: &mut Choices) -> Result<Option<Table<'_>>> {
        let chosen = root.swept("profile", choices, text)?;
        let profile = chosen.and_then(|chosen| self.profiles.iter().find(|(name, _)| *name == chosen));
        let profile = profile.map(|(_, document)| document.root()).transpose()?;
        if let Some(profile) = &profile {
            profile.value("description", text)?;
        }
        Ok(profile)
    }

    /// An error about a key with the names of its tables before it. Of several tables of a name the
    /// first one that has the key is meant.
    fn error_at(&self, key: &str, message: &str) -> anyhow::Error {
        let find = || {
            let (mut table, mut rest) = (self.root().ok()?, key);
            while let Some((name, inner)) = rest.split_once('.') {
                let next = inner.split('.').next().unwrap_or(inner);
                table = match table.tables(name) {
                    Ok(tables) => tables.into_iter().find(|table| table.has(next))?,
                    Err(_) => table.table(name).ok()?,
                };
                rest = inner;
            }
            Some(table.error(rest, message))
        };
        find().unwrap_or_else(|| anyhow!("{}: {key}: {message}", self.name))
    }

    /// All cases; `read` reads one.
    ///
    /// # Errors
    /// Names file, line and key of what is wrong.
    pub fn cases<C>(self, read: impl Fn(&Plan, &mut Choices) -> Result<C>) -> Result<Vec<CaseSource>> {
        let plan = Arc::new(self);
        let mut cases = Vec::new();
        let mut choices = Choices::default();
        loop {
            let picked = choices.picked();
            read(&plan, &mut choices)?;
            if let (CASES_MAX_WIDE.., Some(key)) = choices.combinations() {
                return Err(plan.error_at(key, &format!("with its values there are more than {CASES_MAX} cases")));
            }
            let (parameters, more) = choices.next_case();
            cases.push(CaseSource { plan: plan.clone(), picked, parameters });
            if !more {
                plan.document.finish()?;
                return Ok(cases);
            }
            if cases.len() == CASES_MAX {
                return Err(anyhow!("{}: more than {CASES_MAX} cases", plan.name));
            }
        }
    }
}

/// One case of a plan.
pub struct CaseSource {
    plan: Arc<Plan>,
    picked: Vec<(usize, usize)>,
    /// The keys that stand for several values, and the values of this case.
    pub parameters: Vec<(String, String)>,
}

impl CaseSource {
    /// The plan and the values of this case, for errors.
    pub fn describe(&self) -> String {
        let values: Vec<String> = self.parameters.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        if values.is_empty() { self.plan.name.clone() } else { format!("{} with {}", self.plan.name, values.join(", ")) }
    }

    /// Reads the case again.
    ///
    /// # Errors
    /// As [`Plan::cases`].
    pub fn build<C>(&self, read: impl Fn(&Plan, &mut Choices) -> Result<C>) -> Result<C> {
        read(&self.plan, &mut Choices::repeat(self.picked.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files_of(folder: &str) -> Vec<String> {
        let all = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder)).expect("a folder of the laboratory");
        let names = all.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name in UTF-8"));
        names.filter(|name| name.ends_with(".toml")).collect()
    }

    #[test]
    fn every_plan_and_profile_is_part_of_the_program() {
        for kind in ["plans", "profiles"] {
            for name in files_of(kind) {
                let file = format!("{kind}/{name}");
                assert!(BUILT_IN.iter().any(|(built_in, _)| *built_in == file), "{file} is not in BUILT_IN");
            }
        }
    }

    #[test]
    fn every_plan_that_a_paper_names_works_without_any_file() {
        let mut named = 0;
        for paper in files_of("papers") {
            let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../papers").join(&paper)).expect("read");
            let commands = text.lines().filter_map(|line| line.strip_prefix("command = \"weft ")?.split_once(" run "));
            for (_, rest) in commands {
                let name = rest.split([' ', '"']).next().unwrap_or_default();
                // A path is for a result that needs a trace beside the tree.
                if name.contains('/') {
                    continue;
                }
                Lab::built_in().text_of_plan(name).unwrap_or_else(|problem| panic!("{paper}: {problem:#}"));
                named += 1;
            }
        }
        assert!(named > 20, "only {named} commands of papers name a plan");
    }
}
