//! The server: what its flows share.

use std::cell::RefCell;
use std::rc::Rc;

use weft_base::{ClientId, Handle, Result, Status, StripeIndex, whole_blocks};
use weft_journal::Journal;
use weft_layout::{Distribution, local_bytes};
use weft_rt::{FileId, ServerRuntime};
use weft_serving::{Life, Shell};
use weft_store::objects::{ObjectKey, ObjectTable};
use weft_wire::{Capability, Ceiling, Rights};

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

    /// Checks the capability of a request that may allocate something, and the ceiling that it may
    /// need. Returns the bytes that the datafile may take.
    pub fn authorize_growth(
        &self,
        capability: &Capability,
        ceiling: Option<&Ceiling>,
        (key, client): (ObjectKey, ClientId),
    ) -> Result<u64> {
        self.authorize(capability, key.handle, client, Rights::WRITE)?;
        if !capability.rights.contains(Rights::UNDER_CEILING) {
            return Ok(u64::MAX);
        }
        // A client of before does not know that it must be shown.
        let ceiling = ceiling.ok_or(Status::NotSupported)?;
        ceiling.verify(&self.grants.borrow().key, capability)?;
        let distribution = Distribution::Stripes { stripe_bytes: ceiling.stripe_bytes, width: ceiling.width };
        let index = if ceiling.width == 1 { 0 } else { key.index };
        if index >= u32::from(ceiling.width) {
            return Err(Status::CapabilityRefused);
        }
        Ok(whole_blocks(local_bytes(&distribution, StripeIndex(index), ceiling.file_bytes)))
    }

    /// Checks the capability of a request.
    pub fn authorize(&self, capability: &Capability, handle: Handle, client: ClientId, rights: Rights) -> Result<()> {
        self.grants.borrow_mut().check(capability, handle, client, rights, self.rt.wall())
    }
}
