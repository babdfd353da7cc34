//! Reading a checkpoint, in pieces of any size, with memory for one chunk.

use super::{
    CHECKPOINT_HEADER_BYTES, CHECKPOINT_TRAILER_BYTES, CHECKPOINT_VERSION, CHUNK_HEADER_BYTES, CHUNK_MAGIC, CHUNK_PAYLOAD_BYTES_MAX,
    CheckpointEnd, CheckpointError, CheckpointHeader, MAGIC, TRAILER_MAGIC,
};
use crate::Lsn;
use crate::codec::{Reader, take_record};
use bytes::{Buf, Bytes, BytesMut};
use weft_base::{ExtensionError, Extensions, FsId, ServerId};

/// Longest list of extensions of a header, in bytes.
const EXTENSION_BYTES_MAX: usize = 1 << 16;

/// Takes the bytes of a checkpoint and gives its chunks. What was read counts only after
/// [`Self::finish`] says so.
#[derive(Debug, Default)]
pub struct CheckpointReader {
    buf: BytesMut,
    /// Bytes that were consumed before `buf`.
    offset: u64,
    total_crc: u32,
    header: Option<CheckpointHeader>,
    chunk_count: u64,
    record_count: u64,
    end: Option<CheckpointEnd>,
}

/// Some records of a checkpoint.
#[derive(Clone, Debug)]
pub struct Chunk {
    payload: Bytes,
}

impl Chunk {
    /// The records in order.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut reader = Reader::new(&self.payload);
        std::iter::from_fn(move || take_record(&mut reader))
    }
}

impl CheckpointReader {
    /// A reader at the beginning of a stream.
    pub fn new() -> CheckpointReader {
        CheckpointReader::default()
    }

    /// The next bytes of the stream. Call [`Self::next_chunk`] until it has no more before pushing
    /// again, and memory stays small.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.end.is_none() {
            self.buf.extend_from_slice(bytes);
        }
    }

    /// Bytes of the stream that were read: where the next chunk begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The header, once its bytes were pushed and [`Self::next_chunk`] was called.
    pub fn header(&self) -> Option<&CheckpointHeader> {
        self.header.as_ref()
    }

    /// The next chunk; `None` if it needs more bytes or the trailer was reached.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, CheckpointError> {
        if self.end.is_some() {
            return Ok(None);
        }
        if self.header.is_none() {
            let Some(fixed) = self.buf.first_chunk() else { return Ok(None) };
            let header_bytes = header_bytes(fixed)?;
            let Some(bytes) = self.buf.get(..header_bytes) else { return Ok(None) };
            self.header = Some(decode_header(bytes)?);
            self.consume(header_bytes);
        }
        match Reader::new(&self.buf).u32() {
            None => Ok(None),
            Some(CHUNK_MAGIC) => self.read_chunk(),
            Some(TRAILER_MAGIC) => self.read_trailer(),
            Some(_) => Err(self.damaged()),
        }
    }

    /// Ends the reading. [`CheckpointError::Incomplete`] if the trailer did not come.
    pub fn finish(self) -> Result<CheckpointEnd, CheckpointError> {
        self.end.ok_or(CheckpointError::Incomplete)
    }

    fn read_chunk(&mut self) -> Result<Option<Chunk>, CheckpointError> {
        let damaged = self.damaged();
        let mut fields = Reader::new(&self.buf[4..]);
        let (Some(crc), Some(sequence), Some(count), Some(payload_bytes)) = (fields.u32(), fields.u64(), fields.u32(), fields.u32()) else {
            return Ok(None);
        };
        let payload_bytes = payload_bytes as usize;
        if sequence != self.chunk_count || payload_bytes > CHUNK_PAYLOAD_BYTES_MAX {
            return Err(damaged);
        }
        let Some(checked) = self.buf.get(8..CHUNK_HEADER_BYTES + payload_bytes) else { return Ok(None) };
        if weft_base::crc32c(checked) != crc {
            return Err(damaged);
        }
        let mut records = Reader::new(&checked[CHUNK_HEADER_BYTES - 8..]);
        if !((0..count).all(|_| take_record(&mut records).is_some()) && records.is_empty()) {
            return Err(damaged);
        }
        self.chunk_count += 1;
        self.record_count += u64::from(count);
        let mut bytes = self.consume(CHUNK_HEADER_BYTES + payload_bytes);
        bytes.advance(CHUNK_HEADER_BYTES);
        Ok(Some(Chunk { payload: bytes }))
    }

    fn read_trailer(&mut self) -> Result<Option<Chunk>, CheckpointError> {
        let Some(trailer) = self.buf.get(..CHECKPOINT_TRAILER_BYTES) else { return Ok(None) };
        let mut fields = Reader::new(&trailer[4..]);
        let mut parse = || {
            Some((
                fields.u32()? == weft_base::crc32c(&trailer[8..]),
                fields.u64()? == self.chunk_count,
                fields.u64()? == self.record_count,
                Lsn(fields.u64()?),
                Some(fields.u64()?) == self.header.map(|header| header.generation),
                fields.u32()? == self.total_crc,
            ))
        };
        match (parse(), self.header) {
            (Some((true, true, true, end_lsn, true, true)), Some(header)) => {
                self.end = Some(CheckpointEnd { header, end_lsn, chunk_count: self.chunk_count, record_count: self.record_count });
                self.buf.clear();
                Ok(None)
            }
            _ => Err(self.damaged()),
        }
    }

    fn consume(&mut self, len: usize) -> Bytes {
        let bytes = self.buf.split_to(len).freeze();
        self.total_crc = weft_base::crc32c_append(self.total_crc, &bytes);
        self.offset += len as u64;
        bytes
    }

    fn damaged(&self) -> CheckpointError {
        CheckpointError::Damaged { offset: self.offset }
    }
}

