//! The naive tree: every rule spelled out once more.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weft_base::{FileKind, Handle, Status};

use crate::common::TOP;

/// An operation on a small world: directories and names by number.
#[derive(Clone, Debug)]
pub enum Op {
    Create(usize, u8),
    Symlink(usize, u8),
    Mkdir(usize, u8),
    Unlink(usize, u8),
    Rmdir(usize, u8),
    Link(usize, usize, u8),
    Rename {
        from: usize,
        from_name: u8,
        to: usize,
        to_name: u8,
        no_replace: bool,
        exchange: bool,
    },
    Chmod(usize, u32),
    Chown(usize, u32),
    /// 0: none.
    Project(usize, u32),
}

pub fn ops() -> impl Strategy<Value = Op> {
    let (dir, name) = (0..6usize, 0..5u8);
    prop_oneof![
        3 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Op::Create(dir, name)),
        1 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Op::Symlink(dir, name)),
        4 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Op::Mkdir(dir, name)),
        2 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Op::Unlink(dir, name)),
        2 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Op::Rmdir(dir, name)),
        2 => (0..8usize, dir.clone(), name.clone()).prop_map(|(file, dir, name)| Op::Link(file, dir, name)),
        6 => (dir.clone(), name.clone(), dir, name, any::<u8>()).prop_map(|(from, from_name, to, to_name, flags)| Op::Rename {
            from, from_name, to, to_name, no_replace: flags % 5 == 0, exchange: flags % 3 == 0,
        }),
        1 => (0..8usize, 0..0o1000u32).prop_map(|(object, mode)| Op::Chmod(object, mode)),
        1 => (0..8usize, 0..3u32).prop_map(|(object, uid)| Op::Chown(object, uid)),
        1 => (0..8usize, 0..3u32).prop_map(|(object, project)| Op::Project(object, project)),
    ]
}

/// Names, kinds and projects.
#[derive(Default)]
pub struct Model {
    pub kinds: BTreeMap<Handle, FileKind>,
    pub entries: BTreeMap<(Handle, u8), Handle>,
    /// Of what has one.
    pub projects: BTreeMap<Handle, u32>,
}

impl Model {
    pub fn new() -> Model {
        Model { kinds: BTreeMap::from([(TOP, FileKind::Directory)]), ..Model::default() }
    }

    pub fn pick(&self, number: usize, directory: bool) -> Option<Handle> {
        let fitting: Vec<Handle> =
            self.kinds.iter().filter(|(_, kind)| (**kind == FileKind::Directory) == directory).map(|(h, _)| *h).collect();
        (!fitting.is_empty()).then(|| fitting[number % fitting.len()])
    }

    pub fn is_dir(&self, handle: Handle) -> bool {
        self.kinds[&handle] == FileKind::Directory
    }

    /// The object with this number.
    pub fn any(&self, number: usize) -> Handle {
        *self.kinds.keys().nth(number % self.kinds.len()).expect("within bounds")
    }

    pub fn project(&self, handle: Handle) -> u32 {
        self.projects.get(&handle).copied().unwrap_or(0)
    }

    /// What is not of its project gets no name in a directory.
    fn check_project(&self, handle: Handle, dir: Handle) -> Result<(), Status> {
        let project = self.project(dir);
        if project == 0 || self.project(handle) == project { Ok(()) } else { Err(Status::CrossDevice) }
    }

    fn is_empty(&self, dir: Handle) -> bool {
        self.entries.keys().all(|(holder, _)| *holder != dir)
    }

    pub fn parent(&self, dir: Handle) -> Handle {
        self.entries.iter().find(|(_, handle)| **handle == dir).map_or(TOP, |((holder, _), _)| *holder)
    }

