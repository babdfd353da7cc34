//! The kernel's requests, one method each: calls of the layer below, and errors as errnos.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weft_base::{Credentials, FileKind, Payload, ROOT_HANDLE, Status, mode_with_umask};
use weft_client::{RenameFlags as NameFlags, SetAttr, XattrFlags};
use weft_posix::{Gateway, InodeNumber, Listed, Posix, Refusal};
use weft_rt::{Bulk, ThreadRuntime};
use weft_trace::event;
use weft_wire::ops::{Family, Lock, LockKind};

use crate::convert::{
    attributes, caller, credentials, errno, fallocate_how, file_type, fopen_flags, inode, kind_of_mode, listing_flags, name_only, open_how,
    seek_for, set_time, write_how,
};
use crate::gateway::Above;
use crate::kernel::{
    Errno, FileHandle, FileLock, Filesystem, INodeNo, InitFlags, KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyStatx, ReplyWrite, ReplyXattr, Request, TimeOrNow, Ttls,
};
use crate::mount::REQUEST_BYTES_MAX;
use crate::places::DirectoryPlaces;
use crate::threads::Threads;
use crate::writers::Writers;

/// Requests that the kernel may have under way for readahead and asynchronous direct I/O.
const BACKGROUND_REQUESTS: u16 = 64;

mod answers;
mod wanted;

use answers::{answer, lock_of, refuse_if, reply_xattr, ttls_of};
use wanted::WANTED;

/// The file system as the kernel sees it.
pub struct WeftFilesystem<R: ThreadRuntime> {
    posix: Arc<Posix<R, Above>>,
    threads: Arc<Threads>,
    writers: Writers,
    places: DirectoryPlaces,
}

impl<R: ThreadRuntime> WeftFilesystem<R> {
    pub fn new(posix: Arc<Posix<R, Above>>, threads: Arc<Threads>) -> WeftFilesystem<R> {
        WeftFilesystem { posix, threads, writers: Writers::default(), places: DirectoryPlaces::default() }
    }

    /// The object that an inode number of the kernel names. Every mount begins with number 1.
    fn node(&self, inode: INodeNo) -> InodeNumber {
        if inode == INodeNo(ROOT_HANDLE.0) { self.posix.root() } else { InodeNumber(inode.0) }
    }
}

impl<R: ThreadRuntime> Filesystem for WeftFilesystem<R> {
    fn init(&self, config: &mut KernelConfig, notifier: &Notifier) {
        self.posix.gateway().begins(notifier);
        for wanted in WANTED {
            config.add_capabilities(wanted);
        }
        if self.posix.keeps_locks() {
            config.add_capabilities(InitFlags::FUSE_POSIX_LOCKS);
            config.add_capabilities(InitFlags::FUSE_FLOCK_LOCKS);
        }
        config.set_max_write(REQUEST_BYTES_MAX);
        config.set_max_background(BACKGROUND_REQUESTS);
    }

    fn warn(&self, line: &str) {
        self.posix.gateway().warn(line);
    }

    fn is_over(&self) -> bool {
        self.threads.are_over()
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut served = self.begin(event::FUSE_LOOKUP, request, parent);
        let result = self.run(self.posix.lookup(&caller(request), self.node(parent), name.as_bytes()));
        if result.as_ref().is_err_and(|error| error.status == Status::NotFound) {
            let ttl_ns = self.posix.absent_ttl_ns(self.node(parent), name.as_bytes());
            if ttl_ns > 0 {
                served.fails(errno(Status::NotFound));
                return reply.absent(&Duration::from_nanos(ttl_ns));
            }
        }
        self.reply_entry(served, reply, result.map(|shown| self.placed(parent, name.as_bytes(), shown)));
    }

    fn getattr(&self, request: &Request, ino: INodeNo, reply: ReplyAttr) {
        let served = self.begin(event::FUSE_GETATTR, request, ino);
        let result = self.attr_of(request, ino);
        self.reply_attr(served, reply, result);
    }

    fn statx(&self, request: &Request, ino: INodeNo, reply: ReplyStatx) {
        let mut served = self.begin(event::FUSE_GETATTR, request, ino);
        let shown = answer!(served, reply, self.attr_of(request, ino));
        served.replies();
        reply.attr(&Duration::from_nanos(shown.attr_ttl_ns), &attributes(&shown.attr));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        file: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let served = self.begin(event::FUSE_SETATTR, request, ino);
        let change = SetAttr {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            opened_for_write: file.is_some(),
            seal: None,
        };
        let result = self.run(self.posix.setattr(&credentials(request), self.node(ino), &change));
        self.reply_attr(served, reply, result);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        let target = answer!(served, reply, self.run(self.posix.readlink(self.node(ino))));
        served.replies();
        reply.data(&target);
    }

