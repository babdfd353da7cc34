//! What this client has done in directories that are delegated to it and not told of, for each
//! server in the order in which it was done, and how it is told.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, Layout, Nanos, WallTime};
use weft_wire::Rights;
use weft_wire::ops::{CreateManyRequest, HandleRange, NewAttributes, NewFile, NewFiles};

use super::open_inode::OpenInode;
use crate::gate::Gate;

/// What one server has to be told.
#[derive(Debug, Default)]
pub(super) struct Untold {
    /// In the order in which it was done.
    pub(super) done: VecDeque<Absorbed>,
    /// So many of them the server may have been told already.
    pub(super) sent: usize,
    /// Directories that are given back.
    pub(super) returned: Vec<Handle>,
    /// So many of them the server may have been told already.
    pub(super) returned_sent: usize,
    pub(super) handles: VecDeque<HandleRange>,
    /// A create asks for more handles.
    pub(super) create_asks: bool,
    /// What the server is told asks for more handles.
    pub(super) telling_asks: bool,
    /// What was told, with returns, ever, and what there was.
    pub(super) told: u64,
    pub(super) all: u64,
    /// Held by whoever tells.
    pub(super) turn: Arc<Gate>,
}

/// What this client has done in a directory, or with it, of which its server does not know yet.
#[derive(Clone, Debug)]
pub(super) struct Absorbed {
    pub(super) dir: Handle,
    pub(super) who: Credentials,
    /// By the clock of this client.
    pub(super) since: Nanos,
    pub(super) done: Done,
}

#[derive(Clone, Debug)]
pub(super) enum Done {
    /// It has made a file.
    File(NewFile, Arc<OpenInode>),
    /// It has made a directory.
    Directory(NewFile),
    /// It has removed a name.
    Removed(Removed),
    /// It has set these.
    Attributes(NewAttributes),
}

/// A name that leads to nothing any more.
#[derive(Clone, Debug)]
pub(super) struct Removed {
    pub(super) name: Bytes,
    /// What it led to.
    pub(super) handle: Handle,
    pub(super) kind: FileKind,
    /// By the clock of the server.
    pub(super) at: WallTime,
}

/// What a server is told with one message.
pub(super) struct Batch {
    pub(super) request: CreateManyRequest,
    pub(super) done: Vec<Absorbed>,
}

impl Untold {
    pub(super) fn owes(&self) -> bool {
        !self.done.is_empty() || !self.returned.is_empty()
    }

    /// How much it has been told when it knows all that was done by then. Directories that are
    /// given back wait for nothing.
    pub(super) fn told_when(&self, done_by: Nanos) -> u64 {
        let older = self.done.iter().take_while(|absorbed| absorbed.since <= done_by).count();
        if older == self.done.len() || !self.returned.is_empty() { self.all } else { self.told + older as u64 }
    }

    pub(super) fn handles_left(&self) -> u32 {
        self.handles.iter().map(|range| range.count).sum()
    }

    /// The first handle that is left is one less.
    pub(super) fn use_handle(&mut self) {
        while let Some(range) = self.handles.front_mut() {
            if range.count > 0 {
                range.first = Handle(range.first.0 + 1);
                range.count -= 1;
                return;
            }
            self.handles.pop_front();
        }
    }
}

/// How a server is told of these, at most [`CREATES_MAX`].
pub(super) fn told_of(done: &[Absorbed]) -> CreateManyRequest {
    let (mut groups, mut position): (Vec<NewFiles>, u8) = (Vec::new(), 0);
    let (mut to_data, mut directories, mut removed, mut attributes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for Absorbed { dir, who, done, .. } in done {
        let new = match done {
            Done::Attributes(set) => {
                attributes.push(NewAttributes { position, ..set.clone() });
                continue;
            }
            Done::Directory(new) => {
                directories.push(position);
                new.clone()
            }
            Done::Removed(gone) => {
                removed.push(position);
                as_file(gone)
            }
            Done::File(new, inode) => {
                to_data.extend(inode.wants_capability().then_some(position));
                new.clone()
            }
        };
        match groups.last_mut().filter(|group| group.dir == *dir && group.who == *who) {
            Some(group) => group.files.push(new),
            None => groups.push(NewFiles { dir: *dir, who: who.clone(), files: vec![new] }),
        }
        position += 1;
    }
    CreateManyRequest {
        groups,
        returned: Vec::new(),
        wants_handles: false,
        to_data: (!to_data.is_empty()).then(|| to_data.into()),
        directories: (!directories.is_empty()).then(|| directories.into()),
        removed: (!removed.is_empty()).then(|| removed.into()),
        attributes: (!attributes.is_empty()).then_some(attributes),
    }
}

/// The rest does not count, but must be valid.
pub(super) fn as_file(Removed { name, handle, at, .. }: &Removed) -> NewFile {
    NewFile {
        name: name.clone(),
        handle: *handle,
        mode: 0,
        open: Rights::default(),
        open_sequence: 0,
        delays: false,
        made_at: *at,
        named_at: *at,
        layout: Layout { stripe_bytes: 1, width: 1, first: 0, generation: 0 },
    }
}
