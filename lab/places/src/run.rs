//! `weft lab run`: the repetitions of a plan.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};
use weft_analysis::results::{Phase, Spread};
use weft_bench::{
    Asked, Culprit, Environment, Gone, Growing, Line, Load, LocalPlan, Over, Place, Run, Session, Stop, Summary, Variant, told_keys,
};
use weft_host::connect::{Common, random};
use weft_host::hosts::{self, Launcher};
use weft_host::job;
use weft_host::output::tell;
use weft_lab_sim::{VirtualPhase, simulated};
use weft_plan::files::Lab;

use crate::show;

/// Run a plan on several places in turns
///
/// Each place does each case of the plan once in a repetition; the order of cases and of places is
/// drawn (the seed is in the results). Results are written when a repetition is over: the same
/// command goes on where it was interrupted, and prints what there is at the end. A host or a place
/// that fails is reported, and the others go on without it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Places: --path for directories of any mounted file system, --fs for a Weft that serves (by the library), --here for temporary file systems as the
plan says them (also if no place is given), --virtual for Weft in virtual time on a machine profile, --model for the models of programs and servers.
The first place is what the others are compared with, repetition by repetition.

Examples:
  weft lab run mdtest --path weft=~/mnt --path ext4=/srv/plain --set local.restart=false
  weft lab run mounts-files --path weft=~/mnt --path ext4=/srv/plain --set local.within=0.03
  weft lab run small-trees --path weft=~/mnt --path ext4=/srv/plain --set workload.values.files=5000
  weft lab run engines --here --virtual twin=machine.toml --out engines.jsonl
  weft lab run mdtest --path weft=~/mnt --set local.restart=false --hosts hosts.txt --program /opt/weft/bin/weft
  weft lab run mdtest --path weft=~/mnt --set local.restart=false --before-each 'weft umount ~/mnt; weft mount ~/fs ~/mnt'")]
