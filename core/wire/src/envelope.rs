//! Envelopes: what travels on an encrypted connection in place of bare frames. Each holds the next
//! bytes of one direction, encrypted with AES-256-GCM under a key of this connection and direction,
//! and an authentication tag. An envelope that was changed, put in, left out, repeated or moved
//! cannot be opened, since its number is the nonce.

use std::io::IoSlice;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use weft_base::{Result, Status};

use crate::ClusterKey;
use crate::exchange::SharedSecret;

/// Most bytes that are encrypted in one envelope.
pub const ENVELOPE_BYTES_MAX: usize = 64 << 10;
/// Bytes of the length at the beginning of an envelope.
pub const LENGTH_BYTES: usize = 4;
/// Bytes of the authentication tag at its end.
pub const AUTH_TAG_BYTES: usize = 16;
/// Envelopes that are made under one key; then the next key follows from it.
const ENVELOPES_PER_KEY: u64 = 1 << 24;

/// The envelopes of one direction of a connection, in their order.
pub struct Cipher {
    secret: ClusterKey,
    key: LessSafeKey,
    /// Envelopes until now.
    count: u64,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cipher({} envelopes)", self.count)
    }
}

/// What encrypts a connection.
#[derive(Debug)]
pub struct SessionCiphers {
    /// What the client says.
    pub to_server: Cipher,
    /// What the server says.
    pub to_client: Cipher,
}

impl SessionCiphers {
    /// Of the connection that was made with this key and these messages, and where both sides have
    /// come to a secret by [exchange](crate::KeyPair), with that. Then the long-term key alone
    /// opens nothing: it only extracts (RFC 5869, section 2.2, with the long-term key as salt).
    pub(crate) fn new(key: &ClusterKey, shared: Option<&SharedSecret>, hello: &[u8], challenge: &[u8]) -> SessionCiphers {
        let extracted = shared.map(|SharedSecret(shared)| ClusterKey(key.mac(b"weft exchange", &[shared, hello, challenge])));
        let key = extracted.as_ref().unwrap_or(key);
        let cipher = |label: &[u8]| Cipher::new(ClusterKey(key.mac(label, &[hello, challenge])));
        SessionCiphers { to_server: cipher(b"weft to server"), to_client: cipher(b"weft to client") }
    }
}

impl Cipher {
    fn new(secret: ClusterKey) -> Cipher {
        Cipher { key: Cipher::keyed(&secret), secret, count: 0 }
    }

