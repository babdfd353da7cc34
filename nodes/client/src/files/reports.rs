//! Telling the server of an inode what of its file is open here, and what was written.

use bytes::Bytes;
use weft_base::Status;
use weft_rt::Runtime;
use weft_wire::Rights;
use weft_wire::ops::CloseRequest;

use super::kept::KeptAttributes;
use super::noted::NotedRights;
use super::open_inode::{OpenInode, State};
use crate::flow::Flow;
use crate::knowledge::{Effect, Touched};
use crate::{Client, Error, Result};

/// How often a report is begun anew because what was delayed had to go elsewhere.
const REPORT_TRIES: usize = 4;

/// A message to the server on what is open and written.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) request: CloseRequest,
    pub(super) delayed: Option<DelayedReport>,
    pub(super) held_before: NotedRights,
}

/// What goes with a report of what was delayed of a file.
#[derive(Debug)]
pub(super) struct DelayedReport {
    /// All that is in the file, for the server of its inode; `None`: data servers have it.
    pub(super) content: Option<Bytes>,
    pub(super) attributes: Option<KeptAttributes>,
}

impl Report {
    /// All that is in the file, for the server of its inode.
    pub(super) fn content(&self) -> Option<&Bytes> {
        self.delayed.as_ref()?.content.as_ref()
    }

    /// Attributes that go with it.
    pub(super) fn attributes(&self) -> Option<KeptAttributes> {
        self.delayed.as_ref()?.attributes
    }

    /// True if its server does all of it or nothing.
    pub(super) fn is_all_or_nothing(&self) -> bool {
        self.content().is_some() || self.attributes().is_some()
    }

    /// True if attributes change with it.
    pub(super) fn changes_attributes(&self) -> bool {
        self.request.written.is_some() || self.attributes().is_some() || self.content().is_some_and(|content| !content.is_empty())
    }
}

impl State {
    /// What this report gave back the server may have noted still, or not.
    pub(super) fn gave_in_vain(&mut self, report: &Report) {
        // What is kept here goes with a later close, by this right.
        let stays = if self.delayed.needs_right() { Rights::DELAY } else { Rights::default() };
        self.held.granted(report.held_before.noted().and(stays));
        self.held.given_in_vain(report.held_before);
    }
}

impl OpenInode {
    /// The server may have noted these rights still, if an open after this one was granted. True if
    /// so.
    pub(super) fn may_hold_after(&self, sequence: u64, rights: Rights) -> bool {
        let mut state = self.lock();
        let is_later = state.open_sequence > sequence;
        if is_later {
            state.held.may_be_noted(rights);
        }
        is_later
    }
}

impl<R: Runtime> Client<R> {
    /// Tells the server what is open and written, if it does not know. What is delayed goes with
    /// it, or to data servers first.
    pub(crate) async fn report(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        let mut lost = Ok(());
        for _ in 0..REPORT_TRIES {
            match self.stop_delaying_to_report(flow, inode).await {
                Err(error) if inode.is_delayed() => return Err(error),
                outcome => lost = lost.and(outcome),
            }
            let outcome = {
                let _passage = self.enter(inode).await;
                self.report_inside(flow, inode).await
            };
            match outcome {
                _ if inode.must_leave() => {}
                // A close that takes attributes along waits for nobody, one without does.
                Err(error) if error.status == Status::Busy => self.send_attributes(flow, inode).await?,
                Err(error) if error.status == Status::CapabilityRefused => lost = Err(Error { status: Status::WritesLost, ..error }),
                outcome => return outcome.and(lost),
            }
        }
        Err(flow.error(Status::Busy))
    }

    async fn stop_delaying_to_report(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        match inode.must_leave() {
            // Attributes follow with the close.
            true if inode.leaves_now() => self.bring_what_is_here(flow, inode).await,
            true => self.stop_delaying(flow, inode).await,
            false => Ok(()),
        }
    }

    /// [`Client::report`] for a caller inside the gate of the file.
    async fn report_inside(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        for _ in 1..REPORT_TRIES {
            if !self.report_once(flow, inode).await? {
                return Ok(());
            }
        }
        self.report_once(flow, inode).await.map(drop)
    }

    /// True if it is to be done once more.
    async fn report_once(&self, flow: Flow, inode: &OpenInode) -> Result<bool> {
        let server = self.owner(flow, inode.handle).await?;
        let Some(report) = self.inner.opens.begin_report(inode) else {
            self.inner.opens.remove_if_idle(inode);
            return Ok(false);
        };
        let change = report.changes_attributes().then(|| self.changing(Touched::Object(inode.handle)));
        let outcome = match report.is_all_or_nothing() {
            true => self.close_delayed(flow, server, &report).await,
            false => self.call(flow, server, &report.request).await,
        };
        if let (Some(change), Ok(())) = (change, &outcome) {
            change.done(Effect::Object);
        }
        let status = outcome.as_ref().map(drop).map_err(|error| error.status);
        let was_closed = self.was_closed_before(inode, status);
        let is_overtaken = self.inner.opens.end_report(inode, &report, status);
        if was_closed { Ok(true) } else { outcome.map(|()| is_overtaken) }
    }
}
