//! Leases at the server (`weft-lease` decides): what clients may believe rides in answers, changes
//! wait for those who might believe something else, and one request for each client waits for what
//! there is to hear.

use std::rc::Rc;

use weft_base::{ClientId, FileKind, Handle, MILLISECOND, Payload, Result, Status};
use weft_journal::Lsn;
use weft_lease::{AskedBack, Notice, Touched};
use weft_namespace::{Change, OpenChange, Record};
use weft_rt::{PeerId, ServerRuntime, Signal, race};
use weft_wire::ops::{LeaseNotice, NoticesReply, NoticesRequest, TxPart};
use weft_wire::{Frame, Header, LeaseScope, Op, Request, Rights, Wire};

use crate::Durability;
use crate::engine::Engine;
use crate::holders::TERM_NS;
use crate::server::Server;
use crate::step::Step;

/// A request for notices is answered after so long if there are none, in nanoseconds.
const QUIET_NS: u64 = TERM_NS / 3;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// A change by this client is about to be made.
    ///
    /// # Errors
    /// [`Status::Busy`] while others may believe that things are as they were: they are told, and
    /// the request is looked at again when they have heard.
    pub(crate) fn announce(&self, by: ClientId, record: &Record) -> Result<()> {
        let mut leases = self.clients.holders.leases.borrow_mut();
        // Who opens or closes a file goes on with what it knows of it.
        let forgets = record.open.is_none();
        if leases.is_idle() || leases.may_change(by, touched(record), forgets, self.rt.now(), |client| self.clients.holders.notify(client))
        {
            return Ok(());
        }
        Err(Status::Busy)
    }

    /// Tells others of a change before it is known what it is exactly; it is announced then.
    ///
    /// # Errors
    /// As [`Server::announce`].
    pub(crate) fn announce_soon(&self, by: ClientId, record: &Record) -> Result<()> {
        let mut leases = self.clients.holders.leases.borrow_mut();
        let notify = |client| self.clients.holders.notify(client);
        let is_heard = leases.is_idle() || leases.may_change_soon(by, touched(record), self.rt.now(), notify);
        if is_heard { Ok(()) } else { Err(Status::Busy) }
    }

    /// The directory under whose lease the answer to a request may be given, if its client keeps
    /// what it is told.
    pub(crate) fn leasable(&self, client: ClientId, request: &Request) -> Option<Handle> {
        let leases = self.clients.holders.leases.borrow();
        if !leases.has(client) {
            return None;
        }
        match request {
            Request::Lookup(_) | Request::Create(_) | Request::Mkdir(_) | Request::Link(_) | Request::ReadDir(_) => Some(request.object()),
            Request::GetAttr(_) | Request::SetAttr(_) => {
                let handle = request.object();
                let is_directory = self.state.borrow().peek(handle)?.kind == FileKind::Directory;
                if is_directory { Some(handle) } else { leases.told_under(handle) }
            }
            _ => None,
        }
    }

    /// How much of the answer to a request about `object`, with this outcome, is given under a
    /// lease on `dir`.
    pub(crate) fn grants(&self, client: ClientId, op: Op, object: Handle, dir: Handle, outcome: &Result<Step>) -> LeaseScope {
        let body = match outcome {
            Ok(Step::Answer(body, _)) => Some(body),
            Err(Status::NotFound) if op == Op::Lookup => None,
            _ => return LeaseScope::Nothing,
        };
        let (state, mut leases, now) = (self.state.borrow(), self.clients.holders.leases.borrow_mut(), self.rt.now());
        if state.known_inode(dir).is_none_or(|inode| inode.nlink == 0) || !state.is_settled(dir) {
            return LeaseScope::Nothing;
        }
        // Its attributes are a sum over servers, and change with every name at any of them.
        if object == dir && matches!(op, Op::GetAttr | Op::SetAttr) && state.is_split(dir) {
            return LeaseScope::Nothing;
        }
        if !leases.grant(client, dir, now) {
            let says_so = op == Op::GetAttr && object == dir && leases.rests(dir, now);
            return if says_so { LeaseScope::Names } else { LeaseScope::Nothing };
        }
        let Some(body) = body else { return LeaseScope::All };
        let (mut names, mut attributes) = (true, true);
        let mut tell = |handle: Handle| {
            // What another server keeps is not told here, only that it has the name.
            let Some(inode) = state.peek(handle) else { return };
            // Nor a sum over servers.
            if state.is_split(handle) {
                names &= inode.nlink > 0;
                return;
            }
            if handle != dir {
                names &= inode.nlink > 0;
                attributes &= state.is_settled(handle) && leases.tell(dir, handle, now);
            }
            if op == Op::Mkdir {
                // Nobody else knows it yet.
                leases.grant(client, handle, now);
            }
        };
        match op {
            Op::GetAttr | Op::SetAttr => tell(object),
            _ => op.each_told(body.clone(), &mut tell).expect("an answer of this server"),
        }
        match (names, attributes) {
            (true, true) => LeaseScope::All,
            (true, false) => LeaseScope::Names,
            (false, _) => LeaseScope::Nothing,
        }
    }

    /// Tells those who append to a file as if they were alone that they are not: `by` wants to
    /// write to it, and waits.
    pub(crate) fn tell_appenders(&self, by: ClientId, file: Handle) {
        let (state, now) = (self.state.borrow(), self.rt.now());
        for client in state.other_appenders(by, file) {
            if self.clients.holders.leases.borrow_mut().tell_appender(client, file, now) {
                self.clients.holders.notify(client);
            }
        }
    }

    /// Who makes or opens a file may delay what it writes to it only if it hears when others ask,
    /// and where an answer does not promise stable storage.
    pub(crate) fn may_delay(&self, client: ClientId) -> bool {
        let is_sync = self.shell.identity.durability.get() == Durability::Sync;
        !is_sync && self.clients.holders.leases.borrow().hears(client, self.rt.now())
    }

    /// Contents that clients keep shall find room when they come.
    pub(crate) fn look_for_delay_room(self: &Rc<Self>) {
        let state = self.state.borrow();
        if !state.has_delay_room() && state.may_grow_contents() {
            self.start_growing();
        }
    }

    /// Asks those back who delay writes to files that others asked for. Who hears nothing delays
    /// them no longer.
    pub(crate) fn ask_back_delayed(&self) {
        let files = self.state.borrow().take_asked_back();
        for (client, file) in files {
            match self.clients.holders.leases.borrow_mut().ask_back(client, file, self.rt.now()) {
                AskedBack::Told => {
                    self.clients.holders.notify(client);
                    continue;
                }
                // Who waits asks again when its session begins, or is over.
                AskedBack::NotYet => continue,
                AskedBack::Never => {}
            }
            let mut record = Record::default();
            self.state.borrow().prepare_end_of_delay(client, file, &mut record);
            self.change_in_flow(&mut record);
            self.shell.release();
        }
        if self.state.borrow().awaits_delayers() && !self.may_claim_delays() {
            let mut record = Record::default();
            self.state.borrow().prepare_end_of_awaited_delays(&mut record);
            self.change_in_flow(&mut record);
            self.shell.release();
        }
    }

    /// True if a client from before a restart that hears notices, or may do so yet, has still to
    /// tell what it has open.
    fn may_claim_delays(&self) -> bool {
        let (sessions, leases) = (self.clients.sessions.borrow(), self.clients.holders.leases.borrow());
        leases.awaits_earlier_holders() || sessions.untold().any(|client| leases.has(*client))
    }

    /// A client that keeps what it is told asks what it must not believe any more.
    pub(crate) fn notices(self: &Rc<Self>, peer: PeerId, header: &Header, request: &NoticesRequest) -> Result<Step> {
        let (client, sequence, now) = (header.request.client, header.request.sequence, self.rt.now());
        if request.leaves {
            if self.clients.holders.leases.borrow_mut().leave(client) {
                self.shell.release();
            }
            if let Some(waiting) = self.clients.holders.waiting.borrow_mut().remove(&client) {
                waiting.notify();
            }
            self.forget_holders([client]);
            self.end_all_delegations(client);
            let nothing = NoticesReply { session: 0, term_ms: 0, newest: 0, notices: Vec::new() };
            return Ok(Step::Answer(nothing.to_bytes(), 0));
        }
        let renewed = self.clients.holders.leases.borrow_mut().renew(client, sequence, request.session, request.heard, now);
        let renewed = renewed.ok_or(Status::StaleRequest)?;
        if renewed.has_released || renewed.is_new {
            self.shell.release();
        }
        let reply = self.notices_for(client, renewed.session);
        if renewed.is_new {
            if !self.state.borrow().holders().contains(&client) {
                self.check_room_of(Op::Notices)?;
            }
            return Ok(Step::WhenDurable(reply.to_bytes(), self.keep_holder(client)));
        }
        if !reply.notices.is_empty() {
            return Ok(Step::Answer(reply.to_bytes(), 0));
        }
        Ok(self.wait_for_notices(peer, header, renewed.session))
    }

    /// Answers when there is something to hear, or soon anyway. This is no work of the server:
    /// neither the latencies nor the list of what waits shall show it.
    fn wait_for_notices(self: &Rc<Self>, peer: PeerId, header: &Header, session: u32) -> Step {
        let (this, header) = (Rc::clone(self), *header);
        let client = header.request.client;
        if let Some(served) = self.current.borrow_mut().take() {
            served.forget();
        }
        // Of one client one request waits: an older one is answered now.
        let signal = Signal::new();
        if let Some(before) = self.clients.holders.waiting.borrow_mut().insert(client, signal.clone()) {
            before.notify();
        }
        // Waits from now on: what comes before the flow begins must not be missed.
        let woken = signal.wait();
        self.rt.spawn(async move {
            let until = this.rt.now() + QUIET_NS;
            race(woken, this.rt.sleep_until(until)).await;
            let body = this.notices_for(client, session).to_bytes();
            this.shell.reply(peer, Frame::reply(&header, Ok(body), Payload::EMPTY));
        });
        Step::Later
    }

    fn notices_for(&self, client: ClientId, session: u32) -> NoticesReply {
        let leases = self.clients.holders.leases.borrow();
        let (newest, notices) = leases.notices(client);
        let notices = notices.into_iter().map(|notice| match notice {
            Notice::Name(dir, name) => LeaseNotice::Name { dir, name },
            Notice::Object(handle) => LeaseNotice::Object { handle },
            Notice::Directory(dir) => LeaseNotice::Directory { dir },
            Notice::Everything => LeaseNotice::Everything {},
            Notice::Append(handle) => LeaseNotice::Append { handle },
            Notice::Delegation(dir) => LeaseNotice::Delegation { dir },
        });
        let term_ms = (leases.term_ns() / MILLISECOND) as u32;
        NoticesReply { session, term_ms, newest, notices: notices.collect() }
    }

    /// Before a client believes anything it stands in the journal: a restart must not forget it.
    fn keep_holder(&self, client: ClientId) -> Lsn {
        if self.state.borrow().holders().contains(&client) {
            return self.engine.last();
        }
        self.change(&mut Record { changes: vec![Change::PutHolder { client }], open: None })
    }

    fn forget_holders(&self, clients: impl IntoIterator<Item = ClientId>) {
        let known = |client: &ClientId| self.state.borrow().holders().contains(client);
        let changes: Vec<Change> = clients.into_iter().filter(known).map(|client| Change::DeleteHolder { client }).collect();
        if !changes.is_empty() {
            self.change_in_flow(&mut Record { changes, open: None });
        }
    }

    /// Ends the sessions of clients that have not asked for long.
    pub(crate) fn expire_leases(&self) {
        let (over, has_released) = self.clients.holders.leases.borrow_mut().expire(self.rt.now());
        // Who waits for writes that one of them delays need not any longer.
        if has_released || !over.is_empty() {
            self.shell.release();
        }
        over.iter().for_each(|client| drop(self.clients.holders.waiting.borrow_mut().remove(client)));
        self.forget_holders(over);
    }
}

