//! Collective reads and writes: two-phase I/O (thesis section 3.2.3), its interleaved form (section
//! 5.1) and a double-buffered one.
//!
//! The ranks of a communicator agree on who reads or writes which part of the file in which round,
//! and exchange lists and data so that each server sees a few large accesses. Rounds have up to
//! three steps, named A, B and C below; each is one job set.

pub(crate) mod group;
mod pays;

use std::borrow::Cow;
use std::sync::Arc;

use crate::config::Collective;
use crate::mailbox::Stream;
use crate::mpi::{COLLECTIVE_HEADER_BYTES, CommView};
use crate::program::{Access, Extent, push_merged};
use crate::request::RequestKind;
use crate::task::{END, Flow, Frame, Op};
use crate::world::{Outside, Queue, World};

use group::{Amount, Entering, Group, Meetings, Member};
use pays::Pattern;

pub(crate) use group::Groups;

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

/// A collective command as its steps see it.
struct Round<'a> {
    group: Arc<Group<'a>>,
    view: CommView<'a>,
    comm: u32,
    file: u32,
    round: u64,
    mine: Extent,
    meetings: Arc<Meetings>,
}

impl<'a> World<'a> {
    pub(crate) fn step_collective(
        &mut self,
        out: &mut Outside<'_>,
        index: u32,
        frame: &Frame<'a>,
        (comm, file, access, writes): (u32, u32, &'a Access, bool),
    ) -> Flow<'a> {
        match frame.step {
            0 => return self.enter(out.queue, index, (comm, file, access, writes)),
            CHECK => return Flow::Call(Op::Allgather { comm, bytes: CHECK_BYTES }, A),
            ALONE.. => return self.step_alone(out, index, frame, (file, access, writes)),
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
            return self.step_alone(out, index, &frame, (file, access, writes));
        }
        let view = self.comm(index, comm);
        let mine = group.plan.range(u64::from(view.me), round);
        // After the last round there is nothing to meet for.
        let meetings = if round < group.plan.rounds { self.groups.meetings(number, round) } else { Arc::default() };
        let state = Round { group, view, comm, file, round, mine, meetings };
        let double = self.config.collective == Collective::DoubleBuffered;
        let flow = if writes {
            self.step_write_round(out, index, frame.step, &state, double)
        } else {
            self.step_read_round(out, index, frame.step, &state, double)
        };
        if matches!(flow, Flow::Done) {
            self.groups.leave(number);
        }
        flow
    }

