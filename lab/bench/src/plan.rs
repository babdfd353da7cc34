//! `weft bench run`: an experiment of a plan on this machine. The values that a plan's keys about
//! the file system stand for are file systems side by side; for each combination of its keys about
//! the work they take turns, so that whatever else happens meets all alike, and each repetition is
//! held against the one of the first file system beside it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};
use weft_ceiling::cpu::Pinned;
use weft_host::connect::Common;
use weft_host::output::{print, print_json};
use weft_plan::files::Lab;
use weft_workload::Workload;

use crate::crew::Stop;
use crate::experiment::{Done, Experiment, Schedule};
use crate::findings::{Row, rows, table};
use crate::run::{say, temporary_dir};
use crate::setup::{Load, Pace, Place, Variant, processors, read};

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A plan is a TOML file, or the name of one among `weft sim list`. Each of its keys may stand for several values. With direct I/O the
operations of the disks stand beside those that the simulator predicts for the same calls: of clients that take no time between them, and
of clients as slow as those of the layer none.

Examples:
  weft bench run engines --reps 9
  weft bench run tracing --reps 24 --set workload.window=1 --set workload.files=20000
  weft bench run layers --set local.direct_io=true --set server.cache_layer=none,server_directed --dir /mnt/disk")]
pub struct Args {
    /// Name or file of the plan
    plan: String,
    /// Another value of a key of the plan, with the table before it; commas make a list
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Repetitions [default: what the plan says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: Option<u32>,
    /// Where the file systems are [default: where temporary files are]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Folder with plans/; what is not there is taken from the program itself
    #[arg(long, default_value = "lab")]
    lab: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Measures and prints.
    ///
    /// # Errors
    /// If the plan makes no sense, a file system cannot be started or fails, or gives other bytes
    /// than were written.
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        let lab = Lab::near(self.lab);
        let plan = LocalPlan { lab: &lab, name: &self.plan, set: &self.set, repetitions: self.reps, dir: self.dir.as_deref() };
        let found = plan.measure(common, &Stop::at_signals()?)?;
        if self.json {
            print_json(&found.iter().map(Row::json).collect::<Result<Vec<_>, _>>()?)?;
        } else {
            print(&table(&found))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A plan for this machine.
#[derive(Clone, Copy, Debug)]
pub struct LocalPlan<'a> {
    /// Where plans lie.
    pub lab: &'a Lab,
    /// Name or file of the plan.
    pub name: &'a str,
    /// Other values of its keys, each `KEY=VALUE`.
    pub set: &'a [String],
    /// Repetitions, if not as many as the plan says.
    pub repetitions: Option<u32>,
    /// Where the file systems are, if not where temporary files are.
    pub dir: Option<&'a Path>,
}

impl LocalPlan<'_> {
    /// Does it, on temporary file systems.
    ///
    /// # Errors
    /// If the plan makes no sense, a file system cannot be started or fails, or gives other bytes
    /// than were written.
    pub fn measure(&self, common: &Common, stop: &Stop) -> Result<Vec<Row>> {
        let (variants, loads) = self.cases()?;
        let pace = self.pace()?;
        // What starts now stays on them.
        let processors = self.processors()?;
        let _pinned = processors.map(|count| Pinned::to(0, count as usize)).transpose().context("local.processors")?;
        let place = temporary_dir(self.dir)?;
        let experiment = Experiment { variants, place: place.path(), stop, common, rest: pace.rest, before_each: None, over: None };
        let mut schedule =
            ThereAndBack { pace, number: 0, done: Vec::new(), loads: &loads, variants: &experiment.variants, found: Vec::new() };
        experiment.run(loads.iter().map(|(_, work)| work), &mut schedule)?;
        Ok(schedule.found)
    }

    /// The processors of this machine on which it runs, if not on all.
    ///
    /// # Errors
    /// If the plan makes no sense.
    pub fn processors(&self) -> Result<Option<u32>> {
        processors(&self.lab.plan(self.name, self.set, None)?)
    }

    /// How often it is repeated.
    ///
    /// # Errors
    /// If the plan makes no sense.
    pub fn pace(&self) -> Result<Pace> {
        let pace = Pace::of(&self.lab.plan(self.name, self.set, None)?)?;
        pace.rest.check()?;
        let given = |count| Pace { least: count, most: if pace.within.is_some() { count.max(pace.most) } else { count }, ..pace };
        Ok(self.repetitions.map_or(pace, given))
    }

    /// File systems and workloads, each in the order of the plan.
    ///
    /// # Errors
    /// If the plan makes no sense.
    pub fn cases(&self) -> Result<(Vec<Variant>, Vec<Load>)> {
        let plan = self.lab.plan(self.name, self.set, None)?;
        let (mut variants, mut loads): (Vec<Variant>, Vec<Load>) = Default::default();
        for case in plan.cases(read)? {
            let (setup, mut work) = case.build(read)?;
            if let Some(commands) = &mut work.steps.commands {
                // Beside plans may lie what their commands need.
                let folder = std::path::absolute(&self.lab.folder)?;
                check_trusted(&folder)?;
                commands.values.push(("LAB".into(), folder.to_string_lossy().into_owned()));
            }
            let values = |is_work: bool| {
                let ours = case.parameters.iter().filter(|(key, _)| is_about_work(key) == is_work);
                let value = |text: &str| text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from);
                ours.map(|(key, text)| (key.clone(), value(text))).collect::<Map<String, Value>>()
            };
            if !variants.iter().any(|known| known.setup == setup) {
                variants.push(Variant { values: values(false), setup, place: Place::Temporary });
            }
            if !loads.iter().any(|(_, known)| *known == work) {
                loads.push((values(true), work));
            }
        }
        Ok((variants, loads))
    }
}

