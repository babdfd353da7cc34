//! Trace records: what happened to one operation, where and when, written at a cost of some
//! nanoseconds into a ring of each thread; the file they are kept in; latency distributions; and
//! the analysis that says where the time went (`docs/trace.md`). It never blocks the thread that
//! records, and never loses a record without counting it.

pub mod clock;
pub mod event;
pub mod events;
pub mod explain;
pub mod file;
pub mod latency;
pub mod mask;
pub mod merge;
pub mod messages;
pub mod names;
pub mod offsets;
pub mod record;
mod recorder;
mod request;
pub mod ring;
mod stage;
mod time_order;
mod tracer;
pub mod tsc;

pub use clock::{Anchor, Clock, TickScale};
pub use event::{EventId, EventKind, EventTable};
pub use mask::{Mask, is_any_on, is_on};
pub use record::TraceRecord;
pub use recorder::{
    Context, LANE_NONE, LANES, OpenSpan, OpenStagedSpan, Recorder, context, counters, name, note_error, note_way, now, operation,
    set_context, set_process_tracer, set_recorder, span, staged_span, staged_span_since, take_leaving, within,
};
pub use request::{RequestKey, request_key};
pub use stage::Stage;
pub use tracer::{Batch, Drain, Mode, Tracer, TracerConfig, TracerStats};
