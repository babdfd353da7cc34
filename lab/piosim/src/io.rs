//! File commands of one rank: open, close, and list I/O to the servers (thesis sections 4.6 and
//! 4.7).

use std::borrow::Cow;

use crate::event::Tag;
use crate::program::{Access, Command, Extent};
use crate::request::RequestKind;
use crate::server::{REQUEST_BYTES, REQUEST_EXTENT_BYTES};
use crate::task::{END, Flow, Frame, Op};
use crate::world::{Outside, World};

/// Bytes that the opening rank tells the others.
const OPEN_BYTES: u64 = 32;
/// Bytes of a flush request.
const FLUSH_BYTES: u64 = 20;

impl<'a> World<'a> {
    pub(crate) fn step_open(&mut self, index: u32, step: u32, (comm, file, truncate): (u32, u32, bool)) -> Flow<'a> {
        if step == 0 {
            return Flow::Call(Op::Barrier { comm }, 1);
        }
        if truncate && self.comm(index, comm).me == 0 {
            self.file_bytes[file as usize] = 0;
        }
        Flow::Call(Op::Bcast { comm, root: 0, bytes: OPEN_BYTES, how: self.config.commands.bcast }, END)
    }

    pub(crate) fn step_close(&mut self, out: &mut Outside<'_>, index: u32, step: u32, (comm, file): (u32, u32)) -> Flow<'a> {
        if step == 0 {
            return Flow::Call(Op::Barrier { comm }, 1);
        }
        if self.comm(index, comm).me == 0 {
            let process = self.tasks[index as usize].process;
            for server in 0..self.servers.len() as u32 {
                let request = self.requests.add(RequestKind::Flush, (index, process), server, file, &[]);
                self.expect_one(index);
                out.network.send(out.queue, process, self.servers[server as usize].process, FLUSH_BYTES, Tag::Request(request).pack());
            }
        }
        Flow::Done
    }

    /// The command that has just been started may be one that sets a view.
    pub(crate) fn remember_view(&mut self, index: u32) {
        let task = &mut self.tasks[index as usize];
        let commands = task.commands;
        if let Some(Command::FileSetView { file, view }) = task.position.checked_sub(1).map(|position| &commands[position]) {
            let file = self.apps[task.app as usize].first_file + file;
            task.views.insert(file, view);
        }
    }

    /// The extents of the file that an access means.
    pub(crate) fn extents(&self, index: u32, file: u32, access: &'a Access) -> Cow<'a, [Extent]> {
        match access {
            Access::Contiguous(extent) => Cow::Borrowed(std::slice::from_ref(extent)),
            Access::List(list) => Cow::Borrowed(list),
            Access::View { offset, bytes } => match self.tasks[index as usize].views.get(&file) {
                Some(view) => Cow::Owned(view.map(*offset, *bytes)),
                None => Cow::Owned(vec![Extent { offset: *offset, bytes: *bytes }]),
            },
        }
    }

    /// Counts what a command of a program moves. What lies behind the end of the file is not read.
    pub(crate) fn count_program_bytes(&mut self, file: u32, list: &[Extent], writes: bool) {
        let end = if writes { u64::MAX } else { self.file_bytes[file as usize] };
        self.program_bytes += list.iter().map(|extent| extent.bytes.min(end.saturating_sub(extent.offset))).sum::<u64>();
    }

    /// Asks the servers for a list, as part of the present job set. What lies behind the end of the
    /// file is not asked for.
    pub(crate) fn read_list(&mut self, out: &mut Outside<'_>, index: u32, file: u32, list: &[Extent]) {
        let list = cropped(list, self.file_bytes[file as usize]);
        self.send_requests(out, index, RequestKind::Read, file, &list);
    }

    /// A write in three steps: requests; data, until all servers say that they have it; the new
    /// size.
    pub(crate) fn step_write(&mut self, out: &mut Outside<'_>, index: u32, frame: &Frame<'a>, file: u32, list: &[Extent]) -> Flow<'a> {
        match frame.step {
            0 => {
                self.tasks[index as usize].frame().vars[0] = list.last().map_or(0, |extent| extent.end());
                self.send_requests(out, index, RequestKind::Write, file, list);
                Flow::Next(1)
            }
            1 => {
                self.send_data(out, index);
                Flow::Next(2)
            }
            _ => {
                let bytes = &mut self.file_bytes[file as usize];
                *bytes = (*bytes).max(frame.vars[0]);
                Flow::Done
            }
        }
    }

    /// Sends a request to each server that has some of the list.
    pub(crate) fn send_requests(&mut self, out: &mut Outside<'_>, index: u32, kind: RequestKind, file: u32, list: &[Extent]) {
        let process = self.tasks[index as usize].process;
        self.tasks[index as usize].requests.clear();
        self.splitter.split(list);
        for position in 0..self.server_order.len() {
            let server = self.server_order[position];
            let extents = self.splitter.list(server);
            if extents.is_empty() {
                continue;
            }
            let bytes = REQUEST_BYTES + REQUEST_EXTENT_BYTES * extents.len() as u64;
            let request = self.requests.add(kind, (index, process), server, file, extents);
            if let Some(log) = &mut self.log {
                let command = self.tasks[index as usize].position as u32 - 1;
                self.requests.get_mut(request).number = log.request(out.queue.now(), self.requests.get(request), command);
            }
            self.tasks[index as usize].requests.push(request);
            self.expect_one(index);
            out.network.send(out.queue, process, self.servers[server as usize].process, bytes, Tag::Request(request).pack());
            if kind == RequestKind::Read {
                self.expect_one(index);
            }
        }
    }

    /// Sends the data of the write requests sent last, and waits for their completions.
    pub(crate) fn send_data(&mut self, out: &mut Outside<'_>, index: u32) {
        for position in 0..self.tasks[index as usize].requests.len() {
            let request = self.tasks[index as usize].requests[position];
            let state = self.requests.get(request);
            let orders = self.servers[state.server as usize].orders_arrivals();
            self.expect_one(index);
            self.expect_one(index);
            if orders {
                self.asked_for_data(out, request);
            } else {
                self.send_data_of(out, request);
            }
        }
    }

    /// The server has asked for the data of a write, or the client is about to send it: it leaves
    /// when both have come.
    pub(crate) fn asked_for_data(&mut self, out: &mut Outside<'_>, request: u32) {
        if std::mem::replace(&mut self.requests.get_mut(request).asked, true) {
            self.send_data_of(out, request);
        }
    }

    fn send_data_of(&mut self, out: &mut Outside<'_>, request: u32) {
        let state = self.requests.get(request);
        let (process, server, bytes) = (state.process, state.server, state.bytes);
        out.network.send(out.queue, process, self.servers[server as usize].process, bytes, Tag::WriteData(request).pack());
    }
}

/// The list up to the end of the file. As in the thesis's program, only the end of the list is
/// looked at, up to the first extent that ends before the file does.
fn cropped(list: &[Extent], file_bytes: u64) -> Cow<'_, [Extent]> {
    if list.last().is_none_or(|extent| extent.end() <= file_bytes) {
        return Cow::Borrowed(list);
    }
    let mut list = list.to_vec();
    let mut position = list.len();
    while position > 0 && list[position - 1].end() >= file_bytes {
        position -= 1;
        let extent = &mut list[position];
        if extent.offset < file_bytes {
            extent.bytes = file_bytes - extent.offset;
        } else {
            list.remove(position);
        }
    }
    Cow::Owned(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_end_with_the_file() {
        let list = [(0, 10), (20, 10), (40, 10)].map(|(offset, bytes)| Extent { offset, bytes });
        assert_eq!(*cropped(&list, 50), list);
        assert_eq!(*cropped(&list, 45), [list[0], list[1], Extent { offset: 40, bytes: 5 }]);
        assert_eq!(*cropped(&list, 25), [list[0], Extent { offset: 20, bytes: 5 }]);
        assert_eq!(*cropped(&list, 0), []);
    }
}
