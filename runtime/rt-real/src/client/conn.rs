//! One connection of a client process, used by all its threads.
//!
//! Locks, in the order in which they may be taken: `sending`, then `buffer` or `pending`; each of
//! the others alone. None is held while a thread waits, except `sending` by a thread that waits for
//! room in the socket (it reads replies meanwhile).

mod sending;
mod table;

use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use weft_base::{Nanos, Payload, Status};
use weft_rt::{Bulk, Outgoing};
use weft_wire::{BULK_BYTES_MAX, Flags, Frame, MessageKind, SessionCiphers};

use sending::{BUFFER_BYTES_MAX, Collected, SEND_NS_MAX, Sending};
use table::{Pending, Table};

use super::Counters;
use super::context::{Sleep, ThreadContext};
use crate::handshake::Dialed;
use crate::inbound::{BULK_DIRECT_BYTES, FrameReader, Limits};
use crate::outbound::{encode, encode_naming};
use crate::region::{Region, SHARED_BYTES_MIN, Slot};
use crate::{clock, locked, sys};

/// Bytes that one read takes before the replies are handed out.
/// Bytes that one read takes before the replies are handed out.
const READ_BYTES: usize = 1 << 20;

/// A connection after its handshake.
#[derive(Debug)]
pub(crate) struct Conn {
    fd: OwnedFd,
    alive: AtomicBool,
    pending: Mutex<Table>,
    /// The reading half, while nobody reads.
    reader: Mutex<Option<Box<Reader>>>,
    /// Small requests, complete frames, that nobody sends yet.
    buffer: Mutex<Collected>,
    is_encrypted: bool,
    sending: Mutex<Sending>,
    /// There is something in `buffer` or `sending`. Changed under the lock of `buffer`.
    unsent: AtomicBool,
    counters: Arc<Counters>,
    /// Memory that the server shares with us.
    region: Option<Arc<Region>>,
}

/// The reading half of a connection. Whoever has it reads for everybody.
#[derive(Debug)]
pub(crate) struct Reader {
    frames: FrameReader,
    complete: Vec<Frame>,
    wakers: Vec<Waker>,
}

/// Where a traced request is on its way to the socket.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    /// Nobody asks.
    Untraced,
    /// It ends there among all bytes ever collected.
    Collected(u64),
    /// It was given to the socket at this time, by the clock of trace records.
    Sent(u64),
}

/// True if requests leave records that tell when they were given to the socket.
#[inline]
fn is_traced() -> bool {
    weft_trace::is_on(weft_trace::event::NET_CALL)
}

/// Now, on the clock of the trace; 0 if requests are not traced.
#[inline]
fn trace_ticks() -> u64 {
    if is_traced() { weft_trace::now() } else { 0 }
}

