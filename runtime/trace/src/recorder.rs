//! Recording: what the code of a client or server calls.
//!
//! A thread (or a simulated node, whenever the simulator runs it) has a current [`Recorder`]. Call sites name only events:
//!
//! ```
//! use weft_trace::{event, operation, span};
//! fn create() {
//!     let mut op = operation(event::CLIENT_CREATE); // one load if the event is off
//!     {
//!         let mut call = span(event::NET_CALL); // its parent is `op`
//!         call.request(0x1234).peer(3);
//!     } // written here
//!     op.object(17);
//! }
//! # create();
//! ```
//!
//! What belongs together is found by the [`Context`]: the running operation of a flow. An executor that runs several flows on one thread
//! saves and restores it with [`set_context`] around each of them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::event::{EventId, Kind};
use crate::in_flight::{LANE_NONE, LANES, Table};
use crate::mask::{is_any_on, is_on};
use crate::record::{self, Body, Ladder, Record, Span, coarse, flags};
use crate::ring::RingWriter;
use crate::tracer::Tracer;

/// Numbers of spans are handed to threads in blocks of so many.
const SPAN_BLOCK: u32 = 4096;

/// The running operation of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Its span; 0: none.
    span: u32,
    lane: u16,
    fate: Fate,
}

/// What happens to the records of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    /// Nobody has decided.
    #[default]
    Open,
    Kept,
    NotChosen,
}

/// Writes the records of one thread. Not for two threads.
#[derive(Debug)]
pub struct Recorder {
    tracer: Tracer,
    number: u32,
    writer: RingWriter,
    table: Arc<Table>,
    spans: Cell<(u32, u32)>,
    /// A bit for each lane that is taken.
    lanes: Cell<u64>,
    context: Cell<Context>,
    /// When the request whose outcome is being handed to its flow was given to the socket; 0: not known.
    sent: Cell<u64>,
    /// The ladder of the reply that the server is about to give to its runtime.
    leaving: RefCell<Option<OpenLadder>>,
}

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(Current::Unknown) };
}

/// The recorder of this thread.
enum Current {
    /// Not asked for yet.
    Unknown,
    /// Given by [`set_recorder`].
    Here(Rc<Recorder>),
    /// Of the process, when it had changed its tracer so many times; `None`: it had none, or no ring was left.
    OfProcess(Option<Rc<Recorder>>, u32),
}

/// The tracer that threads of this process take a recorder from by themselves.
static PROCESS: Mutex<Option<Tracer>> = Mutex::new(None);
/// How many times [`PROCESS`] has changed.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Makes `tracer` that of the process: each thread takes its recorder from it when it next records, and gives up the one that it had from
/// the tracer before. A span that began with the tracer before is not recorded.
pub fn set_process_tracer(tracer: Option<&Tracer>) {
    let mut process = PROCESS.lock().expect("no code panics while it holds this lock");
    *process = tracer.cloned();
    CHANGES.fetch_add(1, Ordering::Release);
}

/// The tracer of the process, if there is one.
pub fn process_tracer() -> Option<Tracer> {
    PROCESS.lock().expect("no code panics while it holds this lock").clone()
}

/// Makes `recorder` the current one of this thread and returns the one before. A simulator calls it before it runs a node.
pub fn set_recorder(recorder: Option<Rc<Recorder>>) -> Option<Rc<Recorder>> {
    let next = recorder.map_or(Current::Unknown, Current::Here);
    match CURRENT.with(|current| current.replace(next)) {
        Current::Here(before) | Current::OfProcess(Some(before), _) => Some(before),
        Current::Unknown | Current::OfProcess(None, _) => None,
    }
}

/// The running operation of this thread's flow.
pub fn context() -> Context {
    with(|recorder| recorder.context.get()).unwrap_or_default()
}

/// Goes on with another flow: `context` is its running operation. Returns that of the flow before.
pub fn set_context(context: Context) -> Context {
    with(|recorder| recorder.context.replace(context)).unwrap_or_default()
}

