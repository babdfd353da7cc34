//! The client: what all operations share. The operations are in the folders beside this file, one
//! room each, and what a room keeps is hidden in it: `servers` (who answers), `names`, `attributes`
//! (what is exact), `files` (what is open). What was learned is behind one door, `knowledge`.

use std::sync::Arc;

use weft_base::{Attr, ClusterMap, Handle, Nanos};
use weft_rt::Runtime;

use crate::attributes::Silent;
use crate::files::{Contents, Delegations, Gathered, Learning, OpenTable, Refusals};
use crate::flow::Flow;
use crate::knowledge::{Asked, Changing, Knowledge, Touched};
use crate::locks::Locks;
use crate::servers::Servers;
use crate::types::ClientOptions;

/// A client of one file system. Cheap to clone; all clones are one client. `Send` and `Sync` when
/// the runtime is: threads call it at once, each driving its own operation.
pub struct Client<R: Runtime> {
    pub(crate) inner: Arc<Inner<R>>,
    /// Operations end by then, if that is before their own deadline.
    until: Nanos,
    /// Operations have no deadline of their own.
    is_patient: bool,
}

/// What the rooms of a client have, each for itself: the others see of it what a field's type shows
/// outside of its folder.
pub(crate) struct Inner<R> {
    pub(crate) servers: Servers<R>,
    options: ClientOptions,
    pub(crate) opens: OpenTable,
    pub(crate) locks: Locks,
    pub(crate) knowledge: Knowledge,
    pub(crate) contents: Contents,
    pub(crate) silent: Silent,
    pub(crate) refusals: Refusals,
    pub(crate) delegations: Delegations,
    pub(crate) learning: Learning,
    pub(crate) gathered: Arc<Gathered>,
}

impl<R: Runtime> Clone for Client<R> {
    fn clone(&self) -> Self {
        Client { inner: self.inner.clone(), until: self.until, is_patient: self.is_patient }
    }
}

impl<R: Runtime> Client<R> {
    /// A client of the file system that `map` describes. Sends nothing.
    pub fn new(rt: R, map: ClusterMap, options: ClientOptions) -> Client<R> {
        let servers = Servers::new(rt, map, &options);
        let knowledge = Knowledge::default();
        let (opens, silent, contents) = (OpenTable::default(), Silent::default(), Contents::default());
        let locks = Locks::new(options.client);
        let (refusals, delegations, learning, gathered) =
            (Refusals::default(), Delegations::default(), Learning::default(), Arc::default());
        let inner = Inner { servers, options, opens, locks, knowledge, contents, silent, refusals, delegations, learning, gathered };
        Client { inner: Arc::new(inner), until: Nanos::NEVER, is_patient: false }
    }

    /// The runtime.
    pub fn rt(&self) -> &R {
        self.inner.servers.rt()
    }

    /// How the client behaves.
    pub fn options(&self) -> &ClientOptions {
        &self.inner.options
    }

    /// The directory at which its paths begin.
    pub fn root(&self) -> Handle {
        self.inner.options.root
    }

    /// This client for what its user sees as one operation: all calls together take as long as one
    /// may ([`ClientOptions::deadline_ns`]), counted from now.
    pub fn for_one_operation(&self) -> Client<R> {
        if self.is_patient { self.clone() } else { self.for_at_most(self.inner.options.deadline_ns) }
    }

    /// This client for calls that all together take no longer than so many nanoseconds, counted
    /// from now.
    pub fn for_at_most(&self, ns: u64) -> Client<R> {
        Client { until: self.until.min(self.rt().now() + ns), ..self.clone() }
    }

    /// This client for changes that must not be made after they were given up: its operations go on
    /// until servers have said what became of them, however long that takes, or have refused them
    /// for long.
    pub fn without_deadline(&self) -> Client<R> {
        Client { is_patient: true, ..self.clone() }
    }

    /// From now on what this client does in a directory is followed: "no such name" may be answered
    /// without asking in directories that it has made, and [`Client::known_directory`] has answers,
    /// as long as nobody else is seen to change the directory, and at most this many nanoseconds
    /// after the server was last asked. 0 (at first): always ask.
    pub fn follow_directories(&self, age_max_ns: u64) {
        self.inner.knowledge.follow(age_max_ns);
    }

    /// The attributes of a directory that this client has just changed, if they are known without
    /// asking, and for how many nanoseconds they may be believed. Only after
    /// [`Client::follow_directories`].
    pub fn known_directory(&self, dir: Handle) -> Option<(Attr, u64)> {
        self.inner.knowledge.directory(dir, self.rt().now())
    }

    /// Begins an operation of the API.
    pub(crate) fn flow(&self, operation: &'static str, handle: Handle) -> Flow {
        let own = self.rt().now() + self.inner.options.deadline_ns;
        let deadline = if self.is_patient { Nanos::NEVER } else { own };
        Flow { operation, handle, deadline: deadline.min(self.until) }
    }

    /// Notes when a question is asked.
    pub(crate) fn asking(&self) -> Asked {
        Asked { at: self.rt().now(), after_reports: self.inner.opens.reports(), after_log: self.inner.knowledge.log() }
    }

    /// This client is about to change something: see [`Changing`].
    pub(crate) fn changing<'a>(&'a self, touched: Touched<'a>) -> Changing<'a> {
        self.inner.knowledge.changing(touched, self.asking())
    }
}
