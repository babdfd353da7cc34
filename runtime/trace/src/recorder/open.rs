//! Spans that have begun. Each is written when it ends, so what has not ended is looked for here:
//! the fields of every open span may be read by any thread, without making the thread wait that it
//! belongs to. They are relaxed atomics, which cost what plain fields cost.

use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::flow::Context;
use crate::event::EventId;
use crate::record::{Body, Span, TraceRecord, flags};

/// Every open span of this process, and those that wait to be used again.
static ALL: Mutex<Vec<Weak<Open>>> = Mutex::new(Vec::new());

/// A number that one thread writes and others read.
#[derive(Debug, Default)]
pub(super) struct Field<A>(A);

macro_rules! field {
    ($atomic:ty, $number:ty) => {
        impl Field<$atomic> {
            #[inline]
            pub(super) fn get(&self) -> $number {
                self.0.load(Ordering::Relaxed)
            }
            #[inline]
            pub(super) fn set(&self, value: $number) {
                self.0.store(value, Ordering::Relaxed);
            }
        }
    };
}
field!(AtomicU8, u8);
field!(AtomicU16, u16);
field!(AtomicU32, u32);
field!(AtomicU64, u64);

/// What the end of a span has to put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Role {
    /// Inside an operation: nothing.
    Inner,
    /// An operation inside an operation.
    Nested,
    /// The outermost operation.
    ClientOperation,
    /// An operation that was not chosen, and is not written.
    Mute,
}

#[derive(Debug, Default)]
pub(super) struct Open {
    pub event: Field<AtomicU16>,
    pub flags: Field<AtomicU16>,
    pub lane: Field<AtomicU16>,
    pub peer: Field<AtomicU16>,
    pub res: Field<AtomicU8>,
    pub class: Field<AtomicU8>,
    role: Field<AtomicU8>,
    /// The number of the tracer that it began with.
    pub tracer: Field<AtomicU32>,
    /// 0: it has not begun, or is not written. Stored last, taken back first.
    t0: Field<AtomicU64>,
    /// When it ended; 0: when it is dropped.
    pub end: Field<AtomicU64>,
    pub req: Field<AtomicU64>,
    /// The running operation when it began: its parent.
    parent: Field<AtomicU32>,
    parent_lane: Field<AtomicU16>,
    parent_fate: Field<AtomicU8>,
    pub obj: Field<AtomicU64>,
    pub off: Field<AtomicU64>,
    pub len: Field<AtomicU32>,
    pub span: Field<AtomicU32>,
    pub wait: Field<AtomicU32>,
}

impl Open {
    pub fn role(&self) -> Role {
        [Role::Inner, Role::Nested, Role::ClientOperation, Role::Mute][usize::from(self.role.get() & 3)]
    }

    pub fn set_role(&self, role: Role) {
        self.role.set(role as u8);
    }

    pub fn t0(&self) -> u64 {
        self.t0.get()
    }

    /// Forgets what may be left of its last use.
    #[inline]
    pub fn clear(&self) {
        self.flags.set(0);
        self.peer.set(0);
        self.res.set(0);
        self.class.set(0);
        self.end.set(0);
        self.req.set(0);
        self.obj.set(0);
        self.off.set(0);
        self.len.set(0);
        self.wait.set(0);
    }

    /// From now on others see it.
    #[inline]
    pub fn begin(&self, t0: u64) {
        self.t0.0.store(t0, Ordering::Release);
    }

    /// From now on nobody sees it.
    #[inline]
    pub fn ended(&self) {
        self.t0.set(0);
        // The fields of the next span must not be seen beside the time of this one.
        fence(Ordering::Release);
    }

    pub fn before(&self) -> Context {
        Context::of_parts(self.parent.get(), self.parent_lane.get(), self.parent_fate.get())
    }

    pub fn set_before(&self, before: Context) {
        let (span, lane, fate) = before.parts();
        self.parent.set(span);
        self.parent_lane.set(lane);
        self.parent_fate.set(fate);
    }

    /// As a record up to `now`; `None` if it is not open, or not of this tracer.
    fn record(&self, tracer: u32, now: u64) -> Option<(Role, TraceRecord)> {
        let t0 = self.t0.0.load(Ordering::Acquire);
        let (role, is_own) = (self.role(), self.tracer.get() == tracer);
        let span = Span {
            dur: now.saturating_sub(t0),
            peer: self.peer.get(),
            obj: self.obj.get(),
            off: self.off.get(),
            len: self.len.get(),
            span: self.span.get(),
            parent: self.parent.get(),
            wait: self.wait.get(),
        };
        let mut record = TraceRecord::new(t0, EventId(self.event.get()), Body::Span(span));
        (record.lane, record.req) = (self.lane.get(), self.req.get());
        record.flags = self.flags.get() & !flags::KIND | flags::OPEN;
        fence(Ordering::Acquire);
        (t0 != 0 && is_own && self.t0.get() == t0).then_some((role, record))
    }
}

/// An [`Open`] that others find.
#[derive(Debug)]
pub(super) struct Shared(Arc<Open>);

impl Default for Shared {
    /// Happens as often as more spans are open at once on a thread than ever before.
    fn default() -> Shared {
        let open = Arc::new(Open::default());
        let mut all = all();
        if all.len() == all.capacity() {
            // Those of threads that have ended.
            all.retain(|open| open.strong_count() > 0);
        }
        all.push(Arc::downgrade(&open));
        Shared(open)
    }
}

impl Deref for Shared {
    type Target = Open;
    #[inline]
    fn deref(&self) -> &Open {
        &self.0
    }
}

fn all() -> MutexGuard<'static, Vec<Weak<Open>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The open spans of a tracer as records up to `now`, by their beginnings; each with whether it is
/// an outermost operation.
pub(crate) fn open_spans(tracer: u32, now: u64) -> Vec<(bool, TraceRecord)> {
    let found = all().iter().filter_map(|open| open.upgrade()?.record(tracer, now)).collect::<Vec<_>>();
    let mut records: Vec<(bool, TraceRecord)> = found.into_iter().map(|(role, record)| (role == Role::ClientOperation, record)).collect();
    records.sort_by_key(|(_, record)| record.t0);
    records
}
