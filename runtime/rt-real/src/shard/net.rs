//! The connections of one server: listeners, clients, and other servers that it asks.
//!
//! ```text
//! inbound:   Unauthenticated ──handshake──▶ Client ──error, end, silence while we send──▶ gone (Disconnected)
//! outbound:  a helper thread dials and shakes hands ──▶ Server ──error, end──▶ gone (its requests: Unreachable)
//! ```
//! Bounds: unauthenticated connections ([`unauthenticated`], [`admission`]); what a peer may make
//! this server keep ([`pressure`]); nothing is read from a connection that does not take its
//! replies ([`OUT_BYTES_PAUSE`]) or while the server has not taken what arrived
//! ([`ARRIVED_BYTES_MAX`]); a connection that takes nothing for [`STALL_NS_MAX`] is dropped.

mod admission;
mod pressure;
mod reading;
mod unauthenticated;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;

use bytes::BytesMut;
use weft_base::{ClientId, Nanos, SECOND, ServerId, Status};
use weft_rt::{Arrival, PeerId, Usage};
use weft_trace::OpenStagedSpan;
use weft_trace::event::served;
use weft_wire::handshake::ServerHandshake;
use weft_wire::{Flags, Frame, Header, KeyId, KeyRights};

use pressure::{Pressure, Sums};
use unauthenticated::Unauthenticated;

use super::log::LimitedLog;
use super::peers::Peer;
use crate::Keys;
use crate::address::Address;
use crate::clock;
use crate::handshake::Greeting;
use crate::inbound::{FrameReader, Limits};
use crate::outbound::{Flushed, OutQueue};
use crate::region::Memory;
use crate::sys::{self, Epoll, Happened};

/// Bytes read from one connection in one turn.
const TURN_BYTES: usize = 1 << 20;
/// A connection with so many unsent bytes is not read from until they are fewer than a quarter.
const OUT_BYTES_PAUSE: usize = 16 << 20;
/// A connection with so many unsent bytes is dropped.
const OUT_BYTES_MAX: usize = 256 << 20;
/// Replies of one turn are sent early beyond this, so that bulk data is not piled up.
const OUT_BYTES_EARLY: usize = 512 << 10;
/// Nothing is read while so much has arrived that the server has not taken.
const ARRIVED_BYTES_MAX: usize = 256 << 20;
const ARRIVED_MAX: usize = 65_536;
/// A connection that takes nothing of what waits for it so long, in nanoseconds, is dropped.
const STALL_NS_MAX: u64 = 30 * SECOND;

/// Connections that may share memory with this server; others use their sockets.
const REGIONS_MAX: usize = 1024;

/// Token of the executor's event.
pub(crate) const TOKEN_WAKE: u64 = u64::MAX;
/// Token of the stop event.
pub(crate) const TOKEN_STOP: u64 = u64::MAX - 1;
/// Tokens of listeners count down from here.
const TOKEN_LISTENERS: u64 = u64::MAX - 2;
/// Most listeners of a server.
const LISTENERS_MAX: u64 = 1 << 16;

/// Who is at the other end.
#[derive(Debug)]
enum Role {
    /// Nobody knows yet.
    Unauthenticated { greeting: Box<Greeting>, since: Nanos, until: Nanos },
    /// A client, or a server that asks us.
    Client {
        client: ClientId,
        incarnation: u32,
        /// Memory that it shares with us.
        region: Option<Arc<Memory>>,
        /// Its next frame may offer some.
        may_offer: bool,
        /// What it has proved.
        proved: Proved,
    },
    /// A server that we ask.
    Server(ServerId),
}

/// The key of a client: its number and generation, and what it allows.
type Proved = (KeyId, u32, KeyRights);

#[derive(Debug)]
struct Conn {
    fd: OwnedFd,
    reader: FrameReader,
    out: OutQueue,
    /// Bytes ever given to the socket.
    sent_bytes: u64,
    /// Trace records of the replies in `out`, with what `sent_bytes` will be when they are with the
    /// socket.
    leaving: VecDeque<(u64, OpenStagedSpan)>,
    role: Role,
    /// It is in the list of connections with something new to send.
    dirty: bool,
    /// Reading is suspended.
    paused: bool,
    /// What the epoll set watches.
    watched: (bool, bool),
    /// Since when the socket takes nothing.
    blocked_since: Option<Nanos>,
    pressure: Pressure,
}

