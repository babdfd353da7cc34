//! Opening, closing and syncing files.
//!
//! Messages: a create (or an open by handle) is one request. A close is one request, sent when the
//! last local open that needs a right goes; it carries size and time of own writes, so writing
//! costs no message to the metadata server before that.

use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Attr, Credentials, FileKind, Handle, Status, check_name};
use weft_call::{both, run_window};
use weft_layout::{FILE_BYTES_MAX, local_bytes};
use weft_rt::{FaultPoint, Runtime};
use weft_wire::ops::{CreateReply, CreateRequest, DirTarget, ObjectSyncRequest, OpenDelay, OpenRequest, SyncMetaRequest};
use weft_wire::{LeaseScope, Rights};

use super::appending::AGAIN_NS;
use super::delayed::{Content, DelayGranted};
use super::delegations::DirectoryGranted;
use super::granted::Granted;
use super::open_inode::OpenInode;
use crate::flow::Flow;
use crate::gate::Passage;
use crate::knowledge::{Effect, Touched};
use crate::names::{By, Grant};
use crate::{Client, CreateOptions, DelayWrites, OpenFile, OpenWith, Result, SetAttr};

/// How often an open is repeated because it was overtaken (see `open_table.rs`), or because the
/// file was removed meanwhile.
pub(super) const OPEN_TRIES: usize = 16;

/// Asks for what a client has open already, if it does not know for whom.
pub(super) const RENEWAL: Credentials = Credentials { uid: 0, gid: 0, groups: Vec::new(), checked_by_kernel: true };

/// Renewing a capability is no new access: permissions were checked at the open. It is asked for by
/// who has opened the file, since not every key speaks for every user.
pub(super) fn renewing(who: &Credentials) -> Credentials {
    Credentials { checked_by_kernel: true, ..who.clone() }
}

/// The request that makes a file and does not open it.
pub(crate) fn file_request(at: DirTarget, name: &Bytes, options: &CreateOptions, who: &Credentials) -> CreateRequest {
    CreateRequest {
        exclusive: options.exclusive,
        stripe_bytes: options.stripe_bytes,
        stripe_width: options.stripe_width,
        strips: options.strips.as_ref().map(|strips| strips.to_string().into()),
        atime: options.times.map(|(atime, _)| atime),
        mtime: options.times.map(|(_, mtime)| mtime),
        ..CreateRequest::of(at, name.clone(), (FileKind::File, options.mode), who.clone())
    }
}

impl<R: Runtime> Client<R> {
    /// Makes a file and opens it, or opens the one that exists, in one request. Returns its
    /// attributes, the open file, and whether it was made.
    ///
    /// # Errors
    /// [`Status::Exists`] if `exclusive` and the name is taken, or if it leads to something that
    /// cannot be opened here (a symlink is for the caller to follow); [`Status::IsDirectory`];
    /// [`Status::Invalid`] without rights; permissions; servers that do not answer.
    pub async fn create(
        &self,
        who: &Credentials,
        dir: Handle,
        name: &[u8],
        options: &CreateOptions,
    ) -> Result<(Attr, Arc<OpenFile>, bool)> {
        let flow = self.flow("create", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_CREATE);
        check_name(name).map_err(|status| flow.error(status))?;
        if options.rights == Rights::default() {
            return Err(flow.error(Status::Invalid));
        }
        let name = Bytes::copy_from_slice(name);
        let _asks = match self.absorb_or_ask(flow, who, dir, &name, options).await {
            Ok((attr, file)) => return Ok((attr, file, true)),
            Err(asks) => asks,
        };
        for _ in 0..OPEN_TRIES {
            match self.try_create(flow, who, dir, &name, options, None).await {
                // The name led to a file that was removed before it could be opened: look again.
                Err(error) if error.status == Status::Stale && error.handle != dir => {}
                // An open by handle waits until others stop to append alone, or is shared.
                Err(error) if is_shared(error.status) && !options.exclusive => {
                    let found = self.lookup_soon(who, dir, &name).await?.attr.handle;
                    let CreateOptions { rights, truncate, delays, .. } = *options;
                    let how = OpenWith { rights, truncate, judged: None, delays };
                    let (attr, file) = self.open_in(flow, who, found, how).await?;
                    return Ok((attr, file, false));
                }
                outcome => {
                    let (attr, file, created) = outcome?;
                    return Ok((attr, file.ok_or(flow.error(Status::BadMessage))?, created));
                }
            }
        }
        Err(flow.error(Status::Busy))
    }