    fn is_within(&self, mut dir: Handle, ancestor: Handle) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            if dir == TOP {
                return false;
            }
            dir = self.parent(dir);
        }
    }

    fn forget_unnamed(&mut self) {
        let named: Vec<Handle> = self.entries.values().copied().collect();
        self.kinds.retain(|handle, _| *handle == TOP || named.contains(handle));
        self.projects.retain(|handle, _| self.kinds.contains_key(handle));
    }

    fn rename(&mut self, from: (Handle, u8), to: (Handle, u8), no_replace: bool, exchange: bool) -> Result<(), Status> {
        let source = *self.entries.get(&from).ok_or(Status::NotFound)?;
        let target = self.entries.get(&to).copied();
        if no_replace && exchange {
            return Err(Status::Invalid);
        }
        if no_replace && target.is_some() {
            return Err(Status::Exists);
        }
        if self.is_dir(source) && source == to.0 {
            return Err(Status::Invalid);
        }
        if exchange && target.is_none() {
            return Err(Status::NotFound);
        }
        if target == Some(source) {
            return Ok(());
        }
        if let Some(target) = target.filter(|_| !exchange) {
            match (self.is_dir(source), self.is_dir(target)) {
                (true, false) => return Err(Status::NotDirectory),
                (false, true) => return Err(Status::IsDirectory),
                _ => {}
            }
        }
        if self.is_dir(source) && from.0 != to.0 && self.is_within(to.0, source) {
            return Err(Status::Invalid);
        }
        if let Some(target) = target {
            if exchange && self.is_dir(target) && from.0 != to.0 && self.is_within(from.0, target) {
                return Err(Status::Invalid);
            }
            if !exchange && self.is_dir(target) && !self.is_empty(target) {
                return Err(Status::NotEmpty);
            }
        }
        if from.0 != to.0 {
            self.check_project(source, to.0)?;
            target.filter(|_| exchange).map_or(Ok(()), |target| self.check_project(target, from.0))?;
        }
        match target.filter(|_| exchange) {
            Some(target) => self.entries.insert(from, target),
            None => self.entries.remove(&from),
        };
        self.entries.insert(to, source);
        self.forget_unnamed();
        Ok(())
    }

    /// What must come of an operation; `made` is the handle that the state gave to a new object.
    pub fn run(&mut self, op: &Op, made: Handle) -> Result<(), Status> {
        match *op {
            Op::Create(dir, name) | Op::Symlink(dir, name) | Op::Mkdir(dir, name) => {
                let dir = self.pick(dir, true).expect("the root is always there");
                if self.entries.contains_key(&(dir, name)) {
                    return Err(Status::Exists);
                }
                let kind = match op {
                    Op::Create(..) => FileKind::File,
                    Op::Symlink(..) => FileKind::Symlink,
                    _ => FileKind::Directory,
                };
                self.kinds.insert(made, kind);
                if self.project(dir) != 0 {
                    self.projects.insert(made, self.project(dir));
                }
                self.entries.insert((dir, name), made);
            }
            Op::Unlink(dir, name) | Op::Rmdir(dir, name) => {
                let dir = self.pick(dir, true).expect("the root is always there");
                let handle = *self.entries.get(&(dir, name)).ok_or(Status::NotFound)?;
                match (op, self.is_dir(handle)) {
                    (Op::Unlink(..), true) => return Err(Status::IsDirectory),
                    (Op::Rmdir(..), false) => return Err(Status::NotDirectory),
                    (Op::Rmdir(..), true) if !self.is_empty(handle) => return Err(Status::NotEmpty),
                    _ => {}
                }
                self.entries.remove(&(dir, name));
                self.forget_unnamed();
            }
            Op::Link(file, dir, name) => {
                let dir = self.pick(dir, true).expect("the root is always there");
                let Some(file) = self.pick(file, false) else { return Ok(()) };
                if self.entries.contains_key(&(dir, name)) {
                    return Err(Status::Exists);
                }
                self.check_project(file, dir)?;
                self.entries.insert((dir, name), file);
            }
            Op::Rename { from, from_name, to, to_name, no_replace, exchange } => {
                let from = self.pick(from, true).expect("the root is always there");
                let to = self.pick(to, true).expect("the root is always there");
                return self.rename((from, from_name), (to, to_name), no_replace, exchange);
            }
            Op::Chmod(..) | Op::Chown(..) => {}
            Op::Project(object, 0) => return self.projects.remove(&self.any(object)).map(drop).ok_or(Status::NoAttribute),
            Op::Project(object, project) => drop(self.projects.insert(self.any(object), project)),
        }
        Ok(())
    }
}

pub fn text(name: u8) -> String {
    format!("n{name}")
}
