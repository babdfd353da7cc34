//! Paths for handles, as far as they can be found with few questions. A directory knows its parent,
//! so its path is found by going up. A file does not know who names it: it is looked for in the
//! directories that are busy at the same time, which is where busy files mostly are.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_base::{FileKind, Handle};

use crate::connect::Fs;
use crate::output::show_name;

/// Objects that are looked for in one round, at most.
const ROUND: usize = 8;
/// Bytes of entries that one question asks for, and questions for one directory at most: some ten
/// thousand names.
const PAGE_BYTES: u32 = 256 << 10;
const PAGES: usize = 4;
/// A path has so many directories at most.
const DEPTH: usize = 64;
/// What is not found is looked for again after this time; what is found may be renamed.
const AGAIN: Duration = Duration::from_secs(30);
/// Names that are kept, at most.
const KEPT: usize = 4096;

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Names {
    found: BTreeMap<u64, (Instant, Option<Found>)>,
}

#[derive(Clone, Debug)]
struct Found {
    path: Vec<u8>,
    is_dir: bool,
}

impl Names {
    /// The path of an object for people, if it was found.
    pub fn get(&self, key: u64) -> Option<String> {
        let (_, found) = self.found.get(&key)?;
        found.as_ref().map(|found| show_name(&found.path))
    }

    /// Looks for those among `keys` that are not known, for about so long: an object that others
    /// have not brought to its servers yet is waited for.
    pub fn find(&mut self, fs: &Fs, keys: &[u64], patience: Duration) {
        let end = Instant::now() + patience;
        if self.found.len() > KEPT {
            self.found.clear();
        }
        let is_known = |names: &Names, key: u64| names.found.get(&key).is_some_and(|(at, _)| at.elapsed() < AGAIN);
        // The busiest first.
        let mut unknown: Vec<u64> = Vec::new();
        for key in keys {
            if *key != 0 && unknown.len() < ROUND && !unknown.contains(key) && !is_known(self, *key) {
                unknown.push(*key);
            }
        }
        let mut files = Vec::new();
        for key in unknown {
            let left_ns = end.saturating_duration_since(Instant::now()).as_nanos() as u64;
            if left_ns == 0 {
                break;
            }
            let kind = fs.run(fs.client.for_at_most(left_ns).getattr(Handle(key))).map(|attr| attr.kind);
            match kind {
                Ok(FileKind::Directory) => {
                    let path = path_of_dir(fs, Handle(key));
                    self.found.insert(key, (Instant::now(), path.map(|path| Found { path, is_dir: true })));
                }
                Ok(_) => files.push(key),
                Err(_) => drop(self.found.insert(key, (Instant::now(), None))),
            }
        }
        if !files.is_empty() {
            self.find_files(fs, keys, files);
        }
    }

    fn find_files(&mut self, fs: &Fs, keys: &[u64], mut files: Vec<u64>) {
        let mut dirs: Vec<(u64, Vec<u8>)> = vec![(fs.client.root().0, b"/".to_vec())];
        for key in keys {
            if let Some((_, Some(found))) = self.found.get(key)
                && found.is_dir
                && *key != fs.client.root().0
            {
                dirs.push((*key, found.path.clone()));
            }
        }
        for (dir, dir_path) in dirs {
            if files.is_empty() {
                return;
            }
            each_entry(fs, Handle(dir), |name, handle| {
                if let Some(at) = files.iter().position(|file| *file == handle.0) {
                    let found = Found { path: joined(&dir_path, name), is_dir: false };
                    self.found.insert(files.swap_remove(at), (Instant::now(), Some(found)));
                }
                !files.is_empty()
            });
        }
        for file in files {
            self.found.insert(file, (Instant::now(), None));
        }
    }
}

fn path_of_dir(fs: &Fs, dir: Handle) -> Option<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut at = dir;
    while at != fs.client.root() {
        if names.len() == DEPTH {
            return None;
        }
        let parent = fs.run(fs.client.parent(at)).ok()?;
        let mut found = None;
        each_entry(fs, parent, |name, handle| {
            if handle == at {
                found = Some(name.to_vec());
            }
            found.is_none()
        });
        names.push(found?);
        at = parent;
    }
    names.reverse();
    Some(names.iter().fold(b"/".to_vec(), |path, name| joined(&path, name)))
}

/// The path of what is below a directory; that of the directory itself if nothing is said.
pub fn joined(dir: &[u8], below: &[u8]) -> Vec<u8> {
    match below {
        [] => dir.to_vec(),
        _ => [dir.strip_suffix(b"/").unwrap_or(dir), b"/", below].concat(),
    }
}

/// Calls `see` with entries of a directory until it has seen enough, or the directory is too large.
fn each_entry(fs: &Fs, dir: Handle, mut see: impl FnMut(&[u8], Handle) -> bool) {
    let mut cookie = 0;
    for _ in 0..PAGES {
        let Ok(page) = fs.page(dir, cookie, PAGE_BYTES) else { return };
        for entry in &page.entries {
            cookie = entry.cookie;
            if !see(&entry.name, entry.handle) {
                return;
            }
        }
        if page.end || page.entries.is_empty() {
            return;
        }
    }
}
