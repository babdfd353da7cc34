//! Leases: what clients may believe until they hear otherwise (`weft-lease`).

use bytes::Bytes;
use weft_base::Handle;

use crate::{wire_for_variants, wire_struct};

wire_struct! {
    /// A client that keeps what it is told says so, and waits for notices.
    pub struct NoticesRequest {
        /// The number of its session; 0: it has none, and believes nothing.
        pub session: u32,
        /// The newest notice that it has heard in this session.
        pub heard: u64,
        /// It leaves, and believes nothing any more. Answered at once.
        pub leaves: bool,
    }

    /// Comes when there is something to hear, at the latest after a third of the term.
    pub struct NoticesReply {
        /// The number of the session. Another one than in the request: it has just begun, and the
        /// client believes nothing that it was told before.
        pub session: u32,
        /// So long after the request was sent the client may believe what it was told, in
        /// milliseconds.
        pub term_ms: u32,
        /// The number of the newest notice.
        pub newest: u64,
        /// Those that it has not said to have heard.
        pub notices: Vec<LeaseNotice>,
    }
}

/// What a client must not believe any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseNotice {
    /// What it was told of this name, and the attributes of its directory.
    Name {
        /// The directory.
        dir: Handle,
        /// The name.
        name: Bytes,
    },
    /// The attributes of this object.
    Object {
        /// The object.
        handle: Handle,
    },
    /// All that it was told of this directory, of names in it and of what they lead to.
    Directory {
        /// The directory.
        dir: Handle,
    },
    /// All that it was told.
    Everything {},
    /// That it is alone when it appends to this file: others want to write to it, and wait until it
    /// keeps the right to append no longer.
    Append {
        /// The file.
        handle: Handle,
    },
    /// That it may make files in this directory without asking: others ask for it, and wait until
    /// it was given back.
    Delegation {
        /// The directory.
        dir: Handle,
    },
}

wire_for_variants! {
    LeaseNotice {
        1 Name { dir, name }
        2 Object { handle }
        3 Directory { dir }
        4 Everything {}
        5 Append { handle }
        6 Delegation { dir }
    }
}
