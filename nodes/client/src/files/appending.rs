//! How a client appends. If it alone has a file open for writing it knows the size, and an append
//! is one message. When others want to write to it, too, the server has it told, and it appends
//! under a lock of the server from then on.
//!
//! ```text
//!                an open with the right to append is granted
//!   Shared ──────────────────────────────────────────────────────▶ Alone
//!     ▲  ▲                                                          │  │
//!     │  └─── others want to write, or nobody here writes any more ─┘  │
//!     │                                                                ▼ the server has restarted
//!     └───────────────── refused: others write ───────────────────── Unsure ── granted ──▶ Alone
//! ```

use weft_base::{Nanos, SECOND};

/// A client that is not alone asks after so many nanoseconds whether it is.
pub(super) const AGAIN_NS: u64 = SECOND;

/// How a client appends to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appending {
    /// Under a lock; from this time on it may ask whether it is alone.
    Shared(Nanos),
    /// Nobody else has the file open for writing.
    Alone,
    /// Nobody else had, before the server has restarted or given this client up.
    Unsure,
}

impl Default for Appending {
    fn default() -> Appending {
        Appending::Shared(Nanos(0))
    }
}
