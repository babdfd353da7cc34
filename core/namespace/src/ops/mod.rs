//! The operations, one file each: what must hold, and what changes.

use bytes::Bytes;
use weft_base::Result;
use weft_wire::ops::ParentReply;
use weft_wire::{Request, Wire};

use crate::{Record, RequestContext, State};

mod classic;
mod close;
mod content;
mod create;
mod delay;
mod delegate;
mod getattr;
mod link;
mod lookup;
mod lookup_many;
mod mkdir;
mod open;
mod parent;
mod readdir;
mod readlink;
mod remove_entries;
mod rename;
mod rmdir;
mod setattr;
mod strips;
mod truncate;
mod unlink;
mod xattr;

pub(crate) use mkdir::known_hints;

pub use close::{ClosePlan, DataState};
pub use content::MovePlan;
pub use delegate::HoldAsked;
pub use rename::{CycleCheck, RenamePlan, RenameSource, RenameTarget};
pub use setattr::SizePlan;
pub use truncate::truncated;
pub use xattr::{XATTR_NAME_BYTES_MAX, XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX};

impl State {
    /// The answer to a request that this state alone decides, and the record of what it changes;
    /// `None` for requests that need other servers, or more than one step.
    pub fn decide(&self, cx: &RequestContext<'_>, request: &Request, record: &mut Record) -> Option<Result<Bytes>> {
        fn body<T: Wire>(reply: Result<T>) -> Result<Bytes> {
            Ok(reply?.to_bytes())
        }
        Some(match request {
            Request::Create(request) => body(self.prepare_create(cx, request, record)),
            Request::GetAttr(request) => body(self.getattr(cx, request.handle)),
            Request::Lookup(request) => body(self.lookup(cx, request)),
            Request::LookupMany(request) => body(self.lookup_many(cx, request)),
            Request::ReadDir(request) => body(self.readdir(cx, request)),
            Request::RemoveEntries(request) => body(self.prepare_remove_entries(cx, request, record)),
            Request::GetAttrMany(request) => body(self.getattr_many(cx, request)),
            Request::Readlink(request) => body(self.readlink(request.handle)),
            Request::Strips(request) => body(self.strips(request.handle)),
            Request::GetXattr(request) => body(self.get_xattr(request.handle, &request.name, &request.who)),
            Request::ListXattr(request) => body(self.list_xattr(request.handle, &request.who)),
            Request::SetXattr(request) => body(self.prepare_set_xattr(cx, request, record)),
            Request::RemoveXattr(request) => body(self.prepare_remove_xattr(cx, request, record)),
            Request::ClassicDirectory(request) => body(self.classic_look(request)),
            Request::ClassicReserve(request) => body(self.prepare_classic_reserve(cx, request, record)),
            Request::ClassicMakeMetafile(request) => body(self.prepare_classic_make(cx, request, record)),
            Request::ClassicSetMetafile(request) => body(self.prepare_classic_set(cx, request, record)),
            Request::ClassicInsertEntry(request) => body(self.prepare_classic_insert(cx, request, record)),
            Request::ClassicRemoveEntry(request) => body(self.prepare_classic_remove_entry(cx, request, record)),
            Request::ClassicRemoveMetafile(request) => body(self.prepare_classic_remove(cx, request, record)),
            Request::Usage(request) => body(self.usage(request)),
            Request::Parent(request) => body(self.parent(request.dir).map(|parent| ParentReply { parent })),
            _ => return None,
        })
    }
}
