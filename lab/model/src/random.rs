//! The linear congruential generator with 48 bits of state that Unix knows as `drand48` and Java as
//! `java.util.Random`; here because the random workloads of the thesis were drawn with it. (Knuth,
//! The Art of Computer Programming 2, 3.2.1; constants and the way numbers are taken from the
//! state: Java class library documentation of `java.util.Random`.)

/// A generator; the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Lcg48 {
    state: u64,
}

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;

impl Lcg48 {
    /// A generator for this seed.
    pub fn new(seed: u64) -> Lcg48 {
        Lcg48 { state: (seed ^ MULTIPLIER) & MASK }
    }

    fn next_bits(&mut self, bits: u32) -> u32 {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        (self.state >> (48 - bits)) as u32
    }

    /// An even number from 0 to `bound` (not included), at most 2^31.
    ///
    /// # Panics
    /// If `bound` is 0 or above 2^31.
    pub fn next_below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0 && bound <= 1 << 31, "bounds are from 1 to 2^31");
        if bound.is_power_of_two() {
            return ((u64::from(bound) * u64::from(self.next_bits(31))) >> 31) as u32;
        }
        loop {
            let bits = self.next_bits(31);
            let value = bits % bound;
            // Numbers from the incomplete last stretch would make the distribution uneven.
            if u64::from(bits - value) + u64::from(bound) <= 1 << 31 {
                return value;
            }
        }
    }

    /// 64 bits, as two draws of 32 (both signed when added, as in the original).
    pub fn next_i64(&mut self) -> i64 {
        let high = i64::from(self.next_bits(32) as i32) << 32;
        high.wrapping_add(i64::from(self.next_bits(32) as i32))
    }

    /// True or false.
    pub fn next_bool(&mut self) -> bool {
        self.next_bits(1) != 0
    }

    /// A number from 0 to 1 (not included).
    pub fn next_f64(&mut self) -> f64 {
        let high = u64::from(self.next_bits(26)) << 27;
        (high + u64::from(self.next_bits(27))) as f64 / (1_u64 << 53) as f64
    }

    /// Puts a list into a random order (Fisher and Yates; last place first).
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for place in (1..list.len()).rev() {
            let other = self.next_below(place as u32 + 1) as usize;
            list.swap(place, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        // First numbers of java.util.Random with seed 0 and 42, as found in many publications.
        let mut zero = Lcg48::new(0);
        assert_eq!(zero.next_bits(32) as i32, -1_155_484_576);
        assert_eq!(zero.next_bits(32) as i32, -723_955_400);
        let mut bounded = Lcg48::new(42);
        let drawn: Vec<u32> = (0..5).map(|_| bounded.next_below(10)).collect();
        assert_eq!(drawn, [0, 3, 8, 4, 0]);
        assert_eq!(Lcg48::new(0).next_i64(), -4_962_768_465_676_381_896);
    }

    #[test]
    fn a_shuffle_keeps_every_element() {
        let mut list: Vec<u32> = (0..1000).collect();
        Lcg48::new(1).shuffle(&mut list);
        assert_ne!(list[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        list.sort_unstable();
        assert!(list.iter().enumerate().all(|(index, &value)| index as u32 == value));
    }
}
