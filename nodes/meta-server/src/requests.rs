//! A request from the batch of a turn to its answer: admission, execution, and what becomes of
//! those that cannot be answered now.

use std::rc::Rc;

use bytes::Bytes;
use weft_base::{Nanos, Result, Status};
use weft_namespace::{Admission, OpenChange, Record};
use weft_rt::{PeerId, ServerRuntime};
use weft_serving::{OutgoingReplies, OutgoingReply, Parked, ServedRequest};
use weft_wire::ops::{CreateReply, FileState, OpenReply, Space};
use weft_wire::{Frame, Header, Op, Request, Rights, Wire};

use crate::container::Refused;
use crate::engine::{Engine, Room};
use crate::server::{Server, requested};
use crate::step::Step;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Executes one request, or starts the flow that does, which then has taken what is told about
    /// it. `is_first`: it has not waited.
    pub(crate) fn execute_one(
        self: &Rc<Self>,
        peer: PeerId,
        frame: &Frame,
        mut served: ServedRequest,
        is_first: bool,
    ) -> (Result<Step>, Option<ServedRequest>) {
        match is_first {
            true => served.started(self.shell.worked_until()),
            false => served.waited(self.shell.worked_until()),
        }
        let op = served.op();
        let before = self.current.replace(Some(served));
        assert!(before.is_none(), "one request is executed at a time");
        let step = self.step(peer, &frame.header, op, frame.body.clone(), is_first);
        (step, self.current.take())
    }

    /// What becomes of a request that was executed: it is answered with its turn, waits, or a flow
    /// goes on with it. `until`: it has waited, and may until then.
    pub(crate) fn conclude(
        &self,
        peer: PeerId,
        frame: Frame,
        served: Option<ServedRequest>,
        until: Option<Nanos>,
        step: Result<Step>,
        answers: &mut OutgoingReplies<Self>,
    ) {
        let (worked, header) = (self.shell.work_ends(), frame.header);
        let Some(mut served) = served else { return };
        served.worked(worked);
        let (mut served, result, until) = match step {
            Ok(Step::Answer(body, _)) => (served, Ok(body), None),
            Ok(Step::WhenDurable(body, lsn)) => (served, Ok(body), Some(lsn)),
            Ok(Step::Later) => return served.forget(),
            // It may wait for what this client has open, who hears of the restart by the answer.
            Err(Status::Busy) if self.clients.sessions.borrow().is_untold(header.request.client) => (served, Err(Status::Busy), None),
            Err(status) if may_wait(status) => match self.shell.park(Parked { peer, frame, served, status, until }) {
                None => return,
                Some(parked) => (parked.served, Err(status), None),
            },
            Err(status) => (served, Err(status), None),
        };
        answers.push(OutgoingReply { peer, frame: served.reply(&header, result), served, until });
    }

    fn step(self: &Rc<Self>, peer: PeerId, header: &Header, op: Option<Op>, body: Bytes, is_first: bool) -> Result<Step> {
        let op = self.shell.admit(peer, header, op)?;
        let changes = op.changes();
        if changes {
            let admission = self.state.borrow_mut().admit(header.request, header.finished_below())?;
            if let Admission::Answered(answer) = admission {
                return self.answer_again(header, op, body, answer);
            }
            if let Some(waiting) = self.in_flight.borrow_mut().get_mut(&requested(header)) {
                // Once for each connection.
                waiting.retain(|(other, _)| *other != peer);
                waiting.push((peer, *header));
                return Ok(Step::Later);
            }
        }
        let held = |handle| {
            let state = self.state.borrow();
            let has = state.opened_by(header.request.client, handle).map_or(Rights::default(), |(rights, _)| rights);
            // After a restart of this server, files that somebody was writing to: this client may
            // have been the one.
            let may_have_had = op == Op::Reclaim && state.is_in_grace() && state.has_lost_writers(handle);
            let may_lock = matches!(op, Op::Lock | Op::LockTest) && state.is_in_grace();
            let has = match (may_have_had, may_lock) {
                (true, _) => has.with(Rights::WRITE),
                (_, true) => has.with(Rights::READ),
                _ => has,
            };
            (has, state.peek(handle).map(|inode| inode.uid))
        };
        let mut request = self.shell.decode(peer, op, body, held)?;
        if let Some(served) = self.current.borrow_mut().as_mut() {
            self.shell.asked(served, &request, is_first);
        }
        if is_first {
            self.background.demand.saw(header.request.client, &request);
        }
        if changes {
            self.check_room(&request)?;
        }
        let (client, object) = (header.request.client, request.object());
        let leasable = self.leasable(client, &request);
        self.clients.holders.asks_in(client, object);
        match &mut request {
            Request::Create(create) => {
                let delays = create.can_delay == Some(true) && self.may_delay(client);
                create.can_delay = delays.then_some(true);
                if delays && self.state.borrow().inline_limit(create.at.dir) > 0 {
                    self.look_for_delay_room();
                }
                create.can_hold = create.can_hold.filter(|_| self.may_hold(client, create.at.dir));
            }
            Request::Mkdir(mkdir) => {
                mkdir.can_delay = mkdir.can_delay.filter(|_| self.may_delay(client));
                mkdir.can_hold = mkdir.can_hold.filter(|_| self.may_hold(client, mkdir.at.dir));
            }
            Request::Unlink(unlink) => {
                unlink.can_delay = unlink.can_delay.filter(|_| self.may_delay(client));
                unlink.can_hold = unlink.can_hold.filter(|_| self.may_hold(client, unlink.at.dir));
            }
            Request::Open(open) if open.can_delay == Some(true) && !self.may_delay(client) => open.can_delay = None,
            _ => {}
        }
        let hint = match &request {
            Request::SetXattr(request) if self.config.warn.is_some() => Some(request.clone()),
            _ => None,
        };
        let refused = Refused::of(&request);
        let mut result = self.check_delegated(client, &request).and_then(|()| self.execute(peer, header, request));
        if let (Err(Status::Busy), Some(refused)) = (&result, refused)
            && let Err(status) = self.refused_for_contents(&refused)
        {
            result = Err(status);
        }
        if let (Some(hint), Some(warn), Err(Status::Invalid)) = (hint, self.config.warn, &result)
            && let Some(why) = self.state.borrow().why_no_hint(&hint)
        {
            // The error that a program sees says less.
            warn(&self.config.serving.name, &format!("uid {}: {why}", hint.who.uid));
        }
        if let Some(dir) = leasable {
            let leased = self.grants(client, op, object, dir, &result);
            if let Some(served) = self.current.borrow_mut().as_mut() {
                served.leased(leased);
            }
        }
        // Who makes a file finds out by its handle.
        if let (Err(Status::SharedAppend), Op::Open | Op::SetAttr) = (&result, op) {
            self.tell_appenders(client, object);
        }
        self.ask_back_delayed();
        self.ask_back_directories();
        if changes && let Err(status) = &result {
            self.state.borrow_mut().remember(header.request, header.finished_below(), Err(*status));
        }
        result
    }

    /// A repeated request is answered as before. What another server relies on must be durable
    /// before it hears of it; a truncation is answered when the file is cut, a time that was set
    /// when the data servers know; and a file that was opened before a restart of this server is
    /// open again.
    fn answer_again(&self, header: &Header, op: Op, body: Bytes, answer: Result<Bytes>) -> Result<Step> {
        if let Some(served) = self.current.borrow_mut().as_mut() {
            served.repeated();
        }
        let answer = answer?;
        match op {
            Op::TxPrepare | Op::TxDecide => return Ok(Step::WhenDurable(answer, self.engine.last())),
            Op::SetAttr | Op::Open => {
                let handle = match op {
                    Op::SetAttr => FileState::from_bytes(answer.clone())?.attr.handle,
                    _ => OpenReply::from_bytes(answer.clone())?.state.attr.handle,
                };
                if self.state.borrow().is_truncating(handle) || self.background.telling.borrow().contains_key(&handle) {
                    return Err(Status::Busy);
                }
            }
            _ => {}
        }
        // Who has told has told of it as well, or has closed it: then this is a late copy.
        if matches!(op, Op::Create | Op::Open) && self.clients.sessions.borrow().is_untold(header.request.client) {
            self.open_again(header, Request::of(op, body)?, &answer)?;
        }
        // An open may have cut what was here (`ops/truncate.rs`).
        Ok(if op == Op::Open { Step::WhenDurable(answer, self.engine.last()) } else { Step::Answer(answer, 0) })
    }

    /// The table of open files did not survive the restart, the answer did, and its client could
    /// not yet tell what it has open.
    fn open_again(&self, header: &Header, request: Request, answer: &Bytes) -> Result<()> {
        let (handle, rights, sequence) = match request {
            Request::Create(request) => {
                let reply = CreateReply::from_bytes(answer.clone())?;
                let delays = if reply.delay_bytes.is_some() { Rights::DELAY } else { Rights::default() };
                let rights = if reply.capability.is_some() { request.open.with(delays) } else { Rights::default() };
                (reply.handle, rights, request.open_sequence)
            }
            Request::Open(request) => {
                let delays = OpenReply::from_bytes(answer.clone())?.delay.map_or(Rights::default(), |_| Rights::DELAY);
                (request.handle, request.rights.with(delays), request.open_sequence)
            }
            _ => return Ok(()),
        };
        let mut state = self.state.borrow_mut();
        if rights != Rights::default() && state.peek(handle).is_some() {
            state.apply_open(OpenChange::Open { client: header.request.client, handle, rights, sequence });
        }
        Ok(())
    }

    /// Before a changing request is executed. Opening and closing write nothing where nobody writes
    /// to the file, which shows only when they are prepared: see [`Server::check_room_for`].
    fn check_room(&self, request: &Request) -> Result<()> {
        match request {
            Request::Open(open) if !open.truncate => Ok(()),
            Request::Split(split) if split.servers == 0 => Ok(()),
            Request::Close(_) | Request::CloseMany(_) | Request::Lock(_) | Request::Unlock(_) => Ok(()),
            _ => self.check_room_of(request.op()),
        }
    }

    /// When such a request is prepared: is there room for its record?
    pub(crate) fn check_room_for(&self, op: Op, record: &Record) -> Result<()> {
        if record.is_volatile() { Ok(()) } else { self.check_room_of(op) }
    }

    pub(crate) fn check_room_of(&self, op: Op) -> Result<()> {
        match self.engine.room() {
            Room::Plenty => Ok(()),
            Room::Low if op.space() == Space::Freed => Ok(()),
            // The coordinator must go on asking.
            _ if op == Op::TxDecide => Err(Status::Overloaded),
            _ => Err(Status::NoSpace),
        }
    }
}

/// Refusals of which the reason may be gone soon.
fn may_wait(status: Status) -> bool {
    matches!(status, Status::Busy | Status::SharedAppend)
}
