//! The record: 64 bytes, one cache line, little-endian. `docs/trace.md` draws it byte by byte, the
//! tests below check every offset.
//!
//! Records are written once, when what they describe is over: half as many as begin and end, and a
//! ring that wraps around never leaves an end without a beginning.

use crate::event::{EventId, EventKind, PHASES_MAX};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;
/// Words of a record.
pub const RECORD_WORDS: usize = 8;
/// A record as it lies in a ring.
pub type Words = [u64; RECORD_WORDS];
/// Waits and phases are stored in units of so many bits of ticks: steps of 5 ns and a range of 22 s
/// at 3 GHz, 16 ns and 68 s if a tick is a nanosecond.
pub const COARSE_BITS: u32 = 4;
/// Longest duration of a span in ticks: 48 bits, 26 hours at 3 GHz.
pub const DURATION_MAX: u64 = (1 << 48) - 1;
/// Bytes of a mark's label.
pub const LABEL_BYTES: usize = 32;
/// Bytes of a name in one record.
pub const TEXT_BYTES: usize = 40;

/// Bits of [`TraceRecord::flags`]; bits 0 to 2 hold the [`EventKind`].
pub mod flags {
    /// The kind of the record.
    pub const KIND: u16 = 0b111;
    /// Written by a server.
    pub const SERVER: u16 = 1 << 3;
    /// Virtual time.
    pub const SIMULATED: u16 = 1 << 4;
    /// The operation failed; `res` says how, if it is known.
    pub const ERROR: u16 = 1 << 5;
    /// A request that was sent before.
    pub const RETRY: u16 = 1 << 6;
    /// Kept because its request was chosen, others of its kind may be missing.
    pub const SAMPLED: u16 = 1 << 7;
    /// With a promise of stable storage.
    pub const SYNC: u16 = 1 << 8;
    /// Of a disk access: one of several requests that share it; the access itself is a record of
    /// its own, `disk.job`.
    pub const SHARED: u16 = 1 << 9;
    /// Answered from a cache.
    pub const HIT: u16 = 1 << 10;
    /// Still running when the record was written.
    pub const OPEN: u16 = 1 << 11;
}

/// Classes of disk accesses in [`TraceRecord::class`].
pub mod class {
    /// Not known.
    pub const UNKNOWN: u8 = 0;
    /// It followed the access before it.
    pub const NO_SEEK: u8 = 1;
    /// A short seek.
    pub const NEAR_SEEK: u8 = 2;
    /// A long seek.
    pub const FAR_SEEK: u8 = 3;
}

/// What all records have in common, and the payload of their kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When it began, in ticks of its node's clock.
    pub t0: u64,
    /// The key of the request ([`crate::RequestKey`]), or what the event says; 0: local work.
    pub req: u64,
    /// What happened.
    pub event: EventId,
    /// Operations on one lane of one ring never overlap.
    pub lane: u16,
    /// See [`flags`].
    pub flags: u16,
    /// 0, or the status or errno of the failure.
    pub res: u8,
    /// See [`class`].
    pub class: u8,
    /// The rest.
    pub body: Body,
}

/// The payload of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Something that took time.
    Span(Span),
    /// Phases.
    StagedSpan(StagedSpan),
    /// Gauges.
    Counter([u64; 5]),
    /// A point in time.
    Mark {
        /// Its number, for iterations.
        value: u64,
        /// UTF-8, filled up with zeros.
        label: [u8; LABEL_BYTES],
    },
    /// Clocks.
    Sync(Sync),
    /// Records that are not here.
    Lost {
        /// Since the last such record of this ring.
        count: u64,
        /// Since the ring began.
        total: u64,
    },
    /// A piece of the name of object `req`; `lane` numbers the pieces.
    Text([u8; TEXT_BYTES]),
}

/// The payload of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Ticks; at most [`DURATION_MAX`].
    pub dur: u64,
    /// The server talked to, by its number.
    pub peer: u16,
    /// The handle of the object.
    pub obj: u64,
    /// Offset in bytes, or what the event says.
    pub off: u64,
    /// Length in bytes.
    pub len: u32,
    /// Identity within the process; 0: none.
    pub span: u32,
    /// The span around it in the same process; 0: none.
    pub parent: u32,
    /// The first part of `dur`, spent in a queue, in units of 2^[`COARSE_BITS`] ticks.
    pub wait: u32,
}

