//! `weft trace mpi`: a program of MPI, recorded.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use weft_host::job::{self, JobSignals, end_as};
use weft_host::output::{print, shell_word, tell};
use weft_host::units::ByteSize;
use weft_recording::beside::HostWatch;
use weft_recording::mpi::{Recorded, complete, library};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for the recording; it must be empty, and the same on all machines
    #[arg(long, value_name = "DIR", default_value = "mpi-trace")]
    into: PathBuf,
    /// Of which MPI the program is, mpich or openmpi [default: the one whose library is installed,
    /// of both what the launcher says of itself]
    #[arg(long, value_name = "MPI", value_parser = ["mpich", "openmpi"])]
    mpi: Option<String>,
    /// A trace of a thread does not become longer; what is beyond is counted and told
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    limit: ByteSize,
    /// The launcher with its options, and the program
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Args {
    pub fn run(self) -> Result<ExitCode> {
        let preloaded = job::preloaded(&library(&self.command[0], self.mpi.as_deref())?)?;
        let folder = std::path::absolute(&self.into)?;
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        if fs::read_dir(&folder).with_context(|| folder.display().to_string())?.next().is_some() {
            bail!("{} is not empty: give another folder with --into", folder.display());
        }
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command.env("WEFT_MPITRACE", &folder).env("WEFT_MPITRACE_LIMIT", self.limit.0.to_string());
        // The library of MPI-IO answers behind this one.
        command.env("LD_PRELOAD", preloaded);
        // From now on, whatever ends the program, what it did is made a project.
        let signals = JobSignals::hold()?;
        let mut launcher = signals.start(&command).with_context(|| format!("cannot run {}", self.command[0].display()))?;
        let machine = HostWatch::start()?;
        let status = signals.wait(&mut launcher)?;
        let recorded = complete(&folder)?;
        machine.end(&recorded.project)?;
        let plan = write_plan(&folder, &recorded)?;
        recorded.problems.iter().for_each(|problem| tell(problem));
        let project = self.into.join("run.proj");
        print(&format!(
            "{}: {} ranks, {} calls\nthen: weft view {}, weft sim run {}\n",
            project.display(),
            recorded.ranks,
            recorded.states,
            shell_word(&project),
            shell_word(self.into.join(plan))
        ))?;
        Ok(end_as(status))
    }
}

/// A plan that does the program again in the simulator, to be changed by its reader.
fn write_plan(folder: &Path, recorded: &Recorded) -> Result<&'static str> {
    let text = format!(
        "# The recorded program on a modelled cluster: weft sim run replay.toml --trace DIR\n\
         description = \"a recorded program\"\n\
         profile = \"modern\"\n\
         clients = {}\n\
         servers = 4\n\
         \n\
         # What the program did beside its calls takes as long as it did: a cycle is a microsecond.\n\
         [node]\n\
         instructions_per_second = 1_000_000\n\
         \n\
         [[workload]]\n\
         kind = \"hdtrace\"\n\
         project = \"run.proj\"\n",
        recorded.ranks
    );
    let path = folder.join("replay.toml");
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok("replay.toml")
}
