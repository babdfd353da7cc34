//! Traced runs as programs: an HDTrace project and the traces of its ranks become an
//! [`Application`] whose ranks do again what was traced.
//!
//! Only states of the outermost level count: what a library did inside a call ends up in the model
//! of that call. Calls that a cluster can carry out are kept; the time between them, with the calls
//! that are not, becomes computation, one cycle for each microsecond (the processors of the traced
//! cluster are modelled with 10^6 cycles a second).
//!
//! The mapping is that of the thesis's simulator in September 2009, with these differences: offsets
//! of calls with an individual file pointer, which the tracing library wrote as bytes of the file,
//! are not mapped through the file view a second time; `File_read_at_all` and `File_write_at_all`,
//! as the library spelt them, are known beside the spellings of the simulator's table,
//! `..._all_at`.

mod cluster;
mod datatypes;

pub use cluster::cluster;

use std::collections::BTreeMap;
use std::fmt;

use weft_hdtrace::{Element, Entry, Project, State, Time, Trace, topology_paths, trace_file};

use crate::program::{Access, Application, Command, Datatype, FileId, FileView, Rank, WORLD};

/// Traced nanoseconds for each cycle of computation.
const NANOS_PER_CYCLE: i64 = 1000;
/// No file is longer.
const FILE_BYTES_MAX: u64 = 1 << 62;
/// Ranges that one call may touch.
const RANGES_MAX: u64 = 1 << 26;

/// Why a project and its traces are no programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// Rank whose trace is at fault; `None` if the project is.
    pub rank: Option<Rank>,
    /// Byte of the trace at which the faulty state begins.
    pub offset: Option<u64>,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for ImportError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, self.offset) {
            (Some(rank), Some(offset)) => write!(out, "trace of rank {rank}, byte {offset}: {}", self.problem),
            (Some(rank), None) => write!(out, "rank {rank}: {}", self.problem),
            (None, _) => write!(out, "project: {}", self.problem),
        }
    }
}

impl std::error::Error for ImportError {}

impl ImportError {
    fn project(problem: impl Into<String>) -> ImportError {
        ImportError { rank: None, offset: None, problem: problem.into() }
    }
}

/// Other projects hold spans of clients and servers, not the calls that ranks made.
const NO_RANKS: &str = "the topology has no level named Rank: only runs of MPI programs can be simulated again, such as `weft trace mpi` \
                        records them; what `weft export` wrote is for viewers";

/// An application made from traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The application.
    pub application: Application,
    /// What was left out although it was to be carried out, in words, such as the close of a file
    /// that the trace never opened.
    pub notes: Vec<String>,
}

/// Where the trace of each rank lies: file names in the order of the ranks. Of a rank with several
/// threads it is the first thread, as in the cluster models of 2009.
///
/// # Errors
/// The topology has no level `Rank`, a node of that level is not a number, or a rank is missing or
/// there twice.
pub fn rank_traces(project: &Project, stem: &str) -> Result<Vec<String>, ImportError> {
    let level = project.levels.iter().position(|level| level == "Rank");
    let level = level.ok_or_else(|| ImportError::project(NO_RANKS))?;
    let mut traces: BTreeMap<Rank, Vec<&str>> = BTreeMap::new();
    for path in topology_paths(project) {
        let Some(name) = path.get(level) else { continue };
        let rank: Rank = name.parse().map_err(|_| ImportError::project(format!("the node {name:?} of level Rank is not a number")))?;
        let known = traces.entry(rank).or_insert_with(|| path.clone());
        // The first path below a rank's node leads to its first thread.
        if path.len() > known.len() && path.starts_with(known) {
            *known = path;
        } else if path[..=level] != known[..=level] {
            return Err(ImportError::project(format!("rank {rank} stands twice in the topology")));
        }
    }
    let missing = traces.keys().zip(0..).find(|&(&rank, expected)| rank != expected);
    if let Some((_, expected)) = missing {
        return Err(ImportError::project(format!("rank {expected} is missing in the topology")));
    }
    if traces.is_empty() {
        return Err(ImportError::project("the topology has no rank"));
    }
    Ok(traces.values().map(|path| trace_file(stem, path)).collect())
}

