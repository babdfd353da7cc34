//! Attributes: exact sizes and times, and changing them.
//!
//! What a metadata server knows of a file that is being written lags behind. Every state that it
//! sends passes through [`Client::settle`], which corrects it by own unreported writes and, if
//! another client writes, by asking the data servers.

mod partitions;
mod silence;
mod silent;

use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Attr, Credentials, DataTime, FileKind, Handle, Status, set_id_bits};
use weft_call::run_window;
use weft_layout::file_bytes;
use weft_rt::Runtime;
use weft_wire::ops::{
    FileState, GetAttrRequest, GetXattrRequest, ListXattrRequest, ObjectStatRequest, PartitionMap, RemoveXattrRequest, SetAttrRequest,
    SetTime, SetXattrRequest,
};
use weft_wire::{Capability, LeaseScope};

use crate::files::{OpenInode, Subject, View};
use crate::flow::Flow;
use crate::knowledge::{Asked, Effect, Touched};
use crate::{Client, Result, Seen, SetAttr, XattrFlags};

pub(crate) use silent::Silent;

/// How often a state is asked for again because the file changed while its size was being found
/// out.
const SETTLE_TRIES: usize = 16;

/// What became of a state from a metadata server.
pub(crate) enum Settled {
    /// The attributes as they were together at one moment after the question.
    Exact(Attr),
    /// The size is of a later moment than the rest, which has changed meanwhile.
    Later(Attr),
    /// A time was set after what the metadata server said, so writes before that are told by nobody
    /// any more: these attributes may be of no moment but that of a change that was made.
    Overtaken(Attr),
    /// The size could not be found out: a truncation came between, or a newer state is known.
    Unknown,
}

/// What a state from a metadata server is worth by itself.
enum Judged {
    Settled(Settled),
    /// Others may have written: the data servers know.
    AskData(Attr, Capability, Option<Arc<OpenInode>>),
    /// A directory with names at these servers: its owner tells of what is there only.
    AskPartitions(Attr, PartitionMap),
    /// What was gathered of the file has no time before its data servers have it.
    Bring(Arc<OpenInode>),
}

impl Judged {
    fn exact(self) -> Option<Attr> {
        match self {
            Judged::Settled(Settled::Exact(attr)) => Some(attr),
            _ => None,
        }
    }
}

impl<R: Runtime> Client<R> {
    /// Attributes of an object, size and mtime exact.
    ///
    /// # Errors
    /// [`Status::Stale`] if the object is gone; servers that do not answer.
    pub async fn getattr(&self, handle: Handle) -> Result<Attr> {
        let _op = weft_trace::operation(weft_trace::event::CLIENT_GETATTR);
        self.getattr_in(self.flow("getattr", handle), handle).await
    }

    /// Attributes of an object for who is about to change some: size and times may be those of
    /// before own writes that are with this client only, which stay here.
    ///
    /// # Errors
    /// As [`Client::getattr`].
    pub async fn getattr_to_change(&self, handle: Handle) -> Result<Attr> {
        let known = self.inner.knowledge.state(handle, self.rt().now());
        match known.and_then(|(state, asked)| self.settle_to_keep(&state, asked)) {
            Some(attr) => Ok(attr),
            None => self.getattr(handle).await,
        }
    }

    /// [`Client::getattr`] as a part of another operation.
    pub(crate) async fn getattr_in(&self, flow: Flow, handle: Handle) -> Result<Attr> {
        let mut later = None;
        for _ in 0..SETTLE_TRIES {
            let Some((state, asked)) = self.inner.knowledge.state(handle, self.rt().now()) else { break };
            match self.judge(&state, asked, true) {
                Judged::Settled(Settled::Exact(attr)) => return Ok(attr),
                // Then nothing is to be asked of the metadata server.
                Judged::Bring(inode) if Box::pin(self.bring_what_is_here(flow, &inode)).await.is_ok() => {}
                _ => break,
            }
        }
        for _ in 0..SETTLE_TRIES {
            let asked = self.asking();
            let state = self.get_state(flow, handle).await?;
            match self.settle_once(flow, state, asked).await? {
                Settled::Exact(attr) => return Ok(attr),
                Settled::Later(attr) => later = Some(attr),
                Settled::Overtaken(_) | Settled::Unknown => {}
            }
        }
        later.ok_or(flow.error(Status::Busy))
    }

