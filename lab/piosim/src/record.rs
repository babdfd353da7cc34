//! What happened when, for viewers: the commands of every rank, its requests and messages, and the
//! accesses of every disk, in virtual time. Requests have numbers, which tie a command to what
//! servers and disks did for it.

use std::collections::BTreeMap;

use weft_model::{Disk, DiskJob, JobKind, Message, Seek};
use weft_sched::JobPiece;

use crate::event::Tag;
use crate::request::{Request, RequestKind};

/// A command of a rank, from its start to its end. Non-blocking commands end at once here; what
/// they wait for shows in the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandSpan {
    /// Application.
    pub app: u32,
    /// Rank in its world.
    pub rank: u32,
    /// Index in the rank's program.
    pub position: u32,
    /// Start, nanoseconds.
    pub start: u64,
    /// End, nanoseconds.
    pub end: u64,
}

/// An access of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpan {
    /// Server.
    pub server: u32,
    /// Reading or writing.
    pub kind: JobKind,
    /// File, numbered through all applications.
    pub file: u32,
    /// First byte in the server's part of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// How it was reached.
    pub seek: Seek,
    /// Start, nanoseconds.
    pub start: u64,
    /// End, nanoseconds.
    pub end: u64,
}

/// An access was made for a request, perhaps with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessPart {
    /// Position of the access among all.
    pub access: u32,
    /// Number of the request.
    pub request: u32,
    /// How much of the access it needs, bytes.
    pub bytes: u64,
}

/// What a process sent or received: a packet, or a message whose last packet has left the card. The
/// start is the end minus the time that these bytes need on the link; with several messages on one
/// card at a time such spans overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferSpan {
    /// Process: ranks of all applications in their order, then servers.
    pub process: u32,
    /// Sent, not received.
    pub sent: bool,
    /// The other process.
    pub peer: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// Start, nanoseconds.
    pub start: u64,
    /// End, nanoseconds.
    pub end: u64,
}

/// A read or write at one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSpan {
    /// Process that asks: ranks of all applications in their order.
    pub process: u32,
    /// Its command: index in the rank's program.
    pub position: u32,
    /// Server.
    pub server: u32,
    /// Writing, not reading.
    pub writes: bool,
    /// File, numbered through all applications.
    pub file: u32,
    /// First byte in the server's part of the file.
    pub offset: u64,
    /// Sum of its extents, bytes.
    pub bytes: u64,
    /// The client hands the request to its card, nanoseconds.
    pub start: u64,
    /// The card begins with it.
    pub sent: u64,
    /// It is at the server.
    pub arrived: u64,
    /// Writes: the last packet of its data is at the server. Reads: as `arrived`.
    pub complete: u64,
    /// The server has the last byte that was asked for, or has accepted the last byte of a write.
    pub answered: u64,
    /// The client has it all, or knows that the server has it.
    pub end: u64,
}

/// A rank waits for a message to another rank to leave, or for one from another rank to arrive:
/// from the moment at which both wait and message are there. What a rank waits beyond that it waits
/// for other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSpan {
    /// Process that waits.
    pub process: u32,
    /// Its command.
    pub position: u32,
    /// Sent, not received.
    pub sent: bool,
    /// The other process.
    pub peer: u32,
    /// Start, nanoseconds.
    pub start: u64,
    /// End, nanoseconds.
    pub end: u64,
}

/// A message of a program or of one of its collective commands, from card to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Sending process.
    pub from: u32,
    /// Receiving process.
    pub to: u32,
    /// Length.
    pub bytes: u64,
    /// When the sender handed it to its card, nanoseconds.
    pub sent: u64,
    /// When the receiver had it, nanoseconds.
    pub taken: u64,
}

/// A server accepts no data of writes because its cache layer has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullSpan {
    /// Server.
    pub server: u32,
    /// Start, nanoseconds.
    pub start: u64,
    /// End, nanoseconds.
    pub end: u64,
}

/// All of a run; commands rank by rank, accesses in the order of their starts, transfers in the
/// order of their ends, requests in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Commands.
    pub commands: Vec<CommandSpan>,
    /// Accesses.
    pub disks: Vec<DiskSpan>,
    /// Which access was made for which requests.
    pub parts: Vec<AccessPart>,
    /// Messages and packets on the cards of clients and servers.
    pub transfers: Vec<TransferSpan>,
    /// The requests of [`Recording::transfers`], where they belong to one.
    pub transfers_of: Vec<Option<u32>>,
    /// Requests.
    pub requests: Vec<RequestSpan>,
    /// Waits of ranks for messages.
    pub messages: Vec<MessageSpan>,
    /// Messages that were received, in this order; without questions whether data may be sent.
    pub taken: Vec<Taken>,
    /// Servers without room.
    pub full: Vec<FullSpan>,
}

