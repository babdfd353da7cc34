//! The files of a directory of which something is known.

use std::ops::Bound;

use bytes::Bytes;
use weft_base::{Attr, FileKind, Handle, Nanos};

use super::{Asked, Leased};

/// A file of which attributes may be believed.
#[derive(Debug)]
pub(crate) struct FileTold {
    /// In the directory under whose lease they were told.
    pub name: Bytes,
    pub handle: Handle,
    /// Its size in bytes, without what this client has written since.
    pub bytes: u64,
    /// When they were asked for.
    pub told: Asked,
}

impl Leased {
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
            let (state, told) = inner.state(led.handle, now).filter(|(state, _)| state.attr.kind == FileKind::File)?;
            let is_told_here = inner.objects.get(&led.handle).is_some_and(|object| object.under == first.under);
            let file = FileTold { name: name.clone(), handle: led.handle, bytes: state.attr.size, told: *told };
            (is_told_here && led.kind.is_some()).then_some(file)
        });
        files.collect()
    }
}
