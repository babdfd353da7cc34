//! From frames to the bytes of a connection: checksums, lengths, and a queue that is flushed with
//! one system call where the socket takes all of it. Bulk data is never copied, except to be
//! encrypted.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use bytes::Bytes;
use weft_base::Status;
use weft_wire::{
    BODY_BYTES_MAX, BULK_BYTES_MAX, Cipher, ENVELOPE_BYTES_MAX, Flags, Frame, HEADER_BYTES, Header, REGION_PAGE_BYTES, crc32c,
    crc32c_append,
};

use crate::envelopes::BEHIND_BYTES;
use crate::inbound::BULK_DIRECT_BYTES;
use crate::pool::{self, PooledBuf};
use crate::region::Memory;
use crate::sys;

/// A small chunk takes no more messages beyond this size.
const CHUNK_BYTES: usize = 256 << 10;
/// Pieces given to the kernel in one call.
const PIECES_MAX: usize = 16;
/// So many bytes of envelopes are made before they are sent: the peer opens them while the next are
/// made.
pub(crate) const ENCRYPTED_BYTES: usize = 256 << 10;

/// Appends the header, with lengths and checksums filled in, and the body. The bulk data is only
/// looked at. What is encrypted has authentication tags and `has_checksums` not.
pub(crate) fn encode(out: &mut Vec<u8>, mut header: Header, body: &[u8], bulk: &[&[u8]], has_checksums: bool) {
    header.forget_region();
    header.body_bytes = body.len() as u32;
    header.bulk_bytes = bulk.iter().map(|piece| piece.len() as u32).sum();
    (header.body_crc, header.bulk_crc) = match has_checksums {
        true => (crc32c(body), bulk.iter().fold(0, |crc, piece| crc32c_append(crc, piece))),
        false => (0, 0),
    };
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(body);
}

/// Appends a whole frame that names a place of the shared region: `flag` says what for
/// ([`Flags::SHARED`] or [`Flags::ROOM`]).
pub(crate) fn encode_naming(out: &mut Vec<u8>, mut header: Header, body: &[u8], flag: Flags, page: u32, bulk_bytes: usize) {
    header.name_region(flag, page, bulk_bytes as u32);
    header.body_bytes = body.len() as u32;
    header.body_crc = crc32c(body);
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(body);
}

/// Checks the sizes of a frame before it is sent.
pub(crate) fn check_sizes(body: usize, bulk: u64) -> Result<(), Status> {
    if body > BODY_BYTES_MAX || bulk > BULK_BYTES_MAX as u64 { Err(Status::TooBig) } else { Ok(()) }
}

#[derive(Debug)]
enum Chunk {
    /// Messages one behind another.
    Small(Vec<u8>),
    /// Bulk data of one message.
    Bulk(Bytes),
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        match self {
            Chunk::Small(bytes) => bytes,
            Chunk::Bulk(bytes) => bytes,
        }
    }
}

/// What waits to be sent on one connection.
#[derive(Debug, Default)]
pub(crate) struct OutQueue {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are sent already.
    sent: usize,
    bytes: usize,
    /// An empty buffer for the next small chunk.
    spare: Vec<u8>,
    /// Encrypts what leaves, if that was agreed on.
    cipher: Option<Cipher>,
    /// Envelopes that leave before the chunks, and how many of their bytes are sent.
    encrypted: PooledBuf,
    encrypted_sent: usize,
}

/// What a flush has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flushed {
    pub(crate) bytes: usize,
    pub(crate) calls: u32,
}

impl OutQueue {
    /// From now on everything leaves in envelopes, except what waits already.
    pub(crate) fn set_cipher(&mut self, cipher: Cipher) {
        let waiting = std::mem::take(&mut self.chunks);
        let sent = std::mem::take(&mut self.sent);
        waiting.iter().for_each(|chunk| self.encrypted.0.extend_from_slice(chunk.as_ref()));
        self.encrypted_sent = sent;
        self.cipher = Some(cipher);
    }

    /// Bytes that wait; those that are not encrypted yet become a few more.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Queues a frame; its sizes have been checked. Bulk data that lies in the region which the
    /// peer shares stays there.
    pub(crate) fn push(&mut self, frame: Frame, region: Option<&Memory>) {
        let bulk = frame.bulk.to_bytes();
        if let Some(offset) = region.and_then(|region| region.place_of(&bulk))
            && !bulk.is_empty()
            && offset.is_multiple_of(REGION_PAGE_BYTES)
        {
            self.bytes += HEADER_BYTES + frame.body.len();
            let page = (offset / REGION_PAGE_BYTES) as u32;
            return encode_naming(self.small(), frame.header, &frame.body, Flags::SHARED, page, bulk.len());
        }
        self.bytes += frame.wire_bytes() as usize;
        let has_checksums = self.cipher.is_none();
        let out = self.small();
        encode(out, frame.header, &frame.body, &[&bulk], has_checksums);
        if bulk.len() < BULK_DIRECT_BYTES {
            out.extend_from_slice(&bulk);
        } else {
            self.chunks.push_back(Chunk::Bulk(bulk));
        }
    }

