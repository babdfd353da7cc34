//! The staged span of a request at a server: the phases that it goes through, in one record.

use std::cell::Cell;

use super::pool::Pool;
use super::{Recorder, flow::Context, now, with};
use crate::event::{EventId, EventKind};
use crate::mask::{is_any_on, is_on};
use crate::record::{self, Phases, coarse, flags, head_word, staged_span_word};

thread_local! {
    static SPARE: Pool<Box<Open>> = const { Pool::new() };
    /// The staged span of the reply that the server is about to give to its runtime.
    static LEAVING: Cell<Option<OpenStagedSpan>> = const { Cell::new(None) };
}

/// Begins the staged span of a request at a server. It is written when it is dropped.
#[inline]
pub fn staged_span(event: EventId) -> OpenStagedSpan {
    staged_span_since(event, 0)
}

/// A staged span that began at `ticks`; 0 means now. Who knows the time needs not read the clock
/// again.
#[inline]
pub fn staged_span_since(event: EventId, ticks: u64) -> OpenStagedSpan {
    if is_on(event) { begin(event, ticks) } else { OpenStagedSpan::OFF }
}

/// Not inlined, like [`end`]: what is off must stay a load and a test.
#[inline(never)]
fn begin(event: EventId, ticks: u64) -> OpenStagedSpan {
    let t0 = if ticks == 0 { now() } else { ticks };
    if t0 == 0 {
        // This thread records nothing.
        return OpenStagedSpan::OFF;
    }
    let mut open = Pool::take(&SPARE);
    (open.event, open.flags, open.res) = (event, 0, 0);
    (open.t0, open.last, open.req) = (t0, t0, 0);
    (open.span, open.code, open.peer, open.phases) = (0, 0, 0, Phases::default());
    OpenStagedSpan(Some(open))
}

/// The staged span of the reply that this thread is about to send, see [`OpenStagedSpan::leave`].
/// One relaxed load if nothing is recorded.
#[inline]
pub fn take_leaving() -> Option<OpenStagedSpan> {
    if is_any_on() { LEAVING.take() } else { None }
}

/// Writes the staged span of a reply that nobody has fetched.
pub(super) fn write_leaving() {
    drop(LEAVING.take());
}

/// The staged span of a request at a server. It is written when it is dropped.
#[derive(Debug)]
#[must_use = "a staged_span ends when it is dropped"]
pub struct OpenStagedSpan(Option<Box<Open>>);

#[derive(Debug, Default)]
struct Open {
    event: EventId,
    flags: u16,
    res: u8,
    t0: u64,
    /// The end of the last phase, to the coarse unit of phases.
    last: u64,
    req: u64,
    span: u32,
    code: u16,
    peer: u16,
    phases: Phases,
}

impl OpenStagedSpan {
    /// Nothing is recorded.
    pub const OFF: OpenStagedSpan = OpenStagedSpan(None);

    /// True if it will be written.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// For [`within`](super::within): what a flow records that works on this request is inside it.
    pub fn context(&mut self) -> Context {
        let Some(open) = &mut self.0 else { return Context::default() };
        if open.span == 0 {
            open.span = with(Recorder::next_span).unwrap_or(0);
        }
        Context::inside(open.span)
    }

    /// It will not be written: the request goes on elsewhere.
    pub fn forget(&mut self) {
        if let Some(open) = self.0.take() {
            Pool::give(&SPARE, open);
        }
    }

    /// The request: its key, the code of its operation, the server that works on it.
    #[inline]
    pub fn request(&mut self, key: u64, code: u16, server: u16) {
        if let Some(open) = &mut self.0 {
            (open.req, open.code, open.peer) = (key, code, server);
        }
    }

    /// The time since the last phase (or the beginning) belongs to this one. A phase may come
    /// several times. `now` in ticks is shared with other requests of the turn; see [`now`].
    #[inline]
    pub fn phase(&mut self, phase: usize, now: u64) {
        if let Some(open) = &mut self.0 {
            let more = coarse(now.saturating_sub(open.last));
            open.phases.add(phase, more);
            // What rounding leaves over goes to the next phase: the sum stays right.
            open.last += record::fine(more);
        }
    }

    /// As [`OpenStagedSpan::phase`], and the last one. Whoever knows that should say so: the
    /// processor is held up if it reads a word right after half of it was written.
    #[inline]
    pub fn end_with(mut self, phase: usize, now: u64) {
        if let Some(open) = self.0.take() {
            end(open, Some((phase, now)));
        }
    }

    /// The reply leaves: whoever sends it fetches the staged span with [`take_leaving`], adds the
    /// time until then, and writes it. To be called right before the reply is given to the runtime;
    /// with a runtime that does not fetch it, it is written at the next call. Once nothing is
    /// recorded any more nobody would fetch it, so it ends here.
    #[inline]
    pub fn leave(self) {
        if self.is_on() && is_any_on() {
            LEAVING.set(Some(self));
        }
    }

    /// The number of the failure; 0: none.
    #[inline]
    pub fn result(&mut self, status: u16) {
        if let Some(open) = &mut self.0 {
            open.res = u8::try_from(status).unwrap_or(u8::MAX);
            if status != 0 {
                open.flags |= flags::ERROR;
            }
        }
    }
}

impl Drop for OpenStagedSpan {
    #[inline]
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            end(open, None);
        }
    }
}

/// See [`begin`].
#[inline(never)]
fn end(open: Box<Open>, last: Option<(usize, u64)>) {
    with(|recorder| {
        // What began before this tracer was there belongs to the recording before, which is over.
        if recorder.wants(open.event) && open.t0 >= recorder.tracer.0.begun {
            let (mut phases, mut ended) = (open.phases, open.last);
            if let Some((phase, now)) = last {
                phases.add(phase, coarse(now.saturating_sub(ended)));
                ended = ended.max(now);
            }
            let flags = open.flags | flags::SERVER | EventKind::StagedSpan as u16 | recorder.common_flags();
            let head = head_word(open.event, 0, flags, open.res, 0);
            let [a, b, c, d] = phases.0;
            recorder.writer.push(&[open.t0, open.req, head, staged_span_word(open.span, open.code, open.peer), a, b, c, d]);
            recorder.look_at_duration(ended.saturating_sub(open.t0));
        }
    });
    Pool::give(&SPARE, open);
}
