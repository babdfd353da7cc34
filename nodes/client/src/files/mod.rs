//! Files: what this client has open, reads and writes. What it knows of them, and in which order
//! their servers hear of it, is hidden here: of an open file others see its sizes and times only.

mod absorb;
mod allocate;
mod append;
mod appending;
mod behind;
mod beside;
mod closes;
mod contents;
mod delay;
mod delayed;
mod delegations;
mod directories;
mod distribution;
mod gaps;
mod gathered;
mod gathered_share;
mod granted;
mod hold;
mod in_doubt;
mod keep;
mod kept;
mod known;
mod learning;
mod noted;
mod open_file;
mod open_inode;
mod open_table;
mod openers;
mod opens;
mod put;
mod read;
mod reclaim;
mod removals;
mod renewals;
mod reports;
mod seek;
mod tail;
#[cfg(test)]
mod tests;
mod unnamed;
mod unreported;
mod untold;
mod write;

pub use hold::Hold;
pub use open_file::OpenFile;

pub(crate) use contents::Contents;
pub(crate) use delegations::{BeforeGrant, Delegations};
pub(crate) use gathered_share::Gathered;
pub(crate) use learning::Learning;
pub(crate) use open_inode::OpenInode;
pub(crate) use open_table::{OpenTable, Subject};
pub(crate) use opens::file_request;
pub(crate) use put::Refusals;
pub(crate) use unreported::View;