impl Conn {
    /// Sends until the socket takes no more, and completes the trace records of the replies that it
    /// has taken.
    fn flush(&mut self) -> std::io::Result<Flushed> {
        let given_at = if self.leaving.is_empty() { 0 } else { weft_trace::now() };
        let flushed = self.out.flush(self.fd.as_fd())?;
        self.sent_bytes += flushed.bytes as u64;
        while self.leaving.front().is_some_and(|(end, _)| *end <= self.sent_bytes) {
            if let Some((_, traced)) = self.leaving.pop_front() {
                traced.end_with(served::SEND, given_at);
            }
        }
        Ok(flushed)
    }

    /// Nothing more is read until it has taken what waits for it.
    fn must_pause(&self) -> bool {
        !self.pressure.waiting.is_empty() || self.out.len() > if self.paused { OUT_BYTES_PAUSE / 4 } else { OUT_BYTES_PAUSE }
    }

    fn has_region(&self) -> bool {
        matches!(self.role, Role::Client { region: Some(_), .. })
    }
}

#[derive(Debug)]
struct Listener {
    fd: OwnedFd,
    address: Address,
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) epoll: Epoll,
    greeting: ServerHandshake,
    keys: Keys,
    /// The version of the keys that the connections were compared with.
    keys_version: u64,
    listeners: Vec<Listener>,
    /// Accept memory that clients offer to share.
    pub(crate) share_memory: bool,
    /// What comes over TCP is encrypted.
    pub(crate) encrypt_tcp: bool,
    /// Listeners are out of the epoll set while there are no descriptors.
    accepting: bool,
    conns: Vec<(u32, Option<Conn>)>,
    free: Vec<usize>,
    unauthenticated: Unauthenticated,
    sums: Sums,
    /// When somebody may be late.
    sweep_at: Nanos,
    pub(crate) peers: BTreeMap<ServerId, Peer>,
    arrivals: Vec<Arrival>,
    /// What a laboratory holds up on its way, and until when.
    held: VecDeque<(Nanos, Arrival)>,
    arrived_bytes: usize,
    /// Reading was suspended because the server has not taken what arrived.
    flooded: bool,
    receiver: Option<Waker>,
    dirty: Vec<u64>,
    scratch: BytesMut,
    frames: Vec<Frame>,
    pub(crate) usage: Usage,
    pub(crate) log: LimitedLog,
}

/// Slot and generation of a connection in one number, which is its token and its [`PeerId`].
fn token(index: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | index as u64
}

impl Net {
    pub(crate) fn new(greeting: ServerHandshake, keys: Keys, listeners: Vec<(OwnedFd, Address)>, log: LimitedLog) -> std::io::Result<Net> {
        assert!((listeners.len() as u64) < LISTENERS_MAX, "more listeners than tokens for them");
        let epoll = Epoll::new()?;
        let listeners: Vec<_> = listeners.into_iter().map(|(fd, address)| Listener { fd, address }).collect();
        for (i, listener) in listeners.iter().enumerate() {
            epoll.add(listener.fd.as_fd(), TOKEN_LISTENERS - i as u64)?;
        }
        Ok(Net {
            epoll,
            greeting,
            keys_version: keys.version(),
            keys,
            listeners,
            share_memory: true,
            encrypt_tcp: false,
            accepting: true,
            conns: Vec::new(),
            free: Vec::new(),
            unauthenticated: Unauthenticated::default(),
            sums: Sums::default(),
            sweep_at: Nanos::NEVER,
            peers: BTreeMap::new(),
            arrivals: Vec::new(),
            held: VecDeque::new(),
            arrived_bytes: 0,
            flooded: false,
            receiver: None,
            dirty: Vec::new(),
            scratch: BytesMut::new(),
            frames: Vec::new(),
            usage: Usage::default(),
            log,
        })
    }

    // ---------------------------------------------------------------------------------------------
    // what the server calls

    /// Moves everything that has arrived into `into`; if nothing has, `waker` is woken when
    /// something does.
    pub(crate) fn take_arrivals(&mut self, into: &mut Vec<Arrival>, waker: &Waker) -> bool {
        self.next_turn();
        if self.arrivals.is_empty() {
            self.receiver = Some(waker.clone());
            return false;
        }
        into.append(&mut self.arrivals);
        self.arrived_bytes = 0;
        if std::mem::take(&mut self.flooded) {
            self.resume_reading();
        }
        true
    }

