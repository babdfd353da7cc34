//! Metadata server 0 must know the store of this server before it serves: one that was lost and made again would read as zeros. The
//! protocol is described in `nodes/meta-server/src/introduction.rs`.

use std::rc::Rc;

use weft_base::{ClientId, MILLISECOND, RequestId, Result, SECOND, ServerId, Status};
use weft_journal::Superblock;
use weft_rt::{Bulk, Outgoing, ServerRuntime};
use weft_wire::ops::{MeetReply, MeetRequest};
use weft_wire::{Header, Op, Wire};

use crate::DataServerError;
use crate::ops::Done;
use crate::state::Server;

/// The metadata server that knows all others.
const REGISTRAR: ServerId = ServerId(0);
/// How long one attempt takes at most, in nanoseconds.
const ATTEMPT_NS: u64 = 2 * SECOND;
/// The first pause before another attempt, in nanoseconds, and the longest.
const PAUSE_NS: u64 = 5 * MILLISECOND;
const PAUSE_NS_MAX: u64 = SECOND;

/// What is not answered before.
pub fn is_about_objects(op: u16) -> bool {
    !matches!(Op::from_code(op), Some(Op::Ping | Op::GetMap | Op::Live | Op::Trace | Op::TraceRead | Op::Meet))
}

impl<R: ServerRuntime> Server<R> {
    /// True if this server may serve.
    pub fn is_introduced(&self) -> bool {
        !self.config.meets_others || self.superblock.borrow().as_ref().is_none_or(Superblock::is_introduced)
    }

    /// Answers a server that introduces itself: has another one been met?
    pub fn meet(&self, request: &MeetRequest) -> Result<Done> {
        let Some(mut known) = self.superblock.borrow().clone() else { return Ok(Done::now(&MeetReply { birth: 0 })) };
        known.meet(request.server, request.birth)?;
        Ok(Done::now(&MeetReply { birth: known.birth }))
    }

    fn name_of(&self, server: ServerId) -> String {
        self.config.map.server(server).map_or_else(|| server.to_string(), |entry| entry.name.clone())
    }

    /// What metadata server 0 says of itself is noted durably, and that it knows this server.
    async fn introduced(&self, birth: u64) -> std::result::Result<(), DataServerError> {
        let Some(mut superblock) = self.superblock.borrow().clone() else { return Ok(()) };
        let replaced = |server| DataServerError::Store(store_replaced(&self.name_of(server)));
        let own = (superblock.server, superblock.birth);
        let is_new = superblock.meet(REGISTRAR, birth).map_err(|_| replaced(REGISTRAR))?
            | superblock.meet(own.0, own.1).map_err(|_| replaced(own.0))?;
        if is_new {
            superblock.store(self.rt.disk()).await.map_err(|error| DataServerError::Store(error.to_string()))?;
            *self.superblock.borrow_mut() = Some(superblock);
        }
        Ok(())
    }
}

/// Introduces the server, at every start. One that was introduced before serves meanwhile.
pub async fn introduce_flow<R: ServerRuntime>(server: Rc<Server<R>>) {
    let Some(known) = server.superblock.borrow().clone().filter(|_| server.config.meets_others) else { return };
    let yours = known.births.get(&REGISTRAR).copied().unwrap_or(0);
    let request = MeetRequest { server: known.server, birth: known.birth, yours };
    let client = ClientId(server.rt.random());
    let mut pause = PAUSE_NS;
    for sequence in 1.. {
        let header = Header::request(Op::Meet, REGISTRAR, RequestId { client, incarnation: 1, sequence }, 0);
        let outgoing = Outgoing { header, body: request.to_bytes(), bulk: Bulk::None };
        let answer = server.rt.request(REGISTRAR, outgoing, server.rt.now() + ATTEMPT_NS).await;
        let reply = answer.and_then(|frame| frame.status().and_then(|()| MeetReply::from_bytes(frame.body)));
        let outcome = match reply {
            Ok(reply) => server.introduced(reply.birth).await,
            Err(Status::StoreReplaced) => Err(DataServerError::Store(store_replaced(&server.config.name))),
            // It says that it is another one than this server has met.
            Err(Status::WrongServer) => Err(DataServerError::Store(store_replaced(&server.name_of(REGISTRAR)))),
            Err(_) if server.has_stopped() => return,
            Err(_) => {
                server.rt.sleep_until(server.rt.now() + pause).await;
                pause = (2 * pause).min(PAUSE_NS_MAX);
                continue;
            }
        };
        if let Err(error) = outcome {
            server.fail(error);
        }
        return;
    }
}

/// Why a server must not serve whose store is not the one that others have met.
fn store_replaced(name: &str) -> String {
    format!(
        "the store of {name} is not the one that the file system knows: it was lost and made again, and what it held is missing. Give {name} \
         its old folder back; nothing is served in its place, since files would read as zeros"
    )
}
