//! Many closes at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use weft_base::{Handle, SECOND, ServerId, Status};
use weft_call::run_window;
use weft_rt::Runtime;
use weft_wire::Rights;
use weft_wire::ops::{CLOSES_MAX, CloseManyReply, CloseManyRequest, CloseRequest, DELAYED_BYTES_MAX, DelayedAttributes, DelayedContent};

use super::reports::Report;
use crate::flow::Flow;
use crate::gate::Passage;
use crate::knowledge::{Changing, Effect, Led, Touched};
use crate::{Client, Error, OpenFile, Result};

/// What must go to data servers first may take so long, in nanoseconds; then it is tried again by
/// [`Client::keep_alive`].
const LEAVE_NS: u64 = SECOND;
/// The same of all files that are closed together.
const ALL_LEAVE_NS: u64 = 3 * SECOND;

/// A file to be closed together with others; nobody else sends anything about it meanwhile.
struct Closing<'a> {
    /// Which of the caller's files it is.
    index: usize,
    file: &'a OpenFile,
    report: Report,
    change: Option<Changing<'a>>,
    is_read: bool,
    _passage: Passage<'a>,
}

impl<R: Runtime> Client<R> {
    /// Gives many open files back, each server told with one request for up to 128 of its files.
    /// One result for each file, in their order; what they mean, and what becomes of a file whose
    /// server did not hear of it, is as for [`Client::close`].
    pub async fn close_many(&self, files: &[Arc<OpenFile>]) -> Vec<Result<()>> {
        let mut results = vec![Ok(()); files.len()];
        files.iter().for_each(|file| file.release());
        let (leave, rest): (Vec<usize>, Vec<usize>) = (0..files.len()).partition(|index| files[*index].inode().leaves_now());
        // Nobody waits for data servers of other files.
        self.close_released(files, rest, &mut results).await;
        let soon = self.for_at_most(ALL_LEAVE_NS);
        let brought = soon.bring_closed(leave.iter().map(|index| &files[*index]), LEAVE_NS).await;
        let mut closes = Vec::new();
        for (index, outcome) in leave.into_iter().zip(brought) {
            match outcome {
                // It stays here and owed, for [`Client::keep_alive`].
                Err(error) if files[index].inode().must_leave() => results[index] = Err(error),
                _ => closes.push(index),
            }
        }
        self.close_released(files, closes, &mut results).await;
        results
    }

    /// Closes those of the files at these places, which are given back already.
    async fn close_released(&self, files: &[Arc<OpenFile>], which: Vec<usize>, results: &mut [Result<()>]) {
        let mut alone = Vec::new();
        let mut together: BTreeMap<ServerId, Vec<Closing<'_>>> = BTreeMap::new();
        for index in which {
            let file = &files[index];
            let inode = file.inode();
            if !inode.has_surplus() {
                self.inner.opens.remove_if_idle(inode);
                continue;
            }
            if inode.must_leave() {
                alone.push(index);
                continue;
            }
            // No gate is waited for while others are held, so nobody waits in a circle.
            let Some(passage) = inode.gate.try_enter() else {
                alone.push(index);
                continue;
            };
            match self.inner.opens.begin_report(inode) {
                Some(report) => {
                    let is_read = inode.is_read.swap(false, Ordering::Relaxed);
                    let change = (is_read || report.changes_attributes()).then(|| self.changing(Touched::Object(inode.handle)));
                    let closing = Closing { index, file, report, change, is_read, _passage: passage };
                    together.entry(inode.handle.server()).or_default().push(closing);
                }
                None if inode.must_leave() => alone.push(index),
                None => self.inner.opens.remove_if_idle(inode),
            }
        }
        let mut requests = Vec::new();
        for (server, mut group) in together {
            while !group.is_empty() {
                let rest = group.split_off(closes_of_a_message(&group));
                requests.push(self.close_together(server, std::mem::replace(&mut group, rest)));
            }
        }
        for (index, outcome) in run_window(requests, self.options().window).await.into_iter().flatten() {
            match outcome {
                Err(error) if error.status == Status::Busy || files[index].inode().must_leave() => alone.push(index),
                // What is lost is closed all the same.
                Err(error) if error.status == Status::CapabilityRefused => {
                    let closed = Box::pin(self.close(files[index].clone())).await;
                    results[index] = closed.and(Err(Error { status: Status::WritesLost, ..error }));
                }
                Ok(true) => alone.push(index),
                outcome => results[index] = outcome.map(drop),
            }
        }
        let soon = self.for_at_most(ALL_LEAVE_NS);
        let close = async |index: usize| {
            // A data server that does not answer holds up no other close for long.
            let leaves = files[index].inode().must_leave();
            let client = if leaves { soon.for_at_most(LEAVE_NS) } else { self.clone() };
            client.close(files[index].clone()).await
        };
        let rest = run_window(alone.iter().map(|index| close(*index)), self.options().window).await;
        alone.into_iter().zip(rest).for_each(|(index, result)| results[index] = result);
    }

