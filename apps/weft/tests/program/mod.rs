//! The program as a user runs it. Each file of tests uses some of this.
#![allow(dead_code)]

use std::process::{Command, Output, Stdio};

/// The program with these arguments, and without what the environment says of keys.
pub fn weft<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(args).stdin(Stdio::null()).env_remove("WEFT_KEY_FILE");
    command
}

/// Runs a command that must succeed; gives what it printed.
#[track_caller]
pub fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?} failed:\n{}", words(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must fail; gives what it printed on both outputs.
#[track_caller]
pub fn fails(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?} did not fail:\n{}", words(&output));
    words(&output)
}

/// Both outputs, for people.
pub fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