    fn mknod(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32, reply: ReplyEntry) {
        let mut served = self.begin(event::FUSE_OTHER, request, parent);
        let kind = answer!(served, reply, kind_of_mode(mode).ok_or(Status::Invalid));
        let result =
            self.run(self.posix.mknod(&credentials(request), self.node(parent), name.as_bytes(), kind, mode_with_umask(mode, umask), rdev));
        self.reply_entry(served, reply, result);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let served = self.begin(event::FUSE_MKDIR, request, parent);
        let result = self.run(self.posix.mkdir(&credentials(request), self.node(parent), name.as_bytes(), mode_with_umask(mode, umask)));
        if let Ok(shown) = &result {
            self.places.made(parent, name.as_bytes(), inode(shown.node));
        }
        self.reply_entry(served, reply, result);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let served = self.begin(event::FUSE_UNLINK, request, parent);
        let result = self.run(self.posix.unlink(&credentials(request), self.node(parent), name.as_bytes()));
        self.reply_done(served, reply, result);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let served = self.begin(event::FUSE_RMDIR, request, parent);
        let result = self.run(self.posix.rmdir(&credentials(request), self.node(parent), name.as_bytes()));
        if result.is_ok() {
            self.places.removed(parent, name.as_bytes());
        }
        self.reply_done(served, reply, result);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let served = self.begin(event::FUSE_OTHER, request, parent);
        let target = target.as_os_str().as_bytes();
        let result = self.run(self.posix.symlink(&credentials(request), self.node(parent), name.as_bytes(), target));
        self.reply_entry(served, reply, result);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut served = self.begin(event::FUSE_RENAME, request, parent);
        let known = RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE;
        if !known.contains(flags) || flags == known {
            served.fails(Errno::EINVAL);
            return reply.error(Errno::EINVAL);
        }
        let flags =
            NameFlags { no_replace: flags.contains(RenameFlags::RENAME_NOREPLACE), exchange: flags.contains(RenameFlags::RENAME_EXCHANGE) };
        let (from, to) = ((self.node(parent), name.as_bytes()), (self.node(newparent), newname.as_bytes()));
        let result = self.run(self.posix.rename(&credentials(request), from, to, flags));
        if result.is_ok() {
            self.places.moved((parent, from.1), (newparent, to.1), flags.exchange);
        }
        self.reply_done(served, reply, result);
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let served = self.begin(event::FUSE_OTHER, request, ino);
        let result = self.run(self.posix.link(&credentials(request), self.node(ino), self.node(newparent), newname.as_bytes()));
        self.reply_entry(served, reply, result);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let mut served = self.begin(event::FUSE_OPEN, request, ino);
        refuse_if!(self.posix.is_dataset(), served, reply, Errno::ENOSYS);
        let opened = self.run(self.posix.open(&caller(request), self.node(ino), open_how(flags.0)));
        let opened = answer!(served, reply, opened);
        served.replies();
        if !reply.opened(FileHandle(opened.number), fopen_flags(&opened)) {
            self.release_file(opened.number);
        }
    }

    fn create(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32, reply: ReplyCreate) {
        let served = self.begin(event::FUSE_CREATE, request, parent);
        let created = self.run(self.posix.create(
            &caller(request),
            self.node(parent),
            name.as_bytes(),
            mode_with_umask(mode, umask),
            open_how(flags),
        ));
        self.reply_created(served, request, reply, created);
    }

    fn tmpfile(&self, request: &Request, parent: INodeNo, mode: u32, umask: u32, flags: i32, reply: ReplyCreate) {
        let served = self.begin(event::FUSE_OTHER, request, parent);
        let made = self.run(self.posix.create_unnamed(&caller(request), self.node(parent), mode_with_umask(mode, umask), open_how(flags)));
        self.reply_created(served, request, reply, made);
    }

    fn read(&self, request: &Request, ino: INodeNo, file: FileHandle, offset: u64, size: u32, reply: ReplyData) {
        let mut served = self.begin(event::FUSE_READ, request, ino);
        served.span.range(offset, u64::from(size));
        let pieces = answer!(served, reply, self.read_opened(request, (ino, file), offset, u64::from(size)));
        served.replies();
        match pieces.as_slice() {
            [] => reply.data(&[]),
            [Payload::Real(bytes)] => reply.data(bytes),
            pieces => {
                let mut joined = Vec::with_capacity(size as usize);
                pieces.iter().for_each(|piece| joined.extend_from_slice(&piece.to_bytes()));
                reply.data(&joined);
            }
        }
    }

