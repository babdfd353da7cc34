//! Units: bytes, rates, and how a duration in seconds becomes nanoseconds.

/// 1024 bytes.
pub const KIB: u64 = 1024;
/// 1024 KiB.
pub const MIB: u64 = 1024 * KIB;
/// 1024 MiB.
pub const GIB: u64 = 1024 * MIB;

/// Nanoseconds of a duration in seconds, cut (not rounded): whole seconds first, then the rest
/// times 10^9 in double precision. Each duration is cut by itself before it is added to anything,
/// as in the program behind the thesis; rounding would shift its results in the last digits.
pub fn nanos(seconds: f64) -> u64 {
    let whole = seconds.trunc();
    let rest = ((seconds - whole) * 1e9) as u64;
    whole as u64 * 1_000_000_000 + rest
}

/// Nanoseconds that `bytes` take at `bytes_per_second`.
pub fn transfer_nanos(bytes: u64, bytes_per_second: u64) -> u64 {
    nanos(bytes as f64 / bytes_per_second as f64)
}

/// Seconds of a time in nanoseconds, for reports.
pub fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_cut_and_not_rounded() {
        assert_eq!(nanos(1e-6), 1000);
        assert_eq!(nanos(2.0), 2_000_000_000);
        assert_eq!(transfer_nanos(100 * KIB, 100 * MIB), 976_562);
        assert_eq!(transfer_nanos(100 * KIB, 1000 * MIB), 97_656);
        assert_eq!(transfer_nanos(250 * MIB, 100 * MIB), 2_500_000_000);
    }
}
