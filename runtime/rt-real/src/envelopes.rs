//! The receiving end of an encrypted connection: from envelopes to what they hold.

use weft_base::Status;
use weft_wire::{AUTH_TAG_BYTES, Cipher, ENVELOPE_BYTES_MAX, LENGTH_BYTES};

/// Bytes that may stand behind the content of a buffer: the authentication tag of its last
/// envelope, and the length of the next one.
pub(crate) const BEHIND_BYTES: usize = AUTH_TAG_BYTES + LENGTH_BYTES;

/// Opens the envelopes of one direction.
#[derive(Debug)]
pub(crate) struct Envelopes {
    cipher: Cipher,
    /// Bytes of the envelope that is being received, with its tag; 0: its length comes first.
    awaited: usize,
}

/// What a buffer holds: content first, then a part of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Bytes of content.
    pub(crate) content: usize,
    /// Bytes of all.
    pub(crate) all: usize,
}

impl Envelopes {
    pub(crate) fn new(cipher: Cipher) -> Envelopes {
        Envelopes { cipher, awaited: 0 }
    }

    /// Opens what is complete of `buffer` behind its first `content` bytes, which are open already.
    ///
    /// # Errors
    /// [`Status::EnvelopeBroken`]: nothing that comes can be believed.
    pub(crate) fn open(&mut self, buffer: &mut [u8], content: usize) -> Result<Opened, Status> {
        let (mut content, mut at) = (content, content);
        loop {
            if self.awaited == 0 {
                let Some(length) = buffer[at..].first_chunk() else { break };
                let length = u32::from_le_bytes(*length) as usize;
                if !(1..=ENVELOPE_BYTES_MAX).contains(&length) {
                    return Err(Status::EnvelopeBroken);
                }
                self.awaited = length + AUTH_TAG_BYTES;
                at += LENGTH_BYTES;
            }
            let end = at + self.awaited;
            if buffer.len() < end {
                break;
            }
            content += self.cipher.open(&mut buffer[content..end], at - content)?;
            (at, self.awaited) = (end, 0);
        }
        let rest = buffer.len() - at;
        buffer.copy_within(at.., content);
        Ok(Opened { content, all: content + rest })
    }

    /// Bytes that an envelope still lacks of which `here` bytes have come; of one whose length is
    /// not known, those of the length.
    pub(crate) fn missing(&self, here: usize) -> usize {
        self.awaited.max(LENGTH_BYTES).saturating_sub(here)
    }

    /// Bytes of content of the envelope that is being received, if its length is known.
    pub(crate) fn next_content(&self) -> Option<usize> {
        self.awaited.checked_sub(AUTH_TAG_BYTES)
    }
}
