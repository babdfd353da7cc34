//! A small file that is read with others of its directory, in the messages that would have read it
//! alone (`contents.rs` says how many). Their contents are kept as long as what was told of them
//! under a lease holds: so nobody can have changed them, and reading them needs no message.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use weft_base::{Credentials, Handle, MILLISECOND, Status};
use weft_rt::Runtime;

use super::contents::{FILE_BYTES_MAX, TOGETHER_BYTES_MAX};
use super::open_inode::OpenInode;
use super::opens::RENEWAL;
use crate::flow::Flow;
use crate::knowledge::FileTold;
use crate::names::Wanted;
use crate::{Client, WholeFile};

/// How long a read may wait for what it was not asked for, in nanoseconds.
const WAIT_NS: u64 = 500 * MILLISECOND;
/// Bytes of a page of a listing: some 300 files with their attributes.
const PAGE_BYTES: u32 = 64 << 10;
/// Names that are looked at for each file that is wanted.
const NAMES: usize = 8;

impl<R: Runtime> Client<R> {
    /// All bytes of a file that is open here without its server knowing, if they came with those of
    /// another file, or come now with those of others.
    pub(super) async fn read_beside(&self, flow: Flow, inode: &OpenInode) -> Option<Bytes> {
        // Whoever closes what its server knows of can say that it was read.
        if !inode.is_unannounced() || inode.is_read.load(Ordering::Relaxed) {
            return None;
        }
        let since = self.hold_of(inode)?.since;
        if let Some(content) = self.inner.contents.get(inode.handle, since) {
            return Some(content);
        }
        let (dir, attr) = self.inner.knowledge.told_file(inode.handle, self.rt().now())?;
        if !(1..=FILE_BYTES_MAX).contains(&attr.size) || attr.is_sealed() {
            return None;
        }
        let wanted = self.inner.contents.wanted(dir);
        if wanted > 1 {
            Box::pin(self.read_together_with(flow, inode, dir, wanted)).await;
        }
        let since = self.hold_of(inode)?.since;
        let content = self.inner.contents.get(inode.handle, since);
        if content.is_none() {
            self.inner.contents.read_alone(dir, inode.handle, since);
        }
        content
    }

    /// Reads so many files of a directory together. What cannot be had is read when it is wanted.
    async fn read_together_with(&self, flow: Flow, inode: &OpenInode, dir: Handle, wanted: usize) {
        let (_, Some(who)) = inode.renewal() else { return };
        let client = self.for_at_most(WAIT_NS);
        let mut files = self.files_beside(inode, wanted);
        if files.len() < wanted / 2 && self.list_more(&client, &who, dir).await {
            files = self.files_beside(inode, wanted);
        }
        if files.len() < 2 {
            return;
        }
        let contents = &self.inner.contents;
        let names: Vec<(Handle, Bytes)> = files.iter().map(|file| (dir, file.name.clone())).collect();
        let flow = Flow { deadline: client.flow(flow.operation, dir).deadline.min(flow.deadline), ..flow };
        let read = client.read_at_once(flow, &who, &names).await;
        for (file, read) in files.into_iter().zip(read) {
            match read {
                Some(Ok(WholeFile { handle, data }))
                    if handle == file.handle && data.len() == file.bytes && self.holds_content(handle, file.since) =>
                {
                    // Copied, so that a small file does not keep a message alive.
                    contents.keep(dir, handle, file.since, Bytes::copy_from_slice(&data.to_bytes()));
                }
                Some(Err(error)) if matches!(error.status, Status::TimedOut | Status::Unreachable) => contents.pause(dir),
                _ => {}
            }
        }
    }

    /// The file, and those that follow it in the order of names, as far as they were not read.
    fn files_beside(&self, inode: &OpenInode, wanted: usize) -> Vec<FileTold> {
        let mut room = TOGETHER_BYTES_MAX;
        let known = self.inner.knowledge.files_beside(inode.handle, self.rt().now(), wanted * NAMES).into_iter();
        let new = known.filter(|file| {
            let is_small = (1..=FILE_BYTES_MAX.min(room)).contains(&file.bytes);
            let is_wanted = file.handle == inode.handle || !self.inner.contents.was_read(file.handle, file.since);
            let is_new = is_small && is_wanted && self.holds_content(file.handle, file.since);
            room -= if is_new { file.bytes } else { 0 };
            is_new
        });
        new.take(wanted).collect()
    }

    /// A file was asked for by its handle, and its server has told of it under a lease: as
    /// [`Client::looked_up`].
    pub(crate) async fn asked_for(&self, file: Handle) {
        if let Some((dir, _)) = self.inner.knowledge.told_file(file, self.rt().now()) {
            Box::pin(self.looked_up(&RENEWAL, dir)).await;
        }
    }

    /// A name in a directory was looked up, and its server tells under leases what is there: who
    /// looks some names up mostly goes on to others.
    pub(crate) async fn looked_up(&self, who: &Credentials, dir: Handle) {
        let names = self.inner.knowledge.state(dir, self.rt().now()).map(|(state, _)| state.attr.size);
        if self.inner.contents.looked_up(dir, names) {
            self.list_more(&self.for_at_most(WAIT_NS), who, dir).await;
        }
    }

    /// Learns more of the files of a directory. False: there is nothing more to learn.
    async fn list_more(&self, client: &Client<R>, who: &Credentials, dir: Handle) -> bool {
        let contents = &self.inner.contents;
        let Some(cookie) = contents.listed(dir) else { return false };
        let page = Box::pin(client.list(who, dir, cookie, PAGE_BYTES, Wanted::Along)).await;
        let is_in_vain = contents.listed(dir) == Some(cookie);
        if is_in_vain {
            contents.pause(dir);
        }
        page.is_ok() && !is_in_vain
    }
}
