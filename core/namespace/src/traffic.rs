//! Which directories the requests of a server go to. One request of many is looked at, so it costs
//! next to nothing; what is told of a window is a share, not a count.

use weft_base::{ClientId, Handle};

/// Most requests that a window remembers: the last ones.
const SAMPLES_MAX: usize = 1024;
/// A directory with a smaller share of the requests is not told of, in thousandths.
pub const SHARE_MIN_PERMILLE: u32 = 62;
/// A directory with such a share of the requests of a busy server is hot, in thousandths.
pub const SHARE_HOT_PERMILLE: u32 = 250;

/// The requests of a window.
#[derive(Debug)]
pub struct Traffic {
    /// One request of so many is looked at.
    every: u32,
    /// Fewer of them say nothing.
    samples_min: usize,
    /// So many are not, from now on.
    skipped: u32,
    /// In what directory they name something, if in any, and who asked.
    samples: Vec<(Option<Handle>, ClientId)>,
    /// The oldest of them, if there are as many as may be.
    oldest: usize,
}

/// How much of the requests of a window went to one directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryShare {
    /// The directory.
    pub dir: Handle,
    /// Its share in thousandths.
    pub permille: u32,
    /// Of so many clients, at least.
    pub clients: usize,
}

impl Traffic {
    /// Of a server that looks at one request of `every`; a prime misses no part of a pattern. Less
    /// than `samples_min` of them in a window say nothing.
    pub fn new(every: u32, samples_min: usize) -> Traffic {
        Traffic { every, samples_min, skipped: 0, samples: Vec::new(), oldest: 0 }
    }

    /// There is a request of a client. `dir`: in what directory it names something.
    #[inline]
    pub fn saw(&mut self, client: ClientId, dir: impl FnOnce() -> Option<Handle>) {
        if self.skipped > 0 {
            self.skipped -= 1;
            return;
        }
        self.skipped = self.every.saturating_sub(1);
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push((dir(), client));
        } else {
            self.samples[self.oldest] = (dir(), client);
            self.oldest = (self.oldest + 1) % SAMPLES_MAX;
        }
    }

    /// Ends the window: the directories that had a share worth telling of, the largest first.
    pub fn take_shares(&mut self) -> Vec<DirectoryShare> {
        let mut samples = std::mem::take(&mut self.samples);
        self.oldest = 0;
        let all = samples.len();
        if all < self.samples_min {
            return Vec::new();
        }
        samples.sort_unstable();
        let of_one = samples.chunk_by(|one, next| one.0 == next.0);
        let mut shares: Vec<DirectoryShare> = of_one
            .filter_map(|samples| {
                let permille = (samples.len() * 1000 / all) as u32;
                let clients = samples.chunk_by(|one, next| one.1 == next.1).count();
                samples[0].0.filter(|_| permille >= SHARE_MIN_PERMILLE).map(|dir| DirectoryShare { dir, permille, clients })
            })
            .collect();
        shares.sort_by_key(|share| std::cmp::Reverse(share.permille));
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(every: u32, requests: impl IntoIterator<Item = (Option<u64>, u64)>) -> Vec<DirectoryShare> {
        let mut traffic = Traffic::new(every, 8);
        for (dir, client) in requests {
            traffic.saw(ClientId(client), || dir.map(Handle));
        }
        let shares = traffic.take_shares();
        assert_eq!(traffic.take_shares(), [], "the next window begins empty");
        shares
    }

    #[test]
    fn shares_are_of_all_requests_and_the_largest_comes_first() {
        let requests = (0..680).map(|at| match at % 10 {
            0..5 => (Some(7), at % 3),
            5..7 => (Some(9), 4),
            // Each time another one.
            7 => (Some(1000 + at), 5),
            _ => (None, 6),
        });
        let expected =
            [DirectoryShare { dir: Handle(7), permille: 500, clients: 3 }, DirectoryShare { dir: Handle(9), permille: 200, clients: 1 }];
        assert_eq!(window(1, requests.clone()), expected);
        // A pattern of ten and a step of seventeen meet in each of its places.
        assert_eq!(window(17, requests), expected);
    }

    #[test]
    fn few_requests_say_nothing_and_of_many_the_last_count() {
        assert_eq!(window(1, (0..7).map(|at| (Some(7), at))), []);
        let many = (0..10_000).map(|at| (Some(if at < 9_000 { 7 } else { 8 }), at));
        let shares = window(1, many);
        assert_eq!(shares[0], DirectoryShare { dir: Handle(8), permille: 976, clients: 1000 });
        assert_eq!(shares.len(), 1, "the other one has 24 of 1,024");
    }
}
