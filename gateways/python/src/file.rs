//! Open files.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weft_host::door::ProgramFile;

use crate::buffers::Memory;
use crate::filesystem::{Attributes, tuple_of};
use crate::os_error;

/// An open file, until it is closed. Any number of threads may use it at once.
#[pyclass(frozen, module = "weft._native")]
pub(crate) struct File(Mutex<Option<Arc<ProgramFile>>>);

impl File {
    pub(crate) fn new(file: ProgramFile) -> File {
        File(Mutex::new(Some(Arc::new(file))))
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<ProgramFile>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self) -> PyResult<Arc<ProgramFile>> {
        self.slot().clone().ok_or_else(|| PyValueError::new_err("I/O operation on closed file"))
    }
}

#[pymethods]
impl File {
    /// Up to so many bytes at an offset; fewer only at the end.
    fn pread<'py>(&self, py: Python<'py>, bytes: usize, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.file()?;
        let mut got = 0;
        let data = PyBytes::new_with(py, bytes, |buffer| {
            got = py.detach(|| file.read_at(buffer, offset)).map_err(os_error)?;
            Ok(())
        })?;
        Ok(if got == bytes { data } else { PyBytes::new(py, &data.as_bytes()[..got]) })
    }

    /// Reads into a buffer; returns how many bytes.
    fn pread_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let file = self.file()?;
        let mut memory = Memory::of(buffer, true)?;
        let into = memory.bytes_mut();
        py.detach(|| file.read_at(into, offset)).map_err(os_error)
    }

    /// Writes a buffer; returns how many bytes.
    fn pwrite(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let file = self.file()?;
        let memory = Memory::of(data, false)?;
        let bytes = memory.bytes();
        py.detach(|| file.write_at(bytes, offset)).map_err(os_error)?;
        Ok(bytes.len())
    }

    /// Many ranges, given as offset and number of bytes, in one message to each data server.
    fn read_list<'py>(&self, py: Python<'py>, ranges: Vec<(u64, usize)>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let file = self.file()?;
        let mut buffers = ranges.iter().map(|(_, bytes)| zeros(*bytes)).collect::<PyResult<Vec<Vec<u8>>>>()?;
        let mut list: Vec<(u64, &mut [u8])> =
            ranges.iter().zip(&mut buffers).map(|((offset, _), buffer)| (*offset, buffer.as_mut_slice())).collect();
        let got = py.detach(|| file.read_list(&mut list)).map_err(os_error)?;
        Ok(buffers.iter().zip(got).map(|(buffer, got)| PyBytes::new(py, &buffer[..got])).collect())
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Attributes> {
        let file = self.file()?;
        py.detach(|| file.stat()).map(|attr| tuple_of(&attr)).map_err(os_error)
    }

    fn truncate(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        let file = self.file()?;
        py.detach(|| file.truncate(bytes)).map_err(os_error)
    }

    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        let file = self.file()?;
        py.detach(|| file.sync(data_only)).map_err(os_error)
    }

    /// A call of another thread that is under way ends as it would have.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(file) = self.slot().take() else { return Ok(()) };
        py.detach(|| file.finish()).map_err(os_error)
    }
}

/// A program may ask for more than there is memory: that is an error of the call.
fn zeros(bytes: usize) -> PyResult<Vec<u8>> {
    let mut all = Vec::new();
    all.try_reserve_exact(bytes).map_err(|_| PyMemoryError::new_err(()))?;
    all.resize(bytes, 0);
    Ok(all)
}
