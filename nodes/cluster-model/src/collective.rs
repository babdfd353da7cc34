//! Collective reads and writes: two-phase I/O (thesis section 3.2.3), its interleaved form (section 5.1) and a double-buffered one.
//!
//! The ranks of a communicator agree on who reads or writes which part of the file in which round, and exchange lists and data so that each
//! server sees a few large accesses. Rounds have up to three steps, named A, B and C below; each is one job set.

use std::borrow::Cow;
use std::sync::Arc;

use weft_model::Network;

use crate::config::{Collective, Exchange};
use crate::mailbox::Stream;
use crate::mpi::{COLLECTIVE_HEADER_BYTES, CommView};
use crate::program::{Access, Extent, push_merged};
use crate::server::RequestKind;
use crate::simulation::{Queue, World};
use crate::task::{END, Flow, Frame, Op};

/// Bytes for each extent in a list that ranks exchange.
const LIST_EXTENT_BYTES: u64 = 16;
/// Bytes by which the ranks tell each other the range of their access.
const CHECK_BYTES: u64 = 16;

const CHECK: u32 = 1;
const A: u32 = 2;
const B: u32 = 3;
const C: u32 = 4;
/// Steps from here on are those of an access that each rank makes on its own.
const ALONE: u32 = 10;

/// A rank's access in a collective command.
struct Member<'a> {
    list: Cow<'a, [Extent]>,
    /// Extents ascend and do not overlap, so that parts are found by bisection.
    sorted: bool,
    /// From the first byte to the last.
    span: Extent,
}

/// A collective command that everybody has entered.
struct Group<'a> {
    members: Vec<Member<'a>>,
    plan: Plan,
    /// Two-phase I/O does not pay: each on its own.
    alone: bool,
    exchange: Exchange,
}

/// Who works on which part of the file when.
#[derive(Clone, Copy, Debug)]
struct Plan {
    interleaved: bool,
    min: u64,
    max: u64,
    ranks: u64,
    buffer: u64,
    rounds: u64,
}

impl Plan {
    fn new(interleaved: bool, (min, max): (u64, u64), ranks: u64, buffer: u64) -> Plan {
        let mut plan = Plan { interleaved, min, max, ranks, buffer, rounds: 0 };
        plan.rounds = if interleaved {
            (max - min).div_ceil(ranks * buffer)
        } else {
            // The last rank takes what the division leaves over.
            let share = (max - min) / ranks;
            (share + (max - min) % ranks).div_ceil(buffer)
        };
        plan
    }

    /// The part of a rank in a round; may be empty.
    fn range(&self, rank: u64, round: u64) -> Extent {
        let (offset, limit) = if self.interleaved {
            (self.min + (round * self.ranks + rank) * self.buffer, self.max)
        } else {
            let share = (self.max - self.min) / self.ranks;
            let limit = if rank + 1 == self.ranks { self.max } else { self.min + (rank + 1) * share };
            (self.min + rank * share + round * self.buffer, limit)
        };
        Extent { offset, bytes: limit.saturating_sub(offset).min(self.buffer) }
    }
}

impl<'a> Member<'a> {
    fn new(list: Cow<'a, [Extent]>) -> Member<'a> {
        let sorted = list.windows(2).all(|pair| pair[0].end() <= pair[1].offset);
        let start = list.iter().map(|extent| extent.offset).min().unwrap_or(0);
        let end = list.iter().map(|extent| extent.end()).max().unwrap_or(0);
        Member { sorted, span: Extent { offset: start, bytes: end - start }, list }
    }

    /// What of the access lies in a range, in the order of the list.
    fn pieces(&self, range: Extent) -> impl Iterator<Item = Extent> {
        let first = if self.sorted { self.list.partition_point(|extent| extent.end() <= range.offset) } else { 0 };
        let last = if self.sorted { self.list.partition_point(|extent| extent.offset < range.end()) } else { self.list.len() };
        self.list[first..last.max(first)].iter().filter_map(move |extent| {
            let (start, end) = (extent.offset.max(range.offset), extent.end().min(range.end()));
            (start < end).then(|| Extent { offset: start, bytes: end - start })
        })
    }

    fn bytes_in(&self, range: Extent) -> u64 {
        self.pieces(range).map(|piece| piece.bytes).sum()
    }
}

impl Group<'_> {
    /// Whether a rank takes part in the exchange of a range.
    fn meets(&self, rank: u32, range: Extent) -> bool {
        let member = &self.members[rank as usize];
        let spans = member.span.offset < range.end() && member.span.end() > range.offset;
        spans && (self.exchange == Exchange::Extents || member.pieces(range).next().is_some())
    }
}

