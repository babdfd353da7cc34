//! Names: finding them, making and removing them. Every operation is one request to the server that
//! holds the name; only the attributes of an object whose inode is elsewhere cost a second one.

mod directory;
mod many;
mod partitions;
mod paths;

use bytes::Bytes;
use weft_base::{Attr, Credentials, EXECUTE, FileKind, Handle, Status, check_name};
use weft_rt::{Runtime, Work};
use weft_wire::LeaseScope;
use weft_wire::ops::{
    CreateRequest, FileState, LinkRequest, LookupReply, LookupRequest, MkdirRequest, ReadlinkRequest, RenameRequest, RmdirRequest,
    UnlinkRequest,
};

use crate::attributes::Settled;
use crate::files::BeforeGrant;
use crate::flow::Flow;
use crate::knowledge::{Asked, Effect, Led, Touched};
use crate::{Client, RenameFlags, Result, Seen};

pub(crate) use directory::Wanted;
pub(crate) use partitions::{By, Grant};
pub use paths::{Purpose, WalkEnd};

/// How often a name is looked up again because the object it led to was changing when its
/// attributes were asked for.
const LOOKUP_TRIES: usize = 16;

/// A name that a change is about, checked.
fn checked(flow: Flow, name: &[u8]) -> Result<Bytes> {
    check_name(name).map_err(|status| flow.error(status))?;
    Ok(Bytes::copy_from_slice(name))
}

impl<R: Runtime> Client<R> {
    /// True if nobody needs to ask a server whether this user may look names up in a directory.
    fn may_search(&self, who: &Credentials, dir: Handle) -> bool {
        let by_mode = || {
            let (knowledge, now) = (&self.inner.knowledge, self.rt().now());
            let told = knowledge.state(dir, now).map(|(state, _)| state.attr);
            told.or_else(|| knowledge.directory(dir, now).map(|(attr, _)| attr)).is_some_and(|attr| attr.allows(who, EXECUTE))
        };
        who.checked_by_kernel || who.uid == 0 || by_mode()
    }

    /// Attributes of the object that a name leads to; they are exact.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::NotDirectory`], [`Status::NameTooLong`], permissions,
    /// servers that do not answer.
    pub async fn lookup(&self, who: &Credentials, dir: Handle, name: &[u8]) -> Result<Attr> {
        let flow = self.flow("lookup", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_LOOKUP);
        let name = checked(flow, name)?;
        if let Some(believed) = self.believed(flow, who, dir, &name) {
            self.rt().cpu(Work::KnownRecord).await;
            return believed;
        }
        self.lookup_in(flow, who, dir, &name).await
    }

    /// What needs no question: there is no such name, or what it leads to was told under a lease.
    pub(super) fn believed(&self, flow: Flow, who: &Credentials, dir: Handle, name: &Bytes) -> Option<Result<Attr>> {
        let (knowledge, now) = (&self.inner.knowledge, self.rt().now());
        if !self.may_search(who, dir) {
            return None;
        }
        match knowledge.name(dir, name, now) {
            Some(Led::Nowhere) => Some(Err(flow.error(Status::NotFound))),
            Some(Led::To(handle, _, Some(told))) => {
                let (state, asked) = *told;
                assert!(state.attr.handle == handle, "what was told of an object is found by its handle");
                self.settle_at_once(&state, asked).filter(|attr| attr.nlink > 0).map(Ok)
            }
            // A directory that this client has just changed.
            Some(Led::To(handle, _, None)) => knowledge.directory(handle, now).map(|(attr, _)| Ok(attr)),
            None => knowledge.is_absent(dir, name, now).then(|| Err(flow.error(Status::NotFound))),
        }
    }

