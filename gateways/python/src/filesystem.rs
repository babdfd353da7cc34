//! File systems.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use weft_base::{Attr, ROOT_HANDLE, WallTime};
use weft_client::{RenameFlags, SetAttr, XattrFlags};
use weft_host::door::{self, ProgramFs, ProgramListing};
use weft_library::OpenOptions;
use weft_wire::ops::SetTime;

use crate::buffers::view;
use crate::file::File;
use crate::os_error;

/// Mode, inode, links, user, group, size, and three times in nanoseconds since 1970.
pub(crate) type Attributes = (u32, u64, u32, u32, u32, u64, i64, i64, i64);
/// Name, kind as in a mode, inode, attributes if they were wanted.
type Row<'py> = (Bound<'py, PyBytes>, u32, u64, Option<Attributes>);

pub(crate) fn tuple_of(attr: &Attr) -> Attributes {
    let mode = attr.kind.mode_bits() | attr.permissions();
    (mode, attr.handle.0, attr.nlink, attr.uid, attr.gid, attr.size, attr.atime.0, attr.mtime.0, attr.ctime.0)
}

/// A file system, until it is closed. Any number of threads may use it at once. Paths are bytes.
#[pyclass(frozen, module = "weft._native")]
pub(crate) struct FileSystem(Mutex<Option<Arc<ProgramFs>>>);

impl FileSystem {
    fn slot(&self) -> MutexGuard<'_, Option<Arc<ProgramFs>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call without the interpreter's lock.
    fn call<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&Arc<ProgramFs>) -> weft_library::Result<T> + Send) -> PyResult<T> {
        let fs = self.slot().clone().ok_or_else(|| PyValueError::new_err("the file system is closed"))?;
        py.detach(|| {
            let outcome = call(&fs);
            // If it was closed meanwhile its end waits for servers.
            drop(fs);
            outcome
        })
        .map_err(os_error)
    }
}

#[pymethods]
impl FileSystem {
    #[new]
    #[pyo3(signature = (fs, key_file=None, timeout_seconds=None))]
    fn open(py: Python<'_>, fs: OsString, key_file: Option<PathBuf>, timeout_seconds: Option<u64>) -> PyResult<FileSystem> {
        let timeout = timeout_seconds.map(Duration::from_secs);
        let opened = py.detach(|| door::open(&fs, key_file, timeout)).map_err(os_error)?;
        Ok(FileSystem(Mutex::new(Some(Arc::new(opened)))))
    }