    /// Waits for the others; the last one lets all go on.
    fn enter(&mut self, queue: &mut Queue, index: u32, (comm, file, access, writes): (u32, u32, &'a Access, bool)) -> Flow<'a> {
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
        for member in members.iter().flatten() {
            self.count_program_bytes(file, member.list(), writes);
        }
        let group = self.form_group(members.into_iter().flatten().collect(), writes);
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

    fn form_group(&mut self, members: Vec<Member<'a>>, writes: bool) -> Group<'a> {
        let interleaved = self.config.collective != Collective::TwoPhase;
        let mut group = Group::new(members, interleaved, self.config.collective_buffer_bytes, self.config.exchange);
        if self.config.collective == Collective::Auto && !group.alone {
            let lists = group.members.iter().map(Member::list).collect();
            let pattern = Pattern { lists, plan: group.plan, writes };
            group.alone = !pattern.two_phase_pays(&self.config, &mut self.splitter);
        }
        group
    }

    fn step_alone(
        &mut self,
        out: &mut Outside<'_>,
        index: u32,
        frame: &Frame<'a>,
        (file, access, writes): (u32, &'a Access, bool),
    ) -> Flow<'a> {
        let first = frame.step == ALONE;
        let list = if first { self.extents(index, file, access) } else { Cow::default() };
        if !writes {
            self.read_list(out, index, file, &list);
            return Flow::Done;
        }
        let inner = Frame { step: frame.step - ALONE, ..*frame };
        match self.step_write(out, index, &inner, file, &list) {
            Flow::Next(step) => Flow::Next(ALONE + step),
            flow => flow,
        }
    }

    fn step_read_round(&mut self, out: &mut Outside<'_>, index: u32, step: u32, state: &Round<'a>, double: bool) -> Flow<'a> {
        if step == A && state.round >= state.group.plan.rounds {
            return Flow::Done;
        }
        if step == A {
            self.read_and_ask(out, index, state);
            return Flow::Next(B);
        }
        for Other { process, theirs, mine } in others(state) {
            if let Some(amount) = theirs {
                self.send_pieces(out, index, state.comm, process, amount);
            }
            if mine.is_some() {
                self.receive(out.queue, index, (state.comm, 0, Stream::Pieces), process);
            }
        }
        let is_last = state.round + 1 >= state.group.plan.rounds;
        self.tasks[index as usize].frame().vars[1] += 1;
        if double && !is_last {
            // The servers read the next round while this one's data is exchanged.
            let next = self.next_round(index, state);
            self.read_and_ask(out, index, &next);
            return Flow::Next(B);
        }
        Flow::Next(A)
    }

    fn next_round(&mut self, index: u32, state: &Round<'a>) -> Round<'a> {
        let round = state.round + 1;
        let mine = state.group.plan.range(u64::from(state.view.me), round);
        let number = self.tasks[index as usize].frame().vars[0];
        let meetings = self.groups.meetings(number, round);
        Round { group: Arc::clone(&state.group), round, mine, meetings, ..*state }
    }

    /// Step A of a read: ask the servers for this rank's part, and exchange lists.
    fn read_and_ask(&mut self, out: &mut Outside<'_>, index: u32, state: &Round<'a>) {
        let interleaved = state.group.plan.interleaved;
        if !interleaved && state.mine.bytes > 0 {
            self.read_list(out, index, state.file, &[state.mine]);
        }
        for Other { process, theirs, mine } in others(state) {
            if theirs.is_some() {
                self.receive(out.queue, index, (state.comm, 0, Stream::Lists), process);
            }
            if let Some(amount) = mine {
                self.send_list(out, index, state.comm, process, amount);
            }
        }
        if interleaved && state.mine.bytes > 0 {
            self.read_list(out, index, state.file, &[state.mine]);
        }
    }

    fn step_write_round(&mut self, out: &mut Outside<'_>, index: u32, step: u32, state: &Round<'a>, double: bool) -> Flow<'a> {
        match step {
            A => {
                self.exchange_writes(out, index, state);
                return Flow::Next(B);
            }
            B => {
                let mut list = Vec::new();
                // Everyone who has bytes here has sent them, or is this rank itself.
                for &(rank, _) in &state.meetings.in_part_of[state.view.me as usize] {
                    for piece in state.group.members[rank as usize].pieces(state.mine) {
                        push_merged(&mut list, piece);
                    }
                }
                self.send_requests(out, index, RequestKind::Write, state.file, &list);
                if !list.is_empty() || double {
                    return Flow::Next(C);
                }
            }
            _ => self.send_data(out, index),
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
            let next = self.next_round(index, state);
            self.exchange_writes(out, index, &next);
            return Flow::Next(B);
        }
        Flow::Next(A)
    }

    /// Step A of a write: data and lists to those who write them.
    fn exchange_writes(&mut self, out: &mut Outside<'_>, index: u32, state: &Round<'a>) {
        for Other { process, theirs, mine } in others(state) {
            if theirs.is_some() {
                self.receive(out.queue, index, (state.comm, 0, Stream::Lists), process);
                self.receive(out.queue, index, (state.comm, 0, Stream::Pieces), process);
            }
            if let Some(amount) = mine {
                self.send_pieces(out, index, state.comm, process, amount);
                self.send_list(out, index, state.comm, process, amount);
            }
        }
    }

    fn send_pieces(&mut self, out: &mut Outside<'_>, index: u32, comm: u32, process: u32, amount: Amount) {
        let bytes = amount.bytes + COLLECTIVE_HEADER_BYTES;
        self.send(out, index, (comm, 0, Stream::Pieces), process, bytes, false);
    }

    fn send_list(&mut self, out: &mut Outside<'_>, index: u32, comm: u32, process: u32, amount: Amount) {
        let bytes = LIST_EXTENT_BYTES * amount.extents + COLLECTIVE_HEADER_BYTES;
        self.send(out, index, (comm, 0, Stream::Lists), process, bytes, false);
    }
}

/// What one rank has to do with another in a round.
struct Other {
    process: u32,
    /// What the other has in my part.
    theirs: Option<Amount>,
    /// What I have in its part.
    mine: Option<Amount>,
}

/// The other ranks in order, as far as there is something to exchange with them in this round.
fn others(state: &Round<'_>) -> Vec<Other> {
    let me = state.view.me;
    let come = &state.meetings.in_part_of[me as usize];
    let go = &state.meetings.parts_of[me as usize];
    let (mut coming, mut going) = (come.iter().peekable(), go.iter().peekable());
    let mut others = Vec::with_capacity(come.len().max(go.len()));
    loop {
        let rank = match (coming.peek(), going.peek()) {
            (None, None) => return others,
            (Some(from), None) => from.0,
            (None, Some(to)) => **to,
            (Some(from), Some(to)) => from.0.min(**to),
        };
        let theirs = coming.next_if(|from| from.0 == rank).map(|from| from.1);
        let mine = going.next_if(|to| **to == rank).and_then(|&part| state.meetings.amount(me, part));
        if rank != me {
            others.push(Other { process: state.view.process(rank), theirs, mine });
        }
    }
}

const _: () = assert!(ALONE < END && C < ALONE);
