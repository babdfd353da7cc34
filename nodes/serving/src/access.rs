//! What the peers of a server may ask for, by the keys that they have proved.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use weft_base::{FastMap, Handle, Result};
use weft_rt::PeerId;
use weft_wire::{ClusterKey, Frame, HandleTags, KeyId, KeyRights, Op, Request, Rights, Tagged};

/// The rights of connected peers. Peers that may do everything are not in the table.
#[derive(Debug)]
pub(crate) struct Peers {
    /// The key of the servers.
    key: ClusterKey,
    by_peer: RefCell<FastMap<PeerId, PeerRights>>,
    /// Peers whose requests must be looked at: with none of them nothing is looked up.
    limited: Cell<usize>,
}

#[derive(Debug)]
struct PeerRights {
    access: KeyRights,
    /// Given if the peer may name only objects of which it was told.
    tags: Option<HandleTags>,
}

impl Peers {
    pub(crate) fn new(key: ClusterKey) -> Peers {
        Peers { key, by_peer: RefCell::default(), limited: Cell::new(0) }
    }

    pub(crate) fn connected(&self, peer: PeerId, key: KeyId, generation: u32, access: KeyRights) {
        if access != KeyRights::SERVER {
            let tags = access.needs_tags().then(|| HandleTags::new(&self.key, key, generation, access.root));
            self.by_peer.borrow_mut().insert(peer, PeerRights { access, tags });
            self.limited.set(self.limited.get() + usize::from(access.is_limited()));
        }
    }

    /// True if the peer was limited: nobody knows its rights any more, so what it has asked must
    /// not be looked at again.
    pub(crate) fn disconnected(&self, peer: PeerId) -> bool {
        let was_limited = self.by_peer.borrow_mut().remove(&peer).is_some_and(|rights| rights.access.is_limited());
        self.limited.set(self.limited.get() - usize::from(was_limited));
        was_limited
    }

    /// May the peer send a request of this operation?
    #[inline]
    pub(crate) fn check_operation(&self, peer: PeerId, op: Op) -> Result<()> {
        if self.limited.get() == 0 && !op.is_between_servers() {
            return Ok(());
        }
        self.by_peer.borrow().get(&peer).map_or(Ok(()), |rights| rights.access.check_operation(op))
    }

    /// True if there are peers whose requests must be looked at.
    #[inline]
    pub(crate) fn has_limited(&self) -> bool {
        self.limited.get() > 0
    }

    /// Reads a request, and sees to it that it asks for no more than the key allows: `held` as of
    /// [`crate::Shell::decode`].
    #[cold]
    pub(crate) fn decode_limited(
        &self,
        peer: PeerId,
        op: Op,
        body: Bytes,
        held: impl Fn(Handle) -> (Rights, Option<u32>),
    ) -> Result<Request> {
        let peers = self.by_peer.borrow();
        let Some(PeerRights { access, tags }) = peers.get(&peer) else { return Request::of(op, body) };
        let Tagged { message: mut request, tags: shown } = Request::tagged(op, body)?;
        access.check_request(&mut request, &held)?;
        let opened = |handle| held(handle).0;
        tags.as_ref().map_or(Ok(()), |tags| tags.check(&request, &shown, opened))?;
        access.check_opened(&request, opened)?;
        Ok(request)
    }

    /// Adds to a reply the tags of the handles that it tells, if the peer needs them.
    #[cold]
    pub(crate) fn tell(&self, peer: PeerId, frame: &mut Frame) {
        let peers = self.by_peer.borrow();
        let tags = peers.get(&peer).and_then(|rights| rights.tags.as_ref());
        let (Some(tags), Some(op), 0) = (tags, Op::from_code(frame.header.op), frame.header.status) else { return };
        // An empty body, which the client refuses, is better than one with too much in it.
        frame.body = tags.told(op, std::mem::take(&mut frame.body)).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use weft_base::Status;

    use super::*;

    #[test]
    fn every_peer_has_the_rights_of_its_own_key() {
        let peers = Peers::new(ClusterKey([7; 32]));
        let (server, client, reader) = (PeerId(1), PeerId(2), PeerId(3));
        peers.connected(server, KeyId::SERVERS, 0, KeyRights::SERVER);
        peers.connected(client, KeyId(1), 1, KeyRights::CLIENT);
        let ask = |peer, op| peers.check_operation(peer, op);
        assert_eq!((ask(server, Op::TxDecide), ask(client, Op::TxDecide)), (Ok(()), Err(Status::KeyForbids)));
        assert_eq!(ask(client, Op::Create), Ok(()));
        peers.connected(reader, KeyId(2), 1, KeyRights { is_read_only: true, ..KeyRights::CLIENT });
        assert_eq!((ask(reader, Op::Create), ask(client, Op::Create)), (Err(Status::KeyReadsOnly), Ok(())));
        assert!(peers.disconnected(reader) && !peers.disconnected(client));
        assert_eq!(peers.limited.get(), 0);
    }
}
