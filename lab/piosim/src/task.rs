//! How ranks run their programs. A task is a rank's program (or one of its non-blocking commands);
//! it executes commands step by step.
//!
//! Each step costs processor time first; then it decides what to send and receive, all at once: its
//! *job set*. The next step comes when every message of the set has left the sender's card and
//! every receive is done. A step without messages is followed by the next one at once and for free.
//! Commands may call commands (an open calls a barrier and a broadcast); they are frames on the
//! task's stack. These rules are those of the thesis's program and every one of them shows in its
//! results.

mod steps;

use std::collections::BTreeMap;

use crate::config::Bcast;
use crate::program::{Access, Command, FileId, FileView};

/// Step number of a frame that has nothing left to do once its job set or its called command is
/// done.
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
        how: Bcast,
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
    /// Collective read or write; the variables are its group, once everybody is there, and the
    /// round.
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
#[derive(Default)]
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
        Task { app, rank, process, commands, ..Task::default() }
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
