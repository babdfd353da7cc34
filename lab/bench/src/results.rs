//! Results: a line for each thing that happened, and the file of them, which has each line as JSON
//! as soon as it has happened. A line that was cut off by a crash is left out.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weft_analysis::results::Phase;
use weft_host::in_order::once_each;

use crate::environment::Environment;
use crate::usage::Used;

/// Version of the form. A reader takes this one and those before it.
const SCHEMA: u32 = 2;
/// Bytes of the longest line.
const LINE_MAX: u64 = 4 << 20;
/// Lines of one file.
const LINES_MAX: usize = 4_000_000;

/// What is asked for: the same command goes on with the same file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Name of the plan.
    pub plan: String,
    /// Its text.
    pub text: String,
    /// Other values of its keys.
    pub set: Vec<String>,
    /// Names of places and what they are, such as `ext4=path /srv`.
    pub places: Vec<String>,
    /// Hosts of the processes; none: this one.
    pub hosts: Vec<String>,
    /// Run before each repetition at a place.
    pub before_each: Option<String>,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum Line {
    /// The command was started.
    Session {
        /// Version of the form.
        schema: u32,
        /// Seconds since 1970.
        at: u64,
        /// The order of cases and places follows from it.
        seed: u64,
        /// What was asked for.
        asked: Asked,
        /// In which circumstances.
        environment: Box<Environment>,
    },
    /// A step of a case was done at a place.
    Run(Box<Run>),
    /// A host or a place failed and does nothing more in this session.
    Lost {
        /// Seconds since 1970.
        at: u64,
        /// The host, if one has gone.
        host: Option<String>,
        /// The place.
        place: Option<String>,
        /// Why.
        why: String,
    },
}

impl Line {
    /// The command is started now.
    pub fn session(seed: u64, asked: Asked, environment: Environment) -> Line {
        Line::Session { schema: SCHEMA, at: now(), seed, asked, environment: Box::new(environment) }
    }

    /// Somebody is lost now.
    pub fn lost(host: Option<String>, place: Option<String>, why: &str) -> Line {
        Line::Lost { at: now(), host, place, why: why.to_string() }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A step of a case at a place, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Number of the case, in the order of the plan; simulated ones have none.
    pub case: Option<usize>,
    /// Keys of the plan that stand for several values, and the values here.
    pub parameters: Map<String, Value>,
    /// Name of the place.
    pub place: String,
    /// Values that make the place another one than the others.
    #[serde(default)]
    pub own: Map<String, Value>,
    /// Repetition of this case, from 1.
    #[serde(alias = "turn")]
    pub repetition: u32,
    /// Hosts that took part; 0: this one.
    #[serde(default)]
    pub hosts: usize,
    /// Processes that were ready to run, over the minute before.
    #[serde(default)]
    pub load: f64,
    /// What was measured.
    pub phase: Phase,
    /// What the disks did, where Weft tells it.
    pub disk: Option<Used>,
    /// Of the whole repetition, if something was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<Records>,
}

/// Records that were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// In trace files.
    pub taken: u64,
    /// What a full ring refused.
    pub lost: u64,
}

/// All lines of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// In their order.
    pub lines: Vec<Line>,
}

