//! The kernel's requests, one method each.

/// Answers an error, or goes on with the value.
macro_rules! answer {
    ($served:expr, $reply:ident, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => {
                let errno = errno(error.told_to($served.filesystem));
                $served.fails(errno);
                return $reply.error(errno);
            }
        }
    };
}

mod listings;
mod opens;
mod served;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use weft_base::{Attr, Handle, Payload, Status, set_id_bits};
use weft_client::{CreateOptions, Error, RenameFlags as NameFlags, SetAttr, XattrFlags};
use weft_rt::{Bulk, Runtime};
use weft_trace::event;
use weft_wire::Rights;

use self::listings::name_only;
use self::opens::{KernelFile, rights};
use self::served::{Failure, Served};
use crate::convert::{alias, attributes, credentials, errno, handle, inode, is_alias, kind_of_mode, set_time};
use crate::kernel::{
    Errno, FileHandle, FileLock, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, Notifier,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use crate::locks::{Family, Kind, Lock, Locks, Refusal};
use crate::open_files::{Listing, Table};
use crate::threads::Threads;
use crate::told::Told;
use crate::troubles::Troubles;
use crate::walks::{Second, Walks};
use crate::{MountOptions, REQUEST_BYTES_MAX, SharedClient, SharedCloser};

/// Handles are never reused, so one generation is enough.
const GENERATION: Generation = Generation(0);
/// Requests that the kernel may have under way for readahead and asynchronous direct I/O.
const BACKGROUND_REQUESTS: u16 = 64;
/// No file: of an open that was to make one.
const NO_FILE: Handle = Handle(0);

/// The file system as the kernel sees it.
pub struct WeftFilesystem {
    client: SharedClient,
    closer: SharedCloser,
    threads: Arc<Threads>,
    troubles: Arc<Troubles>,
    files: Table<KernelFile>,
    listings: Table<Listing>,
    ttl: Duration,
    direct_from_bytes: u64,
    /// What the kernel may believe of files.
    told: Told,
    /// Locks of programs, unless the kernel keeps them.
    locks: Option<Locks>,
    /// Threads that walk a path again.
    walks: Arc<Walks>,
    /// Tells the kernel what to forget; empty until the session has begun.
    notifier: OnceLock<Notifier>,
    /// What the page cache of the kernel holds is good for this version of a file.
    cached_versions: Mutex<weft_base::FastMap<Handle, (u64, u64)>>,
    /// Open files with set-id bits that the first write by a plain user clears. The kernel does not do it for direct I/O.
    set_id: Mutex<weft_base::FastSet<u64>>,
    /// How many there are, so that nobody else pays for them.
    set_id_count: AtomicUsize,
}

impl WeftFilesystem {
    pub fn new(
        client: SharedClient,
        closer: SharedCloser,
        threads: Arc<Threads>,
        troubles: Arc<Troubles>,
        walks: Arc<Walks>,
        options: &MountOptions,
    ) -> WeftFilesystem {
        let locks = (!options.local_locks).then(|| Locks::new(client.clone(), closer.clone()));
        WeftFilesystem {
            locks,
            client,
            closer,
            threads,
            troubles,
            files: Table::default(),
            listings: Table::default(),
            ttl: options.cache_ttl,
            direct_from_bytes: options.direct_from_bytes,
            told: Told::new(options.cache_ttl.as_nanos() as u64),
            walks,
            notifier: OnceLock::new(),
            cached_versions: Mutex::default(),
            set_id: Mutex::default(),
            set_id_count: AtomicUsize::new(0),
        }
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        self.client.rt().block_on(future)
    }
}

/// A lock as the kernel asks for it.
fn lock_of(family: Family, file: FileHandle, owner: LockOwner, lock: &FileLock) -> Lock {
    let kind = if lock.kind == libc::F_RDLCK { Kind::Shared } else { Kind::Exclusive };
    Lock { family, owner: owner.0, kind, start: lock.start, end: lock.end, process: lock.pid, file: file.0 }
}

/// The kernel adds `system.` names for access control lists, which Weft does not have; the answer needs no server.
fn is_unsupported_xattr(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"system.")
}

