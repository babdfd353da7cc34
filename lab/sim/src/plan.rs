//! Plans: TOML files that say what to simulate. Every key of a plan may stand for several values; a
//! plan means all combinations.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use weft_piosim::ClusterConfig;

use crate::cluster;
use crate::cluster::Ties;
use crate::document::{Choices, Document, Table, text};
use crate::units::name;
use crate::weft_system;
use crate::weft_system::WeftCase;
use crate::workload;
use crate::workload::Workload;

/// Plans and profiles that are part of the program: they work without any file.
const BUILT_IN: [(&str, &str); 12] = [
    ("plans/ties.toml", include_str!("../../plans/ties.toml")),
    ("plans/checkpoints.toml", include_str!("../../plans/checkpoints.toml")),
    ("plans/weft-creates.toml", include_str!("../../plans/weft-creates.toml")),
    ("plans/weft-lists-2009.toml", include_str!("../../plans/weft-lists-2009.toml")),
    ("plans/weft-streams.toml", include_str!("../../plans/weft-streams.toml")),
    ("plans/interleaved.toml", include_str!("../../plans/interleaved.toml")),
    ("plans/partdiff.toml", include_str!("../../plans/partdiff.toml")),
    ("plans/thousand.toml", include_str!("../../plans/thousand.toml")),
    ("plans/scale.toml", include_str!("../../plans/scale.toml")),
    ("plans/racks.toml", include_str!("../../plans/racks.toml")),
    ("profiles/pvs-2009.toml", include_str!("../../profiles/pvs-2009.toml")),
    ("profiles/modern.toml", include_str!("../../profiles/modern.toml")),
];

/// Cases that one plan may have.
const CASES_MAX: usize = 100_000;

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
    /// A plan or profile (`kind`) by its name or by the path of its file.
    fn find(&self, kind: &str, name: &str) -> Result<Found> {
        let is_path = name.contains('/') || name.ends_with(".toml");
        let path = if is_path { PathBuf::from(name) } else { self.folder.join(kind).join(format!("{name}.toml")) };
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Found { name: path.display().to_string(), folder: path.parent().unwrap_or(Path::new("")).to_path_buf(), text }),
            Err(error) if !is_path && error.kind() == std::io::ErrorKind::NotFound => {
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

    /// The cases of a plan. A `seed` given here wins over the plan's.
    ///
    /// # Errors
    /// Names file, line and key of what is wrong.
    pub fn cases(&self, plan: &str, seed: Option<u64>) -> Result<Vec<CaseSource>> {
        let found = self.find("plans", plan)?;
        let document = Document::new(&found.name, found.text);
        let mut profiles = Vec::new();
        for name in profile_names(&document.root()?)? {
            let found = self.find("profiles", &name)?;
            profiles.push((name, Document::new(&found.name, found.text)));
        }
        let source = std::sync::Arc::new(Source { name: found.name.clone(), document, profiles, folder: found.folder, seed });
        let mut cases = Vec::new();
        let mut choices = Choices::default();
        loop {
            let picked = choices.picked();
            source.read(&mut choices)?;
            let (parameters, more) = choices.next_case();
            cases.push(CaseSource { source: source.clone(), picked, parameters });
            if !more {
                return Ok(cases);
            }
            if cases.len() == CASES_MAX {
                return Err(anyhow!("{}: more than {CASES_MAX} cases", found.name));
            }
        }
    }
}

/// The profiles that a plan names; none if it names a cluster model instead.
fn profile_names(root: &Table<'_>) -> Result<Vec<String>> {
    let profiles = root.all("profile", text)?;
    let models = root.all("cluster_model", text)?;
    match (profiles.is_empty(), models.is_empty()) {
        (false, false) => Err(root.error("cluster_model", "a plan has a profile or a cluster model, not both")),
        (true, true) => Err(root.error("profile", "is missing: the name of a machine profile, such as \"pvs-2009\"")),
        _ => Ok(profiles),
    }
}

/// A plan with its profile, read anew for every case: a case of a large plan would fill the memory
/// if all were kept.
struct Source {
    /// Name of the plan, for errors.
    name: String,
    document: Document,
    /// The profiles that the plan names.
    profiles: Vec<(String, Document)>,
    folder: PathBuf,
    seed: Option<u64>,
}

/// One case of a plan.
pub struct CaseSource {
    source: std::sync::Arc<Source>,
    picked: Vec<(usize, usize)>,
    /// The keys that stand for several values, and the values of this case.
    pub parameters: Vec<(String, String)>,
}

/// A case, ready to be simulated.
pub enum Case {
    /// Programs and I/O servers as models.
    Model { config: Box<ClusterConfig>, workloads: Vec<Workload>, ties: Ties },
    /// Weft's own servers and clients.
    Weft(Box<WeftCase>),
}

/// What runs on the machines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum System {
    Model,
    Weft,
}

const SYSTEMS: [(&str, System); 2] = [("model", System::Model), ("weft", System::Weft)];

impl Source {
    fn read(&self, choices: &mut Choices) -> Result<Case> {
        let root = self.document.root()?;
        root.value("description", text)?;
        let chosen = root.swept("profile", choices, text)?;
        let profile = chosen.and_then(|chosen| self.profiles.iter().find(|(name, _)| *name == chosen));
        let profile = profile.map(|(_, document)| document.root()).transpose()?;
        if let Some(profile) = &profile {
            profile.value("description", text)?;
        }
        let model = match root.swept("cluster_model", choices, text)? {
            Some(path) => {
                Some(workload::read_model(&self.folder.join(&path)).map_err(|error| root.error("cluster_model", &format!("{error:#}")))?)
            }
            None => None,
        };
        let config = cluster::read(&root, profile.as_ref(), model, choices)?;
        let tables = root.tables("workload")?;
        if tables.is_empty() {
            return Err(root.error("workload", "is missing: a plan needs at least one [[workload]]"));
        }
        let ties = cluster::ties(&root, self.seed, choices)?;
        let case = match root.swept("system", choices, |value| name(value, &SYSTEMS))?.unwrap_or(System::Model) {
            System::Weft if ties != Ties::AsConfigured => {
                return Err(root.error("ties", "is for modelled servers; the order of Weft's own follows from `seed`"));
            }
            System::Weft => Case::Weft(Box::new(weft_system::read(&root, profile.as_ref(), &tables, &config, self.seed, choices)?)),
            System::Model => {
                // What Weft's own servers cost means nothing here.
                root.table("weft")?;
                profile.as_ref().map(|profile| profile.table("weft")).transpose()?;
                let read = |table: &Table<'_>| workload::read(table, &config, &self.folder, self.seed, choices);
                Case::Model { workloads: tables.iter().map(read).collect::<Result<Vec<_>>>()?, config: Box::new(config), ties }
            }
        };
        profile.iter().try_for_each(Table::finish)?;
        root.finish()?;
        Ok(case)
    }
}

impl CaseSource {
    /// The plan and the values of this case, for errors.
    pub fn describe(&self) -> String {
        let values: Vec<String> = self.parameters.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        if values.is_empty() { self.source.name.clone() } else { format!("{} with {}", self.source.name, values.join(", ")) }
    }

    /// Builds the case.
    ///
    /// # Errors
    /// As [`Lab::cases`].
    pub fn build(&self) -> Result<Case> {
        self.source.read(&mut Choices::repeat(self.picked.clone()))
    }
}