impl Results {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is none of results, or one of a later version.
    pub fn read(path: &Path) -> Result<Results> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Results::parse(&file, path)?.0)
    }

    /// The lines, and bytes up to the end of the last whole one.
    fn parse(file: &File, path: &Path) -> Result<(Results, u64)> {
        let mut reader = BufReader::new(file);
        let (mut results, mut end) = (Results::default(), 0);
        loop {
            let mut line = Vec::new();
            reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).with_context(|| format!("cannot read {}", path.display()))?;
            let place = || format!("{}:{}", path.display(), results.lines.len() + 1);
            if line.last() != Some(&b'\n') {
                ensure!((line.len() as u64) < LINE_MAX, "{}: the line is longer than {LINE_MAX} bytes", place());
                ensure!(line.is_empty() || !results.lines.is_empty(), "{} holds no results of weft lab run", path.display());
                return Ok((results, end));
            }
            ensure!(results.lines.len() < LINES_MAX, "{}: more than {LINES_MAX} lines", path.display());
            let value: Value = serde_json::from_slice(&line).with_context(place)?;
            if let Some(schema) = value["schema"].as_u64()
                && schema > u64::from(SCHEMA)
            {
                bail!("{}: version {schema} of results; this program reads up to {SCHEMA}", place());
            }
            ensure!(!results.lines.is_empty() || value["is"] == "session", "{} holds no results of weft lab run", path.display());
            end += line.len() as u64;
            let line = Line::deserialize(&value).with_context(place)?;
            results.lines.push(line);
        }
    }

    /// All steps that were done.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.lines.iter().filter_map(|line| match line {
            Line::Run(run) => Some(&**run),
            Line::Session { .. } | Line::Lost { .. } => None,
        })
    }

    /// The first session's seed, question and circumstances.
    pub fn first(&self) -> Option<(u64, &Asked, &Environment)> {
        self.lines.iter().find_map(|line| match line {
            Line::Session { seed, asked, environment, .. } => Some((*seed, asked, &**environment)),
            Line::Run(_) | Line::Lost { .. } => None,
        })
    }

    /// The last repetition of a case, and how many all of these places have done together with so
    /// many hosts.
    pub fn repetitions(&self, case: usize, places: &[String], hosts: usize) -> (u32, u32) {
        let of_case = || self.runs().filter(|run| run.case == Some(case));
        let all: BTreeSet<u32> = of_case().map(|run| run.repetition).collect();
        let has = |repetition: u32, place: &String| {
            of_case().any(|run| run.repetition == repetition && run.place == *place && run.hosts == hosts)
        };
        let whole = all.iter().filter(|number| places.iter().all(|place| has(**number, place))).count();
        (all.last().copied().unwrap_or(0), whole as u32)
    }

    /// Rates of the whole repetitions of a case: by place and step.
    pub fn rates(&self, case: usize, places: &[String], hosts: usize) -> Vec<Vec<Vec<f64>>> {
        let of_case: Vec<&Run> = self.runs().filter(|run| run.case == Some(case) && run.hosts == hosts).collect();
        let steps = once_each(of_case.iter().map(|run| run.phase.phase.as_str()));
        let mut repetitions: BTreeSet<u32> = of_case.iter().map(|run| run.repetition).collect();
        let rate = |repetition: u32, place: &String, step: &str| {
            let found = of_case.iter().find(|run| run.repetition == repetition && run.place == *place && run.phase.phase == step);
            found.map(|run| run.phase.ops_per_s.median)
        };
        repetitions.retain(|number| places.iter().all(|place| steps.iter().all(|step| rate(*number, place, step).is_some())));
        let rates = |place: &String, step: &str| repetitions.iter().filter_map(|number| rate(*number, place, step)).collect();
        places.iter().map(|place| steps.iter().map(|step| rates(place, step)).collect()).collect()
    }
}

/// Results that grow, in a file if they are to be kept.
#[derive(Default)]
pub struct Growing {
    kept: Option<(PathBuf, File)>,
    /// What is in it.
    pub known: Results,
}

impl Growing {
    /// Opens a file, or makes it. Nobody else may write to it meanwhile.
    ///
    /// # Errors
    /// Somebody does, it cannot be written, or it is no file of results.
    pub fn open(path: &Path) -> Result<Growing> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file.with_context(|| format!("cannot write {}", path.display()))?;
        ensure!(file.metadata()?.is_file(), "{} is no file", path.display());
        file.try_lock().with_context(|| format!("another run writes to {}", path.display()))?;
        let (known, end) = Results::parse(&file, path)?;
        // What was cut off is written over.
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        Ok(Growing { kept: Some((path.to_path_buf(), file)), known })
    }

    /// Forgets all that is in it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn clear(&mut self) -> Result<()> {
        if let Some((path, file)) = &mut self.kept {
            file.set_len(0).and_then(|()| file.rewind()).with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.known = Results::default();
        Ok(())
    }

    /// Adds a line.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, line: Line) -> Result<()> {
        if let Some((path, file)) = &mut self.kept {
            let mut text = serde_json::to_string(&line).context("a line is always JSON")?;
            text.push('\n');
            file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.known.lines.push(line);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_the_form_before_are_read() {
        let line = |key: &str| {
            let rate = "{\"median\":1.0,\"min\":1.0,\"max\":1.0}";
            let phase = format!("{{\"phase\":\"create\",\"ops_per_s\":{rate}}}");
            format!("{{\"is\":\"run\",\"case\":0,\"parameters\":{{}},\"place\":\"a\",\"{key}\":3,\"phase\":{phase},\"disk\":null}}")
        };
        for key in ["turn", "repetition"] {
            let Line::Run(run) = serde_json::from_str(&line(key)).expect("a line") else { panic!("a run") };
            assert_eq!(run.repetition, 3);
            assert!(serde_json::to_string(&Line::Run(run)).expect("JSON").contains("\"repetition\":3"));
        }
    }
}
