//! From the bytes of a connection to verified frames.
//!
//! Small messages are cut out of one receive buffer by reference. Bulk data of
//! [`BULK_DIRECT_BYTES`] and more is received straight into a buffer of its own from the pool, and
//! its checksum is computed piece by piece while the bytes are still in the cache.
//!
//! Invariant: memory for a frame is bounded by [`Limits`] before anything is allocated for it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use bytes::{Buf, Bytes, BytesMut};
use weft_base::{Payload, Status};
use weft_wire::{BODY_BYTES_MAX, BULK_BYTES_MAX, Frame, HEADER_BYTES, Header, SEAL_BYTES, Sealer, Sealing, crc32c, crc32c_append};

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
    /// For strangers.
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
    Bulk { header: Header, body: Bytes, bulk: PooledBuf, crc: u32 },
}

/// The receiving half of one connection.
#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: BytesMut,
    stage: Stage,
    limits: Limits,
    after_bulk: bool,
    /// Frames may name places of a shared region.
    region: bool,
    /// A descriptor may come beside the next frame.
    descriptor_awaited: bool,
    descriptor: Option<OwnedFd>,
    /// Frames have seals.
    sealer: Option<Sealer>,
    /// The seal of the frame that is being received, over what has come of it, and the one that
    /// came with it.
    seal: Option<(Sealing, [u8; SEAL_BYTES])>,
}

impl FrameReader {
    pub(crate) fn new(limits: Limits) -> FrameReader {
        FrameReader {
            buffer: BytesMut::new(),
            stage: Stage::Header,
            limits,
            after_bulk: false,
            region: false,
            descriptor_awaited: false,
            descriptor: None,
            sealer: None,
            seal: None,
        }
    }

    /// Frames have seals from now on.
    pub(crate) fn set_sealer(&mut self, sealer: Sealer) {
        self.sealer = Some(sealer);
    }

    /// True if frames have seals.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealer.is_some()
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
            Stage::Rest(_) => self.head_bytes(),
            Stage::Bulk { body, bulk, .. } => self.head_bytes() + body.len() + bulk.0.len(),
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
            self.advance(received, frames).map_err(Broken::Malformed)?;
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
            Stage::Bulk { header, bulk, .. } => return header.bulk_bytes as usize - bulk.0.len(),
            Stage::Header => self.head_bytes(),
            Stage::Rest(header) if is_direct(header) => header.body_bytes as usize,
            Stage::Rest(header) => header.body_bytes as usize + header.following_bulk_bytes(),
        };
        let missing = needed.saturating_sub(self.buffer.len());
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

    /// Bytes of a header, with its seal if there are seals.
    fn head_bytes(&self) -> usize {
        if self.is_sealed() { HEADER_BYTES + SEAL_BYTES } else { HEADER_BYTES }
    }

    fn advance(&mut self, received: usize, frames: &mut Vec<Frame>) -> Result<(), Status> {
        if let Stage::Bulk { header, bulk, crc, .. } = &mut self.stage {
            let start = bulk.0.len() - received;
            *crc = crc32c_append(*crc, &bulk.0[start..]);
            if let Some((seal, _)) = &mut self.seal {
                seal.update(&bulk.0[start..]);
            }
            if bulk.0.len() < header.bulk_bytes as usize {
                return Ok(());
            }
            self.finish_bulk(frames)?;
        }
        loop {
            match &self.stage {
                Stage::Header => {
                    let Some(head) = self.buffer.first_chunk::<HEADER_BYTES>() else { return Ok(()) };
                    let header = Header::decode(head)?;
                    if header.body_bytes as usize > self.limits.body || header.bulk_bytes as usize > self.limits.bulk {
                        return Err(Status::TooBig);
                    }
                    if header.names_region() && !self.region {
                        return Err(Status::BadMessage);
                    }
                    if let Some(sealer) = &mut self.sealer {
                        let Some((head, rest)) = self.buffer.split_first_chunk::<HEADER_BYTES>() else { return Ok(()) };
                        let Some(came) = rest.first_chunk::<SEAL_BYTES>() else { return Ok(()) };
                        let mut seal = sealer.begin();
                        seal.update(head);
                        self.seal = Some((seal, *came));
                    }
                    self.buffer.advance(self.head_bytes());
                    self.stage = Stage::Rest(header);
                }
                Stage::Rest(header) if is_direct(header) => {
                    let header = *header;
                    if self.buffer.len() < header.body_bytes as usize {
                        return Ok(());
                    }
                    let body = self.take(header.body_bytes, header.body_crc)?;
                    let mut bulk = pool::take(header.bulk_bytes as usize);
                    let here = self.buffer.len().min(header.bulk_bytes as usize);
                    bulk.0.extend_from_slice(&self.buffer[..here]);
                    self.buffer.advance(here);
                    let crc = crc32c(&bulk.0);
                    if let Some((seal, _)) = &mut self.seal {
                        seal.update(&bulk.0);
                    }
                    self.stage = Stage::Bulk { header, body, bulk, crc };
                    self.after_bulk = true;
                    if here < header.bulk_bytes as usize {
                        return Ok(());
                    }
                    self.finish_bulk(frames)?;
                }
                Stage::Rest(header) => {
                    let header = *header;
                    if self.buffer.len() < header.body_bytes as usize + header.following_bulk_bytes() {
                        return Ok(());
                    }
                    let body = self.take(header.body_bytes, header.body_crc)?;
                    // What lies in the region is fetched from there by whoever has it.
                    let bulk = if header.names_region() { Bytes::new() } else { self.take(header.bulk_bytes, header.bulk_crc)? };
                    self.after_bulk = false;
                    self.stage = Stage::Header;
                    self.check_seal()?;
                    frames.push(Frame { header, body, bulk: Payload::Real(bulk) });
                }
                Stage::Bulk { .. } => unreachable!("bulk data was finished above or ended the loop"),
            }
        }
    }

    fn finish_bulk(&mut self, frames: &mut Vec<Frame>) -> Result<(), Status> {
        if let Stage::Bulk { header, body, bulk, crc } = std::mem::replace(&mut self.stage, Stage::Header) {
            if crc != header.bulk_crc {
                return Err(Status::BadChecksum);
            }
            self.check_seal()?;
            frames.push(Frame { header, body, bulk: Payload::Real(bulk.freeze()) });
        }
        Ok(())
    }

    /// The frame is complete: nobody sees it unless it has its seal.
    fn check_seal(&mut self) -> Result<(), Status> {
        let is_broken = self.seal.take().is_some_and(|(seal, came)| !seal.is(&came));
        if is_broken { Err(Status::SealBroken) } else { Ok(()) }
    }

    fn take(&mut self, len: u32, crc: u32) -> Result<Bytes, Status> {
        if len == 0 {
            return if crc == crc32c(&[]) { Ok(Bytes::new()) } else { Err(Status::BadChecksum) };
        }
        let bytes = self.buffer.split_to(len as usize).freeze();
        if let Some((seal, _)) = &mut self.seal {
            seal.update(&bytes);
        }
        if crc32c(&bytes) == crc { Ok(bytes) } else { Err(Status::BadChecksum) }
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
        encode(&mut out, frame.header, &frame.body, &[&frame.bulk.to_bytes()], None);
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
    fn strangers_cannot_make_us_allocate() {
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
