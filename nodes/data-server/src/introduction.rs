//! Metadata server 0 must know the store of this server before it serves: one that was lost and made again would read as zeros. The
//! protocol is described at [`weft_serving::Introduction`].

use std::rc::Rc;

use weft_base::{ClientId, MILLISECOND, RequestId, Result, SECOND, ServerId, Status};
use weft_rt::{Bulk, Outgoing, ServerRuntime};
use weft_serving::{REGISTRAR, why_not_introduced};
use weft_wire::ops::{MeetReply, MeetRequest};
use weft_wire::{Header, Op, Wire};

use crate::DataServerError;
use crate::ops::Done;
use crate::state::Server;

/// How long one attempt takes at most, in nanoseconds.
const ATTEMPT_NS: u64 = 2 * SECOND;
/// The first pause before another attempt, in nanoseconds, and the longest.
const PAUSE_NS: u64 = 5 * MILLISECOND;
const PAUSE_NS_MAX: u64 = SECOND;

impl<R: ServerRuntime> Server<R> {
    /// Answers a server that introduces itself: has another one been met?
    pub fn meet(&self, request: &MeetRequest) -> Result<Done> {
        let Some(mut known) = self.shell.introduction.known() else { return Ok(Done::now(&MeetReply { birth: 0 })) };
        known.meet(request.server, request.birth)?;
        Ok(Done::now(&MeetReply { birth: known.birth }))
    }

    fn not_introduced(&self, status: Status, other: ServerId) {
        self.fail(DataServerError::Store(why_not_introduced(status, &self.config.map, other)));
    }
}

/// Introduces the server, at every start. One that was introduced before serves meanwhile.
pub async fn introduce_flow<R: ServerRuntime>(server: Rc<Server<R>>) {
    let Some(known) = server.shell.introduction.known().filter(|_| server.config.meets_others) else { return };
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
            Ok(reply) => server.shell.introduction.note(server.rt.disk(), &[(REGISTRAR, reply.birth), (known.server, known.birth)]).await,
            Err(Status::StoreReplaced) => return server.not_introduced(Status::StoreReplaced, known.server),
            // It says that it is another one than this server has met.
            Err(Status::WrongServer) => Err(Status::StoreReplaced),
            Err(_) if server.has_stopped() => return,
            Err(_) => {
                server.rt.sleep_until(server.rt.now() + pause).await;
                pause = (2 * pause).min(PAUSE_NS_MAX);
                continue;
            }
        };
        return outcome.map_or_else(|status| server.not_introduced(status, REGISTRAR), |()| {});
    }
}
