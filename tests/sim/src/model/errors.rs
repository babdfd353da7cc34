//! Which errors an operation may answer in a state.

use weft_base::{FileKind, Handle, Status};

use super::{GONE, Statuses, Tree};
use crate::history::{Action, Name, RenameMode};

impl Tree {
    /// Errors of which one must be answered; if there are none, the operation must succeed.
    pub(super) fn errors(&self, action: &Action) -> Statuses {
        match action {
            Action::Create { dir, name, exclusive, .. } => match self.entry(*dir, *name) {
                Err(errors) => errors,
                Ok(Some(_)) if *exclusive => Statuses::of(&[Status::Exists]),
                Ok(Some(found)) if self.kind(found) == FileKind::Directory => Statuses::of(&[Status::IsDirectory, Status::Exists]),
                Ok(_) => Statuses::default(),
            },
            Action::Mknod { dir, name } | Action::Symlink { dir, name, .. } | Action::Mkdir { dir, name } => self.must_be_free(*dir, *name),
            Action::Unlink { dir, name } => match self.existing(*dir, *name) {
                Ok(found) if self.kind(found) == FileKind::Directory => Statuses::of(&[Status::IsDirectory]),
                Ok(_) => Statuses::default(),
                Err(errors) => errors,
            },
            Action::Rmdir { dir, name } => match self.existing(*dir, *name) {
                Ok(found) => match self.nodes.get(&found) {
                    Some(node) if node.kind != FileKind::Directory => Statuses::of(&[Status::NotDirectory]),
                    Some(node) if !node.entries.is_empty() => Statuses::of(&[Status::NotEmpty]),
                    _ => Statuses::default(),
                },
                Err(errors) => errors,
            },
            Action::Rename { from_dir, from, to_dir, to, mode } => self.rename_errors(*from_dir, *from, *to_dir, *to, *mode),
            Action::Link { handle, dir, name, .. } => {
                let object = match self.nodes.get(handle) {
                    Some(node) if node.kind == FileKind::Directory => Statuses::of(&[Status::NotPermitted]),
                    Some(node) if node.links > 0 => Statuses::default(),
                    _ => Statuses::of(&GONE),
                };
                object.and(self.must_be_free(*dir, *name))
            }
            Action::LookupHandle { dir, name } | Action::Lookup { dir, name } => self.existing(*dir, *name).err().unwrap_or_default(),
            Action::GetAttr { handle, .. } | Action::SetMode { handle, .. } | Action::SetTime { handle, .. } => self.must_live(*handle),
            Action::SetXattr { handle, .. } => match self.nodes.get(handle) {
                // As in Linux, only files and directories have attributes of users.
                Some(node) if !matches!(node.kind, FileKind::File | FileKind::Directory) => Statuses::of(&[Status::NotPermitted]),
                _ => self.must_live(*handle),
            },
            Action::GetXattr { handle } | Action::RemoveXattr { handle } => match self.nodes.get(handle) {
                Some(node) if !matches!(node.kind, FileKind::File | FileKind::Directory) => {
                    Statuses::of(&[Status::NotPermitted, Status::NoAttribute])
                }
                Some(node) if !node.removed && node.xattr.is_none() => Statuses::of(&[Status::NoAttribute]),
                _ => self.must_live(*handle),
            },
            Action::ReadDir { dir, .. } => self.must_be_dir(*dir),
            Action::Readlink { handle } => match self.nodes.get(handle) {
                Some(node) if node.kind == FileKind::Symlink => Statuses::default(),
                Some(node) if !node.removed => Statuses::of(&[Status::Invalid]),
                // That it is no symlink is true before and after.
                Some(_) => Statuses::of(&GONE).with(Status::Invalid),
                None => Statuses::of(&GONE),
            },
            Action::SetSize { handle, .. } | Action::Open { handle } => match self.nodes.get(handle) {
                Some(node) if node.kind == FileKind::File => Statuses::default(),
                Some(node) if node.kind == FileKind::Directory && !node.removed => Statuses::of(&[Status::IsDirectory, Status::Invalid]),
                Some(node) if !node.removed => Statuses::of(&[Status::Invalid, Status::NotSupported, Status::TooManySymlinks]),
                _ => Statuses::of(&GONE),
            },
            Action::Close { .. }
            | Action::Write { .. }
            | Action::Content { .. }
            | Action::Allocate { .. }
            | Action::Read { .. }
            | Action::Fsync { .. }
            | Action::SyncAll => Statuses::default(),
        }
    }