    /// Calls that are under way, open files and listings keep it.
    fn close(&self, py: Python<'_>) {
        let fs = self.slot().take();
        py.detach(|| drop(fs));
    }

    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Attributes> {
        self.call(py, |fs| fs.stat(path, follow)).map(|attr| tuple_of(&attr))
    }

    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        self.call(py, |fs| fs.mkdir(path, mode))
    }

    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.call(py, |fs| fs.unlink(path))
    }

    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.call(py, |fs| fs.rmdir(path))
    }

    fn rename(&self, py: Python<'_>, from: &[u8], to: &[u8], no_replace: bool) -> PyResult<()> {
        self.call(py, |fs| fs.rename(from, to, RenameFlags { no_replace, exchange: false }))
    }

    fn link(&self, py: Python<'_>, path: &[u8], name: &[u8]) -> PyResult<()> {
        self.call(py, |fs| fs.link(path, name))
    }

    fn symlink(&self, py: Python<'_>, target: &[u8], path: &[u8]) -> PyResult<()> {
        self.call(py, |fs| fs.symlink(target, path))
    }

    fn readlink<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.call(py, |fs| fs.readlink(path)).map(|target| PyBytes::new(py, &target))
    }

    fn truncate(&self, py: Python<'_>, path: &[u8], size: u64) -> PyResult<()> {
        self.call(py, |fs| fs.setattr(path, true, &SetAttr { size: Some(size), ..SetAttr::default() }))
    }

    fn chmod(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        self.call(py, |fs| fs.setattr(path, true, &SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() }))
    }

    fn utime(&self, py: Python<'_>, path: &[u8], times_ns: Option<(i64, i64)>) -> PyResult<()> {
        let (atime, mtime) = times_ns.map_or((None, None), |(atime, mtime)| (Some(WallTime(atime)), Some(WallTime(mtime))));
        let change = SetAttr { atime: Some(SetTime { at: atime }), mtime: Some(SetTime { at: mtime }), ..SetAttr::default() };
        self.call(py, |fs| fs.setattr(path, true, &change))
    }

    fn getxattr<'py>(&self, py: Python<'py>, path: &[u8], name: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        self.call(py, |fs| fs.get_xattr(path, name)).map(|value| PyBytes::new(py, &value))
    }

    fn setxattr(&self, py: Python<'_>, path: &[u8], name: &[u8], value: &[u8]) -> PyResult<()> {
        self.call(py, |fs| fs.set_xattr(path, name, value, XattrFlags::default()))
    }

    fn listxattr<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let names = self.call(py, |fs| fs.list_xattr(path))?;
        Ok(names.iter().map(|name| PyBytes::new(py, name)).collect())
    }

    fn removexattr(&self, py: Python<'_>, path: &[u8], name: &[u8]) -> PyResult<()> {
        self.call(py, |fs| fs.remove_xattr(path, name))
    }

    /// Capacity, free bytes, objects.
    fn statfs(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        self.call(py, |fs| fs.statfs(ROOT_HANDLE)).map(|stats| (stats.capacity_bytes, stats.free_bytes, stats.inodes))
    }

    fn list(&self, py: Python<'_>, path: &[u8], with_attrs: bool) -> PyResult<Listing> {
        self.call(py, |fs| fs.list(path, with_attrs)).map(|listing| Listing(Mutex::new(listing)))
    }

    #[pyo3(signature = (path, *, read, write, append, truncate, exclusive, make))]
    #[allow(clippy::too_many_arguments)] // what an open is
    fn open_file(
        &self,
        py: Python<'_>,
        path: &[u8],
        read: bool,
        write: bool,
        append: bool,
        truncate: bool,
        exclusive: bool,
        make: Option<u32>,
    ) -> PyResult<File> {
        let options = OpenOptions { read, write, append, truncate, exclusive, make, ..OpenOptions::default() };
        self.call(py, |fs| fs.open_file(path, &options)).map(File::new)
    }

    /// Makes or replaces a file.
    fn put(&self, py: Python<'_>, path: &[u8], data: &[u8], mode: u32, exclusive: bool) -> PyResult<()> {
        let content = Bytes::copy_from_slice(data);
        self.call(py, |fs| fs.put(path, mode, exclusive, &content))
    }

    /// For each path the bytes of its file, or a view of them, or the error.
    fn read_many<'py>(&self, py: Python<'py>, paths: Vec<PyBackedBytes>, views: bool) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let paths: Vec<Bytes> = paths.iter().map(|path| Bytes::copy_from_slice(path)).collect();
        let results = self.call(py, |fs| Ok(fs.read_many(&paths)))?;
        let shown = results.into_iter().map(|result| match result {
            Ok(data) if views => view(py, data),
            Ok(data) => Ok(PyBytes::new(py, &data).into_any()),
            Err(error) => os_error(error).into_pyobject(py).map(|error| error.into_any()).map_err(PyErr::from),
        });
        shown.collect()
    }
}

/// A listing; one thread at a time goes on with it.
#[pyclass(frozen, module = "weft._native")]
pub(crate) struct Listing(Mutex<ProgramListing>);

/// Rows of one step.
const ROWS: usize = 512;

#[pymethods]
impl Listing {
    /// The next rows; none at the end.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Vec<Row<'py>>> {
        let entries = py.detach(|| {
            let mut listing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut entries = Vec::new();
            while entries.len() < ROWS {
                match listing.next_entry()? {
                    Some(entry) => entries.push(entry),
                    None => break,
                }
            }
            Ok(entries)
        });
        let entries = entries.map_err(os_error)?;
        let row = |entry: weft_library::ListedEntry| {
            let attr = entry.attr.as_ref().map(tuple_of);
            (PyBytes::new(py, &entry.name), entry.kind.mode_bits(), entry.handle.0, attr)
        };
        Ok(entries.into_iter().map(row).collect())
    }
}
