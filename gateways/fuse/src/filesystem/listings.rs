//! Listings of directories, page by page.

use std::sync::Arc;

use weft_base::{Attr, Credentials, FileKind, Handle, SECOND, Status};
use weft_client::Error;
use weft_rt::Runtime;

use super::WeftFilesystem;
use crate::SharedClient;
use crate::convert::{attributes, file_type, handle, inode};
use crate::kernel::{FileAttr, FileHandle, FileType, INodeNo};
use crate::open_files::{KeptPage, Listing};

/// A listing asks a server for so many bytes of entries at once.
const LISTING_BYTES: u32 = 192 * 1024;

/// A page of a listing serves the kernel for at most so long, in nanoseconds; then it is read anew.
const LISTING_AGE_MAX: u64 = SECOND;

/// Cookies of the two entries that every directory has; those of the servers are larger.
const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;

impl WeftFilesystem {
    /// Calls `add` for each entry after `cookie`, `.` and `..` first, until it says that the buffer is full. With the attributes comes how many own
    /// changes of extended attributes there had been when they were asked for.
    pub(super) fn list(
        &self,
        number: FileHandle,
        who: &Credentials,
        cookie: u64,
        with_attrs: bool,
        mut add: impl FnMut(u64, &[u8], INodeNo, FileType, Option<(&Attr, u64)>) -> bool,
    ) -> Result<(), Error> {
        let listing = self.listings.get(number.0).ok_or(Error::local(Status::Stale, "list", Handle(0)))?;
        let client = self.client.for_one_operation();
        let mut cookie = cookie;
        let mut added = false;
        loop {
            let KeptPage { page, xattr_changes, .. } = self.listing_page(&client, &listing, who, cookie, with_attrs)?;
            if cookie < COOKIE_SELF && add(COOKIE_SELF, b".", inode(listing.dir), FileType::Directory, None) {
                return Ok(());
            }
            if cookie < COOKIE_PARENT && add(COOKIE_PARENT, b"..", inode(page.parent), FileType::Directory, None) {
                return Ok(());
            }
            let first = page.entries.partition_point(|entry| entry.cookie <= cookie);
            for entry in &page.entries[first..] {
                added = true;
                let attr = entry.attr.as_ref().map(|attr| (attr, xattr_changes));
                if add(entry.cookie, &entry.name, inode(entry.handle), file_type(entry.kind), attr) {
                    return Ok(());
                }
            }
            // An empty page that is not the end is one whose entries all came before the cookie: ask for what follows it.
            match page.entries.last() {
                Some(last) if !page.end && !added => cookie = last.cookie.max(cookie),
                _ => return Ok(()),
            }
        }
    }

    /// The page of a listing that follows `cookie`, from memory if it is there.
    fn listing_page(
        &self,
        client: &SharedClient,
        listing: &Listing,
        who: &Credentials,
        cookie: u64,
        with_attrs: bool,
    ) -> Result<KeptPage, Error> {
        let server_cookie = if cookie <= COOKIE_PARENT { 0 } else { cookie };
        let now = self.client.rt().now();
        let mut kept = listing.page.lock().expect("no code panics while it holds this lock");
        if let Some(KeptPage { after, read_at, page, .. }) = kept.as_ref()
            && server_cookie > 0
            && now.since(*read_at) < LISTING_AGE_MAX
            && (*after == server_cookie || page.entries.binary_search_by_key(&server_cookie, |entry| entry.cookie).is_ok())
            && page.entries.last().is_some_and(|last| page.end || last.cookie > server_cookie)
        {
            return Ok(kept.clone().expect("it was looked at"));
        }
        let xattr_changes = self.told.xattr_changes();
        let page = match with_attrs {
            true => self.run(client.readdir_soon(who, listing.dir, server_cookie, LISTING_BYTES)),
            false => self.run(client.readdir(who, listing.dir, server_cookie, LISTING_BYTES, false)),
        }?;
        let page = KeptPage { after: server_cookie, read_at: now, xattr_changes, page: Arc::new(page) };
        *kept = Some(page.clone());
        Ok(page)
    }
}

/// Attributes that say nothing but the kind; the kernel does not keep them.
pub(super) fn name_only(ino: INodeNo, kind: FileType) -> FileAttr {
    let kind_of = |kind: FileType| match kind {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::NamedPipe => FileKind::Fifo,
        FileType::CharDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Socket => FileKind::Socket,
        FileType::RegularFile => FileKind::File,
    };
    let layout = weft_base::Layout { stripe_bytes: 1, width: 1, first: 0 };
    let time = weft_base::WallTime(0);
    attributes(&Attr {
        handle: handle(ino),
        kind: kind_of(kind),
        mode: 0,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size: 0,
        atime: time,
        mtime: time,
        mtime_epoch: 0,
        ctime: time,
        version: 0,
        truncate_epoch: 0,
        layout,
        bare: false,
    })
}
