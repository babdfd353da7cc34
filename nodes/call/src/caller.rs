//! One request, executed exactly once: numbering, retries with backoff, deadline, and what the
//! server needs to know to forget.
//!
//! Per request the caller takes the lock of its server three times for some ten nanoseconds each
//! (number, count, finish); threads that talk to different servers do not meet.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use bytes::Bytes;
use weft_base::{ClientId, MILLISECOND, Nanos, Payload, RequestId, Result, SECOND, ServerId, Status};
use weft_rt::{Bulk, FaultPoint, Outgoing, Runtime, Work};
use weft_wire::{Flags, Frame, HEADER_BYTES, Header, LeaseScope, Op, Operation};

use crate::sequence::Sequences;
use crate::told::ToldHandles;

/// The first attempt waits at most so long, in nanoseconds; after that the request is sent again
/// under the same number.
const ATTEMPT_FIRST: u64 = 2 * SECOND;
/// Every further attempt waits twice as long as the one before, up to this, in nanoseconds: a
/// server that is slow because it has too much to do must not get more and more of it.
const ATTEMPT_MAX: u64 = 64 * SECOND;
/// The first pause before a retry, in nanoseconds; it doubles up to [`PAUSE_MAX`], with jitter.
const PAUSE_FIRST: u64 = 2 * MILLISECOND;
/// The first pause if the object was locked by a transaction, in nanoseconds: locks live about as
/// long as a message travels.
const PAUSE_FIRST_BUSY: u64 = MILLISECOND / 4;
/// A request without a deadline is given up when it has been refused for so long, in nanoseconds,
/// for what others do: then it is known that it was not carried out.
const REFUSED_MAX: u64 = 30 * SECOND;
/// The longest pause before a retry, in nanoseconds.
const PAUSE_MAX: u64 = 200 * MILLISECOND;

/// Sends requests of one client identity. Shared by all threads of a process.
#[derive(Debug)]
pub struct Caller<R> {
    rt: R,
    client: ClientId,
    incarnation: u32,
    peers: RwLock<BTreeMap<ServerId, Arc<Peer>>>,
    /// Some peer's `restarted` is set: saves every request a look at all peers.
    any_restarted: AtomicBool,
    /// How often servers were found to have restarted.
    restarts: AtomicU32,
    /// The newest epoch of the cluster map of which a server has told.
    newest_map: AtomicU32,
    /// The objects of which servers have told, for a limited key.
    told: ToldHandles,
}

/// Encodes a request for an attempt to send it.
pub type Encode<'a> = &'a (dyn Fn() -> Bytes + Sync);

/// What a caller knows about one server.
#[derive(Debug, Default)]
struct Peer(Mutex<PeerState>);

#[derive(Debug, Default)]
struct PeerState {
    sequences: Sequences,
    boot: Option<u32>,
    /// The connection broke; at the next reply the server counts as restarted.
    broken: bool,
    restarted: bool,
    stats: CallerStats,
}

/// Counters of a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallerStats {
    /// Requests sent, retries included.
    pub requests: u64,
    /// Of these, retries.
    pub retries: u64,
    /// Bytes of requests and replies, headers included.
    pub bytes: u64,
}

impl<R: Runtime> Caller<R> {
    /// A caller with a fresh identity.
    pub fn new(rt: R, client: ClientId, incarnation: u32) -> Caller<R> {
        Caller {
            rt,
            client,
            incarnation,
            peers: RwLock::default(),
            any_restarted: AtomicBool::new(false),
            restarts: AtomicU32::new(0),
            newest_map: AtomicU32::new(0),
            told: ToldHandles::default(),
        }
    }

    /// The runtime.
    pub fn rt(&self) -> &R {
        &self.rt
    }

    /// Who we are.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Executes one operation at `server`, sending it again until it is answered or `deadline`
    /// passes; without a deadline ([`Nanos::NEVER`]), until the server has said what became of it.
    ///
    /// # Errors
    /// The server's answer, or [`Status::TimedOut`] / [`Status::Unreachable`] at the deadline: then
    /// a change may or may not have been made.
    pub async fn call<O: Operation>(&self, server: ServerId, operation: &O, deadline: Nanos) -> Result<O::Reply> {
        Ok(self.call_with_bulk(server, operation, Bulk::None, deadline).await?.0)
    }

