//! What is known of an object before it is copied.

use weft_base::{FileKind, WallTime};

/// Tells objects apart: file system (0 for local devices) and number.
pub type Identity = (u64, u64, u64);

/// What is copied of an object beside its content.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Bytes of a file.
    pub bytes: u64,
    /// It takes less space than its bytes would: some of it are holes.
    pub has_holes: bool,
    /// Access and modification, if they are to be kept.
    pub times: Option<(WallTime, WallTime)>,
    /// Which object it is.
    pub identity: Option<Identity>,
}
