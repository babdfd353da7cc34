//! Broadcasts and reductions: along binomial trees, directly, or by exchange.

use super::{COLLECTIVE_HEADER_BYTES, CommView};
use crate::config::{Allreduce, Bcast, Reduce};
use crate::mailbox::Stream;
use crate::task::{END, Flow, Op};
use crate::world::{Outside, World};

/// A broadcast in blocks has blocks of so many bytes.
const BCAST_BLOCK_BYTES: u64 = 1 << 20;

impl<'a> World<'a> {
    /// In a tree the root sends to the far half first; everyone else forwards below its lowest set
    /// bit.
    pub(super) fn step_bcast(
        &mut self,
        out: &mut Outside<'_>,
        index: u32,
        step: u32,
        (comm, root, bytes, how): (u32, u32, u64, Bcast),
    ) -> Flow<'a> {
        let view = self.comm(index, comm);
        let tree = Tree { me: swapped(view.me, root), size: view.size() };
        let process = |rank| view.process(swapped(rank, root));
        let (stream, ready) = ((comm, 0, Stream::Collective), (comm, 0, Stream::Ready));
        if how == Bcast::Direct {
            if tree.me == 0 {
                self.send_to_others(out, index, comm, bytes);
            } else {
                self.receive(out.queue, index, stream, process(0));
            }
            return Flow::Done;
        }
        let asks = how == Bcast::TreeReady && bytes > self.config.eager_bytes;
        if asks && step == 0 {
            for child in tree.children() {
                self.receive(out.queue, index, ready, process(child));
            }
            if tree.me != 0 {
                self.send(out, index, ready, process(tree.parent()), COLLECTIVE_HEADER_BYTES, false);
            }
            return Flow::Next(1);
        }
        let step = step - u32::from(asks);
        let is_blockwise = how == Bcast::TreeBlocks;
        let blocks = if is_blockwise { bytes.div_ceil(BCAST_BLOCK_BYTES).max(1) as u32 } else { 1 };
        let steps = if tree.me == 0 { blocks } else { 2 * blocks };
        let next = step + 1 + u32::from(asks);
        if tree.me != 0 && step.is_multiple_of(2) {
            self.receive(out.queue, index, stream, process(tree.parent()));
            return Flow::Next(next);
        }
        let block = if tree.me == 0 { step } else { step / 2 };
        let block_bytes = if is_blockwise { (bytes - u64::from(block) * BCAST_BLOCK_BYTES).min(BCAST_BLOCK_BYTES) } else { bytes };
        for child in tree.children() {
            self.send(out, index, stream, process(child), block_bytes + COLLECTIVE_HEADER_BYTES, false);
        }
        if step + 1 < steps { Flow::Next(next) } else { Flow::Done }
    }

    /// The same tree upwards. The exchange itself is a command called by this one, so it costs a
    /// step of its own (the microsecond shows in Tables 6.1 to 6.5).
    pub(super) fn step_reduce(
        &mut self,
        out: &mut Outside<'_>,
        index: u32,
        step: u32,
        (comm, root, bytes, called): (u32, u32, u64, bool),
    ) -> Flow<'a> {
        let view = self.comm(index, comm);
        let tree = Tree { me: swapped(view.me, root), size: view.size() };
        let (data, accept) = ((comm, 0, Stream::Collective), (comm, 0, Stream::Ready));
        let process = |rank| view.process(swapped(rank, root));
        let how = self.config.commands.reduce;
        match (called, step) {
            _ if how == Reduce::Direct => {
                self.collect(out, index, (comm, root, bytes));
                Flow::Done
            }
            (false, 0) if how == Reduce::TreeReady && bytes > self.config.eager_bytes => {
                for child in tree.children() {
                    self.send(out, index, accept, process(child), COLLECTIVE_HEADER_BYTES, false);
                }
                if tree.me != 0 {
                    self.receive(out.queue, index, accept, process(tree.parent()));
                }
                Flow::Next(1)
            }
            (false, _) => Flow::Call(Op::Reduce { comm, root, bytes, called: true }, END),
            (true, 0) => {
                for child in tree.children() {
                    self.receive(out.queue, index, data, process(child));
                }
                if tree.me == 0 { Flow::Done } else { Flow::Next(1) }
            }
            (true, _) => {
                self.send(out, index, data, process(tree.parent()), bytes + COLLECTIVE_HEADER_BYTES, false);
                Flow::Done
            }
        }
    }

    pub(super) fn step_allreduce(&mut self, out: &mut Outside<'_>, index: u32, step: u32, (comm, bytes): (u32, u64)) -> Flow<'a> {
        match (self.config.commands.allreduce, step) {
            (Allreduce::ReduceBcast, 0) => Flow::Call(Op::Reduce { comm, root: 0, bytes, called: false }, 1),
            (Allreduce::ReduceBcast, _) => Flow::Call(Op::Bcast { comm, root: 0, bytes, how: Bcast::Tree }, END),
            (Allreduce::Root, 0) => {
                self.collect(out, index, (comm, 0, bytes));
                Flow::Next(1)
            }
            (Allreduce::Root, _) => Flow::Call(Op::Bcast { comm, root: 0, bytes, how: Bcast::Direct }, END),
            (Allreduce::Exchange, _) => self.step_exchange(out, index, step, (comm, bytes)),
        }
    }

    /// Round by round. Of the ranks beyond a power of two each even one takes part for the odd one
    /// behind it, which gives it its data before and gets the result afterwards.
    fn step_exchange(&mut self, out: &mut Outside<'_>, index: u32, step: u32, (comm, bytes): (u32, u64)) -> Flow<'a> {
        let view = self.comm(index, comm);
        let stream = (comm, 0, Stream::Collective);
        let pairs = Pairs::new(view.size());
        let bytes = bytes + COLLECTIVE_HEADER_BYTES;
        let last = pairs.rounds + 1;
        match (pairs.deputy(view.me), step) {
            (Some(deputy), 0) => {
                self.send(out, index, stream, view.process(deputy), bytes, false);
                Flow::Next(last)
            }
            (Some(deputy), _) => {
                self.receive(out.queue, index, stream, view.process(deputy));
                Flow::Done
            }
            (None, 0) => {
                if let Some(other) = pairs.represented(view.me) {
                    self.receive(out.queue, index, stream, view.process(other));
                }
                Flow::Next(1)
            }
            (None, step) if step < last => {
                let partner = view.process(pairs.partner(view.me, step - 1));
                self.send(out, index, stream, partner, bytes, false);
                self.receive(out.queue, index, stream, partner);
                Flow::Next(step + 1)
            }
            (None, _) => {
                if let Some(other) = pairs.represented(view.me) {
                    self.send(out, index, stream, view.process(other), bytes, false);
                }
                Flow::Done
            }
        }
    }

    /// Everyone's data to one rank, as part of the present job set.
    pub(super) fn collect(&mut self, out: &mut Outside<'_>, index: u32, (comm, root, bytes): (u32, u32, u64)) {
        let view = self.comm(index, comm);
        let stream = (comm, 0, Stream::Collective);
        if view.me != root {
            self.send(out, index, stream, view.process(root), bytes + COLLECTIVE_HEADER_BYTES, false);
            return;
        }
        for rank in others(&view) {
            self.receive(out.queue, index, stream, view.process(rank));
        }
    }

    /// One rank's data to all others, as part of the present job set.
    fn send_to_others(&mut self, out: &mut Outside<'_>, index: u32, comm: u32, bytes: u64) {
        let view = self.comm(index, comm);
        for rank in others(&view) {
            let stream = (comm, 0, Stream::Collective);
            self.send(out, index, stream, view.process(rank), bytes + COLLECTIVE_HEADER_BYTES, false);
        }
    }
}

/// All ranks but the one that looks, in order.
pub(super) fn others(view: &CommView<'_>) -> impl Iterator<Item = u32> + use<> {
    let me = view.me;
    (0..view.size()).filter(move |&rank| rank != me)
}

/// Rank 0 and the root change places in a tree.
fn swapped(rank: u32, root: u32) -> u32 {
    match rank {
        0 => root,
        rank if rank == root => 0,
        rank => rank,
    }
}

/// A place in a binomial tree.
#[derive(Clone, Copy)]
struct Tree {
    me: u32,
    size: u32,
}

impl Tree {
    fn parent(self) -> u32 {
        self.me & self.me.wrapping_sub(1)
    }

    /// The children, the one with the largest subtree first.
    fn children(self) -> impl Iterator<Item = u32> {
        let bits = if self.me == 0 { self.size.next_power_of_two().trailing_zeros() } else { self.me.trailing_zeros() };
        (0..bits).rev().map(move |bit| self.me | (1 << bit)).filter(move |&child| child < self.size)
    }
}

/// Who exchanges with whom in which round.
#[derive(Clone, Copy)]
struct Pairs {
    /// Ranks beyond the largest power of two.
    beyond: u32,
    rounds: u32,
}

impl Pairs {
    fn new(size: u32) -> Pairs {
        let rounds = size.max(1).ilog2();
        Pairs { beyond: size - (1 << rounds), rounds }
    }

    /// Who takes part for this rank.
    fn deputy(self, rank: u32) -> Option<u32> {
        (rank < 2 * self.beyond && rank % 2 == 1).then(|| rank - 1)
    }

    /// For whom this rank takes part.
    fn represented(self, rank: u32) -> Option<u32> {
        (rank < 2 * self.beyond && rank.is_multiple_of(2)).then_some(rank + 1)
    }

    fn partner(self, rank: u32, round: u32) -> u32 {
        let place = if rank < 2 * self.beyond { rank / 2 } else { rank - self.beyond };
        let other = place ^ (1 << round);
        if other < self.beyond { 2 * other } else { other + self.beyond }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_reaches_everyone_once() {
        for size in 1..40 {
            let mut reached = vec![0; size as usize];
            for me in 0..size {
                for child in (Tree { me, size }).children() {
                    assert_eq!((Tree { me: child, size }).parent(), me);
                    reached[child as usize] += 1;
                }
            }
            assert_eq!(reached[0], 0);
            assert!(reached[1..].iter().all(|&times| times == 1));
        }
        assert!((Tree { me: 0, size: 10 }).children().eq([8, 4, 2, 1]));
        assert!((Tree { me: 4, size: 10 }).children().eq([6, 5]));
    }

    #[test]
    fn after_the_exchange_everyone_has_everything() {
        for size in 1..70_u32 {
            let pairs = Pairs::new(size);
            let mut has: Vec<u128> = (0..size).map(|rank| 1 << rank).collect();
            for rank in 0..size {
                if let Some(deputy) = pairs.deputy(rank) {
                    assert_eq!(pairs.represented(deputy), Some(rank));
                    has[deputy as usize] |= has[rank as usize];
                }
            }
            for round in 0..pairs.rounds {
                let before = has.clone();
                for rank in (0..size).filter(|&rank| pairs.deputy(rank).is_none()) {
                    let partner = pairs.partner(rank, round);
                    assert_eq!(pairs.partner(partner, round), rank, "{size} {round}");
                    has[rank as usize] |= before[partner as usize];
                }
            }
            let full = (1 << size) - 1;
            assert!((0..size).all(|rank| has[pairs.deputy(rank).unwrap_or(rank) as usize] == full), "{size}");
        }
    }
}
