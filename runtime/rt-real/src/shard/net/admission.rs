//! Who comes in: new connections, their first moments, and whose key is worth nothing
//! any more.

use std::os::fd::{AsFd, OwnedFd};

use weft_base::{Nanos, SECOND, ServerId};
use weft_wire::{Features, Frame, SessionCiphers};

use super::unauthenticated::Source;
use super::{Net, Role, TOKEN_LISTENERS, token};
use crate::address::Address;
use crate::handshake::{Dialed, Greeting, HANDSHAKE_NS_MAX};
use crate::inbound::Limits;
use crate::sys;

/// Connections accepted from one listener in one turn: the handshakes of those before them go on in
/// between.
const ACCEPTED_PER_TURN: usize = 64;
/// A new peer that has said nothing at all after this time goes, in nanoseconds.
const FIRST_BYTE_NS_MAX: u64 = 2 * SECOND;

impl Net {
    pub(super) fn accept(&mut self, listener: usize, now: Nanos) {
        for _ in 0..ACCEPTED_PER_TURN {
            let Some(listening) = self.listeners.get(listener) else { return };
            let fd = match sys::accept(listening.fd.as_fd()) {
                Ok(fd) => fd,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    if sys::is_out_of_descriptors(&error)
                        && let Some(token) = self.unauthenticated.least_wanted()
                    {
                        self.close(token, "its descriptor is needed");
                        continue;
                    }
                    // The peer was gone before we came, or everything is in use. Without a pause
                    // the second would be a busy loop.
                    self.log.line(&format!("cannot accept a connection: {error}"));
                    self.sweep_at = self.sweep_at.min(now + SECOND);
                    return self.pause_accepting(true);
                }
            };
            let is_encrypted = self.encrypt_tcp && matches!(listening.address, Address::Tcp { .. });
            let source = match listening.address {
                Address::Unix(_) => {
                    sys::tune_unix(fd.as_fd());
                    sys::peer_user(fd.as_fd()).map_or(Source::Unknown, Source::User)
                }
                Address::Tcp { .. } => {
                    // A connection that cannot be tuned is broken already; its first use will say
                    // so.
                    drop(sys::tune_tcp(fd.as_fd()));
                    sys::peer_ip(fd.as_fd()).map_or(Source::Unknown, Source::of)
                }
            };
            self.let_in(fd, source, is_encrypted, now);
        }
    }

    fn let_in(&mut self, fd: OwnedFd, source: Source, is_encrypted: bool, now: Nanos) {
        while let Some(token) = self.unauthenticated.in_the_way(source) {
            self.close(token, "another one that is not authenticated needs its place");
        }
        let greeting = match is_encrypted {
            true => self.greeting.for_connection().with_features(Features::KNOWN, Features::ENCRYPTION),
            false => self.greeting.for_connection(),
        };
        let greeting = Greeting::new(greeting);
        let role = Role::Unauthenticated { greeting: Box::new(greeting), since: now, until: now + FIRST_BYTE_NS_MAX };
        match self.insert(fd, role, Limits::HANDSHAKE) {
            Ok(token) => {
                self.unauthenticated.add(token, source);
                self.sweep_at = self.sweep_at.min(now + FIRST_BYTE_NS_MAX);
                // Who is in earnest has sent its first message already, and has it in before the
                // next one comes.
                self.read(token, false, now);
            }
            Err(error) => self.log.line(&format!("cannot watch a connection: {error}")),
        }
    }

    /// A new peer has sent something: now it has the time of a handshake.
    pub(super) fn heard_unauthenticated(&mut self, token: u64) {
        if let Some(Role::Unauthenticated { since, until, .. }) = self.conn_mut(token).map(|conn| &mut conn.role) {
            *until = *since + HANDSHAKE_NS_MAX;
            self.unauthenticated.heard(token);
        }
    }

    pub(super) fn pause_accepting(&mut self, pause: bool) {
        if self.accepting != pause {
            return;
        }
        self.accepting = !pause;
        for (i, listener) in self.listeners.iter().enumerate() {
            // Only fails for a descriptor that is not in the set, and these are.
            let _ = self.epoll.change(listener.fd.as_fd(), TOKEN_LISTENERS - i as u64, !pause, false);
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

    /// If the keys have changed, ends the connections whose key is not what it was. Handshakes in
    /// the middle of their handshake go too.
    pub(crate) fn look_at_keys(&mut self) {
        let version = self.keys.version();
        if version == self.keys_version {
            return;
        }
        self.keys_version = version;
        let ring = self.keys.ring();
        self.greeting = self.greeting.for_connection().with_keys(ring.clone());
        for index in 0..self.conns.len() {
            let (generation, Some(conn)) = &self.conns[index] else { continue };
            let token = token(index, *generation);
            match conn.role {
                Role::Client { proved: (key, generation, access), .. } if !ring.still_accepts(key, generation, access) => {
                    self.close(token, &format!("{key} was revoked, replaced or got other rights"));
                }
                Role::Unauthenticated { .. } => self.close(token, "the keys have changed"),
                Role::Client { .. } | Role::Server(_) => {}
            }
        }
    }
}
