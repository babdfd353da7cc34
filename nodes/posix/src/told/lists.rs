//! Access control lists that a kernel may keep. It forgets them with the attributes of the object
//! when it asks for these, and when it is told to; but not when it looks a name up anew and finds
//! an object that it still knows: then it goes on by the old list with the new attributes. So what
//! has a list now, and what was told of one before, is made forgotten when its name is told.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_base::{Attr, FileKind, Handle, MODE_ACL};

/// So many lists may be kept above at most, as far as is known here.
const LISTS_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Lists {
    told: Mutex<BTreeSet<Handle>>,
    /// How many these are.
    count: AtomicUsize,
}

impl Lists {
    /// The list of an object is about to be told. Returns another object whose list must be made
    /// forgotten above, so that these do not become too many.
    pub fn tell(&self, object: Handle) -> Option<Handle> {
        let mut told = self.told.lock().expect("no code panics while it holds this lock");
        told.insert(object);
        let other = if told.len() > LISTS_MAX { told.pop_first() } else { None };
        self.count.store(told.len(), Ordering::SeqCst);
        other
    }

    /// True if a list of this object, or the lack of one, may be kept above.
    pub fn are_told(&self, object: Handle) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.told.lock().expect("no code panics while it holds this lock").contains(&object)
    }

    /// A name that leads to an object with these attributes is about to be told: true if a list or
    /// the lack of one that is kept above may be an old one.
    pub fn may_be_old(&self, attr: &Attr) -> bool {
        // A default list is none of the mode.
        if attr.mode & MODE_ACL != 0 || attr.kind == FileKind::Directory && !attr.bare {
            return true;
        }
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut told = self.told.lock().expect("no code panics while it holds this lock");
        let was_told = told.remove(&attr.handle);
        self.count.store(told.len(), Ordering::SeqCst);
        was_told
    }
}
