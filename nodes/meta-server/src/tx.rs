//! Transactions over several metadata servers: two phases, presumed abort.
//!
//! ```text
//! coordinator                                        participant
//!   checks and locks its own parts
//!   TxPrepare ──────────────────────────────────────▶ checks, locks, journals the part (durably)
//!        ◀──────────────────────────────── agreed
//!   one record: its own changes, the answer to the client, the decision
//!   answers the client
//!   makes the decision durable
//!   TxDecide(commit) ───────────────────────────────▶ one record: the changes, the part is gone (durably)
//!        ◀────────────────────────────────── done
//!   forgets the transaction
//! ```
//! - Before the decision, anybody's crash aborts: a coordinator that is asked (TxStatus) about a
//!   transaction that it does not know answers "aborted".
//! - After it, the coordinator repeats TxDecide until everybody has done it, across restarts.
//! - A participant with a prepared part never decides alone; it keeps its locks and asks.
//! - Nobody waits for a lock while holding one: a conflict aborts, and the coordinator tries again
//!   after a random pause.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{ClientId, Credentials, Handle, MILLISECOND, Nanos, Result, SECOND, ServerId, Status, WallTime};
use weft_journal::Lsn;
use weft_namespace::{Change, Charged, CycleCheck, Prepared, Record, ServerPart, lead_to_made, made_directory, made_for};
use weft_rt::{FaultPoint, PeerId, ServerRuntime, join_all};
use weft_wire::ops::{ParentRequest, TxDecideRequest, TxId, TxPart, TxPrepareReply, TxPrepareRequest, TxStatusReply, TxStatusRequest};
use weft_wire::{Header, Op, Wire};

use crate::engine::Engine;
use crate::ops::NameChange;
use crate::server::Server;
use crate::step::{Doubt, Step};

