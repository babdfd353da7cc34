//! `weft-plan`: experiments as data. Plans and machine profiles are TOML files whose errors name
//! file, line and key; a key that stands for several values makes a plan a sweep. [`workload`]
//! reads the part that all systems have in common. `lab/sim` runs plans on models and in virtual
//! time, `lab/bench` on this machine. It never runs one.

pub mod document;
pub mod files;
pub mod units;
pub mod workload;
