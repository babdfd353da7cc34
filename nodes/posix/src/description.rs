//! Open files as POSIX sees them: an open file description is made by each open, and every later
//! request names it by its number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use weft_base::{Attr, DataTime};
use weft_client::OpenFile;
use weft_wire::Rights;

use crate::ahead::Ahead;
use crate::pages::Version;

/// How a file shall be opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenHow {
    /// For what; with [`Rights::APPEND`] for writing at its end only.
    pub rights: Rights,
    /// Cut it to nothing.
    pub truncate: bool,
    /// It must not exist (`O_EXCL`); of a create only.
    pub exclusive: bool,
    /// The opener wants no cache (`O_DIRECT`).
    pub direct: bool,
    /// What is on stable storage when a change of its data returns.
    pub stable: Stable,
}

impl OpenHow {
    /// As it is, past all caches.
    pub fn direct(rights: Rights) -> OpenHow {
        OpenHow { rights, truncate: false, exclusive: false, direct: true, stable: Stable::No }
    }
}

/// What is on stable storage when a change of the data of a file returns; more than the durability
/// of the file system says, never less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stable {
    /// What the durability says.
    #[default]
    No,
    /// The data, and the attributes that are needed to find it (`O_DSYNC`).
    Data,
    /// The data and all attributes (`O_SYNC`).
    All,
}

impl Stable {
    /// From the flags of an open, where those of this system are `sync` (`O_SYNC`, some bits) and
    /// `data_sync` (`O_DSYNC`, some of these).
    pub fn of_flags(flags: i32, sync: i32, data_sync: i32) -> Stable {
        match flags & sync {
            0 => Stable::No,
            some if some == data_sync => Stable::Data,
            _ => Stable::All,
        }
    }

    /// Given if something is to be synced: whether it is the data only.
    pub(crate) fn data_only(self) -> Option<bool> {
        (self != Stable::No).then_some(self == Stable::Data)
    }
}

/// What a cache of the gateway may do with the data of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Nothing: every read and write is passed on.
    Direct,
    /// Keep what is read from now on; what is there from before is of another version.
    Anew,
    /// Keep what is read, and what is there from before.
    Keep,
}

/// A file that has been opened.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// Names it in later requests.
    pub number: u64,
    /// What a cache may do.
    pub caching: Caching,
    /// Its opener may lock it, or what is written to it may stay here until it is closed:
    /// [`crate::Posix::descriptor_closed`] and [`crate::Posix::before_close`] are wanted whenever a
    /// process closes a descriptor of it.
    pub hears_closes: bool,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Description {
    pub file: Arc<OpenFile>,
    /// A cache above reads it in whole pages, and knows itself where the file ends.
    pub cached: bool,
    /// The version of the file that the pages above are from, once one was asked for after those of
    /// other versions were dropped.
    pub pages: Option<Version>,
    /// This is noted in [`crate::pages::Pages`].
    pub is_noted: AtomicBool,
    /// A read of it sets the time of the last access.
    pub is_atime_due: bool,
    /// What is on stable storage when a change returns.
    pub stable: Stable,
    /// [`OpenFile::epoch_of_writes`] when it was known last whether the file has set-id bits.
    pub epoch: AtomicU32,
    /// What of it was read ahead.
    pub ahead: Ahead,
}

impl Description {
    /// Of a file that had these attributes when it was opened.
    pub fn new(
        attr: &Attr,
        file: Arc<OpenFile>,
        (caching, pages): (Caching, Option<Version>),
        stable: Stable,
        is_atime_due: bool,
    ) -> Description {
        Description {
            file,
            cached: caching != Caching::Direct,
            pages,
            is_noted: AtomicBool::new(false),
            is_atime_due,
            stable,
            epoch: AtomicU32::new(DataTime::epoch_of_writes(attr.mtime_epoch)),
            ahead: Ahead::default(),
        }
    }

    /// It is being read. Before that, so that its server hears of the open if it is to hear of the
    /// read.
    pub fn note_read(&self) {
        if self.is_atime_due {
            self.file.note_read();
        }
    }

    /// Given if somebody else may have made the file set-id since that was known last, as the
    /// writes that have been done tell.
    pub fn newer_epoch(&self) -> Option<u32> {
        let epoch = self.file.epoch_of_writes();
        (self.epoch.load(Ordering::Relaxed) < epoch).then_some(epoch)
    }
}