pub struct Args {
    /// Name or file of the plan
    plan: String,
    /// A directory of a mounted file system; more than once for several
    #[arg(long, value_name = "NAME=DIR")]
    path: Vec<OsString>,
    /// A file system of Weft that serves, by the library
    #[arg(long, value_name = "NAME=FS")]
    fs: Vec<OsString>,
    /// What the commands of a plan know how to reach, such as an address: they find it in `$PLACE`
    #[arg(long, value_name = "NAME=WORD")]
    word: Vec<OsString>,
    /// A temporary file system of another build of Weft, with its servers and its library
    #[arg(long, value_name = "NAME=PROGRAM")]
    build: Vec<OsString>,
    /// Temporary file systems of this machine, too
    #[arg(long)]
    here: bool,
    /// Weft in virtual time on the machines of this profile
    #[arg(long = "virtual", value_name = "NAME=PROFILE")]
    in_virtual_time: Vec<String>,
    /// Programs and servers as models on the machines of this profile
    #[arg(long, value_name = "NAME=PROFILE")]
    model: Vec<String>,
    /// Another value of a key of the plan, with the table before it; commas make a list
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Repetitions at least [default: what the plan says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: Option<u32>,
    /// Where results are kept [default: the name of the plan with .jsonl, here]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Seed of the orders [default: any]
    #[arg(long)]
    seed: Option<u64>,
    /// Run this by the shell before each repetition at a place, whose name is in WEFT_PLACE, when
    /// no process has anything open: to mount again or restart servers
    #[arg(long, value_name = "COMMAND")]
    before_each: Option<OsString>,
    /// Where temporary file systems are [default: where temporary files are]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Processes on these hosts, a name in each line, by ssh; places must be there under the same
    /// names, and here too
    #[arg(long, value_name = "FILE", group = "over")]
    hosts: Option<PathBuf>,
    /// The same on the hosts of this Slurm job, by srun
    #[arg(long, group = "over")]
    slurm: bool,
    /// The same on the hosts that mpiexec uses, by mpiexec
    #[arg(long, group = "over")]
    mpi: bool,
    /// This program as the hosts find it [default: where it is here]
    #[arg(long, value_name = "PATH", requires = "over")]
    program: Option<String>,
    /// Folder with plans/; what is not there is taken from the program itself
    #[arg(long, default_value = "lab")]
    lab: PathBuf,
    /// Print JSON, as `weft bench run` does
    #[arg(long)]
    json: bool,
}

/// What a word of the command line means as a place.
type Reach = fn(OsString) -> std::io::Result<Place>;

/// A simulated place.
struct Simulated {
    name: String,
    settings: Vec<String>,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<bool> {
        let lab = Lab::near(self.lab.clone());
        let plan = LocalPlan { lab: &lab, name: &self.plan, set: &self.set, repetitions: self.reps, dir: self.dir.as_deref() };
        let over = self.over()?;
        let simulations = self.simulations()?;
        // A plan of models only need not make sense here.
        let wants_real =
            self.here || simulations.is_empty() || [&self.path, &self.fs, &self.word, &self.build].iter().any(|places| !places.is_empty());
        let (variants, loads) = if wants_real { self.real(&plan)? } else { Default::default() };
        let names: Vec<(String, Place)> = variants.iter().map(|variant| (variant.name(), variant.place.clone())).collect();
        let mut all: Vec<&str> =
            names.iter().map(|(name, _)| name.as_str()).chain(simulations.iter().map(|one| one.name.as_str())).collect();
        all.sort_unstable();
        if let Some(twice) = all.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("two places are called {}", twice[0]);
        }
        let told = |(name, place): &(String, Place)| match place {
            Place::Temporary => format!("{name}=temporary"),
            Place::Build(program) => format!("{name}=build {}", program.display()),
            Place::Directory(path) => format!("{name}=path {}", path.display()),
            Place::FileSystem(fs) => format!("{name}=weft {}", fs.display()),
            Place::Word(word) => format!("{name}=word {}", word.display()),
        };
        let places = names.iter().map(told).chain(simulations.iter().map(|one| format!("{}={}", one.name, one.settings.join(" "))));
        let asked = Asked {
            plan: self.plan.clone(),
            text: lab.text_of_plan(&self.plan)?,
            set: self.set.clone(),
            places: places.collect(),
            hosts: over.as_ref().map(|over| over.hosts.clone()).unwrap_or_default(),
            before_each: self.before_each.as_ref().map(|command| command.to_string_lossy().into_owned()),
        };
        if simulations.is_empty() {
            told_keys(&self.set).iter().for_each(|sentence| tell(sentence));
        }
        let stop = Stop::at_signals()?;
        let mut file = Growing::open(&self.file())?;
        let seed = self.begin(&mut file, &asked, &names)?;
        let mut lost = self.measure(&plan, (variants, &loads), over, seed, &mut file, (common, &stop))?;
        for simulation in &simulations {
            stop.check()?;
            lost += usize::from(!simulation.run(&lab, &self, &mut file)?);
        }
        show(&Summary::of(&file.known), self.json)?;
        Ok(lost == 0)
    }

    fn file(&self) -> PathBuf {
        let stem = Path::new(&self.plan).file_stem().unwrap_or(OsStr::new("lab"));
        self.out.clone().unwrap_or_else(|| PathBuf::from(stem).with_extension("jsonl"))
    }

    /// The places of this machine, and the work of the plan.
    fn real(&self, plan: &LocalPlan<'_>) -> Result<(Vec<Variant>, Vec<Load>)> {
        let (temporary, loads) = plan.cases()?;
        let mut variants = Vec::new();
        let given: [(_, Reach); 4] = [
            (&self.path, |at| Ok(Place::Directory(at.into()))),
            (&self.fs, |at| Ok(Place::FileSystem(at))),
            (&self.word, |at| Ok(Place::Word(at))),
            (&self.build, |at| std::path::absolute(at).map(Place::Build)),
        ];
        for (word, place) in given.into_iter().flat_map(|(words, place)| words.iter().map(move |word| (word, place))) {
            let (name, at) = split(word)?;
            ensure!(
                temporary.len() == 1,
                "{name}: the plan has several file systems of Weft; they are for --here: give their keys one value"
            );
            let place = place(at).with_context(|| format!("cannot tell where {name} is"))?;
            let values = Map::from_iter([("place".to_string(), Value::from(name))]);
            variants.push(Variant { values, place, setup: temporary[0].setup.clone() });
        }
        if self.here || variants.is_empty() {
            variants.extend(temporary);
        }
        // What cannot be done is said before anything is measured.
        for (variant, (_, work)) in variants.iter().flat_map(|variant| loads.iter().map(move |load| (variant, load))) {
            variant.by(work)?;
        }
        Ok((variants, loads))
    }

