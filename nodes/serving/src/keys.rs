//! The list of keys: metadata server 0 has it, the others ask for it, at their start and every
//! second.
//!
//! ```text
//! another server                              metadata server 0
//!   GetKeys {the list that it has, offset} ──▶ the same? nothing : a piece of its list
//!   all pieces of one list: accepted from now on, and stored for the next start
//! ```
//! Nobody sends a list unasked. It comes over a connection on which the other side has proved the
//! key of the servers and the number of metadata server 0. A server to which metadata server 0
//! gives none goes on with what it has.

use std::rc::Rc;
use std::sync::Arc;

use weft_base::{MILLISECOND, Result, SECOND, Status};
use weft_rt::Runtime;
use weft_wire::ops::{GetKeysReply, GetKeysRequest};
use weft_wire::{LIST_BYTES_MAX, LIST_PIECE_BYTES};

use crate::introduction::REGISTRAR;
use crate::{Service, Shell};

/// A server asks so often, in nanoseconds.
const ASK_EVERY_NS: u64 = SECOND;
/// How long a question may take, in nanoseconds.
const ATTEMPT_NS: u64 = 2 * SECOND;
/// The pause of a new server that was given no list, in nanoseconds.
const PAUSE_NS: u64 = 100 * MILLISECOND;

/// The keys of clients that a server accepts.
pub trait KeyLists: std::fmt::Debug + Send + Sync {
    /// The list, and its fingerprint.
    fn list(&self) -> (u64, Arc<str>);

    /// The fingerprint of the list that metadata server 0 gave last; 0: none.
    fn learned(&self) -> u64;

    /// Metadata server 0 has given this list: it holds from now on.
    ///
    /// # Errors
    /// [`Status::BadMessage`] if it is not understood or not the one with this fingerprint; the
    /// keys stay as they were.
    fn learn(&self, fingerprint: u64, list: &[u8]) -> Result<()>;

    /// What metadata server 0 has answered last.
    fn answered(&self, outcome: Result<()>);
}

/// The answer to a server that asks for the list.
///
/// # Errors
/// [`Status::TooBig`] if there are too many keys.
pub(crate) fn give_keys(keys: &dyn KeyLists, request: &GetKeysRequest) -> Result<GetKeysReply> {
    let (fingerprint, list) = keys.list();
    if list.len() > LIST_BYTES_MAX {
        return Err(Status::TooBig);
    }
    let total_bytes = list.len() as u32;
    let rest = list.as_bytes().get(request.offset as usize..).unwrap_or_default();
    let piece = match request.known == fingerprint {
        true => Vec::new(),
        false => rest[..rest.len().min(LIST_PIECE_BYTES)].to_vec(),
    };
    Ok(GetKeysReply { fingerprint, total_bytes, piece })
}

/// Follows the list of metadata server 0 as long as the server runs.
pub(crate) async fn follow_keys<S: Service>(server: Rc<S>, keys: Arc<dyn KeyLists>) {
    let shell = server.shell();
    while !shell.has_failed() {
        let outcome = ask_for_keys(&*server, &*keys).await;
        keys.answered(outcome);
        shell.rt.sleep_until(shell.rt.now() + ASK_EVERY_NS).await;
    }
}

/// A server that is not introduced yet waits for its first list: clients that hear of it find that
/// it knows their keys.
pub(crate) async fn wait_for_keys<S: Service>(server: &S, keys: &dyn KeyLists) {
    let shell = server.shell();
    while !shell.has_failed() {
        let outcome = ask_for_keys(server, keys).await;
        keys.answered(outcome);
        // An older one has none to give.
        if matches!(outcome, Ok(()) | Err(Status::NotSupported)) {
            return;
        }
        shell.rt.sleep_until(shell.rt.now() + PAUSE_NS).await;
    }
}

/// Asks metadata server 0 once.
async fn ask_for_keys<S: Service>(server: &S, keys: &dyn KeyLists) -> Result<()> {
    let Shell { rt, caller, .. } = server.shell();
    let deadline = rt.now() + ATTEMPT_NS;
    let known = keys.learned();
    let (mut list, mut of) = (Vec::new(), 0);
    loop {
        let offset = list.len() as u32;
        let reply = caller.call(REGISTRAR, &GetKeysRequest { known, offset }, deadline).await?;
        if reply.fingerprint == known {
            return Ok(());
        }
        if reply.fingerprint != of && offset > 0 {
            // It has changed meanwhile.
            (of, list) = (0, Vec::new());
            continue;
        }
        of = reply.fingerprint;
        let total = reply.total_bytes as usize;
        if total > LIST_BYTES_MAX || reply.piece.is_empty() || list.len() + reply.piece.len() > total {
            return Err(Status::BadMessage);
        }
        list.extend_from_slice(&reply.piece);
        if list.len() == total {
            return keys.learn(of, &list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(Arc<str>);

    impl KeyLists for Fixed {
        fn list(&self) -> (u64, Arc<str>) {
            (5, self.0.clone())
        }
        fn learned(&self) -> u64 {
            0
        }
        fn learn(&self, _: u64, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn answered(&self, _: Result<()>) {}
    }

    #[test]
    fn a_list_is_given_in_pieces() {
        let list = "x".repeat(LIST_PIECE_BYTES + 3);
        let keys = Fixed(list.as_str().into());
        let piece = |known, offset| give_keys(&keys, &GetKeysRequest { known, offset }).map(|reply| reply.piece.len());
        assert_eq!((piece(4, 0), piece(4, LIST_PIECE_BYTES as u32)), (Ok(LIST_PIECE_BYTES), Ok(3)));
        assert_eq!((piece(4, u32::MAX), piece(5, 0)), (Ok(0), Ok(0)));
        let long = Fixed("x".repeat(LIST_BYTES_MAX + 1).into());
        assert_eq!(give_keys(&long, &GetKeysRequest { known: 0, offset: 0 }), Err(Status::TooBig));
    }
}
