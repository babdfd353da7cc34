//! Listings of directories, page by page.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_base::{Attr, FileKind, Handle, Status};
use weft_posix::InodeNumber;
use weft_rt::ThreadRuntime;

use crate::error::{Error, Result};
use crate::filesystem::FileSystem;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it leads to.
    pub handle: Handle,
    /// The kind of that.
    pub kind: FileKind,
    /// Its attributes, if they were wanted and it was still there; exact unless a data server keeps
    /// silent.
    pub attr: Option<Attr>,
}

/// A directory that is being listed; `.` and `..` are left out.
#[derive(Debug)]
pub struct Listing<R: ThreadRuntime> {
    fs: Arc<FileSystem<R>>,
    path: Vec<u8>,
    number: u64,
    with_attrs: bool,
    cookie: u64,
    page: VecDeque<ListedEntry>,
}

impl<R: ThreadRuntime> FileSystem<R> {
    /// Begins to list the directory at a path.
    ///
    /// # Errors
    /// [`Status::NotDirectory`]; as [`FileSystem::stat`].
    pub fn list(self: &Arc<Self>, path: &[u8], with_attrs: bool) -> Result<Listing<R>> {
        let attr = self.stat(path, true)?;
        if attr.kind != FileKind::Directory {
            let shown = String::from_utf8_lossy(path);
            return Err(Error::new(Status::NotDirectory, format!("list {shown}: {}", Status::NotDirectory)));
        }
        let number = self.posix().open_dir(InodeNumber::of(attr.handle));
        Ok(Listing { fs: self.clone(), path: path.to_vec(), number, with_attrs, cookie: 0, page: VecDeque::new() })
    }
}

impl<R: ThreadRuntime> Listing<R> {
    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// As [`weft_client::Client::readdir`].
    pub fn next_entry(&mut self) -> Result<Option<ListedEntry>> {
        while self.page.is_empty() {
            if !self.read_page()? {
                return Ok(None);
            }
        }
        Ok(self.page.pop_front())
    }

    /// False if nothing follows.
    fn read_page(&mut self) -> Result<bool> {
        let before = self.cookie;
        let fs = &self.fs;
        let (number, with_attrs) = (self.number, self.with_attrs);
        let (cookie, page) = (&mut self.cookie, &mut self.page);
        fs.run("list", &self.path, async |posix| {
            let add = |listed: weft_posix::Listed<'_>| {
                *cookie = listed.cookie;
                if !matches!(listed.name, b"." | b"..") {
                    let attr = listed.shown.map(|(attr, _)| *attr);
                    page.push_back(ListedEntry { name: listed.name.to_vec(), handle: listed.node.handle(), kind: listed.kind, attr });
                }
                false
            };
            posix.list(number, &fs.who, before, with_attrs, add).await
        })?;
        Ok(self.cookie != before)
    }
}

impl<R: ThreadRuntime> Drop for Listing<R> {
    fn drop(&mut self) {
        self.fs.posix().close_dir(self.number);
    }
}
