//! Models of hardware: how long something takes and who waits for whom. All are
//! first-come-first-served stations whose service times are known at arrival, so a station needs no
//! queue: the end of a job follows from the end of the job before it.

mod profile;
mod station;

pub use profile::{CpuProfile, DiskProfile, NetProfile, ProcessProfile, Profile, SeekProfile};
pub use station::{Cores, Station};

use weft_base::SECOND;

/// Nanoseconds to move `bytes` at `bytes_per_s`, rounded down; a rate of 0 means that it takes no
/// time.
pub fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    if bytes_per_s == 0 {
        return 0;
    }
    match bytes.checked_mul(SECOND) {
        Some(product) => product / bytes_per_s,
        None => (u128::from(bytes) * u128::from(SECOND) / u128::from(bytes_per_s)).min(u128::from(u64::MAX)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_times() {
        assert_eq!(transfer_ns(100 << 10, 100 << 20), 976_562);
        assert_eq!(transfer_ns(5, 0), 0);
        assert_eq!(transfer_ns(1 << 40, 1 << 30), 1024 * SECOND);
    }
}
