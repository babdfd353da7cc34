//! `weft trace`: switches what the servers and mounts of a running file system record, and shows how it stands.
//!
//! Servers get the command over the wire, mounts of this user on this machine over their sockets. Servers are told first and clients last
//! when a recording begins, and the other way round when it ends: so for everything that a client has recorded its server was recording.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use weft_base::ServerId;
use weft_trace::{EventTable, Mask};
use weft_wire::ops::{TraceAction, TraceMode, TraceReply, TraceRequest};

use crate::connect::{Common, Fs};
use crate::mount_list;
use crate::output::{Table, print, print_json};
use crate::process::wait_until;
use crate::recording::socket;
use crate::state::StateDir;
use crate::units::ByteSize;

/// How long processes have to complete their files.
const WRITE_PATIENCE: Duration = Duration::from_secs(120);

/// Switch the traces of a running file system on and off
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Modes:
  stream   everything is written while it is recorded (default)
  bench    what was recorded first is kept in memory and written at `off`: the smallest disturbance
  flight   the last moments are kept in memory; they are written when an operation is slow (--slower-than), when something fails that
           should not, on SIGUSR1 to the process, by `weft trace dump`, and at `off`

Examples:
  weft trace on /tmp/weft
  weft trace on /tmp/weft --mask 'meta.*,net.*,client.create' --nodes 'meta*,mount*' --dir /tmp/t
  weft trace on /tmp/weft --mode flight --slower-than 50ms
  weft trace status /tmp/weft
  weft trace off /tmp/weft         prints the files; then: weft explain DIR, weft view DIR")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Begin to record; Example: weft trace on /tmp/weft --mask 'meta.*'
    On(On),
    /// End the recording and complete its files; Example: weft trace off /tmp/weft
    Off(Which),
    /// Show what is recorded, how much, and what was lost; Example: weft trace status /tmp/weft
    Status(Which),
    /// Let flight recorders write what they hold; Example: weft trace dump /tmp/weft
    Dump(Which),
    /// List the events that a mask may name; Example: weft trace events
    Events,
}

