//! The connections of one server: listeners, clients, and other servers that it asks.
//!
//! ```text
//! inbound:   Stranger ──handshake──▶ Client ──error, end, silence while we send──▶ gone (Disconnected)
//! outbound:  a helper thread dials and shakes hands ──▶ Server ──error, end──▶ gone (its requests: Unreachable)
//! ```
//! Bounds: strangers ([`strangers`], [`admission`]); what a peer may make this server keep
//! ([`pressure`]); nothing is read from a connection that does not take its replies
//! ([`OUT_BYTES_PAUSE`]) or while the server has not taken what arrived ([`ARRIVED_BYTES_MAX`]); a
//! connection that takes nothing for [`STALL_NS_MAX`] is dropped.

mod admission;
mod pressure;
mod strangers;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;

use bytes::BytesMut;
use weft_base::{ClientId, Nanos, Payload, SECOND, ServerId, Status};
use weft_rt::{Arrival, FaultPoint, PeerId, Usage};
use weft_trace::OpenStagedSpan;
use weft_trace::event::served;
use weft_wire::handshake::{self, Accepted, RegionAnswer, RegionOffer, ServerHandshake};
use weft_wire::{Features, Flags, Frame, Header, KeyId, KeyRights, MessageKind, SessionCiphers, Wire};

use pressure::{Pressure, Sums};
use strangers::Strangers;

