//! The processor's time stamp counter. This file holds the only `unsafe` of the crate.

/// True if this processor has such a counter that programs may read.
pub const AVAILABLE: bool = cfg!(target_arch = "x86_64");

/// The counter, in ticks; 0 for ever where there is none. Not serialising: the processor may read
/// it some instructions early or late, which at 0.3 ns an instruction is below the noise of what is
/// measured.
#[inline(always)]
#[allow(unsafe_code)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction exists on every x86-64 processor and touches no memory. If the kernel
    // forbids it to programs (CR4.TSD), it also does not offer `tsc` as clock source, so
    // `tsc_is_sound` keeps the callers away; a call all the same ends the process with a signal and
    // not with undefined behaviour.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_not_go_backwards_on_one_thread() {
        let readings: Vec<u64> = (0..1000).map(|_| ticks()).collect();
        assert!(readings.is_sorted());
        assert!(!AVAILABLE || readings[0] != readings[999]);
    }
}