    /// Like [`Client::lookup`], but does not wait long for data servers that do not answer: names
    /// are there to be used although the size of a file that others are writing cannot be had.
    ///
    /// # Errors
    /// As [`Client::lookup`].
    pub async fn lookup_soon(&self, who: &Credentials, dir: Handle, name: &[u8]) -> Result<Seen> {
        let flow = self.flow("lookup", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_LOOKUP);
        let name = checked(flow, name)?;
        if let Some(believed) = self.believed(flow, who, dir, &name) {
            self.rt().cpu(Work::KnownRecord).await;
            return believed.map(|attr| Seen { attr, is_exact: true });
        }
        for _ in 0..LOOKUP_TRIES {
            let asked = self.asking();
            let reply = self.lookup_request(flow, who, dir, &name).await?;
            let found = Flow { handle: reply.handle, ..flow };
            let outcome = match reply.state {
                Some(state) => match self.settle_at_once(&state, asked) {
                    Some(attr) => Ok(Seen { attr, is_exact: true }),
                    None => Box::pin(self.settle_soon(found, state, asked)).await,
                },
                // Asked for alone, so that it may be believed.
                None => match self.get_state(found, reply.handle).await {
                    Ok(state) => Box::pin(self.settle_soon(found, state, asked)).await,
                    Err(error) => Err(error),
                },
            };
            match outcome {
                // Removed or replaced in between: what is it now?
                Err(error) if error.status == Status::Stale => {}
                outcome => return outcome,
            }
        }
        Err(flow.error(Status::Busy))
    }

    /// [`Client::lookup`] as a part of another operation.
    pub(crate) async fn lookup_in(&self, flow: Flow, who: &Credentials, dir: Handle, name: &Bytes) -> Result<Attr> {
        let mut later = None;
        for _ in 0..LOOKUP_TRIES {
            let asked = self.asking();
            let reply = self.lookup_request(flow, who, dir, name).await?;
            let found = Flow { handle: reply.handle, ..flow };
            let outcome = match reply.state {
                Some(state) => self.settle_once(found, state, asked).await,
                None => self.getattr_in(found, reply.handle).await.map(Settled::Exact),
            };
            match outcome {
                // Removed in between, too: attributes without links are for those who hold the
                // object.
                Ok(Settled::Exact(attr) | Settled::Later(attr)) if attr.nlink == 0 => {}
                Ok(Settled::Exact(attr)) => return Ok(attr),
                Ok(Settled::Later(attr)) => later = Some(attr),
                Ok(Settled::Overtaken(_) | Settled::Unknown) => {}
                // Removed or replaced in between: what is it now?
                Err(error) if error.status == Status::Stale => {}
                Err(error) => return Err(error),
            }
        }
        later.ok_or(flow.error(Status::Busy))
    }

    /// The object that a name leads to and its kind, without attributes: always one request.
    ///
    /// # Errors
    /// As [`Client::lookup`].
    pub async fn lookup_handle(&self, who: &Credentials, dir: Handle, name: &[u8]) -> Result<(Handle, FileKind)> {
        let flow = self.flow("lookup", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_LOOKUP);
        let name = checked(flow, name)?;
        self.find_handle_in(flow, who, dir, &name).await
    }

    /// [`Client::lookup_handle`] as a part of another operation.
    async fn find_handle_in(&self, flow: Flow, who: &Credentials, dir: Handle, name: &Bytes) -> Result<(Handle, FileKind)> {
        if let Some(led) = self.inner.knowledge.name(dir, name, self.rt().now())
            && self.may_search(who, dir)
        {
            return match led {
                Led::Nowhere => Err(flow.error(Status::NotFound)),
                Led::To(handle, kind, _) => Ok((handle, kind)),
            };
        }
        self.lookup_handle_in(flow, who, dir, name).await
    }

    /// The same, asked in any case.
    pub(crate) async fn lookup_handle_in(&self, flow: Flow, who: &Credentials, dir: Handle, name: &Bytes) -> Result<(Handle, FileKind)> {
        let reply = self.lookup_request(flow, who, dir, name).await?;
        Ok((reply.handle, reply.kind))
    }

    pub(crate) async fn lookup_request(&self, flow: Flow, who: &Credentials, dir: Handle, name: &Bytes) -> Result<LookupReply> {
        let (asked, mut grant) = (self.asking(), Grant::NONE);
        let make = |at| LookupRequest { at, name: name.clone(), who: who.clone() };
        let outcome = self.ask_in_dir(flow, dir, By::Name(name), make, &mut grant).await;
        if grant.scope >= LeaseScope::Names {
            let (led, state) = match &outcome {
                Ok(reply) => (Some((reply.handle, reply.kind)), reply.state.as_ref().filter(|_| grant.scope == LeaseScope::All)),
                Err(_) => (None, None),
            };
            self.inner.knowledge.told_name(asked, self.rt().now(), (dir, grant.server), name, led, state);
            if state.is_some() {
                Box::pin(self.looked_up(who, dir)).await;
            }
        }
        outcome
    }

