//! What comes: handshakes of new peers, requests of clients, replies of other servers.

use std::os::fd::AsFd;
use std::sync::Arc;

use weft_base::{Nanos, Payload, Status};
use weft_rt::{Arrival, FaultPoint, PeerId};
use weft_wire::handshake::{self, Accepted, RegionAnswer, RegionOffer};
use weft_wire::{Features, Flags, Frame, MessageKind, SessionCiphers, Wire};

use super::{ARRIVED_BYTES_MAX, ARRIVED_MAX, Conn, Net, REGIONS_MAX, Role, TURN_BYTES};
use crate::handshake::Step;
use crate::inbound::{Broken, Limits};
use crate::region::{self, Memory};
use crate::{clock, fault};

impl Net {
    pub(super) fn read(&mut self, token: u64, hangup: bool, now: Nanos) {
        // A connection that has ended is read to its end all the same: it cannot grow, and would be
        // reported again and again.
        let full = self.arrivals.len() >= ARRIVED_MAX || self.arrived_bytes >= ARRIVED_BYTES_MAX;
        if !hangup && (full || !self.may_begin(token, now)) {
            self.flooded = true;
            return self.pause(token, true);
        }
        let mut frames = std::mem::take(&mut self.frames);
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut is_unauthenticated = false;
        let outcome = match self.conn_mut(token) {
            Some(conn) => {
                let known = !matches!(conn.role, Role::Unauthenticated { .. });
                is_unauthenticated = !known;
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
            self.heard_unauthenticated(token);
        }
        for frame in frames.drain(..) {
            if let Err(status) = self.dispatch(token, frame) {
                self.close(token, &status.to_string());
                break;
            }
            // Behind the proof of a new peer nothing may come before its welcome: it would not be
            // encrypted.
            if is_unauthenticated && complete > 1 && self.conn(token).is_some_and(|conn| conn.reader.is_encrypted()) {
                self.close(token, Status::EnvelopeBroken.text());
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
            Role::Unauthenticated { greeting, .. } => {
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
                self.unauthenticated.remove(token);
                self.mark_dirty(token);
                self.arrive(Arrival::Connected { peer: PeerId(token), client, incarnation, key, generation, access });
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

    pub(super) fn arrive(&mut self, arrival: Arrival) {
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
}
