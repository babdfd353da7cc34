//! Spans and operations: what takes time.

use std::cell::Cell;

use super::flow::{Context, Fate, LANE_NONE, context, set_context};
use super::open::{Open, Role, Shared};
use super::pool::Pool;
use super::{Recorder, now, with};
use crate::event::EventId;
use crate::mask::{is_any_on, is_on};
use crate::record::{Span, coarse, flags, head_word};

/// Lanes of one thread.
pub const LANES: usize = 64;

thread_local! {
    static SPARE: Pool<Shared> = const { Pool::new() };
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

/// Begins an operation: a span on a lane of its own, in the table of what is running, and the
/// parent of everything that its flow records until it is dropped.
#[inline]
pub fn operation(event: EventId) -> OpenSpan {
    if is_on(event) { begin(event, true) } else { OpenSpan::OFF }
}

/// A runtime hands the outcome of a request to its flow. Its last byte was given to the socket at
/// `sent`, its reply was taken from the socket at `received`, in ticks; 0: not known. See
/// [`OpenSpan::answered`].
#[inline]
pub fn note_way(sent: u64, received: u64) {
    if is_any_on() {
        ON_THE_WAY.set(OnTheWay { sent, received });
    }
}

/// A span that has begun. It is written when it is dropped, on the thread that drops it.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped"]
pub struct OpenSpan(Option<Shared>);

impl OpenSpan {
    /// One that is not written.
    pub const OFF: OpenSpan = OpenSpan(None);

    /// True if it will be written: ask before something is computed only for it.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.as_ref().is_some_and(|open| open.role() != Role::Mute)
    }

    #[inline]
    fn with(&mut self, f: impl FnOnce(&Open)) -> &mut Self {
        if let Some(open) = &self.0 {
            f(open);
        }
        self
    }

    /// Its number, by which others name it; 0: it is not written.
    pub fn number(&self) -> u32 {
        self.0.as_ref().filter(|open| open.role() != Role::Mute).map_or(0, |open| open.span.get())
    }

    /// The key of the request, see [`crate::RequestKey`].
    #[inline]
    pub fn request(&mut self, key: u64) -> &mut Self {
        self.with(|open| open.req.set(key))
    }

    /// The server talked to.
    #[inline]
    pub fn peer(&mut self, server: u16) -> &mut Self {
        self.with(|open| open.peer.set(server))
    }

    /// The handle of the object.
    #[inline]
    pub fn object(&mut self, handle: u64) -> &mut Self {
        self.with(|open| open.obj.set(handle))
    }

    /// Offset and length in bytes; a length beyond 4 GiB is recorded as 4 GiB.
    #[inline]
    pub fn range(&mut self, offset: u64, len: u64) -> &mut Self {
        self.with(|open| {
            open.off.set(offset);
            open.len.set(u32::try_from(len).unwrap_or(u32::MAX));
        })
    }

    /// The class of a disk access, see [`crate::record::class`].
    #[inline]
    pub fn class(&mut self, class: u8) -> &mut Self {
        self.with(|open| open.class.set(class))
    }

    /// Adds flags, see [`crate::record::flags`].
    #[inline]
    pub fn flag(&mut self, flags: u16) -> &mut Self {
        self.with(|open| open.flags.set(open.flags.get() | flags & !flags::KIND))
    }

    /// Until [`OpenSpan::finished`] is called its end is not known: a flow may be dropped before,
    /// for example because its process ends.
    #[inline]
    pub fn unfinished(&mut self) -> &mut Self {
        self.with(|open| open.flags.set(open.flags.get() | flags::OPEN))
    }

    /// What it tells of has ended.
    #[inline]
    pub fn finished(&mut self) -> &mut Self {
        self.with(|open| open.flags.set(open.flags.get() & !flags::OPEN))
    }

    /// The number of the failure; 0: none.
    #[inline]
    pub fn result(&mut self, status: u16) -> &mut Self {
        self.with(|open| {
            open.res.set(u8::try_from(status).unwrap_or(u8::MAX));
            if status != 0 {
                open.flags.set(open.flags.get() | flags::ERROR);
            }
        })
    }

    /// The flow has the outcome of its request: as far as the runtime has told it ([`note_way`]),
    /// the part of the span until the request was sent was spent in a queue, and the span ended
    /// when the reply was received, not when the flow had its turn.
    #[inline]
    pub fn answered(&mut self) -> &mut Self {
        if is_any_on() {
            let way = ON_THE_WAY.take();
            self.with(|open| {
                // Something older belongs to a request that nobody recorded.
                let t0 = open.t0();
                open.wait.set(if way.sent >= t0 { coarse(way.sent - t0) } else { 0 });
                open.end.set(if way.received >= t0 { way.received } else { 0 });
            });
        }
        self
    }

    /// It goes on: it ends when it is dropped.
    #[inline]
    pub fn goes_on(&mut self) -> &mut Self {
        self.with(|open| open.end.set(0))
    }

    /// The part of the span up to `ticks` was spent in a queue. A time before the span is ignored.
    pub fn waited_until(&mut self, ticks: u64) -> &mut Self {
        self.with(|open| {
            if ticks > open.t0() {
                open.wait.set(coarse(ticks - open.t0()));
            }
        })
    }

    /// The part of the span up to now was spent in a queue.
    pub fn waited(&mut self) -> &mut Self {
        self.with(|open| open.wait.set(coarse(now().saturating_sub(open.t0()))))
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
fn end(open: Shared) {
    let role = open.role();
    if role != Role::Inner {
        set_context(open.before());
    }
    if role != Role::Mute {
        with(|recorder| recorder.end(&open, role));
    }
    open.ended();
    Pool::give(&SPARE, open);
}

impl Recorder {
    fn begin(&self, event: EventId, around: Context, is_operation: bool) -> Shared {
        let open = Pool::take(&SPARE);
        open.event.set(event.0);
        open.lane.set(around.lane);
        open.tracer.set(self.tracer.0.mask.short_number());
        open.set_before(around);
        open.clear();
        let span = self.next_span();
        open.span.set(span);
        let role = if is_operation { self.begin_operation(&open, around, span) } else { Role::Inner };
        open.set_role(role);
        if role != Role::Mute {
            open.begin(self.ticks());
        }
        open
    }

    /// Decides about the operation's records and takes a lane.
    fn begin_operation(&self, open: &Open, before: Context, span: u32) -> Role {
        let mut context = Context { span, ..before };
        let mut role = Role::Nested;
        if before.span == 0 {
            role = if self.chooses(open, span) { Role::ClientOperation } else { Role::Mute };
        }
        match role {
            Role::Mute => context.fate = Fate::NotChosen,
            Role::ClientOperation => {
                context.fate = Fate::Kept;
                let lane = self.lanes.get().trailing_ones();
                context.lane = if lane < LANES as u32 { lane as u16 } else { LANE_NONE };
                if context.lane != LANE_NONE {
                    self.lanes.set(self.lanes.get() | 1 << lane);
                }
                open.lane.set(context.lane);
            }
            Role::Inner | Role::Nested => {}
        }
        set_context(context);
        role
    }

    /// True if the records of this operation are kept: one operation of 2^n is.
    fn chooses(&self, open: &Open, span: u32) -> bool {
        match self.tracer.sampling_bits() {
            0 => true,
            bits => {
                open.flags.set(open.flags.get() | flags::SAMPLED);
                spread(span) >> (32 - bits) == 0
            }
        }
    }

    fn end(&self, open: &Open, role: Role) {
        if open.tracer.get() != self.tracer.0.mask.short_number() {
            // The process has another tracer than at the beginning, with other lanes and another
            // clock.
            return;
        }
        let (t0, lane) = (open.t0(), open.lane.get());
        let end = if open.end.get() == 0 { self.ticks() } else { open.end.get() };
        let dur = end.saturating_sub(t0);
        if role == Role::ClientOperation {
            if lane != LANE_NONE {
                self.lanes.set(self.lanes.get() & !(1 << lane));
            }
            self.look_at_duration(dur);
        }
        let head = head_word(EventId(open.event.get()), lane, open.flags.get() | self.common_flags(), open.res.get(), open.class.get());
        let (peer, obj, off, len) = (open.peer.get(), open.obj.get(), open.off.get(), open.len.get());
        let (span, parent, wait) = (open.span.get(), open.before().span, open.wait.get());
        let [a, b, c, d, e] = Span { dur, peer, obj, off, len, span, parent, wait }.words();
        self.writer.push(&[t0, open.req.get(), head, a, b, c, d, e]);
    }
}

/// The finaliser of MurmurHash3 (Appleby): numbers that follow a pattern, as those of operations
/// do, are chosen as if by chance.
fn spread(number: u32) -> u32 {
    let number = (number ^ number >> 16).wrapping_mul(0x85EB_CA6B);
    let number = (number ^ number >> 13).wrapping_mul(0xC2B2_AE35);
    number ^ number >> 16
}