    /// Queues bytes that are complete frames already.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.small().extend_from_slice(bytes);
    }

    fn small(&mut self) -> &mut Vec<u8> {
        let open = matches!(self.chunks.back(), Some(Chunk::Small(bytes)) if bytes.len() < CHUNK_BYTES);
        if !open {
            self.chunks.push_back(Chunk::Small(std::mem::take(&mut self.spare)));
        }
        match self.chunks.back_mut() {
            Some(Chunk::Small(bytes)) => bytes,
            _ => unreachable!("the last chunk is a small one: it was so or has just been made"),
        }
    }

    /// Sends until nothing is left or the socket takes no more.
    pub(crate) fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<Flushed> {
        let mut total = Flushed { bytes: 0, calls: 0 };
        while self.bytes > 0 {
            self.encrypt();
            let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
            let count = match self.cipher {
                Some(_) => {
                    pieces[0] = IoSlice::new(&self.encrypted.0[self.encrypted_sent..]);
                    1
                }
                None => {
                    for (i, (piece, chunk)) in pieces.iter_mut().zip(&self.chunks).enumerate() {
                        *piece = IoSlice::new(&chunk.as_ref()[if i == 0 { self.sent } else { 0 }..]);
                    }
                    self.chunks.len().min(PIECES_MAX)
                }
            };
            let offered: usize = pieces[..count].iter().map(|piece| piece.len()).sum();
            total.calls += 1;
            let sent = match sys::send(fd, &pieces[..count]) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            total.bytes += sent;
            self.bytes -= sent;
            match self.cipher {
                Some(_) => self.encrypted_sent += sent,
                None => self.remove(sent),
            }
            if sent < offered {
                break;
            }
        }
        if self.bytes == 0 {
            // Connections that have nothing to say share buffers.
            (self.encrypted, self.encrypted_sent) = (PooledBuf::default(), 0);
        }
        Ok(total)
    }

    /// On an encrypted connection, makes the next envelopes when those before have left.
    fn encrypt(&mut self) {
        let Some(mut cipher) = self.cipher.take_if(|_| self.encrypted_sent == self.encrypted.0.len()) else { return };
        let wanted = self.bytes.min(ENCRYPTED_BYTES);
        if self.encrypted.0.capacity() < wanted + BEHIND_BYTES {
            self.encrypted = pool::take(wanted);
        }
        self.encrypted.0.clear();
        self.encrypted_sent = 0;
        while let Some(chunk) = self.chunks.front()
            && let Some(room) = self.encrypted.0.capacity().checked_sub(self.encrypted.0.len() + BEHIND_BYTES).filter(|room| *room > 0)
        {
            // Bulk data has envelopes of its own, so that it is received where it belongs.
            let rest = &chunk.as_ref()[self.sent..];
            let content = rest.len().min(room).min(ENVELOPE_BYTES_MAX);
            cipher.encrypt(&mut &mut [IoSlice::new(&rest[..content])][..], &mut self.encrypted.0);
            self.bytes += BEHIND_BYTES;
            self.remove(content);
        }
        self.cipher = Some(cipher);
    }

    /// Takes bytes off the chunks.
    fn remove(&mut self, sent: usize) {
        self.sent += sent;
        while let Some(first) = self.chunks.front() {
            let len = first.as_ref().len();
            if self.sent < len {
                break;
            }
            self.sent -= len;
            if let Some(Chunk::Small(mut bytes)) = self.chunks.pop_front()
                && bytes.capacity() <= CHUNK_BYTES
            {
                bytes.clear();
                self.spare = bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use weft_base::{Payload, RequestId, ServerId};
    use weft_wire::Op;

    #[test]
    fn a_full_socket_loses_and_repeats_nothing() {
        let (writer, mut reader) = UnixStream::pair().expect("a socket pair");
        let mut queue = OutQueue::default();
        let mut expected = Vec::new();
        for i in 0..50u64 {
            let header = Header::request(Op::Write, ServerId(0), RequestId { sequence: i, ..RequestId::default() }, 0);
            let bulk: Vec<u8> = (0..(i as usize * 997) % 40_000).map(|byte| (byte as u64 + i) as u8).collect();
            let frame = Frame { header, body: vec![i as u8; 30].into(), bulk: Payload::Real(bulk.clone().into()) };
            encode(&mut expected, header, &frame.body, &[&bulk], true);
            expected.extend_from_slice(&bulk);
            queue.push(frame, None);
        }
        assert_eq!(queue.len(), expected.len());
        let mut got = Vec::new();
        let mut block = [0; 3000];
        while got.len() < expected.len() {
            queue.flush(writer.as_fd()).expect("the reader is there");
            let read = reader.read(&mut block).expect("something was flushed");
            got.extend_from_slice(&block[..read]);
        }
        assert!(got == expected && queue.len() == 0);
    }
}
