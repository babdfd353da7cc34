//! Names that this client removes without asking, in directories that are delegated to it
//! (`delegations.rs`): of files that have no other name, and of directories that are empty and
//! delegated to it, too.

use bytes::Bytes;
use weft_base::{Credentials, FileKind, Handle, MODE_STICKY};
use weft_rt::Runtime;
use weft_wire::ops::DirChange;

use super::absorb::CHANGE_NAMES;
use super::delegations::{BeforeGrant, DirectoryGranted};
use super::learning::UnderWay;
use super::untold::{Absorbed, Done, Removed};
use crate::Client;
use crate::flow::Flow;
use crate::knowledge::{Effect, Led, Touched};

/// Who changes so many names of a directory changes more.
const SEVERAL: u32 = 3;

impl<R: Runtime> Client<R> {
    /// Removes a name in a directory that is delegated to this client, without a message: of a
    /// directory, or of something else. False: its server must be asked.
    pub(crate) fn remove_absorbed(&self, who: &Credentials, dir: Handle, name: &Bytes, is_directory: bool) -> bool {
        let (delegations, knowledge, now) = (&self.inner.delegations, &self.inner.knowledge, self.rt().now());
        let may_remove = |granted: &DirectoryGranted| granted.tells_removals;
        let removed = delegations.change(dir, now, may_remove, |at, is_held| {
            let parent = knowledge.leased_directory(dir, now)?;
            let Some(Led::To(handle, kind, _)) = knowledge.name(dir, name, now) else { return None };
            let may = who.checked_by_kernel || parent.mode & MODE_STICKY == 0 && parent.allows(who, CHANGE_NAMES);
            let is_it = (kind == FileKind::Directory) == is_directory && handle.server() == dir.server();
            let can_go = || match is_directory {
                true => is_held(handle) && knowledge.names(handle, now) == Some(0),
                // Others may know it by another name.
                false => knowledge.has_one_name(handle, now),
            };
            if !may || !is_it || !can_go() {
                return None;
            }
            let change = self.changing(Touched::Lost(dir, name));
            // Looked at when nobody opens it any more without asking: its server must hear of that
            // first.
            if self.inner.opens.get(handle).is_some_and(|inode| inode.is_unannounced()) {
                return None;
            }
            let of_dir = DirChange { version: parent.version + 1, time: at };
            change.done(if is_directory { Effect::RemovedDirectory(of_dir, Some(handle)) } else { Effect::Removed(of_dir) });
            let removed = Removed { name: name.clone(), handle, kind, at };
            Some((Absorbed { dir, who: who.clone(), since: now, done: Done::Removed(removed) }, ()))
        });
        removed.is_some()
    }

    /// What its server is asked to remove, if that is known. A directory of which it is not is
    /// looked up if this client may hold it, and given back: no file is made in it without asking
    /// while it goes.
    pub(crate) async fn directory_to_remove(&self, flow: Flow, who: &Credentials, dir: Handle, name: &Bytes) -> Option<Handle> {
        match self.inner.knowledge.name(dir, name, self.rt().now()) {
            Some(Led::To(handle, ..)) => Some(handle),
            None if self.inner.delegations.holds_some() => {
                let handle = Box::pin(self.lookup_in(flow, who, dir, name)).await.ok()?.handle;
                if self.inner.delegations.holds(handle) {
                    self.inner.delegations.give_back(handle);
                }
                Some(handle)
            }
            Some(Led::Nowhere) | None => None,
        }
    }

    /// The same, if it cannot be done at once. `Ok`: it is done; otherwise its server is to be
    /// asked, while what is returned is kept.
    pub(crate) async fn remove_soon(
        &self,
        flow: Flow,
        who: &Credentials,
        dir: Handle,
        name: &Bytes,
    ) -> std::result::Result<(), Option<UnderWay<'_>>> {
        let is_removed = || self.remove_absorbed(who, dir, name, false);
        let (knowledge, now) = (&self.inner.knowledge, self.rt().now());
        let is_here = |handle: Handle| handle.server() == dir.server();
        let may_go = |led| matches!(led, Led::To(handle, _, _) if is_here(handle) && knowledge.has_one_name(handle, now));
        if self.inner.delegations.holds(dir) && knowledge.name(dir, name, now).is_some_and(may_go) {
            self.may_soon_absorb(flow, dir).await;
            if is_removed() {
                return Ok(());
            }
        }
        let begun = self.begins_to_ask(flow, dir).await;
        if is_removed() { Ok(()) } else { Err(begun) }
    }

    /// Before the removal of a name in this directory is sent, if it may ask for the right to
    /// remove more: all its names are known here, or several were removed.
    pub(crate) fn before_unlink(&self, dir: Handle) -> Option<BeforeGrant<'_>> {
        self.before_change(dir, || self.inner.delegations.changes_again(dir) >= SEVERAL)
    }
}
