//! Files that this client makes without asking, in directories that are delegated to it: their
//! server is told of many at once, and of what else was done there (`directories.rs`,
//! `removals.rs`), before anything else that it is asked, and soon in any case
//! ([`Client::tell_absorbed`]).

use std::hash::Hasher;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::{
    Attr, Credentials, EXECUTE, FastHasher, FileKind, Handle, Layout, MILLISECOND, MODE_PROJECT, MODE_SETGID, MODE_STICKY, Nanos, SECOND,
    ServerId, ServerRole, Status, WRITE, WallTime,
};
use weft_layout::first_data_server;
use weft_rt::{Either, Runtime, Work, join_all, race};
use weft_wire::ops::{Class, Delegation, DirChange, FileState, NewCapability, NewFile};
use weft_wire::{Op, Rights};

use super::delayed::DelayGranted;
use super::delegations::{BeforeGrant, DirectoryGranted, Place};
use super::granted::Granted;
use super::learning::{Pause, UnderWay};
use super::open_inode::OpenInode;
use super::untold::{Absorbed, Batch, Done};
use crate::flow::Flow;
use crate::knowledge::{Asked, Effect, Led, Touched};
use crate::{Client, CreateOptions, DelayWrites, Error, OpenFile, Result};

/// How long a server may take to hear of what others wait for, in nanoseconds.
const TELL_NS: u64 = 5 * SECOND;
/// The same before a notice counts as heard, in nanoseconds: its client must go on to be heard of.
const GIVE_BACK_NS: u64 = SECOND;
/// The pause after a server that does not answer, or has no space, in nanoseconds.
const AGAIN_NS: u64 = 50 * MILLISECOND;
/// A server is told what is left once more when something was forgotten above.
const TELL_TRIES: usize = 2;
/// A directory in which nothing was made for so long is given back when [`Client::keep_alive`] runs
/// next, in nanoseconds.
const UNUSED_NS: u64 = 5 * SECOND;
/// Names of a directory that are listed to make further ones without asking, at most.
const LISTED_MAX: u64 = 1000;
/// How long a create may wait for that, in nanoseconds.
const LEARN_NS: u64 = 500 * MILLISECOND;
/// Enough for a listing of so many of usual length, in bytes.
const LIST_BYTES: u32 = 64 << 10;
/// To change names in a directory, among the permissions of a user.
pub(super) const CHANGE_NAMES: u32 = WRITE | EXECUTE;