/// Once from the first file system to the last, then once from the last to the first, so that
/// nobody is always the second.
struct ThereAndBack<'w> {
    pace: Pace,
    /// Repetitions of this workload so far.
    number: u32,
    done: Vec<Option<Done>>,
    loads: &'w [Load],
    variants: &'w [Variant],
    found: Vec<Row>,
}

impl<'w> Schedule<'w> for ThereAndBack<'w> {
    fn next(&mut self, work: &'w Workload) -> Result<Option<Vec<usize>>> {
        self.done.resize_with(self.variants.len(), || None);
        let rates = |done: &Done| done.steps.iter().map(|(step, _)| step.rates()).collect::<Vec<_>>();
        let known: Vec<Vec<Vec<f64>>> = self.done.iter().flatten().map(rates).collect();
        if self.pace.is_enough(self.number, &known) {
            let done: Vec<Done> = std::mem::take(&mut self.done).into_iter().flatten().collect();
            let parameters = self.loads.iter().find(|(_, known)| std::ptr::eq(known, work)).map(|(parameters, _)| parameters);
            self.found.extend(rows(self.variants, parameters.context("a workload of this plan")?, work, &done)?);
            self.number = 0;
            return Ok(None);
        }
        self.number += 1;
        let there = 0..self.variants.len();
        Ok(Some(if self.number % 2 == 1 { there.collect() } else { there.rev().collect() }))
    }

    fn told(&mut self, _: &'w Workload, variant: usize, one: Done) -> Result<()> {
        for (measurement, _) in &one.steps {
            measurement.repetitions.iter().for_each(|repetition| say(&measurement.phase, self.number, self.pace.least, repetition));
        }
        match &mut self.done[variant] {
            Some(before) => before.absorb(one),
            known => *known = Some(one),
        }
        Ok(())
    }
}