    /// Like [`Caller::call`], with bulk data in either direction.
    ///
    /// # Errors
    /// As [`Caller::call`].
    pub async fn call_with_bulk<O: Operation>(
        &self,
        server: ServerId,
        operation: &O,
        bulk: Bulk<'_>,
        deadline: Nanos,
    ) -> Result<(O::Reply, Payload)> {
        let told = &self.told;
        let encode = || told.encode(operation);
        let reply = self.send(server, O::OP, &encode, bulk, deadline, &mut LeaseScope::default()).await?;
        Ok((told.decode::<O>(reply.body)?, reply.bulk))
    }

    /// Encodes requests for [`Caller::send`], and decodes replies.
    pub fn told(&self) -> &ToldHandles {
        &self.told
    }

    /// The part of [`Caller::call`] that is the same code for all operations, and so is compiled
    /// once for each runtime: whoever adds to it what each request needs does the same. `leased` is
    /// told how much of the answer, which may be that there is nothing, is given under a lease.
    ///
    /// # Errors
    /// As [`Caller::call`].
    pub async fn send(
        &self,
        server: ServerId,
        op: Op,
        encode: Encode<'_>,
        bulk: Bulk<'_>,
        deadline: Nanos,
        leased: &mut LeaseScope,
    ) -> Result<Frame> {
        let body = encode();
        self.rt.cpu(Work::Request).await;
        self.rt.pass(FaultPoint::ClientCode).await;
        let sent_bytes = body.len() as u64 + bulk.len();
        let mut body = Some(body);
        let peer = self.peer(server);
        let (ticket, mut span) = Ticket::begin(&peer);
        let sequence = ticket.sequence;
        // A request that waits at the server counts as finished: it is executed by no reply table,
        // and must not keep the answers to later ones in it.
        let waits = op.waits();
        let ticket = (!waits).then_some(ticket);
        let request = RequestId { client: self.client, incarnation: self.incarnation, sequence };
        let (mut pause, mut patience) = (0, ATTEMPT_FIRST);
        let mut refused_until = None;
        for attempt in 0u32.. {
            if attempt > 0 {
                span = if ticket.is_some() { peer.lock().sequences.span(sequence) } else { 0 };
            }
            let mut header = Header::request(op, server, request, span);
            if attempt > 0 {
                header.flags = Flags::RETRY;
            }
            if waits {
                header.flags = header.flags.with(Flags::WAITS);
            }
            // Encoded again for the rare second attempt: a shared body costs every first one an
            // allocation.
            let body = body.take().unwrap_or_else(encode);
            let outgoing = Outgoing { header, body, bulk: bulk.clone() };
            let attempt_ends = deadline.min(self.rt.now() + patience);
            // A server owes nothing to whoever waits for news.
            let mut traced = if waits { weft_trace::OpenSpan::OFF } else { weft_trace::span(weft_trace::event::NET_CALL) };
            if traced.is_on() {
                let key = weft_trace::request_key(request, server);
                traced.request(key).peer(server.0).range(u64::from(op.code()), sent_bytes).unfinished();
            }
            self.rt.pass(FaultPoint::ClientSend).await;
            let mut outcome = self.rt.request(server, outgoing, attempt_ends).await;
            traced.answered();
            // A request that was given up has no end: nobody knows whether its server works on it.
            if !matches!(outcome, Err(Status::TimedOut)) {
                traced.finished();
            }
            if self.rt.delay_ns(FaultPoint::NetReply) > 0 {
                traced.goes_on();
                self.rt.pass(FaultPoint::NetReply).await;
            }
            drop(traced);
            if attempt == 0 && self.rt.delay_ns(FaultPoint::ClientRetry) > 0 {
                outcome = Err(Status::Busy);
            }
            let received_bytes = outcome.as_ref().map_or(0, |frame| frame.body.len() as u64 + frame.bulk.len());
            let boot = match &outcome {
                Ok(reply) => {
                    *leased = reply.header.flags.into();
                    self.saw_map(reply.header.map_epoch());
                    Some(reply.header.server_boot)
                }
                Err(_) => None,
            };
            let broken = matches!(outcome, Err(Status::Unreachable));
            self.attempt_ended(&peer, attempt > 0, sent_bytes + received_bytes, boot, broken);
            let status = match outcome.and_then(|reply| reply.status().map(|()| reply)) {
                Ok(reply) => return Ok(reply),
                Err(status) => status,
            };
            if status.is_server_error() {
                weft_trace::note_error();
            }
            if status == Status::TimedOut {
                patience = (patience * 2).min(ATTEMPT_MAX);
            }
            pause = match (pause, status) {
                (0, Status::Busy | Status::Conflict) => PAUSE_FIRST_BUSY,
                (0, _) => PAUSE_FIRST,
                _ => (pause * 2).min(PAUSE_MAX),
            };
            let resume_at = self.rt.now() + pause + self.rt.random() % pause;
            let ends = match status {
                Status::Busy | Status::Conflict if deadline == Nanos::NEVER => *refused_until.get_or_insert(self.rt.now() + REFUSED_MAX),
                // Not even a server that is not ready knows what became of an earlier attempt.
                _ => {
                    refused_until = None;
                    deadline
                }
            };
            if !status.is_transient() || resume_at >= ends {
                return Err(status);
            }
            let mut pause = weft_trace::span(weft_trace::event::CLIENT_PAUSE);
            if broken {
                pause.peer(server.0).range(u64::from(op.code()), 0);
            }
            self.rt.sleep_until(resume_at).await;
            self.rt.pass(FaultPoint::ClientRetry).await;
        }
        unreachable!("the loop over u32 ends by the deadline")
    }

