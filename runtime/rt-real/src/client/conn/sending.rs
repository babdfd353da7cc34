//! What a connection of a client sends, and in which order.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use weft_base::{Nanos, SECOND, Status};
use weft_rt::Outgoing;
use weft_wire::{Cipher, HEADER_BYTES};

use super::{Conn, Leaving, Wait, is_traced, trace_ticks};
use crate::client::Counters;
use crate::client::context::ThreadContext;
use crate::outbound::{ENCRYPTED_BYTES, encode};
use crate::sys::{self, Watched};
use crate::{clock, locked};

/// Requests are sent before the thread waits if so many bytes have been collected.
pub(super) const BUFFER_BYTES_MAX: usize = 256 << 10;
/// A request that could not be sent within this time, in nanoseconds, ends the connection even
/// without a deadline.
pub(super) const SEND_NS_MAX: u64 = 60 * SECOND;
/// Pieces given to the kernel in one call.
const PIECES_MAX: usize = 16;
/// Small requests that nobody sends yet.
#[derive(Debug, Default)]
pub(super) struct Collected {
    bytes: Vec<u8>,
    /// Bytes ever collected: where the last request ends among all of them.
    end: u64,
}

/// What is being sent: some of it may be in the socket already.
#[derive(Debug, Default)]
pub(super) struct Sending {
    bytes: Vec<u8>,
    sent: usize,
    /// Of all bytes ever collected, those that are in the socket when these are.
    end: u64,
    /// Encrypts, if that was agreed on; and what it has taken from those collected.
    pub(super) cipher: Option<Cipher>,
    collected: Vec<u8>,
}

impl Conn {
    /// Puts a request behind those that nobody sends yet; gives their length.
    pub(super) fn collect(&self, wait: &mut Wait, encode: impl FnOnce(&mut Vec<u8>)) -> usize {
        let mut buffer = locked(&self.buffer);
        let before = buffer.bytes.len();
        encode(&mut buffer.bytes);
        buffer.end += (buffer.bytes.len() - before) as u64;
        if is_traced() {
            wait.leaving = Leaving::Collected(buffer.end);
        }
        self.unsent.store(true, Ordering::Release);
        buffer.bytes.len()
    }

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
    pub(super) fn send_bulk(&self, thread: &ThreadContext, request: &Outgoing<'_>, slices: &[&[u8]], deadline: Nanos) -> u64 {
        let mut sent_at = 0;
        let mut head = Vec::with_capacity(HEADER_BYTES + request.body.len());
        encode(&mut head, request.header, &request.body, slices, !self.is_encrypted);
        let deadline = deadline.min(clock::now() + SEND_NS_MAX);
        {
            let mut sending = match self.sending.try_lock() {
                Ok(sending) => sending,
                Err(_) => {
                    thread.release(None);
                    locked(&self.sending)
                }
            };
            if self.send_collected(thread, &mut sending, deadline).is_ok() {
                sent_at = match self.is_encrypted {
                    true => self.send_encrypted(thread, &mut sending, &head, slices, deadline),
                    false => self.send_pieces(thread, &mut pieces_of(std::iter::once(&head[..]).chain(slices.iter().copied())), deadline),
                };
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

    /// Sends one message in envelopes, or ends the connection. Its bulk data has envelopes of its
    /// own, so that it is received where it belongs.
    fn send_encrypted(&self, thread: &ThreadContext, sending: &mut Sending, head: &[u8], slices: &[&[u8]], deadline: Nanos) -> u64 {
        let Sending { bytes, cipher: Some(cipher), .. } = sending else { unreachable!("an encrypted connection has a cipher") };
        let mut sent_at = 0;
        let (mut heads, mut pieces) = ([IoSlice::new(head)], pieces_of(slices.iter().copied()));
        let (mut heads, mut pieces) = (&mut heads[..], &mut pieces[..]);
        while self.is_alive() && !(heads.is_empty() && pieces.is_empty()) {
            let rest = if heads.is_empty() { &mut pieces } else { &mut heads };
            cipher.encrypt(rest, bytes);
            if bytes.len() >= ENCRYPTED_BYTES || pieces.is_empty() && heads.is_empty() {
                sent_at = self.send_pieces(thread, &mut [IoSlice::new(bytes)], deadline);
                bytes.clear();
            }
        }
        bytes.clear();
        sent_at
    }

    /// Sends these pieces whole, or ends the connection.
    fn send_pieces(&self, thread: &ThreadContext, mut pieces: &mut [IoSlice<'_>], deadline: Nanos) -> u64 {
        let mut sent_at = 0;
        while !pieces.is_empty() {
            let count = pieces.len().min(PIECES_MAX);
            let Ok((sent, ticks)) = self.send_some(thread, &pieces[..count], deadline) else {
                self.kill(Status::Unreachable);
                return 0;
            };
            sent_at = ticks;
            IoSlice::advance_slices(&mut pieces, sent);
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
                self.take_collected(sending);
                if sending.bytes.is_empty() {
                    return Ok(());
                }
            }
            match self.send_some(thread, &[IoSlice::new(&sending.bytes[sending.sent..])], until) {
                Ok((sent, ticks)) => {
                    sending.sent += sent;
                    if ticks != 0 && sending.sent == sending.bytes.len() {
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

    /// Takes what has been collected until now, encrypted if that was agreed on.
    fn take_collected(&self, sending: &mut Sending) {
        let Sending { bytes, end, cipher, collected, .. } = sending;
        {
            let mut buffer = locked(&self.buffer);
            if buffer.bytes.is_empty() {
                return self.unsent.store(false, Ordering::Release);
            }
            *end = buffer.end;
            std::mem::swap(if cipher.is_some() { &mut *collected } else { &mut *bytes }, &mut buffer.bytes);
        }
        if let Some(cipher) = cipher {
            let mut rest = &mut [IoSlice::new(collected)][..];
            while !rest.is_empty() {
                cipher.encrypt(&mut rest, bytes);
            }
            collected.clear();
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

/// Those that are not empty.
fn pieces_of<'a>(slices: impl Iterator<Item = &'a [u8]>) -> Vec<IoSlice<'a>> {
    slices.filter(|slice| !slice.is_empty()).map(IoSlice::new).collect()
}