/// A flow that shares its task with others (in a window, in a join) and has operations of its own: its running operation is put in place
/// whenever it goes on. Without it the operations of such flows would look as if they were inside one another.
pub async fn own_context<F: Future>(flow: F) -> F::Output {
    within(Context::default(), flow).await
}

/// A flow that goes on with what a context began: what it records is inside that, whichever task runs it.
pub async fn within<F: Future>(context: Context, flow: F) -> F::Output {
    let mut flow = std::pin::pin!(flow);
    let mut own = context;
    std::future::poll_fn(|waker| {
        let before = set_context(own);
        let poll = flow.as_mut().poll(waker);
        own = set_context(before);
        poll
    })
    .await
}

/// Runs `f` with this thread's recorder, which it gets from the process at the first call.
fn with<T>(f: impl FnOnce(&Recorder) -> T) -> Option<T> {
    // During the end of a thread there is no recorder any more.
    CURRENT
        .try_with(|current| {
            let changes = CHANGES.load(Ordering::Relaxed);
            match &*current.borrow() {
                Current::Here(recorder) => return Some(f(recorder)),
                Current::OfProcess(recorder, seen) if *seen == changes => return recorder.as_deref().map(f),
                Current::Unknown | Current::OfProcess(..) => {}
            }
            let found = of_process();
            let recorder = match &found {
                Current::OfProcess(recorder, _) => recorder.clone(),
                _ => None,
            };
            // The one before is dropped where nothing is borrowed: it may hold a ladder that wants to be written.
            let before = current.replace(found);
            drop(before);
            recorder.as_deref().map(f)
        })
        .ok()
        .flatten()
}

/// A recorder of the tracer that the process has now.
#[cold]
fn of_process() -> Current {
    let process = PROCESS.lock().expect("no code panics while it holds this lock");
    // Under the lock, so that both belong together.
    let changes = CHANGES.load(Ordering::Relaxed);
    Current::OfProcess(process.as_ref().and_then(Tracer::recorder).map(Rc::new), changes)
}

/// Begins a span inside the running operation. It is written when it is dropped.
#[inline]
pub fn span(event: EventId) -> OpenSpan {
    if is_on(event) { begin(event, false) } else { OpenSpan::OFF }
}

/// Begins an operation: a span on a lane of its own, in the table of what is running, and the parent of everything that its flow records
/// until it is dropped.
#[inline]
pub fn operation(event: EventId) -> OpenSpan {
    if is_on(event) { begin(event, true) } else { OpenSpan::OFF }
}

#[cold]
fn begin_nothing() -> OpenSpan {
    OpenSpan::OFF
}

/// Not inlined, like [`end`]: what is off must stay a load and a test.
#[inline(never)]
fn begin(event: EventId, is_operation: bool) -> OpenSpan {
    with(|recorder| recorder.begin(event, is_operation)).unwrap_or_else(begin_nothing)
}

#[inline(never)]
fn end(open: &mut OpenSpan) {
    with(|recorder| recorder.end(open));
}

#[inline(never)]
fn end_ladder(open: &OpenLadder) {
    with(|recorder| recorder.end_ladder(open));
}

/// Begins the ladder of a request at a server. It is written when it is dropped.
#[inline]
pub fn ladder(event: EventId) -> OpenLadder {
    if !is_on(event) {
        return OpenLadder::OFF;
    }
    let begun = with(|recorder| {
        let now = recorder.ticks();
        recorder.wants(event).then(|| OpenLadder {
            event,
            on: true,
            t0: now,
            last: now,
            req: 0,
            res: 0,
            flags: 0,
            ladder: Ladder::default(),
        })
    });
    begun.flatten().unwrap_or(OpenLadder::OFF)
}

/// Records gauges.
#[inline]
pub fn counters(event: EventId, gauges: [u64; 5]) {
    if is_on(event) {
        write(event, Body::Counter(gauges));
    }
}