    /// Servers that have restarted, or to which the connection broke (so that they may have taken
    /// us for dead), since this was last asked: they must be told again what is open.
    pub fn take_restarted(&self) -> Vec<ServerId> {
        if !self.any_restarted.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        let peers = self.peers.read().expect("no code panics while it holds this lock");
        peers.iter().filter(|(_, peer)| std::mem::take(&mut peer.lock().restarted)).map(|(server, _)| *server).collect()
    }

    /// True if [`Caller::take_restarted`] would name a server. Costs one load.
    pub fn has_restarted(&self) -> bool {
        self.any_restarted.load(Ordering::Relaxed)
    }

    /// How often servers were found to have restarted. Costs one load.
    pub fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Acquire)
    }

    /// The newest epoch of the cluster map of which a server has told with a reply; 0: none. Costs
    /// one load.
    pub fn newest_map(&self) -> u32 {
        self.newest_map.load(Ordering::Relaxed)
    }

    fn saw_map(&self, epoch: u32) {
        if epoch > self.newest_map() {
            self.newest_map.fetch_max(epoch, Ordering::Relaxed);
        }
    }

    /// The server could not be told: [`Caller::take_restarted`] will name it again as soon as it
    /// has answered something.
    pub fn mark_untold(&self, server: ServerId) {
        self.peer(server).lock().broken = true;
    }

    /// Counters, all servers together.
    pub fn stats(&self) -> CallerStats {
        let peers = self.peers.read().expect("no code panics while it holds this lock");
        peers.values().map(|peer| peer.lock().stats).fold(CallerStats::default(), |sum, stats| CallerStats {
            requests: sum.requests + stats.requests,
            retries: sum.retries + stats.retries,
            bytes: sum.bytes + stats.bytes,
        })
    }

    /// The lives of the servers that have answered, in the order of the servers: a server that has
    /// restarted has another number.
    pub fn boots(&self) -> Vec<(ServerId, u32)> {
        let peers = self.peers.read().expect("no code panics while it holds this lock");
        peers.iter().filter_map(|(server, peer)| Some((*server, peer.lock().boot?))).collect()
    }

    fn peer(&self, server: ServerId) -> Arc<Peer> {
        if let Some(peer) = self.peers.read().expect("no code panics while it holds this lock").get(&server) {
            return peer.clone();
        }
        self.peers.write().expect("no code panics while it holds this lock").entry(server).or_default().clone()
    }

    fn attempt_ended(&self, peer: &Peer, retry: bool, bytes: u64, boot: Option<u32>, broken: bool) {
        let mut state = peer.lock();
        state.stats.requests += 1;
        state.stats.retries += u64::from(retry);
        state.stats.bytes += bytes + 2 * HEADER_BYTES as u64;
        state.broken |= broken && state.boot.is_some();
        let Some(boot) = boot else { return };
        let has_restarted = state.boot.replace(boot).is_some_and(|before| before != boot);
        if has_restarted {
            self.restarts.fetch_add(1, Ordering::AcqRel);
        }
        if has_restarted || state.broken {
            (state.restarted, state.broken) = (true, false);
            self.any_restarted.store(true, Ordering::Relaxed);
        }
    }
}

impl Peer {
    fn lock(&self) -> MutexGuard<'_, PeerState> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

/// Marks a sequence number as unfinished until it is dropped.
struct Ticket<'a> {
    peer: &'a Peer,
    sequence: u64,
}

impl Ticket<'_> {
    /// A new number and its distance to the oldest unfinished one.
    fn begin(peer: &Peer) -> (Ticket<'_>, u32) {
        let mut state = peer.lock();
        let sequence = state.sequences.begin();
        (Ticket { peer, sequence }, state.sequences.span(sequence))
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.peer.lock().sequences.finish(self.sequence);
    }
}
