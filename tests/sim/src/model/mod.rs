//! The reference: a file system as a small tree in memory that does one operation at a time. Given
//! a state, an operation and what was answered, it says whether a correct file system may answer
//! that, and what the state is afterwards.
//!
//! Handles are chosen by the servers, so the model takes them from the answers. If the answer of a
//! creation never came, the object gets a stand-in until somebody meets it; then the stand-in is
//! replaced by the handle that was met.

mod errors;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use weft_base::{FileKind, Handle, ROOT_HANDLE, ServerId, Status};

use crate::history::{Action, Answer, History, Name, RenameMode, Seen};

/// Permission bits with which histories make files and pipes.
pub const FILE_MODE: u32 = 0o644;
/// Permission bits with which histories make directories.
pub const DIR_MODE: u32 = 0o755;
/// Permission bits of symbolic links.
pub const SYMLINK_MODE: u32 = 0o777;

/// A state of the file system.
#[derive(Clone)]
pub struct Tree {
    nodes: BTreeMap<Handle, Rc<Node>>,
    /// What several servers tell of a directory belongs to no one moment.
    splits: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Node {
    kind: FileKind,
    mode: u32,
    /// Names of an object that is no directory.
    links: u32,
    /// Bytes of a file, length of a target. `None`: not tracked, because the file was written to.
    size: Option<u64>,
    xattr: Option<u8>,
    entries: BTreeMap<Name, Handle>,
    parent: Handle,
    /// A directory that was removed.
    removed: bool,
}

/// What an operation may do in a state, if the answer was possible.
pub enum Next {
    /// The state stays as it is.
    Same,
    /// A new state.
    Changed(Tree),
}

/// A set of statuses.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Statuses(u64);

impl Statuses {
    /// Those of the slice.
    pub fn of(list: &[Status]) -> Statuses {
        list.iter().fold(Statuses::default(), |set, status| set.with(*status))
    }

    fn with(self, status: Status) -> Statuses {
        if status.code() < 64 { Statuses(self.0 | 1 << status.code()) } else { self }
    }

    fn and(self, other: Statuses) -> Statuses {
        Statuses(self.0 | other.0)
    }

    /// True if there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if `status` is one of them.
    pub fn contains(self, status: Status) -> bool {
        status.code() < 64 && self.0 >> status.code() & 1 == 1
    }
}

impl fmt::Debug for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Status::ALL.iter().filter(|status| self.contains(**status))).finish()
    }
}

/// Why an answer is impossible in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It should have failed with one of these.
    ShouldFail(Statuses),
    /// It should have succeeded, or failed with one of these.
    ShouldNotFail(Statuses),
    /// It should have answered this.
    ShouldAnswer(String),
}

const GONE: [Status; 2] = [Status::NotFound, Status::Stale];

impl Tree {
    /// Only the root.
    pub fn new() -> Tree {
        let root = Node { parent: ROOT_HANDLE, ..Node::directory(ROOT_HANDLE) };
        Tree { nodes: BTreeMap::from([(ROOT_HANDLE, Rc::new(root))]), splits: false }
    }

    /// The state in which a history begins.
    pub fn of(history: &History) -> Tree {
        Tree { splits: history.splits, ..Tree::new() }
    }

    /// The stand-in for the object that step `number` of a history may have made.
    pub fn stand_in(number: usize) -> Handle {
        Handle::new(ServerId(u16::MAX), number as u64)
    }