/// The payload of a staged span: consecutive phases from `t0` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagedSpan {
    /// Identity within the process; 0: none.
    pub span: u32,
    /// The code of the wire operation.
    pub code: u16,
    /// The server that worked, or that was talked to.
    pub peer: u16,
    /// In units of 2^[`COARSE_BITS`] ticks.
    pub phases: [u32; PHASES_MAX],
}

/// The payload of a clock record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sync {
    /// The monotonic clock at `t0`, in nanoseconds.
    pub mono_ns: u64,
    /// The wall clock at `t0`, in nanoseconds since 1970.
    pub wall_ns: i64,
    /// What must be added to this node's time to get the time of node `req`, in nanoseconds.
    pub offset_ns: i64,
    /// The shortest round trip it was measured with, in nanoseconds; 0: no measurement.
    pub rtt_ns: u64,
    /// The offset is right within so many nanoseconds.
    pub error_ns: u64,
}

/// Ticks in the coarse unit of waits and phases, saturating.
#[inline]
pub fn coarse(ticks: u64) -> u32 {
    u32::try_from(ticks >> COARSE_BITS).unwrap_or(u32::MAX)
}

/// Ticks of a coarse number.
#[inline]
pub fn fine(coarse: u32) -> u64 {
    u64::from(coarse) << COARSE_BITS
}

impl TraceRecord {
    /// A record of this body with nothing else set.
    pub fn new(t0: u64, event: EventId, body: Body) -> TraceRecord {
        TraceRecord { t0, req: 0, event, lane: 0, flags: 0, res: 0, class: 0, body }
    }

    /// The kind of the body.
    pub fn kind(&self) -> EventKind {
        match self.body {
            Body::Span(_) => EventKind::Span,
            Body::StagedSpan(_) => EventKind::StagedSpan,
            Body::Counter(_) => EventKind::Counter,
            Body::Mark { .. } => EventKind::Mark,
            Body::Sync(_) => EventKind::Sync,
            Body::Lost { .. } => EventKind::Lost,
            Body::Text(_) => EventKind::Text,
        }
    }

    /// Ticks from the beginning to the end; 0 for points.
    pub fn duration(&self) -> u64 {
        match &self.body {
            Body::Span(span) => span.dur,
            Body::StagedSpan(staged_span) => staged_span.phases.iter().map(|phase| fine(*phase)).sum(),
            _ => 0,
        }
    }

    /// The words of the record. The bits of the kind in [`TraceRecord::flags`] follow from the
    /// body.
    #[inline]
    pub fn to_words(&self) -> Words {
        let flags = (self.flags & !flags::KIND) | self.kind() as u16;
        let mut words = [0; RECORD_WORDS];
        words[0] = self.t0;
        words[1] = self.req;
        words[2] = head_word(self.event, self.lane, flags, self.res, self.class);
        match &self.body {
            Body::Span(span) => words[3..].copy_from_slice(&span.words()),
            Body::StagedSpan(staged_span) => words[3..].copy_from_slice(&staged_span.words()),
            Body::Counter(gauges) => words[3..].copy_from_slice(gauges),
            Body::Mark { value, label } => {
                words[3] = *value;
                text_words(label, &mut words[4..]);
            }
            Body::Sync(sync) => {
                words[3..].copy_from_slice(&[sync.mono_ns, sync.wall_ns as u64, sync.offset_ns as u64, sync.rtt_ns, sync.error_ns]);
            }
            Body::Lost { count, total } => words[3..5].copy_from_slice(&[*count, *total]),
            Body::Text(text) => text_words(text, &mut words[3..]),
        }
        words
    }

    /// The record of these words; `None` if their kind does not exist.
    pub fn from_words(words: &Words) -> Option<TraceRecord> {
        let head = words[2];
        let flags = (head >> 32) as u16;
        let body = match EventKind::from_number((flags & flags::KIND) as u8)? {
            EventKind::Span => Body::Span(Span::of(words)),
            EventKind::StagedSpan => Body::StagedSpan(StagedSpan::of(words)),
            EventKind::Counter => Body::Counter([words[3], words[4], words[5], words[6], words[7]]),
            EventKind::Mark => Body::Mark { value: words[3], label: text_of(&words[4..]) },
            EventKind::Sync => Body::Sync(Sync {
                mono_ns: words[3],
                wall_ns: words[4] as i64,
                offset_ns: words[5] as i64,
                rtt_ns: words[6],
                error_ns: words[7],
            }),
            EventKind::Lost => Body::Lost { count: words[3], total: words[4] },
            EventKind::Text => Body::Text(text_of(&words[3..])),
        };
        Some(TraceRecord {
            t0: words[0],
            req: words[1],
            event: EventId(head as u16),
            lane: (head >> 16) as u16,
            flags: flags & !flags::KIND,
            res: (head >> 48) as u8,
            class: (head >> 56) as u8,
            body,
        })
    }

