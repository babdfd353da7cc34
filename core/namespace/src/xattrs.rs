//! Extended attributes of all objects, and what they take in memory.

use std::collections::BTreeMap;

use bytes::Bytes;
use weft_base::Handle;

/// What an attribute takes besides its name and value, about, in bytes: its place in two tables.
const XATTR_COST_BYTES: usize = 64;

/// See above.
#[derive(Debug, Default)]
pub(crate) struct Xattrs {
    by_handle: BTreeMap<Handle, BTreeMap<Bytes, Bytes>>,
    bytes: u64,
}

/// What an attribute takes in memory, about.
pub(crate) fn xattr_bytes(name: &[u8], value: &[u8]) -> usize {
    XATTR_COST_BYTES + name.len() + value.len()
}

impl Xattrs {
    /// What all of them take, about, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    pub(crate) fn has_any(&self, handle: Handle) -> bool {
        !self.by_handle.is_empty() && self.by_handle.contains_key(&handle)
    }

    /// Those of an object, by name.
    pub(crate) fn of(&self, handle: Handle) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.by_handle.get(&handle).into_iter().flatten()
    }

    pub(crate) fn get(&self, handle: Handle, name: &[u8]) -> Option<&Bytes> {
        self.by_handle.get(&handle)?.get(name)
    }

    /// Copies both, so that no message buffer is kept alive by a few bytes of it.
    pub(crate) fn put(&mut self, handle: Handle, name: &[u8], value: &[u8]) {
        let attributes = self.by_handle.entry(handle).or_default();
        let old = attributes.insert(Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
        self.bytes += xattr_bytes(name, value) as u64;
        self.forget(old.map_or(0, |old| xattr_bytes(name, &old)));
    }

    pub(crate) fn delete(&mut self, handle: Handle, name: &[u8]) {
        let Some(attributes) = self.by_handle.get_mut(&handle) else { return };
        let old = attributes.remove(name);
        if attributes.is_empty() {
            self.by_handle.remove(&handle);
        }
        self.forget(old.map_or(0, |old| xattr_bytes(name, &old)));
    }

    #[inline]
    pub(crate) fn delete_all(&mut self, handle: Handle) {
        if self.has_any(handle) {
            let gone = self.by_handle.remove(&handle).into_iter().flatten();
            self.forget(gone.map(|(name, value)| xattr_bytes(&name, &value)).sum());
        }
    }

    fn forget(&mut self, bytes: usize) {
        assert!(self.bytes >= bytes as u64, "what is forgotten was counted");
        self.bytes -= bytes as u64;
        assert!(self.bytes > 0 || self.by_handle.is_empty(), "attributes that are there are counted");
    }
}
