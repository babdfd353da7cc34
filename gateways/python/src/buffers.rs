//! Memory of Python objects (`bytes`, `bytearray`, `memoryview`, arrays), used without the
//! interpreter's lock. The buffer is held, so it stays where it is; that nobody writes to it
//! meanwhile is for the program to see to, as for every call of Python that releases the lock.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

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