    /// Makes a directory with these permission bits (and the umask,
    /// [`weft_base::mode_with_umask`]). Returns its attributes.
    ///
    /// # Errors
    /// [`Status::Exists`], [`Status::TooManyLinks`], [`Status::NoSpace`], permissions, servers that
    /// do not answer.
    pub async fn mkdir(&self, who: &Credentials, dir: Handle, name: &[u8], mode: u32) -> Result<Attr> {
        self.mkdir_with(who, dir, name, mode, false).await
    }

    /// Like [`Client::mkdir`]; with `can_absorb` further files and directories may be made, and
    /// names removed, without asking for each, as
    /// [`CreateOptions::can_absorb`](crate::CreateOptions) says.
    ///
    /// # Errors
    /// As [`Client::mkdir`].
    pub async fn mkdir_with(&self, who: &Credentials, dir: Handle, name: &[u8], mode: u32, can_absorb: bool) -> Result<Attr> {
        let flow = self.flow("mkdir", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_MKDIR);
        let name = checked(flow, name)?;
        self.works_alone(dir, Work::UntoldChange).await;
        if let Some(attr) = self.absorb_directory(flow, who, dir, &name, mode).await? {
            return Ok(attr);
        }
        let hold = if can_absorb { self.before_change(dir, || false) } else { None };
        let change = self.changing(Touched::Name(dir, &name));
        let (can_delay, can_hold) = asked_with(&hold);
        let make = |at| MkdirRequest { can_delay, can_hold, ..MkdirRequest::of(at, name.clone(), mode, who.clone()) };
        let mut grant = Grant::NONE;
        let reply = self.ask_in_dir(flow, dir, By::Name(&name), make, &mut grant).await?;
        self.granted_by_change(dir, (reply.delegation.as_ref(), reply.tells_directories), reply.dir.time, hold);
        let attr = reply.state.attr;
        self.learn_partitions(&reply.state);
        let is_split = reply.state.partitions.as_ref().is_some_and(|map| map.is_split(attr.handle));
        let asked = change.done(Effect::MadeDirectory(reply.dir, (!is_split).then_some(&attr)));
        if grant.scope == LeaseScope::All {
            self.inner.knowledge.made_name(asked, (dir, grant.server), &name, (attr.handle, attr.kind), Some(&reply.state));
        }
        Ok(attr)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::NotDirectory`], [`Status::NotEmpty`], permissions, servers
    /// that do not answer.
    pub async fn rmdir(&self, who: &Credentials, dir: Handle, name: &[u8]) -> Result<()> {
        let flow = self.flow("rmdir", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_RMDIR);
        let name = checked(flow, name)?;
        self.works_alone(dir, Work::UntoldRemoval).await;
        if self.remove_absorbed(who, dir, &name, true) {
            return Ok(());
        }
        let removed = self.directory_to_remove(flow, who, dir, &name).await;
        let change = self.changing(Touched::Lost(dir, &name));
        let reply = self.call_in_dir(flow, dir, By::Name(&name), |at| RmdirRequest { at, name: name.clone(), who: who.clone() }).await?;
        change.done(Effect::RemovedDirectory(reply.dir, removed));
        if let Some(removed) = removed {
            self.inner.delegations.removed(removed);
        }
        Ok(())
    }

    /// Removes a name that leads to anything but a directory. The object goes with its last name,
    /// as soon as nobody has it open.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::IsDirectory`], permissions, servers that do not answer.
    pub async fn unlink(&self, who: &Credentials, dir: Handle, name: &[u8]) -> Result<()> {
        self.unlink_with(who, dir, name, false).await
    }

    /// Like [`Client::unlink`]; with `can_absorb` further names of the directory may be removed,
    /// and files be made, without asking for each, as
    /// [`CreateOptions::can_absorb`](crate::CreateOptions) says.
    ///
    /// # Errors
    /// As [`Client::unlink`].
    pub async fn unlink_with(&self, who: &Credentials, dir: Handle, name: &[u8], can_absorb: bool) -> Result<()> {
        let flow = self.flow("unlink", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_UNLINK);
        self.unlink_in(flow, who, dir, &checked(flow, name)?, can_absorb).await
    }

