//! Space-Saving: the heaviest keys of a stream in bounded memory (Metwally, Agrawal and El Abbadi,
//! *Efficient Computation of Frequent and Top-k Elements in Data Streams*, ICDT 2005, section 3),
//! with weights.
//!
//! Every counted key has an estimate and an error. A key that is not counted takes the place of the
//! one with the smallest estimate and inherits it as its error. With m places and a total weight of
//! N: no error is larger than N / m, no estimate is below the truth, and every key with more than N
//! / m is counted.
//!
//! The paper keeps places in a list of buckets with equal estimates, which is for weights of 1.
//! Here is a heap: bytes are weights.

use weft_base::FastMap;

/// The heaviest keys.
#[derive(Clone, Debug)]
pub struct Sketch {
    capacity: usize,
    places: Vec<Place>,
    /// Numbers of places; the one with the smallest estimate is first.
    heap: Vec<u32>,
    by_key: FastMap<u64, u32>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    key: u64,
    count: u64,
    error: u64,
    at: u32,
}

/// What is known about a key: the truth is between `count - error` and `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The key.
    pub key: u64,
    /// Weight, at most.
    pub count: u64,
    /// How much less it may be.
    pub error: u64,
}

impl Estimate {
    /// Weight, at least.
    pub fn at_least(&self) -> u64 {
        self.count - self.error
    }
}

impl Sketch {
    /// Counts at most so many keys at once.
    pub fn new(capacity: usize) -> Sketch {
        assert!(capacity > 0, "somebody must be counted");
        Sketch { capacity, places: Vec::new(), heap: Vec::new(), by_key: FastMap::default() }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.places.clear();
        self.heap.clear();
        self.by_key.clear();
    }

    /// The key has so much more.
    pub fn add(&mut self, key: u64, weight: u64) {
        if let Some(place) = self.by_key.get(&key) {
            let place = &mut self.places[*place as usize];
            place.count += weight;
            let at = place.at as usize;
            self.sink(at);
            return;
        }
        if self.places.len() < self.capacity {
            let number = self.places.len() as u32;
            self.places.push(Place { key, count: weight, error: 0, at: number });
            self.heap.push(number);
            self.by_key.insert(key, number);
            self.rise(number as usize);
            return;
        }
        let number = self.heap[0];
        let place = &mut self.places[number as usize];
        self.by_key.remove(&place.key);
        *place = Place { key, count: place.count + weight, error: place.count, at: 0 };
        self.by_key.insert(key, number);
        self.sink(0);
    }

    /// What a key that is not counted may have at most.
    pub fn uncounted_max(&self) -> u64 {
        if self.places.len() < self.capacity { 0 } else { self.heap.first().map_or(0, |number| self.places[*number as usize].count) }
    }