/// The application that a project and the traces of its ranks (in the order of [`rank_traces`])
/// describe.
///
/// # Errors
/// A state lacks what its command needs, or names a communicator or datatype that the project does
/// not know.
pub fn import(project: &Project, traces: &[Trace]) -> Result<Imported, ImportError> {
    let ranks = Rank::try_from(traces.len()).map_err(|_| ImportError::project("too many ranks"))?;
    let mut application = Application::new(&project.name, ranks);
    for file in &project.files {
        application.file(&file.name, file.initial_bytes);
    }
    let communicators = communicators(project, &mut application)?;
    let mut notes = Vec::new();
    for (rank, trace) in (0..).zip(traces) {
        let mut reader = RankReader {
            rank,
            project,
            communicators: &communicators,
            application: &mut application,
            open: BTreeMap::new(),
            notes: &mut notes,
            mapped_end: None,
            matched: matched(trace),
        };
        for entry in &trace.entries {
            if let Entry::State(state) = entry {
                reader.state(state)?;
            }
        }
    }
    Ok(Imported { application, notes })
}

/// Adds the communicators of the project; gives the number of each. The first one that is the world
/// is the world.
fn communicators(project: &Project, application: &mut Application) -> Result<Vec<u32>, ImportError> {
    let world = application.communicators[WORLD as usize].clone();
    let mut world_found = false;
    let mut numbers = Vec::new();
    for (index, communicator) in project.communicators.iter().enumerate() {
        let mut members = communicator.members.clone();
        members.sort_by_key(|member| member.local);
        let ranks: Vec<Rank> = members.iter().map(|member| member.global).collect();
        let in_order = members.iter().zip(0..).all(|(member, local)| member.local == local);
        if !in_order || ranks.iter().any(|rank| !world.contains(rank)) {
            return Err(ImportError::project(format!("communicator {index} has local ranks with gaps, or ranks that the topology lacks")));
        }
        if !world_found && ranks == world {
            world_found = true;
            numbers.push(WORLD);
        } else {
            numbers.push(application.communicator(ranks));
        }
    }
    Ok(numbers)
}

/// A file that a rank has open.
struct OpenFile {
    file: FileId,
    comm: u32,
    /// The view and the bytes of its elementary type.
    view: Option<(FileView, u64)>,
}

/// Whether and how a state becomes a command.
enum Mapped {
    /// It does.
    Command(Command),
    /// It would, but something is wrong with it that does not spoil the rest.
    Skipped(String),
    /// It is computation.
    Unknown,
}

struct RankReader<'a> {
    rank: Rank,
    project: &'a Project,
    communicators: &'a [u32],
    application: &'a mut Application,
    /// By the number that the trace gives to an open file.
    open: BTreeMap<i64, OpenFile>,
    notes: &'a mut Vec<String>,
    /// End of the last state that became a command.
    mapped_end: Option<Time>,
    /// What receives from anybody got, by the numbers of their requests.
    matched: BTreeMap<String, [String; 2]>,
}

/// What the waits of a trace say of receives that were begun without a sender or a tag.
fn matched(trace: &Trace) -> BTreeMap<String, [String; 2]> {
    let states = trace.entries.iter().filter_map(|entry| if let Entry::State(state) = entry { Some(state) } else { None });
    let waits = states.flat_map(|state| state.data.iter().filter(|element| element.name.eq_ignore_ascii_case("for")));
    let told = |element: &Element| {
        let of = |name: &str| element.attribute(name).map(str::to_owned);
        Some((of("aid")?, [of("fromRank")?, of("fromTag")?]))
    };
    waits.filter_map(told).collect()
}

