//! `weft trace`: switches what the servers and mounts of a running file system record, and shows
//! how it stands.

mod mpi;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde::Serialize;
use weft_host::connect::Common;
use weft_host::ended::Ended;
use weft_host::named::NamedFs;
use weft_host::output::{Table, print, print_as, shell_word, tell};
use weft_host::units::{ByteSize, one_of, seconds};
use weft_recording::files_in;
use weft_recording::nodes::{Answer, Traced, problems, text_of};
use weft_trace::{EventTable, Mask};
use weft_wire::ops::{TraceAction, TraceMode, TraceRequest};

/// The longest time a recording can be given: a month.
const SECONDS_MAX: f64 = 31.0 * 86_400.0;

/// Switch the traces of a running file system on and off
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Modes:
  stream   everything is written while it is recorded (default)
  bench    what was recorded first is kept in memory and written at `off`: the smallest disturbance
  flight   the last moments are kept in memory; they are written when an operation is slow (--slower-than), when something fails that
           should not, on SIGUSR1 to the process, by `weft trace dump`, and at `off`

Examples:
  weft trace on ~/fs
  weft trace on ~/fs --mask 'meta.*,net.*,client.create' --nodes 'meta*,mount*' --dir t
  weft trace on ~/fs --mode flight --slower-than 50ms
  weft trace status ~/fs
  weft trace off ~/fs         prints the files; then: weft explain DIR, weft view DIR

Servers write into a folder of their own; `off` and `dump` copy their files to where those of the mount are. Mounts on other machines are not reached: they listen to nobody.
Give the commands there too, with --nodes 'mount*', and copy the files.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// Modes that may be asked for, by name.
const MODES: [(&str, TraceMode); 3] = [("stream", TraceMode::Stream), ("bench", TraceMode::Bench), ("flight", TraceMode::Flight)];

#[derive(Debug, Subcommand)]
enum Command {
    /// Begin to record; Example: weft trace on ~/fs --mask 'meta.*'
    On(On),
    /// End the recording, complete its files and bring them to this machine; Example: weft trace
    /// off ~/fs
    Off(Ending),
    /// Show what is recorded, how much, and what was lost; Example: weft trace status ~/fs
    Status(Which),
    /// Let flight recorders write what they hold, and bring it to this machine; Example: weft trace
    /// dump ~/fs
    Dump(Ending),
    /// List the events that a mask may name; Example: weft trace events
    Events,
    /// Run a program of MPI and record its calls, rank by rank; Example: weft trace mpi --into run
    /// -- mpiexec -n 4 ./program
    Mpi(mpi::Args),
}

#[derive(Debug, clap::Args)]
struct Which {
    #[command(flatten)]
    fs: NamedFs,
    /// Servers and mounts by name, separated by commas, as `weft trace status` shows them; `*` at
    /// the end stands for anything
    #[arg(long, value_name = "NAMES", default_value = "*")]
    nodes: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Ending {
    #[command(flatten)]
    which: Which,
    /// Folder for copies of all files [default: those of servers are copied to where the files of
    /// the mount are]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct On {
    #[command(flatten)]
    which: Which,
    /// Events, separated by commas; `*` at the end of a name, `-` before one that is taken away
    /// (`weft trace events` lists them)
    #[arg(long, value_name = "EVENTS", default_value = "*", allow_hyphen_values = true)]
    mask: String,
    /// What becomes of the records
    #[arg(long, value_parser = one_of(MODES), default_value = "stream")]
    mode: TraceMode,
    /// Folder for the files of mounts; `off` and `dump` copy those of servers to it [default:
    /// `trace` in the state directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Memory for the records of one thread [default: 16MiB for bench, else 4MiB]
    #[arg(long, value_name = "SIZE")]
    ring: Option<ByteSize>,
    /// Of the operations of clients record one in so many (rounded up to a power of two) with all
    /// that it does there
    #[arg(long, value_name = "1/N", value_parser = sampling_bits, default_value = "1/1")]
    sample: u8,
    /// Flight recorders are written when an operation takes longer (50ms, 2s, 300us)
    #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
    slower_than: Option<u64>,
    /// The recording ends by itself after so long, should nobody end it before; `off` brings the
    /// files together all the same [default: it goes on]
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.01, SECONDS_MAX))]
    seconds: Option<f64>,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        let all_well = match self.command {
            Command::On(on) => on.run(common)?,
            Command::Off(ending) => ending.run(common, Traced::end, others_beside)?,
            Command::Status(which) => which.run(common)?,
            // Those of one recorder are read together.
            Command::Dump(ending) => ending.run(common, Traced::dump, |_| BTreeMap::new())?,
            Command::Mpi(mpi) => return mpi.run(),
            Command::Events => {
                let names: Vec<String> = EventTable::builtin().iter().map(|info| info.name.clone()).collect();
                print(&(names.join("\n") + "\n"))?;
                true
            }
        };
        Ok(all_well.code())
    }
}

