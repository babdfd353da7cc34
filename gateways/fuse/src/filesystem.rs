//! The kernel's requests, one method each.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use weft_base::{Attr, Credentials, FileKind, Handle, Payload, SECOND, Status};
use weft_client::{CreateOptions, DirPage, Error, OpenFile, RenameFlags as NameFlags, Seen, SetAttr, XattrFlags};
use weft_rt::{Bulk, FaultPoint, Runtime};
use weft_trace::{EventId, OpenSpan, event};
use weft_wire::Rights;

use crate::bare_files::BareFiles;
use crate::convert::{attributes, credentials, errno, file_type, handle, inode, kind_of_mode, set_time};
use crate::kernel::{
    Errno, FileAttr, FileHandle, FileLock, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLock, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use crate::locks::{Family, Kind, Lock, Locks, Refusal};
use crate::open_files::{Listing, Table};
use crate::threads::{Threads, Turn};
use crate::told::Told;
use crate::troubles::Troubles;
use crate::walks::{Second, Walks};
use crate::{MountOptions, REQUEST_BYTES_MAX, SharedClient, SharedCloser};

/// Handles are never reused, so one generation is enough.
const GENERATION: Generation = Generation(0);
/// Requests that the kernel may have under way for readahead and asynchronous direct I/O.
const BACKGROUND_REQUESTS: u16 = 64;
/// A listing asks a server for so many bytes of entries at once.
const LISTING_BYTES: u32 = 192 * 1024;
/// A page of a listing serves the kernel for at most so long, in nanoseconds; then it is read anew.
const LISTING_AGE_MAX: u64 = SECOND;
/// Cookies of the two entries that every directory has; those of the servers are larger.
const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;

/// No file: of an open that was to make one.
const NO_FILE: Handle = Handle(0);

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
    /// Nobody needs to be asked for their extended attributes.
    bare: BareFiles,
}

/// A file that the kernel has open.
#[derive(Debug)]
struct KernelFile {
    file: Arc<OpenFile>,
    /// The kernel reads it through its page cache, in whole pages, and knows itself where the file ends.
    cached: bool,
    /// The version of the file that the kernel's pages are from, once it has asked for one after it dropped those of other versions.
    pages: Option<(u64, u64)>,
    /// This is noted in `cached_versions`.
    is_noted: AtomicBool,
    /// The right to append of a file that was not opened for it.
    append: OnceLock<Arc<OpenFile>>,
}

/// How often a name is looked up again because its file was replaced before it could be opened.
const FIND_TRIES: usize = 16;