/// Commands are not taken from a folder in which somebody else may have put them.
fn check_trusted(folder: &Path) -> Result<()> {
    let mine = [0, nix::unistd::geteuid().as_raw()];
    for folder in [folder.to_path_buf(), folder.join("plans")] {
        // What is not there is built in.
        let Ok(found) = std::fs::metadata(&folder) else { continue };
        ensure!(
            mine.contains(&found.uid()) && found.mode() & 0o002 == 0,
            "{} belongs to somebody else, or everybody may write there: no commands are taken from it (give another --lab)",
            folder.display()
        );
    }
    Ok(())
}

/// True for keys that change what clients do and not the file system, or the way to it.
fn is_about_work(key: &str) -> bool {
    let is_of_setup = matches!(key, "workload.protocol" | "workload.no_metafile");
    (key.starts_with("workload.") && !is_of_setup) || key == "clients" || key == "local.threads"
}

#[cfg(test)]
mod tests {
    use weft_host::config::{Durability, Engine};
    use weft_workload::WorkStep;

    use super::*;

    fn cases(plan: &str, set: &[&str]) -> Result<(Vec<Variant>, Vec<Load>)> {
        let set: Vec<String> = set.iter().map(|word| word.to_string()).collect();
        let lab = Lab { folder: "/no/such/folder".into() };
        LocalPlan { lab: &lab, name: plan, set: &set, repetitions: None, dir: None }.cases()
    }

    #[test]
    fn plans_are_file_systems_and_workloads() {
        let (engines, loads) = cases("engines", &[]).expect("a good plan");
        let of = |variant: &Variant| (variant.setup.engine, variant.setup.durability);
        let kept = |engine| [Durability::None, Durability::Batch, Durability::Sync].map(|durability| (engine, durability));
        let all = [&[(Engine::Memory, Durability::None)][..], &kept(Engine::Journal), &kept(Engine::Db)].concat();
        assert_eq!(engines.iter().map(of).collect::<Vec<_>>(), all);
        assert_eq!((loads.len(), loads[0].1.files, loads[0].1.depth, loads[0].1.repetitions), (1, 100_000, 64, 5));
        assert_eq!(loads[0].1.steps, weft_workload::Steps::of(WorkStep::Create));

        let (layers, loads) = cases("layers", &["server.cache_layer=none,server_directed", "local.direct_io=true"]).expect("a good plan");
        assert!(
            layers[1].setup.up().join(" ").ends_with("--stripe-size 65536 --cache-layer server_directed --direct-io"),
            "{:?}",
            layers[1]
        );
        assert_eq!((layers.len(), loads.len(), loads[0].1.procs), (2, 3 * 3 * 2, 10));
        assert_eq!(loads[1].0["workload.access"], "read");

        let (engines, loads) = cases("creates-engines", &[]).expect("a good plan");
        assert_eq!((engines.len(), loads.len()), (7, 2 * 3), "memory, and three engines under two contracts");
        assert!(engines.iter().all(|variant| variant.setup.restart));
        assert!(loads.iter().any(|(_, work)| (work.procs, work.files) == (5, 640)), "3200 files of all");
        let (engines, loads) = cases("blocks-engines", &[]).expect("a good plan");
        assert_eq!((engines.len(), loads.len()), (2, 2 * 7 * 2));

        let (engines, loads) = cases("engines", &["clients=1,4", "local.threads=2", "weft.engine=memory"]).expect("a good plan");
        assert_eq!((engines.len(), loads.len(), loads[1].1.clients_in_all()), (1, 2, 8));
        assert_eq!(loads[1].0["clients"], 4);

        let (recorded, _) = cases("tracing", &[]).expect("a good plan");
        assert_eq!(recorded.iter().map(|variant| variant.setup.record.as_deref()).collect::<Vec<_>>(), [None, Some("*")]);
        assert_eq!(recorded[0].setup.up(), recorded[1].setup.up(), "one file system");
        let wrong = cases("engines", &["weft.engine=nonsense"]).expect_err("no engine").to_string();
        assert!(wrong.contains("weft.engine: unknown variant `nonsense`"), "{wrong}");
    }
}
