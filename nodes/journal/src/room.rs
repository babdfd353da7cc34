//! What room there is on the disk: for the next segment, and for the checkpoint that gives segments
//! back.

/// How much room there is for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Enough.
    Plenty,
    /// The disk is full; what gives space back, or ends what was begun, still fits.
    Low,
    /// Nothing fits.
    None,
}

/// What the next checkpoint may take, and what the disk has, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointRoom {
    /// Of the newest checkpoint, or of the state if it was measured later.
    pub(crate) state_bytes: u64,
    /// Written to the journal since then. A checkpoint is at most so much larger: what it has of a
    /// change is no longer than the record of that change.
    pub(crate) grown_bytes: u64,
    /// In the file of the checkpoint that is being written.
    pub(crate) unfinished_bytes: u64,
    /// Free on the disk when that was asked last; `None`: not yet.
    pub(crate) free_bytes: Option<u64>,
    /// The next checkpoint will fit even if the spare segments are filled. What an earlier life has
    /// left may be filled.
    pub(crate) is_kept: bool,
}

impl CheckpointRoom {
    pub(crate) fn new(state_bytes: u64, grown_bytes: u64) -> CheckpointRoom {
        CheckpointRoom { state_bytes, grown_bytes, unfinished_bytes: 0, free_bytes: None, is_kept: true }
    }

    /// The next checkpoint is no larger.
    pub(crate) fn next_bytes(&self) -> u64 {
        self.state_bytes + self.grown_bytes
    }

    /// What the disk has for segments and the next checkpoint.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.free_bytes.unwrap_or(0) + self.unfinished_bytes
    }

    /// The state had this size when so much of what has been written since the last time had been
    /// written.
    pub(crate) fn measured(&mut self, state_bytes: u64, grown_before: u64) {
        assert!(self.grown_bytes >= grown_before, "what was written before it began counts until it ends");
        self.state_bytes = state_bytes;
        self.grown_bytes -= grown_before;
    }

    pub(crate) fn took(&mut self, bytes: u64) {
        self.free_bytes = self.free_bytes.map(|free| free.saturating_sub(bytes));
    }

    pub(crate) fn gave(&mut self, bytes: u64) {
        self.free_bytes = self.free_bytes.map(|free| free + bytes);
    }

    pub(crate) fn has_room_beside(&self, more_bytes: u64) -> bool {
        self.next_bytes() + more_bytes <= self.room_bytes()
    }
}