    pub(crate) async fn get_state(&self, flow: Flow, handle: Handle) -> Result<FileState> {
        let server = self.owner(flow, handle).await?;
        let (asked, mut leased) = (self.asking(), LeaseScope::Nothing);
        let outcome = self.ask(flow, server, &GetAttrRequest { handle }, &mut leased).await;
        match (&outcome, leased) {
            (Ok(state), LeaseScope::All) => self.inner.knowledge.told_object(asked, state),
            (Ok(state), LeaseScope::Names) => self.inner.knowledge.changes_often(&state.attr, asked),
            _ => {}
        }
        outcome
    }

    /// Makes what a metadata server answered, asked for when `asked` says, exact. If others change
    /// the object at the same time, the size may be a little newer than the rest.
    pub(crate) async fn settle(&self, flow: Flow, state: FileState, asked: Asked) -> Result<Attr> {
        let handle = state.attr.handle;
        match self.settle_once(flow, state, asked).await? {
            Settled::Exact(attr) | Settled::Later(attr) => Ok(attr),
            Settled::Overtaken(_) | Settled::Unknown => self.getattr_in(flow, handle).await,
        }
    }

    /// [`Client::settle`] for the answer to a change. A change that was made does not fail because
    /// the object is gone by now: then the size is what the metadata server knew. One of the size
    /// (`of_size`) shows that size, whatever others do.
    pub(crate) async fn settle_change(&self, flow: Flow, state: FileState, asked: Asked, of_size: bool) -> Result<Attr> {
        let told = state.attr;
        let settled = match self.settle_once(flow, state, asked).await {
            Ok(Settled::Exact(attr) | Settled::Later(attr)) => Ok(attr),
            Ok(Settled::Overtaken(attr)) if of_size => Ok(attr),
            Ok(Settled::Overtaken(_) | Settled::Unknown) => self.getattr_in(flow, told.handle).await,
            Err(error) => Err(error),
        };
        match settled {
            Err(error) if error.status == Status::Stale => Ok(told),
            settled => settled,
        }
    }

    /// Tries once to make what a metadata server said exact.
    pub(crate) async fn settle_once(&self, flow: Flow, state: FileState, asked: Asked) -> Result<Settled> {
        let mut judged = self.judge(&state, asked, true);
        if let Judged::Bring(inode) = &judged {
            // As for who reads it. What cannot be brought, nobody else counts either.
            let _ = Box::pin(self.bring_what_is_here(flow, inode)).await;
            judged = self.judge(&state, asked, false);
        }
        let (attr, capability, inode) = match judged {
            Judged::Bring(_) => return Ok(Settled::Unknown),
            Judged::Settled(settled) => return Ok(settled),
            Judged::AskData(attr, capability, inode) => (attr, capability, inode),
            Judged::AskPartitions(attr, map) => return Box::pin(self.settle_with_partitions(flow, attr, map, asked)).await,
        };
        let settled = Box::pin(self.settle_with_data(flow, attr, capability)).await?;
        if let Settled::Exact(attr) | Settled::Later(attr) = &settled {
            self.keep(attr, inode.as_deref(), asked);
        }
        Ok(settled)
    }

    /// The attributes of a state that needs no questions to data servers, as most do.
    pub(crate) fn settle_at_once(&self, state: &FileState, asked: Asked) -> Option<Attr> {
        self.judge(state, asked, true).exact()
    }

    /// The same for who changes some of them, whatever the time of the last write.
    pub(crate) fn settle_to_keep(&self, state: &FileState, asked: Asked) -> Option<Attr> {
        self.judge(state, asked, false).exact()
    }