/// How a server is asked to make a file.
pub(super) enum Asks<'a> {
    /// Whatever else is asked.
    Freely,
    /// No create in its directory is under way, and none begins before this one is answered: it may
    /// bring the directory.
    Alone(#[expect(dead_code, reason = "is kept")] Pause<'a>),
    /// While nobody learns the names of its directory.
    BesideOthers(#[expect(dead_code, reason = "is kept")] UnderWay<'a>),
}

/// True if a file may be made so without asking.
fn is_plain(options: &CreateOptions) -> bool {
    let is_as_directory_says = options.stripe_bytes == 0 && options.stripe_width == 0 && options.strips.is_none();
    let is_usual = Rights::READ.with(Rights::WRITE).contains(options.rights);
    is_as_directory_says && options.times.is_none() && options.mode & 0o7000 == 0 && is_usual
}

impl<R: Runtime> Client<R> {
    /// Makes a file without asking, if that can be done now or soon. Otherwise its server is to be
    /// asked, while what is returned is kept.
    pub(super) async fn absorb_or_ask(
        &self,
        flow: Flow,
        who: &Credentials,
        dir: Handle,
        name: &Bytes,
        options: &CreateOptions,
    ) -> std::result::Result<(Attr, Arc<OpenFile>), Asks<'_>> {
        if !options.can_absorb {
            return Err(Asks::Freely);
        }
        self.works_alone(dir, Work::UntoldChange).await;
        match self.absorb(who, dir, name, options) {
            Some(made) => Ok(made),
            None if self.keeps_leases() => Box::pin(self.absorb_soon(flow, who, dir, name, options)).await,
            None => Err(Asks::Freely),
        }
    }

    /// The same, if it cannot be done at once.
    async fn absorb_soon(
        &self,
        flow: Flow,
        who: &Credentials,
        dir: Handle,
        name: &Bytes,
        options: &CreateOptions,
    ) -> std::result::Result<(Attr, Arc<OpenFile>), Asks<'_>> {
        let delegations = &self.inner.delegations;
        let again = || if delegations.holds(dir) { self.absorb(who, dir, name, options) } else { None };
        if is_plain(options) && delegations.holds(dir) && self.inner.knowledge.is_absent(dir, name, self.rt().now()) {
            self.may_soon_absorb(flow, dir).await;
            if let Some(made) = again() {
                return Ok(made);
            }
        }
        if self.wants_names(dir, name)
            && let Some(pause) = self.learn_names(who, dir).await
        {
            return again().ok_or(Asks::Alone(pause));
        }
        match self.begins_to_ask(flow, dir).await {
            Some(begun) => again().ok_or(Asks::BesideOthers(begun)),
            // It fails at its server.
            None => Err(Asks::Freely),
        }
    }

    /// Makes a file in a directory that is delegated to this client, without a message. `None`: its
    /// server must be asked.
    fn absorb(&self, who: &Credentials, dir: Handle, name: &Bytes, options: &CreateOptions) -> Option<(Attr, Arc<OpenFile>)> {
        if !is_plain(options) {
            return None;
        }
        let (delegations, knowledge, now) = (&self.inner.delegations, &self.inner.knowledge, self.rt().now());
        delegations.absorb(dir, now, |place| {
            let parent = knowledge.has_no_name(dir, name, now)?;
            if !who.checked_by_kernel && !parent.allows(who, CHANGE_NAMES) {
                return None;
            }
            let attr = self.absorbed_attr(who, &parent, name, options, &place)?;
            let bytes = place.granted.delay_bytes;
            let delays = options.delays != DelayWrites::No && options.rights.contains(Rights::WRITE) && bytes > 0;
            let granted = DelayGranted {
                bytes,
                size: 0,
                delays: options.delays,
                leaves_later: true,
                keeps_attributes: true,
                closes_with_attributes: place.granted.closes_with_attributes,
            };
            let change = self.changing(Touched::Name(dir, name));
            let ticket = self.inner.opens.begin();
            let rights = if delays { options.rights.with(Rights::DELAY) } else { options.rights };
            // Nobody has ever heard of it, so no close and no restart has overtaken this.
            let file = self.inner.opens.opened(&ticket, who, rights, &attr, None)?;
            let inode = Arc::clone(file.inode());
            if delays {
                let content = self.begin_content(&granted, (attr.mtime, now), knowledge.session(dir.server()).0);
                assert!(inode.delay(content), "nobody has asked for a file that nobody knows");
            }
            let asked = change.done(Effect::Made(DirChange { version: parent.version + 1, time: attr.mtime }));
            let state = FileState { attr, ask_data: None, partitions: None };
            knowledge.made_name(asked, (dir, dir.server()), name, (attr.handle, attr.kind), Some(&state));
            let new = NewFile {
                name: name.clone(),
                handle: attr.handle,
                mode: attr.mode,
                open: options.rights,
                open_sequence: ticket.sequence,
                delays,
                made_at: attr.mtime,
                named_at: attr.mtime,
                layout: attr.layout,
            };
            Some((Absorbed { dir, who: who.clone(), since: now, done: Done::File(new, inode) }, (attr, file)))
        })
    }

    /// Before something is done in a directory that may be delegated to this client: no message
    /// shows that it takes time.
    pub(crate) async fn works_alone(&self, dir: Handle, work: Work) {
        if self.inner.delegations.holds(dir) {
            self.rt().cpu(work).await;
        }
    }

    /// As the server of its directory will make it.
    fn absorbed_attr(&self, who: &Credentials, dir: &Attr, name: &Bytes, options: &CreateOptions, place: &Place) -> Option<Attr> {
        let map = self.map();
        let newest = map.newest()?;
        let data_servers = newest.data.len() as u16;
        let mut hash = FastHasher::default();
        hash.write(name);
        let mode = options.mode & 0o777 | dir.mode & MODE_PROJECT;
        let layout = Layout {
            width: dir.layout.width.min(data_servers).max(1),
            first: first_data_server(dir.handle, hash.finish(), data_servers.into()),
            generation: newest.id,
            ..dir.layout
        };
        let gid = if dir.mode & MODE_SETGID != 0 { dir.gid } else { who.gid };
        Some(Attr { uid: who.uid, gid, ..Attr::new(place.handle, FileKind::File, mode, layout, place.at) })
    }

    /// Gives a file another name in its directory, if its server knows neither of the file nor of
    /// that name. False: the server must be asked.
    pub(crate) fn rename_absorbed(&self, who: &Credentials, dir: Handle, from: &Bytes, to: &Bytes) -> bool {
        let (knowledge, now) = (&self.inner.knowledge, self.rt().now());
        self.inner.delegations.rename(dir, from, to, now, |file, at| {
            let Some(parent) = knowledge.has_no_name(dir, to, now) else { return false };
            let Some(Led::To(handle, _, Some(told))) = knowledge.name(dir, from, now) else { return false };
            let may_rename = who.checked_by_kernel || parent.mode & MODE_STICKY == 0 && parent.allows(who, CHANGE_NAMES);
            if handle != file || !may_rename {
                return false;
            }
            knowledge.renamed_untold(self.asking(), (dir, from, to), at, &told.0);
            true
        })
    }

    /// True if this client makes one file after the other in a directory of which it does not know
    /// all names, this one among them: it is time to learn them.
    fn wants_names(&self, dir: Handle, name: &Bytes) -> bool {
        let (knowledge, now) = (&self.inner.knowledge, self.rt().now());
        // With the third, the sixth, the twelfth, and so on.
        let is_time = || {
            let made = self.inner.delegations.changes_again(dir);
            made.is_multiple_of(3) && (made / 3).is_power_of_two()
        };
        knowledge.holds(dir, now) && knowledge.has_no_name(dir, name, now).is_none() && is_time()
    }

    /// Learns all names of a directory, if they are few, so that the right to make files there
    /// without asking can be asked for, before others of its creates go on. `None`: another flow
    /// does, or they cannot be learned.
    async fn learn_names(&self, who: &Credentials, dir: Handle) -> Option<Pause<'_>> {
        let pause = self.inner.learning.pause(dir)?;
        let end = self.rt().now() + LEARN_NS;
        if let Either::Second(()) = race(pause.is_alone(), self.rt().sleep_until(end)).await {
            return None;
        }
        let (client, asked) = (self.for_at_most(end.since(self.rt().now())), self.asking());
        // What goes wrong here goes wrong with the create, too, or does not matter.
        let attr = client.getattr(dir).await.ok().filter(|attr| attr.size <= LISTED_MAX)?;
        let page = client.readdir(who, dir, 0, LIST_BYTES, false).await.ok().filter(|page| page.end)?;
        self.inner.knowledge.names_are(asked, &attr, page.entries.iter().map(|entry| &entry.name[..]), self.rt().now());
        Some(pause)
    }

    /// A listing that was asked for then has given all names of a directory.
    pub(crate) fn all_listed<'a>(&self, asked: Asked, dir: Handle, names: impl Iterator<Item = &'a [u8]>) {
        let (knowledge, now) = (&self.inner.knowledge, self.rt().now());
        if let Some((state, _)) = knowledge.state(dir, now)
            && knowledge.names(dir, now).is_none()
        {
            knowledge.names_are(asked, &state.attr, names, now);
        }
    }

    /// Before a change of a name in this directory is sent that may ask for the right to make more
    /// of them: all names are known here, or `is_time`.
    pub(crate) fn before_change(&self, dir: Handle, is_time: impl FnOnce() -> bool) -> Option<BeforeGrant<'_>> {
        let (delegations, knowledge, now) = (&self.inner.delegations, &self.inner.knowledge, self.rt().now());
        let may_hold = self.keeps_leases() && knowledge.holds(dir, now) && !delegations.holds(dir);
        (may_hold && (knowledge.names(dir, now).is_some() || is_time())).then(|| delegations.before_grant(dir))
    }

    /// The server of a directory has answered to such a change, made at this time, and may have
    /// delegated it; and says whether it can be told of directories.
    pub(crate) fn granted_by_change(
        &self,
        dir: Handle,
        (delegation, tells_directories): (Option<&Delegation>, Option<bool>),
        at: WallTime,
        hold: Option<BeforeGrant<'_>>,
    ) {
        let (Some(delegation), Some(hold)) = (delegation, hold) else { return };
        let granted = DirectoryGranted {
            delay_bytes: delegation.delay_bytes,
            closes_with_attributes: true,
            tells_directories: tells_directories == Some(true),
            tells_removals: true,
        };
        self.inner.delegations.granted(dir, delegation, granted, hold.recalls, (at, self.rt().now()));
    }

    // ---- Telling
    // ---------------------------------------------------------------------------------------------

    /// True if servers have to be told of files that this client has made, or of directories that
    /// it gives back.
    pub fn owes_absorbed(&self) -> bool {
        self.inner.delegations.owes()
    }

    /// True, once, if [`Client::owes_absorbed`] has just begun to be true: then
    /// [`Client::tell_absorbed`] is to be called soon.
    pub fn begins_to_owe(&self) -> bool {
        self.inner.delegations.begins_to_owe()
    }

    /// Tells servers of the files that this client has made in delegated directories. What does not
    /// arrive within some seconds stays to be told. `forget` must make whoever was told of a file
    /// by this client forget that. Returns files that do not exist after all, each with the reason.
    pub async fn tell_absorbed(&self, forget: impl Fn(Handle)) -> Vec<Error> {
        self.tell_absorbed_by(Nanos::NEVER, forget).await
    }

    /// The same of those that were made by then. What programs do with a new file in its first
    /// moments (they set its times and mode, and give it another name) costs no message if its
    /// server has not heard of it.
    pub async fn tell_absorbed_by(&self, done_by: Nanos, forget: impl Fn(Handle)) -> Vec<Error> {
        let flow = self.flow("create", Handle(0));
        let flow = Flow { deadline: flow.deadline.min(self.rt().now() + TELL_NS), ..flow };
        for _ in 0..TELL_TRIES {
            let servers = self.inner.delegations.servers();
            let told = join_all(servers.into_iter().map(|server| self.tell_done_by(flow, server, done_by))).await;
            self.inner.delegations.forget_above(&forget);
            if told.iter().any(Result::is_err) {
                // It is called again as long as there is something to tell.
                self.rt().sleep_until(self.rt().now() + AGAIN_NS).await;
                break;
            }
        }
        self.inner.delegations.take_lost()
    }

    /// Gives back all directories that are delegated to this client, as [`Client::tell_absorbed`].
    pub async fn give_back_directories(&self, forget: impl Fn(Handle)) -> Vec<Error> {
        self.map().meta.iter().for_each(|entry| self.inner.delegations.give_back_all(entry.id));
        self.tell_absorbed(forget).await
    }

    /// Before this client says that it has heard that others ask for a directory.
    pub(crate) async fn give_back_directory(&self, server: ServerId, dir: Handle, forget: impl Fn(Handle)) {
        self.inner.delegations.give_back(dir);
        let flow = self.flow("create", dir);
        let flow = Flow { deadline: flow.deadline.min(self.rt().now() + GIVE_BACK_NS), ..flow };
        for _ in 0..TELL_TRIES {
            // What does not arrive stays to be told.
            let _ = self.tell_server(flow, server).await;
            self.inner.delegations.forget_above(&forget);
        }
    }

    /// The server believes nothing that this client was told before: names of directories that it
    /// holds are not known any more.
    pub(crate) fn lose_directories(&self, server: ServerId) {
        self.inner.delegations.give_back_all(server);
    }

    /// Directories that are not used any more are given back, and what is left to be told is told.
    pub(super) async fn look_after_delegations(&self, server: ServerId) {
        let since = Nanos(self.rt().now().0.saturating_sub(UNUSED_NS));
        self.inner.delegations.give_back_unused(server, since);
        let flow = self.flow("keep alive", Handle(0));
        let _ = self.tell_server(Flow { deadline: flow.deadline.min(self.rt().now() + TELL_NS), ..flow }, server).await;
    }

    /// Before a metadata server is asked anything: it is told what was made before, and so are the
    /// others, if names change, since they ask each other then.
    pub(crate) async fn tell_before(&self, flow: Flow, server: ServerId, op: Op) -> Result<()> {
        // Who closes files tells of them, if need be.
        let is_free = matches!(op, Op::Ping | Op::GetMap | Op::CloseMany);
        if !self.inner.delegations.owes() || server.role() != ServerRole::Meta || is_free {
            return Ok(());
        }
        Box::pin(async move {
            if op.class() == Class::MetaChange {
                let others = self.inner.delegations.servers().into_iter().filter(|other| *other != server);
                // One that does not answer fails whoever needs it.
                join_all(others.map(|other| self.tell_server(flow, other))).await;
            }
            self.tell_server(flow, server).await
        })
        .await
    }

    /// Tells the server of a file that was made here what there is to be told. True if it has said
    /// what data servers want to see.
    pub(super) async fn tell_of_new(&self, flow: Flow, inode: &OpenInode) -> Result<bool> {
        Box::pin(self.tell_server(flow, inode.handle.server())).await?;
        Ok(inode.granted(Rights::WRITE).is_some())
    }

    /// Before these files of a server are closed there.
    pub(super) async fn tell_of_closed(&self, flow: Flow, server: ServerId, mut files: impl Iterator<Item = Handle>) -> Result<()> {
        let untold = self.inner.delegations.untold_files();
        if files.any(|file| untold.contains(&file)) { Box::pin(self.tell_server(flow, server)).await } else { Ok(()) }
    }

    /// Takes out those of which servers have not heard yet.
    pub fn take_untold(&self, files: &mut Vec<Arc<OpenFile>>) -> Vec<Arc<OpenFile>> {
        let untold = self.inner.delegations.untold_files();
        if untold.is_empty() { Vec::new() } else { files.extract_if(.., |file| untold.contains(&file.handle())).collect() }
    }

    /// Tells a server what there is now to be told.
    pub(super) async fn tell_server(&self, flow: Flow, server: ServerId) -> Result<()> {
        self.tell_done_by(flow, server, Nanos::NEVER).await
    }

    async fn tell_done_by(&self, flow: Flow, server: ServerId, done_by: Nanos) -> Result<()> {
        let delegations = &self.inner.delegations;
        let all = delegations.told_when(server, done_by);
        while delegations.told_of(server) < all {
            let outcome = {
                let turn = delegations.turn(server);
                let _passage = turn.enter().await;
                if delegations.told_of(server) >= all {
                    return Ok(());
                }
                self.tell_next(flow, server, all).await
            };
            self.after_call(flow, server).await;
            outcome?;
            if !delegations.has_next(server) {
                // What is left must wait until something is forgotten above.
                return Ok(());
            }
        }
        Ok(())
    }

    /// One message. The caller is inside the gate.
    async fn tell_next(&self, flow: Flow, server: ServerId, all: u64) -> Result<()> {
        let delegations = &self.inner.delegations;
        let Some(batch) = delegations.next(server, all) else { return Ok(()) };
        let reply = self.call_at_once(flow, server, &batch.request).await?;
        let files: usize = batch.request.groups.iter().map(|group| group.files.len()).sum();
        let attributes_set = reply.attributes.unwrap_or_default();
        if (reply.outcomes.len(), files + attributes_set.len()) != (files, batch.done.len()) {
            return Err(flow.error_at(Status::BadMessage, server));
        }
        if !reply.is_leased {
            batch.done.iter().for_each(|absorbed| self.forget_absorbed(absorbed));
        }
        let new = || batch.done.iter().filter(|absorbed| !matches!(absorbed.done, Done::Attributes(_)));
        for NewCapability { number, capability } in reply.capabilities.unwrap_or_default() {
            if let Some(Absorbed { done: Done::File(_, inode), .. }) = new().nth(number.into()) {
                inode.renewed(0, Rights::default(), Granted { capability, ceiling: None });
            }
        }
        delegations.told(server, &batch, reply.handles, reply.is_leased);
        self.lost_absorbed(server, &batch, reply.outcomes, attributes_set);
        Ok(())
    }

    /// What a server has not taken in did not happen.
    fn lost_absorbed(&self, server: ServerId, batch: &Batch, made: Vec<weft_base::Result<()>>, set: Vec<weft_base::Result<()>>) {
        let (mut made, mut set) = (made.into_iter(), set.into_iter());
        for absorbed in &batch.done {
            let outcomes = if matches!(absorbed.done, Done::Attributes(_)) { &mut set } else { &mut made };
            let Some(Err(status)) = outcomes.next() else { continue };
            let (operation, object) = match &absorbed.done {
                Done::Removed(gone) => {
                    self.forget_absorbed(absorbed);
                    (if gone.kind == FileKind::Directory { "rmdir" } else { "unlink" }, gone.handle)
                }
                Done::File(new, inode) => {
                    // What was believed of its name is forgotten.
                    drop(self.changing(Touched::Name(absorbed.dir, &new.name)));
                    self.inner.opens.never_made(inode);
                    ("create", new.handle)
                }
                Done::Directory(new) => {
                    self.forget_absorbed(absorbed);
                    self.inner.delegations.removed(new.handle);
                    ("mkdir", new.handle)
                }
                Done::Attributes(_) => {
                    self.forget_absorbed(absorbed);
                    ("setattr", absorbed.dir)
                }
            };
            self.inner.delegations.lost(Error { server: Some(server), ..Error::local(status, operation, object) });
        }
    }

    /// Nothing is believed any more, here or above, of what was done: no lease covers it.
    fn forget_absorbed(&self, absorbed: &Absorbed) {
        let dir = absorbed.dir;
        let object = match &absorbed.done {
            Done::File(new, _) | Done::Directory(new) => {
                drop(self.changing(Touched::Name(dir, &new.name)));
                new.handle
            }
            Done::Removed(gone) => {
                drop(self.changing(Touched::Name(dir, &gone.name)));
                gone.handle
            }
            Done::Attributes(_) => dir,
        };
        if !matches!(absorbed.done, Done::File(..)) {
            drop(self.changing(Touched::Everything(object)));
        }
        self.inner.delegations.must_be_forgotten([object]);
    }
}
