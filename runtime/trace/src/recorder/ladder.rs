//! The ladder of a request at a server: the phases that it goes through, in one record.

use std::cell::Cell;

use super::{Recorder, flow::Context, now, with};
use crate::event::{EventId, Kind, PHASES_MAX};
use crate::mask::{is_any_on, is_on};
use crate::record::{self, Ladder, coarse, flags, head_word};

thread_local! {
    /// The ladder of the reply that the server is about to give to its runtime.
    static LEAVING: Cell<Option<OpenLadder>> = const { Cell::new(None) };
}

/// Begins the ladder of a request at a server. It is written when it is dropped.
#[inline]
pub fn ladder(event: EventId) -> OpenLadder {
    ladder_since(event, 0)
}

/// A ladder that began at `ticks`; 0 means now. Who knows the time needs not read the clock again.
#[inline]
pub fn ladder_since(event: EventId, ticks: u64) -> OpenLadder {
    if !is_on(event) {
        return OpenLadder::OFF;
    }
    let t0 = if ticks == 0 { now() } else { ticks };
    // 0: this thread records nothing.
    OpenLadder { event, is_on: t0 != 0, t0, last: t0, ..OpenLadder::OFF }
}

/// The ladder of the reply that this thread is about to send, see [`OpenLadder::leave`]. One relaxed load if nothing is recorded.
#[inline]
pub fn take_leaving() -> Option<OpenLadder> {
    if is_any_on() { LEAVING.take() } else { None }
}

/// The ladder of a request at a server. It is written when it is dropped.
#[derive(Debug)]
#[must_use = "a ladder ends when it is dropped"]
pub struct OpenLadder {
    event: EventId,
    flags: u16,
    res: u8,
    is_on: bool,
    t0: u64,
    /// The end of the last phase, to the coarse unit of phases.
    last: u64,
    req: u64,
    ladder: Ladder,
}

impl OpenLadder {
    /// Nothing is recorded.
    pub const OFF: OpenLadder = OpenLadder {
        event: EventId(0),
        flags: 0,
        res: 0,
        is_on: false,
        t0: 0,
        last: 0,
        req: 0,
        ladder: Ladder { span: 0, code: 0, peer: 0, phases: [0; PHASES_MAX] },
    };

    /// True if it will be written.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// For [`within`](super::within): what a flow records that works on this request is inside it.
    pub fn context(&mut self) -> Context {
        if !self.is_on() {
            return Context::default();
        }
        if self.ladder.span == 0 {
            self.ladder.span = with(Recorder::next_span).unwrap_or(0);
        }
        Context::inside(self.ladder.span)
    }

    /// It will not be written: the request goes on elsewhere.
    pub fn forget(&mut self) {
        self.is_on = false;
    }

    /// The request: its key, the code of its operation, the server that works on it.
    #[inline]
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
    #[inline]
    pub fn leave(self) {
        if self.is_on() {
            LEAVING.set(Some(self));
        }
    }

    /// The number of the failure; 0: none.
    #[inline]
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
            end(self);
        }
    }
}

/// Not inlined: what is off must stay a test.
#[inline(never)]
fn end(open: &OpenLadder) {
    with(|recorder| {
        if recorder.wants(open.event) {
            let flags = open.flags | flags::SERVER | Kind::Ladder as u16 | recorder.common_flags();
            let [a, b, c, d, e] = open.ladder.words();
            recorder.writer.push(&[open.t0, open.req, head_word(open.event, 0, flags, open.res, 0), a, b, c, d, e]);
            recorder.look_at_duration(open.last.saturating_sub(open.t0));
        }
    });
}
