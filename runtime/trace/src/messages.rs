//! Messages between processes of one parallel program: a record where each was sent, for as long as
//! it was under way, and one where it was taken. Both have the message's number as their request,
//! and the number of the other process in the place of the offset.

use crate::event::{EventId, EventInfo, EventKind};
use crate::record::{Body, DURATION_MAX, Span, TraceRecord};
use crate::stage::Stage;

/// From the moment at which the sender hands a message over until the receiver takes it.
pub const SENT: EventId = EventId::new(3, 34);
/// The moment at which the receiver takes it.
pub const TAKEN: EventId = EventId::new(3, 35);

/// Numbers of messages begin here: those of requests are lower.
const FIRST: u64 = 1 << 63;
/// No server: the other end is a process like this one.
const NO_SERVER: u16 = u16::MAX;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number in the run, from 0.
    pub number: u64,
    /// The sending process.
    pub from: u32,
    /// The receiving process.
    pub to: u32,
    /// Its length.
    pub bytes: u64,
    /// When the sender handed it over, in ticks.
    pub sent: u64,
    /// When the receiver took it; not before it was sent.
    pub taken: u64,
}

impl Message {
    /// The records for the sender and for the receiver.
    pub fn records(&self) -> [TraceRecord; 2] {
        let len = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        let record = |t0: u64, event, dur: u64, other: u32| {
            let body = Span { dur: dur.min(DURATION_MAX), off: u64::from(other), len, peer: NO_SERVER, ..Span::default() };
            TraceRecord { req: FIRST | self.number, ..TraceRecord::new(t0, event, Body::Span(body)) }
        };
        [record(self.sent, SENT, self.taken.saturating_sub(self.sent), self.to), record(self.taken, TAKEN, 0, self.from)]
    }
}

/// The events for the header of a file with messages.
pub fn events() -> [EventInfo; 2] {
    [(SENT, "net.sent"), (TAKEN, "net.taken")].map(|(id, name)| EventInfo {
        id,
        name: name.to_string(),
        kind: EventKind::Span,
        stage: Stage::Network,
        parts: Vec::new(),
    })
}

/// True for both records of a message: what they have in the place of an offset is a process.
pub fn is_message(id: EventId) -> bool {
    matches!(id, SENT | TAKEN)
}