/// Records a point in time.
pub fn mark(event: EventId, value: u64, label: &str) {
    if is_on(event) {
        write(event, Body::Mark { value, label: record::padded(label) });
    }
}

/// Records the name of an object, in as many pieces as it needs.
pub fn name(object: u64, name: &str) {
    if !is_on(crate::event::TRACE_NAME) {
        return;
    }
    let mut rest = name;
    for piece in 0.. {
        let text: [u8; record::TEXT_BYTES] = record::padded(rest);
        let mut record = Record::new(0, crate::event::TRACE_NAME, Body::Text(text));
        let used = record.text().len();
        (record.req, record.lane) = (object, piece);
        with(|recorder| recorder.write(record));
        rest = &rest[used..];
        if rest.is_empty() || used == 0 {
            return;
        }
    }
}

fn write(event: EventId, body: Body) {
    with(|recorder| recorder.write(Record::new(0, event, body)));
}

impl Recorder {
    pub(crate) fn new(tracer: Tracer, number: u32, writer: RingWriter, table: Arc<Table>) -> Recorder {
        Recorder {
            tracer,
            number,
            writer,
            table,
            spans: Cell::new((0, 0)),
            lanes: Cell::new(0),
            context: Cell::new(Context::default()),
            sent: Cell::new(0),
            leaving: RefCell::default(),
        }
    }

    /// The number of its ring.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Writes a record; a beginning of 0 means now. The mask was asked before.
    pub fn write(&self, mut record: Record) {
        if !self.wants(record.event) {
            return;
        }
        if record.t0 == 0 {
            record.t0 = self.ticks();
        }
        record.flags |= self.tracer.0.config.flags;
        self.writer.push(&record.to_words());
    }

    #[inline]
    fn ticks(&self) -> u64 {
        self.tracer.0.config.clock.ticks()
    }

    /// The union of all masks said yes; does this tracer?
    #[inline]
    fn wants(&self, event: EventId) -> bool {
        self.tracer.0.mask.contains(event)
    }

    fn begin(&self, event: EventId, is_operation: bool) -> OpenSpan {
        let around = self.context.get();
        if around.fate == Fate::NotChosen || !self.wants(event) {
            return OpenSpan::OFF;
        }
        let number = self.next_span();
        let tracer = self.tracer.0.mask.short_number();
        let mut open = OpenSpan { event, role: Role::Inner, lane: around.lane, before: around, tracer, ..OpenSpan::OFF };
        (open.span.span, open.span.parent) = (number, around.span);
        if is_operation && !self.begin_operation(&mut open) {
            open.role = Role::Mute;
            return open;
        }
        open.t0 = self.ticks();
        if open.role == Role::Operation && open.lane != LANE_NONE {
            self.table.begin(usize::from(open.lane), open.t0, event, number);
        }
        open
    }

    /// Decides about the operation's records and takes a lane. False: not chosen.
    fn begin_operation(&self, open: &mut OpenSpan) -> bool {
        let mut context = Context { span: open.span.span, ..open.before };
        open.role = Role::Nested;
        if open.before.span == 0 {
            let bits = self.tracer.0.sampling_bits.load(Ordering::Relaxed);
            let chosen = bits == 0 || spread(open.span.span) >> (32 - bits) == 0;
            context.fate = if chosen { Fate::Kept } else { Fate::NotChosen };
            if !chosen {
                self.context.set(context);
                return false;
            }
            if bits > 0 {
                open.flags |= flags::SAMPLED;
            }
            let lane = self.lanes.get().trailing_ones();
            context.lane = if lane < LANES as u32 { lane as u16 } else { LANE_NONE };
            if context.lane != LANE_NONE {
                self.lanes.set(self.lanes.get() | 1 << lane);
            }
            (open.lane, open.role) = (context.lane, Role::Operation);
        }
        self.context.set(context);
        true
    }