    /// [`Client::unlink`] as a part of another operation.
    pub(crate) async fn unlink_in(&self, flow: Flow, who: &Credentials, dir: Handle, name: &Bytes, can_absorb: bool) -> Result<()> {
        self.works_alone(dir, Work::UntoldRemoval).await;
        if self.remove_absorbed(who, dir, name, false) {
            return Ok(());
        }
        let _asks = match can_absorb && self.keeps_leases() {
            true => match Box::pin(self.remove_soon(flow, who, dir, name)).await {
                Ok(()) => return Ok(()),
                Err(asks) => asks,
            },
            false => None,
        };
        let hold = if can_absorb { self.before_unlink(dir) } else { None };
        let change = self.changing(Touched::Lost(dir, name));
        self.announce_before(&change).await;
        let (can_delay, can_hold) = asked_with(&hold);
        let make = |at| UnlinkRequest { can_delay, can_hold, ..UnlinkRequest::of(at, name.clone(), who.clone()) };
        let reply = self.call_in_dir(flow, dir, By::Name(name), make).await?;
        self.granted_by_change(dir, (reply.delegation.as_ref(), reply.tells_directories), reply.dir.time, hold);
        change.done(Effect::Removed(reply.dir));
        Ok(())
    }

    /// Moves a name, replacing what the new name leads to unless the flags say otherwise.
    ///
    /// # Errors
    /// [`Status::NotFound`], [`Status::Exists`], [`Status::NotEmpty`], [`Status::IsDirectory`],
    /// [`Status::NotDirectory`], [`Status::Invalid`] for a directory moved below itself or for both
    /// flags, permissions, servers that do not answer.
    pub async fn rename(
        &self,
        who: &Credentials,
        from_dir: Handle,
        from_name: &[u8],
        to_dir: Handle,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let flow = self.flow("rename", from_dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_RENAME);
        let (from_name, to_name) = (checked(flow, from_name)?, checked(flow, to_name)?);
        let RenameFlags { no_replace, exchange } = flags;
        if no_replace && exchange {
            return Err(flow.error(Status::Invalid));
        }
        if from_dir == to_dir && !exchange && self.rename_absorbed(who, from_dir, &from_name, &to_name) {
            return Ok(());
        }
        self.owner(flow, to_dir).await?;
        // Nothing is delayed without leases.
        if !no_replace && self.keeps_leases() {
            Box::pin(self.close_to_replace((from_dir, &from_name), (to_dir, &to_name))).await;
        }
        let change = self.changing(Touched::Names((from_dir, &from_name), (to_dir, &to_name)));
        self.announce_before(&change).await;
        let partitions = &self.inner.knowledge.partitions;
        let outcome = self.call_in_dir(flow, from_dir, By::Name(&from_name), |from| RenameRequest {
            from,
            from_name: from_name.clone(),
            to: partitions.target(to_dir),
            to_name: to_name.clone(),
            no_replace,
            exchange,
            who: who.clone(),
        });
        let reply = outcome.await?;
        // Over two directories, or of a directory, it is not followed.
        if reply.dir.version > 0 {
            change.done(Effect::Renamed(reply.dir, reply.replaced));
        }
        Ok(())
    }

    /// Adds the name `to_name` in `to_dir` to an object that is no directory. Returns its
    /// attributes.
    ///
    /// # Errors
    /// [`Status::Exists`], [`Status::NotPermitted`] for a directory, [`Status::TooManyLinks`],
    /// [`Status::Stale`] if the object is gone, permissions, servers that do not answer.
    pub async fn link(&self, who: &Credentials, handle: Handle, to_dir: Handle, to_name: &[u8]) -> Result<Attr> {
        let flow = self.flow("link", handle);
        match self.link_in(flow, who, handle, to_dir, to_name).await? {
            (Some(state), asked) => self.settle_change(flow, state, asked, false).await,
            (None, _) => self.getattr_in(flow, handle).await,
        }
    }

    /// Like [`Client::link`], but waits a short while only for data servers that do not answer.
    ///
    /// # Errors
    /// As [`Client::link`].
    pub async fn link_soon(&self, who: &Credentials, handle: Handle, to_dir: Handle, to_name: &[u8]) -> Result<Seen> {
        let flow = self.flow("link", handle);
        match self.link_in(flow, who, handle, to_dir, to_name).await? {
            (Some(state), asked) => self.settle_change_soon(flow, state, asked).await,
            (None, _) => self.getattr_soon(handle).await,
        }
    }

