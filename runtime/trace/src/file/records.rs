//! The records of one file as they lie in it: the bytes of the file, where its sound blocks are,
//! and of each record what is asked of all of them. The rest is decoded when somebody asks.

use super::UNIT;
use super::read::Recorded;
use crate::event::{EventId, EventKind};
use crate::record::{TraceRecord, Words, bytes_to_words, duration_of};

/// The records of one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceRecords {
    /// The file.
    bytes: Vec<u8>,
    /// Sound blocks, by place.
    blocks: Vec<Block>,
    /// Of each record its times in ticks, in the order of the file.
    briefs: Vec<Brief>,
    /// The sorts of records that [`Brief::sort`] counts.
    sorts: Vec<Sort>,
    known: SortMap,
}

type SortMap = weft_base::FastMap<(u16, u8, u8), u32>;

/// What many records have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// What happened.
    pub event: EventId,
    /// The kind of the record.
    pub kind: EventKind,
    /// See [`crate::record::class`].
    pub class: u8,
}

/// When a record begins and how long it takes. On the way from a file to a time line its ticks
/// become nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Brief {
    /// The beginning.
    pub start: i64,
    /// From the beginning to the end.
    pub dur: u64,
    /// Where the record is: multiples of its size from the beginning of the file.
    pub unit: u32,
    /// Number of its [`Sort`].
    pub sort: u32,
}

/// Records of one ring that were written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    /// Place of the first record, as [`Brief::unit`].
    unit: u32,
    /// The ring.
    ring: u32,
    /// The number of the first record in the ring.
    first: u64,
}

impl TraceRecords {
    /// Makes room for a file of so many bytes.
    pub(super) fn expect(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes);
        self.briefs.reserve(bytes / UNIT);
    }

    /// Bytes of a file whose blocks are still to be found.
    pub(super) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A sound block begins whose first record is at this unit.
    pub(super) fn begin_block(&mut self, unit: u32, ring: u32, first: u64) {
        self.blocks.push(Block { unit, ring, first });
    }

    /// Takes the record of a sound block at this unit; `None` if its kind does not exist.
    pub(super) fn take(&mut self, unit: u32) -> Option<EventKind> {
        let words = words_at(&self.bytes, unit);
        let (event, kind, class) = (words[2] as u16, (words[2] >> 32) as u8 & 7, (words[2] >> 56) as u8);
        let same = self.briefs.last().map(|brief| brief.sort).filter(|sort| {
            let sort = &self.sorts[*sort as usize];
            (sort.event.0, sort.kind as u8, sort.class) == (event, kind, class)
        });
        let sort = match same.or_else(|| self.known.get(&(event, kind, class)).copied()) {
            Some(sort) => sort,
            None => {
                let number = self.sorts.len() as u32;
                self.sorts.push(Sort { event: EventId(event), kind: EventKind::from_number(kind)?, class });
                self.known.insert((event, kind, class), number);
                number
            }
        };
        let kind = self.sorts[sort as usize].kind;
        self.briefs.push(Brief { start: words[0] as i64, dur: duration_of(kind, &words), unit, sort });
        Some(kind)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.briefs.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.briefs.is_empty()
    }

    /// The sorts of records that there are; [`Brief::sort`] is a position here.
    pub(crate) fn sorts(&self) -> &[Sort] {
        &self.sorts
    }

    /// Takes the times out, to be put on a time line.
    pub(crate) fn take_briefs(&mut self) -> Vec<Brief> {
        std::mem::take(&mut self.briefs)
    }

    /// The words of the record at a unit that a [`Brief`] names.
    #[inline]
    pub(crate) fn words(&self, unit: u32) -> Words {
        words_at(&self.bytes, unit)
    }

    /// The record at a unit that a [`Brief`] names.
    #[inline]
    pub(crate) fn record(&self, unit: u32) -> TraceRecord {
        TraceRecord::from_words(&self.words(unit)).expect("its kind was known when it was taken")
    }

    /// The ring of the record at a unit.
    pub(crate) fn ring(&self, unit: u32) -> u32 {
        self.block(unit).ring
    }

    fn block(&self, unit: u32) -> &Block {
        let after = self.blocks.partition_point(|block| block.unit <= unit);
        &self.blocks[after.checked_sub(1).expect("every record is in a block")]
    }

    /// The records with their places, in the order of the file; all of them are decoded at once.
    pub fn iter(&self) -> std::vec::IntoIter<Recorded> {
        let (mut number, mut next, mut block) = (0, 0, None);
        let place = |brief: &Brief| {
            let own = self.block(brief.unit);
            if block != Some(own.unit) {
                (number, next, block) = (own.first, brief.unit, Some(own.unit));
                number = number.saturating_add(u64::from(brief.unit - own.unit));
            }
            // What lies between them are records of unknown kinds.
            number = number.saturating_add(u64::from(brief.unit - next));
            let recorded = Recorded { ring: own.ring, number, record: self.record(brief.unit) };
            next = brief.unit + 1;
            // A report of losses has no number of its own.
            number = number.saturating_add(u64::from(recorded.record.kind() != EventKind::Lost));
            recorded
        };
        self.briefs.iter().map(place).collect::<Vec<_>>().into_iter()
    }
}

impl IntoIterator for &TraceRecords {
    type Item = Recorded;
    type IntoIter = std::vec::IntoIter<Recorded>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for TraceRecords {
    type Item = Recorded;
    type IntoIter = std::vec::IntoIter<Recorded>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Records as they would lie in a file.
impl FromIterator<Recorded> for TraceRecords {
    fn from_iter<I: IntoIterator<Item = Recorded>>(recorded: I) -> TraceRecords {
        let mut records = TraceRecords::default();
        for Recorded { ring, number, record } in recorded {
            let unit = (records.bytes.len() / UNIT) as u32;
            records.bytes.extend(record.to_bytes());
            records.begin_block(unit, ring, number);
            records.take(unit).expect("a record has a known kind");
        }
        records
    }
}

#[inline]
fn words_at(bytes: &[u8], unit: u32) -> Words {
    let at = unit as usize * UNIT;
    bytes_to_words(bytes[at..at + UNIT].try_into().expect("a unit"))
}
