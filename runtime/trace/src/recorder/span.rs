//! Spans and operations: what takes time.

use std::cell::Cell;

use super::flow::{Context, Fate, context, set_context};
use super::pool::Pool;
use super::{Recorder, now, with};
use crate::event::EventId;
use crate::in_flight::{LANE_NONE, LANES};
use crate::mask::{is_any_on, is_on};
use crate::record::{Span, coarse, flags, head_word};

thread_local! {
    static SPARE: Pool<Open> = const { Pool::new() };
    /// Of the request whose outcome is being handed to its flow.
    static ON_THE_WAY: Cell<OnTheWay> = const { Cell::new(OnTheWay { sent: 0, received: 0 }) };
}

/// In ticks; 0: not known.
#[derive(Clone, Copy, Debug, Default)]
struct OnTheWay {
    sent: u64,
    received: u64,
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

/// A runtime hands the outcome of a request to its flow. Its last byte was given to the socket at `sent`, its reply was taken from the
/// socket at `received`, in ticks; 0: not known. See [`OpenSpan::answered`].
#[inline]
pub fn note_way(sent: u64, received: u64) {
    if is_any_on() {
        ON_THE_WAY.set(OnTheWay { sent, received });
    }
}

/// What the end of a span has to put back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    /// Inside an operation: nothing.
    #[default]
    Inner,
    /// An operation inside an operation.
    Nested,
    /// The outermost operation.
    Operation,
    /// An operation that was not chosen, and is not written.
    Mute,
}

/// A span that has begun. It is written when it is dropped, on the thread that drops it.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped"]
pub struct OpenSpan(Option<Box<Open>>);

#[derive(Debug, Default)]
struct Open {
    event: EventId,
    flags: u16,
    lane: u16,
    peer: u16,
    res: u8,
    class: u8,
    role: Role,
    /// The number of the tracer that it began with.
    tracer: u32,
    t0: u64,
    /// When it ended; 0: when it is dropped.
    end: u64,
    req: u64,
    /// The running operation when it began: its parent.
    before: Context,
    obj: u64,
    off: u64,
    len: u32,
    span: u32,
    wait: u32,
}

impl OpenSpan {
    const OFF: OpenSpan = OpenSpan(None);

    /// True if it will be written: ask before something is computed only for it.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.as_ref().is_some_and(|open| open.role != Role::Mute)
    }

    #[inline]
    fn with(&mut self, f: impl FnOnce(&mut Open)) -> &mut Self {
        if let Some(open) = &mut self.0 {
            f(open);
        }
        self
    }

    /// The key of the request, see [`crate::RequestKey`].
    pub fn request(&mut self, key: u64) -> &mut Self {
        self.with(|open| open.req = key)
    }

    /// The server talked to.
    pub fn peer(&mut self, server: u16) -> &mut Self {
        self.with(|open| open.peer = server)
    }

    /// The handle of the object; others see it in the table of what is running.
    pub fn object(&mut self, handle: u64) -> &mut Self {
        self.with(|open| {
            open.obj = handle;
            if open.role == Role::Operation && open.lane != LANE_NONE {
                with(|recorder| recorder.table.set_object(usize::from(open.lane), handle));
            }
        })
    }

    /// Offset and length in bytes; a length beyond 4 GiB is recorded as 4 GiB.
    pub fn range(&mut self, offset: u64, len: u64) -> &mut Self {
        self.with(|open| (open.off, open.len) = (offset, u32::try_from(len).unwrap_or(u32::MAX)))
    }

    /// The class of a disk access, see [`crate::record::class`].
    pub fn class(&mut self, class: u8) -> &mut Self {
        self.with(|open| open.class = class)
    }

    /// Adds flags, see [`crate::record::flags`].
    pub fn flag(&mut self, flags: u16) -> &mut Self {
        self.with(|open| open.flags |= flags & !flags::KIND)
    }

    /// Until [`OpenSpan::finished`] is called its end is not known: a flow may be dropped before, for example because its process ends.
    pub fn unfinished(&mut self) -> &mut Self {
        self.with(|open| open.flags |= flags::OPEN)
    }

    /// What it tells of has ended.
    pub fn finished(&mut self) -> &mut Self {
        self.with(|open| open.flags &= !flags::OPEN)
    }

    /// The number of the failure; 0: none.
    pub fn result(&mut self, status: u16) -> &mut Self {
        self.with(|open| {
            open.res = u8::try_from(status).unwrap_or(u8::MAX);
            if status != 0 {
                open.flags |= flags::ERROR;
            }
        })
    }

    /// The flow has the outcome of its request: as far as the runtime has told it ([`note_way`]), the part of the span until the request was
    /// sent was spent in a queue, and the span ended when the reply was received, not when the flow had its turn.
    pub fn answered(&mut self) -> &mut Self {
        if is_any_on() {
            let way = ON_THE_WAY.take();
            self.with(|open| {
                // Something older belongs to a request that nobody recorded.
                open.wait = if way.sent >= open.t0 { coarse(way.sent - open.t0) } else { 0 };
                open.end = if way.received >= open.t0 { way.received } else { 0 };
            });
        }
        self
    }

    /// It goes on: it ends when it is dropped.
    pub fn goes_on(&mut self) -> &mut Self {
        self.with(|open| open.end = 0)
    }

    /// The part of the span up to `ticks` was spent in a queue. A time before the span is ignored.
    pub fn waited_until(&mut self, ticks: u64) -> &mut Self {
        self.with(|open| {
            if ticks > open.t0 {
                open.wait = coarse(ticks - open.t0);
            }
        })
    }

    /// The part of the span up to now was spent in a queue.
    pub fn waited(&mut self) -> &mut Self {
        self.with(|open| open.wait = coarse(now().saturating_sub(open.t0)))
    }
}

