//! Every event that can be recorded: one table of numbers, names, kinds and the stages their time
//! belongs to. The table is written into the header of every trace file, so that an old file is
//! read with its own names.

use std::collections::BTreeMap;

use weft_base::ServerRole;
use weft_wire::Op;

use crate::Stage;

/// Names an event: the layer in bits 6 to 9, the event within the layer in bits 0 to 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u16);

/// Number of layers, and of events in a layer.
pub const LAYERS: usize = 16;
/// Events that a layer can have.
pub const EVENTS_PER_LAYER: usize = 1 << EVENT_BITS;
const EVENT_BITS: u32 = 6;
/// Phases that one staged span record holds.
pub const PHASES_MAX: usize = 8;

impl EventId {
    /// The event `code` of `layer`.
    pub const fn new(layer: u8, code: u8) -> EventId {
        assert!((layer as usize) < LAYERS && (code as usize) < EVENTS_PER_LAYER);
        EventId((layer as u16) << EVENT_BITS | code as u16)
    }
    /// The layer, below [`LAYERS`].
    pub const fn layer(self) -> usize {
        (self.0 >> EVENT_BITS) as usize % LAYERS
    }
    /// Its bit in the mask of its layer.
    pub const fn bit(self) -> u64 {
        1 << (self.0 & 63)
    }
}

/// How the payload of a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// Something with a beginning and a duration.
    Span = 0,
    /// Lengths of up to eight phases that follow one another.
    StagedSpan = 1,
    /// Up to five gauges.
    Counter = 2,
    /// A point in time with a value and a label.
    Mark = 3,
    /// A relation between clocks.
    Sync = 4,
    /// Records were lost here.
    Lost = 5,
    /// A piece of a name.
    Text = 6,
}

impl EventKind {
    /// The kind of this number.
    pub fn from_number(number: u8) -> Option<EventKind> {
        [EventKind::Span, EventKind::StagedSpan, EventKind::Counter, EventKind::Mark, EventKind::Sync, EventKind::Lost, EventKind::Text]
            .into_iter()
            .find(|k| *k as u8 == number)
    }
}

/// A part of an event's description: a phase of a staged span with the stage its time belongs to,
/// or a gauge of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPart {
    /// For people.
    pub name: String,
    /// Where the time belongs; [`Stage::Unseen`] for gauges.
    pub stage: Stage,
}

impl EventPart {
    fn of((name, stage): &(&str, Stage)) -> EventPart {
        EventPart { name: (*name).to_string(), stage: *stage }
    }
}

/// What is known about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventInfo {
    /// The number in records.
    pub id: EventId,
    /// `layer.event`.
    pub name: String,
    /// How its records are read.
    pub kind: EventKind,
    /// A span: the stage of its time that no child explains.
    pub stage: Stage,
    /// A staged span: its phases. A counter: its gauges.
    pub parts: Vec<EventPart>,
}

/// Descriptions by number: this program's ([`EventTable::builtin`]) or those of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTable(BTreeMap<EventId, EventInfo>);

impl EventTable {
    /// The events of this program.
    pub fn builtin() -> EventTable {
        let rows = ROWS.iter().map(|row| EventInfo {
            id: row.id,
            name: row.name.to_string(),
            kind: row.kind,
            stage: row.stage,
            parts: row.parts.iter().map(EventPart::of).collect(),
        });
        EventTable::from_infos(rows.chain(of_requests()))
    }

    /// A table of these events.
    pub fn from_infos(infos: impl IntoIterator<Item = EventInfo>) -> EventTable {
        EventTable(infos.into_iter().map(|info| (info.id, info)).collect())
    }

    /// The description of an event.
    pub fn get(&self, id: EventId) -> Option<&EventInfo> {
        self.0.get(&id)
    }

    /// The name of an event, or its number.
    pub fn name(&self, id: EventId) -> String {
        self.get(id).map_or_else(|| format!("event {}.{}", id.layer(), id.0 & 63), |info| info.name.clone())
    }

    /// The event of this name.
    pub fn by_name(&self, name: &str) -> Option<&EventInfo> {
        self.0.values().find(|info| info.name == name)
    }

    /// All events, by number.
    pub fn iter(&self) -> impl Iterator<Item = &EventInfo> {
        self.0.values()
    }
}

/// A row of the table below.
struct Row {
    id: EventId,
    name: &'static str,
    kind: EventKind,
    stage: Stage,
    parts: &'static [(&'static str, Stage)],
}