    /// The state after that, if it was told, and when it was asked for.
    async fn link_in(
        &self,
        flow: Flow,
        who: &Credentials,
        handle: Handle,
        to_dir: Handle,
        to_name: &[u8],
    ) -> Result<(Option<FileState>, Asked)> {
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        let to_name = checked(flow, to_name)?;
        let kind = match self.inner.knowledge.state(handle, self.rt().now()) {
            Some((known, _)) => known.attr.kind,
            None => self.get_state(flow, handle).await?.attr.kind,
        };
        if kind == FileKind::Directory {
            return Err(flow.error(Status::NotPermitted));
        }
        let change = self.changing(Touched::Linked(handle, (to_dir, &to_name)));
        let asked = change.asked;
        let make = |to| LinkRequest { handle, kind, to, to_name: to_name.clone(), who: who.clone() };
        let reply = self.call_in_dir(flow, to_dir, By::Name(&to_name), make).await?;
        change.done(Effect::Made(reply.dir));
        Ok((reply.state, asked))
    }

    /// Makes a symlink to `target` (1 to 4095 bytes, not looked at). Returns its attributes.
    ///
    /// # Errors
    /// [`Status::Exists`], [`Status::NameTooLong`] for a target that is too long, permissions,
    /// servers that do not answer.
    pub async fn symlink(&self, who: &Credentials, dir: Handle, name: &[u8], target: &[u8]) -> Result<Attr> {
        let flow = self.flow("symlink", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        let target = Bytes::copy_from_slice(target);
        self.make(flow, who, dir, name, FileKind::Symlink, 0o777, 0, target).await
    }

    /// Makes a file, pipe, socket or device without opening it. Returns its attributes.
    ///
    /// # Errors
    /// [`Status::Exists`], [`Status::Invalid`] for a directory or symlink, permissions, servers
    /// that do not answer.
    pub async fn mknod(&self, who: &Credentials, dir: Handle, name: &[u8], kind: FileKind, mode: u32, rdev: u32) -> Result<Attr> {
        let flow = self.flow("mknod", dir);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return Err(flow.error(Status::Invalid));
        }
        self.make(flow, who, dir, name, kind, mode, rdev, Bytes::new()).await
    }

    #[allow(clippy::too_many_arguments)] // the fields of one request
    async fn make(
        &self,
        flow: Flow,
        who: &Credentials,
        dir: Handle,
        name: &[u8],
        kind: FileKind,
        mode: u32,
        rdev: u32,
        target: Bytes,
    ) -> Result<Attr> {
        let name = checked(flow, name)?;
        self.make_unopened(flow, dir, &name, |at| CreateRequest {
            rdev,
            target: target.clone(),
            ..CreateRequest::of(at, name.clone(), (kind, mode), who.clone())
        })
        .await
    }

    /// Sends a create that opens nothing.
    pub(crate) async fn make_unopened(
        &self,
        flow: Flow,
        dir: Handle,
        name: &Bytes,
        make: impl Fn(weft_wire::ops::DirTarget) -> CreateRequest + Sync,
    ) -> Result<Attr> {
        let change = self.changing(Touched::Name(dir, name));
        let (asked, mut grant) = (change.asked, Grant::NONE);
        let reply = self.ask_in_dir(flow, dir, By::Name(name), make, &mut grant).await?;
        let done = change.created(&reply);
        if grant.scope == LeaseScope::All {
            self.inner.knowledge.made_name(done, (dir, grant.server), name, (reply.handle, reply.kind), reply.state.as_ref());
        }
        let flow = Flow { handle: reply.handle, ..flow };
        match reply.state {
            Some(state) => self.settle(flow, state, asked).await,
            None => self.getattr_in(flow, reply.handle).await,
        }
    }

    /// Target of a symlink.
    ///
    /// # Errors
    /// [`Status::Invalid`] if it is none, [`Status::Stale`] if it is gone, servers that do not
    /// answer.
    pub async fn readlink(&self, handle: Handle) -> Result<Bytes> {
        let flow = self.flow("readlink", handle);
        let _op = weft_trace::operation(weft_trace::event::CLIENT_OTHER);
        Ok(self.call(flow, self.owner(flow, handle).await?, &ReadlinkRequest { handle }).await?.target)
    }
}

/// What a request says that may be granted a directory: that its client can delay writes, and how
/// many handles it has left.
fn asked_with(hold: &Option<BeforeGrant<'_>>) -> (Option<bool>, Option<u32>) {
    (hold.is_some().then_some(true), hold.as_ref().map(|hold| hold.handles_left))
}
