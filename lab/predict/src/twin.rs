//! The twin: the profile of this machine, where it is kept, how far predictions by it were off so
//! far, and what it says of one setting.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use weft_host::hosts::machine_name;
use weft_host::state::in_file_name;
use weft_lab_sim::virtual_phases;
use weft_plan::document::Document;
use weft_plan::files::Lab;
use weft_plan::units;

use crate::run::path_of;

/// Errors that a profile keeps: the newest.
const ERRORS_MAX: usize = 200;
/// Where they stand in the file.
const SEEN: &str = "\n[seen]\n";

/// A machine that is simulated.
pub(crate) struct Twin {
    /// Its profile.
    pub profile: PathBuf,
    /// What was predicted by what was measured, less 1, of each setting so far.
    pub errors: Vec<f64>,
    text: String,
    lab: Lab,
}

/// Operations a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    /// If each message wakes a processor that sleeps.
    pub apart: f64,
    /// If who waits for each other runs on one processor.
    pub together: f64,
}

impl Rates {
    /// One operation a second.
    pub const ONE: Rates = Rates { apart: 1.0, together: 1.0 };

    /// What was predicted by what was measured, less 1: 0 between the two.
    pub fn error(self, measured: f64) -> f64 {
        let (low, high) = (self.apart.min(self.together), self.apart.max(self.together));
        measured.clamp(low, high) / measured - 1.0
    }

    /// How much better than others, whatever the kernel chooses.
    pub fn over(self, other: Rates) -> f64 {
        (self.apart / other.apart).min(self.together / other.together)
    }
}

/// Where the profile of this machine is kept if nobody says another place: a home may be that of
/// several machines.
pub(crate) fn usual_profile() -> Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".config"));
    let folder = absolute("XDG_CONFIG_HOME").or_else(home).context("this user has no home directory: name the file of the profile")?;
    Ok(folder.join("weft").join(format!("machine-{}.toml", in_file_name(&machine_name()))))
}

impl Twin {
    /// The machine of this profile, or of the one that is kept; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be read, or is no profile.
    pub fn open(profile: Option<&Path>) -> Result<Option<Twin>> {
        let (profile, is_asked) = match (profile, usual_profile()) {
            (Some(profile), _) => (profile.to_path_buf(), true),
            (None, Ok(usual)) => (usual, false),
            (None, Err(_)) => return Ok(None),
        };
        let text = match fs::read_to_string(&profile) {
            Err(error) if !is_asked && error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| profile.display().to_string())?,
        };
        let document = Document::new(&profile.display().to_string(), text.clone());
        let errors = document.root()?.table("seen")?.all("errors", units::number)?;
        if errors.iter().any(|error| !error.is_finite()) {
            bail!("{}: seen.errors: is no list of errors", profile.display());
        }
        Ok(Some(Twin { profile, errors, text, lab: Lab::built_in() }))
    }

    /// A time of the profile, in seconds.
    pub fn seconds(&self, section: &str, key: &str) -> Option<f64> {
        Document::new("", self.text.clone()).root().ok()?.table(section).ok()?.value(key, units::seconds).ok()?
    }

    /// A rate of the profile, in bytes a second.
    pub fn bytes(&self, section: &str, key: &str) -> Option<u64> {
        Document::new("", self.text.clone()).root().ok()?.table(section).ok()?.value(key, units::bytes).ok()?
    }

    /// As values of a plan.
    pub fn machine(&self) -> [String; 2] {
        ["system=weft".to_string(), format!("profile={}", path_of(&self.profile))]
    }

    /// What a step of the plan `probes` would reach with these values; later ones win.
    ///
    /// # Errors
    /// The values make no sense, or something of the profile is missing.
    pub fn rates(&self, step: &str, values: &[String]) -> Result<Rates> {
        let rate = |more: &[String]| {
            let phases = virtual_phases(&self.lab, "probes", &[&self.machine()[..], values, more].concat())?;
            let phase = phases.iter().find(|phase| phase.results.get("phase").and_then(Value::as_str) == Some(step));
            let rate = phase.and_then(|phase| phase.results.get("operations_per_second")).and_then(Value::as_f64);
            rate.with_context(|| format!("a simulated {step} has no rate"))
        };
        Ok(Rates { apart: rate(&[])?, together: rate(&["process.wake=0ns".into()])? })
    }

    /// Keeps how far predictions were off, in the profile itself.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn remember(&mut self, errors: impl IntoIterator<Item = f64>) -> Result<()> {
        self.errors.extend(errors.into_iter().filter(|error| error.is_finite()));
        self.errors.drain(..self.errors.len().saturating_sub(ERRORS_MAX));
        let machine = self.text.split_once(SEEN).map_or(self.text.as_str(), |(machine, _)| machine);
        self.text = format!("{machine}{}", seen(&self.errors));
        write(&self.profile, &self.text)
    }
}

/// The end of a profile.
pub(crate) fn seen(errors: &[f64]) -> String {
    let numbers: Vec<String> = errors.iter().map(|error| format!("{error:.3}")).collect();
    format!("{SEEN}# What was predicted by what was measured, less 1, of each setting so far.\nerrors = [{}]\n", numbers.join(", "))
}

/// Writes a profile whole or not at all.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    weft_host::config::write_in_one_step(path, text.as_bytes(), 0o644)
}
