//! Memory that crosses the border without a copy. Memory of Python objects (`bytes`, `bytearray`,
//! `memoryview`, arrays) is used without the interpreter's lock: the buffer is held, so it stays
//! where it is; that nobody writes to it meanwhile is for the program to see to, as for every call
//! of Python that releases the lock. Memory of the library is shown to Python as a `memoryview`.

use std::ffi::{c_int, c_void};

use bytes::Bytes;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// The memory of an object, in one piece.
pub(crate) struct Memory(PyUntypedBuffer);

impl Memory {
    /// # Errors
    /// If the object has none, not in one piece, or not to be written to.
    pub(crate) fn of(object: &Bound<'_, PyAny>, is_written: bool) -> PyResult<Memory> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not in one piece"));
        }
        if is_written && buffer.readonly() {
            return Err(PyBufferError::new_err("the buffer cannot be written to"));
        }
        Ok(Memory(buffer))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self.0.len_bytes() {
            0 => &[],
            // SAFETY: the buffer is held by `self`, in one piece and so long.
            len => unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), len) },
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self.0.len_bytes() {
            0 => &mut [],
            // SAFETY: as above; that it may be written to was checked.
            len => unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast::<u8>(), len) },
        }
    }
}

/// Bytes of the library, which Python reads where they are.
#[pyclass(frozen, module = "weft._native")]
struct Received(Bytes);

#[pymethods]
impl Received {
    /// # Safety
    /// As the interpreter calls it: `view` is for this to fill in.
    unsafe fn __getbuffer__(this: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = &this.get().0;
        // They stay where they are and nobody writes to them while the object lives, which `view`
        // holds; it is shown as read-only.
        let (first, len) = (bytes.as_ptr().cast::<c_void>().cast_mut(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: `view` is the interpreter's, and the memory is there for as long as the object.
        match unsafe { ffi::PyBuffer_FillInfo(view, this.as_ptr(), first, len, 1, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(this.py())),
        }
    }
}

/// A read-only `memoryview` of these bytes, which lasts as long as anything in Python uses it.
pub(crate) fn view(py: Python<'_>, bytes: Bytes) -> PyResult<Bound<'_, PyAny>> {
    Ok(PyMemoryView::from(Bound::new(py, Received(bytes))?.as_any())?.into_any())
}