/// Collective commands in execution.
pub(crate) struct Groups<'a> {
    /// For each communicator: the tasks that have entered the next one, in order of arrival, and their accesses by rank.
    entering: Vec<Entering<'a>>,
    active: Vec<Option<(Arc<Group<'a>>, u32)>>,
}

#[derive(Default)]
struct Entering<'a> {
    tasks: Vec<u32>,
    members: Vec<Option<Member<'a>>>,
}

impl<'a> Groups<'a> {
    pub fn new(comms: usize) -> Groups<'a> {
        Groups { entering: (0..comms).map(|_| Entering::default()).collect(), active: Vec::new() }
    }

    fn add(&mut self, group: Group<'a>) -> u64 {
        let members = group.members.len() as u32;
        let entry = Some((Arc::new(group), members));
        match self.active.iter().position(Option::is_none) {
            Some(free) => {
                self.active[free] = entry;
                free as u64
            }
            None => {
                self.active.push(entry);
                self.active.len() as u64 - 1
            }
        }
    }

    fn get(&self, group: u64) -> Arc<Group<'a>> {
        Arc::clone(&self.active[group as usize].as_ref().expect("members leave a group when they are done with it").0)
    }

    fn leave(&mut self, group: u64) {
        let entry = &mut self.active[group as usize];
        if let Some((_, members)) = entry {
            *members -= 1;
            if *members == 0 {
                *entry = None;
            }
        }
    }
}

/// A collective command as its steps see it.
struct Round<'a> {
    group: Arc<Group<'a>>,
    view: CommView<'a>,
    comm: u32,
    file: u32,
    round: u64,
    mine: Extent,
}

impl<'a> World<'a> {
    pub(crate) fn step_collective(
        &mut self,
        network: &mut Network,
        queue: &mut Queue,
        index: u32,
        frame: &Frame<'a>,
        (comm, file, access, writes): (u32, u32, &'a Access, bool),
    ) -> Flow<'a> {
        match frame.step {
            0 => return self.enter(queue, index, (comm, file, access)),
            CHECK => return Flow::Call(Op::Allgather { comm, bytes: CHECK_BYTES }, A),
            ALONE.. => return self.step_alone(network, queue, index, frame, (file, access, writes)),
            _ => {}
        }
        let [number, round] = frame.vars;
        let group = self.groups.get(number);
        if frame.step == A && (group.alone || group.plan.rounds == 0) {
            self.groups.leave(number);
            if group.plan.rounds == 0 && !group.alone {
                return Flow::Done;
            }
            self.tasks[index as usize].frame().step = ALONE;
            let frame = Frame { step: ALONE, ..*frame };
            return self.step_alone(network, queue, index, &frame, (file, access, writes));
        }
        let view = self.comm(index, comm);
        let mine = group.plan.range(u64::from(view.me), round);
        let state = Round { group, view, comm, file, round, mine };
        let double = self.config.collective == Collective::DoubleBuffered;
        let flow = if writes {
            self.step_write_round(network, queue, index, frame.step, &state, double)
        } else {
            self.step_read_round(network, queue, index, frame.step, &state, double)
        };
        if matches!(flow, Flow::Done) {
            self.groups.leave(number);
        }
        flow
    }

