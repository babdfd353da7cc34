//! What the kernel's requests have in common: their beginning, and answers of each kind.

use std::time::Duration;

use weft_base::{FileKind, Payload, Status};
use weft_posix::{Opened, Shown};
use weft_rt::{FaultPoint, ThreadRuntime};
use weft_trace::{EventId, event};
use weft_wire::ops::{Family, Lock, LockKind};

use super::WeftFilesystem;
use crate::convert::{attributes, credentials, errno, fopen_flags, inode};
use crate::kernel::{
    Errno, FileHandle, FileLock, INodeNo, LockOwner, ReplyAttr, ReplyCreate, ReplyEmpty, ReplyEntry, ReplyXattr, Request, Ttls,
};
use crate::served::Served;

/// Answers an error, or goes on with the value.
macro_rules! answer {
    ($served:expr, $reply:ident, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => {
                let errno = errno(Status::from(error));
                $served.fails(errno);
                return $reply.error(errno);
            }
        }
    };
}
pub(super) use answer;

/// Answers this error if that is so. `ENOSYS` to the opens, closes and syncs of files is no
/// failure: the kernel does without them from then on.
macro_rules! refuse_if {
    ($is_so:expr, $served:ident, $reply:ident, $errno:expr) => {
        if $is_so {
            $served.fails($errno);
            return $reply.error($errno);
        }
    };
}
pub(super) use refuse_if;

impl<R: ThreadRuntime> WeftFilesystem<R> {
    pub(super) fn run<F: Future>(&self, future: F) -> F::Output {
        self.posix.rt().block_on(future)
    }

    /// To be called by a thread that has taken a request, before anything else.
    pub(super) fn begin(&self, event: EventId, request: &Request, object: INodeNo) -> Served<'_> {
        // Reading ahead, writing back and closing are the kernel's own: nobody waits for them one
        // after the other.
        let is_waited_for = !matches!(event, event::FUSE_READ | event::FUSE_WRITE | event::FUSE_RELEASE);
        let turn = self.threads.turn(is_waited_for.then(|| request.pid()));
        let mut span = weft_trace::operation(event);
        if span.is_on() {
            // Of the calling thread: it joins what its process recorded with this request.
            span.request(u64::from(request.pid())).object(object.0);
        }
        if self.posix.rt().delay_ns(FaultPoint::Fuse) > 0 {
            self.run(self.posix.rt().pass(FaultPoint::Fuse));
        }
        Served { reply: None, span, turn }
    }

    /// The attributes of an object, for the thread that asks.
    pub(super) fn attr_of(&self, request: &Request, ino: INodeNo) -> weft_client::Result<Shown> {
        let node = self.node(ino);
        match self.posix.known_attr(node) {
            Some(shown) => Ok(shown),
            None => self.run(self.posix.getattr_for(request.pid(), node)),
        }
    }

    /// Reads an open file, or one of a dataset, which nobody opens.
    pub(super) fn read_opened(
        &self,
        request: &Request,
        (ino, file): (INodeNo, FileHandle),
        offset: u64,
        bytes: u64,
    ) -> weft_client::Result<Vec<Payload>> {
        match self.posix.is_dataset() {
            true => self.run(self.posix.read_sealed(&credentials(request), self.node(ino), offset, bytes)),
            false => self.run(self.posix.read(file.0, offset, bytes)),
        }
    }

    /// Gives an open file back.
    pub(super) fn release_file(&self, number: u64) {
        self.writers.forget(number);
        if !self.posix.try_release(number) {
            self.run(self.posix.release(number));
        }
    }

    /// How the kernel is told of what a look-up has found.
    pub(super) fn placed(&self, parent: INodeNo, name: &[u8], shown: Shown) -> Shown {
        let is_new =
            shown.attr.kind == FileKind::Directory && !self.places.found(parent, name, inode(shown.node), self.posix.gateway().notifier());
        if !is_new {
            return shown;
        }
        let shown = self.posix.shown_as_second(shown);
        self.places.made(parent, name, inode(shown.node));
        shown
    }

    /// Answers with an object that a name leads to.
    pub(super) fn reply_entry<E>(&self, mut served: Served<'_>, reply: ReplyEntry, result: Result<Shown, E>)
    where
        Status: From<E>,
    {
        let shown = answer!(served, reply, result);
        served.replies();
        reply.entry(ttls(&shown), inode(shown.node), &attributes(&shown.attr));
    }

    /// Answers with a file that was made and opened.
    pub(super) fn reply_created(
        &self,
        mut served: Served<'_>,
        request: &Request,
        reply: ReplyCreate,
        result: weft_client::Result<(Shown, Opened)>,
    ) {
        let (shown, opened) = answer!(served, reply, result);
        if opened.hears_closes {
            // Its first write may wait for a server for long, while a child is made.
            self.writers.wrote(opened.number, request.pid());
        }
        served.replies();
        if !reply.created(ttls(&shown), &attributes(&shown.attr), FileHandle(opened.number), fopen_flags(&opened)) {
            self.release_file(opened.number);
        }
    }

    /// Answers with the attributes of an object.
    pub(super) fn reply_attr<E>(&self, mut served: Served<'_>, reply: ReplyAttr, result: Result<Shown, E>)
    where
        Status: From<E>,
    {
        let shown = answer!(served, reply, result);
        served.replies();
        reply.attr(&Duration::from_nanos(shown.attr_ttl_ns), &attributes(&shown.attr));
    }

    /// Answers that something is done.
    pub(super) fn reply_done<E>(&self, mut served: Served<'_>, reply: ReplyEmpty, result: Result<(), E>)
    where
        Status: From<E>,
    {
        answer!(served, reply, result);
        served.replies();
        reply.ok();
    }
}

/// How long the kernel may answer from what it is told.
pub(super) fn ttls(shown: &Shown) -> Ttls {
    ttls_of((shown.name_ttl_ns, shown.attr_ttl_ns))
}

/// How long, in nanoseconds, for a name and for attributes.
pub(super) fn ttls_of((name_ns, attr_ns): (u64, u64)) -> Ttls {
    Ttls { name: Duration::from_nanos(name_ns), attr: Duration::from_nanos(attr_ns) }
}

/// A lock as the kernel asks for it.
pub(super) fn lock_of(family: Family, file: FileHandle, owner: LockOwner, lock: &FileLock) -> Lock {
    let kind = if lock.kind == libc::F_RDLCK { LockKind::Shared } else { LockKind::Exclusive };
    Lock { family, owner: owner.0, kind, start: lock.start, end: lock.end, process: lock.pid, file: file.0 }
}

/// The protocol of both xattr calls: size 0 asks for the length.
pub(super) fn reply_xattr(served: &mut Served<'_>, reply: ReplyXattr, size: u32, value: &[u8]) {
    served.replies();
    if size == 0 {
        reply.size(value.len() as u32);
    } else if value.len() > size as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(value);
    }
}