macro_rules! events {
    ($( $(#[$doc:meta])* $constant:ident = $layer:literal $code:literal $name:literal $kind:ident $stage:ident $parts:expr; )*) => {
        $( $(#[$doc])* pub const $constant: EventId = EventId::new($layer, $code); )*
        const ROWS: &[Row] = &[ $( Row { id: $constant, name: $name, kind: EventKind::$kind, stage: Stage::$stage, parts: $parts }, )* ];
    };
}

const NONE: &[(&str, Stage)] = &[];
/// The stations of a request at a server, in their order.
const SERVED: &[(&str, Stage)] =
    &[("queue", Stage::ServerQueue), ("lock", Stage::Lock), ("cpu", Stage::Cpu), ("journal", Stage::Journal), ("send", Stage::SendQueue)];
/// Positions in a server's staged span.
pub mod served {
    /// Received, not begun.
    pub const QUEUE: usize = 0;
    /// Parked behind a lock, or waiting for another server.
    pub const LOCK: usize = 1;
    /// Decoded, decided, applied; at a data server with the disk inside, which the disk's own spans
    /// take out again.
    pub const CPU: usize = 2;
    /// From the decision to the commit.
    pub const JOURNAL: usize = 3;
    /// From the commit until the reply is handed to the socket.
    pub const SEND: usize = 4;
}

events! {
    // Layer 0: what an application saw. `req` is the id of the calling thread.
    /// An application created a file.
    APP_CREATE = 0 0 "app.create" Span Kernel NONE;
    /// An application opened a file.
    APP_OPEN = 0 1 "app.open" Span Kernel NONE;
    /// An application closed a file.
    APP_CLOSE = 0 2 "app.close" Span Kernel NONE;
    /// An application asked for attributes.
    APP_STAT = 0 3 "app.stat" Span Kernel NONE;
    /// An application read.
    APP_READ = 0 4 "app.read" Span Kernel NONE;
    /// An application wrote.
    APP_WRITE = 0 5 "app.write" Span Kernel NONE;
    /// An application synced a file.
    APP_FSYNC = 0 6 "app.fsync" Span Kernel NONE;
    /// An application listed a directory.
    APP_READDIR = 0 7 "app.readdir" Span Kernel NONE;
    /// An application removed a file.
    APP_UNLINK = 0 8 "app.unlink" Span Kernel NONE;
    /// An application made a directory.
    APP_MKDIR = 0 9 "app.mkdir" Span Kernel NONE;
    /// An application removed a directory.
    APP_RMDIR = 0 10 "app.rmdir" Span Kernel NONE;
    /// An application renamed.
    APP_RENAME = 0 11 "app.rename" Span Kernel NONE;
    /// An application did something else.
    APP_OTHER = 0 12 "app.other" Span Kernel NONE;

    // Layer 1: requests of the kernel to the gateway. `req` is the id of the calling thread, as the
    // kernel tells it.
    /// LOOKUP.
    FUSE_LOOKUP = 1 1 "fuse.lookup" Span Kernel NONE;
    /// GETATTR.
    FUSE_GETATTR = 1 3 "fuse.getattr" Span Kernel NONE;
    /// SETATTR.
    FUSE_SETATTR = 1 4 "fuse.setattr" Span Kernel NONE;
    /// MKDIR.
    FUSE_MKDIR = 1 9 "fuse.mkdir" Span Kernel NONE;
    /// UNLINK.
    FUSE_UNLINK = 1 10 "fuse.unlink" Span Kernel NONE;
    /// RMDIR.
    FUSE_RMDIR = 1 11 "fuse.rmdir" Span Kernel NONE;
    /// RENAME.
    FUSE_RENAME = 1 12 "fuse.rename" Span Kernel NONE;
    /// OPEN.
    FUSE_OPEN = 1 14 "fuse.open" Span Kernel NONE;
    /// READ.
    FUSE_READ = 1 15 "fuse.read" Span Kernel NONE;
    /// WRITE.
    FUSE_WRITE = 1 16 "fuse.write" Span Kernel NONE;
    /// RELEASE.
    FUSE_RELEASE = 1 18 "fuse.release" Span Kernel NONE;
    /// FSYNC.
    FUSE_FSYNC = 1 20 "fuse.fsync" Span Kernel NONE;
    /// FLUSH.
    FUSE_FLUSH = 1 25 "fuse.flush" Span Kernel NONE;
    /// READDIR and READDIRPLUS.
    FUSE_READDIR = 1 28 "fuse.readdir" Span Kernel NONE;
    /// Inside another one of these: the reply is handed to the kernel.
    FUSE_REPLY = 1 62 "fuse.reply" Span Kernel NONE;
    /// CREATE.
    FUSE_CREATE = 1 35 "fuse.create" Span Kernel NONE;
    /// Any other.
    FUSE_OTHER = 1 63 "fuse.other" Span Kernel NONE;

    // Layer 2: operations of the client library, and what happens inside them.
    /// Create a file and open it.
    CLIENT_CREATE = 2 0 "client.create" Span Client NONE;
    /// Look a name up.
    CLIENT_LOOKUP = 2 1 "client.lookup" Span Client NONE;
    /// Open a file.
    CLIENT_OPEN = 2 2 "client.open" Span Client NONE;
    /// Close a file.
    CLIENT_CLOSE = 2 3 "client.close" Span Client NONE;
    /// Attributes of an object.
    CLIENT_GETATTR = 2 4 "client.getattr" Span Client NONE;
    /// Change attributes.
    CLIENT_SETATTR = 2 5 "client.setattr" Span Client NONE;
    /// Read ranges of a file.
    CLIENT_READ = 2 6 "client.read" Span Client NONE;
    /// Write ranges of a file.
    CLIENT_WRITE = 2 7 "client.write" Span Client NONE;
    /// Bring a file to stable storage.
    CLIENT_FSYNC = 2 8 "client.fsync" Span Client NONE;
    /// A page of a directory.
    CLIENT_READDIR = 2 9 "client.readdir" Span Client NONE;
    /// Remove a file.
    CLIENT_UNLINK = 2 10 "client.unlink" Span Client NONE;
    /// Make a directory.
    CLIENT_MKDIR = 2 11 "client.mkdir" Span Client NONE;
    /// Remove a directory.
    CLIENT_RMDIR = 2 12 "client.rmdir" Span Client NONE;
    /// Rename.
    CLIENT_RENAME = 2 13 "client.rename" Span Client NONE;
    /// Any other operation.
    CLIENT_OTHER = 2 14 "client.other" Span Client NONE;
    /// More of a file is read than its program has asked for, while it does other things.
    CLIENT_READ_AHEAD = 2 15 "client.read_ahead" Span Client NONE;
    /// Inside an operation: it waits for a place in the window of unfinished requests.
    CLIENT_WINDOW = 2 32 "client.window" Span SendQueue NONE;
    /// Inside an operation: it waits for a lock or a cache token of this process.
    CLIENT_LOCK = 2 33 "client.lock" Span Lock NONE;
    /// Inside an operation: the pause before a request is sent again.
    CLIENT_PAUSE = 2 34 "client.pause" Span Retry NONE;
    /// Inside an operation: it waits for what is read ahead. `off` is the number of the span of
    /// that, which says where the time goes; before it begins, its thread is waited for.
    CLIENT_AHEAD = 2 35 "client.ahead" Span Client NONE;

    // Layer 3: messages. `req` is the key of the request, `peer` the server, `off` the code of the
    // wire operation.
    /// One attempt of a request at its client: from the submission until the reply is there; `wait`
    /// is the time in the send queue.
    NET_CALL = 3 0 "net.call" Span Network NONE;
    /// A message leaves through a network card. Recorded by models of machines only: the spans of
    /// calls and the phases of staged spans hold this time of real processes, and two more spans
    /// for each message would cost as much as all others of a request.
    NET_SEND = 3 1 "net.send" Span Network NONE;
    /// A message arrives through a network card; recorded as the one above.
    NET_RECEIVE = 3 2 "net.receive" Span Network NONE;

    // Layer 4: requests at a metadata server: what any server is asked; the others follow from the
    // table of operations ([`request`]).
    /// A request without an event of its own.
    META_OTHER = 4 62 "meta.other" StagedSpan Cpu SERVED;
    /// One turn of the server's loop.
    META_TURN = 4 63 "meta.turn" Span Cpu NONE;

    // Layer 5: requests at a data server, in the same way.
    /// A request without an event of its own.
    DATA_OTHER = 5 62 "data.other" StagedSpan Cpu SERVED;
    /// One turn of the server's loop.
    DATA_TURN = 5 63 "data.turn" Span Cpu NONE;

    // Layer 6: the journal of a server.
    /// One commit: the records of a turn are written.
    JOURNAL_COMMIT = 6 0 "journal.commit" Span Journal NONE;
    /// One flush to stable storage.
    JOURNAL_SYNC = 6 1 "journal.sync" Span Journal NONE;
    /// Inside a request: a flow waits until the journal holds what it has decided.
    JOURNAL_WAIT = 6 2 "journal.wait" Span Journal NONE;

    // Layer 7: disks. `cls`: 1 no seek, 2 near seek, 3 far seek. `req` is the request the access is
    // for, 0 if for several.
    /// A read.
    DISK_READ = 7 0 "disk.read" Span DiskNoSeek NONE;
    /// A write.
    DISK_WRITE = 7 1 "disk.write" Span DiskNoSeek NONE;
    /// A flush.
    DISK_SYNC = 7 2 "disk.sync" Span DiskNoSeek NONE;

    /// An operation that a cache layer made of pieces of any number of requests; these have records
    /// of their own.
    DISK_JOB = 7 3 "disk.job" Span DiskNoSeek NONE;

    // Layer 8: gauges, sampled at most every 10 ms.
    /// Load of a server: requests of a turn, requests that wait for something else than the turn,
    /// bytes that are answered and not yet where they are to be, bytes received and sent since the
    /// start.
    LOAD = 8 0 "load.server" Counter Unseen &[
        ("queue", Stage::Unseen), ("in_flight", Stage::Unseen), ("dirty_bytes", Stage::Unseen),
        ("net_in_bytes", Stage::Unseen), ("net_out_bytes", Stage::Unseen)];

    /// Load of a data server's disk: requests in the cache layer, bytes of these, operations that
    /// the disk works on, and operations and bytes since the start.
    LOAD_DISK = 8 1 "load.disk" Counter Unseen &[
        ("requests", Stage::Unseen), ("cache_bytes", Stage::Unseen), ("operations", Stage::Unseen),
        ("done", Stage::Unseen), ("done_bytes", Stage::Unseen)];

    /// Load of a mount: requests of the kernel that no thread has taken (0 or 1: more cannot be
    /// seen), requests in service, threads that do not rest, threads that shall not; and
    /// nanoseconds that all requests together have waited for a thread at most.
    LOAD_MOUNT = 8 2 "load.mount" Counter Unseen &[
        ("waits", Stage::Unseen), ("busy", Stage::Unseen), ("serving", Stage::Unseen), ("wanted", Stage::Unseen),
        ("waited_at_most_ns", Stage::Unseen)];

    /// Processors of a process: nanoseconds that its threads were ready and had to wait for one,
    /// and that they ran, since the recording began; threads; how long that thread waited which
    /// waited most since the last sample, and how long that is ago.
    LOAD_PROCESSOR = 8 3 "load.processor" Counter Unseen &[
        ("waited_ns", Stage::Unseen), ("ran_ns", Stage::Unseen), ("threads", Stage::Unseen),
        ("most_waited_ns", Stage::Unseen), ("interval_ns", Stage::Unseen)];

    /// A process that may have a part of the processors only (control groups): nanoseconds for
    /// which it was kept from running, since the recording began and since the last look, how long
    /// that is ago, and how long it may run in each period, in microseconds.
    LOAD_LIMIT = 8 4 "load.limit" Counter Unseen &[
        ("stopped_ns", Stage::Unseen), ("last_stopped_ns", Stage::Unseen), ("interval_ns", Stage::Unseen),
        ("quota_us", Stage::Unseen), ("period_us", Stage::Unseen)];

    /// Processors of the machine, since the sample before: shares of the time of all of them that
    /// they worked, waited for a disk with nothing else to do, and were taken by another machine;
    /// threads that run or could, and processors.
    LOAD_HOST = 8 5 "load.host" Counter Unseen &[
        ("busy_percent", Stage::Unseen), ("disk_wait_percent", Stage::Unseen), ("stolen_percent", Stage::Unseen),
        ("runnable", Stage::Unseen), ("processors", Stage::Unseen)];

    /// Memory of the machine: bytes in use, of files, of files and not on disk yet, swapped out,
    /// and of all.
    LOAD_MEMORY = 8 6 "load.memory" Counter Unseen &[
        ("used_bytes", Stage::Unseen), ("file_bytes", Stage::Unseen), ("unwritten_bytes", Stage::Unseen),
        ("swapped_bytes", Stage::Unseen), ("memory_bytes", Stage::Unseen)];

    /// Devices of the machine: bytes that its network cards received and sent, and that its disks
    /// read and wrote, since the recording began.
    LOAD_DEVICES = 8 7 "load.devices" Counter Unseen &[
        ("cards_in_bytes", Stage::Unseen), ("cards_out_bytes", Stage::Unseen),
        ("disks_read_bytes", Stage::Unseen), ("disks_written_bytes", Stage::Unseen)];

    // Layer 9: marks.
    /// An iteration of a program begins.
    MARK_ITERATION = 9 0 "mark.iteration" Mark Unseen NONE;
    /// A phase of a benchmark begins.
    MARK_PHASE = 9 1 "mark.phase" Mark Unseen NONE;

    // Layer 15: the recorder about itself; always on.
    /// The clock of this node against others.
    TRACE_SYNC = 15 0 "trace.sync" Sync Unseen NONE;
    /// Records were lost.
    TRACE_LOST = 15 1 "trace.lost" Lost Unseen NONE;
    /// The name of an object, in pieces of 40 bytes.
    TRACE_NAME = 15 2 "trace.name" Text Unseen NONE;
}

/// The event of a request for this operation at a server that answers it, or of `any` server's.
const fn of_operation(op: Op, any: EventId) -> EventId {
    let layer = match op.role() {
        None => return any,
        Some(ServerRole::Meta) => META_OTHER.0 >> EVENT_BITS,
        Some(ServerRole::Data) => DATA_OTHER.0 >> EVENT_BITS,
    };
    EventId::new(layer as u8, op.code() as u8 % EVENTS_PER_LAYER as u8)
}

/// The event of a request for this operation.
pub const fn request(op: Op) -> EventId {
    of_operation(op, META_OTHER)
}

/// The event of a request at a server of this role; `None`: for an operation that nobody knows.
#[inline]
pub const fn request_at(role: ServerRole, op: Option<Op>) -> EventId {
    let other = if matches!(role, ServerRole::Data) { DATA_OTHER } else { META_OTHER };
    match op {
        Some(op) => of_operation(op, other),
        None => other,
    }
}

/// A create at a metadata server.
pub const META_CREATE: EventId = request(Op::Create);
/// A write at a data server.
pub const DATA_WRITE: EventId = request(Op::Write);
/// A read at a data server.
pub const DATA_READ: EventId = request(Op::Read);

/// The events of requests that have one of their own.
fn of_requests() -> impl Iterator<Item = EventInfo> {
    let known = Op::ALL.iter().filter(|op| op.role().is_some());
    known.map(|op| {
        let layer = if op.role() == Some(ServerRole::Data) { "data" } else { "meta" };
        let parts = SERVED.iter().map(EventPart::of).collect();
        EventInfo { id: request(*op), name: format!("{layer}.{}", op.event_name()), kind: EventKind::StagedSpan, stage: Stage::Cpu, parts }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_and_names_are_unique_and_layers_share_a_prefix() {
        let table = EventTable::builtin();
        assert_eq!(table.iter().count(), ROWS.len() + of_requests().count(), "two events share a number");
        let names: BTreeSet<_> = table.iter().map(|info| &info.name).collect();
        assert_eq!(names.len(), table.iter().count());
        for a in table.iter() {
            for b in table.iter() {
                let prefix = |info: &EventInfo| info.name.split('.').next().map(str::to_string);
                assert_eq!(prefix(a) == prefix(b), a.id.layer() == b.id.layer(), "{} and {}", a.name, b.name);
            }
            assert!(a.parts.len() <= PHASES_MAX && (a.kind != EventKind::Counter || a.parts.len() <= 5));
            assert_eq!(a.parts.is_empty(), !matches!(a.kind, EventKind::StagedSpan | EventKind::Counter), "{}", a.name);
        }
    }

    #[test]
    fn every_request_has_an_event_at_every_server() {
        let table = EventTable::builtin();
        let name = |role, op| table.name(request_at(role, op));
        for op in Op::ALL {
            let roles = op.role().map_or(vec![ServerRole::Meta, ServerRole::Data], |role| vec![role]);
            for role in roles {
                let info = table.get(request_at(role, Some(*op))).expect("it is in the table");
                assert_eq!((info.kind, info.name.ends_with(op.event_name())), (EventKind::StagedSpan, true), "{}", op.name());
            }
        }
        assert_eq!(
            (name(ServerRole::Meta, Some(Op::Create)), name(ServerRole::Data, Some(Op::Write))),
            ("meta.create".into(), "data.write".into())
        );
        assert_eq!(
            (name(ServerRole::Meta, Some(Op::Ping)), name(ServerRole::Data, Some(Op::Ping))),
            ("meta.other".into(), "data.other".into())
        );
        assert_eq!((name(ServerRole::Meta, None), name(ServerRole::Data, None)), ("meta.other".into(), "data.other".into()));
    }
}
