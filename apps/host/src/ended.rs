//! What a command ends with.

use std::process::ExitCode;

/// How a command that did its work ended.
pub trait Ended {
    /// What its process ends with.
    fn code(self) -> ExitCode;
}

impl Ended for ExitCode {
    fn code(self) -> ExitCode {
        self
    }
}

impl Ended for () {
    fn code(self) -> ExitCode {
        ExitCode::SUCCESS
    }
}

/// Whether all that it was asked for was well.
impl Ended for bool {
    fn code(self) -> ExitCode {
        if self { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
