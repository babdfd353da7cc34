//! Requests of clients to I/O servers, from their sending until the server needs them no more.

use weft_model::MessageId;

use crate::program::Extent;
use crate::record::NO_NUMBER;

/// What a client asks a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestKind {
    /// Send me these extents.
    #[default]
    Read,
    /// I shall send you these extents.
    Write,
    /// Put what you have of this file on disk.
    Flush,
}

/// A request; lives from its sending until the server needs it no more.
#[derive(Debug, Default)]
pub struct Request {
    /// What is asked.
    pub kind: RequestKind,
    /// The task that asks.
    pub task: u32,
    /// Its process.
    pub process: u32,
    /// The server.
    pub server: u32,
    /// File.
    pub file: u32,
    /// Extents of the server's part of the file.
    pub extents: Vec<Extent>,
    /// Sum of the extents.
    pub bytes: u64,
    /// Bytes not yet accepted (writes) or not yet received by the client (reads).
    pub left: u64,
    /// Writes: bytes that are not on the disk, as far as anybody wants to know.
    pub(crate) unwritten: u64,
    /// Writes: extent that the next byte belongs to, and how much of it is there.
    pub(crate) cursor: (usize, u64),
    /// Reads: the answer.
    pub(crate) reply: MessageId,
    /// Writes to a server that asks for the data: it has asked, or the client would send.
    pub(crate) asked: bool,
    /// It has arrived. Data may overtake it: flow control does not keep the order of packets.
    pub(crate) arrived: bool,
    /// Its number in the recording.
    pub(crate) number: u32,
}

/// All requests; lists of extents keep their space for the next one.
#[derive(Default)]
pub struct Requests {
    all: Vec<Request>,
    free: Vec<u32>,
}

impl Requests {
    /// A new request with the extents of `list`.
    pub fn add(&mut self, kind: RequestKind, (task, process): (u32, u32), server: u32, file: u32, list: &[Extent]) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Request::default());
            (self.all.len() - 1) as u32
        });
        let request = &mut self.all[index as usize];
        let mut extents = std::mem::take(&mut request.extents);
        extents.clear();
        extents.extend_from_slice(list);
        let bytes = list.iter().map(|extent| extent.bytes).sum();
        let (left, unwritten, number) = (bytes, bytes, NO_NUMBER);
        *request = Request { kind, task, process, server, file, extents, bytes, left, unwritten, number, ..Request::default() };
        index
    }

    /// The request of this number.
    pub fn get(&self, request: u32) -> &Request {
        &self.all[request as usize]
    }

    pub(crate) fn get_mut(&mut self, request: u32) -> &mut Request {
        &mut self.all[request as usize]
    }

    /// The request is over.
    pub fn remove(&mut self, request: u32) {
        self.free.push(request);
    }

    /// Requests that are not over.
    pub fn open(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