    /// The open file; none if its server has taken the content in that comes with the request.
    pub(super) async fn try_create(
        &self,
        flow: Flow,
        who: &Credentials,
        dir: Handle,
        name: &Bytes,
        options: &CreateOptions,
        content: Option<&Bytes>,
    ) -> Result<(Attr, Option<Arc<OpenFile>>, bool)> {
        let hold = if content.is_none() && options.can_absorb { self.before_change(dir, || false) } else { None };
        let change = self.changing(Touched::Name(dir, name));
        let asked = change.asked;
        let mut ticket = self.inner.opens.begin_create(who, dir, name, options.rights);
        let (open, open_sequence) = (options.rights, ticket.sequence);
        let can_delay = (options.delays != DelayWrites::No && self.keeps_leases()).then_some(true);
        // In a later one others may have asked for it already, in vain.
        let session = can_delay.map_or(0, |_| self.inner.knowledge.session(dir.server()).0);
        let make = |at| CreateRequest {
            open,
            open_sequence,
            content: content.cloned(),
            can_delay,
            cuts: (can_delay.is_some() && options.truncate && options.rights.contains(Rights::WRITE)).then_some(true),
            can_hold: hold.as_ref().map(|hold| hold.handles_left),
            ..file_request(at, name, options, who)
        };
        let mut grant = Grant::NONE;
        let reply = ticket.heard(self.ask_in_dir(flow, dir, By::Name(name), make, &mut grant).await)?;
        if let (Some(hold), Some(delegation)) = (&hold, &reply.delegation) {
            let [closes_with_attributes, tells_directories, tells_removals] =
                [reply.closes_with_attributes, reply.tells_directories, reply.tells_removals].map(|said| said == Some(true));
            let delay_bytes = delegation.delay_bytes;
            let granted = DirectoryGranted { delay_bytes, closes_with_attributes, tells_directories, tells_removals };
            self.inner.delegations.granted(dir, delegation, granted, hold.recalls, (reply.dir.time, self.rt().now()));
        }
        let done = change.created(&reply);
        if grant.scope == LeaseScope::All {
            self.inner.knowledge.made_name(done, (dir, grant.server), name, (reply.handle, reply.kind), reply.state.as_ref());
        }
        let CreateReply { created, handle, kind, state, capability, delay_bytes, ceiling, .. } = reply;
        let CreateReply { delays_attributes, closes_with_attributes, .. } = reply;
        match kind {
            FileKind::File => {}
            FileKind::Directory => return Err(flow.error(Status::IsDirectory)),
            _ => return Err(flow.error(Status::Exists)),
        }
        let flow = Flow { handle, ..flow };
        if let (Some(_), Some(state), None) = (content, &state, capability)
            && state.attr.is_inline()
        {
            if !created {
                // Nothing that was told of the file before is true any more.
                drop(self.changing(Touched::Object(handle)));
            }
            return Ok((state.attr, None, created));
        }
        let truncate = options.truncate && !created;
        // Whoever tells a server that has restarted what is open here tells of this right, too.
        let rights = if delay_bytes.is_some() { options.rights.with(Rights::DELAY) } else { options.rights };
        let file = match (&state, capability) {
            (Some(state), Some(capability)) => {
                self.inner.opens.opened(&ticket, who, rights, &state.attr, Some(Granted { capability, ceiling }))
            }
            _ => None,
        };
        let (Some(state), Some(file)) = (state, file) else {
            // The inode is on another server; or this open was overtaken, and permissions for it
            // were checked already.
            drop(ticket);
            if delay_bytes.is_some() {
                self.give_up_delaying(flow, handle, open_sequence).await;
            }
            let who = &if capability.is_some() { renewing(who) } else { who.clone() };
            let delays = if truncate { options.delays } else { DelayWrites::No };
            let how = OpenWith { rights: options.rights, truncate, judged: None, delays };
            let (attr, file) = Box::pin(self.open_in(flow, who, handle, how)).await?;
            if delay_bytes.is_some() {
                self.do_not_delay(flow, &file).await;
            }
            return Ok((attr, Some(file), created));
        };
        drop(ticket);
        if let Some(bytes) = delay_bytes {
            let session = if handle.server() == dir.server() { session } else { 0 };
            let [keeps_attributes, closes_with_attributes] = [delays_attributes, closes_with_attributes].map(|said| said == Some(true));
            let (delays, leaves_later) = (options.delays, created && options.can_absorb);
            let granted = DelayGranted { bytes, size: 0, delays, leaves_later, keeps_attributes, closes_with_attributes };
            let content = self.begin_content(&granted, (state.attr.mtime, self.rt().now()), session);
            self.delay(flow, &file, content).await;
        }
        if state.ask_data.is_some() {
            file.note_others_write();
        }
        if truncate && options.delays != DelayWrites::No {
            // It may stay here then, which is for an open to ask.
            let CreateOptions { rights, delays, .. } = *options;
            let how = OpenWith { rights, truncate, judged: None, delays };
            let opened = Box::pin(self.open_in(flow, who, handle, how)).await;
            let _ = Box::pin(self.close_in(flow, &file)).await;
            return opened.map(|(attr, file)| (attr, Some(file), created));
        }
        let attr = if truncate { Box::pin(self.truncate_opened(flow, who, handle)).await } else { self.settle(flow, state, asked).await };
        match attr {
            Ok(attr) => {
                self.after_open(flow, &file, options.rights, 0).await;
                Ok((attr, Some(file), created))
            }
            Err(error) => {
                // The caller gets no file, so nobody else will close it; the error of that is the
                // same one again.
                let _ = Box::pin(self.close_in(flow, &file)).await;
                Err(error)
            }
        }
    }

