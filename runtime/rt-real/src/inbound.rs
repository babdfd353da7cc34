//! From the bytes of a connection to verified frames.
//!
//! Small messages are cut out of one receive buffer by reference. Bulk data of
//! [`BULK_DIRECT_BYTES`] and more is received straight into a buffer of its own from the pool, and
//! its checksum is computed piece by piece while the bytes are still in the cache. On an encrypted
//! connection envelopes are opened where they lie, and there are no checksums.
//!
//! Invariant: memory for a frame is bounded by [`Limits`] before anything is allocated for it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use bytes::{Buf, Bytes, BytesMut};
use weft_base::{Payload, Status};
use weft_wire::{BODY_BYTES_MAX, BULK_BYTES_MAX, Cipher, Frame, HEADER_BYTES, Header, LENGTH_BYTES, crc32c, crc32c_append};

use crate::envelopes::Envelopes;
use crate::pool::{self, PooledBuf};
use crate::sys;

/// Bulk data from this size on gets its own buffer.
pub(crate) const BULK_DIRECT_BYTES: usize = 16 << 10;
/// Bytes of a receive buffer.
const BUFFER_BYTES: usize = 64 << 10;
/// Room below which the receive buffer is renewed.
const ROOM_BYTES_MIN: usize = 4 << 10;
/// After bulk data comes bulk data: receive only so much at first, so that the rest goes straight
/// into its own buffer.
const AFTER_BULK_BYTES: usize = 1 << 10;

/// Largest parts of a frame that are accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) body: usize,
    pub(crate) bulk: usize,
}

impl Limits {
    /// For peers that have proved who they are.
    pub(crate) const OPEN: Limits = Limits { body: BODY_BYTES_MAX, bulk: BULK_BYTES_MAX };
    /// Before the handshake is over.
    pub(crate) const HANDSHAKE: Limits = Limits { body: 4 << 10, bulk: 0 };
}

/// Why nothing more can be received.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The peer has closed, between two frames or within one.
    Closed {
        /// True if a frame was cut off.
        within_frame: bool,
    },
    /// The network.
    Io(io::Error),
    /// What came is no frame of this protocol.
    Malformed(Status),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Closed { within_frame: false } => f.write_str("closed by the peer"),
            Broken::Closed { within_frame: true } => f.write_str("closed by the peer within a message"),
            Broken::Io(error) => write!(f, "{error}"),
            Broken::Malformed(status) => write!(f, "{status}"),
        }
    }
}

/// What one call received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) bytes: usize,
    pub(crate) calls: u32,
}

#[derive(Debug)]
enum Stage {
    /// The next bytes are a header.
    Header,
    /// A header is known, body and small bulk data are to come.
    Rest(Header),
    /// Bulk data flows into its own buffer.
    Bulk {
        header: Header,
        body: Bytes,
        bulk: PooledBuf,
        /// Bytes of `bulk` that are content.
        content: usize,
        crc: u32,
    },
}

/// The receiving half of one connection.
#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: BytesMut,
    /// Bytes of `buffer` that are content; behind them may be a part of an envelope.
    content: usize,
    stage: Stage,
    limits: Limits,
    after_bulk: bool,
    /// Frames may name places of a shared region.
    region: bool,
    /// A descriptor may come beside the next frame.
    descriptor_awaited: bool,
    descriptor: Option<OwnedFd>,
    /// Opens what comes on an encrypted connection.
    envelopes: Option<Envelopes>,
}

impl FrameReader {
    pub(crate) fn new(limits: Limits) -> FrameReader {
        FrameReader {
            buffer: BytesMut::new(),
            content: 0,
            stage: Stage::Header,
            limits,
            after_bulk: false,
            region: false,
            descriptor_awaited: false,
            descriptor: None,
            envelopes: None,
        }
    }

    /// From now on everything comes in envelopes.
    pub(crate) fn set_cipher(&mut self, cipher: Cipher) {
        self.envelopes = Some(Envelopes::new(cipher));
    }

