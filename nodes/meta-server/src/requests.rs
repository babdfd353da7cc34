//! A request from the batch of a turn to its answer: admission, execution, and what becomes of those that cannot be answered now.

use std::rc::Rc;

use bytes::Bytes;
use weft_base::{Nanos, Result, Status};
use weft_namespace::{Admission, OpenChange, Record};
use weft_rt::{FaultPoint, PeerId, ServerRuntime, Work};
use weft_serving::{Answer, Answers, Parked, Served};
use weft_trace::event::meta_request;
use weft_wire::ops::{CreateReply, FileState, OpenReply};
use weft_wire::{Frame, Header, Op, Request, Rights, Wire};

use crate::engine::{Engine, Room};
use crate::ops::Step;
use crate::server::{Server, flight};

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Executes one request, or starts the flow that does. `parked`: it has waited, and may until then.
    pub(crate) async fn handle(
        self: &Rc<Self>,
        peer: PeerId,
        frame: Frame,
        parked: Option<(Served, Option<Nanos>)>,
        answers: &mut Answers<Self>,
    ) {
        let (shell, header, is_first) = (&self.shell, frame.header, parked.is_none());
        let (mut served, until) = parked.unwrap_or_else(|| (shell.begin(&header, meta_request(header.op)), None));
        match is_first {
            true => served.started(shell.worked_until()),
            false => served.waited(shell.worked_until()),
        }
        self.rt.cpu(Work::Request).await;
        self.rt.pass(FaultPoint::ServerCpu).await;
        if header.op == Op::TxPrepare.code() {
            self.rt.pass(FaultPoint::TxPrepare).await;
        }
        *self.current.borrow_mut() = Some(served);
        let step = self.step(peer, &header, frame.body.clone(), is_first);
        let served = self.current.borrow_mut().take();
        if let Ok(Step::Answer(_, changes)) = &step {
            for _ in 0..*changes {
                self.rt.cpu(Work::Record).await;
            }
        }
        let worked = shell.work_ends();
        // A flow that goes on with the request has taken it.
        let Some(mut served) = served else { return };
        served.worked(worked);
        let (mut served, status) = match step {
            Ok(Step::Answer(body, _)) => {
                return answers.push(Answer { peer, frame: served.reply(&header, Ok(body)), served, until: None });
            }
            Ok(Step::WhenDurable(body, lsn)) => {
                return answers.push(Answer { peer, frame: served.reply(&header, Ok(body)), served, until: Some(lsn) });
            }
            Ok(Step::Later) => return served.forget(),
            Err(status) if may_wait(status) => match shell.park(Parked { peer, frame, served, status, until }) {
                None => return,
                Some(parked) => (parked.served, status),
            },
            Err(status) => (served, status),
        };
        answers.push(Answer { peer, frame: served.reply(&header, Err(status)), served, until: None });
    }

    fn step(self: &Rc<Self>, peer: PeerId, header: &Header, body: Bytes, is_first: bool) -> Result<Step> {
        self.shell.admit(header)?;
        let changes = Op::from_code(header.op).is_some_and(Op::changes);
        if changes {
            let admission = self.state.borrow_mut().admit(header.request, header.finished_below())?;
            if let Admission::Answered(answer) = admission {
                return self.answer_again(header, body, answer);
            }
            if let Some(waiting) = self.in_flight.borrow_mut().get_mut(&flight(header)) {
                // Once for each connection.
                waiting.retain(|(other, _)| *other != peer);
                waiting.push((peer, *header));
                return Ok(Step::Later);
            }
        }
        let request = Request::decode(header.op, body)?;
        if let Some(served) = self.current.borrow_mut().as_mut() {
            self.shell.asked(served, &request, is_first);
        }
        if changes {
            self.check_room(&request)?;
        }
        let result = self.execute(peer, header, request);
        if changes && let Err(status) = &result {
            self.state.borrow_mut().remember(header.request, header.finished_below(), Err(*status));
        }
        result
    }

    /// A repeated request is answered as before. What another server relies on must be durable before it hears of it; a truncation is
    /// answered when the file is cut, a time that was set when the data servers know; and a file that was opened before a restart of this server is open again.
    fn answer_again(&self, header: &Header, body: Bytes, answer: Result<Bytes>) -> Result<Step> {
        let answer = answer?;
        let Some(op) = Op::from_code(header.op) else { return Ok(Step::Answer(answer, 0)) };
        match op {
            Op::TxPrepare | Op::TxDecide => return Ok(Step::WhenDurable(answer, self.engine.last())),
            Op::SetAttr | Op::Open => {
                let handle = match op {
                    Op::SetAttr => FileState::from_bytes(answer.clone())?.attr.handle,
                    _ => OpenReply::from_bytes(answer.clone())?.state.attr.handle,
                };
                if self.state.borrow().is_truncating(handle) || self.telling.borrow().contains_key(&handle) {
                    return Err(Status::Busy);
                }
            }
            _ => {}
        }
        if matches!(op, Op::Create | Op::Open) && self.state.borrow().is_in_grace() {
            self.open_again(header, Request::decode(header.op, body)?, &answer)?;
        }
        Ok(Step::Answer(answer, 0))
    }

    /// The table of open files did not survive the restart, the answer did, and its client could not yet tell what it has open.
    fn open_again(&self, header: &Header, request: Request, answer: &Bytes) -> Result<()> {
        let (handle, rights, sequence) = match request {
            Request::Create(request) => {
                let reply = CreateReply::from_bytes(answer.clone())?;
                let rights = if reply.capability.is_some() { request.open } else { Rights::default() };
                (reply.handle, rights, request.open_sequence)
            }
            Request::Open(request) => (request.handle, request.rights, request.open_sequence),
            _ => return Ok(()),
        };
        let mut state = self.state.borrow_mut();
        if rights != Rights::default() && state.peek(handle).is_some() {
            state.apply_open(OpenChange::Open { client: header.request.client, handle, rights, sequence });
        }
        Ok(())
    }

    /// Before a changing request is executed. Opening and closing write nothing where nobody writes to the file, which shows only when they are
    /// prepared: see [`Server::check_room_for`].
    fn check_room(&self, request: &Request) -> Result<()> {
        match request {
            Request::Open(open) if !open.truncate => Ok(()),
            Request::Close(_) | Request::CloseMany(_) => Ok(()),
            _ => self.check_room_of(request.op()),
        }
    }

    /// When such a request is prepared: is there room for its record?
    pub(crate) fn check_room_for(&self, op: Op, record: &Record) -> Result<()> {
        if record.is_volatile() { Ok(()) } else { self.check_room_of(op) }
    }

    fn check_room_of(&self, op: Op) -> Result<()> {
        let frees =
            matches!(op, Op::Unlink | Op::Rmdir | Op::Close | Op::CloseMany | Op::RemoveXattr | Op::SetAttr | Op::TxPrepare | Op::TxDecide);
        match self.engine.room() {
            Room::Plenty => Ok(()),
            Room::Low if frees => Ok(()),
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
