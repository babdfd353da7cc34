//! What a server remembers of loans that are under way: see [`crate::quotas`].

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use weft_namespace::Account;
use weft_rt::Signal;

/// What a server knows of its questions to the home for one account.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// Their number so far.
    pub(crate) begun: u64,
    /// One is under way.
    pub(crate) is_asking: bool,
    /// The last one that was refused.
    pub(crate) refused: u64,
    /// How much more than there was it had asked for.
    pub(crate) refused_more: u64,
    /// How often the home has taken something back: an answer from before counts no longer.
    pub(crate) recalls: u64,
}

/// Questions that are under way.
#[derive(Default)]
pub(crate) struct Loans {
    asked: RefCell<BTreeMap<Account, Asked>>,
    /// At the home: accounts whose loans somebody changes.
    held: RefCell<BTreeSet<Account>>,
    /// A question was answered, loans were changed.
    pub(crate) changed: Signal,
    /// At the home: accounts of which some servers must be told something.
    pub(crate) unsettled: RefCell<BTreeSet<Account>>,
    pub(crate) is_settling: Cell<bool>,
}

/// Somebody changes the loans of this account; nobody else does.
pub(crate) struct Held<'a> {
    loans: &'a Loans,
    account: Account,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.loans.held.borrow_mut().remove(&self.account);
        self.loans.changed.notify();
    }
}

impl Loans {
    /// Waits until nobody else changes the loans of this account.
    pub(crate) async fn hold(&self, account: Account) -> Held<'_> {
        loop {
            let changed = self.changed.wait();
            if self.held.borrow_mut().insert(account) {
                return Held { loans: self, account };
            }
            changed.await;
        }
    }

    pub(crate) fn asked(&self, account: Account) -> Asked {
        self.asked.borrow().get(&account).copied().unwrap_or_default()
    }

    pub(crate) fn note(&self, account: Account, change: impl FnOnce(&mut Asked)) {
        change(self.asked.borrow_mut().entry(account).or_default());
    }
}
