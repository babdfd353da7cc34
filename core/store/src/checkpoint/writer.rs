//! Writing a checkpoint.

use super::{CHECKPOINT_VERSION, CHUNK_BYTES, CHUNK_HEADER_BYTES, CHUNK_MAGIC, CheckpointHeader, MAGIC, TRAILER_MAGIC};
use crate::{Lsn, RECORD_BYTES_MAX};
use bytes::{BufMut, Bytes, BytesMut};

/// Turns records into the bytes of a checkpoint, in order, a chunk at a time.
#[derive(Debug)]
pub struct CheckpointWriter {
    header: CheckpointHeader,
    chunk_bytes: usize,
    buf: BytesMut,
    /// Where the open chunk begins in `buf`.
    chunk_start: usize,
    records_in_chunk: u32,
    chunk_count: u64,
    record_count: u64,
    total_crc: u32,
}

impl CheckpointWriter {
    /// A new checkpoint with chunks of the usual size.
    pub fn new(header: CheckpointHeader) -> CheckpointWriter {
        CheckpointWriter::with_chunk_bytes(header, CHUNK_BYTES)
    }

    /// A new checkpoint whose chunks are closed at `chunk_bytes` (at most [`CHUNK_BYTES`]).
    pub fn with_chunk_bytes(header: CheckpointHeader, chunk_bytes: usize) -> CheckpointWriter {
        let mut buf = BytesMut::new();
        encode_header(&mut buf, &header);
        let chunk_start = buf.len();
        let chunk_bytes = chunk_bytes.clamp(1, CHUNK_BYTES);
        CheckpointWriter { header, chunk_bytes, buf, chunk_start, records_in_chunk: 0, chunk_count: 0, record_count: 0, total_crc: 0 }
    }

    /// Appends a record of at most [`RECORD_BYTES_MAX`] bytes (panics above). Returns bytes to
    /// append to the file when a chunk is full.
    pub fn push(&mut self, record: &[u8]) -> Option<Bytes> {
        assert!(record.len() <= RECORD_BYTES_MAX, "a checkpoint record of {} bytes is larger than the format allows", record.len());
        if self.records_in_chunk == 0 {
            self.chunk_start = self.buf.len();
            self.buf.put_bytes(0, CHUNK_HEADER_BYTES);
        }
        self.buf.put_u32_le(record.len() as u32);
        self.buf.put_slice(record);
        self.records_in_chunk += 1;
        self.record_count += 1;
        if self.buf.len() - self.chunk_start - CHUNK_HEADER_BYTES < self.chunk_bytes {
            return None;
        }
        self.close_chunk();
        Some(self.take())
    }

    /// Ends the checkpoint: the last bytes to append. `end_lsn` is the newest record of the journal
    /// whose effects the records can hold.
    pub fn finish(mut self, end_lsn: Lsn) -> Bytes {
        if self.records_in_chunk > 0 {
            self.close_chunk();
        }
        let mut fields = BytesMut::new();
        fields.put_u64_le(self.chunk_count);
        fields.put_u64_le(self.record_count);
        fields.put_u64_le(end_lsn.0);
        fields.put_u64_le(self.header.generation);
        fields.put_u32_le(weft_base::crc32c_append(self.total_crc, &self.buf));
        fields.put_u32_le(0);
        self.buf.put_u32_le(TRAILER_MAGIC);
        self.buf.put_u32_le(weft_base::crc32c(&fields));
        self.buf.put_slice(&fields);
        self.buf.freeze()
    }

    fn close_chunk(&mut self) {
        let (sequence, count) = (self.chunk_count, self.records_in_chunk);
        let chunk = &mut self.buf[self.chunk_start..];
        let payload_bytes = (chunk.len() - CHUNK_HEADER_BYTES) as u32;
        let mut fields = &mut chunk[8..CHUNK_HEADER_BYTES];
        fields.put_u64_le(sequence);
        fields.put_u32_le(count);
        fields.put_u32_le(payload_bytes);
        let crc = weft_base::crc32c(&chunk[8..]);
        chunk[..4].copy_from_slice(&CHUNK_MAGIC.to_le_bytes());
        chunk[4..8].copy_from_slice(&crc.to_le_bytes());
        self.chunk_count += 1;
        self.records_in_chunk = 0;
    }

    fn take(&mut self) -> Bytes {
        let bytes = self.buf.split().freeze();
        self.total_crc = weft_base::crc32c_append(self.total_crc, &bytes);
        bytes
    }
}

fn encode_header(out: &mut BytesMut, header: &CheckpointHeader) {
    let mut fields = BytesMut::new();
    fields.put_u64_le(header.fs_id.0);
    fields.put_u64_le(header.generation);
    fields.put_u64_le(header.start_lsn.0);
    fields.put_u16_le(header.server_id.0);
    fields.put_bytes(0, 6);
    out.put_slice(MAGIC);
    out.put_u32_le(CHECKPOINT_VERSION);
    let crc = weft_base::crc32c(&fields);
    out.put_u32_le(crc);
    out.put_slice(&fields);
}