    fn simulations(&self) -> Result<Vec<Simulated>> {
        let given = self.in_virtual_time.iter().map(|word| (word, "weft")).chain(self.model.iter().map(|word| (word, "model")));
        given
            .map(|(word, system)| {
                let (name, profile) = word.split_once('=').with_context(|| format!("{word} is not NAME=PROFILE"))?;
                // A file in this folder is told from a profile of the laboratory by a slash.
                let profile =
                    if profile.ends_with(".toml") && !profile.contains('/') { format!("./{profile}") } else { profile.to_string() };
                Ok(Simulated { name: name.to_string(), settings: vec![format!("system={system}"), format!("profile={profile:?}")] })
            })
            .collect()
    }

    /// Hosts of the processes.
    fn over(&self) -> Result<Option<Over>> {
        let (launcher, hosts) = match (&self.hosts, self.slurm, self.mpi) {
            (Some(file), ..) => (Launcher::Ssh, hosts::of_file(file)?),
            (None, true, _) => (Launcher::Srun, hosts::of_job(Launcher::Srun)?),
            (None, _, true) => (Launcher::Mpiexec, hosts::of_job(Launcher::Mpiexec)?),
            (None, false, false) => return Ok(None),
        };
        ensure!(!self.path.is_empty() || !self.fs.is_empty(), "temporary file systems are of this machine: hosts need --path or --fs");
        let program = match &self.program {
            Some(program) => program.clone(),
            None => job::this_program()?.get_program().to_string_lossy().into_owned(),
        };
        Ok(Some(Over { launcher, hosts, program }))
    }

    /// Begins a session; the seed.
    fn begin(&self, file: &mut Growing, asked: &Asked, places: &[(String, Place)]) -> Result<u64> {
        let environment = Environment::look(places);
        let is_other = |(seed, known, _): (u64, &Asked, &Environment)| known != asked || self.seed.is_some_and(|given| given != seed);
        if file.known.first().is_some_and(is_other) && file.known.runs().next().is_none() {
            // Only asked for, maybe with a slip.
            file.clear()?;
        }
        let seed = match file.known.first() {
            Some(first @ (seed, known, then)) => {
                if is_other(first) {
                    let what = [
                        (known.plan != asked.plan, "plan"),
                        (known.text != asked.text, "text of the plan"),
                        (known.set != asked.set, "--set"),
                    ];
                    let more = [
                        (known.places != asked.places, "places"),
                        (known.hosts != asked.hosts, "hosts"),
                        (known.before_each != asked.before_each, "--before-each"),
                    ];
                    let mut what: Vec<&str> =
                        what.into_iter().chain(more).filter(|(is_other, _)| *is_other).map(|(_, name)| name).collect();
                    what.extend(what.is_empty().then_some("seed"));
                    bail!("{} has results of something else ({}): give another --out", self.file().display(), what.join(", "));
                }
                environment.changed(then).iter().for_each(|change| tell(&format!("since the first session {change}")));
                seed
            }
            None => match self.seed {
                Some(seed) => seed,
                // JSON of others keeps 53 bits.
                None => u64::from(u32::from_le_bytes(random()?)),
            },
        };
        file.add(Line::session(seed, asked.clone(), environment))?;
        Ok(seed)
    }

