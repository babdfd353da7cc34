//! One connection of a client process, used by all its threads.
//!
//! Locks, in the order in which they may be taken: `sending`, then `buffer` or `pending`; each of
//! the others alone. None is held while a thread waits, except `sending` by a thread that waits for
//! room in the socket (it reads replies meanwhile).

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Waker};

use weft_base::{FastMap, Nanos, Payload, SECOND, Status};
use weft_rt::{Bulk, Outgoing};
use weft_wire::{BULK_BYTES_MAX, Flags, Frame, MessageKind, SEAL_BYTES, Sealer, Sealing, SessionSeals};

use super::Counters;
use super::context::{Sleep, ThreadContext};
use super::parker::Parker;
use crate::clock;
use crate::handshake::Dialed;
use crate::inbound::{BULK_DIRECT_BYTES, FrameReader, Limits};
use crate::outbound::{encode, encode_naming};
use crate::region::{Region, SHARED_BYTES_MIN, Slot};
use crate::sys::{self, Watched};

/// Bytes that one read takes before the replies are handed out.
const READ_BYTES: usize = 1 << 20;
/// Requests are sent before the thread waits if so many bytes have been collected.
const BUFFER_BYTES_MAX: usize = 256 << 10;
/// A request that could not be sent within this time, in nanoseconds, ends the connection even
/// without a deadline.
const SEND_NS_MAX: u64 = 60 * SECOND;
/// Pieces given to the kernel in one call.
const PIECES_MAX: usize = 16;
/// Sends whose time is remembered for the trace records of the requests in them.
const SENDS_REMEMBERED: usize = 256;

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
    is_sealed: bool,
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

/// Small requests that nobody sends yet.
#[derive(Debug, Default)]
struct Collected {
    bytes: Vec<u8>,
    /// Bytes ever collected: where the last request ends among all of them.
    end: u64,
    /// Makes the seals of requests, if they have some, in the order in which they leave.
    sealer: Option<Sealer>,
}

/// What is being sent: some of it may be in the socket already.
#[derive(Debug, Default)]
struct Sending {
    bytes: Vec<u8>,
    sent: usize,
    /// Of all bytes ever collected, those that are in the socket.
    end: u64,
}

/// Requests whose replies are awaited, by sequence number.
#[derive(Debug, Default)]
struct Table {
    requests: FastMap<u64, Pending>,
    /// Of the last sends while requests are traced: the end among all bytes ever collected, and the
    /// time by the clock of trace records.
    sends: VecDeque<(u64, u64)>,
}

impl Table {
    fn note_send(&mut self, end: u64, ticks: u64) {
        if self.sends.len() == SENDS_REMEMBERED {
            self.sends.pop_front();
        }
        self.sends.push_back((end, ticks));
    }

