//! Directories as items, and the directories of a tree.

use std::cell::RefCell;

use anyhow::Result;
use weft_base::Handle;
use weft_workload::Workload;

use super::{Folder, LibraryTarget, Part};

impl LibraryTarget {
    /// The directory of this name below a client's directory `dir` at `path`: one of a tree is
    /// there already, any other is made later.
    pub(super) fn folder(&self, dir: Handle, path: &[u8], name: &str, work: &Workload) -> Result<Handle> {
        if work.items.depth == 0 || name.is_empty() {
            return Ok(dir);
        }
        Ok(self.fs.stat(&[path, b"/", name.as_bytes()].concat(), false)?.handle)
    }
}

impl Part<'_> {
    pub(super) fn make_directories(&self, folder: &mut Folder) -> Result<()> {
        let (fs, dir) = (self.fs(), folder.handle);
        let names = &folder.names[..self.work.files_of(self.number) as usize];
        let made = RefCell::new(Vec::with_capacity(names.len()));
        self.changes(names, |name| async {
            let attr = fs.client.mkdir(&fs.who, dir, name, 0o755).await?;
            made.borrow_mut().push(attr.handle);
            Ok(())
        })?;
        folder.handles = made.into_inner();
        Ok(())
    }
}
