//! Attributes of a new file that were set while it is with this client only (`delayed.rs`): what is
//! kept of them. How they are kept and sent is in `keep.rs`.

use weft_base::{Attr, MODE_ACL, WallTime};
use weft_wire::ops::{DelayedSettings, SetTime};

use crate::SetAttr;

/// Permission bits. Others, and lists of access, are for the server to judge.
const PERMISSIONS: u32 = 0o777;
const NO_PERMISSIONS: u32 = 0o7777 & !PERMISSIONS;

/// What is kept of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) mode: Option<u32>,
    pub(super) atime: Option<WallTime>,
    pub(super) mtime: Option<WallTime>,
    /// When they were set, by the clock of the server.
    at: WallTime,
    /// User and group of the file.
    pub(super) owner: (u32, u32),
}

impl Settings {
    /// The epoch of a time that is kept: the first one that was set of the file.
    pub(super) const EPOCH: u32 = 1;

    /// These, or none, of a file with these attributes after a change by this user at a time of the
    /// server; `None`: that is no change to be kept.
    pub(super) fn with(kept: Option<Settings>, attr: &Attr, uid: u32, changes: &SetAttr, now: WallTime) -> Option<Settings> {
        let SetAttr { mode, uid: to_uid, gid: to_gid, size: None, atime, mtime, opened_for_write: _, seal: None } = changes else {
            return None;
        };
        let owner = (attr.uid, attr.gid);
        let is_owned = uid == attr.uid && to_uid.is_none_or(|uid| uid == attr.uid) && to_gid.is_none_or(|gid| gid == attr.gid);
        let is_plain = attr.mode & (MODE_ACL | NO_PERMISSIONS) == 0 && mode.is_none_or(|mode| mode & !PERMISSIONS == 0);
        if !is_owned || !is_plain {
            return None;
        }
        let kept = kept.unwrap_or(Settings { mode: None, atime: None, mtime: None, at: now, owner });
        let set = |time: &Option<SetTime>, kept| time.as_ref().map(|time| time.at.unwrap_or(now)).or(kept);
        let (mode, at) = (mode.or(kept.mode), kept.at.max(now));
        Some(Settings { mode, atime: set(atime, kept.atime), mtime: set(mtime, kept.mtime), at, owner })
    }

    /// Corrects what was known before.
    pub(super) fn show(&self, attr: &mut Attr) {
        attr.mode = self.mode.map_or(attr.mode, |mode| attr.mode & !PERMISSIONS | mode);
        attr.atime = self.atime.unwrap_or(attr.atime);
        if let Some(at) = self.mtime.filter(|_| attr.mtime_epoch <= Settings::EPOCH) {
            (attr.mtime, attr.mtime_epoch) = (at, Settings::EPOCH);
        }
        attr.ctime = attr.ctime.max(self.at);
    }

    /// For the close with this number.
    pub(super) fn on_wire(self, number: u8) -> DelayedSettings {
        let Settings { mode, atime, mtime, at, .. } = self;
        DelayedSettings { number, mode, atime, mtime, at }
    }

    /// What is left when the server knows `sent`.
    pub(super) fn after(self, sent: Settings) -> Option<Settings> {
        (self != sent).then_some(Settings {
            mode: self.mode.filter(|_| self.mode != sent.mode),
            atime: self.atime.filter(|_| self.atime != sent.atime),
            mtime: self.mtime.filter(|_| self.mtime != sent.mtime),
            ..self
        })
    }
}