    fn write(&self, request: &Request, ino: INodeNo, file: FileHandle, offset: u64, data: &[u8], flags: OpenFlags, reply: ReplyWrite) {
        let mut served = self.begin(event::FUSE_WRITE, request, ino);
        served.span.range(offset, data.len() as u64);
        let bulk = Bulk::Slices(vec![data]);
        let written = self.run(self.posix.write(&credentials(request), file.0, offset, bulk, write_how(flags.0)));
        answer!(served, reply, written);
        if self.posix.has_gathered(file.0) {
            self.writers.wrote(file.0, request.pid());
        }
        served.replies();
        reply.written(data.len() as u32);
    }

    fn flush(&self, request: &Request, ino: INodeNo, file: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_FLUSH, request, ino);
        refuse_if!(self.posix.is_dataset(), served, reply, Errno::ENOSYS);
        let brought = match self.posix.has_gathered(file.0) && !self.writers.waits_for_another(file.0, request.pid()) {
            true => self.run(self.posix.before_close(file.0)),
            false => Ok(()),
        };
        if self.posix.keeps_locks() {
            self.run(self.posix.descriptor_closed(self.node(ino), owner.0));
        }
        answer!(served, reply, brought);
        served.replies();
        reply.ok();
    }

    fn getlk(&self, request: &Request, ino: INodeNo, file: FileHandle, owner: LockOwner, lock: &FileLock, reply: ReplyLock) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        if !self.posix.keeps_locks() {
            served.fails(Errno::ENOSYS);
            return reply.error(Errno::ENOSYS);
        }
        let wanted = lock_of(Family::Fcntl, file, owner, lock);
        let found = answer!(served, reply, self.run(self.posix.lock_in_the_way(self.node(ino), &wanted)));
        served.replies();
        match found {
            None => reply.lock(&FileLock { kind: libc::F_UNLCK, ..*lock }),
            Some(Lock { kind, start, end, process, .. }) => {
                let kind = if kind == LockKind::Exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
                reply.lock(&FileLock { start, end, kind, pid: process });
            }
        }
    }

    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        file: FileHandle,
        owner: LockOwner,
        lock: &FileLock,
        bsd: bool,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        if !self.posix.keeps_locks() {
            served.fails(Errno::ENOSYS);
            return reply.error(Errno::ENOSYS);
        }
        let wanted = lock_of(if bsd { Family::Flock } else { Family::Fcntl }, file, owner, lock);
        let unlock = || self.run(self.posix.unlock(self.node(ino), wanted.family, wanted.owner, wanted.start, wanted.end));
        if lock.kind == libc::F_UNLCK {
            answer!(served, reply, unlock());
            served.replies();
            return reply.ok();
        }
        let is_awaited = || reply.is_awaited();
        let outcome = self.run(self.posix.lock(self.node(ino), wanted, if sleep { Some(&is_awaited) } else { None }));
        match outcome {
            Ok(()) => {
                served.replies();
                if !reply.ok_if_awaited() {
                    // What a server does not hear it is told later.
                    let _ = unlock();
                }
            }
            Err(Refusal::Taken) => {
                served.fails(Errno::EAGAIN);
                reply.error(Errno::EAGAIN);
            }
            Err(Refusal::Deadlock) => {
                served.fails(Errno::EDEADLK);
                reply.error(Errno::EDEADLK);
            }
            // It has its answer.
            Err(Refusal::Interrupted) => {}
            Err(Refusal::Failed(error)) => answer!(served, reply, Err(error)),
        }
    }

    fn release(&self, request: &Request, ino: INodeNo, file: FileHandle, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_RELEASE, request, ino);
        served.replies();
        reply.ok();
        served.reply = None;
        self.release_file(file.0);
    }

    fn fsync(&self, request: &Request, ino: INodeNo, file: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_FSYNC, request, ino);
        refuse_if!(self.posix.is_dataset(), served, reply, Errno::ENOSYS);
        let result = self.run(self.posix.fsync(file.0, datasync));
        self.reply_done(served, reply, result);
    }

    fn opendir(&self, request: &Request, ino: INodeNo, reply: ReplyOpen) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        served.replies();
        let node = self.node(ino);
        let number = self.posix.open_dir(node);
        if !reply.opened(FileHandle(number), listing_flags(self.posix.is_listed_for_ever(node))) {
            self.posix.close_dir(number);
        }
    }

    fn readdir(&self, request: &Request, ino: INodeNo, file: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut served = self.begin(event::FUSE_READDIR, request, ino);
        let add = |entry: Listed<'_>| reply.add(inode(entry.node), entry.cookie, file_type(entry.kind), OsStr::from_bytes(entry.name));
        answer!(served, reply, self.run(self.posix.list(file.0, &credentials(request), offset, false, add)));
        served.replies();
        reply.ok();
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, file: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let mut served = self.begin(event::FUSE_READDIR, request, ino);
        let add = |Listed { cookie, name, node, kind, shown }: Listed<'_>| match shown {
            Some((attr, ttls_ns)) => {
                if kind == FileKind::Directory {
                    self.places.listed(ino, name, inode(node));
                }
                reply.add(inode(node), cookie, OsStr::from_bytes(name), ttls_of(ttls_ns), &attributes(attr))
            }
            // Number 0 gives the kernel the name only.
            None => reply.add(INodeNo(0), cookie, OsStr::from_bytes(name), Ttls::default(), &name_only(node, kind)),
        };
        answer!(served, reply, self.run(self.posix.list(file.0, &credentials(request), offset, true, add)));
        served.replies();
        reply.ok();
    }

    fn releasedir(&self, request: &Request, ino: INodeNo, file: FileHandle, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        self.posix.close_dir(file.0);
        served.replies();
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, reply: ReplyEmpty) {
        let served = self.begin(event::FUSE_OTHER, request, ino);
        let result = self.run(self.posix.fsync_dir(self.node(ino)));
        self.reply_done(served, reply, result);
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        const UNIT: u64 = 4096;
        let stats = answer!(served, reply, self.run(self.posix.statfs(&credentials(request), self.node(ino))));
        let (blocks, free) = (stats.capacity_bytes / UNIT, stats.free_bytes / UNIT);
        let inodes_free = stats.inodes_free.unwrap_or(u32::MAX.into());
        served.replies();
        reply.statfs(blocks, free, free, stats.inodes + inodes_free, inodes_free, UNIT as u32, 255, UNIT as u32);
    }

    fn setxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, kills_setgid: bool, reply: ReplyEmpty) {
        let served = self.begin(event::FUSE_OTHER, request, ino);
        // Whether the caller is in the group of the object only the kernel knows; a server that
        // checks itself takes him for one who is not.
        let who = Credentials { checked_by_kernel: !kills_setgid, ..credentials(request) };
        let flags = XattrFlags { create_only: flags & libc::XATTR_CREATE != 0, replace_only: flags & libc::XATTR_REPLACE != 0 };
        let result = self.run(self.posix.set_xattr(&who, self.node(ino), name.as_bytes(), value, flags));
        self.reply_done(served, reply, result);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        let value = answer!(served, reply, self.run(self.posix.get_xattr(&credentials(request), self.node(ino), name.as_bytes())));
        reply_xattr(&mut served, reply, size, &value);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        let names = answer!(served, reply, self.run(self.posix.list_xattr(&credentials(request), self.node(ino))));
        let mut list = Vec::new();
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        reply_xattr(&mut served, reply, size, &list);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let served = self.begin(event::FUSE_OTHER, request, ino);
        let result = self.run(self.posix.remove_xattr(&credentials(request), self.node(ino), name.as_bytes()));
        self.reply_done(served, reply, result);
    }

    fn fallocate(&self, request: &Request, ino: INodeNo, file: FileHandle, offset: u64, length: u64, mode: i32, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        served.span.range(offset, length);
        // Not ENOSYS: the kernel would ask for no other mode either.
        let how = answer!(served, reply, fallocate_how(mode).ok_or(Status::NotSupported));
        let result = self.run(self.posix.fallocate(&credentials(request), file.0, offset, length, how));
        self.reply_done(served, reply, result);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        ino: INodeNo,
        from: (FileHandle, u64),
        to: (FileHandle, u64),
        length: u64,
        reply: ReplyWrite,
    ) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        served.span.range(from.1, length);
        let (from, to) = ((from.0.0, from.1), (to.0.0, to.1));
        let copied = answer!(served, reply, self.run(self.posix.copy(&credentials(request), from, to, length)));
        served.replies();
        reply.written(copied);
    }

    fn lseek(&self, request: &Request, ino: INodeNo, file: FileHandle, offset: u64, whence: i32, reply: ReplyLseek) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        refuse_if!(self.posix.is_dataset(), served, reply, Errno::ENOSYS);
        let what = answer!(served, reply, seek_for(whence).ok_or(Status::Invalid));
        match answer!(served, reply, self.run(self.posix.seek(file.0, offset, what))) {
            Some(at) => {
                served.replies();
                reply.offset(at);
            }
            None => {
                served.fails(Errno::ENXIO);
                reply.error(Errno::ENXIO);
            }
        }
    }
}