    /// True if everything comes in envelopes.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.envelopes.is_some()
    }

    /// Accepts frames that name places of a shared region from now on. Whether a place is inside is
    /// for the owner of the region to say.
    pub(crate) fn accept_region(&mut self) {
        self.region = true;
    }

    /// Takes a descriptor that comes beside the next frame; without this the system closes it.
    pub(crate) fn await_descriptor(&mut self) {
        self.descriptor_awaited = true;
    }

    /// The descriptor that has come. None is awaited any more.
    pub(crate) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptor_awaited = false;
        self.descriptor.take()
    }

    /// Accepts other sizes from now on.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Uses `scratch` as the buffer if nothing is kept here, and gives it back with the next call.
    /// So many idle connections of one thread share one buffer.
    pub(crate) fn exchange(&mut self, scratch: &mut BytesMut) {
        if self.buffer.is_empty() {
            std::mem::swap(&mut self.buffer, scratch);
        }
    }

    /// True if a part of a frame is here.
    pub(crate) fn within_frame(&self) -> bool {
        !self.buffer.is_empty() || !matches!(self.stage, Stage::Header)
    }

    /// Bytes of a frame that is not complete.
    pub(crate) fn half_bytes(&self) -> usize {
        let taken = match &self.stage {
            Stage::Header => 0,
            Stage::Rest(_) => HEADER_BYTES,
            Stage::Bulk { body, bulk, .. } => HEADER_BYTES + body.len() + bulk.0.len(),
        };
        taken + self.buffer.len()
    }

    /// Receives what is there without waiting, `budget` bytes or little more, and appends all
    /// complete frames.
    ///
    /// # Errors
    /// Frames that were complete before have been appended.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>, budget: usize, frames: &mut Vec<Frame>) -> Result<Received, Broken> {
        self.receive_some(fd, budget, frames, false)
    }

    /// Like [`FrameReader::receive`], but waits until something is there, for a limited time.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn receive_waiting(&mut self, fd: BorrowedFd<'_>, budget: usize, frames: &mut Vec<Frame>) -> Result<Received, Broken> {
        self.receive_some(fd, budget, frames, true)
    }

    fn receive_some(&mut self, fd: BorrowedFd<'_>, budget: usize, frames: &mut Vec<Frame>, wait: bool) -> Result<Received, Broken> {
        let mut total = Received::default();
        let complete_before = frames.len();
        while total.bytes < budget {
            let asked = self.room();
            let received = match &mut self.stage {
                Stage::Bulk { bulk, .. } => sys::receive(fd, &mut bulk.0, asked, wait && total.calls == 0),
                _ if self.descriptor_awaited => sys::receive_with_descriptor(fd, &mut self.buffer, asked).map(|(bytes, descriptor)| {
                    self.descriptor = self.descriptor.take().or(descriptor);
                    bytes
                }),
                _ => sys::receive(fd, &mut self.buffer, asked, wait && total.calls == 0),
            };
            total.calls += 1;
            let received = match received {
                Ok(0) => return Err(Broken::Closed { within_frame: self.within_frame() }),
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(Broken::Io(error)),
            };
            total.bytes += received;
            self.advance(frames).map_err(Broken::Malformed)?;
            // A short read means that the socket is empty; after bulk data the caller has enough to
            // do.
            if received < asked || (self.after_bulk && frames.len() > complete_before && matches!(self.stage, Stage::Header)) {
                break;
            }
        }
        Ok(total)
    }

    /// Makes room and says how many bytes to ask for.
    fn room(&mut self) -> usize {
        let needed = match &self.stage {
            Stage::Bulk { header, bulk, content, .. } => {
                let whole = header.bulk_bytes as usize;
                let Some(envelopes) = &self.envelopes else { return whole - bulk.0.len() };
                // With the length of the next one, if there is one.
                let is_last = envelopes.next_content().is_none_or(|next| content + next >= whole);
                return envelopes.missing(bulk.0.len() - content) + if is_last { 0 } else { LENGTH_BYTES };
            }
            Stage::Header => HEADER_BYTES,
            Stage::Rest(header) if is_direct(header) => header.body_bytes as usize,
            Stage::Rest(header) => header.body_bytes as usize + header.following_bulk_bytes(),
        };
        let missing = match &self.envelopes {
            None => needed.saturating_sub(self.buffer.len()),
            Some(envelopes) => envelopes.missing(self.buffer.len() - self.content).max(needed.saturating_sub(self.content)),
        };
        let room = self.buffer.capacity() - self.buffer.len();
        if room < missing.max(ROOM_BYTES_MIN) {
            if self.limits.bulk == 0 {
                self.buffer.reserve(missing.max(ROOM_BYTES_MIN));
            } else {
                self.buffer.reserve(missing.max(BUFFER_BYTES));
            }
        }
        let room = self.buffer.capacity() - self.buffer.len();
        if self.after_bulk { room.min(missing.max(AFTER_BULK_BYTES)) } else { room }
    }

    /// Opens what has come, if it came in envelopes, and adds to the checksum of bulk data.
    fn open(&mut self) -> Result<(), Status> {
        match (&mut self.stage, &mut self.envelopes) {
            (Stage::Bulk { bulk, content, crc, .. }, None) => {
                *crc = crc32c_append(*crc, &bulk.0[*content..]);
                *content = bulk.0.len();
            }
            (Stage::Bulk { header, bulk, content, .. }, Some(envelopes)) => {
                let opened = envelopes.open(&mut bulk.0, *content)?;
                bulk.0.truncate(opened.all);
                *content = opened.content;
                // An envelope with bulk data has nothing else in it.
                let more = envelopes.next_content().unwrap_or(0);
                if opened.content + more > header.bulk_bytes as usize {
                    return Err(Status::BadMessage);
                }
            }
            (_, None) => self.content = self.buffer.len(),
            (_, Some(envelopes)) => {
                let opened = envelopes.open(&mut self.buffer, self.content)?;
                self.buffer.truncate(opened.all);
                self.content = opened.content;
            }
        }
        Ok(())
    }

    fn advance(&mut self, frames: &mut Vec<Frame>) -> Result<(), Status> {
        self.open()?;
        if let Stage::Bulk { header, content, .. } = &self.stage {
            if *content < header.bulk_bytes as usize {
                return Ok(());
            }
            self.finish_bulk(frames)?;
        }
        loop {
            match &self.stage {
                Stage::Header => {
                    let Some(head) = self.buffer[..self.content].first_chunk::<HEADER_BYTES>() else { return Ok(()) };
                    let header = Header::decode(head)?;
                    if header.body_bytes as usize > self.limits.body || header.bulk_bytes as usize > self.limits.bulk {
                        return Err(Status::TooBig);
                    }
                    if header.names_region() && !self.region {
                        return Err(Status::BadMessage);
                    }
                    self.skip(HEADER_BYTES);
                    self.stage = Stage::Rest(header);
                }
                Stage::Rest(header) if is_direct(header) => {
                    let header = *header;
                    if self.content < header.body_bytes as usize {
                        return Ok(());
                    }
                    let body = self.take(header.body_bytes, header.body_crc)?;
                    let mut bulk = pool::take(header.bulk_bytes as usize);
                    let content = self.content.min(header.bulk_bytes as usize);
                    bulk.0.extend_from_slice(&self.buffer[..content]);
                    self.skip(content);
                    self.after_bulk = true;
                    let is_whole = content == header.bulk_bytes as usize;
                    if !is_whole {
                        // A part of the next envelope.
                        bulk.0.extend_from_slice(&self.buffer);
                        self.buffer.clear();
                    }
                    let crc = if self.is_encrypted() { 0 } else { crc32c(&bulk.0) };
                    self.stage = Stage::Bulk { header, body, bulk, content, crc };
                    if !is_whole {
                        return Ok(());
                    }
                    self.finish_bulk(frames)?;
                }
                Stage::Rest(header) => {
                    let header = *header;
                    if self.content < header.body_bytes as usize + header.following_bulk_bytes() {
                        return Ok(());
                    }
                    let body = self.take(header.body_bytes, header.body_crc)?;
                    // What lies in the region is fetched from there by whoever has it.
                    let bulk = if header.names_region() { Bytes::new() } else { self.take(header.bulk_bytes, header.bulk_crc)? };
                    self.after_bulk = false;
                    self.stage = Stage::Header;
                    frames.push(Frame { header, body, bulk: Payload::Real(bulk) });
                }
                Stage::Bulk { .. } => unreachable!("bulk data was finished above or ended the loop"),
            }
        }
    }

    fn finish_bulk(&mut self, frames: &mut Vec<Frame>) -> Result<(), Status> {
        if let Stage::Bulk { header, body, bulk, crc, .. } = std::mem::replace(&mut self.stage, Stage::Header) {
            if !self.is_encrypted() && crc != header.bulk_crc {
                return Err(Status::BadChecksum);
            }
            frames.push(Frame { header, body, bulk: Payload::Real(bulk.freeze()) });
        }
        Ok(())
    }

    /// Content that is not needed any more.
    fn skip(&mut self, len: usize) {
        self.buffer.advance(len);
        self.content -= len;
    }

    fn take(&mut self, len: u32, crc: u32) -> Result<Bytes, Status> {
        let bytes = if len == 0 { Bytes::new() } else { self.buffer.split_to(len as usize).freeze() };
        self.content -= bytes.len();
        // An authentication tag is worth more than a checksum.
        if self.is_encrypted() || crc32c(&bytes) == crc { Ok(bytes) } else { Err(Status::BadChecksum) }
    }
}

