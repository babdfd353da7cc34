//! What the commands of `weft` and the laboratory both need of the machine that they run on:
//! configuration and state directories, file systems by name ([`connect`], [`named`], [`mounted`],
//! [`door`] for libraries),
//! processes and their pid files, mounts, output for people and programs.
//!
//! It never holds logic of a command or of a server, and it never measures anything.
// A full disk or a reader who has gone must not end a process, and these macros panic then: see
// `write_line` of `weft-rt-real`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod command_socket;
pub mod config;
pub mod connect;
pub mod door;
pub mod ended;
pub mod faults;
pub mod fs_arg;
pub mod gateway_list;
pub mod hosts;
pub mod identity;
pub mod in_order;
pub mod job;
pub mod key_lists;
pub mod listen;
pub mod mount_list;
pub mod mounted;
pub mod mounts;
pub mod named;
pub mod output;
pub mod parallel;
pub mod paths;
pub mod private;
pub mod proc;
pub mod process;
pub mod socket_path;
pub mod start_room;
pub mod state;
pub mod stop_signals;
pub mod stores;
pub mod trust;
pub mod units;
