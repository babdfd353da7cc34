//! The operations, one file each: what must hold, and what changes.

mod close;
mod create;
mod getattr;
mod link;
mod lookup;
mod mkdir;
mod open;
mod parent;
mod readdir;
mod readlink;
mod rename;
mod rmdir;
mod setattr;
mod truncate;
mod unlink;
mod xattr;

pub use close::ClosePlan;
pub use rename::{CycleCheck, RenamePlan, RenameSource, RenameTarget};
pub use setattr::SizePlan;
pub(crate) use xattr::xattr_bytes;
pub use xattr::{XATTR_NAME_BYTES_MAX, XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