#[derive(Debug, clap::Args)]
struct Which {
    /// The file system
    fs: OsString,
    /// Servers and mounts by name, separated by commas, as `weft trace status` shows them; `*` at the end stands for anything
    #[arg(long, value_name = "NAMES", default_value = "*")]
    nodes: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct On {
    #[command(flatten)]
    which: Which,
    /// Events, separated by commas; `*` at the end of a name, `-` before one that is taken away (`weft trace events` lists them)
    #[arg(long, value_name = "EVENTS", default_value = "*", allow_hyphen_values = true)]
    mask: String,
    /// What becomes of the records
    #[arg(long, value_enum, default_value = "stream")]
    mode: Mode,
    /// Folder for the files, on the machine of each process [default: `trace` in the state directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Memory for the records of one thread [default: 16MiB for bench, else 4MiB]
    #[arg(long, value_name = "SIZE")]
    ring: Option<ByteSize>,
    /// Of the operations of clients record one in so many (rounded up to a power of two) with all that it does there
    #[arg(long, value_name = "1/N", value_parser = sampling_bits, default_value = "1/1")]
    sample: u8,
    /// Flight recorders are written when an operation takes longer (50ms, 2s, 300us)
    #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
    slower_than: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Stream,
    Bench,
    Flight,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<ExitCode> {
        match self.command {
            Command::On(on) => on.run(common),
            Command::Off(which) => which.run(common, TraceAction::Off),
            Command::Status(which) => which.run(common, TraceAction::Status),
            Command::Dump(which) => which.run(common, TraceAction::Dump),
            Command::Events => {
                let names: Vec<String> = EventTable::builtin().iter().map(|info| info.name.clone()).collect();
                print(&(names.join("\n") + "\n"))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl On {
    fn run(self, common: &Common) -> Result<ExitCode> {
        Mask::parse(&self.mask, &EventTable::builtin()).map_err(|problem| anyhow::anyhow!("--mask: {problem}"))?;
        if self.slower_than.is_some() && !matches!(self.mode, Mode::Flight) {
            bail!("--slower-than is for --mode flight");
        }
        let folder = self.dir.map(std::path::absolute).transpose()?;
        let request = TraceRequest {
            mask: self.mask,
            mode: match self.mode {
                Mode::Stream => TraceMode::Stream,
                Mode::Bench => TraceMode::Bench,
                Mode::Flight => TraceMode::Flight,
            },
            ring_bytes: self.ring.map_or(0, |ring| ring.0),
            sampling_bits: self.sample,
            slow_ns: self.slower_than.unwrap_or(0),
            folder: folder.map_or(Ok(String::new()), text_of)?,
            ..TraceRequest::new(TraceAction::On)
        };
        let traced = Traced::find(&self.which.fs, &self.which.nodes, common)?;
        show(&traced.ask(&request), self.which.json)
    }
}

impl Which {
    fn run(self, common: &Common, action: TraceAction) -> Result<ExitCode> {
        let traced = Traced::find(&self.fs, &self.nodes, common)?;
        let answers = match action {
            TraceAction::Off => traced.end()?,
            _ => traced.ask(&TraceRequest::new(action)),
        };
        show(&answers, self.json)
    }
}

fn text_of(path: PathBuf) -> Result<String> {
    path.into_os_string().into_string().map_err(|path| anyhow::anyhow!("the folder {} has a name that is not UTF-8", path.display()))
}

/// One process of a file system.
#[derive(Clone, Debug)]
enum Place {
    Server(ServerId),
    Mount(PathBuf),
}

/// What a process answered.
pub struct Answer {
    name: String,
    reply: Result<TraceReply>,
}

/// The processes of a file system that a command is for.
pub struct Traced {
    fs: Fs,
    nodes: Vec<(String, Place)>,
}

impl Traced {
    /// The servers of a file system and the mounts of it that this user has on this machine, as far as `names` names them.
    ///
    /// # Errors
    /// The file system cannot be found, or it has nothing of these names.
    pub fn find(fs: &OsStr, names: &str, common: &Common) -> Result<Traced> {
        let fs = Fs::open(fs, &common.for_a_look())?;
        let mut nodes: Vec<(String, Place)> =
            fs.client.map().servers().map(|entry| (entry.name.clone(), Place::Server(entry.id))).collect();
        let listed = match &fs.config {
            Some(config) => mount_list::of(fs.id(), &StateDir::of_config(&config.file))?,
            None => mount_list::of_user(fs.id())?,
        };
        for mount in listed.into_iter().filter(|mount| mount.pid.is_some()) {
            nodes.push((mount_list::trace_name(&mount.place), Place::Mount(socket::path_for(&mount.pid_file))));
        }
        nodes.retain(|(name, _)| names.split(',').any(|pattern| is_match(pattern.trim(), name)));
        if nodes.is_empty() {
            bail!("{} has no server or mount called {names}; `weft trace status` lists them", fs.name);
        }
        Ok(Traced { fs, nodes })
    }

    /// Sends a command to all of them, servers first unless it ends something.
    pub fn ask(&self, request: &TraceRequest) -> Vec<Answer> {
        let mut nodes: Vec<&(String, Place)> = self.nodes.iter().collect();
        let is_end = request.action == TraceAction::Off;
        nodes.sort_by_key(|(_, place)| matches!(place, Place::Mount(_)) != is_end);
        let mut answers: Vec<Answer> = nodes.into_iter().map(|(name, place)| self.ask_one(name, place, request)).collect();
        answers.sort_by(|a, b| a.name.cmp(&b.name));
        answers
    }

    /// As [`Traced::ask`], where everybody must do it.
    ///
    /// # Errors
    /// What any of them says against it.
    pub fn ask_all(&self, request: &TraceRequest) -> Result<()> {
        match problems(&self.ask(request)).as_slice() {
            [] => Ok(()),
            problems => bail!("{}", problems.join("; ")),
        }
    }

    fn ask_one(&self, name: &str, place: &Place, request: &TraceRequest) -> Answer {
        let reply = match place {
            Place::Server(server) => {
                let reply = self.fs.run(self.fs.client.trace(*server, request));
                reply.map_err(|error| anyhow::anyhow!("{}", self.fs.why(&error)))
            }
            Place::Mount(path) => socket::ask(path, request),
        };
        Answer { name: name.to_string(), reply }
    }

    /// Ends the recordings and waits until their files are complete.
    ///
    /// # Errors
    /// That takes too long.
    pub fn end(&self) -> Result<Vec<Answer>> {
        self.ask(&TraceRequest::new(TraceAction::Off));
        let mut answers = Vec::new();
        let all_there = wait_until(WRITE_PATIENCE, || {
            answers = self.ask(&TraceRequest::new(TraceAction::Status));
            Ok(!answers.iter().any(|answer| answer.reply.as_ref().is_ok_and(|reply| reply.is_writing)))
        })?;
        if !all_there {
            bail!("the files are not complete after {} s; `weft trace status` shows how it goes on", WRITE_PATIENCE.as_secs());
        }
        Ok(answers)
    }
}

/// Records `seconds` of a running file system into `folder`; what is wrong with it in words.
///
/// # Errors
/// Nothing can be recorded at all.
pub fn record(fs: &OsStr, nodes: &str, common: &Common, seconds: f64, folder: &std::path::Path) -> Result<Vec<String>> {
    let traced = Traced::find(fs, nodes, common)?;
    let begin = TraceRequest {
        mask: "*".into(),
        mode: TraceMode::Stream,
        ring_bytes: RECORD_RING_BYTES,
        folder: text_of(std::path::absolute(folder)?)?,
        ..TraceRequest::new(TraceAction::On)
    };
    let begun = traced.ask(&begin);
    let mut problems = problems(&begun);
    if problems.len() == begun.len() {
        bail!("nothing can be recorded: {}", problems.join("; "));
    }
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let ended = traced.end()?;
    for Answer { name, reply } in &ended {
        let Ok(reply) = reply else { continue };
        if reply.threads_without_ring > 0 {
            problems.push(format!("{name}: {} threads found no ring and recorded nothing", reply.threads_without_ring));
        }
        for file in reply.files.iter().filter(|file| !std::path::Path::new(file).exists()) {
            problems.push(format!("{name} has its records on another machine, in {file}: copy it to the others and explain them together"));
        }
    }
    Ok(problems)
}

/// A ring that takes a busy server's records of some tens of milliseconds even if the thread that writes them does not get a processor.
const RECORD_RING_BYTES: u64 = 16 << 20;

fn problems(answers: &[Answer]) -> Vec<String> {
    let problem = |answer: &Answer| match &answer.reply {
        Err(error) => Some(format!("{}: {error:#}", answer.name)),
        Ok(reply) if !reply.problem.is_empty() => Some(format!("{}: {}", answer.name, reply.problem)),
        Ok(_) => None,
    };
    answers.iter().filter_map(problem).collect()
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

fn mode_name(mode: TraceMode) -> &'static str {
    match mode {
        TraceMode::Off => "off",
        TraceMode::Bench => "bench",
        TraceMode::Flight => "flight",
        TraceMode::Stream => "stream",
    }
}

fn show(answers: &[Answer], json: bool) -> Result<ExitCode> {
    let problems = problems(answers);
    let row = |answer: &Answer| {
        let reply = answer.reply.as_ref().ok()?.clone();
        Some(Row {
            node: answer.name.clone(),
            process: reply.process,
            mode: mode_name(reply.mode),
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
    if json {
        print_json(&report)?;
    } else {
        print(&text(&report))?;
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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

/// True if `pattern` is the name, or its beginning with a `*` behind.
fn is_match(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |beginning| name.starts_with(beginning))
}

/// `1/100` or `100` as a power of two.
fn sampling_bits(text: &str) -> std::result::Result<u8, String> {
    let one_of = text.strip_prefix("1/").unwrap_or(text).parse::<u32>();
    match one_of {
        Ok(one_of) if (1..=1 << 30).contains(&one_of) => Ok(one_of.next_power_of_two().trailing_zeros() as u8),
        _ => Err("a share like 1/100 is expected".into()),
    }
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
    fn names_times_and_shares_are_read() {
        assert!(is_match("*", "meta0") && is_match("meta*", "meta0") && is_match("meta0", "meta0") && !is_match("meta", "meta0"));
        assert_eq!([nanoseconds("50ms"), nanoseconds("2s"), nanoseconds("1.5us")], [Ok(50_000_000), Ok(2_000_000_000), Ok(1500)]);
        for wrong in ["50", "ms", "1.2.3s", "5 ms", ""] {
            assert!(nanoseconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!([sampling_bits("1/1"), sampling_bits("1/100"), sampling_bits("64")], [Ok(0), Ok(7), Ok(6)]);
        assert!(sampling_bits("1/0").is_err() && sampling_bits("2/3").is_err());
    }

    #[test]
    fn what_a_process_says_is_shown() {
        let reply = TraceReply { mode: TraceMode::Flight, written: 7000, lost: 3, files: vec!["/t/a".into()], ..TraceReply::default() };
        let row = |name: &str, reply| Answer { name: name.into(), reply };
        let answers = [row("meta0", Ok(reply)), row("data0", Err(anyhow::anyhow!("no answer")))];
        assert_eq!(problems(&answers), ["data0: no answer"]);
        let code = show(&answers, true).expect("standard output is there");
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
    }
}
