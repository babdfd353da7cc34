//! Pages of directories that were listed, kept while nothing changes: what is listed again, as
//! programs do that compare trees, costs no message. A page is good for as long as the directory
//! has the version that it had when the page was asked for and when it came, under a lease; the
//! attributes of its entries are those that are known then, or the page is read anew.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use weft_base::{Attr, Credentials, FastMap, Handle, READ, WallTime};
use weft_client::{Client, DirPage};
use weft_rt::Runtime;

/// Entries in all pages that are kept, some 450 bytes each; a page counts as one more.
const ENTRIES_MAX: usize = 1 << 16;

/// What a directory was like when it was listed.
pub(crate) type NamesVersion = (u64, WallTime);

/// Pages by directory and the cookie that they follow.
#[derive(Debug, Default)]
pub(crate) struct KeptPages(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    pages: FastMap<(Handle, u64), KeptPage>,
    /// In which order they came first.
    order: VecDeque<(Handle, u64)>,
    entries: usize,
}

#[derive(Debug)]
struct KeptPage {
    of: NamesVersion,
    /// Its entries have attributes as far as there are any.
    with_attrs: bool,
    page: Arc<DirPage>,
}

/// What the names of a directory are now, if this user may list it and if that can be said without
/// asking.
pub(crate) fn names_version<R: Runtime>(client: &Client<R>, who: &Credentials, dir: Handle) -> Option<NamesVersion> {
    let attr = client.leased_directory(dir).filter(|attr| attr.allows(who, READ))?;
    Some((attr.version, attr.ctime))
}

impl KeptPages {
    /// The page of this version that follows a cookie, with the attributes that `known` has.
    pub fn get(
        &self,
        (dir, after): (Handle, u64),
        of: NamesVersion,
        with_attrs: bool,
        known: impl Fn(Handle) -> Option<Attr>,
    ) -> Option<Arc<DirPage>> {
        let page = {
            let inner = self.0.lock().expect("no code panics while it holds this lock");
            let kept = inner.pages.get(&(dir, after)).filter(|kept| kept.of == of && (kept.with_attrs || !with_attrs))?;
            Arc::clone(&kept.page)
        };
        let mut now = DirPage::clone(&page);
        for entry in now.entries.iter_mut().filter(|entry| entry.attr.is_some()) {
            // Those of then may be others now.
            entry.attr = if with_attrs { Some(known(entry.handle)?) } else { None };
            entry.is_exact = true;
        }
        Some(Arc::new(now))
    }

    /// Keeps a page of this version, and as many others as there is room for.
    pub fn keep(&self, at: (Handle, u64), of: NamesVersion, with_attrs: bool, page: &DirPage) {
        let page = Arc::new(apart(page));
        let mut inner = self.0.lock().expect("no code panics while it holds this lock");
        inner.entries += page.entries.len() + 1;
        match inner.pages.insert(at, KeptPage { of, with_attrs, page }) {
            Some(before) => inner.entries -= before.page.entries.len() + 1,
            None => inner.order.push_back(at),
        }
        while inner.entries > ENTRIES_MAX {
            let oldest = inner.order.pop_front().and_then(|oldest| inner.pages.remove(&oldest));
            inner.entries -= oldest.expect("each page is in the order").page.entries.len() + 1;
        }
    }
}

/// The same page with its names in memory of their own: a few small pages would keep large buffers
/// of messages alive.
fn apart(page: &DirPage) -> DirPage {
    let names: Vec<u8> = page.entries.iter().flat_map(|entry| &entry.name[..]).copied().collect();
    let (names, mut end) = (Bytes::from(names), 0);
    let mut apart = page.clone();
    for entry in &mut apart.entries {
        let begin = end;
        end += entry.name.len();
        entry.name = names.slice(begin..end);
    }
    apart
}

#[cfg(test)]
mod tests {
    use weft_base::{FileKind, Layout};
    use weft_client::DirItem;

    use super::*;

    const DIR: Handle = Handle(7);

    const PAGE: DirPage = DirPage { entries: Vec::new(), end: true, parent: DIR };

    fn attr(version: u64) -> Attr {
        let (time, handle) = (WallTime(0), Handle(8));
        let layout = Layout { stripe_bytes: 4096, width: 1, first: 0, generation: 1 };
        let (kind, mode, uid, gid, nlink, rdev, size) = (FileKind::File, 0o644, 0, 0, 1, 0, 0);
        let (atime, mtime, ctime, born, mtime_epoch, truncate_epoch) = (time, time, time, time, 0, 0);
        let (bare, hole_bytes) = (true, 0);
        Attr {
            handle,
            kind,
            mode,
            uid,
            gid,
            nlink,
            rdev,
            size,
            atime,
            mtime,
            mtime_epoch,
            ctime,
            version,
            truncate_epoch,
            layout,
            bare,
            born,
            hole_bytes,
        }
    }

    #[test]
    fn attributes_are_those_that_are_known_now() {
        let (kept, of) = (KeptPages::default(), (1, WallTime(1)));
        let first = attr(1);
        let entry = |name, cookie| {
            let name = Bytes::from_static(name);
            DirItem { name, handle: first.handle, kind: first.kind, cookie, attr: Some(first), is_exact: true }
        };
        let page = DirPage { entries: vec![entry(b"one", 8), entry(b"other", 9)], ..PAGE };
        kept.keep((DIR, 0), of, true, &page);
        assert_eq!(kept.get((DIR, 0), of, true, |_| Some(first)).as_deref(), Some(&page));
        let shown = |with_attrs, known: Option<Attr>| {
            let page = kept.get((DIR, 0), of, with_attrs, |_| known)?;
            Some(page.entries[0].attr.map(|attr| attr.version))
        };
        assert_eq!(shown(true, Some(attr(2))), Some(Some(2)));
        assert_eq!(shown(true, None), None, "it is read anew");
        assert_eq!(shown(false, None), Some(None));
    }

    #[test]
    fn a_page_is_good_for_its_version_and_for_what_it_has() {
        let kept = KeptPages::default();
        let (first, second) = ((1, WallTime(1)), (2, WallTime(2)));
        let has = |of, with_attrs| kept.get((DIR, 0), of, with_attrs, |_| None).is_some();
        assert!(!has(first, false));
        kept.keep((DIR, 0), first, false, &PAGE);
        assert!(has(first, false) && !has(first, true) && !has(second, false));
        kept.keep((DIR, 0), second, true, &PAGE);
        assert!(!has(first, false) && has(second, false) && has(second, true));
    }

    #[test]
    fn pages_that_came_first_go_first() {
        let kept = KeptPages::default();
        let of = (1, WallTime(1));
        for after in 0..ENTRIES_MAX as u64 + 10 {
            kept.keep((DIR, after), of, true, &PAGE);
        }
        let has = |after| kept.get((DIR, after), of, true, |_| None).is_some();
        assert!(!has(9) && has(10));
    }
}
