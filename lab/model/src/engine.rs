//! The event engine: one list of future events, ordered by time, and a choice of what happens when
//! times are equal.
//!
//! Simulated clusters are full of ties: ten clients start at the same instant and send equal
//! messages. Which of them comes first decides how queues form, and so the result. Three orders are
//! offered. `Natural` is first in, first out. `Thesis` is the order of the program behind the
//! PIOsimHD thesis: whatever an array binary heap with strict comparisons happens to do. It is
//! needed to reproduce printed results to the last digit and is not better in any other way.
//! `Random` draws the order: several seeds show how much a result owes to ties.
//!
//! All are the same heap: entries are compared by (time, sequence). In the thesis order every
//! sequence is 0, in the random one a hash of seed and number.

/// What happens between events of the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TieOrder {
    /// First in, first out.
    #[default]
    Natural,
    /// The order of an array binary heap with strict comparisons (PIOsimHD 2009).
    Thesis,
    /// Drawn from this seed.
    Random(u64),
}

#[derive(Clone, Copy)]
struct Entry<E> {
    time: u64,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    fn is_later_than(&self, other: &Entry<E>) -> bool {
        // Two words instead of one: the first decides almost always.
        self.time > other.time || (self.time == other.time && self.sequence > other.sequence)
    }
}

/// The future events of a simulation, and its clock.
pub struct EventQueue<E> {
    heap: Vec<Entry<E>>,
    order: TieOrder,
    /// 0 in the thesis order, where all sequences are equal.
    sequence_step: u64,
    sequence: u64,
    now: u64,
    processed: u64,
}

impl<E: Copy + PartialEq> EventQueue<E> {
    /// An empty list at time 0.
    pub fn new(order: TieOrder) -> EventQueue<E> {
        let (sequence, sequence_step) = match order {
            TieOrder::Natural => (0, 1),
            TieOrder::Thesis => (0, 0),
            TieOrder::Random(seed) => (hash(seed), GOLDEN),
        };
        EventQueue { heap: Vec::with_capacity(1024), order, sequence_step, sequence, now: 0, processed: 0 }
    }

    /// The virtual time: that of the last event taken out, nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Events taken out so far.
    pub fn processed(&self) -> u64 {
        self.processed
    }

    /// Events still to come.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is left to happen.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The order between events of the same time.
    pub fn order(&self) -> TieOrder {
        self.order
    }

    /// Adds an event at the absolute time `at` (nanoseconds, not before [`EventQueue::now`]).
    pub fn push(&mut self, at: u64, event: E) {
        debug_assert!(at >= self.now, "events lie in the future");
        let sequence = if matches!(self.order, TieOrder::Random(_)) { hash(self.sequence) } else { self.sequence };
        let entry = Entry { time: at, sequence, event };
        self.sequence = self.sequence.wrapping_add(self.sequence_step);
        self.heap.push(entry);
        self.sift_up(self.heap.len() - 1, entry);
    }

    /// Adds an event `delay` nanoseconds from now.
    pub fn push_after(&mut self, delay: u64, event: E) {
        self.push(self.now + delay, event);
    }

    /// Takes out the next event and moves the clock to it; `None` when nothing is left.
    pub fn pop(&mut self) -> Option<E> {
        let last = self.heap.pop()?;
        let first = match self.heap.first() {
            Some(&first) => {
                self.sift_down(0, last);
                first
            }
            None => last,
        };
        self.now = first.time;
        self.processed += 1;
        Some(first.event)
    }

    /// Takes an event out of the list without executing it and puts it back in at the same time.
    /// Only the order of ties can change by that: the processors of the thesis do it with their
    /// timer (see [`crate::cpu`]). Nothing happens if the event is not in the list.
    pub fn reinsert(&mut self, at: u64, event: E) {
        // A timer that was just set is near the place where the last insertions went, so search
        // from the end.
        let Some(index) = self.heap.iter().rposition(|entry| entry.time == at && entry.event == event) else { return };
        self.remove_at(index);
        self.push(at, event);
    }

    fn remove_at(&mut self, index: usize) {
        let Some(last) = self.heap.pop() else { return };
        if index == self.heap.len() {
            return;
        }
        if self.sift_down(index, last) == index {
            self.sift_up(index, last);
        }
    }

    /// Moves the hole at `index` up until `entry` fits, and puts it there.
    fn sift_up(&mut self, mut index: usize, entry: Entry<E>) {
        let heap = self.heap.as_mut_slice();
        while index > 0 {
            let parent = (index - 1) / 2;
            if !heap[parent].is_later_than(&entry) {
                break;
            }
            heap[index] = heap[parent];
            index = parent;
        }
        heap[index] = entry;
    }

