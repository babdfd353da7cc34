//! What was asked and what was answered: the record of one run, as the checkers read it.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use weft_base::{Attr, FileKind, Handle, Nanos, Status, WallTime};
use weft_client::Fallocate;

/// One of a few names, so that clients meet. Name 0 is `a`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub u8);

impl Name {
    /// The bytes of the name.
    pub fn bytes(self) -> Bytes {
        Bytes::copy_from_slice(&[b'a' + self.0])
    }

    /// The name with these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Name> {
        match bytes {
            [letter @ b'a'..=b'z'] => Some(Name(letter - b'a')),
            _ => None,
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", char::from(b'a' + self.0))
    }
}

/// How a rename treats an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Fail.
    NoReplace,
    /// Swap both.
    Exchange,
}

/// One operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make and open a file, or open the existing one.
    Create {
        /// Directory.
        dir: Handle,
        /// Name in it.
        name: Name,
        /// Fail if it exists.
        exclusive: bool,
        /// Cut an existing file to nothing.
        truncate: bool,
    },
    /// Make a pipe: an inode without data.
    Mknod {
        /// Directory.
        dir: Handle,
        /// Name in it.
        name: Name,
    },
    /// Make a symbolic link.
    Symlink {
        /// Directory.
        dir: Handle,
        /// Name in it.
        name: Name,
        /// Its target is so many letters long.
        target: u8,
    },
    /// Make a directory.
    Mkdir {
        /// Directory.
        dir: Handle,
        /// Name in it.
        name: Name,
    },
    /// Remove a name that leads to no directory.
    Unlink {
        /// Directory.
        dir: Handle,
        /// Name in it.
        name: Name,
    },
    /// Remove an empty directory.
    Rmdir {
        /// Directory.
        dir: Handle,
        /// Name in it.
        name: Name,
    },
    /// Move a name.
    Rename {
        /// Old directory.
        from_dir: Handle,
        /// Old name.
        from: Name,
        /// New directory.
        to_dir: Handle,
        /// New name.
        to: Name,
        /// What about an existing target?
        mode: RenameMode,
    },
    /// Add a name.
    Link {
        /// The object.
        handle: Handle,
        /// What it is.
        kind: FileKind,
        /// Directory of the new name.
        dir: Handle,
        /// The new name.
        name: Name,
    },
    /// What does the name lead to?
    LookupHandle {
        /// Directory.
        dir: Handle,
        /// Name in it.
        name: Name,
    },
    /// The same with attributes.
    Lookup {
        /// Directory.
        dir: Handle,
        /// Name in it.
        name: Name,
    },
    /// Attributes.
    GetAttr {
        /// The object.
        handle: Handle,
        /// The client has it open.
        held: bool,
    },
    /// All entries, in one request or in pages.
    ReadDir {
        /// The directory.
        dir: Handle,
        /// Everything came in one reply, so it must be the state of one instant.
        one_page: bool,
    },
    /// Target of a symbolic link.
    Readlink {
        /// The object.
        handle: Handle,
    },
    /// Change permission bits.
    SetMode {
        /// The object.
        handle: Handle,
        /// The bits.
        mode: u32,
    },
    /// Set the time of the last change of the data.
    SetTime {
        /// The file.
        handle: Handle,
        /// Which of the times that histories set ([`Time::Set`]).
        time: u16,
    },
    /// Truncate or extend.
    SetSize {
        /// The file.
        handle: Handle,
        /// Bytes.
        size: u64,
    },
    /// Set the one extended attribute that histories use.
    SetXattr {
        /// The object.
        handle: Handle,
        /// Its value.
        value: u8,
    },
    /// Its value.
    GetXattr {
        /// The object.
        handle: Handle,
    },
    /// Remove it.
    RemoveXattr {
        /// The object.
        handle: Handle,
    },
    /// Open for reading and writing.
    Open {
        /// The file.
        handle: Handle,
    },
    /// Close what the client has open.
    Close {
        /// The file.
        handle: Handle,
    },
    /// Write bytes that are all `tag`.
    Write {
        /// The file, open.
        handle: Handle,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Value of every byte; no two writes of a history share it with the same file.
        tag: u8,
    },
    /// The file becomes so many bytes, all of them `tag`.
    Content {
        /// The file; 0 if nobody was told which.
        handle: Handle,
        /// Number of bytes.
        len: u64,
        /// Value of every byte; no other content or write of a history has it.
        tag: u8,
        /// As one; else it is perhaps cut to nothing before.
        at_once: bool,
    },
    /// Reserve, zero or give back bytes.
    Allocate {
        /// The file, open.
        handle: Handle,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// What of it.
        how: Fallocate,
    },
    /// Read.
    Read {
        /// The file, open.
        handle: Handle,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Bring a file to stable storage.
    Fsync {
        /// The file, open.
        handle: Handle,
    },
    /// Bring all metadata of all servers to stable storage (recorded by the run itself).
    SyncAll,
}

/// Attributes as far as histories compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The object.
    pub handle: Handle,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Bytes, or entries of a directory.
    pub size: u64,
    /// Last change of the data.
    pub mtime: Time,
}

/// A time as far as histories compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// One that somebody has set. Half of them lie far in the past, half far in the future.
    Set(u16),
    /// Of a clock.
    Clock(WallTime),
}

/// A time that histories set lies so many seconds from 1970 or from [`FUTURE_S`].
const SET_S_MAX: i64 = 1 << 16;
/// 2100.
const FUTURE_S: i64 = 4_102_444_800;

