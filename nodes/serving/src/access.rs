//! What the peers of a server may ask for, by the keys that they have proved.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use weft_base::{FastMap, Handle, Result};
use weft_rt::PeerId;
use weft_wire::{KeyRights, Op, Request, Rights};

/// The rights of connected peers. Peers that may do everything are not in the table.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    by_peer: RefCell<FastMap<PeerId, KeyRights>>,
    /// Peers whose requests must be looked at: with none of them nothing is looked up.
    limited: Cell<usize>,
}

impl Peers {
    pub(crate) fn connected(&self, peer: PeerId, access: KeyRights) {
        if access != KeyRights::SERVER {
            self.by_peer.borrow_mut().insert(peer, access);
            self.limited.set(self.limited.get() + usize::from(access.is_limited()));
        }
    }

    /// True if the peer was limited: nobody knows its rights any more, so what it has asked must
    /// not be looked at again.
    pub(crate) fn disconnected(&self, peer: PeerId) -> bool {
        let was_limited = self.by_peer.borrow_mut().remove(&peer).is_some_and(|access| access.is_limited());
        self.limited.set(self.limited.get() - usize::from(was_limited));
        was_limited
    }

    /// May the peer send a request of this operation?
    #[inline]
    pub(crate) fn check_operation(&self, peer: PeerId, op: Op) -> Result<()> {
        if self.limited.get() == 0 && !op.is_between_servers() {
            return Ok(());
        }
        self.by_peer.borrow().get(&peer).map_or(Ok(()), |access| access.check_operation(op))
    }

    /// True if there are peers whose requests must be looked at.
    #[inline]
    pub(crate) fn has_limited(&self) -> bool {
        self.limited.get() > 0
    }

    /// Reads a request and sees to it that it asks for no more than the peer's key allows; `opened`
    /// is what the peer has open.
    #[cold]
    pub(crate) fn decode_limited(&self, peer: PeerId, op: u16, body: Bytes, opened: impl Fn(Handle) -> Rights) -> Result<Request> {
        let mut request = Request::decode(op, body)?;
        if let Some(rights) = self.by_peer.borrow().get(&peer) {
            rights.check_request(&mut request, opened)?;
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use weft_base::Status;

    use super::*;

    #[test]
    fn every_peer_has_the_rights_of_its_own_key() {
        let peers = Peers::default();
        let (server, client, reader) = (PeerId(1), PeerId(2), PeerId(3));
        peers.connected(server, KeyRights::SERVER);
        peers.connected(client, KeyRights::CLIENT);
        let ask = |peer, op| peers.check_operation(peer, op);
        assert_eq!((ask(server, Op::TxDecide), ask(client, Op::TxDecide)), (Ok(()), Err(Status::KeyForbids)));
        assert_eq!(ask(client, Op::Create), Ok(()));
        peers.connected(reader, KeyRights { is_read_only: true, ..KeyRights::CLIENT });
        assert_eq!((ask(reader, Op::Create), ask(client, Op::Create)), (Err(Status::KeyReadsOnly), Ok(())));
        assert!(peers.disconnected(reader) && !peers.disconnected(client));
        assert_eq!(peers.limited.get(), 0);
    }
}
