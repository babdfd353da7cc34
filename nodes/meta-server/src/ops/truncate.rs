//! SetAttr and Open, with the truncation that both may ask for.
//!
//! ```text
//! asked ──▶ announced: one record with the new size, the flag TRUNCATING and the answer, which waits
//!             │  nobody looks at the file any more; copies of the request are answered "busy"
//!             ▼
//!           durable ──▶ cut at every data server, however long that takes
//!             ▲             │
//!  a restart ─┘             ▼
//!                        done: one record without the flag ──▶ answered, others look again
//! ```

use std::rc::Rc;

use weft_base::{ClientId, Handle, Layout, MILLISECOND, Nanos, Result, SECOND, Status, StripeIndex};
use weft_layout::{Distribution, local_bytes};
use weft_namespace::{Inode, InodeFlags, Record, SizePlan, truncated};
use weft_rt::{PeerId, ServerRuntime, join_all};
use weft_wire::ops::{ObjectTruncateRequest, OpenRequest, SetAttrRequest};
use weft_wire::{Capability, Header, Op, Operation, Rights, Wire};

use crate::engine::Engine;
use crate::server::Server;
use crate::step::Step;

/// How long one question to a data server may take, in nanoseconds.
pub(super) const ASK_NS: u64 = 5 * SECOND;
/// The pause before a data server is asked again, in nanoseconds.
const AGAIN_NS: u64 = 100 * MILLISECOND;

