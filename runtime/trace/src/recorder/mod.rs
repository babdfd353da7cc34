//! Recording: what the code of a client or server calls.
//!
//! A thread (or a simulated node, whenever the simulator runs it) has a current [`Recorder`]. Call
//! sites name only events:
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
//! What belongs together is found by the [`Context`]: the running operation of a flow.

mod flow;
mod open;
mod pool;
mod span;
mod staged_span;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

pub use flow::{Context, LANE_NONE, context, set_context, within};
pub(crate) use open::open_spans;
pub use span::{LANES, OpenSpan, note_way, operation, span};
pub use staged_span::{OpenStagedSpan, staged_span, staged_span_since, take_leaving};

use crate::event::EventId;
use crate::mask::{is_any_on, is_on};
use crate::record::{self, Body, TraceRecord};
use crate::ring::RingWriter;
use crate::tracer::Tracer;

/// Numbers of spans are handed to threads in blocks of so many.
const SPAN_BLOCK: u32 = 4096;

/// Writes the records of one thread. Not for two threads.
#[derive(Debug)]
pub struct Recorder {
    tracer: Tracer,
    number: u32,
    writer: RingWriter,
    spans: Cell<(u32, u32)>,
    /// A bit for each lane that is taken.
    lanes: Cell<u64>,
    /// Its running operation while it is not the current recorder of its thread.
    context: Cell<Context>,
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
    /// Of the process, when it had changed its tracer so many times; `None`: it had none, or no
    /// ring was left.
    OfProcess(Option<Rc<Recorder>>, u32),
}

impl Current {
    /// False if the process must be asked.
    #[inline]
    fn holds(&self) -> bool {
        match self {
            Current::Here(_) => true,
            Current::OfProcess(_, seen) => *seen == CHANGES.load(Ordering::Relaxed),
            Current::Unknown => false,
        }
    }

    /// A recorder of the tracer that the process has now.
    #[cold]
    fn of_process() -> Current {
        let process = PROCESS.lock().expect("no code panics while it holds this lock");
        // Under the lock, so that both belong together.
        let changes = CHANGES.load(Ordering::Relaxed);
        Current::OfProcess(process.as_ref().and_then(Tracer::recorder).map(Rc::new), changes)
    }
}

/// The tracer that threads of this process take a recorder from by themselves.
static PROCESS: Mutex<Option<Tracer>> = Mutex::new(None);
/// How many times [`PROCESS`] has changed.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Makes `tracer` that of the process: each thread takes its recorder from it when it next records,
/// and gives up the one that it had from the tracer before. A span that began with the tracer
/// before is not recorded.
pub fn set_process_tracer(tracer: Option<&Tracer>) {
    let mut process = PROCESS.lock().expect("no code panics while it holds this lock");
    *process = tracer.cloned();
    CHANGES.fetch_add(1, Ordering::Release);
}

/// Makes `recorder` the current one of this thread and returns the one before; each keeps its
/// running operation. A simulator calls it before it runs a node.
pub fn set_recorder(recorder: Option<Rc<Recorder>>) -> Option<Rc<Recorder>> {
    // It belongs to the one before.
    staged_span::write_leaving();
    let context = set_context(recorder.as_ref().map_or(Context::default(), |recorder| recorder.context.get()));
    let next = recorder.map_or(Current::Unknown, Current::Here);
    match CURRENT.with(|current| current.replace(next)) {
        Current::Here(before) | Current::OfProcess(Some(before), _) => {
            before.context.set(context);
            Some(before)
        }
        Current::Unknown | Current::OfProcess(None, _) => None,
    }
}

/// Runs `f` with this thread's recorder, which it gets from the process at the first call.
#[inline]
fn with<T>(f: impl FnOnce(&Recorder) -> T) -> Option<T> {
    // During the end of a thread there is no recorder any more.
    CURRENT
        .try_with(|current| {
            if !current.borrow().holds() {
                current.replace(Current::of_process());
            }
            match &*current.borrow() {
                Current::Here(recorder) | Current::OfProcess(Some(recorder), _) => Some(f(recorder)),
                Current::OfProcess(None, _) | Current::Unknown => None,
            }
        })
        .ok()
        .flatten()
}

/// Records gauges.
#[inline]
pub fn counters(event: EventId, gauges: [u64; 5]) {
    if is_on(event) {
        write(event, Body::Counter(gauges));
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
        let mut record = TraceRecord::new(0, crate::event::TRACE_NAME, Body::Text(text));
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
    with(|recorder| recorder.write(TraceRecord::new(0, event, body)));
}

impl Recorder {
    pub(crate) fn new(tracer: Tracer, number: u32, writer: RingWriter) -> Recorder {
        Recorder { tracer, number, writer, spans: Cell::new((0, 0)), lanes: Cell::new(0), context: Cell::default() }
    }

    /// The number of its ring.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Writes a record; a beginning of 0 means now. The mask was asked before.
    pub fn write(&self, mut record: TraceRecord) {
        if !self.wants(record.event) {
            return;
        }
        if record.t0 == 0 {
            record.t0 = self.ticks();
        }
        record.flags |= self.common_flags();
        self.writer.push(&record.to_words());
    }

    /// Flags that all its records have.
    #[inline]
    fn common_flags(&self) -> u16 {
        self.tracer.0.config.flags
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

/// Something failed that should not: a flight recorder that looks out for errors
/// ([`Tracer::set_dump_on_error`]) is written.
#[inline]
pub fn note_error() {
    if is_any_on() {
        with(|recorder| recorder.tracer.note_error());
    }
}

/// The clock of this thread's recorder in ticks; 0 if there is none, or nothing is recorded (then
/// it costs one relaxed load).
#[inline]
pub fn now() -> u64 {
    if is_any_on() { with(|recorder| recorder.ticks()).unwrap_or(0) } else { 0 }
}