/// Bytes of the header with its extensions, once it is clear that it is one.
fn header_bytes(fixed: &[u8; CHECKPOINT_HEADER_BYTES]) -> Result<usize, CheckpointError> {
    let Some(rest) = fixed.strip_prefix(MAGIC) else { return Err(CheckpointError::NotACheckpoint) };
    let damaged = CheckpointError::Damaged { offset: 0 };
    match Reader::new(rest).u32().ok_or(damaged)? {
        CHECKPOINT_VERSION => {}
        // The header of version 1 had a checksum at the same place; of later ones nothing is known.
        version => return Err(CheckpointError::Version(version)),
    }
    let extension_bytes = Reader::new(&fixed[CHECKPOINT_HEADER_BYTES - 4..]).u32().ok_or(damaged)? as usize;
    if extension_bytes > EXTENSION_BYTES_MAX { Err(damaged) } else { Ok(CHECKPOINT_HEADER_BYTES + extension_bytes) }
}

fn decode_header(bytes: &[u8]) -> Result<CheckpointHeader, CheckpointError> {
    let damaged = CheckpointError::Damaged { offset: 0 };
    let mut fields = Reader::new(&bytes[12..]);
    if fields.u32() != Some(weft_base::crc32c(&bytes[16..])) {
        return Err(damaged);
    }
    let mut parse = || {
        Some(CheckpointHeader {
            fs_id: FsId(fields.u64()?),
            generation: fields.u64()?,
            start_lsn: Lsn(fields.u64()?),
            server_id: ServerId(fields.u16()?),
        })
    };
    match Extensions::filling(&bytes[CHECKPOINT_HEADER_BYTES..]).check(&[]) {
        Ok(()) => parse().ok_or(damaged),
        Err(ExtensionError::Unknown(tag)) => Err(CheckpointError::Newer(tag)),
        Err(ExtensionError::Malformed) => Err(damaged),
    }
}
