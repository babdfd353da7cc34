//! The processes of a file system that record: its servers, and the mounts and NFS gateways that
//! this user has on this machine.
//!
//! Servers get commands over the wire, mounts and gateways over their sockets. When a recording
//! begins servers are told before clients, at its end clients before servers: so for everything
//! that a client has recorded its server was recording.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use weft_base::{ServerId, Status};
use weft_host::command_socket;
use weft_host::connect::{Common, Fs};
use weft_host::gateway_list;
use weft_host::mount_list;
use weft_host::process::wait_until;
use weft_host::state::StateDir;
use weft_host::state::in_file_name;
use weft_host::stop_signals::StopSignals;
use weft_wire::ops::{TraceAction, TraceMode, TraceReply, TraceRequest};

use crate::fetch::{Source, Want, copy_here};
use crate::{RECORDED_ALREADY, RING_BYTES_MAX_SERVER, RING_BYTES_RANGE, RING_REFUSED, RING_REFUSED_SERVER};

/// How long processes have to complete their files.
const WRITE_PATIENCE: Duration = Duration::from_secs(120);
/// How long flight recorders have to begin with a dump.
const DUMP_PATIENCE: Duration = Duration::from_secs(10);
/// How long processes that write while they record have to make their files.
const BEGIN_PATIENCE: Duration = Duration::from_secs(2);
/// A ring that takes a busy server's records of some tens of milliseconds even if the thread that
/// writes them does not get a processor.
const RECORD_RING_BYTES: u64 = 16 << 20;
/// Where files go that have no other place on this machine.
const FOLDER_HERE: &str = "weft-trace";
/// A recording of some seconds whose maker has died ends by itself so long after its time, for each
/// process of it: the maker asks one after the other, and may wait for those that are silent.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// How a process is reached.
#[derive(Clone, Debug)]
enum Place {
    /// A server.
    Server(ServerId),
    /// The socket of a mount or a gateway.
    Client(PathBuf),
}

/// What a process answered.
pub struct Answer {
    /// The name of the process in traces.
    pub name: String,
    /// What it said.
    pub reply: Result<TraceReply>,
    /// It cannot be reached, or has let the question wait.
    is_silent: bool,
    /// So many files of its list come before those of `reply`.
    files_before: usize,
    place: Place,
}

/// The processes of a file system that a command is for.
pub struct Traced {
    fs: Fs,
    nodes: Vec<(String, Place)>,
    /// Mounts that are still there without a process.
    gone: Vec<String>,
}

impl Traced {
    /// The servers of a file system and the mounts and gateways of it that this user has on this
    /// machine, as far as `names` names them.
    ///
    /// # Errors
    /// The file system cannot be found, or it has nothing of these names.
    pub fn find(fs: &OsStr, names: &str, common: &Common) -> Result<Traced> {
        let fs = Fs::open(fs, &common.for_a_look())?;
        let server = |entry: &weft_base::ServerEntry| (entry.name.clone(), Place::Server(entry.id));
        let mut nodes: Vec<(String, Place)> = fs.client.map().servers().map(server).collect();
        let mut gone = Vec::new();
        for mount in fs.mounts()? {
            let name = mount_list::trace_name(&mount.place);
            match mount.pid {
                Some(_) => nodes.push((name, Place::Client(command_socket::path_for(&mount.pid_file)))),
                None if mount.is_mounted()? => gone.push(name),
                None => {}
            }
        }
        for gateway in fs.gateways()? {
            nodes.push((gateway_list::trace_name(&gateway.address), Place::Client(command_socket::path_for(&gateway.pid_file))));
        }
        let is_meant = |name: &str| names.split(',').any(|pattern| is_match(pattern.trim(), name));
        nodes.retain(|(name, _)| is_meant(name));
        gone.retain(|name| is_meant(name));
        if nodes.is_empty() {
            bail!("{} has no server, mount or gateway called {names}; `weft trace status` lists them", fs.name);
        }
        Ok(Traced { fs, nodes, gone })
    }

