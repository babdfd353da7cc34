//! What a server remembers of loans that are under way: see [`crate::quotas`].

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use weft_rt::Signal;

/// What a server knows of its questions to the home for one user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// Their number so far.
    pub(crate) begun: u64,
    /// One is under way.
    pub(crate) is_asking: bool,
    /// The last one that was refused.
    pub(crate) refused: u64,
    /// How often the home has taken something back: an answer from before counts no longer.
    pub(crate) recalls: u64,
}

/// Questions that are under way.
#[derive(Default)]
pub(crate) struct Loans {
    asked: RefCell<BTreeMap<u32, Asked>>,
    /// At the home: users whose loans somebody changes.
    held: RefCell<BTreeSet<u32>>,
    /// A question was answered, loans were changed.
    pub(crate) changed: Signal,
    /// At the home: users of whom some servers must be told something.
    pub(crate) unsettled: RefCell<BTreeSet<u32>>,
    pub(crate) is_settling: Cell<bool>,
}

/// Somebody changes the loans of this user; nobody else does.
pub(crate) struct Held<'a> {
    loans: &'a Loans,
    uid: u32,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.loans.held.borrow_mut().remove(&self.uid);
        self.loans.changed.notify();
    }
}

impl Loans {
    /// Waits until nobody else changes the loans of this user.
    pub(crate) async fn hold(&self, uid: u32) -> Held<'_> {
        loop {
            let changed = self.changed.wait();
            if self.held.borrow_mut().insert(uid) {
                return Held { loans: self, uid };
            }
            changed.await;
        }
    }

    pub(crate) fn asked(&self, uid: u32) -> Asked {
        self.asked.borrow().get(&uid).copied().unwrap_or_default()
    }

    pub(crate) fn note(&self, uid: u32, change: impl FnOnce(&mut Asked)) {
        change(self.asked.borrow_mut().entry(uid).or_default());
    }
}
