//! MPI commands that only send messages: point to point and collective (thesis section 4.7).
//! Defaults of the thesis's program: eager and rendezvous protocol, binomial trees for broadcast
//! and reduction (`trees`, with the other ways), everyone to everyone for allgather, a barrier that
//! costs nothing.

mod trees;

use crate::config::PartyOrder;
use crate::event::Tag;
use crate::mailbox::{ANY, Envelope, Key, Stream};
use crate::order::hashed;
use crate::program::{Command, Rank};
use crate::record::Taken;
use crate::task::{END, Flow, Frame, Op};
use crate::world::{Outside, Queue, World};

/// Bytes that a collective command adds to its payload.
pub const COLLECTIVE_HEADER_BYTES: u64 = 20;
/// Bytes of a rendezvous question and of its answer.
const RENDEZVOUS_BYTES: u64 = 100;

/// A communicator as a task sees it.
#[derive(Clone, Copy)]
pub(crate) struct CommView<'a> {
    /// Ranks of the world.
    pub ranks: &'a [Rank],
    first_process: u32,
    /// The task's own rank here.
    pub me: u32,
}

impl CommView<'_> {
    pub fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    pub fn process(&self, rank: u32) -> u32 {
        self.first_process + self.ranks[rank as usize]
    }
}

impl<'a> World<'a> {
    /// A command of a program as an operation, with numbers that hold for the whole cluster.
    pub(crate) fn resolve(&self, app: u32, rank: u32, command: &'a Command) -> Op<'a> {
        let state = &self.apps[app as usize];
        let process = |comm: u32, rank: Rank| state.first_process + state.application.communicators[comm as usize][rank as usize];
        let sender = |comm: u32, from: Option<Rank>| from.map_or(ANY, |from| process(comm, from));
        let comm = |comm: u32| state.first_comm + comm;
        let file = |file: u32| state.first_file + file;
        let _ = rank;
        match *command {
            Command::Compute { .. } | Command::FileSetView { .. } => Op::Nothing,
            Command::Send { comm: c, to, tag, bytes, .. } => Op::Send { comm: comm(c), tag, to: process(c, to), bytes },
            Command::Recv { comm: c, from, tag, .. } => Op::Recv { comm: comm(c), tag, from: sender(c, from) },
            Command::Sendrecv { comm: c, to, send_tag, bytes, from, recv_tag } => {
                Op::Sendrecv { comm: comm(c), send_tag, to: process(c, to), bytes, recv_tag, from: sender(c, from) }
            }
            Command::Wait { ref requests } => Op::Wait { requests },
            Command::Barrier { comm: c } => Op::Barrier { comm: comm(c) },
            Command::Bcast { comm: c, root, bytes } => Op::Bcast { comm: comm(c), root, bytes, how: self.config.commands.bcast },
            Command::Reduce { comm: c, root, bytes } => Op::Reduce { comm: comm(c), root, bytes, called: false },
            Command::Allreduce { comm: c, bytes } => Op::Allreduce { comm: comm(c), bytes },
            Command::Gather { comm: c, root, bytes } => Op::Gather { comm: comm(c), root, bytes },
            Command::Allgather { comm: c, bytes } => Op::Allgather { comm: comm(c), bytes },
            Command::FileOpen { comm: c, file: f, truncate } => Op::Open { comm: comm(c), file: file(f), truncate },
            Command::FileClose { comm: c, file: f } => Op::Close { comm: comm(c), file: file(f) },
            Command::FileRead { file: f, ref access } => Op::Read { file: file(f), access },
            Command::FileWrite { file: f, ref access } => Op::Write { file: file(f), access },
            Command::FileReadAll { comm: c, file: f, ref access } => Op::Collective { comm: comm(c), file: file(f), access, writes: false },
            Command::FileWriteAll { comm: c, file: f, ref access } => Op::Collective { comm: comm(c), file: file(f), access, writes: true },
        }
    }

    /// Executes one step of a command.
    pub(crate) fn execute(&mut self, out: &mut Outside<'_>, index: u32, frame: Frame<'a>) -> Flow<'a> {
        if frame.step == 0
            && let Some(flow) = self.start_beside(out, index, &frame)
        {
            return flow;
        }
        match frame.op {
            Op::Nothing => {
                self.remember_view(index);
                Flow::Done
            }
            Op::Send { comm, tag, to, bytes } => self.step_send(out, index, frame.step, (comm, tag, to, bytes)),
            Op::Recv { comm, tag, from } => self.step_recv(out, index, frame.step, (comm, tag, from)),
            Op::Sendrecv { .. } => self.step_sendrecv(out, index, &frame),
            Op::Wait { requests } => {
                let task = &self.tasks[index as usize];
                if requests.iter().any(|request| task.running.contains(request)) { Flow::Block(END) } else { Flow::Done }
            }
            Op::Barrier { comm } => self.step_barrier(out.queue, index, comm),
            Op::Bcast { comm, root, bytes, how } => self.step_bcast(out, index, frame.step, (comm, root, bytes, how)),
            Op::Reduce { comm, root, bytes, called } => self.step_reduce(out, index, frame.step, (comm, root, bytes, called)),
            Op::Allreduce { comm, bytes } => self.step_allreduce(out, index, frame.step, (comm, bytes)),
            Op::Gather { comm, root, bytes } => self.step_gather(out, index, (comm, root, bytes)),
            Op::Allgather { comm, bytes } => self.step_allgather(out, index, (comm, bytes)),
            Op::Open { comm, file, truncate } => self.step_open(index, frame.step, (comm, file, truncate)),
            Op::Close { comm, file } => self.step_close(out, index, frame.step, (comm, file)),
            Op::Read { file, access } => {
                let list = self.extents(index, file, access);
                self.count_program_bytes(file, &list, false);
                self.read_list(out, index, file, &list);
                Flow::Done
            }
            Op::Write { file, access } => {
                let list = if frame.step == 0 { self.extents(index, file, access) } else { Default::default() };
                self.count_program_bytes(file, &list, true);
                self.step_write(out, index, &frame, file, &list)
            }
            Op::Collective { comm, file, access, writes } => self.step_collective(out, index, &frame, (comm, file, access, writes)),
        }
    }