impl On {
    fn run(self, common: &Common) -> Result<bool> {
        let mask = Mask::parse(&self.mask, &EventTable::builtin()).map_err(|problem| anyhow::anyhow!("--mask: {problem}"))?;
        if mask == Mask::NONE {
            bail!("--mask {:?} leaves no event to record; all but some are '*,-meta.*'", self.mask);
        }
        if self.slower_than.is_some() && self.mode != TraceMode::Flight {
            bail!("--slower-than is for --mode flight");
        }
        let folder = self.dir.map(std::path::absolute).transpose()?;
        // Some modes write at the end only: what they recorded would be lost.
        folder.as_deref().map_or(Ok(()), refuse_if_not_writable)?;
        let request = TraceRequest {
            mask: self.mask,
            mode: self.mode,
            ring_bytes: self.ring.map_or(0, |ring| ring.0),
            sampling_bits: self.sample,
            slow_ns: self.slower_than.unwrap_or(0),
            folder: folder.map_or(Ok(String::new()), text_of)?,
            ends_after_ms: self.seconds.map(|seconds| Duration::from_secs_f64(seconds).as_millis() as u64),
            ..TraceRequest::new(TraceAction::On)
        };
        let traced = Traced::find(self.which.fs.text(), &self.which.nodes, common)?;
        if !request.folder.is_empty() && !traced.has_client() {
            bail!("--dir is for mounts, and none is recorded; servers write into a folder of their own: `weft trace off --into DIR`");
        }
        show(&traced.begin_all(&request)?, Vec::new(), self.which.json)
    }
}

impl Which {
    fn run(self, common: &Common) -> Result<bool> {
        let traced = Traced::find(self.fs.text(), &self.nodes, common)?;
        show(&traced.ask(&TraceRequest::new(TraceAction::Status)), Vec::new(), self.json)
    }
}

impl Ending {
    fn run(
        self,
        common: &Common,
        end: fn(&Traced) -> Result<Vec<Answer>>,
        others: fn(&[Answer]) -> BTreeMap<PathBuf, usize>,
    ) -> Result<bool> {
        let traced = Traced::find(self.which.fs.text(), &self.which.nodes, common)?;
        let into = self.into.map(std::path::absolute).transpose()?;
        let is_recorded = !traced.recording().is_empty();
        let mut answers = end(&traced)?;
        let mut problems = traced.gather(&mut answers, into.as_deref(), false);
        problems.extend(traced.name_objects(&answers));
        let shown = show(&answers, problems, self.which.json);
        if !is_recorded {
            tell("nothing was being recorded; files that are named are those of the last recording");
            return shown;
        }
        for name in traced.gone() {
            let folder = traced.usual_folder();
            let folder = folder.display();
            tell(&format!("{name} has died: what it recorded until then is left in {folder}, or in the folder of `weft trace on --dir`"));
        }
        for (folder, count) in others(&answers) {
            let (shown, folder) = (folder.display(), shell_word(&folder));
            tell(&format!(
                "{shown} has {count} more trace files, as of an earlier recording: `weft explain {folder}` reads all of them as one run; \
                 name files to choose, or take another folder with --into"
            ));
        }
        shown
    }
}