impl Filesystem for WeftFilesystem {
    fn init(&self, config: &mut KernelConfig, notifier: &Notifier) {
        // The only one who sets it.
        let _ = self.notifier.set(notifier.clone());
        // Each is an improvement that older kernels lack; without it the mount is slower or, for the mmap one, refuses MAP_SHARED.
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            // Servers clear set-id bits when an owner changes or a file is cut, we when it is written.
            InitFlags::FUSE_HANDLE_KILLPRIV,
        ] {
            config.add_capabilities(wanted);
        }
        if self.locks.is_some() {
            config.add_capabilities(InitFlags::FUSE_POSIX_LOCKS);
            config.add_capabilities(InitFlags::FUSE_FLOCK_LOCKS);
        }
        config.set_max_write(REQUEST_BYTES_MAX);
        config.set_max_background(BACKGROUND_REQUESTS);
    }

    fn destroy(&self) {
        for open in self.files.drain() {
            self.close_file(&open);
        }
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut served = self.begin(event::FUSE_LOOKUP, request, parent);
        let who = credentials(request);
        let rights = self.walks.wants(request.pid());
        let opens = rights.is_some();
        let result = match rights {
            Some(rights) => self.find(request.pid(), &who, handle(parent), name.as_bytes(), rights),
            None => self.run(self.client.lookup_soon(&who, handle(parent), name.as_bytes())),
        };
        let seen = answer!(served, reply, result);
        let now = self.client.rt().now();
        let is_sure = self.told.tell_name(handle(parent), name.as_bytes(), &seen.attr, served.xattr_changes, now);
        // Who wants a size that cannot be had asks for it, and waits.
        let ttl = if is_sure && seen.is_exact { self.ttl } else { Duration::ZERO };
        let node = match (is_sure, opens) {
            (true, _) => inode(seen.attr.handle),
            (false, false) => {
                // What happens to it by its second number is not seen by its first.
                self.forget_told(seen.attr.handle);
                alias(seen.attr.handle)
            }
            // Opens are of the one object.
            (false, true) => {
                self.told.tell(&seen.attr, served.xattr_changes, now);
                inode(seen.attr.handle)
            }
        };
        served.replies();
        reply.entry(&ttl, node, &attributes(&seen.attr), GENERATION);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _file: Option<FileHandle>, reply: ReplyAttr) {
        let mut served = self.begin(event::FUSE_GETATTR, request, ino);
        // After every change of a directory the kernel asks for its attributes, which we know if we made the change.
        if let Some((attr, age)) = self.client.known_directory(handle(ino)) {
            served.replies();
            return reply.attr(&self.ttl.saturating_sub(Duration::from_nanos(age)), &attributes(&attr));
        }
        let result = self.run(self.client.getattr(handle(ino)));
        self.reply_attr(&mut served, reply, ino, result);
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
        _ctime: Option<SystemTime>,
        file: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let mut served = self.begin(event::FUSE_SETATTR, request, ino);
        let change = SetAttr {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            opened_for_write: file.is_some(),
        };
        let result = self.run(self.client.setattr(&credentials(request), handle(ino), &change));
        if mode.is_some_and(|mode| set_id_bits(mode) != 0) && result.is_ok() {
            // Whoever has it open for writing already clears them, too.
            let writes = |open: &KernelFile| open.file.handle() == handle(ino) && open.file.rights().contains(Rights::WRITE);
            self.files.numbers(writes).into_iter().for_each(|number| {
                self.watch_set_id(number, true);
            });
        }
        if is_alias(ino) {
            // By its other number it has changed, too.
            self.forget_told(handle(ino));
        }
        self.reply_attr(&mut served, reply, ino, result);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        let target = answer!(served, reply, self.run(self.client.readlink(handle(ino))));
        served.replies();
        reply.data(&target);
    }

    fn mknod(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, rdev: u32, reply: ReplyEntry) {
        let mut served = self.begin(event::FUSE_OTHER, request, parent);
        let kind = answer!(served, reply, kind_of_mode(mode).ok_or(Status::Invalid));
        let who = credentials(request);
        let result = self.run(self.client.mknod(&who, handle(parent), name.as_bytes(), kind, mode & 0o7777, rdev));
        self.reply_entry(&mut served, reply, (parent, name), result);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let mut served = self.begin(event::FUSE_MKDIR, request, parent);
        let result = self.run(self.client.mkdir(&credentials(request), handle(parent), name.as_bytes(), mode & 0o7777));
        self.reply_entry(&mut served, reply, (parent, name), result);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_UNLINK, request, parent);
        answer!(served, reply, self.run(self.client.unlink(&credentials(request), handle(parent), name.as_bytes())));
        served.replies();
        reply.ok();
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_RMDIR, request, parent);
        answer!(served, reply, self.run(self.client.rmdir(&credentials(request), handle(parent), name.as_bytes())));
        served.replies();
        reply.ok();
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let mut served = self.begin(event::FUSE_OTHER, request, parent);
        let target = target.as_os_str().as_bytes();
        let result = self.run(self.client.symlink(&credentials(request), handle(parent), name.as_bytes(), target));
        self.reply_entry(&mut served, reply, (parent, name), result);
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
        let (from, to) = ((handle(parent), name.as_bytes()), (handle(newparent), newname.as_bytes()));
        answer!(served, reply, self.run(self.client.rename(&credentials(request), from.0, from.1, to.0, to.1, flags)));
        let now = self.client.rt().now();
        self.told.moved(from, to, now);
        if flags.exchange {
            self.told.moved(to, from, now);
        }
        served.replies();
        reply.ok();
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        let result = self.run(self.client.link(&credentials(request), handle(ino), handle(newparent), newname.as_bytes()));
        if let Ok(attr) = &result {
            self.told.linked(handle(newparent), newname.as_bytes(), attr, self.client.rt().now());
        }
        self.reply_entry(&mut served, reply, (newparent, newname), result);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let mut served = self.begin(event::FUSE_OPEN, request, ino);
        let rights = rights(flags.0);
        let truncate = flags.0 & libc::O_TRUNC != 0;
        let client = self.client.for_one_operation();
        let opened = self.open_found(&client, request.pid(), &credentials(request), ino, rights, truncate);
        let (attr, file) = answer!(served, reply, opened);
        let mut how = self.open_flags(&attr, &file, flags.0);
        if is_alias(ino) {
            // What is noted of pages is noted of those under the first number.
            how = how.without(FopenFlags::FOPEN_KEEP_CACHE) | FopenFlags::FOPEN_DIRECT_IO;
        }
        // Who opens a file for update may lock it, and a close ends its locks. A new file is rarely locked, and pays nothing for it.
        if self.locks.is_some() && flags.0 & libc::O_ACCMODE == libc::O_RDWR {
            how = how.without(FopenFlags::FOPEN_NOFLUSH);
        }
        let number = self.add_file(&attr, file, how);
        if rights.contains(Rights::WRITE) && set_id_bits(attr.mode) != 0 {
            if truncate && request.uid() != 0 {
                answer!(served, reply, self.clear_set_id(&client, handle(ino)));
            } else {
                self.watch_set_id(number, true);
            }
        }
        served.replies();
        if !reply.opened(FileHandle(number), how) {
            self.forget_open(number);
        }
    }

    fn create(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, flags: i32, reply: ReplyCreate) {
        let mut served = self.begin(event::FUSE_CREATE, request, parent);
        let rights = rights(flags);
        // The kernel believes that there is no such name, and has checked no rights of a file: one that exists all the same is for it to
        // find when it walks the path again. If it has done so already, somebody makes and removes the name in turns.
        let mut who = credentials(request);
        let (second, in_vain) = self.walks.opens(request.pid(), NO_FILE, rights);
        in_vain.into_iter().for_each(|file| self.closer.close(file));
        let wants_new = flags & libc::O_EXCL != 0;
        let is_first = matches!(second, Second::No);
        who.checked_by_kernel = is_first;
        let options = CreateOptions {
            mode: mode & 0o7777,
            exclusive: wants_new || is_first,
            truncate: flags & libc::O_TRUNC != 0,
            rights,
            ..CreateOptions::default()
        };
        let result = self.run(self.client.create(&who, handle(parent), name.as_bytes(), &options));
        let result = result.map_err(|error| {
            if error.status != Status::Exists || wants_new || !is_first {
                return error;
            }
            self.walks.refuse(request.pid(), NO_FILE, rights, self.client.rt().now());
            Error { status: Status::Stale, ..error }
        });
        let (attr, file, _created) = answer!(served, reply, result);
        let ttl = self.tell_name(&served, parent, name, &attr);
        let how = self.open_flags(&attr, &file, flags);
        served.replies();
        let number = self.add_file(&attr, file, how);
        if !reply.created(&ttl, &attributes(&attr), GENERATION, FileHandle(number), how) {
            self.forget_open(number);
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut served = self.begin(event::FUSE_READ, request, ino);
        served.span.range(offset, u64::from(size));
        let open = answer!(served, reply, self.open_file(file));
        self.note_pages(&open);
        // The kernel asks for whole pages; reading past the end would cost a question for the exact size, which an open file of the
        // page cache does not need: what follows the size of its open is for the next open to see.
        let bytes = match open.cached {
            true => u64::from(size).min(open.file.size_known().saturating_sub(offset)),
            false => u64::from(size),
        };
        let pieces = answer!(served, reply, self.run(self.client.read(&open.file, offset, bytes)));
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

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut served = self.begin(event::FUSE_WRITE, request, ino);
        served.span.range(offset, data.len() as u64);
        let client = self.client.for_one_operation();
        let is_plain_user = request.uid() != 0;
        if self.set_id_count.load(Ordering::Relaxed) > 0 && is_plain_user && self.watch_set_id(file.0, false) {
            answer!(served, reply, self.clear_set_id(&client, handle(ino)));
        }
        let open = answer!(served, reply, self.open_file(file));
        let offset = match flags.0 & libc::O_APPEND {
            0 => offset,
            _ => answer!(served, reply, self.append_offset(&client, &open)),
        };
        let bulk = Bulk::Slices(vec![data]);
        let written = match flags.0 & libc::O_SYNC {
            0 => self.run(client.write(&open.file, offset, bulk)),
            // `O_SYNC` is two bits, one of them `O_DSYNC`.
            sync => self.run(client.write_synced(&open.file, offset, bulk, sync == libc::O_DSYNC)),
        };
        answer!(served, reply, written);
        if is_plain_user && let Some(epoch) = open.newer_epoch() {
            answer!(served, reply, self.clear_set_id(&client, handle(ino)));
            open.epoch.store(epoch, Ordering::Relaxed);
        }
        self.told.written(handle(ino));
        served.replies();
        reply.written(data.len() as u32);
    }

    fn flush(&self, request: &Request, ino: INodeNo, _file: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_FLUSH, request, ino);
        // Writes are at the servers when they return, and the servers know that this client has the file open.
        if let Some(locks) = &self.locks {
            locks.closed(handle(ino), owner.0);
        }
        served.replies();
        reply.ok();
    }

    fn getlk(&self, request: &Request, ino: INodeNo, file: FileHandle, owner: LockOwner, lock: &FileLock, reply: ReplyLock) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        let Some(locks) = &self.locks else {
            served.fails(Errno::ENOSYS);
            return reply.error(Errno::ENOSYS);
        };
        let wanted = lock_of(Family::Fcntl, file, owner, lock);
        let found = answer!(served, reply, locks.in_the_way(handle(ino), &wanted));
        served.replies();
        match found {
            None => reply.lock(&FileLock { kind: libc::F_UNLCK, ..*lock }),
            Some(Lock { kind, start, end, process, .. }) => {
                let kind = if kind == Kind::Exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
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
        let Some(locks) = &self.locks else {
            served.fails(Errno::ENOSYS);
            return reply.error(Errno::ENOSYS);
        };
        let wanted = lock_of(if bsd { Family::Flock } else { Family::Fcntl }, file, owner, lock);
        let unlock = || locks.unlock(handle(ino), wanted.family, wanted.owner, wanted.start, wanted.end);
        if lock.kind == libc::F_UNLCK {
            unlock();
            served.replies();
            return reply.ok();
        }
        let is_awaited = || reply.is_awaited();
        let outcome = locks.lock(handle(ino), wanted, if sleep { Some(&is_awaited) } else { None });
        match outcome {
            Ok(()) => {
                served.replies();
                if !reply.ok_if_awaited() {
                    unlock();
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

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        file: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let mut served = self.begin(event::FUSE_RELEASE, request, ino);
        served.replies();
        reply.ok();
        served.reply = None;
        if let Some(locks) = &self.locks {
            locks.released(handle(ino), file.0);
        }
        self.forget_open(file.0);
    }

    fn fsync(&self, request: &Request, ino: INodeNo, file: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_FSYNC, request, ino);
        let open = answer!(served, reply, self.open_file(file));
        answer!(served, reply, self.run(self.client.fsync(&open.file, datasync)));
        served.replies();
        reply.ok();
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        let listing = Arc::new(Listing { dir: handle(ino), page: Mutex::default() });
        served.replies();
        let number = self.listings.add(listing);
        if !reply.opened(FileHandle(number), FopenFlags::empty()) {
            self.listings.remove(number);
        }
    }

    fn readdir(&self, request: &Request, ino: INodeNo, file: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut served = self.begin(event::FUSE_READDIR, request, ino);
        let add = |cookie: u64, name: &[u8], ino: INodeNo, kind: FileType, _attr: Option<(&Attr, u64)>| {
            reply.add(ino, cookie, kind, OsStr::from_bytes(name))
        };
        answer!(served, reply, self.list(file, &credentials(request), offset, false, add));
        served.replies();
        reply.ok();
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, file: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let mut served = self.begin(event::FUSE_READDIR, request, ino);
        let (ttl, now, dir) = (self.ttl, self.client.rt().now(), handle(ino));
        let add = |cookie: u64, name: &[u8], ino: INodeNo, kind: FileType, attr: Option<(&Attr, u64)>| match attr {
            Some((attr, xattr_changes)) if self.told.tell_name(dir, name, attr, xattr_changes, now) => {
                reply.add(ino, cookie, OsStr::from_bytes(name), &ttl, &attributes(attr), GENERATION)
            }
            // Attributes that are not at hand (`.`, `..`, an object that vanished meanwhile), or a name to look up by itself: number 0 gives the
            // kernel the name only.
            _ => reply.add(INodeNo(0), cookie, OsStr::from_bytes(name), &Duration::ZERO, &name_only(ino, kind), GENERATION),
        };
        answer!(served, reply, self.list(file, &credentials(request), offset, true, add));
        served.replies();
        reply.ok();
    }

    fn releasedir(&self, request: &Request, ino: INodeNo, file: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        self.listings.remove(file.0);
        served.replies();
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, _file: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        answer!(served, reply, self.run(self.client.fsync_dir(handle(ino))));
        served.replies();
        reply.ok();
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        const UNIT: u64 = 4096;
        let stats = answer!(served, reply, self.run(self.client.statfs()));
        let (blocks, free) = (stats.capacity_bytes / UNIT, stats.free_bytes / UNIT);
        let inodes_free = u64::from(u32::MAX);
        served.replies();
        reply.statfs(blocks, free, free, stats.inodes + inodes_free, inodes_free, UNIT as u32, 255, UNIT as u32);
    }

    fn setxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, _position: u32, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        if is_unsupported_xattr(name) {
            served.replies();
            return reply.error(Errno::EOPNOTSUPP);
        }
        let flags = XattrFlags { create_only: flags & libc::XATTR_CREATE != 0, replace_only: flags & libc::XATTR_REPLACE != 0 };
        let who = credentials(request);
        self.told.begin_xattr_change();
        let result = self.run(self.client.set_xattr(&who, handle(ino), name.as_bytes(), value, flags));
        self.told.end_xattr_change(handle(ino));
        answer!(served, reply, result);
        served.replies();
        reply.ok();
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        if is_unsupported_xattr(name) {
            served.replies();
            return reply.error(Errno::EOPNOTSUPP);
        }
        if self.told.is_bare(handle(ino), self.client.rt().now()) {
            served.replies();
            return reply.error(Errno::from_i32(libc::ENODATA));
        }
        let value = answer!(served, reply, self.run(self.client.get_xattr(&credentials(request), handle(ino), name.as_bytes())));
        reply_xattr(&mut served, reply, size, &value);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        if self.told.is_bare(handle(ino), self.client.rt().now()) {
            return reply_xattr(&mut served, reply, size, &[]);
        }
        let names = answer!(served, reply, self.run(self.client.list_xattr(&credentials(request), handle(ino))));
        let mut list = Vec::new();
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        reply_xattr(&mut served, reply, size, &list);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        if is_unsupported_xattr(name) {
            served.replies();
            return reply.error(Errno::EOPNOTSUPP);
        }
        answer!(served, reply, self.run(self.client.remove_xattr(&credentials(request), handle(ino), name.as_bytes())));
        served.replies();
        reply.ok();
    }

    fn fallocate(&self, request: &Request, ino: INodeNo, _file: FileHandle, _offset: u64, _length: u64, _mode: i32, reply: ReplyEmpty) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        // Not ENOSYS: the C library then writes the range itself, which is what the caller of posix_fallocate needs.
        served.replies();
        reply.error(Errno::EOPNOTSUPP);
    }
}

/// The protocol of both xattr calls: size 0 asks for the length.
fn reply_xattr(served: &mut Served<'_>, reply: ReplyXattr, size: u32, value: &[u8]) {
    served.replies();
    if size == 0 {
        reply.size(value.len() as u32);
    } else if value.len() > size as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(value);
    }
}
