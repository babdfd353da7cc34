//! What is kept of the data of files: which versions the pages in the cache of a gateway are from,
//! and of how many open files something is kept here.

use std::sync::{Mutex, MutexGuard};

use weft_base::{Attr, FastMap, Handle};

use crate::ahead::Budget;

/// Versions remembered; beyond that, all are forgotten, which costs rereading only.
const VERSIONS_MAX: usize = 65_536;

/// What the data of a file is known by: the version of its inode, its size in bytes, and how often
/// servers had restarted ([`weft_client::Client::restarts`]). A power cut may set the version back.
pub(crate) type Version = (u64, u64, u32);

/// The version of a file with these attributes after so many restarts of servers.
pub(crate) fn version_of(attr: &Attr, restarts: u32) -> Version {
    (attr.version, attr.size, restarts)
}

/// What is kept of the data of files.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// What the cache holds is good for this version of a file.
    versions: Mutex<FastMap<Handle, Version>>,
    /// What is read ahead.
    pub ahead: Budget,
}

impl Pages {
    /// True if the pages are from this version.
    pub fn are_of(&self, file: Handle, version: Version) -> bool {
        self.lock().get(&file) == Some(&version)
    }

    /// The pages are from this version from now on.
    pub fn note(&self, file: Handle, version: Version) {
        let mut versions = self.lock();
        if versions.len() >= VERSIONS_MAX {
            versions.clear();
        }
        versions.insert(file, version);
    }

    fn lock(&self) -> MutexGuard<'_, FastMap<Handle, Version>> {
        self.versions.lock().expect("no code panics while it holds this lock")
    }
}
