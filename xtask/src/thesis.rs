//! `cargo xtask thesis`: the whole comparison with the thesis behind the simulator, in an optimised
//! build.

use std::process::Command;

/// Runs `weft sim thesis` with further `arguments`. True if every printed number agrees.
pub fn run(arguments: &[String]) -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--release", "--quiet", "--package", "weft", "--", "sim", "thesis"])
        .args(arguments)
        .current_dir(crate::tidy::root())
        .status();
    match status {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("xtask: cargo does not start: {error}");
            false
        }
    }
}