impl RankReader<'_> {
    fn state(&mut self, state: &State) -> Result<(), ImportError> {
        let command = match self.command(state)? {
            Mapped::Command(command) => command,
            Mapped::Skipped(why) => {
                self.notes.push(format!("rank {}, byte {}: {} left out: {why}", self.rank, state.offset.0, state.name));
                return Ok(());
            }
            Mapped::Unknown => return Ok(()),
        };
        if let Some(end) = self.mapped_end {
            let cycles = (state.begin - end).0 / NANOS_PER_CYCLE;
            if cycles > 0 {
                self.application.push(self.rank, Command::Compute { cycles: cycles.unsigned_abs() });
            }
        }
        self.mapped_end = Some(state.end);
        self.application.push(self.rank, command);
        Ok(())
    }

    fn command(&mut self, state: &State) -> Result<Mapped, ImportError> {
        let comm = || self.communicator(state, "cid");
        let bytes = || self.number(state, "size");
        let tag = |name| self.number(state, name);
        // What failed, and what was said to the ranks of another group, is not done again.
        if state.attribute("error").is_some() || state.attribute("beyond").is_some() {
            return Ok(Mapped::Unknown);
        }
        let is_null = |name| state.attribute(name) == Some("null");
        let command = match state.name.as_str() {
            "Send" | "Ssend" | "Bsend" | "Rsend" | "Isend" | "Issend" | "Ibsend" | "Irsend" if !is_null("toRank") => {
                let (comm, to, tag) = (comm()?, self.number(state, "toRank")?, tag("toTag")?);
                Command::Send { comm, to, tag, bytes: bytes()?, request: self.optional(state, "aid")? }
            }
            "Recv" | "Irecv" if !is_null("fromRank") => {
                let known = state.attribute("aid").and_then(|request| self.matched.get(request));
                let state = &match known {
                    Some([from, tag]) => with(state, &[("fromRank", from), ("fromTag", tag)]),
                    None => state.clone(),
                };
                let (comm, from, tag) = (comm()?, self.sender(state)?, self.number(state, "fromTag")?);
                Command::Recv { comm, from, tag, request: self.optional(state, "aid")? }
            }
            "Sendrecv" | "Sendrecv_replace" => match (is_null("toRank"), is_null("fromRank")) {
                (true, true) => return Ok(Mapped::Unknown),
                (false, true) => {
                    Command::Send { comm: comm()?, to: self.number(state, "toRank")?, tag: tag("toTag")?, bytes: bytes()?, request: None }
                }
                (true, false) => Command::Recv { comm: comm()?, from: self.sender(state)?, tag: tag("fromTag")?, request: None },
                (false, false) => {
                    let (comm, to, from) = (comm()?, self.number(state, "toRank")?, self.sender(state)?);
                    Command::Sendrecv { comm, to, send_tag: tag("toTag")?, bytes: bytes()?, from, recv_tag: tag("fromTag")? }
                }
            },
            "Wait" => Command::Wait { requests: self.waited_for(state)? },
            "Waitall" | "Waitany" | "Waitsome" | "Test" | "Testall" | "Testany" | "Testsome" => match self.waited_for(state)? {
                requests if requests.is_empty() => return Ok(Mapped::Unknown),
                requests => Command::Wait { requests },
            },
            "Barrier" => Command::Barrier { comm: comm()? },
            "Bcast" => Command::Bcast { comm: comm()?, root: self.root(state)?, bytes: bytes()? },
            "Reduce" => Command::Reduce { comm: comm()?, root: self.root(state)?, bytes: bytes()? },
            "Allreduce" => Command::Allreduce { comm: comm()?, bytes: bytes()? },
            "Gather" => Command::Gather { comm: comm()?, root: self.root(state)?, bytes: bytes()? },
            "Allgather" => Command::Allgather { comm: comm()?, bytes: bytes()? },
            "File_open" => return self.open(state).map(Mapped::Command),
            name if name.starts_with("File_") => return self.file_command(state),
            _ => return Ok(Mapped::Unknown),
        };
        Ok(Mapped::Command(command))
    }

    fn open(&mut self, state: &State) -> Result<Command, ImportError> {
        let name = self.required(state, "name")?;
        let (comm, number) = (self.communicator(state, "cid")?, self.number(state, "fid")?);
        let known = self.application.files.iter().position(|file| file.name == name);
        let file = match known.and_then(|index| FileId::try_from(index).ok()) {
            Some(file) => file,
            None => self.application.file(name, 0),
        };
        self.open.insert(number, OpenFile { file, comm, view: None });
        Ok(Command::FileOpen { comm, file, truncate: state.attribute("truncate") == Some("true") })
    }

    fn file_command(&mut self, state: &State) -> Result<Mapped, ImportError> {
        let call = match FileCall::of(&state.name) {
            Some(call) => call,
            None => return Ok(Mapped::Unknown),
        };
        let number: i64 = self.number(state, "fid")?;
        let Some(open) = self.open.get(&number) else {
            return Ok(Mapped::Skipped(format!("the trace never opened the file {number}")));
        };
        let (file, comm) = (open.file, open.comm);
        let command = match call {
            FileCall::Close => {
                self.open.remove(&number);
                Command::FileClose { comm, file }
            }
            FileCall::SetView => match self.view(state)? {
                Err(why) => return Ok(Mapped::Skipped(why)),
                Ok(view) => {
                    self.open.insert(number, OpenFile { file, comm, view: Some(view.clone()) });
                    Command::FileSetView { file, view: view.0 }
                }
            },
            FileCall::Transfer { write, collective, explicit } => {
                let access = match self.listed(state)? {
                    Some(list) => Some(list),
                    None => access(&open.view, self.number(state, "offset")?, self.number(state, "size")?, explicit),
                };
                let access = access.ok_or_else(|| self.error(state, "reaches further than any file, or touches too many ranges"))?;
                match (write, collective) {
                    (false, false) => Command::FileRead { file, access },
                    (true, false) => Command::FileWrite { file, access },
                    (false, true) => Command::FileReadAll { comm, file, access },
                    (true, true) => Command::FileWriteAll { comm, file, access },
                }
            }
        };
        Ok(Mapped::Command(command))
    }

    /// The view that a state sets and the bytes of its elementary type. The inner error says why
    /// the view cannot be modelled.
    fn view(&self, state: &State) -> Result<Result<(FileView, u64), String>, ImportError> {
        let displacement = self.number(state, "offset")?;
        let filetype: i64 = self.number(state, "filetid")?;
        let Some(types) = self.project.datatypes.iter().find(|types| types.rank == self.rank) else {
            return Err(self.error(state, "the project lists no datatypes of this rank"));
        };
        let elementary = match self.optional::<i64>(state, "etid")? {
            Some(id) => datatypes::convert(types, id).map(|datatype| datatype.data_bytes()),
            None => Ok(1),
        };
        let view = elementary.and_then(|elementary_bytes| {
            let filetype: Datatype = datatypes::convert(types, filetype)?;
            Ok((FileView { displacement, filetype }, elementary_bytes))
        });
        Ok(view)
    }

    /// Ranges of the file in `<Data>` elements, as simulated runs are exported.
    fn listed(&self, state: &State) -> Result<Option<Access>, ImportError> {
        if state.attribute("offset").is_some() || state.data.iter().all(|element| element.name != "Data") {
            return Ok(None);
        }
        let mut list = Vec::new();
        for element in state.data.iter().filter(|element| element.name == "Data") {
            let number = |name| element.attribute(name).and_then(|text| text.parse::<u64>().ok());
            let range = number("offset")
                .zip(number("size"))
                .filter(|(offset, bytes)| offset.checked_add(*bytes).is_some_and(|end| end <= FILE_BYTES_MAX));
            list.push(range.ok_or_else(|| self.error(state, "has a <Data> element without a sound offset and size"))?);
        }
        Ok(Some(Access::list(list)))
    }

    fn waited_for(&self, state: &State) -> Result<Vec<u32>, ImportError> {
        let waits = state.data.iter().filter(|element| element.name.eq_ignore_ascii_case("for"));
        let numbers = waits.map(|element| element.attribute("aid").and_then(|text| text.parse().ok()));
        numbers.map(|number| number.ok_or_else(|| self.error(state, "waits for something that has no number aid"))).collect()
    }

    fn communicator(&self, state: &State, name: &str) -> Result<u32, ImportError> {
        let id = self.number(state, name)?;
        let index = self.project.communicator_of(self.rank, id);
        index
            .map(|index| self.communicators[index])
            .ok_or_else(|| self.error(state, &format!("the project knows no communicator {id} of this rank")))
    }

    /// A negative sender is any.
    fn sender(&self, state: &State) -> Result<Option<Rank>, ImportError> {
        let from: i64 = self.number(state, "fromRank")?;
        if from < 0 {
            return Ok(None);
        }
        Rank::try_from(from).map(Some).map_err(|_| self.error(state, "fromRank is too large"))
    }

    /// The tracing library wrote `rootRank` for some calls and `root` for others.
    fn root(&self, state: &State) -> Result<Rank, ImportError> {
        let name = if state.attribute("rootRank").is_some() { "rootRank" } else { "root" };
        self.number(state, name)
    }

    fn required<'s>(&self, state: &'s State, name: &str) -> Result<&'s str, ImportError> {
        state.attribute(name).ok_or_else(|| self.error(state, &format!("lacks the attribute {name}")))
    }

    fn number<T: std::str::FromStr>(&self, state: &State, name: &str) -> Result<T, ImportError> {
        let text = self.required(state, name)?;
        text.trim().parse().map_err(|_| self.error(state, &format!("{name} is {text:?}, which is no number that could stand there")))
    }

    fn optional<T: std::str::FromStr>(&self, state: &State, name: &str) -> Result<Option<T>, ImportError> {
        if state.attribute(name).is_none() { Ok(None) } else { self.number(state, name).map(Some) }
    }

    fn error(&self, state: &State, problem: &str) -> ImportError {
        ImportError { rank: Some(self.rank), offset: Some(state.offset.0), problem: format!("<{}> {problem}", state.name) }
    }
}