    /// Corrects what a metadata server said by own writes; `brings`: first they go where they get
    /// their time.
    fn judge(&self, state: &FileState, asked: Asked, brings: bool) -> Judged {
        let FileState { mut attr, ask_data, .. } = *state;
        if let Some(map) = &state.partitions {
            self.inner.knowledge.told_partitions(attr.handle, map);
            if map.is_split(attr.handle) {
                return Judged::AskPartitions(attr, map.clone());
            }
        }
        let inode = match attr.kind {
            FileKind::File => match self.inner.opens.subject(attr.handle, asked.after_reports) {
                Subject::Written(inode) => Some(inode),
                Subject::Nothing => None,
                Subject::Forgotten => return Judged::Settled(Settled::Unknown),
            },
            _ => None,
        };
        let view = inode.as_ref().map_or(View::Exact, |inode| inode.view(&mut attr, asked.after_reports));
        let capability = match view {
            View::Outdated => return Judged::Settled(Settled::Unknown),
            View::AskData(capability) => Some(ask_data.unwrap_or(capability)),
            View::Exact => ask_data,
        };
        if let Some(inode) = inode.as_ref().filter(|inode| brings && inode.has_no_time() && !inode.keep_time(&mut attr)) {
            return Judged::Bring(inode.clone());
        }
        if let Some(capability) = capability {
            return Judged::AskData(attr, capability, inode);
        }
        self.keep(&attr, inode.as_deref(), asked);
        Judged::Settled(Settled::Exact(attr))
    }

    /// Remembers what was answered to a question.
    fn keep(&self, attr: &Attr, inode: Option<&OpenInode>, asked: Asked) {
        if let Some(inode) = inode {
            inode.learn(attr);
        }
        self.inner.knowledge.learned(asked, attr);
    }

    /// The long way: the data servers are asked, and if they know of more, the metadata server once
    /// more: if nothing changed there, both answers belong to one moment.
    async fn settle_with_data(&self, flow: Flow, mut attr: Attr, capability: Capability) -> Result<Settled> {
        let (size, allocated_bytes, mtime, epoch) = match self.ask_data(flow, &attr, capability).await {
            // Stale: its datafiles are removed. The metadata server says whether the file is, too.
            Err(error) if matches!(error.status, Status::CapabilityExpired | Status::Stale) => return Ok(Settled::Unknown),
            found => found?,
        };
        attr.written(mtime);
        // A time was set since, and what was written before that is not told any more.
        let is_overtaken = epoch > DataTime::epoch_of_writes(attr.mtime_epoch);
        let has_grown = size > attr.size;
        attr.size = attr.size.max(size);
        attr.set_allocated(allocated_bytes);
        if !has_grown && !is_overtaken {
            return Ok(Settled::Exact(attr));
        }
        let again = match self.get_state(flow, attr.handle).await {
            Ok(state) => state.attr,
            // It is gone by now. What was asked for or changed was so before.
            Err(error) if error.status == Status::Stale => return Ok(Settled::Later(attr)),
            Err(error) => return Err(error),
        };
        Ok(match () {
            () if again.version == attr.version => Settled::Exact(attr),
            () if again.truncate_epoch != attr.truncate_epoch && has_grown => Settled::Unknown,
            () if is_overtaken => Settled::Overtaken(attr),
            () => Settled::Later(attr),
        })
    }

    /// Size, bytes that it takes, time of the newest write and latest epoch, as the data servers
    /// know them.
    async fn ask_data(&self, flow: Flow, attr: &Attr, capability: Capability) -> Result<(u64, u64, DataTime, u32)> {
        let handle = attr.handle;
        let stats = (0..u32::from(attr.layout.width)).map(|index| async move {
            let server = self.data_server(flow, &attr.layout, index).await?;
            self.call(flow, server, &ObjectStatRequest { handle, index, capability }).await
        });
        let stats: Vec<_> = run_window(stats, self.options().window).await.into_iter().collect::<Result<_>>()?;
        let mtime = stats.iter().fold(DataTime::NONE, |latest, stat| latest.later(stat.mtime));
        let epoch = stats.iter().map(|stat| stat.mtime.epoch).max().unwrap_or(0);
        let distribution = self.distribution_of(flow, handle, &attr.layout).await?;
        let allocated_bytes = stats.iter().fold(0u64, |sum, stat| sum.saturating_add(stat.allocated_bytes));
        Ok((file_bytes(&distribution, stats.iter().map(|stat| stat.size)), allocated_bytes, mtime, epoch))
    }