/// After so long without a decision a participant asks, in nanoseconds.
const IN_DOUBT_NS: u64 = 2 * SECOND;
/// How long one question to another server may take, in nanoseconds.
const ASK_NS: u64 = 5 * SECOND;
/// The pause before a decision is sent again after a failure, in nanoseconds.
const DELIVER_RETRY_NS: u64 = 100 * MILLISECOND;
/// The pause before a locked directory is asked for its parent again, in nanoseconds.
const PARENT_RETRY_NS: u64 = 2 * MILLISECOND;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    // ---- Coordinator
    // ---------------------------------------------------------------------------------------------

    /// Tries to carry out a change of names that concerns other servers, once. The record of the
    /// decision carries the answer to the request of this header, if there is one.
    ///
    /// # Errors
    /// [`Status::Conflict`] if another transaction was in the way: try again. Otherwise why it is
    /// impossible.
    pub(crate) async fn transact(self: &Rc<Self>, header: Option<&Header>, change: &NameChange, deadline: Nanos) -> Result<Bytes> {
        let own_server = self.config.serving.server;
        // Nobody knows the directory of partitions elsewhere before it is made.
        let (made, known): (Vec<_>, Vec<_>) = change.parts.iter().cloned().partition(|part| {
            matches!(part.part, TxPart::MakePartition { .. }) && !change.parts.iter().any(|other| makes(other, part.server))
        });
        let all = Stage::of(own_server, &known);
        let last = (!made.is_empty()).then(|| Stage::of(own_server, &made));
        let names_elsewhere = all.remote.iter().any(|(_, parts)| parts.iter().any(is_name));
        let stages: Vec<Stage> = std::iter::once(all.clone()).chain(last.clone()).collect();
        let mut outcome = self.transact_in(&stages, header, change, deadline).await;
        if let Err(aborted) = &outcome
            && names_elsewhere
            && !aborted.why.is_transient()
        {
            // Perhaps an object has refused to which the name led no longer. A refusal counts if it
            // stands while the names are held. What this attempt has locked elsewhere would be in
            // the way of the next one.
            Rc::clone(self).abort(aborted.tx, aborted.participants.clone()).await;
            let stages: Vec<Stage> = all.names_first().into_iter().chain(last).collect();
            outcome = self.transact_in(&stages, header, change, deadline).await;
        }
        outcome.map_err(|aborted| {
            self.rt.spawn(Rc::clone(self).abort(aborted.tx, aborted.participants));
            aborted.why
        })
    }

    /// A transaction whose parts are locked in these stages: those of one stage at the same time.
    async fn transact_in(
        self: &Rc<Self>,
        stages: &[Stage],
        header: Option<&Header>,
        change: &NameChange,
        deadline: Nanos,
    ) -> std::result::Result<Bytes, Aborted> {
        let tx = self.new_tx();
        let time = self.rt.wall();
        let mut own = Prepared { parts: Vec::new(), handles: Vec::new(), time };
        let mut participants = BTreeSet::new();
        assert!(self.transactions.undecided.borrow_mut().insert(tx), "numbers of transactions are used once");
        let agreed = async {
            let mut made = None;
            for stage in stages {
                let mut stage = stage.clone();
                if let Some(made) = made {
                    lead_to_made(stage.parts(), made);
                }
                let handles = self.lock_own_parts(tx, self.asker(header), &stage.own, &change.who)?;
                made = made.or(made_directory(&stage.own, &handles));
                own.handles.extend(handles);
                own.parts.extend(stage.own.iter().cloned());
                self.rt.pass(FaultPoint::TxLock).await;
                participants.extend(stage.remote.iter().map(|(server, _)| *server));
                let handles = self.prepare_remote(self.asker(header), tx, &stage.remote, &change.who, time, deadline).await?;
                made = made.or(stage.remote.iter().zip(&handles).find_map(|((_, parts), handles)| made_directory(parts, handles)));
            }
            self.check_cycles(&change.cycles, deadline).await?;
            Ok(made)
        };
        let agreed = agreed.await;
        let locked = own.parts.clone();
        let result = agreed.and_then(|made| {
            if let Some(made) = made {
                lead_to_made(&mut own.parts, made);
            }
            self.decide(header, tx, &own, participants.iter().copied().collect(), change, made)
        });
        self.state.borrow_mut().unlock_own(tx, &locked);
        self.transactions.undecided.borrow_mut().remove(&tx);
        self.shell.release();
        let participants: Vec<ServerId> = participants.into_iter().collect();
        match result {
            Ok(body) => {
                self.rt.spawn(Rc::clone(self).deliver(tx, participants, self.engine.last()));
                Ok(body)
            }
            Err(why) => Err(Aborted { why, tx, participants }),
        }
    }

    /// Checks and locks parts of this server.
    fn lock_own_parts(&self, tx: TxId, by: ClientId, parts: &[TxPart], who: &Credentials) -> Result<Vec<Handle>> {
        let mut state = self.state.borrow_mut();
        let handles = state.prepare_parts(tx, Some(by), parts, who, Status::Conflict)?;
        state.lock_own(tx, parts, made_directory(parts, &handles));
        Ok(handles)
    }

    /// Makes the decision: one record.
    fn decide(
        &self,
        header: Option<&Header>,
        tx: TxId,
        own: &Prepared,
        participants: Vec<ServerId>,
        change: &NameChange,
        made: Option<Handle>,
    ) -> Result<Bytes> {
        let mut record = Record::default();
        let body = {
            let state = self.state.borrow();
            state.commit_parts(own, &mut record);
            let cx = weft_namespace::RequestContext { now: own.time, ..self.context(self.asker(header)) };
            change.reply.body(&state, &cx, &mut record, made)?
        };
        self.announce(self.asker(header), &record)?;
        record.changes.push(Change::PutDecided { tx, participants });
        match header {
            Some(header) => self.change_and_answer(header, &mut record, &body),
            None => self.change_in_flow(&mut record),
        };
        Ok(body)
    }

    /// Who wants a transaction: a client, or this server itself.
    fn asker(&self, header: Option<&Header>) -> ClientId {
        header.map_or(self.shell.caller.client(), |header| header.request.client)
    }

    #[allow(clippy::too_many_arguments)] // the fields of one request
    async fn prepare_remote(
        &self,
        client: ClientId,
        tx: TxId,
        remote: &[(ServerId, Vec<TxPart>)],
        who: &Credentials,
        time: WallTime,
        deadline: Nanos,
    ) -> Result<Vec<Vec<Handle>>> {
        let ask = |(server, parts): &(ServerId, Vec<TxPart>)| {
            let (server, request) = (*server, TxPrepareRequest { tx, parts: parts.clone(), who: who.clone(), time, client: Some(client) });
            async move { self.shell.caller.call(server, &request, deadline).await }
        };
        let answers = join_all(remote.iter().map(ask)).await;
        let mut handles = Vec::with_capacity(remote.len());
        let mut refusal = None;
        for ((_, parts), answer) in remote.iter().zip(answers) {
            match answer.and_then(|reply| reply.handles) {
                Ok(agreed) if agreed.len() == parts.len() => handles.push(agreed),
                Ok(_) => refusal = Some(Status::BadMessage),
                // What makes the operation impossible tells more than a conflict.
                Err(status) if refusal.is_none_or(Status::is_transient) => refusal = Some(status),
                Err(_) => {}
            }
        }
        refusal.map_or(Ok(handles), Err)
    }

    /// With the move token held: walks from each new parent to the root. Whoever meets the moved
    /// directory on the way would put it below itself.
    async fn check_cycles(&self, cycles: &[CycleCheck], deadline: Nanos) -> Result<()> {
        for cycle in cycles {
            let mut at = cycle.parent;
            loop {
                if at == cycle.moved {
                    return Err(Status::Invalid);
                }
                let parent = self.ask_parent(at, deadline).await?;
                if parent == at {
                    break;
                }
                at = parent;
            }
        }
        Ok(())
    }

    async fn ask_parent(&self, dir: Handle, deadline: Nanos) -> Result<Handle> {
        if dir.server() != self.config.serving.server {
            return Ok(self.shell.caller.call(dir.server(), &ParentRequest { dir }, deadline).await?.parent);
        }
        loop {
            let parent = self.state.borrow().parent(dir);
            let again_at = self.rt.now() + PARENT_RETRY_NS;
            match parent {
                Err(Status::Busy) if again_at < deadline => self.rt.sleep_until(again_at).await,
                result => return result,
            }
        }
    }

    /// Tells the participants of a committed transaction until all have done their part, then
    /// forgets it.
    pub(crate) async fn deliver(self: Rc<Self>, tx: TxId, participants: Vec<ServerId>, decided: Lsn) {
        self.shell.wake();
        if !self.kept(self.engine.make_durable(decided).await) {
            return;
        }
        let this = &self;
        let tell = |server: ServerId| async move {
            let request = TxDecideRequest { tx, commit: true };
            while this.shell.caller.call(server, &request, this.rt.now() + ASK_NS).await.is_err() {
                this.rt.sleep_until(this.rt.now() + DELIVER_RETRY_NS).await;
            }
        };
        join_all(participants.into_iter().map(tell)).await;
        self.change_in_flow(&mut Record { changes: vec![Change::DeleteDecided { tx }], open: None });
    }

    /// Tells those who may have agreed that nothing comes of it. Whoever does not hear it asks.
    async fn abort(self: Rc<Self>, tx: TxId, participants: Vec<ServerId>) {
        let deadline = self.rt.now() + ASK_NS;
        let request = TxDecideRequest { tx, commit: false };
        join_all(participants.into_iter().map(|server| self.shell.caller.call(server, &request, deadline))).await;
    }

    /// Numbers are never used twice, also over restarts, since boots are counted.
    fn new_tx(&self) -> TxId {
        let number = self.transactions.next.get();
        self.transactions.next.set(number + 1);
        TxId { coordinator: self.config.serving.server, number: u64::from(self.shell.identity.boot) << 32 | number }
    }

    /// The answer to a participant in doubt.
    pub(crate) fn tx_status(&self, request: &TxStatusRequest) -> TxStatusReply {
        let committed = if self.state.borrow().is_decided(request.tx) {
            Some(true)
        } else if self.transactions.undecided.borrow().contains(&request.tx) {
            None
        } else {
            Some(false)
        };
        TxStatusReply { committed }
    }

    // ---- Participant
    // ---------------------------------------------------------------------------------------------

    /// Agrees to a part of a transaction, or refuses; borrows first what the user of a new
    /// directory lacks here.
    pub(crate) fn tx_prepare_with_more(self: &Rc<Self>, peer: PeerId, header: &Header, request: TxPrepareRequest) -> Result<Step> {
        let lacking = {
            let state = self.state.borrow();
            let lacks = |charged: &Charged| state.prepared(request.tx).is_none() && state.lacks_allowance(*charged).is_some();
            made_for(&request.parts).find(lacks)
        };
        let Some(charged) = lacking else { return self.tx_prepare(header, request) };
        let (this, header_) = (Rc::clone(self), *header);
        Ok(self.start_flow(peer, header, async move {
            match this.borrow_inodes(charged, this.rt.now() + ASK_NS).await {
                Ok(()) | Err(Status::QuotaExceeded) => {}
                Err(status) => return Err(status),
            }
            match this.tx_prepare(&header_, request)? {
                Step::WhenDurable(body, lsn) => {
                    this.shell.wake();
                    if this.kept(this.engine.make_durable(lsn).await) { Ok(body) } else { Err(Status::Io) }
                }
                Step::Answer(body, _) => Ok(body),
                Step::Later => Err(Status::Busy),
            }
        }))
    }

    /// Agrees to a part of a transaction, or refuses.
    fn tx_prepare(&self, header: &Header, request: TxPrepareRequest) -> Result<Step> {
        let TxPrepareRequest { tx, parts, who, time, client } = request;
        if tx.coordinator == self.shell.identity.server {
            // A coordinator prepares nothing, it decides.
            return Err(Status::BadMessage);
        }
        let mut record = Record::default();
        let handles = {
            let state = self.state.borrow();
            let needs_room = parts.iter().any(|part| matches!(part, TxPart::TakeNames { .. }));
            match state.prepared(tx) {
                Some(prepared) => Ok(prepared.handles.clone()),
                None if needs_room && self.check_room_of(Op::GiveNames).is_err() => Err(Status::NoSpace),
                None => state.prepare_parts(tx, client, &parts, &who, Status::Conflict).inspect(|handles| {
                    let prepared = Prepared { parts, handles: handles.clone(), time };
                    record.changes.push(Change::PutPrepared { tx, prepared });
                }),
            }
        };
        let agreed = handles.is_ok();
        self.announce(client.unwrap_or(header.request.client), &record)?;
        let body = TxPrepareReply { handles }.to_bytes();
        self.change_and_answer(header, &mut record, &body);
        if !agreed {
            return Ok(Step::Answer(body, 0));
        }
        self.transactions.in_doubt.borrow_mut().entry(tx).or_insert(Doubt::Waits { since: self.rt.now() });
        Ok(Step::WhenDurable(body, self.engine.last()))
    }

    /// Does its part, or gives it up.
    pub(crate) fn tx_decide(&self, header: &Header, request: &TxDecideRequest) -> Result<Step> {
        let mut record = self.decided_record(request.tx, request.commit);
        let body = ().to_bytes();
        self.change_and_answer(header, &mut record, &body);
        self.transactions.in_doubt.borrow_mut().remove(&request.tx);
        self.shell.release();
        Ok(Step::WhenDurable(body, self.engine.last()))
    }

    /// Unknown: done before, or never prepared.
    fn decided_record(&self, tx: TxId, commit: bool) -> Record {
        let mut record = Record::default();
        let state = self.state.borrow();
        if let Some(prepared) = state.prepared(tx) {
            if commit {
                state.commit_parts(prepared, &mut record);
            }
            record.changes.push(Change::DeletePrepared { tx });
        }
        record
    }

    /// Asks the coordinators of parts that have waited long for a decision.
    pub(crate) fn resolve_in_doubt(self: &Rc<Self>) {
        let now = self.rt.now();
        for (tx, doubt) in self.transactions.in_doubt.borrow_mut().iter_mut() {
            let asks = match *doubt {
                Doubt::Recovered => true,
                Doubt::Waits { since } => now.since(since) >= IN_DOUBT_NS,
                Doubt::Asks => false,
            };
            if asks {
                *doubt = Doubt::Asks;
                self.rt.spawn(Rc::clone(self).resolve(*tx));
            }
        }
    }

    async fn resolve(self: Rc<Self>, tx: TxId) {
        let answer = self.shell.caller.call(tx.coordinator, &TxStatusRequest { tx }, self.rt.now() + ASK_NS).await;
        if let Ok(TxStatusReply { committed: Some(commit) }) = answer {
            let mut record = self.decided_record(tx, commit);
            self.change_in_flow(&mut record);
            self.transactions.in_doubt.borrow_mut().remove(&tx);
            self.shell.release();
        } else if let Some(doubt) = self.transactions.in_doubt.borrow_mut().get_mut(&tx) {
            *doubt = Doubt::Waits { since: self.rt.now() };
        }
    }
}

