//! Delegated directories (`weft-namespace`, `ops/delegate.rs`): when a client may have one, what it
//! tells of the files that it has made there, and how others get it back.

use std::rc::Rc;

use weft_base::{ClientId, FileKind, Handle, Result, Status};
use weft_lease::AskedBack;
use weft_namespace::{Record, RequestContext};
use weft_rt::ServerRuntime;
use weft_serving::Durability;
use weft_wire::ops::{CREATES_MAX, CreateManyReply, CreateManyRequest, NewAttributes, NewCapability, NewFile, NewFiles};
use weft_wire::{Header, Op, Request, Wire};

use crate::engine::{Engine, Room};
use crate::server::Server;
use crate::step::Step;

impl<R: ServerRuntime, E: Engine> Server<R, E> {
    /// A client may have a directory for itself only if it hears when others ask for it, if nobody
    /// else believes anything of it or has asked for long, and where an answer does not promise
    /// stable storage.
    pub(crate) fn may_hold(&self, client: ClientId, dir: Handle) -> bool {
        let leases = self.clients.holders.leases.borrow();
        let hears = leases.hears(client, self.rt.now());
        let is_alone = || leases.is_only_holder(client, dir) || self.clients.holders.makes_alone(client, dir);
        hears && is_alone() && !self.delegates_nothing() && !self.is_spreading(dir)
    }

    /// True if clients make no files without asking: these could not be taken in, or would not be
    /// as safe as promised.
    fn delegates_nothing(&self) -> bool {
        self.shell.identity.durability.get() == Durability::Sync || self.engine.room() != Room::Plenty
    }

    /// Checks that no directory of a request is delegated to somebody else. Requests that end what
    /// its client knows of a directory wait for that client, too.
    ///
    /// # Errors
    /// [`Status::Busy`]
    pub(crate) fn check_delegated(&self, client: ClientId, request: &Request) -> Result<()> {
        let state = self.state.borrow();
        // These name what their client has made or has open itself.
        let is_own = matches!(request, Request::CreateMany(_) | Request::CloseMany(_) | Request::Reclaim(_));
        if !state.has_delegations() || is_own {
            return Ok(());
        }
        let ends = match request {
            Request::SetXattr(_) | Request::RemoveXattr(_) | Request::RemoveEntries(_) => true,
            Request::Split(request) => request.servers > 0,
            Request::SetAttr(request) => request.seal.is_some(),
            _ => false,
        };
        let mut is_delegated = false;
        request.each_handle(&mut |handle| {
            is_delegated |= state.is_delegated_elsewhere((!ends).then_some(client), handle);
            is_delegated |= state.is_untold_elsewhere(Some(client), handle);
        });
        if is_delegated { Err(Status::Busy) } else { Ok(()) }
    }

    /// A client tells of files and directories that it has made or removed. Each has its record; a
    /// request that must wait in between begins anew, and finds what was done.
    pub(crate) fn create_many(self: &Rc<Self>, header: &Header, request: &CreateManyRequest) -> Result<Step> {
        let files: usize = request.groups.iter().map(|group| group.files.len()).sum();
        let attributes = request.attributes.as_deref().unwrap_or_default();
        if files + attributes.len() > CREATES_MAX || request.returned.len() > CREATES_MAX {
            return Err(Status::TooBig);
        }
        let client = header.request.client;
        let cx: RequestContext<'_> = self.context(client);
        let (mut outcomes, mut attributes_set) = (Vec::with_capacity(files), Vec::with_capacity(attributes.len()));
        let (mut changes, mut is_leased) = (0, true);
        for told in told_in_order(request) {
            let mut record = Record::default();
            let outcome = match told {
                Told::New(group, file, kind) => self.state.borrow().prepare_absorbed(&cx, group, file, kind, &mut record),
                Told::Removed(group, file) => self.state.borrow().prepare_absorbed_removal(&cx, group, file, &mut record),
                Told::Attributes(told) => self.state.borrow().prepare_absorbed_attributes(&cx, told, &mut record),
            };
            if outcome == Err(Status::Busy) {
                return Err(Status::Busy);
            }
            // Removed before: the directory may be gone, too.
            let is_over = matches!(told, Told::Removed(..)) && record.is_volatile();
            if outcome.is_ok() && !is_over {
                // Nothing is lost of what must wait for space.
                self.check_room_for(Op::CreateMany, &record)?;
                // Nobody else believes anything of the directory: when it was granted all others
                // had heard of that, and were told nothing since. But they may have a file open.
                if matches!(told, Told::Removed(..)) {
                    self.announce(client, &record)?;
                }
                changes += record.changes.len();
                self.change(&mut record);
                is_leased &= self.tells(client, &told);
            }
            match told {
                Told::New(..) | Told::Removed(..) => outcomes.push(outcome),
                Told::Attributes(_) => attributes_set.push(outcome),
            }
        }
        if request.groups.iter().any(|group| group.files.iter().any(|file| file.delays)) {
            self.look_for_delay_room();
        }
        let mut record = Record::default();
        let handles = {
            let state = self.state.borrow();
            let nothing = self.delegates_nothing();
            for group in request.groups.iter().filter(|group| nothing || !state.is_unlimited(group.dir)) {
                state.is_delegated_elsewhere(None, group.dir);
            }
            let returned = request.returned.iter().filter(|_| is_leased);
            returned.for_each(|dir| state.prepare_end_of_delegation(client, *dir, &mut record));
            request.wants_handles.then(|| state.prepare_handles(client, &mut record))
        };
        let capabilities = self.capabilities_of_new(&cx, request, &outcomes);
        let attributes = request.attributes.is_some().then_some(attributes_set);
        let body = CreateManyReply { outcomes, handles, is_leased, capabilities, attributes }.to_bytes();
        changes += record.changes.len();
        self.change_and_answer_many(header, &mut record, &body, changes > 0);
        if !request.returned.is_empty() && self.shell.has_parked() {
            self.shell.release();
        }
        Ok(Step::Answer(body, changes))
    }

