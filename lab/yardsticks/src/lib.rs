//! File systems of two papers as models in virtual time, to measure Weft against: IBM Spectrum
//! Scale's file create of 2016 ([`scale`]) and the two ways of dNFSp's metadata servers
//! ([`dnfsp`]).
//!
//! Which simulator, and why: they stand on the event list of `lab/model`, as flows
//! (`weft_model::flow`). `runtime/rt-sim` runs real servers that speak Weft's messages; these
//! systems have none of either. `lab/piosim` knows programs, blocks and disks, but neither names
//! nor tokens. What counts here is who waits for whom while a name is made, in the numbered tasks
//! of the papers: straight-line code on virtual time.
//!
//! It never talks to a network or a disk, and no printed result feeds it: only parameters, each
//! with its source in the profile (`lab/profiles`), those that were fitted marked as such.

pub mod dnfsp;
pub mod scale;