    /// Errors that may be answered although the operation could succeed: of an object without names
    /// it is not known how long it remains, unless the caller has it open.
    pub(super) fn lenient_errors(&self, action: &Action) -> Statuses {
        let handle = match action {
            Action::GetAttr { handle, held: false }
            | Action::Readlink { handle }
            | Action::SetMode { handle, .. }
            | Action::SetTime { handle, .. }
            | Action::SetSize { handle, .. }
            | Action::SetXattr { handle, .. }
            | Action::GetXattr { handle }
            | Action::RemoveXattr { handle }
            | Action::Open { handle } => handle,
            // What a library does with a name that leads to a link or pipe is no matter of
            // atomicity.
            Action::Create { dir, name, exclusive: false, .. } => {
                return match self.entry(*dir, *name) {
                    Ok(Some(found)) if self.kind(found) != FileKind::File => {
                        Statuses::of(&[Status::Invalid, Status::NotSupported, Status::TooManySymlinks, Status::Exists])
                    }
                    _ => Statuses::default(),
                };
            }
            _ => return Statuses::default(),
        };
        match self.nodes.get(handle) {
            Some(node) if node.kind != FileKind::Directory && node.links == 0 => Statuses::of(&GONE),
            _ => Statuses::default(),
        }
    }

    pub(super) fn rename_errors(&self, from_dir: Handle, from: Name, to_dir: Handle, to: Name, mode: RenameMode) -> Statuses {
        let source = self.existing(from_dir, from);
        let target = self.entry(to_dir, to);
        let mut errors = source.err().unwrap_or_default().and(target.err().unwrap_or_default());
        let target = target.unwrap_or_default();
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => errors = errors.with(Status::Exists),
            (RenameMode::Exchange, None) => errors = errors.with(Status::NotFound),
            _ => {}
        }
        let Ok(source) = source else { return errors };
        if self.kind(source) == FileKind::Directory && self.is_below(to_dir, source) {
            errors = errors.with(Status::Invalid);
        }
        let Some(target) = target else { return errors };
        if source == target {
            return errors;
        }
        let target_is_above = self.kind(target) == FileKind::Directory && self.is_below(from_dir, target);
        if mode == RenameMode::Exchange {
            return if target_is_above { errors.and(Statuses::of(&[Status::Invalid, Status::NotEmpty])) } else { errors };
        }
        match (self.kind(source) == FileKind::Directory, self.nodes.get(&target)) {
            (true, Some(node)) if node.kind != FileKind::Directory => errors.with(Status::NotDirectory),
            (false, Some(node)) if node.kind == FileKind::Directory => errors.with(Status::IsDirectory),
            (true, Some(node)) if !node.entries.is_empty() => errors.with(Status::NotEmpty),
            _ => errors,
        }
    }

    pub(super) fn must_be_dir(&self, dir: Handle) -> Statuses {
        match self.nodes.get(&dir) {
            Some(node) if node.kind == FileKind::Directory && !node.removed => Statuses::default(),
            Some(node) if node.kind != FileKind::Directory && node.links > 0 => Statuses::of(&[Status::NotDirectory]),
            Some(node) if node.kind != FileKind::Directory => Statuses::of(&GONE).with(Status::NotDirectory),
            _ => Statuses::of(&GONE),
        }
    }

    pub(super) fn must_live(&self, handle: Handle) -> Statuses {
        match self.nodes.get(&handle) {
            Some(node) if !node.removed => Statuses::default(),
            _ => Statuses::of(&GONE),
        }
    }

    pub(super) fn must_be_free(&self, dir: Handle, name: Name) -> Statuses {
        match self.entry(dir, name) {
            Ok(None) => Statuses::default(),
            Ok(Some(_)) => Statuses::of(&[Status::Exists]),
            Err(errors) => errors,
        }
    }

    pub(super) fn entry(&self, dir: Handle, name: Name) -> Result<Option<Handle>, Statuses> {
        let errors = self.must_be_dir(dir);
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(self.nodes.get(&dir).and_then(|node| node.entries.get(&name).copied()))
    }

    pub(super) fn existing(&self, dir: Handle, name: Name) -> Result<Handle, Statuses> {
        self.entry(dir, name)?.ok_or(Statuses::of(&[Status::NotFound]))
    }
}