    /// The bytes of the record.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        words_to_bytes(&self.to_words())
    }

    /// The label of a mark, or a piece of a name, without the zeros at its end.
    pub fn text(&self) -> String {
        let bytes: &[u8] = match &self.body {
            Body::Mark { label, .. } => label,
            Body::Text(text) => text,
            _ => return String::new(),
        };
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// Phases under construction, as they lie in a record: two in a word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Phases(pub(crate) [u64; PHASES_MAX / 2]);

impl Phases {
    /// Adds to a phase, saturating.
    #[inline]
    pub(crate) fn add(&mut self, phase: usize, more: u32) {
        let (word, shift) = (&mut self.0[phase / 2], 32 * (phase % 2));
        let sum = ((*word >> shift) as u32).saturating_add(more);
        *word = *word & !(u64::from(u32::MAX) << shift) | u64::from(sum) << shift;
    }
}

/// Word 3 of a staged span.
#[inline]
pub(crate) fn staged_span_word(span: u32, code: u16, peer: u16) -> u64 {
    u64::from(span) | u64::from(code) << 32 | u64::from(peer) << 48
}

/// Word 2 of a record.
#[inline]
pub(crate) fn head_word(event: EventId, lane: u16, flags: u16, res: u8, class: u8) -> u64 {
    u64::from(event.0) | u64::from(lane) << 16 | u64::from(flags) << 32 | u64::from(res) << 48 | u64::from(class) << 56
}

impl Span {
    #[inline]
    pub(crate) fn words(&self) -> [u64; 5] {
        [
            self.dur.min(DURATION_MAX) | u64::from(self.peer) << 48,
            self.obj,
            self.off,
            u64::from(self.len) | u64::from(self.span) << 32,
            u64::from(self.parent) | u64::from(self.wait) << 32,
        ]
    }

    fn of(words: &Words) -> Span {
        Span {
            dur: words[3] & DURATION_MAX,
            peer: (words[3] >> 48) as u16,
            obj: words[4],
            off: words[5],
            len: words[6] as u32,
            span: (words[6] >> 32) as u32,
            parent: words[7] as u32,
            wait: (words[7] >> 32) as u32,
        }
    }
}

impl StagedSpan {
    #[inline]
    pub(crate) fn words(&self) -> [u64; 5] {
        let pair = |first: usize| u64::from(self.phases[first]) | u64::from(self.phases[first + 1]) << 32;
        [staged_span_word(self.span, self.code, self.peer), pair(0), pair(2), pair(4), pair(6)]
    }

    fn of(words: &Words) -> StagedSpan {
        let phases = std::array::from_fn(|phase| (words[4 + phase / 2] >> (32 * (phase % 2))) as u32);
        StagedSpan { span: words[3] as u32, code: (words[3] >> 32) as u16, peer: (words[3] >> 48) as u16, phases }
    }
}

/// Ticks from the beginning to the end of a record of this kind, as [`TraceRecord::duration`],
/// without decoding the rest.
#[inline]
pub(crate) fn duration_of(kind: EventKind, words: &Words) -> u64 {
    match kind {
        EventKind::Span => words[3] & DURATION_MAX,
        EventKind::StagedSpan => words[4..].iter().map(|pair| fine(*pair as u32) + fine((*pair >> 32) as u32)).sum(),
        _ => 0,
    }
}

/// The bytes of a record in a file.
pub fn words_to_bytes(words: &Words) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The words of a record in a file.
pub fn bytes_to_words(bytes: &[u8; RECORD_BYTES]) -> Words {
    std::array::from_fn(|word| u64::from_le_bytes(bytes[8 * word..8 * word + 8].try_into().expect("8 bytes")))
}

/// `text`, cut to `N` bytes between two characters and filled up with zeros.
pub fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut end = text.len().min(N);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut bytes = [0; N];
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

fn text_words(text: &[u8], words: &mut [u64]) {
    for (word, chunk) in words.iter_mut().zip(text.chunks_exact(8)) {
        *word = u64::from_le_bytes(chunk.try_into().expect("8 bytes"));
    }
}

fn text_of<const N: usize>(words: &[u64]) -> [u8; N] {
    std::array::from_fn(|byte| words[byte / 8].to_le_bytes()[byte % 8])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event;

    fn bytes_of(record: &TraceRecord, offset: usize, len: usize) -> u64 {
        record.to_bytes()[offset..offset + len].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// The table of docs/trace.md, field by field.
    #[test]
    fn every_field_lies_where_the_document_says() {
        let span = Span { dur: 0x1A1B, peer: 0x2A2B, obj: 0x3A, off: 0x4A, len: 0x5A, span: 0x6A, parent: 0x7A, wait: 0x8A };
        let record = TraceRecord {
            t0: 0x11,
            req: 0x22,
            event: EventId(0x3344),
            lane: 0x55,
            flags: flags::ERROR | flags::SERVER,
            res: 0x77,
            class: 2,
            body: Body::Span(span),
        };
        let common = [("t0", 0, 8, 0x11), ("req", 8, 8, 0x22), ("event", 16, 2, 0x3344), ("lane", 18, 2, 0x55)];
        let rest = [("flags", 20, 2, 0b10_1000), ("res", 22, 1, 0x77), ("class", 23, 1, 2)];
        let body = [("dur", 24, 6, 0x1A1B), ("peer", 30, 2, 0x2A2B), ("obj", 32, 8, 0x3A), ("off", 40, 8, 0x4A), ("len", 48, 4, 0x5A)];
        let last = [("span", 52, 4, 0x6A), ("parent", 56, 4, 0x7A), ("wait", 60, 4, 0x8A)];
        for (name, offset, len, value) in common.into_iter().chain(rest).chain(body).chain(last) {
            assert_eq!(bytes_of(&record, offset, len), value, "{name}");
        }

        let staged_span = StagedSpan { span: 0xA1, code: 0xA2, peer: 0xA3, phases: [1, 2, 3, 4, 5, 6, 7, 8] };
        let record = TraceRecord::new(1, event::META_CREATE, Body::StagedSpan(staged_span));
        let fields = [("kind", 20, 2, 1), ("span", 24, 4, 0xA1), ("code", 28, 2, 0xA2), ("peer", 30, 2, 0xA3)];
        for (name, offset, len, value) in fields {
            assert_eq!(bytes_of(&record, offset, len), value, "{name}");
        }
        for phase in 0..PHASES_MAX {
            assert_eq!(bytes_of(&record, 32 + 4 * phase, 4), phase as u64 + 1, "phase {phase}");
        }

        let sync = Sync { mono_ns: 1, wall_ns: -2, offset_ns: -3, rtt_ns: 4, error_ns: 5 };
        let record = TraceRecord::new(1, event::TRACE_SYNC, Body::Sync(sync));
        let fields = [("mono_ns", 24, 1), ("wall_ns", 32, -2i64 as u64), ("offset_ns", 40, -3i64 as u64), ("rtt_ns", 48, 4)];
        for (name, offset, value) in fields.into_iter().chain([("error_ns", 56, 5)]) {
            assert_eq!(bytes_of(&record, offset, 8), value, "{name}");
        }
        let record = TraceRecord::new(1, event::MARK_PHASE, Body::Mark { value: 9, label: padded("ab") });
        assert_eq!((bytes_of(&record, 24, 8), bytes_of(&record, 32, 8)), (9, 0x6261));
        let record = TraceRecord::new(1, event::TRACE_LOST, Body::Lost { count: 7, total: 8 });
        assert_eq!((bytes_of(&record, 24, 8), bytes_of(&record, 32, 8)), (7, 8));
    }

    #[test]
    fn labels_are_cut_between_characters() {
        let record = TraceRecord::new(0, event::TRACE_NAME, Body::Text(padded(&format!("{}é", "x".repeat(39)))));
        assert_eq!(record.text(), "x".repeat(39));
        assert_eq!(TraceRecord::new(0, event::MARK_PHASE, Body::Mark { value: 0, label: padded("read") }).text(), "read");
    }

    #[test]
    fn coarse_times_saturate() {
        assert_eq!((coarse(15), coarse(16), coarse(u64::MAX)), (0, 1, u32::MAX));
        assert_eq!(fine(coarse(1 << 35)), 1 << 35);
    }

    proptest! {
        #[test]
        fn words_of_a_known_kind_survive(mut words in any::<Words>()) {
            let kind = (words[2] >> 32) & 7;
            // Bits that a kind does not use are not kept.
            if kind == 5 {
                words[5..].fill(0);
            }
            match TraceRecord::from_words(&words) {
                Some(record) => prop_assert_eq!(record.to_words(), words),
                None => prop_assert_eq!(kind, 7),
            }
            prop_assert_eq!(bytes_to_words(&words_to_bytes(&words)), words);
        }
    }
}