    fn end(&self, open: &mut OpenSpan) {
        if open.tracer != self.tracer.0.mask.short_number() {
            // The process has another tracer than at the beginning, with other lanes and another clock.
            return;
        }
        match open.role {
            Role::Off | Role::Inner => {}
            Role::Nested | Role::Mute => self.context.set(open.before),
            Role::Operation => {
                self.context.set(open.before);
                if open.lane != LANE_NONE {
                    self.lanes.set(self.lanes.get() & !(1 << open.lane));
                    self.table.end(usize::from(open.lane));
                }
            }
        }
        if open.role == Role::Mute {
            return;
        }
        open.span.dur = self.ticks().saturating_sub(open.t0);
        if open.role == Role::Operation {
            self.look_at_duration(open.span.dur);
        }
        let flags = open.flags | self.tracer.0.config.flags;
        let head = record::head_word(open.event, open.lane, flags, open.res, open.class);
        let [a, b, c, d, e] = open.span.words();
        self.writer.push(&[open.t0, open.req, head, a, b, c, d, e]);
    }

    fn end_ladder(&self, open: &OpenLadder) {
        if self.wants(open.event) {
            let flags = open.flags | flags::SERVER | self.tracer.0.config.flags | Kind::Ladder as u16;
            let [a, b, c, d, e] = open.ladder.words();
            self.writer.push(&[open.t0, open.req, record::head_word(open.event, 0, flags, open.res, 0), a, b, c, d, e]);
            self.look_at_duration(open.last.saturating_sub(open.t0));
        }
    }

    /// An operation or a request has taken so many ticks: too many?
    #[inline]
    fn look_at_duration(&self, dur: u64) {
        if dur > self.tracer.0.slow_ticks.load(Ordering::Relaxed) {
            self.tracer.want_dump();
        }
    }

    fn next_span(&self) -> u32 {
        let (mut next, mut end) = self.spans.get();
        if next == end {
            next = self.tracer.0.next_span.fetch_add(SPAN_BLOCK, Ordering::Relaxed);
            end = next.wrapping_add(SPAN_BLOCK);
            // 0 means none.
            next = next.max(1);
        }
        self.spans.set((next.wrapping_add(1), end));
        next
    }
}

/// The finaliser of MurmurHash3 (Appleby): numbers that follow a pattern, as those of operations do, are chosen as if by chance.
fn spread(number: u32) -> u32 {
    let number = (number ^ number >> 16).wrapping_mul(0x85EB_CA6B);
    let number = (number ^ number >> 13).wrapping_mul(0xC2B2_AE35);
    number ^ number >> 16
}

/// What the end of a span has to put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Nothing is recorded.
    Off,
    /// Inside an operation.
    Inner,
    /// An operation inside an operation.
    Nested,
    /// The outermost operation.
    Operation,
    /// An operation that was not chosen: only the context is put back.
    Mute,
}

/// A span that has begun. It is written when it is dropped, on the thread that drops it.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped"]
pub struct OpenSpan {
    event: EventId,
    role: Role,
    lane: u16,
    flags: u16,
    res: u8,
    class: u8,
    /// The number of the tracer that it began with.
    tracer: u32,
    t0: u64,
    req: u64,
    before: Context,
    span: Span,
}

impl OpenSpan {
    const OFF: OpenSpan = OpenSpan {
        event: EventId(0),
        role: Role::Off,
        lane: 0,
        flags: 0,
        res: 0,
        class: 0,
        tracer: 0,
        t0: 0,
        req: 0,
        before: Context { span: 0, lane: 0, fate: Fate::Open },
        span: Span { dur: 0, peer: 0, obj: 0, off: 0, len: 0, span: 0, parent: 0, wait: 0 },
    };

    /// True if it will be written: ask before something is computed only for it.
    #[inline]
    pub fn is_on(&self) -> bool {
        !matches!(self.role, Role::Off | Role::Mute)
    }