/// A recording under construction.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) all: Recording,
    /// The access that each server's disk works on.
    accesses: BTreeMap<u32, u32>,
    /// Writes that have not been confirmed, by process and server.
    unconfirmed: BTreeMap<(u32, u32), u32>,
}

/// The number of a request that is not recorded.
pub(crate) const NO_NUMBER: u32 = u32::MAX;

impl Log {
    /// A request is handed to the card of its client; gives its number.
    pub(crate) fn request(&mut self, now: u64, request: &Request, position: u32) -> u32 {
        let number = self.all.requests.len() as u32;
        let writes = match request.kind {
            RequestKind::Flush => return NO_NUMBER,
            kind => kind == RequestKind::Write,
        };
        if writes {
            self.unconfirmed.insert((request.process, request.server), number);
        }
        let offset = request.extents.first().map_or(0, |extent| extent.offset);
        let (process, server, file, bytes) = (request.process, request.server, request.file, request.bytes);
        let none = u64::MAX;
        self.all.requests.push(RequestSpan {
            process,
            position,
            server,
            writes,
            file,
            offset,
            bytes,
            start: now,
            sent: none,
            arrived: none,
            complete: 0,
            answered: 0,
            end: now,
        });
        number
    }

    /// A change of a request's record.
    pub(crate) fn note(&mut self, number: u32, change: impl FnOnce(&mut RequestSpan)) {
        if let Some(span) = self.all.requests.get_mut(number as usize) {
            change(span);
        }
    }

    /// A write is confirmed: by this server to this client.
    pub(crate) fn confirmed(&mut self, now: u64, process: u32, server: u32) {
        if let Some(number) = self.unconfirmed.remove(&(process, server)) {
            self.note(number, |span| span.end = now);
        }
    }

    /// The disk of a server begins with a job.
    pub(crate) fn access(&mut self, start: u64, server: u32, disk: &Disk, service: u64) {
        let Some(DiskJob { kind, file, offset, bytes, .. }) = disk.serving() else { return };
        self.accesses.insert(server, self.all.disks.len() as u32);
        self.all.disks.push(DiskSpan { server, kind, file, offset, bytes, seek: disk.seek(), start, end: start + service });
    }

    /// It is done; these were the pieces that it was for.
    pub(crate) fn access_done(&mut self, server: u32, parts: &[JobPiece]) {
        let Some(access) = self.accesses.remove(&server) else { return };
        let mut of: BTreeMap<u32, u64> = BTreeMap::new();
        for part in parts.iter().filter(|part| number_of(part.tag) != NO_NUMBER) {
            *of.entry(number_of(part.tag)).or_default() += part.bytes;
        }
        self.all.parts.extend(of.into_iter().map(|(request, bytes)| AccessPart { access, request, bytes }));
    }

    /// A server closes or opens its gate for data of writes.
    pub(crate) fn gate(&mut self, now: u64, server: u32, closed: bool) {
        match self.all.full.iter_mut().rev().find(|span| span.server == server).filter(|span| span.end == u64::MAX) {
            Some(open) if !closed => open.end = now,
            None if closed => self.all.full.push(FullSpan { server, start: now, end: u64::MAX }),
            _ => {}
        }
    }

    /// Something has left a card or arrived at one: `time` nanoseconds for these bytes.
    pub(crate) fn transfer(&mut self, message: &Message, (end, time): (u64, u64), bytes: u64, sent: bool, request: Option<u32>) {
        let (process, peer) = if sent { (message.from, message.to) } else { (message.to, message.from) };
        let start = end.saturating_sub(time);
        self.all.transfers.push(TransferSpan { process, sent, peer, bytes, start, end });
        self.all.transfers_of.push(request.filter(|number| *number != NO_NUMBER));
        if let (true, Tag::Request(_), Some(number)) = (sent, Tag::unpack(message.tag), request) {
            self.note(number, |span| span.sent = start.max(span.start));
        }
    }
}

/// The tag of a request's pieces in a cache layer: its number in the recording beside its place
/// among all requests, which is used again.
pub(crate) fn tag_of(index: u32, number: u32) -> u64 {
    u64::from(number) << 32 | u64::from(index)
}

fn number_of(tag: u64) -> u32 {
    (tag >> 32) as u32
}
