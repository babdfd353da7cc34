//! Ends servers cleanly when the process is asked to end.

use std::io;
use std::sync::OnceLock;

use crate::shard::StopHandle;
use crate::sys;

static STOP: OnceLock<StopHandle> = OnceLock::new();

/// Stops the servers that use `handle` when the process receives SIGTERM or SIGINT. Once per process: later calls with another
/// handle are refused.
///
/// # Errors
/// When the system refuses, or when another handle was given before.
pub fn stop_on_signals(handle: &StopHandle) -> io::Result<()> {
    if STOP.set(handle.clone()).is_err() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "signals of this process stop another server already"));
    }
    sys::on_signal(libc::SIGTERM, stop)?;
    sys::on_signal(libc::SIGINT, stop)
}

extern "C" fn stop(_signal: libc::c_int) {
    // An atomic load, an atomic store and one write: all allowed in a signal handler.
    if let Some(handle) = STOP.get() {
        handle.stop();
    }
}
