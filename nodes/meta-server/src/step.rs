//! How requests and prepared parts go on.
//!
//! A prepared part at its participant:
//! ```text
//! TxPrepare ──▶ Waits ── no decision for long ──▶ Asks ──▶ TxStatus answered ──▶ (gone)
//! restart ──▶ Recovered ──────── at once ─────────▲ │                              ▲
//!                 Waits ◀── no answer, or undecided ─┘      TxDecide, in any state ─┘
//! ```

use bytes::Bytes;
use weft_base::Nanos;
use weft_journal::Lsn;

/// How a request goes on.
pub(crate) enum Step {
    /// This is the answer; so many records were changed, or looked at for a list.
    Answer(Bytes, usize),
    /// This is the answer when the record survives a power cut, as far as that is promised.
    WhenDurable(Bytes, Lsn),
    /// A flow will answer.
    Later,
}

/// What a participant does about a prepared part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// From before a restart: it asks at once.
    Recovered,
    /// The decision should come.
    Waits { since: Nanos },
    /// Its coordinator is being asked.
    Asks,
}
