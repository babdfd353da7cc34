//! HTTP for pages of this machine: who may come in ([`Door`]), what is asked ([`Query`]), and a
//! server on one thread ([`serve`]).
//!
//! It never reads a file and never answers anything but GET.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod door;
mod query;
mod serve;

pub use door::{Answer, Ask, Door, answer};
pub use query::Query;
pub use serve::serve;