    /// A fingerprint for telling states apart.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.nodes.hash(&mut hasher);
        hasher.finish()
    }

    /// What `action` does if it happens now and nobody knows what it answered; objects that it
    /// makes are called `fresh`. `None` if it fails, and so changes nothing.
    pub fn unanswered(&self, action: &Action, fresh: Handle) -> Option<Tree> {
        if !self.errors(action).is_empty() || !action.changes() {
            return None;
        }
        let mut next = self.clone();
        next.perform(action, fresh, None);
        Some(next)
    }

    /// May `action`, done now, fail with `status`?
    ///
    /// # Errors
    /// What it should do instead.
    pub fn failed(&self, action: &Action, status: Status) -> Result<(), Mismatch> {
        let errors = self.errors(action).and(self.lenient_errors(action));
        if errors.contains(status) { Ok(()) } else { Err(Mismatch::ShouldNotFail(errors)) }
    }

    /// May `action`, done now, succeed with `answer`?
    ///
    /// # Errors
    /// What it should do instead.
    pub fn answered(&self, action: &Action, answer: &Answer) -> Result<Next, Mismatch> {
        let errors = self.errors(action);
        if !errors.is_empty() {
            // Who may still hold a removed object is told what it was.
            let shows_removed = matches!((action, answer), (Action::GetAttr { .. }, Answer::Attr(seen)) if self.was(seen));
            return if shows_removed { Ok(Next::Same) } else { Err(Mismatch::ShouldFail(errors)) };
        }
        let mut next = self.clone();
        let bound = next.bind_answer(action, answer)?;
        next.check_before(action, answer)?;
        if action.changes() {
            next.perform(action, Handle(0), Some(answer));
            next.check_after(action, answer)?;
        } else if !bound {
            return Ok(Next::Same);
        }
        Ok(Next::Changed(next))
    }

    fn kind(&self, handle: Handle) -> FileKind {
        self.nodes.get(&handle).map_or(FileKind::File, |node| node.kind)
    }

    /// True if `dir` is `above` or lies below it.
    fn is_below(&self, dir: Handle, above: Handle) -> bool {
        let mut at = dir;
        loop {
            if at == above {
                return true;
            }
            match self.nodes.get(&at) {
                Some(node) if node.parent != at => at = node.parent,
                _ => return false,
            }
        }
    }

    /// Replaces stand-ins that the answer identifies. True if there were any.
    fn bind_answer(&mut self, action: &Action, answer: &Answer) -> Result<bool, Mismatch> {
        let mut bound = false;
        match (action, answer) {
            (Action::LookupHandle { dir, name }, Answer::Object(handle, _)) => {
                if let Ok(Some(found)) = self.entry(*dir, *name) {
                    bound = self.bind(found, *handle);
                }
            }
            (Action::ReadDir { dir, .. }, Answer::Listing(entries)) => {
                for (name, handle, _) in entries {
                    if let Ok(Some(found)) = self.entry(*dir, *name) {
                        bound |= self.bind(found, *handle);
                    }
                }
            }
            _ => {}
        }
        Ok(bound)
    }

    fn bind(&mut self, found: Handle, handle: Handle) -> bool {
        if found == handle || found.server() != ServerId(u16::MAX) || self.nodes.contains_key(&handle) {
            return false;
        }
        if let Some(node) = self.nodes.remove(&found) {
            self.nodes.insert(handle, node);
        }
        for node in self.nodes.values_mut() {
            if node.parent == found || node.entries.values().any(|entry| *entry == found) {
                let node = Rc::make_mut(node);
                if node.parent == found {
                    node.parent = handle;
                }
                node.entries.values_mut().filter(|entry| **entry == found).for_each(|entry| *entry = handle);
            }
        }
        true
    }

    /// Compares the answer with the state before the operation.
    fn check_before(&self, action: &Action, answer: &Answer) -> Result<(), Mismatch> {
        let should = |text: String| Err(Mismatch::ShouldAnswer(text));
        match (action, answer) {
            (Action::Create { dir, name, .. }, Answer::Created(seen, new)) => match self.entry(*dir, *name) {
                Ok(Some(found)) if *new => should(format!("the existing {found}")),
                Ok(None) if !*new => should("a new object".into()),
                _ if *new => self.check_new(seen.handle),
                _ => Ok(()),
            },
            (Action::Mkdir { .. } | Action::Mknod { .. } | Action::Symlink { .. }, Answer::Attr(seen)) => self.check_new(seen.handle),
            (Action::LookupHandle { dir, name }, Answer::Object(handle, kind)) => match self.entry(*dir, *name) {
                Ok(Some(found)) if found == *handle && self.kind(found) == *kind => Ok(()),
                other => should(format!("{other:?} {:?}", other.ok().flatten().map(|found| self.kind(found)))),
            },
            (Action::ReadDir { dir, .. }, Answer::Listing(entries)) => {
                let mut listed: Vec<_> = entries.clone();
                listed.sort_by_key(|(name, _, _)| *name);
                let there = self.nodes.get(dir).map(|node| &node.entries).into_iter().flatten();
                let there: Vec<_> = there.map(|(name, found)| (*name, *found, self.kind(*found))).collect();
                if listed == there { Ok(()) } else { should(format!("{there:?}")) }
            }
            (Action::Readlink { handle }, Answer::Number(len)) => match self.nodes.get(handle) {
                Some(node) if node.size == Some(*len) => Ok(()),
                node => should(format!("a target of {:?} bytes", node.and_then(|node| node.size))),
            },
            (Action::GetXattr { handle }, Answer::Number(value)) => match self.nodes.get(handle).and_then(|node| node.xattr) {
                Some(there) if u64::from(there) == *value => Ok(()),
                there => should(format!("the value {there:?}")),
            },
            (Action::GetAttr { handle, .. } | Action::Open { handle }, Answer::Attr(seen)) => self.check_seen(*handle, seen),
            _ => Ok(()),
        }
    }

    /// True if these are attributes of a removed directory.
    fn was(&self, seen: &Seen) -> bool {
        seen.nlink == 0 && self.nodes.get(&seen.handle).is_some_and(|node| node.removed && node.kind == seen.kind && node.mode == seen.mode)
    }

    /// Compares the answer with the state after the operation.
    fn check_after(&self, action: &Action, answer: &Answer) -> Result<(), Mismatch> {
        match (action, answer) {
            (Action::SetMode { handle, .. } | Action::SetTime { handle, .. }, Answer::Attr(seen)) => self.check_seen(*handle, seen),
            // A truncation takes its time; its answer shows the other attributes of the moment when
            // it began.
            (Action::SetSize { handle, size }, Answer::Attr(seen)) => match self.nodes.get(handle) {
                Some(node) if node.size.is_some() && seen.size != *size => Err(Mismatch::ShouldAnswer(format!("a size of {size}"))),
                _ => Ok(()),
            },
            (Action::Mkdir { .. } | Action::Mknod { .. } | Action::Symlink { .. }, Answer::Attr(seen)) => {
                self.check_seen(seen.handle, seen)
            }
            (Action::Link { handle, .. }, Answer::Attr(seen)) => self.check_seen(*handle, seen),
            _ => Ok(()),
        }
    }

    fn check_new(&self, handle: Handle) -> Result<(), Mismatch> {
        if self.nodes.contains_key(&handle) {
            return Err(Mismatch::ShouldAnswer(format!("a new handle, not {handle}, which was used before")));
        }
        Ok(())
    }

    fn check_seen(&self, handle: Handle, seen: &Seen) -> Result<(), Mismatch> {
        let node = self.nodes.get(&handle).ok_or_else(|| Mismatch::ShouldFail(Statuses::of(&GONE)))?;
        let (nlink, size) = match node.kind {
            FileKind::Directory if self.splits => (seen.nlink, None),
            FileKind::Directory => {
                let subdirs = node.entries.values().filter(|entry| self.kind(**entry) == FileKind::Directory).count();
                (2 + subdirs as u32, Some(node.entries.len() as u64))
            }
            _ => (node.links, node.size),
        };
        let right = Seen { handle, kind: node.kind, mode: node.mode, nlink, size: size.unwrap_or(seen.size), mtime: seen.mtime };
        if right == *seen { Ok(()) } else { Err(Mismatch::ShouldAnswer(format!("{right:?}"))) }
    }

    /// Does what a successful `action` does.
    fn perform(&mut self, action: &Action, fresh: Handle, answer: Option<&Answer>) {
        let fresh = match answer {
            Some(Answer::Attr(seen) | Answer::Created(seen, _)) => seen.handle,
            _ => fresh,
        };
        match action {
            Action::Create { dir, name, .. } if self.entry(*dir, *name) == Ok(None) => {
                self.make(*dir, *name, fresh, Node::object(FileKind::File, FILE_MODE, 0));
            }
            Action::Mknod { dir, name } => self.make(*dir, *name, fresh, Node::object(FileKind::Fifo, FILE_MODE, 0)),
            Action::Symlink { dir, name, target } => {
                self.make(*dir, *name, fresh, Node::object(FileKind::Symlink, SYMLINK_MODE, u64::from(*target)));
            }
            Action::Mkdir { dir, name } => self.make(*dir, *name, fresh, Node::directory(*dir)),
            Action::Unlink { dir, name } => {
                if let Some(found) = self.change(*dir, |node| node.entries.remove(name)).flatten() {
                    self.drop_link(found);
                }
            }
            Action::Rmdir { dir, name } => {
                if let Some(found) = self.change(*dir, |node| node.entries.remove(name)).flatten() {
                    self.change(found, |node| node.removed = true);
                }
            }
            Action::Rename { from_dir, from, to_dir, to, mode } => self.rename(*from_dir, *from, *to_dir, *to, *mode),
            Action::Link { handle, dir, name, .. } => {
                self.change(*dir, |node| node.entries.insert(*name, *handle));
                self.change(*handle, |node| node.links += 1);
            }
            // What becomes of times is checked in `times.rs`.
            Action::SetTime { .. } => {}
            Action::SetMode { handle, mode } => {
                self.change(*handle, |node| node.mode = *mode);
            }
            Action::SetSize { handle, size } => {
                self.change(*handle, |node| {
                    if node.size.is_some() {
                        node.size = Some(*size);
                    }
                });
            }
            Action::SetXattr { handle, value } => {
                self.change(*handle, |node| node.xattr = Some(*value));
            }
            Action::RemoveXattr { handle } => {
                self.change(*handle, |node| node.xattr = None);
            }
            _ => {}
        }
    }

    fn rename(&mut self, from_dir: Handle, from: Name, to_dir: Handle, to: Name, mode: RenameMode) {
        let (Ok(source), Ok(target)) = (self.existing(from_dir, from), self.entry(to_dir, to)) else { return };
        if target == Some(source) {
            return;
        }
        self.change(to_dir, |node| node.entries.insert(to, source));
        self.set_parent(source, to_dir);
        match (mode, target) {
            (RenameMode::Exchange, Some(target)) => {
                self.change(from_dir, |node| node.entries.insert(from, target));
                self.set_parent(target, from_dir);
            }
            (_, target) => {
                self.change(from_dir, |node| node.entries.remove(&from));
                match target {
                    Some(target) if self.kind(target) == FileKind::Directory => {
                        self.change(target, |node| node.removed = true);
                    }
                    Some(target) => self.drop_link(target),
                    None => {}
                }
            }
        }
    }

    fn set_parent(&mut self, handle: Handle, parent: Handle) {
        if self.kind(handle) == FileKind::Directory {
            self.change(handle, |node| node.parent = parent);
        }
    }

    fn make(&mut self, dir: Handle, name: Name, handle: Handle, node: Node) {
        self.nodes.insert(handle, Rc::new(node));
        self.change(dir, |node| node.entries.insert(name, handle));
    }

    fn drop_link(&mut self, handle: Handle) {
        self.change(handle, |node| node.links = node.links.saturating_sub(1));
    }

    fn change<T>(&mut self, handle: Handle, change: impl FnOnce(&mut Node) -> T) -> Option<T> {
        self.nodes.get_mut(&handle).map(|node| change(Rc::make_mut(node)))
    }

    /// From now on the size of this file is not compared.
    pub fn ignore_size(&mut self, handle: Handle) {
        let tracked = self.nodes.get(&handle).is_some_and(|node| node.kind == FileKind::File && node.size.is_some());
        if tracked {
            self.change(handle, |node| node.size = None);
        }
    }

    /// From now on the size of no file is compared.
    pub fn ignore_sizes(&mut self) {
        let files: Vec<Handle> = self.nodes.keys().copied().collect();
        files.into_iter().for_each(|handle| self.ignore_size(handle));
    }
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl Node {
    fn directory(parent: Handle) -> Node {
        Node { parent, ..Node::object(FileKind::Directory, DIR_MODE, 0) }
    }

    fn object(kind: FileKind, mode: u32, size: u64) -> Node {
        Node { kind, mode, links: 1, size: Some(size), xattr: None, entries: BTreeMap::new(), parent: Handle(0), removed: false }
    }
}

impl Action {
    /// True if success changes the tree.
    pub fn changes(&self) -> bool {
        use Action::*;
        matches!(
            self,
            Create { .. }
                | Mknod { .. }
                | Symlink { .. }
                | Mkdir { .. }
                | Unlink { .. }
                | Rmdir { .. }
                | Rename { .. }
                | Link { .. }
                | SetMode { .. }
                | SetTime { .. }
                | SetSize { .. }
                | SetXattr { .. }
                | RemoveXattr { .. }
        )
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (handle, node) in &self.nodes {
            write!(f, "  {handle} {:?} mode {:o}", node.kind, node.mode)?;
            match node.kind {
                FileKind::Directory if node.removed => write!(f, " removed")?,
                FileKind::Directory => write!(f, " in {} {:?}", node.parent, node.entries)?,
                _ => write!(f, " links {} size {:?}", node.links, node.size)?,
            }
            writeln!(f, "{}", node.xattr.map(|value| format!(" xattr {value}")).unwrap_or_default())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
