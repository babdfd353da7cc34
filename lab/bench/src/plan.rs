//! Experiments of plans on this machine. The values that a plan's keys about the file system stand
//! for are file systems side by side; for each combination of its keys about the work they take
//! turns, so that whatever else happens meets all alike, and each repetition is held against the
//! one of the first file system beside it. `weft bench run` does one on temporary file systems.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};
use weft_ceiling::cpu::Pinned;
use weft_host::connect::Common;
use weft_host::output::{print_as, tell};
use weft_plan::files::Lab;
use weft_workload::drawn_order;

use crate::crew::{Over, Stop};
use crate::environment::Environment;
use crate::experiment::Experiment;
use crate::findings::predict;
use crate::order::Written;
use crate::results::{Asked, Growing, Line};
use crate::run::temporary_dir;
use crate::setup::{Load, Pace, Place, Variant, processors, read, unread};
use crate::summary::Summary;

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
    pub fn run(self, common: &Common) -> Result<()> {
        let lab = Lab::near(self.lab);
        let plan = LocalPlan { lab: &lab, name: &self.plan, set: &self.set, repetitions: self.reps, dir: self.dir.as_deref() };
        told_keys(&self.set).iter().for_each(|sentence| tell(sentence));
        let found = plan.measure(common, &Stop::at_signals()?)?;
        Ok(print_as(self.json, &found.json()?, || found.text())?)
    }
}

/// Says which of these `KEY=VALUE` change nothing on this machine.
pub fn told_keys(set: &[String]) -> Vec<String> {
    unread(set.iter().filter_map(|words| Some(words.split_once('=')?.0)))
}

/// Who takes part in a plan, and how.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// The file systems.
    pub variants: &'a [Variant],
    /// What is done on them.
    pub loads: &'a [Load],
    /// The orders of cases and file systems follow from it.
    pub seed: u64,
    /// Hosts of the processes, if not this one.
    pub over: Option<&'a Over>,
    /// Run by the shell before each repetition.
    pub before_each: Option<&'a OsStr>,
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
    pub fn measure(&self, common: &Common, stop: &Stop) -> Result<Summary> {
        let (variants, loads) = self.cases()?;
        let places = variants.iter().map(|variant| format!("{}=temporary", variant.name())).collect();
        let asked = Asked { plan: self.name.to_string(), set: self.set.to_vec(), places, ..Asked::default() };
        let mut found = Growing::default();
        found.add(Line::session(0, asked, Environment::look(&[])))?;
        let session = Session { variants: &variants, loads: &loads, seed: 0, over: None, before_each: None };
        self.go_on(&session, &mut found, common, stop)?;
        let mut summary = Summary::of(&found.known);
        predict(&mut summary.rows, &variants, &loads)?;
        Ok(summary)
    }

    /// Does what results lack.
    ///
    /// # Errors
    /// As [`LocalPlan::measure`]; results that cannot be written down.
    pub fn go_on(&self, session: &Session<'_>, file: &mut Growing, common: &Common, stop: &Stop) -> Result<()> {
        let Session { variants, loads, seed, over, before_each } = *session;
        let plan = self.lab.plan(self.name, self.set, None)?;
        let pace = self.pace()?;
        let names: Vec<String> = variants.iter().map(Variant::name).collect();
        let hosts = over.map_or(0, |over| over.hosts.len());
        let progress = std::io::stderr().is_terminal().then(|| (Instant::now(), 0));
        let mut schedule = Written { file, loads, places: &names, variants, seed, pace, hosts, progress, repetition: 0 };
        let missing: Vec<usize> = drawn_order(seed, loads.len()).into_iter().filter(|case| schedule.is_wanted(*case)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // What starts now stays on them.
        let _pinned = processors(&plan)?.map(|count| Pinned::to(0, count as usize)).transpose().context("local.processors")?;
        let place = temporary_dir(self.dir)?;
        let experiment = Experiment { variants: variants.to_vec(), place: place.path(), stop, common, rest: pace.rest, before_each, over };
        experiment.run(&missing, &mut schedule)
    }

    /// How often it is repeated.
    ///
    /// # Errors
    /// If the plan makes no sense.
    fn pace(&self) -> Result<Pace> {
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
        // A slip is no other engine.
        for (set, said) in [
            ("weft.engin=memory", "weft.engin: no such key; here may stand access_spread"),
            ("wft.engine=memory", "wft.engine: no such key: there is no table wft here"),
            ("server.cachelayer=none", "server.cachelayer: no such key"),
        ] {
            let wrong = cases("engines", &[set]).expect_err("no such key").to_string();
            assert!(wrong.contains(said), "{wrong}");
        }
        let wrong = cases("mixed-disks", &[]).expect_err("of models").to_string();
        assert!(wrong.contains("nodes: is for `weft sim run`"), "{wrong}");
        let told = told_keys(&["network.packet=1", "weft.send=1us", "weft.engine=db", "profile=modern", "clients=1"].map(String::from));
        assert!(told.len() == 3 && told[1] == "weft.send changes nothing here: it is for models and virtual time", "{told:?}");
        let wrong = cases("engines", &["weft.engine=nonsense"]).expect_err("no engine").to_string();
        assert!(wrong.contains("weft.engine: unknown variant `nonsense`"), "{wrong}");
        let wrong = cases("engines", &["stripe=0"]).expect_err("no stripe").to_string();
        assert!(wrong.contains("must be above 0"), "{wrong}");
    }
}