impl Time {
    /// The time that number `set` stands for.
    pub fn of_set(set: u16) -> WallTime {
        let base = if set.is_multiple_of(2) { 0 } else { FUTURE_S };
        WallTime::from_parts(base + i64::from(set), 0)
    }

    fn of(time: WallTime) -> Time {
        match time.parts().0 {
            past @ 0..SET_S_MAX => Time::Set(past as u16),
            future if (FUTURE_S..FUTURE_S + SET_S_MAX).contains(&future) => Time::Set((future - FUTURE_S) as u16),
            _ => Time::Clock(time),
        }
    }
}

impl From<&Attr> for Seen {
    fn from(attr: &Attr) -> Seen {
        Seen {
            handle: attr.handle,
            kind: attr.kind,
            mode: attr.permissions(),
            nlink: attr.nlink,
            size: attr.size,
            mtime: Time::of(attr.mtime),
        }
    }
}

/// What a successful operation answered.
#[derive(Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    Nothing,
    /// Attributes.
    Attr(Seen),
    /// Attributes, and whether the object is new.
    Created(Seen, bool),
    /// An object.
    Object(Handle, FileKind),
    /// Entries in the order of the listing.
    Listing(Vec<(Name, Handle, FileKind)>),
    /// Length of a target, or an extended attribute.
    Number(u64),
    /// What was read; shorter than asked only at the end of the file.
    Data(Vec<u8>),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Nothing => f.write_str("done"),
            Answer::Attr(seen) => fmt_seen(f, seen),
            Answer::Created(seen, new) => {
                f.write_str(if *new { "new " } else { "existing " })?;
                fmt_seen(f, seen)
            }
            Answer::Object(handle, kind) => write!(f, "{handle} {kind:?}"),
            Answer::Listing(entries) => f.debug_list().entries(entries).finish(),
            Answer::Number(number) => write!(f, "{number}"),
            Answer::Data(data) => write!(f, "{} bytes {:?}", data.len(), Runs(data)),
        }
    }
}

fn fmt_seen(f: &mut fmt::Formatter<'_>, seen: &Seen) -> fmt::Result {
    write!(f, "{} {:?} mode {:o} nlink {} size {} mtime {:?}", seen.handle, seen.kind, seen.mode, seen.nlink, seen.size, seen.mtime)
}

/// Bytes written as runs: `7*4096 0*10`.
struct Runs<'a>(&'a [u8]);

impl fmt::Debug for Runs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for run in self.0.chunk_by(|a, b| a == b) {
            write!(f, "{}*{} ", run[0], run.len())?;
        }
        Ok(())
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Successfully.
    Done(Answer),
    /// Definitely refused.
    Failed(Status),
    /// The client gave up: it may have happened, may happen yet, or never.
    Unknown(Status),
    /// Not yet.
    Running,
}

/// One operation in a history.
#[derive(Clone, Debug)]
pub struct Event {
    /// Who.
    pub client: usize,
    /// What.
    pub action: Action,
    /// How it ended.
    pub outcome: Outcome,
    /// Position of its beginning in the order of all beginnings and ends.
    pub begin: u64,
    /// Position of its end; `u64::MAX` if it never ended for sure.
    pub end: u64,
    /// When it began in virtual time.
    pub begin_at: Nanos,
    /// When it ended in virtual time.
    pub end_at: Nanos,
}

/// The record of one run.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub(crate) events: Vec<Event>,
    clock: u64,
    /// Names of a directory are with several servers: all of them are asked what it is like.
    pub splits: bool,
    /// Clients with leases may delay what they write to new files.
    pub delays: bool,
    /// Clients and files that they made and did not close: what they wrote may be lost with them.
    pub(crate) lost: BTreeSet<(usize, Handle)>,
}

impl History {
    /// An empty one.
    pub fn new() -> History {
        History::default()
    }

    /// An operation begins. Gives its number for [`History::end`].
    pub fn begin(&mut self, client: usize, action: Action, now: Nanos) -> usize {
        self.clock += 1;
        self.events.push(Event {
            client,
            action,
            outcome: Outcome::Running,
            begin: self.clock,
            end: u64::MAX,
            begin_at: now,
            end_at: Nanos::NEVER,
        });
        self.events.len() - 1
    }

    /// An operation ends.
    pub fn end(&mut self, number: usize, outcome: Outcome, now: Nanos) {
        self.clock += 1;
        let event = &mut self.events[number];
        if !matches!(outcome, Outcome::Unknown(_)) {
            event.end = self.clock;
        }
        if let (true, Action::Close { handle } | Action::Fsync { handle } | Action::Write { handle, .. }) = (self.delays, &event.action)
            && !matches!(outcome, Outcome::Done(_))
        {
            self.lost.insert((event.client, *handle));
        }
        event.outcome = outcome;
        event.end_at = now;
    }

    /// Refines an operation that has not ended by what was learned meanwhile.
    pub fn amend(&mut self, number: usize, amend: impl FnOnce(&mut Action)) {
        amend(&mut self.events[number].action);
    }

    /// Position in the order of beginnings and ends.
    pub fn now(&self) -> u64 {
        self.clock
    }

    /// All operations in the order of their beginnings.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, event) in self.events.iter().enumerate() {
            let end = if event.end == u64::MAX { "  ?".to_string() } else { format!("{:3}", event.end) };
            writeln!(
                f,
                "#{number:<3} [{:3},{end}] {:?}..{:?} client {} {:?} -> {:?}",
                event.begin, event.begin_at, event.end_at, event.client, event.action, event.outcome
            )?;
        }
        Ok(())
    }
}