    /// Queues a frame for a connection; if it is gone, nothing happens.
    pub(crate) fn send(&mut self, to: u64, frame: Frame) {
        let traced = weft_trace::take_leaving();
        let Some(conn) = self.conn_mut(to) else { return };
        let region = match &conn.role {
            Role::Client { region, .. } => region.as_deref(),
            _ => None,
        };
        let before = conn.out.len();
        conn.out.push(frame, region);
        if let Some(traced) = traced {
            conn.leaving.push_back((conn.sent_bytes + conn.out.len() as u64, traced));
        }
        let (len, blocked) = (conn.out.len(), conn.blocked_since.is_some());
        self.usage.sent_messages += 1;
        self.count_unsent(to, len - before);
        self.mark_dirty(to);
        if len > OUT_BYTES_MAX {
            self.close(to, "it does not take its replies");
        } else if len > OUT_BYTES_EARLY && !blocked {
            self.flush_one(to);
        }
    }

    /// Where `len` bytes of bulk data of the reply to a request may be put so that the client has
    /// them without a copy.
    pub(crate) fn room(&self, peer: PeerId, request: &Header, len: u64) -> Option<(Arc<Memory>, usize)> {
        let Some(Role::Client { region: Some(memory), .. }) = self.conn(peer.0).map(|conn| &conn.role) else { return None };
        let (offset, bytes) = request.region_place().filter(|_| request.flags.contains(Flags::ROOM))?;
        // The place was checked when the request arrived; the connection may be another by now only
        // if its token is too.
        (len <= bytes as u64 && memory.holds(offset, bytes)).then(|| (memory.clone(), offset))
    }

    /// Where the other end of a connection is.
    pub(crate) fn peer_name(&self, peer: PeerId) -> Option<String> {
        let fd = self.conn(peer.0)?.fd.as_fd();
        match sys::peer_process(fd) {
            Some(pid) => Some(format!("pid {pid}")),
            None => sys::peer_address(fd).map(|address| address.to_string()),
        }
    }

    /// Sends what was queued since the last call.
    pub(crate) fn flush(&mut self) {
        while let Some(token) = self.dirty.pop() {
            if let Some(conn) = self.conn_mut(token) {
                conn.dirty = false;
                if conn.blocked_since.is_none() {
                    self.flush_one(token);
                }
            }
        }
    }