    /// The key of the request, see [`crate::RequestKey`].
    pub fn request(&mut self, key: u64) -> &mut Self {
        self.req = key;
        self
    }

    /// The server talked to.
    pub fn peer(&mut self, server: u16) -> &mut Self {
        self.span.peer = server;
        self
    }

    /// The handle of the object; others see it in the table of what is running.
    pub fn object(&mut self, handle: u64) -> &mut Self {
        self.span.obj = handle;
        if self.role == Role::Operation && self.lane != LANE_NONE {
            with(|recorder| recorder.table.set_object(usize::from(self.lane), handle));
        }
        self
    }

    /// Offset and length in bytes; a length beyond 4 GiB is recorded as 4 GiB.
    pub fn range(&mut self, offset: u64, len: u64) -> &mut Self {
        (self.span.off, self.span.len) = (offset, u32::try_from(len).unwrap_or(u32::MAX));
        self
    }

    /// The class of a disk access, see [`crate::record::class`].
    pub fn class(&mut self, class: u8) -> &mut Self {
        self.class = class;
        self
    }

    /// Adds flags, see [`crate::record::flags`].
    pub fn flag(&mut self, flags: u16) -> &mut Self {
        self.flags |= flags & !flags::KIND;
        self
    }

    /// Until [`OpenSpan::finished`] is called its end is not known: a flow may be dropped before, for example because its process ends.
    pub fn unfinished(&mut self) -> &mut Self {
        self.flags |= flags::OPEN;
        self
    }

    /// What it tells of has ended.
    pub fn finished(&mut self) -> &mut Self {
        self.flags &= !flags::OPEN;
        self
    }

    /// The number of the failure; 0: none.
    pub fn result(&mut self, status: u16) -> &mut Self {
        self.res = u8::try_from(status).unwrap_or(u8::MAX);
        if status != 0 {
            self.flags |= flags::ERROR;
        }
        self
    }

    /// The part of the span up to [`note_sent`] was spent in a queue. To be called where the flow gets the outcome of its request.
    pub fn sent(&mut self) -> &mut Self {
        if self.is_on() {
            let sent = with(|recorder| recorder.sent.take()).unwrap_or(0);
            // Something older belongs to a request that nobody recorded.
            self.span.wait = if sent >= self.t0 { coarse(sent - self.t0) } else { 0 };
        }
        self
    }

    /// The part of the span up to `ticks` was spent in a queue. A time before the span is ignored.
    pub fn waited_until(&mut self, ticks: u64) -> &mut Self {
        if self.is_on() && ticks > self.t0 {
            self.span.wait = coarse(ticks - self.t0);
        }
        self
    }

    /// The part of the span up to now was spent in a queue.
    pub fn waited(&mut self) -> &mut Self {
        if self.is_on()
            && let Some(now) = with(|recorder| recorder.ticks())
        {
            self.span.wait = coarse(now.saturating_sub(self.t0));
        }
        self
    }
}

impl Drop for OpenSpan {
    #[inline]
    fn drop(&mut self) {
        if self.role != Role::Off {
            end(self);
        }
    }
}

/// The ladder of a request at a server. It is written when it is dropped.
#[derive(Debug)]
#[must_use = "a ladder ends when it is dropped"]
pub struct OpenLadder {
    event: EventId,
    on: bool,
    t0: u64,
    last: u64,
    req: u64,
    res: u8,
    flags: u16,
    ladder: Ladder,
}

impl OpenLadder {
    /// Nothing is recorded.
    pub const OFF: OpenLadder = OpenLadder {
        event: EventId(0),
        on: false,
        t0: 0,
        last: 0,
        req: 0,
        res: 0,
        flags: 0,
        ladder: Ladder { span: 0, code: 0, peer: 0, phases: [0; record::RECORD_WORDS] },
    };

