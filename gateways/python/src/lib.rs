//! `weft-python`: the native half of the Python package `weft`: calls of `weft-library` without the
//! interpreter's lock, errors as `OSError`, buffers of Python as memory. What is comfortable is in
//! the Python half (`weft/`).
//!
//! It never holds file system state, and never keeps the interpreter waiting for a server.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![allow(unsafe_code)] // `buffers.rs`: memory of Python; and what `pyo3` writes

mod buffers;
mod file;
mod filesystem;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// An error as Python has it: `OSError` makes the class that fits the errno.
fn os_error(error: weft_library::Error) -> PyErr {
    PyOSError::new_err((error.errno(), error.text))
}

/// The native half of the package `weft`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::filesystem::FileSystem;
    #[pymodule_export]
    use crate::filesystem::Listing;
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