/// Versions remembered for the page cache; beyond that, all are forgotten, which costs rereading only.
const CACHED_VERSIONS_MAX: usize = 65_536;

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
            bare: BareFiles::new(u64::try_from(options.cache_ttl.as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    /// Remembers that the first write to this open file clears set-id bits, or says that there are none to clear.
    fn watch_set_id(&self, file: u64, watched: bool) -> bool {
        let mut set = self.set_id.lock().expect("no code panics while it holds this lock");
        let changed = if watched { set.insert(file) } else { set.remove(&file) };
        self.set_id_count.store(set.len(), Ordering::Relaxed);
        changed
    }

    /// Clears the set-id bits of a file that a plain user has changed (POSIX, `write`).
    fn clear_set_id(&self, file: Handle) -> Result<(), Error> {
        let attr = self.run(self.client.getattr(file))?;
        let mode = attr.mode & !set_id_bits(attr.mode);
        if mode != attr.mode {
            let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
            self.run(self.client.setattr(&Credentials::ROOT, file, &change))?;
            // The kernel does not know of it.
            let known = self.told.known(file);
            self.forget_attributes(file);
            known.into_iter().for_each(|known| self.told.forgotten(file, known));
        }
        Ok(())
    }

    /// To be called by a thread that has taken a request, before anything else.
    fn begin(&self, event: EventId, request: &Request, object: INodeNo) -> Served<'_> {
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
        Served { filesystem: self, reply: None, span, turn }
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        self.client.rt().block_on(future)
    }

    fn reply_entry<E: Failure>(&self, served: &mut Served<'_>, reply: ReplyEntry, result: Result<Attr, E>) {
        let attr = answer!(served, reply, result);
        self.told.tell(&attr, self.client.rt().now());
        served.replies();
        reply.entry(&self.ttl, &attributes(&attr), GENERATION);
    }

    fn reply_attr<E: Failure>(&self, served: &mut Served<'_>, reply: ReplyAttr, result: Result<Attr, E>) {
        let attr = answer!(served, reply, result);
        self.told.tell(&attr, self.client.rt().now());
        served.replies();
        reply.attr(&self.ttl, &attributes(&attr));
    }

    /// Makes the kernel forget the attributes of a file: it asks again at their next use. Takes no lock of the kernel that somebody who
    /// waits for this mount may hold (an offset below 0 touches no pages).
    fn forget_attributes(&self, file: Handle) {
        if let Some(notifier) = self.notifier.get() {
            // A file that the kernel does not know any more needs no word.
            let _ = notifier.inval_inode(inode(file), -1, 0);
        }
    }

    /// Opens a file that the kernel has found by what it remembers of names and rights.
    fn open_found(
        &self,
        thread: u32,
        who: &Credentials,
        file: Handle,
        rights: Rights,
        truncate: bool,
    ) -> Result<(Attr, Arc<OpenFile>), Error> {
        let (second, in_vain) = self.walks.opens(thread, file, rights);
        in_vain.into_iter().for_each(|file| self.closer.close(file));
        let (judged, is_first, held) = match second {
            Second::Opened(attr, opened) if !truncate => return Ok((attr, opened)),
            // Kept until it is open once more.
            Second::Opened(_, opened) => (None, false, Some(opened)),
            Second::Same => (None, false, None),
            Second::No => (self.told.judged(file), true, None),
        };
        let outcome = self.run(self.client.open_judged(who, file, rights, truncate, judged));
        held.into_iter().for_each(|file| self.closer.close(file));
        match &outcome {
            Err(error) if error.status == Status::Stale && is_first => {
                self.walks.refuse(thread, file, rights, self.client.rt().now());
                let known = self.told.known(file);
                self.forget_attributes(file);
                known.into_iter().for_each(|known| self.told.forgotten(file, known));
            }
            Ok((attr, _)) => {
                if let Some(known) = self.told.differs(attr) {
                    self.forget_attributes(file);
                    self.told.forgotten(file, known);
                }
            }
            Err(_) => {}
        }
        outcome
    }

    /// Looks a name up for a thread that will open what it finds, and opens it: between look-up and open it could be replaced.
    fn find(&self, thread: u32, who: &Credentials, dir: Handle, name: &[u8], rights: Rights) -> Result<Seen, Error> {
        let mut seen = self.run(self.client.lookup_soon(who, dir, name))?;
        for _ in 0..FIND_TRIES {
            if seen.attr.kind != FileKind::File {
                break;
            }
            match self.run(self.client.open(who, seen.attr.handle, rights, false)) {
                Ok((opened, file)) => {
                    seen = Seen { attr: opened, is_exact: true };
                    let in_vain = self.walks.found(thread, opened, file);
                    in_vain.into_iter().for_each(|file| self.closer.close(file));
                    break;
                }
                Err(error) if error.status == Status::Stale => seen = self.run(self.client.lookup_soon(who, dir, name))?,
                // The open will meet it, too.
                Err(_) => break,
            }
        }
        Ok(seen)
    }

    /// How the kernel shall treat the data of a file that is being opened. Writers and streams go past the page cache: one copy
    /// less, and what one mount writes another reads at once. Small files that are only read use the page cache, so that programs
    /// that read a few bytes at a time are fast; the kernel keeps their pages from an earlier open only if the file is the same.
    fn open_flags(&self, attr: &Attr, file: &OpenFile, flags: i32) -> FopenFlags {
        let no_flush = FopenFlags::FOPEN_NOFLUSH;
        let is_written = file.rights().contains(Rights::WRITE) || file.others_write();
        if is_written || flags & libc::O_DIRECT != 0 || attr.size >= self.direct_from_bytes {
            return no_flush | FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        }
        let versions = self.cached_versions.lock().expect("no code panics while it holds this lock");
        let is_same = versions.get(&attr.handle) == Some(&(attr.version, attr.size));
        if is_same { no_flush | FopenFlags::FOPEN_KEEP_CACHE } else { no_flush }
    }

    /// Notes which version of a file the kernel's pages are from. Not before it asks for one: until it has taken in the answer to its
    /// open, it may still hold pages of another version, and somebody else who opens the file would keep them.
    fn note_pages(&self, open: &KernelFile) {
        if let Some(version) = open.pages
            && !open.is_noted.swap(true, Ordering::Relaxed)
        {
            let mut versions = self.cached_versions.lock().expect("no code panics while it holds this lock");
            if versions.len() >= CACHED_VERSIONS_MAX {
                versions.clear();
            }
            versions.insert(open.file.handle(), version);
        }
    }

    /// The page of a listing that follows `cookie`, from memory if it is there.
    fn listing_page(&self, listing: &Listing, who: &Credentials, cookie: u64, with_attrs: bool) -> Result<Arc<DirPage>, Error> {
        let server_cookie = if cookie <= COOKIE_PARENT { 0 } else { cookie };
        let now = self.client.rt().now();
        let mut kept = listing.page.lock().expect("no code panics while it holds this lock");
        if let Some((after, read_at, page)) = kept.as_ref()
            && server_cookie > 0
            && now.since(*read_at) < LISTING_AGE_MAX
            && (*after == server_cookie || page.entries.binary_search_by_key(&server_cookie, |entry| entry.cookie).is_ok())
            && page.entries.last().is_some_and(|last| page.end || last.cookie > server_cookie)
        {
            return Ok(page.clone());
        }
        let page = match with_attrs {
            true => self.run(self.client.readdir_soon(who, listing.dir, server_cookie, LISTING_BYTES)),
            false => self.run(self.client.readdir(who, listing.dir, server_cookie, LISTING_BYTES, false)),
        }?;
        let page = Arc::new(page);
        *kept = Some((server_cookie, now, page.clone()));
        Ok(page)
    }

    /// Calls `add` for each entry after `cookie`, `.` and `..` first, until it says that the buffer is full.
    fn list(
        &self,
        number: FileHandle,
        who: &Credentials,
        cookie: u64,
        with_attrs: bool,
        mut add: impl FnMut(u64, &[u8], INodeNo, FileType, Option<&Attr>) -> bool,
    ) -> Result<(), Error> {
        let listing = self.listings.get(number.0).ok_or(Error::local(Status::Stale, "list", Handle(0)))?;
        let mut cookie = cookie;
        let mut added = false;
        loop {
            let page = self.listing_page(&listing, who, cookie, with_attrs)?;
            if cookie < COOKIE_SELF && add(COOKIE_SELF, b".", inode(listing.dir), FileType::Directory, None) {
                return Ok(());
            }
            if cookie < COOKIE_PARENT && add(COOKIE_PARENT, b"..", inode(page.parent), FileType::Directory, None) {
                return Ok(());
            }
            for entry in page.entries.iter().filter(|entry| entry.cookie > cookie) {
                added = true;
                if add(entry.cookie, &entry.name, inode(entry.handle), file_type(entry.kind), entry.attr.as_ref()) {
                    return Ok(());
                }
            }
            // An empty page that is not the end is one whose entries all came before the cookie: ask for what follows it.
            match page.entries.last() {
                Some(last) if !page.end && !added => cookie = last.cookie.max(cookie),
                _ => return Ok(()),
            }
        }
    }

    fn add_file(&self, attr: &Attr, file: Arc<OpenFile>, how: FopenFlags) -> u64 {
        let cached = !how.contains(FopenFlags::FOPEN_DIRECT_IO);
        let pages = (cached && !how.contains(FopenFlags::FOPEN_KEEP_CACHE)).then_some((attr.version, attr.size));
        self.files.add(Arc::new(KernelFile { file, cached, pages, is_noted: AtomicBool::new(false), append: OnceLock::new() }))
    }

    /// Closes a file whose opener does not wait any more: the kernel will not.
    fn forget_open(&self, number: u64) {
        if self.set_id_count.load(Ordering::Relaxed) > 0 {
            self.watch_set_id(number, false);
        }
        if let Some(open) = self.files.remove(number) {
            self.close_file(&open);
        }
    }

    fn close_file(&self, open: &KernelFile) {
        self.closer.close(open.file.clone());
        open.append.get().into_iter().for_each(|file| self.closer.close(file.clone()));
    }

    /// Where an append begins. The kernel goes by a size that it remembers; this client knows the true one, because nobody else may write
    /// while it has the right to append.
    fn append_offset(&self, open: &KernelFile) -> Result<u64, Error> {
        if !open.file.rights().contains(Rights::APPEND) && open.append.get().is_none() {
            let rights = Rights::WRITE.with(Rights::APPEND);
            let (_, file) = self.run(self.client.open(&Credentials::ROOT, open.file.handle(), rights, false))?;
            if let Err(second) = open.append.set(file) {
                self.closer.close(second);
            }
        }
        Ok(open.file.size_known())
    }

    fn open_file(&self, number: FileHandle) -> Result<Arc<KernelFile>, Status> {
        self.files.get(number.0).ok_or(Status::Stale)
    }
}