/// The state with other values of some attributes.
fn with(state: &State, values: &[(&str, &String)]) -> State {
    let mut state = state.clone();
    for (name, value) in &mut state.attributes {
        if let Some((_, other)) = values.iter().find(|(known, _)| known == name) {
            value.clone_from(other);
        }
    }
    state
}

/// Calls on an open file that a cluster carries out.
enum FileCall {
    Close,
    SetView,
    Transfer {
        write: bool,
        collective: bool,
        /// The offset is an argument, counted in the view; else it is that of the file pointer,
        /// counted in the file.
        explicit: bool,
    },
}

impl FileCall {
    fn of(name: &str) -> Option<FileCall> {
        let transfer = |write, collective, explicit| Some(FileCall::Transfer { write, collective, explicit });
        match name {
            "File_close" => Some(FileCall::Close),
            "File_set_view" => Some(FileCall::SetView),
            "File_read" | "File_iread" => transfer(false, false, false),
            "File_read_at" | "File_iread_at" => transfer(false, false, true),
            "File_write" | "File_iwrite" => transfer(true, false, false),
            "File_write_at" | "File_iwrite_at" => transfer(true, false, true),
            "File_read_all" | "File_read_all_begin" | "File_iread_all" => transfer(false, true, false),
            "File_read_all_at" | "File_read_at_all" | "File_read_at_all_begin" | "File_iread_at_all" => transfer(false, true, true),
            "File_write_all" | "File_write_all_begin" | "File_iwrite_all" => transfer(true, true, false),
            "File_write_all_at" | "File_write_at_all" | "File_write_at_all_begin" | "File_iwrite_at_all" => transfer(true, true, true),
            _ => None,
        }
    }
}