impl Conn {
    pub(crate) fn new(dialed: Dialed, counters: Arc<Counters>) -> Conn {
        let mut frames = FrameReader::new(Limits::OPEN);
        if dialed.region.is_some() {
            frames.accept_region();
        }
        let mut sending = Sending::default();
        if let Some(SessionCiphers { to_server, to_client }) = dialed.ciphers {
            frames.set_cipher(to_client);
            sending.cipher = Some(to_server);
        }
        let reader = Reader { frames, complete: Vec::new(), wakers: Vec::new() };
        Conn {
            fd: dialed.fd,
            region: dialed.region.map(|memory| Arc::new(Region::new(memory))),
            alive: AtomicBool::new(true),
            pending: Mutex::default(),
            reader: Mutex::new(Some(Box::new(reader))),
            buffer: Mutex::default(),
            is_encrypted: sending.cipher.is_some(),
            sending: Mutex::new(sending),
            unsent: AtomicBool::new(false),
            counters,
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn count_poll(&self) {
        Counters::add(&self.counters.poll_calls, 1);
    }

    /// Registers a request and sends it, or leaves it in the buffer if it is small.
    pub(crate) fn submit(self: &Arc<Self>, thread: &Rc<ThreadContext>, request: Outgoing<'_>, deadline: Nanos) -> Result<Wait, Status> {
        thread.assert_driving();
        let sequence = request.header.request.sequence;
        if let Some((slot, flag, bytes)) = self.slot_for(&request) {
            return self.submit_naming(thread, request, deadline, slot, flag, bytes);
        }
        self.register(thread, sequence, None)?;
        let zeros;
        let slices: &[&[u8]] = match &request.bulk {
            Bulk::None | Bulk::Expected(_) => &[],
            Bulk::Slices(slices) => slices,
            Bulk::Synthetic { len, .. } => {
                zeros = vec![0; *len as usize];
                &[&zeros]
            }
        };
        let small = request.bulk.len() < BULK_DIRECT_BYTES as u64;
        let mut wait = self.begin(thread, sequence, deadline);
        if small {
            let collected = self.collect(&mut wait, |bytes| {
                encode(bytes, request.header, &request.body, slices, !self.is_encrypted);
                slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
            });
            if collected > BUFFER_BYTES_MAX {
                thread.flush();
            }
        } else {
            wait.leaving = match self.send_bulk(thread, &request, slices, deadline) {
                0 => Leaving::Untraced,
                ticks => Leaving::Sent(ticks),
            };
        }
        Ok(wait)
    }

    /// A place in the shared region for the bulk data of a request or of its reply, and how many
    /// bytes of it. Only the first sending of a request gets one (`region`: who may use a place,
    /// and when).
    fn slot_for(&self, request: &Outgoing<'_>) -> Option<(Slot, Flags, usize)> {
        let region = self.region.as_ref()?;
        let (flag, bytes) = match &request.bulk {
            Bulk::Slices(_) => (Flags::SHARED, request.bulk.len()),
            Bulk::Expected(bytes) => (Flags::ROOM, *bytes),
            Bulk::None | Bulk::Synthetic { .. } => return None,
        };
        if !(SHARED_BYTES_MIN..=BULK_BYTES_MAX as u64).contains(&bytes) || request.header.flags.contains(Flags::RETRY) {
            return None;
        }
        Some((region.take(bytes)?, flag, bytes as usize))
    }

    /// Sends a request whose bulk data is copied into the shared region, or whose reply may put
    /// some there.
    fn submit_naming(
        self: &Arc<Self>,
        thread: &Rc<ThreadContext>,
        request: Outgoing<'_>,
        deadline: Nanos,
        mut slot: Slot,
        flag: Flags,
        bytes: usize,
    ) -> Result<Wait, Status> {
        if let Bulk::Slices(slices) = &request.bulk {
            slot.fill(slices);
        }
        let (sequence, page) = (request.header.request.sequence, slot.page());
        self.register(thread, sequence, Some(slot))?;
        let mut wait = self.begin(thread, sequence, deadline);
        self.collect(&mut wait, |buffer| encode_naming(buffer, request.header, &request.body, flag, page, bytes));
        // The server begins while we copy the data for the next one.
        self.flush(thread, deadline.min(clock::now() + SEND_NS_MAX));
        Ok(wait)
    }

    /// Makes a reply to this sequence number expected.
    fn register(&self, thread: &ThreadContext, sequence: u64, slot: Option<Slot>) -> Result<(), Status> {
        let pending = Pending { outcome: None, waker: None, parker: thread.parker().clone(), slot, answered: false, received_at: 0 };
        {
            let requests = &mut locked(&self.pending).requests;
            if !self.is_alive() {
                return Err(Status::Unreachable);
            }
            if requests.contains_key(&sequence) {
                return Err(Status::Invalid);
            }
            requests.insert(sequence, pending);
        }
        Ok(())
    }

    /// Notes that this thread waits for the reply.
    fn begin(self: &Arc<Self>, thread: &Rc<ThreadContext>, sequence: u64, deadline: Nanos) -> Wait {
        thread.begin_wait(self);
        Counters::add(&self.counters.sent_messages, 1);
        Wait { conn: self.clone(), thread: thread.clone(), sequence, timer: Sleep::new(deadline), leaving: Leaving::Untraced }
    }

    // ---------------------------------------------------------------------------------------------
    // receiving

    /// Takes the reading half, if nobody has it.
    pub(crate) fn take_reader(&self) -> Option<Box<Reader>> {
        locked(&self.reader).take()
    }

    /// Gives the reading half back.
    pub(crate) fn give_back(&self, reader: Box<Reader>) {
        *locked(&self.reader) = Some(reader);
    }

    /// If nobody reads, or something was left unsent, wakes somebody who waits, who then will.
    pub(crate) fn ensure_reader(&self) {
        if locked(&self.reader).is_none() && !self.has_unsent() {
            return;
        }
        let heir = {
            let pending = locked(&self.pending);
            let mut waiting = pending.requests.values().filter(|one| one.outcome.is_none());
            // One who sleeps looks around at once; one who is busy does so before it sleeps.
            waiting.clone().find(|one| one.parker.is_parked()).or_else(|| waiting.next()).map(|one| one.parker.clone())
        };
        if let Some(parker) = heir {
            parker.unpark();
        }
    }

    /// Reads what is there and hands the replies out. With `wait`, waits a limited time until
    /// something is there. True if something was.
    pub(crate) fn read(&self, reader: &mut Reader, wait: bool) -> bool {
        let outcome = match wait {
            true => reader.frames.receive_waiting(self.fd.as_fd(), READ_BYTES, &mut reader.complete),
            false => reader.frames.receive(self.fd.as_fd(), READ_BYTES, &mut reader.complete),
        };
        if let Ok(received) = outcome {
            Counters::add(&self.counters.received_bytes, received.bytes as u64);
            Counters::add(&self.counters.receive_calls, u64::from(received.calls));
        }
        if !reader.complete.is_empty() {
            self.hand_out(reader, trace_ticks());
        }
        if outcome.is_err() {
            self.kill(Status::Unreachable);
        }
        outcome.is_ok_and(|received| received.bytes > 0)
    }

    fn hand_out(&self, reader: &mut Reader, received_at: u64) {
        Counters::add(&self.counters.received_messages, reader.complete.len() as u64);
        let mut strange = false;
        {
            let mut pending = locked(&self.pending);
            for mut frame in reader.complete.drain(..) {
                strange |= frame.header.kind != MessageKind::Reply;
                // Nobody waits any more for what came after its deadline.
                if let Some(one) = pending.requests.get_mut(&frame.header.request.sequence) {
                    if let Some((offset, len)) = frame.header.region_place() {
                        // The reply to an earlier sending, in a place that was given up: that of
                        // this one comes too.
                        let Some(slot) = one.slot.take_if(|slot| slot.is_at(offset, len)) else { continue };
                        frame.bulk = Payload::Real(slot.into_bytes(len));
                    }
                    (one.outcome, one.answered, one.received_at) = (Some(Ok(frame)), true, received_at);
                    reader.wakers.extend(one.waker.take());
                }
            }
        }
        reader.wakers.drain(..).for_each(Waker::wake);
        if strange {
            self.kill(Status::Unreachable);
        }
    }

    /// Ends the connection; everybody who waits gets `status`.
    fn kill(&self, status: Status) {
        let mut wakers = Vec::new();
        {
            let mut pending = locked(&self.pending);
            self.alive.store(false, Ordering::Release);
            for one in pending.requests.values_mut() {
                if one.outcome.is_none() {
                    one.outcome = Some(Err(status));
                    wakers.extend(one.waker.take());
                }
            }
        }
        sys::shutdown(self.fd.as_fd());
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Waits for the reply to one request; gives the request up when it is dropped.
pub(crate) struct Wait {
    conn: Arc<Conn>,
    thread: Rc<ThreadContext>,
    sequence: u64,
    timer: Sleep,
    leaving: Leaving,
}

impl Future for Wait {
    type Output = Result<Frame, Status>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        {
            let mut table = locked(&self.conn.pending);
            let Some(pending) = table.requests.get_mut(&self.sequence) else { return Poll::Ready(Err(Status::Unreachable)) };
            if let Some(outcome) = pending.outcome.take() {
                let received_at = pending.received_at;
                match self.leaving {
                    Leaving::Untraced => {}
                    Leaving::Collected(end) => weft_trace::note_way(table.sent_at(end), received_at),
                    Leaving::Sent(ticks) => weft_trace::note_way(ticks, received_at),
                }
                return Poll::Ready(outcome);
            }
            if !pending.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                pending.waker = Some(context.waker().clone());
            }
            self.thread.note_waker(context.waker());
        }
        self.timer.poll(context.waker()).map(|()| Err(Status::TimedOut))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let pending = locked(&self.conn.pending).requests.remove(&self.sequence);
        // Until its reply the server may use the place: then nobody else may.
        if let Some(Pending { slot: Some(slot), answered: false, .. }) = pending {
            slot.lose();
        }
        self.thread.end_wait(&self.conn);
    }
}