    /// Changes attributes; with `size`, truncates or extends a file. Returns the attributes after
    /// the change.
    ///
    /// # Errors
    /// [`Status::Stale`] if the object is gone; permissions; servers that do not answer.
    pub async fn setattr(&self, who: &Credentials, handle: Handle, changes: &SetAttr) -> Result<Attr> {
        let _op = weft_trace::operation(weft_trace::event::CLIENT_SETATTR);
        self.setattr_in(self.flow("setattr", handle), who, handle, changes).await
    }

    /// [`Client::setattr`] as a part of another operation.
    pub(crate) async fn setattr_in(&self, flow: Flow, who: &Credentials, handle: Handle, changes: &SetAttr) -> Result<Attr> {
        Ok(self.setattr_seen(flow, who, handle, changes, false).await?.attr)
    }

    /// The same; `soon`: data servers that do not answer and have no part in it are not waited for.
    pub(super) async fn setattr_seen(&self, flow: Flow, who: &Credentials, handle: Handle, changes: &SetAttr, soon: bool) -> Result<Seen> {
        let exact = |attr| Seen { attr, is_exact: true };
        if let Some(inode) = self.inner.opens.get(handle).filter(|inode| inode.is_delayed()) {
            if let Some(attr) = self.keep_attributes(who, &inode, changes) {
                return Ok(exact(attr));
            }
            if changes.mtime.is_some() {
                inode.begin_to_set_time();
            }
            self.send_attributes(flow, &inode).await?;
        }
        if let Some(attr) = self.absorb_attributes(who, handle, changes) {
            return Ok(exact(attr));
        }
        let mut changes = changes.clone();
        if changes.mode.is_some_and(|mode| set_id_bits(mode) != 0) && changes.mtime.is_none() {
            changes.mtime = self.time_against_writers(flow, handle).await?;
        }
        // A time needs no report of own writes before it: its epoch says that they came before it.
        let inode = if changes.size.is_some() { self.inner.opens.get(handle) } else { None };
        if let Some(inode) = inode.as_ref().filter(|inode| inode.is_delayed()) {
            // Cut, it is a file of data servers.
            Box::pin(self.report(flow, inode)).await?;
        }
        let passage = match &inode {
            Some(inode) => Some(self.enter(inode).await),
            None => None,
        };
        let writes_before = inode.as_ref().and_then(|inode| inode.writes_before_truncation());
        let SetAttr { mode, uid, gid, size, atime, mtime, opened_for_write, seal } = changes;
        let request = SetAttrRequest { handle, mode, uid, gid, size, atime, mtime, who: who.clone(), opened_for_write, seal };
        let (state, asked) = self.send_setattr(flow, &request).await?;
        let may_have_holes = may_have_holes(&request, &state);
        if let (Some(inode), true) = (&inode, size.is_some()) {
            inode.truncated(&state.attr, writes_before);
        }
        drop(passage);
        if soon && size.is_none() {
            return Box::pin(self.settle_change_soon(flow, state, asked)).await;
        }
        let mut attr = self.settle_change(flow, state, asked, size.is_some()).await?;
        if may_have_holes
            && let Ok(now) = Box::pin(self.getattr_in(flow, handle)).await
            && now.truncate_epoch == attr.truncate_epoch
            && now.size == attr.size
        {
            attr.hole_bytes = now.hole_bytes;
        }
        Ok(exact(attr))
    }

