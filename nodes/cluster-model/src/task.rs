//! How ranks run their programs. A task is a rank's program (or one of its non-blocking commands); it executes commands step by step.
//!
//! Each step costs processor time first; then it decides what to send and receive, all at once: its *job set*. The next step comes when
//! every message of the set has left the sender's card and every receive is done. A step without messages is followed by the next
//! one at once and for free. Commands may call commands (an open calls a barrier and a broadcast); they are frames on the task's stack.
//! These rules are those of the thesis's program and every one of them shows in its results.

use std::collections::BTreeMap;

use weft_model::Network;

use crate::program::{Access, Command, FileId, FileView};
use crate::record::MessageSpan;
use crate::simulation::{Queue, World};

/// Step number of a frame that has nothing left to do once its job set or its called command is done.
pub const END: u32 = u32::MAX;

/// A command in execution: what it is and all it needs to know.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// Nothing but processor time.
    Nothing,
    /// A message to a process.
    Send {
        comm: u32,
        tag: u32,
        to: u32,
        bytes: u64,
    },
    /// A message from a process or [`crate::mailbox::ANY`].
    Recv {
        comm: u32,
        tag: u32,
        from: u32,
    },
    /// Both.
    Sendrecv {
        comm: u32,
        send_tag: u32,
        to: u32,
        bytes: u64,
        recv_tag: u32,
        from: u32,
    },
    /// Non-blocking commands.
    Wait {
        requests: &'a [u32],
    },
    Barrier {
        comm: u32,
    },
    Bcast {
        comm: u32,
        root: u32,
        bytes: u64,
        blockwise: bool,
    },
    Reduce {
        comm: u32,
        root: u32,
        bytes: u64,
        /// The exchange itself, which the command calls.
        called: bool,
    },
    Allreduce {
        comm: u32,
        bytes: u64,
    },
    Gather {
        comm: u32,
        root: u32,
        bytes: u64,
    },
    Allgather {
        comm: u32,
        bytes: u64,
    },
    Open {
        comm: u32,
        file: u32,
        truncate: bool,
    },
    Close {
        comm: u32,
        file: u32,
    },
    Read {
        file: u32,
        access: &'a Access,
    },
    Write {
        file: u32,
        access: &'a Access,
    },
    /// Collective read or write; the variables are its group, once everybody is there, and the round.
    Collective {
        comm: u32,
        file: u32,
        access: &'a Access,
        writes: bool,
    },
}

/// What a step leads to.
#[derive(Clone, Copy, Debug)]
pub enum Flow<'a> {
    /// After the job set: this step.
    Next(u32),
    /// After the job set the command is over.
    Done,
    /// This command first, then the given step.
    Call(Op<'a>, u32),
    /// Somebody else will let the task go on, with the given step.
    Block(u32),
}

/// A command on a task's stack.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What.
    pub op: Op<'a>,
    /// The next step.
    pub step: u32,
    /// Variables of the command.
    pub vars: [u64; 2],
}

/// One strand of execution of a rank.
pub struct Task<'a> {
    /// The application.
    pub app: u32,
    /// The rank in its world.
    pub rank: u32,
    /// The process.
    pub process: u32,
    pub(crate) commands: &'a [Command],
    /// Index of the next command.
    pub(crate) position: usize,
    pub(crate) frames: Vec<Frame<'a>>,
    /// Sends and receives of the present job set that are not done.
    pending: u32,
    /// Whether the present step has any.
    issued: bool,
    /// When the step was executed, nanoseconds.
    since: u64,
    /// The step is being executed: its job set is not complete yet, whatever is pending.
    issuing: bool,
    /// The frame ends with the job set.
    ending: bool,
    /// The main task of a non-blocking command, and its number there.
    parent: Option<(u32, u32)>,
    /// Non-blocking commands that run.
    pub(crate) running: Vec<u32>,
    /// What was received last: it asks for permission, and who sent it.
    pub(crate) received: (bool, u32),
    pub(crate) views: BTreeMap<FileId, &'a FileView>,
    /// Requests of the I/O command in execution.
    pub(crate) requests: Vec<u32>,
    /// Virtual time of the end, nanoseconds.
    pub(crate) finished: Option<u64>,
}

impl<'a> Task<'a> {
    pub(crate) fn new(app: u32, rank: u32, process: u32, commands: &'a [Command]) -> Task<'a> {
        Task {
            app,
            rank,
            process,
            commands,
            position: 0,
            frames: Vec::new(),
            pending: 0,
            issued: false,
            since: 0,
            issuing: false,
            ending: false,
            parent: None,
            running: Vec::new(),
            received: (false, 0),
            views: BTreeMap::new(),
            requests: Vec::new(),
            finished: None,
        }
    }

    /// Whether it is the program of a rank, not one of its non-blocking commands.
    pub(crate) fn is_program(&self) -> bool {
        self.parent.is_none()
    }

    /// The command in execution.
    ///
    /// # Panics
    /// If none is.
    pub(crate) fn frame(&mut self) -> &mut Frame<'a> {
        self.frames.last_mut().expect("a running task has a command")
    }
}

impl<'a> World<'a> {
    /// Starts a task's next command, or ends the task.
    pub(crate) fn next_command(&mut self, queue: &mut Queue, index: u32) {
        if let Some(starts) = self.starts.get_mut(index as usize) {
            starts.push(queue.now());
        }
        let task = &mut self.tasks[index as usize];
        let Some(command) = task.commands.get(task.position) else {
            task.finished = Some(queue.now());
            if let Some((parent, request)) = task.parent {
                self.free_tasks.push(index);
                self.request_done(queue, parent, request);
            }
            return;
        };
        task.position += 1;
        let (app, rank) = (task.app, task.rank);
        let cost = match command {
            Command::Compute { cycles } => (*cycles).max(1),
            _ => self.step_instructions,
        };
        let op = self.resolve(app, rank, command);
        self.tasks[index as usize].frames.push(Frame { op, step: 0, vars: [0; 2] });
        self.charge(queue, index, cost);
    }