    /// Waits for the others; the last one lets all go on.
    fn enter(&mut self, queue: &mut Queue, index: u32, (comm, file, access): (u32, u32, &'a Access)) -> Flow<'a> {
        let view = self.comm(index, comm);
        let member = Member::new(self.extents(index, file, access));
        let next = if self.config.collective == Collective::Direct { ALONE } else { CHECK };
        let entering = &mut self.groups.entering[comm as usize];
        entering.members.resize_with(view.size() as usize, || None);
        entering.members[view.me as usize] = Some(member);
        entering.tasks.push(index);
        if entering.tasks.len() < view.size() as usize {
            return Flow::Block(next);
        }
        let Entering { tasks, members } = std::mem::take(entering);
        let group = self.form_group(members.into_iter().flatten().collect());
        let number = self.groups.add(group);
        for &task in &tasks {
            self.tasks[task as usize].frame().vars = [number, 0];
        }
        if next == ALONE {
            (0..tasks.len()).for_each(|_| self.groups.leave(number));
        }
        for &task in tasks.iter().filter(|&&task| task != index) {
            self.unblock(queue, task);
        }
        Flow::Next(next)
    }

    fn form_group(&self, members: Vec<Member<'a>>) -> Group<'a> {
        let min = members.iter().filter(|member| member.span.bytes > 0).map(|member| member.span.offset).min().unwrap_or(0);
        let max = members.iter().map(|member| member.span.end()).max().unwrap_or(0);
        let interleaved = self.config.collective != Collective::TwoPhase;
        let plan = Plan::new(interleaved, (min, max.max(min)), members.len() as u64, self.config.collective_buffer_bytes);
        // Accesses that follow each other rank by rank are as good without an exchange.
        let alone = !members.windows(2).any(|pair| pair[1].span.offset <= pair[0].span.end());
        Group { members, plan, alone, exchange: self.config.exchange }
    }

    fn step_alone(
        &mut self,
        network: &mut Network,
        queue: &mut Queue,
        index: u32,
        frame: &Frame<'a>,
        (file, access, writes): (u32, &'a Access, bool),
    ) -> Flow<'a> {
        let first = frame.step == ALONE;
        let list = if first { self.extents(index, file, access) } else { Cow::default() };
        if !writes {
            self.read_list(network, queue, index, file, &list);
            return Flow::Done;
        }
        let inner = Frame { step: frame.step - ALONE, ..*frame };
        match self.step_write(network, queue, index, &inner, file, &list) {
            Flow::Next(step) => Flow::Next(ALONE + step),
            flow => flow,
        }
    }

    fn step_read_round(
        &mut self,
        network: &mut Network,
        queue: &mut Queue,
        index: u32,
        step: u32,
        state: &Round<'a>,
        double: bool,
    ) -> Flow<'a> {
        if step == A && state.round >= state.group.plan.rounds {
            return Flow::Done;
        }
        if step == A {
            self.read_and_ask(network, queue, index, state);
            return Flow::Next(B);
        }
        for other in self.others(state) {
            let Other { process, theirs_in_mine, mine_in_theirs, range } = other;
            if let Some(rank) = theirs_in_mine {
                let bytes = state.group.members[rank as usize].bytes_in(state.mine);
                self.send_pieces(network, queue, index, state.comm, process, bytes);
            }
            if mine_in_theirs {
                let _ = range;
                self.receive(queue, index, (state.comm, 0, Stream::Pieces), process);
            }
        }
        let is_last = state.round + 1 >= state.group.plan.rounds;
        self.tasks[index as usize].frame().vars[1] += 1;
        if double && !is_last {
            // The servers read the next round while this one's data is exchanged.
            let mine = state.group.plan.range(u64::from(state.view.me), state.round + 1);
            let next = Round { group: Arc::clone(&state.group), round: state.round + 1, mine, ..*state };
            self.read_and_ask(network, queue, index, &next);
            return Flow::Next(B);
        }
        Flow::Next(A)
    }

    /// Step A of a read: ask the servers for this rank's part, and exchange lists.
    fn read_and_ask(&mut self, network: &mut Network, queue: &mut Queue, index: u32, state: &Round<'a>) {
        let interleaved = state.group.plan.interleaved;
        if !interleaved && state.mine.bytes > 0 {
            self.read_list(network, queue, index, state.file, &[state.mine]);
        }
        for Other { process, theirs_in_mine, mine_in_theirs, range } in self.others(state) {
            if theirs_in_mine.is_some() {
                self.receive(queue, index, (state.comm, 0, Stream::Lists), process);
            }
            if mine_in_theirs {
                self.send_list(network, queue, index, state, process, range);
            }
        }
        if interleaved && state.mine.bytes > 0 {
            self.read_list(network, queue, index, state.file, &[state.mine]);
        }
    }

    fn step_write_round(
        &mut self,
        network: &mut Network,
        queue: &mut Queue,
        index: u32,
        step: u32,
        state: &Round<'a>,
        double: bool,
    ) -> Flow<'a> {
        match step {
            A => {
                self.exchange_writes(network, queue, index, state);
                return Flow::Next(B);
            }
            B => {
                let mut list = Vec::new();
                for member in &state.group.members {
                    for piece in member.pieces(state.mine) {
                        push_merged(&mut list, piece);
                    }
                }
                self.send_requests(network, queue, index, RequestKind::Write, state.file, &list);
                if !list.is_empty() || double {
                    return Flow::Next(C);
                }
            }
            _ => self.send_data(network, queue, index),
        }
        if state.round + 1 >= state.group.plan.rounds {
            if state.view.me == 0 {
                let bytes = &mut self.file_bytes[state.file as usize];
                *bytes = (*bytes).max(state.group.plan.max);
            }
            return Flow::Done;
        }
        self.tasks[index as usize].frame().vars[1] += 1;
        if double {
            // The next round's exchange goes on while the servers write.
            let mine = state.group.plan.range(u64::from(state.view.me), state.round + 1);
            let next = Round { group: Arc::clone(&state.group), round: state.round + 1, mine, ..*state };
            self.exchange_writes(network, queue, index, &next);
            return Flow::Next(B);
        }
        Flow::Next(A)
    }

    /// Step A of a write: data and lists to those who write them.
    fn exchange_writes(&mut self, network: &mut Network, queue: &mut Queue, index: u32, state: &Round<'a>) {
        for Other { process, theirs_in_mine, mine_in_theirs, range } in self.others(state) {
            if theirs_in_mine.is_some() {
                self.receive(queue, index, (state.comm, 0, Stream::Lists), process);
                self.receive(queue, index, (state.comm, 0, Stream::Pieces), process);
            }
            if mine_in_theirs {
                let bytes = state.group.members[state.view.me as usize].bytes_in(range);
                self.send_pieces(network, queue, index, state.comm, process, bytes);
                self.send_list(network, queue, index, state, process, range);
            }
        }
    }

    fn send_pieces(&mut self, network: &mut Network, queue: &mut Queue, index: u32, comm: u32, process: u32, bytes: u64) {
        self.send(network, queue, index, (comm, 0, Stream::Pieces), process, bytes + COLLECTIVE_HEADER_BYTES, false);
    }

    fn send_list(&mut self, network: &mut Network, queue: &mut Queue, index: u32, state: &Round<'a>, process: u32, range: Extent) {
        let extents = state.group.members[state.view.me as usize].pieces(range).count() as u64;
        let bytes = LIST_EXTENT_BYTES * extents + COLLECTIVE_HEADER_BYTES;
        self.send(network, queue, index, (state.comm, 0, Stream::Lists), process, bytes, false);
    }

    /// The other ranks in order, as far as there is something to exchange with them in this round.
    fn others(&self, state: &Round<'a>) -> Vec<Other> {
        let me = state.view.me;
        let mut others = Vec::new();
        for rank in (0..state.view.size()).filter(|&rank| rank != me) {
            let range = state.group.plan.range(u64::from(rank), state.round);
            let theirs_in_mine = state.group.meets(rank, state.mine).then_some(rank);
            let mine_in_theirs = state.group.meets(me, range);
            if theirs_in_mine.is_some() || mine_in_theirs {
                others.push(Other { process: state.view.process(rank), theirs_in_mine, mine_in_theirs, range });
            }
        }
        others
    }
}

/// What one rank has to do with another in a round.
struct Other {
    process: u32,
    /// The other's rank, if it has something in my part.
    theirs_in_mine: Option<u32>,
    /// I have something in its part.
    mine_in_theirs: bool,
    /// Its part.
    range: Extent,
}

const _: () = assert!(ALONE < END && C < ALONE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_all_rounds_cover_the_file_once() {
        for interleaved in [false, true] {
            for (max, ranks, buffer) in [(1000, 10, 8), (1003, 7, 16), (5, 10, 8), (64, 1, 7), (1_048_576_000, 10, 8 << 20)] {
                let plan = Plan::new(interleaved, (3, max), ranks, buffer);
                let mut parts: Vec<Extent> = (0..plan.rounds)
                    .flat_map(|round| (0..ranks).map(move |rank| plan.range(rank, round)))
                    .filter(|part| part.bytes > 0)
                    .collect();
                parts.sort_unstable();
                let mut end = 3;
                for part in parts {
                    assert_eq!(part.offset, end, "{plan:?}");
                    end = part.end();
                }
                assert_eq!(end, max, "{plan:?}");
            }
        }
        let thesis = Plan::new(true, (0, 1_048_576_000), 10, 8 << 20);
        assert_eq!((thesis.rounds, thesis.range(4, 12).bytes, thesis.range(5, 12).bytes), (13, 8 << 20, 0));
        assert_eq!(Plan::new(false, (0, 1_048_576_000), 10, 8 << 20).rounds, 13);
    }

    #[test]
    fn pieces_are_found_in_sorted_and_unsorted_lists() {
        let extents = |list: &[(u64, u64)]| list.iter().map(|&(offset, bytes)| Extent { offset, bytes }).collect::<Vec<_>>();
        let range = Extent { offset: 15, bytes: 20 };
        let sorted = Member::new(Cow::Owned(extents(&[(0, 10), (12, 8), (22, 3), (30, 10), (50, 1)])));
        assert!(sorted.sorted);
        assert_eq!(sorted.pieces(range).collect::<Vec<_>>(), extents(&[(15, 5), (22, 3), (30, 5)]));
        let unsorted = Member::new(Cow::Owned(extents(&[(30, 10), (12, 8)])));
        assert!(!unsorted.sorted);
        assert_eq!(unsorted.pieces(range).collect::<Vec<_>>(), extents(&[(30, 5), (15, 5)]));
        assert_eq!(unsorted.bytes_in(Extent { offset: 20, bytes: 10 }), 0);
    }
}
