//! Disks behind the back of the processes that use them.

use weft_base::Payload;

use super::volume::Volume;
use crate::{Control, NodeId};

/// A disk as it was: a backup, a snapshot.
#[derive(Clone, Debug)]
pub struct DiskCopy(Volume);

impl Control {
    /// Sets the size of a node's disk.
    pub fn set_disk_bytes(&self, node: NodeId, bytes: u64) {
        self.world.state.borrow_mut().nodes[node.index()].disk.volume.set_capacity(bytes);
    }

    /// Files on the disk of a node with their lengths in bytes, by name.
    pub fn disk_files(&self, node: NodeId) -> Vec<(String, u64)> {
        self.world.state.borrow().nodes[node.index()].disk.volume.list()
    }

    /// The content of a file as its process would read it.
    pub fn disk_content(&self, node: NodeId, name: &str) -> Option<Payload> {
        self.world.state.borrow().nodes[node.index()].disk.volume.content(name)
    }

    /// Changes bytes of a file behind the back of its process, within the length of the file. False
    /// if there is no such file.
    pub fn corrupt(&self, node: NodeId, name: &str, offset: u64, data: impl Into<Payload>) -> bool {
        self.world.state.borrow_mut().nodes[node.index()].disk.volume.corrupt(name, offset, data.into())
    }

    /// Takes the name of a file away. False if there is no such file.
    pub fn remove_file(&self, node: NodeId, name: &str) -> bool {
        self.world.state.borrow_mut().nodes[node.index()].disk.volume.remove(name).is_ok()
    }

    /// Copies a disk.
    pub fn copy_disk(&self, node: NodeId) -> DiskCopy {
        DiskCopy(self.world.state.borrow().nodes[node.index()].disk.volume.clone())
    }

    /// Puts a copy in the place of a disk. Panics if its process runs.
    pub fn put_disk(&self, node: NodeId, copy: &DiskCopy) {
        assert!(!self.is_running(node), "nobody takes the disk out of a machine that runs");
        let mut volume = copy.0.clone();
        volume.close_all();
        self.world.state.borrow_mut().nodes[node.index()].disk.volume = volume;
    }
}
