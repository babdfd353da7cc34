//! What each operation does. Plain ones are decided by the state alone and are here; those with a sequence have a file each.

mod close;
mod link;
mod mkdir;
mod names;
mod reap;
mod rename;
mod rmdir;
mod sizes;
mod times;
mod truncate;
mod unlink;

use std::rc::Rc;

use bytes::Bytes;
use weft_base::{Result, Status};
use weft_journal::Lsn;
use weft_namespace::{Change, Context, Inode, InodeFlags, OpenChange, Record, State};
use weft_rt::{PeerId, ServerRuntime};
use weft_wire::ops::{ParentReply, ReclaimRequest};
use weft_wire::{Header, Request, Rights, Wire};

use crate::engine::Engine;
use crate::server::Server;

pub(crate) use names::{NameChange, NameReply};

/// How a request goes on.
pub(crate) enum Step {
    /// This is the answer; so many changes were made.
    Answer(Bytes, usize),
    /// This is the answer when the record survives a power cut, as far as that is promised.
    WhenDurable(Bytes, Lsn),
    /// A flow will answer.
    Later,
}

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Executes an admitted request.
    ///
    /// # Errors
    /// Why it is impossible, or [`Status::Busy`] if a transaction or truncation is in the way.
    pub(crate) fn execute(self: &Rc<Self>, peer: PeerId, header: &Header, request: Request) -> Result<Step> {
        match request {
            Request::Lookup(request) => self.look(header, |state, cx| state.lookup(cx, &request)),
            Request::ReadDir(request) => self.look(header, |state, cx| state.readdir(cx, &request)),
            Request::GetAttr(request) => self.look(header, |state, cx| state.getattr(cx, request.handle)),
            Request::GetAttrMany(request) => self.look(header, |state, cx| state.getattr_many(cx, &request)),
            Request::Readlink(request) => self.look(header, |state, _| state.readlink(request.handle)),
            Request::GetXattr(request) => self.look(header, |state, _| state.get_xattr(request.handle, &request.name, &request.who)),
            Request::ListXattr(request) => self.look(header, |state, _| state.list_xattr(request.handle, &request.who)),
            Request::Parent(request) => self.look(header, |state, _| Ok(ParentReply { parent: state.parent(request.dir)? })),
            Request::TxStatus(request) => answer(&self.tx_status(&request)),
            Request::SyncMeta(_) => Ok(self.start_question(peer, header, Rc::clone(self).sync_meta())),
            Request::Reclaim(request) => self.reclaim(header, &request),

            Request::Create(request) => self.local(header, |state, cx, record| state.prepare_create(cx, &request, record)),
            Request::SetXattr(request) => self.local(header, |state, cx, record| state.prepare_set_xattr(cx, &request, record)),
            Request::RemoveXattr(request) => self.local(header, |state, cx, record| state.prepare_remove_xattr(cx, &request, record)),
            Request::SetAttr(request) => self.setattr(peer, header, &request),
            Request::Open(request) => self.open(peer, header, request),
            Request::Close(request) => self.close(peer, header, request),
            Request::Mkdir(_) | Request::Unlink(_) | Request::Rmdir(_) | Request::Rename(_) | Request::Link(_) => {
                self.change_names(peer, header, request)
            }
            Request::CloseMany(request) => self.close_many(header, &request),
            Request::TxPrepare(request) => self.tx_prepare(header, request),
            Request::TxDecide(request) => self.tx_decide(header, &request),

            other => {
                let this = Rc::clone(self);
                Ok(self.start_question(peer, header, async move { weft_serving::answer_of_any(&*this, other).await }))
            }
        }
    }

    /// Looks at the state.
    fn look<T: Wire>(&self, header: &Header, question: impl FnOnce(&State, &Context<'_>) -> Result<T>) -> Result<Step> {
        answer(&question(&self.state.borrow(), &self.context(header.request.client))?)
    }

    /// A change that concerns only this server.
    fn local<T: Wire>(&self, header: &Header, prepare: impl FnOnce(&State, &Context<'_>, &mut Record) -> Result<T>) -> Result<Step> {
        let mut record = Record::default();
        let body = prepare(&self.state.borrow(), &self.context(header.request.client), &mut record)?.to_bytes();
        let changes = record.changes.len();
        self.change_and_answer(header, &mut record, &body);
        Ok(Step::Answer(body, changes))
    }

    /// Everything acknowledged so far is on stable storage when this is answered.
    async fn sync_meta(self: Rc<Self>) -> Result<Bytes> {
        if !self.settle().await {
            return Err(Status::Io);
        }
        let synced = self.engine.sync_through(self.engine.last()).await;
        if self.kept(synced) { Ok(().to_bytes()) } else { Err(Status::Io) }
    }

    /// A client tells again what it has open. A file that it writes to counts as being written, even if the server had given the
    /// client up.
    fn reclaim(&self, header: &Header, request: &ReclaimRequest) -> Result<Step> {
        let client = header.request.client;
        self.untold.borrow_mut().remove(&client);
        for open in &request.opens {
            let mut record = Record::default();
            {
                let state = self.state.borrow();
                let Some(inode) = state.peek(open.handle) else { continue };
                let flags = inode.flags.with(InodeFlags::HAS_DATA).with(InodeFlags::WRITING);
                if open.rights.contains(Rights::WRITE) && inode.flags != flags {
                    record.changes.push(Change::PutInode { handle: open.handle, inode: Inode { flags, ..inode.clone() } });
                }
            }
            let (handle, sequence) = (open.handle, open.open_sequence);
            let rights = self.state.borrow().reclaimable(client, handle, open.rights);
            if rights == Rights::default() {
                continue;
            }
            record.open = Some(OpenChange::Open { client, handle, rights, sequence });
            self.change(&mut record);
        }
        answer(&())
    }
}

pub(crate) fn answer(reply: &impl Wire) -> Result<Step> {
    Ok(Step::Answer(reply.to_bytes(), 0))
}
