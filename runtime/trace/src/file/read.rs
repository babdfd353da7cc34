//! Reading a trace file as far as it is sound, and saying what is missing.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;

use weft_base::crc32c;

use super::records::TraceRecords;
use super::{BLOCK_MAGIC, BLOCK_RECORDS_MAX, FILE_MAGIC, FileHeader, HEADER_BYTES_MAX, PREAMBLE, RING_END, UNIT, VERSION};
use crate::event::EventKind;
use crate::record::TraceRecord;
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
    /// What the system said when the file was read.
    System(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::NotATrace => f.write_str("this is not a trace file of Weft"),
            ReadError::Version(version) => write!(f, "the file has version {version} of the trace format, this program reads {VERSION}"),
            ReadError::System(reason) => write!(f, "the file cannot be read: {reason}"),
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
    /// Records that were lost while the program ran: rings were full, or overwritten before they
    /// were fetched.
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
    pub record: TraceRecord,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFile {
    /// What the file says about itself.
    pub header: FileHeader,
    /// The records, in the order of the file.
    pub records: TraceRecords,
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
        TraceFile::read_from(bytes, bytes.len(), |_| {})
    }

    /// Reads a file as far as it is sound; `progress` is told how many bytes have been read. Each
    /// piece is looked at while it is still in the processor's cache.
    ///
    /// # Errors
    /// [`ReadError`] if not even the header can be read.
    pub fn read_from(input: impl Read, bytes_expected: usize, progress: impl FnMut(usize)) -> Result<TraceFile, ReadError> {
        TraceFile::read_by_pieces(input, bytes_expected, PIECE, progress)
    }

    pub(super) fn read_by_pieces(
        mut input: impl Read,
        bytes_expected: usize,
        piece: u64,
        mut progress: impl FnMut(usize),
    ) -> Result<TraceFile, ReadError> {
        let mut reader = Reader::default();
        reader.records.expect(bytes_expected);
        loop {
            let bytes = reader.records.bytes_mut();
            let read = input.by_ref().take(piece).read_to_end(bytes).map_err(|error| ReadError::System(error.to_string()))?;
            progress(bytes.len());
            reader.advance(read == 0)?;
            if read == 0 {
                return reader.end();
            }
        }
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
struct Reader {
    header: Option<FileHeader>,
    /// What has been read, and the records that were found in it.
    records: TraceRecords,
    /// Up to here it has been looked at.
    at: usize,
    /// Where bytes begin that are no block.
    damage: Option<usize>,
    /// What the last block says: how many records there were.
    end: Option<u64>,
    problems: Vec<Problem>,
    /// By ring: the number that comes next, and the losses that are reported but not yet used to
    /// explain a gap.
    rings: BTreeMap<u32, Ring>,
    /// Records in sound blocks.
    sound: u64,
    anchors: Vec<Anchor>,
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

/// A sound block: its records lie behind `at`.
struct Block {
    ring: u32,
    first: u64,
    at: usize,
    records: u32,
}

/// What lies at a place.
enum Found {
    Block(Block),
    Damage,
    /// The rest has not been read yet.
    Part,
}

impl Reader {
    /// Looks at what has been read since; `is_all`: there is no more.
    fn advance(&mut self, is_all: bool) -> Result<(), ReadError> {
        if self.header.is_none() {
            match read_header(self.records.bytes()) {
                Ok((header, start)) => (self.header, self.at) = (Some(header), start),
                Err(ReadError::Header) if !is_all && self.records.bytes().len() < PREAMBLE + HEADER_BYTES_MAX as usize => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        while self.at < self.records.bytes().len() && self.end.is_none() {
            match self.found(is_all) {
                Found::Part => break,
                Found::Damage => {
                    self.damage.get_or_insert(self.at);
                    self.at += UNIT;
                }
                Found::Block(block) => {
                    self.close_damage(self.at);
                    self.at = block.at + block.records as usize * UNIT;
                    match block.ring {
                        RING_END => self.end = Some(u64_at(self.records.bytes(), block.at)),
                        _ => self.take(&block)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// What was read, when there is no more.
    fn end(mut self) -> Result<TraceFile, ReadError> {
        let header = self.header.take().ok_or(ReadError::Header)?;
        let length = self.records.bytes().len();
        if self.end.is_some() && self.at < length {
            self.damage = Some(self.at);
        }
        self.close_damage(length);
        match self.end {
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
        let first = std::iter::once(header.anchor).filter(|anchor| *anchor != Anchor::default());
        let scale = TickScale::new(first.chain(self.anchors));
        Ok(TraceFile { header, records: self.records, problems: self.problems, scale })
    }

    fn close_damage(&mut self, end: usize) {
        if let Some(begin) = self.damage.take() {
            self.problems.push(Problem::Damaged { offset: begin as u64, bytes: (end - begin) as u64 });
        }
    }

    /// What lies at the current place.
    fn found(&self, is_all: bool) -> Found {
        let rest = &self.records.bytes()[self.at..];
        let missing = if is_all { Found::Damage } else { Found::Part };
        let Some(head) = rest.get(..UNIT) else { return missing };
        let is_head = head.starts_with(&BLOCK_MAGIC) && crc32c(&head[..60]) == u32_at(head, 60);
        let records = u32_at(head, 16);
        if !is_head || records == 0 || records > BLOCK_RECORDS_MAX {
            return Found::Damage;
        }
        let Some(body) = rest.get(UNIT..UNIT + records as usize * UNIT) else { return missing };
        match crc32c(body) == u32_at(head, 24) {
            true => Found::Block(Block { ring: u32_at(head, 4), first: u64_at(head, 8), at: self.at + UNIT, records }),
            false => Found::Damage,
        }
    }

    fn take(&mut self, block: &Block) -> Result<(), ReadError> {
        let unit = |number: u32| u32::try_from(block.at / UNIT).ok()?.checked_add(number);
        let too_large = || ReadError::System("it is larger than 256 GiB".into());
        let first_unit = unit(0).filter(|_| unit(block.records).is_some()).ok_or_else(too_large)?;
        let ring = self.rings.entry(block.ring).or_default();
        if block.first > ring.next {
            ring.missing += block.first - ring.next;
            ring.first_gap.get_or_insert(ring.next);
        }
        let mut number = block.first;
        self.records.begin_block(first_unit, block.ring, block.first);
        self.sound += u64::from(block.records);
        for unit in first_unit..first_unit + block.records {
            match self.records.take(unit) {
                None => self.problems.push(Problem::UnknownKind { ring: block.ring, number }),
                Some(EventKind::Lost) => {
                    // It was made when the ring was fetched and has no number of its own.
                    let words = self.records.words(unit);
                    let (count, is_overwritten) = (words[3].min(LOST_MAX), words[2] >> 56 == 1);
                    ring.lost += count;
                    ring.overwritten += if is_overwritten { count } else { 0 };
                    continue;
                }
                Some(EventKind::Sync) => {
                    let words = self.records.words(unit);
                    self.anchors.push(Anchor { ticks: words[0], mono_ns: words[3], wall_ns: words[4] as i64 });
                }
                Some(_) => {}
            }
            number = number.saturating_add(1);
        }
        ring.next = ring.next.max(number);
        Ok(())
    }
}

/// More cannot be lost between two looks at a ring: such numbers can be added.
const LOST_MAX: u64 = 1 << 40;

/// Bytes that are read at once: they stay in the processor's second cache until they have been
/// looked at.
const PIECE: u64 = 1 << 19;
