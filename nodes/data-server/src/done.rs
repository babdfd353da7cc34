//! What an operation has done: what to answer, and when.

use bytes::Bytes;
use weft_base::Payload;
use weft_journal::Lsn;
use weft_wire::{Frame, Header, Wire};

/// When an answer may leave, once the journal of its turn is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// When this change and its data are on stable storage.
    Durable(u64),
    /// When the journal is on stable storage up to this record.
    Journaled(Lsn),
}

/// A successful operation.
pub struct Done {
    pub body: Bytes,
    pub bulk: Payload,
    pub when: When,
}

impl Done {
    /// A reply that may leave at once.
    pub fn now(reply: &impl Wire) -> Done {
        Done::encoded(reply.to_bytes())
    }

    /// Bytes of bulk data that it gives.
    pub fn bulk_bytes(&self) -> u64 {
        self.bulk.len()
    }

    /// A reply that is encoded already.
    pub fn encoded(body: Bytes) -> Done {
        Done { body, bulk: Payload::EMPTY, when: When::Now }
    }

    /// The answer to a request with this header, and what it waits for.
    pub fn answer(self, header: &Header) -> (Frame, Option<When>) {
        (Frame::reply(header, Ok(self.body), self.bulk), Some(self.when).filter(|when| *when != When::Now))
    }
}
