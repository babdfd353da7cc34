//! Simulated runs as trace files of Weft, one for each node, in virtual time: what `weft view`,
//! `weft explain`, `weft export` and `weft plot` read. Commands of programs are events of the
//! application; those that no application of Weft itself has are described in the header of the
//! file. Requests have keys, so that the time of a command is found at servers and disks; the
//! messages that ranks wait for are inside their commands, and what is left of these is waiting for
//! other ranks. What a command was given (communicator, partner, tag, ranges of a file) is the name
//! of an object of its own, from which an export has the program again.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use weft_base::ServerId;
use weft_hdtrace::{PROJECT_OBJECT, call_object};
use weft_model::{JobKind, Seek};
use weft_piosim::program::FileId;
use weft_piosim::to_hdtrace::Calls;
use weft_piosim::{Access, Command, Recording, RequestSpan, Taken};
use weft_trace::event::{self, EventInfo, EventPart, EventTable, PHASES_MAX};
use weft_trace::file::{FileHeader, FileWriter};
use weft_trace::messages::{self, Message};
use weft_trace::record::{Body, Span, StagedSpan, TraceRecord, class, coarse, fine, flags};
use weft_trace::{Anchor, EventId, EventKind, Stage};

use crate::workload::Load;

/// Events of programs beyond those of [`event`]: name, and the stage of what no request or message
/// explains.
const MORE: [(&str, Stage); 12] = [
    ("app.compute", Stage::Client),
    ("app.send", Stage::Peers),
    ("app.recv", Stage::Peers),
    ("app.sendrecv", Stage::Peers),
    ("app.wait", Stage::Peers),
    ("app.barrier", Stage::Peers),
    ("app.bcast", Stage::Peers),
    ("app.reduce", Stage::Peers),
    ("app.gather", Stage::Peers),
    ("app.view", Stage::Client),
    ("app.read_all", Stage::Peers),
    ("app.write_all", Stage::Peers),
];
/// The code of the first of them in layer 0.
const MORE_FROM: u8 = 32;
/// A rank waits for a message to or from another one.
const NET_MESSAGE: EventId = EventId::new(3, 32);
/// Inside a request at a server: its data is on the way there.
const NET_DATA: EventId = EventId::new(3, 33);
/// Phases of a request at a server in which it waits, unless its disk works for it; one alone could
/// hold 68 s.
const WAITS: [usize; 4] = [event::served::QUEUE, 5, 6, 7];

/// The ring of names.
const NAMES: u32 = 1 << 30;

/// A node: servers behind clients, each by its number.
type Place = (bool, u32);

/// Records of all nodes, by node and ring.
#[derive(Default)]
struct Nodes(BTreeMap<Place, BTreeMap<u32, Vec<TraceRecord>>>);

impl Nodes {
    fn put(&mut self, place: Place, ring: u32, record: TraceRecord) {
        let server = if place.0 { flags::SERVER } else { 0 };
        let record = TraceRecord { flags: record.flags | flags::SIMULATED | server, ..record };
        self.0.entry(place).or_default().entry(ring).or_default().push(record);
    }
}

fn span((start, end): (u64, u64), id: EventId, span: Span) -> TraceRecord {
    TraceRecord::new(start, id, Body::Span(Span { dur: end - start, ..span }))
}