    /// All counted keys, in no order.
    pub fn estimates(&self) -> impl Iterator<Item = Estimate> + '_ {
        self.places.iter().map(|place| Estimate { key: place.key, count: place.count, error: place.error })
    }

    /// The estimate for one key.
    pub fn estimate(&self, key: u64) -> Estimate {
        match self.by_key.get(&key) {
            Some(place) => {
                let place = self.places[*place as usize];
                Estimate { key, count: place.count, error: place.error }
            }
            None => Estimate { key, count: self.uncounted_max(), error: self.uncounted_max() },
        }
    }

    /// The heaviest keys of two streams together, those with the largest certain weight first, at
    /// most so many. Errors add up (Agarwal et al., *Mergeable Summaries*, PODS 2012).
    pub fn heaviest_of_both(&self, other: &Sketch, limit: usize) -> Vec<Estimate> {
        let both = |key: u64| {
            let (a, b) = (self.estimate(key), other.estimate(key));
            Estimate { key, count: a.count + b.count, error: a.error + b.error }
        };
        let only_there = other.estimates().filter(|estimate| !self.by_key.contains_key(&estimate.key));
        let mut all: Vec<Estimate> = self.estimates().chain(only_there).map(|estimate| both(estimate.key)).collect();
        all.retain(|estimate| estimate.at_least() > 0);
        all.sort_unstable_by_key(|estimate| (std::cmp::Reverse(estimate.at_least()), estimate.key));
        all.truncate(limit);
        all
    }

    fn count_at(&self, at: usize) -> u64 {
        self.places[self.heap[at] as usize].count
    }

    fn put(&mut self, at: usize, number: u32) {
        self.heap[at] = number;
        self.places[number as usize].at = at as u32;
    }

    /// The estimate there has grown.
    fn sink(&mut self, mut at: usize) {
        let number = self.heap[at];
        let count = self.places[number as usize].count;
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.count_at(child + 1) < self.count_at(child) {
                child += 1;
            }
            if self.count_at(child) >= count {
                break;
            }
            self.put(at, self.heap[child]);
            at = child;
        }
        self.put(at, number);
    }

    /// The estimate there is new.
    fn rise(&mut self, mut at: usize) {
        let number = self.heap[at];
        let count = self.places[number as usize].count;
        while at > 0 && self.count_at((at - 1) / 2) > count {
            self.put(at, self.heap[(at - 1) / 2]);
            at = (at - 1) / 2;
        }
        self.put(at, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Stream = Vec<(u64, u64)>;

    /// Few keys are heavy, many are light, as clients and files are.
    fn streams() -> impl Strategy<Value = Stream> {
        let key = prop_oneof![3 => 0u64..4, 2 => 0u64..20, 2 => any::<u64>()];
        proptest::collection::vec((key, 1u64..100), 0..400)
    }

    fn sketch_of(capacity: usize, stream: &Stream) -> Sketch {
        let mut sketch = Sketch::new(capacity);
        stream.iter().for_each(|(key, weight)| sketch.add(*key, *weight));
        sketch
    }

    fn truth(stream: &[(u64, u64)]) -> BTreeMap<u64, u64> {
        let mut truth = BTreeMap::new();
        stream.iter().for_each(|(key, weight)| *truth.entry(*key).or_default() += weight);
        truth
    }

    proptest! {
        #[test]
        fn the_bounds_of_the_paper_hold(capacity in 1usize..40, stream in streams()) {
            let (sketch, truth) = (sketch_of(capacity, &stream), truth(&stream));
            let total: u64 = truth.values().sum();
            let counted: BTreeMap<u64, Estimate> = sketch.estimates().map(|estimate| (estimate.key, estimate)).collect();
            prop_assert!(counted.len() <= capacity);
            prop_assert_eq!(counted.values().map(|estimate| estimate.count).sum::<u64>(), total, "weight is passed on, never lost");
            for (key, weight) in &truth {
                let estimate = sketch.estimate(*key);
                prop_assert!(estimate.at_least() <= *weight && *weight <= estimate.count);
                prop_assert!(estimate.error <= total / capacity as u64);
                prop_assert!(*weight <= total / capacity as u64 || counted.contains_key(key), "a heavy key is counted");
            }
            if truth.len() <= capacity {
                let exact: BTreeMap<u64, u64> = counted.values().map(|estimate| (estimate.key, estimate.at_least())).collect();
                prop_assert_eq!(exact, truth, "with a place for everybody nothing is estimated");
            }
        }

        #[test]
        fn two_streams_together(capacity in 1usize..40, first in streams(), second in streams(), limit in 1usize..50) {
            let (a, b) = (sketch_of(capacity, &first), sketch_of(capacity, &second));
            let all: Stream = first.into_iter().chain(second).collect();
            let truth = truth(&all);
            let rows = a.heaviest_of_both(&b, limit);
            prop_assert!(rows.len() <= limit && rows.is_sorted_by(|a, b| a.at_least() >= b.at_least()));
            for row in &rows {
                let weight = truth.get(&row.key).copied().unwrap_or(0);
                prop_assert!(row.at_least() <= weight && weight <= row.count, "{:?} {}", row, weight);
            }
            if truth.len() <= capacity {
                let heaviest = truth.values().copied().max();
                prop_assert_eq!(rows.first().map(|row| row.count), heaviest);
            }
        }
    }

    #[test]
    fn the_smallest_is_always_on_top() {
        let mut sketch = Sketch::new(16);
        for step in 0..10_000u64 {
            sketch.add(step * step % 37, step % 5 + 1);
            let smallest = sketch.estimates().map(|estimate| estimate.count).min();
            assert_eq!(Some(sketch.count_at(0)), smallest);
        }
    }
}