    /// Sends a command to all of them; a folder in it is for clients, since servers have their own.
    pub fn ask(&self, request: &TraceRequest) -> Vec<Answer> {
        self.ask_each(request.action, |place| match place {
            Place::Server(_) => TraceRequest { folder: String::new(), ..request.clone() },
            Place::Client(_) => request.clone(),
        })
    }

    /// Mounts whose process has died: nobody brings along what they recorded.
    pub fn gone(&self) -> &[String] {
        &self.gone
    }

    /// True if a mount or a gateway is among them.
    pub fn has_client(&self) -> bool {
        self.nodes.iter().any(|(_, place)| matches!(place, Place::Client(_)))
    }

    /// Servers first unless it ends something; the answers by name.
    fn ask_each(&self, action: TraceAction, request: impl Fn(&Place) -> TraceRequest) -> Vec<Answer> {
        let mut nodes: Vec<&(String, Place)> = self.nodes.iter().collect();
        let is_end = action == TraceAction::Off;
        nodes.sort_by_key(|(_, place)| matches!(place, Place::Client(_)) != is_end);
        let ask = |(name, place): &(String, Place)| {
            let (reply, is_silent) = self.ask_one(place, &request(place));
            Answer { name: name.clone(), reply, is_silent, files_before: 0, place: place.clone() }
        };
        let mut answers: Vec<Answer> = nodes.into_iter().map(ask).collect();
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

    /// The answer; and true if it is missing because there was none.
    fn ask_one(&self, place: &Place, request: &TraceRequest) -> (Result<TraceReply>, bool) {
        match place {
            Place::Server(server) => match self.fs.trace(*server, request) {
                Ok(reply) => (Ok(reply), false),
                Err(error) => {
                    let is_silent = matches!(error.status, Status::Unreachable | Status::TimedOut);
                    let why = self.fs.why(&error);
                    (Err(if is_silent { anyhow!("does not answer: {why}") } else { anyhow!(why) }), is_silent)
                }
            },
            Place::Client(path) => {
                let reply = command_socket::ask(path, request);
                let kind = |error: &anyhow::Error| error.chain().find_map(|cause| Some(cause.downcast_ref::<io::Error>()?.kind()));
                let kind = reply.as_ref().err().and_then(kind);
                (reply, matches!(kind, Some(io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)))
            }
        }
    }

    /// The names of those that record now.
    pub fn recording(&self) -> Vec<String> {
        let answers = self.ask(&TraceRequest::new(TraceAction::Status));
        let is_recording = |answer: &Answer| answer.reply.as_ref().is_ok_and(|reply| reply.mode != TraceMode::Off);
        answers.into_iter().filter(is_recording).map(|answer| answer.name).collect()
    }

    /// Begins a recording at all of them. Who does not answer is left out; if one refuses or cannot
    /// write its file, what has begun is ended again.
    ///
    /// # Errors
    /// One of them records already; what any of them says against it.
    pub fn begin_all(&self, request: &TraceRequest) -> Result<Vec<Answer>> {
        let ring = request.ring_bytes;
        if ring != 0 && !RING_BYTES_RANGE.contains(&ring) {
            bail!("{RING_REFUSED}");
        }
        if ring > RING_BYTES_MAX_SERVER && self.nodes.iter().any(|(_, place)| matches!(place, Place::Server(_))) {
            bail!("{RING_REFUSED_SERVER}");
        }
        let answers = self.begin(request)?;
        let is_refused = |answer: &Answer| answer.reply.as_ref().is_ok_and(|reply| !reply.problem.is_empty());
        if answers.iter().any(is_refused) {
            self.ask(&TraceRequest::new(TraceAction::Off));
            bail!("nothing is recorded: {}", problems(&answers).join("; "));
        }
        Ok(answers)
    }

    /// Begins a recording at those that can.
    ///
    /// # Errors
    /// One of them records already: the end of one recording would be that of the other.
    fn begin(&self, request: &TraceRequest) -> Result<Vec<Answer>> {
        self.check_nobody_records(&self.recording())?;
        let mut answers = self.ask(request);
        let has_begun = |answer: &&Answer| answer.reply.as_ref().is_ok_and(|reply| reply.problem.is_empty());
        let is_others = |answer: &&Answer| answer.reply.as_ref().is_ok_and(|reply| reply.problem == RECORDED_ALREADY);
        let others: Vec<String> = answers.iter().filter(is_others).map(|answer| answer.name.clone()).collect();
        if !others.is_empty() {
            // Theirs, which has begun in between, goes on.
            answers.iter().filter(has_begun).for_each(|answer| drop(self.ask_one(&answer.place, &TraceRequest::new(TraceAction::Off))));
        }
        self.check_nobody_records(&others)?;
        if request.mode == TraceMode::Stream {
            self.wait_for_files(&mut answers)?;
        }
        Ok(answers)
    }

    fn check_nobody_records(&self, recording: &[String]) -> Result<()> {
        if recording.is_empty() {
            return Ok(());
        }
        bail!(
            "{} is being recorded already ({}): end that with `weft trace off {0} --into DIR`, and explain it with `weft explain DIR`",
            self.fs.name,
            recording.join(", ")
        );
    }

    /// The files are made after the answers, as no server waits for a disk because somebody
    /// records. Adds to the answers why one cannot be made.
    fn wait_for_files(&self, answers: &mut [Answer]) -> Result<()> {
        let is_begun = |answer: &&mut Answer| answer.reply.as_ref().is_ok_and(|reply| reply.problem.is_empty());
        let mut waited_for: Vec<&mut Answer> = answers.iter_mut().filter(is_begun).collect();
        // A slow disk is no failure.
        wait_until(BEGIN_PATIENCE, || {
            waited_for.retain_mut(|answer| {
                let (Ok(now), Ok(begun)) = (self.ask_one(&answer.place, &TraceRequest::new(TraceAction::Status)).0, &mut answer.reply)
                else {
                    return false;
                };
                begun.problem = now.problem;
                begun.problem.is_empty() && now.files.is_empty()
            });
            Ok(waited_for.is_empty())
        })?;
        Ok(())
    }

    /// Ends the recordings and waits until their files are complete. Who recorded nothing has none
    /// in the answers: what it names is of an earlier recording. Where nobody recorded all name
    /// those.
    ///
    /// # Errors
    /// That takes too long.
    pub fn end(&self) -> Result<Vec<Answer>> {
        let before = self.ask(&TraceRequest::new(TraceAction::Status));
        let mode = |answer: &Answer| answer.reply.as_ref().ok().map(|reply| reply.mode);
        let is_recorded = before.iter().any(|answer| mode(answer).is_some_and(|mode| mode != TraceMode::Off));
        let asked = self.ask(&TraceRequest::new(TraceAction::Off));
        let mut answers = Vec::new();
        let all_there = wait_until(WRITE_PATIENCE, || {
            answers = self.ask(&TraceRequest::new(TraceAction::Status));
            Ok(!answers.iter().any(|answer| answer.reply.as_ref().is_ok_and(|reply| reply.is_writing)))
        })?;
        if !all_there {
            bail!("the files are not complete after {} s; `weft trace status` shows how it goes on", WRITE_PATIENCE.as_secs());
        }
        let idle = before.iter().map(|answer| is_recorded && mode(answer) == Some(TraceMode::Off));
        for (answer, _) in answers.iter_mut().zip(idle).filter(|(_, is_idle)| *is_idle) {
            answer.reply.iter_mut().for_each(|reply| reply.files.clear());
        }
        // Once may be by chance.
        answers.iter_mut().zip(asked).for_each(|(answer, asked)| answer.is_silent &= asked.is_silent);
        Ok(answers)
    }

    /// Lets flight recorders write what they hold, and waits for the files; only these are in the
    /// answers.
    ///
    /// # Errors
    /// None: it has the form of [`Traced::end`].
    pub fn dump(&self) -> Result<Vec<Answer>> {
        let asked = self.ask(&TraceRequest::new(TraceAction::Dump));
        let files_before = |at: usize| asked[at].reply.as_ref().map_or(0, |reply| reply.files.len());
        let is_asked = |at: usize| asked[at].reply.as_ref().is_ok_and(|reply| reply.problem.is_empty());
        let mut answers = Vec::new();
        wait_until(DUMP_PATIENCE, || {
            answers = self.ask(&TraceRequest::new(TraceAction::Status));
            let has_more =
                |(at, answer): (usize, &Answer)| answer.reply.as_ref().map_or(true, |reply| reply.files.len() > files_before(at));
            Ok(answers.iter().enumerate().filter(|(at, _)| is_asked(*at)).all(has_more))
        })?;
        for (answer, asked) in answers.iter_mut().zip(asked) {
            match (&mut answer.reply, asked.reply) {
                (Ok(reply), Ok(asked)) if asked.problem.is_empty() => {
                    answer.files_before = asked.files.len().min(reply.files.len());
                    reply.files.drain(..answer.files_before);
                }
                (_, asked) => answer.reply = asked,
            }
        }
        Ok(answers)
    }

    /// Brings all files to one folder: `into`, or where the files of a client are. If there is
    /// neither, those of other machines come to the folder for traces of the state directory. The
    /// answers name the copies then. With `move_them` they are removed where they were. What did
    /// not work is said in words.
    pub fn gather(&self, answers: &mut [Answer], into: Option<&Path>, move_them: bool) -> Vec<String> {
        let chosen = into.map(Path::to_path_buf).or_else(|| folder_of_client(answers));
        let want = match (move_them, &chosen) {
            (true, _) => Want::Moved,
            (false, Some(_)) => Want::Copied,
            (false, None) => Want::InSight,
        };
        let folder = chosen.unwrap_or_else(|| self.usual_folder());
        let mut problems = Vec::new();
        for Answer { name, reply, files_before, place, .. } in answers {
            let Ok(reply) = reply else { continue };
            for number in 0..reply.files.len() {
                let here = match place {
                    Place::Server(server) => {
                        Source { fs: &self.fs, server: *server, name, reply, files_before: *files_before }.local_copy(number, &folder, want)
                    }
                    Place::Client(_) => in_sight(&reply.files[number]).and_then(|path| match into {
                        Some(folder) => copy_here(&path, folder, &format!("{}-{}", in_file_name(name), reply.process)),
                        None => Ok(path),
                    }),
                };
                match here {
                    Ok(path) => reply.files[number] = path.to_string_lossy().into_owned(),
                    Err(error) => problems.push(format!("{name}: {error:#}")),
                }
            }
        }
        problems
    }

    /// Writes the names of the objects that were recorded beside the files, once for each folder.
    /// What did not work is said in words.
    pub fn name_objects(&self, answers: &[Answer]) -> Vec<String> {
        let files = answers.iter().filter_map(|answer| answer.reply.as_ref().ok()).flat_map(|reply| &reply.files).map(PathBuf::from);
        let files: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
        let folders: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
        // The folder of a server is often that of another user: then there are no names.
        let is_foreign = |error: &anyhow::Error| {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            matches!(kind, Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem))
        };
        let named = |folder: &&Path| crate::names::write(&self.fs, &files, folder).err().filter(|error| !is_foreign(error));
        folders.iter().filter_map(named).map(|error| format!("names of files: {error:#}")).collect()
    }