    /// True if it will be written.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// For [`within`]: what a flow records that works on this request is inside it.
    pub fn context(&mut self) -> Context {
        if !self.is_on() {
            return Context::default();
        }
        if self.ladder.span == 0 {
            self.ladder.span = with(|recorder| recorder.next_span()).unwrap_or(0);
        }
        Context { span: self.ladder.span, lane: LANE_NONE, fate: Fate::Kept }
    }

    /// It will not be written: the request goes on elsewhere.
    pub fn forget(&mut self) {
        self.on = false;
    }

    /// It began at `ticks`, earlier than the call that made it, and was in this phase until then. Time 0 is ignored.
    pub fn began_with(&mut self, phase: usize, ticks: u64) {
        if self.is_on() && ticks != 0 && ticks < self.t0 {
            let now = self.t0;
            (self.t0, self.last) = (ticks, ticks);
            self.phase(phase, now);
        }
    }

    /// It began at `ticks`, earlier than the call that made it; what it did since then is told by [`OpenLadder::phase`]. Time 0 is ignored.
    pub fn began_at(&mut self, ticks: u64) {
        if self.is_on() && ticks != 0 && ticks < self.t0 {
            (self.t0, self.last) = (ticks, ticks);
        }
    }

    /// The request: its key, the code of its operation, the server that works on it.
    pub fn request(&mut self, key: u64, code: u16, server: u16) {
        (self.req, self.ladder.code, self.ladder.peer) = (key, code, server);
    }

    /// The time since the last phase (or the beginning) belongs to this one. A phase may come several times. `now` in ticks is shared
    /// with other requests of the turn; see [`now`].
    #[inline]
    pub fn phase(&mut self, phase: usize, now: u64) {
        if self.is_on() {
            let more = coarse(now.saturating_sub(self.last));
            self.ladder.phases[phase] = self.ladder.phases[phase].saturating_add(more);
            // What rounding leaves over goes to the next phase: the sum stays right.
            self.last += record::fine(more);
        }
    }

    /// The reply leaves: whoever sends it fetches the ladder with [`take_leaving`], adds the time until then, and writes it. To be called
    /// right before the reply is given to the runtime; with a runtime that does not fetch it, it is written at the next call.
    pub fn leave(self) {
        if self.is_on() {
            let before = with(|recorder| recorder.leaving.replace(Some(self)));
            drop(before);
        }
    }

    /// The number of the failure; 0: none.
    pub fn result(&mut self, status: u16) {
        self.res = u8::try_from(status).unwrap_or(u8::MAX);
        if status != 0 {
            self.flags |= flags::ERROR;
        }
    }
}

impl Drop for OpenLadder {
    #[inline]
    fn drop(&mut self) {
        if self.is_on() {
            end_ladder(self);
        }
    }
}

/// Something failed that should not: a flight recorder that looks out for trouble ([`Tracer::set_dump_on_trouble`]) is written.
#[inline]
pub fn trouble() {
    if is_any_on() {
        with(|recorder| recorder.tracer.trouble());
    }
}

/// The ladder of the reply that this thread is about to send, see [`OpenLadder::leave`]. One relaxed load if nothing is recorded.
#[inline]
pub fn take_leaving() -> Option<OpenLadder> {
    if !is_any_on() {
        return None;
    }
    with(|recorder| recorder.leaving.take()).flatten()
}

/// A runtime hands the outcome of a request to its flow, and its last byte was given to the socket at `ticks`; see [`OpenSpan::sent`].
#[inline]
pub fn note_sent(ticks: u64) {
    if ticks != 0 && is_any_on() {
        with(|recorder| recorder.sent.set(ticks));
    }
}

/// The clock of this thread's recorder in ticks; 0 if there is none, or nothing is recorded (then it costs one relaxed load).
#[inline]
pub fn now() -> u64 {
    if is_any_on() { with(|recorder| recorder.ticks()).unwrap_or(0) } else { 0 }
}