/// What a record touches of what clients were told.
fn touched(record: &Record) -> impl Iterator<Item = Touched<'_>> {
    let opened = record.open.and_then(|open| match open {
        // From now on its size and times are known by the data servers only.
        OpenChange::Open { handle, rights, .. } if rights.contains(Rights::WRITE) => Some(Touched::Object(handle)),
        _ => None,
    });
    record.changes.iter().flat_map(of_change).chain(opened)
}

fn of_change(change: &Change) -> impl Iterator<Item = Touched<'_>> {
    let (one, parts): (Option<Touched<'_>>, &[TxPart]) = match change {
        Change::PutInode { handle, .. }
        | Change::DeleteInode { handle }
        | Change::PutXattr { handle, .. }
        | Change::DeleteXattr { handle, .. } => (Some(Touched::Object(*handle)), &[]),
        Change::PutEntry { dir, name, .. } | Change::DeleteEntry { dir, name } => (Some(Touched::Name(*dir, name)), &[]),
        // What was told of the directory may have been told under a lease on it here.
        Change::PutPartition { dir, .. } | Change::DeletePartition { dir } => (Some(Touched::Object(*dir)), &[]),
        // Nobody here will hear of changes of names that are elsewhere.
        Change::GiveNames { dir, .. } => (Some(Touched::Names(*dir)), &[]),
        // Nor of names that its client makes alone.
        Change::PutDelegation { dir, .. } => (Some(Touched::Names(*dir)), &[]),
        Change::PutPrepared { prepared, .. } => (None, &prepared.parts),
        // The times of a directory change with a name in it.
        Change::Touch { .. }
        | Change::TouchPartition { .. }
        | Change::TakeNames { .. }
        | Change::PutTarget { .. }
        | Change::DeletePrepared { .. }
        | Change::PutDecided { .. }
        | Change::DeleteDecided { .. }
        | Change::PutReply { .. }
        | Change::ForgetClient { .. }
        | Change::PutHolder { .. }
        | Change::DeleteHolder { .. }
        | Change::PutLocker { .. }
        | Change::DeleteLocker { .. }
        // With the inode.
        | Change::PutContent { .. }
        | Change::PutLimit { .. }
        | Change::PutLoan { .. }
        | Change::PutByteLimit { .. }
        | Change::PutByteLoan { .. }
        | Change::PutProjectLimit { .. }
        | Change::PutProjectLoan { .. }
        | Change::PutCeiling { .. }
        | Change::DeleteDelegation { .. }
        | Change::PutHandles { .. }
        | Change::PutCounter { .. } => (None, &[]),
    };
    one.into_iter().chain(parts.iter().filter_map(of_part))
}

fn of_part(part: &TxPart) -> Option<Touched<'_>> {
    match part {
        TxPart::InsertEntry { dir, name, .. } | TxPart::RemoveEntry { dir, name, .. } => Some(Touched::Name(*dir, name)),
        TxPart::RemoveDirectory { dir, .. }
        | TxPart::SetParent { dir, .. }
        | TxPart::ChangePartition { dir, .. }
        | TxPart::RemovePartition { dir, .. } => Some(Touched::Object(*dir)),
        TxPart::ChangeLinks { handle, .. } => Some(Touched::Object(*handle)),
        TxPart::GiveNames { dir, .. } => Some(Touched::Names(*dir)),
        // Nobody was told here of names that come, nor of attributes that are told by several.
        TxPart::TakeNames { .. } | TxPart::PutMap { .. } | TxPart::ExpectMap { .. } | TxPart::ExpectProject { .. } => None,
        TxPart::MakeDirectory { .. } | TxPart::InheritHints { .. } | TxPart::MakePartition { .. } | TxPart::MoveToken {} => None,
    }
}
