//! Changes of names: mkdir, rmdir, unlink, link, rename, and of directories whose names are with
//! several servers. All of them are lists of parts; if all
//! parts concern this server, they are one record within the turn, otherwise a transaction in a
//! flow.

use std::rc::Rc;

use bytes::Bytes;
use weft_base::{ClientId, Credentials, Handle, MILLISECOND, Nanos, Result, ServerId, Status};
use weft_namespace::{Change, Charged, CycleCheck, HoldAsked, Record, RequestContext, ServerPart, State, made_directory};
use weft_rt::{PeerId, ServerRuntime};
use weft_wire::ops::{
    Delegation, DirChange, LinkReply, LinkRequest, MkdirReply, PartitionMap, RenameReply, RmdirReply, TxPart, UnlinkReply,
};
use weft_wire::{Header, Request, Wire};

use super::charged;
use crate::engine::Engine;
use crate::server::Server;
use crate::step::Step;

/// The first pause after a conflict, in nanoseconds; it doubles up to [`PAUSE_NS_MAX`], with
/// jitter.
const PAUSE_NS: u64 = MILLISECOND / 2;
const PAUSE_NS_MAX: u64 = 64 * MILLISECOND;

/// A planned change of names.
#[derive(Clone, Debug)]
pub(crate) struct NameChange {
    /// What it consists of.
    pub(crate) parts: Vec<ServerPart>,
    /// Cycles that must not come about.
    pub(crate) cycles: Vec<CycleCheck>,
    /// Who wants it.
    pub(crate) who: Credentials,
    /// What the client is told.
    pub(crate) reply: NameReply,
}

/// The answer to a change of names.
#[derive(Clone, Debug)]
pub(crate) enum NameReply {
    /// What the name in this directory led to, for which its client may ask.
    Unlinked { dir: Handle, handle: Handle, asked: Option<HoldAsked> },
    /// What became of this directory, if only one is concerned, and whether the new name led to
    /// something.
    Renamed { dir: Option<Handle>, replaced: bool },
    /// The object with its new name.
    Linked(LinkRequest),
    /// The new directory, with its name in this directory, for which its client may ask.
    Made { made: Box<MadeDirectory>, dir: Handle, asked: Option<HoldAsked> },
    /// What became of this directory, which has lost the name of another.
    Removed { dir: Handle },
    /// The attributes of this directory.
    Attributes { dir: Handle },
    /// That it is done.
    Done,
}

/// How a new directory is made.
#[derive(Clone, Debug)]
pub(crate) struct MadeDirectory {
    /// By this part.
    pub(crate) part: TxPart,
    /// With these hints.
    pub(crate) hints: Vec<(Bytes, Bytes)>,
    /// With this map, if it is split.
    pub(crate) map: Option<PartitionMap>,
}

impl NameReply {
    /// The encoded answer, given the record that makes the change; a directory may be delegated
    /// with it.
    pub(crate) fn body(&self, state: &State, cx: &RequestContext<'_>, record: &mut Record, made: Option<Handle>) -> Result<Bytes> {
        Ok(match self {
            NameReply::Unlinked { dir, handle, asked } => {
                let (delegation, tells_directories) = delegated(state, cx, *dir, *asked, record);
                UnlinkReply { handle: *handle, dir: change_of(*dir, record), delegation, tells_directories }.to_bytes()
            }
            NameReply::Renamed { dir, replaced } => {
                let dir = dir.map_or(DirChange::NONE, |dir| change_of(dir, record));
                RenameReply { dir, replaced: *replaced }.to_bytes()
            }
            NameReply::Linked(request) => {
                let (state, dir) = (state.linked_state(cx, request, record), change_of(request.to.dir, record));
                LinkReply { state, dir }.to_bytes()
            }
            NameReply::Made { made: of, dir, asked } => {
                let MadeDirectory { part, hints, map } = &**of;
                let (delegation, tells_directories) = delegated(state, cx, *dir, *asked, record);
                let state = State::made_state(cx, made.ok_or(Status::Io)?, part, hints, map.as_ref())?;
                MkdirReply { state, dir: change_of(*dir, record), delegation, tells_directories }.to_bytes()
            }
            NameReply::Removed { dir } => RmdirReply { dir: change_of(*dir, record) }.to_bytes(),
            NameReply::Attributes { dir } => {
                let changed = record.changes.iter().find_map(|change| match change {
                    Change::PutInode { handle, inode } if handle == dir => Some(inode),
                    _ => None,
                });
                state.file_state(cx, *dir, changed.ok_or(Status::Io)?).to_bytes()
            }
            NameReply::Done => ().to_bytes(),
        })
    }
}

