//! The space of a file system from what its servers say: data servers whose folders share a disk
//! share its free space.

use std::collections::BTreeMap;

use weft_base::ServerRole;
use weft_wire::ops::ServerInfo;

/// The space for data of a file system, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSpace {
    /// What data servers hold and may still take.
    pub capacity_bytes: u64,
    /// What they hold.
    pub used_bytes: u64,
    /// What they may still take together.
    pub free_bytes: u64,
}

impl DataSpace {
    /// Sums over the data servers among these.
    pub fn of<'a>(infos: impl Iterator<Item = &'a ServerInfo>) -> DataSpace {
        let mut disks: BTreeMap<(u64, u16), Vec<&ServerInfo>> = BTreeMap::new();
        for info in infos.filter(|info| info.server.role() == ServerRole::Data) {
            // A disk that cannot be told from others is counted by itself.
            let alone = if info.device == 0 { info.server.0 } else { 0 };
            disks.entry((info.device, alone)).or_default().push(info);
        }
        let mut space = DataSpace::default();
        for servers in disks.into_values() {
            let sum = |bytes: fn(&ServerInfo) -> u64| servers.iter().map(|info| bytes(info)).fold(0, u64::saturating_add);
            let most = |bytes: fn(&ServerInfo) -> u64| servers.iter().map(|info| bytes(info)).max().unwrap_or(0);
            // Each may take what its own limit leaves, all together what the disk has; holes in a
            // container are backed already.
            let free = sum(|info| info.free_bytes).min(most(|info| info.device_free_bytes.max(info.free_bytes)));
            space.used_bytes += sum(|info| info.used_bytes);
            space.free_bytes = space.free_bytes.saturating_add(free);
        }
        space.capacity_bytes = space.used_bytes.saturating_add(space.free_bytes);
        space
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::ServerId;

    fn info(server: u16, device: u64, used_bytes: u64, free_bytes: u64, device_free_bytes: u64) -> ServerInfo {
        let server = ServerId::data(server);
        let capacity_bytes = used_bytes + free_bytes;
        ServerInfo { server, device, used_bytes, free_bytes, capacity_bytes, device_free_bytes, ..ServerInfo::default() }
    }

    #[test]
    fn a_shared_disk_is_counted_once() {
        let of = |infos: &[ServerInfo]| DataSpace::of(infos.iter());
        let want = |used_bytes, free_bytes| DataSpace { capacity_bytes: used_bytes + free_bytes, used_bytes, free_bytes };
        assert_eq!(of(&[info(0, 7, 10, 100, 100), info(1, 7, 20, 100, 100)]), want(30, 100));
        assert_eq!(of(&[info(0, 7, 10, 100, 100), info(1, 8, 20, 100, 100)]), want(30, 200), "two disks");
        assert_eq!(of(&[info(0, 0, 10, 100, 100), info(1, 0, 20, 100, 100)]), want(30, 200), "disks that nobody knows");
        assert_eq!(of(&[info(0, 7, 10, 30, 100), info(1, 7, 20, 40, 100)]), want(30, 70), "limits of their own");
        assert_eq!(of(&[info(0, 7, 10, 30, 50), info(1, 7, 20, 40, 50)]), want(30, 50), "limits that the disk cannot keep");
        let meta = ServerInfo { server: ServerId(0), ..info(0, 7, 10, 100, 100) };
        assert_eq!(of(&[meta]), want(0, 0), "metadata servers hold no data");
    }
}