/// The ranges of the file that a call touches; `None` if they are beyond all measure.
fn access(view: &Option<(FileView, u64)>, offset: u64, bytes: u64, explicit: bool) -> Option<Access> {
    let Some((view, elementary_bytes)) = view else {
        return offset.checked_add(bytes).is_some_and(|end| end <= FILE_BYTES_MAX).then(|| Access::at(offset, bytes));
    };
    let (data, extent) = (view.filetype.data_bytes(), view.filetype.extent_bytes());
    if data == 0 || bytes == 0 {
        return Some(Access::List(Vec::new()));
    }
    let blocks = view.filetype.blocks();
    let data_offset = if explicit {
        offset.checked_mul(*elementary_bytes)?
    } else {
        // Data that the view shows before this byte of the file.
        let relative = offset.saturating_sub(view.displacement);
        let inside = relative % extent;
        let before = blocks.iter().map(|block| inside.saturating_sub(block.offset).min(block.bytes));
        (relative / extent).checked_mul(data)?.checked_add(before.sum())?
    };
    let copies = data_offset.checked_add(bytes)? / data + 1;
    let ranges = (bytes / data + 2).checked_mul(blocks.len() as u64)?;
    let end = copies.checked_mul(extent)?.checked_add(view.displacement)?;
    (end <= FILE_BYTES_MAX && (data == extent || ranges <= RANGES_MAX)).then(|| Access::List(view.map(data_offset, bytes)))
}