/// With a change of its names a directory is delegated to whoever asks for it, if it can be; true
/// if directories may be made in it, too.
fn delegated(
    state: &State,
    cx: &RequestContext<'_>,
    dir: Handle,
    asked: Option<HoldAsked>,
    record: &mut Record,
) -> (Option<Delegation>, Option<bool>) {
    let delegation = asked.and_then(|asked| state.delegate(cx, dir, asked, record));
    let tells_directories = (delegation.is_some() && state.makes_plain_directories(dir)).then_some(true);
    (delegation, tells_directories)
}

/// What the record makes of the directory.
fn change_of(dir: Handle, record: &Record) -> DirChange {
    let change = |change: &Change| match change {
        Change::Touch { handle: touched, mtime, version, .. } | Change::TouchPartition { dir: touched, mtime, version, .. }
            if *touched == dir =>
        {
            Some(DirChange { version: *version, time: *mtime })
        }
        _ => None,
    };
    record.changes.iter().rev().find_map(change).unwrap_or(DirChange::NONE)
}

/// Who lacks an allowance here for a directory that is to be made.
fn lacks_allowance(state: &State, request: &Request) -> Option<Charged> {
    charged(state, request).filter(|charged| state.lacks_allowance(*charged).is_some())
}

/// The answer to a rename that changes nothing.
pub(super) fn nothing_renamed() -> Bytes {
    RenameReply { dir: DirChange::NONE, replaced: false }.to_bytes()
}

