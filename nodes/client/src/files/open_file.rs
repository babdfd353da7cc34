//! A file that a process has open: what its user holds. What its server knows of it is in
//! `open_inode.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_base::{Handle, Layout};
use weft_wire::Rights;

use super::open_inode::OpenInode;

/// A file that this process has open. Belongs to the client that opened it; all opens of one file
/// by one client are one open at the server. To be given back with [`crate::Client::close`]; one
/// that is just dropped is closed at the server when [`crate::Client::keep_alive`] runs next.
#[derive(Debug)]
pub struct OpenFile {
    inode: Arc<OpenInode>,
    rights: Rights,
    /// It may be written to, and nobody needs to know that yet.
    pub(super) is_unwritten: AtomicBool,
    /// A close may have come after it that was sent before its answer.
    pub(super) has_overtaken: bool,
    released: AtomicBool,
    others_write: AtomicBool,
}

impl OpenFile {
    /// The file.
    pub fn handle(&self) -> Handle {
        self.inode.handle
    }

    /// Its striping.
    pub fn layout(&self) -> Layout {
        self.inode.layout
    }

    /// What it was opened for.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// True if some other client had the file open for writing when it was opened here: it may
    /// change at any time.
    pub fn others_write(&self) -> bool {
        self.others_write.load(Ordering::Relaxed)
    }

    /// A local open for nothing: what closes it tells the server what the others need.
    pub(super) fn without_rights(inode: Arc<OpenInode>) -> Arc<OpenFile> {
        Arc::new(OpenFile::new(inode, Rights::default()))
    }

    pub(super) fn new(inode: Arc<OpenInode>, rights: Rights) -> OpenFile {
        let [is_unwritten, released, others_write] = Default::default();
        OpenFile { inode, rights, is_unwritten, has_overtaken: false, released, others_write }
    }

    /// True if its server may have more rights noted than are needed: a close that was to give them
    /// back may have come after this open.
    pub(super) fn has_overtaken(&self) -> bool {
        self.has_overtaken
    }

    /// It is about to be written to. True if its server is to hear of that first.
    pub(super) fn begins_to_write(&self) -> bool {
        self.is_unwritten.load(Ordering::Relaxed) && self.inode.begins_to_write(&self.is_unwritten, &self.released)
    }

    pub(super) fn note_others_write(&self) {
        self.others_write.store(true, Ordering::Relaxed);
    }

    /// The largest size in bytes that this client has heard of since the last truncation. Exact
    /// sizes come from `getattr`.
    pub fn size_known(&self) -> u64 {
        self.inode.known_size().bytes
    }

    /// Grows when somebody else has set the time of the last change, as far as writes of this
    /// client have met that: what is written from then on counts as later. Whoever makes a program
    /// set-id elsewhere sets the time.
    pub fn epoch_of_writes(&self) -> u32 {
        self.inode.epoch_of_writes()
    }

    /// The time of the last access to it is due: its server hears of the read with the close of the
    /// last local open, if that is done by [`crate::Client::close_many`].
    pub fn note_read(&self) {
        self.inode.is_read.store(true, Ordering::Relaxed);
    }

    /// True if [`OpenFile::note_read`] was called, and its server has not heard of it.
    pub fn is_read(&self) -> bool {
        self.inode.is_read.load(Ordering::Relaxed)
    }

    /// It will be given back soon and is not used before. What of it is with this client only
    /// goes with the close then, whoever asks for it meanwhile.
    pub fn closes_soon(&self) {
        if self.inode.is_delayed() {
            self.release();
        }
    }

    pub(super) fn inode(&self) -> &Arc<OpenInode> {
        &self.inode
    }

    /// Gives up the local open, once.
    pub(super) fn release(&self) {
        if !self.released.swap(true, Ordering::Relaxed) {
            self.inode.released(self.rights, &self.is_unwritten);
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.release();
    }
}
