//! `weft-layout`: where the bytes of a file lie. Which byte of which datafile holds a byte of the
//! file under which [`Distribution`] ([`pieces`], [`split`]), how long datafiles of a file of a
//! given length are and the other way round ([`local_bytes`], [`file_bytes`]), which layouts are
//! allowed ([`check`]), what directories say about them ([`Hints`]), and where new files and
//! directories go ([`first_data_server`], [`directory_server`]).
//!
//! It never knows addresses, never does I/O and never decides from anything but its arguments:
//! every client and server computes the same.

mod distribution;
mod hints;
mod list;
mod placement;
mod size;
mod stripe;
mod varstrip;

pub use distribution::Distribution;
pub use hints::{
    BadHint, DistName, HINT_PREFIX, HINT_PREFIX_PVFS2, HintName, Hints, INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX, NoHint, PRESPLIT_MAX,
    project,
};
pub use list::{BufferSlice, DatafileList, LocalRange, split};
pub use placement::{directory_server, first_data_server};
pub use size::{FILE_BYTES_MAX, STRIPE_BYTES_MAX, STRIPE_BYTES_MIN, WIDTH_MAX, check, end_in_file, file_bytes, file_end, local_bytes};
pub use stripe::{StripePiece, StripePieces, pieces};
pub use varstrip::{STRIPS_MAX, Strips};

/// A contiguous range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}
