//! What this client has done in directories that are delegated to it and not told of, for each
//! server in the order in which it was done, and how it is told.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_base::{Credentials, Handle};
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
    pub(super) done: Done,
}

#[derive(Clone, Debug)]
pub(super) enum Done {
    /// It has made a file.
    File(NewFile, Arc<OpenInode>),
    /// It has made a directory.
    Directory(NewFile),
    /// It has set these.
    Attributes(NewAttributes),
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
    let (mut to_data, mut directories, mut attributes) = (Vec::new(), Vec::new(), Vec::new());
    for Absorbed { dir, who, done } in done {
        let new = match done {
            Done::Attributes(set) => {
                attributes.push(NewAttributes { position, ..set.clone() });
                continue;
            }
            Done::Directory(new) => {
                directories.push(position);
                new
            }
            Done::File(new, inode) => {
                to_data.extend(inode.wants_capability().then_some(position));
                new
            }
        };
        match groups.last_mut().filter(|group| group.dir == *dir && group.who == *who) {
            Some(group) => group.files.push(new.clone()),
            None => groups.push(NewFiles { dir: *dir, who: who.clone(), files: vec![new.clone()] }),
        }
        position += 1;
    }
    CreateManyRequest {
        groups,
        returned: Vec::new(),
        wants_handles: false,
        to_data: (!to_data.is_empty()).then(|| to_data.into()),
        directories: (!directories.is_empty()).then(|| directories.into()),
        attributes: (!attributes.is_empty()).then_some(attributes),
    }
}
