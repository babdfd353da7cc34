//! Attributes of a new file that were set while it is with this client only (`delayed.rs`): what is
//! kept of them. How they are kept and sent is in `keep.rs`.

use weft_base::{Attr, DataTime, WallTime};
use weft_wire::ops::{DelayedAttributes, SetTime};

use crate::SetAttr;

/// What is kept of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptAttributes {
    pub(super) mode: Option<u32>,
    pub(super) atime: Option<WallTime>,
    pub(super) mtime: Option<WallTime>,
    /// When they were set, by the clock of the server.
    at: WallTime,
    /// User and group of the file.
    pub(super) owner: (u32, u32),
}

impl KeptAttributes {
    /// The epoch of a time that is kept: the first one that was set of the file.
    pub(super) const EPOCH: u32 = 1;

    /// These, or none, of a file with these attributes after a change by this user at a time of the
    /// server; `None`: that is no change to be kept.
    pub(super) fn with(kept: Option<KeptAttributes>, attr: &Attr, uid: u32, changes: &SetAttr, now: WallTime) -> Option<KeptAttributes> {
        let SetAttr { mode, uid: to_uid, gid: to_gid, size: None, atime, mtime, opened_for_write: _, seal: None } = changes else {
            return None;
        };
        let owner = (attr.uid, attr.gid);
        let is_owned = uid == attr.uid && to_uid.is_none_or(|uid| uid == attr.uid) && to_gid.is_none_or(|gid| gid == attr.gid);
        if !is_owned || !DelayedAttributes::may_set(attr.mode, *mode) {
            return None;
        }
        let kept = kept.unwrap_or(KeptAttributes { mode: None, atime: None, mtime: None, at: now, owner });
        let set = |time: &Option<SetTime>, kept| time.as_ref().map(|time| time.at.unwrap_or(now)).or(kept);
        let (mode, at) = (mode.or(kept.mode), kept.at.max(now));
        Some(KeptAttributes { mode, atime: set(atime, kept.atime), mtime: set(mtime, kept.mtime), at, owner })
    }

    /// Corrects what was known before.
    pub(super) fn show(&self, attr: &mut Attr) {
        *attr = self.set_in(*attr);
        if let Some(at) = self.mtime.filter(|_| attr.mtime_epoch <= KeptAttributes::EPOCH) {
            (attr.mtime, attr.mtime_epoch) = (at, KeptAttributes::EPOCH);
        }
        attr.ctime = attr.ctime.max(self.at);
    }

    /// With this mode and time of access.
    pub(super) fn set_in(&self, attr: Attr) -> Attr {
        let mode = self.mode.map_or(attr.mode, |mode| attr.mode & !DelayedAttributes::PERMISSIONS | mode);
        Attr { mode, atime: self.atime.unwrap_or(attr.atime), ..attr }
    }

    /// The time of a write, as data servers say it, that has come before the time that is kept: its
    /// bytes have arrived later, and the time of change stays what it was shown to be.
    pub(super) fn of_earlier_write(&self, mtime: DataTime) -> DataTime {
        let is_earlier = self.mtime.is_some() && mtime.epoch < KeptAttributes::EPOCH;
        if is_earlier { DataTime { at: mtime.at.min(self.at), ..mtime } } else { mtime }
    }

    /// For the close with this number.
    pub(super) fn on_wire(self, number: u8) -> DelayedAttributes {
        let KeptAttributes { mode, atime, mtime, at, .. } = self;
        DelayedAttributes { number, mode, atime, mtime, at }
    }

    /// What is left when the server knows `sent`.
    pub(super) fn after(self, sent: KeptAttributes) -> Option<KeptAttributes> {
        (self != sent).then_some(KeptAttributes {
            mode: self.mode.filter(|_| self.mode != sent.mode),
            atime: self.atime.filter(|_| self.atime != sent.atime),
            mtime: self.mtime.filter(|_| self.mtime != sent.mtime),
            ..self
        })
    }
}
