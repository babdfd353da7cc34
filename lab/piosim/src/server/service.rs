//! What servers do with requests, packets and disks, as part of the world.

use weft_base::Nanos;
use weft_model::{DiskJob, JobKind};
use weft_sched::{Access, CacheLayer, FileKey, Job, JobPiece, Next, Piece};

use super::memory::{Copied, Copies};
use super::{ASK_BYTES, COMPLETION_BYTES, DataPacket, Running, Server};
use crate::event::{Event, Tag};
use crate::program::Extent;
use crate::record::{RequestSpan, tag_of};
use crate::request::RequestKind;
use crate::world::{Outside, Queue, World};

impl World<'_> {
    /// A request has arrived at its server.
    pub(crate) fn request_arrived(&mut self, out: &mut Outside<'_>, index: u32) {
        let request = self.requests.get_mut(index);
        request.arrived = true;
        let (server, process, file, bytes) = (request.server, request.process, request.file, request.bytes);
        let (kind, left, tag) = (request.kind, request.left, tag_of(index, request.number));
        let now = Nanos(out.queue.now());
        self.note_request(index, |span| span.arrived = span.arrived.min(now.0));
        match kind {
            RequestKind::Read => {
                let (mut served, granularity) = (0, self.servers[server as usize].granularity);
                for number in 0..self.requests.get(index).extents.len() {
                    let Extent { offset, bytes } = self.requests.get(index).extents[number];
                    let piece = Piece { access: Access::Read, file: FileKey(u64::from(file)), offset, bytes, tag };
                    for piece in piece.cut(granularity) {
                        let state = &mut self.servers[server as usize];
                        if state.take_kept(now, &piece) {
                            served += piece.bytes;
                            continue;
                        }
                        if !state.cache.is_on() {
                            state.layer.add(now, piece);
                            self.schedule(out.queue, server);
                            continue;
                        }
                        for (offset, bytes, is_kept) in state.cache.look_up(file, piece.offset, piece.bytes) {
                            let state = &mut self.servers[server as usize];
                            if is_kept {
                                state.take_memory(bytes);
                                state.cached_bytes += bytes;
                                served += bytes;
                                continue;
                            }
                            state.layer.add(now, Piece { offset, bytes, ..piece });
                            self.schedule(out.queue, server);
                        }
                    }
                }
                let from = self.servers[server as usize].process;
                let reply = out.network.open(from, process, bytes, Tag::ReadData(index).pack());
                self.requests.get_mut(index).reply = reply;
                if served > 0 {
                    self.answer(out, index, served);
                }
            }
            RequestKind::Write if left > 0 && self.servers[server as usize].orders_arrivals() => {
                let first = self.requests.get(index).extents.first().map_or(0, |extent| extent.offset);
                if let Some(announced) = &mut self.servers[server as usize].announced {
                    announced.announce(index, file, first, bytes);
                }
                self.ask_for_data(out, server);
            }
            RequestKind::Write if self.config.answers_written => self.confirm_written(out, index),
            RequestKind::Write if left == 0 => self.requests.remove(index),
            RequestKind::Write => {}
            RequestKind::Flush => {
                self.requests.remove(index);
                let state = &mut self.servers[server as usize];
                state.layer.flush(now, FileKey(u64::from(file)));
                let mut jobs = std::mem::take(&mut state.flushed);
                state.layer.take_flushed(&mut jobs);
                for job in jobs.drain(..) {
                    self.submit(out.queue, server, job);
                }
                self.servers[server as usize].flushed = jobs;
                self.schedule(out.queue, server);
            }
        }
    }

    /// A packet with data of a write has arrived.
    pub(crate) fn write_data_arrived(&mut self, out: &mut Outside<'_>, packet: DataPacket) {
        let server = self.requests.get(packet.request).server;
        let now = out.queue.now();
        self.note_request(packet.request, |span| (span.arrived, span.complete) = (span.arrived.min(now), now));
        if let Some(copies) = &mut self.servers[server as usize].copies {
            out.queue.push(copies.start(now, Copied::Write(packet)), Event::Copied(server));
            return;
        }
        self.offer(out, server, packet);
    }

    /// Offers data of a write to the cache layer; if it has no room, nothing more may come.
    fn offer(&mut self, out: &mut Outside<'_>, server: u32, packet: DataPacket) {
        let now = out.queue.now();
        let state = &mut self.servers[server as usize];
        if state.refused.is_empty() && state.layer.accepts(packet.bytes, state.memory_free) {
            self.accept(out, packet);
        } else {
            state.refused.push_back(packet);
            out.network.set_gate(out.queue, state.process, true);
            if let Some(log) = &mut self.log {
                log.gate(now, server, true);
            }
        }
    }

    /// A copy from or into the memory of a server has ended.
    pub(crate) fn copied(&mut self, out: &mut Outside<'_>, server: u32) {
        match self.servers[server as usize].copies.as_mut().and_then(Copies::finish) {
            Some(Copied::Reply { request, bytes }) => self.append(out, request, bytes),
            Some(Copied::Write(packet)) => self.offer(out, server, packet),
            None => {}
        }
    }

    /// Data for the answer to a read is there, in memory.
    fn answer(&mut self, out: &mut Outside<'_>, request: u32, bytes: u64) {
        let server = self.requests.get(request).server;
        match &mut self.servers[server as usize].copies {
            Some(copies) => out.queue.push(copies.start(out.queue.now(), Copied::Reply { request, bytes }), Event::Copied(server)),
            None => self.append(out, request, bytes),
        }
    }

    fn append(&mut self, out: &mut Outside<'_>, request: u32, bytes: u64) {
        out.network.append(out.queue, self.requests.get(request).reply, bytes);
        let now = out.queue.now();
        self.note_request(request, |span| span.answered = now);
    }

    /// Asks clients for data of writes that they announced, as far as there is room.
    fn ask_for_data(&mut self, out: &mut Outside<'_>, server: u32) {
        let Server { announced: Some(announced), layer, process, .. } = &mut self.servers[server as usize] else { return };
        while let Some(request) = announced.next(layer.queued(Access::Write).bytes) {
            out.network.send(out.queue, *process, self.requests.get(request).process, ASK_BYTES, Tag::Ask(request).pack());
        }
    }

    /// A reply packet has left the server's card.
    pub(crate) fn reply_uploaded(&mut self, queue: &mut Queue, request: u32, bytes: u64) {
        let server = self.requests.get(request).server;
        let state = &mut self.servers[server as usize];
        let was_short = state.scheduled == 0 && state.layer.queued(Access::Read).entries > 0;
        state.add_memory(bytes);
        if was_short {
            // Reads that found too little memory may find enough now.
            self.schedule(queue, server);
        }
    }

    /// The disk of a server has finished a job.
    pub(crate) fn disk_done(&mut self, out: &mut Outside<'_>, server: u32) {
        let state = &mut self.servers[server as usize];
        let done = state.disk.finish();
        let Running { job, parts } = &mut state.running[done.tag as usize];
        let (job, mut parts) = (*job, std::mem::take(parts));
        if job.access == Access::Read {
            // What has arrived meanwhile takes its bytes from the job, too; what is left of its
            // holes is in no reply.
            state.layer.take_covered(&job, &mut parts);
        }
        if let Some(log) = &mut self.log {
            log.access_done(server, &parts);
        }
        match job.access {
            Access::Read => {
                let wanted: u64 = parts.iter().map(|part| part.bytes).sum();
                state.add_memory(job.bytes.saturating_sub(wanted));
                state.keep_holes(Nanos(out.queue.now()), &job, &parts);
                state.cache.keep(job.file.0 as u32, job.offset, job.bytes);
                for part in &parts {
                    self.answer(out, part.tag as u32, part.bytes);
                }
            }
            Access::Write => {
                state.add_memory(job.bytes);
                self.written(out, &parts);
                self.retry_refused(out, server);
            }
        }
        parts.clear();
        let state = &mut self.servers[server as usize];
        state.running[done.tag as usize].parts = parts;
        state.free_running.push(done.tag);
        state.scheduled -= 1;
        state.layer.completed(Nanos(out.queue.now()), &job);
        self.schedule(out.queue, server);
        self.ask_for_data(out, server);
        if let Some(service) = self.servers[server as usize].disk.start_next() {
            out.queue.push_after(service, Event::Disk(server));
            self.record_access(out.queue.now(), server, service);
        }
    }

    /// A server asked to be woken.
    pub(crate) fn wake(&mut self, queue: &mut Queue, server: u32) {
        let state = &mut self.servers[server as usize];
        if state.wake_at == Some(queue.now()) {
            state.wake_at = None;
            self.schedule(queue, server);
        }
    }

    fn retry_refused(&mut self, out: &mut Outside<'_>, server: u32) {
        if self.servers[server as usize].refused.is_empty() {
            return;
        }
        loop {
            let state = &mut self.servers[server as usize];
            let Some(&packet) = state.refused.front() else {
                let process = state.process;
                out.network.set_gate(out.queue, process, false);
                if let Some(log) = &mut self.log {
                    log.gate(out.queue.now(), server, false);
                }
                return;
            };
            if !state.layer.accepts(packet.bytes, state.memory_free) {
                return;
            }
            state.refused.pop_front();
            self.accept(out, packet);
        }
    }

    /// Takes data of a write: cuts it along the request's extents, and each piece may start at
    /// once.
    fn accept(&mut self, out: &mut Outside<'_>, packet: DataPacket) {
        let DataPacket { request: index, bytes, last } = packet;
        let now = Nanos(out.queue.now());
        let (server, tag) = (self.requests.get(index).server, tag_of(index, self.requests.get(index).number));
        let state = &mut self.servers[server as usize];
        state.take_memory(bytes);
        if let Some(announced) = &mut state.announced {
            announced.accepted(bytes);
        }
        let granularity = state.granularity;
        let mut left = bytes;
        while left > 0 {
            let request = self.requests.get_mut(index);
            let (number, done) = request.cursor;
            let extent = request.extents[number];
            let taken = (extent.bytes - done).min(left).min(granularity);
            request.cursor = if done + taken == extent.bytes { (number + 1, 0) } else { (number, done + taken) };
            let file = FileKey(u64::from(request.file));
            let piece = Piece { access: Access::Write, file, offset: extent.offset + done, bytes: taken, tag };
            left -= taken;
            if taken > 0 {
                let state = &mut self.servers[server as usize];
                state.keep(|kept, _| kept.written(file, piece.offset, piece.bytes));
                state.cache.keep(file.0 as u32, piece.offset, piece.bytes);
                state.layer.add(now, piece);
                state.layer.take_dropped(&mut state.dropped);
                let mut dropped = std::mem::take(&mut state.dropped);
                state.add_memory(dropped.iter().map(|part| part.bytes).sum());
                self.written(out, &dropped);
                dropped.clear();
                self.servers[server as usize].dropped = dropped;
                self.schedule(out.queue, server);
            }
        }
        let request = self.requests.get_mut(index);
        request.left -= bytes;
        let (task, client) = (request.task, request.process);
        let (left, arrived) = (request.left, request.arrived);
        if self.config.answers_written {
            return;
        }
        let done = if self.config.early_completion { last } else { left == 0 };
        if done {
            self.note_request(index, |span| span.answered = now.0);
        }
        if left == 0 && arrived {
            self.requests.remove(index);
        }
        if done {
            let process = self.servers[server as usize].process;
            out.network.send(out.queue, process, client, COMPLETION_BYTES, Tag::WriteDone(task).pack());
        }
    }

    /// Parts of writes are on the disk (or replaced by newer ones): confirms the requests of which
    /// they were the last, if that is when they are confirmed.
    fn written(&mut self, out: &mut Outside<'_>, parts: &[JobPiece]) {
        if !self.config.answers_written {
            return;
        }
        for part in parts {
            let index = part.tag as u32;
            self.requests.get_mut(index).unwritten -= part.bytes;
            self.confirm_written(out, index);
        }
    }

    /// Confirms a write if all of it, the request included, is there and on the disk.
    fn confirm_written(&mut self, out: &mut Outside<'_>, index: u32) {
        let request = self.requests.get(index);
        if request.unwritten == 0 && request.arrived {
            let from = self.servers[request.server as usize].process;
            out.network.send(out.queue, from, request.process, COMPLETION_BYTES, Tag::WriteDone(request.task).pack());
            let now = out.queue.now();
            self.note_request(index, |span| span.answered = now);
            self.requests.remove(index);
        }
    }

    /// Gives the disk what the cache layer wants next, while it has room.
    fn schedule(&mut self, queue: &mut Queue, server: u32) {
        loop {
            let state = &mut self.servers[server as usize];
            if state.scheduled >= state.disk_concurrency {
                return;
            }
            let slot = match state.free_running.last() {
                Some(&slot) => slot as usize,
                None => {
                    let job = Job { access: Access::Read, file: FileKey(0), offset: 0, bytes: 0 };
                    state.running.push(Running { job, parts: Vec::new() });
                    state.free_running.push((state.running.len() - 1) as u32);
                    state.running.len() - 1
                }
            };
            match state.layer.next(Nanos(queue.now()), state.memory_free, &mut state.running[slot].parts) {
                Next::Job(job) => self.submit(queue, server, job),
                Next::At(at) => {
                    if state.wake_at.is_none_or(|wake| wake > at.0) {
                        state.wake_at = Some(at.0);
                        queue.push(at.0.max(queue.now()), Event::Wake(server));
                    }
                    return;
                }
                Next::Idle => return,
            }
        }
    }

    /// Hands a job to the disk; its parts are in the last free slot.
    fn submit(&mut self, queue: &mut Queue, server: u32, job: Job) {
        let state = &mut self.servers[server as usize];
        let slot = state.free_running.pop().unwrap_or_else(|| {
            state.running.push(Running { job, parts: Vec::new() });
            (state.running.len() - 1) as u32
        });
        state.running[slot as usize].job = job;
        let kind = match job.access {
            Access::Read => {
                state.take_memory(job.bytes);
                JobKind::Read
            }
            Access::Write => JobKind::Write,
        };
        state.scheduled += 1;
        let disk_job = DiskJob { kind, file: job.file.0 as u32, offset: job.offset, bytes: job.bytes, tag: slot };
        if let Some(service) = state.disk.submit(disk_job) {
            queue.push_after(service, Event::Disk(server));
            self.record_access(queue.now(), server, service);
        }
    }

    fn record_access(&mut self, start: u64, server: u32, service: u64) {
        if let Some(log) = &mut self.log {
            log.access(start, server, &self.servers[server as usize].disk, service);
        }
    }

    /// Changes the record of a request, if there is one.
    fn note_request(&mut self, request: u32, change: impl FnOnce(&mut RequestSpan)) {
        if let Some(log) = &mut self.log {
            log.note(self.requests.get(request).number, change);
        }
    }
}
