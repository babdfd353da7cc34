//! Sizes beside a data server that does not answer.
//!
//! The exact size of a file that others are writing is known only to its data servers. Who lists a
//! directory or looks for a name must not wait for one of them that hangs: he gets the size that
//! the metadata server knows, after a short while, and is told so. A server that was waited for in
//! vain is not waited for again for some time, so a thousand such files cost no more than one; once
//! it has answered something it is.

use weft_base::{Attr, Credentials, FileKind, Handle, Layout, MILLISECOND, SECOND, ServerRole, Status};
use weft_rt::Runtime;
use weft_wire::ops::FileState;

use crate::flow::Flow;
use crate::knowledge::Asked;
use crate::{Client, Result, Seen, SetAttr};

/// So long is a data server waited for, in nanoseconds.
const PATIENCE: u64 = 500 * MILLISECOND;
/// So long is one that did not answer not waited for again, in nanoseconds.
const SILENCE: u64 = 5 * SECOND;

impl<R: Runtime> Client<R> {
    /// Like [`Client::getattr`], but waits a short while only for data servers that do not answer;
    /// whoever has the file open waits.
    ///
    /// # Errors
    /// As [`Client::getattr`].
    pub async fn getattr_soon(&self, handle: Handle) -> Result<Seen> {
        let _op = weft_trace::operation(weft_trace::event::CLIENT_GETATTR);
        let flow = self.flow("getattr", handle);
        let is_known = self.inner.knowledge.state(handle, self.rt().now()).is_some();
        if is_known || self.inner.opens.get(handle).is_some() {
            return Ok(Seen { attr: self.getattr_in(flow, handle).await?, is_exact: true });
        }
        let asked = self.asking();
        let state = self.get_state(flow, handle).await?;
        self.asked_for(handle).await;
        match self.settle_at_once(&state, asked) {
            Some(attr) => Ok(Seen { attr, is_exact: true }),
            None => Box::pin(self.settle_soon(flow, state, asked)).await,
        }
    }

    /// Like [`Client::setattr`], but waits a short while only for data servers that do not answer,
    /// unless they have to do with the change: one of a size they have.
    ///
    /// # Errors
    /// As [`Client::setattr`].
    pub async fn setattr_soon(&self, who: &Credentials, handle: Handle, changes: &SetAttr) -> Result<Seen> {
        let _op = weft_trace::operation(weft_trace::event::CLIENT_SETATTR);
        self.setattr_seen(self.flow("setattr", handle), who, handle, changes, true).await
    }

    /// Like `settle_change`, but waits a short while only for data servers that do not answer.
    pub(crate) async fn settle_change_soon(&self, flow: Flow, state: FileState, asked: Asked) -> Result<Seen> {
        let told = state.attr;
        if let Some(attr) = self.settle_at_once(&state, asked) {
            return Ok(Seen { attr, is_exact: true });
        }
        match self.settle_soon(flow, state, asked).await {
            Err(error) if error.status == Status::Stale => Ok(self.seen_last(told)),
            seen => seen,
        }
    }

    /// Like `settle`, but waits a short while only for data servers that do not answer.
    pub(crate) async fn settle_soon(&self, flow: Flow, state: FileState, asked: Asked) -> Result<Seen> {
        let last_known = state.attr;
        if state.ask_data.is_some() && self.has_silent_server(&last_known.layout) {
            return Ok(self.seen_last(last_known));
        }
        let now = self.rt().now();
        let quick = Flow { deadline: flow.deadline.min(now + PATIENCE), ..flow };
        match self.settle(quick, state, asked).await {
            Ok(attr) => Ok(Seen { attr, is_exact: true }),
            Err(error) => match error.server.filter(|server| server.role() == ServerRole::Data && error.status.is_transient()) {
                Some(server) => {
                    self.inner.silent.note(server, self.rt().now() + SILENCE);
                    Ok(self.seen_last(last_known))
                }
                // It was not a data server that kept silent: there is no hurry.
                None if error.status.is_transient() => {
                    let attr = self.getattr_in(flow, flow.handle).await?;
                    Ok(Seen { attr, is_exact: true })
                }
                None => Err(error),
            },
        }
    }

    fn has_silent_server(&self, layout: &Layout) -> bool {
        let now = self.rt().now();
        (0..u32::from(layout.width))
            .any(|index| self.map().data_server(layout, index).is_ok_and(|server| self.inner.silent.is_silent(server, now)))
    }

    /// What the metadata server knows of a file, and what this client has written itself.
    fn seen_last(&self, mut attr: Attr) -> Seen {
        if attr.kind == FileKind::File
            && let Some(inode) = self.inner.opens.get(attr.handle)
        {
            // If even that is unclear, it stays what the server knows.
            let _ = inode.view(&mut attr, u64::MAX);
        }
        Seen { attr, is_exact: false }
    }
}
