//! The server: what its flows share.

use std::cell::RefCell;
use std::rc::Rc;

use weft_base::{ClientId, Handle, Result};
use weft_journal::Journal;
use weft_rt::{FileId, ServerRuntime};
use weft_serving::{Life, Shell};
use weft_store::objects::ObjectTable;
use weft_wire::{Capability, Rights};

use crate::cache::Cache;
use crate::clients::Clients;
use crate::container::Container;
use crate::grants::Grants;
use crate::in_flight::InFlightRequests;
use crate::objects::{Objects, Removed};
use crate::{DataServerConfig, ServerError};

/// One data server. Flows share it by reference; nothing in it is borrowed across a wait.
pub struct Server<R: ServerRuntime> {
    pub rt: R,
    pub shell: Shell<R>,
    pub in_flight: InFlightRequests,
    pub clients: RefCell<Clients>,
    pub objects: Objects<R>,
    grants: RefCell<Grants>,
}

/// What recovery hands to a server.
pub struct Foundation<D> {
    pub life: Life,
    pub container: FileId,
    /// Of the engine `journal`.
    pub journal: Option<Journal<D>>,
    pub table: ObjectTable,
    pub removed: Removed,
}

impl<R: ServerRuntime> Server<R> {
    pub fn new(rt: R, config: DataServerConfig, foundation: Foundation<R::Disk>) -> Rc<Server<R>> {
        let client = (ClientId(rt.random()), 1);
        let Foundation { life, container, journal, table, removed } = foundation;
        let container = Container::new(rt.clone(), container, Cache::new(config.cache));
        Rc::new(Server {
            shell: Shell::new(rt.clone(), &config.serving, life, client),
            in_flight: InFlightRequests::default(),
            clients: RefCell::default(),
            grants: RefCell::new(Grants::new(config.serving.key.clone())),
            objects: Objects::new(rt.clone(), config, container, journal, table, removed),
            rt,
        })
    }

    /// Stops the server: no reply leaves any more that was not decided before.
    pub fn fail(&self, error: ServerError) {
        self.shell.note_failure(error);
        self.objects.stop();
    }

    /// Checks a capability that comes for one read: it is not remembered.
    pub fn authorize_once(&self, capability: &Capability, client: ClientId, rights: Rights) -> Result<()> {
        self.grants.borrow().check_once(capability, client, rights, self.rt.wall())
    }

    /// Checks the capability of a request.
    pub fn authorize(&self, capability: &Capability, handle: Handle, client: ClientId, rights: Rights) -> Result<()> {
        self.grants.borrow_mut().check(capability, handle, client, rights, self.rt.wall())
    }
}