    /// One result for each; true if it is to be closed once more.
    async fn close_together(&self, server: ServerId, group: Vec<Closing<'_>>) -> Vec<(usize, Result<bool>)> {
        let flow = self.flow("close", group.first().map_or(Handle(0), |closing| closing.file.handle()));
        // Fewer than 256 go with one request.
        let read: Vec<u8> = (0u8..).zip(&group).filter_map(|(position, closing)| closing.is_read.then_some(position)).collect();
        let read = (!read.is_empty()).then(|| read.into());
        let content = |(number, closing): (u8, &Closing<'_>)| {
            closing.report.content().map(|content| DelayedContent { number, content: content.clone() })
        };
        let contents: Vec<DelayedContent> = (0u8..).zip(&group).filter_map(content).collect();
        let contents = (!contents.is_empty()).then_some(contents);
        let attributes = |(number, closing): (u8, &Closing<'_>)| closing.report.attributes().map(|attributes| attributes.on_wire(number));
        let attributes: Vec<DelayedAttributes> = (0u8..).zip(&group).filter_map(attributes).collect();
        let attributes = (!attributes.is_empty()).then_some(attributes);
        let request =
            CloseManyRequest { contents, read, attributes, closes: group.iter().map(|closing| closing.report.request.clone()).collect() };
        let outcomes = match self.send_closes(flow, server, &request).await {
            Ok(reply) if reply.outcomes.len() == group.len() => reply.outcomes,
            Ok(_) => vec![Err(Status::BadMessage); group.len()],
            Err(error) => vec![Err(error.status); group.len()],
        };
        let ended = group.into_iter().zip(outcomes).map(|(closing, outcome)| {
            let Closing { index, file, report, change, is_read, _passage } = closing;
            if is_read && outcome.is_err_and(Status::is_transient) {
                file.note_read();
            }
            let flow = Flow { handle: file.handle(), ..flow };
            if let (Some(change), Ok(())) = (change, &outcome) {
                change.done(Effect::Object);
            }
            let was_closed = self.was_closed_before(file.inode(), outcome);
            let is_overtaken = self.inner.opens.end_report(file.inode(), &report, outcome);
            let told = if was_closed { Ok(true) } else { outcome.map(|()| is_overtaken) };
            (index, told.map_err(|status| flow.error_at(status, server)))
        });
        ended.collect()
    }

    /// Closed files of which something is with this client only, as servers have not taken it yet.
    pub fn files_left(&self) -> usize {
        self.inner.opens.count(|inode| inode.is_delayed() && inode.is_closed())
    }

    /// Closed files of which something is here, or open at a server still. To be asked by who has
    /// closed all.
    pub fn closes_left(&self) -> usize {
        self.inner.opens.count(|inode| inode.has_surplus() || inode.is_delayed() && inode.is_closed())
    }

    /// A file that is closed is about to take the place of another one: what is here of it is at
    /// servers first, so that a client that dies leaves the old content there or the new one. If
    /// they do not take it soon, it goes on as without that.
    pub(crate) async fn close_to_replace(&self, from: (Handle, &Bytes), to: (Handle, &Bytes)) {
        let (knowledge, now) = (&self.inner.knowledge, self.rt().now());
        let Some(Led::To(handle, ..)) = knowledge.name(from.0, from.1, now) else { return };
        let Some(inode) = self.inner.opens.get(handle).filter(|inode| inode.is_delayed() && inode.is_closed()) else { return };
        if knowledge.has_no_name(to.0, to.1, now).is_none() {
            let client = self.for_at_most(LEAVE_NS);
            let _ = client.report(client.flow("close", handle), &inode).await;
        }
    }

    /// The right to delay came with an open that was overtaken. A server that has restarted since
    /// does not know who has it, and would tell nobody of the file, not even this client, until it
    /// has waited for all clients. The file stays open for the rest, of this open and of others:
    /// somebody may have removed it.
    pub(super) async fn give_up_delaying(&self, flow: Flow, handle: Handle, open_sequence: u64) {
        let keeps = Rights::OF_CLIENTS.without(Rights::DELAY);
        // What it says otherwise, it says again to the open that follows.
        let _ = self.call(flow, handle.server(), &CloseRequest { handle, open_sequence, keeps, written: None }).await;
    }

    /// A report with all that is in the file, or its attributes.
    pub(super) async fn close_delayed(&self, flow: Flow, server: ServerId, report: &Report) -> Result<()> {
        let contents = report.content().map(|content| vec![DelayedContent { number: 0, content: content.clone() }]);
        let attributes = report.attributes().map(|attributes| vec![attributes.on_wire(0)]);
        let request = CloseManyRequest { contents, read: None, attributes, closes: vec![report.request.clone()] };
        let outcome = self.send_closes(flow, server, &request).await?.outcomes.pop().unwrap_or(Err(Status::BadMessage));
        outcome.map_err(|status| flow.error_at(status, server))
    }

    /// Their server hears of new files first, if these are among them: others may wait.
    async fn send_closes(&self, flow: Flow, server: ServerId, request: &CloseManyRequest) -> Result<CloseManyReply> {
        self.tell_of_closed(flow, server, request.closes.iter().map(|close| close.handle)).await?;
        self.call(flow, server, request).await
    }
}

/// How many of them, from the first on, go with one message.
fn closes_of_a_message(group: &[Closing<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |closing: &&Closing<'_>| {
        bytes += closing.report.content().map_or(0, |content| content.len());
        bytes <= DELAYED_BYTES_MAX
    };
    group.iter().take(CLOSES_MAX).take_while(fits).count()
}