impl Drop for OpenSpan {
    #[inline]
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            end(open);
        }
    }
}

/// Not inlined, like [`end`]: what is off must stay a load and a test.
#[inline(never)]
fn begin(event: EventId, is_operation: bool) -> OpenSpan {
    let around = context();
    if around.fate == Fate::NotChosen {
        return OpenSpan::OFF;
    }
    let open = with(|recorder| recorder.wants(event).then(|| recorder.begin(event, around, is_operation)));
    OpenSpan(open.flatten())
}

#[inline(never)]
fn end(open: Box<Open>) {
    if open.role != Role::Inner {
        set_context(open.before);
    }
    if open.role != Role::Mute {
        with(|recorder| recorder.end(&open));
    }
    Pool::give(&SPARE, open);
}

impl Recorder {
    fn begin(&self, event: EventId, around: Context, is_operation: bool) -> Box<Open> {
        let mut open = Pool::take(&SPARE);
        (open.event, open.flags, open.lane, open.peer, open.res, open.class) = (event, 0, around.lane, 0, 0, 0);
        (open.role, open.tracer, open.before) = (Role::Inner, self.tracer.0.mask.short_number(), around);
        (open.t0, open.end, open.req, open.obj, open.off) = (0, 0, 0, 0, 0);
        (open.len, open.span, open.wait) = (0, self.next_span(), 0);
        if is_operation {
            self.begin_operation(&mut open);
        }
        if open.role != Role::Mute {
            open.t0 = self.ticks();
        }
        if open.role == Role::Operation && open.lane != LANE_NONE {
            self.table.begin(usize::from(open.lane), open.t0, event, open.span);
        }
        open
    }

    /// Decides about the operation's records and takes a lane.
    fn begin_operation(&self, open: &mut Open) {
        let mut context = Context { span: open.span, ..open.before };
        open.role = Role::Nested;
        if open.before.span == 0 {
            open.role = if self.chooses(open) { Role::Operation } else { Role::Mute };
        }
        match open.role {
            Role::Mute => context.fate = Fate::NotChosen,
            Role::Operation => {
                context.fate = Fate::Kept;
                let lane = self.lanes.get().trailing_ones();
                context.lane = if lane < LANES as u32 { lane as u16 } else { LANE_NONE };
                if context.lane != LANE_NONE {
                    self.lanes.set(self.lanes.get() | 1 << lane);
                }
                open.lane = context.lane;
            }
            Role::Inner | Role::Nested => {}
        }
        set_context(context);
    }

    /// True if the records of this operation are kept: one operation of 2^n is.
    fn chooses(&self, open: &mut Open) -> bool {
        match self.tracer.sampling_bits() {
            0 => true,
            bits => {
                open.flags |= flags::SAMPLED;
                spread(open.span) >> (32 - bits) == 0
            }
        }
    }

    fn end(&self, open: &Open) {
        if open.tracer != self.tracer.0.mask.short_number() {
            // The process has another tracer than at the beginning, with other lanes and another clock.
            return;
        }
        let end = if open.end == 0 { self.ticks() } else { open.end };
        let dur = end.saturating_sub(open.t0);
        if open.role == Role::Operation {
            if open.lane != LANE_NONE {
                self.lanes.set(self.lanes.get() & !(1 << open.lane));
                self.table.end(usize::from(open.lane));
            }
            self.look_at_duration(dur);
        }
        let head = head_word(open.event, open.lane, open.flags | self.common_flags(), open.res, open.class);
        let Open { peer, obj, off, len, span, wait, .. } = *open;
        let [a, b, c, d, e] = Span { dur, peer, obj, off, len, span, parent: open.before.span, wait }.words();
        self.writer.push(&[open.t0, open.req, head, a, b, c, d, e]);
    }
}

/// The finaliser of MurmurHash3 (Appleby): numbers that follow a pattern, as those of operations do, are chosen as if by chance.
fn spread(number: u32) -> u32 {
    let number = (number ^ number >> 16).wrapping_mul(0x85EB_CA6B);
    let number = (number ^ number >> 13).wrapping_mul(0xC2B2_AE35);
    number ^ number >> 16
}
