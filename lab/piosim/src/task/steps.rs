//! How tasks go on: commands begin, operations enter each other, and end.

use super::{END, Flow, Frame, Op, Task};
use crate::program::Command;
use crate::record::MessageSpan;
use crate::world::{Outside, Queue, World};

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
                self.tasks.free(index);
                self.request_done(queue, parent, request);
            }
            return;
        };
        task.position += 1;
        let (app, rank) = (task.app, task.rank);
        let op = self.resolve(app, rank, command);
        self.tasks[index as usize].frames.push(Frame { op, step: 0, vars: [0; 2] });
        match command {
            Command::Compute { cycles } => self.charge(queue, index, (*cycles).max(1)),
            _ => self.charge_step(queue, index),
        }
    }

    fn charge(&mut self, queue: &mut Queue, index: u32, instructions: u64) {
        let node = self.node_of[self.tasks[index as usize].process as usize];
        self.cpus.start(queue, node, index, instructions);
    }

    /// What a step costs in which a command only decides what to send.
    fn charge_step(&mut self, queue: &mut Queue, index: u32) {
        let node = self.node_of[self.tasks[index as usize].process as usize];
        self.cpus.start(queue, node, index, self.step_instructions[node as usize]);
    }

    /// A step's processor time is over: executes the step, and those after it that are free.
    pub(crate) fn advance(&mut self, out: &mut Outside<'_>, index: u32) {
        loop {
            let task = &mut self.tasks[index as usize];
            task.pending = 0;
            task.issued = false;
            task.since = out.queue.now();
            task.issuing = true;
            let frame = *task.frame();
            let flow = self.execute(out, index, frame);
            let task = &mut self.tasks[index as usize];
            task.issuing = false;
            match flow {
                Flow::Next(step) => {
                    task.frame().step = step;
                    if !task.issued {
                        continue;
                    }
                    if task.pending == 0 {
                        self.charge_step(out.queue, index);
                    }
                }
                Flow::Done => {
                    if task.issued && task.pending > 0 {
                        task.ending = true;
                    } else {
                        self.frame_done(out.queue, index);
                    }
                }
                Flow::Call(op, step) => {
                    task.frame().step = step;
                    task.frames.push(Frame { op, step: 0, vars: [0; 2] });
                    self.charge_step(out.queue, index);
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
            self.charge_step(queue, index);
        }
    }

    /// Lets a blocked task go on with its next step.
    pub(crate) fn unblock(&mut self, queue: &mut Queue, index: u32) {
        if self.tasks[index as usize].frame().step == END {
            self.frame_done(queue, index);
        } else {
            self.charge_step(queue, index);
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
            self.charge_step(queue, index);
        }
    }

    /// Runs a non-blocking command beside its rank's program, from its first step on.
    pub(crate) fn spawn(&mut self, out: &mut Outside<'_>, parent: u32, request: u32, op: Op<'a>) {
        let main = &mut self.tasks[parent as usize];
        main.running.push(request);
        let mut task = Task::new(main.app, main.rank, main.process, &[]);
        task.parent = Some((parent, request));
        task.frames.push(Frame { op, step: 0, vars: [0; 2] });
        let index = self.tasks.add(task);
        self.advance(out, index);
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

    /// Records that a task has waited for a message until now. What a non-blocking command waits
    /// for is waited for by its rank, once that rank waits for the command.
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
