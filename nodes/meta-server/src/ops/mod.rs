//! What each operation does that the state alone does not decide; those with a sequence have a file
//! each.

mod changes;
mod close;
mod delegations;
mod link;
mod locks;
mod mkdir;
mod names;
mod reap;
mod relief;
mod rename;
mod rmdir;
mod sizes;
mod split;
mod spread;
mod times;
mod truncate;
mod unlink;

use std::rc::Rc;

use bytes::Bytes;
use weft_base::{ClientId, FileKind, Result, Status};
use weft_namespace::{Admission, Change, Charged, Inode, InodeFlags, OpenChange, Record, RequestContext, State};
use weft_rt::{PeerId, ServerRuntime};
use weft_wire::ops::{CheckGoneRequest, ClassicMakeMetafileRequest, CreateRequest, MkdirRequest, ReclaimRequest};
use weft_wire::{Header, Request, Rights, Wire};

use crate::engine::Engine;
use crate::server::Server;
use crate::step::Step;

pub(crate) use locks::ProgramLocks;
pub(crate) use names::{NameChange, NameReply};
pub(crate) use relief::Demand;
pub(crate) use split::Ways;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Executes an admitted request.
    ///
    /// # Errors
    /// Why it is impossible, or [`Status::Busy`] if a transaction or truncation is in the way.
    pub(crate) fn execute(self: &Rc<Self>, peer: PeerId, header: &Header, request: Request) -> Result<Step> {
        match request {
            Request::TxStatus(request) => answer(&self.tx_status(&request)),
            Request::Split(request) => self.split(&request),
            Request::GiveNames(request) => {
                let this = Rc::clone(self);
                Ok(self.start_question(peer, header, async move { this.give_names(&request).await.map(|reply| reply.to_bytes()) }))
            }
            request @ (Request::Borrow(_) | Request::Recall(_) | Request::SetQuota(_)) => {
                Ok(self.start_question(peer, header, Rc::clone(self).answer_quota(request)))
            }
            Request::SyncMeta(_) => Ok(self.start_question(peer, header, Rc::clone(self).sync_meta())),
            Request::CheckGone(request) => {
                Ok(self.start_question(peer, header, Rc::clone(self).check_gone(header.request.client, request)))
            }
            Request::Reclaim(request) => self.reclaim(header, &request),
            Request::Notices(request) => self.notices(peer, header, &request),
            Request::Changes(request) => self.changes(peer, header, &request),
            Request::ReadInline(request) => self.read_inline(peer, header, &request),
            Request::LookupMany(request) if request.contents == Some(true) => self.lookup_many(peer, header, &request),

            request if self.is_spread(&request) => self.change_names(peer, header, request),
            Request::SetAttr(request) => self.setattr(peer, header, &request),
            Request::Open(request) => self.open(peer, header, request),
            Request::Close(request) => self.close(peer, header, request),
            Request::Mkdir(_) | Request::Unlink(_) | Request::Rmdir(_) | Request::Rename(_) | Request::Link(_) => {
                self.change_names(peer, header, request)
            }
            Request::CreateMany(request) => self.create_many(header, &request),
            Request::CloseMany(request) => self.close_many(header, &request),
            Request::Lock(request) => self.lock(peer, header, &request),
            Request::Unlock(request) => self.unlock(header, &request),
            Request::LockTest(request) => self.lock_test(header, &request),
            Request::LockCancel(request) => self.lock_cancel(header, &request),
            Request::TxPrepare(request) => self.tx_prepare_with_more(peer, header, request),
            Request::TxDecide(request) => self.tx_decide(header, &request),

            // By reference: most requests come this way, and are large to move.
            ref other => {
                match self.answer_alone(header, other) {
                    Some(Err(Status::QuotaExceeded)) => {
                        let charged = charged(&self.state.borrow(), other).ok_or(Status::QuotaExceeded)?;
                        return Ok(self.start_flow(peer, header, Rc::clone(self).make_with_more(*header, charged, request)));
                    }
                    Some(step) => return step,
                    None => {}
                }
                let this = Rc::clone(self);
                Ok(self.start_question(peer, header, async move { weft_serving::answer_of_any(&*this, request).await }))
            }
        }
    }

    /// A request that the state alone decides.
    pub(crate) fn answer_alone(&self, header: &Header, request: &Request) -> Option<Result<Step>> {
        let mut record = Record::default();
        let body = self.state.borrow().decide(&self.context(header.request.client), request, &mut record)?;
        Some(body.and_then(|body| match request.op().changes() {
            true => self.changed(header, record, body),
            false => Ok(Step::Answer(body, records_seen(request))),
        }))
    }

    /// A change that concerns only this server.
    fn local<T: Wire>(&self, header: &Header, prepare: impl FnOnce(&State, &RequestContext<'_>, &mut Record) -> Result<T>) -> Result<Step> {
        let mut record = Record::default();
        let body = prepare(&self.state.borrow(), &self.context(header.request.client), &mut record)?.to_bytes();
        self.changed(header, record, body)
    }

    /// Makes a change within the turn; this is its answer.
    fn changed(&self, header: &Header, mut record: Record, body: Bytes) -> Result<Step> {
        let changes = record.changes.len();
        self.announce(header.request.client, &record)?;
        self.change_and_answer(header, &mut record, &body);
        Ok(Step::Answer(body, changes))
    }

    /// Everything acknowledged so far is on stable storage when this is answered.
    async fn sync_meta(self: Rc<Self>) -> Result<Bytes> {
        self.make_all_durable().await.map(|()| ().to_bytes())
    }

    /// Whoever hears that a file is gone may remove its data, so no power cut must bring it back.
    async fn check_gone(self: Rc<Self>, client: ClientId, request: CheckGoneRequest) -> Result<Bytes> {
        let reply = self.state.borrow().check_gone(&self.context(client), &request)?;
        self.make_all_durable().await?;
        Ok(reply.to_bytes())
    }

    pub(crate) async fn make_all_durable(&self) -> Result<()> {
        if !self.settle().await {
            return Err(Status::Io);
        }
        let synced = self.engine.sync_through(self.engine.last()).await;
        if self.kept(synced) { Ok(()) } else { Err(Status::Io) }
    }

    /// A client tells again what it has open. A file that it writes to counts as being written,
    /// even if the server had given the client up. A late or second copy would open again what was
    /// closed since.
    fn reclaim(&self, header: &Header, request: &ReclaimRequest) -> Result<Step> {
        if let Admission::Answered(body) = self.state.borrow_mut().admit(header.request, header.finished_below())? {
            return Ok(Step::Answer(body?, 0));
        }
        let client = header.request.client;
        for open in &request.opens {
            let mut record = Record::default();
            let (handle, sequence) = (open.handle, open.open_sequence);
            let rights = self.state.borrow().reclaimable(client, handle, open.rights);
            if rights == Rights::default() {
                continue;
            }
            {
                let state = self.state.borrow();
                let Some(inode) = state.peek(handle).filter(|inode| inode.kind == FileKind::File) else { continue };
                let flags = match rights.contains(Rights::DELAY) {
                    true => inode.flags.delayed(),
                    // It said so before it had the answer.
                    false if inode.flags.is_delayed() && state.delays_by_later(client, handle, sequence) => inode.flags,
                    false => {
                        let flags = inode.flags.not_delayed(rights.contains(Rights::APPEND));
                        flags.with(InodeFlags::HAS_DATA).with(InodeFlags::WRITING)
                    }
                };
                if rights.contains(Rights::WRITE) && inode.flags != flags {
                    record.changes.push(Change::PutInode { handle, inode: Inode { flags, ..inode.clone() } });
                }
            }
            if rights.contains(Rights::WRITE) {
                self.state.borrow().reserve_again(handle, &mut record);
            }
            record.open = Some(OpenChange::Open { client, handle, rights, sequence });
            self.change(&mut record);
        }
        self.reclaim_locks(client, request.locks.as_deref().unwrap_or_default());
        if request.goes_on != Some(true) {
            self.clients.sessions.borrow_mut().told(client);
            if self.shell.has_parked() {
                // Others may have waited for that.
                self.shell.release();
            }
        }
        let body = ().to_bytes();
        self.state.borrow_mut().remember(header.request, header.finished_below(), Ok(body.clone()));
        Ok(Step::Answer(body, 0))
    }
}

/// Records that a list of questions looks at beyond what a request costs anyhow.
fn records_seen(request: &Request) -> usize {
    match request {
        Request::LookupMany(request) => request.dirs.iter().map(|dir| dir.names.len()).sum(),
        Request::GetAttrMany(request) => request.handles.len(),
        _ => 0,
    }
}

/// For whom counts what a request makes.
fn charged(state: &State, request: &Request) -> Option<Charged> {
    let (who, dir) = match request {
        Request::Create(CreateRequest { who, at, .. }) | Request::Mkdir(MkdirRequest { who, at, .. }) => (who, at.dir),
        Request::ClassicMakeMetafile(ClassicMakeMetafileRequest { who, dir, .. }) => (who, *dir),
        _ => return None,
    };
    Some(Charged { uid: who.uid, project: state.hints(dir).project })
}

pub(crate) fn answer(reply: &impl Wire) -> Result<Step> {
    Ok(Step::Answer(reply.to_bytes(), 0))
}
