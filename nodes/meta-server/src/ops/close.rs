//! Close: nearly always one record; if a truncation came between the writes and the report, the
//! data servers are asked first.

use std::rc::Rc;

use weft_base::{Result, Status};
use weft_namespace::{ClosePlan, Record};
use weft_rt::{PeerId, ServerRuntime};
use weft_wire::ops::{CLOSES_MAX, CloseManyReply, CloseManyRequest, CloseRequest, DELAYED_BYTES_MAX, Written};
use weft_wire::{Header, Op, Rights, Wire};

use crate::engine::{Engine, Room};
use crate::server::Server;
use crate::step::Step;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    pub(crate) fn close(self: &Rc<Self>, peer: PeerId, header: &Header, request: CloseRequest) -> Result<Step> {
        if !self.leaves_holes(header, &request)
            && let Some(step) = self.try_close(header, &request)?
        {
            return Ok(step);
        }
        let (this, answered) = (Rc::clone(self), *header);
        Ok(self.start_flow(peer, header, async move {
            this.settle_size(request.handle).await?;
            // The size is the data servers' word now. The time that they keep may be an older one:
            // they may have restarted since they told the writer of it.
            let truncate_epoch = this.state.borrow().inode(request.handle)?.truncate_epoch;
            let written = request.written.map(|written| Written { end_bytes: 0, truncate_epoch, ..written });
            match this.try_close(&answered, &CloseRequest { written, ..request })? {
                Some(Step::Answer(body, _)) => Ok(body),
                _ => Err(Status::Busy),
            }
        }))
    }

    /// Many closes in one turn. Each has its record, and the last record has the answer; one frame
    /// of the journal takes them all. What is not possible within the turn is answered "busy", for
    /// the client to ask for alone.
    pub(crate) fn close_many(self: &Rc<Self>, header: &Header, request: &CloseManyRequest) -> Result<Step> {
        let contents = request.contents.as_deref().unwrap_or_default();
        let attributes = request.attributes.as_deref().unwrap_or_default();
        let bytes: usize = contents.iter().map(|delayed| delayed.content.len()).sum();
        if [request.closes.len(), contents.len(), attributes.len()].iter().any(|count| *count > CLOSES_MAX) || bytes > DELAYED_BYTES_MAX {
            return Err(Status::TooBig);
        }
        let cx = self.context(header.request.client);
        let mut outcomes = Vec::with_capacity(request.closes.len());
        // Alone it may wait until others have heard.
        let mut may_wait = !contents.is_empty();
        let mut changes = 0;
        let mut read = Vec::new();
        for (index, close) in request.closes.iter().enumerate() {
            let is_named = request.read.as_ref().is_some_and(|read| read.iter().take(CLOSES_MAX).any(|at| usize::from(*at) == index));
            let is_read = is_named && self.has_open_for_reading(header, close);
            let mut record = Record::default();
            let delayed = contents.iter().find(|delayed| usize::from(delayed.number) == index);
            let attributes = attributes.iter().find(|attributes| usize::from(attributes.number) == index);
            let mut was_alone = false;
            let plan = match delayed {
                Some(delayed) => {
                    let done = self.state.borrow().prepare_delayed_close(&cx, close, &delayed.content, attributes, &mut record);
                    done.map(|alone| {
                        was_alone = alone;
                        ClosePlan::Done
                    })
                }
                None if self.leaves_holes(header, close) => Ok(ClosePlan::AskData),
                None => self.state.borrow().prepare_close(&cx, close, attributes, &mut record),
            };
            outcomes.push(match plan {
                Ok(ClosePlan::Done) => self.may_close(header, Op::CloseMany, &record).inspect_err(|_| may_wait = true).map(|()| {
                    changes += record.changes.len();
                    self.change(&mut record);
                    if was_alone {
                        self.state.borrow_mut().closed_by_its_only_writer(close.handle);
                    }
                    self.closed_by(header.request.client, close.handle);
                    read.extend(is_read.then_some(close.handle));
                }),
                Ok(ClosePlan::AskData) => Err(Status::Busy),
                Err(status) => {
                    if delayed.is_some() && status == Status::Busy {
                        self.look_for_delay_room();
                    }
                    Err(status)
                }
            });
        }
        if may_wait && matches!(outcomes[..], [Err(Status::Busy)]) {
            return Err(Status::Busy);
        }
        self.closed();
        let body = CloseManyReply { outcomes }.to_bytes();
        let mut record = Record::default();
        // Beside an answer, where a watcher takes it for no change. No lease is in its way: who was
        // told another time of access may believe it.
        if !read.is_empty() && self.engine.room() == Room::Plenty {
            read.into_iter().for_each(|handle| self.state.borrow().prepare_read(&cx, handle, &mut record));
        }
        changes += record.changes.len();
        self.change_and_answer_many(header, &mut record, &body, changes > 0);
        Ok(Step::Answer(body, changes))
    }

    fn has_open_for_reading(&self, header: &Header, request: &CloseRequest) -> bool {
        let opened = self.state.borrow().opened_by(header.request.client, request.handle);
        opened.is_some_and(|(rights, _)| rights.contains(Rights::READ))
    }

    fn leaves_holes(&self, header: &Header, request: &CloseRequest) -> bool {
        self.state.borrow().leaves_holes(&self.context(header.request.client), request)
    }

    fn may_close(&self, header: &Header, op: Op, record: &Record) -> Result<()> {
        self.check_room_for(op, record)?;
        self.announce(header.request.client, record)
    }

    /// `None` if the data servers must be asked.
    fn try_close(&self, header: &Header, request: &CloseRequest) -> Result<Option<Step>> {
        let mut record = Record::default();
        let plan = self.state.borrow().prepare_close(&self.context(header.request.client), request, None, &mut record)?;
        if plan == ClosePlan::AskData {
            return Ok(None);
        }
        self.may_close(header, Op::Close, &record)?;
        let body = ().to_bytes();
        let changes = record.changes.len();
        self.change_and_answer(header, &mut record, &body);
        self.closed_by(header.request.client, request.handle);
        self.closed();
        Ok(Some(Step::Answer(body, changes)))
    }
}
