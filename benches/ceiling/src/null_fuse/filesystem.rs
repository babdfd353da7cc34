//! The answers of the null file system; nothing is stored but one counter.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::{NullFuseConfig, REQUEST_BYTES_MAX};
use crate::rpc::{Client, Endpoint};

/// The kernel keeps nothing: every operation comes here.
const NO_CACHE: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);
const DATA_FLAGS: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
/// Requests that the kernel may have under way for reads and asynchronous direct I/O.
const BACKGROUND_REQUESTS: u16 = 64;

/// What an inode number stands for; the top bits are the kind, the rest is the number in the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Root,
    List,
    Directory(u64),
    File(u64),
    /// Created in this mount; has no name that could be looked up again.
    Created(u64),
}

const KIND_SHIFT: u32 = 60;
const NUMBER_MASK: u64 = (1 << KIND_SHIFT) - 1;
const KIND_DIRECTORY: u64 = 1;
const KIND_FILE: u64 = 2;
const KIND_CREATED: u64 = 3;

impl Node {
    fn ino(self) -> INodeNo {
        let of = |kind: u64, number: u64| kind << KIND_SHIFT | number & NUMBER_MASK;
        INodeNo(match self {
            Node::Root => INodeNo::ROOT.0,
            Node::List => 2,
            Node::Directory(number) => of(KIND_DIRECTORY, number),
            Node::File(number) => of(KIND_FILE, number),
            Node::Created(number) => of(KIND_CREATED, number),
        })
    }

    fn of_ino(ino: INodeNo) -> Option<Self> {
        let number = ino.0 & NUMBER_MASK;
        match ino.0 >> KIND_SHIFT {
            0 if ino == INodeNo::ROOT => Some(Node::Root),
            0 if number == 2 => Some(Node::List),
            KIND_DIRECTORY => Some(Node::Directory(number)),
            KIND_FILE => Some(Node::File(number)),
            KIND_CREATED => Some(Node::Created(number)),
            _ => None,
        }
    }

    fn of_name(name: &OsStr) -> Option<Self> {
        match name.as_bytes() {
            b"list" => Some(Node::List),
            [b'd', digits @ ..] => decimal(digits).map(Node::Directory),
            [b'f', digits @ ..] => decimal(digits).map(Node::File),
            _ => None,
        }
    }
}

/// A decimal number that fits into an inode number beside its kind.
fn decimal(digits: &[u8]) -> Option<u64> {
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (number <= NUMBER_MASK).then_some(number)
}

pub(super) struct NullFilesystem {
    config: NullFuseConfig,
    created: AtomicU64,
    /// What every read answers with.
    zeros: Vec<u8>,
    uid: u32,
    gid: u32,
    /// Connections to the server that is asked; one for each thread that asks.
    connections: Mutex<Vec<Client>>,
}

impl NullFilesystem {
    pub(super) fn new(config: NullFuseConfig, uid: u32, gid: u32) -> Self {
        Self { config, created: AtomicU64::new(0), zeros: vec![0; REQUEST_BYTES_MAX as usize], uid, gid, connections: Mutex::default() }
    }

