//! The files of a directory of which something is known.

use std::ops::Bound;

use bytes::Bytes;
use weft_base::{Attr, FileKind, Handle, Nanos};

use super::{Leased, TellingId};

/// A file of which attributes may be believed.
#[derive(Debug)]
pub(crate) struct FileTold {
    /// In the directory under whose lease they were told.
    pub name: Bytes,
    pub handle: Handle,
    /// Its size in bytes, without what this client has written since.
    pub bytes: u64,
    /// Since when they have been the same.
    pub since: TellingId,
}

impl Leased {
    /// Since when what was told of an object, and may be believed, has not changed.
    pub fn told_since(&self, handle: Handle, now: Nanos) -> Option<TellingId> {
        let inner = self.lock();
        inner.state(handle, now)?;
        inner.objects.get(&handle).map(|told| told.since)
    }

    /// A file of which attributes may be believed, and the directory under whose lease.
    pub fn told_file(&self, file: Handle, now: Nanos) -> Option<(Handle, Attr)> {
        let inner = self.lock();
        let (state, _) = inner.state(file, now).filter(|(state, _)| state.attr.kind == FileKind::File)?;
        Some((inner.objects.get(&file)?.under, state.attr))
    }

    /// See [`super::super::Knowledge::files_beside`].
    pub fn files_beside(&self, file: Handle, now: Nanos, names: usize) -> Vec<FileTold> {
        let inner = self.lock();
        let Some(first) = inner.objects.get(&file) else { return Vec::new() };
        let Some(held) = inner.directories.get(&first.under) else { return Vec::new() };
        let (behind, before) = ((Bound::Included(&first.name), Bound::Unbounded), (Bound::Unbounded, Bound::Excluded(&first.name)));
        let known = held.names.range::<Bytes, _>(behind).chain(held.names.range::<Bytes, _>(before));
        let files = known.take(names).filter_map(|(name, led)| {
            let (state, _) = inner.state(led.handle, now).filter(|(state, _)| state.attr.kind == FileKind::File)?;
            let told = inner.objects.get(&led.handle).filter(|told| told.under == first.under && led.kind.is_some())?;
            Some(FileTold { name: name.clone(), handle: led.handle, bytes: state.attr.size, since: told.since })
        });
        files.collect()
    }
}
