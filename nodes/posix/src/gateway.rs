//! What the layer wants of the gateway above it.

use weft_base::Handle;

/// A gateway as the layer sees it. Its methods are called by whoever drives a flow of
/// [`crate::Posix`], and must not wait for other flows.
pub trait Gateway: 'static {
    /// Callers must not be answered any more from attributes of this file that the gateway was
    /// told: they are asked for anew at their next use. What was told of names and data may stay.
    fn forget_attributes(&self, file: Handle);

    /// What names lead to must not be answered any more from what the gateway was told.
    fn forget_names(&self);

    /// A line for people.
    fn warn(&self, line: &str);
}

/// The gateway of a program that uses the layer itself: nothing is cached above, and every caller
/// gets its error itself.
#[derive(Debug)]
pub struct Callers;

impl Gateway for Callers {
    fn forget_attributes(&self, _file: Handle) {}

    fn forget_names(&self) {}

    fn warn(&self, _line: &str) {}
}
