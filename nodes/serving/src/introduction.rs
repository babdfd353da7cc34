//! Servers know each other by more than a number: every store has a birth, drawn when it was made. A server whose folder was lost and
//! made again has the number and name of the old one and nothing of what it held, so nobody may take it for the old one.
//!
//! ```text
//! another server                       metadata server 0
//!   Meet {number, birth, yours} ──────▶  met before? the same birth : remembered in the superblock
//!      ◀── {birth} ────────────────────  (or StoreReplaced, or WrongServer if `yours` is not its birth: the asker stops)
//!   remembers both in its superblock
//! ```
//! A server that was never introduced serves nothing before. Metadata server 0 itself, when it is new, asks everybody whether they have
//! met another one.

use std::cell::{Cell, RefCell};

use weft_base::{Result, ServerId, Status};
use weft_journal::Superblock;
use weft_rt::Disk;
use weft_wire::Op;

/// The metadata server that knows all others.
pub(crate) const REGISTRAR: ServerId = ServerId(0);

/// What may be asked of a server that is not introduced.
pub fn is_for_strangers(op: u16) -> bool {
    matches!(Op::from_code(op), Some(Op::Ping | Op::GetMap | Op::Live | Op::Trace | Op::TraceRead | Op::Meet))
}

/// Whom a server has met.
#[derive(Debug)]
pub struct Introduction {
    /// `None`: nothing outlives the server.
    superblock: RefCell<Option<Superblock>>,
    pub(crate) is_needed: bool,
    /// It is being stored.
    is_noting: Cell<bool>,
}

impl Introduction {
    /// As the superblock says, if there is one. Tests of one server alone need no introduction.
    pub fn new(superblock: Option<Superblock>, is_needed: bool) -> Introduction {
        Introduction { superblock: RefCell::new(superblock), is_needed, is_noting: Cell::new(false) }
    }

    /// True if the server may serve.
    pub fn is_complete(&self) -> bool {
        !self.is_needed || self.superblock.borrow().as_ref().is_none_or(Superblock::is_introduced)
    }

    /// What is known; `None` if nothing outlives the server.
    pub(crate) fn known(&self) -> Option<Superblock> {
        self.superblock.borrow().clone()
    }

    /// Notes births durably.
    ///
    /// # Errors
    /// [`Status::StoreReplaced`] if a server has another birth than it had; [`Status::Busy`] while other births are being noted; why
    /// the disk refused.
    pub(crate) async fn note<D: Disk>(&self, disk: &D, births: &[(ServerId, u64)]) -> Result<()> {
        let Some(mut superblock) = self.known() else { return Ok(()) };
        let mut is_new = false;
        for (server, birth) in births {
            is_new |= superblock.meet(*server, *birth)?;
        }
        if !is_new {
            return Ok(());
        }
        if self.is_noting.replace(true) {
            return Err(Status::Busy);
        }
        let stored = superblock.store(disk).await;
        self.is_noting.set(false);
        stored?;
        *self.superblock.borrow_mut() = Some(superblock);
        Ok(())
    }
}
