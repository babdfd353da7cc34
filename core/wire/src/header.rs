//! The 64 bytes in front of every message.

use weft_base::{ClientId, RequestId, Result, ServerId, Status};

use crate::{Op, crc32c};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Longest body in bytes. A longer one is refused before it is read.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Longest bulk data in bytes. Longer data is refused before it is read.
pub const BULK_BYTES_MAX: usize = 8 << 20;
/// The newest version that this code speaks. `docs/formats.md` says what makes a new one.
pub const PROTOCOL_VERSION: u8 = 4;
/// The oldest version that this code still understands.
pub const PROTOCOL_VERSION_OLDEST: u8 = 4;
/// What frames of the handshake have in place of a version, for ever: any two versions can read
/// them and say that they do not fit.
pub const HANDSHAKE_VERSION: u8 = 1;

/// Places in a shared region are counted in pages of so many bytes.
pub const REGION_PAGE_BYTES: usize = 4096;
/// Largest shared region of one connection in bytes.
pub const REGION_BYTES_MAX: usize = 64 << 20;

/// The first four bytes of every message: `WEFT`.
const MAGIC: [u8; 4] = *b"WEFT";

/// Request, reply, or one of the messages of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageKind {
    /// A request.
    Request = 1,
    /// The reply to a request; it repeats the request's identity.
    Reply = 2,
    /// A step of the handshake.
    Handshake = 3,
}

/// Bits of the header's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(pub u32);

impl Flags {
    /// Everybody who touches this request records it in detail.
    pub const TRACE: Flags = Flags(1);
    /// The request was sent before; its reply may be in the reply table.
    pub const RETRY: Flags = Flags(2);
    /// The bulk data lies in the shared region of the connection instead of following the body:
    /// `bulk_bytes` bytes from the page that stands in place of the bulk checksum.
    pub const SHARED: Flags = Flags(4);
    /// A request without bulk data: its reply may put bulk data into the shared region, at most
    /// `bulk_bytes` bytes from the page that stands in place of the bulk checksum.
    pub const ROOM: Flags = Flags(8);
    /// A request whose answer may come much later: clients send it over a connection of its own, so
    /// that nobody else's replies are read by whoever waits for it.
    pub const WAITS: Flags = Flags(32);
    /// A reply: its client may believe what it says of names until it hears otherwise, but not what
    /// it says of the objects that they lead to. About a directory itself: it is changed so often
    /// that nobody is told.
    pub const NAMES: Flags = Flags(64);
    /// A reply: its client may believe what it says until it hears otherwise
    /// ([`Op::Notices`](crate::Op::Notices)).
    pub const LEASED: Flags = Flags(16);

    /// True if all bits of `other` are set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
    /// With the bits of `other` set too.
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
    /// Without the bits of `other`.
    pub fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

/// What a client may believe of a reply until it hears otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LeaseScope {
    /// Nothing.
    #[default]
    Nothing,
    /// What names lead to.
    Names,
    /// That, and the attributes of these objects.
    All,
}

impl LeaseScope {
    /// As a reply says it.
    pub fn flags(self) -> Flags {
        match self {
            LeaseScope::Nothing => Flags::default(),
            LeaseScope::Names => Flags::NAMES,
            LeaseScope::All => Flags::LEASED,
        }
    }
}

impl From<Flags> for LeaseScope {
    fn from(flags: Flags) -> LeaseScope {
        match () {
            () if flags.contains(Flags::LEASED) => LeaseScope::All,
            () if flags.contains(Flags::NAMES) => LeaseScope::Names,
            () => LeaseScope::Nothing,
        }
    }
}

/// The fixed part of a message. See `docs/wire.md` for the byte layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The oldest protocol version whose rules the frame keeps to; never newer than the one agreed
    /// in the handshake. Frames of the handshake have [`HANDSHAKE_VERSION`].
    pub version: u8,
    /// Request or reply.
    pub kind: MessageKind,
    /// Which operation ([`Op`]) by number.
    pub op: u16,
    /// Trace, retry, shared memory.
    pub flags: Flags,
    /// Reply: 0 or a [`Status`] by number. Request: 0.
    pub status: u16,
    /// The server that is asked or that answers.
    pub server: ServerId,
    /// Identity of the request.
    pub request: RequestId,
    /// Request: `request.sequence` minus the oldest sequence that the client still waits for at
    /// this server: everything below is finished, so the server may forget its replies and must
    /// refuse late copies. Reply: the epoch of the server's cluster map, see [`Header::map_epoch`].
    pub unfinished_span: u32,
    /// Bytes of the body.
    pub body_bytes: u32,
    /// Bytes of the bulk data.
    pub bulk_bytes: u32,
    /// CRC32C of the body.
    pub body_crc: u32,
    /// CRC32C of the bulk data; with [`Flags::SHARED`] or [`Flags::ROOM`] the page of the shared
    /// region instead.
    pub bulk_crc: u32,
    /// Reply: counts the starts of the server. A client that sees it change tells the server again
    /// what it has open.
    pub server_boot: u32,
}

