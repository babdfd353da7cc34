//! The layer: what all its operations share. The operations themselves are in the modules beside
//! this one, one idea each.

use std::sync::Arc;

use weft_base::{FileKind, Handle, Nanos, Status};
use weft_client::{CallerStats, Client, Error, Result};
use weft_rt::Runtime;

use crate::closes::Closes;
use crate::description::Description;
use crate::error_counts::ErrorCounts;
use crate::gateway::Gateway;
use crate::listing::Listings;
use crate::node::InodeNumber;
use crate::pages::Pages;
use crate::sealed::Sealed;
use crate::set_id::SetId;
use crate::signal::Signal;
use crate::table::Table;
use crate::told::Told;
use crate::walks::Walks;

/// How the layer behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// For so many nanoseconds what is told of attributes and names may be believed: the bound on
    /// staleness between gateways.
    pub ttl_ns: u64,
    /// Instead of that, what is told may be believed until others change it: the gateway can make
    /// it forgotten, and drives [`Posix::hear_notices`] for each metadata server
    /// ([`Posix::hear_all`]).
    pub keeps_leases: bool,
    /// Files of at least this many bytes that are opened for reading are not kept in a cache.
    pub direct_from_bytes: u64,
    /// Locks of programs are decided by servers, and seen by other gateways. False: whoever is
    /// above keeps them by itself.
    pub keeps_locks: bool,
    /// A file that only this gateway has open for writing is appended to without asking, and what
    /// is written to a new small one may stay here until it is closed. The gateway must hear
    /// notices for it ([`Posix::hear_all`]), or others that want to write are refused. False:
    /// every append takes a lock at the server.
    pub appends_alone: bool,
    /// The gateway calls [`Posix::before_close`] before a close of any file returns, not only of
    /// those that want that ([`crate::Opened::hears_closes`]).
    pub hears_closes: bool,
    /// Files of directories that nobody else knows are made without asking, and servers are told of
    /// them some milliseconds later ([`Posix::close_in_background`]). The gateway must hear notices
    /// for it.
    pub absorbs: bool,
    /// Reading a file sets the time of its last access where that is due, as `relatime` of Linux
    /// has it; servers hear of it with the close. False: reading sets no time.
    pub sets_atime: bool,
    /// Whoever is above reads sealed files only, by [`Posix::read_sealed`] and without opening
    /// them, and believes what it is told of sealed objects for ever. Every change is refused
    /// ([`Status::DatasetReadsOnly`]).
    pub is_dataset: bool,
}

impl Options {
    /// For [`crate::Callers`]. Leases, which `absorbs` needs, begin with
    /// [`Posix::keep_leases_below`].
    pub fn for_callers(absorbs: bool) -> Options {
        Options {
            ttl_ns: 0,
            keeps_leases: false,
            direct_from_bytes: 0,
            keeps_locks: false,
            appends_alone: absorbs,
            hears_closes: true,
            absorbs,
            sets_atime: false,
            is_dataset: false,
        }
    }
}

