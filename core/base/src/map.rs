//! The cluster map: which servers a file system has, and its defaults.

use crate::{FsId, Handle, Layout, Result, ServerId, ServerList, ServerRole, Status};

/// One server of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEntry {
    /// Its number.
    pub id: ServerId,
    /// Its name in messages for people, unique in the file system.
    pub name: String,
    /// Where it listens: `tcp:HOST:PORT` or `unix:PATH`.
    pub address: String,
}

/// What every client and server of a file system must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    /// The file system.
    pub fs_id: FsId,
    /// Its name.
    pub fs_name: String,
    /// Counts changes of the map.
    pub epoch: u32,
    /// Metadata servers by number: `meta[i].id == ServerId(i)`. At least one; number 0 owns the root.
    pub meta: Vec<ServerEntry>,
    /// Data servers by number: `data[i].id == ServerId::data(i)`. At least one.
    pub data: Vec<ServerEntry>,
    /// Stripe size of new files, in bytes.
    pub stripe_bytes: u32,
    /// Datafiles of a new file; 0 means one on every data server.
    pub stripe_width: u16,
}

impl ClusterMap {
    /// The server with this number, if there is one.
    pub fn server(&self, id: ServerId) -> Option<&ServerEntry> {
        match id.role() {
            ServerRole::Meta => self.meta.get(id.index()),
            ServerRole::Data => self.data.get(id.index()),
        }
    }

    /// All servers, metadata first.
    pub fn servers(&self) -> impl Iterator<Item = &ServerEntry> {
        self.meta.iter().chain(&self.data)
    }

    /// The names of all servers by number.
    pub fn server_list(&self) -> ServerList {
        let names = |servers: &[ServerEntry]| servers.iter().map(|server| server.name.clone()).collect();
        ServerList { meta: names(&self.meta), data: names(&self.data) }
    }

    /// The metadata server in whose range the handle lies.
    ///
    /// # Errors
    /// [`Status::Stale`] if no server of this file system has that range.
    pub fn owner(&self, handle: Handle) -> Result<ServerId> {
        let server = handle.server();
        if server.index() < self.meta.len() && server.role() == ServerRole::Meta { Ok(server) } else { Err(Status::Stale) }
    }

    /// The data server that holds datafile `index` of a file with this layout.
    pub fn data_server(&self, layout: &Layout, index: u32) -> ServerId {
        let position = (u32::from(layout.first) + index) % self.data.len() as u32;
        ServerId::data(position as u16)
    }

    /// The default layout for a new file whose first datafile is on data server `first`.
    pub fn default_layout(&self, first: u16) -> Layout {
        let servers = self.data.len() as u16;
        let width = if self.stripe_width == 0 { servers } else { self.stripe_width.min(servers) };
        Layout { stripe_bytes: self.stripe_bytes, width, first: first % servers }
    }
}
