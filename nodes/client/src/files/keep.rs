//! Changes of attributes that stay with this client like the writes to a new file (`delayed.rs`),
//! and go to the server of its inode with the same close: what unpacks an archive sets times, owner
//! and mode of each file that it has made. Kept is what the owner of the file may set without being
//! looked at: permission bits and times, or the owner and group that it has. Whatever else is to be
//! judged by the server (another change, an open, extended attributes) finds them there: they are
//! sent before.

use weft_base::{ACL_ACCESS, Acl, Attr, Credentials, Handle, Nanos, WallTime};
use weft_rt::Runtime;
use weft_wire::ops::{SetAttrRequest, SetTime};

use super::delayed::{Content, Delayed};
use super::kept::KeptAttributes;
use super::open_inode::{OpenInode, State};
use crate::flow::Flow;
use crate::{Client, Result, SetAttr, XattrFlags};

impl OpenInode {
    /// Keeps a change of a file with these attributes here, if it can; all that is kept then.
    fn keep(&self, who: &Credentials, changes: &SetAttr, attr: &Attr, now: Nanos) -> Option<KeptAttributes> {
        let mut state = self.lock();
        let at = state.delayed.content()?.time_at_server(now);
        state.keep(who.uid, changes, attr, at)
    }

    /// Somebody looks at a new file with these attributes, of which all is here: the time of its
    /// last write stays the one that they show, as if it were set, and data servers are not asked
    /// for it. False if it cannot.
    pub(crate) fn keep_time(&self, attr: &mut Attr) -> bool {
        let mut state = self.lock();
        let is_whole = |content: &Content| content.closes_with_attributes && content.tail.whole().is_some();
        if attr.mtime_epoch > 0 || !state.delayed.content().is_some_and(is_whole) {
            return false;
        }
        let changes = SetAttr { mtime: Some(SetTime { at: Some(attr.mtime) }), ..SetAttr::default() };
        let kept = state.keep(attr.uid, &changes, attr, attr.mtime);
        kept.inspect(|kept| kept.show(attr)).is_some()
    }

    /// Its time is about to be set at its server.
    pub(crate) fn begin_to_set_time(&self) {
        if let Some(content) = self.lock().delayed.content_mut() {
            content.begin_to_set_time();
        }
    }

    /// What is kept here.
    fn attributes(&self) -> Option<KeptAttributes> {
        if self.is_delayed() { self.lock().delayed.content()?.attributes } else { None }
    }

    /// The server knows these, of which it was told with a message of this number.
    pub(super) fn end_attributes(&self, sent: KeptAttributes, number: u64) {
        let mut state = self.lock();
        state.attributes_told = Some(number);
        if let Some(content) = state.delayed.content_mut() {
            content.attributes = content.attributes.and_then(|kept| kept.after(sent));
        }
    }
}

impl State {
    /// Keeps a change by this user, at a time of the server, of a file with these attributes.
    fn keep(&mut self, uid: u32, changes: &SetAttr, attr: &Attr, at: WallTime) -> Option<KeptAttributes> {
        let epoch = self.mtime_epoch;
        let Delayed::Here(content) = &mut self.delayed else { return None };
        let sets_again = content.attributes.is_some_and(|kept| kept.mtime.is_some());
        // A time that is set after writes that followed another one has a later place.
        let is_first = !content.sets_time() && content.mtime_epoch == 0 && (epoch == 0 || epoch == KeptAttributes::EPOCH && sets_again);
        if !content.keeps_attributes || content.is_in_doubt || changes.mtime.is_some() && !is_first {
            return None;
        }
        let attributes = KeptAttributes::with(content.attributes, attr, uid, changes, at)?;
        content.attributes = Some(attributes);
        if changes.mtime.is_some() {
            self.mtime_epoch = KeptAttributes::EPOCH;
        }
        Some(attributes)
    }
}

impl Content {
    /// What the clock of the server of the file shows, as far as is known here.
    pub(super) fn time_at_server(&self, now: Nanos) -> WallTime {
        let (made, heard) = self.made;
        WallTime(made.0.saturating_add_unsigned(now.since(heard)))
    }
}

impl<R: Runtime> Client<R> {
    /// The attributes after a change that stays here; `None`: it cannot, and what is kept of the
    /// file must be sent before.
    pub(crate) fn keep_attributes(&self, who: &Credentials, inode: &OpenInode, changes: &SetAttr) -> Option<Attr> {
        let now = self.rt().now();
        let (state, asked) = self.inner.knowledge.state(inode.handle, now)?;
        let mut attr = self.settle_to_keep(&state, asked)?;
        inode.keep(who, changes, &attr, now)?.show(&mut attr);
        Some(attr)
    }

    /// True if an extended attribute is a list of access that says no more than a mode, and is kept
    /// as that: programs that copy give each file such a list.
    pub(crate) fn keep_list(&self, who: &Credentials, handle: Handle, name: &[u8], value: &[u8], flags: XattrFlags) -> bool {
        let is_list = name == ACL_ACCESS.as_bytes() && flags == XattrFlags::default();
        if !is_list {
            return false;
        }
        let inode = self.inner.opens.get(handle).filter(|inode| inode.is_delayed());
        if inode.is_none() && !self.inner.delegations.holds(handle) {
            return false;
        }
        let Ok(Some(list)) = Acl::parse(value) else { return false };
        let change = SetAttr { mode: Some(list.mode()), ..SetAttr::default() };
        let keeps = || match &inode {
            Some(inode) => self.keep_attributes(who, inode, &change),
            None => self.absorb_attributes(who, handle, &change),
        };
        !list.is_more_than_mode() && keeps().is_some()
    }

    /// [`Client::send_attributes`] of a file that may be open.
    pub(crate) async fn send_attributes_of(&self, flow: Flow, handle: Handle) -> Result<()> {
        match self.inner.opens.get(handle) {
            Some(inode) => self.send_attributes(flow, &inode).await,
            None => Ok(()),
        }
    }

    /// Sends what is kept of the attributes of a file, if anything is.
    ///
    /// # Errors
    /// As [`Client::setattr`].
    pub(crate) async fn send_attributes(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        if inode.attributes().is_none() {
            return Ok(());
        }
        Box::pin(async {
            // What is closing is with its server afterwards.
            let _passage = self.enter(inode).await;
            self.send_attributes_inside(flow, inode).await
        })
        .await
    }

    /// [`Client::send_attributes`] while no close of the file is under way.
    pub(super) async fn send_attributes_inside(&self, flow: Flow, inode: &OpenInode) -> Result<()> {
        let _turn = inode.sends_attributes.enter().await;
        let Some(attributes) = inode.attributes() else { return Ok(()) };
        let set = |at: Option<WallTime>| at.map(|at| SetTime { at: Some(at) });
        let KeptAttributes { mode, atime, mtime, owner: (uid, gid), .. } = attributes;
        let who = Credentials { uid, gid, groups: Vec::new(), checked_by_kernel: false };
        let request = SetAttrRequest { mode, atime: set(atime), mtime: set(mtime), ..SetAttrRequest::of(inode.handle, who) };
        self.send_setattr(flow, &request).await?;
        self.inner.opens.end_attributes(inode, attributes);
        Ok(())
    }
}
