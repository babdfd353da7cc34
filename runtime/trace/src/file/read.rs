//! Reading a trace file as far as it is sound, and saying what is missing.

use std::collections::BTreeMap;
use std::fmt;

use weft_base::crc32c;

use super::{BLOCK_MAGIC, BLOCK_RECORDS_MAX, FILE_MAGIC, FileHeader, HEADER_BYTES_MAX, PREAMBLE, RING_END, UNIT, VERSION};
use crate::record::{Body, Record, bytes_to_words};
use crate::{Anchor, TickScale};

/// Why a file cannot be opened at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// It does not begin as a trace file does.
    NotATrace,
    /// A version that this program does not know.
    Version(u16),
    /// The header is damaged or cut: nothing says what the records mean.
    Header,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::NotATrace => f.write_str("this is not a trace file of Weft"),
            ReadError::Version(version) => write!(f, "the file has version {version} of the trace format, this program reads {VERSION}"),
            ReadError::Header => f.write_str("the header of the trace file is damaged or cut off, so that its records cannot be read"),
        }
    }
}
impl std::error::Error for ReadError {}

/// Something that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The file ends without its last block: it is still being written, or was cut.
    NoEnd,
    /// These bytes are neither a block nor part of one.
    Damaged {
        /// The first of them.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// A sound block holds a record of an unknown kind.
    UnknownKind {
        /// The ring.
        ring: u32,
        /// The number of the record.
        number: u64,
    },
    /// Records between two blocks of one ring are neither there nor reported as lost.
    Gap {
        /// The ring.
        ring: u32,
        /// The first missing record.
        first: u64,
        /// How many.
        records: u64,
    },
    /// Records that were lost while the program ran: rings were full, or overwritten before they were fetched.
    Lost {
        /// The ring.
        ring: u32,
        /// How many.
        records: u64,
    },
    /// The last block says that there were more records.
    Missing {
        /// How many.
        records: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::NoEnd => f.write_str("the file has no end: it was cut, or is still being written"),
            Problem::Damaged { offset, bytes } => write!(f, "{bytes} bytes from offset {offset} on are damaged"),
            Problem::UnknownKind { ring, number } => {
                write!(f, "record {number} of ring {ring} is of a kind that this program does not know")
            }
            Problem::Gap { ring, first, records } => write!(f, "{records} records of ring {ring} are missing from number {first} on"),
            Problem::Lost { ring, records } => write!(f, "{records} records of ring {ring} were lost while recording"),
            Problem::Missing { records } => write!(f, "{records} records that were written to the file are not there"),
        }
    }
}

/// A record and where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The ring: the thread.
    pub ring: u32,
    /// Its number in the ring.
    pub number: u64,
    /// What it says.
    pub record: Record,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFile {
    /// What the file says about itself.
    pub header: FileHeader,
    /// The records, in the order of the file.
    pub records: Vec<Recorded>,
    /// What is not there; empty if the file is whole and nothing was lost.
    pub problems: Vec<Problem>,
    /// From ticks to the nanoseconds of the node's monotonic clock.
    pub scale: TickScale,
}

impl TraceFile {
    /// Reads the bytes of a file as far as they are sound.
    ///
    /// # Errors
    /// [`ReadError`] if not even the header can be read.
    pub fn read(bytes: &[u8]) -> Result<TraceFile, ReadError> {
        let (header, start) = read_header(bytes)?;
        let mut reader = Reader { bytes, at: start, ..Reader::default() };
        reader.blocks();
        let Reader { records, problems, .. } = reader;
        let anchors = records.iter().filter_map(|recorded| match &recorded.record.body {
            Body::Sync(sync) => Some(Anchor { ticks: recorded.record.t0, mono_ns: sync.mono_ns, wall_ns: sync.wall_ns }),
            _ => None,
        });
        let scale = TickScale::new(std::iter::once(header.anchor).filter(|anchor| *anchor != Anchor::default()).chain(anchors));
        Ok(TraceFile { header, records, problems, scale })
    }