/// A request in service. The fields are dropped in this order: the records are written before the thread may rest.
struct Served<'a> {
    filesystem: &'a WeftFilesystem,
    /// The reply is being handed to the kernel.
    reply: Option<OpenSpan>,
    span: OpenSpan,
    turn: Turn<'a>,
}

impl Served<'_> {
    /// What follows is the reply.
    fn replies(&mut self) {
        self.turn.answers();
        if self.span.is_on() {
            self.reply = Some(weft_trace::span(event::FUSE_REPLY));
        }
    }

    /// What follows is the reply, an error.
    fn fails(&mut self, errno: Errno) {
        if self.span.is_on() {
            self.span.result(errno.code().unsigned_abs() as u16);
        }
        self.replies();
    }
}

/// Why a request cannot be done.
trait Failure {
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

/// A lock as the kernel asks for it.
fn lock_of(family: Family, file: FileHandle, owner: LockOwner, lock: &FileLock) -> Lock {
    let kind = if lock.kind == libc::F_RDLCK { Kind::Shared } else { Kind::Exclusive };
    Lock { family, owner: owner.0, kind, start: lock.start, end: lock.end, process: lock.pid, file: file.0 }
}

/// Rights that the flags of an `open` ask for.
fn rights(flags: i32) -> Rights {
    let write = if flags & libc::O_APPEND != 0 { Rights::WRITE.with(Rights::APPEND) } else { Rights::WRITE };
    match flags & libc::O_ACCMODE {
        libc::O_WRONLY => write,
        libc::O_RDWR => Rights::READ.with(write),
        _ => Rights::READ,
    }
}

/// Set-user-id, and set-group-id where it is not the mark of mandatory locking.
fn set_id_bits(mode: u32) -> u32 {
    (mode & 0o4000) | if mode & 0o010 != 0 { mode & 0o2000 } else { 0 }
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
        let result = match self.walks.wants(request.pid()) {
            Some(rights) => self.find(request.pid(), &who, handle(parent), name.as_bytes(), rights),
            None => self.run(self.client.lookup_soon(&who, handle(parent), name.as_bytes())),
        };
        let seen = answer!(served, reply, result);
        // Who wants a size that cannot be had asks for it, and waits.
        let ttl = if seen.is_exact { self.ttl } else { Duration::ZERO };
        self.told.tell(&seen.attr, self.client.rt().now());
        served.replies();
        reply.entry(&ttl, &attributes(&seen.attr), GENERATION);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _file: Option<FileHandle>, reply: ReplyAttr) {
        let mut served = self.begin(event::FUSE_GETATTR, request, ino);
        // After every change of a directory the kernel asks for its attributes, which we know if we made the change.
        if let Some((attr, age)) = self.client.known_directory(handle(ino)) {
            served.replies();
            return reply.attr(&self.ttl.saturating_sub(Duration::from_nanos(age)), &attributes(&attr));
        }
        let result = self.run(self.client.getattr(handle(ino)));
        self.reply_attr(&mut served, reply, result);
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
        self.reply_attr(&mut served, reply, result);
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
        self.reply_entry(&mut served, reply, result);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let mut served = self.begin(event::FUSE_MKDIR, request, parent);
        let result = self.run(self.client.mkdir(&credentials(request), handle(parent), name.as_bytes(), mode & 0o7777));
        self.reply_entry(&mut served, reply, result);
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
        self.reply_entry(&mut served, reply, result);
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
        served.replies();
        reply.ok();
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        let result = self.run(self.client.link(&credentials(request), handle(ino), handle(newparent), newname.as_bytes()));
        self.reply_entry(&mut served, reply, result);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let mut served = self.begin(event::FUSE_OPEN, request, ino);
        let rights = rights(flags.0);
        let truncate = flags.0 & libc::O_TRUNC != 0;
        let opened = self.open_found(request.pid(), &credentials(request), handle(ino), rights, truncate);
        let (attr, file) = answer!(served, reply, opened);
        let mut how = self.open_flags(&attr, &file, flags.0);
        // Who opens a file for update may lock it, and a close ends its locks. A new file is rarely locked, and pays nothing for it.
        if self.locks.is_some() && flags.0 & libc::O_ACCMODE == libc::O_RDWR {
            how = how.without(FopenFlags::FOPEN_NOFLUSH);
        }
        let number = self.add_file(&attr, file, how);
        if rights.contains(Rights::WRITE) && set_id_bits(attr.mode) != 0 {
            if truncate && request.uid() != 0 {
                answer!(served, reply, self.clear_set_id(handle(ino)));
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
        let asked = self.client.rt().now();
        let result = self.run(self.client.create(&who, handle(parent), name.as_bytes(), &options));
        let result = result.map_err(|error| {
            if error.status != Status::Exists || wants_new || !is_first {
                return error;
            }
            self.walks.refuse(request.pid(), NO_FILE, rights, self.client.rt().now());
            Error { status: Status::Stale, ..error }
        });
        let (attr, file, created) = answer!(served, reply, result);
        if created {
            self.bare.made(attr.handle, asked);
        }
        self.told.tell(&attr, self.client.rt().now());
        let how = self.open_flags(&attr, &file, flags);
        served.replies();
        let number = self.add_file(&attr, file, how);
        if !reply.created(&self.ttl, &attributes(&attr), GENERATION, FileHandle(number), how) {
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
        if self.set_id_count.load(Ordering::Relaxed) > 0 && request.uid() != 0 && self.watch_set_id(file.0, false) {
            answer!(served, reply, self.clear_set_id(handle(ino)));
        }
        let open = answer!(served, reply, self.open_file(file));
        let offset = match flags.0 & libc::O_APPEND {
            0 => offset,
            _ => answer!(served, reply, self.append_offset(&open)),
        };
        let bulk = Bulk::Slices(vec![data]);
        let written = match flags.0 & libc::O_SYNC {
            0 => self.run(self.client.write(&open.file, offset, bulk)),
            // `O_SYNC` is two bits, one of them `O_DSYNC`.
            sync => self.run(self.client.write_synced(&open.file, offset, bulk, sync == libc::O_DSYNC)),
        };
        answer!(served, reply, written);
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
        let add = |cookie: u64, name: &[u8], ino: INodeNo, kind: FileType, _attr: Option<&Attr>| {
            reply.add(ino, cookie, kind, OsStr::from_bytes(name))
        };
        answer!(served, reply, self.list(file, &credentials(request), offset, false, add));
        served.replies();
        reply.ok();
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, file: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let mut served = self.begin(event::FUSE_READDIR, request, ino);
        let (ttl, now) = (self.ttl, self.client.rt().now());
        let add = |cookie: u64, name: &[u8], ino: INodeNo, kind: FileType, attr: Option<&Attr>| match attr {
            Some(attr) => {
                self.told.tell(attr, now);
                reply.add(ino, cookie, OsStr::from_bytes(name), &ttl, &attributes(attr), GENERATION)
            }
            // Attributes that are not at hand (`.`, `..`, an object that vanished meanwhile): number 0 gives the kernel the name only.
            None => reply.add(INodeNo(0), cookie, OsStr::from_bytes(name), &Duration::ZERO, &name_only(ino, kind), GENERATION),
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
        self.bare.forget(handle(ino));
        answer!(served, reply, self.run(self.client.set_xattr(&who, handle(ino), name.as_bytes(), value, flags)));
        served.replies();
        reply.ok();
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        if is_unsupported_xattr(name) {
            served.replies();
            return reply.error(Errno::EOPNOTSUPP);
        }
        if self.bare.is_bare(handle(ino), self.client.rt().now()) {
            served.replies();
            return reply.error(Errno::from_i32(libc::ENODATA));
        }
        let value = answer!(served, reply, self.run(self.client.get_xattr(&credentials(request), handle(ino), name.as_bytes())));
        reply_xattr(&mut served, reply, size, &value);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let mut served = self.begin(event::FUSE_OTHER, request, ino);
        if self.bare.is_bare(handle(ino), self.client.rt().now()) {
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

/// Attributes that say nothing but the kind; the kernel does not keep them.
fn name_only(ino: INodeNo, kind: FileType) -> FileAttr {
    let kind_of = |kind: FileType| match kind {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::NamedPipe => FileKind::Fifo,
        FileType::CharDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Socket => FileKind::Socket,
        FileType::RegularFile => FileKind::File,
    };
    let layout = weft_base::Layout { stripe_bytes: 1, width: 1, first: 0 };
    let time = weft_base::WallTime(0);
    attributes(&Attr {
        handle: handle(ino),
        kind: kind_of(kind),
        mode: 0,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size: 0,
        atime: time,
        mtime: time,
        mtime_epoch: 0,
        ctime: time,
        version: 0,
        truncate_epoch: 0,
        layout,
    })
}