    /// Moves the hole at `index` down until `entry` fits, puts it there and returns the place.
    fn sift_down(&mut self, mut index: usize, entry: Entry<E>) -> usize {
        let heap = self.heap.as_mut_slice();
        loop {
            let mut child = 2 * index + 1;
            if child >= heap.len() {
                break;
            }
            if child + 1 < heap.len() && heap[child].is_later_than(&heap[child + 1]) {
                child += 1;
            }
            if !entry.is_later_than(&heap[child]) {
                break;
            }
            heap[index] = heap[child];
            index = child;
        }
        heap[index] = entry;
        index
    }
}

/// The step between inputs of [`hash`]: 2^64 divided by the golden ratio, odd.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a permutation of 64-bit
/// numbers, so no two sequences are equal.
fn hash(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut EventQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn ties_come_out_first_in_first_out_in_the_natural_order() {
        let mut queue = EventQueue::new(TieOrder::Natural);
        for event in 0..100 {
            queue.push(u64::from(event % 3), event);
        }
        let expected: Vec<u32> = (0..3).flat_map(|time| (0..100).filter(move |event| event % 3 == time)).collect();
        assert_eq!(drain(&mut queue), expected);
        assert_eq!(queue.now(), 2);
        assert_eq!(queue.processed(), 100);
    }

    #[test]
    fn ties_come_out_in_the_order_of_the_array_heap_in_the_thesis_order() {
        // By hand: five equal times stay in the array as 0 1 2 3 4. The last one always replaces
        // the root and stays there, because nothing is strictly later: 0, then 4, 3, 2, 1.
        let mut queue = EventQueue::new(TieOrder::Thesis);
        for event in 0..5 {
            queue.push(7, event);
        }
        assert_eq!(drain(&mut queue), [0, 4, 3, 2, 1]);
    }

    #[test]
    fn ties_come_out_in_an_order_drawn_from_the_seed_in_the_random_order() {
        let drawn = |seed| {
            let mut queue = EventQueue::new(TieOrder::Random(seed));
            (0..100).for_each(|event| queue.push(u64::from(event % 2), event));
            drain(&mut queue)
        };
        let first = drawn(1);
        assert_eq!(first, drawn(1), "a seed is an order");
        assert!((2..10).all(|seed| drawn(seed) != first), "another seed is another order");
        // Times come before ties, and no event is lost.
        let (mut even, mut odd) = (first[..50].to_vec(), first[50..].to_vec());
        assert!(even.iter().all(|event| event % 2 == 0) && odd.iter().all(|event| event % 2 == 1), "{first:?}");
        even.sort_unstable();
        odd.sort_unstable();
        assert!(even.into_iter().eq((0..100).step_by(2)) && odd.into_iter().eq((1..100).step_by(2)));
        // Every event is the first one under some seed: no place of the list is preferred.
        let firsts: std::collections::BTreeSet<u32> = (0..600).map(|seed| drawn(seed)[0]).collect();
        assert_eq!(firsts.len(), 50);
    }

    #[test]
    fn reinsertion_moves_a_timer_behind_its_ties() {
        let mut queue = EventQueue::new(TieOrder::Thesis);
        for event in 0..4 {
            queue.push(7, event);
        }
        // Array 0 1 2 3: taking out 1 puts 3 in its place (0 3 2), putting it back gives 0 3 2 1.
        queue.reinsert(7, 1);
        queue.reinsert(7, 99);
        assert_eq!(drain(&mut queue), [0, 1, 2, 3]);
    }

    #[test]
    fn times_come_out_in_order_under_any_mixture_of_operations() {
        for order in [TieOrder::Natural, TieOrder::Thesis, TieOrder::Random(3)] {
            let mut queue = EventQueue::new(order);
            let mut random = crate::random::Lcg48::new(5);
            let (mut pending, mut last) = (0_i64, 0);
            for step in 0..20_000 {
                if random.next_below(3) > 0 || pending == 0 {
                    let at = queue.now() + u64::from(random.next_below(50));
                    queue.push(at, step);
                    if random.next_below(4) == 0 {
                        queue.reinsert(at, step);
                    }
                    pending += 1;
                } else {
                    assert!(queue.pop().is_some());
                    assert!(queue.now() >= last);
                    last = queue.now();
                    pending -= 1;
                }
            }
            assert_eq!(queue.len() as i64, pending);
        }
    }
}
