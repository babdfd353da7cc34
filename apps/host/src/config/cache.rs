//! The cache layer of a data server, from what a configuration says of it.

use weft_data_server::{CacheConfig, WriteBack};
use weft_sched::LayerKind;
use weft_sched::improved::DiskCost;

use super::Durability;

/// How the accesses of a data server to its container meet.
pub fn cache_config(layer: LayerKind, direct_io: bool, durability: Durability) -> CacheConfig {
    let disk = if direct_io { DiskCost::SSD } else { DiskCost::PAGE_CACHE };
    let answers_early = direct_io && durability == Durability::None && layer != LayerKind::None;
    CacheConfig { layer, disk, takes_all: direct_io, write_back: answers_early.then(WriteBack::default), ..CacheConfig::default() }
}