    /// Where mounts write if nobody says where.
    pub fn usual_folder(&self) -> PathBuf {
        let of_state = self.fs.config.as_ref().map(|config| StateDir::of_config(&config.file).trace_dir());
        of_state.unwrap_or_else(|| PathBuf::from(FOLDER_HERE))
    }
}

fn folder_of_client(answers: &[Answer]) -> Option<PathBuf> {
    answers.iter().find_map(|answer| match (&answer.place, &answer.reply) {
        (Place::Client(_), Ok(reply)) => reply.files.first().and_then(|file| Path::new(file).parent()).map(Path::to_path_buf),
        _ => None,
    })
}

/// What came of a recording beside its files.
#[derive(Debug, Default)]
pub struct Recorded {
    /// What is wrong with it, in words.
    pub problems: Vec<String>,
    /// Processes that should run and answered nothing at the end of it.
    pub silent: Vec<String>,
}

/// Records `seconds` of a running file system into `folder`, with the names of what was recorded if
/// that is wanted. A signal that asks for the end (Ctrl-C) ends the recording earlier, and what
/// there is by then counts. Call it before any other thread is started.
///
/// # Errors
/// Somebody records already, or nothing can be recorded at all.
pub fn record(fs: &OsStr, nodes: &str, common: &Common, seconds: f64, folder: &Path, with_names: bool) -> Result<Recorded> {
    let signals = StopSignals::block()?;
    let traced = Traced::find(fs, nodes, common)?;
    let folder = std::path::absolute(folder)?;
    let (stop, stopped) = mpsc::channel();
    signals.on_stop(move || {
        // After the recording nothing is left to be ended first.
        if stop.send(()).is_err() {
            std::process::exit(130);
        }
    });
    let begun = traced.begin(&TraceRequest {
        mask: "*".into(),
        mode: TraceMode::Stream,
        ring_bytes: RECORD_RING_BYTES,
        folder: text_of(folder.clone())?,
        ends_after_ms: Some((Duration::from_secs_f64(seconds) + END_PATIENCE * traced.nodes.len() as u32).as_millis() as u64),
        ..TraceRequest::new(TraceAction::On)
    })?;
    let mut problems = problems(&begun);
    if problems.len() == begun.len() {
        traced.ask(&TraceRequest::new(TraceAction::Off));
        bail!("nothing can be recorded: {}", problems.join("; "));
    }
    // Either is the end of it.
    let _ = stopped.recv_timeout(Duration::from_secs_f64(seconds));
    let mut ended = traced.end()?;
    problems.extend(traced.gather(&mut ended, Some(&folder), true));
    if with_names {
        problems.extend(traced.name_objects(&ended));
    }
    for Answer { name, reply, .. } in &ended {
        if let Ok(reply) = reply
            && reply.threads_without_ring > 0
        {
            problems.push(format!("{name}: {} threads found no ring and recorded nothing", reply.threads_without_ring));
        }
    }
    let silent = ended.iter().filter(|answer| answer.is_silent).map(|answer| answer.name.clone()).collect();
    Ok(Recorded { problems, silent })
}