/// One file system for many callers. The methods are called by many flows at once.
pub struct Posix<R: Runtime, G> {
    pub(crate) client: Client<R>,
    /// The same for changes of names and attributes.
    changing: Client<R>,
    pub(crate) gateway: G,
    pub(crate) options: Options,
    pub(crate) files: Table<Description>,
    pub(crate) listings: Listings,
    /// What may be believed above.
    pub(crate) told: Told,
    pub(crate) pages: Pages,
    pub(crate) set_id: SetId,
    /// Locks of programs of this gateway were given back.
    pub(crate) released: Signal,
    /// Threads that walk a path again.
    pub(crate) walks: Walks,
    pub(crate) closes: Closes,
    pub(crate) sealed: Sealed,
    error_counts: Arc<ErrorCounts>,
}

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Over a client that has no other user. Sends nothing.
    pub fn new(client: Client<R>, gateway: G, options: Options) -> Posix<R, G> {
        client.follow_directories(options.ttl_ns);
        client.keep_leases(options.keeps_leases);
        Posix {
            changing: client.clone(),
            client,
            gateway,
            options,
            files: Table::default(),
            listings: Listings::default(),
            told: Told::new(options.ttl_ns, options.keeps_leases),
            pages: Pages::default(),
            set_id: SetId::default(),
            released: Signal::default(),
            walks: Walks::default(),
            closes: Closes::default(),
            sealed: Sealed::default(),
            error_counts: Arc::default(),
        }
    }

    /// From now on a change of names and attributes by handles, but for one of a size, goes on
    /// until it is known what became of it ([`Client::without_deadline`]): for gateways whose
    /// callers ask again for what was given up, and must not find that it was made all the same.
    pub fn finish_changes(&mut self) {
        self.changing = self.client.without_deadline();
    }

    /// The client for a change of an object, or of a name in a directory.
    ///
    /// # Errors
    /// As [`Posix::check_changes`].
    pub(crate) fn changing(&self, operation: &'static str, object: Handle) -> Result<&Client<R>> {
        self.check_changes(operation, object)?;
        Ok(&self.changing)
    }

    /// To be asked before every change that is not made by [`Posix::changing`].
    ///
    /// # Errors
    /// [`Status::DatasetReadsOnly`]: what is told and kept of a dataset would not be true any more.
    pub(crate) fn check_changes(&self, operation: &'static str, object: Handle) -> Result<()> {
        match self.options.is_dataset {
            true => Err(Error::local(Status::DatasetReadsOnly, operation, object)),
            false => Ok(()),
        }
    }

    /// The runtime.
    pub fn rt(&self) -> &R {
        self.client.rt()
    }

    /// The directory that the file system begins with.
    pub fn root(&self) -> InodeNumber {
        InodeNumber::of(self.client.root())
    }

    /// The gateway above.
    pub fn gateway(&self) -> &G {
        &self.gateway
    }

    /// True if locks of programs are decided by servers.
    pub fn keeps_locks(&self) -> bool {
        self.options.keeps_locks
    }

    /// Counters of the requests to servers.
    pub fn stats(&self) -> CallerStats {
        self.client.stats()
    }

    /// An error for people, with names and addresses of servers.
    pub fn explain(&self, error: &Error) -> String {
        error.explain(self.client.map())
    }

    /// What servers do wrong.
    pub fn error_counts(&self) -> Arc<ErrorCounts> {
        self.error_counts.clone()
    }

    pub(crate) fn now(&self) -> Nanos {
        self.client.rt().now()
    }

    /// The outcome of an operation; if servers are to blame for it, that is noted.
    #[inline]
    pub(crate) fn noted<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            self.note(error);
        }
        outcome
    }

    #[cold]
    fn note(&self, error: &Error) {
        self.error_counts.note(error, self.client.map(), self.now(), |line| self.gateway.warn(line));
    }

    /// Makes attributes of an object forgotten above, whatever was told.
    pub(crate) fn forget_told(&self, object: Handle) {
        self.forget_told_of(object, None);
    }

    /// The same for an object of this kind, if that is known.
    pub(crate) fn forget_told_of(&self, object: Handle, kind: Option<FileKind>) {
        let known = self.told.known(object);
        if self.told.may_be_believed(object, kind) {
            self.gateway.forget_attributes(object);
        }
        known.into_iter().for_each(|known| self.told.forgotten(object, known));
    }

    /// An open file whose data is to be changed.
    pub(crate) fn changing_file(&self, number: u64, operation: &'static str) -> Result<Arc<Description>> {
        self.check_changes(operation, Handle(0))?;
        self.description(number, operation)
    }

    /// An open file.
    pub(crate) fn description(&self, number: u64, operation: &'static str) -> Result<Arc<Description>> {
        self.files.get(number).ok_or(Error::local(Status::Stale, operation, Handle(0)))
    }
}
