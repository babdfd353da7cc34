//! How a metadata server introduces itself, and answers those that do: see [`weft_serving::Introduction`]. Metadata server 0 itself,
//! when it is new, asks everybody whether they have met another one.

use std::rc::Rc;

use bytes::Bytes;
use weft_base::{MILLISECOND, Result, SECOND, ServerId, Status};
use weft_journal::{JournalError, Superblock};
use weft_rt::{ServerRuntime, join_all};
use weft_serving::{REGISTRAR, why_not_introduced};
use weft_wire::Wire;
use weft_wire::ops::{MeetReply, MeetRequest};

use crate::engine::Engine;
use crate::server::Server;

/// The pause while another meeting is being noted, in nanoseconds.
const BUSY_NS: u64 = MILLISECOND;
/// How long one attempt to be introduced takes at most, in nanoseconds.
const ATTEMPT_NS: u64 = 5 * SECOND;
/// How long a new metadata server 0 waits for others to say that they have met another one, in nanoseconds.
const ASK_NS: u64 = SECOND;
/// The pause before another attempt, in nanoseconds.
const PAUSE_NS: u64 = 100 * MILLISECOND;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Sees to it that the others know this server.
    pub(crate) async fn introduce_flow(self: Rc<Self>) {
        let Some(known) = self.shell.introduction.known().filter(|_| self.config.meets_others) else { return };
        match self.config.server {
            REGISTRAR if known.is_introduced() => {}
            REGISTRAR => self.ask_everybody(known.birth).await,
            server => self.introduce(server, &known).await,
        }
    }

    async fn introduce(&self, server: ServerId, known: &Superblock) {
        let request = MeetRequest { server, birth: known.birth, yours: known.births.get(&REGISTRAR).copied().unwrap_or(0) };
        loop {
            match self.caller.call(REGISTRAR, &request, self.rt.now() + ATTEMPT_NS).await {
                Ok(reply) => match self.shell.introduction.note(self.rt.disk(), &[(REGISTRAR, reply.birth), (server, known.birth)]).await {
                    Err(Status::Busy) => {}
                    outcome => return self.note_meeting(outcome, REGISTRAR),
                },
                Err(Status::StoreReplaced) => return self.note_meeting(Err(Status::StoreReplaced), server),
                // It says that it is another one than this server has met.
                Err(Status::WrongServer) => return self.note_meeting(Err(Status::StoreReplaced), REGISTRAR),
                Err(_) => {}
            }
            self.rt.sleep_until(self.rt.now() + PAUSE_NS).await;
        }
    }

    async fn ask_everybody(&self, birth: u64) {
        let deadline = self.rt.now() + ASK_NS;
        let others: Vec<ServerId> = self.config.map.servers().map(|entry| entry.id).filter(|id| *id != REGISTRAR).collect();
        let request = MeetRequest { server: REGISTRAR, birth, yours: 0 };
        let answers = join_all(others.iter().map(|other| self.caller.call(*other, &request, deadline))).await;
        // Who does not answer is asked no more: it finds out at its next start, and then this server does.
        if answers.contains(&Err(Status::StoreReplaced)) {
            return self.note_meeting(Err(Status::StoreReplaced), REGISTRAR);
        }
        let mut outcome = self.shell.introduction.note(self.rt.disk(), &[(REGISTRAR, birth)]).await;
        while outcome == Err(Status::Busy) {
            self.rt.sleep_until(self.rt.now() + BUSY_NS).await;
            outcome = self.shell.introduction.note(self.rt.disk(), &[(REGISTRAR, birth)]).await;
        }
        self.note_meeting(outcome, REGISTRAR);
    }

    fn note_meeting(&self, outcome: Result<()>, replaced: ServerId) {
        if let Err(status) = outcome {
            self.kept(Err(JournalError::Foreign(why_not_introduced(status, &self.config.map, replaced))));
        }
    }

    /// Answers a server that introduces itself.
    pub(crate) async fn meet(self: Rc<Self>, request: MeetRequest) -> Result<Bytes> {
        let Some(known) = self.shell.introduction.known() else { return Ok(MeetReply { birth: 0 }.to_bytes()) };
        if request.yours != 0 && request.yours != known.birth {
            if !known.is_introduced() {
                // The asker has met the one before us.
                self.note_meeting(Err(Status::StoreReplaced), self.config.server);
                return Err(Status::NotReady);
            }
            return Err(Status::WrongServer);
        }
        match self.config.server {
            REGISTRAR => self.shell.introduction.note(self.rt.disk(), &[(request.server, request.birth)]).await?,
            _ => drop(known.clone().meet(request.server, request.birth)?),
        }
        Ok(MeetReply { birth: known.birth }.to_bytes())
    }
}
