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
//!
//! Of a project that was exported calls stand inside of what was recorded of them. Those of a run
//! that was simulated ([`crate::to_hdtrace`]) become the programs of that run again: its
//! computation is a call of its own, and nothing lies between calls.

mod calls;
mod cluster;
mod datatypes;
mod ranks;
mod touched;

pub use cluster::cluster;
pub use ranks::{rank_nodes, rank_traces};
pub use touched::{Touched, datatype, touched};

use std::collections::BTreeMap;
use std::fmt;

use weft_hdtrace::{CALL, Element, Entry, Project, State, Time, Trace, ranges};

use calls::{FILE_BYTES_MAX, FileCall, RANGES_MAX, access};

use crate::program::{Access, Application, Command, Datatype, Extent, FileId, FileView, Rank, WORLD};

/// Traced nanoseconds for each cycle of computation.
const NANOS_PER_CYCLE: i64 = 1000;
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

/// An application made from traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The application.
    pub application: Application,
    /// What was left out although it was to be carried out, in words, such as the close of a file
    /// that the trace never opened.
    pub notes: Vec<String>,
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
        let trace = &Trace { entries: trace.entries.iter().map(call_of).collect(), ..Trace::default() };
        let mut reader = RankReader {
            rank,
            project,
            simulated: project.is_simulated(),
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

/// The call that stands in an entry of an export; else the entry itself.
fn call_of(entry: &Entry) -> Entry {
    let Entry::State(state) = entry else { return entry.clone() };
    match state.data.iter().find(|element| element.name == CALL).and_then(|element| element.children.first()) {
        Some(call) => Entry::State(State {
            name: call.name.clone(),
            attributes: call.attributes.clone(),
            data: call.children.clone(),
            ..State { nested: Vec::new(), ..state.clone() }
        }),
        None => entry.clone(),
    }
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
    /// Calls say all that was done.
    simulated: bool,
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
        if let Some(end) = self.mapped_end.filter(|_| !self.simulated) {
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
            "Compute" if self.simulated => Command::Compute { cycles: self.number(state, "cycles")? },
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
        // Programs of simulations may use files that they have not opened, and other communicators.
        let known = FileId::try_from(number).ok().filter(|file| (*file as usize) < self.application.files.len());
        let (file, comm) = match (self.open.get(&number), known) {
            (Some(open), _) => (open.file, open.comm),
            (None, Some(file)) if self.simulated => (file, WORLD),
            _ => return Ok(Mapped::Skipped(format!("the trace never opened the file {number}"))),
        };
        let comm = if self.simulated && state.attribute("cid").is_some() { self.communicator(state, "cid")? } else { comm };
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
                    None => {
                        let view = self.open.get(&number).and_then(|open| open.view.as_ref());
                        access(view, self.number(state, "offset")?, self.number(state, "size")?, explicit)
                    }
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
        if state.attribute("offset").is_some() || (!self.simulated && state.data.iter().all(|element| element.name != "Data")) {
            return Ok(None);
        }
        let list = ranges(&state.data, RANGES_MAX).filter(|list| list.iter().all(|(offset, bytes)| offset + bytes <= FILE_BYTES_MAX));
        let list = list.ok_or_else(|| self.error(state, "has a <Data> element without a sound offset and size"))?;
        if !self.simulated {
            return Ok(Some(Access::list(list)));
        }
        let list: Vec<Extent> = list.into_iter().map(|(offset, bytes)| Extent { offset, bytes }).collect();
        let one = <[Extent; 1]>::try_from(list);
        Ok(Some(one.map_or_else(Access::List, |[extent]| Access::Contiguous(extent))))
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
