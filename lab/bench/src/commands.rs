//! Commands of a plan: run by the shell in an empty directory of a place, and timed as a whole.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::UsageWho;
use weft_workload::{Commands, TimedCommand, Workload};

use crate::crew::Outcome;
use crate::experiment::Experiment;
use crate::meter::Tally;
use crate::order::Done;
use crate::report::{Measurement, Repetition};
use crate::results::Records;
use crate::run::shell;
use crate::setup::{Place, Variant};
use crate::site::Site;
use crate::usage::Used;
use crate::worker::cpu_us;

/// What is read of the output of a command at most.
const OUTPUT_MAX: u64 = 1 << 20;
/// What is shown of it when the command fails.
const SHOWN_MAX: usize = 2000;

/// A shell with what the commands of a plan need.
pub struct Shell<'a> {
    experiment: &'a Experiment<'a>,
    commands: &'a Commands,
    /// What was prepared; gone with this.
    source: tempfile::TempDir,
}

impl<'a> Shell<'a> {
    /// Runs what is to be run before everything.
    ///
    /// # Errors
    /// It fails, or processes are to be on other hosts.
    pub fn prepare(experiment: &'a Experiment<'a>, commands: &'a Commands) -> Result<Shell<'a>> {
        ensure!(experiment.over.is_none(), "commands are run on this machine: without --hosts, --slurm and --mpi");
        let source = tempfile::Builder::new().prefix("source-").tempdir_in(experiment.place).context("cannot make a folder")?;
        let shell = Shell { experiment, commands, source };
        if let Some(prepare) = &commands.prepare {
            shell.run(prepare, shell.source.path(), None).context("what the plan prepares")?;
        }
        Ok(shell)
    }

    /// All commands once, in a directory that was just made.
    ///
    /// # Errors
    /// One of them fails, or does not print its rate.
    pub fn repeat(&self, variant: &Variant, site: &Site, work: &Workload) -> Result<Done> {
        if let Some(command) = self.experiment.before_each {
            shell(command, &variant.name(), self.experiment.stop)?;
        }
        site.remove_dirs(work)?;
        site.make_dirs(work)?;
        let dir = PathBuf::from(site.root()).join(work.dir_name(0));
        let mut measured = Measurement::of(work);
        for (command, measurement) in self.commands.timed.iter().zip(&mut measured) {
            self.experiment.stop.check()?;
            if command.rests {
                self.experiment.rest.take()?;
                self.commands.before.iter().try_for_each(|before| self.run(before, &dir, Some(variant)).map(drop))?;
            }
            let outcome = self.timed(command, &dir, variant).with_context(|| command.name.clone())?;
            measurement.repetitions.push(Repetition { outcome, usage: None, ceiling: None });
        }
        let steps = measured.into_iter().map(|measurement| (measurement, Used::default())).collect();
        Ok(Done { steps, records: Records::default() })
    }

    fn timed(&self, command: &TimedCommand, dir: &Path, variant: &Variant) -> Result<Outcome> {
        let (cpu_before, begun) = (cpu_us(UsageWho::RUSAGE_CHILDREN)?, Instant::now());
        let output = self.run(&command.run, dir, Some(variant))?;
        let mut seconds = begun.elapsed().as_secs_f64();
        let mut tally = Tally { ops: command.operations, ..Tally::default() };
        if let Some(rate) = &command.rate {
            let found = rate.find(&output).with_context(|| format!("it printed no rate behind `{}`", rate.behind))?;
            seconds = command.operations as f64 / found;
            if rate.is_mib {
                tally = Tally { ops: 1, bytes: command.operations << 20, ..Tally::default() };
            }
        }
        Ok(Outcome {
            seconds,
            tally,
            progress: Vec::new(),
            cpu_us: cpu_us(UsageWho::RUSAGE_CHILDREN)?.saturating_sub(cpu_before),
            traffic: None,
        })
    }

    /// What it has printed.
    fn run(&self, text: &str, dir: &Path, variant: Option<&Variant>) -> Result<String> {
        let mut output = tempfile::tempfile().context("cannot keep the output of commands")?;
        let mut command = Command::new("sh");
        command.arg("-c").arg(text).current_dir(dir).envs(self.commands.values.iter().map(|(key, value)| (key, value)));
        command.env("SOURCE", self.source.path());
        if let Some(variant) = variant {
            command.env("WEFT_PLACE", variant.name());
            match &variant.place {
                Place::Word(word) => command.env("PLACE", word),
                _ => command.env("PLACE", dir),
            };
        }
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let ended = self.experiment.stop.status(&mut command)?;
        let said = read(&mut output)?;
        if !ended.success() {
            let cut = said.char_indices().rev().nth(SHOWN_MAX).map_or(0, |(at, _)| at);
            anyhow::bail!("`{}`: {ended}: {}", text.trim(), said[cut..].trim());
        }
        Ok(said)
    }
}

fn read(output: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    output.seek(SeekFrom::Start(0))?;
    output.take(OUTPUT_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
