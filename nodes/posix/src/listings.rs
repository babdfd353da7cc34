//! Listings of directories.

use std::sync::Arc;

use weft_base::{Attr, Credentials, FileKind, Handle, Status};
use weft_client::{Client, Error, Result};
use weft_rt::Runtime;

use crate::gateway::Gateway;
use crate::kept_pages::names_version;
use crate::listing::{Listing, Page};
use crate::node::InodeNumber;
use crate::posix::Posix;

/// A listing asks a server for so many bytes of entries at once.
const PAGE_BYTES: u32 = 192 * 1024;
/// Cookies of the two entries that every directory has; those of the servers are larger.
const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;

/// An entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Where to go on after it.
    pub cookie: u64,
    /// Its name.
    pub name: &'a [u8],
    /// What it leads to.
    pub node: InodeNumber,
    /// The kind of that.
    pub kind: FileKind,
    /// Its attributes, and for how many nanoseconds they and the name may be believed. `None`: they
    /// are not at hand (`.`, `..`, an object that vanished meanwhile), were not wanted, or the name
    /// must be looked up by itself.
    pub shown: Option<(&'a Attr, (u64, u64))>,
}

impl<R: Runtime, G: Gateway> Posix<R, G> {
    /// Begins to list a directory; the number names the listing.
    pub fn open_dir(&self, dir: InodeNumber) -> u64 {
        self.listings.open.add(Arc::new(Listing::new(dir.handle())))
    }

    /// Gives a listing back.
    pub fn close_dir(&self, number: u64) {
        self.listings.open.remove(number);
    }

    /// Calls `add` for each entry after `cookie` (0: from the start), `.` and `..` first, until it
    /// says that it has no room for one.
    ///
    /// # Errors
    /// As [`weft_client::Client::readdir`]; [`Status::Stale`] if there is no such listing.
    pub async fn list(
        &self,
        number: u64,
        who: &Credentials,
        cookie: u64,
        with_attrs: bool,
        mut add: impl FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        let listing = self.listings.open.get(number).ok_or(Error::local(Status::Stale, "list", Handle(0)))?;
        let client = self.client.for_one_operation();
        let mut cookie = cookie;
        let mut added = false;
        loop {
            let page = self.noted(self.page(&client, &listing, who, cookie, with_attrs).await)?;
            let dots = [(COOKIE_SELF, b".".as_slice(), listing.dir), (COOKIE_PARENT, b"..", page.entries.parent)];
            for (at, name, handle) in dots {
                let dot = Listed { cookie: at, name, node: InodeNumber::of(handle), kind: FileKind::Directory, shown: None };
                if cookie < at && add(dot) {
                    return Ok(());
                }
            }
            let now = self.now();
            let entries = &page.entries.entries;
            let first = entries.partition_point(|entry| entry.cookie <= cookie);
            for entry in &entries[first..] {
                added = true;
                let tell = |attr: &&Attr| self.told.tell_name(listing.dir, &entry.name, attr, page.xattr_changes, now);
                entry.attr.iter().for_each(|attr| self.forget_old_list(attr));
                let shown = entry.attr.as_ref().filter(tell).map(|attr| (attr, self.ttls_ns(listing.dir, &entry.name, attr)));
                if add(Listed { cookie: entry.cookie, name: &entry.name, node: InodeNumber::of(entry.handle), kind: entry.kind, shown }) {
                    return Ok(());
                }
            }
            // An empty page that is not the end is one whose entries all came before the cookie:
            // ask for what follows it.
            match entries.last() {
                Some(last) if !page.entries.end && !added => cookie = last.cookie.max(cookie),
                _ => return Ok(()),
            }
        }
    }

    /// The page of a listing that follows `cookie`, from memory if it is there.
    async fn page(&self, client: &Client<R>, listing: &Listing, who: &Credentials, cookie: u64, with_attrs: bool) -> Result<Page> {
        let after = if cookie <= COOKIE_PARENT { 0 } else { cookie };
        let read_at = self.now();
        if let Some(page) = listing.page_after(after, read_at) {
            return Ok(page);
        }
        let xattr_changes = self.told.xattr_changes();
        let (at, version) = ((listing.dir, after), names_version(client, who, listing.dir));
        let kept = version.and_then(|of| self.listings.kept.get(at, of, with_attrs, |handle| client.leased_attr(handle)));
        let entries = match kept {
            Some(entries) => entries,
            None => {
                let entries = Arc::new(match with_attrs {
                    true => client.readdir_soon(who, listing.dir, after, PAGE_BYTES).await,
                    false => client.readdir(who, listing.dir, after, PAGE_BYTES, false).await,
                }?);
                if let Some(of) = version.filter(|of| names_version(client, who, listing.dir) == Some(*of)) {
                    self.listings.kept.keep(at, of, with_attrs, &entries);
                }
                entries
            }
        };
        let page = Page { after, read_at, xattr_changes, entries };
        listing.keep(page.clone());
        Ok(page)
    }

    /// When this returns, everything that was acknowledged about names and attributes in the
    /// directory is on stable storage.
    ///
    /// # Errors
    /// Broken disks; servers that do not answer.
    pub async fn fsync_dir(&self, dir: InodeNumber) -> Result<()> {
        self.noted(self.client.fsync_dir(dir.handle()).await)
    }
}
