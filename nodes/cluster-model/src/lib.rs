//! Parallel programs and their I/O servers on modelled hardware: MPI commands, collective I/O, the experiments of the PIOsimHD thesis
//! (2009). It never touches a real network or disk.

pub mod from_hdtrace;
pub mod program;