/// A transaction that came to nothing, which those who may have agreed must be told.
struct Aborted {
    why: Status,
    tx: TxId,
    participants: Vec<ServerId>,
}

/// Parts that are locked at the same time.
#[derive(Clone)]
struct Stage {
    own: Vec<TxPart>,
    /// By server.
    remote: Vec<(ServerId, Vec<TxPart>)>,
}

impl Stage {
    /// All parts, each list in order.
    fn of(own_server: ServerId, parts: &[ServerPart]) -> Stage {
        let mut by_server: BTreeMap<ServerId, Vec<TxPart>> = BTreeMap::new();
        for ServerPart { server, part } in parts {
            by_server.entry(*server).or_default().push(part.clone());
        }
        let own = by_server.remove(&own_server).unwrap_or_default();
        Stage { own, remote: by_server.into_iter().collect() }
    }

    fn parts(&mut self) -> impl Iterator<Item = &mut TxPart> {
        self.own.iter_mut().chain(self.remote.iter_mut().flat_map(|(_, parts)| parts))
    }

    /// The same parts in two stages: first the names, and what else their servers, which are asked
    /// once, can say about at the same instant.
    fn names_first(self) -> [Stage; 2] {
        let (own_names, own_objects) = self.own.into_iter().partition(is_name);
        let (with_names, others) = self.remote.into_iter().partition(|(_, parts)| parts.iter().any(is_name));
        [Stage { own: own_names, remote: with_names }, Stage { own: own_objects, remote: others }]
    }
}

/// True if the part makes a directory at this server.
fn makes(part: &ServerPart, server: ServerId) -> bool {
    part.server == server && matches!(part.part, TxPart::MakeDirectory { .. })
}

/// True if the part is about a name, not about what it leads to.
fn is_name(part: &TxPart) -> bool {
    matches!(part, TxPart::InsertEntry { .. } | TxPart::RemoveEntry { .. })
}
