//! Own writes to an open file that its metadata server has not heard of, or has heard of while a
//! question was under way.

use weft_base::DataTime;
use weft_wire::Capability;
use weft_wire::ops::Written;

/// Own writes that the metadata server has heard of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    /// The last report (numbers: see `open_table.rs`).
    pub(super) number: u64,
    /// The newest write in any report.
    pub(super) mtime: DataTime,
    /// The last report that left it to the servers to find out the size.
    pub(super) uncertain: Option<u64>,
}

/// Own writes that the metadata server has not heard of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unreported {
    pub(super) end: u64,
    pub(super) mtime: DataTime,
    pub(super) epoch: u32,
    /// A write failed: how far it got, only the data servers know.
    pub(super) uncertain: bool,
}

impl Unreported {
    pub(super) fn merge(self, other: Option<Unreported>) -> Unreported {
        let Some(other) = other else { return self };
        let uncertain = self.uncertain || other.uncertain || self.epoch != other.epoch;
        Unreported { end: self.end.max(other.end), mtime: self.mtime.max(other.mtime), epoch: self.epoch.min(other.epoch), uncertain }
    }

    pub(super) fn on_wire(self) -> Written {
        // An epoch that is not the present one makes the server ask the data servers.
        let truncate_epoch = if self.uncertain { self.epoch.wrapping_sub(1) } else { self.epoch };
        Written { end_bytes: self.end, mtime: self.mtime, truncate_epoch }
    }
}

/// What is missing for exact attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Nothing: they have been corrected by own writes.
    Exact,
    /// Ask the data servers: own writes of before a truncation are unreported.
    AskData(Capability),
    /// A newer state is known already: ask the metadata server again.
    Outdated,
}
