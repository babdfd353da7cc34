//! For operations and flows: how something changes, and how a request goes on beside the turns.

use std::rc::Rc;

use bytes::Bytes;
use weft_base::{ClientId, Payload, Result};
use weft_journal::Lsn;
use weft_namespace::{Change, OpenChange, Record, RequestContext};
use weft_rt::{PeerId, ServerRuntime};
use weft_serving::{ServedRequest, Service};
use weft_wire::{Frame, Header};

use crate::engine::Engine;
use crate::server::{Kept, Server, requested};
use crate::step::Step;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// The circumstances of a request of this client.
    pub(crate) fn context(&self, client: ClientId) -> RequestContext<'_> {
        RequestContext { client, now: self.rt.wall(), key: &self.config.serving.key, capability_ns: self.config.capability_ns }
    }

    /// Journals and applies a record.
    pub(crate) fn change(&self, record: &mut Record) -> Lsn {
        if let Some(OpenChange::Open { client, rights, .. }) = record.open
            && rights.is_more_than_read()
            && !self.state.borrow().lockers().contains(&client)
        {
            record.changes.push(Change::PutLocker { client });
        }
        if !record.is_volatile() {
            let mut encoded = self.encoded.borrow_mut();
            encoded.clear();
            record.encode(&mut encoded);
            self.engine.append(&encoded);
        }
        self.state.borrow_mut().apply(record);
        self.engine.last()
    }

    /// As [`Server::change`], outside a turn: sees to it that a turn commits it.
    pub(crate) fn change_in_flow(&self, record: &mut Record) -> Lsn {
        let lsn = self.change(record);
        self.shell.wake();
        lsn
    }

    /// Completes the record of a changing request with its answer, journals and applies it.
    pub(crate) fn change_and_answer(&self, header: &Header, record: &mut Record, body: &Bytes) -> Lsn {
        let (request, finished_below) = (header.request, header.finished_below());
        if record.is_volatile() {
            self.state.borrow_mut().remember(request, finished_below, Ok(body.clone()));
        } else {
            record.changes.push(Change::reply(request, finished_below, body.clone()));
        }
        self.change(record)
    }

    /// As [`Server::change_and_answer`] with the last record of a request of many changes: if any
    /// of them, this one or one before, changed something, the journal has the answer.
    pub(crate) fn change_and_answer_many(&self, header: &Header, record: &mut Record, body: &Bytes, has_changed: bool) {
        match has_changed {
            true => {
                record.changes.push(Change::reply(header.request, header.finished_below(), body.clone()));
                self.change(record);
            }
            false => drop(self.change_and_answer(header, record, body)),
        }
    }

    /// Somebody has closed a file: requests that wait for that are looked at again.
    pub(crate) fn closed(&self) {
        if self.shell.has_parked() {
            self.shell.release();
        }
    }

    /// Executes a request in a flow of its own; repetitions of it meanwhile wait for the same
    /// answer.
    pub(crate) fn start_flow(self: &Rc<Self>, peer: PeerId, header: &Header, flow: impl Future<Output = Result<Bytes>> + 'static) -> Step {
        let before = self.in_flight.borrow_mut().insert(requested(header), vec![(peer, *header)]);
        assert!(before.is_none(), "one flow executes a request");
        let (this, header, mut served) = (Rc::clone(self), *header, self.goes_on());
        // Boxed, because each flow that it passes through would have room for it once more.
        let (inside, flow) = (served.context(), Box::pin(flow));
        self.rt.spawn(async move {
            let result = weft_trace::within(inside, flow).await;
            this.flow_ended(&header, served, result).await;
        });
        Step::Later
    }

    /// To be asked before a flow that has waited opens or makes something: its client may have
    /// given the request up and have gone on, and would never close what nobody has told it of.
    ///
    /// # Errors
    /// [`Status::StaleRequest`]: it has.
    pub(crate) fn check_wanted(&self, header: &Header) -> Result<()> {
        self.state.borrow_mut().admit(header.request, header.finished_below()).map(drop)
    }

    /// Answers the request that a flow has executed, and repetitions of it.
    async fn flow_ended(&self, header: &Header, mut served: ServedRequest, result: Result<Bytes>) {
        served.waited(weft_trace::now());
        if let Err(status) = &result {
            self.state.borrow_mut().remember(header.request, header.finished_below(), Err(*status));
        }
        let committed = self.settle().await;
        served.kept(weft_trace::now());
        let waiting = self.in_flight.borrow_mut().remove(&requested(header)).expect("it is in flight until its flow ends");
        if committed {
            let (mut first, reply) = (Some(served), |header| Frame::reply(header, result.clone(), Payload::EMPTY));
            for (peer, header) in &waiting {
                // What is told of the request goes with the first answer; others are for
                // repetitions.
                match first.take() {
                    Some(served) => self.shell.answer(served, *peer, reply(header), self.rt.now()),
                    None => self.shell.reply(*peer, reply(header)),
                }
            }
        }
    }

    /// Answers a question in a flow of its own.
    pub(crate) fn start_question(
        self: &Rc<Self>,
        peer: PeerId,
        header: &Header,
        flow: impl Future<Output = Result<Bytes>> + 'static,
    ) -> Step {
        let flow = Box::pin(flow);
        self.start_question_with_bulk(peer, header, async move { Ok((flow.await?, Payload::EMPTY)) })
    }

    /// The same, with bulk data in the answer.
    pub(crate) fn start_question_with_bulk(
        self: &Rc<Self>,
        peer: PeerId,
        header: &Header,
        flow: impl Future<Output = Result<(Bytes, Payload)>> + 'static,
    ) -> Step {
        let (this, header, mut served) = (Rc::clone(self), *header, self.goes_on());
        let (inside, flow) = (served.context(), Box::pin(flow));
        self.rt.spawn(async move {
            let result = weft_trace::within(inside, flow).await;
            this.question_ended(peer, &header, served, result);
        });
        Step::Later
    }

    fn question_ended(&self, peer: PeerId, header: &Header, mut served: ServedRequest, result: Result<(Bytes, Payload)>) {
        served.waited(weft_trace::now());
        let (result, bulk) = match result {
            Ok((body, bulk)) => (Ok(body), bulk),
            Err(status) => (Err(status), Payload::EMPTY),
        };
        self.shell.answer(served, peer, Frame::reply(header, result, bulk), self.rt.now());
    }

    /// The request that is being executed goes on in a flow.
    fn goes_on(&self) -> ServedRequest {
        let mut served = self.current.borrow_mut().take().expect("a request is executed, and one flow goes on with it");
        served.worked(weft_trace::now());
        self.shell.list(&mut served);
        served
    }

    /// Waits until everything that has been decided so far is committed: an answer may tell it.
    /// False if that failed.
    pub(crate) async fn settle(&self) -> bool {
        self.shell.wake();
        self.kept(self.engine.wait_committed(self.engine.last()).await)
    }

    /// Notes a failure of the journal, which ends the server.
    pub(crate) fn kept(&self, result: Kept) -> bool {
        if let Err(error) = &result {
            self.fail(error.clone().into());
        }
        result.is_ok()
    }
}