    /// True if something that was queued is not sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.conns.iter().any(|(_, conn)| conn.as_ref().is_some_and(|conn| conn.out.len() > 0))
    }

    // ---------------------------------------------------------------------------------------------
    // what the event loop calls

    /// Handles what the epoll set reported, except for its events.
    pub(crate) fn handle(&mut self, happened: Happened, now: Nanos) {
        if happened.token > TOKEN_LISTENERS - LISTENERS_MAX {
            return self.accept((TOKEN_LISTENERS - happened.token) as usize, now);
        }
        if happened.writable && self.conn_mut(happened.token).is_some_and(|conn| conn.blocked_since.is_some()) {
            self.flush_one(happened.token);
        }
        if happened.readable {
            self.read(happened.token, happened.hangup, now);
        }
    }

    /// The server ends: nothing is read any more.
    pub(crate) fn ignore(&mut self, happened: Happened) {
        if happened.hangup {
            self.close(happened.token, "");
        } else {
            self.pause(happened.token, true);
        }
    }

    /// When to call [`Net::sweep`].
    pub(crate) fn sweep_at(&self) -> Nanos {
        self.sweep_at
    }

    /// Drops who is late.
    pub(crate) fn sweep(&mut self, now: Nanos) {
        self.sweep_at = Nanos::NEVER;
        for index in 0..self.conns.len() {
            let (generation, Some(conn)) = &self.conns[index] else { continue };
            let token = token(index, *generation);
            let (until, reason) = self.patience(conn);
            if until <= now {
                self.close(token, reason);
            } else {
                self.sweep_at = self.sweep_at.min(until);
            }
        }
        if std::mem::take(&mut self.flooded) {
            self.resume_reading();
        }
        self.pause_accepting(false);
    }

    /// Closes all listeners; sockets in the file system are removed.
    pub(crate) fn stop_listening(&mut self) {
        for listener in self.listeners.drain(..) {
            if let Address::Unix(path) = &listener.address {
                // It may have been replaced or removed by somebody else; then nothing is left to
                // do.
                let _ = std::fs::remove_file(path);
            }
        }
    }

    // ---------------------------------------------------------------------------------------------
    // the details

    fn conn(&self, token: u64) -> Option<&Conn> {
        match self.conns.get((token & u64::from(u32::MAX)) as usize) {
            Some((generation, conn)) if u64::from(*generation) == token >> 32 => conn.as_ref(),
            _ => None,
        }
    }

    fn conn_mut(&mut self, token: u64) -> Option<&mut Conn> {
        match self.conns.get_mut((token & u64::from(u32::MAX)) as usize) {
            Some((generation, conn)) if u64::from(*generation) == token >> 32 => conn.as_mut(),
            _ => None,
        }
    }

    fn mark_dirty(&mut self, token: u64) {
        if let Some(conn) = self.conn_mut(token)
            && !std::mem::replace(&mut conn.dirty, true)
        {
            self.dirty.push(token);
        }
    }

    fn insert(&mut self, fd: OwnedFd, role: Role, limits: Limits) -> std::io::Result<u64> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.conns.push((0, None));
            self.conns.len() - 1
        });
        let (generation, place) = &mut self.conns[index];
        let token = token(index, *generation);
        if let Err(error) = self.epoll.add(fd.as_fd(), token) {
            self.free.push(index);
            return Err(error);
        }
        let reader = FrameReader::new(limits);
        let out = OutQueue::default();
        *place = Some(Conn {
            fd,
            reader,
            out,
            sent_bytes: 0,
            leaving: VecDeque::new(),
            role,
            dirty: false,
            paused: false,
            watched: (true, false),
            blocked_since: None,
            pressure: Pressure::new(),
        });
        Ok(token)
    }

    fn flush_one(&mut self, token: u64) {
        let mut sweep_at = Nanos::NEVER;
        let Some(conn) = self.conn_mut(token) else { return };
        match conn.flush() {
            Ok(flushed) => {
                if conn.out.len() == 0 {
                    conn.blocked_since = None;
                } else if flushed.bytes > 0 || conn.blocked_since.is_none() {
                    let now = clock::now();
                    conn.blocked_since = Some(now);
                    sweep_at = now + STALL_NS_MAX;
                }
                let pause = conn.must_pause();
                self.sweep_at = self.sweep_at.min(sweep_at);
                self.usage.sent_bytes += flushed.bytes as u64;
                self.count_unsent(token, 0);
                self.pause(token, pause);
            }
            Err(error) => self.close(token, &error.to_string()),
        }
    }

    /// Suspends or resumes reading, and brings the epoll set up to date.
    fn pause(&mut self, token: u64, pause: bool) {
        let Some(conn) = self.conn_mut(token) else { return };
        if conn.paused && !pause {
            conn.pressure.read_again();
        }
        conn.paused = pause;
        let watch = (!pause, conn.blocked_since.is_some());
        if watch == std::mem::replace(&mut conn.watched, watch) {
            return;
        }
        let changed = match &self.conns[(token & u64::from(u32::MAX)) as usize] {
            (_, Some(conn)) => self.epoll.change(conn.fd.as_fd(), token, watch.0, watch.1),
            _ => Ok(()),
        };
        if let Err(error) = changed {
            self.close(token, &error.to_string());
        }
    }

    /// Ends a connection; an empty reason is not worth a line.
    fn close(&mut self, token: u64, reason: &str) {
        let index = (token & u64::from(u32::MAX)) as usize;
        if self.conn_mut(token).is_none() {
            return;
        }
        let (generation, place) = &mut self.conns[index];
        *generation = (*generation + 1) & 0x3fff_ffff;
        let Some(conn) = place.take() else { return };
        self.free.push(index);
        self.uncount(&conn);
        let who = match conn.role {
            Role::Unauthenticated { .. } => {
                self.unauthenticated.remove(token);
                // A descriptor is free again.
                self.pause_accepting(false);
                "an unauthenticated peer".to_string()
            }
            Role::Client { client, incarnation, .. } => {
                self.arrive(Arrival::Disconnected { peer: PeerId(token), client, incarnation });
                format!("client {client:?}")
            }
            Role::Server(server) => {
                if let Some(peer) = self.peers.get_mut(&server) {
                    peer.lost(token, Status::Unreachable);
                }
                server.to_string()
            }
        };
        if !reason.is_empty() {
            self.log.line(&format!("connection with {who} closed: {reason}"));
        }
    }
}