fn is_direct(header: &Header) -> bool {
    header.following_bulk_bytes() >= BULK_DIRECT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::encode;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use weft_base::{RequestId, ServerId};
    use weft_wire::Op;

    fn frame(sequence: u64, body: usize, bulk: usize) -> Frame {
        let request = RequestId { client: weft_base::ClientId(9), incarnation: 1, sequence };
        let header = Header::request(Op::Write, ServerId(0), request, 0);
        let fill = |len: usize| (0..len).map(|i| (i as u64 * 7 + sequence) as u8).collect::<Vec<u8>>();
        Frame { header, body: fill(body).into(), bulk: fill(bulk).into() }
    }

    fn wire(frame: &Frame) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, frame.header, &frame.body, &[&frame.bulk.to_bytes()], true);
        out.extend_from_slice(&frame.bulk.to_bytes());
        out
    }

    /// Sends `bytes` in pieces of `piece` bytes and receives after each.
    fn feed(bytes: &[u8], piece: usize, limits: Limits) -> (Vec<Frame>, Result<(), Broken>) {
        let (mut writer, reading) = UnixStream::pair().expect("a socket pair");
        let mut reader = FrameReader::new(limits);
        let mut frames = Vec::new();
        for part in bytes.chunks(piece) {
            writer.write_all(part).expect("the buffer of the pair takes a small piece");
            loop {
                match reader.receive(reading.as_fd(), usize::MAX, &mut frames) {
                    Ok(received) if received.bytes == 0 => break,
                    Ok(_) => {}
                    Err(broken) => return (frames, Err(broken)),
                }
            }
        }
        drop(writer);
        let end = reader.receive(reading.as_fd(), usize::MAX, &mut frames).map(drop);
        (frames, end)
    }

    #[test]
    fn frames_of_all_sizes_survive_any_cutting() {
        let sent: Vec<_> =
            [(0, 0), (5, 0), (0, 100), (300, BULK_DIRECT_BYTES - 1), (70_000, 0), (9, BULK_DIRECT_BYTES), (0, 100_001), (3, 3)]
                .into_iter()
                .enumerate()
                .map(|(i, (body, bulk))| frame(i as u64, body, bulk))
                .collect();
        let bytes: Vec<u8> = sent.iter().flat_map(wire).collect();
        for piece in [17, 64, 1000, 65_537, bytes.len()] {
            let piece = piece.min(100_000); // what the buffer of a socket pair takes at once
            let (frames, end) = feed(&bytes, piece, Limits::OPEN);
            assert!(matches!(end, Err(Broken::Closed { within_frame: false })), "{piece}: {end:?}");
            assert_eq!(frames.len(), sent.len());
            for (got, want) in frames.iter().zip(&sent) {
                assert_eq!(got.header.request, want.header.request);
                assert!(got.body == want.body && got.bulk == want.bulk, "piece {piece}, {:?}", want.header.request);
            }
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        for (body, bulk) in [(40, 0), (40, 100), (40, BULK_DIRECT_BYTES + 5)] {
            let good = wire(&frame(1, body, bulk));
            for at in (0..good.len()).step_by(good.len() / 20 + 1).chain([good.len() - 1]) {
                let mut bad = good.clone();
                bad[at] ^= 0x10;
                let (frames, end) = feed(&bad, 4096, Limits::OPEN);
                assert!(frames.is_empty() && matches!(end, Err(Broken::Malformed(_))), "byte {at}: {end:?}");
            }
        }
    }

    #[test]
    fn half_a_frame_is_reported() {
        let good = wire(&frame(1, 40, 0));
        for len in 1..good.len() {
            let (frames, end) = feed(&good[..len], len, Limits::OPEN);
            assert!(frames.is_empty() && matches!(end, Err(Broken::Closed { within_frame: true })), "{len}: {end:?}");
        }
    }

    #[test]
    fn unauthenticated_peers_cannot_make_us_allocate() {
        for (body, bulk) in [(Limits::HANDSHAKE.body + 1, 0), (0, 1)] {
            let (_, end) = feed(&wire(&frame(1, body, bulk)), 4096, Limits::HANDSHAKE);
            assert!(matches!(end, Err(Broken::Malformed(Status::TooBig))), "{end:?}");
        }
        let mut huge = frame(1, 0, 0).header;
        huge.bulk_bytes = u32::MAX;
        let (_, end) = feed(&huge.encode(), 64, Limits::OPEN);
        assert!(matches!(end, Err(Broken::Malformed(Status::BadMessage))), "{end:?}");
    }
}