use super::log::LimitedLog;
use super::peers::Peer;
use crate::Keys;
use crate::address::Address;
use crate::handshake::{Dialed, Greeting, Step};
use crate::inbound::{Broken, FrameReader, Limits};
use crate::outbound::{Flushed, OutQueue};
use crate::region::{self, Memory};
use crate::sys::{self, Epoll, Happened};
use crate::{clock, fault};

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
    Stranger { greeting: Box<Greeting>, since: Nanos, until: Nanos },
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
    strangers: Strangers,
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
            strangers: Strangers::default(),
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

    /// If the keys have changed, ends the connections whose key is not what it was. Strangers in
    /// the middle of their handshake go too.
    pub(crate) fn look_at_keys(&mut self) {
        let version = self.keys.version();
        if version == self.keys_version {
            return;
        }
        self.keys_version = version;
        let ring = self.keys.ring();
        self.greeting = self.greeting.clone().with_keys(ring.clone());
        for index in 0..self.conns.len() {
            let (generation, Some(conn)) = &self.conns[index] else { continue };
            let token = token(index, *generation);
            match conn.role {
                Role::Client { proved: (key, generation, access), .. } if !ring.still_accepts(key, generation, access) => {
                    self.close(token, &format!("{key} was revoked, replaced or got other rights"));
                }
                Role::Stranger { .. } => self.close(token, "the keys have changed"),
                Role::Client { .. } | Role::Server(_) => {}
            }
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

    /// Takes a connection to another server, greeted already, and queues what waits for it.
    pub(crate) fn adopt(&mut self, server: ServerId, dialed: Dialed, queued: Vec<Frame>) -> std::io::Result<u64> {
        sys::set_nonblocking(dialed.fd.as_fd())?;
        let token = self.insert(dialed.fd, Role::Server(server), Limits::OPEN)?;
        if let Some(conn) = self.conn_mut(token) {
            if let Some(SessionCiphers { to_server, to_client }) = dialed.ciphers {
                conn.reader.set_cipher(to_client);
                conn.out.set_cipher(to_server);
            }
            queued.into_iter().for_each(|frame| conn.out.push(frame, None));
        }
        self.mark_dirty(token);
        Ok(token)
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

    fn read(&mut self, token: u64, hangup: bool, now: Nanos) {
        // A connection that has ended is read to its end all the same: it cannot grow, and would be
        // reported again and again.
        let full = self.arrivals.len() >= ARRIVED_MAX || self.arrived_bytes >= ARRIVED_BYTES_MAX;
        if !hangup && (full || !self.may_begin(token, now)) {
            self.flooded = true;
            return self.pause(token, true);
        }
        let mut frames = std::mem::take(&mut self.frames);
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut is_stranger = false;
        let outcome = match self.conn_mut(token) {
            Some(conn) => {
                let known = !matches!(conn.role, Role::Stranger { .. });
                is_stranger = !known;
                if known {
                    conn.reader.exchange(&mut scratch);
                }
                let outcome = conn.reader.receive(conn.fd.as_fd(), TURN_BYTES, &mut frames);
                if known {
                    conn.reader.exchange(&mut scratch);
                }
                outcome
            }
            None => Ok(Default::default()),
        };
        self.scratch = scratch;
        let (bytes, complete) = (outcome.as_ref().map_or(0, |received| received.bytes), frames.len());
        if bytes > 0 {
            self.heard_stranger(token);
        }
        for frame in frames.drain(..) {
            if let Err(status) = self.dispatch(token, frame) {
                self.close(token, &status.to_string());
                break;
            }
            // Behind the proof of a stranger nothing may come before its welcome: it would not be
            // encrypted.
            if is_stranger && complete > 1 && self.conn(token).is_some_and(|conn| conn.reader.is_encrypted()) {
                self.close(token, Status::SealBroken.text());
                break;
            }
        }
        frames.clear();
        self.frames = frames;
        match outcome {
            Ok(received) => {
                self.usage.received_bytes += received.bytes as u64;
                self.count_half(token, received.bytes, complete, now);
            }
            Err(Broken::Closed { within_frame: false }) => self.close(token, ""),
            Err(broken) => self.close(token, &broken.to_string()),
        }
    }

    fn dispatch(&mut self, token: u64, mut frame: Frame) -> Result<(), Status> {
        let Some(conn) = self.conn_mut(token) else { return Ok(()) };
        match &mut conn.role {
            Role::Client { may_offer: true, .. } if frame.header.kind == MessageKind::Handshake => {
                let bytes = RegionOffer::from_bytes(frame.body)?.bytes;
                self.share(token, bytes);
                Ok(())
            }
            Role::Client { client, incarnation, region, may_offer, .. } => {
                if std::mem::take(may_offer) {
                    conn.reader.take_descriptor();
                }
                let identity = (frame.header.request.client, frame.header.request.incarnation);
                if frame.header.kind != MessageKind::Request || identity != (*client, *incarnation) {
                    return Err(Status::BadMessage);
                }
                if let Some((offset, len)) = frame.header.region_place() {
                    let Some(memory) = region.as_ref().filter(|memory| memory.holds(offset, len)) else {
                        // Whoever counts wrong here cannot be trusted with memory; it is told so
                        // before the end.
                        conn.out.push(Frame::reply(&frame.header, Err(Status::BadMessage), Payload::EMPTY), None);
                        self.flush_one(token);
                        return Err(Status::BadMessage);
                    };
                    if frame.header.flags.contains(Flags::SHARED) {
                        frame.bulk = Payload::Real(region::shared_bytes(memory, offset, len));
                    }
                }
                self.usage.received_messages += 1;
                self.hand_over(token, frame);
                Ok(())
            }
            Role::Server(server) => {
                let server = *server;
                if frame.header.kind != MessageKind::Reply {
                    return Err(Status::BadMessage);
                }
                self.usage.received_messages += 1;
                if let Some(peer) = self.peers.get_mut(&server) {
                    peer.answered(frame);
                }
                Ok(())
            }
            Role::Stranger { greeting, .. } => {
                let step = greeting.step(frame)?;
                self.greet(token, step);
                Ok(())
            }
        }
    }

    /// Answers the offer of a region.
    fn share(&mut self, token: u64, bytes: u64) {
        let wanted =
            self.share_memory && self.conns.iter().filter(|(_, conn)| conn.as_ref().is_some_and(Conn::has_region)).count() < REGIONS_MAX;
        let Some(conn) = self.conn_mut(token) else { return };
        let descriptor = conn.reader.take_descriptor();
        let Role::Client { region, may_offer, .. } = &mut conn.role else { return };
        *may_offer = false;
        let adopted = match descriptor {
            Some(descriptor) if wanted => Memory::adopt(&descriptor, bytes).map_err(|error| error.to_string()),
            Some(_) => Err(String::new()),
            None => Err("no memory came with the offer of a shared region".to_string()),
        };
        let status = match adopted {
            Ok(memory) => {
                *region = Some(Arc::new(memory));
                conn.reader.accept_region();
                0
            }
            Err(reason) => {
                if !reason.is_empty() {
                    self.log.line(&reason);
                }
                Status::NotSupported.code()
            }
        };
        let Some(conn) = self.conn_mut(token) else { return };
        conn.out.push_bytes(&handshake::frame(&RegionAnswer { status }));
        self.mark_dirty(token);
    }

    fn greet(&mut self, token: u64, step: Step) {
        let Some(conn) = self.conn_mut(token) else { return };
        match step {
            Step::Answer(bytes) => {
                conn.out.push_bytes(&bytes);
                self.mark_dirty(token);
            }
            Step::Accept(bytes, Accepted { client, incarnation, features, key, generation, access }, ciphers) => {
                conn.out.push_bytes(&bytes);
                if let Some(ciphers) = ciphers {
                    let SessionCiphers { to_server, to_client } = *ciphers;
                    if conn.reader.within_frame() {
                        return self.close(token, Status::BadMessage.text());
                    }
                    conn.reader.set_cipher(to_server);
                    conn.out.set_cipher(to_client);
                }
                // A descriptor can only come by a Unix socket; on another one the offer is answered
                // with a refusal.
                let may_offer = features.contains(Features::SHARED_MEMORY);
                conn.role = Role::Client { client, incarnation, region: None, may_offer, proved: (key, generation, access) };
                conn.reader.set_limits(Limits::OPEN);
                if may_offer {
                    conn.reader.await_descriptor();
                }
                self.strangers.remove(token);
                self.mark_dirty(token);
                self.arrive(Arrival::Connected { peer: PeerId(token), client, incarnation, access });
            }
            Step::Refuse(bytes, reason) => {
                conn.out.push_bytes(&bytes);
                self.flush_one(token);
                self.close(token, &format!("refused: {reason}"));
            }
        }
    }

    /// When to call [`Net::release`].
    pub(crate) fn held_until(&self) -> Nanos {
        self.held.front().map_or(Nanos::NEVER, |(until, _)| *until)
    }

    /// What was held up long enough arrives.
    pub(crate) fn release(&mut self, now: Nanos) {
        while self.held_until() <= now {
            let Some((_, arrival)) = self.held.pop_front() else { return };
            self.take_in(arrival);
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let ns = fault::delay_ns(FaultPoint::NetRequest);
        if ns > 0 || !self.held.is_empty() {
            self.held.push_back((clock::now() + ns, arrival));
        } else {
            self.take_in(arrival);
        }
    }

    fn take_in(&mut self, arrival: Arrival) {
        self.arrivals.push(arrival);
        if let Some(waker) = self.receiver.take() {
            waker.wake();
        }
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
            Role::Stranger { .. } => {
                self.strangers.remove(token);
                // A descriptor is free again.
                self.pause_accepting(false);
                "a stranger".to_string()
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