impl Header {
    /// The header of a request; lengths and checksums are filled in when it is sent.
    pub fn request(op: Op, server: ServerId, request: RequestId, unfinished_span: u32) -> Header {
        Header {
            version: PROTOCOL_VERSION_OLDEST,
            kind: MessageKind::Request,
            op: op.code(),
            flags: Flags::default(),
            status: 0,
            server,
            request,
            unfinished_span,
            body_bytes: 0,
            bulk_bytes: 0,
            body_crc: 0,
            bulk_crc: 0,
            server_boot: 0,
        }
    }

    /// The sequence below which the client has finished everything.
    pub fn finished_below(&self) -> u64 {
        self.request.sequence.saturating_sub(u64::from(self.unfinished_span))
    }

    /// Of a reply: the epoch of the cluster map by which the server works; 0 if it has none yet.
    pub fn map_epoch(&self) -> u32 {
        self.unfinished_span
    }

    /// Sets [`Header::map_epoch`].
    pub fn set_map_epoch(&mut self, epoch: u32) {
        self.unfinished_span = epoch;
    }

    /// True if the frame names a place in the shared region; its bulk data, if it has any, does not
    /// follow the body.
    pub fn names_region(&self) -> bool {
        self.flags.0 & (Flags::SHARED.0 | Flags::ROOM.0) != 0
    }

    /// Bytes of bulk data that follow the body on the connection.
    pub fn following_bulk_bytes(&self) -> usize {
        if self.names_region() { 0 } else { self.bulk_bytes as usize }
    }

    /// Names `bulk_bytes` bytes of the shared region from `page`; `flag` is [`Flags::SHARED`] or
    /// [`Flags::ROOM`].
    pub fn name_region(&mut self, flag: Flags, page: u32, bulk_bytes: u32) {
        self.flags = self.flags.without(Flags::SHARED.with(Flags::ROOM)).with(flag);
        (self.bulk_crc, self.bulk_bytes) = (page, bulk_bytes);
    }

    /// Takes back what [`Header::name_region`] has set: the frame carries its bulk data itself.
    pub fn forget_region(&mut self) {
        if self.names_region() {
            self.flags = self.flags.without(Flags::SHARED.with(Flags::ROOM));
        }
    }

    /// The place in the shared region that the frame names, as (byte offset, bytes).
    pub fn region_place(&self) -> Option<(usize, usize)> {
        self.names_region().then_some((self.bulk_crc as usize * REGION_PAGE_BYTES, self.bulk_bytes as usize))
    }