    fn attr(&self, node: Node) -> FileAttr {
        let (kind, perm, size) = match node {
            Node::Root | Node::List | Node::Directory(_) => (FileType::Directory, 0o755, 0),
            Node::File(_) => (FileType::RegularFile, 0o644, self.config.file_bytes),
            Node::Created(_) => (FileType::RegularFile, 0o644, 0),
        };
        FileAttr {
            ino: node.ino(),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Asks the server, if there is one, and answers by `reply`, or with an error.
    fn change<R>(&self, reply: R, done: impl FnOnce(R), failed: impl FnOnce(R, Errno)) {
        match self.ask() {
            Ok(()) => done(reply),
            Err(_) => failed(reply, Errno::EIO),
        }
    }

    fn ask(&self) -> anyhow::Result<()> {
        let Some(socket) = &self.config.asks else { return Ok(()) };
        let locked = || self.connections.lock().expect("no code panics while it holds this lock");
        let idle = locked().pop();
        let mut client = match idle {
            Some(client) => client,
            None => Client::for_requests(&Endpoint::Unix(socket.clone()))?,
        };
        client.round_trip()?;
        locked().push(client);
        Ok(())
    }

    fn new_node(&self) -> Node {
        Node::Created(self.created.fetch_add(1, Ordering::Relaxed))
    }

    /// Entries of a directory: only `list` has any.
    fn entries(&self, ino: INodeNo) -> u64 {
        match Node::of_ino(ino) {
            Some(Node::List) => self.config.list_entries,
            _ => 0,
        }
    }
}

impl Filesystem for NullFilesystem {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // All of these are improvements only: a kernel that lacks one still gives a valid, lower
        // ceiling.
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_REQUESTS);
        let mut wanted = vec![InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_ATOMIC_O_TRUNC];
        if self.config.readdirplus {
            wanted.push(InitFlags::FUSE_DO_READDIRPLUS);
        }
        for capability in wanted {
            let _ = config.add_capabilities(capability);
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match Node::of_name(name) {
            Some(node) => reply.entry(&NO_CACHE, &self.attr(node), GENERATION),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match Node::of_ino(ino) {
            Some(node) => reply.attr(&NO_CACHE, &self.attr(node)),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.getattr(req, ino, fh, reply);
    }

    fn mkdir(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        let attr = self.attr(Node::Directory(number));
        self.change(reply, |reply| reply.entry(&NO_CACHE, &attr, GENERATION), ReplyEntry::error);
    }

    fn unlink(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        self.change(reply, ReplyEmpty::ok, ReplyEmpty::error);
    }

    fn rmdir(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        self.change(reply, ReplyEmpty::ok, ReplyEmpty::error);
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), DATA_FLAGS);
    }

    fn create(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, _mode: u32, _umask: u32, _flags: i32, reply: ReplyCreate) {
        let attr = self.attr(self.new_node());
        self.change(reply, |reply| reply.created(&NO_CACHE, &attr, GENERATION, FileHandle(0), DATA_FLAGS), ReplyCreate::error);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(Node::File(_)) = Node::of_ino(ino) else {
            return reply.data(&[]);
        };
        let left_bytes = self.config.file_bytes.saturating_sub(offset);
        let wanted_bytes = left_bytes.min(u64::from(size)) as usize;
        reply.data(&self.zeros[..wanted_bytes.min(self.zeros.len())]);
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(data.len() as u32);
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        // The kernel remembers this answer and asks no more at close.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut name = EntryName::default();
        for number in offset..self.entries(ino) {
            let ino = Node::File(number).ino();
            if reply.add(ino, number + 1, FileType::RegularFile, name.of(number)) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let mut name = EntryName::default();
        for number in offset..self.entries(ino) {
            let attr = self.attr(Node::File(number));
            if reply.add(attr.ino, number + 1, name.of(number), &NO_CACHE, &attr, GENERATION) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096);
    }

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// `f<number>` without an allocation per entry.
#[derive(Default)]
struct EntryName(String);

impl EntryName {
    fn of(&mut self, number: u64) -> &str {
        use std::fmt::Write;
        self.0.clear();
        // Writing into a string cannot fail.
        let _ = write!(self.0, "f{number}");
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inode_numbers_and_nodes_are_one_to_one() {
        for node in [Node::Root, Node::List, Node::Directory(0), Node::File(7), Node::Created(NUMBER_MASK)] {
            assert_eq!(Node::of_ino(node.ino()), Some(node));
        }
        assert_eq!(Node::of_ino(INodeNo(3)), None);
    }

    #[test]
    fn names_that_exist() {
        assert_eq!(Node::of_name(OsStr::new("list")), Some(Node::List));
        assert_eq!(Node::of_name(OsStr::new("d12")), Some(Node::Directory(12)));
        assert_eq!(Node::of_name(OsStr::new("f0")), Some(Node::File(0)));
        for unknown in ["n1", "f", "d-1", "f1x", "", "f18446744073709551615"] {
            assert_eq!(Node::of_name(OsStr::new(unknown)), None, "{unknown}");
        }
    }
}