    /// Sends a change of attributes, and learns from the answer. Also gives when it was asked for.
    pub(crate) async fn send_setattr(&self, flow: Flow, request: &SetAttrRequest) -> Result<(FileState, Asked)> {
        let server = self.owner(flow, request.handle).await?;
        let change = self.changing(Touched::Object(request.handle));
        let (asked, mut leased) = (change.asked, LeaseScope::Nothing);
        let state = self.ask(flow, server, request, &mut leased).await?;
        if may_have_holes(request, &state) {
            change.done(Effect::Object);
        } else {
            let done = change.done(Effect::Attributes(&state.attr));
            if leased == LeaseScope::All {
                self.inner.knowledge.told_object(done, &state);
            }
        }
        Ok((state, asked))
    }

    /// A program that is being written must not become set-id: whoever has it open for writing
    /// clears the bits with the next write. To those elsewhere that write only tells of times that
    /// were set, so the time of the last change is set to what it is.
    async fn time_against_writers(&self, flow: Flow, handle: Handle) -> Result<Option<SetTime>> {
        let asked = self.asking();
        let state = self.get_state(flow, handle).await?;
        if state.ask_data.is_none() {
            return Ok(None);
        }
        let attr = self.settle(flow, state, asked).await?;
        Ok(Some(SetTime { at: Some(attr.mtime) }))
    }

    /// Value of an extended attribute.
    ///
    /// # Errors
    /// [`Status::NoAttribute`]; [`Status::Stale`] if the object is gone; permissions; servers that
    /// do not answer.
    pub async fn get_xattr(&self, who: &Credentials, handle: Handle, name: &[u8]) -> Result<Bytes> {
        let flow = self.flow("getxattr", handle);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        self.send_attributes_of(flow, handle).await?;
        let request = GetXattrRequest { handle, name: Bytes::copy_from_slice(name), who: who.clone() };
        Ok(self.call(flow, self.owner(flow, handle).await?, &request).await?.value)
    }

    /// Sets an extended attribute: its full name with its name space, up to 255 bytes, and a value
    /// of up to 64 KiB.
    ///
    /// # Errors
    /// [`Status::Exists`] or [`Status::NoAttribute`] as the flags demand, [`Status::TooBig`],
    /// [`Status::Stale`], permissions, servers that do not answer.
    pub async fn set_xattr(&self, who: &Credentials, handle: Handle, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        let flow = self.flow("setxattr", handle);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        if self.keep_list(who, handle, name, value, flags) {
            return Ok(());
        }
        let XattrFlags { create_only, replace_only } = flags;
        let (name, value) = (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
        let request = SetXattrRequest { handle, name, value, create_only, replace_only, who: who.clone() };
        self.change_xattr(flow, handle, &request).await
    }

    /// Names of all extended attributes, sorted.
    ///
    /// # Errors
    /// [`Status::Stale`] if the object is gone; permissions; servers that do not answer.
    pub async fn list_xattr(&self, who: &Credentials, handle: Handle) -> Result<Vec<Bytes>> {
        let flow = self.flow("listxattr", handle);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        self.send_attributes_of(flow, handle).await?;
        Ok(self.call(flow, self.owner(flow, handle).await?, &ListXattrRequest { handle, who: who.clone() }).await?.names)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Status::NoAttribute`]; [`Status::Stale`] if the object is gone; permissions; servers that
    /// do not answer.
    pub async fn remove_xattr(&self, who: &Credentials, handle: Handle, name: &[u8]) -> Result<()> {
        let flow = self.flow("removexattr", handle);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        let request = RemoveXattrRequest { handle, name: Bytes::copy_from_slice(name), who: who.clone() };
        self.change_xattr(flow, handle, &request).await
    }

    async fn change_xattr<O: weft_wire::Operation<Reply = ()>>(&self, flow: Flow, handle: Handle, request: &O) -> Result<()> {
        self.send_attributes_of(flow, handle).await?;
        // Of a directory its time of change and its version are others now: it is not followed.
        let _change = self.changing(Touched::Object(handle));
        self.call(flow, self.owner(flow, handle).await?, request).await
    }
}

/// The answer to a truncation is older than the cut: where holes were, it does not know.
fn may_have_holes(request: &SetAttrRequest, state: &FileState) -> bool {
    request.size.is_some() && state.attr.hole_bytes > 0
}
