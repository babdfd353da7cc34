//! Whether a trace fits into memory: one that does not is refused before the system ends whichever
//! process it likes.

use std::fs;
use weft_host::proc;

use anyhow::{Result, bail};

/// Bytes of memory for each byte of trace files, at most: the records themselves, their times,
/// tiles, the analysis and what it needs while it works. Measured: 2.8 (`docs/viewer.md`).
const PER_BYTE: u64 = 3;
const MIB: u64 = 1 << 20;

/// Refuses traces of so many bytes if the machine has not the memory for them now.
///
/// # Errors
/// A sentence that says what to do instead.
pub fn check(trace_bytes: u64) -> Result<()> {
    // Where the system does not tell, nothing is refused.
    match fs::read_to_string("/proc/meminfo").ok().and_then(|text| proc::memory(&text, "MemAvailable")) {
        Some(available) => fits(trace_bytes, available),
        None => Ok(()),
    }
}

fn fits(trace_bytes: u64, available: u64) -> Result<()> {
    let needed = trace_bytes.saturating_mul(PER_BYTE);
    if needed > available {
        bail!(
            "its traces of {} MiB need about {} MiB of memory, and {} MiB are free: give it fewer files (one client and its servers), or a \
             recording of a shorter time",
            trace_bytes / MIB,
            needed / MIB,
            available / MIB
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_advice() {
        let free = 3 * MIB;
        assert!(fits(MIB, free).is_ok());
        let refused = fits(MIB + 1, free).unwrap_err().to_string();
        assert!(refused.contains("3 MiB are free") && refused.contains("fewer files"), "{refused}");
    }
}
