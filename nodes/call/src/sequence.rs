//! Sequence numbers of the requests to one server, and which of them are still unfinished.

use std::collections::VecDeque;

/// Gives out 1, 2, 3, ... and knows the oldest number that is not finished. Constant time per
/// number on average.
#[derive(Debug)]
pub struct Sequences {
    oldest: u64,
    /// For every number from `oldest` on that was given out: is it finished? The first one is not.
    finished: VecDeque<bool>,
}

impl Default for Sequences {
    fn default() -> Self {
        Sequences { oldest: 1, finished: VecDeque::new() }
    }
}

impl Sequences {
    /// The next number.
    pub fn begin(&mut self) -> u64 {
        self.finished.push_back(false);
        self.oldest + self.finished.len() as u64 - 1
    }

    /// The number is finished: its reply is here or nobody waits for it any more.
    pub fn finish(&mut self, sequence: u64) {
        let position = sequence.checked_sub(self.oldest).expect("a number is finished once, and only after it was begun");
        self.finished[position as usize] = true;
        while self.finished.front() == Some(&true) {
            self.finished.pop_front();
            self.oldest += 1;
        }
    }

    /// The oldest unfinished number, if any.
    pub fn oldest(&self) -> Option<u64> {
        (!self.finished.is_empty()).then_some(self.oldest)
    }

    /// The newest number that was given out; 0: none was.
    pub fn newest(&self) -> u64 {
        self.oldest + self.finished.len() as u64 - 1
    }

    /// How far an unfinished number is from the oldest unfinished one.
    pub fn span(&self, sequence: u64) -> u32 {
        (sequence - self.oldest).min(u64::from(u32::MAX)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn oldest_follows_a_naive_set() {
        let (mut sequences, mut naive) = (Sequences::default(), BTreeSet::new());
        let mut random = 1u64;
        for step in 0..10_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
            if naive.is_empty() || (random >> 33).is_multiple_of(2) {
                naive.insert(sequences.begin());
            } else {
                let victim = *naive.iter().nth((random >> 40) as usize % naive.len()).expect("it has so many");
                naive.remove(&victim);
                sequences.finish(victim);
            }
            for number in &naive {
                let oldest = naive.first().expect("not empty: number is in it");
                assert_eq!(u64::from(sequences.span(*number)), number - oldest);
            }
        }
    }
}