    /// The bytes of the header, closed by its own checksum.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[4] = self.version;
        out[5] = self.kind as u8;
        out[6..8].copy_from_slice(&self.op.to_le_bytes());
        out[8..12].copy_from_slice(&self.flags.0.to_le_bytes());
        out[12..14].copy_from_slice(&self.status.to_le_bytes());
        out[14..16].copy_from_slice(&self.server.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.request.client.0.to_le_bytes());
        out[24..28].copy_from_slice(&self.request.incarnation.to_le_bytes());
        out[28..32].copy_from_slice(&self.unfinished_span.to_le_bytes());
        out[32..40].copy_from_slice(&self.request.sequence.to_le_bytes());
        out[40..44].copy_from_slice(&self.body_bytes.to_le_bytes());
        out[44..48].copy_from_slice(&self.bulk_bytes.to_le_bytes());
        out[48..52].copy_from_slice(&self.body_crc.to_le_bytes());
        out[52..56].copy_from_slice(&self.bulk_crc.to_le_bytes());
        out[56..60].copy_from_slice(&self.server_boot.to_le_bytes());
        let crc = crc32c(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header and checks everything that can be checked without the body.
    ///
    /// # Errors
    /// [`Status::BadMessage`] for a wrong magic, kind or length, [`Status::BadChecksum`] for a
    /// damaged header, [`Status::VersionMismatch`] for a version outside the supported range.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes[0..4] != MAGIC {
            return Err(Status::BadMessage);
        }
        if u32_at(60) != crc32c(&bytes[..60]) {
            return Err(Status::BadChecksum);
        }
        let (version, kind) = match (bytes[4], bytes[5]) {
            (HANDSHAKE_VERSION, 3) => (HANDSHAKE_VERSION, MessageKind::Handshake),
            (_, 3) => return Err(Status::BadMessage),
            (version @ PROTOCOL_VERSION_OLDEST..=PROTOCOL_VERSION, 1) => (version, MessageKind::Request),
            (version @ PROTOCOL_VERSION_OLDEST..=PROTOCOL_VERSION, 2) => (version, MessageKind::Reply),
            (_, 1 | 2) => return Err(Status::VersionMismatch),
            _ => return Err(Status::BadMessage),
        };
        let header = Header {
            version,
            kind,
            op: u16_at(6),
            flags: Flags(u32_at(8)),
            status: u16_at(12),
            server: ServerId(u16_at(14)),
            request: RequestId { client: ClientId(u64_at(16)), incarnation: u32_at(24), sequence: u64_at(32) },
            unfinished_span: u32_at(28),
            body_bytes: u32_at(40),
            bulk_bytes: u32_at(44),
            body_crc: u32_at(48),
            bulk_crc: u32_at(52),
            server_boot: u32_at(56),
        };
        if header.body_bytes as usize > BODY_BYTES_MAX || header.bulk_bytes as usize > BULK_BYTES_MAX {
            return Err(Status::BadMessage);
        }
        let (shared, room) = (header.flags.contains(Flags::SHARED), header.flags.contains(Flags::ROOM));
        let allowed = match kind {
            MessageKind::Request => !(shared && room),
            MessageKind::Reply => !room,
            MessageKind::Handshake => false,
        };
        if (shared || room) && !allowed {
            return Err(Status::BadMessage);
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Header {
        let request = RequestId { client: ClientId(0x1122_3344_5566_7788), incarnation: 3, sequence: 99 };
        let mut header = Header::request(Op::Create, ServerId(2), request, 5);
        header.flags = Flags::TRACE.with(Flags::RETRY);
        header.body_bytes = 77;
        header.bulk_bytes = 1 << 20;
        header
    }

    #[test]
    fn wire_md_header_golden_bytes() {
        let bytes = sample().encode();
        assert_eq!(&bytes[0..4], b"WEFT");
        assert_eq!(bytes[4..16], [4, 1, Op::Create as u8, 0, 3, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(bytes[16..24], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!(bytes[24..40], [3, 0, 0, 0, 5, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[40..48], [77, 0, 0, 0, 0, 0, 16, 0]);
        assert_eq!(Header::decode(&bytes), Ok(sample()));
        assert_eq!(sample().finished_below(), 94);
    }

    #[test]
    fn wire_md_shared_golden_bytes() {
        let mut header = sample();
        header.name_region(Flags::SHARED, 0x0102, 300);
        let bytes = header.encode();
        assert_eq!((bytes[4], bytes[8]), (4, 1 | 2 | 4));
        assert_eq!(bytes[44..48], [44, 1, 0, 0]);
        assert_eq!(bytes[52..56], [2, 1, 0, 0]);
        assert_eq!(Header::decode(&bytes).map(|header| header.region_place()), Ok(Some((0x0102 * 4096, 300))));
        assert_eq!(header.following_bulk_bytes(), 0);
        header.forget_region();
        assert_eq!((header.version, header.flags, header.region_place()), (PROTOCOL_VERSION, sample().flags, None));
    }

    #[test]
    fn only_frames_that_can_have_them_name_places_of_the_region() {
        let with =
            |version: u8, kind: MessageKind, flags: Flags| Header::decode(&Header { version, kind, flags, ..sample() }.encode()).map(drop);
        let (shared, room) = (Flags::SHARED, Flags::ROOM);
        assert_eq!(with(PROTOCOL_VERSION, MessageKind::Request, shared), Ok(()));
        assert_eq!(with(PROTOCOL_VERSION, MessageKind::Request, room), Ok(()));
        assert_eq!(with(PROTOCOL_VERSION, MessageKind::Reply, shared), Ok(()));
        for (version, kind, flags) in [
            (PROTOCOL_VERSION, MessageKind::Request, shared.with(room)),
            (PROTOCOL_VERSION, MessageKind::Reply, room),
            (HANDSHAKE_VERSION, MessageKind::Handshake, shared),
        ] {
            assert_eq!(with(version, kind, flags), Err(Status::BadMessage), "{version} {kind:?} {flags:?}");
        }
    }

    #[test]
    fn other_versions_are_refused_except_in_the_handshake() {
        let with = |version: u8, kind: MessageKind| Header::decode(&Header { version, kind, ..sample() }.encode()).map(drop);
        assert_eq!(with(HANDSHAKE_VERSION, MessageKind::Handshake), Ok(()));
        assert_eq!(with(PROTOCOL_VERSION, MessageKind::Handshake), Err(Status::BadMessage));
        for version in [0, 1, 2, 3, PROTOCOL_VERSION + 1] {
            assert_eq!(with(version, MessageKind::Request), Err(Status::VersionMismatch));
            assert_eq!(with(version, MessageKind::Reply), Err(Status::VersionMismatch));
        }
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let good = sample().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bad).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), HEADER_BYTES)) {
            let mut block = [0; HEADER_BYTES];
            block.copy_from_slice(&bytes);
            let _ = Header::decode(&block);
        }
    }
}
