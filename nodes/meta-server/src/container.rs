//! What the flows around contents share: `contents.rs`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use bytes::Bytes;
use weft_base::Handle;
use weft_rt::{FileId, Signal};
use weft_wire::{Request, Rights};

/// The container of contents, as the flows of a server share it.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) file: Cell<Option<FileId>>,
    pub(crate) is_growing: Cell<bool>,
    pub(crate) is_releasing: Cell<bool>,
    /// A content waits.
    pub(crate) came: Signal,
    /// Contents were written.
    pub(crate) stored: Signal,
    /// Files that are being moved to data servers; true if these have no room.
    pub(crate) moving: RefCell<BTreeMap<Handle, bool>>,
}

/// A request that a content may stand in the way of.
pub(crate) enum Refused {
    /// This file must be out first.
    Move(Handle),
    /// This file is cut where it is, but if it is on its way out.
    Cut(Handle),
    /// There is no room for a content yet, or the file of this name must be out first.
    Create(Handle, Bytes),
}

impl Refused {
    /// What it would be about.
    pub(crate) fn of(request: &Request) -> Option<Refused> {
        match request {
            Request::Open(request) if request.truncate => Some(Refused::Cut(request.handle)),
            // Who reads it here waits for something else.
            Request::Open(request) if request.inline == Some(true) && !request.rights.contains(Rights::WRITE) => None,
            Request::Open(request) => Some(Refused::Move(request.handle)),
            Request::SetAttr(request) if request.size.is_some() => Some(Refused::Move(request.handle)),
            Request::Create(request) if request.content.is_some() || request.open != Rights::default() => {
                Some(Refused::Create(request.at.dir, request.name.clone()))
            }
            _ => None,
        }
    }
}

impl Contents {
    /// As an earlier life has left it.
    pub(crate) fn new(file: Option<FileId>) -> Contents {
        Contents { file: Cell::new(file), ..Contents::default() }
    }

    /// True if the datafiles of this file are being written by this server.
    pub(crate) fn is_moving(&self, handle: Handle) -> bool {
        self.moving.borrow().contains_key(&handle)
    }
}