fn length(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The key of a request.
fn key(number: u32) -> u64 {
    u64::from(number) + 1
}

/// Writes the files of a recorded run into a folder: `client0.wtrace`, ..., `server0.wtrace`, ...
///
/// # Errors
/// A file cannot be written.
pub fn write(folder: &Path, workloads: &[Load], servers: u32, recording: &Recording) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // The client node of each process: ranks of all applications in their order; servers follow.
    let clients: Vec<u32> = workloads.iter().flat_map(|load| load.nodes.iter().copied()).collect();
    let place = |process: u32| match clients.get(process as usize) {
        Some(client) => (false, *client),
        None => (true, process - clients.len() as u32),
    };
    let mut nodes = Nodes::default();
    for place in clients.iter().map(|client| (false, *client)).chain((0..servers).map(|server| (true, server))) {
        nodes.0.entry(place).or_default();
    }
    let calls = Calls::of(workloads.iter().map(|load| &load.application));
    let commands = put_commands(&mut nodes, workloads, recording, &calls);
    put_requests(&mut nodes, &clients, &commands, recording);
    put_accesses(&mut nodes, recording);
    for message in &recording.messages {
        let parent = commands.get(&(message.process, message.position)).copied().unwrap_or(0);
        let body = Span { off: u64::from(message.peer), parent, ..Span::default() };
        nodes.put(place(message.process), message.process, span((message.start, message.end), NET_MESSAGE, body));
    }
    for (number, taken) in (0..).zip(&recording.taken) {
        let Taken { from, to, bytes, sent, taken } = *taken;
        let [left, came] = Message { number, from, to, bytes, sent, taken }.records();
        nodes.put(place(from), from, left);
        nodes.put(place(to), to, came);
    }
    for (transfer, request) in recording.transfers.iter().zip(&recording.transfers_of) {
        let id = if transfer.sent { event::NET_SEND } else { event::NET_RECEIVE };
        let body = Span { len: length(transfer.bytes), ..Span::default() };
        let record = span((transfer.start, transfer.end), id, body);
        nodes.put(place(transfer.process), transfer.process, TraceRecord { req: request.map_or(0, key), ..record });
    }
    // Files of all applications are numbered together.
    let names = workloads.iter().flat_map(|load| load.application.files.iter().map(|file| file.name.as_str()));
    if let Some(place) = nodes.0.keys().next().copied() {
        let project = calls.project().write();
        let named = (1..).zip(names).chain([(PROJECT_OBJECT, project.as_str())]);
        let records = named.flat_map(|(object, name)| weft_trace::names::records(object, name));
        records.for_each(|record| nodes.put(place, NAMES, record));
    }
    for ((is_server, number), rings) in nodes.0 {
        let name = if is_server { format!("server{number}") } else { format!("client{number}") };
        let server = is_server.then(|| ServerId::data(number as u16).0);
        let path = folder.join(format!("{name}.wtrace"));
        std::fs::write(&path, file(name, server, rings)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Gives the span of each command, by process and position in its program.
fn put_commands(nodes: &mut Nodes, workloads: &[Load], recording: &Recording, calls: &Calls<'_>) -> BTreeMap<(u32, u32), u32> {
    // Ranks and files of all applications are numbered together.
    let mut first = Vec::new();
    let (mut ranks, mut files) = (0, 0);
    for load in workloads {
        first.push((ranks, files));
        ranks += load.nodes.len() as u32;
        files += load.application.files.len() as u64;
    }
    let mut numbers = BTreeMap::new();
    for (number, command_span) in (1..).zip(&recording.commands) {
        let load = &workloads[command_span.app as usize];
        let command = &load.application.programs[command_span.rank as usize].commands[command_span.position as usize];
        let (offset, bytes) = extent(command);
        let (first_rank, first_file) = first[command_span.app as usize];
        let rank = first_rank + command_span.rank;
        numbers.insert((rank, command_span.position), number);
        let obj = file_of(command).map_or(0, |file| first_file + u64::from(file) + 1);
        let body = Span { off: offset, len: length(bytes), obj, span: number, ..Span::default() };
        let record = span((command_span.start, command_span.end), event_of(command), body);
        let place = (false, load.nodes[command_span.rank as usize]);
        nodes.put(place, rank, record);
        let call = calls.call(command_span.app as usize, command_span.rank, command_span.position as usize);
        for record in weft_trace::names::records(call_object(number), &call.to_text()) {
            nodes.put(place, NAMES, record);
        }
    }
    numbers
}

/// A request is a call at its client and a staged span at its server.
fn put_requests(nodes: &mut Nodes, clients: &[u32], commands: &BTreeMap<(u32, u32), u32>, recording: &Recording) {
    for (number, request) in (0..).zip(&recording.requests) {
        let RequestSpan { process, server, start, end, .. } = *request;
        let (sent, arrived) = (request.sent.clamp(start, end), request.arrived.clamp(start, end));
        // What comes to a server without room waits at its card until there is room again.
        let held = recording.full.iter().find(|full| full.server == server && full.start < arrived && arrived <= full.end);
        let arrived = held.map_or(arrived, |full| full.start.max(sent).min(arrived));
        let answered = request.answered.clamp(arrived, end);
        let call = Span {
            peer: ServerId::data(server as u16).0,
            obj: u64::from(request.file) + 1,
            off: if request.writes { 96 } else { 97 },
            len: length(request.bytes),
            parent: commands.get(&(process, request.position)).copied().unwrap_or(0),
            wait: coarse(sent - start),
            ..Span::default()
        };
        let record = span((start, end), event::NET_CALL, call);
        nodes.put((false, clients[process as usize]), process, TraceRecord { req: key(number), ..record });
        let id = if request.writes { event::DATA_WRITE } else { event::DATA_READ };
        let mut staged_span = StagedSpan { span: number + 1, code: if request.writes { 96 } else { 97 }, ..StagedSpan::default() };
        let mut left = answered - arrived;
        for phase in WAITS {
            staged_span.phases[phase] = coarse(left);
            left -= fine(staged_span.phases[phase]).min(left);
        }
        let record = TraceRecord { req: key(number), ..TraceRecord::new(arrived, id, Body::StagedSpan(staged_span)) };
        nodes.put((true, server), 0, record);
        // While the data of a write is on the way the server does not let it wait, unless it has no
        // room.
        let mut at = arrived;
        let until = request.complete.clamp(arrived, answered);
        for full in recording.full.iter().filter(|full| full.server == server && full.start < until && full.end > arrived) {
            put_data(nodes, number, request, (at, full.start.clamp(at, until)));
            at = full.end.clamp(at, until);
        }
        put_data(nodes, number, request, (at, until));
    }
}

fn put_data(nodes: &mut Nodes, number: u32, request: &RequestSpan, (from, to): (u64, u64)) {
    if request.writes && from < to {
        let body = Span { parent: number + 1, len: length(request.bytes), ..Span::default() };
        let record = span((from, to), NET_DATA, body);
        nodes.put((true, request.server), 1, TraceRecord { req: key(number), ..record });
    }
}

/// An access for one request is a record of that request; one for several has a record of its own
/// beside theirs.
fn put_accesses(nodes: &mut Nodes, recording: &Recording) {
    let mut parts = recording.parts.clone();
    parts.sort_unstable();
    for (position, access) in (0..).zip(&recording.disks) {
        let first = parts.partition_point(|part| part.access < position);
        let count = parts[first..].iter().take_while(|part| part.access == position).count();
        let own = if access.kind == JobKind::Read { event::DISK_READ } else { event::DISK_WRITE };
        let mut put = |id, req, bytes, flags| {
            let body = Span { obj: u64::from(access.file) + 1, off: access.offset, len: length(bytes), ..Span::default() };
            let class = match access.seek {
                Seek::None => class::NO_SEEK,
                Seek::Near => class::NEAR_SEEK,
                Seek::Far => class::FAR_SEEK,
            };
            nodes.put((true, access.server), 0, TraceRecord { req, class, flags, ..span((access.start, access.end), id, body) });
        };
        match &parts[first..first + count] {
            [] => put(own, 0, access.bytes, 0),
            [only] => put(own, key(only.request), access.bytes, 0),
            several => {
                put(event::DISK_JOB, 0, access.bytes, 0);
                several.iter().for_each(|part| put(own, key(part.request), part.bytes, flags::SHARED));
            }
        }
    }
}

fn file(node: String, server: Option<u16>, rings: BTreeMap<u32, Vec<TraceRecord>>) -> Vec<u8> {
    let header = FileHeader {
        node,
        server,
        process: 1,
        clock: "virtual".into(),
        clock_domain: "simulation".into(),
        anchor: Anchor::default(),
        events: events(),
        machine: String::new(),
    };
    FileWriter::whole(&header, rings)
}

/// This program's events and those of simulated programs.
fn events() -> EventTable {
    let more = (0..).zip(MORE).map(|(number, (name, stage))| EventInfo {
        id: EventId::new(0, MORE_FROM + number),
        name: name.to_string(),
        kind: EventKind::Span,
        stage,
        parts: Vec::new(),
    });
    let inside = [(NET_MESSAGE, "net.message"), (NET_DATA, "net.data")].map(|(id, name)| EventInfo {
        id,
        name: name.to_string(),
        kind: EventKind::Span,
        stage: Stage::Network,
        parts: Vec::new(),
    });
    EventTable::from_infos(EventTable::builtin().iter().map(of_model).chain(more).chain(inside).chain(messages::events()))
}

/// What is different in a model: programs call I/O servers without a kernel; opens and closes are
/// barriers, with messages inside them; and a server's processor takes no time, so a request waits
/// there while its disk does not work for it.
fn of_model(info: &EventInfo) -> EventInfo {
    match info.id {
        event::APP_OPEN | event::APP_CLOSE => EventInfo { stage: Stage::Peers, ..info.clone() },
        id if id.layer() == 0 => EventInfo { stage: Stage::Client, ..info.clone() },
        event::DATA_READ | event::DATA_WRITE => {
            let more = (info.parts.len()..PHASES_MAX).map(|_| EventPart { name: "queue".to_string(), stage: Stage::ServerQueue });
            EventInfo { parts: info.parts.iter().cloned().chain(more).collect(), ..info.clone() }
        }
        _ => info.clone(),
    }
}

fn event_of(command: &Command) -> EventId {
    let more = |name: &str| {
        let number = MORE.iter().position(|(known, _)| *known == name).expect("a name of the table above");
        EventId::new(0, MORE_FROM + number as u8)
    };
    match command {
        Command::Compute { .. } => more("app.compute"),
        Command::Send { .. } => more("app.send"),
        Command::Recv { .. } => more("app.recv"),
        Command::Sendrecv { .. } => more("app.sendrecv"),
        Command::Wait { .. } => more("app.wait"),
        Command::Barrier { .. } => more("app.barrier"),
        Command::Bcast { .. } => more("app.bcast"),
        Command::Reduce { .. } | Command::Allreduce { .. } => more("app.reduce"),
        Command::Gather { .. } | Command::Allgather { .. } => more("app.gather"),
        Command::FileOpen { .. } => event::APP_OPEN,
        Command::FileClose { .. } => event::APP_CLOSE,
        Command::FileSetView { .. } => more("app.view"),
        Command::FileRead { .. } => event::APP_READ,
        Command::FileWrite { .. } => event::APP_WRITE,
        Command::FileReadAll { .. } => more("app.read_all"),
        Command::FileWriteAll { .. } => more("app.write_all"),
    }
}

/// The file of a command, by its number in the application.
fn file_of(command: &Command) -> Option<FileId> {
    match command {
        Command::FileOpen { file, .. }
        | Command::FileClose { file, .. }
        | Command::FileSetView { file, .. }
        | Command::FileRead { file, .. }
        | Command::FileWrite { file, .. }
        | Command::FileReadAll { file, .. }
        | Command::FileWriteAll { file, .. } => Some(*file),
        _ => None,
    }
}

/// First byte and number of bytes that a command accesses.
fn extent(command: &Command) -> (u64, u64) {
    match command {
        Command::FileRead { access, .. }
        | Command::FileWrite { access, .. }
        | Command::FileReadAll { access, .. }
        | Command::FileWriteAll { access, .. } => {
            let first = match access {
                Access::Contiguous(extent) => extent.offset,
                Access::View { offset, .. } => *offset,
                Access::List(list) => list.first().map_or(0, |extent| extent.offset),
            };
            (first, Access::bytes(access))
        }
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests;
