//! A request in service, from the moment at which a thread has taken it to its reply.

use weft_trace::{OpenSpan, event};

use crate::kernel::Errno;
use crate::threads::Turn;

/// A request in service. The fields are dropped in this order: the records are written before the
/// thread may rest.
pub struct Served<'a> {
    /// The reply is being handed to the kernel.
    pub reply: Option<OpenSpan>,
    pub span: OpenSpan,
    pub turn: Turn<'a>,
}

impl Served<'_> {
    /// What follows is the reply.
    pub fn replies(&mut self) {
        self.turn.answers();
        if self.span.is_on() {
            self.reply = Some(weft_trace::span(event::FUSE_REPLY));
        }
    }

    /// What follows is the reply, an error.
    pub fn fails(&mut self, errno: Errno) {
        if self.span.is_on() {
            self.span.result(errno.code().unsigned_abs() as u16);
        }
        self.replies();
    }
}