/// What planning comes to.
pub(crate) enum Planned {
    /// This is to be done.
    Change(NameChange),
    /// Nothing is to be done, and this is the answer: both names of a rename lead to the same
    /// object, or what is to be removed is not there.
    Nothing(Bytes),
    /// Another server must be asked first.
    NeedsFacts,
}

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// Executes a change of names.
    pub(crate) fn change_names(self: &Rc<Self>, peer: PeerId, header: &Header, request: Request) -> Result<Step> {
        match self.plan(header.request.client, &request)? {
            Planned::Nothing(body) => {
                self.change_and_answer(header, &mut Record::default(), &body);
                Ok(Step::Answer(body, 0))
            }
            Planned::Change(change) if self.is_local(&change) && lacks_allowance(&self.state.borrow(), &request).is_none() => {
                self.change_names_here(header, change)
            }
            Planned::Change(_) | Planned::NeedsFacts => {
                let flow = Rc::clone(self).change_names_flow(*header, request);
                Ok(self.start_flow(peer, header, flow))
            }
        }
    }

    /// Plans with what is known here.
    fn plan(&self, client: ClientId, request: &Request) -> Result<Planned> {
        let state = self.state.borrow();
        let planned = match request {
            Request::Mkdir(request) => self.plan_mkdir(&state, request),
            Request::Rmdir(request) => self.plan_rmdir(&state, request),
            Request::Unlink(request) => self.plan_unlink(&state, request),
            Request::Link(request) => self.plan_link(&state, request),
            Request::Rename(request) => self.plan_rename_here(&state, request),
            Request::SetAttr(_) | Request::SetXattr(_) | Request::RemoveXattr(_) => self.plan_spread_change(&state, client, request),
            _ => Err(Status::NotSupported),
        }?;
        if let Planned::Change(change) = &planned {
            change.parts.iter().try_for_each(|part| self.knows(part.server))?;
        }
        Ok(planned)
    }

    /// Checks that a server is of this file system, as far as it is known here.
    ///
    /// # Errors
    /// [`Status::NotReady`]: it has just joined and this server has not heard of it, or nobody can
    /// have given out the handle.
    pub(super) fn knows(&self, server: ServerId) -> Result<()> {
        self.shell.introduction.map().server(server).map(drop).ok_or(Status::NotReady)
    }

    /// True if no other server is concerned.
    fn is_local(&self, change: &NameChange) -> bool {
        change.parts.iter().all(|part| part.server == self.config.serving.server)
            && (change.cycles.is_empty() || self.state.borrow().placement().meta.len() == 1)
    }

    fn change_names_here(&self, header: &Header, change: NameChange) -> Result<Step> {
        let mut record = Record::default();
        let body = {
            let state = self.state.borrow();
            for cycle in &change.cycles {
                if state.is_within(cycle.parent, cycle.moved)? {
                    return Err(Status::Invalid);
                }
            }
            state.check_moved(header.request.client, &change.parts)?;
            let cx = self.context(header.request.client);
            let parts: Vec<TxPart> = change.parts.into_iter().map(|part| part.part).collect();
            let makes = matches!(change.reply, NameReply::Made { .. }).then(|| parts.clone());
            let handles = state.prepare_local(parts, &change.who, cx.now, &mut record)?;
            let made = makes.and_then(|parts| made_directory(&parts, &handles));
            change.reply.body(&state, &cx, &mut record, made)?
        };
        self.changed(header, record, body)
    }

    /// Plans and tries until it succeeds, is impossible, or patience ends.
    async fn change_names_flow(self: Rc<Self>, header: Header, request: Request) -> Result<Bytes> {
        let deadline = self.rt.now() + self.config.patience_ns;
        let mut pause = PAUSE_NS;
        loop {
            match self.try_change_names(&header, &request, deadline).await {
                Err(Status::Conflict | Status::Busy) => {}
                // Here; another server has borrowed before it has refused.
                Err(Status::QuotaExceeded) => {
                    let lacks = lacks_allowance(&self.state.borrow(), &request);
                    self.borrow_inodes(lacks.ok_or(Status::QuotaExceeded)?, deadline).await?;
                    continue;
                }
                // The client asks again.
                Err(status) if status.is_transient() => return Err(Status::Busy),
                result => return result,
            }
            let again_at = self.rt.now() + pause + self.rt.random() % pause;
            if again_at >= deadline {
                return Err(Status::Busy);
            }
            self.rt.sleep_until(again_at).await;
            pause = (pause * 2).min(PAUSE_NS_MAX);
        }
    }

    async fn try_change_names(self: &Rc<Self>, header: &Header, request: &Request, deadline: Nanos) -> Result<Bytes> {
        let planned = match (self.plan(header.request.client, request)?, request) {
            (Planned::NeedsFacts, Request::Rename(request)) => self.plan_rename_there(request, deadline).await?,
            (planned, _) => planned,
        };
        match planned {
            Planned::Change(change) if self.is_local(&change) => match self.change_names_here(header, change)? {
                Step::Answer(body, _) => Ok(body),
                Step::WhenDurable(..) | Step::Later => Err(Status::Busy),
            },
            Planned::Change(change) => match self.transact(Some(header), &change, deadline).await {
                // A directory that goes is split, or names have moved: then it is planned anew.
                Err(Status::StaleMap) => {
                    let change = self.over_partitions(change, deadline).await?;
                    let outcome = self.transact(Some(header), &change, deadline).await;
                    outcome.map_err(|status| if status == Status::StaleMap { Status::Conflict } else { status })
                }
                result => result,
            },
            Planned::Nothing(body) => {
                self.change_and_answer(header, &mut Record::default(), &body);
                Ok(body)
            }
            Planned::NeedsFacts => Err(Status::Busy),
        }
    }
}
