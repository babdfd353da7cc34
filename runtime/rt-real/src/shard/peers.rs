//! Requests of this server to other servers: one connection to each, made when needed, replies
//! matched by sequence number.

use std::collections::BTreeMap;
use std::task::Waker;

use weft_base::{ClientId, ServerId, Status};
use weft_wire::{Frame, MessageKind};

use super::net::Net;
use crate::address::Address;

/// Another server.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Where it may be; the one to try first comes first.
    addresses: Vec<Address>,
    link: Link,
    /// Who we are to it: what the header of the first request says.
    identity: Option<(ClientId, u32)>,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
enum Link {
    /// No connection.
    Closed,
    /// A helper thread connects; requests wait.
    Dialing(Vec<Frame>),
    /// This connection.
    Open(u64),
}

#[derive(Debug)]
struct Waiting {
    outcome: Option<Result<Frame, Status>>,
    waker: Option<Waker>,
}

/// What to do after a request was queued.
#[derive(Debug)]
pub(crate) enum Next {
    /// Wait.
    Wait,
    /// Connect first, as this client.
    Dial(Vec<Address>, ClientId, u32),
}

impl Peer {
    pub(crate) fn new(address: Address) -> Peer {
        Peer { addresses: vec![address], link: Link::Closed, identity: None, waiting: BTreeMap::new() }
    }

    /// It may be here, too.
    pub(crate) fn learn(&mut self, address: Address) {
        if !self.addresses.contains(&address) {
            self.addresses.truncate(1);
            self.addresses.push(address);
        }
    }

    /// A reply has arrived. Nobody may wait for it any more.
    pub(crate) fn answered(&mut self, frame: Frame) {
        let Some(waiting) = self.waiting.get_mut(&frame.header.request.sequence) else { return };
        waiting.outcome = Some(Ok(frame));
        if let Some(waker) = waiting.waker.take() {
            waker.wake();
        }
    }

    /// The connection `token` is gone.
    pub(crate) fn lost(&mut self, token: u64, status: Status) {
        if matches!(self.link, Link::Open(open) if open == token) {
            self.fail(status);
        }
    }

    fn fail(&mut self, status: Status) {
        self.link = Link::Closed;
        self.identity = None;
        for waiting in self.waiting.values_mut() {
            waiting.outcome.get_or_insert(Err(status));
            if let Some(waker) = waiting.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Net {
    /// Queues a request to another server.
    ///
    /// # Errors
    /// [`Status::WrongServer`] for a server that is not in the map, [`Status::Invalid`] if its
    /// sequence number is in use or its client is not the one that is connected.
    pub(crate) fn ask(&mut self, server: ServerId, mut frame: Frame) -> Result<Next, Status> {
        let peer = self.peers.get_mut(&server).ok_or(Status::WrongServer)?;
        frame.header.kind = MessageKind::Request;
        let request = frame.header.request;
        let identity = (request.client, request.incarnation);
        if *peer.identity.get_or_insert(identity) != identity || peer.waiting.contains_key(&request.sequence) {
            return Err(Status::Invalid);
        }
        peer.waiting.insert(request.sequence, Waiting { outcome: None, waker: None });
        match &mut peer.link {
            Link::Open(token) => {
                let token = *token;
                self.send(token, frame);
                Ok(Next::Wait)
            }
            Link::Dialing(queue) => {
                queue.push(frame);
                self.usage.sent_messages += 1;
                Ok(Next::Wait)
            }
            Link::Closed => {
                self.usage.sent_messages += 1;
                peer.link = Link::Dialing(vec![frame]);
                Ok(Next::Dial(peer.addresses.clone(), request.client, request.incarnation))
            }
        }
    }

    /// The outcome of a request, if there is one; otherwise `waker` is woken when there is.
    pub(crate) fn take_outcome(&mut self, server: ServerId, sequence: u64, waker: &Waker) -> Option<Result<Frame, Status>> {
        let waiting = self.peers.get_mut(&server)?.waiting.get_mut(&sequence)?;
        if waiting.outcome.is_none() {
            waiting.waker = Some(waker.clone());
        }
        waiting.outcome.take()
    }

    /// Nobody waits for this request any more.
    pub(crate) fn forget(&mut self, server: ServerId, sequence: u64) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.waiting.remove(&sequence);
        }
    }

    /// The helper thread has connected, or not.
    pub(crate) fn dialed(
        &mut self,
        server: ServerId,
        addresses: Vec<Address>,
        outcome: Result<crate::handshake::Dialed, crate::handshake::DialError>,
    ) {
        let Some(peer) = self.peers.get_mut(&server) else { return };
        let Link::Dialing(queue) = std::mem::replace(&mut peer.link, Link::Closed) else { return };
        let words: Vec<String> = addresses.iter().map(Address::to_string).collect();
        // Unless another one was learned meanwhile.
        if peer.addresses.iter().all(|address| addresses.contains(address)) {
            peer.addresses = addresses;
        }
        let address = words.join(", ");
        let status = match outcome {
            Ok(dialed) => match self.adopt(server, dialed, queue) {
                Ok(token) => {
                    if let Some(peer) = self.peers.get_mut(&server) {
                        peer.link = Link::Open(token);
                    }
                    return;
                }
                Err(error) => {
                    self.log.line(&format!("cannot use the connection to {server} ({address}): {error}"));
                    Status::Unreachable
                }
            },
            Err(error) => {
                self.log.line(&format!("cannot connect to {server} ({address}): {}", error.reason));
                error.status
            }
        };
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.fail(status);
        }
    }
}
