//! Writing a trace file: bytes in, to whoever keeps them.

use std::collections::BTreeMap;

use weft_base::{crc32c, crc32c_append};

use super::{BLOCK_MAGIC, BLOCK_RECORDS_MAX, FILE_MAGIC, FileHeader, PREAMBLE, RING_END, UNIT, VERSION};
use crate::event::EventKind;
use crate::record::{TraceRecord, Words, words_to_bytes};
use crate::tracer::Batch;

/// Produces the bytes of a file piece by piece; the caller appends each piece to the file.
#[derive(Debug, Default)]
pub struct FileWriter {
    records: u64,
    blocks: u64,
}

impl FileWriter {
    /// The beginning of a file.
    pub fn begin(header: &FileHeader) -> (FileWriter, Vec<u8>) {
        let body = header.encode();
        let mut bytes = Vec::with_capacity(PREAMBLE + body.len() + UNIT);
        bytes.extend(FILE_MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(crc32c(&body).to_le_bytes());
        let crc = crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(UNIT), 0);
        (FileWriter::default(), bytes)
    }

    /// Appends the blocks of a batch to `out`.
    pub fn batch(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        let mut first = batch.first;
        for records in batch.records.chunks(BLOCK_RECORDS_MAX as usize) {
            self.block(batch.ring, first, records, out);
            first += records.len() as u64;
        }
    }

    /// A whole file of records that were not recorded here, by their rings. They are written as
    /// recorded ones are: when they were over.
    pub fn whole(header: &FileHeader, rings: BTreeMap<u32, Vec<TraceRecord>>) -> Vec<u8> {
        let (mut writer, mut bytes) = FileWriter::begin(header);
        for (ring, mut records) in rings {
            // Texts have no time, and their pieces an order.
            if records.iter().any(|record| record.kind() != EventKind::Text) {
                records.sort_by_key(|record| record.t0.saturating_add(record.duration()));
            }
            let records = records.iter().map(TraceRecord::to_words).collect();
            writer.batch(&Batch { ring, first: 0, records }, &mut bytes);
        }
        writer.end(&mut bytes);
        bytes
    }

    /// Appends the last block. A file without it was cut.
    pub fn end(mut self, out: &mut Vec<u8>) {
        let (records, blocks) = (self.records, self.blocks);
        self.block(RING_END, 0, &[[records, blocks, 0, 0, 0, 0, 0, 0]], out);
    }

    /// | offset | bytes | field |
    /// |---|---|---|
    /// | 0 | 4 | `WTB\n` |
    /// | 4 | 4 | ring |
    /// | 8 | 8 | number of the first record in its ring |
    /// | 16 | 4 | records |
    /// | 20 | 4 | number of the block in the file, low 32 bits |
    /// | 24 | 4 | CRC32C of the records |
    /// | 28 | 32 | zero |
    /// | 60 | 4 | CRC32C of the bytes 0 to 59 |
    fn block(&mut self, ring: u32, first: u64, records: &[Words], out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend(BLOCK_MAGIC);
        out.extend(ring.to_le_bytes());
        out.extend(first.to_le_bytes());
        out.extend((records.len() as u32).to_le_bytes());
        out.extend((self.blocks as u32).to_le_bytes());
        out.resize(begin + UNIT, 0);
        let body = out.len();
        records.iter().for_each(|words| out.extend(words_to_bytes(words)));
        let crc = crc32c_append(0, &out[body..]);
        out[begin + 24..begin + 28].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32c(&out[begin..begin + 60]);
        out[begin + 60..begin + 64].copy_from_slice(&crc.to_le_bytes());
        self.records += records.len() as u64;
        self.blocks += 1;
    }
}
