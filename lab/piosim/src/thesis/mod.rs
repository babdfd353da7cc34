//! The experiments of the PIOsimHD thesis (Kuhn, "Evaluation of I/O optimizations in a cluster
//! simulator", 2009): what is printed, how to run it here, and whether both agree.
//!
//! `docs/simulator.md` lists the slips of the thesis that a comparison has to know.

mod appendix_c;
mod cases;
mod partdiff;

pub use appendix_c::{PrintedLine, appendix_c};
pub use cases::{Case, Cell, RunResult, cases, number};
pub use partdiff::{PartdiffTable, partdiff};
