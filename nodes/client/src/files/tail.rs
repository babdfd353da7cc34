//! What of a new file is still here, byte by byte (`delayed.rs`).

use bytes::{Bytes, BytesMut};
use weft_base::Nanos;

/// The end of a new file: what data servers do not have of it, or not yet.
#[derive(Debug, Default)]
pub(super) struct Tail {
    pub(super) bytes: BytesMut,
    /// Where these begin in the file.
    pub(super) start: u64,
    /// The bytes before them, on their way to data servers, which have what is before.
    pub(super) sent: Bytes,
    /// When the first of the bytes can have been written.
    pub(super) since: Nanos,
}

impl Tail {
    /// Takes bytes that begin at this place of the file: not before these, nor behind their end.
    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = (at - self.start) as usize;
        let (over, behind) = bytes.split_at(bytes.len().min(self.bytes.len() - at));
        self.bytes[at..at + over.len()].copy_from_slice(over);
        self.bytes.extend_from_slice(behind);
    }

    /// True if data servers have all there is.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.sent.is_empty()
    }

    /// All bytes are on their way from now on.
    pub(super) fn send(&mut self, now: Nanos) -> Bytes {
        self.sent = self.bytes.split().freeze();
        self.start += self.sent.len() as u64;
        self.since = now;
        self.sent.clone()
    }

    /// They are not, or not any more.
    pub(super) fn take_back(&mut self) {
        if !self.sent.is_empty() {
            let sent = std::mem::take(&mut self.sent);
            self.start -= sent.len() as u64;
            let mut bytes = BytesMut::from(sent);
            bytes.extend_from_slice(&self.bytes);
            self.bytes = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_put_sent_and_taken_back_in_their_places() {
        let mut tail = Tail::default();
        tail.put(0, b"abcd");
        tail.put(2, b"CDEF");
        assert_eq!(&tail.send(Nanos(1))[..], b"abCDEF");
        tail.put(6, b"ghi");
        assert_eq!((tail.start, &tail.bytes[..], tail.since), (6, &b"ghi"[..], Nanos(1)));
        tail.take_back();
        tail.take_back();
        assert_eq!((tail.start, &tail.bytes[..], tail.sent.len()), (0, &b"abCDEFghi"[..], 0));
        // What is sent next begins where the last part ended.
        tail.send(Nanos(2));
        tail.sent = Bytes::new();
        tail.put(9, b"j");
        tail.put(9, b"JK");
        assert_eq!((&tail.send(Nanos(3))[..], tail.start), (&b"JK"[..], 11));
    }
}