/// By folder how many trace files are there beside those of a recording.
fn others_beside(answers: &[Answer]) -> BTreeMap<PathBuf, usize> {
    let files = answers.iter().filter_map(|answer| answer.reply.as_ref().ok()).flat_map(|reply| &reply.files);
    let files: BTreeSet<PathBuf> = files.map(PathBuf::from).collect();
    let folders: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    let others = |folder: &&Path| {
        let there = files_in(folder).unwrap_or_default();
        (folder.to_path_buf(), there.iter().filter(|file| !files.contains(*file)).count())
    };
    folders.iter().map(others).filter(|(_, count)| *count > 0).collect()
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    nodes: Vec<Row>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    node: String,
    process: u32,
    mode: &'static str,
    mask: String,
    is_writing: bool,
    records: u64,
    lost: u64,
    forgotten: u64,
    threads: u32,
    threads_without_ring: u64,
    in_flight: u32,
    dumps: u32,
    files: Vec<String>,
}

/// Prints what processes said, and what else went wrong.
fn show(answers: &[Answer], more_problems: Vec<String>, json: bool) -> Result<bool> {
    let problems = [problems(answers), more_problems].concat();
    let row = |answer: &Answer| {
        let reply = answer.reply.as_ref().ok()?.clone();
        Some(Row {
            node: answer.name.clone(),
            process: reply.process,
            mode: MODES.iter().find(|(_, mode)| *mode == reply.mode).map_or("off", |(name, _)| name),
            mask: reply.mask,
            is_writing: reply.is_writing,
            records: reply.written,
            lost: reply.lost,
            forgotten: reply.forgotten,
            threads: reply.threads,
            threads_without_ring: reply.threads_without_ring,
            in_flight: reply.in_flight,
            dumps: reply.dumps,
            files: reply.files,
        })
    };
    let report = Report { ok: problems.is_empty(), nodes: answers.iter().filter_map(row).collect(), problems };
    print_as(json, &report, || text(&report))?;
    Ok(report.ok)
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&["node", ">process", "mode", ">records", ">lost", ">dumps", "events"]);
    for row in &report.nodes {
        let mode = if row.is_writing { "writing" } else { row.mode };
        table.row(vec![
            row.node.clone(),
            row.process.to_string(),
            mode.into(),
            row.records.to_string(),
            row.lost.to_string(),
            row.dumps.to_string(),
            row.mask.clone(),
        ]);
    }
    let mut text = table.render();
    for row in &report.nodes {
        row.files.iter().for_each(|file| text += &format!("{file}\n"));
        if row.threads_without_ring > 0 {
            text += &format!("{}: {} threads found no ring and recorded nothing\n", row.node, row.threads_without_ring);
        }
    }
    report.problems.iter().for_each(|problem| text += &format!("problem: {problem}\n"));
    text
}

/// `1/100` or `100` as a power of two.
fn sampling_bits(text: &str) -> std::result::Result<u8, String> {
    let one_of = text.strip_prefix("1/").unwrap_or(text).parse::<u32>();
    match one_of {
        Ok(one_of) if (1..=1 << 30).contains(&one_of) => Ok(one_of.next_power_of_two().trailing_zeros() as u8),
        _ => Err("a share like 1/100 is expected".into()),
    }
}

/// A folder that is not there yet is made by who writes first.
fn refuse_if_not_writable(folder: &Path) -> Result<()> {
    let there = folder.ancestors().find(|path| path.exists()).unwrap_or(folder);
    tempfile::tempfile_in(there)
        .map(drop)
        .with_context(|| format!("nothing is recorded: mounts cannot write into --dir {}", folder.display()))
}

/// `50ms`, `2s`, `300us` in nanoseconds.
fn nanoseconds(text: &str) -> std::result::Result<u64, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let unit = match &text[digits..] {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err("a time like 50ms, 2s or 300us is expected".into()),
    };
    let number: f64 = text[..digits].parse().map_err(|_| "a time like 50ms, 2s or 300us is expected".to_string())?;
    Ok((number * unit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_shares_are_read() {
        assert_eq!([nanoseconds("50ms"), nanoseconds("2s"), nanoseconds("1.5us")], [Ok(50_000_000), Ok(2_000_000_000), Ok(1500)]);
        for wrong in ["50", "ms", "1.2.3s", "5 ms", ""] {
            assert!(nanoseconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!([sampling_bits("1/1"), sampling_bits("1/100"), sampling_bits("64")], [Ok(0), Ok(7), Ok(6)]);
        assert!(sampling_bits("1/0").is_err() && sampling_bits("2/3").is_err());
    }
}