    /// For the files whose client has bytes for data servers.
    fn capabilities_of_new(
        &self,
        cx: &RequestContext<'_>,
        request: &CreateManyRequest,
        outcomes: &[Result<()>],
    ) -> Option<Vec<NewCapability>> {
        let (state, to_data) = (self.state.borrow(), request.to_data.as_ref()?);
        let handles: Vec<Handle> = request.groups.iter().flat_map(|group| group.files.iter().map(|file| file.handle)).collect();
        let capability = |number: &u8| {
            let at = usize::from(*number);
            outcomes.get(at).filter(|outcome| outcome.is_ok())?;
            Some(NewCapability { number: *number, capability: state.capability_of_new(cx, *handles.get(at)?)? })
        };
        Some(to_data.iter().take(CREATES_MAX).filter_map(capability).collect())
    }

    /// A client goes on to believe what it knows of what it has made or set, if it may.
    fn tells(&self, client: ClientId, told: &Told<'_>) -> bool {
        let (mut leases, now) = (self.clients.holders.leases.borrow_mut(), self.rt.now());
        match *told {
            Told::New(NewFiles { dir, .. }, NewFile { handle, .. }, kind) => {
                let is_told = leases.grant(client, *dir, now) && leases.tell(*dir, *handle, now);
                is_told && (kind != FileKind::Directory || leases.grant(client, *handle, now))
            }
            Told::Removed(NewFiles { dir, .. }, _) | Told::Attributes(NewAttributes { dir, .. }) => leases.grant(client, *dir, now),
        }
    }

    /// Asks those back to whom directories are delegated that others have asked for. Who hears
    /// nothing has lost them.
    pub(crate) fn ask_back_directories(&self) {
        let directories = self.state.borrow().take_delegations_asked_back();
        for (client, dir) in directories {
            match self.clients.holders.leases.borrow_mut().ask_back_directory(client, dir, self.rt.now()) {
                AskedBack::Told => self.clients.holders.notify(client),
                // Who waits asks again when its session begins, or is over.
                AskedBack::NotYet => {}
                AskedBack::Never => self.end_delegations(client, [dir]),
            }
        }
    }

    /// These directories are not delegated to a client any more.
    pub(crate) fn end_delegations(&self, client: ClientId, directories: impl IntoIterator<Item = Handle>) {
        let mut record = Record::default();
        {
            let state = self.state.borrow();
            directories.into_iter().for_each(|dir| state.prepare_end_of_delegation(client, dir, &mut record));
        }
        if !record.is_volatile() {
            self.change_in_flow(&mut record);
            self.shell.release();
        }
    }

    /// The client leaves, or is lost.
    pub(crate) fn end_all_delegations(&self, client: ClientId) {
        let directories = self.state.borrow().delegated_to(client);
        self.end_delegations(client, directories);
    }
}

/// One thing of which a client tells.
enum Told<'a> {
    /// It has made this.
    New(&'a NewFiles, &'a NewFile, FileKind),
    /// It has removed the name of this.
    Removed(&'a NewFiles, &'a NewFile),
    /// It has set this.
    Attributes(&'a NewAttributes),
}

/// All of a request, in the order in which it was done.
fn told_in_order(request: &CreateManyRequest) -> impl Iterator<Item = Told<'_>> {
    let [directories, removed] = [&request.directories, &request.removed].map(|positions| positions.as_deref().unwrap_or_default());
    let files = request.groups.iter().flat_map(|group| group.files.iter().map(move |file| (group, file)));
    let mut files = files.enumerate().map(move |(at, (group, file))| {
        let [is_directory, is_removed] = [directories, removed].map(|positions| positions.contains(&(at as u8)));
        let kind = if is_directory { FileKind::Directory } else { FileKind::File };
        (at, if is_removed { Told::Removed(group, file) } else { Told::New(group, file, kind) })
    });
    let mut attributes = request.attributes.iter().flatten().peekable();
    let mut next = files.next();
    std::iter::from_fn(move || {
        let at = next.as_ref().map(|(at, _)| *at);
        if let Some(told) = attributes.next_if(|told| at.is_none_or(|at| usize::from(told.position) <= at)) {
            return Some(Told::Attributes(told));
        }
        std::mem::replace(&mut next, files.next()).map(|(_, told)| told)
    })
}