    /// When the byte before `end` was given to the socket; 0: not known any more.
    fn sent_at(&self, end: u64) -> u64 {
        // Whoever gets its reply now was in one of the last sends.
        let later = self.sends.iter().rev().take_while(|(sent, _)| *sent >= end).count();
        let is_forgotten = later == SENDS_REMEMBERED;
        let at = self.sends.len() - later;
        self.sends.get(at).filter(|_| !is_forgotten).map_or(0, |(_, ticks)| *ticks)
    }
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

/// A request whose reply is awaited.
#[derive(Debug)]
struct Pending {
    outcome: Option<Result<Frame, Status>>,
    waker: Option<Waker>,
    /// The thread that waits, to make it the reader.
    parker: Arc<Parker>,
    /// The place in the shared region that the request has named.
    slot: Option<Slot>,
    /// The reply has come.
    answered: bool,
    /// When it was taken from the socket, if requests are traced.
    received_at: u64,
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds this lock")
}

impl Conn {
    pub(crate) fn new(dialed: Dialed, counters: Arc<Counters>) -> Conn {
        let mut frames = FrameReader::new(Limits::OPEN);
        if dialed.region.is_some() {
            frames.accept_region();
        }
        let (mut buffer, is_sealed) = (Collected::default(), dialed.seals.is_some());
        if let Some(SessionSeals { to_server, to_client }) = dialed.seals {
            frames.set_sealer(to_client);
            buffer.sealer = Some(to_server);
        }
        let reader = Reader { frames, complete: Vec::new(), wakers: Vec::new() };
        Conn {
            fd: dialed.fd,
            region: dialed.region.map(|memory| Arc::new(Region::new(memory))),
            alive: AtomicBool::new(true),
            pending: Mutex::default(),
            reader: Mutex::new(Some(Box::new(reader))),
            buffer: Mutex::new(buffer),
            is_sealed,
            sending: Mutex::default(),
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
            let collected = self.collect(&mut wait, |bytes, seal| {
                encode(bytes, request.header, &request.body, slices, seal);
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

    /// Puts a request behind those that nobody sends yet; gives their length.
    fn collect(&self, wait: &mut Wait, encode: impl FnOnce(&mut Vec<u8>, Option<Sealing>)) -> usize {
        let mut buffer = locked(&self.buffer);
        let before = buffer.bytes.len();
        let seal = buffer.sealer.as_mut().map(Sealer::begin);
        encode(&mut buffer.bytes, seal);
        buffer.end += (buffer.bytes.len() - before) as u64;
        if is_traced() {
            wait.leaving = Leaving::Collected(buffer.end);
        }
        self.unsent.store(true, Ordering::Release);
        buffer.bytes.len()
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
        self.collect(&mut wait, |buffer, _| encode_naming(buffer, request.header, &request.body, flag, page, bytes));
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

    // ---------------------------------------------------------------------------------------------
    // sending

    /// True if something has been collected that is not sent yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.load(Ordering::Acquire) && self.is_alive()
    }

    /// Sends what has been collected. If the socket is full until `until`, the rest stays unsent.
    pub(crate) fn flush(&self, thread: &ThreadContext, until: Nanos) {
        // Whoever sends at this moment looks for more after it has let go of `sending`, so we need
        // not wait for it. That look takes the lock of `buffer`: either it sees what we have put
        // there, or we see `sending` free.
        while {
            drop(locked(&self.buffer));
            self.has_unsent()
        } {
            let mut sending = match self.sending.try_lock() {
                Ok(sending) => sending,
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(_)) => unreachable!("no code panics while it holds this lock"),
            };
            if self.send_collected(thread, &mut sending, until).is_err() {
                return;
            }
        }
    }

    /// Sends bulk data behind everything that has been collected. If requests are traced, says when
    /// the last byte was given to the socket.
    fn send_bulk(&self, thread: &ThreadContext, request: &Outgoing<'_>, slices: &[&[u8]], deadline: Nanos) -> u64 {
        let mut sent_at = 0;
        let mut head = Vec::with_capacity(weft_wire::HEADER_BYTES + SEAL_BYTES + request.body.len());
        if !self.is_sealed {
            encode(&mut head, request.header, &request.body, slices, None);
        }
        let deadline = deadline.min(clock::now() + SEND_NS_MAX);
        {
            let mut sending = match self.sending.try_lock() {
                Ok(sending) => sending,
                Err(_) => {
                    thread.release(None);
                    locked(&self.sending)
                }
            };
            if let Ok(seal) = self.send_before_bulk(thread, &mut sending, deadline) {
                if seal.is_some() {
                    encode(&mut head, request.header, &request.body, slices, seal);
                }
                let pieces = std::iter::once(&head[..]).chain(slices.iter().copied()).filter(|piece| !piece.is_empty());
                sent_at = self.send_pieces(thread, pieces.collect(), deadline);
            } else if self.is_alive() {
                // The deadline came before our turn. Nothing of this request was sent; its wait
                // ends by itself.
                drop(sending);
                return 0;
            }
        }
        self.flush(thread, deadline);
        sent_at
    }

    /// Sends everything that has been collected. Gives the seal of the message that leaves next, if
    /// messages have seals.
    fn send_before_bulk(&self, thread: &ThreadContext, sending: &mut Sending, until: Nanos) -> Result<Option<Sealing>, Status> {
        loop {
            self.send_collected(thread, sending, until)?;
            if !self.is_sealed {
                return Ok(None);
            }
            let mut buffer = locked(&self.buffer);
            // What somebody has collected meanwhile has its seal already, so it leaves first.
            if buffer.bytes.is_empty() {
                return Ok(buffer.sealer.as_mut().map(Sealer::begin));
            }
        }
    }

    /// Sends one message whole, or ends the connection.
    fn send_pieces(&self, thread: &ThreadContext, mut pieces: Vec<&[u8]>, deadline: Nanos) -> u64 {
        let (mut first, mut sent_at) = (0, 0);
        while first < pieces.len() {
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let rest = &pieces[first..];
            let count = rest.len().min(PIECES_MAX);
            for (slice, piece) in slices.iter_mut().zip(rest) {
                *slice = IoSlice::new(piece);
            }
            let Ok((mut sent, ticks)) = self.send_some(thread, &slices[..count], deadline) else {
                self.kill(Status::Unreachable);
                return 0;
            };
            sent_at = ticks;
            while sent > 0 {
                let part = sent.min(pieces[first].len());
                pieces[first] = &pieces[first][part..];
                first += usize::from(pieces[first].is_empty());
                sent -= part;
            }
        }
        sent_at
    }

    /// Sends everything that has been collected until now. At the deadline the rest stays in
    /// `sending`.
    fn send_collected(&self, thread: &ThreadContext, sending: &mut Sending, until: Nanos) -> Result<(), Status> {
        loop {
            if sending.sent == sending.bytes.len() {
                sending.bytes.clear();
                sending.sent = 0;
                if sending.bytes.capacity() > 2 * BUFFER_BYTES_MAX {
                    sending.bytes = Vec::new();
                }
                let mut buffer = locked(&self.buffer);
                if buffer.bytes.is_empty() {
                    self.unsent.store(false, Ordering::Release);
                    return Ok(());
                }
                std::mem::swap(&mut sending.bytes, &mut buffer.bytes);
            }
            match self.send_some(thread, &[IoSlice::new(&sending.bytes[sending.sent..])], until) {
                Ok((sent, ticks)) => {
                    sending.sent += sent;
                    sending.end += sent as u64;
                    if ticks != 0 {
                        locked(&self.pending).note_send(sending.end, ticks);
                    }
                }
                Err(Status::TimedOut) => return Err(Status::TimedOut),
                Err(status) => {
                    self.kill(Status::Unreachable);
                    return Err(status);
                }
            }
        }
    }

    /// Sends at least one byte; gives how many, and if requests are traced, when they were given to
    /// the socket. While the socket is full, replies are read: the server may wait for room as
    /// well.
    fn send_some(&self, thread: &ThreadContext, pieces: &[IoSlice<'_>], until: Nanos) -> Result<(usize, u64), Status> {
        loop {
            let ticks = trace_ticks();
            Counters::add(&self.counters.send_calls, 1);
            match sys::send(self.fd.as_fd(), pieces) {
                Ok(sent) => {
                    Counters::add(&self.counters.sent_bytes, sent as u64);
                    return Ok((sent, ticks));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.is_alive() {
                        return Err(Status::Unreachable);
                    }
                    if clock::now() >= until {
                        return Err(Status::TimedOut);
                    }
                    self.wait_for_room(thread, until);
                }
                Err(_) => return Err(Status::Unreachable),
            }
        }
    }

    fn wait_for_room(&self, thread: &ThreadContext, until: Nanos) {
        thread.release(Some(self));
        self.count_poll();
        match self.take_reader() {
            Some(mut reader) => {
                let mut watched = [Watched::new(self.fd.as_fd(), true)];
                let outcome = sys::poll(&mut watched, until);
                if watched[0].readable() || outcome.is_err() {
                    self.read(&mut reader, false);
                }
                self.give_back(reader);
            }
            // Somebody else reads. It may stop to, when its own reply is there: so we look again
            // soon.
            None => {
                let soon = until.min(clock::now() + weft_base::MILLISECOND);
                if sys::poll(&mut [Watched::writable_only(self.fd.as_fd())], soon).is_err() {
                    self.kill(Status::Unreachable);
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_left_with_the_send_that_took_its_last_byte() {
        let mut table = Table::default();
        assert_eq!(table.sent_at(10), 0, "nothing was sent");
        table.note_send(100, 7);
        table.note_send(250, 9);
        assert_eq!([1, 100, 101, 250, 251].map(|end| table.sent_at(end)), [7, 7, 9, 9, 0]);
    }

    #[test]
    fn what_is_forgotten_is_not_guessed() {
        let mut table = Table::default();
        (1..=SENDS_REMEMBERED as u64 + 1).for_each(|send| table.note_send(send * 10, send));
        assert_eq!(table.sends.len(), SENDS_REMEMBERED);
        assert_eq!((table.sent_at(10), table.sent_at(20), table.sent_at(21)), (0, 0, 3));
    }
}