    /// From now on what is written to a file stays here, unless others have asked for it already.
    async fn delay(&self, flow: Flow, file: &OpenFile, content: Content) {
        if self.inner.opens.was_asked_for(file.handle()) || !file.inode().delay(content) {
            self.do_not_delay(flow, file).await;
        }
    }

    /// Gives the right to delay back that came with an open. If its server does not hear of it, it
    /// asks again.
    async fn do_not_delay(&self, flow: Flow, file: &OpenFile) {
        file.inode().need_not_delay();
        let _ = Box::pin(self.report(flow, file.inode())).await;
    }

    async fn truncate_opened(&self, flow: Flow, who: &Credentials, handle: Handle) -> Result<Attr> {
        let changes = SetAttr { size: Some(0), opened_for_write: true, ..SetAttr::default() };
        self.setattr_in(flow, who, handle, &changes).await
    }

    /// Opens a file by handle, in one request. With `truncate` it is cut to nothing.
    ///
    /// # Errors
    /// [`Status::Stale`] if it is gone; permissions; servers that do not answer.
    pub async fn open(&self, who: &Credentials, handle: Handle, rights: Rights, truncate: bool) -> Result<(Attr, Arc<OpenFile>)> {
        self.open_with(who, handle, OpenWith { rights, truncate, ..OpenWith::default() }).await
    }

