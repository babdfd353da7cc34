//! What a tree should be.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use weft_base::WallTime;
use weft_client::SetAttr;
use weft_posix::InodeNumber;
use weft_rt_sim::NodeId;
use weft_sim_tests::mount::Open;

pub type Id = u32;
pub const TOP: Id = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Dir(Id),
    File(Id),
    Symlink(Id),
}

#[derive(Debug)]
pub struct Dir {
    pub place: (Id, String),
    pub mode: u32,
    /// The time that was set, as long as nothing has changed since.
    pub mtime: Option<WallTime>,
    pub entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
pub struct File {
    pub bytes: Vec<u8>,
    pub mode: u32,
    pub mtime: Option<WallTime>,
    pub links: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// What a tree should be.
#[derive(Debug, Default)]
pub struct Tree {
    pub name: String,
    /// How its names begin: trees may share the directory at their top.
    pub prefix: &'static str,
    pub is_shared: bool,
    /// All servers answer.
    pub is_calm: bool,
    /// What programs do less often is done, too.
    pub does_all: bool,
    pub dirs: BTreeMap<Id, Dir>,
    pub files: BTreeMap<Id, File>,
    /// Files that are open somewhere, and perhaps without a name.
    pub held: Vec<HeldOpen>,
    pub next: Id,
    /// Directories and files, as mounts know them.
    pub nodes: BTreeMap<InodeNumber, Id>,
    /// What was chosen to be changed, or looked at.
    pub picked: RefCell<Picked>,
    /// What was there when nothing had been changed for a while.
    pub rested: BTreeSet<Id>,
}

/// What may have changed.
#[derive(Debug, Default)]
pub struct Picked {
    pub names: BTreeSet<(Id, String)>,
    pub dirs: BTreeSet<Id>,
    pub files: BTreeSet<Id>,
    /// Files that are on stable storage as they are, whatever was chosen before.
    pub synced: BTreeSet<Id>,
    /// Objects that may have lost a name for good.
    pub losable: BTreeSet<Id>,
}

/// A file that stays open through one of the mounts.
#[derive(Debug)]
pub struct HeldOpen {
    pub open: Open,
    pub mount: NodeId,
    pub file: Id,
}

impl Tree {
    pub fn new(name: String, prefix: &'static str) -> Tree {
        let top = Dir { place: (TOP, name.clone()), mode: 0o755, mtime: None, entries: BTreeMap::new() };
        let is_shared = name == "both";
        let dirs = BTreeMap::from([(TOP, top)]);
        Tree { name, prefix, is_shared, is_calm: true, does_all: true, next: 1, dirs, ..Tree::default() }
    }

    pub fn fresh(&mut self) -> Id {
        self.next += 1;
        self.next - 1
    }

    /// Nothing has been changed for a while.
    pub fn rests(&mut self) {
        self.picked.take();
        self.rested = self.dirs.keys().chain(self.files.keys()).copied().collect();
    }

    /// True if this is a name of this tree, and not of another one in the same directory.
    pub fn is_mine(&self, name: &str) -> bool {
        name.trim_start_matches('.').starts_with(self.prefix)
    }

    /// A new object.
    pub fn add(&mut self, node: InodeNumber) -> Id {
        let id = self.fresh();
        self.nodes.insert(node, id);
        id
    }

    pub fn pick_file(&self, file: Id) {
        let mut picked = self.picked.borrow_mut();
        picked.files.insert(file);
        picked.synced.remove(&file);
    }

    pub fn pick_name(&self, dir: Id, name: &str) {
        self.picked.borrow_mut().names.insert((dir, name.to_string()));
    }

    /// What the name leads to may lose it.
    pub fn may_lose(&self, entry: Option<Entry>) {
        if let Some(Entry::Dir(id) | Entry::File(id) | Entry::Symlink(id)) = entry {
            self.picked.borrow_mut().losable.insert(id);
        }
    }

    pub fn dir(&mut self, dir: Id) -> &mut Dir {
        self.dirs.get_mut(&dir).expect("it is there")
    }

    pub fn file(&mut self, file: Id) -> &mut File {
        self.files.get_mut(&file).expect("it has a name")
    }

    pub fn entry(&self, dir: Id, name: &str) -> Option<Entry> {
        self.dirs[&dir].entries.get(name).copied()
    }

    /// A name in a directory leads there now, or nowhere.
    pub fn lead(&mut self, dir: Id, name: &str, to: Option<Entry>) -> Option<Entry> {
        let dir = self.dir(dir);
        dir.mtime = None;
        match to {
            Some(to) => dir.entries.insert(name.to_string(), to),
            None => dir.entries.remove(name),
        }
    }

    /// A name leads there no more.
    pub fn lost(&mut self, entry: Option<Entry>) {
        match entry {
            Some(Entry::Dir(dir)) => drop(self.dirs.remove(&dir)),
            Some(Entry::File(file)) => {
                let is = self.file(file);
                is.links -= 1;
                if is.links == 0 && self.held.iter().all(|held| held.file != file) {
                    self.files.remove(&file);
                }
            }
            _ => {}
        }
    }

    /// Names from the root of the file system to a directory.
    pub fn path(&self, dir: Id) -> Vec<String> {
        let (mut path, mut at) = (Vec::new(), dir);
        while at != TOP {
            let (above, name) = &self.dirs[&at].place;
            path.push(name.clone());
            at = *above;
        }
        path.push(self.name.clone());
        path.reverse();
        path
    }

    pub fn is_below(&self, dir: Id, above: Id) -> bool {
        let mut at = dir;
        while at != above && at != TOP {
            at = self.dirs[&at].place.0;
        }
        at == above
    }
}

impl File {
    /// One that has just been made.
    pub fn new(bytes: Vec<u8>) -> File {
        File { bytes, mode: 0o644, mtime: None, links: 1, xattrs: BTreeMap::new() }
    }

    /// Bytes are written there.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.mtime = None;
        self.bytes.resize(self.bytes.len().max(offset + bytes.len()), 0);
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub fn set(&mut self, change: &SetAttr) {
        self.mode = change.mode.unwrap_or(self.mode);
        self.mtime = change.mtime.as_ref().and_then(|time| time.at).or(self.mtime);
    }
}
