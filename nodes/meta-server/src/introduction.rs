//! Servers know each other by more than a number: every store has a birth, drawn when it was made. A server whose folder was lost and
//! made again has the number and name of the old one and nothing of what it held, so nobody may take it for the old one.
//!
//! ```text
//! another server                       metadata server 0
//!   Meet {number, birth, yours} ──────▶  met before? the same birth : remembered in the superblock
//!      ◀── {birth} ────────────────────  (or StoreReplaced, or WrongServer if `yours` is not its birth: the asker stops)
//!   remembers both in its superblock
//! ```
//! A server that was never introduced serves nothing before. Metadata server 0 itself, when it is new, asks everybody whether they have
//! met another one.

use std::rc::Rc;

use bytes::Bytes;
use weft_base::{MILLISECOND, Result, SECOND, ServerId, Status};
use weft_journal::{JournalError, Superblock};
use weft_rt::{ServerRuntime, join_all};
use weft_wire::ops::{MeetReply, MeetRequest};
use weft_wire::{Op, Wire};

use crate::engine::Engine;
use crate::server::Server;

/// The pause while another meeting is being noted, in nanoseconds.
const BUSY_NS: u64 = MILLISECOND;
/// The metadata server that knows all others.
const REGISTRAR: ServerId = ServerId(0);
/// How long one attempt to be introduced takes at most, in nanoseconds.
const ATTEMPT_NS: u64 = 5 * SECOND;
/// How long a new metadata server 0 waits for others to say that they have met another one, in nanoseconds.
const ASK_NS: u64 = SECOND;
/// The pause before another attempt, in nanoseconds.
const PAUSE_NS: u64 = 100 * MILLISECOND;

/// What may be asked of a server that is not introduced.
pub(crate) fn is_for_strangers(op: u16) -> bool {
    matches!(Op::from_code(op), Some(Op::Ping | Op::GetMap | Op::Live | Op::Trace | Op::TraceRead | Op::Meet))
}

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// True if this server may serve.
    pub(crate) fn is_introduced(&self) -> bool {
        !self.config.meets_others || self.superblock.borrow().as_ref().is_none_or(Superblock::is_introduced)
    }

    /// Sees to it that the others know this server.
    pub(crate) async fn introduce_flow(self: Rc<Self>) {
        let Some(known) = self.superblock.borrow().clone().filter(|_| self.config.meets_others) else { return };
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
                Ok(reply) => match self.remember(&[(REGISTRAR, reply.birth), (server, known.birth)]).await {
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
        let mut outcome = self.remember(&[(REGISTRAR, birth)]).await;
        while outcome == Err(Status::Busy) {
            self.rt.sleep_until(self.rt.now() + BUSY_NS).await;
            outcome = self.remember(&[(REGISTRAR, birth)]).await;
        }
        self.note_meeting(outcome, REGISTRAR);
    }

    /// Notes births durably. [`Status::Busy`] if another meeting is being noted.
    async fn remember(&self, births: &[(ServerId, u64)]) -> Result<()> {
        let Some(mut superblock) = self.superblock.borrow().clone() else { return Ok(()) };
        let mut is_new = false;
        for (server, birth) in births {
            is_new |= superblock.meet(*server, *birth)?;
        }
        if !is_new {
            return Ok(());
        }
        if self.meeting.replace(true) {
            return Err(Status::Busy);
        }
        let stored = superblock.store(self.rt.disk()).await;
        self.meeting.set(false);
        stored?;
        *self.superblock.borrow_mut() = Some(superblock);
        Ok(())
    }

    fn note_meeting(&self, outcome: Result<()>, replaced: ServerId) {
        let Err(status) = outcome else { return };
        let name = self.config.map.server(replaced).map_or_else(|| replaced.to_string(), |entry| entry.name.clone());
        let text = match status {
            Status::StoreReplaced => store_replaced(&name),
            status => format!("cannot note that this server knows {name}: {status}"),
        };
        self.kept(Err(JournalError::Foreign(text)));
    }

    /// Answers a server that introduces itself.
    pub(crate) async fn meet(self: Rc<Self>, request: MeetRequest) -> Result<Bytes> {
        let Some(known) = self.superblock.borrow().clone() else { return Ok(MeetReply { birth: 0 }.to_bytes()) };
        if request.yours != 0 && request.yours != known.birth {
            if !known.is_introduced() {
                // The asker has met the one before us.
                self.note_meeting(Err(Status::StoreReplaced), self.config.server);
                return Err(Status::NotReady);
            }
            return Err(Status::WrongServer);
        }
        match self.config.server {
            REGISTRAR => self.remember(&[(request.server, request.birth)]).await?,
            _ => drop(known.clone().meet(request.server, request.birth)?),
        }
        Ok(MeetReply { birth: known.birth }.to_bytes())
    }
}

/// Why a server must not serve whose store is not the one that others have met.
fn store_replaced(name: &str) -> String {
    format!(
        "the store of {name} is not the one that the file system knows: it was lost and made again, and what it held is missing. Give {name} \
         its old folder back; nothing is served in its place, since files would read as zeros"
    )
}