    /// [`Client::open`] with options.
    ///
    /// # Errors
    /// As [`Client::open`]; [`Status::Stale`] also if what was `judged` is not true any more.
    pub async fn open_with(&self, who: &Credentials, handle: Handle, options: OpenWith) -> Result<(Attr, Arc<OpenFile>)> {
        let flow = self.flow("open", handle);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OPEN);
        self.open_in(flow, who, handle, options).await
    }

    pub(super) async fn open_in(&self, flow: Flow, who: &Credentials, handle: Handle, options: OpenWith) -> Result<(Attr, Arc<OpenFile>)> {
        let OpenWith { mut rights, truncate, judged, delays } = options;
        let can_delay = delays != DelayWrites::No && rights.contains(Rights::WRITE) && self.keeps_leases();
        let server = self.owner(flow, handle).await?;
        let wanted = rights;
        let mut was_told = false;
        // An open was overtaken with which the right to delay came.
        let mut gives_up = false;
        for _ in 0..OPEN_TRIES {
            if let Some(inode) = self.inner.opens.get(handle).filter(|inode| inode.is_delayed()) {
                if truncate || !inode.must_leave() {
                    // It is closed, and this finds it where it will be; or it is cut, which is for
                    // data servers.
                    Box::pin(self.report(flow, &inode)).await?;
                }
                self.send_attributes(flow, &inode).await?;
            }
            let known = self.inner.opens.get(handle);
            let shares = known.as_ref().map_or(0, |inode| inode.shares());
            let before = known.filter(|_| truncate);
            let passage = match &before {
                Some(inode) => Some(self.enter(inode).await),
                None => None,
            };
            let writes_before = before.as_ref().and_then(|inode| inode.writes_before_truncation());
            let change = truncate.then(|| self.changing(Touched::Object(handle)));
            let mut ticket = self.inner.opens.begin_open(who, handle, rights);
            let asked = self.asking();
            let (open_sequence, judged) = (ticket.sequence, judged.clone());
            let inline = (!truncate && !rights.contains(Rights::WRITE)).then_some(true);
            let can_delay = (can_delay && !gives_up && !self.is_delayed(handle)).then_some(true);
            let session = can_delay.map_or(0, |_| self.inner.knowledge.session(server).0);
            let request =
                OpenRequest { truncate, judged, inline, can_delay, ..OpenRequest::of(handle, rights, open_sequence, who.clone()) };
            let reply = match ticket.heard(self.call(flow, server, &request).await) {
                Err(error) if error.status == Status::OthersWrite && rights.contains(Rights::APPEND) => {
                    rights = rights.without(Rights::APPEND);
                    continue;
                }
                // The notice may have overtaken the open of whoever appends alone.
                Err(error) if error.status == Status::SharedAppend && !was_told => {
                    was_told = true;
                    continue;
                }
                answered => answered?,
            };
            if let Some(change) = change {
                change.done(Effect::Object);
            }
            let heard = self.rt().now();
            let granted = Granted { capability: reply.capability, ceiling: reply.ceiling };
            let held = if reply.delay.is_some() { rights.with(Rights::DELAY) } else { rights };
            let Some(file) = self.inner.opens.opened(&ticket, who, held, &reply.state.attr, Some(granted)) else {
                if reply.delay.is_some() {
                    gives_up = true;
                    self.give_up_delaying(flow, handle, open_sequence).await;
                }
                continue;
            };
            drop(ticket);
            if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, file.inode())) {
                file.inode().truncated(&reply.state.attr, writes_before);
            }
            drop(passage);
            if reply.state.ask_data.is_some() {
                file.note_others_write();
            }
            let settled = self.settle(flow, reply.state, asked).await;
            match (&reply.delay, &settled) {
                (Some(OpenDelay { bytes, now }), Ok(attr)) => {
                    let (leaves_later, keeps_attributes, closes_with_attributes) = (false, false, false);
                    let (bytes, size) = (*bytes, attr.size);
                    let granted = DelayGranted { bytes, size, delays, leaves_later, keeps_attributes, closes_with_attributes };
                    let content = self.begin_content(&granted, (*now, heard), session);
                    Box::pin(self.delay(flow, &file, content)).await;
                }
                (Some(_), Err(_)) => Box::pin(self.do_not_delay(flow, &file)).await,
                (None, _) if gives_up => Box::pin(self.do_not_delay(flow, &file)).await,
                (None, _) => {}
            }
            return match settled {
                Ok(attr) => {
                    self.after_open(flow, &file, wanted, shares).await;
                    Ok((attr, file))
                }
                Err(error) => {
                    // As in `try_create`.
                    let _ = self.close_in(flow, &file).await;
                    Err(error)
                }
            };
        }
        Err(flow.error_at(Status::Busy, server))
    }

    /// A file was opened, and its size is known; `wanted`: the rights that were asked for at first,
    /// `shares`: how often others had wanted to write to it before.
    pub(super) async fn after_open(&self, flow: Flow, file: &OpenFile, wanted: Rights, shares: u64) {
        let inode = file.inode();
        if file.has_overtaken() {
            // If it fails, the server is told with the next message.
            let _ = Box::pin(self.report(flow, inode)).await;
        }
        if !wanted.contains(Rights::APPEND) {
            return;
        }
        if !file.rights().contains(Rights::APPEND) {
            return inode.share_appends(self.rt().now() + AGAIN_NS);
        }
        inode.is_alone_since(shares);
        if inode.must_yield() {
            // Others wait for that. If it fails, the server is told with the next message.
            let _ = Box::pin(self.report(flow, inode)).await;
        }
    }

    /// Gives an open file back. The last local open that needs a right tells the server, with size
    /// and time of what was written.
    ///
    /// # Errors
    /// If the server did not hear of it in time. It is told again later ([`Client::keep_alive`]),
    /// so data that was written is not lost; the file counts as closed here in any case.
    pub async fn close(&self, file: Arc<OpenFile>) -> Result<()> {
        let flow = self.flow("close", file.handle());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_CLOSE);
        self.close_in(flow, &file).await
    }

    pub(super) async fn close_in(&self, flow: Flow, file: &OpenFile) -> Result<()> {
        file.release();
        let flow = Flow { handle: file.handle(), ..flow };
        if !file.inode().has_surplus() {
            self.inner.opens.remove_if_idle(file.inode());
            return Ok(());
        }
        self.report(flow, file.inode()).await
    }

    /// Reports size and time of what was written to the metadata server without closing: what
    /// `close(2)` of a program needs in a gateway whose own close comes later. No message if there
    /// is nothing to report.
    ///
    /// # Errors
    /// If the server did not hear of it in time.
    pub async fn flush(&self, file: &OpenFile) -> Result<()> {
        if !file.inode().has_unreported() {
            return Ok(());
        }
        let flow = self.flow("flush", file.handle());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        self.report(flow, file.inode()).await
    }

    /// Waits until no other flow of this process opens, reports or resizes the file.
    pub(crate) async fn enter<'a>(&self, inode: &'a OpenInode) -> Passage<'a> {
        if self.rt().delay_ns(FaultPoint::ClientLock) == 0
            && let Some(passage) = inode.gate.try_enter()
        {
            return passage;
        }
        let _waits = weft_trace::span(weft_trace::event::CLIENT_LOCK);
        self.rt().pass(FaultPoint::ClientLock).await;
        inode.gate.enter().await
    }

    /// Brings the data of the file, up to the size that this client has heard of, and unless
    /// `data_only` also its attributes to stable storage. With `data_only` the attributes follow
    /// only if they are needed to find the data again (the size may have changed).
    ///
    /// # Errors
    /// [`Status::Io`] and the like from a server whose disk failed; servers that do not answer.
    pub async fn fsync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        let flow = self.flow("fsync", file.handle());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_FSYNC);
        let inode = file.inode();
        self.settle_delayed(flow, inode).await?;
        let data = self.sync_data(flow, inode, inode.known_size().bytes);
        let (data, meta) = Box::pin(both(data, self.sync_attributes(flow, inode, data_only))).await;
        data.and(meta)
    }

    /// Brings everything that any client has written to the file, and its attributes, to stable
    /// storage. All data servers of the file are asked, whatever is known of its size: whoever
    /// looks at [`Client::boots`] afterwards knows whether one has restarted.
    ///
    /// # Errors
    /// As [`Client::fsync`].
    pub async fn commit(&self, file: &OpenFile) -> Result<()> {
        let flow = self.flow("commit", file.handle());
        let _op = weft_trace::operation(weft_trace::event::CLIENT_FSYNC);
        let inode = file.inode();
        self.settle_delayed(flow, inode).await?;
        let attributes = async {
            self.report(flow, inode).await?;
            self.call(flow, self.owner(flow, inode.handle).await?, &SyncMetaRequest {}).await
        };
        let (data, meta) = Box::pin(both(self.sync_data(flow, inode, FILE_BYTES_MAX), attributes)).await;
        data.and(meta)
    }

    /// The attributes of [`Client::fsync`].
    pub(super) async fn sync_attributes(&self, flow: Flow, inode: &OpenInode, data_only: bool) -> Result<()> {
        let Some(change) = inode.unsynced_change(data_only) else { return Ok(()) };
        self.report(flow, inode).await?;
        self.call(flow, self.owner(flow, inode.handle).await?, &SyncMetaRequest {}).await?;
        inode.synced(change);
        Ok(())
    }

    /// Syncs every datafile in which some of the first bytes of the file may lie.
    async fn sync_data(&self, flow: Flow, inode: &OpenInode, bytes: u64) -> Result<()> {
        let width = u32::from(inode.layout.width);
        let distribution = self.distribution(flow, inode).await?;
        let has_bytes = |index: u32| local_bytes(distribution, weft_base::StripeIndex(index), bytes) > 0;
        let indexes = (0..width).filter(|index| *index == 0 || has_bytes(*index));
        let syncs = indexes.map(|index| async move {
            let server = self.data_server(flow, &inode.layout, index).await?;
            self.with_capability(flow, inode, Rights::default(), async |capability| {
                self.call(flow, server, &ObjectSyncRequest { handle: inode.handle, index, capability }).await
            })
            .await
        });
        run_window(syncs, self.options().window).await.into_iter().collect()
    }
}

/// True if others write to the file as well.
fn is_shared(status: Status) -> bool {
    matches!(status, Status::SharedAppend | Status::OthersWrite)
}
