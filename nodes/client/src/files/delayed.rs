//! Writes to a new file that stay with this client until the file is closed: then all of it goes to
//! the server of its inode, with the close. What asks for more than that (it grows beyond what that
//! server keeps, it is brought to stable storage, others ask for it) brings it to data servers.
//!
//! ```text
//!   made ──▶ Here ── closed ──▶ Closing ── taken in ──▶ Nothing (it is inline)
//!             │ ▲                  │  │
//!   it grows, │ └── not heard ─────┘  │ not taken in
//!   is asked  ▼                       ▼
//!   back      Leaving ◀────────── Refused
//!             └── written ──▶ Nothing (it is at data servers)
//! ```

use bytes::BytesMut;
use weft_base::{Attr, Nanos, WallTime};
use weft_wire::Rights;

use super::kept::KeptAttributes;

/// What of a file is with this client only.
#[derive(Debug, Default)]
pub(super) enum Delayed {
    #[default]
    Nothing,
    /// All that was written to it.
    Here(Content),
    /// The same, on its way with a close, for which the gate of the file is held.
    Closing(Content),
    /// The same, on its way to data servers.
    Leaving(Content),
    /// The same, and it must go to data servers: others ask for the file, or the server of its
    /// inode does not take it in.
    Refused(Content),
}

#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) bytes: BytesMut,
    /// More do not stay here.
    pub(super) bytes_max: usize,
    /// The epoch of the time of the last of these writes.
    pub(super) mtime_epoch: u32,
    /// The time of the server when the file was made, and of this client when it heard of it.
    pub(super) made: (WallTime, Nanos),
    /// In which session at its server this client hears when others ask for it.
    pub(super) session: u32,
    /// The server was told again of what the close on its way gives back.
    pub(super) is_told_again: bool,
    /// True if the server takes attributes that were changed meanwhile with the close.
    pub(super) keeps_attributes: bool,
    /// These attributes.
    pub(super) attributes: Option<KeptAttributes>,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It stays here.
    Here,
    /// What is here must leave first.
    TooMuch,
    /// Nothing is here: it is for data servers.
    No,
}

impl Delayed {
    pub(super) fn content(&self) -> Option<&Content> {
        match self {
            Delayed::Nothing => None,
            Delayed::Here(content) | Delayed::Closing(content) | Delayed::Leaving(content) | Delayed::Refused(content) => Some(content),
        }
    }

    /// Corrects what the server knows of attributes.
    pub(super) fn show_attributes(&self, attr: &mut Attr) {
        if let Some(attributes) = self.content().and_then(|content| content.attributes) {
            attributes.show(attr);
        }
    }

    pub(super) fn content_mut(&mut self) -> Option<&mut Content> {
        match self {
            Delayed::Nothing => None,
            Delayed::Here(content) | Delayed::Closing(content) | Delayed::Leaving(content) | Delayed::Refused(content) => Some(content),
        }
    }

    /// True if more may be kept here as long as the file is open for writing.
    pub(super) fn needs_right(&self) -> bool {
        matches!(self, Delayed::Here(_) | Delayed::Closing(_) | Delayed::Leaving(_))
    }

    /// What a close that is on its way has to find at its server: nothing but that is not told
    /// again.
    pub(super) fn rights_on_the_way(&self) -> Rights {
        match self {
            Delayed::Closing(_) => Rights::WRITE.with(Rights::DELAY),
            _ => Rights::default(),
        }
    }

    /// True if it may go with a close, or does.
    pub(super) fn may_close(&self) -> bool {
        matches!(self, Delayed::Here(_) | Delayed::Closing(_))
    }

    /// True if it is on its way to data servers, or should be.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self, Delayed::Leaving(_) | Delayed::Refused(_))
    }
}
