//! Close: nearly always one record; if a truncation came between the writes and the report, the data servers are asked first.

use std::rc::Rc;

use weft_base::{Result, Status};
use weft_namespace::{ClosePlan, Record};
use weft_rt::{PeerId, ServerRuntime};
use weft_wire::ops::CloseRequest;
use weft_wire::{Header, Wire};

use super::Step;
use crate::engine::Engine;
use crate::server::Server;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    pub(crate) fn close(self: &Rc<Self>, peer: PeerId, header: &Header, request: CloseRequest) -> Result<Step> {
        if let Some(step) = self.try_close(header, &request)? {
            return Ok(step);
        }
        let (this, answered) = (Rc::clone(self), *header);
        Ok(self.start_flow(peer, header, async move {
            this.settle_size(request.handle).await?;
            let unwritten = CloseRequest { written: None, ..request };
            match this.try_close(&answered, &unwritten)? {
                Some(Step::Answer(body, _)) => Ok(body),
                _ => Err(Status::Busy),
            }
        }))
    }

    /// `None` if the data servers must be asked.
    fn try_close(&self, header: &Header, request: &CloseRequest) -> Result<Option<Step>> {
        let mut record = Record::default();
        let plan = self.state.borrow().prepare_close(&self.context(header.request.client), request, &mut record)?;
        if plan == ClosePlan::AskData {
            return Ok(None);
        }
        let body = ().to_bytes();
        let changes = record.changes.len();
        self.change_and_answer(header, &mut record, &body);
        Ok(Some(Step::Answer(body, changes)))
    }
}