    /// Does what is missing; how many hosts and places were lost.
    fn measure(
        &self,
        plan: &LocalPlan<'_>,
        (mut variants, loads): (Vec<Variant>, &[Load]),
        mut over: Option<Over>,
        seed: u64,
        file: &mut Growing,
        (common, stop): (&Common, &Stop),
    ) -> Result<usize> {
        let mut lost = 0;
        if variants.is_empty() {
            return Ok(lost);
        }
        loop {
            let session = Session { variants: &variants, loads, seed, over: over.as_ref(), before_each: self.before_each.as_deref() };
            let Err(error) = plan.go_on(&session, file, common, stop) else { return Ok(lost) };
            stop.check().with_context(|| format!("{} has what was measured: the same command goes on", self.file().display()))?;
            let why = format!("{error:#}");
            let gone = error.downcast_ref::<Gone>().map(|Gone(host)| host.clone()).filter(|host| !host.is_empty());
            let line = match (gone, error.downcast_ref::<Culprit>(), &mut over) {
                (Some(host), _, Some(over)) => {
                    over.hosts.retain(|known| *known != host);
                    Line::lost(Some(host), None, &why)
                }
                (_, Some(culprit), _) => {
                    let gone = variants.remove(culprit.number);
                    let causes: Vec<String> = error.chain().map(ToString::to_string).filter(|why| *why != culprit.to_string()).collect();
                    Line::lost(None, Some(gone.name()), &causes.join(": "))
                }
                _ => return Err(error),
            };
            lost += 1;
            tell(&format!("lost, and the others go on: {why}"));
            file.add(line)?;
            if variants.is_empty() || over.as_ref().is_some_and(|over| over.hosts.is_empty()) {
                tell("nobody is left; the same command goes on when that is mended");
                return Ok(lost);
            }
        }
    }
}

impl Simulated {
    /// Runs it, unless it was; false if it could not be simulated.
    fn run(&self, lab: &Lab, args: &Args, file: &mut Growing) -> Result<bool> {
        if file.known.runs().any(|run| run.place == self.name) {
            return Ok(true);
        }
        let set = [&args.set[..], &self.settings[..]].concat();
        match simulated(lab, &args.plan, &set) {
            Ok(rows) => {
                for VirtualPhase { parameters, results } in rows {
                    let phase = phase_of(&results)?;
                    let run = Run {
                        case: None,
                        parameters,
                        place: self.name.clone(),
                        own: Map::new(),
                        repetition: 1,
                        hosts: 0,
                        load: 0.0,
                        phase,
                        disk: None,
                        records: None,
                    };
                    file.add(Line::Run(Box::new(run)))?;
                }
                Ok(true)
            }
            Err(error) => {
                let why = format!("{error:#}");
                tell(&format!("lost, and the others go on: {}: {why}", self.name));
                file.add(Line::lost(None, Some(self.name.clone()), &why))?;
                Ok(false)
            }
        }
    }
}

/// A simulated result as a measured one. Models count accesses of disks, not operations.
fn phase_of(results: &Map<String, Value>) -> Result<Phase> {
    let number = |key: &str| results.get(key).and_then(Value::as_f64);
    let seconds = number("seconds").context("a simulated case has no seconds")?;
    let rate = number("operations_per_second").or_else(|| Some(number("disk_operations")? / seconds)).unwrap_or(0.0);
    let one = |number: f64| serde_json::json!({ "median": number, "min": number, "max": number });
    let mib = number("mib_per_second").filter(|_| number("bytes").is_some_and(|bytes| bytes > 0.0));
    let name = results.get("phase").and_then(Value::as_str).unwrap_or("program");
    let phase = serde_json::json!({
        "phase": name,
        "repetitions": 1,
        "ops": number("operations").unwrap_or(0.0) as u64,
        "seconds": one(seconds),
        "ops_per_s": one(rate),
        "mib_per_s": mib.map(one),
        "client_cpu_us_per_op": number("client_cpu_us_per_op").unwrap_or(0.0),
        "server_cpu_us_per_op": number("server_cpu_us_per_op"),
    });
    ensure!(Spread::of([seconds, rate]).is_some(), "a simulated case has a result that is no number");
    Ok(serde_json::from_value(phase)?)
}

/// `NAME=PLACE`.
fn split(word: &OsStr) -> Result<(String, OsString)> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=').with_context(|| format!("{} is not NAME=PLACE", word.display()))?;
    let name = std::str::from_utf8(&bytes[..at]).ok().filter(|name| !name.is_empty());
    let name = name.with_context(|| format!("{} has no name before the =", word.display()))?;
    ensure!(at + 1 < bytes.len(), "{name}= names no place");
    Ok((name.to_string(), OsString::from_vec(bytes[at + 1..].to_vec())))
}