    /// A non-blocking command goes on in a task of its own.
    fn start_beside(&mut self, out: &mut Outside<'_>, index: u32, frame: &Frame<'a>) -> Option<Flow<'a>> {
        let task = &self.tasks[index as usize];
        if task.frames.len() > 1 || task.position == 0 {
            return None;
        }
        let (Command::Send { request: Some(request), .. } | Command::Recv { request: Some(request), .. }) =
            task.commands[task.position - 1]
        else {
            return None;
        };
        self.spawn(out, index, request, frame.op);
        Some(Flow::Done)
    }

    /// The communicator of this number as the task sees it.
    pub(crate) fn comm(&self, index: u32, comm: u32) -> CommView<'a> {
        let task = &self.tasks[index as usize];
        let app = &self.apps[task.app as usize];
        let local = (comm - app.first_comm) as usize;
        let ranks: &'a [Rank] = &app.application.communicators[local];
        let me = if local == 0 { task.rank } else { ranks.iter().position(|&rank| rank == task.rank).unwrap_or(0) as u32 };
        CommView { ranks, first_process: app.first_process, me }
    }

    /// Sends a message from a task to a process as part of the present job set.
    #[allow(clippy::too_many_arguments)] // what a message is
    pub(crate) fn send(
        &mut self,
        out: &mut Outside<'_>,
        index: u32,
        (comm, tag, stream): (u32, u32, Stream),
        to: u32,
        bytes: u64,
        asks: bool,
    ) {
        let from = self.tasks[index as usize].process;
        let envelope = self.mailbox.envelope(Key { comm, tag, stream, from, to }, index, (asks, bytes), out.queue.now());
        self.expect_one(index);
        out.network.send(out.queue, from, to, bytes, Tag::Mpi(envelope).pack());
    }

    /// Receives a message as part of the present job set.
    pub(crate) fn receive(&mut self, queue: &mut Queue, index: u32, (comm, tag, stream): (u32, u32, Stream), from: u32) {
        let to = self.tasks[index as usize].process;
        self.expect_one(index);
        if let Some(envelope) = self.mailbox.receive(Key { comm, tag, stream, from, to }, index) {
            self.received(queue, index, &envelope);
        }
    }

    /// A receive of the task is done.
    pub(crate) fn received(&mut self, queue: &mut Queue, index: u32, envelope: &Envelope) {
        self.record_message(queue.now(), index, envelope.sent_at, envelope.key.from, false);
        let Envelope { key: Key { from, to, stream, .. }, bytes, sent_at: sent, asks, .. } = *envelope;
        if let Some(log) = self.log.as_mut().filter(|_| !asks && stream != Stream::Ready) {
            log.all.taken.push(Taken { from, to, bytes, sent, taken: queue.now() });
        }
        if envelope.key.stream == Stream::User {
            self.tasks[index as usize].received = (envelope.asks, envelope.key.from);
        }
        self.one_done(queue, index);
    }

    fn step_send(&mut self, out: &mut Outside<'_>, index: u32, step: u32, (comm, tag, to, bytes): (u32, u32, u32, u64)) -> Flow<'a> {
        let eager = bytes <= self.config.eager_bytes;
        match step {
            0 if eager => {
                self.send(out, index, (comm, tag, Stream::User), to, bytes, false);
                Flow::Done
            }
            0 => {
                self.send(out, index, (comm, tag, Stream::User), to, RENDEZVOUS_BYTES, true);
                self.receive(out.queue, index, (comm, tag, Stream::Ready), to);
                Flow::Next(1)
            }
            _ => {
                self.send(out, index, (comm, tag, Stream::Data), to, bytes, false);
                Flow::Done
            }
        }
    }

    fn step_recv(&mut self, out: &mut Outside<'_>, index: u32, step: u32, (comm, tag, from): (u32, u32, u32)) -> Flow<'a> {
        let (asked, sender) = self.tasks[index as usize].received;
        match step {
            0 => {
                self.receive(out.queue, index, (comm, tag, Stream::User), from);
                Flow::Next(1)
            }
            1 if !asked => Flow::Done,
            1 => {
                self.send(out, index, (comm, tag, Stream::Ready), sender, RENDEZVOUS_BYTES, false);
                Flow::Next(2)
            }
            _ => {
                self.receive(out.queue, index, (comm, tag, Stream::Data), sender);
                Flow::Done
            }
        }
    }

    /// Sends and receives in one job set. Two ranks that both ask before they send must not wait
    /// for each other's answer in that set, so answers come in the second and data in the third.
    fn step_sendrecv(&mut self, out: &mut Outside<'_>, index: u32, frame: &Frame<'a>) -> Flow<'a> {
        let Op::Sendrecv { comm, send_tag, to, bytes, recv_tag, from } = frame.op else { return Flow::Done };
        let asks = bytes > self.config.eager_bytes;
        let (asked, sender) = self.tasks[index as usize].received;
        match frame.step {
            0 => {
                let first = if asks { RENDEZVOUS_BYTES } else { bytes };
                self.send(out, index, (comm, send_tag, Stream::User), to, first, asks);
                self.receive(out.queue, index, (comm, recv_tag, Stream::User), from);
                Flow::Next(1)
            }
            1 => {
                if asked {
                    self.send(out, index, (comm, recv_tag, Stream::Ready), sender, RENDEZVOUS_BYTES, false);
                }
                if asks {
                    self.receive(out.queue, index, (comm, send_tag, Stream::Ready), to);
                }
                if asks || asked { Flow::Next(2) } else { Flow::Done }
            }
            _ => {
                if asks {
                    self.send(out, index, (comm, send_tag, Stream::Data), to, bytes, false);
                }
                if asked {
                    self.receive(out.queue, index, (comm, recv_tag, Stream::Data), sender);
                }
                Flow::Done
            }
        }
    }

    fn step_barrier(&mut self, queue: &mut Queue, index: u32, comm: u32) -> Flow<'a> {
        let size = self.comm(index, comm).size() as usize;
        let waiting = &mut self.barriers[comm as usize];
        if waiting.len() + 1 < size {
            waiting.push(index);
            return Flow::Block(END);
        }
        let mut waiting = std::mem::take(waiting);
        if let PartyOrder::Hashed { clients, .. } = &self.config.party_order {
            let number = |&task: &u32| clients[self.node_of[self.tasks[task as usize].process as usize] as usize];
            let numbers: Vec<u32> = waiting.iter().map(number).collect();
            waiting = hashed(&numbers).into_iter().map(|position| waiting[position as usize]).collect();
        }
        for &task in &waiting {
            self.unblock(queue, task);
        }
        waiting.clear();
        self.barriers[comm as usize] = waiting;
        Flow::Done
    }

    fn step_gather(&mut self, out: &mut Outside<'_>, index: u32, (comm, root, bytes): (u32, u32, u64)) -> Flow<'a> {
        self.collect(out, index, (comm, root, bytes));
        Flow::Done
    }

    fn step_allgather(&mut self, out: &mut Outside<'_>, index: u32, (comm, bytes): (u32, u64)) -> Flow<'a> {
        let view = self.comm(index, comm);
        let stream = (comm, 0, Stream::Collective);
        for rank in (0..view.size()).filter(|&rank| rank != view.me) {
            self.send(out, index, stream, view.process(rank), bytes + COLLECTIVE_HEADER_BYTES, false);
            self.receive(out.queue, index, stream, view.process(rank));
        }
        Flow::Done
    }
}
