//! What a client runtime must know before it can connect.

use std::fmt;

use weft_base::{ClientId, ClusterMap, FsId, ServerId, Status};
use weft_wire::Credential;

use crate::address::{Address, AddressError};
use crate::clock;

/// Which file system, where its servers are, and who we are.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The file system; zero if only its name is known.
    pub fs_id: FsId,
    /// Its name; may be empty if the id is given.
    pub fs_name: String,
    /// Our key; `None` for servers without one.
    pub key: Option<Credential>,
    /// The servers.
    pub servers: Vec<(ServerId, Address)>,
    /// Who we are: unique among all clients of the file system (see
    /// [`random_client_id`](crate::random_client_id)).
    pub client: ClientId,
    /// Counts the lives of this identity.
    pub incarnation: u32,
    /// Offer servers on this machine, reached by Unix sockets, memory to share, so that bulk data
    /// crosses no socket.
    pub share_memory: bool,
    /// Refuse servers over TCP that do not encrypt; otherwise it is theirs to say. Without a key
    /// nothing is encrypted.
    pub encrypt_tcp: bool,
}

impl ClientConfig {
    /// For all servers of a map, under a fresh identity; shares memory where it can.
    ///
    /// # Errors
    /// When an address in the map cannot be read.
    pub fn from_map(map: &ClusterMap, key: Option<Credential>) -> Result<ClientConfig, AddressError> {
        let servers = map.servers().map(|server| Ok((server.id, server.address.parse()?))).collect::<Result<_, AddressError>>()?;
        Ok(ClientConfig {
            fs_id: map.fs_id,
            fs_name: map.fs_name.clone(),
            client: clock::random_client_id(key.as_ref()),
            key,
            servers,
            incarnation: 1,
            share_memory: true,
            encrypt_tcp: false,
        })
    }
}

/// Why the cluster map could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchError {
    /// Where it was asked for.
    pub address: Address,
    /// What went wrong.
    pub status: Status,
    /// The words of the system, if it was the connection.
    pub reason: Option<String>,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.status {
            Status::Unreachable | Status::TimedOut => "is a server running there?",
            Status::AuthenticationFailed => "is the key file that of this file system?",
            Status::WrongFileSystem => "is the name of the file system right?",
            Status::VersionMismatch => "client and server need versions that fit together",
            Status::BadMessage | Status::BadChecksum => "is it a Weft server?",
            _ => "see the log of the server",
        };
        write!(f, "no cluster map from {}: {}", self.address, self.status)?;
        if let Some(reason) = self.reason.as_ref().filter(|reason| **reason != self.status.to_string()) {
            write!(f, " ({reason})")?;
        }
        write!(f, "; {advice}")
    }
}

impl std::error::Error for FetchError {}