    fn charge(&mut self, queue: &mut Queue, index: u32, instructions: u64) {
        let node = self.node_of[self.tasks[index as usize].process as usize];
        self.cpus.start(queue, node, index, instructions);
    }

    /// A step's processor time is over: executes the step, and those after it that are free.
    pub(crate) fn advance(&mut self, network: &mut Network, queue: &mut Queue, index: u32) {
        loop {
            let task = &mut self.tasks[index as usize];
            task.pending = 0;
            task.issued = false;
            task.since = queue.now();
            task.issuing = true;
            let frame = *task.frame();
            let flow = self.execute(network, queue, index, frame);
            let task = &mut self.tasks[index as usize];
            task.issuing = false;
            match flow {
                Flow::Next(step) => {
                    task.frame().step = step;
                    if !task.issued {
                        continue;
                    }
                    if task.pending == 0 {
                        let cost = self.step_instructions;
                        self.charge(queue, index, cost);
                    }
                }
                Flow::Done => {
                    if task.issued && task.pending > 0 {
                        task.ending = true;
                    } else {
                        self.frame_done(queue, index);
                    }
                }
                Flow::Call(op, step) => {
                    task.frame().step = step;
                    task.frames.push(Frame { op, step: 0, vars: [0; 2] });
                    let cost = self.step_instructions;
                    self.charge(queue, index, cost);
                }
                Flow::Block(step) => task.frame().step = step,
            }
            return;
        }
    }

    /// The task's present step waits for one more send or receive.
    pub(crate) fn expect_one(&mut self, index: u32) {
        let task = &mut self.tasks[index as usize];
        task.pending += 1;
        task.issued = true;
    }

    /// A send or receive is done.
    pub(crate) fn one_done(&mut self, queue: &mut Queue, index: u32) {
        let task = &mut self.tasks[index as usize];
        task.pending -= 1;
        if task.pending > 0 || task.issuing {
            return;
        }
        if std::mem::take(&mut task.ending) {
            self.frame_done(queue, index);
        } else {
            let cost = self.step_instructions;
            self.charge(queue, index, cost);
        }
    }

    /// Lets a blocked task go on with its next step.
    pub(crate) fn unblock(&mut self, queue: &mut Queue, index: u32) {
        if self.tasks[index as usize].frame().step == END {
            self.frame_done(queue, index);
        } else {
            let cost = self.step_instructions;
            self.charge(queue, index, cost);
        }
    }

    /// The command in execution is over: whoever called it goes on, or the next command starts.
    fn frame_done(&mut self, queue: &mut Queue, index: u32) {
        let task = &mut self.tasks[index as usize];
        task.frames.pop();
        while task.frames.last().is_some_and(|frame| frame.step == END) {
            task.frames.pop();
        }
        if task.frames.is_empty() {
            self.next_command(queue, index);
        } else {
            let cost = self.step_instructions;
            self.charge(queue, index, cost);
        }
    }

    /// Runs a non-blocking command beside its rank's program, from its first step on.
    pub(crate) fn spawn(&mut self, network: &mut Network, queue: &mut Queue, parent: u32, request: u32, op: Op<'a>) {
        let main = &mut self.tasks[parent as usize];
        main.running.push(request);
        let mut task = Task::new(main.app, main.rank, main.process, &[]);
        task.parent = Some((parent, request));
        task.frames.push(Frame { op, step: 0, vars: [0; 2] });
        let index = match self.free_tasks.pop() {
            Some(index) => {
                self.tasks[index as usize] = task;
                index
            }
            None => {
                self.tasks.push(task);
                (self.tasks.len() - 1) as u32
            }
        };
        self.advance(network, queue, index);
    }

    fn request_done(&mut self, queue: &mut Queue, parent: u32, request: u32) {
        let task = &mut self.tasks[parent as usize];
        if let Some(position) = task.running.iter().position(|&running| running == request) {
            task.running.swap_remove(position);
        }
        if let Some(Frame { op: Op::Wait { requests }, step: END, .. }) = task.frames.last()
            && !requests.iter().any(|request| task.running.contains(request))
        {
            self.unblock(queue, parent);
        }
    }

    /// Records that a task has waited for a message until now. What a non-blocking command waits for is waited for by its rank, once that
    /// rank waits for the command.
    pub(crate) fn record_message(&mut self, now: u64, index: u32, sent_at: u64, peer: u32, sent: bool) {
        let Some(log) = &mut self.log else { return };
        let mut task = &self.tasks[index as usize];
        if let Some((parent, request)) = task.parent {
            task = &self.tasks[parent as usize];
            let waits = matches!(task.frames.last(), Some(Frame { op: Op::Wait { requests }, .. }) if requests.contains(&request));
            if !waits {
                return;
            }
        }
        let start = sent_at.max(task.since);
        if start < now && task.position > 0 {
            let (process, position) = (task.process, task.position as u32 - 1);
            log.all.messages.push(MessageSpan { process, position, sent, peer, start, end: now });
        }
    }

    /// The process of the first server.
    pub(crate) fn first_server(&self) -> u32 {
        self.servers.first().map_or(0, |server| server.process)
    }
}