    /// Records that were lost while the program ran, all rings together.
    pub fn lost(&self) -> u64 {
        self.problems.iter().map(|problem| if let Problem::Lost { records, .. } = problem { *records } else { 0 }).sum()
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// The header and the offset of the first block.
fn read_header(bytes: &[u8]) -> Result<(FileHeader, usize), ReadError> {
    if !bytes.starts_with(&FILE_MAGIC) {
        return Err(if FILE_MAGIC.starts_with(bytes) && !bytes.is_empty() { ReadError::Header } else { ReadError::NotATrace });
    }
    let preamble = bytes.get(..PREAMBLE).ok_or(ReadError::Header)?;
    if crc32c(&preamble[..20]) != u32_at(preamble, 20) {
        return Err(ReadError::Header);
    }
    let version = u16::from_le_bytes([preamble[8], preamble[9]]);
    if version != VERSION {
        return Err(ReadError::Version(version));
    }
    let len = u32_at(preamble, 12);
    if len > HEADER_BYTES_MAX {
        return Err(ReadError::Header);
    }
    let end = PREAMBLE + len as usize;
    let body = bytes.get(PREAMBLE..end).ok_or(ReadError::Header)?;
    if crc32c(body) != u32_at(preamble, 16) {
        return Err(ReadError::Header);
    }
    Ok((FileHeader::decode(body).ok_or(ReadError::Header)?, end.next_multiple_of(UNIT)))
}

#[derive(Default)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    records: Vec<Recorded>,
    problems: Vec<Problem>,
    /// By ring: the number that comes next, and the losses that are reported but not yet used to explain a gap.
    rings: BTreeMap<u32, Ring>,
    /// Records in sound blocks.
    sound: u64,
}

#[derive(Default)]
struct Ring {
    next: u64,
    missing: u64,
    lost: u64,
    /// Of these, records that had a number.
    overwritten: u64,
    first_gap: Option<u64>,
}

/// A sound block.
struct Block<'a> {
    ring: u32,
    first: u64,
    body: &'a [u8],
}

impl<'a> Reader<'a> {
    fn blocks(&mut self) {
        let mut damage: Option<usize> = None;
        let mut end = None;
        while self.at < self.bytes.len() && end.is_none() {
            let Some(block) = self.block() else {
                damage.get_or_insert(self.at);
                self.at += UNIT;
                continue;
            };
            self.close_damage(&mut damage, self.at);
            self.at += UNIT + block.body.len();
            match block.ring {
                RING_END => end = Some(u64_at(block.body, 0)),
                _ => self.take(&block),
            }
        }
        if end.is_some() && self.at < self.bytes.len() {
            damage = Some(self.at);
        }
        self.close_damage(&mut damage, self.bytes.len());
        match end {
            None => self.problems.push(Problem::NoEnd),
            Some(records) if records > self.sound => self.problems.push(Problem::Missing { records: records - self.sound }),
            Some(_) => {}
        }
        for (number, ring) in &self.rings {
            if ring.missing > ring.overwritten {
                let first = ring.first_gap.unwrap_or(0);
                self.problems.push(Problem::Gap { ring: *number, first, records: ring.missing - ring.overwritten });
            }
            if ring.lost > 0 {
                self.problems.push(Problem::Lost { ring: *number, records: ring.lost });
            }
        }
    }

    fn close_damage(&mut self, damage: &mut Option<usize>, end: usize) {
        if let Some(begin) = damage.take() {
            self.problems.push(Problem::Damaged { offset: begin as u64, bytes: (end - begin) as u64 });
        }
    }

    /// The sound block at the current place.
    fn block(&self) -> Option<Block<'a>> {
        let rest = &self.bytes[self.at..];
        let head = rest.get(..UNIT)?;
        let is_head = head.starts_with(&BLOCK_MAGIC) && crc32c(&head[..60]) == u32_at(head, 60);
        let records = u32_at(head, 16);
        if !is_head || records == 0 || records > BLOCK_RECORDS_MAX {
            return None;
        }
        let body = rest.get(UNIT..UNIT + records as usize * UNIT)?;
        (crc32c(body) == u32_at(head, 24)).then_some(Block { ring: u32_at(head, 4), first: u64_at(head, 8), body })
    }

    fn take(&mut self, block: &Block<'_>) {
        let (units, _) = block.body.as_chunks::<UNIT>();
        let ring = self.rings.entry(block.ring).or_default();
        if block.first > ring.next {
            ring.missing += block.first - ring.next;
            ring.first_gap.get_or_insert(ring.next);
        }
        let mut number = block.first;
        for unit in units {
            self.sound += 1;
            let Some(record) = Record::from_words(&bytes_to_words(unit)) else {
                self.problems.push(Problem::UnknownKind { ring: block.ring, number });
                number += 1;
                continue;
            };
            // A report of losses was made when the ring was fetched and has no number of its own.
            let counts = match &record.body {
                Body::Lost { count, .. } => {
                    ring.lost += count;
                    ring.overwritten += if record.class == 1 { *count } else { 0 };
                    0
                }
                _ => 1,
            };
            self.records.push(Recorded { ring: block.ring, number, record });
            number += counts;
        }
        ring.next = ring.next.max(number);
    }
}
