//! The source of all randomness: xoshiro256** (Blackman and Vigna), seeded by splitmix64. Not for
//! keys.

/// A deterministic stream of random numbers. Tests may draw their workloads from one of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream that belongs to `seed`.
    pub fn new(seed: u64) -> Random {
        let mut at = seed;
        let state = std::array::from_fn(|_| {
            at = at.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(at)
        });
        Random { state }
    }

    /// A stream that is independent of this one, which goes on.
    pub fn fork(&mut self) -> Random {
        Random::new(self.draw())
    }

    /// 64 random bits.
    pub fn draw(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number from 0 to `bound - 1`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high.max(low) - low).saturating_add(1))
    }

    /// True in `parts` of a million cases.
    pub fn chance(&mut self, parts: u32) -> bool {
        self.below(1_000_000) < u64::from(parts)
    }

    /// True in half of all cases.
    pub fn coin(&mut self) -> bool {
        self.draw() >> 63 == 1
    }

    /// One of `items`; `None` if there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }
}

/// The finaliser of splitmix64: a fixed bijection that spreads its input over all 64 bits.
pub(crate) fn mix(word: u64) -> u64 {
    let z = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_and_are_reached() {
        let mut random = Random::new(1);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.below(7) as usize] = true;
            assert!((5..=9).contains(&random.between(5, 9)));
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(0), 0);
        assert_eq!(random.between(3, 3), 3);
        assert!(random.pick::<u8>(&[]).is_none());
    }

    #[test]
    fn a_fork_differs_and_repeats() {
        let (mut first, mut second) = (Random::new(7), Random::new(7));
        let (mut fork, mut again) = (first.fork(), second.fork());
        assert_ne!(fork.draw(), first.draw());
        again.draw();
        assert_eq!(fork.draw(), again.draw());
    }

    #[test]
    fn chance_is_near_its_probability() {
        let mut random = Random::new(2);
        let hits = (0..100_000).filter(|_| random.chance(250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
    }
}