    fn keyed(secret: &ClusterKey) -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &secret.0).expect("a key of AES-256 has 32 bytes"))
    }

    /// The nonce of the next envelope: none is used twice under one key.
    fn next(&mut self) -> Nonce {
        if self.count > 0 && self.count.is_multiple_of(ENVELOPES_PER_KEY) {
            self.secret = ClusterKey(self.secret.mac(b"weft next key", &[]));
            self.key = Cipher::keyed(&self.secret);
        }
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.count.to_le_bytes());
        self.count += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Appends an envelope with the first bytes of these pieces, as many as fit into one, and takes
    /// them off the pieces.
    pub fn encrypt(&mut self, pieces: &mut &mut [IoSlice<'_>], out: &mut Vec<u8>) {
        let start = out.len() + LENGTH_BYTES;
        out.extend_from_slice(&[0; LENGTH_BYTES]);
        for piece in pieces.iter() {
            let room = ENVELOPE_BYTES_MAX - (out.len() - start);
            out.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let content = out.len() - start;
        IoSlice::advance_slices(pieces, content);
        out[start - LENGTH_BYTES..start].copy_from_slice(&(content as u32).to_le_bytes());
        let nonce = self.next();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut out[start..]);
        out.extend_from_slice(tag.expect("an envelope is much shorter than AES-GCM can encrypt").as_ref());
    }

    /// Opens the next envelope: of `bytes`, those from `from` on, without its length. Its content
    /// is at the beginning of `bytes` then; how much it is.
    ///
    /// # Errors
    /// [`Status::EnvelopeBroken`] if it is not the next one of this direction. Its bytes are lost.
    pub fn open(&mut self, bytes: &mut [u8], from: usize) -> Result<usize> {
        let nonce = self.next();
        self.key.open_within(nonce, Aad::empty(), bytes, from..).map(|content| content.len()).map_err(|_| Status::EnvelopeBroken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ciphers() -> SessionCiphers {
        SessionCiphers::new(&ClusterKey([3; 32]), None, b"hello", b"challenge")
    }

    fn encrypted(cipher: &mut Cipher, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        cipher.encrypt(&mut &mut [IoSlice::new(content)][..], &mut out);
        out
    }

    fn opened(cipher: &mut Cipher, envelope: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = envelope.to_vec();
        let len = cipher.open(&mut bytes, LENGTH_BYTES)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    #[test]
    fn what_one_end_encrypts_the_other_one_opens_in_the_same_order() {
        let (mut client, mut server) = (ciphers().to_server, ciphers().to_server);
        for content in [&b"one"[..], b"two", &[7; ENVELOPE_BYTES_MAX]] {
            let envelope = encrypted(&mut client, content);
            assert_eq!(envelope.len(), LENGTH_BYTES + content.len() + AUTH_TAG_BYTES);
            assert!(!envelope.windows(3).any(|bytes| bytes == &content[..3]), "it is encrypted");
            assert_eq!(opened(&mut server, &envelope).as_deref(), Ok(content));
        }
    }

    #[test]
    fn pieces_fill_envelopes_one_after_another() {
        let (mut client, mut server) = (ciphers().to_server, ciphers().to_server);
        let parts = [vec![1; ENVELOPE_BYTES_MAX - 1], vec![], vec![2; 3]];
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut pieces = &mut slices[..];
        let mut content = Vec::new();
        let mut count = 0;
        while !pieces.is_empty() {
            let mut envelope = Vec::new();
            client.encrypt(&mut pieces, &mut envelope);
            content.extend(opened(&mut server, &envelope).unwrap());
            count += 1;
        }
        assert!(content == parts.concat() && count == 2);
    }

    #[test]
    fn a_changed_repeated_moved_or_returned_envelope_is_not_opened() {
        let mut sender = ciphers().to_server;
        let (first, second) = (encrypted(&mut sender, b"frame"), encrypted(&mut sender, b"frame"));
        assert_ne!(first, second, "the same bytes again");
        let refused = Err(Status::EnvelopeBroken);
        for at in LENGTH_BYTES..first.len() {
            let mut changed = first.clone();
            changed[at] ^= 1;
            assert_eq!(opened(&mut ciphers().to_server, &changed), refused, "byte {at}");
        }
        assert_eq!(opened(&mut ciphers().to_server, &first[..first.len() - 1]), refused, "cut off");
        assert_eq!(opened(&mut ciphers().to_server, &second), refused, "the first is missing");
        assert_eq!(opened(&mut ciphers().to_client, &first), refused, "sent back");
        let mut receiver = ciphers().to_server;
        assert!(opened(&mut receiver, &first).is_ok());
        assert_eq!(opened(&mut receiver, &first), refused, "repeated");
        let mut other = SessionCiphers::new(&ClusterKey([3; 32]), None, b"hello", b"another challenge");
        assert_eq!(opened(&mut other.to_server, &first), refused, "on another connection");
    }

    #[test]
    fn both_ends_go_on_to_the_next_key_together() {
        let (mut client, mut server) = (ciphers().to_server, ciphers().to_server);
        let first = client.secret.clone();
        (client.count, server.count) = (ENVELOPES_PER_KEY - 1, ENVELOPES_PER_KEY - 1);
        for _ in 0..3 {
            let envelope = encrypted(&mut client, b"frame");
            assert!(opened(&mut server, &envelope).is_ok());
        }
        assert!(client.secret != first && client.secret == server.secret);
    }
}
