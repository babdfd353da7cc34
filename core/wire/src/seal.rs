//! Seals of frames: HMAC-SHA256 over a counter and the frame, under a key of one connection and
//! direction. A frame that was changed, put in, left out, repeated or moved does not have the seal
//! that comes next.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::ClusterKey;
use crate::capability::equal_in_constant_time;

/// Bytes of a seal; it stands between the header of a frame and its body.
pub const SEAL_BYTES: usize = 16;

/// The seals of the frames of one direction, in their order.
#[derive(Clone)]
pub struct Sealer {
    keyed: Hmac<Sha256>,
    /// Frames sealed until now.
    count: u64,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealer({} frames)", self.count)
    }
}

/// The keys of a connection.
#[derive(Clone, Debug)]
pub struct SessionSeals {
    /// Of frames from the client.
    pub to_server: Sealer,
    /// Of frames from the server.
    pub to_client: Sealer,
}

impl SessionSeals {
    /// Of the connection that was made with this key and these messages.
    pub(crate) fn new(key: &ClusterKey, hello: &[u8], challenge: &[u8]) -> SessionSeals {
        let sealer = |label: &[u8]| Sealer::new(&key.mac(label, &[hello, challenge]));
        SessionSeals { to_server: sealer(b"weft seal to server"), to_client: sealer(b"weft seal to client") }
    }
}

impl Sealer {
    fn new(key: &[u8; 32]) -> Sealer {
        Sealer { keyed: Hmac::new_from_slice(key).expect("HMAC takes keys of any length"), count: 0 }
    }

    /// Begins the seal of the next frame.
    pub fn begin(&mut self) -> Sealing {
        let mut mac = self.keyed.clone();
        mac.update(&self.count.to_le_bytes());
        self.count += 1;
        Sealing(mac)
    }

    /// The seal of the next frame, whose parts are these.
    pub fn seal<'a>(&mut self, parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; SEAL_BYTES] {
        let mut sealing = self.begin();
        parts.into_iter().for_each(|part| sealing.update(part));
        sealing.finish()
    }
}

/// A seal on its way over the bytes of a frame.
#[derive(Clone)]
pub struct Sealing(Hmac<Sha256>);

impl std::fmt::Debug for Sealing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealing")
    }
}

impl Sealing {
    /// The next bytes of the frame.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The seal.
    pub fn finish(self) -> [u8; SEAL_BYTES] {
        let whole: [u8; 32] = self.0.finalize().into_bytes().into();
        whole[..SEAL_BYTES].try_into().expect("an HMAC-SHA256 has 32 bytes")
    }

    /// True if it is this one.
    pub fn is(self, seal: &[u8; SEAL_BYTES]) -> bool {
        equal_in_constant_time(&self.finish(), seal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seals() -> SessionSeals {
        SessionSeals::new(&ClusterKey([3; 32]), b"hello", b"challenge")
    }

    #[test]
    fn both_ends_come_to_the_same_seals_in_the_same_order() {
        let (mut client, mut server) = (seals().to_server, seals().to_server);
        for frame in [&b"one"[..], b"", b"three"] {
            let seal = client.seal([frame]);
            let mut check = server.begin();
            check.update(frame);
            assert!(check.is(&seal));
        }
    }

    #[test]
    fn a_changed_repeated_or_returned_frame_has_another_seal() {
        let mut sender = seals().to_server;
        let first = sender.seal([&b"frame"[..]]);
        assert_ne!(sender.seal([&b"frame"[..]]), first, "the same frame again");
        assert_ne!(seals().to_server.seal([&b"Frame"[..]]), first);
        assert_ne!(seals().to_client.seal([&b"frame"[..]]), first, "sent back");
        let other = SessionSeals::new(&ClusterKey([3; 32]), b"hello", b"another challenge");
        assert_ne!(other.to_server.clone().seal([&b"frame"[..]]), first, "on another connection");
        assert_eq!(seals().to_server.seal([&b"fra"[..], b"me"]), first, "pieces are the bytes of one frame");
    }
}