/// What a truncation does at the data servers.
struct Cut {
    layout: Layout,
    distribution: Distribution,
    size: u64,
    truncate_epoch: u32,
    datafiles: u32,
    may_have_holes: bool,
}

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    pub(crate) fn setattr(self: &Rc<Self>, peer: PeerId, header: &Header, request: &SetAttrRequest) -> Result<Step> {
        if request.size.is_some() {
            self.check_appended(header.request.client, request.handle)?;
        }
        let mut record = Record::default();
        let (plan, tells) = {
            let (state, cx) = (self.state.borrow(), self.context(header.request.client));
            let plan = state.prepare_setattr(&cx, request, &mut record)?;
            (plan, request.mtime.is_some() && state.others_may_write(&cx, request.handle))
        };
        self.truncate(peer, header, request.handle, plan, record, tells)
    }

    pub(crate) fn open(self: &Rc<Self>, peer: PeerId, header: &Header, request: OpenRequest) -> Result<Step> {
        if self.may_be_excluded(header.request.client, request.handle, request.rights) {
            return Err(Status::Busy);
        }
        if request.room.is_some() && !request.truncate {
            return Ok(self.start_flow(peer, header, Rc::clone(self).open_with_room(*header, request)));
        }
        if !request.truncate {
            let mut opened = None;
            let step = self.local(header, |state, cx, record| {
                let reply = state.prepare_open(cx, &request, record)?;
                self.check_room_for(Op::Open, record)?;
                opened = (request.content == Some(true) && reply.state.attr.is_inline()).then(|| reply.clone());
                Ok(reply)
            })?;
            return Ok(match opened {
                Some(reply) => self.answer_with_content(peer, header, reply),
                None => step,
            });
        }
        self.check_appended(header.request.client, request.handle)?;
        let mut record = Record::default();
        let (plan, is_here) = {
            let state = self.state.borrow();
            let is_here = state.peek(request.handle).is_some_and(Inode::is_inline);
            (state.prepare_open_truncate(&self.context(header.request.client), &request, &mut record)?, is_here)
        };
        let step = self.truncate(peer, header, request.handle, plan, record, false)?;
        Ok(match step {
            // Nobody is told that a file is not here any more before that is certain.
            Step::Answer(body, _) if is_here => {
                self.look_for_delay_room();
                Step::WhenDurable(body, self.engine.last())
            }
            step => step,
        })
    }

    /// True if a client that was known before a restart, and has not told yet what it had open, may
    /// have had the file open in a way that excludes these rights.
    fn may_be_excluded(&self, client: ClientId, handle: Handle, rights: Rights) -> bool {
        let (sessions, state) = (self.clients.sessions.borrow(), self.state.borrow());
        let mut others = sessions.untold().filter(|other| **other != client);
        others.any(|other| state.may_have_kept_others_out(*other)) && state.may_be_excluded(client, handle, rights)
    }

    /// Journals a change of size or time with its answer, which is kept from now on, but given only
    /// when the file is cut and (`tells`) its data servers know of the time (see `answer_again`).
    #[allow(clippy::too_many_arguments)] // a request, and what is to be done for it
    fn truncate<T: Wire>(
        self: &Rc<Self>,
        peer: PeerId,
        header: &Header,
        handle: Handle,
        plan: SizePlan<T>,
        mut record: Record,
        tells: bool,
    ) -> Result<Step> {
        let (SizePlan::Done(reply) | SizePlan::Truncate(reply)) = &plan;
        let body = reply.to_bytes();
        let changes = record.changes.len();
        self.announce(header.request.client, &record)?;
        self.change_and_answer(header, &mut record, &body);
        let cuts = matches!(plan, SizePlan::Truncate(_));
        if !cuts && !tells {
            return Ok(Step::Answer(body, changes));
        }
        let this = Rc::clone(self);
        Ok(self.start_flow(peer, header, async move {
            if cuts {
                this.finish_truncation(handle).await;
            }
            if tells {
                this.tell_epoch(handle).await;
            }
            Ok(body)
        }))
    }

    /// Continues an announced truncation to its end, however long that takes: nobody may look at
    /// the file before.
    pub(crate) async fn finish_truncation(self: &Rc<Self>, handle: Handle) {
        // Data that is cut must not come back as a file that was never truncated.
        let waits = weft_trace::span(weft_trace::event::JOURNAL_WAIT);
        self.settle().await;
        if !self.kept(self.engine.make_durable(self.engine.last()).await) {
            return;
        }
        drop(waits);
        let Some(cut) = self.cut(handle) else { return };
        join_all((0..cut.datafiles).map(|index| self.cut_datafile(handle, &cut, index))).await;
        // Where the holes are that were cut off only the data servers know. Without their answer
        // it stays an estimate, until somebody has written.
        let allocated_bytes = match cut.may_have_holes {
            true => self.ask_sizes(handle, cut.layout).await.ok().map(|(_, allocated_bytes, _)| allocated_bytes),
            false => None,
        };
        let mut record = Record::default();
        if self.state.borrow().prepare_truncated(handle, allocated_bytes, &mut record) {
            self.change(&mut record);
        }
        self.shell.release();
    }

    fn cut(&self, handle: Handle) -> Option<Cut> {
        let state = self.state.borrow();
        let inode = state.peek(handle).filter(|inode| inode.flags.has(InodeFlags::TRUNCATING))?;
        let datafiles = state.datafiles(handle, inode);
        let Inode { layout, truncating_to: size, truncate_epoch, .. } = *inode;
        // What has strips that make no sense is cut nowhere.
        let distribution = state.distribution(handle, &layout).ok()?;
        let may_have_holes = truncated(inode).hole_bytes() > 0;
        Some(Cut { layout, distribution, size, truncate_epoch, datafiles, may_have_holes })
    }

    async fn cut_datafile(&self, handle: Handle, cut: &Cut, index: u32) {
        let size = local_bytes(&cut.distribution, StripeIndex(index), cut.size);
        loop {
            let capability = self.manage(handle);
            let request = ObjectTruncateRequest { handle, index, capability, size, truncate_epoch: cut.truncate_epoch };
            match self.call_datafile(&cut.layout, index, &request, self.rt.now() + ASK_NS).await {
                Ok(()) => return,
                Err(_) => self.rt.sleep_until(self.rt.now() + AGAIN_NS).await,
            }
        }
    }

    /// Asks the data server that holds a datafile.
    pub(super) async fn call_datafile<O: Operation>(&self, layout: &Layout, index: u32, request: &O, deadline: Nanos) -> Result<O::Reply> {
        let server = self.shell.introduction.map().data_server(layout, index)?;
        self.shell.caller.call(server, request, deadline).await
    }

    /// This server's own capability for the datafiles of a file.
    pub(super) fn manage(&self, handle: Handle) -> Capability {
        let rights = Rights::READ.with(Rights::WRITE).with(Rights::MANAGE);
        self.context(self.shell.caller.client()).capability(handle, rights)
    }
}
