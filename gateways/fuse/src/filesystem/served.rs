//! A request in service, from the moment at which a thread has taken it to its reply.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use weft_base::{Attr, Status};
use weft_client::Error;
use weft_rt::{FaultPoint, Runtime};
use weft_trace::{EventId, OpenSpan, event};

use super::{GENERATION, WeftFilesystem};
use crate::convert::{attributes, errno, handle, inode, is_alias};
use crate::kernel::{Errno, INodeNo, ReplyAttr, ReplyEntry, Request};
use crate::threads::Turn;

/// A request in service. The fields are dropped in this order: the records are written before the thread may rest.
pub(super) struct Served<'a> {
    pub(super) filesystem: &'a WeftFilesystem,
    /// Own changes of extended attributes before it ([`crate::told::Told::xattr_changes`]).
    pub(super) xattr_changes: u64,
    /// The reply is being handed to the kernel.
    pub(super) reply: Option<OpenSpan>,
    pub(super) span: OpenSpan,
    pub(super) turn: Turn<'a>,
}

impl Served<'_> {
    /// What follows is the reply.
    pub(super) fn replies(&mut self) {
        self.turn.answers();
        if self.span.is_on() {
            self.reply = Some(weft_trace::span(event::FUSE_REPLY));
        }
    }

    /// What follows is the reply, an error.
    pub(super) fn fails(&mut self, errno: Errno) {
        if self.span.is_on() {
            self.span.result(errno.code().unsigned_abs() as u16);
        }
        self.replies();
    }
}

/// Why a request cannot be done.
pub(super) trait Failure {
    /// The reason, after it was written down if servers are to blame.
    fn told_to(self, filesystem: &WeftFilesystem) -> Status;
}

impl Failure for Status {
    fn told_to(self, _: &WeftFilesystem) -> Status {
        self
    }
}

impl Failure for Error {
    fn told_to(self, filesystem: &WeftFilesystem) -> Status {
        filesystem.troubles.note(&self, filesystem.client.rt().now());
        self.status
    }
}

impl WeftFilesystem {
    /// To be called by a thread that has taken a request, before anything else.
    pub(super) fn begin(&self, event: EventId, request: &Request, object: INodeNo) -> Served<'_> {
        // Reading ahead, writing back and closing are the kernel's own: nobody waits for them one after the other.
        let is_waited_for = !matches!(event, event::FUSE_READ | event::FUSE_WRITE | event::FUSE_RELEASE);
        let turn = self.threads.turn(is_waited_for.then(|| request.pid()));
        let mut span = weft_trace::operation(event);
        if span.is_on() {
            // Of the calling thread: it joins what its process recorded with this request.
            span.request(u64::from(request.pid())).object(object.0);
        }
        if self.client.rt().delay_ns(FaultPoint::Fuse) > 0 {
            self.run(self.client.rt().pass(FaultPoint::Fuse));
        }
        Served { filesystem: self, xattr_changes: self.told.xattr_changes(), reply: None, span, turn }
    }

    /// Answers with an object that a name leads to from now on.
    pub(super) fn reply_entry<E: Failure>(
        &self,
        served: &mut Served<'_>,
        reply: ReplyEntry,
        (dir, name): (INodeNo, &OsStr),
        result: Result<Attr, E>,
    ) {
        let attr = answer!(served, reply, result);
        let ttl = self.tell_name(served, dir, name, &attr);
        served.replies();
        reply.entry(&ttl, inode(attr.handle), &attributes(&attr), GENERATION);
    }

    /// Notes what the kernel is about to be told of a name; gives for how long it may keep that.
    pub(super) fn tell_name(&self, served: &Served<'_>, dir: INodeNo, name: &OsStr, attr: &Attr) -> Duration {
        let now = self.client.rt().now();
        if self.told.tell_name(handle(dir), name.as_bytes(), attr, served.xattr_changes, now) {
            return self.ttl;
        }
        self.told.tell(attr, served.xattr_changes, now);
        Duration::ZERO
    }

    /// Answers with the attributes of an object that the kernel calls `node`.
    pub(super) fn reply_attr<E: Failure>(&self, served: &mut Served<'_>, reply: ReplyAttr, node: INodeNo, result: Result<Attr, E>) {
        let attr = answer!(served, reply, result);
        let ttl = if is_alias(node) { Duration::ZERO } else { self.ttl };
        if !is_alias(node) {
            self.told.tell(&attr, served.xattr_changes, self.client.rt().now());
        }
        served.replies();
        reply.attr(&ttl, &attributes(&attr));
    }
}
