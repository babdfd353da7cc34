//! Where new objects go.

use weft_base::{ClusterMap, ServerId};

/// Where new objects go, as the cluster map says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The metadata servers, over which new directories are spread.
    pub meta: Vec<ServerId>,
    /// The generation of new files; 0: none may be made.
    pub generation: u32,
    /// Number of data servers in it.
    pub data_servers: u16,
}

impl Placement {
    /// What this map says.
    pub fn of(map: &ClusterMap) -> Placement {
        let meta = map.meta.iter().map(|server| server.id).collect();
        let (generation, data_servers) = map.newest().map_or((0, 0), |newest| (newest.id, newest.data.len() as u16));
        Placement { meta, generation, data_servers }
    }
}