/// What went wrong at which process, in words.
pub fn problems(answers: &[Answer]) -> Vec<String> {
    let problem = |answer: &Answer| match &answer.reply {
        Err(error) => Some(format!("{}: {error:#}", answer.name)),
        Ok(reply) if !reply.problem.is_empty() => Some(format!("{}: {}", answer.name, reply.problem)),
        Ok(_) => None,
    };
    answers.iter().filter_map(problem).collect()
}

/// A path that can travel.
///
/// # Errors
/// It is not UTF-8.
pub fn text_of(path: PathBuf) -> Result<String> {
    path.into_os_string().into_string().map_err(|path| anyhow!("the folder {} has a name that is not UTF-8", path.display()))
}

fn in_sight(file: &str) -> Result<PathBuf> {
    let path = PathBuf::from(file);
    if path.exists() { Ok(path) } else { bail!("{file} is not to be seen from here: is the mount in a container?") }
}

/// True if `pattern` is the name, or its beginning with a `*` behind.
fn is_match(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        assert!(is_match("*", "meta0") && is_match("meta*", "meta0") && is_match("meta0", "meta0") && !is_match("meta", "meta0"));
    }

    #[test]
    fn what_went_wrong_is_said_with_the_name() {
        let row = |name: &str, reply| Answer {
            name: name.into(),
            reply,
            is_silent: false,
            files_before: 0,
            place: Place::Client(PathBuf::new()),
        };
        let refused = TraceReply { problem: "no".into(), ..TraceReply::default() };
        let answers = [row("meta0", Ok(TraceReply::default())), row("data0", Err(anyhow!("no answer"))), row("data1", Ok(refused))];
        assert_eq!(problems(&answers), ["data0: no answer", "data1: no"]);
    }
}
