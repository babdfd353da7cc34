//! Directories that are being listed: the page last read, so that the small buffers of callers do
//! not cost a request each.

use std::sync::{Arc, Mutex};

use weft_base::{Handle, Nanos, SECOND};
use weft_client::DirPage;

use crate::kept_pages::KeptPages;
use crate::table::Table;
use crate::told::XattrCount;

/// A page of a listing serves callers for at most so long, in nanoseconds; then it is read anew.
const AGE_MAX: u64 = SECOND;

/// All directories that are being listed, and pages of those that were.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    pub open: Table<Listing>,
    pub kept: KeptPages,
}

/// A directory that is being listed.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Which directory.
    pub dir: Handle,
    page: Mutex<Option<Page>>,
}

/// A page of a listing.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// The cookie it begins after.
    pub after: u64,
    /// When it was read.
    pub read_at: Nanos,
    /// Own changes of extended attributes before that.
    pub xattr_changes: XattrCount,
    /// Its entries.
    pub entries: Arc<DirPage>,
}

impl Listing {
    /// Of this directory, from which nothing has been read.
    pub fn new(dir: Handle) -> Listing {
        Listing { dir, page: Mutex::default() }
    }

    /// The page that follows `cookie`, if it is there and young enough. A listing that begins anew
    /// is read anew.
    pub fn page_after(&self, cookie: u64, now: Nanos) -> Option<Page> {
        let kept = self.page.lock().expect("no code panics while it holds this lock");
        let page = kept.as_ref().filter(|page| cookie > 0 && now.since(page.read_at) < AGE_MAX)?;
        let DirPage { entries, end, .. } = &*page.entries;
        let is_known = page.after == cookie || entries.binary_search_by_key(&cookie, |entry| entry.cookie).is_ok();
        let goes_on = entries.last().is_some_and(|last| *end || last.cookie > cookie);
        (is_known && goes_on).then(|| page.clone())
    }

    /// Keeps a page in place of the one before.
    pub fn keep(&self, page: Page) {
        *self.page.lock().expect("no code panics while it holds this lock") = Some(page);
    }
}
