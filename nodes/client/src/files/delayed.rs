//! Writes to a file that stay with this client until the file is closed: then all of it goes to the
//! server of its inode, with the close. What asks for more than that (it was there before, or grows
//! beyond what that server keeps, and cannot be gathered (`gathered.rs`), it is brought to stable
//! storage, others ask for it) brings it to data servers.
//!
//! ```text
//!   made ──▶ Here ── closed ──▶ Closing ── taken in ──▶ Nothing (it is inline)
//!             │ ▲                  │  │
//!   it grows, │ └── not heard ─────┘  │ not taken in
//!   is asked  ▼                       ▼
//!   back      Leaving ◀────────── Refused
//!             └── written ──▶ Nothing (it is at data servers), or to be closed soon:
//!                             Here, without its bytes, for attributes that follow
//! ```
//! Of a file that grows on, a part is sent while the rest is Here (`behind.rs`).

use weft_base::{Attr, Nanos, WallTime};
use weft_rt::Runtime;
use weft_wire::Rights;

use super::gathered_share::{Gathered, GatheredShare};
use super::kept::KeptAttributes;
use super::tail::Tail;
use crate::{Client, DelayWrites};

/// What of a file is with this client only.
#[derive(Debug, Default)]
pub(super) enum Delayed {
    #[default]
    Nothing,
    /// All that was written to it and is not at data servers.
    Here(Content),
    /// The same, on its way with a close, for which the gate of the file is held.
    Closing(Content),
    /// The same, on its way to data servers.
    Leaving(Content),
    /// The same, and it must go to data servers: others ask for the file, or the server of its
    /// inode does not take it in.
    Refused(Content),
}

#[derive(Debug)]
pub(super) struct Content {
    pub(super) tail: Tail,
    /// More does the server of the inode not keep.
    pub(super) inline_bytes: usize,
    /// So many are gathered and then sent; 0: what is more than that server keeps does not stay.
    pub(super) gather_bytes: usize,
    /// A close does not wait for that, if all of the file is here.
    leaves_later: bool,
    /// What is here of that.
    pub(super) share: GatheredShare,
    /// The bytes are at data servers; what is left are attributes, if any.
    pub(super) is_brought: bool,
    /// A close with its attributes was refused once.
    was_refused: bool,
    /// A close with all of it has ended without an answer: it may be with its server, so it changes
    /// no more.
    pub(super) is_in_doubt: bool,
    /// Its server shows that it has it, though no close was answered: others may have changed it.
    is_taken_in: bool,
    /// A time of it is being set at its server, or was: none that is shown counts as set here.
    sets_time: bool,
    /// The server takes such attributes with the close.
    pub(super) closes_with_attributes: bool,
    /// The epoch of the time of the last of these writes.
    pub(super) mtime_epoch: u32,
    /// The time of the server when the right was given, and of this client when it heard of it.
    pub(super) made: (WallTime, Nanos),
    /// In which session at its server this client hears when others ask for it.
    pub(super) session: u32,
    /// True if the server takes attributes that were changed meanwhile with the close.
    pub(super) keeps_attributes: bool,
    /// These attributes.
    pub(super) attributes: Option<KeptAttributes>,
}

/// The right to delay writes to a file, as its server has given it.
pub(super) struct DelayGranted {
    /// How many bytes it will keep; 0: all are for data servers, which may have some.
    pub(super) bytes: u32,
    /// The size of the file.
    pub(super) size: u64,
    pub(super) delays: DelayWrites,
    pub(super) leaves_later: bool,
    pub(super) keeps_attributes: bool,
    pub(super) closes_with_attributes: bool,
}

impl<R: Runtime> Client<R> {
    /// What is with this client of a file to which writes may be delayed: from when on by the
    /// clocks of its server and of this client, and in which session.
    pub(super) fn begin_content(&self, granted: &DelayGranted, made: (WallTime, Nanos), session: u32) -> Content {
        let DelayGranted { bytes, size, delays, leaves_later, keeps_attributes, closes_with_attributes } = *granted;
        let inline_bytes = bytes as usize;
        Content {
            tail: if bytes > 0 { Tail::since(made.1) } else { Tail::behind(made.1, size) },
            inline_bytes,
            gather_bytes: if delays == DelayWrites::Gathered { inline_bytes.max(self.options().gather_bytes) } else { 0 },
            leaves_later,
            share: Gathered::share(&self.inner.gathered),
            is_brought: false,
            was_refused: false,
            is_in_doubt: false,
            is_taken_in: false,
            sets_time: false,
            mtime_epoch: 0,
            made,
            session,
            keeps_attributes,
            closes_with_attributes,
            attributes: None,
        }
    }
}

impl Content {
    /// Its time is about to be set at its server.
    pub(super) fn begin_to_set_time(&mut self) {
        self.sets_time = true;
    }

    /// True if its time was, or is being, set at its server.
    pub(super) fn sets_time(&self) -> bool {
        self.sets_time
    }

    /// True the first time that a close with its attributes is refused.
    pub(super) fn is_refused_first(&mut self) -> bool {
        !std::mem::replace(&mut self.was_refused, true)
    }

    /// What is left when data servers have the bytes.
    pub(super) fn brought(self) -> Content {
        let share = self.share.of_nothing();
        Content { tail: self.tail.at_servers(), is_brought: true, share, ..self }
    }

    /// True if data servers have nothing of the file.
    pub(super) fn is_all(&self) -> bool {
        self.tail.whole().is_some()
    }

    /// True if a close need not wait for what was gathered, as long as data servers have room.
    pub(super) fn leaves_later(&self) -> bool {
        self.leaves_later && self.tail.whole().is_some_and(|whole| whole.len() <= self.gather_bytes)
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It stays here.
    Here,
    /// What is here must be sent first.
    Full,
    /// It goes to data servers as it is, and what follows may stay here.
    Through,
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

    /// On its way to data servers.
    pub(super) fn into_leaving(self) -> Delayed {
        match self {
            Delayed::Nothing => Delayed::Nothing,
            Delayed::Here(content) | Delayed::Closing(content) | Delayed::Leaving(content) | Delayed::Refused(content) => {
                Delayed::Leaving(content)
            }
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

    /// True if it is on its way to data servers, or should be before the file is closed.
    pub(super) fn is_leaving(&self) -> bool {
        match self {
            Delayed::Nothing | Delayed::Closing(_) => false,
            Delayed::Here(content) => content.is_gathered(),
            Delayed::Leaving(_) | Delayed::Refused(_) => true,
        }
    }

    /// The server of the inode says that there is something in the file, or was. True the first
    /// time if that is because it has taken in what is on its way with a close.
    pub(super) fn note_taken_in(&mut self) -> bool {
        let is_closing = matches!(self, Delayed::Closing(_));
        let may_be = |content: &&mut Content| (is_closing || content.is_in_doubt) && content.tail.whole().is_some();
        self.content_mut().filter(may_be).is_some_and(|content| !std::mem::replace(&mut content.is_taken_in, true))
    }

    /// The bytes of the file, if they are all with this client only.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        self.content().filter(|content| !content.is_brought && !content.is_taken_in)?.tail.whole()
    }
}
